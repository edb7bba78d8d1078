//! Status of one server, for people and for metrics. Owns the state with its reason. Does not
//! change a state (`supervisor`). Invariant: a server that is not connected has a reason.

use tokio::time::Instant;

use moongate_model::{UpstreamState, login_sentence};
use moongate_telemetry::logs;
use moongate_transport::connect_hints;

use crate::settings::ConnectTarget;

/// Reason of a server that no attempt was made at yet.
pub(crate) const NOT_TRIED: &str = "no attempt to connect yet";

/// State of a server, its reason, and the next attempt.
#[derive(Clone, Debug, Default)]
pub struct UpstreamStatus {
    /// Current state.
    pub state: UpstreamState,
    /// Reason. Empty if there is none.
    pub reason: String,
    /// True if `moongate login` is the way out: the server answered 401, and nothing in the config
    /// is its credential.
    pub needs_login: bool,
    /// Time of the next attempt, if one is scheduled.
    pub next_attempt: Option<Instant>,
    /// Earliest time of an attempt that a call triggers.
    pub demand_from: Option<Instant>,
    /// Time of the disconnect. `None` while connected.
    pub disconnected_since: Option<Instant>,
    /// Time of the last change of state.
    pub state_since: Option<Instant>,
    /// Process id, if there is a process.
    pub pid: Option<u32>,
    /// True if the server was slow at the last start of the gateway, and was not connected since.
    pub was_slow: bool,
}

impl UpstreamStatus {
    /// Returns the time since when the server is as it is: since when it is connected, or since
    /// when it is not. Failed attempts and the pauses between them are one outage.
    pub fn since(&self) -> Option<Instant> {
        match self.state {
            UpstreamState::Starting
            | UpstreamState::BackingOff
            | UpstreamState::NeedsLogin
            | UpstreamState::Failed => self.disconnected_since.or(self.state_since),
            _ => self.state_since,
        }
    }

    /// Creates the status of a server that was never connected. A misconfigured one has failed from
    /// the first moment, so that nobody waits for an attempt that is never made.
    pub(crate) fn initial(target: &ConnectTarget) -> Self {
        let now = Some(Instant::now());
        let (state, reason) = match target {
            ConnectTarget::Misconfigured { reason } => (UpstreamState::Failed, reason.clone()),
            _ => (UpstreamState::Starting, NOT_TRIED.to_owned()),
        };
        UpstreamStatus {
            state,
            reason,
            disconnected_since: now,
            state_since: now,
            ..UpstreamStatus::default()
        }
    }

    /// Explains in one line, which clients may read, why a server was never connected.
    pub(crate) fn explain_absence(&self, server: &str) -> String {
        if self.needs_login {
            return login_sentence(server);
        }
        let mut text = format!(
            "Server \"{server}\" is not connected ({})",
            self.state.name()
        );
        if !self.reason.is_empty() {
            text.push_str(": ");
            text.push_str(&connect_hints::without_container_hint(&self.reason));
        }
        // The reason may quote a program's stderr, which can hold line breaks and keys.
        logs::redact(&logs::one_line(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misconfigured_server_has_failed_before_its_supervisor_runs() {
        let target = ConnectTarget::Misconfigured {
            reason: "GH is not set".to_owned(),
        };
        let status = UpstreamStatus::initial(&target);
        assert_eq!(status.state, UpstreamState::Failed);
        assert_eq!(status.reason, "GH is not set");
    }

    #[test]
    fn the_absence_of_a_server_that_needs_a_login_names_the_command() {
        let status = UpstreamStatus {
            state: UpstreamState::NeedsLogin,
            reason: login_sentence("linear"),
            needs_login: true,
            ..UpstreamStatus::default()
        };
        assert_eq!(
            status.explain_absence("linear"),
            "linear needs a login: moongate login linear"
        );
    }
}
