//! HTTP/2 without TLS, by clients that know that it is spoken (prior knowledge).

use moongate_telemetry::DroppedItem;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::net::TcpStream;

use crate::harness::{
    Era, Gateway, HttpClient, McpClient, Setup, body_of, holds, legacy, modern, modern_meta, within,
};

async fn connect(gateway: &Gateway) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(gateway.app.addresses[0]).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    sender
}

async fn send(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> (StatusCode, String) {
    let response = within("an answer", sender.send_request(request))
        .await
        .unwrap();
    let status = response.status();
    let body = within("the body", response.into_body().collect())
        .await
        .unwrap()
        .to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn post(authority: &str, headers: &[(&str, &str)], body: String) -> Request<Full<Bytes>> {
    let mut request =
        Request::post(format!("http://{authority}/mcp")).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(Bytes::from(body))).unwrap()
}

#[tokio::test]
async fn a_session_over_one_connection() {
    let gateway = Setup::new().stdio("s", &legacy()).start().await;
    gateway.ready(&["s"]).await;
    // The operators' listener has its own.
    let others = gateway.app.metrics.clients.connections.get();
    let mut sender = connect(&gateway).await;
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"}});
    let request = post("localhost", &[], body_of(0, "initialize", params));
    let response = within("an answer", sender.send_request(request))
        .await
        .unwrap();
    let session = response.headers()["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let headers = [("mcp-session-id", session.as_str())];
    // The session's own stream and many calls, all at once.
    let get = Request::get("http://localhost/mcp")
        .header("mcp-session-id", &session)
        .header("accept", "text/event-stream");
    let stream = within(
        "a stream",
        sender.send_request(get.body(Full::default()).unwrap()),
    )
    .await
    .unwrap();
    assert_eq!(stream.status(), 200);
    let calls = (1..=300).map(|id| {
        let mut sender = sender.clone();
        let call = json!({"name": "s__echo", "arguments": {"n": id}});
        async move {
            send(
                &mut sender,
                post("localhost", &headers, body_of(id, "tools/call", call)),
            )
            .await
        }
    });
    for (n, (status, body)) in futures_util::future::join_all(calls)
        .await
        .into_iter()
        .enumerate()
    {
        assert!(
            status == 200 && body.contains(&format!("{{\\\"n\\\":{}}}", n + 1)),
            "{status} {body}"
        );
    }
    assert_eq!(gateway.app.metrics.clients.connections.get(), others + 1);
}

/// A client without any room for answers (its windows are empty) has calls that end all the same.
#[tokio::test]
async fn a_stalled_h2_reader_frees_its_permit() {
    for script in [legacy(), modern()] {
        let setup = Setup::new()
            .stdio("s", &script)
            .with("servers.s", "max_concurrency = 2");
        let gateway = setup
            .with("limits", "write_timeout = \"200ms\"")
            .start()
            .await;
        gateway.ready(&["s"]).await;
        let stream = TcpStream::connect(gateway.app.addresses[0]).await.unwrap();
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(0)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let mut meta = modern_meta();
        meta["progressToken"] = json!(1);
        let call = json!({"name": "s__progress", "arguments": {}, "_meta": meta});
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "s__progress"),
            ("accept", "application/json, text/event-stream"),
        ];
        let mut unread = Vec::new();
        for id in 0..4 {
            let request = post(
                "localhost",
                &headers,
                body_of(id, "tools/call", call.clone()),
            );
            let mut sender = sender.clone();
            unread.push(tokio::spawn(
                async move { sender.send_request(request).await },
            ));
        }
        holds("its calls have all places", || {
            gateway.app.metrics.calls.inflight.get() >= 2
        })
        .await;
        let client = gateway.client(Era::Legacy).await;
        for n in 0..4 {
            assert_eq!(
                client.call("s__echo", json!({"n": n})).await.text(),
                format!("{{\"n\":{n}}}")
            );
        }
        holds("it is counted", || {
            gateway
                .app
                .metrics
                .calls
                .dropped
                .get(DroppedItem::UnreadResponse)
                == 4
        })
        .await;
        for response in unread {
            let response = within("an answer", response).await.unwrap().unwrap();
            assert_eq!(response.headers()["content-type"], "text/event-stream");
        }
    }
}

#[tokio::test]
async fn host_and_authority_are_both_checked() {
    let gateway = Setup::new().start().await;
    let mut sender = connect(&gateway).await;
    let ping = || body_of(1, "ping", json!({}));
    for (authority, headers, refused) in [
        ("evil.test", &[][..], true),
        ("evil.test", &[("host", "localhost")], true),
        ("localhost", &[("host", "evil.test")], true),
        ("localhost", &[], false),
        ("127.0.0.1:80", &[], false),
    ] {
        let (status, body) = send(&mut sender, post(authority, headers, ping())).await;
        assert_eq!(status == 403, refused, "{authority} {headers:?}: {body}");
        assert_eq!(
            body.contains("host_not_allowed"),
            refused,
            "{authority} {headers:?}: {body}"
        );
    }
}

#[tokio::test]
async fn limits_end_one_connection_at_most() {
    let gateway = Setup::new().start().await;
    let mut sender = connect(&gateway).await;
    // More than a head may hold: refused, and the connection is of use afterwards, or is closed.
    let large = "x".repeat(100_000);
    let request = post("localhost", &[("x-large", &large)], String::new());
    match within("a refusal", sender.send_request(request)).await {
        Ok(response) => assert_eq!(response.status(), 431),
        Err(e) => assert!(!e.is_timeout(), "{e}"),
    }
    // Streams that are opened and dropped at once.
    let mut rapid = connect(&gateway).await;
    for _ in 0..2000 {
        let listening = rapid.send_request(post("localhost", &[], "x".repeat(10)));
        drop(listening);
        if rapid.is_closed() {
            break;
        }
    }
    drop(rapid);
    let mut other = connect(&gateway).await;
    let (status, _) = send(
        &mut other,
        Request::get("http://localhost/livez")
            .body(Full::default())
            .unwrap(),
    )
    .await;
    assert_eq!(status, 200);
    drop((sender, other));
    holds("nothing is left of them", || {
        gateway.app.metrics.clients.connections.get() == 0
    })
    .await;
    assert_eq!(gateway.app.metrics.calls.inflight.get(), 0);
}

const KEY: &str = "key-number-1-0123456789";

/// A client that pings all the time, and answers pings.
async fn pinging(gateway: &Gateway) -> (SendRequest<Full<Bytes>>, tokio::task::JoinHandle<()>) {
    let stream = TcpStream::connect(gateway.app.addresses[0]).await.unwrap();
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(hyper_util::rt::TokioTimer::new())
        .keep_alive_interval(Duration::from_millis(20))
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    (sender, tokio::spawn(async move { drop(connection.await) }))
}

fn keyed() -> Setup {
    Setup::new().with("auth.keys.1", &format!("name = \"one\"\nkey = {KEY:?}"))
}

#[tokio::test]
async fn a_connection_without_an_admitted_request_is_closed() {
    let gateway = keyed()
        .with("limits", "read_timeout = \"300ms\"")
        .start()
        .await;
    let ping = || post("localhost", &[], body_of(1, "ping", json!({})));
    let (_quiet, quiet_ends) = pinging(&gateway).await;
    let (mut knocking, knocking_ends) = pinging(&gateway).await;
    // A stream of somebody who has a key keeps its connection.
    let (mut listening, _stays) = pinging(&gateway).await;
    let authorization = format!("Bearer {KEY}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
        ("accept", "application/json, text/event-stream"),
    ];
    let wanted = json!({"notifications": {"toolsListChanged": true}, "_meta": modern_meta()});
    let request = post(
        "localhost",
        &headers,
        body_of(1, "subscriptions/listen", wanted),
    );
    let mut stream = within("a stream", listening.send_request(request))
        .await
        .unwrap();
    assert_eq!(stream.status(), 200);
    within("the first event", stream.body_mut().frame())
        .await
        .unwrap()
        .unwrap();
    within("the end of the one that says nothing", quiet_ends)
        .await
        .unwrap();
    within("the end of the one that has no key", async {
        while let Ok(response) = knocking.send_request(ping()).await {
            assert_eq!(response.status(), 401);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    within("and of its connection", knocking_ends)
        .await
        .unwrap();
    let (status, body) = send(
        &mut listening,
        post("localhost", &headers[..1], body_of(2, "ping", json!({}))),
    )
    .await;
    assert_ne!(status, 401, "{body}");
    gateway.app.stop().await;
}

#[tokio::test]
async fn unauthenticated_h2_connections_take_no_room_from_others() {
    let gateway = keyed()
        .with("limits", "connections = 4\nadmin_connections = 2")
        .start()
        .await;
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(pinging(&gateway).await);
    }
    // Neither those that serve a call, nor the operators.
    let client = McpClient::with_key(&gateway.url("/mcp"), Era::Modern, Some(KEY)).await;
    let mut stream = client.listen().await;
    for _ in 0..3 {
        idle.push(pinging(&gateway).await);
    }
    assert!(client.tools().await.is_empty());
    assert_eq!(
        HttpClient::new().get(&gateway.url("/healthz")).await.status,
        200
    );
    assert_eq!(gateway.admin("/readyz").await.status, 200);
    assert!(gateway.app.metrics.clients.connections.get() <= 4);
    assert!(
        gateway
            .app
            .metrics
            .calls
            .dropped
            .get(DroppedItem::IdleConnection)
            > 0
    );
    assert!(
        futures_util::FutureExt::now_or_never(stream.next()).is_none_or(|event| event.is_some()),
        "it stays"
    );
    // Where they are all of the admin listener, that makes room as well.
    let admin = gateway.app.admin.unwrap();
    let mut held = Vec::new();
    for _ in 0..6 {
        held.push(TcpStream::connect(admin).await.unwrap());
    }
    assert_eq!(
        HttpClient::new()
            .get(&format!("http://{admin}/readyz"))
            .await
            .status,
        200
    );
    assert!(gateway.app.metrics.clients.admin_connections.get() <= 2);
    gateway.app.stop().await;
}
