//! What one cell stands on: a gateway with mocks behind it.

use std::fs::OpenOptions;
use std::path::PathBuf;

use moongate_mock::{
    ContentPreset, CursorMode, MockHandle, MockScript, Revision, TaskRule, serve_http_recording,
    serve_tcp, serve_unix, serve_ws,
};
use moongate_testing::McpClient;
use moongate_testing::messages::MODERN;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::relay::Relay;
use crate::harness::tls::Authority;
use crate::harness::{self as support, Process, Setup, until};

/// How the gateway reaches the server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerTransport {
    Stdio,
    Http,
    /// HTTP+SSE, which only 2024-11-05 has.
    Sse,
    Tcp,
    Unix,
    WebSocket,
    HttpTls,
    WebSocketTls,
}

impl ServerTransport {
    /// Whether it is Streamable HTTP.
    pub(crate) fn is_http(self) -> bool {
        matches!(self, ServerTransport::Http | ServerTransport::HttpTls)
    }

    fn has_tls(self) -> bool {
        matches!(
            self,
            ServerTransport::HttpTls | ServerTransport::WebSocketTls
        )
    }
}

/// A mock behind the gateway.
pub(crate) struct MockBehind {
    record: PathBuf,
    /// The server itself, unless the gateway starts it.
    pub(crate) handle: Option<MockHandle>,
    /// What ends TLS in front of it.
    _relay: Option<Relay>,
}

/// A gateway with three servers: `main` at the revision under test, `aside` at all revisions, and
/// `own` like `main` with a connection for each session.
pub(crate) struct PairRig {
    gateway: PairGateway,
    pub(crate) url: String,
    pub(crate) main: MockBehind,
    pub(crate) aside: MockBehind,
    pub(crate) own: MockBehind,
}

/// The gateway.
#[allow(clippy::large_enum_variant, reason = "a cell has one")]
enum PairGateway {
    Here(support::Gateway),
    /// Whom it trusts is in its environment, which is its own only in a process of its own.
    Apart(Process),
}

/// A tool with members that nobody knows, at every level, and numbers that a parser would change.
pub(crate) const ODD_TOOL: &str = r#"{"name":"odd","description":"Odd.","inputSchema":{"type":"object","x-deep":{"n":1.0, "m":[1e5]}},"x-top":{ "big" : 123456789012345678901234567890 }}"#;
/// Its result.
pub(crate) const ODD_RESULT: &str = r#"{"content":[{"type":"text","text":"\u006fdd","x-block":{"n":1.0, "m":[1E5]}},{"type":"x-unheard-of","b":-0.0}],"isError":false,"_meta":{"com.example/trace":{"e":"\u00e9"}},"x-result":{"big":12345678901234567890123, "z":1,"a":2}}"#;

/// The page of an app that no list has, and a tool that names it in both spellings.
pub(crate) const PAGE: &str = "ui://panel/page.html";
/// It.
pub(crate) const PANEL_TOOL: &str = r#"{"name":"panel","inputSchema":{"type":"object"},"_meta":{"x": 1.0,"ui":{"visibility":["model"], "resourceUri":"ui://panel/page.html"},"ui/resourceUri":"ui://panel/page.html"}}"#;

fn page(text: &str) -> Value {
    json!({"text": text, "mimeType": "text/html;profile=mcp-app"})
}

/// What the server under test offers.
pub(crate) fn main_script(revision: &str) -> MockScript {
    let mut script = MockScript::standard().speaking(&[Revision::of(revision).unwrap()]);
    script.name = "main".into();
    script.instructions = Some("Main's instructions.".into());
    let without_input = json!({"name": "sample_or_default", "inputSchema": {"type": "object"}});
    script.tools = vec![json!(ODD_TOOL), json!(PANEL_TOOL), without_input];
    script.contents.insert(PAGE.into(), page("main's page"));
    script.extensions = [
        ("io.modelcontextprotocol/ui".into(), json!({})),
        ("com.example/odd".into(), json!({})),
    ]
    .into();
    script.experimental = [("com.example/trial".into(), json!({"says": "main"}))].into();
    add_tasks(&mut script, revision);
    script.answers.insert("odd".into(), json!(ODD_RESULT));
    script.list.page_size = 2;
    script.list.cursor = CursorMode::Loop;
    script
}

/// Tools that run as tasks where the revision has them, with another tool's behaviour.
fn add_tasks(script: &mut MockScript, revision: &str) {
    let rule = TaskRule {
        tell: true,
        ..TaskRule::default()
    };
    let required = TaskRule {
        required: true,
        ..rule.clone()
    };
    let eager = TaskRule {
        eager: true,
        ..rule.clone()
    };
    for (name, behaves, rule) in [
        ("job", "sleep", &rule),
        ("job_asks", "elicit", &rule),
        ("job_asks_twice", "elicit_twice", &rule),
        ("job_eager", "elicit", &eager),
        ("job_fails", "fail", &rule),
        ("job_errors", "error", &rule),
        ("job_link", "link", &rule),
        ("must", "progress", &required),
        ("must_ask", "elicit", &required),
    ] {
        let mut tool = json!({"name": name, "inputSchema": {"type": "object"}});
        if revision == "2025-11-25" {
            tool["execution"] =
                json!({"taskSupport": if rule.required { "required" } else { "optional" }});
        }
        script.tools.push(tool);
        script.behave.insert(name.into(), behaves.into());
        script.tasks.insert(name.into(), rule.clone());
    }
}

fn aside_script() -> MockScript {
    let resource = |uri: &str| json!({"uri": uri, "name": uri});
    MockScript {
        name: "aside".into(),
        preset: ContentPreset::Empty,
        tools: vec![json!({"name": "echo", "inputSchema": {"type": "object"}})],
        // The first of these is main's too, so that main's must be told apart from it.
        resources: vec![resource("mock://static/text"), resource("mock://aside")],
        contents: [("mock://static/text".into(), "aside's own text".into())].into(),
        prompts: vec![json!({"name": "greet"})],
        extensions: [("com.example/odd".into(), json!({"says": "aside", "n": 1.0}))].into(),
        ..MockScript::default()
    }
}

impl PairRig {
    /// Starts everything, and waits until it is connected and listed.
    pub(crate) async fn start(revision: &str, transport: ServerTransport) -> Self {
        let authority = Authority::new("servers");
        let setup = Setup::new().with("gateway", "drain = \"100ms\"");
        let (setup, main) =
            behind(setup, "main", main_script(revision), transport, &authority).await;
        let mut own = main_script(revision);
        own.contents.insert(PAGE.into(), page("own's page"));
        let (setup, own) = behind(setup, "own", own, transport, &authority).await;
        let setup = setup.with("servers.own", "share = \"session\"");
        let (setup, aside) = behind(
            setup,
            "aside",
            aside_script(),
            ServerTransport::Http,
            &authority,
        )
        .await;
        let gateway = match transport.has_tls() {
            false => PairGateway::Here(setup.start().await),
            true => PairGateway::Apart(setup.trusting(&authority).spawn().await),
        };
        let url = match &gateway {
            PairGateway::Here(gateway) => gateway.url("/mcp"),
            PairGateway::Apart(process) => process.mcp(),
        };
        let rig = PairRig {
            gateway,
            url,
            main,
            aside,
            own,
        };
        for server in ["main", "own", "aside"] {
            let ready = async || (rig.status(server).await["state"] == "ready").then_some(());
            until(&format!("{server} is ready"), ready).await;
        }
        let client = McpClient::connect(MODERN, &rig.url, json!({})).await;
        let listed = async || {
            let list = client.exchange("tools/list", json!({})).await;
            let has = |name: &&str| list.raw_result().contains(&format!("\"{name}\""));
            ["main__odd", "own__odd", "aside__echo"]
                .iter()
                .all(has)
                .then_some(())
        };
        until("the tools are listed", listed).await;
        rig
    }

    /// What the gateway says of a server.
    pub(crate) async fn status(&self, server: &str) -> Value {
        match &self.gateway {
            PairGateway::Here(gateway) => gateway.status(server).await,
            PairGateway::Apart(process) => process.status(server).await,
        }
    }

    pub(crate) async fn stop(self) {
        match self.gateway {
            PairGateway::Here(gateway) => gateway.app.stop().await,
            PairGateway::Apart(mut process) => {
                process.signal(Signal::TERM);
                assert!(process.ended().await.success(), "{}", process.log());
            }
        }
    }
}

/// Starts a mock, or prepares its start by the gateway; adds it to the gateway's servers.
async fn behind(
    setup: Setup,
    name: &str,
    mut script: MockScript,
    transport: ServerTransport,
    authority: &Authority,
) -> (Setup, MockBehind) {
    let record = setup.path(&format!("{name}.record"));
    let file = Some(
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&record)
            .unwrap(),
    );
    let addr = support::loopback();
    script.http.streamable = transport.is_http();
    let handle = match transport {
        ServerTransport::Stdio => {
            return (
                setup.stdio(name, &script),
                MockBehind {
                    record,
                    handle: None,
                    _relay: None,
                },
            );
        }
        ServerTransport::Http | ServerTransport::HttpTls | ServerTransport::Sse => {
            serve_http_recording(script, addr, file, None).await
        }
        ServerTransport::Tcp => serve_tcp(script, addr, file).await,
        ServerTransport::Unix => {
            serve_unix(script, setup.path(&format!("{name}.sock")), file).await
        }
        ServerTransport::WebSocket | ServerTransport::WebSocketTls => {
            serve_ws(script, addr, file).await
        }
    };
    let handle = handle.unwrap();
    // The mock has no HTTP/2; and for WebSockets nothing is agreed on.
    let protocols: &[&str] = if transport.is_http() {
        &["http/1.1"]
    } else {
        &[]
    };
    let relay = match transport.has_tls() {
        true => Some(Relay::secure(handle.addr.unwrap(), authority.sign().server(protocols)).await),
        false => None,
    };
    let (key, place) = match (transport, &relay) {
        (ServerTransport::HttpTls, Some(relay)) => ("url", relay.url("https")),
        (ServerTransport::WebSocketTls, Some(relay)) => ("url", relay.url("wss")),
        (ServerTransport::Tcp, _) => ("tcp", handle.url.clone()),
        (ServerTransport::Unix, _) => ("unix", handle.url.clone()),
        (ServerTransport::Sse, _) => ("url", handle.url.replace("/mcp", "/sse")),
        _ => ("url", handle.url.clone()),
    };
    let setup = setup.with(&format!("servers.{name}"), &format!("{key} = {place:?}"));
    (
        setup,
        MockBehind {
            record,
            handle: Some(handle),
            _relay: relay,
        },
    )
}

impl MockBehind {
    /// Every body or line that it received, as it came.
    pub(crate) fn received(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.record).unwrap();
        // A line that is still being written is not there yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// The received messages with this method.
    pub(crate) fn of(&self, method: &str) -> Vec<Value> {
        let all = self
            .received()
            .into_iter()
            .map(|line| serde_json::from_str::<Value>(&line).unwrap());
        all.filter(|message| message["method"] == method).collect()
    }

    /// The calls of a tool that it received, as they came.
    pub(crate) fn calls(&self, tool: &str) -> Vec<String> {
        let names = |line: &String| {
            let message: Value = serde_json::from_str(line).unwrap();
            message["method"] == "tools/call" && message["params"]["name"] == tool
        };
        self.received().into_iter().filter(names).collect()
    }
}
