//! Clients on TCP that write a message a line.

use moongate_telemetry::Limit;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::harness::{
    ERAS, Era, Gateway, Setup, body_of, holds, legacy, modern, modern_meta, only, until, within,
};

const LISTEN: &str = "listen = [\"127.0.0.1:0\", \"tcp:127.0.0.1:0\"]";

fn setup() -> Setup {
    Setup::new().with("gateway", LISTEN)
}

/// A client.
struct TcpLineClient {
    out: OwnedWriteHalf,
    lines: Lines<BufReader<OwnedReadHalf>>,
    era: Era,
}

impl TcpLineClient {
    async fn open(gateway: &Gateway, era: Era) -> TcpLineClient {
        let (lines, out) = TcpStream::connect(gateway.app.line_addresses[0])
            .await
            .unwrap()
            .into_split();
        let mut client = TcpLineClient {
            out,
            lines: BufReader::new(lines).lines(),
            era,
        };
        if era == Era::Legacy {
            let opening = json!({"protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"}});
            assert_eq!(
                client.ask(0, "initialize", opening).await["result"]["protocolVersion"],
                "2025-11-25"
            );
        }
        client
    }

    async fn say(&mut self, id: u64, method: &str, mut params: Value) {
        if self.era == Era::Modern {
            params["_meta"] = modern_meta();
        }
        let _ = self
            .out
            .write_all(format!("{}\n", body_of(id, method, params)).as_bytes())
            .await;
    }

    /// The next line; nothing at the end.
    async fn line(&mut self) -> Option<String> {
        within("a line, or the end", self.lines.next_line())
            .await
            .ok()
            .flatten()
    }

    async fn answer(&mut self, id: u64) -> Value {
        loop {
            let answer: Value =
                serde_json::from_str(&self.line().await.expect("an answer")).unwrap();
            // What is told of lists has no id.
            if answer["method"].is_null() {
                assert_eq!(answer["id"], id, "{answer}");
                return answer;
            }
        }
    }

    async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.say(id, method, params).await;
        self.answer(id).await
    }

    async fn add(&mut self, id: u64) {
        let sum = self
            .ask(
                id,
                "tools/call",
                json!({"name": "s__add", "arguments": {"a": id, "b": 1}}),
            )
            .await;
        assert_eq!(
            sum["result"]["content"][0]["text"],
            (id + 1).to_string(),
            "{sum}"
        );
    }
}

#[tokio::test]
async fn clients_of_both_eras_are_served_side_by_side() {
    let gateway = setup().stdio("s", &legacy()).start().await;
    gateway.ready(&["s"]).await;
    let mut clients = Vec::new();
    for n in 0..10 {
        clients.push(TcpLineClient::open(&gateway, ERAS[n % 2]).await);
    }
    let works = clients.iter_mut().map(|client| async move {
        for id in 1..20 {
            client.add(id).await;
        }
    });
    futures_util::future::join_all(works).await;
    // Many at once on one connection; the answers come as they are ready.
    for id in 100..200 {
        clients[0].say(id, "ping", json!({})).await;
    }
    for id in 100..200 {
        assert_eq!(clients[0].answer(id).await["result"], json!({}));
    }
    assert_eq!(gateway.app.metrics.clients.connections.get(), 10);
    drop(clients);
    holds("nothing is left of them", || {
        gateway.app.metrics.clients.connections.get() == 0
    })
    .await;
    holds("and of their sessions", || {
        gateway.app.metrics.clients.sessions.get() == 0
    })
    .await;
    gateway.app.stop().await;
}

#[tokio::test]
async fn a_script_that_closes_its_side_gets_its_answers() {
    let gateway = setup().stdio("s", &legacy()).start().await;
    gateway.ready(&["s"]).await;
    let mut client = TcpStream::connect(gateway.app.line_addresses[0])
        .await
        .unwrap();
    let call = json!({"name": "s__add", "arguments": {"a": 1, "b": 2}, "_meta": modern_meta()});
    // Without the end of the line.
    client
        .write_all(body_of(1, "tools/call", call).as_bytes())
        .await
        .unwrap();
    client.shutdown().await.unwrap();
    let mut said = String::new();
    within("the end", client.read_to_string(&mut said))
        .await
        .unwrap();
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "3", "{answer}");
    gateway.app.stop().await;
}

/// What a browser sends for `fetch("http://127.0.0.1:PORT/", {method: "POST", mode: "no-cors",
/// body})` of a page.
fn page(port: u16, body: &str) -> (String, String) {
    let head = format!(
        "POST / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: keep-alive\r\nContent-Length: \
         {}\r\n\
         sec-ch-ua-platform: \"Linux\"\r\nUser-Agent: Mozilla/5.0 (X11; Linux \
         x86_64)\r\nsec-ch-ua-mobile: ?0\r\n\
         Content-Type: text/plain;charset=UTF-8\r\nAccept: */*\r\nOrigin: https://evil.test\r\n\
         Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: \
         empty\r\nReferer: https://evil.test/\r\n\
         Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en\r\n\r\n",
        body.len()
    );
    (head, body.to_owned())
}

#[tokio::test]
async fn a_call_posted_by_a_web_page_to_the_tcp_listener_does_not_run() {
    let gateway = setup().stdio("s", &legacy()).start().await;
    gateway.ready(&["s"]).await;
    let address = gateway.app.line_addresses[0];
    let name = json!({"name": "s__add", "arguments": {"a": 1, "b": 2}, "_meta": modern_meta()});
    let call = format!("{}\n", body_of(1, "tools/call", name));
    let opening = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"}});
    let session = format!("{}\n{call}", body_of(0, "initialize", opening));
    let mut refused = 0;
    for body in [&call, &session] {
        let (head, body) = page(address.port(), body);
        let whole = format!("{head}{body}");
        // In one piece, the head first, and byte by byte.
        for cut in [whole.len(), head.len(), 1] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            for piece in whole.as_bytes().chunks(cut) {
                if stream.write_all(piece).await.is_err() {
                    break;
                }
                if cut != whole.len() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            let mut said = Vec::new();
            let _ = within("the end", stream.read_to_end(&mut said)).await;
            assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
            refused += 1;
            let series = "moongate_refused_total{limit=\"first_line\"}";
            assert_eq!(gateway.metric(series).await, Some(f64::from(refused)));
        }
    }
    // The same words without the head do run.
    let mut client = TcpLineClient::open(&gateway, Era::Modern).await;
    client.add(1).await;
    assert_eq!(
        gateway.record("s").matches("tools/call").count(),
        1,
        "{}",
        gateway.record("s")
    );
    gateway.app.stop().await;
}

#[tokio::test]
async fn only_loopback_without_keys_is_listened_on() {
    let why = |setup: Setup| setup.load().expect_err("it is refused").to_string();
    for address in ["0.0.0.0:9100", "[::]:9100", "192.0.2.1:9100"] {
        let setup = Setup::new().with("gateway", &format!("listen = \"tcp:{address}\""));
        assert!(
            why(setup).contains("could be reached from other machines"),
            "{address}"
        );
    }
    let keyed = setup().with(
        "auth.keys.1",
        "name = \"one\"\nkey = \"key-number-1-0123456789\"",
    );
    assert!(why(keyed).contains("cannot send one"));
    assert!(
        why(Setup::new().with("gateway", "admin = \"tcp:127.0.0.1:0\"")).contains("gateway.admin")
    );
    assert!(why(Setup::new().with("gateway", "listen = \"tcp:9100\"")).contains("not an address"));
    let twice = "listen = [\"127.0.0.1:9100\", \"tcp:127.0.0.1:9100\"]";
    assert!(why(Setup::new().with("gateway", twice)).contains("twice"));
    for fine in [
        "tcp:127.0.0.1:0",
        "tcp:localhost:0",
        "tcp:[::1]:0",
        "tcp:127.9.9.9:0",
    ] {
        assert!(
            Setup::new()
                .with("gateway", &format!("listen = {fine:?}"))
                .load()
                .is_ok(),
            "{fine}"
        );
    }
}

#[tokio::test]
async fn a_first_or_half_sent_line_times_out_and_an_idle_connection_does_not() {
    let gateway = setup()
        .stdio("s", &legacy())
        .with("limits", "read_timeout = \"300ms\"")
        .start()
        .await;
    gateway.ready(&["s"]).await;
    let late = || gateway.app.metrics.calls.refused.get(Limit::ReadTimeout);
    for begun in ["", "{\"jsonrpc\""] {
        let before = late();
        let mut stream = TcpStream::connect(gateway.app.line_addresses[0])
            .await
            .unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        let _ = within("the end", stream.read_to_end(&mut Vec::new())).await;
        assert_eq!(late(), before + 1, "{begun:?}");
    }
    for era in ERAS {
        let mut client = TcpLineClient::open(&gateway, era).await;
        client.add(1).await;
        tokio::time::sleep(Duration::from_millis(900)).await;
        client.add(2).await;
        let before = late();
        client.out.write_all(b"{\"jsonrpc\":").await.unwrap();
        while client.line().await.is_some() {}
        assert_eq!(late(), before + 1);
    }
    gateway.app.stop().await;
}

#[tokio::test]
async fn connections_without_a_message_are_evicted_at_the_limit() {
    let gateway = setup()
        .stdio("s", &legacy())
        .with("limits", "connections = 3")
        .start()
        .await;
    gateway.ready(&["s"]).await;
    let mut first = TcpLineClient::open(&gateway, Era::Legacy).await;
    let mut silent = Vec::new();
    for _ in 0..6 {
        silent.push(
            TcpStream::connect(gateway.app.line_addresses[0])
                .await
                .unwrap(),
        );
    }
    let mut second = TcpLineClient::open(&gateway, Era::Modern).await;
    second.add(1).await;
    first.add(1).await;
    assert!(gateway.app.metrics.clients.connections.get() <= 3);
    gateway.app.stop().await;
}

#[tokio::test]
async fn a_connection_follows_the_config() {
    let mut gateway = setup().stdio("s", &only(legacy(), &["add"])).start().await;
    gateway.ready(&["s"]).await;
    let mut clients = [
        TcpLineClient::open(&gateway, Era::Legacy).await,
        TcpLineClient::open(&gateway, Era::Modern).await,
    ];
    gateway
        .change(|setup| setup.stdio("t", &only(modern(), &["echo"])))
        .await;
    gateway.ready(&["t"]).await;
    for client in &mut clients {
        let listed = client.ask(1, "tools/list", json!({})).await;
        let names: Vec<_> = listed["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| &tool["name"])
            .collect();
        assert_eq!(names, ["s__add", "t__echo"]);
        client.add(2).await;
    }
    // Where keys come, a client without one goes, and none comes in; the address itself waits for a
    // restart.
    let key = "name = \"one\"\nkey = \"key-number-1-0123456789\"";
    gateway
        .change(|setup| {
            setup
                .with("gateway", "listen = \"127.0.0.1:0\"")
                .with("auth.keys.1", key)
        })
        .await;
    for client in &mut clients {
        while client.line().await.is_some() {}
    }
    let mut late = TcpStream::connect(gateway.app.line_addresses[0])
        .await
        .unwrap();
    assert_eq!(
        within("the end", late.read_to_end(&mut Vec::new()))
            .await
            .unwrap_or(0),
        0
    );
    gateway.app.stop().await;
}

#[tokio::test]
async fn open_calls_may_end_when_the_gateway_stops() {
    let gateway = setup().stdio("s", &legacy()).start().await;
    gateway.ready(&["s"]).await;
    let mut client = TcpLineClient::open(&gateway, Era::Modern).await;
    let mut idle = TcpLineClient::open(&gateway, Era::Legacy).await;
    client
        .say(
            1,
            "tools/call",
            json!({"name": "s__sleep", "arguments": {"ms": 300}}),
        )
        .await;
    let metrics = gateway.app.metrics.clone();
    until("the call runs", || {
        std::future::ready((metrics.calls.inflight.get() == 1).then_some(()))
    })
    .await;
    let stopping = tokio::spawn(async move { gateway.app.stop().await });
    assert!(client.answer(1).await["result"].is_object());
    assert!(client.line().await.is_none());
    while idle.line().await.is_some() {}
    within("the stop", stopping).await.unwrap();
}
