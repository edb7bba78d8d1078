//! What the suite runs against: the fixture, a mock beside it, the gateway in front, and a shim
//! between names.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::program::{Program, kill_group};

const SETUP: Duration = Duration::from_secs(600);
pub(crate) const MOONGATE: &str = env!("CARGO_BIN_EXE_moongate");

/// Where `setup.sh` has put the programs.
pub(crate) struct ProgramHome(PathBuf);

impl ProgramHome {
    /// Runs `setup.sh`, which locks and skips what is done, so that each process may.
    pub(crate) async fn get() -> &'static ProgramHome {
        static HOME: OnceCell<ProgramHome> = OnceCell::const_new();
        HOME.get_or_init(|| async {
            let home = Path::new(env!("CARGO_TARGET_TMPDIR"))
                .parent()
                .expect("a target directory")
                .join("conformance");
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
            ProgramHome(home)
        })
        .await
    }

    pub(crate) fn suite(&self) -> PathBuf {
        self.0
            .join("npm/node_modules/@modelcontextprotocol/conformance")
    }

    pub(crate) fn node(&self) -> PathBuf {
        self.0.join("npm/node_modules/.bin/node")
    }

    /// The Python SDK's sources.
    pub(crate) fn sdk(&self) -> PathBuf {
        self.0.join("sdk")
    }

    pub(crate) fn python(&self) -> PathBuf {
        self.0
            .with_file_name("interop")
            .join("python-2026-07-28/bin/python")
    }

    fn fixture_path(&self) -> PathBuf {
        self.sdk().join("examples/servers/everything-server")
    }

    /// The fixture, over Streamable HTTP.
    pub(crate) async fn fixture(&self) -> Program {
        let mut command = Command::new(self.python());
        command.args([
            "-B",
            "-m",
            "mcp_everything_server",
            "--port",
            "0",
            "--log-level",
            "WARNING",
        ]);
        command
            .env("PYTHONPATH", self.fixture_path())
            .stdin(Stdio::null());
        Program::start(command, " ").await
    }

    /// The fixture, as the gateway starts it over stdio.
    pub(crate) fn fixture_command(&self) -> Value {
        let run = "from mcp_everything_server.server import mcp; mcp.run(transport='stdio')";
        json!({"command": self.python(), "args": ["-B", "-c", run],
            "env": {"PYTHONPATH": self.fixture_path()}})
    }

    /// A proxy in front of `target` under which everything has its local name: it adds `prefix` to
    /// the names that clients send, and takes it off those that they get.
    pub(crate) async fn shim(&self, target: &str, prefix: &str) -> Program {
        let mut command = Command::new(self.node());
        command
            .arg(scripts().join("shim.mjs"))
            .args([target, prefix])
            .stdin(Stdio::piped());
        Program::start(command, "").await
    }
}

pub(crate) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

/// The mock with one of the scripts here, which speaks this revision alone; over HTTP.
pub(crate) async fn mock(script: &str, revision: &str) -> Program {
    let mut command = Command::new(MOONGATE);
    command.arg("mock").arg(scripts().join(script)).args([
        "--revision",
        revision,
        "--http",
        "127.0.0.1:0",
    ]);
    command.stdin(Stdio::null());
    Program::start(command, "/mcp").await
}

/// What either set calls, as the gateway starts it over stdio.
pub(crate) fn mock_command(revision: &str) -> Value {
    let script = scripts().join("server.toml");
    json!({"command": MOONGATE, "args": ["mock", script, "--revision", revision, "--stdio"]})
}

/// The gateway, in front of the server under test and of one that has things of the same names.
pub(crate) struct SuiteGateway {
    program: Program,
    _dir: TempDir,
}

impl SuiteGateway {
    /// `everything` as given, and a mock named `second`.
    pub(crate) async fn before(everything: Value) -> SuiteGateway {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let second = dir.path().join("second.json");
        std::fs::write(&second, namesake().to_string()).expect("a script");
        let config = json!({
            "gateway": {"listen": "127.0.0.1:0", "admin": false},
            // The shim puts a prefix before names; it does not know shortened ones.
            "names": {"max_length": 64},
            "servers": {
                "everything": everything,
                "second": {"command": MOONGATE, "args": ["mock", second, "--stdio"]},
            },
        });
        let path = dir.path().join("moongate.json");
        std::fs::write(&path, config.to_string()).expect("a config file");
        let mut command = Command::new(MOONGATE);
        command
            .args(["serve", "--config"])
            .arg(&path)
            .stdin(Stdio::null());
        let connected = [
            r#"connected server="everything""#,
            r#"connected server="second""#,
        ];
        SuiteGateway {
            program: Program::start_until(command, "/mcp", &connected).await,
            _dir: dir,
        }
    }

    /// The URL of all servers, or of `/one`.
    pub(crate) fn url(&self, path: &str) -> String {
        self.program.url(&format!("/mcp{path}"))
    }

    /// The end of its log.
    pub(crate) fn log(&self) -> String {
        self.program.said()
    }

    pub(crate) async fn stop(self) {
        let status = self.program.terminate().await;
        assert!(status.success(), "SIGTERM is a clean end, not {status}");
    }
}

/// A server with some of the fixture's names and URIs, so that the gateway has something to mix up.
fn namesake() -> Value {
    json!({
        "name": "namesake",
        "tools": [{"name": "test_simple_text", "description": "Not the one.",
            "inputSchema": {"type": "object"}}],
        "answers": {"test_simple_text": {"content": [{"type": "text",
            "text": "from the namesake"}]}},
        "resources": [{"uri": "test://static-text", "name": "not the one"}],
        "contents": {"test://static-text": "from the namesake"},
        "prompts": [{"name": "test_simple_prompt", "description": "Not the one."}],
    })
}
