//! What happens while a call runs: progress, log messages, cancellation.

use std::sync::Arc;

use moongate_testing::McpClient;
use moongate_testing::wait::holds;
use serde_json::{Value, json};

use crate::pairs::cell::MatrixCell;
use crate::pairs::rig::MockBehind;

pub(crate) async fn progress(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    let members = r#""name":"main__progress","arguments":{"steps":3}"#;
    for token in [r#""tok\u00e9n""#, "7", "12345678901234567890", r#""""#] {
        let meta = format!(r#""progressToken":{token}"#);
        let answer = client
            .prepare("tools/call")
            .members(members)
            .meta(&meta)
            .send()
            .await;
        assert_eq!(answer.text(), "3 steps");
        let told = answer.of("notifications/progress");
        assert_eq!(told.len(), 3, "{answer:?}");
        for (n, message) in told.iter().enumerate() {
            assert!(
                message.raw.contains(&format!(r#""progressToken":{token}"#)),
                "{token}: {}",
                message.raw
            );
            assert_eq!(message.value["params"]["progress"], n + 1);
            assert_eq!(message.value["params"]["total"], 3);
            let worded = message.value["params"]["message"].is_string();
            assert_eq!(worded, cell.server_since("2025-03-26"), "{}", message.raw);
        }
    }
    let answer = client.prepare("tools/call").members(members).send().await;
    assert_eq!(answer.text(), "3 steps");
    assert_eq!(
        answer.messages.len(),
        1,
        "nobody asked for progress: {answer:?}"
    );
    let received = cell.rig.main.calls("progress").pop().unwrap();
    assert!(!received.contains("progressToken"), "{received}");
}

pub(crate) async fn logging(cell: Arc<MatrixCell>) {
    if cell.modern_client() {
        modern_logging(&cell).await
    } else {
        legacy_logging(&cell).await
    }
}

async fn legacy_logging(cell: &MatrixCell) {
    let quiet = cell.client().await;
    let chatty = cell.client().await;
    assert_eq!(
        quiet
            .exchange("logging/setLevel", json!({"level": "loud"}))
            .await
            .code(),
        -32602
    );
    for (client, level) in [(&quiet, "warning"), (&chatty, "debug")] {
        assert_eq!(
            client
                .exchange("logging/setLevel", json!({"level": level}))
                .await
                .result(),
            &json!({})
        );
    }
    for (client, level, heard) in [
        (&quiet, "error", 1),
        (&quiet, "info", 0),
        (&chatty, "info", 1),
        (&quiet, "info", 0),
    ] {
        let answer = client
            .exchange_tool("main__log", json!({"level": level, "text": "wörds"}))
            .await;
        assert_eq!(answer.text(), "logged");
        let told = answer.of("notifications/message");
        assert_eq!(told.len(), heard, "{level}: {answer:?}");
        if let Some(message) = told.first() {
            assert_eq!(
                message.value["params"],
                json!({"level": level, "logger": "mock", "data": "wörds"})
            );
        }
    }
    // Who set no level hears what the mock sends by default, which is everything.
    let answer = cell
        .client()
        .await
        .exchange_tool("main__log", json!({"level": "debug", "text": "wörds"}))
        .await;
    assert_eq!(answer.of("notifications/message").len(), 1, "{answer:?}");
}

async fn modern_logging(cell: &MatrixCell) {
    let client = Arc::new(cell.client().await);
    // Another call is open all the while, and wants no log messages: a modern server sends none for
    // it. An older one may log for any call, so that over a pipe its messages could be about
    // either.
    let open = cell.modern_server().then(|| {
        let client = client.clone();
        tokio::spawn(async move {
            client
                .exchange_tool("main__sleep", json!({"ms": 600_000}))
                .await
        })
    });
    if open.is_some() {
        holds("the server has the other call", || {
            !cell.rig.main.calls("sleep").is_empty()
        })
        .await;
    }
    let meta = |level: &str| format!(r#""io.modelcontextprotocol/logLevel":"{level}""#);
    let cases = [
        ("error", String::new(), 0),
        ("error", meta("warning"), 1),
        ("info", meta("warning"), 0),
    ];
    for (level, meta, heard) in cases
        .into_iter()
        .chain([("info", meta("debug"), 1), ("error", String::new(), 0)])
    {
        let params = json!({"name": "main__log", "arguments": {"level": level, "text": "wörds"}});
        let answer = client
            .prepare("tools/call")
            .params(&params)
            .meta(&meta)
            .send()
            .await;
        assert_eq!(answer.text(), "logged");
        let told = answer.of("notifications/message");
        assert_eq!(told.len(), heard, "{level} {meta}: {answer:?}");
        if let Some(message) = told.first() {
            assert_eq!(
                message.value["params"],
                json!({"level": level, "logger": "mock", "data": "wörds"})
            );
        }
    }
    if let Some(open) = open {
        open.abort();
    }
    let answer = client
        .prepare("tools/list")
        .meta(&meta("loud"))
        .send()
        .await;
    assert_eq!(answer.code(), -32602);
    assert_eq!(answer.status, 400);
    assert_eq!(
        client
            .exchange("logging/setLevel", json!({"level": "info"}))
            .await
            .code(),
        -32601
    );
}

async fn assert_adds(client: &McpClient) {
    assert_eq!(
        client
            .exchange_tool("main__add", json!({"a": 1, "b": 1}))
            .await
            .text(),
        "2"
    );
}

/// Waits until a server over HTTP has seen the stream of a call close.
async fn until_stream_closed(server: &MockBehind, id: &Value) {
    let handle = server.handle.as_ref().unwrap();
    let id = id.to_string();
    holds("the stream is closed", || {
        handle
            .counters()
            .cancelled
            .iter()
            .filter(|c| **c == id)
            .count()
            == 1
    })
    .await;
}

pub(crate) async fn cancellation(cell: Arc<MatrixCell>) {
    let main = &cell.rig.main;
    let aside = &cell.rig.aside;
    let client = Arc::new(cell.client().await);
    let heard = aside.received().len();
    let calling = tokio::spawn({
        let client = client.clone();
        async move {
            client
                .prepare("tools/call")
                .id(r#""the-call""#)
                .members(r#""name":"main__hang""#)
                .send()
                .await
        }
    });
    holds("the server has the call", || main.calls("hang").len() == 1).await;
    let call: Value = serde_json::from_str(&main.calls("hang")[0]).unwrap();
    let cancelled = || {
        let told = main.of("notifications/cancelled").into_iter();
        told.filter(|message| message["params"]["requestId"] == call["id"])
            .count()
    };
    // An id means something to its own client only.
    let other = cell.client().await;
    assert_eq!(
        other
            .notify("notifications/cancelled", json!({"requestId": "the-call"}))
            .await,
        202
    );
    assert_adds(&other).await;
    assert!(
        !calling.is_finished() && cancelled() == 0,
        "somebody else cancelled it"
    );
    if cell.modern_client() {
        calling.abort();
    } else {
        let params = json!({"requestId": "the-call", "reason": "enough"});
        assert_eq!(client.notify("notifications/cancelled", params).await, 202);
        let answer = calling.await.unwrap();
        assert!(
            answer.messages.is_empty(),
            "a cancelled request has no response: {answer:?}"
        );
    }
    let by_closing = cell.modern_server() && cell.transport.is_http();
    if by_closing {
        until_stream_closed(main, &call["id"]).await;
    } else {
        holds("the server hears of it", || cancelled() == 1).await;
    }
    // A cancelled call does not take the next one with it, and is not cancelled again.
    assert_adds(&client).await;
    assert_eq!(cancelled(), usize::from(!by_closing));
    assert_eq!(
        aside.received().len(),
        heard,
        "the other server heard of it"
    );
}

pub(crate) async fn calls_side_by_side(cell: Arc<MatrixCell>) {
    // Two clients with several calls each, all of the same id and token: each hears of its own
    // steps alone.
    let mut calls = Vec::new();
    for _ in 0..2 {
        let client = Arc::new(cell.client().await);
        for steps in 1..=4 {
            let client = client.clone();
            calls.push(tokio::spawn(async move {
                let params =
                    json!({"name": "main__progress", "arguments": {"steps": steps, "ms": 5}});
                let ask = client
                    .prepare("tools/call")
                    .id("1")
                    .params(&params)
                    .meta(r#""progressToken":1"#);
                (steps, ask.send().await)
            }));
        }
    }
    for call in calls {
        let (steps, answer) = call.await.unwrap();
        assert_eq!(answer.text(), format!("{steps} steps"));
        let told = answer.of("notifications/progress");
        let told: Vec<&Value> = told
            .iter()
            .map(|message| &message.value["params"]["progress"])
            .collect();
        assert_eq!(
            told,
            (1..=steps)
                .map(Value::from)
                .collect::<Vec<_>>()
                .iter()
                .collect::<Vec<_>>()
        );
    }
}
