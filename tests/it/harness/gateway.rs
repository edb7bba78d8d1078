//! A gateway inside the test's process, from a config in TOML.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use moongate::app::{GatewayApp, ReloadOutcome};
use moongate_config::{ConfigProblems, LoadOptions};
use moongate_mock::MockScript;
use moongate_protocol::SUPPORTED;
use serde_json::Value;
use tempfile::TempDir;

use super::tls::Authority;
use super::{Era, HttpClient, HttpReply, McpClient, Process, server_of, until};

/// The program under test.
pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_moongate");

/// A config in the making, and the directory of its files.
pub(crate) struct Setup {
    /// Lines by table.
    sections: BTreeMap<String, Vec<String>>,
    dir: TempDir,
    /// Whom the program trusts, if not the system's authorities.
    trusted: Option<PathBuf>,
    /// What outlives a gateway in this process, whatever the config says.
    state: Option<PathBuf>,
}

impl Setup {
    /// A gateway without servers, on ports that the system picks.
    pub(crate) fn new() -> Self {
        let setup = Setup {
            sections: BTreeMap::new(),
            dir: tempfile::tempdir().unwrap(),
            trusted: None,
            state: None,
        };
        setup.with(
            "gateway",
            "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\ndrain = \"2s\"",
        )
    }

    /// Adds lines to a table, such as `limits` or `servers.a`; a key that is there already is
    /// replaced.
    pub(crate) fn with(mut self, table: &str, lines: &str) -> Self {
        let section = self.sections.entry(table.to_owned()).or_default();
        for line in lines.lines() {
            let key = |line: &str| line.split('=').next().map(str::trim).map(str::to_owned);
            section.retain(|other| key(other) != key(line));
            section.push(line.to_owned());
        }
        self
    }

    /// Adds a server behind HTTP.
    pub(crate) fn http(self, name: &str, url: &str) -> Self {
        self.with(&format!("servers.{name}"), &format!("url = {url:?}"))
    }

    /// Adds a mock as a child process, with a record of what it receives.
    pub(crate) fn stdio(self, name: &str, script: &MockScript) -> Self {
        let file = self.path(&format!("{name}.json"));
        std::fs::write(&file, serde_json::to_string(script).unwrap()).unwrap();
        let args = [
            "mock",
            &text(&file),
            "--stdio",
            "--record",
            &text(&self.path(&format!("{name}.record"))),
        ]
        .map(|arg| format!("{arg:?}"))
        .join(", ");
        self.with(
            &format!("servers.{name}"),
            &format!("command = {PROGRAM:?}\nargs = [{args}]"),
        )
    }

    /// This authority of servers is trusted, and no other: by the program, which finds it in its
    /// environment. A gateway in this process would look into ours.
    pub(crate) fn trusting(mut self, authority: &Authority) -> Self {
        let file = self.path("trusted.pem");
        std::fs::write(&file, &authority.pem).unwrap();
        self.trusted = Some(file);
        self
    }

    /// Takes a table out, such as `servers.a`.
    pub(crate) fn without(mut self, table: &str) -> Self {
        self.sections.remove(table);
        self
    }

    /// A file beside the config.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The config, as a file.
    pub(crate) fn file(&self) -> PathBuf {
        self.write()
    }

    fn write(&self) -> PathBuf {
        let mut text = String::new();
        for (table, lines) in &self.sections {
            // These are lists of tables.
            let list = ["auth.jwt", "auth.keys", "auth.roles", "admin.keys"]
                .into_iter()
                .find(|list| table.starts_with(list));
            let (open, close) = if list.is_some() {
                ("[[", "]]")
            } else {
                ("[", "]")
            };
            let table = list.unwrap_or(table);
            writeln!(text, "{open}{table}{close}\n{}", lines.join("\n")).unwrap();
        }
        let path = self.path("moongate.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Reads the config.
    pub(crate) fn load(&self) -> Result<moongate_config::LoadedConfig, ConfigProblems> {
        let paths = vec![self.write()];
        moongate_config::load(&LoadOptions {
            paths,
            revisions: &SUPPORTED,
            ..LoadOptions::default()
        })
    }

    /// Starts the gateway in this process.
    pub(crate) async fn start(self) -> Gateway {
        let loaded = self.load().unwrap_or_else(|problems| panic!("{problems}"));
        let app = GatewayApp::start(loaded.plan, Some(Path::new(PROGRAM)))
            .await
            .unwrap();
        let base = format!("http://{}", app.addresses[0]);
        Gateway {
            base,
            app,
            dir: self.dir,
            sections: self.sections,
            http: HttpClient::new(),
        }
    }

    /// Listens on a port that stays the same over restarts, and keeps what outlives them beside the
    /// config.
    pub(crate) fn lasting(self) -> Self {
        let listen = format!("listen = \"127.0.0.1:{}\"", super::lasting_port());
        let state = format!("state_dir = {:?}", text(&self.path("state")));
        self.with("gateway", &listen).with("gateway", &state)
    }

    /// Keeps what outlives a gateway in this file, also on a port that the system picks.
    pub(crate) fn keeping(mut self, file: PathBuf) -> Self {
        self.state = Some(file);
        self
    }

    /// Starts the gateway in this process; it can be started again when it has stopped.
    pub(crate) async fn life(&self) -> Gateway {
        let mut loaded = self.load().unwrap_or_else(|problems| panic!("{problems}"));
        if let Some(file) = &self.state {
            loaded.plan.state.file = Some(file.clone());
        }
        let app = GatewayApp::start(loaded.plan, Some(Path::new(PROGRAM)))
            .await
            .unwrap();
        Gateway {
            base: format!("http://{}", app.addresses[0]),
            app,
            dir: tempfile::tempdir().unwrap(),
            sections: self.sections.clone(),
            http: HttpClient::new(),
        }
    }

    /// Starts the program; it can be started again when it has ended.
    pub(crate) async fn program(&self) -> Process {
        Process::start(
            &self.write(),
            tempfile::tempdir().unwrap(),
            self.trusted.as_deref(),
        )
        .await
    }

    /// Starts the program.
    pub(crate) async fn spawn(self) -> Process {
        let config = self.write();
        Process::start(&config, self.dir, self.trusted.as_deref()).await
    }

    /// Starts the program through a shell that first runs a command, such as `ulimit`.
    pub(crate) async fn spawn_after(self, command: &str) -> Process {
        let config = self.write();
        Process::start_after(command, &config, self.dir, self.trusted.as_deref()).await
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A running gateway.
pub(crate) struct Gateway {
    /// `http://127.0.0.1:PORT`
    pub(crate) base: String,
    /// It.
    pub(crate) app: GatewayApp,
    /// Where its files are.
    pub(crate) dir: TempDir,
    sections: BTreeMap<String, Vec<String>>,
    http: HttpClient,
}

impl Gateway {
    /// Changes the config: writes it, reads it, and has the running gateway apply it.
    pub(crate) async fn change(&mut self, change: impl FnOnce(Setup) -> Setup) -> ReloadOutcome {
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        let setup = change(Setup {
            sections: self.sections.clone(),
            dir,
            trusted: None,
            state: None,
        });
        let loaded = setup.load().unwrap_or_else(|problems| panic!("{problems}"));
        (self.sections, self.dir) = (setup.sections, setup.dir);
        self.app.reloader.apply_plan(loaded.plan).await
    }

    /// A POST to the admin listener.
    pub(crate) async fn order(&self, path: &str) -> HttpReply {
        self.http
            .send(
                "POST",
                &format!("http://{}{path}", self.app.admin.unwrap()),
                &[],
                "",
            )
            .await
    }

    /// A URL on the MCP listener.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// A client of `/mcp`.
    pub(crate) async fn client(&self, era: Era) -> McpClient {
        McpClient::open(&self.url("/mcp"), era).await
    }

    /// A client of `/mcp` with a session at this revision.
    pub(crate) async fn client_at(&self, revision: &str) -> McpClient {
        let mut client = self.client(Era::Legacy).await;
        client.initialize_at(revision, serde_json::json!({})).await;
        client
    }

    /// A page of the admin listener.
    pub(crate) async fn admin(&self, path: &str) -> HttpReply {
        self.http
            .get(&format!("http://{}{path}", self.app.admin.unwrap()))
            .await
    }

    /// What the status says of a server.
    pub(crate) async fn status(&self, server: &str) -> Value {
        server_of(&self.admin("/api/v1/status").await.json(), server)
    }

    /// Waits until a server is in a state.
    pub(crate) async fn state(&self, server: &str, state: &str) -> Value {
        until(&format!("{server} is {state}"), || async {
            let status = self.status(server).await;
            (status["state"] == state).then_some(status)
        })
        .await
    }

    /// Waits until these servers are ready and their tools are in the catalogue.
    pub(crate) async fn ready(&self, servers: &[&str]) {
        for server in servers {
            let status = self.state(server, "ready").await;
            let tools = status["tools"].as_i64().unwrap();
            let left_out = status["left_out"].as_array().unwrap().len();
            if tools > left_out as i64 {
                let series =
                    format!("moongate_catalog_items{{kind=\"tools\",mcp_server=\"{server}\"}}");
                let listed = || async { self.metric(&series).await.filter(|n| *n > 0.0) };
                until(&format!("{server} is in the catalogue"), listed).await;
            }
        }
    }

    /// One series of the metrics.
    pub(crate) async fn metric(&self, series: &str) -> Option<f64> {
        let text = self.admin("/metrics").await.text_body();
        let line = text.lines().find_map(|line| line.strip_prefix(series))?;
        line.trim().parse().ok()
    }

    /// What a recording child received, as it is now.
    pub(crate) fn record(&self, server: &str) -> String {
        super::record_of(self.dir.path(), server)
    }
}
