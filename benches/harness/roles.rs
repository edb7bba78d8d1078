//! The other things this program is: it starts itself again as each process of a run.

use super::wire::ProtocolEra;
use super::{ceiling, signals, upstream};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use std::future::Future;
use std::path::Path;

/// Runs `role` with its arguments until it is done.
pub(crate) fn run(role: &str, args: &[String]) -> Result<()> {
    let arg = |at: usize| {
        args.get(at)
            .map(String::as_str)
            .with_context(|| format!("{role}: argument {at} is missing"))
    };
    match role {
        "upstream" => single(upstream::http(
            era(arg(0)?)?,
            arg(1)?.parse()?,
            arg(2)?.parse()?,
        )),
        "stdio" => upstream::stdio(era(arg(0)?)?, arg(1)?.parse()?),
        "mute" => single(upstream::mute()),
        "mute-stdio" => upstream::mute_stdio(),
        "flood" => upstream::bad_stdio(&["flood", "progress"]),
        "hang" => upstream::bad_stdio(&["hang"]),
        "ceiling" => many(ceiling::proxy(arg(0)?)),
        "static" => many(ceiling::fixed(Path::new(arg(0)?), arg(1)?)),
        "exec" => signals::exec(arg(0)?, args.get(1..).unwrap_or_default()),
        _ => bail!("no role {role:?}"),
    }
}

fn era(name: &str) -> Result<ProtocolEra> {
    ProtocolEra::from_str(name, false).map_err(|error| anyhow::anyhow!(error))
}

/// On one thread: the cheapest way, for what must not be in the way.
fn single(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    finish(runtime.block_on(work))
}

/// On as many threads as there are processors, as the gateway itself.
fn many(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    finish(runtime.block_on(work))
}

/// Leaves at once: a blocked read of standard input would hold the runtime up.
fn finish(result: Result<()>) -> Result<()> {
    result?;
    std::process::exit(0)
}
