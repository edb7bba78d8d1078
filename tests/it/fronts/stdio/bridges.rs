//! Bridges of `moongate stdio` to a running gateway: its key, its restarts and its endpoints.

use moongate_mock::MockScript;
use moongate_telemetry::AuthOutcome;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::bridge;
use crate::fronts::pipe::StdioProcess;
use crate::harness::{Setup, holds, legacy, modern, only, serve, until};

#[tokio::test]
async fn a_bridge_sends_the_key_and_never_logs_it() {
    let key = "a-key-of-the-bridge-0123456789";
    let keys = format!("name = \"me\"\nkey = {key:?}");
    let gateway = Setup::new()
        .stdio("s", &legacy())
        .with("auth.keys", &keys)
        .start()
        .await;
    gateway.ready(&["s"]).await;
    let url = gateway.url("/mcp");
    let mut pipe = StdioProcess::launch(
        &["--url", &url],
        &[("MOONGATE_KEY", key), ("MOONGATE_TELEMETRY__LOG", "trace")],
    );
    pipe.initialize("2025-11-25", json!({})).await;
    pipe.ask(1, "tools/call", json!({"name": "s__echo", "arguments": {}}))
        .await;
    assert_eq!(pipe.result(1).await["content"][0]["text"], "{}");
    pipe.close();
    assert!(pipe.ended().await.0.success());
    assert!(
        !pipe.log().is_empty() && !pipe.log().contains(key),
        "{}",
        pipe.log()
    );
    // A wrong one: said where people look, and the client hears that the server is not there.
    let flags = ["--url", &url, "--key", "wrong"];
    let mut pipe = StdioProcess::launch(&flags, &[]);
    pipe.initialize("2025-11-25", json!({})).await;
    pipe.ask(1, "tools/call", json!({"name": "s__echo", "arguments": {}}))
        .await;
    assert!(pipe.answer(1).await["error"].is_object());
    holds("it says why", || pipe.log().contains("401")).await;
    assert!(gateway.app.metrics.access.auth.get(AuthOutcome::Wrong) > 0);
}

#[tokio::test]
async fn a_bridge_outlives_the_gateway_that_it_leads_to() {
    let mock = serve(modern()).await;
    let gateway = Setup::new().http("s", &mock.url).spawn().await;
    let port = gateway.base.rsplit_once(':').unwrap().1.to_owned();
    let mut pipe = StdioProcess::launch(&["--url", &gateway.mcp()], &[]);
    let ready = || gateway.log().contains("listening");
    holds("it is there", ready).await;
    pipe.initialize("2025-11-25", json!({})).await;
    let mut gateway = gateway;
    gateway.signal(Signal::TERM);
    gateway.ended().await;
    let again = Setup::new()
        .http("s", &mock.url)
        .with("gateway", &format!("listen = \"127.0.0.1:{port}\""))
        .spawn()
        .await;
    let mut id = 1;
    loop {
        id += 1;
        pipe.ask(
            id,
            "tools/call",
            json!({"name": "s__echo", "arguments": {}}),
        )
        .await;
        if pipe.answer(id).await["result"]["content"][0]["text"] == "{}" {
            break;
        }
        assert!(id < 200, "{}", again.log());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_bridge_to_an_endpoint_without_sessions_serves_a_legacy_client() {
    let mock = serve(modern()).await;
    let mut pipe = StdioProcess::launch(&["--url", &mock.url], &[]);
    pipe.initialize("2025-11-25", json!({})).await;
    pipe.ask(
        1,
        "tools/call",
        json!({"name": "echo", "arguments": {"n": 1}}),
    )
    .await;
    assert_eq!(pipe.result(1).await["content"][0]["text"], r#"{"n":1}"#);
}

#[tokio::test]
async fn a_bridge_calls_what_its_gateway_does_not_list_yet() {
    // It announces nothing, so that nobody hears of the new tool.
    let script = MockScript {
        capabilities: Some(json!({"tools": {}})),
        ..only(legacy(), &["echo"])
    };
    let mock = serve(script).await;
    let gateway = Setup::new().http("s", &mock.url).start().await;
    gateway.ready(&["s"]).await;
    let mut pipe = bridge(&gateway);
    pipe.initialize("2025-11-25", json!({})).await;
    pipe.ask(1, "tools/list", json!({})).await;
    assert!(!pipe.result(1).await["tools"].to_string().contains("s__add"));
    pipe.ask(4, "tools/call", json!({"name": "s__echo", "arguments": {}}))
        .await;
    pipe.result(4).await;
    mock.set_tools(&only(legacy(), &["add"]).tools);
    pipe.ask(
        2,
        "tools/call",
        json!({"name": "s__add", "arguments": {"a": 1, "b": 2}}),
    )
    .await;
    assert_eq!(pipe.result(2).await["content"][0]["text"], "3");
    pipe.ask(
        3,
        "tools/call",
        json!({"name": "s__nothing", "arguments": {}}),
    )
    .await;
    let unknown = pipe.answer(3).await["error"].clone();
    assert!(
        unknown["message"]
            .as_str()
            .unwrap()
            .contains("Unknown tool"),
        "{unknown}"
    );
}

#[tokio::test]
async fn a_bridge_passes_a_log_message_on_once() {
    let mock = serve(only(legacy(), &["echo"])).await;
    let gateway = Setup::new().http("s", &mock.url).start().await;
    gateway.ready(&["s"]).await;
    let mut pipe = bridge(&gateway);
    pipe.initialize("2025-11-25", json!({"roots": {"listChanged": true}}))
        .await;
    pipe.ask(1, "tools/call", json!({"name": "s__echo", "arguments": {}}))
        .await;
    pipe.result(1).await;
    let log = |n: usize| {
        json!({"jsonrpc": "2.0", "method": "notifications/message",
        "params": {"level": "error", "data": n}})
    };
    until("the server's stream is open", || async {
        (mock.send_to_sessions(&log(0).to_string()) > 0).then_some(())
    })
    .await;
    assert!((1..=3).all(|n| mock.send_to_sessions(&log(n).to_string()) > 0));
    // In order with the messages: all that came before the answer are here by then.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    pipe.ask(2, "ping", json!({})).await;
    pipe.result(2).await;
    let logged = pipe.kept();
    let numbers = logged
        .iter()
        .filter(|message| message["method"] == "notifications/message");
    let numbers: Vec<&Value> = numbers
        .map(|message| &message["params"]["data"])
        .filter(|n| **n != json!(0))
        .collect();
    assert_eq!(numbers, [&json!(1), &json!(2), &json!(3)]);
}
