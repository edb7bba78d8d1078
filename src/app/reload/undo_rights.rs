//! Undo by an operator of what somebody else edited.
//!
//! Owns which plan may result. Does not read the history of edits (`moongate_config::edit`).
//! Invariant: whatever the edit was, its undo puts nothing into use that is not in use now.

use moongate_config::Plan;
use moongate_config::edit::ConfigEditError;

use crate::app::plan_diff::diff_plans;

/// Settings that an undo may change: those of servers are checked one by one, and so are keys.
const LOOKED_AT: [&str; 3] = ["servers.enabled", "auth.keys", "admin.keys"];

/// Refuses the undo of an edit that no operator made, if it would bring something back.
pub(super) fn check_undo(running: &Plan, after: &Plan) -> Result<(), ConfigEditError> {
    let Some(returned) = returned_part(running, after) else {
        return Ok(());
    };
    let message = format!(
        "the last edit was not made here, and undoing it would bring back {returned}, but \
         `admin.allow_commands` is false: use `moongate undo`"
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
    let mut settings = diff.settings.iter().chain(&diff.needs_restart);
    server
        .or_else(|| returned_disabled_server(running, after))
        .or_else(|| returned_key(running, after))
        .or_else(|| {
            let setting = settings.find(|key| !LOOKED_AT.contains(&key.as_str()))?;
            Some(format!("`{setting}`"))
        })
}

/// Names a server that would come back switched off: it could be switched on in the next step.
fn returned_disabled_server(running: &Plan, after: &Plan) -> Option<String> {
    let back = after.disabled.iter().find(|server| {
        !running.disabled.contains(server)
            && !running
                .servers
                .iter()
                .any(|known| known.name == server.name)
    })?;
    Some(format!("the server {}", back.name))
}

/// Names a key of clients or operators that would come back.
fn returned_key(running: &Plan, after: &Plan) -> Option<String> {
    let mut clients = after.auth.keys.iter();
    let client = clients.find(|key| !running.auth.keys.contains(key));
    let mut operators = after.admin_access.keys.iter();
    let operator = operators.find(|key| !running.admin_access.keys.contains(key));
    let name = client
        .map(|key| &key.name)
        .or(operator.map(|key| &key.name))?;
    Some(format!("the key {name:?}"))
}
