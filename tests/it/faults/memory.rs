//! Memory: what clients and servers make the gateway hold stays within `limits.memory`, and others
//! are still served.

use moongate_mock::{HttpRules, MockScript, Revision, serve_tcp, serve_ws};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::limits::keys;
use crate::harness::{ERAS, Era, McpClient, Process, Setup, legacy, loopback, serve, until};

const MIB: usize = 1 << 20;
/// What `limits.memory` is in these tests, and what the process may take in all, in MiB.
const LIMIT: usize = 256;
const RESIDENT_MAX: usize = 320;

fn limited(setup: Setup) -> Setup {
    keys(setup).with(
        "limits",
        &format!("memory = \"{LIMIT}MiB\"\nconnections = 2000\nwrite_timeout = \"5m\""),
    )
}

/// The most that the process had resident until now, in MiB.
fn peak(gateway: &Process) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim()
        .trim_end_matches(" kB")
        .trim()
        .parse::<usize>()
        .unwrap()
        / 1024
}

async fn metric(gateway: &Process, series: &str) -> Option<f64> {
    let text = gateway.admin("/metrics").await.text_body();
    text.lines()
        .find_map(|line| line.strip_prefix(series))?
        .trim()
        .parse()
        .ok()
}

fn head(gateway: &Process, length: &str) -> String {
    let address = gateway.base.strip_prefix("http://").unwrap();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer \
         mg_one_0123456789\r\nContent-Type: \
application/json\r\nAccept: application/json, text/event-stream\r\n{length}\r\n\r\n"
    )
}

async fn connect(gateway: &Process) -> TcpStream {
    TcpStream::connect(gateway.base.strip_prefix("http://").unwrap())
        .await
        .unwrap()
}

/// Another key's small calls are answered at once.
async fn others_are_served(gateway: &Process) {
    for era in ERAS {
        let other = McpClient::with_key(&gateway.mcp(), era, Some("mg_two_0123456789")).await;
        assert_eq!(
            other.call("a__add", json!({"a": 1, "b": 2})).await.text(),
            "3"
        );
    }
}

/// Begins a body of 4 MiB, and sends all but its last byte. Returns the connection, and what came
/// back meanwhile.
async fn begin_body(mut stream: TcpStream, head: String, is_chunked: bool) -> (TcpStream, String) {
    let piece = vec![b' '; 64 * 1024];
    let _ = stream.write_all(head.as_bytes()).await;
    for _ in 0..4 * MIB / piece.len() - 1 {
        if is_chunked {
            let _ = stream
                .write_all(format!("{:x}\r\n", piece.len()).as_bytes())
                .await;
        }
        if stream.write_all(&piece).await.is_err() {
            break;
        }
        if is_chunked {
            let _ = stream.write_all(b"\r\n").await;
        }
    }
    let mut answer = vec![0; 2048];
    let wait = std::time::Duration::from_millis(300);
    let read = tokio::time::timeout(wait, stream.read(&mut answer))
        .await
        .ok()
        .and_then(Result::ok)
        .unwrap_or(0);
    (
        stream,
        String::from_utf8_lossy(&answer[..read]).into_owned(),
    )
}

#[tokio::test]
async fn bodies_that_begin_together_stay_within_the_memory_limit() {
    for length in ["Content-Length: 4194304", "Transfer-Encoding: chunked"] {
        let server = serve(legacy()).await;
        let gateway = limited(Setup::new()).http("a", &server.url).spawn().await;
        let mut bodies = JoinSet::new();
        for _ in 0..150 {
            let stream = connect(&gateway).await;
            let head = head(&gateway, length);
            bodies.spawn(begin_body(stream, head, length.contains("chunked")));
        }
        let begun = bodies.join_all().await;
        let refused = begun
            .iter()
            .filter(|(_, answer)| answer.contains("limits.memory"))
            .count();
        let held = begun.iter().filter(|(_, answer)| answer.is_empty()).count();
        assert!(refused > 50, "{length}: {refused} refused, {held} held");
        assert!(
            held > 10,
            "{length}: {held} held: {:?}",
            begun.iter().find(|(_, answer)| !answer.is_empty())
        );
        others_are_served(&gateway).await;
        assert!(
            peak(&gateway) < RESIDENT_MAX,
            "{length}: {} MiB",
            peak(&gateway)
        );
        drop(begun);
        until("all is given back", || async {
            (metric(
                &gateway,
                "moongate_memory_reserved_bytes{holder=\"clients\"}",
            )
            .await
                == Some(0.0))
            .then_some(())
        })
        .await;
    }
}

/// Script of a legacy server with a tool whose results have 12 MiB.
fn large_results() -> MockScript {
    let mut script = legacy();
    let result = json!({"content": [{"type": "text", "text": "x".repeat(12 * MIB)}]});
    let flow = serde_json::from_value(json!({"steps": [], "result": result})).unwrap();
    script.flows.insert("large".to_owned(), flow);
    script
        .tools
        .push(json!({"name": "large", "inputSchema": {"type": "object"}}));
    script
}

/// Calls the tool with large results, and reads nothing of the answer.
async fn leave_unread(gateway: &Process, id: usize) -> TcpStream {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "b__large", "arguments": {}, "_meta": meta});
    let body =
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string();
    let extra = format!(
        "Content-Length: {}\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: \
         tools/call\r\nMcp-Name: b__large",
        body.len()
    );
    let mut stream = connect(gateway).await;
    stream
        .write_all(format!("{}{body}", head(gateway, &extra)).as_bytes())
        .await
        .unwrap();
    stream
}

async fn are_ready(gateway: &Process) {
    until("both servers are ready", || async {
        let is_ready = async |server| gateway.status(server).await["state"] == "ready";
        (is_ready("a").await && is_ready("b").await).then_some(())
    })
    .await;
}

/// Results that nobody reads count for their server.
#[tokio::test]
async fn results_that_nobody_reads_stay_within_the_memory_limit() {
    let large = serve(large_results()).await;
    let small = serve(legacy()).await;
    let gateway = limited(Setup::new())
        .http("b", &large.url)
        .http("a", &small.url)
        .spawn()
        .await;
    are_ready(&gateway).await;
    let mut unread = Vec::new();
    let refused = async || {
        metric(&gateway, "moongate_refused_total{limit=\"memory\"}")
            .await
            .unwrap_or_default()
    };
    for id in 0..40 {
        unread.push(leave_unread(&gateway, id).await);
    }
    until("some are refused", || async {
        (refused().await > 5.0).then_some(())
    })
    .await;
    // One after the other, until what is held leaves no room for one more.
    for id in 40..60 {
        let before = refused().await;
        unread.push(leave_unread(&gateway, id).await);
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        if refused().await > before {
            break;
        }
    }
    others_are_served(&gateway).await;
    // Answers that are not read for a second end where they leave no room for one that is.
    let reader = McpClient::with_key(&gateway.mcp(), Era::Modern, Some("mg_two_0123456789")).await;
    until("another key gets a large result", || async {
        let reply = reader.call("b__large", json!({})).await;
        (reply.body.len() > 12 * MIB).then_some(())
    })
    .await;
    assert!(peak(&gateway) < RESIDENT_MAX, "{} MiB", peak(&gateway));
    drop(unread);
}

/// The same over the transports that share one connection.
#[tokio::test]
async fn results_that_nobody_reads_stay_within_the_memory_limit_over_each_transport() {
    let http = HttpRules {
        streamable: false,
        ..HttpRules::default()
    };
    let events = serve(MockScript {
        http,
        ..large_results().speaking(&[Revision::V2024_11_05])
    })
    .await;
    let socket = serve_ws(large_results(), loopback(), None).await.unwrap();
    let lines = serve_tcp(large_results(), loopback(), None).await.unwrap();
    let small = serve(legacy()).await;
    let servers = [
        ("stdio", None),
        (
            "sse",
            Some(format!("url = {:?}", events.url.replace("/mcp", "/sse"))),
        ),
        ("ws", Some(format!("url = {:?}", socket.url))),
        ("tcp", Some(format!("tcp = {:?}", lines.url))),
    ];
    for (transport, lines) in servers {
        let setup = limited(Setup::new()).http("a", &small.url);
        let setup = match lines {
            Some(lines) => setup.with("servers.b", &lines),
            None => setup.stdio("b", &large_results()),
        };
        let gateway = setup.spawn().await;
        are_ready(&gateway).await;
        let mut unread = Vec::new();
        for id in 0..30 {
            unread.push(leave_unread(&gateway, id).await);
        }
        let held = || {
            metric(
                &gateway,
                "moongate_memory_reserved_bytes{holder=\"servers\"}",
            )
        };
        until(transport, || async {
            held().await.filter(|held| *held > (20 * MIB) as f64)
        })
        .await;
        others_are_served(&gateway).await;
        assert!(
            peak(&gateway) < RESIDENT_MAX,
            "{transport}: {} MiB",
            peak(&gateway)
        );
    }
}

/// A client that says megabytes about itself keeps a session of the usual size.
#[tokio::test]
async fn what_a_client_says_about_itself_is_bounded() {
    let gateway = Setup::new().spawn().await;
    let http = crate::harness::HttpClient::new();
    let mcp = gateway.mcp();
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    let initialize = |capabilities: Value| {
        let info = json!({"name": "big", "version": "1", "icons": [{"src": "x".repeat(3 * MIB)}]});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": info});
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string()
    };
    let before = peak(&gateway);
    for _ in 0..60 {
        let reply = http
            .send("POST", &mcp, &headers, initialize(json!({})))
            .await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    assert!(
        peak(&gateway) < before + 60,
        "{} MiB after {before} MiB",
        peak(&gateway)
    );
    let large = json!({"experimental": {"x": "x".repeat(20_000)}});
    let reply = http.send("POST", &mcp, &headers, initialize(large)).await;
    let message = reply.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("16384"), "{message}");
    let modern = McpClient::open(&mcp, Era::Modern).await;
    assert_eq!(modern.request("tools/list", json!({})).await.status, 200);
}
