//! Children on Windows: one job object each.
//!
//! A process cannot leave its job, and the kernel ends all of a job when its last handle closes.
//! That happens with the gateway too, however it ends, so Windows needs no reaper process.

use std::io;
use std::process::ExitStatus;

use process_wrap::tokio::{ChildWrapper, CommandWrap, CreationFlags, JobObject, KillOnDrop};
use tokio::process::{ChildStdout, Command};
use windows::Win32::System::Threading::{CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW};

use super::ChildStreams;

/// Variables besides the common ones without which programs of this system do not run: sockets need
/// `SystemRoot`.
pub const SYSTEM_VARIABLES: &[&str] = &[
    "APPDATA",
    "ComSpec",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "NUMBER_OF_PROCESSORS",
    "OS",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "ProgramData",
    "ProgramFiles",
    "ProgramFiles(x86)",
    "SystemDrive",
    "SystemRoot",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
    "windir",
];

/// Child process with the job object that it and its descendants are in.
pub struct ChildTree {
    child: Box<dyn ChildWrapper>,
    pid: u32,
}

impl ChildTree {
    /// Starts a command in its own job. Must be called on the runtime.
    pub fn spawn(command: Command) -> io::Result<Self> {
        let mut command = CommandWrap::from(command);
        // Its own console, without a window: Ctrl-C in the gateway's console must not reach the
        // child.
        command.wrap(CreationFlags(CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP));
        // `KillOnDrop` makes the kernel kill the job when its handle closes.
        let child = command.wrap(KillOnDrop).wrap(JobObject).spawn()?;
        let pid = child
            .id()
            .ok_or_else(|| io::Error::other("the child has ended already"))?;
        Ok(ChildTree { child, pid })
    }

    /// Returns the child's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Takes the standard streams, once.
    pub fn take_streams(&mut self) -> Option<ChildStreams> {
        Some((
            self.child.stdin().take()?,
            self.child.stdout().take()?,
            self.child.stderr().take()?,
        ))
    }

    /// Takes the standard output, once, of a child that has no other stream.
    pub(super) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout().take()
    }

    /// Waits for the child to exit. Others in its job may still run.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        // The job's own `wait` would return only when all of them have ended.
        self.child.inner_mut().wait().await
    }

    /// Asks the child to end. False: Windows has no signal for that.
    pub fn terminate(&self) -> bool {
        false
    }

    /// Kills the job, or those of it that are left.
    pub fn kill(&mut self) {
        // It may have ended meanwhile.
        let _ = self.child.start_kill();
    }
}

/// Starts a command that is waited for elsewhere, away from the console's Ctrl-C.
pub fn spawn_separately(command: &mut std::process::Command) -> io::Result<std::process::Child> {
    separate_from_terminal(command).spawn()
}

/// Reaps orphans. Windows gives a process no children that it did not start.
pub async fn reap_orphans() -> io::Result<()> {
    Ok(())
}

/// Returns the signal that ended a child. Windows has none.
pub fn exit_signal(_: ExitStatus) -> Option<i32> {
    None
}

/// Keeps the console's Ctrl-C from a command that is about to be started.
fn separate_from_terminal(command: &mut std::process::Command) -> &mut std::process::Command {
    use std::os::windows::process::CommandExt as _;
    command.creation_flags(CREATE_NO_WINDOW.0 | CREATE_NEW_PROCESS_GROUP.0)
}

/// Does nothing: the job ends its processes.
pub fn terminate_group(_: u32) {}

/// Does nothing: the job ends its processes.
pub fn kill_group(_: u32) {}

/// Does nothing and returns 0: a process cannot leave its job.
pub fn kill_with_variable(_: &str) -> usize {
    0
}
