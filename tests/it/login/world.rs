//! Parts of a login: a server, its authorization server, and a config with both.
//!
//! Owns how they are put together. Does not test. Invariant: the server takes only tokens that its
//! authorization server gave for it.

use moongate_mock::{FaultAction, FaultRule, MockHandle};
use serde_json::{Value, json};
use url::Url;

use super::browser::{BrowserPage, browse};
use super::command::{CommandEnd, RunningCommand};
use super::issuer::Issuer;
use crate::harness::{Era, HttpReply, McpClient, Process, Setup, legacy, only, serve, until};

/// Sentence that says what to do, wherever the state of the server is shown.
pub(super) const SENTENCE: &str = "linear needs a login: moongate login linear";

/// Server `linear` with two tools, and all that a login at it needs.
pub(super) struct World {
    pub(super) issuer: Issuer,
    pub(super) server: MockHandle,
    pub(super) setup: Setup,
}

impl World {
    pub(super) async fn start() -> World {
        let issuer = Issuer::start().await;
        let server = guarded_server(&issuer).await;
        World::of(issuer, server)
    }

    /// Starts with a server that lets everybody connect, and refuses calls until its faults are
    /// cleared.
    pub(super) async fn start_refusing_calls() -> World {
        let issuer = Issuer::start().await;
        let server = serve(only(legacy(), &["echo", "second"])).await;
        let refusal = FaultAction::Status {
            status: 401,
            headers: [("www-authenticate".to_owned(), "Bearer".to_owned())].into(),
            body: String::new(),
            content_type: None,
        };
        server.set_fault(FaultRule::on("tools/call", refusal));
        let auth = format!("auth = {{ issuer = \"{}\" }}", issuer.origin());
        World::of(issuer, server).with(&auth)
    }

    fn of(issuer: Issuer, server: MockHandle) -> World {
        let setup = Setup::new()
            .lasting()
            .with("egress", "allow = [\"127.0.0.1\", \"localhost\"]")
            .http("linear", &server.url);
        World {
            issuer,
            server,
            setup,
        }
    }

    /// Adds lines to the config of the server.
    pub(super) fn with(mut self, lines: &str) -> World {
        self.setup = self.setup.with("servers.linear", lines);
        self
    }

    /// Redirect address of a login at the issuer, as it is registered by hand.
    pub(super) fn redirect(&self) -> String {
        let text = std::fs::read_to_string(self.setup.file()).unwrap();
        let listen = |line: &str| {
            Some(
                line.strip_prefix("listen = \"")?
                    .strip_suffix('"')?
                    .to_owned(),
            )
        };
        let address = text.lines().find_map(listen).unwrap();
        let issuer = Url::parse(self.issuer.origin()).unwrap();
        format!("http://{address}{}", moongate_oauth::callback_path(&issuer))
    }

    /// Starts a gateway on the config. It can be started again when it has ended.
    pub(super) async fn gateway(&self) -> Process {
        self.setup.program().await
    }

    pub(super) fn command(&self, args: &[&str]) -> RunningCommand {
        RunningCommand::start(&self.setup, args)
    }

    /// Starts `moongate login linear`, and waits for the address to open.
    pub(super) async fn begin(&self) -> (RunningCommand, String) {
        let command = self.command(&["login", "linear", "--no-browser"]);
        let address = command.address(&self.issuer).await;
        (command, address)
    }

    /// Starts a login and opens its address. Returns the page that the browser ends on.
    pub(super) async fn begin_and_browse(&self) -> (RunningCommand, BrowserPage) {
        let (command, address) = self.begin().await;
        let page = browse(&address).await;
        (command, page)
    }

    /// Logs in as a person does.
    pub(super) async fn log_in(&self) -> CommandEnd {
        let (command, page) = self.begin_and_browse().await;
        assert_eq!(page.reply.status, 200, "{}: {:?}", page.url, page.reply);
        let end = command.ended().await;
        let complaints = self.issuer.complaints();
        assert_eq!(end.code, Some(0), "{}: {complaints:?}", end.printed);
        end
    }

    /// Lists the files with logins.
    pub(super) fn logins(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.setup.path("state/logins")) else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".grant")).collect()
    }

    /// Token of the last call that reached the server.
    pub(super) fn last_token(&self) -> String {
        let call = self.server.last_request("tools/call").unwrap();
        let header = call.header("authorization").unwrap_or_default();
        header
            .strip_prefix("Bearer ")
            .unwrap_or_default()
            .to_owned()
    }
}

/// Server with two tools that takes tokens of an issuer alone.
pub(super) async fn guarded_server(issuer: &Issuer) -> MockHandle {
    let server = serve(only(legacy(), &["echo", "second"])).await;
    issuer.guard(&server);
    server
}

/// Waits until the server is in a state. Returns its status.
pub(super) async fn reaches(gateway: &Process, state: &str) -> Value {
    until(&format!("linear is {state}"), async || {
        let status = gateway.status("linear").await;
        (status["state"] == state).then_some(status)
    })
    .await
}

/// Waits until the server is ready, with its tools. Returns a client of the gateway.
pub(super) async fn ready(gateway: &Process) -> McpClient {
    until("linear has its tools", async || {
        let status = gateway.status("linear").await;
        let has_tools = status["tools_on"].as_u64() == Some(2);
        (status["state"] == "ready" && has_tools).then_some(())
    })
    .await;
    McpClient::open(&gateway.mcp(), Era::Modern).await
}

/// Calls a tool of the server.
pub(super) async fn call(client: &McpClient) -> HttpReply {
    client.call("linear__echo", json!({"n": 1})).await
}

/// Returns true if a call returned a result without an error.
pub(super) fn is_good(reply: &HttpReply) -> bool {
    let answer = reply.answer();
    answer["result"].is_object() && answer["result"]["isError"] != true
}
