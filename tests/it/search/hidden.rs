//! Servers of which a caller may use nothing: no text names them.

use moongate_mock::MockScript;
use serde_json::{Value, json};

use super::described;
use crate::harness::{ERAS, Era, McpClient, Setup, legacy, only, serve};

const KEY: &str = "key-number-1-0123456789";
const OTHER_KEY: &str = "key-number-2-0123456789";

fn one_tool(name: &str) -> MockScript {
    MockScript {
        tools: vec![described(name, "One tool")],
        ..only(legacy(), &[])
    }
}

/// Returns what an endpoint says of itself to a client with this key.
async fn introduction(url: &str, era: Era, key: &str) -> Value {
    let mut client = McpClient::with_key(url, era, Some(key)).await;
    match era {
        Era::Legacy => client.initialize().await.result(),
        Era::Modern => client
            .exchange("server/discover", json!({}))
            .await
            .result()
            .clone(),
    }
}

#[tokio::test]
async fn instructions_name_only_servers_that_the_caller_may_use() {
    let shop = serve(one_tool("list")).await;
    let payroll = serve(one_tool("list")).await;
    let gone = serve(one_tool("list")).await;
    let url = gone.url.clone();
    gone.stop().await;
    let setup = Setup::new()
        .http("shop", &shop.url)
        .http("payroll", &payroll.url)
        .http("vault", &url)
        .http("shop_two", &url)
        .with("servers.shop", "description = \"Issues of the shop\"")
        .with(
            "servers.payroll",
            "description = \"Salaries of all staff\"\ntitle = \"Pay of people\"",
        )
        .with("servers.vault", "description = \"Secrets of all staff\"")
        .with("views.found", "discovery = \"search\"")
        .with(
            "auth.keys.1",
            &format!("name = \"one\"\nkey = {KEY:?}\ntools = [\"shop*\", \"!*__secret\"]"),
        )
        .with(
            "auth.keys.2",
            &format!("name = \"two\"\nkey = {OTHER_KEY:?}"),
        );
    let gateway = setup.start().await;
    gateway.ready(&["shop", "payroll"]).await;
    for era in ERAS {
        for path in ["/mcp", "/mcp/found", "/mcp/payroll", "/mcp/vault"] {
            let said = introduction(&gateway.url(path), era, KEY).await.to_string();
            for hidden in ["payroll", "Salaries", "Pay of people", "vault", "Secrets"] {
                assert!(!said.contains(hidden), "{path}: {said}");
            }
            // A server that is not up may have tools that the key allows.
            assert_eq!(
                said.contains("shop_two"),
                ["/mcp", "/mcp/found"].contains(&path),
                "{path}: {said}"
            );
        }
        for path in ["/mcp", "/mcp/found"] {
            let said =
                introduction(&gateway.url(path), era, OTHER_KEY).await["instructions"].to_string();
            assert!(
                ["shop", "payroll", "vault"]
                    .iter()
                    .all(|name| said.contains(name)),
                "{path}: {said}"
            );
        }
        let said = introduction(&gateway.url("/mcp/payroll"), era, OTHER_KEY).await;
        assert_eq!(said["instructions"], "Salaries of all staff");
        let vault = McpClient::with_key(&gateway.url("/mcp/vault"), era, Some(KEY)).await;
        let listed = vault
            .exchange("tools/list", json!({}))
            .await
            .result()
            .to_string();
        assert!(!listed.contains("vault"), "{listed}");
        let client = McpClient::with_key(&gateway.url("/mcp/found"), era, Some(KEY)).await;
        let servers = client.call("list_servers", json!({})).await.result();
        let servers = servers["content"][0]["text"].as_str().unwrap().to_owned();
        assert!(
            servers.starts_with(
                "2 servers.\nshop: 1 tool, ready. Issues of the shop\nshop_two: 0 tools, "
            ),
            "{servers}"
        );
    }
}
