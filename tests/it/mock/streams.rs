//! Streams of events: how they are spelled, end and go on.

use moongate_mock::{AnswerMode, MockScript, NewlineStyle};
use moongate_testing::HttpEndpoint;
use serde_json::json;

use crate::mock::fixtures::{answer, call, http, modern, read_events, request, session};

#[tokio::test]
async fn a_subscription_ends_politely_when_the_server_does() {
    let server = http(MockScript::standard()).await;
    let web = HttpEndpoint::new(&server.url);
    let filter = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": false}});
    let mut events = read_events(
        web.post_modern(&modern(9, "subscriptions/listen", filter, json!({})))
            .await,
    );
    let acknowledged = events.message().await.unwrap();
    assert_eq!(
        acknowledged["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    assert_eq!(server.notify_list("prompts"), 0);
    assert_eq!(
        server
            .change_tools_and_notify(&[json!({"name": "new", "inputSchema": {"type": "object"}})]),
        1
    );
    assert_eq!(
        events.message().await.unwrap()["method"],
        "notifications/tools/list_changed"
    );
    server.stop().await;
    assert_eq!(
        events.message().await.unwrap()["method"],
        "notifications/cancelled"
    );
    assert_eq!(events.message().await.unwrap()["id"], 9);
}

#[tokio::test]
async fn events_in_every_encoding() {
    for newline in [NewlineStyle::Lf, NewlineStyle::Cr, NewlineStyle::Crlf] {
        for chunk in [0, 1] {
            let mut script = MockScript::standard();
            script.http.answer = AnswerMode::Sse;
            (script.http.sse.newline, script.http.sse.chunk) = (newline, chunk);
            (script.http.sse.split, script.http.sse.prime) = (true, true);
            let server = http(script).await;
            let web = session(&server.url, "2025-11-25").await;
            let tools = answer(web.post(&request(1, "tools/list", json!({}))).await).await;
            assert!(tools["result"]["tools"].is_array());
            let mut events =
                read_events(web.post(&call(1, "log", json!({"text": "before"}))).await);
            assert_eq!(events.message().await.unwrap()["params"]["data"], "before");
            assert_eq!(events.message().await.unwrap()["id"], 1);
            assert!(events.next_message().await.is_none());
        }
    }
}

#[tokio::test]
async fn a_cut_stream_is_resumed() {
    let mut script = MockScript::standard();
    (script.http.sse.ids, script.http.sse.cut_after) = (true, 2);
    let server = http(script).await;
    let web = session(&server.url, "2025-11-25").await;
    let params = json!({"name": "progress", "arguments": {"steps": 4, "ms": 1},
        "_meta": {"progressToken": 1}});
    let mut events = read_events(web.post(&request(1, "tools/call", params)).await);
    let mut last = None;
    let mut seen = Vec::new();
    while let Some(message) = events.next_message().await {
        seen.push(message.value["params"]["progress"].clone());
        last = message.event_id;
    }
    assert_eq!(seen, [1, 2]);
    let rest = web
        .send("GET", "", &[("last-event-id", &last.unwrap())])
        .await
        .unwrap();
    let mut events = read_events(rest);
    assert_eq!(events.message().await.unwrap()["params"]["progress"], 3);
    assert_eq!(events.message().await.unwrap()["params"]["progress"], 4);
    assert_eq!(events.message().await.unwrap()["id"], 1);
    assert!(events.next_message().await.is_none());
}
