//! How a server is, for people and for metrics.

use tokio::time::Instant;

/// The states of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It is being connected.
    #[default]
    Starting,
    /// It is connected and listed.
    Ready,
    /// It is connected, but could not be listed in full.
    Degraded,
    /// It is gone; the next attempt is set.
    BackingOff,
    /// Its host wants credentials that we do not have.
    NeedsLogin,
    /// It cannot be started; somebody has to change something.
    Failed,
    /// It was stopped.
    Stopped,
}

/// A state, why, and what comes next.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The state.
    pub state: State,
    /// Why; empty where there is nothing to say.
    pub reason: String,
    /// When the next attempt to connect is made, if one is planned.
    pub next_attempt: Option<Instant>,
    /// The process, if there is one.
    pub pid: Option<u32>,
    /// The last lines that the process wrote to its stderr.
    pub stderr: Vec<String>,
}

impl State {
    /// Every state.
    pub const ALL: [State; 7] = [
        State::Starting,
        State::Ready,
        State::Degraded,
        State::BackingOff,
        State::NeedsLogin,
        State::Failed,
        State::Stopped,
    ];

    /// The state's name in logs, metrics and answers.
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Ready => "ready",
            State::Degraded => "degraded",
            State::BackingOff => "backing_off",
            State::NeedsLogin => "needs_login",
            State::Failed => "failed",
            State::Stopped => "stopped",
        }
    }

    /// Whether it makes sense for a call to wait.
    pub fn may_become_ready(self) -> bool {
        matches!(self, State::Starting | State::BackingOff | State::Ready | State::Degraded)
    }
}
