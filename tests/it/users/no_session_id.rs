//! Clients that do not send their session id back, as claude.ai was seen to do.

use moongate_mock::MockHandle;
use serde_json::json;

use crate::harness::{Era, Gateway, McpClient, Setup, body_of, legacy, serve};

/// Opens a session with the key of this number, and forgets the session's id.
async fn forgetful(gateway: &Gateway, key: usize) -> McpClient {
    let key = format!("mg_key_{key}_0123456789");
    let url = gateway.url("/mcp");
    let mut client = McpClient::with_key(&url, Era::Legacy, Some(&key)).await;
    let able = json!({"elicitation": {}, "sampling": {}, "roots": {}});
    client.initialize_with(able).await;
    assert!(client.session.take().is_some(), "initialize opens one");
    client
}

async fn with_two_keys(mock: &MockHandle, options: &str) -> Gateway {
    let key = |n: usize| format!("name = \"key{n}\"\nkey = \"mg_key_{n}_0123456789\"");
    let gateway = Setup::new()
        .with("auth.keys.1", &key(1))
        .with("auth.keys.2", &key(2))
        .http("a", &mock.url)
        .with("servers.a", options)
        .start()
        .await;
    gateway.ready(&["a"]).await;
    gateway
}

#[tokio::test]
async fn requests_without_a_session_id_are_served_alone() {
    let mock = serve(legacy()).await;
    let gateway = with_two_keys(&mock, "").await;
    let client = forgetful(&gateway, 1).await;
    let sessions = gateway.app.metrics.clients.sessions.get();
    for round in 0..30 {
        assert!(client.tools().await.contains(&"a__echo".to_owned()));
        let reply = client.call("a__echo", json!({"round": round})).await;
        assert_eq!(reply.text(), json!({"round": round}).to_string());
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(client.post(ready.to_string()).await.status, 202);
    }
    for (revision, status) in [("2025-06-18", 200), ("1999-12-31", 400)] {
        let other = McpClient {
            revision,
            ..client.clone()
        };
        let list = body_of(1, "tools/list", json!({}));
        assert_eq!(other.post(list).await.status, status, "{revision}");
    }
    assert_eq!(client.raw("GET", &[], "").await.status(), 405);
    assert_eq!(client.raw("DELETE", &[], "").await.status(), 400);
    assert_eq!(gateway.app.metrics.clients.sessions.get(), sessions);
}

#[tokio::test]
async fn notifications_without_a_session_id_reach_no_server() {
    let mock = serve(legacy()).await;
    let gateway = with_two_keys(&mock, "").await;
    let client = forgetful(&gateway, 1).await;
    mock.reset_record();
    let notices = [
        "notifications/roots/list_changed",
        "notifications/cancelled",
        "notifications/of-nobody",
    ];
    for method in notices {
        let params = json!({"requestId": 1});
        let notice = json!({"jsonrpc": "2.0", "method": method, "params": params});
        assert_eq!(
            client.post(notice.to_string()).await.status,
            202,
            "{method}"
        );
    }
    assert_eq!(client.call("a__echo", json!({})).await.text(), "{}");
    for method in notices {
        assert!(mock.last_request(method).is_none(), "{method}");
    }
}

#[tokio::test]
async fn a_client_without_a_session_id_is_not_asked_and_keeps_nothing() {
    let mock = serve(legacy()).await;
    let gateway = with_two_keys(&mock, "").await;
    let client = forgetful(&gateway, 1).await;
    let reply = client.call("a__elicit", json!({})).await;
    assert_eq!(reply.messages().len(), 1, "no question: {reply:?}");
    for (method, params) in [
        ("logging/setLevel", json!({"level": "debug"})),
        ("resources/subscribe", json!({"uri": "mock://watched"})),
        ("resources/unsubscribe", json!({"uri": "mock://watched"})),
    ] {
        let refused = client.request(method, params).await;
        assert_eq!(refused.error()["code"], -32600, "{method}");
        let message = refused.error()["message"].to_string();
        assert!(message.contains("Mcp-Session-Id"), "{message}");
    }
}

#[tokio::test]
async fn servers_that_keep_clients_apart_take_the_key_for_a_missing_session() {
    for share in ["session", "principal"] {
        let mock = serve(legacy()).await;
        let gateway = with_two_keys(&mock, &format!("share = {share:?}")).await;
        let mut seen = Vec::new();
        for key in [1, 2, 1] {
            let client = forgetful(&gateway, key).await;
            let me = client.call("a__whoami", json!({})).await.text();
            let me: serde_json::Value = serde_json::from_str(&me).unwrap();
            seen.push(me["session"].to_string());
        }
        assert_eq!(seen[0], seen[2], "{share}: one key has one connection");
        assert_ne!(seen[0], seen[1], "{share}: another key has another");
    }
}
