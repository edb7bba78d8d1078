//! The command line.

use clap::Parser;
use std::path::PathBuf;
use std::time::Duration;

/// Keeps a gateway busy while servers die, restart and change, and checks that it keeps every
/// promise.
#[derive(Debug, Parser)]
#[command(name = "soak", about)]
pub(crate) struct SoakArgs {
    /// How long, beside the warm-up; from half an hour on the slope of the heap counts too
    #[arg(long, conflicts_with = "seconds")]
    minutes: Option<f64>,
    /// The same in seconds
    #[arg(long)]
    seconds: Option<f64>,
    /// Calls a second
    #[arg(long, default_value_t = 200.0)]
    pub(crate) rate: f64,
    /// What all choices follow from; made up where it is not given
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Where the summary goes as JSON, with all samples
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// The gateway's binary
    #[arg(long, env = "MOONGATE_BIN", default_value = env!("CARGO_BIN_EXE_moongate"))]
    pub(crate) bin: PathBuf,
    /// Measures how fast it recovers from a crash, a kill -9 and reloads instead
    #[arg(long)]
    pub(crate) figures: bool,
    /// Breaks a server on purpose, to see that it is noticed: `duplicate`, `wrong-id`, `result`,
    /// `hang` or `reset`
    #[arg(long)]
    pub(crate) plant: Option<String>,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

impl SoakArgs {
    /// How long the soak lasts.
    pub(crate) fn length(&self) -> Duration {
        Duration::from_secs_f64(
            self.seconds
                .or(self.minutes.map(|m| m * 60.0))
                .unwrap_or(120.0)
                .clamp(5.0, 1e6),
        )
    }

    /// How long the warm-up lasts: a tenth.
    pub(crate) fn warm_up(&self) -> Duration {
        (self.length() / 10).clamp(Duration::from_secs(12), Duration::from_secs(120))
    }
}
