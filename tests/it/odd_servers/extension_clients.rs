//! Requests of extensions where several clients use a server, and outside of calls.

use serde_json::{Value, json};

use super::extended_server::ExtendedServer;
use crate::harness::{Era, EventStream, Gateway, McpClient, holds, within};

/// Question of the server's extension.
const QUESTION: &str = "com.example/question";

async fn client_of(gateway: &Gateway) -> McpClient {
    let mut client = McpClient::open(&gateway.url("/mcp/a"), Era::Legacy).await;
    client.initialize_with(json!({})).await;
    client
}

/// Begins a call in which the server asks, and waits until it did.
async fn begin(client: &McpClient) -> (EventStream, Value) {
    let params = json!({"name": "asking", "arguments": {"method": QUESTION}});
    let mut stream = EventStream::of(client.start(7, "tools/call", params).await);
    let asked = within("the client is asked", stream.until(QUESTION))
        .await
        .value;
    (stream, asked)
}

/// Answers with a name, and returns what the call says of it.
async fn end(client: &McpClient, (mut stream, asked): (EventStream, Value), name: &str) -> String {
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"from": name}});
    assert_eq!(client.post(answer.to_string()).await.status, 202);
    let ended = within("the call ends", stream.response()).await;
    ended["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn each_of_two_clients_is_asked_in_its_own_call() {
    let (_server, setup) = ExtendedServer::over_tcp_with(|_| ()).await;
    let gateway = setup.start().await;
    gateway.ready(&["a"]).await;
    let one = client_of(&gateway).await;
    let other = client_of(&gateway).await;
    for _ in 0..2 {
        let first = begin(&one).await;
        let second = begin(&other).await;
        assert!(
            end(&other, second, "the other")
                .await
                .contains(r#""from":"the other""#)
        );
        assert!(
            end(&one, first, "the first")
                .await
                .contains(r#""from":"the first""#)
        );
    }
}

#[tokio::test]
async fn a_server_that_announces_none_is_known_by_its_first_question() {
    let (_server, setup) = ExtendedServer::over_tcp_with(|announced| *announced = json!({})).await;
    let gateway = setup.start().await;
    gateway.ready(&["a"]).await;
    let one = client_of(&gateway).await;
    let other = client_of(&gateway).await;
    let first = begin(&one).await;
    let second = begin(&other).await;
    assert!(
        end(&other, second, "the other")
            .await
            .contains(r#""from":"the other""#)
    );
    assert!(
        end(&one, first, "the first")
            .await
            .contains(r#""from":"the first""#)
    );
}

#[tokio::test]
async fn a_sessions_own_connection_can_ask_outside_of_calls() {
    let (server, setup) = ExtendedServer::over_tcp_with(|_| ()).await;
    let mut gateway = setup.with("servers.a", "share = \"session\"").start().await;
    gateway.ready(&["a"]).await;
    let client = client_of(&gateway).await;
    let mut stream = client.listen().await;
    client
        .request("com.example/thing", json!({}))
        .await
        .result();
    let hello = || client.notify("notifications/com.example/hello", json!({"ask": QUESTION}));
    assert_eq!(hello().await, 202);
    let asked = within("the client is asked", stream.until(QUESTION))
        .await
        .value;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"from": "it"}});
    assert_eq!(client.post(answer.to_string()).await.status, 202);
    holds("the server has the answer", || {
        server
            .answers()
            .iter()
            .any(|got| got["result"]["from"] == "it")
    })
    .await;
    // A rule that comes later counts for the session that is open.
    gateway
        .change(|setup| setup.with("servers.a.tools", "deny = [\"x\"]"))
        .await;
    server.ask_on_all_connections(QUESTION);
    holds("it is refused", || {
        server
            .answers()
            .iter()
            .any(|got| got["error"]["code"] == -32601)
    })
    .await;
}
