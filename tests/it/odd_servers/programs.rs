//! Programs that write in other ways than MCP has, and what people are told of them.

use moongate_mock::{FaultAction, FaultRule, MockScript};
use serde_json::json;

use crate::harness::{self, ERAS, Era, EventStream, McpClient, Setup, only, until, within};

/// Settings of a server that is a shell script.
fn shell(script: &str, more: &str) -> String {
    format!("command = \"sh\"\nargs = [\"-c\", {script:?}]\n{more}")
}

#[tokio::test]
async fn a_wrong_framing_and_a_wrong_encoding_are_named() {
    let lsp = r#"printf 'Content-Length: 2\r\n\r\n{}'; sleep 600"#;
    let utf16 = r#"printf '{\0"\0i\0d\0"\0:\0001\0}\0\n\0'; sleep 600"#;
    let gateway = Setup::new()
        .with("servers.lsp", &shell(lsp, "start_timeout = \"1s\""))
        .with("servers.utf16", &shell(utf16, "start_timeout = \"1s\""))
        .start()
        .await;
    for (server, word) in [("lsp", "Language Server Protocol"), ("utf16", "UTF-16")] {
        let status = gateway.state(server, "backing_off").await;
        assert!(
            status["reason"].as_str().unwrap().contains(word),
            "{status}"
        );
    }
}

#[tokio::test]
async fn a_server_that_is_starting_says_what_it_waits_for() {
    let gateway = Setup::new()
        .with("servers.slow", &shell("sleep 600", ""))
        .start()
        .await;
    let status = gateway.state("slow", "starting").await;
    assert!(!status["reason"].as_str().unwrap().is_empty(), "{status}");
}

#[tokio::test]
async fn ids_of_another_json_type_end_their_call() {
    for id in ["\"{id}\"", "{id}.0"] {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"mine"}}]}}}}"#
        );
        let script = only(harness::legacy(), &["odd"])
            .with_fault(FaultRule::on("tools/call:odd", FaultAction::Body { text }));
        let web = harness::serve(script.clone()).await;
        let gateway = Setup::new()
            .stdio("a", &script)
            .http("b", &web.url)
            .start()
            .await;
        gateway.ready(&["a", "b"]).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            for server in ["a", "b"] {
                assert_eq!(
                    client
                        .call(&format!("{server}__odd"), json!({}))
                        .await
                        .text(),
                    "mine",
                    "{server} {id}"
                );
            }
        }
    }
}

#[tokio::test]
async fn progress_under_a_token_of_another_json_type_is_the_calls() {
    for token in ["\"{id}\"", "{id}.0"] {
        let progress = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        );
        let script = only(harness::legacy(), &["sleep"]).with_fault(FaultRule::on(
            "tools/call:sleep",
            FaultAction::Flood {
                text: progress,
                count: 1,
            },
        ));
        let gateway = Setup::new().stdio("a", &script).start().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client_at("2025-11-25").await;
        let params = json!({"name": "a__sleep", "arguments": {"ms": 300},
            "_meta": {"progressToken": "mine"}});
        let mut stream = EventStream::of(client.start(7, "tools/call", params).await);
        let told = within("progress", stream.notification("notifications/progress")).await;
        assert_eq!(told["params"]["progressToken"], "mine", "{token}: {told}");
    }
}

#[tokio::test]
async fn an_answer_that_is_none_fails_its_call_at_once() {
    let texts = [
        r#"{"id":{id},"result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":{id}}"#,
    ];
    for text in texts {
        let act = FaultAction::Body {
            text: text.to_owned(),
        };
        let script =
            only(harness::legacy(), &["odd"]).with_fault(FaultRule::on("tools/call:odd", act));
        let web = harness::serve(script.clone()).await;
        let gateway = Setup::new()
            .stdio("a", &script)
            .http("b", &web.url)
            .start()
            .await;
        gateway.ready(&["a", "b"]).await;
        let client = gateway.client(Era::Modern).await;
        for server in ["a", "b"] {
            let failure = client
                .call(&format!("{server}__odd"), json!({}))
                .await
                .failure();
            assert!(failure.contains("the answer is"), "{server}: {failure}");
        }
    }
}

#[tokio::test]
async fn a_list_that_is_announced_all_the_time_is_fetched_ever_more_rarely() {
    let told = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let act = FaultAction::Flood {
        text: told.to_owned(),
        count: 1,
    };
    let script = only(harness::legacy(), &["echo"]).with_fault(FaultRule::on("tools/list", act));
    let gateway = Setup::new().stdio("a", &script).start().await;
    gateway.ready(&["a"]).await;
    let lists = || {
        gateway
            .record("a")
            .lines()
            .filter(|line| line.contains("\"tools/list\""))
            .count()
    };
    // At ten a second, thirty would have come by now.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert!((2..=8).contains(&lists()), "{}", lists());
}

#[tokio::test]
async fn since_is_since_when_a_server_is_broken() {
    let gateway = Setup::new()
        .with("servers.a", &shell("exit 1", ""))
        .with("defaults", "backoff = { min = \"50ms\", max = \"100ms\" }")
        .start()
        .await;
    until("it was tried for two seconds", || async {
        let since = gateway.status("a").await["since_seconds"].as_u64();
        since.is_some_and(|seconds| seconds >= 2).then_some(())
    })
    .await;
}

/// A tool that asks ten times in three seconds, whatever becomes of its questions.
fn insisting() -> MockScript {
    let form = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let request = json!({
        "method": "elicitation/create", "unable": "insist",
        "params": {"message": "Who are you?", "requestedSchema": form},
    });
    let steps: Vec<serde_json::Value> = (0..10)
        .flat_map(|_| [json!({"ask": {"name": request}}), json!({"wait_ms": 300})])
        .collect();
    let flow =
        json!({"steps": steps, "result": {"content": [{"type": "text", "text": "asked enough"}]}});
    let mut script = only(harness::legacy(), &["nag"]);
    script
        .flows
        .insert("nag".to_owned(), serde_json::from_value(flow).unwrap());
    script
}

/// Calls a tool, and answers all its questions.
async fn answered(client: &McpClient, tool: &str) -> String {
    let call = json!({"name": tool, "arguments": {}});
    let mut stream = client.prepare("tools/call").params(&call).open().await;
    loop {
        let message = stream.next_message().await.expect("the call is answered");
        if message.method() == "elicitation/create" {
            let outcome = json!({"action": "accept", "content": {"name": "Ada"}});
            assert_eq!(client.respond(&message.value["id"], &outcome).await, 202);
        } else if message.is_response() {
            return message.value["result"]["content"][0]["text"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
        }
    }
}

#[tokio::test]
async fn only_questions_that_reach_a_user_prolong_a_call() {
    let web = harness::serve(insisting()).await;
    let gateway = Setup::new()
        .stdio("a", &insisting())
        .http("b", &web.url)
        .with("defaults", "timeout = \"1s\"")
        .start()
        .await;
    gateway.ready(&["a", "b"]).await;
    let unable = gateway.client(Era::Legacy).await;
    for server in ["a", "b"] {
        let failure = unable
            .call(&format!("{server}__nag"), json!({}))
            .await
            .failure();
        assert!(failure.contains("1s"), "{server}: {failure}");
    }
    let able = McpClient::connect(
        "2025-11-25",
        &gateway.url("/mcp"),
        json!({"elicitation": {}}),
    )
    .await;
    for server in ["a", "b"] {
        assert_eq!(
            answered(&able, &format!("{server}__nag")).await,
            "asked enough",
            "{server}"
        );
    }
}
