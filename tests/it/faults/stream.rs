//! Event streams of servers: every spelling that the standard allows, and streams that break.

use moongate_mock::{
    AnswerMode, FaultAction, FaultRule, HttpRules, MockScript, NewlineStyle, Revision, SseRules,
};
use serde_json::json;

use super::raw;
use crate::harness::{ERAS, Era, Setup, legacy, modern, serve, tool};

fn spellings() -> Vec<SseRules> {
    let mut all = Vec::new();
    for newline in [NewlineStyle::Lf, NewlineStyle::Cr, NewlineStyle::Crlf] {
        for chunk in [0, 1, 7] {
            for split in [false, true] {
                all.push(SseRules {
                    newline,
                    chunk,
                    split,
                    ids: split,
                    prime: split,
                    ..SseRules::default()
                });
            }
        }
    }
    all
}

#[tokio::test]
async fn every_encoding_of_sse_events_is_understood() {
    for script in [legacy(), modern()] {
        for sse in spellings() {
            let shown = format!("{sse:?}");
            let http = HttpRules {
                answer: AnswerMode::Sse,
                sse,
                ..HttpRules::default()
            };
            let mock = serve(MockScript {
                http,
                ..script.clone()
            })
            .await;
            let gateway = Setup::new().http("a", &mock.url).start().await;
            gateway.ready(&["a"]).await;
            let client = gateway.client(Era::Legacy).await;
            let text = "line\nbreak \u{2028} ünï";
            let echoed = client.call("a__echo", json!({"t": text})).await;
            assert_eq!(echoed.text(), json!({"t": text}).to_string(), "{shown}");
            let progress =
                json!({"name": "a__progress", "arguments": {}, "_meta": {"progressToken": 1}});
            assert_eq!(
                client
                    .request_as(1, "tools/call", progress)
                    .await
                    .messages()
                    .len(),
                4,
                "{shown}"
            );
        }
    }
}

#[tokio::test]
async fn a_stream_that_ends_or_breaks_without_an_answer_fails_its_call_only() {
    for script in [legacy(), modern()] {
        let http = HttpRules {
            answer: AnswerMode::Sse,
            ..HttpRules::default()
        };
        let mock = serve(MockScript { http, ..script }).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            for (act, word) in [
                (FaultAction::Cut, "without an answer"),
                (FaultAction::Close, "Server \"a\""),
                (FaultAction::Reset, "Server \"a\""),
                (FaultAction::WrongId, "without an answer"),
            ] {
                // A tool that says nothing of being repeatable.
                mock.set_fault(FaultRule::on("tools/call:sleep", act.clone()).times(1));
                let failure = client.call("a__sleep", json!({})).await.failure();
                assert!(failure.contains(word), "{era:?}, {act:?}: {failure}");
                mock.clear_faults();
                assert_eq!(
                    client.call("a__add", json!({"a": 1, "b": 1})).await.text(),
                    "2",
                    "{era:?}, {act:?}"
                );
            }
            mock.set_fault(FaultRule::on("tools/call:add", FaultAction::Duplicate));
            for n in 0..5 {
                assert_eq!(
                    client.call("a__add", json!({"a": n, "b": 1})).await.text(),
                    (n + 1).to_string()
                );
            }
            mock.clear_faults();
        }
    }
}

/// 2025-03-26/basic/transports.mdx, Sending Messages to the Server: "These responses MAY be
/// batched".
#[tokio::test]
async fn a_batch_on_a_stream_is_understood() {
    let script = MockScript::standard().speaking(&[Revision::V2025_03_26]);
    let mock = serve(MockScript {
        tools: vec![tool("odd")],
        ..script
    })
    .await;
    let said = json!({"jsonrpc": "2.0", "method": "notifications/message",
        "params": {"level": "info", "data": "x"}});
    let events = format!(
        "data: [{said},{{\"no\":1}},{{\"jsonrpc\":\"2.0\",\"id\":{{id}},\"result\":{{\"content\":[]}}}}]\n\n"
    );
    let url = raw::serve(
        mock.addr.unwrap(),
        raw::answer("content-type: text/event-stream\r\n", &events),
    )
    .await;
    let gateway = Setup::new().http("a", &url).start().await;
    gateway.ready(&["a"]).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        let reply = client.call("a__odd", json!({})).await;
        assert_eq!(reply.result()["content"], json!([]), "{reply:?}");
    }
    assert!(
        gateway.app.metrics.servers.garbage.get("a") >= 2,
        "what is no message is counted"
    );
}

/// A stateless client is asked with the answer to its call, for which the gateway waits a moment:
/// what comes in that moment is still the call's.
#[tokio::test]
async fn progress_between_an_input_request_and_its_result_is_forwarded() {
    let script = MockScript::standard().speaking(&[Revision::V2025_11_25]);
    let mock = serve(MockScript {
        tools: vec![tool("odd")],
        ..script
    })
    .await;
    let progress = |n: u32| {
        let params = format!("{{\"progressToken\":{{id}},\"progress\":{n}}}");
        format!(
            "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{params}}}\n\n"
        )
    };
    let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
    let asked =
        json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form});
    let end = "data: {\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{\"content\":[]}}\n\n";
    // Whether the answer has become a stream before the question, or not.
    for (first, steps) in [(String::new(), vec![2, 3]), (progress(1), vec![1, 2, 3])] {
        let events = format!(
            "{first}data: {asked}\n\n{}{}{end}",
            progress(2),
            progress(3)
        );
        let url = raw::serve(
            mock.addr.unwrap(),
            raw::answer("content-type: text/event-stream\r\n", &events),
        )
        .await;
        let gateway = Setup::new().http("a", &url).start().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(Era::Modern).await;
        let mut meta = crate::harness::modern_meta();
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
        meta["progressToken"] = json!("mine");
        let messages = client
            .request("tools/call", json!({"name": "a__odd", "_meta": meta}))
            .await
            .messages();
        let (answer, told) = messages.split_last().unwrap();
        assert_eq!(answer["result"]["content"], json!([]), "{messages:?}");
        let told: Vec<_> = told
            .iter()
            .map(|message| message["params"]["progress"].as_u64().unwrap())
            .collect();
        assert_eq!(told, steps, "{messages:?}");
    }
}

#[tokio::test]
async fn an_over_long_event_fails_its_call_only() {
    let http = HttpRules {
        answer: AnswerMode::Sse,
        ..HttpRules::default()
    };
    let mock = serve(MockScript { http, ..legacy() }).await;
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("servers.a", "max_message = \"1MiB\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        let failure = client
            .call("a__big", json!({"bytes": 3 << 20}))
            .await
            .failure();
        assert!(failure.contains("servers.a.max_message"), "{failure}");
        assert_eq!(
            client
                .call("a__big", json!({"bytes": 1000}))
                .await
                .text()
                .len(),
            1000
        );
    }
}

#[tokio::test]
async fn a_hanging_call_over_http_times_out_and_is_cancelled() {
    for script in [legacy(), modern()] {
        let mock = serve(script).await;
        let gateway = Setup::new()
            .http("a", &mock.url)
            .with("servers.a", "timeout = \"300ms\"")
            .start()
            .await;
        gateway.ready(&["a"]).await;
        for era in ERAS {
            mock.reset_record();
            let client = gateway.client(era).await;
            let failure = client.call("a__hang", json!({})).await.failure();
            assert!(failure.contains("servers.a.timeout"), "{failure}");
            crate::harness::holds("the server is told", || {
                mock.counters().cancelled.len() == 1
            })
            .await;
        }
    }
}
