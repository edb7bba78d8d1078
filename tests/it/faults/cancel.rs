//! Calls that nobody waits for any more, and readers that are slow.

use moongate_mock::{MockHandle, MockScript};
use serde_json::{Value, json};

use crate::harness::{
    ERAS, Era, EventStream, Gateway, HttpClient, HttpReply, McpClient, Setup, holds, legacy,
    modern, serve,
};

/// A server behind HTTP and the same as a child; `patience` is the gateway's `keep_alive`.
async fn both(script: MockScript, patience: &str) -> (MockHandle, Gateway) {
    let mock = serve(script.clone()).await;
    let setup = Setup::new().with("gateway", &format!("keep_alive = {patience:?}"));
    let gateway = setup
        .http("web", &mock.url)
        .stdio("child", &script)
        .start()
        .await;
    gateway.ready(&["web", "child"]).await;
    (mock, gateway)
}

/// Starts a call that never ends, and waits until its server has it.
async fn hanging(
    client: &McpClient,
    server: &str,
    mock: &MockHandle,
    gateway: &Gateway,
) -> tokio::task::JoinHandle<HttpReply> {
    let has = || match server {
        "web" => mock.counters().of("tools/call"),
        _ => gateway.record("child").matches("\"tools/call\"").count() as u64,
    };
    let before = has();
    // A connection of its own, which closes when the call is dropped.
    let client = McpClient {
        http: HttpClient::new(),
        ..client.clone()
    };
    let params = json!({"name": format!("{server}__hang"), "arguments": {}});
    let call = tokio::spawn(async move { client.request_as("mine", "tools/call", params).await });
    holds("the server has the call", || has() > before).await;
    call
}

fn cancelled(server: &str, mock: &MockHandle, gateway: &Gateway) -> usize {
    match server {
        "web" => mock.counters().cancelled.len(),
        _ => gateway
            .record("child")
            .matches("\"notifications/cancelled\"")
            .count(),
    }
}

#[tokio::test]
async fn a_modern_disconnect_cancels_the_call() {
    for script in [legacy(), modern()] {
        // Before its stream began, and after.
        for patience in ["10s", "20ms"] {
            let (mock, gateway) = both(script.clone(), patience).await;
            let client = gateway.client(Era::Modern).await;
            for server in ["web", "child"] {
                let call = hanging(&client, server, &mock, &gateway).await;
                if patience == "20ms" {
                    holds("the stream began", || {
                        gateway.app.metrics.clients.streams.get() > 0
                    })
                    .await;
                }
                call.abort();
                holds("the server is told", || {
                    cancelled(server, &mock, &gateway) == 1
                })
                .await;
                holds("nothing is left of it", || {
                    gateway.app.metrics.calls.inflight.get() == 0
                })
                .await;
                assert_eq!(
                    client
                        .call(&format!("{server}__echo"), json!({}))
                        .await
                        .text(),
                    "{}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_legacy_disconnect_does_not_cancel_the_call() {
    for script in [legacy(), modern()] {
        for patience in ["10s", "20ms"] {
            let (mock, gateway) = both(script.clone(), patience).await;
            let client = gateway.client(Era::Legacy).await;
            for server in ["web", "child"] {
                let call = hanging(&client, server, &mock, &gateway).await;
                if patience == "20ms" {
                    holds("the stream began", || {
                        gateway.app.metrics.clients.streams.get() > 0
                    })
                    .await;
                }
                call.abort();
                holds("the connection is closed", || {
                    gateway.app.metrics.clients.streams.get() == 0
                })
                .await;
                // A call on the same server is served meanwhile; the other one is still there.
                assert_eq!(
                    client
                        .call(&format!("{server}__echo"), json!({}))
                        .await
                        .text(),
                    "{}"
                );
                assert_eq!(
                    cancelled(server, &mock, &gateway),
                    0,
                    "{server}: going is not cancelling"
                );
                assert_eq!(gateway.app.metrics.calls.inflight.get(), 1);
                cancel(&client, json!("mine")).await;
                holds("the server is told", || {
                    cancelled(server, &mock, &gateway) == 1
                })
                .await;
                holds("nothing is left of it", || {
                    gateway.app.metrics.calls.inflight.get() == 0
                })
                .await;
            }
        }
    }
}

async fn cancel(client: &McpClient, id: Value) {
    let params = json!({"requestId": id, "reason": "enough"});
    let body = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    assert_eq!(client.post(body.to_string()).await.status, 202);
}

#[tokio::test]
async fn a_legacy_client_cancels_with_a_notification() {
    for script in [legacy(), modern()] {
        let (mock, gateway) = both(script, "10s").await;
        let (client, other) = (
            gateway.client(Era::Legacy).await,
            gateway.client(Era::Legacy).await,
        );
        for server in ["web", "child"] {
            let mine = hanging(&client, server, &mock, &gateway).await;
            let theirs = hanging(&other, server, &mock, &gateway).await;
            cancel(&client, json!("another")).await;
            cancel(&client, json!("mine")).await;
            let reply = crate::harness::within("the call ends", mine).await.unwrap();
            assert!(
                reply.body.is_empty(),
                "a cancelled call has no answer: {reply:?}"
            );
            holds("the server is told", || {
                cancelled(server, &mock, &gateway) == 1
            })
            .await;
            assert!(
                !theirs.is_finished(),
                "the call of the same id on another session goes on"
            );
            cancel(&other, json!("mine")).await;
            crate::harness::within("the call ends", theirs)
                .await
                .unwrap();
            holds("the server is told", || {
                cancelled(server, &mock, &gateway) == 2
            })
            .await;
            mock.reset_record();
        }
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_delays_no_other_client() {
    for script in [legacy(), modern()] {
        let (_mock, gateway) = both(script, "10s").await;
        for era in ERAS {
            for server in ["web", "child"] {
                let client = gateway.client(era).await;
                let mut unread = Vec::new();
                for id in 0..2 {
                    let big =
                        json!({"name": format!("{server}__big"), "arguments": {"bytes": 8 << 20}});
                    let client = McpClient {
                        http: HttpClient::new(),
                        ..client.clone()
                    };
                    unread.push(client.start(id, "tools/call", big).await);
                }
                for n in 0..10 {
                    let text = client
                        .call(&format!("{server}__echo"), json!({"n": n}))
                        .await
                        .text();
                    assert_eq!(text, format!("{{\"n\":{n}}}"), "{era:?}, {server}");
                }
                // What was not read is still whole.
                use http_body_util::BodyExt as _;
                let body =
                    crate::harness::within("it is read", unread.remove(0).into_body().collect())
                        .await
                        .unwrap();
                assert!(body.to_bytes().len() > 8 << 20);
            }
        }
    }
}

#[tokio::test]
async fn a_flood_of_progress_that_nobody_reads_ends_in_the_answer() {
    for script in [legacy(), modern()] {
        let (_mock, gateway) = both(script, "10s").await;
        for server in ["web", "child"] {
            let client = gateway.client(Era::Legacy).await;
            let call = json!({"name": format!("{server}__progress"),
                "arguments": {"steps": 1500, "ms": 0}, "_meta": {"progressToken": 1}});
            let mut stream = EventStream::new(client.start(7, "tools/call", call).await);
            for _ in 0..20 {
                client
                    .call(&format!("{server}__echo"), json!({}))
                    .await
                    .text();
            }
            let mut last = Value::Null;
            while let Some(message) = stream.message().await {
                last = message;
            }
            assert_eq!(last["id"], 7, "{last}");
            assert_eq!(last["result"]["content"][0]["text"], "1500 steps");
        }
    }
}

#[tokio::test]
async fn a_stop_lets_open_calls_end_and_ends_streams() {
    for script in [legacy(), modern()] {
        let (mock, gateway) = both(script, "10s").await;
        for era in ERAS {
            let _ = gateway.client(era).await.tools().await;
        }
        let clients = [
            gateway.client(Era::Legacy).await,
            gateway.client(Era::Modern).await,
        ];
        let mut streams = [clients[0].listen().await, clients[1].listen().await];
        let before = mock.counters().of("tools/call");
        let calls: Vec<_> = clients
            .iter()
            .map(|client| {
                let client = client.clone();
                tokio::spawn(
                    async move { client.call("web__sleep", json!({"ms": 700})).await.text() },
                )
            })
            .collect();
        holds("the server has them", || {
            mock.counters().of("tools/call") == before + 2
        })
        .await;
        let stopping = tokio::spawn(gateway.app.stop());
        for stream in &mut streams {
            while stream.next().await.is_some() {}
        }
        for call in calls {
            assert_eq!(call.await.unwrap(), "slept 700 ms");
        }
        crate::harness::within("it stops", stopping).await.unwrap();
    }
}
