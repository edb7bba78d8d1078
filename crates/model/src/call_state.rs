//! State of a call, as operators see it.
//!
//! Owns the names of the states. Does not record calls. Invariant: the names stay as they are,
//! because the API and the page's URLs use them.

use serde::{Deserialize, Serialize};

/// State of a recorded call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Waits for its server.
    #[default]
    Running,
    /// Ended with a result.
    Ok,
    /// Ended with a result that says `isError`.
    ToolError,
    /// Ended with an error.
    Error,
    /// Ended by its client, or by an operator.
    Cancelled,
    /// Ended with a request for input. The client sends the responses with its next call.
    InputRequired,
}

impl CallState {
    /// Every state.
    pub const ALL: [CallState; 6] = [
        CallState::Running,
        CallState::Ok,
        CallState::ToolError,
        CallState::Error,
        CallState::Cancelled,
        CallState::InputRequired,
    ];

    /// Returns the name in the API.
    pub fn name(self) -> &'static str {
        match self {
            CallState::Running => "running",
            CallState::Ok => "ok",
            CallState::ToolError => "tool_error",
            CallState::Error => "error",
            CallState::Cancelled => "cancelled",
            CallState::InputRequired => "input_required",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_written_under_its_name() {
        for state in CallState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }
}
