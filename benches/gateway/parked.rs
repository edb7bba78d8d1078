//! What a call costs that waits, parked, for the answer of a stateless client: its server has
//! sessions, and asks. Over HTTP: on a pipe each of them is a process of its own.

use crate::harness::gateway::{BenchGateway, BenchServer, KEY};
use crate::harness::http::Connection;
use crate::harness::process::Process;
use crate::usage::resident;
use anyhow::{Context, Result, ensure};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Below the default of `limits.parked`, so that none has to make room.
const CALLS: u64 = 900;
/// Parked before anything is counted: what is made once.
const FIRST: u64 = 50;

const META: &str = concat!(
    r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"load","version":"1"},"#,
    r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}"#
);

/// Parks calls of a server over HTTP; bytes of resident memory for each.
pub(crate) async fn measure(binary: &Path) -> Result<i64> {
    let words = ["mock", "--revision", "2025-11-25", "--http", "127.0.0.1:0"].map(str::to_owned);
    let mut mock = Process::program("the server", binary, &words)?;
    let server = BenchServer::Url(mock.address(Duration::from_secs(10)).await?);
    let gateway = BenchGateway::start(binary, &[], &[("s".to_owned(), server)]).await?;
    let mut connection = Connection::open(gateway.address).await?;
    let end = Instant::now() + Duration::from_secs(10);
    while let Err(error) = park(&mut connection, gateway.address).await {
        ensure!(Instant::now() < end, "no call is parked: {error:#}");
        sleep(Duration::from_millis(100)).await;
        connection = Connection::open(gateway.address).await?;
    }
    for _ in 0..FIRST {
        park(&mut connection, gateway.address).await?;
    }
    let before = resident(gateway.process.pid).context("no memory to read")?;
    for _ in 0..CALLS {
        park(&mut connection, gateway.address).await?;
    }
    let after = resident(gateway.process.pid).context("no memory to read")?;
    gateway.process.stop(Duration::from_secs(5)).await;
    mock.stop(Duration::from_secs(5)).await;
    Ok((i64::try_from(after)? - i64::try_from(before)?) * 1024 / i64::try_from(CALLS)?)
}

async fn park(connection: &mut Connection, address: SocketAddr) -> Result<()> {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"s__elicit","arguments":{{}},"_meta":{META}}}}}"#
    );
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {KEY}\r\ncontent-type: \
         application/json\r\naccept: application/json, text/event-stream\r\nmcp-protocol-version: \
         2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: s__elicit\r\ncontent-length: \
         {}\r\n\r\n{body}",
        body.len()
    );
    connection.exchange(request.as_bytes()).await?;
    let answer = String::from_utf8_lossy(&connection.body);
    ensure!(
        answer.contains("input_required"),
        "an answer that asks for nothing: {answer}"
    );
    Ok(())
}
