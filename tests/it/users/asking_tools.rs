//! Tools of servers of both eras that can ask in one of them only, as on FastMCP 4.

use moongate_mock::MockScript;
use moongate_testing::messages::MODERN;
use serde_json::{Value, json};

use crate::harness::{McpClient, Setup, only, serve};

/// A server of both eras whose tool `ask` asks by requests of its own, which 2026-07-28 does not
/// have.
fn asking() -> MockScript {
    let text =
        "elicitation via server-initiated requests is unavailable on 2026-07-28 connections.";
    let failure = json!({"content": [{"type": "text", "text": text}], "isError": true});
    MockScript {
        behave: [("ask".to_owned(), "ask_name".to_owned())].into(),
        modern_answers: [("ask".to_owned(), failure)].into(),
        ..only(MockScript::standard(), &["ask", "echo"])
    }
}

async fn ask(client: &McpClient) -> (Value, usize) {
    let request = client
        .prepare("tools/call")
        .params(&json!({"name": "a__ask", "arguments": {}}));
    let said = json!({"action": "accept", "content": {"name": "Ada"}});
    let (answer, asked) = request.answering(|_, _| said.clone()).await;
    (answer.result().clone(), asked.len())
}

#[tokio::test]
async fn a_modern_client_is_asked_by_a_tool_that_can_ask_only_in_the_legacy_era() {
    let mock = serve(asking()).await;
    for stdio in [true, false] {
        let setup = Setup::new().lasting();
        let setup = if stdio {
            setup.stdio("a", &asking())
        } else {
            setup.http("a", &mock.url)
        };
        let gateway = setup.life().await;
        gateway.ready(&["a"]).await;
        let open = async |url: String| {
            McpClient::connect(MODERN, &url, json!({"elicitation": {"form": {}}})).await
        };
        let client = open(gateway.url("/mcp")).await;
        let (failed, asked) = ask(&client).await;
        assert_eq!(failed["isError"], true);
        assert_eq!(asked, 0);
        let advice = failed["content"][1]["text"].as_str().unwrap();
        assert!(advice.contains("Call it again"), "{failed}");
        let (answered, asked) = ask(&client).await;
        assert_eq!(answered["content"][0]["text"], "Hello, Ada.");
        assert_eq!(asked, 1);
        // The other tools stay in the era of their client.
        assert_eq!(
            client
                .exchange_tool("a__echo", json!({"n": 1}))
                .await
                .text(),
            r#"{"n":1}"#
        );
        gateway.app.stop().await;
        // The next process knows it.
        let gateway = setup.life().await;
        gateway.ready(&["a"]).await;
        let (answered, asked) = ask(&open(gateway.url("/mcp")).await).await;
        assert_eq!(
            answered["content"][0]["text"], "Hello, Ada.",
            "stdio: {stdio}"
        );
        assert_eq!(asked, 1, "stdio: {stdio}");
        gateway.app.stop().await;
    }
}
