//! Members of the API's objects, as views read them.
//!
//! Owns their access. Does not compute anything: page and API show the same objects. Invariant: a member that is missing
//! reads as empty.

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

/// Returns the title of a server, or else its name.
pub(super) fn title(server: &Value) -> &str {
    match text(server, "title") {
        "" => text(server, "name"),
        title => title,
    }
}

/// Groups of states that a filter offers: name in the URL, and label.
pub(super) const GROUPS: [(&str, &str); 4] =
    [("ready", "Ready"), ("attention", "Attention"), ("idle", "Idle"), ("off", "Off")];

/// Returns the group of a server.
pub(super) fn group(server: &Value) -> &'static str {
    match text(server, "state") {
        "ready" => "ready",
        "stopped" => "idle",
        "disabled" => "off",
        _ => "attention",
    }
}

/// Counts the servers of a group.
pub(super) fn count_group(servers: &[Value], wanted: &str) -> usize {
    servers.iter().filter(|server| group(server) == wanted).count()
}

/// Returns what was mended in items of a server.
pub(super) fn mended(server: &Value) -> impl Iterator<Item = &str> {
    list(server, "mended").iter().filter_map(Value::as_str)
}

/// Returns why items of a server are left out.
pub(super) fn excluded(server: &Value) -> impl Iterator<Item = &str> {
    list(server, "left_out").iter().filter_map(Value::as_str)
}
