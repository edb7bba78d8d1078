//! The report: Markdown tables, on standard output and between the marks in the README.

use crate::harness::readme;
use crate::measure::{CaseFigures, MeasuredRow};
use crate::startup::StartupFigures;
use anyhow::Result;
use std::fmt::Write;

/// Date, machine, kernel, and how it was measured.
pub(crate) fn heading(quick: bool, seconds: f64, slices: u32) -> String {
    let mode = if quick { "quick, " } else { "" };
    format!(
        "Measured {}; {mode}{seconds} s for each line in {slices} slices.\n",
        readme::date_and_machine()
    )
}

/// One table; ratios are to `base`, the column that only forwards or only answers.
pub(crate) fn table(title: &str, base: &str, rows: &[MeasuredRow]) -> Result<String> {
    let mut out = format!("\n### {title}\n\n");
    writeln!(
        out,
        "| | conns | through | calls/s | ÷ {base} | p50 µs | p99 µs | CPU µs/call | least–most | − \
         {base} | answer |"
    )?;
    writeln!(out, "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---|")?;
    let mut failures = String::new();
    for row in rows {
        let reference = row.figures.iter().find(|figures| figures.name == base);
        let mut label = row.case.label();
        for figures in &row.figures {
            if let Some(reason) = &figures.failed {
                let reason = reason.trim().replace('\n', " ");
                writeln!(
                    failures,
                    "- {}, {}: {reason}",
                    row.case.label(),
                    figures.name
                )?;
            }
            let cells = cells(figures, reference, base);
            writeln!(
                out,
                "| {label} | {} | {} | {cells} |",
                row.case.connections, figures.name
            )?;
            label.clear();
        }
    }
    if !failures.is_empty() {
        write!(out, "\nFailed:\n\n{failures}")?;
    }
    Ok(out)
}

fn cells(figures: &CaseFigures, reference: Option<&CaseFigures>, base: &str) -> String {
    if figures.failed.is_some() || figures.tally.calls == 0 {
        return "failed | | | | | | | ".to_owned();
    }
    let same = figures.name == base;
    let reference = reference.filter(|reference| !same && reference.failed.is_none());
    let ratio = reference.map(|reference| format!("{:.2}", rate(figures) / rate(reference)));
    let used = cpu_per_call(figures).map(|cpu| format!("{cpu:.1}"));
    let more =
        reference.and_then(|reference| Some(cpu_per_call(figures)? - cpu_per_call(reference)?));
    let micros = |quantile| figures.tally.latency.value_at_quantile(quantile) as f64 / 1e3;
    format!(
        "{:.0} | {} | {:.0} | {:.0} | {} | {} | {} | {}",
        rate(figures),
        ratio.unwrap_or_default(),
        micros(0.5),
        micros(0.99),
        used.unwrap_or_default(),
        range(figures).unwrap_or_default(),
        more.map(|more| format!("{more:+.1}")).unwrap_or_default(),
        if figures.sse { "SSE" } else { "JSON" },
    )
}

fn rate(figures: &CaseFigures) -> f64 {
    figures.tally.calls as f64 / figures.tally.seconds
}

fn cpu_per_call(figures: &CaseFigures) -> Option<f64> {
    let (calls, cpu) = figures
        .slices
        .iter()
        .fold((0, 0), |sum, slice| (sum.0 + slice.0, sum.1 + slice.1));
    (calls > 0).then(|| cpu as f64 / 1e3 / calls as f64)
}

/// The slices that took the least and the most CPU time for a call.
fn range(figures: &CaseFigures) -> Option<String> {
    let each = figures
        .slices
        .iter()
        .filter(|slice| slice.0 > 0)
        .map(|(calls, cpu)| *cpu as f64 / 1e3 / *calls as f64);
    let (least, most) = (
        each.clone().min_by(f64::total_cmp)?,
        each.max_by(f64::total_cmp)?,
    );
    Some(format!("{least:.1}–{most:.1}"))
}

/// Start-up and idle memory.
pub(crate) fn startup(found: &Result<StartupFigures>) -> Result<String> {
    let mut out =
        "\n### Start, with ten servers of which five hang, refuse or do not exist\n\n".to_owned();
    match found {
        Err(error) => writeln!(out, "Not measured: {error:#}")?,
        Ok(found) => {
            let all = &found.listening;
            let at = |index: usize| all.get(index).copied().unwrap_or_default();
            let (median, least, most) = (at(all.len() / 2), at(0), at(all.len().saturating_sub(1)));
            writeln!(out, "| | |\n|---|---:|")?;
            writeln!(
                out,
                "| spawn to first connection, median of {} | {median:.1} ms |",
                all.len()
            )?;
            writeln!(out, "| least, most | {least:.1} ms, {most:.1} ms |")?;
            writeln!(
                out,
                "| start to first call answered | {:.0} ms |",
                found.first_call
            )?;
            writeln!(out, "| idle, resident | {} |", kib(found.idle))?;
        }
    }
    Ok(out)
}

/// Memory of parked calls.
pub(crate) fn parked(found: &Result<i64>) -> Result<String> {
    let mut out =
        "\n### A parked call: a stateless client, a server with sessions that waits for an \
         answer\n\n"
            .to_owned();
    match found {
        Ok(bytes) => writeln!(
            out,
            "{:.1} KiB resident for each, a connection to the server included.",
            *bytes as f64 / 1024.0
        )?,
        Err(error) => writeln!(out, "Not measured: {error:#}")?,
    }
    Ok(out)
}

/// Memory after the calls.
pub(crate) fn memory(all: &[(&str, Option<u64>, Option<u64>)]) -> Result<String> {
    let mut out =
        "\n### Resident memory\n\n| | before | after all calls |\n|---|---:|---:|\n".to_owned();
    for (name, before, after) in all {
        writeln!(out, "| {name} | {} | {} |", kib(*before), kib(*after))?;
    }
    Ok(out)
}

fn kib(kib: Option<u64>) -> String {
    kib.map_or_else(
        || "?".to_owned(),
        |kib| format!("{:.1} MiB", kib as f64 / 1024.0),
    )
}
