//! Groups of servers' states.
//!
//! Owns the groups. Does not draw them. Invariant: each state is in exactly one group.

use moongate_api::ServerStatus;
use moongate_model::UpstreamState;

/// Groups of states that a filter offers: name in the URL, and label.
pub(super) const GROUPS: [(&str, &str); 4] = [
    ("ready", "Ready"),
    ("attention", "Attention"),
    ("idle", "Idle"),
    ("off", "Off"),
];

/// Returns the group of a server.
pub(super) fn group(server: &ServerStatus) -> &'static str {
    match server.condition.state {
        UpstreamState::Ready => "ready",
        UpstreamState::Stopped => "idle",
        UpstreamState::Disabled => "off",
        UpstreamState::Starting
        | UpstreamState::Degraded
        | UpstreamState::BackingOff
        | UpstreamState::NeedsLogin
        | UpstreamState::Failed => "attention",
    }
}

/// Counts the servers of a group.
pub(super) fn count_group(servers: &[ServerStatus], wanted: &str) -> usize {
    servers
        .iter()
        .filter(|server| group(server) == wanted)
        .count()
}
