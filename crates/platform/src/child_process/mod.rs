//! Child processes, each together with everything that it starts.
//!
//! Owns what belongs to a child and how all of it is ended: a process group on Unix, a job object
//! on Windows. Does not decide when. Invariant: a signal or a kill reaches the wrapper (`npx`,
//! `uvx`, `sh`) and the program in it.

mod captured_output;
#[cfg(unix)]
mod orphans;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as system;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as system;

pub use captured_output::{CaptureFailure, CaptureLimits, capture_output};
pub use system::{
    ChildTree, SYSTEM_VARIABLES, exit_signal, kill_group, kill_with_variable, reap_orphans,
    spawn_separately, terminate_group,
};

/// Standard streams of a child.
pub type ChildStreams = (
    tokio::process::ChildStdin,
    tokio::process::ChildStdout,
    tokio::process::ChildStderr,
);

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn command(program: &str, args: &[&str]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(program);
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A program that runs for as long as its input is open.
    fn waits_for_input() -> tokio::process::Command {
        if cfg!(windows) {
            command("sort.exe", &[])
        } else {
            command("cat", &[])
        }
    }

    #[tokio::test]
    async fn a_child_ends_with_its_input_and_says_how() {
        let mut child = ChildTree::spawn(waits_for_input()).unwrap();
        let (stdin, ..) = child.take_streams().unwrap();
        assert!(child.take_streams().is_none(), "streams are taken once");
        drop(stdin);
        let status = child.wait().await.unwrap();
        assert!(status.success());
        assert_eq!(exit_signal(status), None);
    }

    #[tokio::test]
    async fn a_killed_child_is_waited_for() {
        let mut child = ChildTree::spawn(waits_for_input()).unwrap();
        let _streams = child.take_streams().unwrap();
        child.kill();
        let status = child.wait().await.unwrap();
        assert!(!status.success());
        assert_eq!(exit_signal(status).is_some(), cfg!(unix));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_kill_reaches_what_the_child_started() {
        use tokio::io::AsyncReadExt as _;
        let mut child = ChildTree::spawn(command("sh", &["-c", "sleep 600 & wait"])).unwrap();
        let (_stdin, mut stdout, _stderr) = child.take_streams().unwrap();
        assert!(child.terminate(), "Unix has a polite signal");
        child.kill();
        child.wait().await.unwrap();
        // `sleep` holds the output open for as long as it lives.
        assert_eq!(stdout.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    }
}
