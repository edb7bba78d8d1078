//! Servers that end the stream of an answer before the answer, to be asked for the rest: each
//! answer once, nothing twice.

use std::time::Duration;

use moongate_mock::{
    AnswerMode, FaultAction, FaultRule, HttpRules, MockHandle, MockScript, SseRules,
};
use serde_json::json;

use crate::harness::{ERAS, Era, Gateway, Setup, holds, legacy, serve};

async fn rig(sse: SseRules) -> (MockHandle, Gateway) {
    let http = HttpRules {
        answer: AnswerMode::Sse,
        sse,
        ..HttpRules::default()
    };
    let mock = serve(MockScript { http, ..legacy() }).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    (mock, gateway)
}

/// The ids that were sent back by GETs.
fn resumed(mock: &MockHandle) -> Vec<String> {
    let last = |headers: &[(String, String)]| {
        headers
            .iter()
            .find(|(n, _)| n == "last-event-id")
            .map(|(_, v)| v.clone())
    };
    mock.recorded_requests()
        .iter()
        .filter(|seen| seen.http_method == "GET")
        .filter_map(|seen| last(&seen.headers))
        .collect()
}

#[tokio::test]
async fn a_stream_that_its_server_closes_is_polled_for_the_response() {
    let sse = SseRules {
        ids: true,
        prime: true,
        poll: true,
        retry_ms: 20,
        ..SseRules::default()
    };
    let (mock, gateway) = rig(sse).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        mock.reset_record();
        assert_eq!(
            client.call("a__add", json!({"a": 1, "b": 2})).await.text(),
            "3",
            "{era:?}"
        );
        let ids = resumed(&mock);
        assert_eq!(ids.len(), 1, "{era:?}: {ids:?}");
        assert_eq!(
            mock.counters().of("tools/call"),
            1,
            "{era:?}: asked for the rest, not for the call again"
        );
    }
    assert!(
        gateway
            .metric("moongate_server_resumed_total{mcp_server=\"a\"}")
            .await
            .unwrap()
            >= 2.0
    );
}

#[tokio::test]
async fn a_resumed_stream_delivers_each_event_once() {
    for cut_after in 1..=3 {
        let (mock, gateway) = rig(SseRules {
            ids: true,
            cut_after,
            ..SseRules::default()
        })
        .await;
        let client = gateway.client(Era::Legacy).await;
        mock.reset_record();
        let progress = json!({"name": "a__progress", "arguments": {"steps": 3},
            "_meta": {"progressToken": "t"}});
        let messages = client
            .request_as(1, "tools/call", progress)
            .await
            .messages();
        let steps: Vec<i64> = messages
            .iter()
            .filter_map(|m| m["params"]["progress"].as_i64())
            .collect();
        assert_eq!(steps, [1, 2, 3], "cut after {cut_after}: {messages:?}");
        assert_eq!(
            messages.len(),
            4,
            "cut after {cut_after}: one answer: {messages:?}"
        );
        assert_eq!(messages[3]["result"]["content"][0]["text"], "3 steps");
        let ids = resumed(&mock);
        assert!(
            ids.len() == 1 && ids[0].ends_with(&format!("-{cut_after}")),
            "{ids:?}"
        );
    }
}

#[tokio::test]
async fn resumption_waits_for_the_servers_retry_interval() {
    // What it says, and a second where it says nothing.
    for (retry_ms, least) in [(300, 300), (0, 1000)] {
        let (mock, gateway) = rig(SseRules {
            ids: true,
            prime: true,
            poll: true,
            retry_ms,
            ..SseRules::default()
        })
        .await;
        let client = gateway.client(Era::Modern).await;
        mock.reset_record();
        let before = tokio::time::Instant::now();
        assert_eq!(
            client.call("a__add", json!({"a": 1, "b": 2})).await.text(),
            "3"
        );
        assert!(
            before.elapsed() >= Duration::from_millis(least),
            "{retry_ms}: after {:?}",
            before.elapsed()
        );
        assert_eq!(resumed(&mock).len(), 1);
    }
}

#[tokio::test]
async fn a_stream_that_cannot_be_resumed_fails_its_call() {
    // No ids: nothing can be asked for.
    let (mock, gateway) = rig(SseRules::default()).await;
    mock.set_fault(FaultRule::on("tools/call:add", FaultAction::Cut));
    let client = gateway.client(Era::Legacy).await;
    let failure = client
        .call("a__add", json!({"a": 1, "b": 2}))
        .await
        .failure();
    assert!(failure.contains("without an answer"), "{failure}");
    assert!(resumed(&mock).is_empty());
    // Ids, and a server that then refuses the GET.
    let sse = SseRules {
        ids: true,
        cut_after: 1,
        retry_ms: 20,
        prime: true,
        ..SseRules::default()
    };
    for (status, attempts) in [(405, 1), (404, 1), (503, 3)] {
        let (mock, gateway) = rig(sse.clone()).await;
        holds("the gateway listens", || mock.listeners() > 0).await;
        mock.set_fault(FaultRule::on(
            "GET",
            FaultAction::Status {
                status,
                headers: Default::default(),
                body: String::new(),
                content_type: None,
            },
        ));
        mock.reset_record();
        let client = gateway.client(Era::Legacy).await;
        let progress = json!({"name": "a__progress", "arguments": {"steps": 3},
            "_meta": {"progressToken": "t"}});
        let answer = client.request_as(1, "tools/call", progress).await;
        assert!(
            answer.failure().contains("without an answer"),
            "{status}: {answer:?}"
        );
        assert_eq!(resumed(&mock).len(), attempts, "{status}");
        mock.clear_faults();
        assert_eq!(
            client.call("a__add", json!({"a": 1, "b": 2})).await.text(),
            "3",
            "{status}: only that call failed"
        );
    }
}
