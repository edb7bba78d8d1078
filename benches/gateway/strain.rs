//! Strain: three times the load that there is room for, and bad neighbours (a server that hangs,
//! one that floods, a client that does not read).

use crate::harness::gateway::{BenchGateway, BenchServer, KEY};
use crate::harness::http::Connection;
use crate::harness::load::{ConnectionFleet, LoadTally};
use crate::harness::process::Process;
use crate::harness::target::{BenchRequest, LoadTarget};
use crate::harness::wire::{MODERN_META, ProtocolEra};
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// Calls that run at once under overload, and how long the server takes for each.
const ROOM: usize = 32;
const WORK: Duration = Duration::from_millis(40);
const LENGTH: Duration = Duration::from_secs(6);
/// Calls that hang, and connections that carry on.
const HUNG: usize = 60;
const OTHERS: usize = 2;

/// Peak goodput where as many calls come as there is room for, then three times as many.
pub(crate) async fn overload(binary: &Path) -> Result<String> {
    let script = r#"{"revisions":["2025-11-25"],"tools":[{"name":"work","inputSchema":{"type":"object"}}],"answers":{"work":{"content":[{"type":"text","text":"WORDS"}]}},"faults":[{"on":"tools/call:work","do":"delay","ms":MS}]}"#;
    let script = script
        .replace("WORDS", &"y".repeat(64))
        .replace("MS", &WORK.as_millis().to_string());
    let files = tempfile::tempdir()?;
    let path = files.path().join("slow.json");
    std::fs::write(&path, script)?;
    let words = ["mock", &path.display().to_string(), "--http", "127.0.0.1:0"].map(str::to_owned);
    let mut mock = Process::program("the server", binary, &words)?;
    let server = [(
        "s".to_owned(),
        BenchServer::Url(mock.address(Duration::from_secs(10)).await?),
    )];
    let limits = format!(
        "[limits]\ncalls = {ROOM}\n[defaults]\nmax_concurrency = {}\n",
        4 * ROOM
    );
    let gateway = BenchGateway::start_with(binary, &[], &server, &limits).await?;
    let target = gateway.call(ProtocolEra::Modern, "s", "work");
    gateway.ready(&target, Duration::from_secs(10)).await?;
    let (mut peak, mut over) = (Vec::new(), Vec::new());
    let mut rejections = Histogram::<u64>::new(3)?;
    for _ in 0..2 {
        let room = ROOM as f64 / WORK.as_secs_f64();
        peak.push(offer(&target, room, ROOM, &mut Histogram::new(3)?).await?);
        over.push(offer(&target, 3.0 * room, 3 * ROOM + 32, &mut rejections).await?);
    }
    gateway.process.stop(Duration::from_secs(5)).await;
    mock.stop(Duration::from_secs(5)).await;
    let best = |runs: &[f64]| runs.iter().copied().fold(0.0, f64::max);
    let worst = over.iter().copied().fold(f64::MAX, f64::min);
    let mut out =
        "\n### Three times the calls that there is room for (`limits.calls`)\n\n".to_owned();
    writeln!(
        out,
        "Peak {:.0} calls/s; under overload {worst:.0} calls/s, {:.0} %. {} rejections, p50 {} µs, \
         p99 {} µs.",
        best(&peak),
        100.0 * worst / best(&peak),
        rejections.len(),
        rejections.value_at_quantile(0.5),
        rejections.value_at_quantile(0.99),
    )?;
    Ok(out)
}

/// Offers `rate` calls a second from `workers` connections, each on its own clock; answers that are
/// no rejections, a second.
async fn offer(
    target: &LoadTarget,
    rate: f64,
    workers: usize,
    rejections: &mut Histogram<u64>,
) -> Result<f64> {
    let mut running = JoinSet::new();
    let pause = Duration::from_secs_f64(workers as f64 / rate);
    for n in 0..workers {
        let (target, first) = (target.clone(), pause.mul_f64(n as f64 / workers as f64));
        running.spawn(async move {
            let mut connection = Connection::open(target.address).await?;
            let mut template = target.template(None);
            let (mut good, mut refused) = (0_u64, Histogram::<u64>::new(3)?);
            sleep(first).await;
            let mut clock = interval(pause);
            clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let end = Instant::now() + LENGTH;
            while Instant::now() < end {
                clock.tick().await;
                let (status, took) = call(&mut connection, &mut template).await?;
                match status {
                    200 => good += 1,
                    429 | 503 => refused.saturating_record(u64::try_from(took.as_micros())?),
                    _ => anyhow::bail!(
                        "HTTP {status}: {}",
                        String::from_utf8_lossy(&connection.body)
                    ),
                }
            }
            anyhow::Ok((good, refused))
        });
    }
    let mut good = 0;
    while let Some(done) = running.join_next().await {
        let (more, refused) = done??;
        good += more;
        rejections.add(&refused)?;
    }
    Ok(good as f64 / LENGTH.as_secs_f64())
}

async fn call(connection: &mut Connection, template: &mut BenchRequest) -> Result<(u16, Duration)> {
    template.advance();
    let sent = Instant::now();
    let head = connection.exchange(&template.bytes).await?;
    Ok((head.status, sent.elapsed()))
}

/// The p50 of calls to a good server: alone, beside a server that hangs and one that floods, and
/// beside a client that does not read its stream.
pub(crate) async fn neighbours(binary: &Path) -> Result<String> {
    let mut mock = start_mute_server()?;
    let good = BenchServer::Url(mock.address(Duration::from_secs(10)).await?);
    let servers = [
        ("good".to_owned(), good),
        ("flood".to_owned(), BenchServer::role(&["flood"])?),
        ("hung".to_owned(), BenchServer::role(&["hang"])?),
    ];
    let gateway = BenchGateway::start_with(binary, &[], &servers, "").await?;
    let target = gateway.call(ProtocolEra::Legacy, "good", "echo64");
    gateway.ready(&target, Duration::from_secs(10)).await?;
    let mut fleet = ConnectionFleet::open(&target, OTHERS).await?;
    let mut out = "\n### Bad neighbours: calls to a good server\n\n".to_owned();
    writeln!(
        out,
        "| beside | calls/s | p50 µs | p99 µs |\n|---|---:|---:|---:|"
    )?;
    let alone = row(&mut out, &mut fleet, "nobody").await?;
    let mut hung = Vec::new();
    for _ in 0..HUNG {
        hung.push(start(&gateway, "hung__hang", None).await?);
    }
    let beside = row(
        &mut out,
        &mut fleet,
        &format!("a server that hangs, with {HUNG} calls"),
    )
    .await?;
    writeln!(out, "\n{:.2} times the p50.\n", beside / alone)?;
    let flooded = start(&gateway, "flood__flood", None).await?;
    sleep(Duration::from_millis(300)).await;
    let before = dropped_notifications(&gateway).await;
    let beside = row(
        &mut out,
        &mut fleet,
        "that, and a server that writes 100,000 notifications a second",
    )
    .await?;
    let after = dropped_notifications(&gateway).await;
    writeln!(
        out,
        "\n{:.2} times the p50; {:.0} notifications dropped.\n",
        beside / alone,
        after - before
    )?;
    drop((hung, flooded));
    sleep(Duration::from_secs(1)).await;
    let alone = row(&mut out, &mut fleet, "nobody again").await?;
    write_unread_streams(&mut out, &mut fleet, &gateway, alone).await?;
    gateway.process.stop(Duration::from_secs(5)).await;
    mock.stop(Duration::from_secs(5)).await;
    Ok(out)
}

/// Starts the server of the calls that are measured.
fn start_mute_server() -> Result<Process> {
    Process::program(
        "mute",
        &std::env::current_exe()?,
        &[
            "--role".into(),
            "upstream".into(),
            "legacy".into(),
            "5".into(),
            "0".into(),
        ],
    )
}

async fn dropped_notifications(gateway: &BenchGateway) -> f64 {
    gateway
        .metric("moongate_dropped_total{what=\"queue\"}")
        .await
        .unwrap_or(0.0)
}

/// Adds the row of clients that do not read their streams, and the memory that they take.
async fn write_unread_streams(
    out: &mut String,
    fleet: &mut ConnectionFleet,
    gateway: &BenchGateway,
    alone: f64,
) -> Result<()> {
    let memory = crate::usage::resident(gateway.process.pid).context("no memory to read")?;
    let mut stuck = Vec::new();
    for n in 0..4 {
        stuck.push(start(gateway, "flood__progress", Some(n)).await?);
    }
    sleep(Duration::from_millis(500)).await;
    let beside = row(
        out,
        fleet,
        "four clients that do not read 25,000 events a second each",
    )
    .await?;
    let more = crate::usage::resident(gateway.process.pid)
        .context("no memory to read")?
        .saturating_sub(memory);
    writeln!(
        out,
        "\n{:.2} times the p50; {:.1} MiB more memory.",
        beside / alone,
        more as f64 / 1024.0
    )?;
    Ok(())
}

/// One row; every answer is checked, and an error ends the run.
async fn row(out: &mut String, fleet: &mut ConnectionFleet, beside: &str) -> Result<f64> {
    let mut tally = LoadTally::new()?;
    fleet.run(LENGTH, u64::MAX, &mut tally).await?;
    ensure!(tally.calls > 0, "no calls");
    let micros = |quantile| tally.latency.value_at_quantile(quantile) as f64 / 1000.0;
    eprintln!(
        "beside {beside}: {:.0} calls/s, p50 {:.0} µs",
        tally.calls as f64 / tally.seconds,
        micros(0.5)
    );
    writeln!(
        out,
        "| {beside} | {:.0} | {:.0} | {:.0} |",
        tally.calls as f64 / tally.seconds,
        micros(0.5),
        micros(0.99)
    )?;
    Ok(micros(0.5))
}

/// Sends a call and does not read what comes.
async fn start(gateway: &BenchGateway, tool: &str, progress: Option<u64>) -> Result<TcpStream> {
    let address = gateway.address;
    let token = progress
        .map(|n| format!(r#""progressToken":{n},"#))
        .unwrap_or_default();
    let meta = MODERN_META.replacen('{', &format!("{{{token}"), 1);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{{}},"_meta":{meta}}}}}"#
    );
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {KEY}\r\nContent-Type: \
         application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: \
         2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\nContent-Length: \
         {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}
