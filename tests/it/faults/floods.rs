//! Servers that say more than anybody asked for: what they cause is bounded, and others have their
//! calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Era, Gateway, Setup, holds, modern, serve, within};

/// What servers may ask for, without end: answered here, by nobody, and not at all.
const REQUESTS: [&str; 3] = ["ping", "roots/list", "nonsense/any"];
/// Tasks and connections that a server may cause, with room for what any server costs.
const FEW: usize = 100;

/// A gateway with a healthy server beside one with these settings.
async fn beside(settings: &str) -> (moongate_mock::MockHandle, Gateway) {
    let mock = serve(modern()).await;
    let setup = Setup::new()
        .http("good", &mock.url)
        .with("servers.bad", settings);
    let gateway = setup.start().await;
    gateway.ready(&["good"]).await;
    (mock, gateway)
}

async fn good_works(gateway: &Gateway) {
    let client = gateway.client(Era::Legacy).await;
    for n in 0..20 {
        assert_eq!(
            client
                .call("good__add", json!({"a": n, "b": 2}))
                .await
                .text(),
            (n + 2).to_string()
        );
    }
}

/// The answer of a server with one tool, `t`, that answers no calls; `None`: it has none.
fn answer(message: &Value) -> Option<Value> {
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "f", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
        "tools/call" => return None,
        _ if message["id"].is_null() => return None,
        _ => {
            return Some(json!({"jsonrpc": "2.0", "id": message["id"],
                    "error": {"code": -32601, "message": "no"}}));
        }
    };
    Some(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

fn tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

/// A server of lines that asks for `method` without end from its list on, and reads no more, or as
/// fast as it can. Counts what it asked.
async fn asking(method: &'static str, reads: bool) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                let (reader, mut writer) = stream.into_split();
                let mut lines = BufReader::new(reader).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let message: Value = serde_json::from_str(&line).unwrap();
                    if let Some(answer) = answer(&message) {
                        writer
                            .write_all(format!("{answer}\n").as_bytes())
                            .await
                            .unwrap();
                    }
                    if message["method"] == "tools/list" {
                        break;
                    }
                }
                let reading = async {
                    while reads && matches!(lines.next_line().await, Ok(Some(_))) {}
                    std::future::pending::<()>().await;
                };
                let block =
                    format!("{{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"{method}\"}}\n")
                        .repeat(100);
                let asking = async {
                    while writer.write_all(block.as_bytes()).await.is_ok() {
                        count.fetch_add(100, Ordering::Relaxed);
                    }
                };
                tokio::select! { () = reading => {}, () = asking => {} }
            });
        }
    });
    (address, asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_a_server_without_end_make_no_tasks_and_are_read_no_faster_than_they_are_answered()
 {
    for (method, reads) in REQUESTS
        .into_iter()
        .flat_map(|method| [(method, true), (method, false)])
    {
        let (address, asked) = asking(method, reads).await;
        let (_mock, gateway) = beside(&format!("tcp = \"{address}\"")).await;
        holds("it asks", || asked.load(Ordering::Relaxed) > 1000).await;
        let before = asked.load(Ordering::Relaxed);
        let began = tokio::time::Instant::now();
        good_works(&gateway).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(tasks() < FEW, "{method}: {} tasks", tasks());
        // What the system holds between the two is more than what is read in that time.
        let read = asked.load(Ordering::Relaxed) - before;
        let most = 20_000 + 2_000 * usize::try_from(began.elapsed().as_secs()).unwrap();
        assert!(
            read < most,
            "{method}: {read} requests were taken in {:?}",
            began.elapsed()
        );
        let counted = gateway.app.metrics.render();
        assert!(
            String::from_utf8_lossy(&counted)
                .contains("moongate_server_requests_total{mcp_server=\"bad\"")
        );
    }
}

/// A server over HTTP: what it says on the stream of a GET or of a call, again and again without
/// end.
struct FloodingServer {
    url: String,
    /// POSTs that it left without an answer, and that stand open.
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, PartialEq)]
enum FloodSite {
    Get,
    Call,
}

impl FloodingServer {
    fn settings(&self) -> String {
        format!(
            "url = \"{}\"\ntimeout = \"1s\"\nprotocol = \"2025-11-25\"",
            self.url
        )
    }
}

async fn web(on: FloodSite, event: &'static str) -> FloodingServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let web = FloodingServer {
        url,
        open: Arc::default(),
        most: Arc::default(),
    };
    let counts = (web.open.clone(), web.most.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let counts = counts.clone();
            // How a connection ends is the gateway's business.
            tokio::spawn(async move { drop(connection(stream, on, event, counts).await) });
        }
    });
    web
}

async fn connection(
    stream: TcpStream,
    on: FloodSite,
    event: &'static str,
    (open, most): (Arc<AtomicUsize>, Arc<AtomicUsize>),
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        let mut length = 0;
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await? == 0 {
                return Ok(());
            }
        }
        for line in head.to_ascii_lowercase().lines() {
            length = line
                .strip_prefix("content-length:")
                .map_or(length, |length| length.trim().parse().unwrap());
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let is_get = head.starts_with("GET");
        if is_get && on == FloodSite::Get
            || message["method"] == "tools/call" && on == FloodSite::Call
        {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            stream.write_all(head.as_bytes()).await?;
            let block = event.repeat(100);
            loop {
                stream.write_all(block.as_bytes()).await?;
            }
        }
        let said = match answer(&message) {
            _ if is_get => "HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n".to_owned(),
            Some(answer) => {
                let answer = answer.to_string();
                let head =
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: s\r\n";
                format!("{head}content-length: {}\r\n\r\n{answer}", answer.len())
            }
            None if message["method"] == "notifications/initialized" => {
                "HTTP/1.1 202 Yes\r\ncontent-length: 0\r\n\r\n".to_owned()
            }
            None => {
                most.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                let ended = stream.read_u8().await;
                open.fetch_sub(1, Ordering::Relaxed);
                return ended.map(drop);
            }
        };
        stream.write_all(said.as_bytes()).await?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_answers_over_http_makes_few_connections() {
    for (on, method) in [
        (
            FloodSite::Get,
            "data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"ping\"}\n\n",
        ),
        (
            FloodSite::Get,
            "data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"roots/list\"}\n\n",
        ),
        (
            FloodSite::Call,
            "data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"nonsense/any\"}\n\n",
        ),
    ] {
        let web = web(on, method).await;
        let (_mock, gateway) = beside(&web.settings()).await;
        gateway.ready(&["bad"]).await;
        if on == FloodSite::Call {
            let client = gateway.client(Era::Legacy).await;
            let failure = within("the call's end", client.call("bad__t", json!({})))
                .await
                .failure();
            assert!(failure.contains("servers.bad.timeout"), "{failure}");
        }
        holds("it is answered", || web.most.load(Ordering::Relaxed) >= 10).await;
        good_works(&gateway).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let most = web.most.load(Ordering::Relaxed);
        assert!(most <= 40, "{most} POSTs at once");
        assert!(tasks() < 2 * FEW, "{} tasks", tasks());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_calls_time_holds_whatever_its_server_says_meanwhile() {
    for event in [
        ": nothing\n\n",
        "data: {nonsense\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"id\":99999,\"result\":{}}\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/any\"}\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"error\",\"data\":1}}\n\n",
    ] {
        let web = web(FloodSite::Call, event).await;
        let (_mock, gateway) = beside(&web.settings()).await;
        gateway.ready(&["bad"]).await;
        let client = gateway.client(Era::Legacy).await;
        // The stream has no end: without its time, the call would have none either.
        let failure = within(event, client.call("bad__t", json!({})))
            .await
            .failure();
        assert!(failure.contains("servers.bad.timeout"), "{failure}");
        good_works(&gateway).await;
    }
}
