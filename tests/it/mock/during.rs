//! What happens while a call runs: progress, log messages, cancellation.

use moongate_mock::MockScript;
use moongate_testing::HttpEndpoint;
use serde_json::{Value, json};

use crate::mock::fixtures::{
    answer, call, content, http, modern, read_events, request, session, start_legacy, until,
};

#[tokio::test]
async fn legacy_input_requests_and_progress_over_http() {
    let server = http(MockScript::standard()).await;
    let web = session(&server.url, "2025-11-25").await;
    let mut events = read_events(web.post(&call(1, "elicit", json!({}))).await);
    let ask = events.message().await.unwrap();
    assert_eq!(ask["params"]["mode"], "form");
    let reply =
        json!({"jsonrpc": "2.0", "id": ask["id"], "result": {"action": "decline"}}).to_string();
    assert_eq!(web.post(&reply).await.status(), 202);
    assert_eq!(
        content(&events.message().await.unwrap()),
        r#"{"action":"decline"}"#
    );
    assert!(events.next_message().await.is_none());
    // The same answer again is an answer to nothing.
    assert_eq!(web.post(&reply).await.status(), 202);
    assert_eq!(server.counters().stray, 1);

    let params = json!({"name": "progress", "arguments": {"steps": 3, "ms": 0},
        "_meta": {"progressToken": "t"}});
    let mut events = read_events(web.post(&request(2, "tools/call", params)).await);
    for step in 1..=3 {
        let message = events.message().await.unwrap();
        assert_eq!(message["params"]["progressToken"], "t");
        assert_eq!(message["params"]["progress"], step);
    }
    assert_eq!(content(&events.message().await.unwrap()), "3 steps");
}

#[tokio::test]
async fn cancellation_in_both_eras() {
    let server = http(MockScript::standard()).await;
    let old = session(&server.url, "2025-11-25").await;
    let cancel =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"h"}}"#;
    let hang = r#"{"jsonrpc":"2.0","id":"h","method":"tools/call","params":{"name":"hang"}}"#;
    let (response, ()) = tokio::join!(old.post(hang), async {
        until("the call arrives", || {
            server.counters().of("tools/call") == 1
        })
        .await;
        assert_eq!(old.post(cancel).await.status(), 202);
    });
    assert!(read_events(response).next_message().await.is_none());
    assert_eq!(server.counters().cancelled, ["\"h\""]);

    // Modern: closing the response is what cancels, whether it has begun or not.
    let new = HttpEndpoint::new(&server.url);
    let body = modern(
        5,
        "tools/call",
        json!({"name": "hang", "arguments": {}}),
        json!({}),
    );
    tokio::select! {
        _ = new.post_modern(&body) => panic!("it hangs"),
        () = until("the call arrives", || server.counters().of("tools/call") == 2) => {}
    }
    until("the disconnect is seen", || {
        server.counters().cancelled.len() == 2
    })
    .await;
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut events = read_events(
        new.post_modern(&modern(6, "subscriptions/listen", filter, json!({})))
            .await,
    );
    assert_eq!(
        events.message().await.unwrap()["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(server.listeners(), 1);
    drop(events);
    until("the listener goes", || server.listeners() == 0).await;
    assert_eq!(server.counters().cancelled.back().unwrap(), "6");

    let mut pipe = start_legacy("2024-11-05", &MockScript::standard()).await;
    pipe.send(hang).await;
    pipe.send(cancel).await;
    pipe.send(&call(2, "mock_counters", json!({}))).await;
    let seen: Value = serde_json::from_str(content(&pipe.receive().await)).unwrap();
    assert_eq!(seen["cancelled"], json!(["\"h\""]));
}

#[tokio::test]
async fn logs_follow_the_level() {
    let server = http(MockScript::standard()).await;
    let new = HttpEndpoint::new(&server.url);
    let params = json!({"name": "log", "arguments": {"level": "warning", "text": "careful"}});
    let quiet = new
        .post_modern(&modern(1, "tools/call", params.clone(), json!({})))
        .await;
    assert_eq!(quiet.headers()["content-type"], "application/json");
    let level = json!({"io.modelcontextprotocol/logLevel": "info"});
    let mut events = read_events(
        new.post_modern(&modern(2, "tools/call", params.clone(), level))
            .await,
    );
    assert_eq!(events.message().await.unwrap()["params"]["data"], "careful");
    let old = session(&server.url, "2025-03-26").await;
    answer(
        old.post(&request(1, "logging/setLevel", json!({"level": "error"})))
            .await,
    )
    .await;
    assert_eq!(
        old.post(&request(2, "tools/call", params)).await.headers()["content-type"],
        "application/json"
    );
}
