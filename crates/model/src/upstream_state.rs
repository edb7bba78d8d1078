//! State of a server behind the gateway.
//!
//! Owns the names of the states, and the sentence for a server that needs a login. Does not change
//! a state. Invariant: the names stay as they are, because metrics, logs and clients use them.

use serde::{Deserialize, Serialize};

/// State of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamState {
    /// A connection attempt is under way.
    #[default]
    Starting,
    /// Connected and listed.
    Ready,
    /// Connected, but not listed in full, or its calls keep failing.
    Degraded,
    /// Disconnected, with the next attempt scheduled.
    BackingOff,
    /// The host requires credentials that the gateway does not have.
    NeedsLogin,
    /// Cannot be started until an operator changes something.
    Failed,
    /// Stopped, or a lazy server without demand.
    Stopped,
    /// Disabled in the config.
    Disabled,
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

    /// Returns the state's name in logs, metrics and answers.
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

/// Returns the sentence for a server that needs a login, with the command that helps. Status, errors
/// and probes all say this.
pub fn login_sentence(server: &str) -> String {
    format!("{server} needs a login: moongate login {server}")
}

/// Returns the command that logs in to a server.
pub fn login_command(server: &str) -> String {
    format!("moongate login {server}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_for_a_login_ends_in_its_command() {
        assert_eq!(
            login_sentence("linear"),
            "linear needs a login: moongate login linear"
        );
    }

    #[test]
    fn a_state_is_written_under_its_name() {
        for state in UpstreamState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }
}
