//! A gateway in this process, with mocks behind it.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use moongate::app::App;
use moongate::config::{LoadOptions, load};
use moongate::mock::{
    Cursor, Handle, Preset, Revision, Script, TaskRule, serve_http_recording, serve_tcp, serve_unix, serve_ws,
};
use moongate::revision::SUPPORTED;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::until;

/// The program under test, which is the mock too.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_moongate");

/// How the gateway reaches the server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Stdio,
    Http,
    /// HTTP+SSE, which only 2024-11-05 has.
    Sse,
    Tcp,
    Unix,
    WebSocket,
}

/// A mock behind the gateway.
pub(crate) struct Behind {
    record: PathBuf,
    /// The server itself, unless the gateway starts it.
    pub(crate) handle: Option<Handle>,
}

/// A gateway with three servers: `main` at the revision under test, `aside` at all revisions, and `own` like `main`
/// with a connection for each session.
pub(crate) struct Rig {
    pub(crate) app: App,
    pub(crate) url: String,
    pub(crate) main: Behind,
    pub(crate) aside: Behind,
    pub(crate) own: Behind,
    _dir: TempDir,
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
pub(crate) fn main_script(revision: &str) -> Script {
    let mut script = Script::standard().speaking(&[Revision::of(revision).unwrap()]);
    script.name = "main".into();
    script.instructions = Some("Main's instructions.".into());
    script.tools = vec![json!(ODD_TOOL), json!(PANEL_TOOL)];
    script.contents.insert(PAGE.into(), page("main's page"));
    script.extensions =
        [("io.modelcontextprotocol/ui".into(), json!({})), ("com.example/odd".into(), json!({}))].into();
    script.experimental = [("com.example/trial".into(), json!({"says": "main"}))].into();
    add_tasks(&mut script, revision);
    script.answers.insert("odd".into(), json!(ODD_RESULT));
    script.list.page_size = 2;
    script.list.cursor = Cursor::Loop;
    script
}

/// Tools that run as tasks where the revision has them, with another tool's behaviour.
fn add_tasks(script: &mut Script, revision: &str) {
    let rule = TaskRule { tell: true, ..TaskRule::default() };
    let required = TaskRule { required: true, ..rule.clone() };
    let eager = TaskRule { eager: true, ..rule.clone() };
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
            tool["execution"] = json!({"taskSupport": if rule.required { "required" } else { "optional" }});
        }
        script.tools.push(tool);
        script.behave.insert(name.into(), behaves.into());
        script.tasks.insert(name.into(), rule.clone());
    }
}

fn aside_script() -> Script {
    let resource = |uri: &str| json!({"uri": uri, "name": uri});
    Script {
        name: "aside".into(),
        preset: Preset::Empty,
        tools: vec![json!({"name": "echo", "inputSchema": {"type": "object"}})],
        // The first of these is main's too, so that main's must be told apart from it.
        resources: vec![resource("mock://static/text"), resource("mock://aside")],
        contents: [("mock://static/text".into(), "aside's own text".into())].into(),
        prompts: vec![json!({"name": "greet"})],
        extensions: [("com.example/odd".into(), json!({"says": "aside", "n": 1.0}))].into(),
        ..Script::default()
    }
}

impl Rig {
    /// Starts everything, and waits until it is connected and listed.
    pub(crate) async fn start(revision: &str, transport: Transport) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (main, main_lines) = behind(&dir, "main", main_script(revision), transport).await;
        let mut own = main_script(revision);
        own.contents.insert(PAGE.into(), page("own's page"));
        let (own, own_lines) = behind(&dir, "own", own, transport).await;
        let (aside, aside_lines) = behind(&dir, "aside", aside_script(), Transport::Http).await;
        let text = format!(
            "[gateway]\nadmin = false\ndrain = \"100ms\"\n\n[servers.main]\n{main_lines}\n[servers.own]\n{own_lines}share = \"session\"\n\n[servers.aside]\n{aside_lines}"
        );
        let app = start(&dir, &text).await;
        let url = format!("http://{}/mcp", app.addresses[0]);
        let rig = Rig { app, url, main, aside, own, _dir: dir };
        for server in rig.app.gateway.servers() {
            until("the server is listed", || server.status().state.name() == "ready").await;
        }
        let wanted = [("main", "odd"), ("own", "odd"), ("aside", "echo")];
        for (server, tool) in wanted {
            let key = moongate::json::Text::from(format!("{server}__{tool}"));
            let find = || rig.app.gateway.snapshot().find(moongate::model::Kind::Tools, &key).is_some();
            until("the tools are in the catalogue", find).await;
        }
        rig
    }

    pub(crate) async fn stop(self) {
        self.app.stop().await;
    }
}

/// A gateway with this config, on a port of its own.
pub(crate) async fn start(dir: &TempDir, config: &str) -> App {
    let path = dir.path().join("moongate.toml");
    std::fs::write(&path, config).unwrap();
    let options = LoadOptions {
        paths: vec![path],
        listen: vec!["127.0.0.1:0".into()],
        revisions: &SUPPORTED,
        ..LoadOptions::default()
    };
    let loaded = load(&options).unwrap_or_else(|problems| panic!("{problems:?}\n{config}"));
    App::start(loaded.plan, Some(Path::new(PROGRAM))).await.unwrap()
}

/// Starts a mock, or prepares its start by the gateway; gives the lines of the config for it.
async fn behind(dir: &TempDir, name: &str, mut script: Script, transport: Transport) -> (Behind, String) {
    let record = dir.path().join(format!("{name}.record"));
    let file: File = OpenOptions::new().create(true).append(true).open(&record).unwrap();
    let addr: SocketAddr = "127.0.0.1:0".parse().unwrap();
    script.http.streamable = transport == Transport::Http;
    let served = match transport {
        Transport::Stdio => None,
        Transport::Http => Some(serve_http_recording(script.clone(), addr, Some(file), None).await.unwrap()),
        Transport::Sse => Some(serve_http_recording(script.clone(), addr, Some(file), None).await.unwrap()),
        Transport::Tcp => Some(serve_tcp(script.clone(), addr, Some(file)).await.unwrap()),
        Transport::Unix => {
            let socket = dir.path().join(format!("{name}.sock"));
            Some(serve_unix(script.clone(), socket, Some(file)).await.unwrap())
        }
        Transport::WebSocket => Some(serve_ws(script.clone(), addr, Some(file)).await.unwrap()),
    };
    if let Some(handle) = served {
        let key = match transport {
            Transport::Tcp => "tcp",
            Transport::Unix => "unix",
            _ => "url",
        };
        let url = if transport == Transport::Sse { handle.url.replace("/mcp", "/sse") } else { handle.url.clone() };
        let lines = format!("{key} = {}\n", json!(url));
        return (Behind { record, handle: Some(handle) }, lines);
    }
    let path = dir.path().join(format!("{name}.json"));
    std::fs::write(&path, serde_json::to_string(&script).unwrap()).unwrap();
    let args = json!(["mock", path, "--stdio", "--record", record]);
    (Behind { record, handle: None }, format!("command = {}\nargs = {args}\n", json!(PROGRAM)))
}

impl Behind {
    /// Every body or line that it received, as it came.
    pub(crate) fn received(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.record).unwrap();
        // A line that is still being written is not there yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    }

    /// The received messages with this method.
    pub(crate) fn of(&self, method: &str) -> Vec<Value> {
        let all = self.received().into_iter().map(|line| serde_json::from_str::<Value>(&line).unwrap());
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
