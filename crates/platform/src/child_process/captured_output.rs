//! Output of a short program that is run to its end.
//!
//! Owns the limits of time and size. Does not know what the output means. Invariant: the program
//! and all that it started have ended when the run is over, also when the run is dropped.

use std::ffi::OsString;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStdout, Command};
use tokio::time::timeout;

use super::system::ChildTree;

/// Limits of a run.
#[derive(Clone, Copy, Debug)]
pub struct CaptureLimits {
    /// Longest time.
    pub time: Duration,
    /// Longest output, in bytes.
    pub bytes: usize,
}

/// Reason why a run has no output.
#[derive(Debug)]
pub enum CaptureFailure {
    /// The program cannot be started.
    Start(io::Error),
    /// The program did not end in time.
    Timeout,
    /// The output is too long.
    TooMuch,
    /// The program reported a failure.
    Exit(ExitStatus),
    /// The output or the exit status cannot be read.
    Read(io::Error),
}

/// Child that ends with this value.
struct EndingChild(ChildTree);

impl Drop for EndingChild {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// Runs a program with these variables alone, and returns its standard output. It has no input, and
/// its standard error goes nowhere. Must be called on the runtime.
pub async fn capture_output(
    program: &str,
    args: &[String],
    env: Vec<(OsString, OsString)>,
    limits: CaptureLimits,
) -> Result<Vec<u8>, CaptureFailure> {
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(env);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let child = ChildTree::spawn(command).map_err(CaptureFailure::Start)?;
    let run = run_to_end(EndingChild(child), limits.bytes);
    timeout(limits.time, run)
        .await
        .unwrap_or(Err(CaptureFailure::Timeout))
}

async fn run_to_end(mut child: EndingChild, bytes_max: usize) -> Result<Vec<u8>, CaptureFailure> {
    let Some(stdout) = child.0.take_stdout() else {
        return Err(CaptureFailure::Read(io::Error::other("it has no output")));
    };
    let mut reading = Box::pin(read_bounded(stdout, bytes_max));
    let (status, output) = tokio::select! {
        output = &mut reading => {
            let output = output?;
            (child.0.wait().await.map_err(CaptureFailure::Read)?, output)
        }
        status = child.0.wait() => {
            let status = status.map_err(CaptureFailure::Read)?;
            // What it started and left behind holds the output open.
            child.0.kill();
            (status, reading.await?)
        }
    };
    if status.success() {
        Ok(output)
    } else {
        Err(CaptureFailure::Exit(status))
    }
}

async fn read_bounded(stdout: ChildStdout, bytes_max: usize) -> Result<Vec<u8>, CaptureFailure> {
    let mut output = Vec::new();
    // One byte more than allowed shows that there is too much.
    let mut bounded = stdout.take(bytes_max as u64 + 1);
    let read = bounded.read_to_end(&mut output).await;
    read.map_err(CaptureFailure::Read)?;
    if output.len() > bytes_max {
        return Err(CaptureFailure::TooMuch);
    }
    Ok(output)
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CaptureLimits = CaptureLimits {
        time: Duration::from_secs(20),
        bytes: 100,
    };

    async fn shell(script: &str, limits: CaptureLimits) -> Result<Vec<u8>, CaptureFailure> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let env = vec![("PATH".into(), path), ("WORD".into(), "here".into())];
        let args = ["-c".to_owned(), script.to_owned()];
        capture_output("sh", &args, env, limits).await
    }

    #[tokio::test]
    async fn the_output_comes_with_the_given_variables_alone() {
        let script = "echo $WORD $HOME; echo hush >&2; cat";
        assert_eq!(shell(script, LIMITS).await.unwrap(), b"here\n");
    }

    #[tokio::test]
    async fn a_failure_is_the_exit_status_whatever_was_printed() {
        let failure = shell("echo x; exit 4", LIMITS).await.unwrap_err();
        let CaptureFailure::Exit(status) = failure else {
            panic!("{failure:?}");
        };
        assert_eq!(status.code(), Some(4));
        let missing = capture_output("no such program", &[], Vec::new(), LIMITS).await;
        assert!(
            matches!(missing, Err(CaptureFailure::Start(_))),
            "{missing:?}"
        );
    }

    #[tokio::test]
    async fn endless_output_ends_the_program() {
        let failure = shell("while :; do echo 0123456789; done", LIMITS).await;
        assert!(
            matches!(failure, Err(CaptureFailure::TooMuch)),
            "{failure:?}"
        );
    }

    #[tokio::test]
    async fn a_program_that_is_left_behind_does_not_hold_the_output_open() {
        let output = shell("sleep 600 & echo done", LIMITS).await;
        assert_eq!(output.unwrap(), b"done\n");
    }

    #[tokio::test]
    async fn a_run_that_hangs_or_is_dropped_leaves_no_process() {
        let dir = tempfile::tempdir().unwrap();
        // A pipe by name: it ends for its reader once no process has it open any more.
        let fifo = dir.path().join("fifo");
        let name = fifo.to_str().unwrap();
        shell(&format!("mkfifo {name}"), LIMITS).await.unwrap();
        let script = format!("exec 3>{name}; sleep 600 & sleep 600");
        let short = CaptureLimits {
            time: Duration::from_secs(2),
            ..LIMITS
        };
        for limits in [short, LIMITS] {
            let run = tokio::spawn({
                let script = script.clone();
                async move { shell(&script, limits).await }
            });
            let mut reader = tokio::fs::File::open(&fifo).await.unwrap();
            if limits.time == short.time {
                let failure = run.await.unwrap();
                assert!(
                    matches!(failure, Err(CaptureFailure::Timeout)),
                    "{failure:?}"
                );
            } else {
                run.abort();
            }
            assert_eq!(reader.read(&mut [0]).await.unwrap(), 0);
        }
    }
}
