//! The mock server, driven by hand: raw lines and raw HTTP, at every revision.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{path::Path, process::Stdio, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use moongate::mock::{
    Act, Answer, Cursor, Fault, Generate, Handle, Newline, Revision, Script, serve_http, serve_tcp, serve_ws,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

const LONG: Duration = Duration::from_secs(30);
const ODD: &str = r#"{"z":1.0, "a":1e5,"big":123456789012345678901234567890,"deep":{"b":[],"a":"\u00e9"}}"#;

fn meta(extra: Value) -> Value {
    let mut meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}, "url": {}}, "sampling": {}}});
    for (key, value) in extra.as_object().unwrap() {
        meta[key] = value.clone();
    }
    meta
}

fn initialize(date: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": date,
        "capabilities": {"elicitation": {}, "sampling": {}, "roots": {}}, "clientInfo": {"name": "test", "version": "1"}}})
    .to_string()
}

fn request(id: u64, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

fn call(id: u64, tool: &str, arguments: Value) -> String {
    request(id, "tools/call", json!({"name": tool, "arguments": arguments}))
}

fn modern(id: u64, method: &str, mut params: Value, extra: Value) -> String {
    params["_meta"] = meta(extra);
    request(id, method, params)
}

/// A mock as a child process.
struct Pipe {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _script: tempfile::NamedTempFile,
}

impl Pipe {
    fn start(script: &Script) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), serde_json::to_string(script).unwrap()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_moongate"))
            .arg("mock")
            .arg(file.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, output, _script: file }
    }

    async fn legacy(date: &str, script: &Script) -> Self {
        let mut pipe = Self::start(script);
        let opened = pipe.ask(&initialize(date)).await;
        assert_eq!(opened["result"]["protocolVersion"], date);
        pipe.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        pipe
    }

    async fn send(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn line(&mut self) -> Option<String> {
        timeout(LONG, self.output.next_line()).await.unwrap().unwrap()
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(&self.line().await.unwrap()).unwrap()
    }

    async fn ask(&mut self, line: &str) -> Value {
        self.send(line).await;
        self.next().await
    }
}

/// An HTTP client that does what it is told.
struct Web {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
    headers: Vec<(String, String)>,
}

impl Web {
    fn new(url: &str) -> Self {
        let accept = ("accept".to_owned(), "application/json, text/event-stream".to_owned());
        let kind = ("content-type".to_owned(), "application/json".to_owned());
        Self {
            client: Client::builder(TokioExecutor::new()).build_http(),
            url: url.to_owned(),
            headers: vec![accept, kind],
        }
    }

    async fn legacy(url: &str, date: &str) -> Self {
        let mut web = Self::new(url);
        let opened = web.post(&initialize(date)).await;
        assert_eq!(opened.status(), 200);
        let session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        assert_eq!(answer(opened).await["result"]["protocolVersion"], date);
        web.headers.push(("mcp-session-id".into(), session));
        web.headers.push(("mcp-protocol-version".into(), date.into()));
        let told = web.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        assert_eq!(told.status(), 202);
        web
    }

    async fn send(&self, method: &str, body: &str, more: &[(&str, &str)]) -> Result<Response<Incoming>, String> {
        let mut request = Request::builder().method(method).uri(&self.url);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        timeout(LONG, self.client.request(request)).await.unwrap().map_err(|e| e.to_string())
    }

    async fn post(&self, body: &str) -> Response<Incoming> {
        self.send("POST", body, &[]).await.unwrap()
    }

    /// A modern request with the headers that mirror it.
    async fn modern(&self, body: &str) -> Response<Incoming> {
        let value: Value = serde_json::from_str(body).unwrap();
        let method = value["method"].as_str().unwrap().to_owned();
        let name = value["params"]["name"].as_str().or(value["params"]["uri"].as_str()).unwrap_or("-").to_owned();
        let version = ("mcp-protocol-version", "2026-07-28");
        self.send("POST", body, &[version, ("mcp-method", &method), ("mcp-name", &name)]).await.unwrap()
    }
}

/// A stream of events, read as the standard says.
struct Events {
    body: Incoming,
    text: String,
    /// The last character was a carriage return: a line feed after it is not another line's end.
    cr: bool,
}

impl Events {
    fn of(response: Response<Incoming>) -> Self {
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new(), cr: false }
    }

    /// The id and the message of the next event that has one.
    async fn next(&mut self) -> Option<(Option<String>, Value)> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| {
                    let lines = event.lines().filter_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
                    lines.map(|l| l.strip_prefix(' ').unwrap_or(l)).collect::<Vec<_>>().join("\n")
                };
                let data = field("data");
                if !data.is_empty() {
                    return Some((Some(field("id")).filter(|id| !id.is_empty()), serde_json::from_str(&data).unwrap()));
                }
                continue;
            }
            let frame = timeout(LONG, self.body.frame()).await.unwrap()?;
            let bytes = frame.ok()?.into_data().unwrap();
            for c in String::from_utf8(bytes.to_vec()).unwrap().chars() {
                if !(c == '\n' && self.cr) {
                    self.text.push(if c == '\r' { '\n' } else { c });
                }
                self.cr = c == '\r';
            }
        }
    }

    async fn message(&mut self) -> Value {
        self.next().await.expect("one more event").1
    }
}

/// The answer in a response of either kind.
async fn answer(response: Response<Incoming>) -> Value {
    if response.headers().get("content-type").is_some_and(|t| t == "text/event-stream") {
        let mut events = Events::of(response);
        loop {
            let message = events.message().await;
            if message.get("method").is_none() {
                return message;
            }
        }
    }
    serde_json::from_str(&text(response).await).unwrap()
}

async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

async fn http(script: Script) -> Handle {
    serve_http(script, ([127, 0, 0, 1], 0).into()).await.unwrap()
}

fn content(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {answer}"))
}

async fn until(what: &str, mut met: impl FnMut() -> bool) {
    let waiting = async {
        while !met() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[test]
fn examples_load() {
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("config/mock")).unwrap() {
        Script::load(&file.unwrap().path()).unwrap();
    }
    for file in ["tasks.toml", "tasks-2025-11-25.toml"] {
        let script = Script::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(file)).unwrap();
        assert!(script.tasks.keys().all(|name| script.behave.contains_key(name)), "{file}");
    }
    assert!(Script::parse("colour = 'red'").unwrap_err().to_string().contains("colour"));
    assert!(Script::parse("revisions = []").is_err());
    let typo = "[[faults]]\non = 'tools/list'\ndo = 'delay'\nms = 5\nafer = 1";
    assert!(Script::parse(typo).unwrap_err().to_string().contains("afer"));
    let whole = Script::standard().with_fault(Fault::on("*", Act::Hang).after(2).times(1));
    Script::parse(&serde_json::to_string(&whole).unwrap()).unwrap();
}

#[tokio::test]
async fn every_legacy_revision_over_stdio() {
    for revision in Revision::LEGACY {
        let mut pipe = Pipe::legacy(revision.date(), &Script::standard().speaking(&[revision])).await;
        let tools = pipe.ask(&request(1, "tools/list", json!({}))).await;
        let echo = &tools["result"]["tools"][0];
        assert_eq!(echo["name"], "echo");
        assert_eq!(echo["title"].is_string(), revision >= Revision::V2025_06_18);
        assert_eq!(echo["annotations"].is_object(), revision >= Revision::V2025_03_26);
        pipe.send(&format!(
            r#"{{"jsonrpc":"2.0","id":"é","method":"tools/call","params":{{"name":"echo","arguments":{ODD}}}}}"#
        ))
        .await;
        let line = pipe.line().await.unwrap();
        assert!(line.starts_with(r#"{"jsonrpc":"2.0","id":"é","#), "{line}");
        let structured = format!(r#""structuredContent":{ODD}"#);
        assert_eq!(line.contains(&structured), revision >= Revision::V2025_06_18, "{line}");
        assert_eq!(content(&serde_json::from_str(&line).unwrap()), ODD);
        let gone = pipe.ask(&request(3, "server/discover", json!({}))).await;
        assert_eq!(gone["error"]["code"], -32601);
        let missing = pipe.ask(&request(4, "resources/read", json!({"uri": "mock://no"}))).await;
        assert_eq!(missing["error"]["code"], -32002);
        drop(pipe.input);
        assert!(timeout(LONG, pipe.child.wait()).await.unwrap().unwrap().success());
    }
}

#[tokio::test]
async fn a_probe_finds_a_legacy_server() {
    let mut pipe = Pipe::start(&Script::standard().speaking(&[Revision::V2025_06_18]));
    let probe = pipe.ask(&modern(1, "server/discover", json!({}), json!({}))).await;
    assert_eq!(probe["error"]["code"], -32601);
    let early = pipe.ask(&request(2, "tools/list", json!({}))).await;
    assert_eq!(early["error"]["code"], -32600);
    let opened = pipe.ask(&initialize("2025-11-25")).await;
    assert_eq!(opened["result"]["protocolVersion"], "2025-06-18");
}

#[tokio::test]
async fn modern_over_stdio() {
    let mut pipe = Pipe::start(&Script::standard().speaking(&[Revision::V2026_07_28]));
    let found = pipe.ask(&modern(1, "server/discover", json!({}), json!({}))).await;
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(found["result"]["resultType"], "complete");
    let refused = pipe.ask(&initialize("2025-11-25")).await;
    assert_eq!(refused["error"]["code"], -32602);
    assert!(refused["error"]["message"].as_str().unwrap().contains("2026-07-28"));
    let other = r#"{"io.modelcontextprotocol/protocolVersion": "1900-01-01"}"#;
    let refused = pipe.ask(&modern(2, "tools/list", json!({}), serde_json::from_str(other).unwrap())).await;
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(refused["error"]["data"], json!({"supported": ["2026-07-28"], "requested": "1900-01-01"}));
    let tools = pipe.ask(&modern(3, "tools/list", json!({}), json!({}))).await;
    assert_eq!(tools["result"]["cacheScope"], "public");
    let unknown = pipe.ask(&modern(4, "ping", json!({}), json!({}))).await;
    assert_eq!(unknown["error"]["code"], -32601);
}

#[tokio::test]
async fn subscriptions_over_stdio_end_by_cancellation() {
    let mut pipe = Pipe::start(&Script::standard());
    let filter = json!({"notifications": {"toolsListChanged": true, "resourceSubscriptions": ["mock://watched"]}});
    let first = pipe.ask(&modern(7, "subscriptions/listen", filter.clone(), json!({}))).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], filter["notifications"]);
    let id = "io.modelcontextprotocol/subscriptionId";
    let named = |tool: &str| json!({"name": tool, "arguments": {}});
    pipe.send(&modern(8, "tools/call", named("change"), json!({}))).await;
    let notice = pipe.next().await;
    assert_eq!(
        (&notice["method"], &notice["params"]["_meta"][id]),
        (&json!("notifications/tools/list_changed"), &json!(7))
    );
    assert_eq!(content(&pipe.next().await), "changed_1");
    pipe.send(&modern(9, "tools/call", named("touch"), json!({}))).await;
    assert_eq!(pipe.next().await["params"]["uri"], "mock://watched");
    assert_eq!(content(&pipe.next().await), "told 1");
    pipe.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#).await;
    // The cancelled task is dropped when it is next looked at: until then it may still hear.
    loop {
        pipe.send(&modern(10, "tools/call", named("touch"), json!({}))).await;
        let next = pipe.next().await;
        if next.get("method").is_none() && content(&next) == "told 0" {
            break;
        }
    }
}

#[tokio::test]
async fn asks_over_stdio() {
    let mut pipe = Pipe::legacy("2025-06-18", &Script::standard()).await;
    let ask = pipe.ask(&call(1, "elicit", json!({"message": "Who?"}))).await;
    assert_eq!((&ask["method"], &ask["params"]["message"]), (&json!("elicitation/create"), &json!("Who?")));
    assert!(ask["params"].get("mode").is_none());
    let reply = json!({"action": "accept", "content": {"name": "Ada"}});
    let answer = pipe.ask(&json!({"jsonrpc": "2.0", "id": ask["id"], "result": reply}).to_string()).await;
    assert_eq!(answer["id"], 1);
    assert_eq!(answer["result"]["structuredContent"], reply);
    let ask = pipe.ask(&call(2, "roots", json!({}))).await;
    assert_eq!(ask["method"], "roots/list");
    let error = json!({"jsonrpc": "2.0", "id": ask["id"], "error": {"code": -32601, "message": "no"}});
    assert_eq!(pipe.ask(&error.to_string()).await["result"]["isError"], true);
    let url = pipe.ask(&call(3, "elicit_url", json!({}))).await;
    assert_eq!(url["result"]["isError"], true);
}

#[tokio::test]
async fn a_modern_ask_is_a_result() {
    let server = http(Script::standard().speaking(&[Revision::V2026_07_28])).await;
    let web = Web::new(&server.url);
    let params = json!({"name": "elicit_twice", "arguments": {}});
    let first = answer(web.modern(&modern(1, "tools/call", params.clone(), json!({}))).await).await;
    assert_eq!(first["result"]["resultType"], "input_required");
    assert_eq!(first["result"]["inputRequests"]["first"]["params"]["mode"], "form");
    let retry = |id, result: &Value, key: &str| {
        let mut params = params.clone();
        params["requestState"] = result["requestState"].clone();
        params["inputResponses"] = json!({ key: {"action": "accept", "content": {"name": key}} });
        modern(id, "tools/call", params, json!({}))
    };
    let second = answer(web.modern(&retry(2, &first["result"], "first")).await).await;
    assert!(second["result"]["inputRequests"]["second"].is_object(), "{second}");
    let done = answer(web.modern(&retry(3, &second["result"], "second")).await).await;
    assert_eq!(done["result"]["resultType"], "complete");
    assert_eq!(done["result"]["structuredContent"]["first"]["content"]["name"], "first");

    let mut forged = first["result"].clone();
    forged["requestState"] = json!(format!("x{}", forged["requestState"].as_str().unwrap()));
    let refused = answer(web.modern(&retry(4, &forged, "first")).await).await;
    assert_eq!(refused["error"]["code"], -32602);
    let able = json!({"io.modelcontextprotocol/clientCapabilities": {}});
    let response = web.modern(&modern(5, "tools/call", params.clone(), able)).await;
    assert_eq!(response.status(), 400);
    let refused = answer(response).await;
    assert_eq!(refused["error"]["code"], -32021);
    assert!(refused["error"]["data"]["requiredCapabilities"]["elicitation"].is_object());
}

fn flows() -> Script {
    Script::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("config/mock/flows.toml")).unwrap()
}

#[tokio::test]
async fn a_flow_asks_within_the_call_where_there_are_sessions() {
    let mut pipe = Pipe::legacy("2025-11-25", &flows()).await;
    pipe.send(&call(1, "book", json!({"place": "Luna"}))).await;
    assert_eq!(pipe.next().await["params"]["data"], "looking for a table");
    // Both are on their way before either is answered.
    let (name, wish) = (pipe.next().await, pipe.next().await);
    assert_eq!((&name["method"], &wish["method"]), (&json!("elicitation/create"), &json!("sampling/createMessage")));
    let reply = |ask: &Value, result: Value| json!({"jsonrpc": "2.0", "id": ask["id"], "result": result}).to_string();
    let wished = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "a view"}});
    pipe.send(&reply(&wish, wished)).await;
    let form = |content: Value| json!({"action": "accept", "content": content});
    let sure = pipe.ask(&reply(&name, form(json!({"name": "Ada"})))).await;
    assert_eq!(sure["params"]["message"], "Sure?");
    pipe.send(&reply(&sure, form(json!({"sure": true})))).await;
    assert_eq!(pipe.next().await["method"], "notifications/tools/list_changed");
    assert_eq!(content(&pipe.next().await), "Luna: Ada, true");
    // What does not answer the question is no answer.
    pipe.send(&call(2, "book", json!({"place": "Luna"}))).await;
    let (_, name, wish) = (pipe.next().await, pipe.next().await, pipe.next().await);
    pipe.send(&reply(&name, form(json!({"name": 5})))).await;
    let refused = pipe.ask(&reply(&wish, json!({}))).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
}

#[tokio::test]
async fn a_flow_asks_by_its_result_where_there_are_none() {
    let server = http(flows().speaking(&[Revision::V2026_07_28])).await;
    let web = Web::new(&server.url);
    let forms = json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}});
    let book = |id, state: &Value, responses: Value| {
        let mut params = json!({"name": "book", "arguments": {"place": "Luna"}});
        if !responses.is_null() {
            params["inputResponses"] = responses;
        }
        if !state.is_null() {
            params["requestState"] = state.clone();
        }
        modern(id, "tools/call", params, forms.clone())
    };
    let ask = async |text: String| answer(web.modern(&text).await).await;
    let first = ask(book(1, &Value::Null, Value::Null)).await["result"].clone();
    let keys: Vec<_> = first["inputRequests"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["name"], "what this client cannot answer is not asked");
    let name = json!({"name": {"action": "accept", "content": {"name": "Ada"}}, "unheard-of": 1});
    let second = ask(book(2, &first["requestState"], name.clone())).await["result"].clone();
    assert_eq!(second["inputRequests"]["sure"]["params"]["message"], "Sure?");
    let sure = json!({"sure": {"action": "accept", "content": {"sure": true}}});
    let done = ask(book(3, &second["requestState"], sure)).await;
    assert_eq!(content(&done), "Luna: Ada, true");
    let again = ask(book(4, &Value::Null, name)).await;
    assert!(
        again["result"]["inputRequests"]["name"].is_object(),
        "answers without the state count for nothing: {again}"
    );
    let refused = ask(book(5, &first["requestState"], json!({"name": 5}))).await;
    assert_eq!(refused["error"]["code"], -32602);
    let forged = json!(format!("{}x", first["requestState"].as_str().unwrap()));
    assert_eq!(ask(book(6, &forged, json!({}))).await["error"]["code"], -32602);
    let read = modern(7, "resources/read", json!({"uri": "table://Luna/7"}), json!({}));
    assert_eq!(ask(read).await["result"]["contents"][0]["text"], "table 7 at Luna");
    let missing = modern(8, "resources/read", json!({"uri": "table://Luna"}), json!({}));
    assert_eq!(ask(missing).await["error"]["code"], -32602);
}

#[tokio::test]
async fn a_foreign_host_is_refused_on_loopback() {
    let server = http(Script::standard()).await;
    let web = Web::new(&server.url);
    let refused = web.send("POST", &initialize("2025-11-25"), &[("host", "evil.example.com")]).await.unwrap();
    assert_eq!(refused.status(), 403);
    let served = web.send("POST", &initialize("2025-11-25"), &[("host", "localhost:1")]).await.unwrap();
    assert_eq!(served.status(), 200);
}

#[tokio::test]
async fn every_legacy_revision_over_http() {
    for revision in Revision::LEGACY {
        let server = http(Script::standard().speaking(&[revision])).await;
        let web = Web::legacy(&server.url, revision.date()).await;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1.50,"method":"tools/call","params":{{"name":"echo","arguments":{ODD}}}}}"#
        );
        let answer_text = text(web.post(&body).await).await;
        assert!(answer_text.starts_with(r#"{"jsonrpc":"2.0","id":1.50,"#), "{answer_text}");
        assert_eq!(content(&serde_json::from_str(&answer_text).unwrap()), ODD);
        // A modern request: refused without anything modern in the body.
        let response = Web::new(&server.url).modern(&modern(2, "tools/list", json!({}), json!({}))).await;
        assert_eq!(response.status(), 400);
        assert_eq!(answer(response).await["error"]["code"], -32000);
        let events = web.send("GET", "", &[]).await.unwrap();
        let mut events = Events::of(events);
        answer(web.post(&request(3, "resources/subscribe", json!({"uri": "mock://watched"}))).await).await;
        assert_eq!(content(&answer(web.post(&call(4, "touch", json!({}))).await).await), "told 1");
        assert_eq!(events.message().await["method"], "notifications/resources/updated");
        assert_eq!(web.send("DELETE", "", &[]).await.unwrap().status(), 200);
        assert!(events.next().await.is_none());
        assert_eq!(web.post(&request(5, "ping", json!({}))).await.status(), 404);
        let counters = server.counters();
        assert_eq!((counters.sessions, counters.deleted, counters.of("tools/call")), (1, 1, 2));
        server.stop().await;
    }
}

#[tokio::test]
async fn batches_are_of_one_revision() {
    let batch = format!(
        "[{},{},{}]",
        call(1, "add", json!({"a": 1, "b": 2})),
        request(2, "ping", json!({})),
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#
    );
    let server = http(Script::standard()).await;
    let web = Web::legacy(&server.url, "2025-03-26").await;
    let both = answer(web.post(&batch).await).await;
    assert_eq!((content(&both[0]), &both[1]["id"]), ("3", &json!(2)));
    assert_eq!(server.counters().of("notifications/roots/list_changed"), 1);
    let streamed = format!("[{},{}]", call(1, "log", json!({"text": "x"})), request(2, "ping", json!({})));
    let mut events = Events::of(web.post(&streamed).await);
    let mut ids = Vec::new();
    while let Some((_, message)) = events.next().await {
        ids.extend(message.get("id").cloned());
    }
    assert_eq!(ids.len(), 2);
    let web = Web::legacy(&server.url, "2025-06-18").await;
    assert_eq!(web.post(&batch).await.status(), 400);

    let mut pipe = Pipe::legacy("2025-03-26", &Script::standard()).await;
    assert_eq!(pipe.ask(&batch).await.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn legacy_asks_and_progress_over_http() {
    let server = http(Script::standard()).await;
    let web = Web::legacy(&server.url, "2025-11-25").await;
    let mut events = Events::of(web.post(&call(1, "elicit", json!({}))).await);
    let ask = events.message().await;
    assert_eq!(ask["params"]["mode"], "form");
    let reply = json!({"jsonrpc": "2.0", "id": ask["id"], "result": {"action": "decline"}}).to_string();
    assert_eq!(web.post(&reply).await.status(), 202);
    assert_eq!(content(&events.message().await), r#"{"action":"decline"}"#);
    assert!(events.next().await.is_none());
    // The same answer again is an answer to nothing.
    assert_eq!(web.post(&reply).await.status(), 202);
    assert_eq!(server.counters().stray, 1);

    let params = json!({"name": "progress", "arguments": {"steps": 3, "ms": 0}, "_meta": {"progressToken": "t"}});
    let mut events = Events::of(web.post(&request(2, "tools/call", params)).await);
    for step in 1..=3 {
        let message = events.message().await;
        assert_eq!((&message["params"]["progressToken"], &message["params"]["progress"]), (&json!("t"), &json!(step)));
    }
    assert_eq!(content(&events.message().await), "3 steps");
}

#[tokio::test]
async fn cancellation_in_both_eras() {
    let server = http(Script::standard()).await;
    let old = Web::legacy(&server.url, "2025-11-25").await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"h"}}"#;
    let hang = r#"{"jsonrpc":"2.0","id":"h","method":"tools/call","params":{"name":"hang"}}"#;
    let (response, ()) = tokio::join!(old.post(hang), async {
        until("the call arrives", || server.counters().of("tools/call") == 1).await;
        assert_eq!(old.post(cancel).await.status(), 202);
    });
    assert!(Events::of(response).next().await.is_none());
    assert_eq!(server.counters().cancelled, ["\"h\""]);

    // Modern: closing the response is what cancels, whether it has begun or not.
    let new = Web::new(&server.url);
    let body = modern(5, "tools/call", json!({"name": "hang", "arguments": {}}), json!({}));
    tokio::select! {
        _ = new.modern(&body) => panic!("it hangs"),
        () = until("the call arrives", || server.counters().of("tools/call") == 2) => {}
    }
    until("the disconnect is seen", || server.counters().cancelled.len() == 2).await;
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut events = Events::of(new.modern(&modern(6, "subscriptions/listen", filter, json!({}))).await);
    assert_eq!(events.message().await["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(server.listeners(), 1);
    drop(events);
    until("the listener goes", || server.listeners() == 0).await;
    assert_eq!(server.counters().cancelled.back().unwrap(), "6");

    let mut pipe = Pipe::legacy("2024-11-05", &Script::standard()).await;
    pipe.send(hang).await;
    pipe.send(cancel).await;
    pipe.send(&call(2, "mock_counters", json!({}))).await;
    let seen: Value = serde_json::from_str(content(&pipe.next().await)).unwrap();
    assert_eq!(seen["cancelled"], json!(["\"h\""]));
}

#[tokio::test]
async fn a_modern_server_judges_headers() {
    let server = http(Script::standard().speaking(&[Revision::V2026_07_28])).await;
    let web = Web::new(&server.url);
    let body = modern(1, "tools/call", json!({"name": "echo", "arguments": {}}), json!({}));
    let version = ("mcp-protocol-version", "2026-07-28");
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], i64);
    let refused: [Case<'_>; 5] = [
        (&body, &[], -32020),
        (&body, &[version, ("mcp-method", "tools/list"), ("mcp-name", "echo")], -32020),
        (&body, &[version, ("mcp-method", "tools/call")], -32020),
        (&body, &[version, ("mcp-method", "tools/call"), ("mcp-name", "other")], -32020),
        (&initialize("2025-11-25"), &[("mcp-protocol-version", "2025-11-25")], -32022),
    ];
    for (body, headers, code) in refused {
        let response = web.send("POST", body, headers).await.unwrap();
        assert_eq!(response.status(), 400);
        assert_eq!(answer(response).await["error"]["code"], code, "{headers:?}");
    }
    let encoded = [version, ("mcp-method", "tools/call"), ("mcp-name", "=?base64?ZWNobw==?=")];
    assert_eq!(web.send("POST", &body, &encoded).await.unwrap().status(), 200);
    let bare = request(2, "tools/list", json!({}));
    let response = web.send("POST", &bare, &[version, ("mcp-method", "tools/list")]).await.unwrap();
    assert_eq!((response.status().as_u16(), answer(response).await["error"]["code"].clone()), (400, json!(-32602)));
    let response = web.modern(&modern(3, "no/such", json!({}), json!({}))).await;
    assert_eq!((response.status().as_u16(), answer(response).await["error"]["code"].clone()), (404, json!(-32601)));
    let region = modern(4, "tools/call", json!({"name": "region", "arguments": {"region": "eu"}}), json!({}));
    assert_eq!(web.modern(&region).await.status(), 400);
    let headers = [version, ("mcp-method", "tools/call"), ("mcp-name", "region"), ("mcp-param-region", "eu")];
    assert_eq!(web.send("POST", &region, &headers).await.unwrap().status(), 200);
    assert_eq!(server.last("tools/call").unwrap().header("Mcp-Param-Region"), Some("eu"));
    for method in ["GET", "DELETE"] {
        assert_eq!(web.send(method, "", &[]).await.unwrap().status(), 405);
    }
    assert_eq!(web.send("POST", &body, &[("origin", "https://evil.example")]).await.unwrap().status(), 403);
}

#[tokio::test]
async fn logs_follow_the_level() {
    let server = http(Script::standard()).await;
    let new = Web::new(&server.url);
    let params = json!({"name": "log", "arguments": {"level": "warning", "text": "careful"}});
    let quiet = new.modern(&modern(1, "tools/call", params.clone(), json!({}))).await;
    assert_eq!(quiet.headers()["content-type"], "application/json");
    let level = json!({"io.modelcontextprotocol/logLevel": "info"});
    let mut events = Events::of(new.modern(&modern(2, "tools/call", params.clone(), level)).await);
    assert_eq!(events.message().await["params"]["data"], "careful");
    let old = Web::legacy(&server.url, "2025-03-26").await;
    answer(old.post(&request(1, "logging/setLevel", json!({"level": "error"}))).await).await;
    assert_eq!(old.post(&request(2, "tools/call", params)).await.headers()["content-type"], "application/json");
}

#[tokio::test]
async fn a_subscription_ends_politely_when_the_server_does() {
    let server = http(Script::standard()).await;
    let web = Web::new(&server.url);
    let filter = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": false}});
    let mut events = Events::of(web.modern(&modern(9, "subscriptions/listen", filter, json!({}))).await);
    let acknowledged = events.message().await;
    assert_eq!(acknowledged["params"]["notifications"], json!({"toolsListChanged": true}));
    assert_eq!(server.notify_list("prompts"), 0);
    assert_eq!(server.change_tools_and_notify(&[json!({"name": "new", "inputSchema": {"type": "object"}})]), 1);
    assert_eq!(events.message().await["method"], "notifications/tools/list_changed");
    server.stop().await;
    assert_eq!(events.message().await["method"], "notifications/cancelled");
    assert_eq!(events.message().await["id"], 9);
}

#[tokio::test]
async fn events_in_every_spelling() {
    for newline in [Newline::Lf, Newline::Cr, Newline::Crlf] {
        for chunk in [0, 1] {
            let mut script = Script::standard();
            script.http.answer = Answer::Sse;
            (script.http.sse.newline, script.http.sse.chunk) = (newline, chunk);
            (script.http.sse.split, script.http.sse.prime) = (true, true);
            let server = http(script).await;
            let web = Web::legacy_over_events(&server.url).await;
            let mut events = Events::of(web.post(&call(1, "log", json!({"text": "before"}))).await);
            assert_eq!(events.message().await["params"]["data"], "before");
            assert_eq!(events.message().await["id"], 1);
            assert!(events.next().await.is_none());
        }
    }
}

impl Web {
    async fn legacy_over_events(url: &str) -> Self {
        let web = Self::legacy(url, "2025-11-25").await;
        let tools = answer(web.post(&request(1, "tools/list", json!({}))).await).await;
        assert!(tools["result"]["tools"].is_array());
        web
    }
}

#[tokio::test]
async fn a_cut_stream_is_resumed() {
    let mut script = Script::standard();
    (script.http.sse.ids, script.http.sse.cut_after) = (true, 2);
    let server = http(script).await;
    let web = Web::legacy(&server.url, "2025-11-25").await;
    let params = json!({"name": "progress", "arguments": {"steps": 4, "ms": 1}, "_meta": {"progressToken": 1}});
    let mut events = Events::of(web.post(&request(1, "tools/call", params)).await);
    let mut last = None;
    let mut seen = Vec::new();
    while let Some((id, message)) = events.next().await {
        seen.push(message["params"]["progress"].clone());
        last = id;
    }
    assert_eq!(seen, [1, 2]);
    let rest = web.send("GET", "", &[("last-event-id", &last.unwrap())]).await.unwrap();
    let mut events = Events::of(rest);
    assert_eq!(events.message().await["params"]["progress"], 3);
    assert_eq!(events.message().await["params"]["progress"], 4);
    assert_eq!(events.message().await["id"], 1);
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn lists_go_where_the_script_says() {
    let mut script = Script::standard();
    script.preset = moongate::mock::Preset::Empty;
    script.generate = vec![Generate { count: 5, name: "t.{n}".into(), depth: 50, describe: 10 }];
    script.tools = vec![json!(r#"{"name": null,"n":1.0}"#)];
    script.list.page_size = 4;
    let mut pipe = Pipe::legacy("2025-06-18", &script).await;
    let first = pipe.ask(&request(1, "tools/list", json!({}))).await;
    assert_eq!(first["result"]["tools"].as_array().unwrap().len(), 4);
    let cursor = json!({"cursor": first["result"]["nextCursor"]});
    pipe.send(&request(2, "tools/list", cursor.clone())).await;
    let second = pipe.line().await.unwrap();
    assert!(second.contains(r#"{"name": null,"n":1.0}"#) && !second.contains("nextCursor"), "{second}");
    assert_eq!(pipe.ask(&request(3, "tools/list", json!({"cursor": "no"}))).await["error"]["code"], -32602);
    for (kind, next) in [(Cursor::Loop, "page-0"), (Cursor::Endless, "page-2")] {
        script.list.cursor = kind;
        let mut pipe = Pipe::legacy("2025-06-18", &script).await;
        assert_eq!(pipe.ask(&request(2, "tools/list", cursor.clone())).await["result"]["nextCursor"], next);
    }
}

#[tokio::test]
async fn faults_over_http() {
    let server = http(Script::standard()).await;
    let web = Web::legacy(&server.url, "2025-06-18").await;
    let list = request(1, "tools/list", json!({}));
    let busy = Act::Status {
        status: 503,
        headers: [("retry-after".to_owned(), "1".to_owned())].into(),
        body: "<html>".into(),
        content_type: Some("text/html".into()),
    };
    server.set_fault(Fault::on("tools/list", busy).after(1).times(1));
    assert_eq!(web.post(&list).await.status(), 200);
    let response = web.post(&list).await;
    assert_eq!((response.status().as_u16(), &response.headers()["content-type"]), (503, &"text/html".parse().unwrap()));
    assert_eq!(web.post(&list).await.status(), 200);
    server.set_fault(Fault::on("tools/list", Act::WrongId));
    assert_ne!(answer(web.post(&list).await).await["id"], 1);
    server.set_fault(Fault::on("tools/list", Act::Huge { bytes: 1 << 20 }));
    assert!(text(web.post(&list).await).await.len() > 1 << 20);
    server.set_fault(Fault::on("tools/list", Act::Duplicate));
    let mut events = Events::of(web.post(&list).await);
    assert_eq!((events.message().await["id"].clone(), events.message().await["id"].clone()), (json!(1), json!(1)));
    server.set_fault(Fault::on("tools/list", Act::ContentType { value: "text/plain".into() }));
    assert_eq!(web.post(&list).await.headers()["content-type"], "text/plain");
    server.set_fault(Fault::on("tools/list", Act::Body { text: String::new() }));
    assert_eq!(text(web.post(&list).await).await, "");
    for act in [Act::Reset, Act::Close, Act::Exit { code: 1 }] {
        server.set_fault(Fault::on("tools/list", act));
        assert!(web.send("POST", &list, &[]).await.is_err());
    }
    server.clear_faults();
    assert!(web.send("POST", &call(2, "crash", json!({})), &[]).await.is_err());
    assert_eq!(web.post(&list).await.status(), 200);
    assert_eq!(server.drop_sessions(), 1);
    assert_eq!(web.post(&list).await.status(), 404);
}

#[tokio::test]
async fn faults_over_stdio() {
    let script = Script::standard().with_fault(Fault::on("tools/call:add", Act::Exit { code: 9 }).after(1));
    let mut pipe = Pipe::legacy("2025-11-25", &script).await;
    let add = call(1, "add", json!({"a": 1, "b": 2}));
    assert_eq!(content(&pipe.ask(&add).await), "3");
    pipe.send(&add).await;
    assert_eq!(timeout(LONG, pipe.child.wait()).await.unwrap().unwrap().code(), Some(9));

    let mut pipe = Pipe::legacy("2025-11-25", &Script::standard()).await;
    pipe.send(&call(1, "crash", json!({}))).await;
    assert_eq!(timeout(LONG, pipe.child.wait()).await.unwrap().unwrap().code(), Some(3));

    let mut script = Script::standard();
    script.stdio.banner = Some("hello".into());
    script.stdio.exit_after = 1;
    let mut pipe = Pipe::start(&script);
    assert_eq!(pipe.line().await.unwrap(), "hello");
    pipe.ask(&initialize("2025-11-25")).await;
    assert_eq!(timeout(LONG, pipe.child.wait()).await.unwrap().unwrap().code(), Some(4));
}

#[tokio::test]
async fn http_and_sse() {
    let mut script = Script::standard().speaking(&[Revision::V2024_11_05]);
    script.http.streamable = false;
    let server = http(script).await;
    let mut web = Web::new(&server.url);
    assert_eq!(web.post(&initialize("2025-11-25")).await.status(), 404);
    web.url = server.url.replace("/mcp", "/sse");
    assert_eq!(web.post(&initialize("2025-11-25")).await.status(), 405);
    let mut opened = web.send("GET", "", &[]).await.unwrap();
    let first = opened.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    let first = String::from_utf8(first.to_vec()).unwrap();
    let path = first.strip_prefix("event: endpoint\ndata: ").unwrap().trim_end();
    web.url = server.url.replace("/mcp", path);
    let mut events = Events::of(opened);
    assert_eq!(web.post(&initialize("2025-11-25")).await.status(), 202);
    assert_eq!(events.message().await["result"]["protocolVersion"], "2024-11-05");
    web.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    web.post(&call(1, "elicit", json!({}))).await;
    assert_eq!(events.message().await["result"]["isError"], true);
    web.post(&call(2, "sample", json!({}))).await;
    let ask = events.message().await;
    web.post(&json!({"jsonrpc": "2.0", "id": ask["id"], "result": {"role": "assistant"}}).to_string()).await;
    assert_eq!(content(&events.message().await), r#"{"role":"assistant"}"#);
    drop(events);
    let gone = async {
        while web.post(&request(3, "ping", json!({}))).await.status() != 404 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, gone).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_process_that_will_not_go() {
    use rustix::process::{Pid, Signal, kill_process, test_kill_process};
    let mut script = Script::standard();
    (script.stdio.ignore_sigterm, script.stdio.ignore_eof) = (true, true);
    let mut pipe = Pipe::legacy("2025-11-25", &script).await;
    let child = Pid::from_raw(i32::try_from(pipe.child.id().unwrap()).unwrap()).unwrap();
    kill_process(child, Signal::TERM).unwrap();
    let grandchild = pipe.ask(&call(1, "grandchild", json!({}))).await;
    let grandchild = Pid::from_raw(content(&grandchild).parse().unwrap()).unwrap();
    drop(pipe.input);
    assert!(timeout(Duration::from_secs(1), pipe.child.wait()).await.is_err());
    pipe.child.kill().await.unwrap();
    test_kill_process(grandchild).unwrap();
    kill_process(grandchild, Signal::KILL).unwrap();
}

#[tokio::test]
async fn the_demonstration_is_friendly() {
    let server = http(Script::demo()).await;
    let web = Web::legacy(&server.url, "2025-11-25").await;
    let mut events = Events::of(web.post(&call(1, "ask_name", json!({}))).await);
    let ask = events.message().await;
    let name = json!({"action": "accept", "content": {"name": "Ada"}});
    web.post(&json!({"jsonrpc": "2.0", "id": ask["id"], "result": name}).to_string()).await;
    assert_eq!(content(&events.message().await), "Hello, Ada.");
    assert!(content(&answer(web.post(&call(2, "now", json!({}))).await).await).ends_with('Z'));
}

#[tokio::test]
async fn lines_over_tcp() {
    let server = serve_tcp(Script::demo(), ([127, 0, 0, 1], 0).into(), None).await.unwrap();
    let mut stream = BufReader::new(tokio::net::TcpStream::connect(server.addr.unwrap()).await.unwrap());
    stream.write_all(format!("{}\n", modern(1, "tools/list", json!({}), json!({}))).as_bytes()).await.unwrap();
    let mut line = String::new();
    timeout(LONG, stream.read_line(&mut line)).await.unwrap().unwrap();
    let tools: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(tools["result"]["tools"][0]["name"], "echo");
}

#[tokio::test]
async fn the_rest_of_the_contents() {
    let server = http(Script::standard()).await;
    let web = Web::legacy(&server.url, "2025-11-25").await;
    let get = |id, method: &str, params: Value| request(id, method, params);
    let blob = answer(web.post(&get(1, "resources/read", json!({"uri": "mock://static/blob"}))).await).await;
    assert_eq!(blob["result"]["contents"][0]["blob"].as_str().unwrap().len(), 344);
    let item = answer(web.post(&get(2, "resources/read", json!({"uri": "mock://item/7"}))).await).await;
    assert_eq!(item["result"]["contents"][0]["text"], "item 7");
    let greet = json!({"name": "greet", "arguments": {"name": "Ada"}});
    let prompt = answer(web.post(&get(3, "prompts/get", greet)).await).await;
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Please greet Ada warmly.");
    let missing = answer(web.post(&get(4, "prompts/get", json!({"name": "greet"}))).await).await;
    assert_eq!(missing["error"]["code"], -32602);
    let typed = json!({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "a"}});
    let completed = answer(web.post(&get(5, "completion/complete", typed)).await).await;
    assert_eq!(completed["result"]["completion"]["values"], json!(["Ada", "Alan"]));
    let me = answer(web.send("POST", &call(6, "whoami", json!({})), &[("x-tenant", "t1")]).await.unwrap()).await;
    assert_eq!(me["result"]["structuredContent"]["headers"]["x-tenant"], "t1");
    let link = answer(web.post(&call(7, "link", json!({}))).await).await;
    assert_eq!(link["result"]["content"][0]["type"], "resource_link");
    for n in ["1", "2"] {
        assert_eq!(content(&answer(web.post(&call(8, "counter", json!({}))).await).await), n);
    }
    let other = Web::legacy(&server.url, "2025-11-25").await;
    assert_eq!(content(&answer(other.post(&call(8, "counter", json!({}))).await).await), "1");
}

#[tokio::test]
async fn websocket_handshakes_are_judged() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let http = moongate::mock::Http { bearer: Some("k".into()), ..moongate::mock::Http::default() };
    let server = serve_ws(Script { http, ..Script::demo() }, ([127, 0, 0, 1], 0).into(), None).await.unwrap();
    assert_eq!(server.url, format!("ws://{}/mcp", server.addr.unwrap()));
    for (path, key, protocol, status) in
        [("/mcp", "k", "x, mcp", 101), ("/mcp", "k", "x", 400), ("/mcp", "j", "mcp", 401), ("/", "k", "mcp", 404)]
    {
        let mut stream = tokio::net::TcpStream::connect(server.addr.unwrap()).await.unwrap();
        let asked = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: {protocol}\r\nauthorization: Bearer {key}\r\n\r\n"
        );
        stream.write_all(asked.as_bytes()).await.unwrap();
        let mut line = [0; 12];
        stream.read_exact(&mut line).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&line), format!("HTTP/1.1 {status}"), "{path} {key} {protocol}");
    }
}
