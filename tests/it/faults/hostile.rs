//! Dishonest requests: each is refused as the specification says, costs little, and leaves no
//! trace.

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{ERAS, Era, Gateway, McpClient, Setup, modern, serve, within};

async fn gateway() -> (moongate_mock::MockHandle, Gateway) {
    let mock = serve(modern()).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    (mock, gateway)
}

async fn still_serves(gateway: &Gateway) {
    for era in ERAS {
        let client = gateway.client(era).await;
        assert_eq!(
            client.call("a__add", json!({"a": 1, "b": 2})).await.text(),
            "3"
        );
    }
}

#[tokio::test]
async fn batches_are_refused_where_there_are_none_and_where_they_are_too_long() {
    let (mock, gateway) = gateway().await;
    mock.reset_record();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    for client in [
        gateway.client_at("2025-06-18").await,
        gateway.client_at("2025-11-25").await,
        gateway.client(Era::Modern).await,
    ] {
        for items in [0, 1, 10_000] {
            let reply = client
                .post(Value::Array(vec![ping.clone(); items]).to_string())
                .await;
            assert_eq!(reply.status, 400, "{items}");
            assert_eq!(reply.error()["code"], -32600, "{items}");
        }
    }
    // Only this revision has them; as many as limits.batch.
    let client = gateway.client_at("2025-03-26").await;
    for (items, status) in [(0, 400), (1, 200), (100, 200), (101, 400), (10_000, 400)] {
        let reply = client
            .post(Value::Array(vec![ping.clone(); items]).to_string())
            .await;
        assert_eq!(reply.status, status, "{items}: {reply:?}");
    }
    still_serves(&gateway).await;
}

#[tokio::test]
async fn bodies_that_are_too_large_or_no_json_are_refused() {
    let (_mock, gateway) = gateway().await;
    let client = gateway.client(Era::Modern).await;
    let large = vec![b' '; 5 << 20];
    let reply = client.post(large).await;
    assert_eq!(reply.status, 413, "{reply:?}");
    let message = reply.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("limits.body"), "{message}");
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":{}1{}}}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        (
            "no number",
            br#"{"jsonrpc":"2.0","id":NaN,"method":"ping"}"#.to_vec(),
        ),
        (
            "a key twice",
            br#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}"#.to_vec(),
        ),
        (
            "trailing bytes",
            br#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#.to_vec(),
        ),
        (
            "UTF-16",
            "{\"jsonrpc\":\"2.0\"}"
                .encode_utf16()
                .flat_map(u16::to_le_bytes)
                .collect(),
        ),
        ("a text", br#""ping""#.to_vec()),
    ];
    for (what, body) in cases {
        let reply = client.post(body).await;
        let code = reply.error()["code"].as_i64().unwrap();
        assert!(
            reply.status == 400 && (code == -32700 || code == -32600),
            "{what}: {reply:?}"
        );
    }
    // Depth alone isn't a reason to fail, but it must cost nothing.
    let reply = client.post(deep).await;
    assert!(
        reply.status == 400 || reply.status == 200 || reply.status == 404,
        "{reply:?}"
    );
    // Numbers that no parser of ours can hold pass as they are.
    let number = r#"{"n":1e400,"m":-0,"k":123456789012345678901234567890,"x":1.0}"#;
    let meta = crate::harness::modern_meta();
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"a__echo","arguments":{number},"_meta":{meta}}}}}"#
    );
    let extra = [
        ("mcp-method", "tools/call".to_owned()),
        ("mcp-name", "a__echo".to_owned()),
    ];
    let response = client.raw("POST", &extra, body).await;
    assert_eq!(response.status(), 200);
    still_serves(&gateway).await;
}

#[tokio::test]
async fn an_invalid_session_id_creates_no_session() {
    let (_mock, gateway) = gateway().await;
    let client = gateway.client(Era::Legacy).await;
    let sessions = gateway.app.metrics.clients.sessions.get();
    let with = |session: Option<&str>| McpClient {
        session: session.map(str::to_owned),
        ..client.clone()
    };
    let ping = || json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    assert_eq!(with(None).post(ping()).await.status, 200, "served alone");
    let forged = "x".repeat(43);
    for session in ["forged", forged.as_str(), "0"] {
        assert_eq!(
            with(Some(session)).post(ping()).await.status,
            404,
            "{session}"
        );
    }
    // One that is longer than any head may be is not even read.
    assert_eq!(raw(&gateway, &"x".repeat(10 << 20)).await, 431);
    assert_eq!(raw(&gateway, "\u{fc}").await, 400);
    let ended = gateway.client(Era::Legacy).await;
    assert!(
        ended
            .raw("DELETE", &[], "")
            .await
            .into_body()
            .collect()
            .await
            .is_ok()
    );
    assert_eq!(ended.post(ping()).await.status, 404);
    assert_eq!(gateway.app.metrics.clients.sessions.get(), sessions);
    still_serves(&gateway).await;
}

/// Sends a request with a session id as it is, and reads the status.
async fn raw(gateway: &Gateway, session: &str) -> u16 {
    let address = gateway.base.strip_prefix("http://").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: \
         application/json\r\nMcp-Session-Id: {session}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (mut reader, mut writer) = stream.into_split();
    // The other side may close before it has read all of it.
    tokio::spawn(async move {
        let _ = writer.write_all(request.as_bytes()).await;
        std::future::pending::<()>().await
    });
    let mut start = [0; 12];
    within("a status", reader.read_exact(&mut start))
        .await
        .unwrap();
    std::str::from_utf8(&start[9..]).unwrap().parse().unwrap()
}

#[tokio::test]
async fn idle_streams_are_held_and_calls_go_on() {
    let (_mock, gateway) = gateway().await;
    let mut streams = Vec::new();
    for n in 0..60 {
        let client = gateway.client(ERAS[n % 2]).await;
        streams.push(client.listen().await);
    }
    assert_eq!(gateway.app.metrics.clients.streams.get(), 60);
    still_serves(&gateway).await;
    drop(streams);
    crate::harness::holds("all of them are over", || {
        gateway.app.metrics.clients.streams.get() == 0
    })
    .await;
}
