//! Attacks on logins: nothing is forwarded or stored, and a regular login works afterwards.

use super::*;

/// Checks that no code was sent and nothing stored, then logs in.
async fn assert_unharmed(world: &World) {
    assert!(world.issuer.requests_for("POST /token").is_empty());
    let grant = world.folder.read_grant(&world.target()).unwrap();
    assert_eq!(grant, None);
    let resource = world.resource_metadata();
    world.server.answer(RESOURCE, 200, &resource);
    let metadata = world.server_metadata();
    world.issuer.answer(SERVER, 200, &metadata);
    world.log_in().await;
}

#[tokio::test]
async fn an_answer_that_is_not_from_the_issuer_is_never_exchanged() {
    let world = World::start().await;
    let origin = world.issuer.origin();
    for iss in [
        String::new(),
        "&iss=https://evil.example".to_owned(),
        format!("&iss={origin}/"),
        format!("&iss={origin}&iss={origin}"),
    ] {
        let begun = world.begin(&OAuthSettings::default()).await.unwrap();
        let state = begun.pending.state.expose();
        let query = format!("code=code-1&state={state}{iss}");
        let error = world.finish(&begun, &query).await.unwrap_err();
        assert!(!error.to_string().contains("evil"), "{error}");
    }
    world.change_metadata(
        "\"authorization_response_iss_parameter_supported\": true",
        "\"x\": 1",
    );
    let begun = world.begin(&OAuthSettings::default()).await.unwrap();
    let state = begun.pending.state.expose();
    let query = format!("code=code-1&state={state}&iss=https://evil.example");
    let error = world.finish(&begun, &query).await.unwrap_err();
    assert!(matches!(error, LoginError::OtherSender { .. }), "{error}");
    assert_unharmed(&world).await;
}

#[tokio::test]
async fn an_answer_at_the_address_of_another_issuer_is_never_exchanged() {
    let world = World::start().await;
    let begun = world.begin(&OAuthSettings::default()).await.unwrap();
    let response = AuthorizationResponse::from_query(&world.good_query(&begun)).unwrap();
    let path = crate::authorization_request::callback_path(&url("https://honest.example"));
    let finished = finish_login(&world.fetcher, &world.folder, &response, Some(&path)).await;
    assert!(
        matches!(finished, Err(LoginError::OtherCallback { .. })),
        "{finished:?}"
    );
    assert_unharmed(&world).await;
}

#[tokio::test]
async fn metadata_for_another_server_is_refused() {
    let world = World::start().await;
    let own = world.server.url("/mcp").to_string();
    let origin = world.server.origin();
    for resource in [
        "https://evil.example/mcp".to_owned(),
        format!("{origin}/other"),
        format!("{own}/below"),
        // The parent has its own metadata.
        origin.clone(),
        format!("{own}#x"),
        String::new(),
    ] {
        let metadata = world.resource_metadata();
        let metadata = metadata.replace(&format!("\"{own}\""), &format!("\"{resource}\""));
        world.server.answer(RESOURCE, 200, &metadata);
        let error = world.begin(&OAuthSettings::default()).await.unwrap_err();
        assert!(
            matches!(error, LoginError::OtherResource { .. }),
            "{resource}: {error}"
        );
        assert!(world.issuer.lines().is_empty(), "{resource}");
    }
    assert_unharmed(&world).await;
}

#[tokio::test]
async fn metadata_of_another_issuer_is_refused() {
    let world = World::start().await;
    let origin = world.issuer.origin();
    world.change_metadata(&format!("\"{origin}\""), "\"https://honest.example\"");
    let error = world.begin(&OAuthSettings::default()).await.unwrap_err();
    assert!(matches!(error, LoginError::MixedMetadata { .. }), "{error}");
    assert!(world.issuer.requests_for("POST /register").is_empty());
    assert_unharmed(&world).await;
}

#[tokio::test]
async fn an_authorization_server_without_s256_is_refused() {
    let world = World::start().await;
    world.change_metadata("[\"S256\"]", "[\"plain\"]");
    let error = world.begin(&OAuthSettings::default()).await.unwrap_err();
    assert!(matches!(error, LoginError::NoPkce { .. }), "{error}");
    assert!(world.issuer.requests_for("POST /register").is_empty());
    assert_unharmed(&world).await;
}

#[tokio::test]
async fn an_address_that_a_browser_must_not_open_is_refused() {
    let world = World::start().await;
    let endpoint = format!("{}/authorize", world.issuer.origin());
    for hostile in [
        "javascript:alert(1)",
        "$(x)",
        "file:///etc/passwd",
        "http://evil.example/",
    ] {
        world.change_metadata(&endpoint, hostile);
        let error = world.begin(&OAuthSettings::default()).await.unwrap_err();
        assert!(
            matches!(error, LoginError::Endpoint { .. }),
            "{hostile}: {error}"
        );
    }
    assert!(world.issuer.requests_for("POST /register").is_empty());
    assert_unharmed(&world).await;
}

#[tokio::test]
async fn a_code_is_not_sent_to_a_private_address() {
    let world = World::start().await;
    let endpoint = format!("{}/token", world.issuer.origin());
    world.change_metadata(&endpoint, "https://169.254.169.254/token");
    let begun = world.begin(&OAuthSettings::default()).await.unwrap();
    let error = world
        .finish(&begun, &world.good_query(&begun))
        .await
        .unwrap_err();
    assert!(matches!(error, LoginError::Token { .. }), "{error}");
    assert!(error.to_string().contains("169.254.169.254"), "{error}");
    assert_unharmed(&world).await;
}

#[tokio::test]
async fn a_challenge_leads_to_no_private_address() {
    let world = World::start().await;
    // Without metadata that would be good enough.
    world.server.forget(RESOURCE);
    for address in [
        "https://169.254.169.254/latest",
        "https://10.0.0.1/",
        "http://evil.example/",
    ] {
        let challenge = BearerChallenge {
            resource_metadata: Some(url(address)),
            ..BearerChallenge::default()
        };
        let found = world.find_challenged(&challenge).await;
        assert!(
            matches!(found, Err(LoginError::Fetch { .. })),
            "{address}: {found:?}"
        );
    }
    assert!(world.issuer.lines().is_empty());
    assert_unharmed(&world).await;
}

#[tokio::test]
async fn large_documents_and_redirects_are_not_followed_up() {
    let world = World::start().await;
    let large = format!("{{\"x\": \"{}\"}}", "x".repeat(10 * 1024 * 1024));
    world.server.answer(RESOURCE, 200, &large);
    let error = world.begin(&OAuthSettings::default()).await.unwrap_err();
    assert!(matches!(error, LoginError::Fetch { .. }), "{error}");
    let resource = world.resource_metadata();
    world.server.answer(RESOURCE, 200, &resource);
    world.issuer.answer(SERVER, 200, &large);
    let error = world.begin(&OAuthSettings::default()).await.unwrap_err();
    assert!(matches!(error, LoginError::Fetch { .. }), "{error}");
    world.issuer.answer(SERVER, 302, "");
    let error = world.begin(&OAuthSettings::default()).await.unwrap_err();
    assert!(matches!(error, LoginError::NoMetadata { .. }), "{error}");
    let metadata = world.server_metadata();
    world.issuer.answer(SERVER, 200, &metadata);
    world.issuer.answer("/register", 307, "");
    let error = world.begin(&OAuthSettings::default()).await.unwrap_err();
    assert!(matches!(error, LoginError::Fetch { .. }), "{error}");
    world
        .issuer
        .answer("/register", 201, r#"{"client_id": "registered"}"#);
    for server in [&world.server, &world.issuer] {
        assert!(
            server
                .lines()
                .iter()
                .all(|line| !line.contains("/elsewhere"))
        );
    }
    assert_unharmed(&world).await;
}

#[tokio::test]
async fn no_byte_of_an_answer_is_in_an_error() {
    let world = World::start().await;
    let canary = r#"{"error": "canary", "error_description": "canary", "client_id": "canary"}"#;
    world.issuer.answer("/register", 400, canary);
    let error = world.begin(&OAuthSettings::default()).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("canary"), "{shown}");
    world
        .issuer
        .answer("/register", 201, r#"{"client_id": "registered"}"#);
    let begun = world.begin(&OAuthSettings::default()).await.unwrap();
    let state = begun.pending.state.expose();
    let iss = world.issuer.origin();
    let query = format!("error=canary&error_description=canary&state={state}&iss={iss}");
    let error = world.finish(&begun, &query).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("canary"), "{shown}");
    assert_unharmed(&world).await;
}
