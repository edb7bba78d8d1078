//! What a client on a pipe cannot make grow.

use http::HeaderMap;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::harness::{Setup, holds, within};

const PINGS: usize = 20_000;

#[tokio::test]
async fn a_stdio_client_that_does_not_read_gets_backpressure_and_loses_nothing() {
    let gateway = Setup::new().start().await;
    let (client_in, server_out) = tokio::io::duplex(1024);
    let (server_in, mut client_out) = tokio::io::duplex(1024);
    let pipe = gateway.app.pipe("", &HeaderMap::new()).unwrap();
    let serving = tokio::spawn(pipe.serve(server_in, server_out));
    let mut text = String::from(
        "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\
         \"capabilities\":{},\"clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}}\n",
    );
    for id in 1..=PINGS {
        text += &format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n");
    }
    let mut writing = tokio::spawn(async move {
        client_out.write_all(text.as_bytes()).await.unwrap();
        client_out
    });
    // It can never end while nobody reads, however long this is: there is not so much room.
    let stuck = tokio::time::timeout(std::time::Duration::from_millis(300), &mut writing).await;
    assert!(stuck.is_err(), "so much was taken without a reader");
    let mut lines = BufReader::new(client_in).lines();
    for expected in 0..=PINGS {
        let line = within("an answer", lines.next_line())
            .await
            .unwrap()
            .unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], expected, "{line}");
    }
    drop(writing.await.unwrap());
    within("it ends with its input", serving).await.unwrap();
    assert_eq!(gateway.app.metrics.clients.sessions.get(), 0);
    holds("nothing is left of it", || {
        gateway.app.metrics.clients.streams.get() == 0
    })
    .await;
}

/// A client on a pipe of this process.
struct NearPipeClient {
    out: tokio::io::DuplexStream,
    lines: tokio::io::Lines<BufReader<tokio::io::DuplexStream>>,
}

impl NearPipeClient {
    fn of(gateway: &crate::harness::Gateway) -> NearPipeClient {
        let (client_in, server_out) = tokio::io::duplex(1 << 20);
        let (server_in, out) = tokio::io::duplex(1 << 20);
        tokio::spawn(
            gateway
                .app
                .pipe("", &HeaderMap::new())
                .unwrap()
                .serve(server_in, server_out),
        );
        NearPipeClient {
            out,
            lines: BufReader::new(client_in).lines(),
        }
    }

    async fn say(&mut self, message: &Value) {
        self.out
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn ask(&mut self, id: u64, method: &str, params: Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
    }

    async fn answer(&mut self, id: u64) -> Value {
        let line = within("an answer", self.lines.next_line())
            .await
            .unwrap()
            .unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], id, "{line}");
        answer
    }
}

fn opening() -> Value {
    json!({"protocolVersion": "2025-03-26", "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"}})
}

#[tokio::test]
async fn stdio_clients_pass_the_same_admission_as_http_clients() {
    let gateway = Setup::new().with("limits", "rate = \"5/h\"").start().await;
    let mut client = NearPipeClient::of(&gateway);
    client.ask(0, "initialize", opening()).await;
    assert!(client.answer(0).await["result"].is_object());
    for id in 1..5 {
        client.ask(id, "ping", json!({})).await;
        assert_eq!(client.answer(id).await["result"], json!({}));
        // What is no request is no part of the rate.
        client
            .say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
    }
    client.ask(5, "ping", json!({})).await;
    let error = client.answer(5).await["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        error.contains("limits.rate") && error.contains("try again in"),
        "{error}"
    );
    let ping = |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    client.say(&json!([ping(6), ping(7)])).await;
    for id in [6, 7] {
        assert!(
            client.answer(id).await["error"].is_object(),
            "each of a batch has its answer"
        );
    }
    assert_eq!(
        gateway
            .metric("moongate_refused_total{limit=\"rate\"}")
            .await,
        Some(2.0)
    );
}

#[tokio::test]
async fn calls_over_stdio_count_toward_limits() {
    let setup = Setup::new()
        .stdio("s", &crate::harness::legacy())
        .with("limits", "calls = 1");
    let gateway = setup.start().await;
    gateway.ready(&["s"]).await;
    let mut client = NearPipeClient::of(&gateway);
    client.ask(0, "initialize", opening()).await;
    client.answer(0).await;
    client
        .ask(1, "tools/call", json!({"name": "s__hang", "arguments": {}}))
        .await;
    holds("it hangs", || gateway.app.metrics.calls.inflight.get() == 1).await;
    client
        .ask(
            2,
            "tools/call",
            json!({"name": "s__add", "arguments": {"a": 1, "b": 2}}),
        )
        .await;
    let error = client.answer(2).await["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(error.contains("limits.calls"), "{error}");
    client
        .say(
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 1}}),
        )
        .await;
    holds("there is room", || {
        gateway.app.metrics.calls.inflight.get() == 0
    })
    .await;
    client
        .ask(
            3,
            "tools/call",
            json!({"name": "s__add", "arguments": {"a": 1, "b": 2}}),
        )
        .await;
    assert_eq!(client.answer(3).await["result"]["content"][0]["text"], "3");
}
