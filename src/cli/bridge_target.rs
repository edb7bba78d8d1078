//! Server behind `--url`: of a bridge, and of a login for it.
//!
//! Owns the server's name, and which parts of the environment count. Does not serve or log in.
//! Invariant: `moongate login --url` and `moongate stdio --url` find the same login, because they
//! agree on the server's name, its URL and the state folder.

use std::collections::BTreeMap;

use moongate_config::{ConfigProblems, LoadOptions, LoadedConfig};
use moongate_protocol::SUPPORTED;
use moongate_upstream::ServerSettings;

use crate::cli::client::remote;
use crate::cli::process;

/// Name of a bridge's only server.
pub(super) const BRIDGED: &str = "gateway";
/// Tables of the environment that apply to a bridge. Listeners, servers and keys do not.
const TABLES: [&str; 3] = ["LIMITS", "TELEMETRY", "EGRESS"];

/// Builds the server of a bridge. Fails with the problem of the flags.
pub(super) fn bridge_server(url: &str, key: Option<&str>) -> Result<ServerSettings, String> {
    Ok(ServerSettings {
        name: BRIDGED.to_owned(),
        ..remote(url, key)?
    })
}

/// Loads the config of a bridge, which has no file. It listens nowhere.
pub(super) fn bridge_config() -> Result<LoadedConfig, ConfigProblems> {
    let mut loaded = moongate_config::load(&LoadOptions {
        env: bridge_environment(process::environment()),
        revisions: &SUPPORTED,
        ..LoadOptions::default()
    })?;
    loaded.plan.listen.clear();
    loaded.plan.admin = None;
    Ok(loaded)
}

fn bridge_environment(mut env: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_of_table = |setting: &str| {
        let table = setting.split_once("__").map(|(table, _)| table);
        table.is_some_and(|table| TABLES.contains(&table))
    };
    env.retain(|name, _| name.strip_prefix("MOONGATE_").is_none_or(is_of_table));
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_takes_limits_logs_and_private_hosts_from_the_environment() {
        let kept = ["HOME", "MOONGATE_LIMITS__BODY", "MOONGATE_EGRESS__ALLOW"];
        let left_out = [
            "MOONGATE_GATEWAY__LISTEN",
            "MOONGATE_KEY",
            "MOONGATE_LIMITS",
        ];
        let env = kept.iter().chain(&left_out);
        let env = env
            .map(|name| ((*name).to_owned(), String::new()))
            .collect();
        let names: Vec<String> = bridge_environment(env).into_keys().collect();
        assert_eq!(
            names,
            ["HOME", "MOONGATE_EGRESS__ALLOW", "MOONGATE_LIMITS__BODY"]
        );
    }
}
