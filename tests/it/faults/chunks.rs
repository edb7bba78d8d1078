//! Bodies cut into tiny chunks: a small part of what is sent is the body, and no more than that is
//! held.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{Process, Setup, within};

/// Memory that may be in use beyond that of a gateway at rest, in KiB.
const FEW: u64 = 40 * 1024;
/// `limits.body`
const BODY: usize = 4 << 20;

/// The most memory that a process has had, in KiB.
fn peak(gateway: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A body of a call whose text is so long.
fn body(length: usize) -> String {
    let empty =
        json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"text": ""}}).to_string();
    empty.replace("\"\"", &format!("\"{}\"", "x".repeat(length - empty.len())))
}

/// The body in chunks of so many bytes, each with its size in so many digits.
fn chunked(body: &str, chunk: usize, digits: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for part in body.as_bytes().chunks(chunk) {
        out.extend_from_slice(format!("{:0digits$x}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

/// Posts a chunked body, and returns the answer with what followed it until the connection ended.
async fn post(base: &str, path: &str, chunks: &[u8], keeps: &str) -> String {
    let address = base.strip_prefix("http://").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nTransfer-Encoding: chunked\r\n{keeps}\r\n"
    );
    let mut answer = Vec::new();
    // The gateway may close while this is still sent.
    let sending = async {
        let _ = writer.write_all(head.as_bytes()).await;
        let _ = writer.write_all(chunks).await;
    };
    let reading = async {
        let _ = reader.read_to_end(&mut answer).await;
    };
    within("the end of the connection", async {
        tokio::join!(sending, reading)
    })
    .await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_body_in_tiny_chunks_holds_one_buffer_and_is_refused() {
    let gateway = Setup::new().spawn().await;
    let at_rest = peak(&gateway);
    // Few chunks with long sizes: a build without optimization takes long for each.
    for (length, digits) in [(46 * 1024, 400), (4 * 1024, 5000)] {
        let chunks = chunked(&body(length), 1, digits);
        assert!(chunks.len() > 4 * BODY + 64 * 1024);
        let answer = post(&gateway.base, "/mcp", &chunks, "").await;
        assert!(
            answer.starts_with("HTTP/1.1 413 "),
            "{length} {digits}: {answer}"
        );
        assert!(
            answer.contains("limits.body") && answer.contains("connection: close"),
            "{answer}"
        );
        assert!(
            peak(&gateway) < at_rest + FEW,
            "{} KiB over {at_rest}",
            peak(&gateway) - at_rest
        );
    }
    // Small chunks that a client may send.
    let chunks = chunked(&body(1 << 20), 64, 2);
    let answer = post(&gateway.base, "/mcp", &chunks, "Connection: close\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    assert!(!answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn the_operators_bodies_have_the_same_limit() {
    let gateway = Setup::new().spawn().await;
    let admin = gateway.admin_url().await;
    let chunks = chunked(&body(12 * 1024), 1, 100);
    let answer = post(&admin, "/api/v1/servers", &chunks, "Connection: close\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}
