//! Access tokens of the operator's own issuer, from the config to the response.

use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use axum::Router;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use moongate::app::{GatewayApp, GatewayCore};
use moongate_access::auth::AuthMethods;
use moongate_config::{LoadOptions, Plan};
use moongate_listener::ListenAddress;
use moongate_protocol::SUPPORTED;
use moongate_session::store::StoreSettings;
use moongate_telemetry::Metrics;
use moongate_testing::HttpEndpoint;
use moongate_tokens::TokenMethodSource;
use moongate_transport::reaper::Reaper;
use moongate_upstream::UpstreamRuntime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
const METADATA: &str = "/.well-known/oauth-protected-resource/mcp";
const CHALLENGE: &str = concat!(
    r#"Bearer resource_metadata="https://mcp.test/.well-known/oauth-protected-resource/mcp", "#,
    r#"scope="mcp""#
);

/// Issuer with one key.
struct Issuer {
    key: Ed25519KeyPair,
}

impl Issuer {
    fn new() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let key = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        Issuer { key }
    }

    /// Serves its key set. Returns the URL.
    async fn serve_keys(&self) -> String {
        let public: &[u8] = self.key.public_key().as_ref();
        let x = URL_SAFE_NO_PAD.encode(public);
        let set = format!(r#"{{"keys":[{{"kty":"OKP","kid":"a","crv":"Ed25519","x":"{x}"}}]}}"#);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let length = set.len();
                let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{set}");
                let _ = stream.write_all(text.as_bytes()).await;
            }
        });
        format!("http://{address}/keys")
    }

    /// Signs a token of Ann for the endpoint over everything, with these members at its end.
    fn token(&self, more: &str) -> String {
        self.token_of("ann", more)
    }

    fn token_of(&self, subject: &str, more: &str) -> String {
        let expires = jiff::Timestamp::now().as_second() + 600;
        let claims = format!(
            r#"{{"iss":"https://login.test","aud":"https://mcp.test/mcp","sub":"{subject}","exp":{expires},{more}}}"#
        );
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","kid":"a"}"#);
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.key.sign(signed.as_bytes()));
        format!("Bearer {signed}.{signature}")
    }
}

fn plan_of(config: &str) -> Plan {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("moongate.toml");
    std::fs::write(&path, config).unwrap();
    let options = LoadOptions {
        paths: vec![path],
        revisions: &SUPPORTED,
        ..LoadOptions::default()
    };
    moongate_config::load(&options).unwrap().plan
}

fn config(jwks_url: &str) -> String {
    format!(
        r#"
        [gateway]
        public_url = "https://mcp.test"
        [[auth.jwt]]
        issuer = "https://login.test"
        jwks_url = "{jwks_url}"
        algorithms = ["EdDSA"]
        [[auth.roles]]
        name = "staff"
        match = {{ issuer = "https://login.test", groups = ["staff"] }}
        "#
    )
}

/// Gateway without sockets.
struct Fixture {
    core: GatewayCore,
    routes: Router,
}

impl Fixture {
    fn with(plan: &Plan) -> Self {
        let source = Arc::new(TokenMethodSource::new(Vec::new(), &[7; 32]));
        let methods =
            AuthMethods::with_source(Arc::default(), Vec::new(), Some(source), &plan.auth);
        let shared = UpstreamRuntime::new(Arc::new(Metrics::new()), Reaper::disabled());
        let core = GatewayCore::with_methods(plan, Arc::new(shared), methods);
        let routes = moongate_listener::router(core.shared_state.clone(), false);
        Fixture { core, routes }
    }

    async fn send(&self, request: http::request::Builder, body: &'static str) -> Response<Body> {
        let request = request.header("accept", "application/json, text/event-stream");
        let request = request.header("content-type", "application/json");
        self.routes
            .clone()
            .oneshot(request.body(Body::from(body)).unwrap())
            .await
            .unwrap()
    }

    async fn get(&self, path: &str, host: &str) -> (StatusCode, String) {
        let request = Request::get(path).header("host", host);
        let response = self.send(request, "").await;
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Opens a session at a path with a token. Returns the status and the challenge.
    async fn hello(&self, path: &str, token: &str) -> (StatusCode, Option<String>) {
        let request = Request::post(path)
            .header("host", "mcp.test")
            .header(header::AUTHORIZATION, token);
        let response = self.send(request, HELLO).await;
        let challenge = response.headers().get(header::WWW_AUTHENTICATE);
        let challenge = challenge.map(|value| value.to_str().unwrap().to_owned());
        (response.status(), challenge)
    }
}

#[tokio::test]
async fn metadata_leads_to_the_issuer_under_the_public_host_alone() {
    let fixture = Fixture::with(&plan_of(&config("http://127.0.0.1:9/keys")));
    let (status, document) = fixture.get(METADATA, "mcp.test").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        document,
        concat!(
            r#"{"resource":"https://mcp.test/mcp","authorization_servers":["https://login.test"],"#,
            r#""scopes_supported":["mcp"],"bearer_methods_supported":["header"]}"#
        )
    );
    // Whether an endpoint exists is not said.
    let nowhere = format!("{METADATA}/nowhere");
    assert_eq!(fixture.get(&nowhere, "mcp.test").await.0, StatusCode::OK);
    let without = Fixture::with(&plan_of(""));
    let refused = without.get(METADATA, "localhost").await;
    assert_eq!(refused.0, StatusCode::NOT_FOUND);
    for (path, host) in [
        (METADATA, "127.0.0.1"),
        (METADATA, "localhost:8080"),
        ("/.well-known/oauth-protected-resource", "mcp.test"),
        ("/.well-known/oauth-protected-resource/other", "mcp.test"),
        ("/.well-known/oauth-authorization-server", "mcp.test"),
    ] {
        assert_eq!(fixture.get(path, host).await, refused, "{path} at {host}");
    }
    // A reload to a config without issuers takes everything back.
    let core = &fixture.core;
    core.reloader
        .apply_plan(plan_of("[auth]\nrequired = true\n"))
        .await;
    assert_eq!(fixture.get(METADATA, "localhost").await, refused);
}

#[tokio::test]
async fn a_token_opens_its_endpoint_for_people_with_a_role() {
    let issuer = Issuer::new();
    let fixture = Fixture::with(&plan_of(&config(&issuer.serve_keys().await)));
    let good = issuer.token(r#""scope":"mcp","groups":["staff"]"#);
    // The keys are fetched while the first request waits.
    assert_eq!(fixture.hello("/mcp", &good).await, (StatusCode::OK, None));
    let (status, challenge) = fixture.hello("/mcp/files", &good).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(
        challenge
            .unwrap()
            .contains("oauth-protected-resource/mcp/files")
    );
    let guest = issuer.token(r#""scope":"mcp","groups":["guests"]"#);
    assert_eq!(
        fixture.hello("/mcp", &guest).await,
        (StatusCode::FORBIDDEN, None)
    );
    let unscoped = issuer.token(r#""scope":"email","groups":["staff"]"#);
    let insufficient = format!(r#"{CHALLENGE}, error="insufficient_scope""#);
    assert_eq!(
        fixture.hello("/mcp", &unscoped).await,
        (StatusCode::FORBIDDEN, Some(insufficient))
    );
}

#[tokio::test]
async fn a_person_is_explained_with_the_roles_of_the_last_token() {
    let issuer = Issuer::new();
    let config = config(&issuer.serve_keys().await);
    let server = "[servers.a]\nurl = \"http://127.0.0.1:9/mcp\"\n";
    let fixture = Fixture::with(&plan_of(&format!("{config}tools = [\"*__get\"]\n{server}")));
    let explain = |name: &str, tool: &str| {
        let auth = fixture.core.shared_state.load().auth.clone();
        fixture.core.gateway.explain_tool(&auth, name, "", tool)
    };
    let name = "ann at https://login.test";
    let unknown = explain(name, "a__get").unwrap_err().to_string();
    assert!(unknown.starts_with("no key or person"), "{unknown}");
    let ann = issuer.token(r#""scope":"mcp","groups":["staff"]"#);
    assert_eq!(fixture.hello("/mcp", &ann).await.0, StatusCode::OK);
    for who in [name, "role:staff"] {
        let explanation = explain(who, "a__put").unwrap();
        let deciding = explanation.rules.iter().find(|rule| rule.decides);
        assert_eq!(deciding.unwrap().key, ["auth", "roles", "staff", "tools"]);
    }
}

#[tokio::test]
async fn every_refused_token_gets_the_same_answer() {
    let issuer = Issuer::new();
    let fixture = Fixture::with(&plan_of(&config(&issuer.serve_keys().await)));
    let good = issuer.token(r#""scope":"mcp","groups":["staff"]"#);
    assert_eq!(fixture.hello("/mcp", &good).await.0, StatusCode::OK);
    let invalid = format!(r#"{CHALLENGE}, error="invalid_token""#);
    for token in [
        Issuer::new().token(r#""scope":"mcp","groups":["staff"]"#),
        issuer.token(r#""scope":"mcp","nonce":"n""#),
        issuer.token(r#""scope":"mcp","cnf":{"jkt":"t"}"#),
        // Without the scope, too: only a good token learns what it lacks.
        issuer.token(r#""nbf":9999999999"#),
        "Bearer eyJhbGciOiJub25lIn0.e30.".to_owned(),
        "Bearer not-a-key".to_owned(),
    ] {
        let expected = (StatusCode::UNAUTHORIZED, Some(invalid.clone()));
        assert_eq!(fixture.hello("/mcp", &token).await, expected, "{token}");
    }
    let request = Request::post("/mcp").header("host", "mcp.test");
    let response = fixture.send(request, HELLO).await;
    assert_eq!(response.headers()[header::WWW_AUTHENTICATE], CHALLENGE);
}

#[tokio::test]
async fn nobody_must_log_in_again_because_the_issuer_is_down() {
    // Nothing listens there.
    let fixture = Fixture::with(&plan_of(&config("http://127.0.0.1:9/keys")));
    let good = Issuer::new().token(r#""scope":"mcp","groups":["staff"]"#);
    let later = (StatusCode::SERVICE_UNAVAILABLE, None);
    assert_eq!(fixture.hello("/mcp", &good).await, later);
    // The next fetch is half a minute away.
    assert_eq!(fixture.hello("/mcp", &good).await, later);
    let state = fixture.core.shared_state.load_full();
    let metrics = String::from_utf8(state.downstream.metrics.render()).unwrap();
    let refused = "moongate_refused_total{limit=\"principals\"} 1";
    assert!(!metrics.contains(refused), "{metrics}");
}

#[tokio::test]
async fn people_over_the_limit_come_again_until_a_reload_makes_room() {
    let issuer = Issuer::new();
    let config = config(&issuer.serve_keys().await);
    let fixture = Fixture::with(&plan_of(&format!("[limits]\nprincipals = 1\n{config}")));
    let staff = r#""scope":"mcp","groups":["staff"]"#;
    let ann = issuer.token(staff);
    // The session that she opens is what keeps her place.
    assert_eq!(fixture.hello("/mcp", &ann).await.0, StatusCode::OK);
    let bob = issuer.token_of("bob", staff);
    let full = (StatusCode::SERVICE_UNAVAILABLE, None);
    assert_eq!(fixture.hello("/mcp", &bob).await, full);
    let state = fixture.core.shared_state.load_full();
    let metrics = state.downstream.metrics.render();
    let refused = "moongate_refused_total{limit=\"principals\"} 1";
    assert!(String::from_utf8(metrics).unwrap().contains(refused));
    fixture.core.reloader.apply_plan(plan_of(&config)).await;
    for token in [&bob, &ann] {
        assert_eq!(fixture.hello("/mcp", token).await.0, StatusCode::OK);
    }
}

/// Starts a gateway on a port that the system picks, with its state in a folder.
async fn start(config: &str, folder: &Path) -> GatewayApp {
    let mut plan = plan_of(config);
    plan.admin = None;
    plan.listen = vec![ListenAddress::Tcp("127.0.0.1:0".parse().unwrap())];
    plan.login_folder = None;
    plan.state = StoreSettings {
        file: Some(folder.join("state.redb")),
        ..StoreSettings::default()
    };
    GatewayApp::start(plan, None).await.unwrap()
}

/// Posts with a token. Returns the status, and the session that the response names.
async fn post(
    app: &GatewayApp,
    token: &str,
    session: Option<&str>,
    body: &str,
) -> (StatusCode, Option<String>) {
    let mut client = HttpEndpoint::new(&format!("http://{}/mcp", app.addresses[0]));
    let session = session.map(|id| ("mcp-session-id".to_owned(), id.to_owned()));
    client.headers.extend(session);
    let credentials = ("authorization".to_owned(), token.to_owned());
    client.headers.push(credentials);
    let response = client.post(body).await;
    let id = response.headers().get("mcp-session-id");
    let id = id.map(|id| id.to_str().unwrap().to_owned());
    (response.status(), id)
}

#[tokio::test]
async fn a_session_outlives_a_restart_for_the_person_who_had_it() {
    const PING: &str = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    let folder = tempfile::tempdir().unwrap();
    let issuer = Issuer::new();
    let config = config(&issuer.serve_keys().await);
    let staff = r#""scope":"mcp","groups":["staff"]"#;
    let [ann, bob] = ["ann", "bob"].map(|name| issuer.token_of(name, staff));
    let app = start(&config, folder.path()).await;
    let (status, session) = post(&app, &ann, None, HELLO).await;
    assert_eq!(status, StatusCode::OK);
    let session = session.as_deref();
    app.stop().await;
    let app = start(&config, folder.path()).await;
    // Nobody else finds it, before she comes and after that.
    let unknown = StatusCode::NOT_FOUND;
    assert_eq!(post(&app, &bob, session, PING).await.0, unknown);
    assert_eq!(post(&app, &ann, session, PING).await.0, StatusCode::OK);
    assert_eq!(post(&app, &bob, session, PING).await.0, unknown);
    app.stop().await;
    // Without the issuer no token can come, so nothing waits for one.
    let keys_only = "[[auth.keys]]\nname = \"ci\"\nkey = \"a-long-key-of-a-program\"\n";
    start(keys_only, folder.path()).await.stop().await;
    let app = start(&config, folder.path()).await;
    assert_eq!(post(&app, &ann, session, PING).await.0, unknown);
    app.stop().await;
}
