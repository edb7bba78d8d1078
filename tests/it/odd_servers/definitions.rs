//! Definitions that a client's SDK refuses, with the whole list. What the SDKs themselves say of
//! them is in `interop/definitions.rs`.

use std::process::Stdio;

use moongate_mock::{ContentPreset, MockScript};
use serde_json::{Value, json};

use crate::harness::{ERAS, Era, McpClient, Setup, serve};

const INPUT: &str = r#""inputSchema":{"type":"object","properties":{}}"#;

/// Tools by name: what is odd, and what legacy and modern clients get in its place. Empty: nothing.
fn odd_tools() -> Vec<(&'static str, String, String, String)> {
    let tool = |name: &'static str, odd: &str, legacy: &str, modern: &str| {
        let whole = |members: &str| {
            let comma = if members.is_empty() { "" } else { "," };
            format!(r#"{{"name":"{name}"{comma}{members}}}"#)
        };
        (name, whole(odd), whole(legacy), whole(modern))
    };
    let both = |name, odd: &str, mended: &str| {
        let with = |members: &str| match members {
            "" => INPUT.to_owned(),
            members => format!("{INPUT},{members}"),
        };
        tool(name, &with(odd), &with(mended), &with(mended))
    };
    let legacy_only = |name, odd: &str, mended: &str| tool(name, odd, mended, odd);
    let output = |schema: &str| format!(r#"{INPUT},"outputSchema":{schema}"#);
    vec![
        legacy_only(
            "props_array",
            r#""inputSchema":{"type":"object","properties":[]}"#,
            INPUT,
        ),
        legacy_only(
            "bool_prop",
            r#""inputSchema":{"type":"object","properties":{"payload":true}}"#,
            r#""inputSchema":{"type":"object","properties":{"payload":{}}}"#,
        ),
        legacy_only(
            "dangling",
            &output(r##"{"type":"object","properties":{"x":{"$ref":"#/$defs/Missing"}}}"##),
            INPUT,
        ),
        legacy_only(
            "pattern",
            &output(r#"{"type":"object","properties":{"x":{"pattern":"(unclosed"}}}"#),
            INPUT,
        ),
        both("null", r#""description":null"#, ""),
        both(
            "nulls",
            r#""annotations":{"title":null,"readOnlyHint":null}"#,
            r#""annotations":{}"#,
        ),
        both(
            "text",
            r#""annotations":{"readOnlyHint":"true"}"#,
            r#""annotations":{"readOnlyHint":true}"#,
        ),
        both("meta", r#""_meta":[]"#, ""),
        both(
            "icons",
            r#""icons":["https://a.example/a.png"]"#,
            r#""icons":[{"src":"https://a.example/a.png"}]"#,
        ),
        both(
            "half",
            r#""description":"\ud800""#,
            r#""description":"\ufffd""#,
        ),
        both("output_null", r#""outputSchema":null"#, ""),
    ]
}

/// A server of both eras that lists them, beside good ones.
fn script() -> MockScript {
    let mut tools = vec![json!(good("first"))];
    tools.extend(odd_tools().into_iter().map(|(_, odd, _, _)| json!(odd)));
    tools.extend(
        [
            r#"{"name":"twice","inputSchema":{"type":"object"}}"#,
            r#"{"name":"twice"}"#,
            "7",
        ]
        .map(|item| json!(item)),
    );
    tools.push(json!(good("last")));
    MockScript {
        preset: ContentPreset::Empty,
        tools,
        prompts: vec![
            json!({"name": "good"}),
            json!({"name": "odd", "arguments": "x"}),
            json!({"name": "null", "arguments": null}),
        ],
        resources: vec![
            json!({"uri": "x://nameless"}),
            json!({"uri": "no url", "name": "a"}),
        ],
        templates: vec![
            json!({"uriTemplate": "x://{y}", "name": "a", "annotations": {"priority": 7}}),
        ],
        ..MockScript::default()
    }
}

fn good(name: &str) -> String {
    format!(r#"{{ "name" : "{name}", {INPUT}, "x": 1.0 }}"#)
}

/// Checks the lists that a client of this era gets, and that mended tools can be called.
async fn assert_lists_are_mended(client: &McpClient, era: Era) {
    let listed = async |method: &str| client.request(method, json!({})).await.text_body();
    let tools = listed("tools/list").await;
    for (name, _, legacy, modern) in odd_tools() {
        let expected = if era == Era::Legacy { legacy } else { modern };
        assert!(
            tools.contains(&expected),
            "{era:?}: {name}: {expected} is not in {tools}"
        );
    }
    assert!(
        tools.contains(&good("first")) && tools.contains(&good("last")),
        "{tools}"
    );
    assert_eq!(tools.matches("\"twice\"").count(), 1, "{tools}");
    let resources = listed("resources/list").await;
    assert!(
        resources.contains(r#"{"uri":"x://nameless","name":"x://nameless"}"#),
        "{resources}"
    );
    assert_eq!(
        resources.contains("no url"),
        era == Era::Modern,
        "{resources}"
    );
    let prompts = listed("prompts/list").await;
    assert!(
        prompts.contains(r#"{"name":"null"}"#) && !prompts.contains("odd"),
        "{prompts}"
    );
    let templates = listed("resources/templates/list").await;
    assert!(
        templates.contains(r#"{"uriTemplate":"x://{y}","name":"a","annotations":{}}"#),
        "{templates}"
    );
    assert_eq!(
        client.call("good", json!({})).await.error()["code"],
        -32602,
        "no such tool"
    );
    assert_eq!(
        client.call("twice", json!({"n": 1})).await.text(),
        r#"{"n":1}"#
    );
    assert_eq!(
        client.call("dangling", json!({"n": 1})).await.text(),
        r#"{"n":1}"#
    );
}

/// Checks the notes in a server's status.
fn assert_mended_items_are_named(status: &Value) {
    let notes = |topic: &str| -> Vec<String> {
        status[topic]
            .as_array()
            .unwrap()
            .iter()
            .map(|note| note.as_str().unwrap().to_owned())
            .collect()
    };
    let is_named = |topic: &str, item: &str| {
        notes(topic)
            .iter()
            .any(|note| note.starts_with(&format!("{item}: ")))
    };
    let mended = odd_tools()
        .into_iter()
        .map(|(name, ..)| format!("tools {name}"));
    let others = [
        "prompts null",
        "resources x://nameless",
        "resourceTemplates x://{y}",
    ]
    .map(str::to_owned);
    for item in mended.chain(others) {
        assert!(is_named("mended", &item), "{item}: {:?}", notes("mended"));
    }
    for item in [
        "tools twice",
        "tools #15",
        "prompts odd",
        "resources no url",
    ] {
        assert!(
            is_named("left_out", item),
            "{item}: {:?}",
            notes("left_out")
        );
    }
    assert!(
        !notes("mended").iter().any(|note| note.contains("first")),
        "{:?}",
        notes("mended")
    );
}

#[tokio::test]
async fn a_definition_that_sdks_refuse_is_mended_or_left_out_and_named() {
    let mock = serve(script()).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    for era in ERAS {
        let client = McpClient::open(&gateway.url("/mcp/a"), era).await;
        assert_lists_are_mended(&client, era).await;
    }
    assert_mended_items_are_named(&gateway.status("a").await);
    assert_eq!(
        gateway
            .metric("moongate_catalog_mended{mcp_server=\"a\"}")
            .await,
        Some(14.0)
    );
    assert_eq!(
        gateway
            .metric("moongate_catalog_left_out{mcp_server=\"a\"}")
            .await,
        Some(4.0)
    );
}

#[tokio::test]
async fn check_connect_and_the_page_name_what_is_mended() {
    let mock = serve(script()).await;
    let setup = Setup::new().http("a", &mock.url);
    let config = setup.file();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_moongate"));
    command
        .args(["check", "--connect", "--config", config.to_str().unwrap()])
        .stdin(Stdio::null());
    let output = command.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("mended: tools null: its description is null: dropped"),
        "{text}"
    );
    assert!(text.contains("left out: tools twice: "), "{text}");

    let gateway = setup.start().await;
    gateway.ready(&["a"]).await;
    let page = gateway.admin("/servers/a?tab=tools").await.text_body();
    assert!(
        page.contains("14 items are mended") && page.contains("4 items are left out"),
        "{page}"
    );
    let items: Value = gateway.admin("/api/v1/servers/a/items").await.json();
    let twice = items["tools"]
        .as_array()
        .unwrap()
        .iter()
        .find(|tool| tool["name"] == "twice")
        .unwrap();
    assert_eq!(twice["state"], "on", "{twice}");
    assert_eq!(twice["reason"], Value::Null, "{twice}");
}
