//! A gateway whose second method takes names of people, without sockets.
//!
//! Owns its plan: one key, and two roles. Invariant: a request goes through all that a listener
//! does before the endpoint.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, Response, StatusCode, header};
use moongate::app::GatewayCore;
use moongate_access::auth::{AuthMethods, KeyHash, KeySettings};
use moongate_access::policy::{GlobList, RoleAccess};
use moongate_config::{LoadOptions, Plan};
use moongate_protocol::SUPPORTED;
use moongate_telemetry::Metrics;
use moongate_transport::credential_source::CredentialDirectory;
use moongate_transport::reaper::Reaper;
use moongate_upstream::UpstreamRuntime;
use tower::ServiceExt as _;

use super::{HELLO, UserNames};

/// Gateway with a key and the second method, and people's routes.
pub(super) struct Fixture {
    pub(super) core: GatewayCore,
    routes: Router,
    pub(super) users: Arc<UserNames>,
}

impl Fixture {
    pub(super) fn open() -> Self {
        Fixture::with(plan())
    }

    pub(super) fn with(plan: Plan) -> Self {
        Fixture::with_credentials(plan, None)
    }

    pub(super) fn with_credentials(
        plan: Plan,
        credentials: Option<Arc<dyn CredentialDirectory>>,
    ) -> Self {
        let users = UserNames::new(None);
        let methods =
            AuthMethods::with_added(users.principals.clone(), vec![users.clone()], &plan.auth);
        let shared = UpstreamRuntime::new(Arc::new(Metrics::new()), Reaper::disabled());
        let core = GatewayCore::with_methods(
            &plan,
            Arc::new(shared.with_credentials(credentials)),
            methods,
        );
        let people = Router::new()
            .route(
                "/.well-known/oauth-protected-resource/mcp",
                get(async || "metadata"),
            )
            .route("/register", get(async || "registered"));
        let routes =
            moongate_listener::router_with_people(people, core.shared_state.clone(), false);
        Fixture {
            core,
            routes,
            users,
        }
    }

    /// Sends a request to a path at a host.
    pub(super) async fn send(
        &self,
        request: http::request::Builder,
        body: impl Into<Body>,
    ) -> Response<Body> {
        let request = request.header("accept", "application/json, text/event-stream");
        let request = request.header("content-type", "application/json");
        self.routes
            .clone()
            .oneshot(request.body(body.into()).unwrap())
            .await
            .unwrap()
    }

    pub(super) fn know(&self, name: &str, roles: &[&'static str]) {
        self.users.know(name, roles);
    }

    /// Opens the stream of a new session as somebody.
    pub(super) async fn stream(&self, who: &str) -> Body {
        let session = self.hello(who).await.headers()["mcp-session-id"].clone();
        let request = Request::get("/mcp")
            .header("host", "localhost")
            .header(header::AUTHORIZATION, who);
        let response = self
            .send(request.header("mcp-session-id", session), "")
            .await;
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body()
    }

    /// Ends a login.
    pub(super) fn end(&self, login: &str) {
        self.users.logins.lock().remove(login).unwrap().cancel();
    }

    /// Opens a session as somebody.
    pub(super) async fn hello(&self, who: &str) -> Response<Body> {
        let request = Request::post("/mcp")
            .header("host", "localhost")
            .header(header::AUTHORIZATION, who);
        self.send(request, HELLO).await
    }
}

pub(super) fn plan() -> Plan {
    plan_of("")
}

pub(super) fn plan_of(config: &str) -> Plan {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("moongate.toml");
    std::fs::write(&path, config).unwrap();
    let options = LoadOptions {
        paths: vec![path],
        revisions: &SUPPORTED,
        ..LoadOptions::default()
    };
    let mut plan = moongate_config::load(&options).unwrap().plan;
    plan.auth.keys = vec![key("ci")];
    plan.auth.roles = vec![role("staff", None), role("guests", Some("lobby"))];
    plan.allowed_hosts.push("login.test".to_owned());
    plan
}

fn role(name: &str, endpoint: Option<&str>) -> RoleAccess {
    let endpoints = endpoint.map(|name| [name.to_owned()].into());
    RoleAccess {
        name: name.to_owned(),
        shared_role: None,
        endpoints,
        tools: vec![GlobList::all()],
        rate: None,
    }
}

fn key(name: &str) -> KeySettings {
    let views = None;
    let rate = None;
    let expires = None;
    KeySettings {
        name: name.to_owned(),
        hash: KeyHash::of(name),
        role: None,
        views,
        tools: GlobList::all(),
        rate,
        expires,
    }
}
