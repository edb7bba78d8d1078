//! Extensions of the protocol: announced, declared, and the pages of apps.

use std::sync::Arc;

use moongate_testing::McpClient;
use serde_json::{Value, json};

use crate::pairs::cell::MatrixCell;
use crate::pairs::rig::{PAGE, PANEL_TOOL};

const UI: &str = "io.modelcontextprotocol/ui";

fn html() -> Value {
    json!({"mimeTypes": ["text/html;profile=mcp-app"]})
}

pub(crate) async fn extensions_are_announced(cell: Arc<MatrixCell>) {
    let opened = async |url: &str| {
        let client = McpClient::new(cell.client, url, json!({}));
        match cell.modern_client() {
            true => client.exchange("server/discover", json!({})).await,
            false => client.negotiate(cell.client).await,
        }
    };
    let answer = opened(&cell.rig.url).await;
    let capabilities = &answer.result()["capabilities"];
    // What works there. The methods of others are not known to policy.
    assert_eq!(capabilities["extensions"][UI], json!({}), "{answer:?}");
    assert!(
        capabilities["extensions"]["com.example/odd"].is_null(),
        "{answer:?}"
    );
    assert!(capabilities["experimental"].is_null(), "{answer:?}");
    let own = cell
        .rig
        .url
        .replace("/mcp", "/mcp/aside")
        .replace("/sse", "/sse/aside");
    let answer = opened(&own).await;
    assert!(
        answer
            .raw_result()
            .contains(r#""com.example/odd":{"says":"aside","n":1.0}"#),
        "{answer:?}"
    );
}

pub(crate) async fn what_a_client_declares_reaches_its_servers(cell: Arc<MatrixCell>) {
    let own = json!({"extensions": {UI: html(), "com.example/odd": {"n": 1.0}}});
    let client = McpClient::connect(cell.client, &cell.rig.url, own.clone()).await;
    client
        .exchange_tool("main__echo", json!({"declared": true}))
        .await;
    client.exchange_tool("own__echo", json!({})).await;
    let opened = cell.rig.main.of("initialize");
    if !cell.modern_server() {
        // What all clients share declares what some may have; it is not the caller's.
        let declared = &opened.last().unwrap()["params"]["capabilities"]["extensions"];
        assert_eq!(*declared, json!({UI: html()}), "{opened:?}");
        // A connection for each session declares what its own client did.
        let opened = cell.rig.own.of("initialize");
        let declares =
            |message: &Value| message["params"]["capabilities"]["extensions"] == own["extensions"];
        assert!(opened.iter().any(declares), "{opened:?}");
        return;
    }
    assert!(
        opened.len() <= 1,
        "it is tried once in the era of its legacy clients: {opened:?}"
    );
    let meta = |message: &Value| {
        message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone()
    };
    let call: Value = serde_json::from_str(cell.rig.main.calls("echo").last().unwrap()).unwrap();
    assert_eq!(meta(&call)["extensions"], own["extensions"], "{call}");
    // Lists are taken for all clients.
    let lists = cell.rig.main.of("tools/list");
    assert!(
        !lists.is_empty()
            && lists
                .iter()
                .all(|list| meta(list)["extensions"][UI] == html()),
        "{lists:?}"
    );
}

pub(crate) async fn pages_of_apps_are_read_from_their_servers(cell: Arc<MatrixCell>) {
    let client = McpClient::connect(
        cell.client,
        &cell.rig.url,
        json!({"extensions": {UI: html()}}),
    )
    .await;
    let list = client.exchange("tools/list", json!({})).await;
    let main = cell
        .listed(PANEL_TOOL)
        .replace(r#""name":"panel""#, r#""name":"main__panel""#);
    assert!(
        list.raw_result().contains(&main),
        "respelled: {}",
        list.raw_result()
    );
    let tools = list.result()["tools"].as_array().unwrap();
    let own = &tools
        .iter()
        .find(|tool| tool["name"] == "own__panel")
        .unwrap()["_meta"];
    // It must begin as the page of an app does.
    let wrapped = "ui://moongate/own/panel/page.html";
    let want = json!({"x": 1.0, "ui": {"visibility": ["model"], "resourceUri": wrapped},
        "ui/resourceUri": wrapped});
    assert_eq!(*own, want);
    for (uri, text) in [(PAGE, "main's page"), (wrapped, "own's page")] {
        let read = client.exchange("resources/read", json!({"uri": uri})).await;
        let contents = &read.result()["contents"][0];
        assert_eq!(contents["uri"], json!(uri));
        assert_eq!(contents["text"], json!(text));
        assert_eq!(contents["mimeType"], "text/html;profile=mcp-app");
    }
    let resources = client.exchange("resources/list", json!({})).await;
    assert!(
        !resources.raw_result().contains("ui://"),
        "no server lists it: {resources:?}"
    );
    // On the server's own endpoint it is the server's own.
    let client = McpClient::connect(
        cell.client,
        &cell
            .rig
            .url
            .replace("/mcp", "/mcp/own")
            .replace("/sse", "/sse/own"),
        json!({}),
    )
    .await;
    let list = client.exchange("tools/list", json!({})).await;
    assert!(
        list.raw_result().contains(&cell.listed(PANEL_TOOL)),
        "{}",
        list.raw_result()
    );
    let read = client
        .exchange("resources/read", json!({"uri": PAGE}))
        .await;
    assert_eq!(read.result()["contents"][0]["uri"], json!(PAGE));
    assert_eq!(read.result()["contents"][0]["text"], "own's page");
}
