//! A second method of authentication, as a login would bring one: everything that it needs is there
//! already.
//!
//! The method knows no principals before they come. Its people send `user:NAME` or
//! `user:NAME/DEVICE`, each of which is a login, and it has to fetch a name that it does not know
//! yet.

mod fixture;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use moongate::app::{GatewayApp, LoginParts};
use moongate_access::auth::{
    AuthError, AuthRefusal, Authenticator, CredentialFetch, Person, PrincipalTable, ProvenIdentity,
};
use moongate_access::policy::RequestRate;
use moongate_config::Plan;
use moongate_listener::ListenAddress;
use moongate_mock::{MockScript, Revision};
use moongate_model::{PrincipalKey, PrincipalSecret};
use moongate_session::store::StoreSettings;
use moongate_testing::HttpEndpoint;
use moongate_transport::LinkError;
use moongate_transport::credential_source::{
    AuthChallenge, CredentialDirectory, CredentialSource, CredentialTarget,
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use fixture::{Fixture, plan, plan_of};

const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

/// Method that takes `user:NAME` as credentials.
struct UserNames {
    principals: Arc<PrincipalTable>,
    /// Roles of each name that it knows.
    known: Arc<Mutex<HashMap<String, Vec<&'static str>>>>,
    /// Logins that live, by the credentials.
    logins: Mutex<HashMap<String, CancellationToken>>,
    fetches: Arc<AtomicUsize>,
    /// Has a permit for each fetch that may end.
    answers: Arc<Semaphore>,
    /// Time from which its people are refused.
    expires: Option<jiff::Timestamp>,
}

impl Authenticator for UserNames {
    fn name(&self) -> &'static str {
        "user names"
    }

    fn advice(&self) -> &'static str {
        "a name"
    }

    fn authenticate(&self, headers: &HeaderMap, _: &str) -> Result<ProvenIdentity, AuthRefusal> {
        let sent = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let login = sent
            .and_then(|sent| sent.strip_prefix("user:"))
            .ok_or(AuthError::Missing)?;
        let name = login.split('/').next().unwrap_or_default();
        let Some(roles) = self.known.lock().get(name).cloned() else {
            return Err(AuthRefusal {
                error: AuthError::invalid("unknown name"),
                fetch: Some(self.fetch(name)),
            });
        };
        let role = self
            .principals
            .role_sets()
            .intern(&roles)
            .ok_or(AuthError::Unavailable("too many role sets"))?;
        let key = key_of(name);
        let secret = PrincipalSecret::new([7; 32]);
        let principal = self.principals.meet(
            self.name(),
            Person {
                key,
                name,
                secret,
                role,
                expires: self.expires,
            },
        )?;
        let login = self
            .logins
            .lock()
            .entry(login.to_owned())
            .or_default()
            .clone();
        Ok(ProvenIdentity {
            principal,
            role,
            expires: self.expires,
            login: Some(login),
        })
    }

    fn admits_people(&self) -> bool {
        true
    }

    fn knows(&self, key: &PrincipalKey) -> bool {
        self.known.lock().keys().any(|name| key_of(name) == *key)
    }

    fn challenge(&self, endpoint: &str, host: Option<&str>) -> Option<String> {
        (host? == "login.test")
            .then(|| format!(r#"resource_metadata="https://login.test/mcp/{endpoint}""#))
    }
}

fn key_of(name: &str) -> PrincipalKey {
    let mut key = [0; 16];
    key[..name.len()].copy_from_slice(name.as_bytes());
    key
}

impl UserNames {
    fn new(expires: Option<jiff::Timestamp>) -> Arc<Self> {
        Arc::new(UserNames {
            principals: Arc::default(),
            known: Arc::default(),
            logins: Mutex::default(),
            fetches: Arc::default(),
            answers: Arc::new(Semaphore::new(0)),
            expires,
        })
    }

    /// Lets a name in without a fetch, with these roles.
    fn know(&self, name: &str, roles: &[&'static str]) {
        self.known.lock().insert(name.to_owned(), roles.to_vec());
    }

    fn fetch(&self, name: &str) -> CredentialFetch {
        let known = self.known.clone();
        let fetches = self.fetches.clone();
        let answers = self.answers.clone();
        let name = name.to_owned();
        Box::pin(async move {
            fetches.fetch_add(1, Ordering::Relaxed);
            if let Ok(permit) = answers.acquire().await {
                permit.forget();
                known.lock().insert(name, vec!["staff"]);
            }
        })
    }
}

fn challenge(response: &Response<Body>) -> &str {
    response.headers()[header::WWW_AUTHENTICATE]
        .to_str()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_fetch_of_its_credentials_with_its_body_unread() {
    let fixture = Fixture::open();
    let (sender, receiver) = tokio::sync::oneshot::channel::<&str>();
    let body = Body::from_stream(futures_util::stream::once(receiver));
    let request = Request::post("/mcp")
        .header("host", "localhost")
        .header(header::AUTHORIZATION, "user:ann");
    let serving = fixture.send(request, body);
    tokio::pin!(serving);
    assert!(futures_util::poll!(&mut serving).is_pending());
    assert_eq!(fixture.users.fetches.load(Ordering::Relaxed), 1);
    fixture.users.answers.add_permits(1);
    assert!(futures_util::poll!(&mut serving).is_pending());
    sender.send(HELLO).unwrap();
    assert_eq!(serving.await.status(), StatusCode::OK);
    // The next request finds what was fetched.
    assert_eq!(fixture.hello("user:ann").await.status(), StatusCode::OK);
    assert_eq!(fixture.hello("Bearer ci").await.status(), StatusCode::OK);
    assert_eq!(fixture.users.fetches.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_hangs_costs_a_request_two_seconds_and_no_more_than_64_wait() {
    let fixture = Arc::new(Fixture::open());
    let begun = Instant::now();
    let waiting: Vec<_> = (0..64)
        .map(|_| {
            let fixture = fixture.clone();
            tokio::spawn(async move { fixture.hello("user:ann").await.status() })
        })
        .collect();
    while fixture.users.fetches.load(Ordering::Relaxed) < 64 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        fixture.hello("user:bob").await.status(),
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(fixture.users.fetches.load(Ordering::Relaxed), 64);
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), StatusCode::UNAUTHORIZED);
    }
    assert_eq!(begun.elapsed().as_secs(), 2);
    fixture.users.answers.add_permits(1);
    assert_eq!(fixture.hello("user:bob").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_refusal_challenges_by_endpoint_and_host() {
    let fixture = Fixture::open();
    for (path, host, expected) in [
        (
            "/mcp",
            "login.test",
            r#"Bearer resource_metadata="https://login.test/mcp/""#,
        ),
        (
            "/mcp/files",
            "login.test",
            r#"Bearer resource_metadata="https://login.test/mcp/files""#,
        ),
        ("/mcp/files", "localhost", r#"Bearer realm="moongate""#),
    ] {
        let response = fixture
            .send(Request::post(path).header("host", host), HELLO)
            .await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(challenge(&response), expected);
        let wrong = Request::post(path)
            .header("host", host)
            .header(header::AUTHORIZATION, "Bearer wrong");
        assert_eq!(
            challenge(&fixture.send(wrong, HELLO).await),
            format!(r#"{expected}, error="invalid_token""#)
        );
    }
}

#[tokio::test]
async fn routes_for_people_stand_before_the_paths_without_oauth_and_behind_the_check_of_hosts() {
    let fixture = Fixture::open();
    for (path, host, status) in [
        (
            "/.well-known/oauth-protected-resource/mcp",
            "login.test",
            StatusCode::OK,
        ),
        ("/register", "localhost", StatusCode::OK),
        ("/register", "evil.test", StatusCode::FORBIDDEN),
        (
            "/.well-known/oauth-authorization-server",
            "login.test",
            StatusCode::NOT_FOUND,
        ),
        ("/livez", "localhost", StatusCode::OK),
        ("/other", "localhost", StatusCode::NOT_FOUND),
    ] {
        let response = fixture
            .send(Request::get(path).header("host", host), "")
            .await;
        assert_eq!(response.status(), status, "{path} at {host}");
    }
    assert_eq!(
        fixture
            .core
            .shared_state
            .load()
            .auth
            .principals()
            .all()
            .len(),
        1
    );
}

#[tokio::test]
async fn people_use_what_their_roles_allow_now() {
    let fixture = Fixture::open();
    fixture.know("ann", &["guests"]);
    fixture.know("bob", &["strangers"]);
    for (who, status) in [
        ("user:ann", StatusCode::OK),
        ("user:bob", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(fixture.hello(who).await.status(), status, "{who}");
    }
    // A login may tell other roles at any time, and a reload may change what they mean.
    fixture.know("bob", &["staff", "strangers"]);
    assert_eq!(fixture.hello("user:bob").await.status(), StatusCode::OK);
    let mut plan = plan();
    plan.auth.roles.remove(0);
    fixture.core.reloader.apply_plan(plan).await;
    for (who, status) in [
        ("user:ann", StatusCode::OK),
        ("user:bob", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(
            fixture.hello(who).await.status(),
            status,
            "{who} after the reload"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn people_have_a_rate_from_their_first_request_on() {
    let mut plan = plan();
    plan.limits.rate.0 = Some(RequestRate {
        count: 1,
        per: Duration::from_secs(1),
    });
    let fixture = Fixture::with(plan);
    fixture.know("ann", &["staff"]);
    fixture.know("bob", &["staff"]);
    assert_eq!(fixture.hello("user:ann").await.status(), StatusCode::OK);
    assert_eq!(
        fixture.hello("user:ann").await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
    assert_eq!(fixture.hello("user:bob").await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn what_began_with_a_login_ends_with_it_and_what_began_with_another_goes_on() {
    let fixture = Fixture::open();
    fixture.know("ann", &["staff"]);
    fixture.know("bob", &["staff"]);
    let mut streams = Vec::new();
    for who in ["user:ann", "user:ann/phone", "user:bob"] {
        streams.push(fixture.stream(who).await);
    }
    // A request whose body never ends is in progress.
    let endless =
        Body::from_stream(futures_util::stream::pending::<Result<&str, std::io::Error>>());
    let request = Request::post("/mcp")
        .header("host", "login.test")
        .header(header::AUTHORIZATION, "user:ann");
    let serving = fixture.send(request, endless);
    tokio::pin!(serving);
    assert!(futures_util::poll!(&mut serving).is_pending());
    fixture.end("ann");
    let second = Duration::from_secs(1);
    let refused = timeout(second, serving).await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert!(
        challenge(&refused).starts_with("Bearer resource_metadata="),
        "{}",
        challenge(&refused)
    );
    let mut streams = streams.into_iter();
    assert!(
        timeout(second, streams.next().unwrap().collect())
            .await
            .is_ok()
    );
    for stream in streams {
        assert!(timeout(second, stream.collect()).await.is_err());
    }
}

/// Starts a gateway on ports that the system picks, with the second method.
async fn start(state: StoreSettings, users: &Arc<UserNames>) -> GatewayApp {
    let mut plan = Plan {
        admin: None,
        state,
        ..plan()
    };
    plan.listen = vec![ListenAddress::Tcp("127.0.0.1:0".parse().unwrap())];
    let principals = users.principals.clone();
    let methods = vec![users.clone() as Arc<dyn Authenticator>];
    let login = LoginParts {
        principals,
        methods,
        ..LoginParts::default()
    };
    GatewayApp::start_with(plan, None, None, login)
        .await
        .unwrap()
}

#[tokio::test]
async fn what_a_person_has_open_ends_with_the_last_login_or_by_the_clock() {
    let soon = jiff::Timestamp::now() + Duration::from_millis(1500);
    for expires in [None, Some(soon)] {
        let users = UserNames::new(expires);
        users.know("ann", &["staff"]);
        let app = start(StoreSettings::default(), &users).await;
        let sent =
            HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static("user:ann"))]);
        let (ours, theirs) = tokio::io::duplex(1024);
        let (reader, writer) = tokio::io::split(theirs);
        let pipe = app.pipe("", &sent).unwrap().serve(reader, writer);
        tokio::pin!(pipe);
        assert!(
            timeout(Duration::from_millis(300), &mut pipe)
                .await
                .is_err()
        );
        if expires.is_none() {
            users.principals.remove(&key_of("ann"));
        }
        assert!(
            timeout(Duration::from_secs(3), &mut pipe).await.is_ok(),
            "{expires:?}"
        );
        drop(ours);
        app.stop().await;
    }
}

#[tokio::test]
async fn a_session_of_a_person_who_has_not_come_yet_outlives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let state = StoreSettings {
        file: Some(dir.path().join("state.redb")),
        ..StoreSettings::default()
    };
    let mut session = None;
    for (knows, status) in [(true, 200), (true, 200), (false, 404)] {
        let users = UserNames::new(None);
        if knows {
            users.know("ann", &["staff"]);
        }
        let app = start(state.clone(), &users).await;
        users.know("ann", &["staff"]);
        let mut client = HttpEndpoint::new(&format!("http://{}/mcp", app.addresses[0]));
        client
            .headers
            .push(("authorization".into(), "user:ann".into()));
        let body = if session.is_none() {
            HELLO
        } else {
            r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#
        };
        client
            .headers
            .extend(session.clone().map(|id| ("mcp-session-id".to_owned(), id)));
        let response = client.post(body).await;
        assert_eq!(response.status(), status, "known before the start: {knows}");
        let id = response
            .headers()
            .get("mcp-session-id")
            .map(|id| id.to_str().unwrap().to_owned());
        session = id.or(session);
        app.stop().await;
    }
}

/// Tokens that servers are sent: one for each person, and `shared` for a connection of several.
struct Tokens(Arc<Mutex<&'static str>>);

/// Token of one connection: whose it is, and the word of now.
struct Token {
    owner: Option<String>,
    word: Arc<Mutex<&'static str>>,
}

impl CredentialDirectory for Tokens {
    fn find_source(&self, target: &CredentialTarget<'_>) -> Option<Arc<dyn CredentialSource>> {
        let owner = target.person.map(|key| {
            String::from_utf8_lossy(key)
                .trim_end_matches('\0')
                .to_owned()
        });
        // The URL is the one that is dialled.
        (target.server == "own" && target.url.path() == "/mcp").then(|| {
            Arc::new(Token {
                owner,
                word: self.0.clone(),
            }) as Arc<dyn CredentialSource>
        })
    }
}

impl CredentialSource for Token {
    fn authorization(&self) -> BoxFuture<'_, Result<Option<HeaderValue>, LinkError>> {
        let token = format!(
            "{} {}",
            self.owner.as_deref().unwrap_or("shared"),
            self.word.lock()
        );
        async move { Ok(HeaderValue::try_from(token).ok()) }.boxed()
    }

    fn on_refusal<'a>(
        &'a self,
        _: Option<&'a HeaderValue>,
        _: &'a AuthChallenge,
    ) -> BoxFuture<'a, bool> {
        std::future::ready(false).boxed()
    }

    fn is_personal(&self) -> bool {
        self.owner.is_some()
    }
}

#[tokio::test]
async fn a_servers_credential_is_each_persons_and_changes_on_a_live_connection() {
    let script = MockScript::standard().speaking(&[Revision::V2026_07_28]);
    let mock = moongate_mock::serve_http(script, ([127, 0, 0, 1], 0).into())
        .await
        .unwrap();
    let word = Arc::new(Mutex::new("first"));
    let config = format!("[servers.own]\nurl = '{}'\nshare = 'principal'\n", mock.url);
    let fixture = Fixture::with_credentials(plan_of(&config), Some(Arc::new(Tokens(word.clone()))));
    fixture.know("ann", &["staff"]);
    fixture.know("bob", &["staff"]);
    fixture.core.gateway.start();
    let call = async |who: &str| {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"own__echo","arguments":{"text":"x"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;
        let request = Request::post("/mcp")
            .header("host", "localhost")
            .header(header::AUTHORIZATION, who);
        let request = request
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call");
        let response = fixture
            .send(request.header("mcp-name", "own__echo"), body)
            .await;
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let sent = mock
            .last_request("tools/call")
            .and_then(|request| Some(request.header("authorization")?.to_owned()));
        (
            sent.unwrap_or_default(),
            String::from_utf8_lossy(&bytes).into_owned(),
        )
    };
    timeout(Duration::from_secs(20), async {
        while !call("user:ann").await.1.contains("result") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(call("user:ann").await.0, "ann first");
    assert_eq!(call("user:bob").await.0, "bob first");
    let connections = mock.counters().connections;
    *word.lock() = "second";
    assert_eq!(call("user:ann").await.0, "ann second");
    assert_eq!(call("user:bob").await.0, "bob second");
    assert_eq!(mock.counters().connections, connections);
    let listed = mock.last_request("tools/list").unwrap();
    assert_eq!(listed.header("authorization"), Some("shared first"));
}
