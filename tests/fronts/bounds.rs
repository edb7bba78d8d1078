//! What a client on a pipe cannot make grow.

use http::HeaderMap;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::support::{Setup, holds, within};

const PINGS: usize = 20_000;

#[tokio::test]
async fn who_does_not_read_is_not_read_and_loses_nothing() {
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
        let line = within("an answer", lines.next_line()).await.unwrap().unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], expected, "{line}");
    }
    drop(writing.await.unwrap());
    within("it ends with its input", serving).await.unwrap();
    assert_eq!(gateway.app.metrics.sessions.get(), 0);
    holds("nothing is left of it", || gateway.app.metrics.streams.get() == 0).await;
}
