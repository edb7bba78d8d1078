//! Signals to other processes, and programs that take this one's place: Unix has both.

use anyhow::Result;

/// Signal to another process.
#[derive(Clone, Copy)]
#[allow(
    dead_code,
    reason = "the benches share this file, and each sends some of them"
)]
pub(crate) enum ProcessSignal {
    Kill,
    Reload,
    Terminate,
}

/// Sends a signal.
#[cfg(unix)]
pub(crate) fn send(pid: u32, signal: ProcessSignal) -> Result<()> {
    use anyhow::Context as _;
    use rustix::process::{Pid, Signal, kill_process};
    let pid = Pid::from_raw(pid.cast_signed()).context("no process")?;
    let signal = match signal {
        ProcessSignal::Kill => Signal::KILL,
        ProcessSignal::Reload => Signal::HUP,
        ProcessSignal::Terminate => Signal::TERM,
    };
    Ok(kill_process(pid, signal)?)
}

/// Becomes another program that the kernel ends when our parent ends.
#[cfg(unix)]
pub(crate) fn exec(program: &str, args: &[String]) -> Result<()> {
    use anyhow::Context as _;
    use std::os::unix::process::CommandExt as _;
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Err(std::process::Command::new(program).args(args).exec())
        .with_context(|| format!("cannot run {program}"))
}

#[cfg(not(unix))]
pub(crate) fn send(_: u32, _: ProcessSignal) -> Result<()> {
    anyhow::bail!("this system has no signals")
}

#[cfg(not(unix))]
pub(crate) fn exec(program: &str, _: &[String]) -> Result<()> {
    anyhow::bail!("{program} cannot take the place of this process on this system")
}
