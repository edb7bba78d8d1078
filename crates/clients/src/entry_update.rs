//! Update of our entry in a client's file.
//!
//! Owns which members of an entry are ours: its target, its key, and the type by which the client
//! reads them. Does not fill templates (`entry`). Invariant: whatever else a user set in the entry
//! stays.

use serde_json::{Map, Value};

use crate::profile::{ClientProfile, VariableForm};
use crate::table::clients;

/// Header with the key in our entries.
const KEY_HEADER: &str = "Authorization";
/// Header that the gateway accepts in its place.
const OTHER_KEY_HEADER: &str = "X-API-Key";
/// Placeholders of where an entry leads, and of its key.
const TARGET: [&str; 5] = ["{url}", "{program}", "{bearer}", "{key}", "{variable}"];

/// Returns an entry of ours with the members of a new one. What the user added or changed stays.
pub(crate) fn updated_entry(profile: &ClientProfile, old: &Value, new: Value) -> Value {
    let Some(mut entry) = old.as_object().cloned() else {
        return new;
    };
    let key_header = key_header(old);
    // Those of other clients, too: an entry that was copied from one may have its URL in a member
    // that this client ignores.
    for template in clients().flat_map(templates) {
        take_out(&mut entry, &template, key_header, &|member, _| {
            has_target(member)
        });
    }
    let own = templates(profile);
    for template in &own {
        take_out(&mut entry, template, key_header, &|member, found| {
            !is_default(member) || member == found
        });
    }
    if let Some(new) = new.as_object() {
        put_in(&mut entry, new, &own.iter().collect::<Vec<_>>());
    }
    Value::Object(entry)
}

/// Returns the templates of a client's entries: by HTTP, by command, and with a variable.
fn templates(profile: &ClientProfile) -> Vec<Map<String, Value>> {
    let by_variable = match profile.variable {
        VariableForm::Entry(template) => Some(template),
        VariableForm::None | VariableForm::Reference(_) | VariableForm::Input(_) => None,
    };
    [profile.http, Some(profile.stdio), by_variable]
        .into_iter()
        .flatten()
        .filter_map(|template| serde_json::from_str(template).ok())
        .collect()
}

/// Removes the members of a template that are ours, given the template's member and the one found.
/// A table goes with its last member.
fn take_out(
    entry: &mut Map<String, Value>,
    template: &Map<String, Value>,
    key_header: &str,
    is_ours: &dyn Fn(&Value, &Value) -> bool,
) {
    for (name, member) in template {
        let is_gone = match (member, entry.get_mut(name)) {
            (_, None) => false,
            (Value::Object(template), Some(Value::Object(table))) => {
                let had_members = !table.is_empty();
                if template.contains_key(KEY_HEADER) {
                    table.retain(|key, _| !key.eq_ignore_ascii_case(key_header));
                }
                take_out(table, template, key_header, is_ours);
                had_members && table.is_empty()
            }
            (member, Some(found)) => is_ours(member, found),
        };
        if is_gone {
            entry.shift_remove(name);
        }
    }
}

/// Returns the header that an entry has its key in. Next to the usual header, the other one is the
/// user's.
fn key_header(entry: &Value) -> &'static str {
    match has_key_header(entry) {
        true => KEY_HEADER,
        false => OTHER_KEY_HEADER,
    }
}

fn has_key_header(value: &Value) -> bool {
    let Value::Object(members) = value else {
        return false;
    };
    members
        .iter()
        .any(|(name, value)| name.eq_ignore_ascii_case(KEY_HEADER) || has_key_header(value))
}

/// Adds the members of a new entry. A default that the entry has already stays.
fn put_in(
    entry: &mut Map<String, Value>,
    new: &Map<String, Value>,
    templates: &[&Map<String, Value>],
) {
    for (name, value) in new {
        let members: Vec<&Value> = templates
            .iter()
            .filter_map(|template| template.get(name))
            .collect();
        if let (Value::Object(new), Some(Value::Object(table))) = (value, entry.get_mut(name)) {
            let below: Vec<&Map<String, Value>> = members
                .iter()
                .filter_map(|member| member.as_object())
                .collect();
            put_in(table, new, &below);
            continue;
        }
        let is_kept = entry.contains_key(name) && members.iter().all(|member| is_default(member));
        if !is_kept {
            entry.insert(name.clone(), value.clone());
        }
    }
}

/// True for a member that only sets what the user may change, such as `"enabled": true`. A text
/// says how the client reads the entry, such as `"type": "http"`.
fn is_default(member: &Value) -> bool {
    match member {
        Value::String(_) | Value::Object(_) => false,
        Value::Array(_) => !has_target(member),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

fn has_target(member: &Value) -> bool {
    match member {
        Value::String(text) => TARGET.iter().any(|placeholder| text.contains(placeholder)),
        Value::Array(items) => items.iter().any(has_target),
        Value::Object(members) => members.values().any(has_target),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::entry::tests::request;
    use crate::entry::{ConnectKey, ConnectRoute, client_entry};
    use crate::table::client;

    const URL: &str = "http://127.0.0.1:8080/mcp";

    /// Updates an entry to one with a key, by a route.
    fn updated(id: &str, old: &Value, route: ConnectRoute) -> Value {
        let profile = client(id).unwrap();
        let request = request(Some(ConnectKey::Value("mg_new".to_owned())), route);
        updated_entry(profile, old, client_entry(profile, &request).unwrap())
    }

    #[test]
    fn settings_of_the_user_stay() {
        let old = json!({"type": "sse", "url": "http://localhost:8080/mcp/x",
            "headers": {"Authorization": "Bearer mg_old", "X-Team": "a", "X-API-Key": "mine"},
            "disabled": true, "autoApprove": ["github__get_issue"], "timeout": 120});
        let new = json!({"type": "streamableHttp", "url": URL,
            "headers": {"Authorization": "Bearer mg_new", "X-Team": "a", "X-API-Key": "mine"},
            "disabled": true, "autoApprove": ["github__get_issue"], "timeout": 120});
        assert_eq!(updated("cline", &old, ConnectRoute::Best), new);
        let bridge = json!({"command": "/bin/moongate", "args": ["stdio", "--url", URL],
            "headers": {"X-Team": "a", "X-API-Key": "mine"}, "env": {"MOONGATE_KEY": "mg_new"},
            "disabled": true, "autoApprove": ["github__get_issue"], "timeout": 120});
        assert_eq!(updated("cline", &old, ConnectRoute::Bridge), bridge);
        let goose = json!({"enabled": false, "type": "stdio", "name": "moongate", "cmd": "moongate",
            "args": ["stdio"], "envs": {"MOONGATE_KEY": "mg_old", "RUST_LOG": "debug"},
            "timeout": 20, "description": "mine"});
        let new = json!({"enabled": false, "type": "streamable_http", "name": "moongate",
            "uri": URL, "headers": {"Authorization": "Bearer mg_new"},
            "envs": {"RUST_LOG": "debug"}, "timeout": 20, "description": "mine"});
        assert_eq!(updated("goose", &goose, ConnectRoute::Best), new);
    }

    #[test]
    fn a_key_or_a_url_in_another_form_does_not_stay() {
        for (id, old) in [
            (
                "cursor",
                json!({"serverUrl": URL, "headers": {"authorization": "Bearer mg_old"}}),
            ),
            (
                "cursor",
                json!({"url": URL, "headers": {"x-api-key": "mg_old"}}),
            ),
            ("cursor", json!({"url": URL, "headers": null})),
            ("codex", json!({"url": URL, "bearer_token_env_var": "GATE"})),
            (
                "codex",
                json!({"url": URL, "headers": {"Authorization": "Bearer mg_old"}}),
            ),
            ("windsurf", json!({"url": URL})),
            ("continue", json!("text")),
        ] {
            let new = updated(id, &old, ConnectRoute::Best);
            let profile = client(id).unwrap();
            let key = Some(ConnectKey::Value("mg_new".to_owned()));
            let fresh = client_entry(profile, &request(key, ConnectRoute::Best)).unwrap();
            assert_eq!(new, fresh, "{id}: {old}");
        }
    }

    #[test]
    fn a_new_route_leaves_nothing_of_the_old_one() {
        let routes = [ConnectRoute::Best, ConnectRoute::Bridge];
        for profile in clients() {
            for (old, new) in routes
                .into_iter()
                .flat_map(|old| routes.map(|new| (old, new)))
            {
                let key = Some(ConnectKey::Value("mg_old".to_owned()));
                let Ok(old) = client_entry(profile, &request(key, old)) else {
                    continue;
                };
                let new = client_entry(profile, &request(None, new)).unwrap();
                let updated = updated_entry(profile, &old, new.clone());
                assert_eq!(updated, new, "{}: {old}", profile.id);
            }
        }
    }
}
