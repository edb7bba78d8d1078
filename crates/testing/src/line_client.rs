//! Clients that write one message a line: to a child process, or over any other stream.
//!
//! Sends lines as a test writes them. Judges no answer. Invariant: every wait for a line ends or
//! fails its test.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, Lines,
};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::wait::within;

/// A client over a reader and a writer.
pub struct LineClient<R, W> {
    /// Where lines go.
    pub input: W,
    output: Lines<BufReader<R>>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> LineClient<R, W> {
    /// Creates a client that has said nothing yet.
    pub fn new(output: R, input: W) -> Self {
        LineClient {
            input,
            output: BufReader::new(output).lines(),
        }
    }

    /// Sends a line.
    pub async fn send(&mut self, line: &str) {
        self.input
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// Reads a line, as it was written. Returns nothing at the end.
    pub async fn line(&mut self) -> Option<String> {
        within("a line", self.output.next_line()).await.unwrap()
    }

    /// Reads a message.
    pub async fn receive(&mut self) -> Value {
        serde_json::from_str(&self.line().await.expect("one more line")).unwrap()
    }

    /// Sends a line and reads the next message.
    pub async fn ask(&mut self, line: &str) -> Value {
        self.send(line).await;
        self.receive().await
    }
}

/// A client of a child process, which ends with it.
pub struct ChildClient {
    /// The process.
    pub child: Child,
    /// Its standard streams.
    pub lines: LineClient<ChildStdout, ChildStdin>,
    _held: Box<dyn Any + Send>,
}

impl ChildClient {
    /// Starts a command. `held` lives as long as the client, as a file that the command reads.
    pub fn spawn(mut command: Command, held: impl Any + Send) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = LineClient::new(child.stdout.take().unwrap(), child.stdin.take().unwrap());
        ChildClient {
            child,
            lines,
            _held: Box::new(held),
        }
    }
}

impl Deref for ChildClient {
    type Target = LineClient<ChildStdout, ChildStdin>;

    fn deref(&self) -> &Self::Target {
        &self.lines
    }
}

impl DerefMut for ChildClient {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.lines
    }
}
