//! Invalid authorization requests, and those of real clients.

use moongate_access::auth::{BrokerSettings, PrincipalTable};
use moongate_oauth::RootSecrets;
use moongate_session::store::StateStore;
use moongate_telemetry::Metrics;
use moongate_transport::fetcher::FetchRules;

use crate::login_store::LoginStore;
use crate::test_broker::settings;

use super::*;

const REDIRECT: &str = "http://127.0.0.1:7000/callback";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

struct Checks {
    clients: Clients,
    rules: RedirectRules,
    resources: ResourceNames,
    id: String,
}

impl Checks {
    fn new() -> Self {
        let settings = BrokerSettings {
            allow_clients: vec!["claude.ai".to_owned()],
            ..settings()
        };
        let metrics = Arc::new(Metrics::new());
        let secrets = RootSecrets::of_bytes(&[7; 32]);
        let principals = Arc::new(PrincipalTable::default());
        let store = LoginStore::new(StateStore::memory(), &secrets, principals, metrics.clone());
        store.restore(None).unwrap();
        let clients = Clients::new(&settings, &FetchRules::default(), store, metrics);
        let body = format!(
            r#"{{"redirect_uris":["{REDIRECT}","https://evil.test/cb"],"client_name":"shape"}}"#
        );
        let client = clients.register(body.as_bytes()).unwrap();
        let answer = serde_json::to_string(&client).unwrap();
        let id = answer.split('"').find(|text| text.starts_with("mgc_"));
        Checks {
            id: id.unwrap().to_owned(),
            rules: RedirectRules::new(&settings),
            resources: ResourceNames::new(&settings.public_url),
            clients,
        }
    }

    /// Query of a valid request in which one parameter has another value. `None`: it is absent.
    fn query(&self, changed: &str, value: Option<&str>) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        let mut is_changed = false;
        for (name, good) in [
            ("client_id", &*self.id),
            ("redirect_uri", REDIRECT),
            ("response_type", "code"),
            ("state", "xyz"),
            ("code_challenge", CHALLENGE),
            ("code_challenge_method", "S256"),
            ("resource", "https://mcp.test/mcp/files"),
            ("scope", "openid profile email"),
            ("prompt", "none"),
        ] {
            is_changed |= name == changed;
            match (name == changed, value) {
                (true, None) => {}
                (true, Some(value)) => {
                    query.append_pair(name, value);
                }
                (false, _) => {
                    query.append_pair(name, good);
                }
            }
        }
        if let Some(value) = value.filter(|_| !is_changed) {
            query.append_pair(changed, value);
        }
        query.finish()
    }

    async fn check(&self, query: &str) -> Result<CheckedRequest, AuthorizeFault> {
        check_authorize(query, &self.clients, &self.rules, &self.resources).await
    }

    async fn page_fault(&self, query: &str) -> PageFault {
        match self.check(query).await {
            Err(AuthorizeFault::Page(fault)) => fault,
            other => panic!("{query}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn until_client_and_redirect_hold_each_fault_is_a_page() {
    let checks = Checks::new();
    let id = "https://evil.test/client.json";
    let host = "evil.test".to_owned();
    for (value, id, fault) in [
        (None, "", ClientFault::Unknown),
        (Some("mgc_x"), "mgc_x", ClientFault::Unknown),
        (Some(id), id, ClientFault::NotAllowed { host: host.clone() }),
    ] {
        let id = id.to_owned();
        let found = checks.page_fault(&checks.query("client_id", value)).await;
        assert_eq!(found, PageFault::Client { id, fault });
    }
    for (value, fault) in [
        (None, RedirectFault::Malformed),
        (
            Some("http://127.0.0.1:1/other"),
            RedirectFault::NotRegistered,
        ),
        (Some("https://claude.ai/cb"), RedirectFault::NotRegistered),
        (
            Some("https://evil.test/cb"),
            RedirectFault::HostNotAllowed(host),
        ),
        (Some("https://mcp.test/cb"), RedirectFault::OwnHost),
    ] {
        let found = checks
            .page_fault(&checks.query("redirect_uri", value))
            .await;
        let expected = PageFault::Redirect {
            client: "shape".to_owned(),
            address: value.unwrap_or_default().to_owned(),
            fault,
        };
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn a_request_is_short_and_has_nothing_twice() {
    let checks = Checks::new();
    let good = checks.query("x", None);
    for (query, fault) in [
        (
            format!("{good}&state=1"),
            FormFault::Twice("state".to_owned()),
        ),
        (
            format!("{good}&resource=https%3A%2F%2Fmcp.test%2Fmcp"),
            FormFault::Twice("resource".to_owned()),
        ),
        (
            format!("{good}&x={}", "x".repeat(QUERY_MAX)),
            FormFault::TooLong,
        ),
        (
            checks.query("state", Some(&"x".repeat(STATE_MAX + 1))),
            FormFault::TooLong,
        ),
        (format!("{good}&x=%ff"), FormFault::NotAForm),
    ] {
        assert_eq!(checks.page_fault(&query).await, PageFault::Form(fault));
    }
}

#[tokio::test]
async fn the_clients_mistakes_come_with_its_address_and_state() {
    let checks = Checks::new();
    let invalid = OAuthCode::InvalidRequest;
    let long = "x".repeat(129);
    for (name, value, code) in [
        ("response_type", None, invalid),
        (
            "response_type",
            Some("token"),
            OAuthCode::UnsupportedResponseType,
        ),
        (
            "response_type",
            Some("code id_token"),
            OAuthCode::UnsupportedResponseType,
        ),
        ("response_mode", Some("fragment"), invalid),
        ("response_mode", Some("form_post"), invalid),
        ("code_challenge_method", None, invalid),
        ("code_challenge_method", Some("plain"), invalid),
        ("code_challenge_method", Some("s256"), invalid),
        ("code_challenge", None, invalid),
        ("code_challenge", Some("short"), invalid),
        ("code_challenge", Some(&*long), invalid),
        (
            "code_challenge",
            Some("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw+cM"),
            invalid,
        ),
        ("request", Some("eyJ"), invalid),
        ("request_uri", Some("https://evil.test/"), invalid),
        (
            "resource",
            Some("https://evil.test/mcp"),
            OAuthCode::InvalidTarget,
        ),
        (
            "resource",
            Some("https://mcp.test/mcp/a/b"),
            OAuthCode::InvalidTarget,
        ),
        (
            "resource",
            Some("https://mcp.test"),
            OAuthCode::InvalidTarget,
        ),
    ] {
        match checks.check(&checks.query(name, value)).await {
            Err(AuthorizeFault::Client {
                redirect,
                state,
                error,
                client,
            }) => {
                assert_eq!(error.code, code, "{name}");
                assert_eq!(redirect, REDIRECT);
                assert_eq!(state.as_deref(), Some("xyz"));
                assert_eq!(client.id, checks.id);
            }
            other => panic!("{name} {value:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_good_request_records_its_endpoint_and_gets_our_scope_alone() {
    let checks = Checks::new();
    let checked = checks.check(&checks.query("x", None)).await.unwrap();
    assert_eq!(checked.redirect, RedirectKind::Loopback);
    let request = AuthorizeRequest {
        client_id: checks.id.clone(),
        redirect: REDIRECT.to_owned(),
        state: Some("xyz".to_owned()),
        challenge: CHALLENGE.to_owned(),
        endpoint: "files".to_owned(),
        scope: "mcp offline_access".to_owned(),
        is_all_servers: false,
    };
    assert_eq!(checked.request, request);
    for (name, value, endpoint) in [
        ("resource", None, ""),
        ("resource", Some("HTTPS://MCP.test:443/mcp/"), ""),
        ("resource", Some("https://mcp.test/mcp/files?x=1"), "files"),
        ("state", None, "files"),
        ("scope", None, "files"),
        ("response_mode", Some("query"), "files"),
        ("prompt", Some("consent"), "files"),
        (
            "redirect_uri",
            Some("http://127.0.0.1:7001/callback"),
            "files",
        ),
    ] {
        let checked = checks.check(&checks.query(name, value)).await;
        let request = checked.unwrap().request;
        assert_eq!(request.endpoint, endpoint, "{name} {value:?}");
        assert_eq!(request.is_all_servers, endpoint.is_empty());
        assert_eq!(request.scope, "mcp offline_access");
    }
}
