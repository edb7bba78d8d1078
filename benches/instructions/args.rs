//! The command line.

use clap::Parser;
use std::path::PathBuf;

/// Counts instructions and allocations of each call, through the gateway and through a plain
/// reverse proxy.
#[derive(Debug, Parser)]
#[command(name = "instructions")]
pub(crate) struct CountArgs {
    /// Only rows whose label contains this
    #[arg(long, default_value = "")]
    pub(crate) only: String,
    /// Calls that are counted in each row, in five slices; the cheapest one is reported
    #[arg(long, default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) calls: u64,
    /// The gateway's binary, with its symbols
    #[arg(long, env = "MOONGATE_BIN", default_value = env!("CARGO_BIN_EXE_moongate"))]
    pub(crate) bin: PathBuf,
    /// List the ten functions of each row that cost most by themselves
    #[arg(long)]
    pub(crate) functions: bool,
    /// Fail if the ratio of a row is more than 3 % above the one in benches/README.md
    #[arg(long)]
    pub(crate) check: bool,
    /// Put the table into benches/README.md
    #[arg(long, conflicts_with_all = ["check", "only"])]
    pub(crate) write: bool,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}
