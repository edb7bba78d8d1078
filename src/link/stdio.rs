//! Child processes: started, watched and ended; their standard streams are a [`Duplex`].
//!
//! Owns the process. Does not read messages (`duplex`). Invariant: when a link is closed or its child ends, no
//! process that the child started is left behind.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::link::reaper::{self, Reaper};
use crate::link::rpc_pipe::{OnGarbage, RpcPipe, RpcPipeSettings};
use crate::link::stderr::StderrTail;
use crate::link::{
    ByteBudget, CorrelateFn, HeaderList, Link, LinkError, LinkReply, MessageStream, OutgoingMessage, ProbeState,
};

/// How long a child gets to end after its input was closed, and again after SIGTERM.
const STOP_STEP_TIME: Duration = Duration::from_secs(2);
/// How long the calls of a child that closed its output wait to be told how it ended.
const EXIT_WAIT: Duration = Duration::from_millis(300);
/// What a child inherits of our environment: enough to find programs and its user's files, and nothing secret
/// but what a proxy wants: programs that fetch packages need the proxies that we need.
const INHERITED: [&str; 22] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "XDG_CACHE_HOME",
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
];

/// What to start, and how.
pub struct StdioSettings {
    /// The server's name, for logs.
    pub name: String,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables beside the inherited ones.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub cwd: Option<PathBuf>,
    /// Longest line accepted, in bytes.
    pub max_message: usize,
    /// What may wait to be read.
    pub backlog: Arc<ByteBudget>,
    /// Which open call a message is about.
    pub correlate: CorrelateFn,
    /// Told about lines that are no messages.
    pub on_garbage: OnGarbage,
    /// Cleans up if we cannot.
    pub reaper: Arc<Reaper>,
    /// Takes what it writes to its stderr.
    pub stderr: StderrTail,
}

/// A running child.
pub struct StdioLink {
    duplex: RpcPipe,
    pid: u32,
    stop: CancellationToken,
    /// Whether it is gone, with all that it started.
    exited: watch::Receiver<bool>,
    stderr: StderrTail,
}

impl StdioLink {
    /// Starts the child. Must be called on the runtime.
    pub fn start(settings: StdioSettings) -> Result<Self, LinkError> {
        static CHILDREN: AtomicU64 = AtomicU64::new(0);
        let mark = settings.reaper.child_tag(CHILDREN.fetch_add(1, Ordering::Relaxed));
        let mut child = command(&settings, &mark).spawn().map_err(|e| spawn_error(&settings, &e))?;
        let gone = || LinkError::Closed("the child has no standard streams".to_owned());
        let pid = child.id().ok_or_else(gone)?;
        settings.reaper.register_group(pid);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (exited_sender, exited) = watch::channel(None);
        let (ended_sender, ended) = watch::channel(false);
        let tail = settings.stderr;
        tokio::spawn(tail.clone().drain(settings.name.clone(), stderr.ok_or_else(gone)?));
        let duplex = RpcPipe::start(
            stdout.ok_or_else(gone)?,
            stdin.ok_or_else(gone)?,
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
        let process = ChildProcess { child, pid, tag: mark, reaper: settings.reaper, stop: stop.clone() };
        tokio::spawn(async move {
            process.watch(exited_sender).await;
            ended_sender.send_replace(true);
        });
        Ok(StdioLink { duplex, pid, stop, exited: ended, stderr: tail })
    }
}

impl Link for StdioLink {
    fn send(&self, outgoing: OutgoingMessage) -> BoxFuture<'_, Result<LinkReply, LinkError>> {
        self.duplex.send(outgoing)
    }

    fn reply(&self, body: Bytes) -> BoxFuture<'_, ()> {
        self.duplex.reply(body)
    }

    fn open_server_stream(&self, headers: HeaderList) -> BoxFuture<'_, Result<MessageStream, LinkError>> {
        self.duplex.open_server_stream(headers)
    }

    fn close(&self, _: HeaderList) -> BoxFuture<'_, ()> {
        self.duplex.close_writer();
        self.stop.cancel();
        let mut ended = self.exited.clone();
        async move {
            let _ = ended.wait_for(|ended| *ended).await;
        }
        .boxed()
    }

    fn closed(&self) -> BoxFuture<'_, LinkError> {
        self.duplex.closed()
    }

    fn take_activity(&self) -> bool {
        self.duplex.take_activity()
    }

    fn received_count(&self) -> u64 {
        self.duplex.received_count()
    }

    fn is_multiplexed(&self) -> bool {
        true
    }

    fn pid(&self) -> Option<u32> {
        Some(self.pid)
    }

    fn set_probe_state(&self, probe: ProbeState) {
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
    child: Child,
    pid: u32,
    tag: String,
    reaper: Arc<Reaper>,
    stop: CancellationToken,
}

impl ChildProcess {
    /// Waits for the child to end, by itself or because it was asked to; says at once how it ended, in words. Returns
    /// when nothing is left of it.
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
        // The leader is gone; whoever it left in its group, or marked elsewhere, goes now.
        self.signal(Signal::KILL);
        let mark = self.tag.clone();
        let _ = tokio::task::spawn_blocking(move || reaper::kill_tagged(&mark)).await;
        self.reaper.unregister_group(self.pid);
    }

    /// 2026-07-28/basic/transports/stdio.mdx, Shutdown: close the input, wait, then terminate, then kill.
    async fn end(&mut self) -> std::io::Result<ExitStatus> {
        if let Ok(status) = timeout(STOP_STEP_TIME, self.child.wait()).await {
            return status;
        }
        self.signal(Signal::TERM);
        if let Ok(status) = timeout(STOP_STEP_TIME, self.child.wait()).await {
            return status;
        }
        self.signal(Signal::KILL);
        self.child.wait().await
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.pid.cast_signed()) {
            let _ = kill_process_group(group, signal);
        }
    }
}

fn command(settings: &StdioSettings, mark: &str) -> Command {
    let mut command = Command::new(&settings.command);
    command.args(&settings.args).env_clear();
    command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(settings.env.iter().map(|(k, v)| (k, v)));
    command.env(reaper::CHILD_TAG_ENV, mark);
    if let Some(cwd) = &settings.cwd {
        command.current_dir(cwd);
    }
    // Its own group: signals reach the wrapper (`npx`, `uvx`, `sh`) and what it wraps, and Ctrl-C reaches neither.
    command.process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn spawn_error(settings: &StdioSettings, error: &std::io::Error) -> LinkError {
    let command = &settings.command;
    LinkError::Spawn(match error.kind() {
        std::io::ErrorKind::NotFound => {
            let path = std::env::var("PATH").unwrap_or_default();
            match &settings.cwd {
                Some(cwd) if !cwd.is_dir() => format!("working directory not found: {}", cwd.display()),
                _ if command.starts_with('~') => {
                    format!("command not found: {command}; `~` is a matter of shells: write ${{HOME}} in its place")
                }
                _ => format!("command not found: {command} (PATH={path})"),
            }
        }
        std::io::ErrorKind::PermissionDenied => format!("command is not executable: {command}"),
        _ => format!("cannot start {command}: {error}"),
    })
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it exited with status {code}"),
        (None, Some(signal)) => format!("it was ended by signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}

/// The end of the pipe mostly means the end of the process, known a moment later.
async fn with_exit_status(error: LinkError, mut exited: watch::Receiver<Option<String>>) -> LinkError {
    match timeout(EXIT_WAIT, exited.wait_for(Option::is_some)).await {
        Ok(Ok(ending)) => LinkError::Closed(ending.clone().unwrap_or_default()),
        _ => error,
    }
}
