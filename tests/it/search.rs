//! Search mode: tools that find and call all others.

mod answers;
mod calls;
mod hidden;
mod lists;
mod slips;
mod states;
mod tokens;

use moongate_mock::{MockHandle, MockScript};
use moongate_testing::RpcAnswer;
use moongate_testing::messages::{LATEST_LEGACY, MODERN};
use serde_json::{Value, json};

use crate::harness::{Gateway, McpClient, Setup, serve};

/// Tools of search mode where there are only tools.
const META_TOOLS: [&str; 4] = ["search_tools", "describe_tool", "call_tool", "list_servers"];
/// Further ones where there are resources and prompts.
const OTHER_META_TOOLS: [&str; 4] = [
    "search_resources",
    "read_resource",
    "search_prompts",
    "get_prompt",
];
/// Revisions of clients: one of each era.
const CLIENTS: [&str; 2] = [LATEST_LEGACY, MODERN];

/// Starts a gateway in search mode with the server `a`.
async fn searching(script: MockScript, with: &[(&str, &str)]) -> (MockHandle, Gateway) {
    let mock = serve(script).await;
    let mut setup = Setup::new()
        .http("a", &mock.url)
        .with("gateway", "discovery = \"search\"");
    for (table, lines) in with {
        setup = setup.with(table, lines);
    }
    let gateway = setup.start().await;
    gateway.ready(&["a"]).await;
    (mock, gateway)
}

/// Connects a client that supports all input requests and tasks.
async fn able(gateway: &Gateway, revision: &'static str) -> McpClient {
    let mut capabilities = json!({"sampling": {}, "elicitation": {"form": {}}});
    if revision == MODERN {
        capabilities["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
    }
    McpClient::connect(revision, &gateway.url("/mcp"), capabilities).await
}

/// Calls a meta-tool and returns its text, which must be no error.
async fn ask(client: &McpClient, tool: &str, arguments: Value) -> String {
    let answer = client.exchange_tool(tool, arguments).await;
    assert!(answer.result()["isError"].is_null(), "{answer:?}");
    answer.text().to_owned()
}

/// Calls a meta-tool and returns the text of its failure.
async fn refused(client: &McpClient, tool: &str, arguments: Value) -> String {
    let answer = client.exchange_tool(tool, arguments).await;
    assert_eq!(answer.result()["isError"], true, "{answer:?}");
    answer.text().to_owned()
}

/// Calls a tool through `call_tool`.
async fn call(client: &McpClient, name: &str, arguments: Value) -> RpcAnswer {
    client
        .exchange_tool("call_tool", json!({"name": name, "arguments": arguments}))
        .await
}

/// Returns the names of a whole list, in order.
async fn names(client: &McpClient) -> Vec<String> {
    let answer = client.exchange("tools/list", json!({})).await;
    let tools = answer.result()["tools"].as_array().unwrap().clone();
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

fn described(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}
