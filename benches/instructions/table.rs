//! The table of instructions in `benches/README.md`: how it is written, read again, and compared.
//!
//! Does not count. Invariant: what was written is read again as it was.

use super::callgrind::CostProfile;
use anyhow::{Context, Result};
use std::fmt::Write;

/// How much a row's ratio to the ceiling may grow.
const TOLERANCE: f64 = 0.03;
/// How many functions are listed.
const DEAREST: usize = 10;

/// What some calls cost.
#[derive(Debug)]
pub(crate) struct CallCosts {
    pub(crate) profile: CostProfile,
    pub(crate) calls: u64,
    /// The answers came as streams of events.
    pub(crate) sse: bool,
}

impl CallCosts {
    pub(crate) fn instructions(&self) -> f64 {
        self.profile.instructions as f64 / self.calls as f64
    }

    fn allocations(&self) -> f64 {
        self.profile.allocations as f64 / self.calls as f64
    }

    /// The functions that cost most, one a line.
    pub(crate) fn dearest(&self) -> String {
        let mut functions: Vec<_> = self.profile.functions.iter().collect();
        functions.sort_by_key(|(_, cost)| std::cmp::Reverse(**cost));
        let line = |(name, cost): (&String, &u64)| {
            let share = 100.0 * *cost as f64 / self.profile.instructions as f64;
            format!(
                "{:>9.0}  {share:>4.1} %  {name}\n",
                *cost as f64 / self.calls as f64
            )
        };
        functions.into_iter().take(DEAREST).map(line).collect()
    }
}

/// The ratio of one row to the plain proxy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowRatio {
    pub(crate) label: String,
    pub(crate) ratio: f64,
}

/// The head of the table.
pub(crate) const HEAD: &str = "\
| | instructions | ÷ ceiling | allocations | ceiling: instructions | allocations | answer |
|---|---:|---:|---:|---:|---:|---|
";

/// One line of the table.
pub(crate) fn line(label: &str, gateway: &CallCosts, ceiling: &CallCosts) -> Result<String> {
    let mut out = String::new();
    writeln!(
        out,
        "| {label} | {:.0} | {:.3} | {:.1} | {:.0} | {:.1} | {} |",
        gateway.instructions(),
        gateway.instructions() / ceiling.instructions(),
        gateway.allocations(),
        ceiling.instructions(),
        ceiling.allocations(),
        if gateway.sse { "SSE" } else { "JSON" },
    )?;
    Ok(out)
}

/// The ratios in a table.
pub(crate) fn ratios(table: &str) -> Result<Vec<RowRatio>> {
    let rows = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.filter(|row| !row.starts_with('|'))
        .map(ratio)
        .collect()
}

fn ratio(row: &str) -> Result<RowRatio> {
    let mut cells = row.split(" | ");
    let label = cells.next().unwrap_or_default().to_owned();
    let ratio = cells
        .nth(1)
        .with_context(|| format!("no ratio in the row {row:?}"))?;
    let ratio = ratio
        .parse()
        .with_context(|| format!("{label}: {ratio:?} isn't a ratio"))?;
    Ok(RowRatio { label, ratio })
}

/// How the rows of a run differ from a table that was written before.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RowChanges {
    /// Rows that cost too much, or that the table lacks.
    pub(crate) problems: Vec<String>,
    /// Rows that cost so much less that the table is worth writing again.
    pub(crate) improvements: Vec<String>,
}

impl RowChanges {
    pub(crate) fn between(before: &[RowRatio], run: &[RowRatio]) -> Self {
        let mut changes = Self::default();
        for RowRatio { label, ratio } in run {
            let Some(old) = before.iter().find(|old| old.label == *label) else {
                changes
                    .problems
                    .push(format!("{label}: it isn't in the table"));
                continue;
            };
            let growth = ratio / old.ratio - 1.0;
            let text = format!(
                "{label}: {ratio:.3} times the ceiling, {:.3} in the table: {:+.1} %",
                old.ratio,
                100.0 * growth
            );
            if growth > TOLERANCE {
                changes.problems.push(text);
            } else if growth < -TOLERANCE {
                changes.improvements.push(text);
            }
        }
        changes
    }
}
