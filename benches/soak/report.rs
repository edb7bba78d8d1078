//! Progress, the verdict on memory, and the summary.

use crate::admin::MetricsSample;
use crate::args::SoakArgs;
use crate::judge::Tally;
use crate::levels::{IdleLevels, memory};
use crate::slope::{Slope, theil_sen};
use crate::soak::SoakRun;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::time::Duration;

/// The steepest slope, in bytes an hour.
const SLOPE: f64 = 1_000_000.0;
/// The most that memory may grow in a short run, in bytes, both times at rest: of what is
/// allocated, and of what the system has given.
const GROWTH: (f64, f64) = (4e6, 32e6);
const MB: f64 = 1e6;

/// A finished run.
pub(crate) struct RunReport<'a> {
    pub(crate) args: &'a SoakArgs,
    pub(crate) seed: u64,
    /// Whether the slope counts.
    pub(crate) long: bool,
    pub(crate) took: Duration,
    pub(crate) before: &'a IdleLevels,
    pub(crate) after: &'a IdleLevels,
    pub(crate) samples: &'a [(f64, f64)],
    /// Whether the samples are of the heap.
    pub(crate) heap: bool,
}

/// One line.
pub(crate) fn progress(soak: &SoakRun, elapsed: Duration, metrics: &MetricsSample) {
    let (bytes, heap) = memory(metrics);
    let (sessions, streams) = (
        metrics.sum("moongate_sessions", &[]),
        metrics.sum("moongate_streams", &[]),
    );
    soak.tally(|tally| {
        eprintln!(
            "{:6.0} s: {} calls, {} allowed failures, {} broken promises; {} sessions, {} streams \
             now; {} kills, {} reloads, {} outages; {} {:.1} MB",
            elapsed.as_secs_f64(),
            tally.count("calls"),
            tally.count("allowed failures"),
            tally.count("broken promises"),
            sessions,
            streams,
            tally.count("children killed"),
            tally.count("reloads"),
            tally.count("store outages"),
            if heap { "heap" } else { "resident" },
            bytes / MB,
        );
    });
}

impl RunReport<'_> {
    /// Prints everything; an error: a promise was broken.
    pub(crate) fn finish(&self, tally: &mut Tally) -> Result<()> {
        let slope = theil_sen(self.samples);
        self.judge_memory(tally, slope, self.after.memory - self.before.memory);
        println!(
            "\nsoak: {:.0} s at up to {} calls/s, seed {}",
            self.took.as_secs_f64(),
            self.args.rate,
            self.seed
        );
        for (name, count) in &tally.counts {
            println!("  {name:<34} {count:>9}");
        }
        println!(
            "  {:<34} {:>9.0}",
            "calls a second",
            tally.count("calls") as f64 / self.took.as_secs_f64()
        );
        self.print_memory(slope);
        let recovery = recovery(&mut tally.recoveries);
        println!("  from a server's end to its next success: {recovery}");
        self.print_levels();
        println!("  allowed failures, by server and kind:");
        for (kind, count) in &tally.allowed {
            println!("    {count:>7} {kind}");
        }
        if let Some(path) = &self.args.json {
            std::fs::write(path, self.json(tally, slope).to_string())?;
        }
        if tally.broken.is_empty() {
            println!("every promise was kept");
            return Ok(());
        }
        for broken in &tally.broken {
            println!("BROKEN: {broken}");
        }
        bail!(
            "{} promises were broken; again with --seed {}",
            tally.count("broken promises"),
            self.seed
        )
    }

    fn print_memory(&self, slope: Option<Slope>) {
        let what = if self.heap {
            "live heap"
        } else {
            "resident memory"
        };
        println!(
            "  {what} at rest: {:.2} MB before, {:.2} MB after",
            self.before.memory / MB,
            self.after.memory / MB
        );
        if let Some(slope) = slope {
            let per_hour = |value: f64| value * 3600.0 / MB;
            let (median, low, high) = (
                per_hour(slope.median),
                per_hour(slope.low),
                per_hour(slope.high),
            );
            let note = if self.long {
                ""
            } else {
                " (means little over so short a time)"
            };
            println!("  slope: {median:+.3} MB/h, 95 % between {low:+.3} and {high:+.3}{note}");
        }
    }

    fn print_levels(&self) {
        let count = |levels: &IdleLevels| {
            (
                levels.descriptors.values().sum::<usize>(),
                levels.children.values().sum::<usize>(),
            )
        };
        let ((fds, children), (fds_after, children_after)) =
            (count(self.before), count(self.after));
        println!(
            "  descriptors {fds} before, {fds_after} after; children {children}, {children_after}; \
             series {}, {}",
            self.before.series, self.after.series
        );
    }

    fn judge_memory(&self, tally: &mut Tally, slope: Option<Slope>, growth: f64) {
        if !self.long {
            let most = if self.heap { GROWTH.0 } else { GROWTH.1 };
            if growth > most {
                tally.broken(
                    "memory grows",
                    format!("{:.1} MB, more than {:.1}", growth / MB, most / MB),
                );
            }
            return;
        }
        match slope.filter(|_| self.heap) {
            Some(slope) if slope.median * 3600.0 <= SLOPE => {}
            Some(slope) => tally.broken(
                "memory grows",
                format!("{:.2} MB/h", slope.median * 3600.0 / MB),
            ),
            None => tally.broken(
                "memory",
                "build the gateway with its default features: its heap is not known".to_owned(),
            ),
        }
    }

    fn json(&self, tally: &Tally, slope: Option<Slope>) -> Value {
        json!({
            "seconds": self.took.as_secs_f64(), "rate": self.args.rate, "seed": self.seed,
            "counts": tally.counts, "allowed": tally.allowed, "broken": tally.broken,
            "slope_bytes_per_hour": slope.map(|s| [s.low * 3600.0, s.median * 3600.0,
                s.high * 3600.0]),
            "heap": self.heap, "at_rest": [self.before.memory, self.after.memory],
            "samples": self.samples, "recoveries_ms": tally.recoveries,
            "descriptors": [self.before.descriptors, self.after.descriptors],
            "children": [self.before.children, self.after.children],
            "processes": [self.before.processes, self.after.processes],
            "gauges": [self.before.gauges, self.after.gauges],
            "series": [self.before.series, self.after.series],
        })
    }
}

fn recovery(times: &mut [u64]) -> String {
    times.sort_unstable();
    let at = |share: f64| {
        times
            .get(((times.len() as f64 - 1.0) * share) as usize)
            .copied()
    };
    match (at(0.5), at(0.99), times.last()) {
        (Some(half), Some(most), Some(longest)) => {
            format!(
                "p50 {half} ms, p99 {most} ms, longest {longest} ms ({} ends)",
                times.len()
            )
        }
        _ => "none".to_owned(),
    }
}
