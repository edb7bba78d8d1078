//! How a server is, for people and for metrics.

use tokio::time::Instant;

/// The states of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamState {
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
pub struct UpstreamStatus {
    /// The state.
    pub state: UpstreamState,
    /// Why; empty where there is nothing to say.
    pub reason: String,
    /// When the next attempt to connect is made, if one is planned.
    pub next_attempt: Option<Instant>,
    /// From when on a call that needs it causes one.
    pub demand_from: Option<Instant>,
    /// Since when it is not connected; `None`: it is.
    pub disconnected_since: Option<Instant>,
    /// Since when it is in this state.
    pub state_since: Option<Instant>,
    /// The process, if there is one.
    pub pid: Option<u32>,
}

impl UpstreamStatus {
    /// A server that was never connected.
    pub(super) fn starting() -> Self {
        let now = Some(Instant::now());
        UpstreamStatus { disconnected_since: now, state_since: now, ..UpstreamStatus::default() }
    }
}

impl UpstreamState {
    /// Every state.
    pub const ALL: [UpstreamState; 8] = [
        UpstreamState::Starting,
        UpstreamState::Ready,
        UpstreamState::Degraded,
        UpstreamState::BackingOff,
        UpstreamState::NeedsLogin,
        UpstreamState::Failed,
        UpstreamState::Stopped,
        UpstreamState::Disabled,
    ];

    /// The state's name in logs, metrics and answers.
    pub fn name(self) -> &'static str {
        match self {
            UpstreamState::Starting => "starting",
            UpstreamState::Ready => "ready",
            UpstreamState::Degraded => "degraded",
            UpstreamState::BackingOff => "backing_off",
            UpstreamState::NeedsLogin => "needs_login",
            UpstreamState::Failed => "failed",
            UpstreamState::Stopped => "stopped",
            UpstreamState::Disabled => "disabled",
        }
    }
}
