//! Credential that a command prints: `servers.*.auth` with `type = "command"`.
//!
//! Owns when the command runs, and what counts as a token. Does not start processes
//! (`child_process`). Invariant: the command runs once at a time, and its output never appears in
//! an error or a log line.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use moongate_platform::child_process::{CaptureFailure, CaptureLimits, capture_output};
use moongate_transport::LinkError;
use moongate_transport::child_environment::{ProgramKind, inherited};
use moongate_transport::credential_source::{AuthChallenge, CredentialSource};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::settings::CommandSettings;

/// Limits of a run.
const LIMITS: CaptureLimits = CaptureLimits {
    time: Duration::from_secs(10),
    bytes: 16 << 10,
};
/// Age below which a refused token does not lead to another run.
const REFUSAL_PAUSE: Duration = Duration::from_secs(30);
/// Time for which a failed run also fails other requests. Without it, each request to a server
/// would wait for a command that hangs.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);

/// Credential that a command prints.
pub struct CommandSource {
    server: String,
    settings: CommandSettings,
    current: ArcSwapOption<PrintedToken>,
    /// Locked during a run.
    last_run: Mutex<Option<LastRun>>,
}

/// Token from a run.
struct PrintedToken {
    header: HeaderValue,
    printed: Instant,
}

/// Most recent run.
struct LastRun {
    started: Instant,
    ended: Instant,
    failure: Option<CommandFailure>,
}

/// Reason why a run produced no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum CommandFailure {
    #[error("the program was not found")]
    NotFound,
    #[error("the program cannot be started: {0}")]
    Start(String),
    #[error("it did not finish within 10 s")]
    Timeout,
    #[error("it printed more than 16 KiB")]
    TooMuch,
    #[error("it exited with status {0}; run it by hand to see why")]
    Exit(i32),
    #[error("it was killed by a signal")]
    Signal,
    #[error("its output cannot be read: {0}")]
    Read(String),
    #[error("it printed nothing; it must print a token")]
    Empty,
    #[error("it printed more than one line; it must print only a token")]
    Lines,
    #[error("it printed characters that a token cannot have; it must print only a token")]
    Characters,
}

impl CommandSource {
    /// Creates the source of a server's tokens. The command runs when the first one is needed.
    pub fn new(server: String, settings: CommandSettings) -> Self {
        CommandSource {
            server,
            settings,
            current: ArcSwapOption::empty(),
            last_run: Mutex::default(),
        }
    }

    /// Returns the token until its `ttl` has passed.
    fn fresh(&self) -> Option<HeaderValue> {
        let current = self.current.load();
        let current = current.as_ref()?;
        let is_fresh = current.printed.elapsed() < self.settings.ttl;
        is_fresh.then(|| current.header.clone())
    }

    async fn run_if_due(&self) -> Result<Option<HeaderValue>, LinkError> {
        let mut last_run = self.last_run.lock().await;
        if let Some(header) = self.fresh() {
            return Ok(Some(header));
        }
        let failed = last_run.as_ref().and_then(LastRun::recent_failure);
        let ran = match failed {
            Some(failure) => Err(failure),
            None => self.run(&mut last_run).await,
        };
        match ran {
            Ok(token) => Ok(Some(token.header.clone())),
            Err(failure) => Err(self.error(&failure)),
        }
    }

    /// Runs the command again after a token was refused. Returns true if it printed a different
    /// one.
    async fn run_refused(&self, sent: Option<&HeaderValue>) -> bool {
        let mut last_run = self.last_run.lock().await;
        if self.has_other(sent) {
            return true;
        }
        let is_recent = |run: &LastRun| run.started.elapsed() < REFUSAL_PAUSE;
        if last_run.as_ref().is_some_and(is_recent) {
            return false;
        }
        self.run(&mut last_run).await.is_ok() && self.has_other(sent)
    }

    fn has_other(&self, sent: Option<&HeaderValue>) -> bool {
        let current = self.fresh();
        current.is_some() && current.as_ref() != sent
    }

    /// Runs the command. If this is dropped, its processes are killed.
    async fn run(
        &self,
        last_run: &mut Option<LastRun>,
    ) -> Result<Arc<PrintedToken>, CommandFailure> {
        let started = Instant::now();
        let settings = &self.settings;
        let captured = capture_output(
            &settings.command,
            &settings.args,
            environment(settings),
            LIMITS,
        );
        let ran = match captured.await {
            Ok(output) => read_token(&output),
            Err(failure) => Err(CommandFailure::from(failure)),
        };
        let ended = Instant::now();
        let failure = ran.as_ref().err().cloned();
        if let Some(cause) = &failure {
            let server = &self.server;
            tracing::warn!(server, %cause, "credential command failed");
        }
        *last_run = Some(LastRun {
            started,
            ended,
            failure,
        });
        let token = Arc::new(PrintedToken {
            header: ran?,
            printed: ended,
        });
        self.current.store(Some(token.clone()));
        Ok(token)
    }

    fn error(&self, failure: &CommandFailure) -> LinkError {
        let server = &self.server;
        LinkError::Unreachable(format!("servers.{server}.auth.command: {failure}"))
    }
}

impl CredentialSource for CommandSource {
    fn authorization(&self) -> BoxFuture<'_, Result<Option<HeaderValue>, LinkError>> {
        match self.fresh() {
            Some(header) => std::future::ready(Ok(Some(header))).boxed(),
            None => self.run_if_due().boxed(),
        }
    }

    fn on_refusal<'a>(
        &'a self,
        sent: Option<&'a HeaderValue>,
        challenge: &'a AuthChallenge,
    ) -> BoxFuture<'a, bool> {
        if !challenge.refuses_token() {
            return std::future::ready(false).boxed();
        }
        self.run_refused(sent).boxed()
    }

    fn is_personal(&self) -> bool {
        false
    }
}

impl LastRun {
    /// Returns the failure of the last run, if it was a moment ago.
    fn recent_failure(&self) -> Option<CommandFailure> {
        let failure = self.failure.clone();
        failure.filter(|_| self.ended.elapsed() < FAILURE_PAUSE)
    }
}

impl From<CaptureFailure> for CommandFailure {
    fn from(failure: CaptureFailure) -> Self {
        match failure {
            CaptureFailure::Start(cause) if cause.kind() == io::ErrorKind::NotFound => {
                CommandFailure::NotFound
            }
            CaptureFailure::Start(cause) => CommandFailure::Start(cause.to_string()),
            CaptureFailure::Timeout => CommandFailure::Timeout,
            CaptureFailure::TooMuch => CommandFailure::TooMuch,
            CaptureFailure::Exit(status) => status
                .code()
                .map_or(CommandFailure::Signal, CommandFailure::Exit),
            CaptureFailure::Read(cause) => CommandFailure::Read(cause.to_string()),
        }
    }
}

/// Returns the variables that the command gets. The gateway's own variables may hold other keys.
fn environment(settings: &CommandSettings) -> Vec<(OsString, OsString)> {
    let own = settings
        .env
        .iter()
        .map(|(name, value)| (name.into(), value.expose().into()));
    let mut env = inherited(ProgramKind::CredentialHelper);
    env.extend(own);
    env
}

/// Reads a token: one line of visible ASCII, which a header can carry.
fn read_token(output: &[u8]) -> Result<HeaderValue, CommandFailure> {
    let token = output.trim_ascii();
    if token.is_empty() {
        return Err(CommandFailure::Empty);
    }
    if token.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return Err(CommandFailure::Lines);
    }
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err(CommandFailure::Characters);
    }
    let value = [&b"Bearer "[..], token].concat();
    let value = HeaderValue::from_bytes(&value);
    let mut header = value.map_err(|_| CommandFailure::Characters)?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests;
