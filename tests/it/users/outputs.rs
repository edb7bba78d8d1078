//! Structured output that isn't an object: modern clients get it, legacy clients cannot hold it.

use std::collections::BTreeMap;

use moongate_mock::{FlowRequest, FlowStep, MockScript, ScriptedFlow, TaskRule};
use moongate_testing::messages::{LATEST_LEGACY, MODERN};
use serde_json::{Value, json};

use crate::harness::{ERAS, Era, Gateway, McpClient, Setup, legacy, modern, only, serve, until};

/// Tools by name: an output schema that no legacy client holds, a value, and the schema under
/// `result`.
const ODD: [(&str, &str, &str, &str); 9] = [
    (
        "list",
        r#"{"type": "array","items":{"type":"number"}}"#,
        "[1.0,2e0]",
        "",
    ),
    ("text", r#"{"type":"string"}"#, r#""\u00e9""#, ""),
    ("number", r#"{"type":"number"}"#, "-0.50", ""),
    ("nothing", r#"{"type":"null"}"#, "null", ""),
    (
        "union",
        r#"{"oneOf":[{"type":"object"},{"type":"null"}]}"#,
        r#"{"kind":"a", "n":1.0}"#,
        "",
    ),
    ("either", r#"{"type":["object","null"]}"#, "{}", ""),
    ("untyped", r#"{"properties":{"a":{}}}"#, r#"{"a":1}"#, ""),
    ("any", "{}", "false", ""),
    (
        "tree",
        r##"{"$ref":"#/$defs/n","$defs":{"n":{"type":"array","items":{"$ref":"#"}}}}"##,
        "[[],[[]]]",
        r##"{"$ref":"#/properties/result/$defs/n","$defs":{"n":{"type":"array","items":{"$ref":"#/properties/result"}}}}"##,
    ),
];

fn with_tools(script: MockScript) -> MockScript {
    let tool = |(name, schema, _, _): &(&str, &str, &str, &str)| {
        json!(format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object"}},"outputSchema":{schema}}}"#
        ))
    };
    let answer = |(name, _, value, _): &(&str, &str, &str, &str)| {
        (
            (*name).to_owned(),
            json!(format!(r#"{{"content":[],"structuredContent":{value}}}"#)),
        )
    };
    let tools = ODD.iter().map(tool).collect();
    let answers = ODD.iter().map(answer).collect();
    MockScript {
        tools,
        answers,
        ..only(script, &[])
    }
}

fn tool_of<'a>(list: &'a Value, name: &str) -> &'a Value {
    let tools = list["tools"].as_array().unwrap();
    tools
        .iter()
        .find(|tool| tool["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {list}"))
}

/// Returns a result as an official SDK of a legacy revision would write it.
fn enveloped(value: &str) -> String {
    format!(r#""structuredContent":{{"result":{value}}}"#)
}

#[tokio::test]
async fn a_legacy_client_gets_each_value_in_an_envelope_with_its_schema() {
    // A server with sessions that lists such schemas all the same is no other case.
    for script in [with_tools(modern()), with_tools(legacy())] {
        let mock = serve(script).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        for (path, prefix) in [("/mcp", "a__"), ("/mcp/a", "")] {
            let client = McpClient::open(&gateway.url(path), Era::Legacy).await;
            let listed = client.request("tools/list", json!({})).await;
            let list = listed.result();
            let text = listed.text_body();
            for (name, schema, value, moved) in ODD {
                let schema = if moved.is_empty() { schema } else { moved };
                let expected = format!(
                    r#""outputSchema":{{"type":"object","properties":{{"result":{schema}}},"required":["result"]}}"#
                );
                assert!(text.contains(&expected), "{expected} is not in {text}");
                let name = format!("{prefix}{name}");
                assert_eq!(tool_of(&list, &name)["outputSchema"]["type"], "object");
                let reply = client.call(&name, json!({})).await;
                assert!(
                    reply.text_body().contains(&enveloped(value)),
                    "{name}: {}",
                    reply.text_body()
                );
            }
        }
    }
}

#[tokio::test]
async fn a_modern_client_gets_schemas_and_values_as_they_are() {
    let mock = serve(with_tools(modern())).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    // The other era first: neither list may be the other's.
    gateway.client(Era::Legacy).await.tools().await;
    let client = gateway.client(Era::Modern).await;
    let listed = client.request("tools/list", json!({})).await.text_body();
    for (name, schema, value, _) in ODD {
        assert!(
            listed.contains(&format!(r#""outputSchema":{schema}"#)),
            "{name}: {listed}"
        );
        let reply = client
            .call(&format!("a__{name}"), json!({}))
            .await
            .text_body();
        assert!(
            reply.contains(&format!(r#""content":[],"structuredContent":{value}"#)),
            "{name}: {reply}"
        );
    }
}

#[tokio::test]
async fn a_value_without_a_text_gets_one() {
    let answers = [
        ("bare", r#"{"structuredContent":[1.0]}"#),
        (
            "image",
            r#"{"content":[{"type":"image","data":"","mimeType":"image/png"}],"structuredContent":"x"}"#,
        ),
        (
            "texts",
            r#"{"content":[ {"type":"text","text":"one"} ],"structuredContent":[1]}"#,
        ),
        ("object", r#"{"content":[],"structuredContent":{"a":1}}"#),
    ];
    let names: Vec<&str> = answers.iter().map(|(name, _)| *name).collect();
    let answers = answers
        .iter()
        .map(|(name, answer)| ((*name).to_owned(), json!(answer)))
        .collect();
    let mock = serve(MockScript {
        answers,
        ..only(modern(), &names)
    })
    .await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Legacy).await;
    for (name, expected) in [
        (
            "bare",
            r#""structuredContent":{"result":[1.0]},"content":[{"type":"text","text":"[1.0]"}]"#,
        ),
        (
            "image",
            r#"{"type":"text","text":"\"x\""}],"structuredContent":{"result":"x"}"#,
        ),
        (
            "texts",
            r#""content":[ {"type":"text","text":"one"} ],"structuredContent":{"result":[1]}"#,
        ),
        ("object", r#""content":[],"structuredContent":{"a":1}"#),
    ] {
        let reply = client
            .call(&format!("a__{name}"), json!({}))
            .await
            .text_body();
        assert!(reply.contains(expected), "{name}: {reply}");
    }
}

/// A server of both eras that wraps by itself in its legacy era, as one on the official TypeScript
/// SDK.
fn wrapping_by_itself() -> MockScript {
    let script = with_tools(MockScript::standard());
    let modern_tools = script.tools.clone();
    let modern_answers = script.answers.clone();
    let listed = |(name, schema, _, moved): &(&str, &str, &str, &str)| {
        let schema = if moved.is_empty() { schema } else { moved };
        let schema = format!(
            r#"{{"type":"object","properties":{{"result":{schema}}},"required":["result"]}}"#
        );
        json!(format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object"}},"outputSchema":{schema}}}"#
        ))
    };
    let wrapped = |(name, _, value, _): &(&str, &str, &str, &str)| {
        (
            (*name).to_owned(),
            json!(format!(r#"{{"content":[],{}}}"#, enveloped(value))),
        )
    };
    let tools = ODD.iter().map(listed).collect();
    let answers = ODD.iter().map(wrapped).collect();
    MockScript {
        tools,
        answers,
        modern_tools,
        modern_answers,
        ..script
    }
}

#[tokio::test]
async fn a_server_that_wraps_by_itself_is_not_wrapped_again() {
    let script = wrapping_by_itself();
    let mock = serve(script.clone()).await;
    // A program changes to the era of its first client, and the list to that era's.
    let setups = [
        Setup::new().http("a", &mock.url),
        Setup::new().stdio("a", &script),
        Setup::new().stdio("a", &script),
    ];
    for (n, setup) in setups.into_iter().enumerate() {
        let gateway = setup.start().await;
        gateway.ready(&["a"]).await;
        let eras = if n == 1 {
            [Era::Modern, Era::Legacy]
        } else {
            [Era::Legacy, Era::Modern]
        };
        for era in eras.into_iter().chain(eras) {
            let client = gateway.client(era).await;
            for (name, _, value, _) in ODD {
                let list = client.request("tools/list", json!({})).await.result();
                let name = format!("a__{name}");
                let is_wrapped =
                    tool_of(&list, &name)["outputSchema"]["required"] == json!(["result"]);
                let reply = client.call(&name, json!({})).await.text_body();
                let expected = if is_wrapped {
                    enveloped(value)
                } else {
                    format!(r#""structuredContent":{value}"#)
                };
                assert!(reply.contains(&expected), "{era:?}, {name}: {reply}");
                assert!(is_wrapped || era == Era::Modern, "{list}");
            }
        }
    }
}

/// A server of both eras that lists one schema in both, under which a value may look like an
/// envelope.
fn listing_alike() -> MockScript {
    let union = r#"{"anyOf":[{"type":"object","properties":{"result":{"type":"number"}}},{"type":"string"}]}"#;
    let tool = json!(format!(
        r#"{{"name":"union","inputSchema":{{"type":"object"}},"outputSchema":{union}}}"#
    ));
    let mut script = only(MockScript::standard(), &[]);
    script.tools = vec![tool];
    script.answers = [(
        "union".to_owned(),
        json!(r#"{"content":[],"structuredContent":{"result":5}}"#),
    )]
    .into();
    script
}

#[tokio::test]
async fn a_value_that_looks_like_an_envelope_is_wrapped_where_both_eras_list_one_schema() {
    let mock = serve(listing_alike()).await;
    for setup in [
        Setup::new().http("a", &mock.url),
        Setup::new().stdio("a", &listing_alike()),
    ] {
        let gateway = setup.start().await;
        gateway.ready(&["a"]).await;
        for era in [Era::Modern, Era::Legacy, Era::Modern, Era::Legacy] {
            let client = gateway.client(era).await;
            let wanted = match era {
                Era::Modern => r#""structuredContent":{"result":5}"#.to_owned(),
                Era::Legacy => enveloped(r#"{"result":5}"#),
            };
            // The first call of an era opens its face, whose list comes a moment later.
            until("the value fits the schema", || async {
                let reply = client.call("a__union", json!({})).await.text_body();
                reply.contains(&wanted).then_some(())
            })
            .await;
        }
    }
}

#[tokio::test]
async fn search_mode_describes_what_its_calls_give() {
    let mock = serve(with_tools(modern())).await;
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("gateway", "discovery = \"search\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        for (name, schema, value, moved) in ODD {
            let described = client
                .call("describe_tool", json!({"names": [format!("a__{name}")]}))
                .await
                .text();
            let found = client
                .call(
                    "search_tools",
                    json!({"query": format!("a__{name}"), "limit": 1, "detail": "full"}),
                )
                .await;
            let reply = client
                .call("call_tool", json!({"name": format!("a__{name}")}))
                .await
                .text_body();
            let moved = if moved.is_empty() { schema } else { moved };
            let (schema, expected) = match era {
                Era::Legacy => (
                    format!(r#""properties":{{"result":{moved}}}"#),
                    enveloped(value),
                ),
                Era::Modern => (
                    format!(r#""outputSchema":{schema}"#),
                    format!(r#""structuredContent":{value}"#),
                ),
            };
            assert!(described.contains(&schema), "{era:?}, {name}: {described}");
            assert!(
                found.text().contains(&schema),
                "{era:?}, {name}: {}",
                found.text()
            );
            assert!(reply.contains(&expected), "{era:?}, {name}: {reply}");
        }
    }
}

async fn result_of_task(gateway: &Gateway, name: &str) -> String {
    let client = gateway.client(Era::Legacy).await;
    let params = json!({"name": format!("a__{name}"), "arguments": {}, "task": {}});
    let created = client.request("tools/call", params).await.result();
    let id = created["task"]["taskId"]
        .as_str()
        .unwrap_or_else(|| panic!("no task: {created}"))
        .to_owned();
    client
        .request("tasks/result", json!({"taskId": id}))
        .await
        .text_body()
}

#[tokio::test]
async fn results_of_tasks_are_wrapped_as_well() {
    let mut script = with_tools(modern());
    // Of the others, the gateway itself keeps the results for clients that wanted a task.
    for (name, _, _, _) in ODD.into_iter().step_by(2) {
        script.tasks.insert(name.to_owned(), TaskRule::default());
    }
    let mock = serve(script).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    for (name, _, value, _) in ODD {
        let ran = result_of_task(&gateway, name).await;
        assert!(ran.contains(&enveloped(value)), "{name}: {ran}");
        // A client without tasks gets the result of the task that its call became.
        let awaited = gateway
            .client(Era::Legacy)
            .await
            .call(&format!("a__{name}"), json!({}))
            .await
            .text_body();
        assert!(awaited.contains(&enveloped(value)), "{name}: {awaited}");
    }
}

/// A server whose tool `think` asks for sampling with these parameters.
fn thinking(params: &Value) -> MockScript {
    let request = FlowRequest {
        method: "sampling/createMessage".into(),
        params: params.clone(),
        unable: Default::default(),
        later: false,
        withdraw_ms: None,
    };
    let steps = vec![FlowStep::Ask(BTreeMap::from([(
        "said".to_owned(),
        request,
    )]))];
    let flows = [(
        "think".to_owned(),
        ScriptedFlow {
            steps,
            ..ScriptedFlow::default()
        },
    )]
    .into();
    MockScript {
        flows,
        ..only(modern(), &["think"])
    }
}

#[tokio::test]
async fn sampling_requests_have_objects_only_for_legacy_clients() {
    let params = json!({
        "maxTokens": 5,
        "tools": [{"name": "t", "inputSchema": {"type": "object"},
            "outputSchema": {"type": "array"}}],
        "messages": [
            {"role": "assistant",
                "content": {"type": "tool_use", "id": "1", "name": "t", "input": {}}},
            {"role": "user",
                "content": [{"type": "tool_result", "toolUseId": "1", "content": [],
                    "structuredContent": [1]}]},
            {"role": "user",
                "content": {"type": "tool_result", "toolUseId": "1", "content": [],
                    "structuredContent": "x"}}]});
    let mock = serve(thinking(&params)).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    for revision in [LATEST_LEGACY, MODERN] {
        let client = McpClient::connect(
            revision,
            &gateway.url("/mcp"),
            json!({"sampling": {"tools": {}}}),
        )
        .await;
        let said =
            json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}});
        let request = client
            .prepare("tools/call")
            .params(&json!({"name": "a__think", "arguments": {}}));
        let (_, asked) = request.answering(|_, _| said.clone()).await;
        let got = &asked[0]["params"];
        if revision == MODERN {
            assert_eq!(got["tools"], params["tools"]);
            assert_eq!(got["messages"], params["messages"]);
            continue;
        }
        assert_eq!(
            got["tools"][0]["outputSchema"]["properties"]["result"],
            json!({"type": "array"})
        );
        assert_eq!(got["messages"][0], params["messages"][0]);
        assert_eq!(
            got["messages"][1]["content"][0]["structuredContent"],
            json!({"result": [1]})
        );
        assert_eq!(
            got["messages"][2]["content"]["structuredContent"],
            json!({"result": "x"})
        );
    }
}
