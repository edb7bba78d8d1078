//! The gateway side by side with a plain reverse proxy, with no proxy at all, and with other
//! gateways: one run, taking turns, so that only the ratios and the CPU time of each call need to
//! be believed. See `benches/README.md`.

mod args;
mod crowd;
#[path = "../harness/mod.rs"]
mod harness;
mod measure;
mod metrics;
mod parked;
mod peer;
mod report;
mod stage;
mod startup;
mod strain;
mod usage;

use anyhow::{Context, Result};
use args::{BenchArgs, RunPart};
use futures_util::FutureExt;
use harness::cases::{self, BenchCase};
use harness::{entry, readme};
use measure::MeasuredRow;
use stage::BenchStage;
use std::io::Write;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use usage::resident;

/// How long a peer may take to come up.
const PEER_PATIENCE: Duration = Duration::from_secs(120);

fn main() -> Result<()> {
    entry::run("gateway", async |args: BenchArgs| run(&args).await)
}

async fn run(args: &BenchArgs) -> Result<()> {
    let mut stage = BenchStage::start(args).await?;
    if let Some(reason) = &stage.missing {
        eprintln!("without the gateway: {reason}");
    }
    wait_for_peers(args).await?;
    let seconds = (args.slice().as_secs_f64() * f64::from(args.slices) * 100.0).round() / 100.0;
    let mut out = report::heading(args.quick, seconds, args.slices);
    if let Some(reason) = &stage.missing {
        out.push_str(&format!("\nWithout the gateway: {}\n", reason.trim()));
    }
    let before = memory(&stage);
    if args.runs(RunPart::Calls) {
        let rows = rows(&mut stage, cases::calls(args.quick), args).await?;
        out.push_str(&report::table("Calls", "ceiling", &rows)?);
    }
    if args.runs(RunPart::Lists) {
        let rows = rows(&mut stage, cases::lists(), args).await?;
        out.push_str(&report::table("Lists", "static", &rows)?);
    }
    let after = memory(&stage);
    let both: Vec<_> = before
        .into_iter()
        .zip(after)
        .map(|((name, before), (_, after))| (name, before, after))
        .collect();
    out.push_str(&report::memory(&both)?);
    if args.runs(RunPart::Startup) && stage.gateway.is_some() {
        eprintln!("starting with ten servers");
        out.push_str(&report::startup(&startup::measure(args, &stage).await)?);
    }
    if args.runs(RunPart::Parked) && stage.gateway.is_some() {
        eprintln!("parking calls");
        out.push_str(&report::parked(&parked::measure(&args.bin).await)?);
    }
    for (part, found) in [
        (
            RunPart::Memory,
            args.runs(RunPart::Memory)
                .then(|| crowd::measure(&args.bin, &args.only).boxed_local()),
        ),
        (
            RunPart::Overload,
            args.runs(RunPart::Overload)
                .then(|| strain::overload(&args.bin).boxed_local()),
        ),
        (
            RunPart::Neighbours,
            args.runs(RunPart::Neighbours)
                .then(|| strain::neighbours(&args.bin).boxed_local()),
        ),
    ] {
        let Some(found) = found else { continue };
        eprintln!("measuring {part}");
        match found.await {
            Ok(text) => out.push_str(&text),
            Err(error) => out.push_str(&format!("\n{part} was not measured: {error:#}\n")),
        }
    }
    if let Some(gateway) = stage.gateway.take() {
        gateway.process.stop(Duration::from_secs(5)).await;
    }
    std::io::stdout().write_all(out.as_bytes())?;
    if args.write {
        readme::write("results", &out)?;
    }
    Ok(())
}

async fn rows(
    stage: &mut BenchStage,
    cases: Vec<BenchCase>,
    args: &BenchArgs,
) -> Result<Vec<MeasuredRow>> {
    let mut rows = Vec::new();
    for case in cases
        .into_iter()
        .filter(|case| case.label().contains(&args.only))
    {
        eprintln!("{} ({} connections)", case.label(), case.connections);
        rows.push(measure::row(stage, case, args).await?);
    }
    Ok(rows)
}

fn memory(stage: &BenchStage) -> Vec<(&'static str, Option<u64>)> {
    let gateway = stage
        .gateway
        .as_ref()
        .map(|gateway| ("gateway", resident(gateway.process.pid)));
    gateway
        .into_iter()
        .chain([("ceiling", resident(stage.ceiling_pid()))])
        .collect()
}

/// A peer can be started once the upstreams listen: it is waited for.
async fn wait_for_peers(args: &BenchArgs) -> Result<()> {
    let end = Instant::now() + PEER_PATIENCE;
    for peer in &args.peers {
        while let Err(error) = TcpStream::connect(peer.address).await {
            if Instant::now() > end {
                return Err(error)
                    .with_context(|| format!("{} does not listen on {}", peer.name, peer.address));
            }
            eprintln!("waiting for {} on {}", peer.name, peer.address);
            sleep(Duration::from_secs(1)).await;
        }
    }
    Ok(())
}
