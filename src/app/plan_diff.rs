//! Difference between two plans. Owns the parts that are compared, and what a running gateway can
//! adopt.
//!
//! Does not say which settings need a restart: their keys do (`moongate_config`). Does not apply
//! anything: all functions are pure. Invariant: every key of the config belongs to a part.

use moongate_access::auth::TokenIssuer;
use moongate_api::ConfigDifference;
use moongate_config::{Plan, ReloadSettings, differing_keys, restart_keys, with_keys_of};
use moongate_gateway::DisabledServer;

/// Returns true if a difference has nothing to apply.
pub(super) fn is_empty(difference: &ConfigDifference) -> bool {
    // Named one by one, so that no later field is forgotten. What needs a restart changes nothing
    // now.
    let ConfigDifference {
        added,
        removed,
        replaced,
        changed,
        settings,
        needs_restart: _,
    } = difference;
    [added, removed, replaced, changed, settings]
        .iter()
        .all(|part| part.is_empty())
}

/// Returns a difference as one line.
pub(super) fn line(difference: &ConfigDifference) -> String {
    let parts = [
        ("added", &difference.added),
        ("removed", &difference.removed),
        ("replaced", &difference.replaced),
        ("changed in place", &difference.changed),
        ("settings", &difference.settings),
        ("needs a restart", &difference.needs_restart),
    ];
    let said = parts.iter().filter(|(_, names)| !names.is_empty());
    let said: Vec<String> = said
        .map(|(what, names)| format!("{what}: {}", names.join(", ")))
        .collect();
    if said.is_empty() {
        "nothing is different".to_owned()
    } else {
        said.join("; ")
    }
}

/// Part of a plan, under the key that a difference names.
struct PlanPart {
    key: &'static str,
    differs: fn(&Plan, &Plan) -> bool,
    /// Copies the part from the second plan into the first.
    copy: fn(&mut Plan, &Plan),
}

/// Part that is compared and copied as a whole.
macro_rules! part {
    ($key:literal, $($field:ident).+) => {
        PlanPart {
            key: $key,
            differs: |from, to| from.$($field).+ != to.$($field).+,
            copy: |to, from| to.$($field).+.clone_from(&from.$($field).+),
        }
    };
}

/// Parts of a plan that are not as the config declares them. The keys say whether a change needs a
/// restart.
const PARTS: [PlanPart; 36] = [
    part!("gateway.public_url", public_url),
    part!("gateway.allowed_hosts", allowed_hosts),
    part!("gateway.allowed_origins", allowed_origins),
    part!("gateway.trusted_proxies", trusted_proxies),
    PlanPart {
        key: "gateway.reload",
        differs: |from, to| {
            (from.reload.watch, from.reload.interval) != (to.reload.watch, to.reload.interval)
        },
        copy: |to, from| {
            to.reload = ReloadSettings {
                signal: to.reload.signal,
                ..from.reload.clone()
            }
        },
    },
    PlanPart {
        key: "servers.enabled",
        differs: |from, to| switched_off(&from.disabled, to) != switched_off(&to.disabled, from),
        copy: |to, from| to.disabled.clone_from(&from.disabled),
    },
    part!("gateway.schema", schema),
    part!("gateway.discovery", discovery.mode),
    part!("gateway.always", discovery.always),
    part!("gateway.search", discovery.search),
    part!("names", names),
    part!("views", views),
    part!("auth.keys", auth.keys),
    part!("auth.required", auth.required),
    part!("auth.oauth", auth.broker),
    PlanPart {
        key: "auth.jwt",
        // The settings of tokens have the public URL, too, which is a part itself.
        differs: |from, to| token_issuers(from) != token_issuers(to),
        copy: |to, from| to.auth.tokens.clone_from(&from.auth.tokens),
    },
    PlanPart {
        key: "auth.roles",
        differs: |from, to| {
            from.auth.roles != to.auth.roles || from.auth.matches != to.auth.matches
        },
        copy: |to, from| {
            to.auth.roles.clone_from(&from.auth.roles);
            to.auth.matches.clone_from(&from.auth.matches);
        },
    },
    part!("admin.keys", admin_access.keys),
    part!("admin.metrics", admin_access.metrics),
    part!("admin.edit", admin_edits.edit),
    part!("admin.allow_commands", admin_edits.allow_commands),
    part!("admin.recent_calls", admin_limits.recent_calls),
    part!("admin.streams", admin_limits.streams),
    part!("telemetry.log", log.filter),
    part!("telemetry.calls", log.calls),
    part!("gateway.listen", listen),
    part!("gateway.admin", admin),
    part!("gateway.socket_mode", sockets.mode),
    part!("gateway.reuse_port", sockets.reuse_port),
    part!("gateway.tls", tls),
    PlanPart {
        key: "gateway.state",
        // The file of the state has the port in its name, so a new address changes both. The folder
        // for logins does not depend on it.
        differs: |from, to| {
            from.state != to.state && from.listen == to.listen
                || from.login_folder != to.login_folder
        },
        copy: |to, from| {
            to.state.clone_from(&from.state);
            to.login_folder.clone_from(&from.login_folder);
        },
    },
    part!("gateway.secret", secrets.secret),
    part!("gateway.secret_before", secrets.before),
    part!("egress.allow", egress),
    part!("gateway.reload.signal", reload.signal),
    part!("telemetry.log_format", log.json),
];

/// Compares two plans.
pub fn diff_plans(from: &Plan, to: &Plan) -> ConfigDifference {
    let mut out = diff_servers(from, to);
    let declared = restart_keys();
    let parts = PARTS
        .iter()
        .filter(|part| (part.differs)(from, to))
        .map(|part| part.key.to_owned());
    let times = differing_keys(&from.times, &to.times).into_iter();
    let limits = differing_keys(&from.limits, &to.limits).into_iter();
    // The declared keys decide, so that the reference of the config and the reload agree.
    (out.needs_restart, out.settings) = parts
        .chain(times.map(|key| format!("gateway.{key}")))
        .chain(limits.map(|key| format!("limits.{key}")))
        .partition(|key| declared.contains(key));
    out
}

fn diff_servers(from: &Plan, to: &Plan) -> ConfigDifference {
    let mut out = ConfigDifference::default();
    for server in &to.servers {
        let name = server.name.clone();
        match from.servers.iter().find(|other| other.name == server.name) {
            None => out.added.push(name),
            Some(before) if before == server => {}
            // A new connection would end sessions at the server for a change that does not concern
            // it.
            Some(before) if server.same_connection(before) => out.changed.push(name),
            Some(_) => out.replaced.push(name),
        }
    }
    // A disabled server has no connection, but people still see its entry.
    let changed = to.disabled.iter().filter(|server| {
        from.disabled
            .iter()
            .any(|before| before.name == server.name && before != *server)
    });
    out.changed
        .extend(changed.map(|server| server.name.clone()));
    let gone = from
        .servers
        .iter()
        .filter(|server| !to.servers.iter().any(|other| other.name == server.name));
    out.removed = gone.map(|server| server.name.clone()).collect();
    out
}

/// Returns the servers that one plan disables and the other lacks. Those that the other enables are
/// added or removed.
fn token_issuers(plan: &Plan) -> Option<&Vec<TokenIssuer>> {
    plan.auth.tokens.as_ref().map(|tokens| &tokens.issuers)
}

fn switched_off<'a>(disabled: &'a [DisabledServer], other: &Plan) -> Vec<&'a str> {
    disabled
        .iter()
        .map(|server| server.name.as_str())
        .filter(|name| !other.servers.iter().any(|server| server.name == *name))
        .collect()
}

/// Returns the plan that a running gateway can adopt: settings that need a restart keep their
/// value.
pub(super) fn applicable(running: &Plan, mut new: Plan) -> Plan {
    let declared = restart_keys();
    for part in PARTS.iter().filter(|part| declared.contains(part.key)) {
        (part.copy)(&mut new, running);
    }
    let times = declared
        .iter()
        .filter_map(|key| key.strip_prefix("gateway."));
    let limits = declared
        .iter()
        .filter_map(|key| key.strip_prefix("limits."));
    new.times = with_keys_of(&new.times, &running.times, times);
    new.limits = with_keys_of(&new.limits, &running.limits, limits);
    new
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moongate_config::GatewayTimes;
    use serde_json::Value;

    use super::*;

    /// Paths of the keys below a table of the schema, without those of servers.
    fn keys(root: &Value, rule: &Value, path: &str, out: &mut Vec<String>) {
        let rule = rule["$ref"]
            .as_str()
            .map_or(rule, |name| root.pointer(&name[1..]).unwrap());
        for (key, below) in rule["properties"].as_object().into_iter().flatten() {
            keys(root, below, &format!("{path}.{key}"), out);
        }
        if !rule["properties"].is_object() {
            out.push(path.trim_start_matches('.').to_owned());
        }
    }

    fn is_at_or_below(key: &str, part: &str) -> bool {
        key == part || key.starts_with(&format!("{part}."))
    }

    #[test]
    fn every_key_has_a_part_of_the_plan() {
        let schema: Value = serde_json::from_str(&moongate_config::json_schema()).unwrap();
        let mut all = Vec::new();
        let tables = [
            "gateway",
            "names",
            "views",
            "auth",
            "admin",
            "egress",
            "telemetry",
        ];
        for table in tables {
            keys(&schema, &schema["properties"][table], table, &mut all);
        }
        assert!(all.len() > 25, "the keys were found: {all:?}");
        let times = serde_json::to_value(GatewayTimes::default()).unwrap();
        // The directory is a part of where the state is kept, and the env file only has values of
        // other keys.
        let without_part = ["gateway.state_dir", "gateway.env_file"];
        let missing = all.iter().filter(|key| {
            let time = key.strip_prefix("gateway.").and_then(|key| times.get(key));
            !without_part.contains(&key.as_str())
                && time.is_none()
                && !PARTS.iter().any(|part| is_at_or_below(key, part.key))
        });
        let missing: Vec<_> = missing.collect();
        assert!(missing.is_empty(), "PARTS lacks {missing:?}");
        let declared = restart_keys();
        let strange: Vec<_> = declared
            .iter()
            .filter(|key| !key.starts_with("limits."))
            .filter(|key| !all.iter().any(|known| is_at_or_below(known, key)))
            .collect();
        assert!(strange.is_empty() && declared.len() > 20, "{declared:?}");
    }
}
