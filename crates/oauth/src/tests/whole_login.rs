//! Logins from start to finish: what is sent, what is kept, and how they end.

use super::*;
use crate::authorization_request::callback_path;
use crate::file_names::LoginNames;
use crate::grant::{ClientAuthMethod, LoginGrant};
use crate::login::{LogoutOutcome, log_out};
use crate::secret_text::SecretText;
use crate::token_endpoint::{TokenFailure, refresh, revoke};

fn grant(world: &World) -> LoginGrant {
    let grant = world.folder.read_grant(&world.target()).unwrap();
    grant.unwrap()
}

/// Parameters of the last request with this method and target.
fn last_form(server: &FakeServer, line: &str) -> BTreeMap<String, String> {
    let requests = server.requests_for(line);
    parameters(&requests.last().unwrap().body)
}

#[tokio::test]
async fn a_login_registers_authorizes_and_stores_a_grant() {
    let world = World::start().await;
    let begun = world.begin(&OAuthSettings::default()).await.unwrap();
    let registration = &world.issuer.requests_for("POST /register")[0];
    let redirect = format!(
        "http://127.0.0.1:8080{}",
        callback_path(&world.issuer.url("/"))
    );
    let expected = format!(
        "{{\"client_name\":\"Moongate\",\"redirect_uris\":[\"{redirect}\"],\
         \"grant_types\":[\"authorization_code\",\"refresh_token\"],\
         \"response_types\":[\"code\"],\"token_endpoint_auth_method\":\"none\",\
         \"application_type\":\"native\",\"scope\":\"read\"}}"
    );
    assert_eq!(registration.body, expected);
    assert_eq!(begun.url.path(), "/authorize");
    let query = parameters(begun.url.query().unwrap());
    let resource = world.server.url("/mcp").to_string();
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", "registered"),
        ("redirect_uri", redirect.as_str()),
        ("state", begun.pending.state.expose()),
        ("code_challenge_method", "S256"),
        ("scope", "read"),
        ("resource", resource.as_str()),
    ] {
        assert_eq!(query.get(name).map(String::as_str), Some(value), "{name}");
    }
    let target = world
        .finish(&begun, &world.good_query(&begun))
        .await
        .unwrap();
    assert_eq!(target, world.target());
    let form = last_form(&world.issuer, "POST /token");
    for (name, value) in [
        ("grant_type", "authorization_code"),
        ("code", "code-1"),
        ("redirect_uri", redirect.as_str()),
        ("code_verifier", begun.pending.verifier.expose()),
        ("client_id", "registered"),
        ("resource", resource.as_str()),
    ] {
        assert_eq!(form.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert_eq!(form.len(), 6);
    let grant = grant(&world);
    assert_eq!(grant.access.expose(), "access-1");
    assert_eq!(grant.refresh, Some(SecretText::new("refresh-1")));
    assert_eq!(grant.scope_asked.as_deref(), Some("read"));
    let life = grant.expires.unwrap().duration_since(grant.obtained);
    assert_eq!(life.as_secs(), 3600);
    // An answer counts once.
    let again = world.finish(&begun, &world.good_query(&begun)).await;
    let error = again.unwrap_err();
    assert!(matches!(error, LoginError::UnknownState), "{error}");
    assert_eq!(world.issuer.requests_for("POST /token").len(), 1);
}

#[tokio::test]
async fn nothing_is_registered_before_the_person_was_asked() {
    let world = World::start().await;
    let found = world.find(&OAuthSettings::default()).await.unwrap();
    assert!(!found.is_elsewhere);
    assert_eq!(found.page_host(), "127.0.0.1");
    assert!(world.issuer.requests_for("POST /register").is_empty());
}

#[tokio::test]
async fn a_registration_that_is_refused_for_its_scope_is_sent_without() {
    let world = World::start().await;
    let refused = r#"{"error": "invalid_client_metadata"}"#;
    let given = r#"{"client_id": "registered"}"#;
    world
        .issuer
        .answer_in_turn("/register", &[(400, refused), (201, given)]);
    let begun = world.begin(&OAuthSettings::default()).await.unwrap();
    assert_eq!(begun.pending.client.id, "registered");
    assert_eq!(begun.pending.scope_asked.as_deref(), Some("read"));
    let sent = world.issuer.requests_for("POST /register");
    let names_scope = |at: usize| sent[at].body.contains("\"scope\"");
    assert_eq!(sent.len(), 2);
    assert!(names_scope(0) && !names_scope(1));
    // Without a scope, a second attempt would be the same.
    world.issuer.answer("/register", 400, refused);
    let settings = OAuthSettings {
        scopes: Some(Vec::new()),
        ..OAuthSettings::default()
    };
    world.begin(&settings).await.unwrap_err();
    assert_eq!(world.issuer.requests_for("POST /register").len(), 3);
}

#[tokio::test]
async fn an_address_is_pasted() {
    let world = World::start().await;
    let begun = world.begin(&OAuthSettings::default()).await.unwrap();
    let redirect = &begun.pending.client.redirect;
    // The address of another login is refused, and this one keeps waiting.
    let other = format!(
        "{redirect}?code=x&state=other&iss={}",
        world.issuer.origin()
    );
    let other = AuthorizationResponse::from_address(&other).unwrap();
    let refused = finish_login(&world.fetcher, &world.folder, &other, None).await;
    assert!(
        matches!(refused, Err(LoginError::UnknownState)),
        "{refused:?}"
    );
    let text = format!(" {redirect}?{}\n", world.good_query(&begun));
    let response = AuthorizationResponse::from_address(&text).unwrap();
    let target = finish_login(&world.fetcher, &world.folder, &response, None).await;
    assert_eq!(target.unwrap(), world.target());
}

#[tokio::test]
async fn a_client_of_the_config_authenticates_in_the_listed_way() {
    for (method, has_header) in [("client_secret_basic", true), ("client_secret_post", false)] {
        let world = World::start().await;
        world.change_metadata("[\"none\"]", &format!("[\"{method}\"]"));
        let settings = OAuthSettings {
            client_id: Some("mine".to_owned()),
            client_secret: Some(SecretText::new("hush")),
            sends_resource: false,
            ..OAuthSettings::default()
        };
        let begun = world.begin(&settings).await.unwrap();
        assert!(world.issuer.requests_for("POST /register").is_empty());
        let query = parameters(begun.url.query().unwrap());
        assert_eq!(query.get("client_id").map(String::as_str), Some("mine"));
        assert!(!query.contains_key("resource") && !query.contains_key("client_secret"));
        world
            .finish(&begun, &world.good_query(&begun))
            .await
            .unwrap();
        let sent = &world.issuer.requests_for("POST /token")[0];
        let form = parameters(&sent.body);
        // `mine:hush` in base64.
        let header = has_header.then(|| "Basic bWluZTpodXNo".to_owned());
        assert_eq!(sent.headers.get("authorization").cloned(), header);
        assert_eq!(form.contains_key("client_secret"), !has_header);
        assert_eq!(form.contains_key("client_id"), !has_header);
        assert!(!form.contains_key("resource"));
    }
}

#[tokio::test]
async fn our_client_document_is_the_client_where_it_is_announced() {
    let world = World::start().await;
    let announced = "\"client_id_metadata_document_supported\": true, \"issuer\"";
    world.change_metadata("\"issuer\"", announced);
    let document = "https://conformance-test.local/client-metadata.json";
    let settings = OAuthSettings {
        client_id_url: Some(url(document)),
        ..OAuthSettings::default()
    };
    let begun = world.begin(&settings).await.unwrap();
    assert_eq!(begun.pending.client.id, document);
    assert_eq!(begun.pending.client.method, ClientAuthMethod::None);
    assert!(world.issuer.requests_for("POST /register").is_empty());
}

#[tokio::test]
async fn without_any_client_the_error_says_what_to_register() {
    let world = World::start().await;
    world.change_metadata("registration_endpoint", "other_endpoint");
    let error = world.begin(&OAuthSettings::default()).await.unwrap_err();
    let text = error.to_string();
    let redirect = format!(
        "http://127.0.0.1:8080{}",
        callback_path(&world.issuer.url("/"))
    );
    let LoginError::NoRegistration { issuer, .. } = error else {
        panic!("{text}");
    };
    assert_eq!(issuer, world.issuer.origin());
    assert!(text.contains(&redirect), "{text}");
    assert!(text.contains("servers.files.auth.client_id"), "{text}");
}

#[tokio::test]
async fn a_refresh_names_the_scope_that_was_asked_for() {
    let world = World::start().await;
    let target = world.log_in().await;
    let next = r#"{"access_token": "access-2", "token_type": "bearer", "expires_in": "60"}"#;
    world.issuer.answer("/token", 200, next);
    let tokens = refresh(&world.fetcher, &target, &grant(&world))
        .await
        .unwrap();
    assert_eq!(tokens.access.expose(), "access-2");
    assert_eq!(tokens.refresh, None, "the old one stays valid");
    let form = last_form(&world.issuer, "POST /token");
    let resource = world.server.url("/mcp").to_string();
    let expected = [
        ("client_id", "registered"),
        ("grant_type", "refresh_token"),
        ("refresh_token", "refresh-1"),
        ("resource", resource.as_str()),
        ("scope", "read"),
    ];
    let owned = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(form, BTreeMap::from(owned));
    // Discovery was only for the login.
    assert_eq!(world.issuer.requests_for(&format!("GET {SERVER}")).len(), 1);
}

#[tokio::test]
async fn a_scope_that_was_not_granted_is_left_out_of_the_refresh() {
    let world = World::start().await;
    let target = world.log_in().await;
    let tokens = r#"{"access_token": "access-2", "token_type": "Bearer"}"#;
    let refused = r#"{"error": "invalid_scope"}"#;
    world
        .issuer
        .answer_in_turn("/token", &[(400, refused), (200, tokens)]);
    refresh(&world.fetcher, &target, &grant(&world))
        .await
        .unwrap();
    let form = last_form(&world.issuer, "POST /token");
    assert!(!form.contains_key("scope"));
}

#[tokio::test]
async fn a_refresh_ends_a_login_only_if_the_server_says_so() {
    let world = World::start().await;
    let target = world.log_in().await;
    let mut grant = grant(&world);
    world.issuer.answer("/token", 503, "");
    let failure = refresh(&world.fetcher, &target, &grant).await.unwrap_err();
    assert!(matches!(failure, TokenFailure::Unavailable(_)), "{failure}");
    world
        .issuer
        .answer("/token", 400, r#"{"error": "invalid_grant"}"#);
    let failure = refresh(&world.fetcher, &target, &grant).await.unwrap_err();
    assert!(matches!(failure, TokenFailure::Ended(_)), "{failure}");
    world
        .issuer
        .answer("/token", 400, r#"{"error": "unauthorized_client"}"#);
    let failure = refresh(&world.fetcher, &target, &grant).await.unwrap_err();
    assert!(matches!(failure, TokenFailure::Unavailable(_)), "{failure}");
    assert!(
        failure.to_string().ends_with("or log in again"),
        "{failure}"
    );
    // One that has ended is not tried again.
    grant.ended = true;
    let requests = world.issuer.requests().len();
    let failure = refresh(&world.fetcher, &target, &grant).await.unwrap_err();
    assert!(matches!(failure, TokenFailure::Ended(_)), "{failure}");
    assert_eq!(world.issuer.requests().len(), requests);
}

#[tokio::test]
async fn a_logout_revokes_and_forgets() {
    let world = World::start().await;
    let target = world.log_in().await;
    let outcome = log_out(&world.fetcher, &world.folder, &target)
        .await
        .unwrap();
    assert_eq!(outcome, LogoutOutcome::Revoked);
    let sent = world.issuer.requests_for("POST /revoke");
    let hints = ["refresh_token", "access_token"];
    let tokens = ["refresh-1", "access-1"];
    assert_eq!(sent.len(), 2);
    for (n, request) in sent.iter().enumerate() {
        let form = parameters(&request.body);
        assert_eq!(form.get("token").map(String::as_str), Some(tokens[n]));
        assert_eq!(
            form.get("token_type_hint").map(String::as_str),
            Some(hints[n])
        );
        assert_eq!(
            form.get("client_id").map(String::as_str),
            Some("registered")
        );
    }
    assert_eq!(world.folder.read_grant(&target).unwrap(), None);
    let outcome = log_out(&world.fetcher, &world.folder, &target)
        .await
        .unwrap();
    assert_eq!(outcome, LogoutOutcome::NotLoggedIn);
}

#[tokio::test]
async fn an_answer_is_kept_if_the_login_cannot_be_locked() {
    let world = World::start().await;
    let begun = world.begin(&OAuthSettings::default()).await.unwrap();
    let stem = LoginNames::of(&world.target()).stem;
    let in_the_way = world.state.path().join(format!("logins/{stem}.lock"));
    std::fs::create_dir(&in_the_way).unwrap();
    let query = world.good_query(&begun);
    let error = world.finish(&begun, &query).await.unwrap_err();
    assert!(matches!(error, LoginError::Folder(_)), "{error}");
    assert!(world.issuer.requests_for("POST /token").is_empty());
    std::fs::remove_dir(&in_the_way).unwrap();
    world.finish(&begun, &query).await.unwrap();
    assert_eq!(grant(&world).access.expose(), "access-1");
}

#[tokio::test]
async fn tokens_that_cannot_be_written_are_revoked() {
    let world = World::start().await;
    let begun = world.begin(&OAuthSettings::default()).await.unwrap();
    // Keeps files in the folder from being replaced, even by root.
    std::fs::create_dir_all(world.state.path().join("logins/.new/x")).unwrap();
    let ended = world.finish(&begun, &world.good_query(&begun)).await;
    assert!(matches!(ended, Err(LoginError::Folder(_))), "{ended:?}");
    let sent = world.issuer.requests_for("POST /revoke");
    let tokens: Vec<_> = sent
        .iter()
        .filter_map(|request| parameters(&request.body).remove("token"))
        .collect();
    assert_eq!(tokens, ["refresh-1", "access-1"]);
    assert_eq!(world.folder.read_grant(&world.target()).unwrap(), None);
}

#[tokio::test]
async fn the_reason_for_a_failure_is_kept_for_a_waiting_process() {
    let world = World::start().await;
    let begun = world.begin(&OAuthSettings::default()).await.unwrap();
    let state = begun.pending.state.expose();
    assert_eq!(world.folder.take_failure(state).unwrap(), None);
    world
        .issuer
        .answer("/token", 400, r#"{"error": "invalid_grant"}"#);
    let query = world.good_query(&begun);
    let error = world.finish(&begun, &query).await.unwrap_err();
    let reason = world.folder.take_failure(state).unwrap();
    assert_eq!(reason, Some(error.to_string()));
    assert_eq!(world.folder.take_failure(state).unwrap(), None);
    // An answer that nobody waits for leaves nothing.
    world.finish(&begun, &query).await.unwrap_err();
    assert_eq!(world.folder.take_failure(state).unwrap(), None);
}

#[tokio::test]
async fn a_login_that_cannot_be_revoked_is_forgotten() {
    let world = World::start().await;
    let target = world.log_in().await;
    world.issuer.answer("/revoke", 503, "");
    let failure = revoke(&world.fetcher, &target, &grant(&world)).await;
    assert!(
        matches!(failure, Err(TokenFailure::Unavailable(_))),
        "{failure:?}"
    );
    let sent = world.issuer.requests_for("POST /revoke");
    assert_eq!(sent.len(), 2, "the access token is revoked, too");
    let outcome = log_out(&world.fetcher, &world.folder, &target)
        .await
        .unwrap();
    assert_eq!(outcome, LogoutOutcome::Forgotten);
    assert_eq!(world.folder.read_grant(&target).unwrap(), None);
}

#[tokio::test]
async fn each_login_registers_again_and_keeps_its_own_client() {
    let world = World::start().await;
    world.log_in().await;
    world
        .issuer
        .answer("/register", 201, r#"{"client_id": "second"}"#);
    let begun = world.begin(&OAuthSettings::default()).await.unwrap();
    assert_eq!(grant(&world).client.id, "registered");
    assert_eq!(begun.pending.client.id, "second");
    world
        .finish(&begun, &world.good_query(&begun))
        .await
        .unwrap();
    assert_eq!(grant(&world).client.id, "second");
    // The previous login is revoked, with its own client.
    let sent = world.issuer.requests_for("POST /revoke");
    assert_eq!(sent.len(), 2);
    let form = parameters(&sent[0].body);
    let client = form.get("client_id").map(String::as_str);
    assert_eq!(client, Some("registered"));
}

#[tokio::test]
async fn a_login_that_shares_its_client_with_the_next_one_is_not_revoked() {
    let world = World::start().await;
    let settings = OAuthSettings {
        client_id: Some("mine".to_owned()),
        ..OAuthSettings::default()
    };
    for _ in 0..2 {
        let begun = world.begin(&settings).await.unwrap();
        let query = world.good_query(&begun);
        world.finish(&begun, &query).await.unwrap();
    }
    assert!(world.issuer.requests_for("POST /revoke").is_empty());
}

#[tokio::test]
async fn a_login_that_moves_names_both_authorization_servers() {
    let world = World::start().await;
    world.log_in().await;
    let found = world.find(&OAuthSettings::default()).await.unwrap();
    assert_eq!(found.moved_from, None);
    // The page to open may be on another host than the issuer.
    world.change_metadata(
        &format!("{}/authorize", world.issuer.origin()),
        "https://login.example/authorize",
    );
    let mut before = grant(&world);
    before.issuer = url("https://old.example/tenant");
    let target = world.target();
    world.folder.remove_grant(&target).unwrap();
    for (before, host, moved_from) in [
        (None, "login.example", None),
        (Some(&before), "127.0.0.1", Some("old.example")),
    ] {
        if let Some(before) = before {
            world.folder.write_grant(&target, before).unwrap();
        }
        let found = world.find(&OAuthSettings::default()).await.unwrap();
        assert!(found.is_elsewhere);
        assert_eq!(found.moved_from.as_deref(), moved_from);
        assert_eq!(found.host(), host);
        assert_eq!(found.page_host(), "login.example");
    }
}

#[tokio::test]
async fn more_scope_is_asked_for_three_times_in_all() {
    let world = World::start().await;
    world.log_in().await;
    let base = redirect_base();
    let settings = OAuthSettings::default();
    let challenge = BearerChallenge {
        scope: Some("write".to_owned()),
        error: Some("insufficient_scope".to_owned()),
        ..BearerChallenge::default()
    };
    let mut asked = 0;
    loop {
        let found = match world.find_challenged(&challenge).await {
            Ok(found) => found,
            Err(error) => {
                assert!(matches!(error, LoginError::StepUpLimit { .. }), "{error}");
                break;
            }
        };
        let begun = found.begin(&world.fetcher, &settings, &base).await.unwrap();
        assert_eq!(begun.pending.scope_asked.as_deref(), Some("write read"));
        world.folder.put_pending(&begun.pending).unwrap();
        world
            .finish(&begun, &world.good_query(&begun))
            .await
            .unwrap();
        asked += 1;
    }
    assert_eq!(asked, 2);
}

#[tokio::test]
async fn scope_that_a_call_needed_is_asked_for_by_the_next_login() {
    let world = World::start().await;
    let target = world.log_in().await;
    let settings = OAuthSettings::default();
    for _ in 0..2 {
        world.folder.add_wanted_scope(&target, "write").unwrap();
        let begun = world.begin(&settings).await.unwrap();
        assert_eq!(begun.pending.scope_asked.as_deref(), Some("write read"));
        let query = world.good_query(&begun);
        world.finish(&begun, &query).await.unwrap();
        assert_eq!(world.folder.wanted_scope(&target).unwrap(), None);
    }
    // Three logins did not grant it. That is reported once, and blocks no later login.
    world.folder.add_wanted_scope(&target, "write").unwrap();
    let error = world.begin(&settings).await.unwrap_err();
    assert!(matches!(error, LoginError::StepUpLimit { .. }), "{error}");
    let begun = world.begin(&settings).await.unwrap();
    assert_eq!(begun.pending.step_ups, 0);
}

#[cfg(unix)]
#[tokio::test]
async fn an_unreadable_login_is_not_taken_for_a_missing_one() {
    let world = World::start().await;
    // A file where the folder should be.
    std::fs::write(world.state.path().join("logins"), "").unwrap();
    let error = world.find(&OAuthSettings::default()).await.unwrap_err();
    assert!(matches!(error, LoginError::Folder(_)), "{error}");
    assert!(world.server.lines().is_empty());
}

#[tokio::test]
async fn a_registered_client_moves_to_another_issuer_and_one_of_the_config_does_not() {
    let world = World::start().await;
    let settings = OAuthSettings {
        client_id: Some("mine".to_owned()),
        ..OAuthSettings::default()
    };
    let begun = world.begin(&settings).await.unwrap();
    world
        .finish(&begun, &world.good_query(&begun))
        .await
        .unwrap();
    let other = FakeServer::start().await;
    let origin = world.issuer.origin();
    let moved = world.resource_metadata().replace(&origin, &other.origin());
    world.server.answer(RESOURCE, 200, &moved);
    let metadata = world.server_metadata().replace(&origin, &other.origin());
    other.answer(SERVER, 200, &metadata);
    other.answer("/register", 201, r#"{"client_id": "new"}"#);
    let error = world.begin(&settings).await.unwrap_err();
    assert!(matches!(error, LoginError::OtherIssuer { .. }), "{error}");
    assert!(other.lines().is_empty(), "nothing was sent there");
    let begun = world.begin(&OAuthSettings::default()).await.unwrap();
    assert_eq!(begun.pending.client.id, "new");
    assert_eq!(begun.pending.iss, other.origin());
}
