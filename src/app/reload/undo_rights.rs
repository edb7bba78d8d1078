//! Undo by an operator of what somebody else edited.
//!
//! Owns which plan may result. Does not read the history of edits (`moongate_config::edit`).
//! Invariant: whatever the edit was, its undo puts nothing into use that is not in use now.

use moongate_config::Plan;
use moongate_config::edit::ConfigEditError;

use crate::app::plan_diff::diff_plans;

/// Settings that an undo may change: those of servers are looked at one by one, and so are keys.
const LOOKED_AT: [&str; 3] = ["servers.enabled", "auth.keys", "admin.keys"];

/// Refuses the undo of an edit that no operator made, if it would bring something back.
pub(super) fn check_undo(running: &Plan, after: &Plan) -> Result<(), ConfigEditError> {
    let Some(returned) = returned_part(running, after) else {
        return Ok(());
    };
    let message = format!(
        "the last edit was not made here, its undo would bring back {returned}, and \
         `admin.allow_commands` is false: use \
         `moongate undo`"
    );
    Err(ConfigEditError::new("commands_not_allowed", message))
}

/// Names a part of a plan that is not in use.
fn returned_part(running: &Plan, after: &Plan) -> Option<String> {
    let diff = diff_plans(running, after);
    let server = diff
        .added
        .iter()
        .chain(&diff.replaced)
        .next()
        .map(|name| format!("the server {name}"));
    // A server that is off could be switched on in the next step.
    let disabled = || {
        let is_known = |name: &str| running.servers.iter().any(|server| server.name == name);
        let is_same = |server| running.disabled.contains(server);
        let back = after
            .disabled
            .iter()
            .find(|server| !is_same(server) && !is_known(&server.name));
        back.map(|server| format!("the server {}", server.name))
    };
    let key = || {
        let client = after
            .auth
            .keys
            .iter()
            .find(|key| !running.auth.keys.contains(key))
            .map(|key| &key.name);
        let operators = &running.admin_access.keys;
        let operator = || {
            after
                .admin_access
                .keys
                .iter()
                .find(|key| !operators.contains(key))
                .map(|key| &key.name)
        };
        client
            .or_else(operator)
            .map(|name| format!("the key {name:?}"))
    };
    let setting = || {
        let settings = diff.settings.iter().chain(&diff.needs_restart);
        settings
            .into_iter()
            .find(|key| !LOOKED_AT.contains(&key.as_str()))
            .map(|key| format!("`{key}`"))
    };
    server.or_else(disabled).or_else(key).or_else(setting)
}
