//! Members of the API's objects, as views read them.
//!
//! Owns their access. Does not compute anything: page and API show the same objects. Invariant: a member that is missing
//! reads as empty.

use moongate_api::ServerStatus;
use moongate_model::UpstreamState;
use serde_json::Value;

/// Returns a text.
pub(super) fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object[member].as_str().unwrap_or_default()
}

/// Returns a number.
pub(super) fn number(object: &Value, member: &str) -> u64 {
    object[member].as_u64().unwrap_or_default()
}

/// Returns a list.
pub(super) fn list<'a>(object: &'a Value, member: &str) -> &'a [Value] {
    object[member].as_array().map_or(&[], Vec::as_slice)
}

/// Groups of states that a filter offers: name in the URL, and label.
pub(super) const GROUPS: [(&str, &str); 4] =
    [("ready", "Ready"), ("attention", "Attention"), ("idle", "Idle"), ("off", "Off")];

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
    servers.iter().filter(|server| group(server) == wanted).count()
}
