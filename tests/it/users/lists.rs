//! What clients see in lists: complaints 8, 15, 18, 27.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use moongate_mock::{
    ContentPreset, CursorMode, FaultAction, FaultRule, GeneratedTools, ListRules, MockScript,
};
use serde_json::json;

use crate::harness::{
    ERAS, Era, Gateway, McpClient, Setup, holds, legacy, mock_at, modern, only, serve, tool, until,
    within,
};

async fn sees(client: &McpClient, names: &[&str]) {
    until(&format!("the list is {names:?}"), || async {
        (client.tools().await == names).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_list_change_is_notified_once_to_each_client() {
    for script in [only(legacy(), &["one"]), only(modern(), &["one"])] {
        let mock = serve(script).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        holds("the gateway listens", || mock.listeners() > 0).await;
        let old = gateway.client(Era::Legacy).await;
        let new = gateway.client(Era::Modern).await;
        let mut old_stream = old.listen().await;
        let mut new_stream = new.listen().await;
        // A storm of notices about one change.
        mock.set_tools(&[tool("two"), tool("three")]);
        for _ in 0..100 {
            mock.notify_list("tools");
        }
        for (client, stream) in [(&old, &mut old_stream), (&new, &mut new_stream)] {
            stream
                .notification("notifications/tools/list_changed")
                .await;
            assert_eq!(
                client.tools().await,
                ["a__three", "a__two"],
                "told when it is true"
            );
        }
        // Nothing else was said before the next change.
        mock.change_tools_and_notify(&[tool("four")]);
        for (client, stream) in [(&old, &mut old_stream), (&new, &mut new_stream)] {
            stream
                .notification("notifications/tools/list_changed")
                .await;
            assert_eq!(
                client.tools().await,
                ["a__four"],
                "the notice is about this change, not the one before"
            );
        }
    }
}

#[tokio::test]
async fn a_tool_that_is_newer_than_its_list_can_be_called() {
    for (script, era) in [(legacy(), Era::Legacy), (modern(), Era::Modern)] {
        let mock = serve(only(script, &["one"])).await;
        let setup = Setup::new()
            .http("a", &mock.url)
            .with("servers.a", "tools = { deny = [\"secret\"] }");
        let gateway = setup.start().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(era).await;
        mock.set_tools(&[tool("one"), tool("echo"), tool("secret")]);
        let lists = mock.counters().of("tools/list");
        assert_eq!(
            client.call("a__echo", json!({"n": 1})).await.text(),
            "{\"n\":1}"
        );
        assert_eq!(mock.counters().of("tools/list"), lists + 1);
        // What may not be used looks like what does not exist, and nobody lists all the time.
        let message = async |name: &str| {
            client.call(name, json!({})).await.error()["message"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        for name in ["a__secret", "a__nothing", "b__nothing"] {
            assert_eq!(message(name).await, format!("Unknown tool: {name}"));
        }
        // Once more after the call, which might have added any of them.
        assert_eq!(mock.counters().of("tools/list"), lists + 2);
        assert_eq!(mock.counters().of("tools/call"), 1);
    }
}

#[tokio::test]
async fn a_storm_of_list_changes_causes_a_few_list_requests() {
    let mock = serve(only(legacy(), &["one"])).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    holds("the gateway listens", || mock.listeners() > 0).await;
    let before = mock.counters().of("tools/list");
    for n in 0..200 {
        mock.set_tools(&[tool(&format!("n{n}"))]);
        mock.notify_list("tools");
    }
    sees(&gateway.client(Era::Modern).await, &["a__n199"]).await;
    let lists = mock.counters().of("tools/list") - before;
    assert!((1..=20).contains(&lists), "{lists} lists for 200 notices");
}

/// Looks at the list all the time; tells whether it was ever empty.
fn watch(client: McpClient, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<bool> {
    tokio::spawn(async move {
        let mut empty = false;
        while !stop.load(Ordering::Relaxed) {
            empty |= client.tools().await.is_empty();
        }
        empty
    })
}

#[tokio::test]
async fn a_restarted_server_with_other_tools_is_found_without_a_call_and_never_listed_empty() {
    for script in [legacy(), modern()] {
        let mock = serve(only(script.clone(), &["before"])).await;
        let address = mock.addr.unwrap();
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        holds("the gateway listens", || mock.listeners() > 0).await;
        let client = gateway.client(Era::Modern).await;
        let stop = Arc::new(AtomicBool::new(false));
        let watching = watch(client.clone(), stop.clone());
        mock.stop().await;
        let _mock = mock_at(only(script, &["after"]), address).await;
        sees(&client, &["a__after"]).await;
        stop.store(true, Ordering::Relaxed);
        assert!(!watching.await.unwrap(), "the list was empty for a moment");
    }
}

#[tokio::test]
async fn a_failed_list_is_fetched_again() {
    for script in [legacy(), modern()] {
        let broken = FaultRule::on(
            "tools/list",
            FaultAction::Error {
                code: -32603,
                message: "not yet".to_owned(),
            },
        );
        let mock = serve(only(script, &["late"]).with_fault(broken.times(2))).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        sees(&gateway.client(Era::Modern).await, &["a__late"]).await;
        gateway.state("a", "ready").await;
    }
}

#[tokio::test]
async fn a_change_whose_list_failed_is_not_lost() {
    let mock = serve(only(legacy(), &["one"])).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    holds("the gateway listens", || mock.listeners() > 0).await;
    mock.set_fault(
        FaultRule::on(
            "tools/list",
            FaultAction::Error {
                code: -32603,
                message: "busy".to_owned(),
            },
        )
        .times(1),
    );
    mock.change_tools_and_notify(&[tool("two")]);
    sees(&gateway.client(Era::Modern).await, &["a__two"]).await;
}

/// Schemas that clients or models choke on, and whether the tool can be kept.
fn schemas() -> Vec<(&'static str, String, bool)> {
    let deep = format!("{}1{}", r#"{"x":"#.repeat(400), "}".repeat(400));
    let schema = |text: &str| format!(r#", "inputSchema": {text}"#);
    vec![
        ("missing", String::new(), true),
        ("null", schema("null"), true),
        ("empty", schema("{}"), true),
        ("untyped", schema(r#"{"properties": {"a": {}}}"#), true),
        (
            "combined",
            schema(r#"{"type": "object", "anyOf": [{"required": ["a"]}]}"#),
            true,
        ),
        (
            "unknown_words",
            schema(r#"{"type": "object", "x-odd": [1, null]}"#),
            true,
        ),
        ("array", schema("[]"), false),
        ("text", schema(r#""object""#), false),
        ("truth", schema("true"), false),
        ("number", schema("7"), false),
        ("string_type", schema(r#"{"type": "string"}"#), false),
        (
            "array_type",
            schema(r#"{"type": "array", "items": {}}"#),
            false,
        ),
        ("null_type", schema(r#"{"type": null}"#), false),
        (
            "list_of_types",
            schema(r#"{"type": ["object", "null"]}"#),
            false,
        ),
        (
            "twice",
            schema(r#"{"type": "object", "type": "object"}"#),
            false,
        ),
        ("deep", schema(&deep), false),
    ]
}

#[tokio::test]
async fn a_bad_schema_costs_that_tool_only_and_is_reported() {
    let mut tools = vec![tool("good")];
    for (name, schema, _) in schemas() {
        tools.push(json!(format!(r#"{{"name": "{name}"{schema}}}"#)));
    }
    // No names at all, or no objects.
    tools.extend([
        json!("{}"),
        json!("7"),
        json!(r#"{"name": 7, "inputSchema": {"type": "object"}}"#),
    ]);
    tools.push(tool("last"));
    for script in [legacy(), modern()] {
        let mock = serve(MockScript {
            preset: ContentPreset::Empty,
            tools: tools.clone(),
            ..script
        })
        .await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            let listed = client.request("tools/list", json!({})).await;
            let names = listed.names();
            for (name, _, kept) in schemas() {
                assert_eq!(names.contains(&format!("a__{name}")), kept, "{name}");
            }
            assert!(names.contains(&"a__good".to_owned()) && names.contains(&"a__last".to_owned()));
            for tool in listed.result()["tools"].as_array().unwrap() {
                assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
            }
        }
        let status = gateway.status("a").await;
        let reported = status["left_out"].to_string();
        for (name, _, _) in schemas().into_iter().filter(|(_, _, kept)| !kept) {
            assert!(
                reported.contains(&format!("tools {name}: ")),
                "{name} is not in {reported}"
            );
        }
        let left_out = gateway
            .metric("moongate_catalog_left_out{mcp_server=\"a\"}")
            .await
            .unwrap();
        assert!(left_out >= 10.0, "{left_out}");
    }
}

async fn numbered(cursor: CursorMode) -> (moongate_mock::MockHandle, Gateway, McpClient) {
    let list = ListRules {
        page_size: 7,
        cursor,
        ..ListRules::default()
    };
    let generate = vec![GeneratedTools {
        count: 500,
        name: "t{n}".to_owned(),
        depth: 0,
        describe: 0,
    }];
    let mock = serve(MockScript {
        preset: ContentPreset::Empty,
        generate,
        list,
        ..legacy()
    })
    .await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Legacy).await;
    (mock, gateway, client)
}

#[tokio::test]
async fn every_page_is_read_and_one_is_served() {
    let (mock, _gateway, client) = numbered(CursorMode::Honest).await;
    let listed = client.request("tools/list", json!({})).await;
    assert_eq!(listed.names().len(), 500);
    assert!(listed.result()["nextCursor"].is_null());
    assert_eq!(mock.counters().of("tools/list"), 72);
    let odd = client
        .request("tools/list", json!({"cursor": "from-somewhere"}))
        .await;
    assert_eq!(odd.error()["code"], -32602);
}

#[tokio::test]
async fn a_cursor_that_leads_nowhere_ends_and_nothing_is_listed_twice() {
    for (cursor, most) in [(CursorMode::Loop, 80), (CursorMode::Endless, 1000)] {
        let (mock, _gateway, client) = numbered(cursor).await;
        let names = client.tools().await;
        let mut unique = names.clone();
        unique.dedup();
        assert_eq!(names.len(), 500, "{cursor:?}");
        assert_eq!(unique.len(), 500, "{cursor:?}");
        assert!(
            mock.counters().of("tools/list") <= most,
            "{cursor:?}: {}",
            mock.counters().of("tools/list")
        );
    }
}

#[tokio::test]
async fn without_servers_every_list_is_empty_and_no_error() {
    let gateway = Setup::new().start().await;
    for era in ERAS {
        let client = gateway.client(era).await;
        for method in [
            "tools/list",
            "prompts/list",
            "resources/list",
            "resources/templates/list",
        ] {
            assert!(
                client.request(method, json!({})).await.names().is_empty(),
                "{method}"
            );
        }
    }
    let client = gateway.client(Era::Legacy).await;
    assert_eq!(client.request("ping", json!({})).await.result(), json!({}));
    assert_eq!(
        client
            .request("logging/setLevel", json!({"level": "info"}))
            .await
            .result(),
        json!({})
    );
}

#[tokio::test]
async fn a_server_that_promises_prompts_and_has_none_is_ready_all_the_same() {
    for script in [legacy(), modern()] {
        let mock = serve(MockScript {
            capabilities: Some(json!({"tools": {}, "prompts": {}, "resources": {}})),
            faults: ["prompts/list", "resources/list", "resources/templates/list"]
                .map(|method| {
                    FaultRule::on(
                        method,
                        FaultAction::Error {
                            code: -32601,
                            message: "Method not found".to_owned(),
                        },
                    )
                })
                .to_vec(),
            ..only(script, &["echo"])
        })
        .await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(Era::Legacy).await;
        assert!(
            client
                .request("prompts/list", json!({}))
                .await
                .names()
                .is_empty()
        );
        assert!(
            client
                .request("resources/list", json!({}))
                .await
                .names()
                .is_empty()
        );
        assert_eq!(client.tools().await, ["a__echo"]);
        assert_eq!(
            mock.counters().of("prompts/list"),
            1,
            "asked once, and believed"
        );
    }
}

#[tokio::test]
async fn a_server_without_prompts_is_not_asked_for_them() {
    let mock = serve(MockScript {
        capabilities: Some(json!({"tools": {}})),
        ..only(legacy(), &["echo"])
    })
    .await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    assert_eq!(
        mock.counters().of("prompts/list") + mock.counters().of("resources/list"),
        0
    );
}

#[tokio::test]
async fn an_expired_list_is_fetched_again_without_notifications() {
    // 2026-07-28/server/utilities/caching.mdx, Interaction with Notifications.
    let mut script = only(modern(), &["one"]);
    script.capabilities = Some(json!({"tools": {}}));
    script.list.ttl_ms = 1500;
    let mock = serve(script).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    let listed = mock.counters().of("tools/list");
    let left = client.request("tools/list", json!({})).await.result()["ttlMs"]
        .as_u64()
        .unwrap();
    assert!(
        left <= 1500,
        "the time began when the gateway got the list: {left}"
    );
    assert_eq!(
        mock.counters().of("tools/list"),
        listed,
        "a list comes from memory"
    );
    mock.set_tools(&[tool("two")]);
    until("the list is taken again, once it is asked for", || async {
        (client.tools().await == ["a__two"]).then_some(())
    })
    .await;
}

/// The same server, which announces no changes.
fn silent(script: MockScript) -> MockScript {
    MockScript {
        capabilities: Some(json!({"tools": {}})),
        ..only(script, &["one"])
    }
}

#[tokio::test]
async fn tools_that_calls_add_can_be_called_at_once_where_nothing_is_announced() {
    for (script, era) in [(legacy(), Era::Legacy), (modern(), Era::Modern)] {
        let mock = serve(silent(script)).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(era).await;
        // One after the other, each by the call of the one before.
        for n in 0..3 {
            client.call("a__one", json!({})).await.text();
            let added = format!("added{n}");
            mock.set_tools(&[tool("one"), tool(&added)]);
            assert_eq!(
                client
                    .call(&format!("a__{added}"), json!({"n": n}))
                    .await
                    .text(),
                format!("{{\"n\":{n}}}")
            );
            assert_eq!(
                client.tools().await,
                [format!("a__{added}"), "a__one".to_owned()]
            );
        }
    }
}

#[tokio::test]
async fn a_tool_that_a_call_added_is_listed_although_nothing_is_announced() {
    let mocks = [serve(silent(legacy())).await, serve(silent(modern())).await];
    let gateway = Setup::new()
        .http("a", &mocks[0].url)
        .http("b", &mocks[1].url)
        .start()
        .await;
    gateway.ready(&["a", "b"]).await;
    let client = gateway.client(Era::Legacy).await;
    let mut stream = client.listen().await;
    for (mock, name) in mocks.iter().zip(["a__one", "b__one"]) {
        mock.set_tools(&[tool("one"), tool("added")]);
        client.call(name, json!({})).await.text();
    }
    sees(&client, &["a__added", "a__one", "b__added", "b__one"]).await;
    within(
        "it is told",
        stream.notification("notifications/tools/list_changed"),
    )
    .await;
}
