//! Instructions and allocations of a call, counted by valgrind: they do not depend on how busy a
//! machine is. Each row is a ratio to a plain reverse proxy of the same run. See
//! `benches/README.md`.

mod args;
mod callgrind;
mod counter;
#[path = "../harness/mod.rs"]
mod harness;
mod stage;
mod table;

use anyhow::{Result, bail, ensure};
use args::CountArgs;
use harness::cases::{self, AskedFor, BenchCase};
use harness::{entry, readme};
use stage::CountStage;
use std::io::Write;
use table::RowChanges;

/// The name of the table's marks.
const SECTION: &str = "instructions";

fn main() -> Result<()> {
    entry::run("instructions", async |args: CountArgs| run(&args).await)
}

async fn run(args: &CountArgs) -> Result<()> {
    if cfg!(debug_assertions) && (args.check || args.write) {
        bail!(
            "the ceiling is a part of this program, which is a debug build: run it with cargo bench"
        );
    }
    let valgrind = counter::version().await?;
    let mut stage = CountStage::start(args).await?;
    let mut out = format!(
        "Counted {}, {valgrind}, {} calls a row.\n\n",
        readme::date_and_machine(),
        args.calls
    );
    out.push_str(table::HEAD);
    let mut functions = String::new();
    for case in rows().filter(|case| case.label().contains(&args.only)) {
        let label = case.label();
        eprintln!("{label}");
        let gateway = stage.gateway(&case).await?;
        let ceiling = stage.ceiling(&case).await?;
        out.push_str(&table::line(&label, &gateway, ceiling)?);
        let dearest = [
            ("gateway", gateway.dearest()),
            ("ceiling", ceiling.dearest()),
        ];
        functions.extend(dearest.map(|(through, lines)| format!("\n{label}, {through}:\n{lines}")));
    }
    stage.stop().await;
    let mut printed = std::io::stdout().lock();
    printed.write_all(out.as_bytes())?;
    if args.functions {
        printed.write_all(functions.as_bytes())?;
    }
    if args.check {
        check(&out)?;
    }
    if args.write {
        readme::write(SECTION, &out)?;
    }
    Ok(())
}

/// The rows of `benches/gateway`, each on one connection. Without the long lists: in how many
/// pieces the ceiling gets one, which decides what it costs, is a matter of time.
fn rows() -> impl Iterator<Item = BenchCase> {
    let calls = cases::calls(false)
        .into_iter()
        .filter(|case| case.connections == 1);
    calls.chain(
        cases::lists()
            .into_iter()
            .filter(|case| case.ask == AskedFor::List(10)),
    )
}

/// Holds a run against the table.
fn check(out: &str) -> Result<()> {
    let page = readme::read()?;
    let (_, before, _) = readme::split(&page, SECTION)?;
    let run = table::ratios(out)?;
    ensure!(!run.is_empty(), "no row has this in its label");
    let changes = RowChanges::between(&table::ratios(before)?, &run);
    if !changes.improvements.is_empty() {
        eprintln!(
            "worth a new table, by --write:\n{}",
            changes.improvements.join("\n")
        );
    }
    ensure!(
        changes.problems.is_empty(),
        "not as in benches/README.md:\n{}",
        changes.problems.join("\n")
    );
    Ok(())
}
