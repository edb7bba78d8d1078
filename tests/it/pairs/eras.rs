//! Servers that speak both eras: in which one does a client meet them?

use std::fs::OpenOptions;

use moongate::app::GatewayApp;
use moongate_jsonrpc::json::ByteString;
use moongate_mock::{HttpRules, MockHandle, MockScript, Revision, serve_http_recording};
use moongate_model::ItemKind;
use moongate_testing::McpClient;
use moongate_testing::wait::holds;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::wire::rig;

/// What the server says of its caller: the revision that it is called at.
async fn met(client: &McpClient, server: &str) -> String {
    let answer = client
        .exchange_tool(&format!("{server}__whoami"), json!({}))
        .await;
    let text = answer.result()["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    serde_json::from_str::<Value>(&text).unwrap()["revision"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// A gateway with a server of each name: as a program and over HTTP, followed by more lines for
/// each.
async fn gateway(
    dir: &TempDir,
    script: &MockScript,
    servers: &[(&str, &str)],
) -> (GatewayApp, Vec<MockHandle>) {
    let mut serving = Vec::new();
    let file = dir.path().join("script.json");
    std::fs::write(&file, serde_json::to_string(script).unwrap()).unwrap();
    let mut text = "[gateway]\nadmin = false\ndrain = \"100ms\"\n".to_owned();
    for (name, lines) in servers {
        let record = dir.path().join(format!("{name}.record"));
        let reached = if name.starts_with("web") {
            let record = OpenOptions::new()
                .create(true)
                .append(true)
                .open(record)
                .unwrap();
            let address = "127.0.0.1:0".parse().unwrap();
            let web = serve_http_recording(script.clone(), address, Some(record), None)
                .await
                .unwrap();
            let url = json!(web.url);
            serving.push(web);
            format!("url = {url}")
        } else {
            let args = json!(["mock", file, "--stdio", "--record", record]);
            format!("command = {}\nargs = {args}", json!(rig::PROGRAM))
        };
        text.push_str(&format!("[servers.{name}]\n{reached}\n{lines}\n"));
    }
    let app = rig::start(dir, &text).await;
    for (name, _) in servers {
        let tool = ByteString::from(format!("{name}__whoami"));
        let find = || {
            app.gateway
                .snapshot()
                .find_exposed(ItemKind::Tools, &tool)
                .is_some()
        };
        holds("the server is in the catalogue", find).await;
    }
    (app, serving)
}

#[tokio::test]
async fn each_client_meets_a_server_of_both_eras_in_its_own_without_a_setting() {
    let dir = tempfile::tempdir().unwrap();
    let own = "share = \"session\"";
    let newest = "protocol = \"newest\"";
    let client = "protocol = \"client\"";
    let both = [
        ("pipe", ""),
        ("web", client),
        ("pipe_own", own),
        ("web_own", own),
    ];
    let servers = [
        both[0],
        both[1],
        both[2],
        both[3],
        ("web_newest", newest),
        ("pipe_newest", newest),
    ];
    let (app, _serving) = gateway(&dir, &MockScript::standard(), &servers).await;
    let url = format!("http://{}/mcp", app.addresses[0]);
    let can = json!({"elicitation": {}});
    let legacy = McpClient::connect("2025-06-18", &url, can.clone()).await;
    let modern = McpClient::connect("2026-07-28", &url, can).await;
    for (server, _) in &both {
        assert_eq!(met(&modern, server).await, "2026-07-28", "{server}");
        assert_eq!(met(&legacy, server).await, "2025-11-25", "{server}");
        assert_eq!(met(&modern, server).await, "2026-07-28", "{server}");
    }
    for (server, _) in &servers[4..] {
        assert_eq!(met(&legacy, server).await, "2026-07-28", "{server}");
    }
    app.stop().await;
}

/// Such a server serves clients of the legacy era request by request, and could not ask them for
/// anything.
#[tokio::test]
async fn a_server_that_keeps_no_sessions_is_met_in_the_era_without_them() {
    let dir = tempfile::tempdir().unwrap();
    let servers = [("web", ""), ("web_own", "share = \"session\"")];
    let http = HttpRules {
        session: false,
        ..HttpRules::default()
    };
    let (app, _serving) = gateway(
        &dir,
        &MockScript {
            http,
            ..MockScript::standard()
        },
        &servers,
    )
    .await;
    let url = format!("http://{}/mcp", app.addresses[0]);
    let client = McpClient::connect("2025-06-18", &url, json!({"elicitation": {}})).await;
    for (server, _) in servers {
        for _ in 0..3 {
            assert_eq!(met(&client, server).await, "2026-07-28", "{server}");
        }
        let received =
            std::fs::read_to_string(dir.path().join(format!("{server}.record"))).unwrap();
        assert_eq!(received.matches(r#""initialize""#).count(), 1, "{received}");
    }
    app.stop().await;
}

#[tokio::test]
async fn a_server_of_one_era_is_asked_for_the_other_once() {
    let dir = tempfile::tempdir().unwrap();
    let servers = [("pipe", ""), ("web", "")];
    let script = MockScript::standard().speaking(&[Revision::V2026_07_28]);
    let (app, _serving) = gateway(&dir, &script, &servers).await;
    let url = format!("http://{}/mcp", app.addresses[0]);
    let client = McpClient::connect("2025-06-18", &url, json!({"elicitation": {}})).await;
    for (server, _) in servers {
        for _ in 0..3 {
            assert_eq!(met(&client, server).await, "2026-07-28", "{server}");
        }
        let received =
            std::fs::read_to_string(dir.path().join(format!("{server}.record"))).unwrap();
        assert_eq!(received.matches(r#""initialize""#).count(), 1, "{received}");
    }
    app.stop().await;
}
