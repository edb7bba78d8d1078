//! Discovery, as the specification and the official test suite require it.

use super::*;
use crate::challenge::BearerChallenge;
use crate::discovery::{DiscoveryOutcome, discover};

async fn discover_with(
    world: &World,
    settings: &OAuthSettings,
    metadata: Option<Url>,
) -> Result<DiscoveryOutcome, LoginError> {
    let challenge = BearerChallenge {
        resource_metadata: metadata,
        ..BearerChallenge::default()
    };
    discover(
        &world.fetcher,
        &world.target(),
        settings,
        None,
        Some(&challenge),
    )
    .await
}

async fn discovered(world: &World, metadata: Option<Url>) -> DiscoveryOutcome {
    let found = discover_with(world, &OAuthSettings::default(), metadata).await;
    found.unwrap()
}

#[tokio::test]
async fn the_url_of_a_challenge_comes_first_and_alone() {
    let world = World::start().await;
    let resource = world.resource_metadata();
    world.server.answer("/custom/metadata.json", 200, &resource);
    world.server.forget(RESOURCE);
    let named = world.server.url("/custom/metadata.json");
    let found = discovered(&world, Some(named)).await;
    assert_eq!(world.server.lines(), ["GET /custom/metadata.json"]);
    assert_eq!(world.issuer.lines(), [format!("GET {SERVER}")]);
    // Exactly as published.
    let published = world.server.url("/mcp").to_string();
    assert_eq!(found.resource, Some(published));
    assert_eq!(found.scopes_supported, Some(vec!["read".to_owned()]));
    assert_eq!(found.server.iss, world.issuer.origin());
    let accepted = world.issuer.requests()[0].headers.get("accept").cloned();
    assert_eq!(accepted.as_deref(), Some("application/json"));
}

#[tokio::test]
async fn without_a_challenge_the_path_comes_before_the_root() {
    let world = World::start().await;
    discovered(&world, None).await;
    assert_eq!(world.server.lines(), [format!("GET {RESOURCE}")]);
    world.server.forget(RESOURCE);
    let origin = world.server.origin();
    let resource = world.resource_metadata();
    let resource = resource.replace(&format!("{origin}/mcp"), &origin);
    let root = "/.well-known/oauth-protected-resource";
    world.server.answer(root, 200, &resource);
    let found = discovered(&world, Some(world.server.url("/gone"))).await;
    // No slash was added to it.
    assert_eq!(found.resource, Some(origin));
    let lines = [
        "GET /gone".to_owned(),
        format!("GET {RESOURCE}"),
        format!("GET {root}"),
    ];
    assert_eq!(world.server.lines()[1..], lines);
}

#[tokio::test]
async fn a_document_of_another_kind_counts_as_absent() {
    let world = World::start().await;
    let resource = world.resource_metadata();
    world
        .server
        .answer("/.well-known/oauth-protected-resource", 200, &resource);
    for (status, body) in [
        (500, ""),
        (302, ""),
        (401, "{}"),
        (200, "<html>"),
        (200, "{}"),
        (200, r#"{"error": "not found"}"#),
        (200, r#"{"resource": 7}"#),
    ] {
        world.server.answer(RESOURCE, status, body);
        discovered(&world, None).await;
    }
    for (status, body) in [(404, ""), (302, ""), (200, "<html>"), (200, "{}")] {
        world.issuer.answer(SERVER, status, body);
        let openid = "/.well-known/openid-configuration";
        world.issuer.answer(openid, 200, &world.server_metadata());
        discovered(&world, None).await;
    }
}

/// Path of the metadata of the whole host.
const ROOT: &str = "/.well-known/oauth-protected-resource";

#[tokio::test]
async fn a_document_that_cannot_be_used_does_not_hide_the_next_one() {
    let world = World::start().await;
    let resource = world.resource_metadata();
    let origin = world.server.origin();
    let of_root = resource.replace(&format!("{origin}/mcp"), &origin);
    world.server.answer(ROOT, 200, &of_root);
    let large = format!("<html>{}", "x".repeat(70 * 1024));
    // Only the root may publish the second.
    for (status, body) in [(200, &*large), (200, &*of_root), (503, ""), (429, "")] {
        world.server.answer(RESOURCE, status, body);
        let found = discovered(&world, None).await;
        assert_eq!(found.resource.as_ref(), Some(&origin), "{status}");
    }
    world.server.answer(RESOURCE, 200, &resource);
    for named in ["http://metadata.example/", "https://10.0.0.1/"] {
        let found = discovered(&world, Some(url(named))).await;
        assert_eq!(found.server.iss, world.issuer.origin(), "{named}");
    }
    let openid = "/.well-known/openid-configuration";
    world.issuer.answer(openid, 200, &world.server_metadata());
    for (status, body) in [(200, &*large), (503, "")] {
        world.issuer.answer(SERVER, status, body);
        discovered(&world, None).await;
    }
}

#[tokio::test]
async fn a_large_page_for_any_path_leaves_the_server_its_own_issuer() {
    let world = World::start().await;
    let large = format!("<html>{}", "x".repeat(70 * 1024));
    world.server.answer(RESOURCE, 200, &large);
    world.server.answer(ROOT, 200, &large);
    let metadata = world.server_metadata();
    let own = metadata.replace(&world.issuer.origin(), &world.server.origin());
    world.server.answer(SERVER, 200, &own);
    let found = discovered(&world, None).await;
    assert_eq!(found.server.iss, world.server.origin());
}

#[tokio::test]
async fn a_busy_host_is_an_error_that_says_to_try_later() {
    let world = World::start().await;
    // The login must not go to this one just because the metadata is unavailable.
    let metadata = world.server_metadata();
    let own = metadata.replace(&world.issuer.origin(), &world.server.origin());
    world.server.answer(SERVER, 200, &own);
    let settings = OAuthSettings::default();
    for status in [429, 503] {
        for (host, path) in [(&world.server, RESOURCE), (&world.issuer, SERVER)] {
            host.answer(path, status, "");
            let error = discover_with(&world, &settings, None).await.unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, LoginError::Busy { .. }), "{path}: {text}");
            assert!(text.ends_with("try again later"), "{text}");
            world
                .server
                .answer(RESOURCE, 200, &world.resource_metadata());
        }
        world.issuer.answer(SERVER, 200, &world.server_metadata());
    }
}

#[tokio::test]
async fn the_next_issuer_is_tried_if_the_first_cannot_be_used() {
    let world = World::start().await;
    let origin = world.issuer.origin();
    let first = FakeServer::start().await;
    let resource = world.resource_metadata();
    let both = format!("\"{}\", \"{origin}\"", first.origin());
    let resource = resource.replace(&format!("\"{origin}\""), &both);
    world.server.answer(RESOURCE, 200, &resource);
    let unsafe_one = world.server_metadata().replace("S256", "plain");
    let unsafe_one = unsafe_one.replace(&origin, &first.origin());
    for (status, body) in [(404, ""), (503, ""), (200, &*unsafe_one)] {
        first.answer(SERVER, status, body);
        let found = discovered(&world, None).await;
        assert_eq!(found.server.iss, origin, "{status}");
    }
    // The error is about the first.
    world.issuer.forget(SERVER);
    let found = discover_with(&world, &OAuthSettings::default(), None).await;
    let error = found.unwrap_err();
    assert!(matches!(error, LoginError::NoPkce { .. }), "{error}");
}

#[tokio::test]
async fn an_issuer_with_a_path_has_three_candidates() {
    let world = World::start().await;
    let origin = world.issuer.origin();
    let tenant = format!("{origin}/tenant1");
    let resource = world.resource_metadata().replace(&origin, &tenant);
    world.server.answer(RESOURCE, 200, &resource);
    let metadata = world.server_metadata();
    let metadata = metadata.replace(&format!("\"{origin}\""), &format!("\"{tenant}\""));
    world
        .issuer
        .answer("/tenant1/.well-known/openid-configuration", 200, &metadata);
    let found = discovered(&world, None).await;
    assert_eq!(found.server.iss, tenant);
    let expected = [
        "GET /.well-known/oauth-authorization-server/tenant1",
        "GET /.well-known/openid-configuration/tenant1",
        "GET /tenant1/.well-known/openid-configuration",
    ];
    assert_eq!(world.issuer.lines(), expected);
}

#[tokio::test]
async fn a_server_without_resource_metadata_is_its_own_issuer() {
    let world = World::start().await;
    world.server.forget(RESOURCE);
    let metadata = world.server_metadata();
    let own = metadata.replace(&world.issuer.origin(), &world.server.origin());
    world.server.answer(SERVER, 200, &own);
    let found = discovered(&world, None).await;
    assert_eq!(found.server.iss, world.server.origin());
    let canonical = world.server.url("/mcp").to_string();
    assert_eq!(found.resource, Some(canonical));
    assert_eq!(found.scopes_supported, None);
    // The default endpoints of 2025-03-26 are not used.
    world.server.forget(SERVER);
    let error = discover_with(&world, &OAuthSettings::default(), None).await;
    let error = error.unwrap_err();
    assert!(matches!(error, LoginError::NoLogin { .. }), "{error}");
    // An issuer in the config is used.
    let settings = OAuthSettings {
        issuer: Some(world.issuer.url("")),
        ..OAuthSettings::default()
    };
    let found = discover_with(&world, &settings, None).await.unwrap();
    assert_eq!(found.server.iss, world.issuer.origin());
}

#[tokio::test]
async fn the_issuer_of_the_config_is_chosen_from_several() {
    let world = World::start().await;
    let origin = world.issuer.origin();
    let resource = world.resource_metadata();
    let several = format!("\"https://other.example\", \"{origin}\"");
    let resource = resource.replace(&format!("\"{origin}\""), &several);
    world.server.answer(RESOURCE, 200, &resource);
    let settings = OAuthSettings {
        issuer: Some(world.issuer.url("/")),
        ..OAuthSettings::default()
    };
    let found = discover_with(&world, &settings, None).await.unwrap();
    assert_eq!(found.server.iss, origin);
}

#[tokio::test]
async fn a_web_socket_server_logs_in_over_http() {
    let world = World::start().await;
    let mut target = world.target();
    target.url.set_scheme("ws").unwrap();
    let fetcher = Fetcher::new(tls_without_roots(), &FetchRules::default());
    let settings = OAuthSettings::default();
    // Its own origin may be private, and have no TLS.
    let resource = world.resource_metadata();
    let own = resource.replace(&world.issuer.origin(), &world.server.origin());
    world.server.answer(RESOURCE, 200, &own);
    let metadata = world.server_metadata();
    let own = metadata.replace(&world.issuer.origin(), &world.server.origin());
    world.server.answer(SERVER, 200, &own);
    let found = discover(&fetcher, &target, &settings, None, None)
        .await
        .unwrap();
    assert_eq!(found.server.iss, world.server.origin());
    assert_eq!(found.target, target, "a login is for the URL of the config");
    let resource = world.server.url("/mcp").to_string();
    assert_eq!(found.resource.as_ref(), Some(&resource));
    // Without a document, too.
    world.server.forget(RESOURCE);
    let found = discover(&fetcher, &target, &settings, None, None)
        .await
        .unwrap();
    assert_eq!(found.server.iss, world.server.origin());
    assert_eq!(found.resource, Some(resource));
}

// Other systems reach nothing at this address.
#[cfg(unix)]
#[tokio::test]
async fn an_authorization_server_without_tls_is_on_this_machine_or_allowed() {
    let world = World::start().await;
    // An address that reaches this machine and isn't loopback.
    let origin = world.server.origin().replace("127.0.0.1", "0.0.0.0");
    let resource = world.resource_metadata();
    let resource = resource.replace(&world.server.origin(), &origin);
    let resource = resource.replace(&world.issuer.origin(), &origin);
    world.server.answer(RESOURCE, 200, &resource);
    let metadata = world.server_metadata();
    let own = metadata.replace(&world.issuer.origin(), &origin);
    world.server.answer(SERVER, 200, &own);
    let target = LoginTarget {
        url: url(&format!("{origin}/mcp")),
        ..world.target()
    };
    let settings = OAuthSettings::default();
    let allowing = |hosts: &[&str]| {
        let rules = FetchRules {
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            ..FetchRules::default()
        };
        Fetcher::new(tls_without_roots(), &rules)
    };
    let found = discover(&allowing(&[]), &target, &settings, None, None).await;
    let error = found.unwrap_err();
    assert!(matches!(error, LoginError::Fetch { .. }), "{error}");
    assert!(error.to_string().contains("egress.allow"), "{error}");
    assert_eq!(world.server.lines(), [format!("GET {RESOURCE}")]);
    let found = discover(&allowing(&["0.0.0.0"]), &target, &settings, None, None).await;
    assert_eq!(found.unwrap().server.iss, origin);
}

#[tokio::test]
async fn an_issuer_of_the_config_replaces_the_list() {
    let world = World::start().await;
    let origin = world.issuer.origin();
    // The list names an issuer that its metadata does not.
    let resource = world.resource_metadata();
    let resource = resource.replace(&origin, &format!("{origin}/tenant1"));
    world.server.answer(RESOURCE, 200, &resource);
    let metadata = world.server_metadata();
    world
        .issuer
        .answer(&format!("{SERVER}/tenant1"), 200, &metadata);
    let found = discover_with(&world, &OAuthSettings::default(), None).await;
    let error = found.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, LoginError::MixedMetadata { .. }), "{text}");
    // Both are on one host, so their paths are shown.
    let asked = format!("{origin}/tenant1, the authorization server of files");
    assert!(text.starts_with(&asked), "{text}");
    let remedy = format!("`servers.files.auth.issuer` to \"{origin}\"");
    assert!(text.ends_with(&remedy), "{text}");
    assert!(
        text.contains(&format!("only if you trust {origin}")),
        "{text}"
    );
    let settings = OAuthSettings {
        issuer: Some(world.issuer.url("/")),
        ..OAuthSettings::default()
    };
    let found = discover_with(&world, &settings, None).await.unwrap();
    assert_eq!(found.server.iss, origin);
    assert_eq!(found.scopes_supported, Some(vec!["read".to_owned()]));
    // Its metadata must have that issuer, too.
    let settings = OAuthSettings {
        issuer: Some(world.issuer.url("/tenant1")),
        ..OAuthSettings::default()
    };
    let found = discover_with(&world, &settings, None).await;
    let error = found.unwrap_err();
    assert!(matches!(error, LoginError::MixedMetadata { .. }), "{error}");
    // Nothing else is tried for it.
    let settings = OAuthSettings {
        issuer: Some(world.issuer.url("/gone")),
        ..OAuthSettings::default()
    };
    let found = discover_with(&world, &settings, None).await;
    let error = found.unwrap_err();
    assert!(matches!(error, LoginError::NoMetadata { .. }), "{error}");
}

#[tokio::test]
async fn the_config_may_leave_the_resource_out() {
    let world = World::start().await;
    let settings = OAuthSettings {
        sends_resource: false,
        ..OAuthSettings::default()
    };
    let found = discover_with(&world, &settings, None).await.unwrap();
    assert_eq!(found.resource, None);
}
