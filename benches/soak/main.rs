//! Keeps a gateway busy for a time, with clients of every kind, while servers die and restart, the
//! config changes and the disk fails; and checks that every answer is the right one and that
//! nothing is left. See `benches/README.md`.

#![allow(clippy::print_stdout, reason = "a program for people")]

mod admin;
mod args;
#[path = "../harness/begin.rs"]
mod begin;
mod calls;
mod chaos;
mod client;
mod crowd;
mod figures;
#[path = "../harness/http.rs"]
mod http;
mod judge;
mod levels;
#[path = "../harness/process.rs"]
#[allow(dead_code, reason = "shared with the other benches")]
mod process;
mod processes;
mod report;
#[path = "../harness/signals.rs"]
mod signals;
mod slope;
mod soak;
mod world;

use anyhow::{Context, Result};
use args::SoakArgs;
use clap::Parser;
use levels::memory;
use report::RunReport;
use soak::SoakRun;
use std::rc::Rc;
use std::time::{Duration, SystemTime};
use tokio::task::LocalSet;
use tokio::time::{Instant, interval};
use world::SoakWorld;

/// From this length on the slope of the heap means something.
const SLOPE_FROM: Duration = Duration::from_secs(30 * 60);
/// From this length on it is worth waiting until connections that are kept for later calls have
/// gone.
const EXACT_FROM: Duration = Duration::from_secs(10 * 60);
/// Seconds between two lines of progress, and between two samples.
const TELL: u32 = 5;
const SAMPLE: u32 = 15;
/// How long nobody calls for a sample, at most: what a call holds while it runs isn't growth.
const HOLD: Duration = Duration::from_secs(1);
/// Calls that may still run then: those that wait for a server that is on its way.
const FEW: f64 = 5.0;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [first, role, program, rest @ ..] if first == "--role" && role == "exec" => {
            return signals::exec(program, rest);
        }
        words if !begin::is_asked(words) => {
            eprintln!("run this with: cargo bench --bench soak -- --minutes 2");
            return Ok(());
        }
        _ => {}
    }
    let args = SoakArgs::parse();
    // On the main thread only: the kernel ties the processes that we start to the thread that
    // started them.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = LocalSet::new();
    let work = async {
        if args.figures {
            figures::measure(&args).await
        } else {
            run(&args).await
        }
    };
    local.block_on(&runtime, begin::unless_stopped(work))
}

async fn run(args: &SoakArgs) -> Result<()> {
    let time = SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default()
        .as_micros();
    let seed = args
        .seed
        .unwrap_or(u64::try_from(time).unwrap_or(1) % 1_000_000);
    let (long, exact) = (args.length() >= SLOPE_FROM, args.length() >= EXACT_FROM);
    eprintln!(
        "soak of {:?} at {} calls/s, seed {seed}, {}",
        args.length(),
        args.rate,
        args.bin.display()
    );
    let world = SoakWorld::start(&args.bin, args.plant.as_deref()).await?;
    let soak = Rc::new(SoakRun::new(world, seed, args.rate));
    levels::touch(&soak)
        .await
        .with_context(|| soak.world.tail())?;
    let mut samples = Vec::new();
    phase(&soak, args.warm_up(), args.rate, &mut samples).await;
    eprintln!("warm; waiting for rest");
    let before = levels::settled(&soak, exact).await?;
    // What went wrong in the warm-up counts; what went well does not.
    let broken = soak.tally(|tally| std::mem::take(tally).broken);
    soak.tally(|tally| {
        broken
            .into_iter()
            .for_each(|how| tally.broken("in the warm-up", how))
    });
    samples.clear();
    let took = phase(&soak, args.length(), args.rate, &mut samples).await;
    eprintln!("over; waiting for rest");
    let (left, after) = levels::back(&soak, &before, exact).await?;
    for difference in &left {
        soak.broken("not as before", difference.clone());
    }
    let metrics = admin::metrics(soak.world.admin).await?;
    for (metric, what) in [
        ("moongate_panics_total", "panics"),
        ("moongate_store_dropped_total", "changes lost"),
    ] {
        if metrics.sum(metric, &[]) > 0.0 {
            soak.broken(what, metrics.sum(metric, &[]).to_string());
        }
    }
    stop(&soak).await;
    let report = RunReport {
        args,
        seed,
        long,
        took,
        before: &before,
        after: &after,
        samples: &samples,
        heap: memory(&metrics).1,
    };
    soak.tally(|tally| report.finish(tally))
}

/// Runs everything for a time, and samples the gateway's memory.
async fn phase(
    soak: &Rc<SoakRun>,
    length: Duration,
    rate: f64,
    samples: &mut Vec<(f64, f64)>,
) -> Duration {
    soak.begin(length);
    let began = Instant::now();
    let mut tasks = crowd::start(soak, rate);
    tasks.extend(chaos::start(soak));
    let mut clock = interval(Duration::from_secs(1));
    for turn in 0_u32.. {
        clock.tick().await;
        if soak.is_over() {
            break;
        }
        if turn % TELL != 0 && turn % SAMPLE != 0 {
            continue;
        }
        let metrics = if turn % SAMPLE == 0 {
            at_ease(soak).await
        } else {
            admin::metrics(soak.world.admin).await
        };
        match metrics {
            Ok(metrics) => {
                if turn % SAMPLE == 0 {
                    samples.push((began.elapsed().as_secs_f64(), memory(&metrics).0));
                }
                if turn % TELL == 0 {
                    report::progress(soak, began.elapsed(), &metrics);
                }
            }
            Err(error) => soak.broken("metrics", format!("{error:#}")),
        }
    }
    let took = began.elapsed();
    for task in tasks {
        if let Err(error) = task.await {
            soak.broken("the soak itself", error.to_string());
        }
    }
    took
}

/// The metrics while nobody calls.
async fn at_ease(soak: &SoakRun) -> Result<admin::MetricsSample> {
    soak.hold.set(true);
    let end = Instant::now() + HOLD;
    loop {
        let metrics = admin::metrics(soak.world.admin).await;
        let quiet = metrics
            .as_ref()
            .is_ok_and(|metrics| metrics.sum("moongate_inflight", &[]) <= FEW);
        if quiet || metrics.is_err() || Instant::now() > end {
            soak.hold.set(false);
            return metrics;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Stops the gateway: it says that all went well, and nothing of it is left.
async fn stop(soak: &SoakRun) {
    let below = processes_of(soak);
    let Some(gateway) = soak.world.gateway.borrow_mut().take() else {
        return;
    };
    match gateway.ended(Duration::from_secs(20)).await {
        Some(status) if status.success() => {}
        other => soak.broken("the stop", format!("{other:?}")),
    }
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let left = below.iter().filter(|pid| processes::alive(**pid)).count();
        if left == 0 {
            return;
        }
        if Instant::now() > end {
            return soak.broken("processes left behind", left.to_string());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn processes_of(soak: &SoakRun) -> std::collections::BTreeSet<u32> {
    processes::descendants(soak.world.pid)
}
