//! TLS on the listener: versions by ALPN, certificates replaced while it runs, and what is refused.

use moongate_telemetry::Limit;
use std::net::SocketAddr;
use std::path::Path;

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::net::TcpStream;

use crate::harness::tls::{Authority, Pair, connect, shown};
use crate::harness::{Gateway, Setup, body_of, holds, legacy, modern_meta, within};

fn secured(setup: Setup, more: &str) -> Setup {
    let cert = setup.path("cert.pem");
    let key = setup.path("key.pem");
    let tls = format!("tls = {{ cert = {cert:?}, key = {key:?}{more} }}");
    setup.with("gateway", &tls)
}

async fn started(pair: &Pair) -> Gateway {
    let setup = secured(Setup::new().stdio("s", &legacy()), "");
    pair.write(setup.path("x").parent().unwrap());
    let gateway = setup.start().await;
    gateway.ready(&["s"]).await;
    gateway
}

fn call(version: Version) -> Request<Full<Bytes>> {
    let params = json!({"name": "s__echo", "arguments": {"n": 1}, "_meta": modern_meta()});
    let uri = if version == Version::HTTP_2 {
        "https://localhost/mcp"
    } else {
        "/mcp"
    };
    let mut request = Request::post(uri).version(version);
    if version != Version::HTTP_2 {
        request = request.header("host", "localhost");
    }
    request
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "s__echo")
        .body(Full::new(Bytes::from(body_of(1, "tools/call", params))))
        .unwrap()
}

#[tokio::test]
async fn both_versions_of_http_by_alpn() {
    let authority = Authority::new("ours");
    let gateway = started(&authority.sign()).await;
    let address = gateway.app.addresses[0];
    let stream = connect(address, authority.client(&["h2", "http/1.1"], None))
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let calls = (0..50)
        .map(|_| sender.send_request(call(Version::HTTP_2)))
        .collect::<Vec<_>>();
    for response in within("the answers", futures_util::future::join_all(calls)).await {
        let body = response
            .unwrap()
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes();
        assert!(
            String::from_utf8_lossy(&body).contains(r#"{\"n\":1}"#),
            "{body:?}"
        );
    }
    let stream = connect(address, authority.client(&["http/1.1"], None))
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let response = within("an answer", sender.send_request(call(Version::HTTP_11)))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn a_new_pair_is_taken_and_a_bad_one_changes_nothing() {
    let authority = Authority::new("ours");
    let first = authority.sign();
    let second = authority.sign();
    let gateway = started(&first).await;
    let address = gateway.app.addresses[0];
    let old = connect(address, authority.client(&["http/1.1"], None))
        .await
        .unwrap();
    assert_eq!(shown(address, &authority).await, first.certificate);
    assert!(
        gateway
            .metric("moongate_tls_not_after_seconds")
            .await
            .unwrap()
            > 1e9
    );
    let dir = gateway.dir.path();
    // Half of it: what is seen between the two writes of whoever renews.
    std::fs::write(dir.join("cert.pem"), &second.pem).unwrap();
    for _ in 0..3 {
        gateway.app.reload_certificate().await;
        assert_eq!(shown(address, &authority).await, first.certificate);
    }
    let reloads = async |outcome: &str| {
        gateway
            .metric(&format!(
                "moongate_tls_reloads_total{{outcome=\"{outcome}\"}}"
            ))
            .await
            .unwrap_or(0.0)
    };
    assert_eq!(reloads("refused").await, 1.0, "told once");
    assert_eq!(reloads("loaded").await, 0.0, "told once");
    second.write(dir);
    gateway.app.reload_certificate().await;
    gateway.app.reload_certificate().await;
    assert_eq!(shown(address, &authority).await, second.certificate);
    assert_eq!(reloads("refused").await, 1.0);
    assert_eq!(reloads("loaded").await, 1.0);
    std::fs::remove_file(dir.join("key.pem")).unwrap();
    gateway.app.reload_certificate().await;
    assert_eq!(shown(address, &authority).await, second.certificate);
    // Who was connected before is served on.
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(old))
        .await
        .unwrap();
    tokio::spawn(connection);
    assert_eq!(
        within("an answer", sender.send_request(call(Version::HTTP_11)))
            .await
            .unwrap()
            .status(),
        200
    );
}

/// Fault F30: whoever stops in the middle of a handshake stops nobody else.
#[tokio::test]
async fn a_handshake_that_never_ends_holds_up_nobody() {
    let authority = Authority::new("ours");
    let setup = secured(Setup::new(), "").with("limits", "read_timeout = \"300ms\"");
    authority.sign().write(setup.path("x").parent().unwrap());
    let gateway = setup.start().await;
    let address = gateway.app.addresses[0];
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    connect(address, authority.client(&["h2"], None))
        .await
        .unwrap();
    let refused = || gateway.app.metrics.calls.refused.get(Limit::TlsHandshake);
    holds("they are given up", || refused() == 20).await;
    holds("and closed", || {
        gateway.app.metrics.clients.connections.get() == 0
    })
    .await;
    // Plain HTTP at a port that speaks TLS.
    let reply = tokio::time::timeout(crate::harness::LONG, plain(address))
        .await
        .unwrap();
    assert!(reply.is_err());
}

async fn plain(address: SocketAddr) -> Result<(), hyper::Error> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    sender
        .send_request(call(Version::HTTP_11))
        .await
        .map(|_| ())
}

#[tokio::test]
async fn with_authorities_of_clients_only_theirs_come_in() {
    let ours = Authority::new("ours");
    let clients = Authority::new("clients");
    let strangers = Authority::new("strangers");
    let setup = Setup::new();
    let file = setup.path("clients.pem");
    std::fs::write(&file, &clients.pem).unwrap();
    let setup = secured(setup, &format!(", client_ca = {file:?}"));
    ours.sign().write(setup.path("x").parent().unwrap());
    let gateway = setup.start().await;
    let address = gateway.app.addresses[0];
    let theirs = clients.sign();
    let other = strangers.sign();
    for (own, fine) in [(Some(&theirs), true), (Some(&other), false), (None, false)] {
        let answered = async {
            let stream = connect(address, ours.client(&["http/1.1"], own))
                .await
                .ok()?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream))
                    .await
                    .ok()?;
            tokio::spawn(connection);
            let request = Request::get("/livez")
                .header("host", "localhost")
                .body(Full::<Bytes>::default())
                .unwrap();
            sender.send_request(request).await.ok()
        };
        assert_eq!(within("an answer or none", answered).await.is_some(), fine);
    }
}

#[tokio::test]
async fn files_that_cannot_be_used_are_one_clear_error_each() {
    let authority = Authority::new("ours");
    let one = authority.sign();
    let other = authority.sign();
    let said = |prepare: &dyn Fn(&Path)| {
        let setup = secured(Setup::new(), "");
        one.write(setup.path("x").parent().unwrap());
        prepare(setup.path("x").parent().unwrap());
        let problems = setup.load().unwrap_err();
        assert_eq!(problems.errors.len(), 1, "{problems}");
        problems.to_string()
    };
    let missing = said(&|dir| std::fs::remove_file(dir.join("cert.pem")).unwrap());
    assert!(
        missing.contains("gateway.tls.cert") && missing.contains("cannot be read"),
        "{missing}"
    );
    let mismatch =
        said(&|dir| std::fs::write(dir.join("key.pem"), other.key.serialize_pem()).unwrap());
    assert!(
        mismatch.contains("gateway.tls.key")
            && mismatch.contains("is not the key of the certificate"),
        "{mismatch}"
    );
    let empty = said(&|dir| std::fs::write(dir.join("cert.pem"), "").unwrap());
    assert!(empty.contains("contains no PEM certificate"), "{empty}");
    let key = said(&|dir| std::fs::write(dir.join("key.pem"), "not a key").unwrap());
    assert!(key.contains("contains no usable PEM private key"), "{key}");
}
