//! Calls through `call_tool` are calls like any other.

use std::time::Duration;

use moongate_mock::TaskRule;
use moongate_testing::messages::MODERN;
use moongate_testing::wait::{LONG, holds};
use serde_json::{Value, json};

use super::{CLIENTS, able, call, searching};
use crate::harness::user_home::UserHome;
use crate::harness::{Setup, legacy, modern, only};

#[tokio::test]
async fn arguments_and_results_keep_their_bytes() {
    for script in [legacy(), modern()] {
        let (mock, gateway) = searching(only(script, &["echo"]), &[]).await;
        for revision in CLIENTS {
            let client = able(&gateway, revision).await;
            let arguments =
                r#"{ "n":1.0, "big":12345678901234567890123, "é":"\u00e9", "o":{ "k" : [ ] } }"#;
            let direct = format!(r#""name":"a__echo","arguments":{arguments}"#);
            let direct = client.prepare("tools/call").members(&direct).send().await;
            let through = format!(
                r#""name":"call_tool","arguments":{{"arguments":{arguments},"name":"a__echo"}}"#
            );
            let through = client.prepare("tools/call").members(&through).send().await;
            assert_eq!(through.raw_result(), direct.raw_result());
            assert_eq!(through.text(), arguments);
        }
        let received: Vec<String> = mock
            .recorded_requests()
            .iter()
            .map(|request| request.body.clone())
            .collect();
        assert!(
            !received.iter().any(|body| body.contains("call_tool")),
            "{received:?}"
        );
    }
}

#[tokio::test]
async fn elicitations_reach_the_client_and_its_answer_the_server() {
    let reply = |method: &str, _: &Value| {
        assert_eq!(method, "elicitation/create");
        json!({"action": "accept", "content": {"name": "Ada"}})
    };
    for script in [legacy(), modern()] {
        let (_mock, gateway) = searching(script, &[]).await;
        for revision in CLIENTS {
            let client = able(&gateway, revision).await;
            let params =
                json!({"name": "call_tool", "arguments": {"name": "a__elicit", "arguments": {}}});
            let (answer, asked) = client
                .prepare("tools/call")
                .params(&params)
                .answering(reply)
                .await;
            assert_eq!(asked.len(), 1, "{answer:?}");
            assert!(answer.text().contains("Ada"), "{answer:?}");
            let params = json!({"name": "read_resource", "arguments": {"uri": "mock://private"}});
            let (answer, asked) = client
                .prepare("tools/call")
                .params(&params)
                .answering(reply)
                .await;
            assert_eq!(asked.len(), 1, "{answer:?}");
            let text = &answer.result()["content"][0]["resource"]["text"];
            assert!(
                text.as_str().is_some_and(|text| text.contains("Ada")),
                "{answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn progress_reaches_the_client_under_its_token() {
    for script in [legacy(), modern()] {
        let (_mock, gateway) = searching(script, &[]).await;
        for revision in CLIENTS {
            let client = able(&gateway, revision).await;
            let params = json!({"name": "call_tool",
                "arguments": {"name": "a__progress", "arguments": {"steps": 3}}});
            let request = client
                .prepare("tools/call")
                .params(&params)
                .meta(r#""progressToken":"p""#);
            let answer = request.send().await;
            assert_eq!(answer.text(), "3 steps");
            let told = answer.of("notifications/progress");
            assert_eq!(told.len(), 3, "{answer:?}");
            assert!(
                told.iter()
                    .all(|message| message.value["params"]["progressToken"] == "p"),
                "{answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_at_its_server() {
    let (mock, gateway) = searching(legacy(), &[]).await;
    for (n, revision) in (1..).zip(CLIENTS) {
        let client = able(&gateway, revision).await;
        let params = json!({"name": "call_tool",
            "arguments": {"name": "a__sleep", "arguments": {"ms": 600_000}}});
        let calling = client.clone();
        let sleeping = tokio::spawn(async move {
            calling
                .prepare("tools/call")
                .id("7")
                .params(&params)
                .send()
                .await
                .status
        });
        holds("the server has the call", || {
            mock.counters().of("tools/call") == n
        })
        .await;
        if revision == MODERN {
            // A stateless client cancels by closing its connection.
            sleeping.abort();
        } else {
            client
                .notify("notifications/cancelled", json!({"requestId": 7}))
                .await;
        }
        holds("the call is cancelled", || {
            mock.counters().of("notifications/cancelled") == n
        })
        .await;
    }
}

#[tokio::test]
async fn a_call_can_become_a_task() {
    for mut script in [legacy(), modern()] {
        let job = json!({"name": "job", "inputSchema": {"type": "object"},
            "execution": {"taskSupport": "optional"}});
        script.tools.push(job);
        script.behave.insert("job".to_owned(), "sleep".to_owned());
        script.tasks.insert("job".to_owned(), TaskRule::default());
        let (_mock, gateway) = searching(script, &[]).await;
        for revision in CLIENTS {
            let client = able(&gateway, revision).await;
            let mut params = json!({"name": "call_tool",
                "arguments": {"name": "a__job", "arguments": {"ms": 20}}});
            if revision != MODERN {
                params["task"] = json!({"ttl": 60_000});
                let listed = client.exchange("tools/list", json!({})).await;
                let tools = listed.result()["tools"].as_array().unwrap();
                let support = |name: &str| {
                    tools.iter().find(|tool| tool["name"] == name).unwrap()["execution"].clone()
                };
                assert_eq!(support("call_tool")["taskSupport"], "optional");
                assert!(support("search_tools").is_null());
                let search = json!({"name": "list_servers", "arguments": {}, "task": {"ttl": 1}});
                assert_eq!(client.exchange("tools/call", search).await.code(), -32601);
            }
            let created = client.exchange("tools/call", params).await;
            let task = if revision == MODERN {
                created.result().clone()
            } else {
                created.result()["task"].clone()
            };
            let id = task["taskId"]
                .as_str()
                .unwrap_or_else(|| panic!("no task: {created:?}"))
                .to_owned();
            let done = async {
                loop {
                    let state = client
                        .exchange("tasks/get", json!({"taskId": id}))
                        .await
                        .result()
                        .clone();
                    if state["status"] == "completed" {
                        return state;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let state = tokio::time::timeout(LONG, done).await.unwrap();
            let result = if revision == MODERN {
                state["result"].clone()
            } else {
                client
                    .exchange("tasks/result", json!({"taskId": id}))
                    .await
                    .result()
                    .clone()
            };
            assert_eq!(result["content"][0]["text"], "slept 20 ms", "{result}");
        }
    }
}

#[tokio::test]
async fn operators_see_the_tool_that_ran() {
    let (_mock, gateway) = searching(only(legacy(), &["echo"]), &[]).await;
    let client = able(&gateway, CLIENTS[0]).await;
    call(&client, "a__echo", json!({})).await;
    call(&client, "a__nothing", json!({})).await;
    let calls = gateway.admin("/api/v1/calls").await.json()["calls"]
        .as_array()
        .unwrap()
        .clone();
    let items: Vec<&str> = calls
        .iter()
        .map(|call| call["name"].as_str().unwrap())
        .collect();
    assert_eq!(items, ["a__nothing", "a__echo"], "{calls:?}");
    let series = gateway.admin("/metrics").await.text_body();
    assert!(
        series
            .lines()
            .any(|line| line.starts_with("mcp_") && line.contains("a__echo")),
        "{series}"
    );
    assert!(!series.contains("call_tool"));
}

#[tokio::test]
async fn the_command_line_types_the_arguments_of_tools_that_no_list_has() {
    let demo = format!(
        "command = {:?}\nargs = [\"mock\", \"--demo\"]",
        env!("CARGO_BIN_EXE_moongate")
    );
    for (table, path) in [("gateway", "/mcp"), ("views.found", "/mcp/found")] {
        let setup = Setup::new()
            .with("servers.demo", &demo)
            .with(table, "discovery = \"search\"");
        let gateway = setup.start().await;
        gateway.ready(&["demo"]).await;
        let home = UserHome::new();
        let url = gateway.url(path);
        let run = async |tool: &str| {
            home.run_with(&["call", tool, "a=20", "b=22", "--url", &url], "", "")
                .await
        };
        let sum = run("demo__add").await;
        assert_eq!(sum.code, Some(0), "{sum:?}");
        assert_eq!(sum.out.trim(), "42", "{sum:?}");
        let wrong = run("demo__ad").await;
        assert_eq!(wrong.code, Some(1), "{wrong:?}");
        assert!(wrong.err.contains("Nearest: demo__add"), "{wrong:?}");
    }
}
