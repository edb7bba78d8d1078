//! What a crowd costs in memory: ten thousand idle streams, three times over, and a hundred
//! thousand sessions that nobody ends.

use crate::harness::gateway::{BenchGateway, BenchServer, KEY};
use crate::harness::http::Connection;
use crate::harness::target::{LoadTarget, RepeatedRequest};
use crate::harness::wire::{MODERN_META, ProtocolEra};
use crate::usage::resident;
use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

const STREAMS: usize = 10_000;
const SESSIONS: usize = 100_000;
const CYCLES: usize = 3;
/// How long an abandoned session lives here: longer than opening all of them takes.
const SESSION_IDLE: Duration = Duration::from_secs(25);
/// How long memory may take to come back.
const BACK: Duration = Duration::from_secs(20);

/// Room for the crowd; everything else as it comes.
fn limits() -> String {
    format!(
        "[limits]\nconnections = {}\nstreams = {STREAMS}\nsessions = {SESSIONS}\nsession_idle \
         = \"{}s\"\n",
        STREAMS + 100,
        SESSION_IDLE.as_secs()
    )
}

/// Measures what has `only` in its name (`legacy streams`, `modern streams`, `sessions`); lines of
/// Markdown.
pub(crate) async fn measure(binary: &Path, only: &str) -> Result<String> {
    let mut out = "\n### Crowds: resident memory\n\n".to_owned();
    writeln!(
        out,
        "| what | each | after they are gone, beyond idle |\n|---|---:|---:|"
    )?;
    for era in [ProtocolEra::Legacy, ProtocolEra::Modern] {
        if !format!("{} streams", era.name()).contains(only) {
            continue;
        }
        let server = [(
            "s".to_owned(),
            BenchServer::role(&["stdio", "legacy", "5"])?,
        )];
        let gateway = BenchGateway::start_with(binary, &[], &server, &limits()).await?;
        ready(&gateway).await?;
        crowd(&gateway, era, 200).await?;
        sleep(Duration::from_secs(3)).await;
        let idle = memory(&gateway)?;
        for cycle in 1..=CYCLES {
            let (each, left) = crowd(&gateway, era, STREAMS).await?;
            let left = (left - idle) as f64 / 1024.0;
            let each = each as f64 / 1024.0;
            eprintln!(
                "{} streams, cycle {cycle}: {each:.1} KiB, {left:.1} MiB",
                era.name()
            );
            writeln!(
                out,
                "| {STREAMS} idle {} streams, cycle {cycle} | {each:.1} KiB | {left:.1} MiB |",
                era.name()
            )?;
        }
        gateway.process.stop(Duration::from_secs(5)).await;
    }
    if !"sessions".contains(only) {
        return Ok(out);
    }
    let server = [(
        "s".to_owned(),
        BenchServer::role(&["stdio", "legacy", "5"])?,
    )];
    let gateway = BenchGateway::start_with(binary, &[], &server, &limits()).await?;
    ready(&gateway).await?;
    let (each, left) = sessions(&gateway).await?;
    let (each, left) = (each as f64 / 1024.0, left as f64 / 1024.0);
    writeln!(
        out,
        "| {SESSIONS} abandoned sessions | {each:.1} KiB | {left:.1} MiB |"
    )?;
    gateway.process.stop(Duration::from_secs(5)).await;
    Ok(out)
}

/// KiB.
fn memory(gateway: &BenchGateway) -> Result<i64> {
    Ok(i64::try_from(
        resident(gateway.process.pid).context("no memory to read")?,
    )?)
}

async fn ready(gateway: &BenchGateway) -> Result<()> {
    gateway
        .ready(
            &gateway.call(ProtocolEra::Legacy, "s", "echo64"),
            Duration::from_secs(10),
        )
        .await
}

/// Opens idle streams and closes them; bytes for each while they are open, and what is resident
/// afterwards in KiB.
async fn crowd(gateway: &BenchGateway, era: ProtocolEra, count: usize) -> Result<(i64, i64)> {
    let target = gateway.call(era, "s", "echo64");
    let mut requests = Connection::open(gateway.address).await?;
    // Not counted: what the connection for the requests costs.
    let before = memory(gateway)?;
    let (mut open, mut ids) = (Vec::with_capacity(count), Vec::new());
    for _ in 0..count {
        let session = match era {
            ProtocolEra::Legacy => Some(session(&mut requests, &target).await?),
            ProtocolEra::Modern => None,
        };
        open.push(stream(&target, session.as_deref()).await?);
        ids.extend(session);
    }
    sleep(Duration::from_secs(1)).await;
    let each = (memory(gateway)? - before) * 1024 / i64::try_from(count)?;
    drop(open);
    for id in &ids {
        requests.exchange(&target.delete(id)).await?;
    }
    back(gateway, before).await.map(|left| (each, left))
}

/// Waits until memory is back, or does not come back any more.
async fn back(gateway: &BenchGateway, before: i64) -> Result<i64> {
    let end = Instant::now() + BACK;
    loop {
        let now = memory(gateway)?;
        if now <= before || Instant::now() > end {
            return Ok(now);
        }
        sleep(Duration::from_millis(500)).await;
    }
}

async fn session(requests: &mut Connection, target: &LoadTarget) -> Result<String> {
    let head = requests.exchange(&target.initialize()).await?;
    ensure!(
        head.status == 200,
        "initialize: HTTP {}: {}",
        head.status,
        String::from_utf8_lossy(&requests.body)
    );
    let session = head.session.context("no session")?;
    requests
        .exchange(&target.initialized(Some(&session)))
        .await?;
    Ok(session)
}

/// Opens a stream on a connection of its own, and reads until it has begun.
async fn stream(target: &LoadTarget, session: Option<&str>) -> Result<TcpStream> {
    let address = target.address;
    let request = match session {
        Some(session) => format!(
            "GET /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {KEY}\r\nAccept: \
             text/event-stream\r\nMcp-Session-Id: {session}\r\nMCP-Protocol-Version: \
             2025-11-25\r\n\r\n"
        ),
        None => {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{MODERN_META}}}}}"#
            );
            format!(
                "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer \
                 {KEY}\r\nContent-Type: application/json\r\nAccept: application/json, \
                 text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: \
                 subscriptions/listen\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        }
    };
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut seen = Vec::with_capacity(512);
    while memmem::find(&seen, b"\r\n\r\n").is_none_or(|at| seen.len() < at + 8) {
        ensure!(
            stream.read_buf(&mut seen).await? > 0,
            "the stream ended: {}",
            String::from_utf8_lossy(&seen)
        );
    }
    if !seen.starts_with(b"HTTP/1.1 200") {
        bail!("no stream: {}", String::from_utf8_lossy(&seen));
    }
    Ok(stream)
}

/// Opens sessions and abandons them: bytes for each, and what is resident in KiB once they have
/// expired.
async fn sessions(gateway: &BenchGateway) -> Result<(i64, i64)> {
    let op = RepeatedRequest::Call {
        tool: "echo64",
        exposed: String::new(),
    };
    let target = LoadTarget {
        address: gateway.address,
        path: "/mcp".to_owned(),
        era: ProtocolEra::Legacy,
        op,
        key: Some(KEY),
        fixed: false,
    };
    let before = memory(gateway)?;
    let started = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    const WORKERS: usize = 16;
    for _ in 0..WORKERS {
        let target = target.clone();
        workers.spawn(async move {
            let mut requests = Connection::open(target.address).await?;
            for _ in 0..SESSIONS / WORKERS {
                let head = requests.exchange(&target.initialize()).await?;
                ensure!(head.status == 200, "initialize: HTTP {}", head.status);
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = workers.join_next().await {
        done??;
    }
    let opened = gateway.metric("moongate_sessions").await?;
    let each = (memory(gateway)? - before) * 1024 / i64::try_from(SESSIONS)?;
    eprintln!(
        "{opened} sessions in {:?}, {each} bytes each",
        started.elapsed()
    );
    ensure!(
        opened as usize == SESSIONS,
        "{opened} of {SESSIONS} sessions are open: they expired meanwhile"
    );
    let end = Instant::now() + SESSION_IDLE + Duration::from_secs(30);
    while gateway.metric("moongate_sessions").await? > 0.0 {
        ensure!(Instant::now() < end, "sessions outlive their time");
        sleep(Duration::from_millis(500)).await;
    }
    eprintln!("gone after {:?}", started.elapsed());
    let left = back(gateway, before).await?;
    Ok((each, left - before))
}
