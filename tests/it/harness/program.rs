//! Programs that tests start, which say where they listen; each ends with the test that started it.

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(60);
/// How many lines of a program's stderr are kept for the message of a failed test.
const KEPT_LINES: usize = 200;

/// Ends a child that was started in a group of its own, and all that it started.
pub(crate) fn kill_group(child: &Child) {
    if let Some(pid) = child
        .id()
        .and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()))
    {
        // Fails if it is gone already, which is as good.
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
}

/// The last lines of a stream, read in the background.
#[derive(Clone, Default)]
struct StderrLines(Arc<Mutex<Vec<String>>>);

impl StderrLines {
    /// Follows the stream; each line also goes to the receiver, until that is dropped.
    fn follow(
        stream: impl AsyncRead + Unpin + Send + 'static,
    ) -> (StderrLines, mpsc::Receiver<String>) {
        let tail = StderrLines::default();
        let (sender, receiver) = mpsc::channel(16);
        let kept = tail.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stream).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                kept.push(line.clone());
                // A receiver that was dropped has what it wanted.
                let _ = sender.send(line).await;
            }
        });
        (tail, receiver)
    }

    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT_LINES {
            lines.remove(0);
        }
        lines.push(line);
    }

    fn read(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .join("\n")
    }
}

/// A program that says on stderr at which loopback address it listens.
pub(crate) struct Program {
    child: Child,
    address: String,
    tail: StderrLines,
}

impl Program {
    /// Starts it and waits for the line that holds `http://127.0.0.1:PORT` followed by `path`.
    pub(crate) async fn start(command: Command, path: &str) -> Program {
        Program::start_until(command, path, &[]).await
    }

    /// The same, and waits for lines that hold each of `more`, too, in any order.
    pub(crate) async fn start_until(mut command: Command, path: &str, more: &[&str]) -> Program {
        command
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (tail, mut lines) = StderrLines::follow(child.stderr.take().expect("stderr is piped"));
        let mut address = None;
        let mut missing = more.to_vec();
        let said = timeout(START, async {
            while let Some(line) = lines.recv().await {
                address = address.take().or_else(|| address_in(&line, path));
                missing.retain(|text| !line.contains(text));
                if address.is_some() && missing.is_empty() {
                    return true;
                }
            }
            false
        });
        let ready = said.await.unwrap_or(false);
        assert!(
            ready,
            "{command:?} never said where it listens, or lacks {missing:?}:\n{}",
            tail.read()
        );
        let address = address.expect("it is ready");
        Program {
            child,
            address,
            tail,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The last lines of its stderr.
    pub(crate) fn said(&self) -> String {
        self.tail.read()
    }

    /// Asks it to end, as a service manager does.
    pub(crate) async fn terminate(mut self) -> ExitStatus {
        if let Some(pid) = self
            .child
            .id()
            .and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()))
        {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)
                .expect("the program is there");
        }
        let ended = timeout(STOP, self.child.wait()).await;
        ended
            .unwrap_or_else(|_| panic!("still there {STOP:?} after SIGTERM:\n{}", self.tail.read()))
            .expect("it ends")
    }
}

/// `127.0.0.1:PORT` out of a line with `http://127.0.0.1:PORT` and then `path`.
fn address_in(line: &str, path: &str) -> Option<String> {
    let (_, rest) = line.split_once("http://127.0.0.1:")?;
    let digits = rest
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(rest.len());
    let (port, after) = rest.split_at(digits);
    after.starts_with(path).then(|| format!("127.0.0.1:{port}"))
}
