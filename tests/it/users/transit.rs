//! What passes through: complaints 14, 17, 36, 37.

use moongate_mock::{GeneratedTools, MockScript, RecordCounters};
use serde_json::{Value, json};

use crate::harness::{
    ERAS, Era, EventStream, McpClient, Setup, body_of, holds, legacy, modern, modern_meta, only,
    serve, tool,
};

#[tokio::test]
async fn hundreds_of_calls_use_one_session_and_few_connections() {
    for script in [only(legacy(), &["echo"]), only(modern(), &["echo"])] {
        let mock = serve(script).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(Era::Modern).await;
        client.call("a__echo", json!({})).await;
        let before = mock.counters();
        for n in 0..400 {
            assert_eq!(
                client.call("a__echo", json!({"n": n})).await.text(),
                format!("{{\"n\":{n}}}")
            );
        }
        let after = mock.counters();
        assert_eq!(after.of("tools/call") - before.of("tools/call"), 400);
        // What was listed before the server said that it listens is listed once more, a moment
        // later.
        let asked = |counters: &RecordCounters| {
            let lists = [
                "tools/list",
                "prompts/list",
                "resources/list",
                "resources/templates/list",
            ];
            counters.total() - lists.iter().map(|list| counters.of(list)).sum::<u64>()
        };
        assert_eq!(
            asked(&after) - asked(&before),
            400,
            "a call is one request and nothing else"
        );
        assert_eq!(after.sessions, before.sessions);
        assert!(
            after.connections - before.connections <= 1,
            "{} connections",
            after.connections
        );
    }
}

#[tokio::test]
async fn equal_ids_at_once_get_their_own_answers() {
    for script in [legacy(), modern()] {
        let mock = serve(script).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        for era in ERAS {
            // Half of them on one session, half on another.
            let clients = [gateway.client(era).await, gateway.client(era).await];
            let calls = (0..100).map(|n| {
                let client = clients[n % 2].clone();
                async move {
                    let call = json!({"name": "a__echo", "arguments": {"n": n}});
                    let answer = client.request_as(1, "tools/call", call).await.answer();
                    assert_eq!(answer["id"], 1);
                    assert_eq!(
                        answer["result"]["content"][0]["text"],
                        format!("{{\"n\":{n}}}")
                    );
                }
            });
            futures_util::future::join_all(calls).await;
        }
    }
}

#[tokio::test]
async fn equal_ids_over_one_pipe_get_their_own_answers() {
    for script in [legacy(), modern()] {
        let gateway = Setup::new().stdio("a", &script).start().await;
        gateway.ready(&["a"]).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            let calls = (0..100).map(|n| {
                let client = client.clone();
                async move {
                    let call = json!({"name": "a__echo", "arguments": {"n": n}});
                    let answer = client.request_as("same", "tools/call", call).await.answer();
                    assert_eq!(
                        answer["result"]["content"][0]["text"],
                        format!("{{\"n\":{n}}}")
                    );
                }
            });
            futures_util::future::join_all(calls).await;
        }
    }
}

/// Everything that a typed proxy would lose: unknown members, odd numbers, escapes, order.
const ODD: &str = r#"{"content":[{"type":"text","text":"\u00e9","unknown":[1.0,1e5,-0,123456789012345678901234567890],"annotations":{"z":1,"a":null}},{"type":"of-the-future","x":{}}],"structuredContent":{"b":[],"a":{"deep":[[[{}]]]}},"isError":false,"new-member":{"z":1.50,"a":"\u0000"}}"#;

#[tokio::test]
async fn a_result_passes_byte_for_byte() {
    for script in [legacy(), modern()] {
        let mock = serve(MockScript {
            answers: [("odd".to_owned(), json!(ODD))].into(),
            ..only(script, &["odd"])
        })
        .await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        let members = &ODD[1..ODD.len() - 1];
        for era in ERAS {
            let reply = gateway.client(era).await.call("a__odd", json!({})).await;
            assert!(
                reply.text_body().contains(members),
                "{era:?}: {}",
                reply.text_body()
            );
        }
    }
}

#[tokio::test]
async fn a_definition_passes_byte_for_byte_but_for_its_name() {
    let definition = r#"{"name":"odd","title":"T","description":"d","inputSchema":{"type":"object","$comment":1.0},"outputSchema":{"type":"object","x":[]},"annotations":{"z":true,"a":1e2},"icons":[{"src":"data:,"}],"_meta":{"anthropic/maxResultSizeChars":500000},"of-the-future":{"b":1,"a":2}}"#;
    for script in [legacy(), modern()] {
        let mock = serve(MockScript {
            tools: vec![json!(definition)],
            ..only(script, &[])
        })
        .await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        for era in ERAS {
            let aggregate = gateway
                .client(era)
                .await
                .request("tools/list", json!({}))
                .await
                .text_body();
            assert!(
                aggregate.contains(&definition.replace("\"odd\"", "\"a__odd\"")),
                "{era:?}: {aggregate}"
            );
            let client = McpClient::open(&gateway.url("/mcp/a"), era).await;
            let own = client.request("tools/list", json!({})).await.text_body();
            assert!(own.contains(definition), "{era:?}: {own}");
        }
    }
}

#[tokio::test]
async fn arguments_pass_byte_for_byte() {
    let arguments = r#"{"z":1.0,"a":1e5,"big":123456789012345678901234567890,"u":"\u00e9\/","deep":{"b":[],"a":null}}"#;
    for script in [legacy(), modern()] {
        let mock = serve(script).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(Era::Legacy).await;
        let body = body_of(
            1,
            "tools/call",
            json!({"name": "a__echo", "arguments": "HERE", "_meta": {"x/y": [1, 2]}}),
        );
        let reply = client.post(body.replace("\"HERE\"", arguments)).await;
        assert_eq!(reply.text(), arguments);
        let seen = mock.last_request("tools/call").unwrap().body;
        assert!(seen.contains(arguments), "{seen}");
        let seen: Value = serde_json::from_str(&seen).unwrap();
        assert_eq!(seen["params"]["_meta"]["x/y"], json!([1, 2]));
    }
}

#[tokio::test]
async fn progress_reaches_its_caller_and_nobody_else() {
    for script in [legacy(), modern()] {
        for stdio in [false, true] {
            let mock = serve(script.clone()).await;
            let setup = Setup::new();
            let setup = if stdio {
                setup.stdio("a", &script)
            } else {
                setup.http("a", &mock.url)
            };
            let gateway = setup.start().await;
            gateway.ready(&["a"]).await;
            for era in ERAS {
                // The same token from two callers at once; one caller without any.
                let call = |token: Value| {
                    json!({"name": "a__progress",
                    "arguments": {"steps": 3, "ms": 20}, "_meta": {"progressToken": token}})
                };
                let clients = [
                    gateway.client(era).await,
                    gateway.client(era).await,
                    gateway.client(era).await,
                ];
                let quiet = json!({"name": "a__progress", "arguments": {"steps": 3, "ms": 20}});
                let (one, two, none) = tokio::join!(
                    clients[0].request_as(1, "tools/call", call(json!("mine"))),
                    clients[1].request_as(1, "tools/call", call(json!("mine"))),
                    clients[2].request_as(1, "tools/call", quiet),
                );
                for reply in [one, two] {
                    let messages = reply.messages();
                    assert_eq!(messages.len(), 4, "{era:?}, stdio: {stdio}: {messages:?}");
                    for (n, progress) in messages[..3].iter().enumerate() {
                        assert_eq!(progress["params"]["progressToken"], "mine");
                        assert_eq!(progress["params"]["progress"], n + 1);
                    }
                }
                assert_eq!(none.messages().len(), 1, "who gave no token hears nothing");
            }
        }
    }
}

#[tokio::test]
async fn an_elicitation_without_a_capable_client_ends_at_once() {
    for script in [legacy(), modern()] {
        let mock = serve(script).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            for tool in ["a__elicit", "a__sample", "a__roots"] {
                let answer = client.call(tool, json!({})).await.answer();
                let refused = answer["error"].is_object() || answer["result"]["isError"] == true;
                assert!(refused, "{era:?}, {tool}: {answer}");
            }
        }
    }
}

#[tokio::test]
async fn log_messages_reach_the_caller_that_wants_them() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let call = json!({"name": "a__log", "arguments": {"level": "warning", "text": "careful"}});
    let old = gateway.client(Era::Legacy).await;
    let mut stream = EventStream::new(old.start(1, "tools/call", call.clone()).await);
    assert_eq!(
        stream.notification("notifications/message").await["params"]["data"],
        "careful"
    );
    old.request("logging/setLevel", json!({"level": "error"}))
        .await;
    assert_eq!(
        old.request_as(2, "tools/call", call.clone())
            .await
            .messages()
            .len(),
        1,
        "below the level it set"
    );
    let new = gateway.client(Era::Modern).await;
    assert_eq!(
        new.request_as(3, "tools/call", call.clone())
            .await
            .messages()
            .len(),
        1,
        "it did not ask for any"
    );
    let mut wanting = call;
    wanting["_meta"] = json!({"io.modelcontextprotocol/logLevel": "info"});
    assert_eq!(
        new.request_as(4, "tools/call", wanting)
            .await
            .messages()
            .len(),
        2
    );
}

/// How many log messages come before the answer to a call that logs at this level.
async fn logged(client: &McpClient, level: &str) -> usize {
    let call = json!({"name": "a__log", "arguments": {"level": level, "text": "heard"}});
    client
        .request_as(1, "tools/call", call)
        .await
        .messages()
        .len()
        - 1
}

#[tokio::test]
async fn a_legacy_client_without_a_level_gets_the_servers_default_logs() {
    for script in [legacy(), modern()] {
        let mock = serve(script).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(Era::Legacy).await;
        for level in ["debug", "info", "emergency"] {
            assert_eq!(logged(&client, level).await, 1, "{level}");
        }
        // Another one that wants less does not take it away.
        let strict = gateway.client(Era::Legacy).await;
        strict
            .request("logging/setLevel", json!({"level": "error"}))
            .await
            .result();
        assert_eq!(logged(&strict, "error").await, 1);
        assert_eq!(logged(&strict, "info").await, 0);
        assert_eq!(logged(&client, "debug").await, 1);
        // Nor does the order of their calls.
        let late = gateway.client(Era::Legacy).await;
        assert_eq!(logged(&late, "debug").await, 1);
        assert_eq!(
            logged(&gateway.client(Era::Modern).await, "emergency").await,
            0,
            "it asked for none"
        );
    }
}

#[tokio::test]
async fn one_clients_log_level_does_not_silence_clients_without_one() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let strict = gateway.client(Era::Legacy).await;
    let client = gateway.client(Era::Legacy).await;
    strict
        .request("logging/setLevel", json!({"level": "error"}))
        .await
        .result();
    assert_eq!(logged(&strict, "error").await, 1);
    assert_eq!(logged(&client, "debug").await, 1);
    assert_eq!(
        logged(&strict, "info").await,
        0,
        "what it did not ask for is left out at its own edge"
    );
}

#[tokio::test]
async fn lists_cost_the_servers_nothing() {
    let generate = vec![GeneratedTools {
        count: 100,
        name: "t{n}".to_owned(),
        depth: 1,
        describe: 100,
    }];
    let mock = serve(MockScript {
        generate,
        ..only(legacy(), &[])
    })
    .await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let asked = mock.counters().total();
    let client = gateway.client(Era::Legacy).await;
    let first = client.request_as(1, "tools/list", json!({})).await.body;
    for _ in 0..50 {
        assert_eq!(
            client.request_as(1, "tools/list", json!({})).await.body,
            first,
            "the same to the byte"
        );
    }
    assert_eq!(mock.counters().total(), asked);
    // Until something changes.
    holds("the gateway listens", || mock.listeners() > 0).await;
    mock.change_tools_and_notify(&[tool("fresh")]);
    crate::harness::until("the change is listed", || async {
        (client.tools().await == ["a__fresh"]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_trace_context_of_a_request_reaches_the_server() {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
    let old = serve(legacy()).await;
    let new = serve(modern()).await;
    let gateway = Setup::new()
        .http("old", &old.url)
        .http("new", &new.url)
        .start()
        .await;
    gateway.ready(&["old", "new"]).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        for server in ["old", "new"] {
            let name = format!("{server}__whoami");
            // Where `_meta` has a context, it is that one.
            for (own, expected) in [(None, PARENT), (Some("00-1-2-03"), "00-1-2-03")] {
                let mut meta = if era == Era::Modern {
                    modern_meta()
                } else {
                    json!({})
                };
                if let Some(own) = own {
                    meta["traceparent"] = own.into();
                }
                let mut extra = vec![
                    ("traceparent", PARENT.to_owned()),
                    ("tracestate", "a=1".to_owned()),
                ];
                if era == Era::Modern {
                    extra.extend([
                        ("mcp-method", "tools/call".to_owned()),
                        ("mcp-name", name.clone()),
                    ]);
                }
                let body = body_of(
                    1,
                    "tools/call",
                    json!({"name": name, "arguments": {}, "_meta": meta}),
                );
                let headers = [client.headers(), extra].concat();
                let reply = client
                    .http
                    .try_send("POST", &client.url, &headers, body)
                    .await
                    .unwrap();
                let me: Value = serde_json::from_str(&reply.text()).unwrap();
                assert_eq!(me["meta"]["traceparent"], expected, "{era:?} {name}");
                assert_eq!(
                    me["meta"]["tracestate"].as_str(),
                    own.is_none().then_some("a=1"),
                    "{era:?} {name}"
                );
            }
        }
    }
}
