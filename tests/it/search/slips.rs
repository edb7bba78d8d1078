//! Slips of models: what stands in the wrong place, in the wrong form, or under a name that does
//! not exist.

use moongate_mock::MockScript;
use moongate_testing::messages::MODERN;
use serde_json::json;

use super::{CLIENTS, able, ask, call, described, refused, searching};
use crate::harness::{legacy, modern, only};

fn shop() -> MockScript {
    let delete = json!({"name": "delete_all", "inputSchema": {
        "type": "object", "properties": {"filter": {"type": "string"}}}});
    MockScript {
        tools: vec![delete, described("survey", "Answers with a text")],
        ..only(legacy(), &[])
    }
}

#[tokio::test]
async fn arguments_in_the_wrong_place_are_refused_and_not_dropped() {
    let with = [("gateway", "search = { split_calls = true }")];
    let (mock, gateway) = searching(shop(), &with).await;
    for revision in CLIENTS {
        let client = able(&gateway, revision).await;
        for tool in ["call_tool", "call_readonly_tool"] {
            let stray = refused(
                &client,
                tool,
                json!({"name": "a__delete_all", "filter": "closed"}),
            )
            .await;
            let expected = format!(
                "`filter` is not an argument of {tool}: the arguments of a tool go into \
                 `arguments`. Nothing was called.\n\
                 Arguments of a__delete_all: a__delete_all(filter?: string)"
            );
            assert_eq!(stray, expected);
        }
        let two = refused(
            &client,
            "call_tool",
            json!({"name": "a__delete_all", "zeta": 1, "args": {}}),
        )
        .await;
        assert!(
            two.starts_with("`zeta` and `args` are not arguments of call_tool: "),
            "{two}"
        );
        let both =
            json!({"name": "a__delete_all", "arguments": {"filter": "open"}, "filter": "closed"});
        assert!(
            refused(&client, "call_tool", both)
                .await
                .starts_with("`filter` is not an argument of call_tool: ")
        );
        let misspelt = json!({"name": "a__delete_al", "filter": "closed"});
        let unknown = refused(&client, "call_tool", misspelt).await;
        assert!(
            unknown.ends_with(
                "Nothing was called.\nUnknown tool: a__delete_al. Nearest: \
                                   a__delete_all. Find others with search_tools."
            ),
            "{unknown}"
        );
        let nameless = refused(&client, "call_tool", json!({"tool": "a__delete_all"})).await;
        assert!(
            nameless.starts_with("`tool` is not an argument of call_tool."),
            "{nameless}"
        );
        assert!(
            nameless.contains("\nArguments of call_tool: call_tool(name: string, "),
            "{nameless}"
        );
        let search = refused(&client, "search_tools", json!({"query": "issue", "max": 3})).await;
        assert!(
            search.starts_with(
                "`max` is not an argument of search_tools.\nArguments of search_tools: "
            ),
            "{search}"
        );
        // What is left out may be written as null.
        assert!(
            ask(&client, "list_servers", json!({"server": null}))
                .await
                .starts_with("1 server.")
        );
    }
    assert_eq!(mock.counters().of("tools/call"), 0);
}

#[tokio::test]
async fn forms_that_say_what_is_meant_are_taken() {
    let (_mock, gateway) = searching(shop(), &[]).await;
    for revision in CLIENTS {
        let client = able(&gateway, revision).await;
        assert_eq!(
            call(&client, " a__survey\n", json!({"n": 1})).await.text(),
            r#"{"n":1}"#
        );
        let one = ask(
            &client,
            "search_tools",
            json!({"query": " answers ", "limit": "1", "server": ""}),
        )
        .await;
        assert!(one.starts_with("1 of 2 tools."), "{one}");
        let plain = ask(&client, "describe_tool", json!({"names": ["a__survey"]})).await;
        for names in [
            json!("[\"a__survey\"]"),
            json!([" a__survey "]),
            json!("a__survey "),
        ] {
            assert_eq!(
                ask(&client, "describe_tool", json!({"names": names})).await,
                plain,
                "{names}"
            );
        }
        let limit = refused(
            &client,
            "search_tools",
            json!({"query": "answers", "limit": "many"}),
        )
        .await;
        assert!(
            limit.starts_with("`limit` must be an integer from 1 to 20."),
            "{limit}"
        );
    }
}

#[tokio::test]
async fn only_near_names_are_offered() {
    let (_mock, gateway) = searching(shop(), &[]).await;
    for revision in CLIENTS {
        let client = able(&gateway, revision).await;
        let unknown = async |name: &str| refused(&client, "call_tool", json!({"name": name})).await;
        for far in ["nope", "a__nope", "github__create_issue"] {
            assert_eq!(
                unknown(far).await,
                format!("Unknown tool: {far}. Find tools with search_tools.")
            );
        }
        for near in ["suvrey", "a_survey", "A__Survey", "a__sur"] {
            let expected =
                format!("Unknown tool: {near}. Nearest: a__survey. Find others with search_tools.");
            assert_eq!(unknown(near).await, expected);
        }
    }
}

#[tokio::test]
async fn meta_tools_are_called_directly() {
    let (_mock, gateway) = searching(shop(), &[]).await;
    for revision in CLIENTS {
        let client = able(&gateway, revision).await;
        let listing = refused(&client, "call_tool", json!({"name": "list_servers"})).await;
        assert_eq!(listing, "list_servers is called directly: list_servers()");
        let described = refused(&client, "describe_tool", json!({"names": ["call_tool"]})).await;
        assert_eq!(
            described,
            "call_tool is called directly: call_tool(name: string, arguments?: object)"
        );
        // Only listed tools count here.
        let switched_off =
            refused(&client, "call_tool", json!({"name": "call_readonly_tool"})).await;
        assert_eq!(
            switched_off,
            "Unknown tool: call_readonly_tool. Find tools with search_tools."
        );
        let empty = refused(&client, "call_tool", json!({"name": "read_resource"})).await;
        assert_eq!(
            empty,
            "Unknown tool: read_resource. Find tools with search_tools."
        );
    }
}

#[tokio::test]
async fn unknown_resources_and_prompts_are_answered_like_unknown_tools() {
    for script in [legacy(), modern()] {
        let (_mock, gateway) = searching(script, &[]).await;
        for revision in CLIENTS {
            let client = able(&gateway, revision).await;
            // The one server with resources answers itself: a resource may be in no list.
            let near = refused(
                &client,
                "read_resource",
                json!({"uri": "mock://static/txt"}),
            )
            .await;
            let hint = "Nearest: mock://static/text. Find others with search_resources.";
            assert_eq!(near, format!("Resource not found\n{hint}"));
            let far = refused(&client, "read_resource", json!({"uri": "nope://x"})).await;
            assert_eq!(
                far,
                "Resource not found\nFind resources with search_resources."
            );
            let prompt = refused(&client, "get_prompt", json!({"name": "nope"})).await;
            assert_eq!(
                prompt,
                "Unknown prompt: nope. Find prompts with search_prompts."
            );
        }
    }
    let (_mock, gateway) = searching(shop(), &[]).await;
    let client = able(&gateway, MODERN).await;
    let none = refused(
        &client,
        "read_resource",
        json!({"uri": "mock://static/text"}),
    )
    .await;
    assert_eq!(
        none,
        "Unknown resource: mock://static/text. There are no resources here."
    );
    let none = refused(&client, "get_prompt", json!({"name": "hello"})).await;
    assert_eq!(none, "Unknown prompt: hello. There are no prompts here.");
}
