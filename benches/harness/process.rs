//! Processes we start, each ended with us.

use anyhow::{Context, Result, bail};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// Lines of standard error that are kept, and the longest line.
const KEPT: usize = 20;
const LONGEST: u64 = 4096;

#[derive(Default)]
struct Output {
    address: Option<SocketAddr>,
    tail: VecDeque<String>,
}

/// A child process that says `http://127.0.0.1:PORT/mcp` on its standard error once it listens.
pub(crate) struct Process {
    name: String,
    child: Child,
    pub(crate) pid: u32,
    output: Arc<Mutex<Output>>,
}

impl Process {
    /// A program that dies with us: the kernel sees to it.
    pub(crate) fn program(name: &str, program: &Path, args: &[String]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--role").arg("exec").arg(program).args(args);
        Self::start(name, command)
    }

    pub(crate) fn start(name: &str, mut command: Command) -> Result<Self> {
        // The gateway reads its settings from variables of this name too: ours are not meant for
        // it.
        for (name, _) in std::env::vars_os()
            .filter(|(name, _)| name.as_encoded_bytes().starts_with(b"MOONGATE_"))
        {
            command.env_remove(name);
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let pid = child.id().context("it ended at once")?;
        let output = Arc::new(Mutex::new(Output::default()));
        if let Some(errors) = child.stderr.take() {
            let output = Arc::clone(&output);
            tokio::spawn(async move {
                let mut errors = BufReader::new(errors);
                let mut line = Vec::new();
                while let Ok(1..) = (&mut errors)
                    .take(LONGEST)
                    .read_until(b'\n', &mut line)
                    .await
                {
                    note(&output, &String::from_utf8_lossy(&line));
                    line.clear();
                }
            });
        }
        Ok(Self {
            name: name.to_owned(),
            child,
            pid,
            output,
        })
    }

    /// The address it says it listens on.
    pub(crate) async fn address(&mut self, patience: Duration) -> Result<SocketAddr> {
        let end = Instant::now() + patience;
        loop {
            if let Some(address) = self
                .output
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .address
            {
                return Ok(address);
            }
            if let Some(status) = self.child.try_wait()? {
                sleep(Duration::from_millis(50)).await;
                bail!(
                    "{} ended before it listened ({status}); it said:\n{}",
                    self.name,
                    self.tail()
                );
            }
            if Instant::now() > end {
                bail!(
                    "{} does not say where it listens; it said:\n{}",
                    self.name,
                    self.tail()
                );
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until it says this on its standard error.
    #[allow(dead_code, reason = "for the soak, which shares this file")]
    pub(crate) async fn says(&mut self, what: &str, patience: Duration) -> Result<()> {
        let end = Instant::now() + patience;
        while !self.tail().contains(what) {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended ({status}); it said:\n{}", self.name, self.tail());
            }
            if Instant::now() > end {
                bail!(
                    "{} does not say {what:?}; it said:\n{}",
                    self.name,
                    self.tail()
                );
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// The last lines of its standard error.
    pub(crate) fn tail(&self) -> String {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output
            .tail
            .iter()
            .map(|line| format!("  {line}\n"))
            .collect()
    }

    /// Kills it, and waits until it is gone.
    #[allow(dead_code, reason = "for the soak, which shares this file")]
    pub(crate) async fn kill(mut self) {
        // It may have ended by itself.
        let _ = self.child.kill().await;
    }

    /// Asks it to end, and waits for that: how it ended, unless it does not.
    #[allow(dead_code, reason = "for the soak, which shares this file")]
    pub(crate) async fn ended(mut self, patience: Duration) -> Option<std::process::ExitStatus> {
        self.terminate();
        timeout(patience, self.child.wait()).await.ok()?.ok()
    }

    fn terminate(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // It may have ended by itself in the meantime; it is not reaped yet, so the pid is
            // still its own.
            let _ = super::signals::send(self.pid, super::signals::ProcessSignal::Terminate);
        }
    }

    /// Asks it to end, and kills it if it does not.
    pub(crate) async fn stop(mut self, patience: Duration) {
        self.terminate();
        if timeout(patience, self.child.wait()).await.is_err() {
            // Dropping it kills it.
            eprintln!("{} did not end on SIGTERM within {patience:?}", self.name);
        }
    }
}

fn note(output: &Mutex<Output>, line: &str) {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    if output.address.is_none() {
        output.address = address_in(line);
    }
    if output.tail.len() >= KEPT {
        output.tail.pop_front();
    }
    output.tail.push_back(line.trim_end().to_owned());
}

fn address_in(line: &str) -> Option<SocketAddr> {
    line.match_indices("http://").find_map(|(at, found)| {
        let (address, rest) = line.get(at + found.len()..)?.split_once('/')?;
        rest.starts_with("mcp").then(|| address.parse().ok())?
    })
}
