//! Clients that get tokens for themselves: which requests they send, and when.

use std::sync::Arc;
use std::time::Duration;

use moongate_transport::LinkError;
use moongate_transport::credential_source::{AuthChallenge, CredentialSource};

use super::{RESOURCE, SERVER, World, fetcher, parameters};
use crate::assertion_key::AssertionKey;
use crate::assertion_key::tests::{p256_pem, read_parts};
use crate::client_token_source::ClientTokenSource;
use crate::secret_text::SecretText;
use crate::settings::{AssertionSettings, ClientCredentialsSettings, ClientProof};

/// Metadata of an authorization server without a browser.
fn token_server(world: &World, more: &str) -> String {
    let origin = world.issuer.origin();
    format!(r#"{{"issuer": "{origin}", "token_endpoint": "{origin}/token"{more}}}"#)
}

async fn start() -> World {
    let world = World::start().await;
    let metadata = token_server(&world, "");
    world.issuer.answer(SERVER, 200, &metadata);
    answer_tokens(&world, &["access-1", "access-2", "access-3"]);
    world
}

/// Sets the tokens that come one after another, each good for an hour.
fn answer_tokens(world: &World, tokens: &[&str]) {
    let whole = |token: &&str| {
        format!(r#"{{"access_token": "{token}", "token_type": "bearer", "expires_in": 3600}}"#)
    };
    let bodies: Vec<String> = tokens.iter().map(whole).collect();
    let answers: Vec<(u16, &str)> = bodies.iter().map(|body| (200, body.as_str())).collect();
    world.issuer.answer_in_turn("/token", &answers);
}

fn settings(world: &World, proof: ClientProof) -> ClientCredentialsSettings {
    ClientCredentialsSettings {
        client_id: "moongate".to_owned(),
        proof,
        issuer: world.issuer.url("/"),
        scopes: None,
        sends_resource: true,
    }
}

fn with_secret(world: &World) -> ClientCredentialsSettings {
    settings(world, ClientProof::Secret(SecretText::new("hush")))
}

fn source(world: &World, settings: ClientCredentialsSettings) -> ClientTokenSource {
    ClientTokenSource::new(world.target(), settings, Arc::new(fetcher()))
}

async fn sent(source: &ClientTokenSource) -> String {
    let header = source.authorization().await.unwrap().unwrap();
    assert!(header.is_sensitive());
    header.to_str().unwrap().to_owned()
}

async fn failure(source: &ClientTokenSource) -> String {
    let error = source.authorization().await.unwrap_err();
    assert!(matches!(error, LinkError::Unreachable(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("servers.files.auth"), "{text}");
    assert!(!text.contains("hush"), "{text}");
    text
}

async fn refuse(source: &ClientTokenSource, status: u16) -> bool {
    let sent = source.authorization().await.unwrap();
    let challenge = AuthChallenge {
        status,
        values: Vec::new(),
    };
    source.on_refusal(sent.as_ref(), &challenge).await
}

/// Moves the clock while nothing is asked.
async fn advance(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn count_requests(world: &World) -> usize {
    world.issuer.requests_for("POST /token").len()
}

#[tokio::test]
async fn a_client_with_a_secret_asks_as_itself() {
    let world = start().await;
    let source = source(&world, with_secret(&world));
    assert_eq!(sent(&source).await, "Bearer access-1");
    let requests = world.issuer.requests_for("POST /token");
    let form = parameters(&requests[0].body);
    let of = |name: &str| form.get(name).map(String::as_str);
    assert_eq!(of("grant_type"), Some("client_credentials"));
    assert_eq!(of("scope"), Some("read"), "that of the server's metadata");
    assert_eq!(of("resource"), Some(world.server.url("/mcp").as_str()));
    assert_eq!(of("client_secret"), None, "it is in the header alone");
    let header = &requests[0].headers["authorization"];
    assert_eq!(header, "Basic bW9vbmdhdGU6aHVzaA==");
}

#[tokio::test]
async fn a_secret_goes_into_the_form_where_only_that_is_listed() {
    let world = start().await;
    let listed = r#", "token_endpoint_auth_methods_supported": ["client_secret_post"]"#;
    let metadata = token_server(&world, listed);
    world.issuer.answer(SERVER, 200, &metadata);
    let settings = ClientCredentialsSettings {
        scopes: Some(vec!["files:read".to_owned(), "files:write".to_owned()]),
        sends_resource: false,
        ..with_secret(&world)
    };
    let source = source(&world, settings);
    sent(&source).await;
    let requests = world.issuer.requests_for("POST /token");
    assert!(!requests[0].headers.contains_key("authorization"));
    let form = parameters(&requests[0].body);
    assert_eq!(form["client_id"], "moongate");
    assert_eq!(form["client_secret"], "hush");
    assert_eq!(form["scope"], "files:read files:write");
    assert!(!form.contains_key("resource"));
}

#[tokio::test]
async fn a_server_chooses_no_scope_of_a_token_that_names_no_resource() {
    let world = start().await;
    let settings = ClientCredentialsSettings {
        sends_resource: false,
        ..with_secret(&world)
    };
    let source = source(&world, settings);
    assert_eq!(sent(&source).await, "Bearer access-1");
    let requests = world.issuer.requests_for("POST /token");
    let form = parameters(&requests[0].body);
    assert!(!form.contains_key("resource"));
    assert!(!form.contains_key("scope"), "{form:?}");
}

#[tokio::test]
async fn a_client_with_a_key_signs_for_the_address_that_it_asks() {
    let world = start().await;
    let endpoint = world.issuer.url("/token");
    for (audience, expected) in [
        (None, endpoint.as_str()),
        (Some("https://issuer.example"), "https://issuer.example"),
    ] {
        let assertion = AssertionSettings {
            key: AssertionKey::from_pem(&p256_pem()).unwrap(),
            key_id: Some("key-1".to_owned()),
            audience: audience.map(str::to_owned),
        };
        let source = source(&world, settings(&world, ClientProof::Assertion(assertion)));
        sent(&source).await;
        let requests = world.issuer.requests_for("POST /token");
        let request = requests.last().unwrap();
        assert!(!request.headers.contains_key("authorization"));
        let form = parameters(&request.body);
        let assertion_type = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
        assert_eq!(form["client_assertion_type"], assertion_type);
        let [header, claims] = read_parts(&form["client_assertion"]);
        assert_eq!(header.alg.as_deref(), Some("ES256"));
        assert_eq!(claims.aud.as_deref(), Some(expected));
    }
}

#[tokio::test]
async fn a_token_is_used_for_most_of_its_life() {
    let world = start().await;
    let source = source(&world, with_secret(&world));
    for _ in 0..5 {
        assert_eq!(sent(&source).await, "Bearer access-1");
    }
    assert_eq!(count_requests(&world), 1);
    advance(Duration::from_secs(2900)).await;
    assert_eq!(sent(&source).await, "Bearer access-2");
    let lines = world.issuer.lines();
    let discoveries = lines.iter().filter(|line| line.contains("well-known"));
    assert_eq!(discoveries.count(), 1, "{lines:?}");
}

#[tokio::test]
async fn requests_at_the_same_time_share_one_token() {
    let world = start().await;
    let source = source(&world, with_secret(&world));
    let all = futures_util::future::join_all((0..20).map(|_| sent(&source))).await;
    assert!(
        all.iter().all(|token| token == "Bearer access-1"),
        "{all:?}"
    );
    assert_eq!(count_requests(&world), 1);
}

#[tokio::test]
async fn a_refused_token_is_replaced_once_it_is_half_a_minute_old() {
    let world = start().await;
    let source = source(&world, with_secret(&world));
    assert_eq!(sent(&source).await, "Bearer access-1");
    assert!(!refuse(&source, 401).await, "it is new");
    advance(Duration::from_secs(31)).await;
    assert!(
        !refuse(&source, 403).await,
        "it is good, and may not do this"
    );
    assert!(refuse(&source, 401).await);
    assert_eq!(sent(&source).await, "Bearer access-2");
    assert_eq!(count_requests(&world), 2);
}

#[tokio::test]
async fn a_failure_is_reported_and_the_next_attempt_comes_later() {
    let world = start().await;
    let refused = r#"{"error": "invalid_client", "error_description": "hush"}"#;
    world.issuer.answer("/token", 401, refused);
    let source = source(&world, with_secret(&world));
    assert!(failure(&source).await.contains("127.0.0.1"));
    failure(&source).await;
    assert_eq!(count_requests(&world), 1, "one attempt in five seconds");
    answer_tokens(&world, &["access-1"]);
    advance(Duration::from_secs(6)).await;
    assert_eq!(sent(&source).await, "Bearer access-1");
}

#[tokio::test]
async fn a_token_lives_on_while_its_issuer_is_down() {
    let world = start().await;
    let source = source(&world, with_secret(&world));
    assert_eq!(sent(&source).await, "Bearer access-1");
    world.issuer.answer("/token", 503, "");
    advance(Duration::from_secs(3000)).await;
    assert_eq!(sent(&source).await, "Bearer access-1");
    advance(Duration::from_secs(700)).await;
    failure(&source).await;
}

#[tokio::test]
async fn another_issuer_in_the_metadata_gets_nothing() {
    let world = start().await;
    let evil = super::fake_server::FakeServer::start().await;
    let origin = evil.origin();
    let metadata = format!(r#"{{"issuer": "{origin}", "token_endpoint": "{origin}/token"}}"#);
    world.issuer.answer(SERVER, 200, &metadata);
    let resource = world.resource_metadata();
    let resource = resource.replace(&world.issuer.origin(), &origin);
    world.server.answer(RESOURCE, 200, &resource);
    let source = source(&world, with_secret(&world));
    failure(&source).await;
    assert_eq!(count_requests(&world), 0);
    assert!(evil.requests().is_empty(), "{:?}", evil.lines());
}
