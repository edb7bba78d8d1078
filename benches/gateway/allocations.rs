//! Allocations for each call: valgrind counts all of a process; the difference of two runs leaves the calls.

use crate::args::Args;
use crate::gateway::{Gateway, Server};
use crate::load::{Fleet, Tally};
use crate::process::Process;
use crate::stage::{Running, Stage};
use crate::target::{Op, Target};
use crate::wire::Era;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SHORT: u64 = 200;
const LONG: u64 = 1_200;
const PATIENCE: Duration = Duration::from_secs(90);

/// Allocations and bytes for one call, or why not.
pub(crate) struct Counted {
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
pub(crate) async fn measure(args: &Args, stage: &Stage) -> Vec<Counted> {
    let mut all = Vec::new();
    for (client, server) in [(Era::Legacy, Era::Legacy), (Era::Modern, Era::Modern), (Era::Modern, Era::Legacy)] {
        let upstream = if server == Era::Legacy { &stage.legacy } else { &stage.modern };
        if stage.gateway.is_some() {
            let label = format!("gateway, {} → {}", client.name(), server.name());
            eprintln!("counting allocations: {label}");
            all.push(Counted { label, result: difference(Some(args), client, upstream).await });
        }
        if client == server {
            let label = format!("ceiling, {}", server.name());
            eprintln!("counting allocations: {label}");
            all.push(Counted { label, result: difference(None, client, upstream).await });
        }
    }
    all
}

async fn difference(args: Option<&Args>, client: Era, upstream: &Running) -> Result<(f64, f64)> {
    let short = count(args, client, upstream, SHORT).await?;
    let long = count(args, client, upstream, LONG).await?;
    let calls = (LONG - SHORT) as f64;
    Ok(((long.0 - short.0) / calls, (long.1 - short.1) / calls))
}

/// Allocations and bytes of a whole run with so many calls: of the gateway with `args`, else of the ceiling.
async fn count(args: Option<&Args>, client: Era, upstream: &Running, calls: u64) -> Result<(f64, f64)> {
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
            let servers = [("s".to_owned(), Server::Url(upstream.address()))];
            let gateway = Gateway::start(&args.bin, &wrapper, &servers).await?;
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
            let op = Op::Call { tool: "echo64", exposed: "echo64".to_owned() };
            let target = Target { address, path: "/mcp".to_owned(), era: client, op, key: None, fixed: false };
            run(&target, calls).await?;
            process.stop(PATIENCE).await;
        }
    }
    totals(&std::fs::read_to_string(&log).context("valgrind wrote no log")?)
}

async fn run(target: &Target, calls: u64) -> Result<()> {
    let mut fleet = Fleet::open(target, 1).await?;
    fleet.run(PATIENCE, calls, &mut Tally::new()?).await?;
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
