//! The other transports: HTTP+SSE, TCP, WebSocket.

use std::time::Duration;

use http_body_util::BodyExt as _;
use moongate_mock::{MockScript, Revision, serve_tcp, serve_ws};
use moongate_testing::HttpEndpoint;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::timeout;

use crate::mock::fixtures::{LONG, call, content, http, initialize, modern, read_events, request};

#[tokio::test]
async fn http_and_sse() {
    let mut script = MockScript::standard().speaking(&[Revision::V2024_11_05]);
    script.http.streamable = false;
    let server = http(script).await;
    let mut web = HttpEndpoint::new(&server.url);
    assert_eq!(web.post(&initialize("2025-11-25")).await.status(), 404);
    web.url = server.url.replace("/mcp", "/sse");
    assert_eq!(web.post(&initialize("2025-11-25")).await.status(), 405);
    let mut opened = web.send("GET", "", &[]).await.unwrap();
    let first = opened
        .body_mut()
        .frame()
        .await
        .unwrap()
        .unwrap()
        .into_data()
        .unwrap();
    let first = String::from_utf8(first.to_vec()).unwrap();
    let path = first
        .strip_prefix("event: endpoint\ndata: ")
        .unwrap()
        .trim_end();
    web.url = server.url.replace("/mcp", path);
    let mut events = read_events(opened);
    assert_eq!(web.post(&initialize("2025-11-25")).await.status(), 202);
    assert_eq!(
        events.message().await.unwrap()["result"]["protocolVersion"],
        "2024-11-05"
    );
    web.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    web.post(&call(1, "elicit", json!({}))).await;
    assert_eq!(events.message().await.unwrap()["result"]["isError"], true);
    web.post(&call(2, "sample", json!({}))).await;
    let ask = events.message().await.unwrap();
    web.post(
        &json!({"jsonrpc": "2.0", "id": ask["id"], "result": {"role": "assistant"}}).to_string(),
    )
    .await;
    assert_eq!(
        content(&events.message().await.unwrap()),
        r#"{"role":"assistant"}"#
    );
    drop(events);
    let gone = async {
        while web.post(&request(3, "ping", json!({}))).await.status() != 404 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, gone).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn lines_over_tcp() {
    let server = serve_tcp(MockScript::demo(), ([127, 0, 0, 1], 0).into(), None)
        .await
        .unwrap();
    let mut stream = BufReader::new(
        tokio::net::TcpStream::connect(server.addr.unwrap())
            .await
            .unwrap(),
    );
    stream
        .write_all(format!("{}\n", modern(1, "tools/list", json!({}), json!({}))).as_bytes())
        .await
        .unwrap();
    let mut line = String::new();
    timeout(LONG, stream.read_line(&mut line))
        .await
        .unwrap()
        .unwrap();
    let tools: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(tools["result"]["tools"][0]["name"], "echo");
}

#[tokio::test]
async fn websocket_handshakes_are_judged() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let http = moongate_mock::HttpRules {
        bearer: Some("k".into()),
        ..moongate_mock::HttpRules::default()
    };
    let server = serve_ws(
        MockScript {
            http,
            ..MockScript::demo()
        },
        ([127, 0, 0, 1], 0).into(),
        None,
    )
    .await
    .unwrap();
    assert_eq!(server.url, format!("ws://{}/mcp", server.addr.unwrap()));
    for (path, key, protocol, status) in [
        ("/mcp", "k", "x, mcp", 101),
        ("/mcp", "k", "x", 400),
        ("/mcp", "j", "mcp", 401),
        ("/", "k", "mcp", 404),
    ] {
        let mut stream = tokio::net::TcpStream::connect(server.addr.unwrap())
            .await
            .unwrap();
        let asked = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: \
             websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: \
             {protocol}\r\nauthorization: Bearer {key}\r\n\r\n"
        );
        stream.write_all(asked.as_bytes()).await.unwrap();
        let mut line = [0; 12];
        stream.read_exact(&mut line).await.unwrap();
        assert_eq!(
            String::from_utf8_lossy(&line),
            format!("HTTP/1.1 {status}"),
            "{path} {key} {protocol}"
        );
    }
}
