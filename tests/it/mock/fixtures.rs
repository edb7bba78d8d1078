//! Mocks to call, and the messages that these tests send them.

use http::Response;
use hyper::body::Incoming;
use moongate_mock::{MockHandle, MockScript, serve_http};
use moongate_testing::messages::{INITIALIZED, extended};
pub(crate) use moongate_testing::messages::{call_tool as call, request};
pub(crate) use moongate_testing::wait::{LONG, holds as until};
use moongate_testing::{ChildClient, EventStream, HttpEndpoint, HttpReply, messages};
use serde_json::{Value, json};
use tokio::process::Command;

pub(crate) const ODD: &str =
    r#"{"z":1.0, "a":1e5,"big":123456789012345678901234567890,"deep":{"b":[],"a":"\u00e9"}}"#;

pub(crate) fn initialize(date: &str) -> String {
    messages::initialize(
        0,
        date,
        "test",
        &json!({"elicitation": {}, "sampling": {}, "roots": {}}),
    )
}

pub(crate) fn modern(id: u64, method: &str, mut params: Value, extra: Value) -> String {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}, "url": {}},
            "sampling": {}}});
    params["_meta"] = extended(meta, &extra);
    request(id, method, params)
}

/// A mock as a child process.
pub(crate) fn start(script: &MockScript) -> ChildClient {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), serde_json::to_string(script).unwrap()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_moongate"));
    command.arg("mock").arg(file.path());
    ChildClient::spawn(command, file)
}

/// A mock as a child process, after its handshake.
pub(crate) async fn start_legacy(date: &str, script: &MockScript) -> ChildClient {
    let mut pipe = start(script);
    let opened = pipe.ask(&initialize(date)).await;
    assert_eq!(opened["result"]["protocolVersion"], date);
    pipe.send(INITIALIZED).await;
    pipe
}

pub(crate) async fn http(script: MockScript) -> MockHandle {
    serve_http(script, ([127, 0, 0, 1], 0).into())
        .await
        .unwrap()
}

pub(crate) async fn session(url: &str, date: &str) -> HttpEndpoint {
    HttpEndpoint::open_session(url, &initialize(date)).await
}

/// The events of a response. A mock ends its lines as its script says.
pub(crate) fn read_events(response: Response<Incoming>) -> EventStream {
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    EventStream::with_any_line_ends(response)
}

/// The answer in a response of either kind.
pub(crate) async fn answer(response: Response<Incoming>) -> Value {
    EventStream::with_any_line_ends(response).response().await
}

pub(crate) async fn text(response: Response<Incoming>) -> String {
    HttpReply::read(response).await.text_body()
}

pub(crate) fn content(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {answer}"))
}
