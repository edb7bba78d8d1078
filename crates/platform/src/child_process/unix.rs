//! Children on Unix: one process group each. What leaves its group is found by its environment, on
//! Linux.
//!
//! Built on tokio and rustix, without process-wrap: its `wait` returns only when the whole group
//! has ended, and the exit status of a child must be known while a grandchild still runs.

use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, ChildStdout, Command};

use super::ChildStreams;
use super::orphans::OwnChildren;
pub use super::orphans::reap_orphans;
use crate::open_files;

/// Variables besides the common ones without which programs of this system do not run.
pub const SYSTEM_VARIABLES: &[&str] = &[];

/// Child process with the process group that it leads.
pub struct ChildTree {
    child: Child,
    pid: u32,
}

impl ChildTree {
    /// Starts a command in its own process group. Must be called on the runtime.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        // Ctrl-C at the terminal must not reach the child before the gateway has decided what to
        // do.
        let mut own_children = OwnChildren::lock();
        let child = open_files::spawn(command.process_group(0).kill_on_drop(true))?;
        let pid = child
            .id()
            .ok_or_else(|| io::Error::other("the child has ended already"))?;
        own_children.add(pid);
        Ok(ChildTree { child, pid })
    }

    /// Returns the child's process id. It is the group's id, too.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Takes the standard streams, once.
    pub fn take_streams(&mut self) -> Option<ChildStreams> {
        Some((
            self.child.stdin.take()?,
            self.child.stdout.take()?,
            self.child.stderr.take()?,
        ))
    }

    /// Takes the standard output, once, of a child that has no other stream.
    pub(super) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits for the child to exit. Others in its group may still run.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks the group to end. False if the system has no signal for that.
    pub fn terminate(&self) -> bool {
        terminate_group(self.pid);
        true
    }

    /// Kills the group, or those of it that are left.
    pub fn kill(&mut self) {
        kill_group(self.pid);
    }
}

impl Drop for ChildTree {
    fn drop(&mut self) {
        // If it still runs, the runtime kills it, and needs no exit status.
        OwnChildren::lock().remove(self.pid);
    }
}

/// Starts a command that is waited for elsewhere, away from the terminal's Ctrl-C.
pub fn spawn_separately(command: &mut std::process::Command) -> io::Result<std::process::Child> {
    let mut own_children = OwnChildren::lock();
    let child = separate_from_terminal(command).spawn()?;
    own_children.add(child.id());
    Ok(child)
}

/// Returns the signal that ended a child.
pub fn exit_signal(status: ExitStatus) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt as _;
    status.signal()
}

/// Keeps the terminal's Ctrl-C from a command that is about to be started.
fn separate_from_terminal(command: &mut std::process::Command) -> &mut std::process::Command {
    use std::os::unix::process::CommandExt as _;
    command.process_group(0)
}

/// Asks a process group to end.
pub fn terminate_group(group: u32) {
    signal_group(group, Signal::TERM);
}

/// Kills a process group.
pub fn kill_group(group: u32) {
    signal_group(group, Signal::KILL);
}

fn signal_group(group: u32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group.cast_signed()) {
        // The group may have ended meanwhile.
        let _ = kill_process_group(group, signal);
    }
}

/// Kills every other process with an environment variable that starts with `start` (`NAME=value`).
/// Returns their number. Blocks while it reads `/proc`.
pub fn kill_with_variable(start: &str) -> usize {
    let own = std::process::id();
    // Only Linux has /proc; elsewhere the process groups must suffice.
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return 0;
    };
    let mut killed = 0;
    for entry in entries.filter_map(Result::ok) {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<u32>().ok())
        else {
            continue;
        };
        // Processes end meanwhile, and those of other users cannot be read: neither is a child of
        // ours.
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else {
            continue;
        };
        let marked = environment
            .split(|b| *b == 0)
            .any(|variable| variable.starts_with(start.as_bytes()));
        if let (true, Some(pid)) = (marked && pid != own, Pid::from_raw(pid.cast_signed())) {
            killed += usize::from(kill_process(pid, Signal::KILL).is_ok());
        }
    }
    killed
}
