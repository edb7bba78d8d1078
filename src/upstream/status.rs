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
    /// It is connected, but could not be listed in full, or its calls keep failing.
    Degraded,
    /// It is gone; the next attempt is set.
    BackingOff,
    /// Its host wants credentials that we do not have.
    NeedsLogin,
    /// It cannot be started; somebody has to change something.
    Failed,
    /// It was stopped, or is started when it is needed.
    Stopped,
    /// The config switches it off.
    Disabled,
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
    /// From when on a call that needs it causes one.
    pub wake: Option<Instant>,
    /// Since when it is not connected; `None`: it is.
    pub away: Option<Instant>,
    /// Since when it is in this state.
    pub since: Option<Instant>,
    /// The process, if there is one.
    pub pid: Option<u32>,
}

impl Status {
    /// A server that was never connected.
    pub(super) fn starting() -> Self {
        let now = Some(Instant::now());
        Status { away: now, since: now, ..Status::default() }
    }
}

impl State {
    /// Every state.
    pub const ALL: [State; 8] = [
        State::Starting,
        State::Ready,
        State::Degraded,
        State::BackingOff,
        State::NeedsLogin,
        State::Failed,
        State::Stopped,
        State::Disabled,
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
            State::Disabled => "disabled",
        }
    }
}
