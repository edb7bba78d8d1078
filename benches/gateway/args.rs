//! The command line.

use crate::peer::{self, PeerGateway};
use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Measures the gateway side by side with a plain reverse proxy, no proxy at all, and other
/// gateways.
#[derive(Debug, Parser)]
#[command(name = "gateway", about)]
pub(crate) struct BenchArgs {
    /// One second for each measurement instead of five, and a single connection only where it
    /// matters most
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seconds for each measurement, over all its slices
    #[arg(long)]
    seconds: Option<f64>,
    /// Slices that each measurement is cut into, the targets taking turns
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) slices: u32,
    /// Only rows whose label contains this
    #[arg(long, default_value = "")]
    pub(crate) only: String,
    /// What to measure
    #[arg(long, value_delimiter = ',',
        default_values_t = [RunPart::Calls, RunPart::Lists, RunPart::Startup, RunPart::Parked])]
    pub(crate) parts: Vec<RunPart>,
    /// The gateway's binary
    #[arg(long, env = "MOONGATE_BIN", default_value = env!("CARGO_BIN_EXE_moongate"))]
    pub(crate) bin: PathBuf,
    /// A second ceiling in each row: how far it is from the first is how far to trust the row
    #[arg(long)]
    pub(crate) control: bool,
    /// Leave the gateway out
    #[arg(long)]
    pub(crate) no_gateway: bool,
    /// Another gateway: NAME=URL[,tools=PATTERN][,client=ERA][,server=ERA][,pid=PID]; repeatable
    #[arg(long = "peer", value_parser = peer::parse)]
    pub(crate) peers: Vec<PeerGateway>,
    /// Where the upstreams listen, for a peer's configuration: the legacy one here, the modern one
    /// a port above
    #[arg(long, default_value_t = 0)]
    pub(crate) upstream_port: u16,
    /// Put the tables into benches/README.md
    #[arg(long)]
    pub(crate) write: bool,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

/// A part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunPart {
    Calls,
    Lists,
    Startup,
    Parked,
    /// Streams and sessions by the thousand
    Memory,
    /// More calls than there is room for
    Overload,
    /// Servers that hang and flood, clients that do not read
    Neighbours,
}

impl std::fmt::Display for RunPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            self.to_possible_value()
                .as_ref()
                .map_or("", |value| value.get_name()),
        )
    }
}

impl BenchArgs {
    pub(crate) fn runs(&self, part: RunPart) -> bool {
        self.parts.contains(&part)
    }

    /// How long one slice is.
    pub(crate) fn slice(&self) -> Duration {
        let seconds = self.seconds.unwrap_or(if self.quick { 1.0 } else { 5.0 });
        Duration::from_secs_f64((seconds / f64::from(self.slices)).clamp(0.05, 600.0))
    }
}
