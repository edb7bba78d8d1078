//! Allocations for each call: valgrind counts all of a process; the difference of two runs leaves the calls.

use crate::args::BenchArgs;
use crate::harness::gateway::{BenchGateway, BenchServer};
use crate::harness::load::{ConnectionFleet, LoadTally};
use crate::harness::process::Process;
use crate::harness::servers::RunningServer;
use crate::harness::target::{LoadTarget, RepeatedRequest};
use crate::harness::wire::ProtocolEra;
use crate::stage::BenchStage;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SHORT: u64 = 200;
const LONG: u64 = 1_200;
const PATIENCE: Duration = Duration::from_secs(90);

/// Allocations and bytes for one call, or why not.
pub(crate) struct AllocationCount {
    pub(crate) label: String,
    pub(crate) result: Result<(f64, f64)>,
}

/// Whether valgrind can be run.
pub(crate) fn available() -> bool {
    let mut command = Command::new("valgrind");
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Counts for the gateway, if there is one, and for the ceiling.
pub(crate) async fn measure(args: &BenchArgs, stage: &BenchStage) -> Vec<AllocationCount> {
    let mut all = Vec::new();
    for (client, server) in [
        (ProtocolEra::Legacy, ProtocolEra::Legacy),
        (ProtocolEra::Modern, ProtocolEra::Modern),
        (ProtocolEra::Modern, ProtocolEra::Legacy),
    ] {
        let upstream = if server == ProtocolEra::Legacy { &stage.upstreams.legacy } else { &stage.upstreams.modern };
        if stage.gateway.is_some() {
            let label = format!("gateway, {} → {}", client.name(), server.name());
            eprintln!("counting allocations: {label}");
            all.push(AllocationCount { label, result: difference(Some(args), client, upstream).await });
        }
        if client == server {
            let label = format!("ceiling, {}", server.name());
            eprintln!("counting allocations: {label}");
            all.push(AllocationCount { label, result: difference(None, client, upstream).await });
        }
    }
    all
}

async fn difference(args: Option<&BenchArgs>, client: ProtocolEra, upstream: &RunningServer) -> Result<(f64, f64)> {
    let short = count(args, client, upstream, SHORT).await?;
    let long = count(args, client, upstream, LONG).await?;
    let calls = (LONG - SHORT) as f64;
    Ok(((long.0 - short.0) / calls, (long.1 - short.1) / calls))
}

/// Allocations and bytes of a whole run with so many calls: of the gateway with `args`, else of the ceiling.
async fn count(
    args: Option<&BenchArgs>,
    client: ProtocolEra,
    upstream: &RunningServer,
    calls: u64,
) -> Result<(f64, f64)> {
    let files = tempfile::tempdir()?;
    let log = files.path().join("log");
    let wrapper: Vec<String> =
        ["valgrind", "--tool=memcheck", "--leak-check=no", "--undef-value-errors=no", "--trace-children=no"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("--log-file={}", log.display())])
            .collect();
    match args {
        Some(args) => {
            let servers = [("s".to_owned(), BenchServer::Url(upstream.address()))];
            let gateway = BenchGateway::start(&args.bin, &wrapper, &servers).await?;
            let target = gateway.call(client, "s", "echo64");
            gateway.ready(&target, PATIENCE).await?;
            run(&target, calls).await?;
            gateway.process.stop(PATIENCE).await;
        }
        None => {
            let own = std::env::current_exe()?.display().to_string();
            let mut words: Vec<String> = wrapper.iter().skip(1).cloned().collect();
            words.extend([own, "--role".to_owned(), "ceiling".to_owned(), upstream.address().to_string()]);
            let mut process = Process::program("the ceiling", Path::new("valgrind"), &words)?;
            let address = process.address(PATIENCE).await?;
            let op = RepeatedRequest::Call { tool: "echo64", exposed: "echo64".to_owned() };
            let target = LoadTarget { address, path: "/mcp".to_owned(), era: client, op, key: None, fixed: false };
            run(&target, calls).await?;
            process.stop(PATIENCE).await;
        }
    }
    totals(&std::fs::read_to_string(&log).context("valgrind wrote no log")?)
}

async fn run(target: &LoadTarget, calls: u64) -> Result<()> {
    let mut fleet = ConnectionFleet::open(target, 1).await?;
    fleet.run(PATIENCE, calls, &mut LoadTally::new()?).await?;
    fleet.close().await;
    Ok(())
}

/// Reads `total heap usage: 1,234 allocs, 1,200 frees, 56,789 bytes allocated`.
fn totals(log: &str) -> Result<(f64, f64)> {
    let Some((_, usage)) = log.split_once("total heap usage:") else {
        bail!("valgrind does not say how much was allocated; it said:\n{log}");
    };
    let mut numbers = usage.lines().next().unwrap_or_default().split_whitespace().map(|word| word.replace(',', ""));
    let mut number = |skip| -> Result<f64> { Ok(numbers.nth(skip).context("a number is missing")?.parse()?) };
    Ok((number(0)?, number(3)?))
}
