//! Members of a client's request that look like those that the gateway reads, such as `Name` for
//! `name`.
//!
//! Owns the names that are read, by method. Does not look into `arguments`, and checks only
//! reserved members of `_meta`. Invariant: a checked name is the only one that any server can read.
//! Go's `encoding/json` ignores case.

use crate::v2026_07_28::{CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION};
use moongate_jsonrpc::json::JsonObject;
use moongate_model::{Error, McpErrorKind};

/// Members of `_meta` that either era reads.
const META: [&str; 5] = [
    "progressToken",
    PROTOCOL_VERSION,
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
];
/// Members of a completion's `ref`.
const REFERENCE: [&str; 3] = ["type", "name", "uri"];
/// Members of a subscription filter.
const FILTER: [&str; 5] = [
    "toolsListChanged",
    "promptsListChanged",
    "resourcesListChanged",
    "resourceSubscriptions",
    "taskIds",
];

/// Returns the members that a method's params may have.
fn members(method: &str) -> &'static [&'static str] {
    match method {
        "tools/call" => &[
            "name",
            "arguments",
            "_meta",
            "task",
            "inputResponses",
            "requestState",
        ],
        "prompts/get" => &[
            "name",
            "arguments",
            "_meta",
            "inputResponses",
            "requestState",
        ],
        "resources/read" => &["uri", "_meta", "inputResponses", "requestState"],
        "completion/complete" => &["ref", "_meta"],
        "resources/subscribe" | "resources/unsubscribe" => &["uri", "_meta"],
        "subscriptions/listen" => &["notifications", "_meta"],
        "logging/setLevel" => &["level", "_meta"],
        "initialize" => &["protocolVersion", "capabilities", "clientInfo", "_meta"],
        _ if method.starts_with("tasks/") => &[
            "taskId",
            "cursor",
            "_meta",
            "inputResponses",
            "requestState",
        ],
        _ if method.ends_with("/list") => &["cursor", "_meta"],
        // Extensions, of whose params no rule reads any.
        _ => &["_meta"],
    }
}

/// Rejects a request with a member that differs only by case from one that is read.
pub(super) fn reject_lookalikes(method: &str, params: &JsonObject) -> Result<(), Error> {
    reject("params", params, members(method))?;
    match method {
        "completion/complete" => reject_in(params, "ref", &REFERENCE),
        "subscriptions/listen" => reject_in(params, "notifications", &FILTER),
        _ => Ok(()),
    }
}

/// Rejects such members in `_meta`.
pub(super) fn reject_lookalikes_in_meta(meta: &JsonObject) -> Result<(), Error> {
    reject("params._meta", meta, &META)
}

fn reject_in(params: &JsonObject, member: &str, names: &[&str]) -> Result<(), Error> {
    match params.get_object(member) {
        Some(object) => reject(&format!("params.{member}"), &object, names),
        None => Ok(()),
    }
}

fn reject(path: &str, object: &JsonObject, names: &[&str]) -> Result<(), Error> {
    match object.lookalike(names) {
        Some(key) => Err(lookalike_error(&format!("{path}.{key}"))),
        None => Ok(()),
    }
}

/// Builds the error for a member at this path.
pub(super) fn lookalike_error(member: &str) -> Error {
    let message =
        format!("Invalid params: {member} differs only by case from a known member; remove it");
    Error::new(McpErrorKind::InvalidParams, message)
}
