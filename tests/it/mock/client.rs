//! Clients by hand: raw lines and raw HTTP.

use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use moongate_mock::{MockHandle, MockScript, serve_http};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

pub(crate) const LONG: Duration = Duration::from_secs(30);
pub(crate) const ODD: &str = r#"{"z":1.0, "a":1e5,"big":123456789012345678901234567890,"deep":{"b":[],"a":"\u00e9"}}"#;

pub(crate) fn meta(extra: Value) -> Value {
    let mut meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}, "url": {}}, "sampling": {}}});
    for (key, value) in extra.as_object().unwrap() {
        meta[key] = value.clone();
    }
    meta
}

pub(crate) fn initialize(date: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": date,
        "capabilities": {"elicitation": {}, "sampling": {}, "roots": {}}, "clientInfo": {"name": "test", "version": "1"}}})
    .to_string()
}

pub(crate) fn request(id: u64, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

pub(crate) fn call(id: u64, tool: &str, arguments: Value) -> String {
    request(id, "tools/call", json!({"name": tool, "arguments": arguments}))
}

pub(crate) fn modern(id: u64, method: &str, mut params: Value, extra: Value) -> String {
    params["_meta"] = meta(extra);
    request(id, method, params)
}

/// A mock as a child process.
pub(crate) struct MockProcess {
    pub(crate) child: Child,
    pub(crate) input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _script: tempfile::NamedTempFile,
}

impl MockProcess {
    pub(crate) fn start(script: &MockScript) -> Self {
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

    pub(crate) async fn legacy(date: &str, script: &MockScript) -> Self {
        let mut pipe = Self::start(script);
        let opened = pipe.ask(&initialize(date)).await;
        assert_eq!(opened["result"]["protocolVersion"], date);
        pipe.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        pipe
    }

    pub(crate) async fn send(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn line(&mut self) -> Option<String> {
        timeout(LONG, self.output.next_line()).await.unwrap().unwrap()
    }

    pub(crate) async fn next(&mut self) -> Value {
        serde_json::from_str(&self.line().await.unwrap()).unwrap()
    }

    pub(crate) async fn ask(&mut self, line: &str) -> Value {
        self.send(line).await;
        self.next().await
    }
}

/// An HTTP client that does what it is told.
pub(crate) struct RawHttpClient {
    client: Client<HttpConnector, Full<Bytes>>,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl RawHttpClient {
    pub(crate) fn new(url: &str) -> Self {
        let accept = ("accept".to_owned(), "application/json, text/event-stream".to_owned());
        let kind = ("content-type".to_owned(), "application/json".to_owned());
        Self {
            client: Client::builder(TokioExecutor::new()).build_http(),
            url: url.to_owned(),
            headers: vec![accept, kind],
        }
    }

    pub(crate) async fn legacy(url: &str, date: &str) -> Self {
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

    pub(crate) async fn send(
        &self,
        method: &str,
        body: &str,
        more: &[(&str, &str)],
    ) -> Result<Response<Incoming>, String> {
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

    pub(crate) async fn post(&self, body: &str) -> Response<Incoming> {
        self.send("POST", body, &[]).await.unwrap()
    }

    /// A modern request with the headers that mirror it.
    pub(crate) async fn modern(&self, body: &str) -> Response<Incoming> {
        let value: Value = serde_json::from_str(body).unwrap();
        let method = value["method"].as_str().unwrap().to_owned();
        let name = value["params"]["name"].as_str().or(value["params"]["uri"].as_str()).unwrap_or("-").to_owned();
        let version = ("mcp-protocol-version", "2026-07-28");
        self.send("POST", body, &[version, ("mcp-method", &method), ("mcp-name", &name)]).await.unwrap()
    }
}

/// A stream of events, read as the standard says.
pub(crate) struct EventReader {
    body: Incoming,
    text: String,
    /// The last character was a carriage return: a line feed after it is not another line's end.
    cr: bool,
}

impl EventReader {
    pub(crate) fn of(response: Response<Incoming>) -> Self {
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new(), cr: false }
    }

    /// The id and the message of the next event that has one.
    pub(crate) async fn next(&mut self) -> Option<(Option<String>, Value)> {
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

    pub(crate) async fn message(&mut self) -> Value {
        self.next().await.expect("one more event").1
    }
}

/// The answer in a response of either kind.
pub(crate) async fn answer(response: Response<Incoming>) -> Value {
    if response.headers().get("content-type").is_some_and(|t| t == "text/event-stream") {
        let mut events = EventReader::of(response);
        loop {
            let message = events.message().await;
            if message.get("method").is_none() {
                return message;
            }
        }
    }
    serde_json::from_str(&text(response).await).unwrap()
}

pub(crate) async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

pub(crate) async fn http(script: MockScript) -> MockHandle {
    serve_http(script, ([127, 0, 0, 1], 0).into()).await.unwrap()
}

pub(crate) fn content(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {answer}"))
}

pub(crate) async fn until(what: &str, mut met: impl FnMut() -> bool) {
    let waiting = async {
        while !met() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

impl RawHttpClient {
    pub(crate) async fn legacy_over_events(url: &str) -> Self {
        let web = Self::legacy(url, "2025-11-25").await;
        let tools = answer(web.post(&request(1, "tools/list", json!({}))).await).await;
        assert!(tools["result"]["tools"].is_array());
        web
    }
}
