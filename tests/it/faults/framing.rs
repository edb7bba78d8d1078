//! Servers whose HTTP is not what it should be, byte by byte, over a socket of their own.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{ERAS, Setup};

/// What a server writes for a call with an id.
type FrameWriter = Box<dyn Fn(u64) -> String + Send>;
type SharedFrameWriter = Arc<Mutex<FrameWriter>>;

fn sized(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn answer(id: &Value, result: &Value) -> String {
    sized(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
}

fn said(id: u64, text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
    )
}

/// A server of 2025-11-25 with one tool, which answers a call with the bytes that the test wants.
async fn raw() -> (String, SharedFrameWriter) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let written: SharedFrameWriter = Arc::new(Mutex::new(Box::new(|id| sized(&said(id, "fine")))));
    let shared = written.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, shared.clone()));
        }
    });
    (url, written)
}

async fn serve(stream: TcpStream, written: SharedFrameWriter) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        let mut length = 0;
        let mut verb = String::new();
        while stream.read_line(&mut line).await.ok()? > 2 {
            if verb.is_empty() {
                verb = line.split(' ').next()?.to_owned();
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().ok()?;
            }
            line.clear();
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let id = &message["id"];
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        });
        let text = match message["method"].as_str() {
            _ if verb != "POST" => "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
            Some("initialize") => answer(id, &hello),
            Some("tools/list") => answer(
                id,
                &json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
            ),
            Some("tools/call") => written.lock().unwrap()(id.as_u64()?),
            _ if id.is_null() => "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_owned(),
            _ => answer(id, &json!({})),
        };
        stream.write_all(text.as_bytes()).await.ok()?;
    }
}

#[tokio::test]
async fn an_ambiguous_response_fails_its_call_only() {
    let (url, written) = raw().await;
    let gateway = Setup::new()
        .http("a", &url)
        .with("servers.a", "protocol = \"2025-11-25\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        for (spell, why) in wrong() {
            *written.lock().unwrap() = spell;
            let failure = client.call("a__t", json!({})).await.failure();
            assert!(
                failure.contains("Server \"a\"") && failure.contains(why),
                "{era:?}, {why}: {failure}"
            );
            *written.lock().unwrap() = Box::new(|id| sized(&said(id, "fine")));
            assert_eq!(
                client.call("a__t", json!({})).await.text(),
                "fine",
                "{era:?} after {why}"
            );
        }
    }
}

fn chunked(coding: &str, rest: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: {coding}\r\n{rest}"
    )
}

fn wrong() -> Vec<(FrameWriter, &'static str)> {
    let with = |header: &'static str| {
        move |_| sized("{}").replacen("\r\n", &format!("\r\n{header}\r\n"), 1)
    };
    // For whoever calls next, with the id that its request will have.
    let smuggled = |id| {
        chunked("chunked", "Content-Length: 3\r\n\r\n0\r\n\r\n") + &sized(&said(id + 1, "smuggled"))
    };
    vec![
        (
            Box::new(smuggled),
            "it has both a Transfer-Encoding and a Content-Length",
        ),
        (
            Box::new(with("Content-Length: 9")),
            "it has conflicting Content-Lengths",
        ),
        (
            Box::new(with("A: b\r\n c: d")),
            "a header has an invalid name",
        ),
        (
            Box::new(|_| chunked("chunked", "\r\n2\n{}\r\n0\r\n\r\n")),
            "a chunk size ends in a bare line feed",
        ),
        (
            Box::new(|_| chunked("gzip, chunked", "\r\n")),
            "its Transfer-Encoding is not chunked",
        ),
        (
            Box::new(|_| format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(70 << 10))),
            "its head is longer than 64 KiB",
        ),
        (
            Box::new(|_| "SSH-2.0-server\r\n".to_owned()),
            "it does not start like an HTTP/1 response",
        ),
    ]
}

#[tokio::test]
async fn a_second_response_on_a_stream_is_dropped() {
    let (url, written) = raw().await;
    let gateway = Setup::new()
        .http("a", &url)
        .with("servers.a", "protocol = \"2025-11-25\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    *written.lock().unwrap() =
        Box::new(|id| sized(&said(id, "own")) + &sized(&said(id + 1, "smuggled")));
    for era in ERAS {
        let client = gateway.client(era).await;
        for _ in 0..5 {
            assert_eq!(
                client.call("a__t", json!({})).await.text(),
                "own",
                "{era:?}"
            );
        }
    }
}

#[tokio::test]
async fn every_encoding_of_a_response_is_understood() {
    let (url, written) = raw().await;
    let gateway = Setup::new()
        .http("a", &url)
        .with("servers.a", "protocol = \"2025-11-25\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Wait\r\nA: b\r\n\r\n";
    let spellings: [fn(&str) -> String; 4] = [
        |body| sized(body).replacen("\r\n", "\r\nConnection: close\r\n", 1),
        |body| sized(body).replace("HTTP/1.1", "HTTP/1.0"),
        |body| {
            chunked(
                "Chunked",
                &format!(
                    "\r\n{:X};a=\"b\"\r\n{body}\r\n0 \r\nA: b\r\n\r\n",
                    body.len()
                ),
            )
        },
        |body| {
            let byte_by_byte: String = body.chars().map(|c| format!("1\r\n{c}\r\n")).collect();
            chunked("chunked", &format!("\r\n{byte_by_byte}0\r\n\r\n"))
        },
    ];
    for (n, spelling) in spellings.into_iter().enumerate() {
        *written.lock().unwrap() =
            Box::new(move |id| format!("{interim}{}", spelling(&said(id, "fine"))));
        for era in ERAS {
            let client = gateway.client(era).await;
            for _ in 0..3 {
                assert_eq!(
                    client.call("a__t", json!({})).await.text(),
                    "fine",
                    "{era:?}, spelling {n}"
                );
            }
        }
    }
}
