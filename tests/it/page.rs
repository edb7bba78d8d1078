//! The admin page in a browser: `tests/page/page.mjs` drives Chromium at a gateway with mock
//! servers.
//!
//! `tests/page/setup.sh` installs the browser's drivers. This starts the gateway, and does what the
//! script orders.

mod changes;
mod html;
mod many_tools;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, UNIX_EPOCH};

use moongate_mock::{MockHandle, MockScript};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use moongate_testing::HttpEndpoint;
use moongate_testing::messages::initialize;

use crate::harness::{
    Era, HttpClient, McpClient, Process, Setup, lasting_port, legacy, modern, only, serve, until,
};

const DESCRIPTION: &str = "</p><script>fetch('http://attacker.example')</script><img \
                           src=\"http://attacker.example/x.png\"> \
                           \u{202e}desrever\u{202c} zero\u{200b}width \u{7}bell **bold** \
                           [link](http://attacker.example)";

/// Key of the operator who signs in.
const OPERATOR: &str = "operator-key-0123456789";

fn tool(name: &str, description: &str, annotations: Value) -> Value {
    let properties = json!({
        "text": { "type": "string", "description": "What to ask for." },
        "days": { "type": "integer", "description": "Days ahead, 1 to 14." },
    });
    json!({
        "name": name, "description": description, "annotations": annotations,
        "inputSchema": { "type": "object", "properties": properties, "required": ["text"] },
    })
}

/// A server that offers these tools, the first of which echoes.
fn server(script: MockScript, tools: Vec<Value>) -> MockScript {
    let first = tools[0]["name"].as_str().unwrap().to_owned();
    let behave = [
        (first, "echo".to_owned()),
        ("watch_storm".to_owned(), "sleep".to_owned()),
    ];
    MockScript {
        tools,
        behave: behave.into(),
        ..only(script, &[])
    }
}

fn weather_tools() -> Vec<Value> {
    vec![
        tool(
            "forecast",
            "Weather of the next days at a place.",
            json!({ "readOnlyHint": true, "openWorldHint": true }),
        ),
        tool(
            "watch_storm",
            "Waits until a storm is near.\nAnswers late.",
            json!({ "readOnlyHint": true }),
        ),
        tool(
            "report_sighting",
            "Adds what you saw to the map.",
            json!({ "readOnlyHint": false }),
        ),
        tool(
            "delete_report",
            "Removes a report for good.",
            json!({ "destructiveHint": true }),
        ),
    ]
}

struct PageScene {
    setup: Setup,
    gateway: Option<Process>,
    notes: Option<MockHandle>,
    _others: Vec<MockHandle>,
    admin: String,
    /// Clients whose sessions stay open.
    clients: Vec<McpClient>,
}

impl PageScene {
    async fn start() -> Self {
        let weather = serve(server(legacy(), weather_tools())).await;
        let notes = (1..=12)
            .map(|n| {
                tool(
                    &format!("note_{n}"),
                    "Reads and writes a note.",
                    Value::Null,
                )
            })
            .collect();
        let notes = serve(server(modern(), notes)).await;
        let long = "long_".repeat(30);
        let hostile = vec![
            tool("innocent", DESCRIPTION, Value::Null),
            tool(&long, DESCRIPTION, Value::Null),
        ];
        let hostile = serve(MockScript {
            name: DESCRIPTION.to_owned(),
            ..server(legacy(), hostile)
        })
        .await;
        let admin = format!("127.0.0.1:{}", lasting_port());
        let url = |mock: &MockHandle| format!("url = {:?}", mock.url);
        let setup = Setup::new()
            .lasting()
            .with("gateway", &format!("admin = {admin:?}"))
            .with(
                "servers.weather",
                &format!(
                    "{}\ntitle = \"Weather\"\ntools = \
                     {{ deny = [\"delete_*\", \"delete_raport\"] }}",
                    url(&weather)
                ),
            )
            .with(
                "views.reading",
                "servers = [\"weather\", \"notes\"]\ntools = \
                                    [\"*forecast\", \"*note_1\"]",
            )
            .with("servers.notes", &url(&notes))
            .with("servers.zoo", &url(&hostile))
            .with(
                "servers.files",
                "command = \"sh\"\nargs = [\"-c\", \"echo no such folder >&2; \
                                    exit 3\"]",
            )
            .with("servers.tickets", "url = \"http://127.0.0.1:9/mcp\"")
            .with("servers.archive", "url = \"${ARCHIVE_URL}\"")
            .with(
                "servers.old",
                "url = \"http://127.0.0.1:9/mcp\"\nenabled = false",
            );
        let mut scene = PageScene {
            setup,
            gateway: None,
            notes: Some(notes),
            _others: vec![weather, hostile],
            admin,
            clients: Vec::new(),
        };
        scene.start_gateway().await;
        scene
    }

    async fn start_gateway(&mut self) {
        let gateway = self.setup.program().await;
        until("the servers are ready", async || {
            let ready = gateway.status("weather").await["state"] == "ready";
            (ready && gateway.status("zoo").await["state"] == "ready").then_some(())
        })
        .await;
        self.gateway = Some(gateway);
    }

    fn endpoint(&self) -> String {
        self.gateway.as_ref().unwrap().mcp()
    }

    /// Returns the path of a new link that signs in once.
    async fn ticket(&self) -> String {
        let url = format!("http://{}/api/v1/tickets", self.admin);
        let bearer = format!("Bearer {OPERATOR}");
        let reply = HttpClient::new()
            .send("POST", &url, &[("authorization", &bearer)], "")
            .await;
        reply.json()["path"].as_str().unwrap().to_owned()
    }

    /// Does what the script orders. Returns the line that answers it.
    async fn obey(&mut self, order: &str) -> String {
        match order {
            "call" => {
                let client = McpClient::open(&self.endpoint(), Era::Modern).await;
                let at = UNIX_EPOCH.elapsed().unwrap().as_millis();
                client
                    .call("weather__forecast", json!({ "text": "rain" }))
                    .await
                    .result();
                return at.to_string();
            }
            "failing-call" => {
                let client = McpClient::open(&self.endpoint(), Era::Legacy).await;
                client
                    .call("weather__forecats", json!({ "text": "rain" }))
                    .await
                    .error();
            }
            "slow-call" => {
                let client = McpClient::open(&self.endpoint(), Era::Modern).await;
                tokio::spawn(async move {
                    client
                        .call("weather__watch_storm", json!({ "ms": 60_000 }))
                        .await
                        .status
                });
            }
            "session" => {
                for _ in 0..2 {
                    let client = McpClient::open(&self.endpoint(), Era::Legacy).await;
                    client
                        .call("weather__forecast", json!({ "text": "sun" }))
                        .await
                        .result();
                    self.clients.push(client);
                }
            }
            "cursor" => {
                let hello = initialize(1, "2025-06-18", "cursor-vscode", &json!({}));
                HttpEndpoint::open_session(&self.endpoint(), &hello).await;
            }
            "kill-server" => drop(self.notes.take()),
            "stop-gateway" => {
                self.clients.clear();
                let mut gateway = self.gateway.take().unwrap();
                gateway.signal(rustix::process::Signal::KILL);
                gateway.ended().await;
            }
            "start-gateway" => self.start_gateway().await,
            "ask-for-keys" => {
                drop(self.gateway.take());
                let setup = std::mem::replace(&mut self.setup, Setup::new());
                self.setup = setup.with(
                    "admin.keys.1",
                    &format!("name = \"me\"\nkey = {OPERATOR:?}\nrole = \"operate\""),
                );
                self.gateway = Some(self.setup.program().await);
                return OPERATOR.to_owned();
            }
            "ticket" => return self.ticket().await,
            other => panic!("the script orders {other:?}"),
        }
        "done".to_owned()
    }
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Folder of the browser's drivers.
pub(crate) fn page_home() -> PathBuf {
    let home = target().join("page");
    assert!(
        home.join("npm/.stamp").is_file(),
        "the browser's drivers are missing: run tests/page/setup.sh"
    );
    home
}

/// Runs a script of `tests/page` at an admin listener, and does what it orders.
pub(crate) async fn run_script(
    name: &str,
    admin: &str,
    pictures: &Path,
    obey: impl AsyncFn(&str) -> String,
) {
    let mut script = Command::new("node")
        .arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/page")
                .join(name),
        )
        .env("PAGE_HOME", page_home())
        .env("PAGE_BASE", format!("http://{admin}"))
        .env("PAGE_PICTURES", pictures)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut input = script.stdin.take().unwrap();
    let output = script.stdout.take().unwrap();
    let mut lines = BufReader::new(output).lines();
    let mut said = Vec::new();
    let run = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some(order) = line.strip_prefix("do: ") {
                let answer = obey(order).await;
                input
                    .write_all(format!("{answer}\n").as_bytes())
                    .await
                    .unwrap();
            }
            said.push(line);
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(500), run).await;
    assert!(
        ended.is_ok(),
        "the script did not end:\n{}",
        said.join("\n")
    );
    let status = script.wait().await.unwrap();
    let failed: Vec<&str> = said
        .iter()
        .filter_map(|line| line.strip_prefix("FAILED: "))
        .collect();
    assert!(
        status.success(),
        "{status}\n{}\nall:\n{}",
        failed.join("\n"),
        said.join("\n")
    );
}

#[tokio::test]
async fn the_page_works_in_a_browser() {
    let scene = PageScene::start().await;
    let admin = scene.admin.clone();
    let scene = tokio::sync::Mutex::new(scene);
    let pictures = page_home().join("pictures");
    run_script("page.mjs", &admin, &pictures, async |order| {
        scene.lock().await.obey(order).await
    })
    .await;
}

/// Types are comments in the scripts, so that browsers run what is in the tree, without a build.
#[tokio::test]
async fn the_scripts_of_the_page_pass_strict_type_checks() {
    let compiler = page_home().join("npm/node_modules/typescript/bin/tsc");
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page");
    let checked = Command::new("node")
        .arg(compiler)
        .arg("-p")
        .arg(project)
        .output()
        .await
        .unwrap();
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stdout)
    );
}
