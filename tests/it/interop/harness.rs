//! Starts what the interop tests run: the fetched servers, the gateway in front of them, and the
//! client programs. Every wait is bounded, and every program ends with the test that started it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::harness::program::{Program, kill_group};

const SETUP: Duration = Duration::from_secs(600);
const CLIENT: Duration = Duration::from_secs(300);

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop")
}

fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().to_str().expect("a path in UTF-8").to_owned()
}

/// Where `setup.sh` has put the programs. It locks and skips what is done, so that each process may
/// run it.
async fn home() -> &'static Path {
    static HOME: OnceCell<PathBuf> = OnceCell::const_new();
    HOME.get_or_init(|| async {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .parent()
            .expect("a target directory")
            .join("interop");
        let mut command = Command::new(scripts().join("setup.sh"));
        let mut child = command
            .arg(&home)
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("setup.sh starts");
        let Ok(status) = timeout(SETUP, child.wait()).await else {
            kill_group(&child);
            panic!("setup.sh took more than {SETUP:?}");
        };
        assert!(status.expect("setup.sh ends").success(), "setup.sh failed");
        home
    })
    .await
}

/// The servers that listen by themselves, running, and how to launch those that speak over stdio.
pub(crate) struct InteropServers {
    pub(crate) evt_http: String,
    pub(crate) modern_ts: String,
    home: &'static Path,
    data: TempDir,
    /// Ended by being dropped.
    _programs: [Program; 2],
}

impl InteropServers {
    pub(crate) async fn start() -> InteropServers {
        let home = home().await;
        let everything = package(home, "server-everything");
        let modern = text(scripts().join("server.mjs"));
        let (http, modern_ts) = tokio::join!(
            listening_node(home, &everything, "streamableHttp"),
            listening_node(home, &modern, "http"),
        );
        let data = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(data.path().join("moon.txt"), "gate\n").expect("a file");
        InteropServers {
            evt_http: http.url("/mcp"),
            modern_ts: modern_ts.url("/mcp"),
            home,
            data,
            _programs: [http, modern_ts],
        }
    }

    /// The server that the gateway launches over stdio, over HTTP.
    pub(crate) async fn modern_py_http(&self) -> Program {
        let mut command = Command::new(python(self.home, "2026-07-28"));
        command
            .arg(scripts().join("server.py"))
            .arg("http")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped());
        Program::start(command, "").await
    }

    /// A config file with these servers.
    pub(crate) fn config(&self, servers: &[&str], key: Option<&str>) -> TempConfig {
        let mut settings = self.settings();
        settings
            .as_object_mut()
            .expect("an object")
            .retain(|name, _| servers.contains(&name.as_str()));
        let dir = tempfile::tempdir().expect("a temporary directory");
        let gateway = json!({"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"});
        let mut config = json!({"gateway": gateway, "servers": settings});
        if let Some(key) = key {
            config["auth"] = json!({"keys": [{"name": "interop", "key": key}]});
        }
        let path = text(dir.path().join("moongate.json"));
        std::fs::write(&path, config.to_string()).expect("a config file");
        TempConfig { path, _dir: dir }
    }

    fn settings(&self) -> Value {
        let node = |name: &str, args: &[&str]| {
            let script = package(self.home, name);
            let args = [&[script.as_str()], args].concat();
            json!({"command": "node", "args": args})
        };
        let data = text(self.data.path());
        let mut memory = node("server-memory", &[]);
        memory["env"] = json!({"MEMORY_FILE_PATH": text(self.data.path().join("memory.jsonl"))});
        let python = text(python(self.home, "2026-07-28"));
        json!({
            "everything": node("server-everything", &["stdio"]),
            "evt_http": {"url": self.evt_http},
            "files": node("server-filesystem", &[&data]),
            "memory": memory,
            "time": {"command": python,
                "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
            "modern_ts": {"url": self.modern_ts},
            "both_ts": {"command": "node", "args": [text(scripts().join("server.mjs")), "stdio"],
                "env": {"INTEROP_HOME": text(self.home)}},
            "modern_py": {"command": python,
                "args": ["-B", text(scripts().join("server.py")), "stdio"]},
        })
    }
}

fn package(home: &Path, name: &str) -> String {
    text(
        home.join("npm/node_modules/@modelcontextprotocol")
            .join(name)
            .join("dist/index.js"),
    )
}

fn python(home: &Path, revision: &str) -> PathBuf {
    home.join(format!("python-{revision}/bin/python"))
}

/// A Node server, kept on loopback and ended with this process by `loopback.mjs`.
async fn listening_node(home: &Path, script: &str, transport: &str) -> Program {
    let mut command = Command::new("node");
    command
        .arg("--import")
        .arg(scripts().join("loopback.mjs"))
        .args([script, transport])
        .stdin(Stdio::piped());
    command
        .env("PORT", "0")
        .env("LOOPBACK_TIED", "1")
        .env("INTEROP_HOME", home);
    Program::start(command, "").await
}

/// A config file, gone when dropped.
pub(crate) struct TempConfig {
    path: String,
    _dir: TempDir,
}

/// The gateway, running in front of the peers.
pub(crate) struct InteropGateway {
    program: Program,
    peers: InteropServers,
    _config: TempConfig,
}

impl InteropGateway {
    /// In front of all servers, and connected to all of them.
    pub(crate) async fn start() -> InteropGateway {
        let gateway = InteropGateway::serve(super::EVERYWHERE, None).await;
        // A client that keeps no lists, so that asking again is really asking.
        let client = SdkClient::new(SdkKind::Typescript, "2025-11-25");
        let mut run = client.at(&gateway.endpoint(""), ClientPlace::Aggregate);
        run.plan = StepPlan::Tools;
        gateway.explain(run.run(super::EVERYWHERE).await.verdict(super::EVERYWHERE));
        gateway
    }

    /// In front of one server, for clients that have the key.
    pub(crate) async fn with_key(key: &str) -> InteropGateway {
        InteropGateway::serve(&["time"], Some(key)).await
    }

    /// In front of these servers.
    pub(crate) async fn serve(servers: &[&str], key: Option<&str>) -> InteropGateway {
        let peers = InteropServers::start().await;
        let config = peers.config(servers, key);
        let mut command = Command::new(env!("CARGO_BIN_EXE_moongate"));
        command
            .args(["serve", "--config", &config.path])
            .stdin(Stdio::null());
        let program = Program::start(command, "/mcp").await;
        InteropGateway {
            program,
            peers,
            _config: config,
        }
    }

    /// The URL of all servers, or of `/one`.
    pub(crate) fn endpoint(&self, path: &str) -> String {
        self.program.url(&format!("/mcp{path}"))
    }

    pub(crate) async fn run(
        &self,
        client: SdkClient,
        path: &str,
        mode: ClientPlace,
        servers: &[&str],
    ) {
        let mut run = client.at(&self.endpoint(path), mode);
        run.data = text(self.peers.data.path());
        self.explain(
            run.run(servers)
                .await
                .verdict(servers)
                .map_err(|wrong| format!("{path}: {wrong}")),
        );
    }

    /// The same by a client that launches `moongate stdio` in front of this gateway.
    pub(crate) async fn run_over_stdio(&self, client: SdkClient, servers: &[&str]) {
        let mut run = client.at(&self.endpoint(""), ClientPlace::Aggregate);
        (run.data, run.stdio) = (text(self.peers.data.path()), true);
        self.explain(run.run(servers).await.verdict(servers));
    }

    fn explain(&self, verdict: Result<(), String>) {
        if let Err(wrong) = verdict {
            panic!("{wrong}\n--- the gateway's log:\n{}", self.program.said());
        }
    }

    pub(crate) async fn stop(self) {
        let status = self.program.terminate().await;
        assert!(status.success(), "SIGTERM is a clean end, not {status}");
    }
}

/// Which SDK a client program uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SdkKind {
    Typescript,
    Python,
}

/// Where a client is: at a server itself, or at one of the gateway's endpoints.
#[derive(Clone, Copy)]
pub(crate) enum ClientPlace {
    Direct,
    Server,
    Aggregate,
}

/// Which steps of the plan a client runs, before its revision and place exclude some.
#[derive(Clone, Copy)]
enum StepPlan {
    Whole,
    Tools,
}

/// A client program with one release of its SDK.
#[derive(Clone, Copy)]
pub(crate) struct SdkClient {
    language: SdkKind,
    /// The newest revision the release knows; names the release.
    sdk: &'static str,
    /// What it has to negotiate.
    pub(crate) revision: &'static str,
}

impl SdkClient {
    pub(crate) fn new(language: SdkKind, sdk: &'static str) -> SdkClient {
        SdkClient {
            language,
            sdk,
            revision: sdk,
        }
    }

    pub(crate) fn at_revision(self, revision: &'static str) -> SdkClient {
        SdkClient { revision, ..self }
    }

    /// Returns a name for reports.
    pub(crate) fn name(self) -> String {
        let language = if self.language == SdkKind::Typescript {
            "TypeScript"
        } else {
            "Python"
        };
        format!("the {language} SDK of {} at {}", self.sdk, self.revision)
    }

    /// Lists the definitions of a file directly, then the lists of a gateway's endpoints. Returns a
    /// line for each.
    pub(crate) async fn list_definitions(
        self,
        file: &str,
        url: &str,
        paths: &[String],
    ) -> Vec<Value> {
        let mut command = self.command(home().await, "definitions");
        command.args([
            "--sdk",
            self.sdk,
            "--revision",
            self.revision,
            "--definitions",
            file,
            "--url",
            url,
        ]);
        command.args(["--paths", &paths.join(",")]);
        let output = timeout(CLIENT, command.output())
            .await
            .expect("the client ends in time")
            .expect("it runs");
        assert!(
            output.status.success(),
            "{}: {}",
            self.name(),
            String::from_utf8_lossy(&output.stderr)
        );
        let lines = String::from_utf8(output.stdout).expect("lines in UTF-8");
        lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line of JSON"))
            .collect()
    }

    fn command(self, home: &Path, script: &str) -> Command {
        let mut command = match self.language {
            SdkKind::Typescript => {
                let mut command = Command::new("node");
                command.arg(scripts().join(format!("{script}.mjs")));
                command
            }
            SdkKind::Python => {
                let mut command = Command::new(python(home, self.sdk));
                command
                    .arg("-B")
                    .arg(scripts().join(format!("{script}.py")));
                command
            }
        };
        command
            .env("INTEROP_HOME", home)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    pub(crate) fn at(self, url: &str, mode: ClientPlace) -> ClientRun {
        ClientRun {
            client: self,
            url: url.to_owned(),
            mode,
            plan: StepPlan::Whole,
            data: String::new(),
            key: None,
            stdio: false,
        }
    }
}

/// A client program about to run.
#[derive(Clone)]
pub(crate) struct ClientRun {
    client: SdkClient,
    url: String,
    mode: ClientPlace,
    plan: StepPlan,
    data: String,
    key: Option<String>,
    /// Whether the client launches `moongate stdio`, which leads to the URL.
    stdio: bool,
}

impl ClientRun {
    pub(crate) fn with_key(&self, key: &str) -> ClientRun {
        ClientRun {
            key: Some(key.to_owned()),
            ..self.clone()
        }
    }

    /// Runs the plan's steps for these servers; each of them must have had some, and all must have
    /// passed.
    pub(crate) async fn check(&self, servers: &[&str]) {
        if let Err(wrong) = self.run(servers).await.verdict(servers) {
            panic!("{wrong}");
        }
    }

    /// The client must not even connect.
    pub(crate) async fn expect_refusal(&self, servers: &[&str]) {
        let outcome = self.run(servers).await;
        assert!(
            !outcome.success && outcome.checks.iter().all(|check| check["ok"] == false),
            "{}",
            outcome.report()
        );
    }

    async fn run(&self, servers: &[&str]) -> RunOutcome {
        let plan_dir = tempfile::tempdir().expect("a temporary directory");
        let plan = plan_dir.path().join("plan.json");
        std::fs::write(&plan, self.plan_text()).expect("a plan");
        let mut command = self.client.command(home().await, "client");
        command.args(["--url", &self.url]).args([
            "--sdk",
            self.client.sdk,
            "--revision",
            self.client.revision,
        ]);
        command.arg("--plan").arg(plan).args([
            "--servers",
            &servers.join(","),
            "--data",
            &self.data,
        ]);
        command.args(["--mode", self.mode_name()]);
        if self.stdio {
            command.env("INTEROP_STDIO", env!("CARGO_BIN_EXE_moongate"));
        }
        if let Some(key) = &self.key {
            command.args(["--key", key]);
        }
        let output = timeout(CLIENT, command.output())
            .await
            .expect("the client ends in time")
            .expect("the client runs");
        let lines = String::from_utf8_lossy(&output.stdout);
        RunOutcome {
            checks: lines
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect(),
            success: output.status.success(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn plan_text(&self) -> String {
        let whole = std::fs::read_to_string(scripts().join("plan.json")).expect("the plan");
        let mut plan: Value = serde_json::from_str(&whole).expect("the plan is JSON");
        if let StepPlan::Tools = self.plan {
            plan["steps"]
                .as_array_mut()
                .expect("steps")
                .retain(|step| step["do"] == "tools");
        }
        plan.to_string()
    }

    fn mode_name(&self) -> &'static str {
        match self.mode {
            ClientPlace::Direct => "direct",
            ClientPlace::Server => "server",
            ClientPlace::Aggregate => "aggregate",
        }
    }
}

/// What a client program printed.
struct RunOutcome {
    checks: Vec<Value>,
    success: bool,
    stderr: String,
}

impl RunOutcome {
    /// Whether every check passed, and each server had some.
    fn verdict(&self, servers: &[&str]) -> Result<(), String> {
        let checked: BTreeSet<&str> = self
            .checks
            .iter()
            .filter_map(|check| Some(check["check"].as_str()?.split_once(':')?.0))
            .collect();
        let missed: Vec<_> = servers
            .iter()
            .filter(|server| !checked.contains(*server))
            .collect();
        if !missed.is_empty() {
            return Err(format!(
                "nothing was checked of {missed:?}\n{}",
                self.report()
            ));
        }
        if self.success {
            Ok(())
        } else {
            Err(self.report())
        }
    }

    /// The checks that failed, and what the client complained about.
    fn report(&self) -> String {
        let failed: Vec<_> = self
            .checks
            .iter()
            .filter(|check| check["ok"] != true)
            .map(Value::to_string)
            .collect();
        let passed = self.checks.len() - failed.len();
        format!(
            "{passed} checks passed; failed:\n{}\n--- the client's stderr:\n{}",
            failed.join("\n"),
            self.stderr
        )
    }
}
