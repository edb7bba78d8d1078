//! Child processes with their standard streams as an [`RpcPipe`].
//!
//! Owns the process: its start, its exit status and its end. Does not read messages (`rpc_pipe`).
//! Invariant: when a link is closed or its child exits, no process that the child started is left
//! behind.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use moongate_platform::child_process::{self, ChildTree};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::child_environment::{self, ProgramKind};
use crate::pipe_link::PipeLink;
use crate::reaper::{self, Reaper};
use crate::rpc_pipe::{OnGarbage, RpcPipe, RpcPipeSettings};
use crate::stderr::StderrTail;
use crate::{ByteBudget, CorrelateFn, LinkError, ProbeState};

/// Time that a child has to exit after its input is closed, and again after SIGTERM.
const STOP_STEP_TIME: Duration = Duration::from_secs(2);
/// Longest wait of open calls for the exit status of a child that closed its output.
// A child mostly closes its output by exiting, so that the status follows within milliseconds.
const EXIT_WAIT: Duration = Duration::from_millis(300);
/// Settings of a child process.
pub struct StdioSettings {
    /// Server name for logs.
    pub name: String,
    /// Program to start.
    pub command: String,
    /// Kind of the program, which decides what it inherits.
    pub kind: ProgramKind,
    /// Arguments of the program.
    pub args: Vec<String>,
    /// Environment variables in addition to the inherited ones.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub cwd: Option<PathBuf>,
    /// Limit of one line, in bytes.
    pub max_message: usize,
    /// Byte budget of unread messages.
    pub backlog: Arc<ByteBudget>,
    /// Finds the open call that a message belongs to.
    pub correlate: CorrelateFn,
    /// Called for lines that aren't messages.
    pub on_garbage: OnGarbage,
    /// Kills the child if the gateway dies.
    pub reaper: Arc<Reaper>,
    /// Reader of the child's stderr.
    pub stderr: StderrTail,
}

/// Running child process.
pub struct StdioLink {
    pipe: RpcPipe,
    pid: u32,
    stop: CancellationToken,
    /// True once the child and everything that it started have exited.
    exited: watch::Receiver<bool>,
    stderr: StderrTail,
}

impl StdioLink {
    /// Starts the child. Must be called on the runtime.
    pub fn start(settings: StdioSettings) -> Result<Self, LinkError> {
        static CHILDREN: AtomicU64 = AtomicU64::new(0);
        let tag = settings
            .reaper
            .child_tag(CHILDREN.fetch_add(1, Ordering::Relaxed));
        let mut child =
            ChildTree::spawn(command(&settings, &tag)).map_err(|e| spawn_error(&settings, &e))?;
        let pid = child.pid();
        // At once: the gateway may die at any time after the start.
        settings.reaper.register_group(pid);
        let (stdin, stdout, stderr) = child
            .take_streams()
            .ok_or_else(|| LinkError::Closed("the child has no standard streams".to_owned()))?;
        let (exited_sender, exited) = watch::channel(None);
        let (ended_sender, ended) = watch::channel(false);
        let tail = settings.stderr;
        tokio::spawn(tail.clone().drain(settings.name.clone(), stderr));
        let pipe = RpcPipe::start(
            stdout,
            stdin,
            RpcPipeSettings {
                max_message: settings.max_message,
                backlog: settings.backlog,
                correlate: settings.correlate,
                on_garbage: settings.on_garbage,
                closed: "the server closed its output",
                explain: Some(Box::new(|error| with_exit_status(error, exited).boxed())),
            },
        );
        let stop = CancellationToken::new();
        let process = ChildProcess {
            child,
            pid,
            tag,
            reaper: settings.reaper,
            stop: stop.clone(),
        };
        tokio::spawn(async move {
            process.watch(exited_sender).await;
            ended_sender.send_replace(true);
        });
        Ok(StdioLink {
            pipe,
            pid,
            stop,
            exited: ended,
            stderr: tail,
        })
    }
}

impl PipeLink for StdioLink {
    fn pipe(&self) -> &RpcPipe {
        &self.pipe
    }

    fn close_pipe(&self) -> BoxFuture<'_, ()> {
        self.pipe.close_writer();
        self.stop.cancel();
        let mut ended = self.exited.clone();
        async move {
            // An error means that the watching task is gone, which ends with the child.
            let _ = ended.wait_for(|ended| *ended).await;
        }
        .boxed()
    }

    fn process_id(&self) -> Option<u32> {
        Some(self.pid)
    }

    fn on_probe_state(&self, probe: ProbeState) {
        self.stderr.set_probe_state(probe);
    }
}

impl Drop for StdioLink {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

// === the process ===

struct ChildProcess {
    child: ChildTree,
    pid: u32,
    tag: String,
    reaper: Arc<Reaper>,
    stop: CancellationToken,
}

impl ChildProcess {
    /// Waits for the child to exit, by itself or when stopped, and publishes the exit status at
    /// once. Returns when no process of the child is left.
    async fn watch(mut self, exited: watch::Sender<Option<String>>) {
        let stop = self.stop.clone();
        let status = tokio::select! {
            status = self.child.wait() => status,
            () = stop.cancelled() => self.end().await,
        };
        exited.send_replace(Some(match status {
            Ok(status) => describe(status),
            Err(e) => format!("its end could not be observed: {e}"),
        }));
        // The first process has exited. Those left in its group, or tagged outside of it, are
        // killed now.
        self.child.kill();
        let tag = self.tag.clone();
        // The scan of /proc blocks.
        let _ = tokio::task::spawn_blocking(move || reaper::kill_tagged(&tag)).await;
        // The kernel may reuse the id from now on, so the reaper must forget it.
        self.reaper.unregister_group(self.pid);
    }

    /// Stops the child. 2026-07-28/basic/transports/stdio.mdx, Shutdown: close the input, wait,
    /// terminate, then kill.
    async fn end(&mut self) -> std::io::Result<ExitStatus> {
        // The input is closed already, by `close` or by dropping the pipe.
        if let Ok(status) = timeout(STOP_STEP_TIME, self.child.wait()).await {
            return status;
        }
        if self.child.terminate()
            && let Ok(status) = timeout(STOP_STEP_TIME, self.child.wait()).await
        {
            return status;
        }
        self.child.kill();
        self.child.wait().await
    }
}

fn command(settings: &StdioSettings, tag: &str) -> Command {
    let mut command = Command::new(&settings.command);
    // The gateway's environment may hold the keys of other servers.
    command.args(&settings.args).env_clear();
    command.envs(child_environment::inherited(settings.kind));
    command.envs(settings.env.iter().map(|(k, v)| (k, v)));
    // Last, so that the configuration cannot replace the tag that the reaper searches for.
    command.env(reaper::CHILD_TAG_ENV, tag);
    if let Some(cwd) = &settings.cwd {
        command.current_dir(cwd);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn spawn_error(settings: &StdioSettings, error: &std::io::Error) -> LinkError {
    let command = &settings.command;
    LinkError::Spawn(match error.kind() {
        std::io::ErrorKind::NotFound => {
            let path = std::env::var("PATH").unwrap_or_default();
            match &settings.cwd {
                Some(cwd) if !cwd.is_dir() => {
                    format!("working directory not found: {}", cwd.display())
                }
                _ if command.starts_with('~') => {
                    format!(
                        "command not found: {command}; only shells expand `~`: write ${{HOME}} \
                         instead"
                    )
                }
                _ => format!("command not found: {command} (PATH={path})"),
            }
        }
        std::io::ErrorKind::PermissionDenied => format!("command is not executable: {command}"),
        _ => format!("cannot start {command}: {error}"),
    })
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), child_process::exit_signal(status)) {
        (Some(code), _) => format!("it exited with status {code}"),
        (None, Some(signal)) => format!("it was killed by signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}

/// Adds the exit status to the end of the pipe. The status mostly arrives a moment later.
async fn with_exit_status(
    error: LinkError,
    mut exited: watch::Receiver<Option<String>>,
) -> LinkError {
    match timeout(EXIT_WAIT, exited.wait_for(Option::is_some)).await {
        Ok(Ok(ending)) => LinkError::Closed(ending.clone().unwrap_or_default()),
        _ => error,
    }
}
