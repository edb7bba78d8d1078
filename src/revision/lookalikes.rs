//! Members of a client's request that a server may take for those that the gateway decides by.
//!
//! Owns which members those are, by method. Does not look into `arguments`, and of `_meta` only at what is reserved.
//! Invariant: a name that was checked is the only one that any server can read; Go's `encoding/json` ignores case.

use crate::json::JsonObject;
use crate::model::{Error, McpErrorKind};
use crate::revision::v2026_07_28::{CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION};

/// What is read of `_meta`, in either era.
const META: [&str; 5] = ["progressToken", PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL];
/// What is read of a completion's `ref`.
const REFERENCE: [&str; 3] = ["type", "name", "uri"];
/// What is read of a filter of notifications.
const FILTER: [&str; 5] =
    ["toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "taskIds"];

/// What is read of the params of a method.
fn members(method: &str) -> &'static [&'static str] {
    match method {
        "tools/call" => &["name", "arguments", "_meta", "task", "inputResponses", "requestState"],
        "prompts/get" => &["name", "arguments", "_meta", "inputResponses", "requestState"],
        "resources/read" => &["uri", "_meta", "inputResponses", "requestState"],
        "completion/complete" => &["ref", "_meta"],
        "resources/subscribe" | "resources/unsubscribe" => &["uri", "_meta"],
        "subscriptions/listen" => &["notifications", "_meta"],
        "logging/setLevel" => &["level", "_meta"],
        "initialize" => &["protocolVersion", "capabilities", "clientInfo", "_meta"],
        _ if method.starts_with("tasks/") => &["taskId", "cursor", "_meta", "inputResponses", "requestState"],
        _ => &["cursor", "_meta"],
    }
}

/// Refuses a request with a member that a reader which ignores case takes for one that is decided by.
pub(super) fn reject_lookalikes(method: &str, params: &JsonObject) -> Result<(), Error> {
    reject("params", params, members(method))?;
    let below = |member: &str, names: &[&str]| match params.get_object(member) {
        Some(object) => reject(&format!("params.{member}"), &object, names),
        None => Ok(()),
    };
    match method {
        "completion/complete" => below("ref", &REFERENCE),
        "subscriptions/listen" => below("notifications", &FILTER),
        _ => Ok(()),
    }
}

/// The same for the members of `_meta`.
pub(super) fn reject_lookalikes_in_meta(meta: &JsonObject) -> Result<(), Error> {
    reject("params._meta", meta, &META)
}

fn reject(place: &str, object: &JsonObject, names: &[&str]) -> Result<(), Error> {
    match object.lookalike(names) {
        Some(key) => Err(lookalike_error(&format!("{place}.{key}"))),
        None => Ok(()),
    }
}

/// The refusal of a member, by where it stands.
pub(super) fn lookalike_error(member: &str) -> Error {
    let message = format!("Invalid params: {member} differs only by case from a member that is read; leave it out");
    Error::new(McpErrorKind::InvalidParams, message)
}
