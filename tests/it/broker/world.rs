//! A company: its login, a gateway with a server behind it, and hosts of client documents.
//!
//! Owns their assembly. Does not test. Invariant: the server is reached only with a token that the
//! gateway issued.

use moongate_mock::MockHandle;
use rustix::process::Signal;
use serde_json::Value;

use super::browser::PersonBrowser;
use super::client::{ClientTokens, LoginClient};
use super::documents::DocumentHost;
use super::provider::{GATEWAY_ID, Provider, ProviderStep};
use super::shapes::{ClientShape, OPENCODE};
use crate::harness::{HttpClient, Process, Setup, lasting_port, legacy, only, serve, until};

/// Hosts at which logins may end: those of the shapes, and loopback for their documents.
const ALLOWED: &str = "allow_clients = [\"127.0.0.1\", \"claude.ai\", \"claude.com\", \
    \"chatgpt.com\", \"vscode.dev\", \"www.cursor.com\"]";

/// Company with a gateway that is not started yet.
pub(super) struct Company {
    pub(super) provider: Provider,
    pub(super) documents: DocumentHost,
    pub(super) server: MockHandle,
    pub(super) setup: Setup,
    /// Public URL of the gateway.
    pub(super) origin: String,
}

/// Client with its tokens.
pub(super) struct LoggedIn {
    pub(super) client: LoginClient,
    pub(super) tokens: ClientTokens,
}

impl Company {
    pub(super) async fn start() -> Company {
        let provider = Provider::start().await;
        let login = format!(
            "issuer = {:?}\nclient_id = {GATEWAY_ID:?}\nclient_secret = {:?}\n{ALLOWED}",
            provider.origin(),
            provider.client_secret()
        );
        let company = Company::in_front_of(&login, provider).await;
        company.with(
            "auth.roles.staff",
            "name = \"staff\"\nmatch = { groups = [\"staff\"] }",
        )
    }

    /// Starts with other keys of `[auth.oauth]`, and without roles.
    pub(super) async fn in_front_of(login: &str, provider: Provider) -> Company {
        let documents = DocumentHost::start().await;
        let server = serve(only(legacy(), &["echo", "second"])).await;
        let port = lasting_port();
        let origin = format!("http://127.0.0.1:{port}");
        provider.set_redirect(format!("{origin}/oauth/provider"));
        let gateway = format!("listen = \"127.0.0.1:{port}\"\npublic_url = {origin:?}");
        let setup = Setup::new()
            .lasting()
            .with("gateway", &gateway)
            .with("telemetry", "log = \"trace\"\ncalls = \"all\"")
            .with("auth.oauth", login)
            .with("egress", "allow = [\"127.0.0.1\"]")
            .http("files", &server.url);
        Company {
            provider,
            documents,
            server,
            setup,
            origin,
        }
    }

    /// Adds lines to a table of the config.
    pub(super) fn with(mut self, table: &str, lines: &str) -> Company {
        self.setup = self.setup.with(table, lines);
        self
    }

    /// Starts the gateway, and waits for the tools of its server. It can be started again when it
    /// has ended.
    pub(super) async fn gateway(&self) -> Process {
        let gateway = self.setup.program().await;
        until("the server has its tools", async || {
            let status = gateway.status("files").await;
            let has_tools = status["tools_on"].as_u64() == Some(2);
            (status["state"] == "ready" && has_tools).then_some(())
        })
        .await;
        gateway
    }

    pub(super) fn mcp(&self) -> String {
        format!("{}/mcp", self.origin)
    }

    pub(super) fn browser(&self) -> PersonBrowser {
        PersonBrowser::new(&self.origin, self.provider.origin())
    }

    /// Returns a client of a shape that has an id.
    pub(super) async fn client(&self, shape: &ClientShape) -> LoginClient {
        let mut client = LoginClient::discover(&self.mcp(), shape).await;
        client.identify(shape, &self.documents).await;
        client
    }

    /// Logs in with a client of a shape.
    pub(super) async fn log_in_with(&self, shape: &ClientShape) -> LoggedIn {
        let client = self.client(shape).await;
        let answer = self.browser().log_in(&client.address()).await;
        let code = client.code_of(&answer);
        let tokens = client.exchange(&code, &self.documents).await;
        LoggedIn { client, tokens }
    }

    /// Logs in with a client that registers.
    pub(super) async fn log_in(&self) -> LoggedIn {
        self.log_in_with(&OPENCODE).await
    }

    /// Gets an unused code.
    pub(super) async fn code(&self) -> (LoginClient, String) {
        let client = self.client(&OPENCODE).await;
        let answer = self.browser().log_in(&client.address()).await;
        let code = client.code_of(&answer);
        (client, code)
    }

    /// Makes the gateway recheck everybody who uses a login. It does so immediately when roles need
    /// other facts about people.
    pub(super) async fn recheck(self, gateway: &Process) -> Company {
        let before = self.provider.count(ProviderStep::Renewal);
        let company = self.with_another_role(gateway, before);
        until("the company's login was asked", async || {
            let asked = company.provider.count(ProviderStep::Renewal);
            (asked > before).then_some(())
        })
        .await;
        company
    }

    /// Adds a role that nobody has, and makes the gateway read it.
    pub(super) fn with_another_role(self, gateway: &Process, number: usize) -> Company {
        let role = format!("name = \"other\"\nmatch = {{ groups = [\"other-{number}\"] }}");
        let company = self.with("auth.roles.other", &role);
        company.setup.file();
        gateway.signal(Signal::HUP);
        company
    }

    /// Checks that an attack left no login, and that no call reached the server.
    pub(super) async fn assert_nothing(&self, gateway: &Process, what: &str) {
        assert_eq!(people(gateway).await, Vec::<Value>::new(), "{what}");
        let call = self.server.last_request("tools/call");
        assert!(call.is_none(), "{what}: {call:?}");
    }

    /// Logs in and calls a tool after the attack is over.
    pub(super) async fn valid_login(&self) -> LoggedIn {
        self.provider.behave();
        let login = self.log_in().await;
        login.client.call(&login.tokens.access).await;
        login
    }

    /// Checks that an attack failed, and that a valid login works after it.
    pub(super) async fn assert_unharmed(&self, gateway: &Process, what: &str) {
        self.assert_nothing(gateway, what).await;
        let login = self.valid_login().await;
        login
            .client
            .revoke(&login.tokens.refresh, &self.documents)
            .await;
        self.server.reset_record();
    }
}

/// Lists the logins that operators see.
pub(super) async fn people(gateway: &Process) -> Vec<Value> {
    let list = gateway.admin("/api/v1/people").await.json();
    list["logins"].as_array().unwrap().clone()
}

/// Ends logins as an operator, by id or by name. Returns the HTTP status.
pub(super) async fn revoke_people(gateway: &Process, who: &str) -> u16 {
    let url = format!("{}/api/v1/people/{who}", gateway.admin_url().await);
    HttpClient::new().send("DELETE", &url, &[], "").await.status
}
