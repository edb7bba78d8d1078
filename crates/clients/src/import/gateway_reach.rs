//! Reach of a client's entry: all of this gateway, a part, or nothing.
//!
//! Owns what is read from the entry. Does not know the keys of a config. Invariant: in doubt an
//! entry reaches a part, so that nobody counts on it.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use url::Url;

use super::merge::is_off;
use super::self_addresses::SelfAddresses;

/// How much of a gateway an entry of a client reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GatewayReach {
    /// Nothing: it leads elsewhere, or is off.
    Nothing,
    /// A view, one server, or what a key opens.
    Part,
    /// All servers.
    All,
}

impl SelfAddresses {
    /// Returns how much of this gateway an entry reaches. `config`: the files of this gateway.
    /// `is_narrow`: true for a key that opens a part only, or may do so.
    pub fn reach_of(
        &self,
        settings: &Map<String, Value>,
        config: &[PathBuf],
        is_narrow: impl Fn(&str) -> bool,
    ) -> GatewayReach {
        if is_off(settings)
            || settings.get("disabled") == Some(&Value::Bool(true))
            || !self.leads_here(settings)
        {
            return GatewayReach::Nothing;
        }
        let args = settings
            .get("args")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let args: Vec<&str> = args.filter_map(Value::as_str).collect();
        let words = args.iter().flat_map(|arg| arg.split([' ', '=', '"', '\'']));
        let url = settings.get("url").and_then(Value::as_str);
        let urls = url
            .into_iter()
            .chain(words)
            .filter(|word| self.has_url(word))
            .filter_map(|url| Url::parse(url).ok());
        let is_part = urls
            .into_iter()
            .any(|url| !["/mcp", "/sse"].contains(&url.path().trim_end_matches('/')))
            || has_foreign_config(&args, config)
            || args.iter().any(|arg| arg.starts_with("--endpoint"))
            || keys_of(settings).any(|key| is_narrow(&key));
        if is_part {
            GatewayReach::Part
        } else {
            GatewayReach::All
        }
    }
}

/// True if arguments name a config file other than these.
fn has_foreign_config(args: &[&str], config: &[PathBuf]) -> bool {
    let apart = args
        .windows(2)
        .filter(|pair| pair[0] == "--config")
        .map(|pair| pair[1]);
    let joined = args.iter().filter_map(|arg| arg.strip_prefix("--config="));
    apart
        .chain(joined)
        .any(|file| !config.iter().any(|own| is_same_file(own, Path::new(file))))
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    one == other
        || one
            .canonicalize()
            .is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Returns the keys that an entry sends, or that it finds in its environment.
fn keys_of(settings: &Map<String, Value>) -> impl Iterator<Item = String> {
    let headers = texts_of(settings, "headers", is_key_header);
    let variables = texts_of(settings, "env", |name| name == "MOONGATE_KEY");
    headers
        .into_iter()
        .chain(variables)
        .map(|text| text.rsplit(' ').next().unwrap_or_default().to_owned())
}

/// Returns the texts of a table whose names pass a test.
fn texts_of(
    settings: &Map<String, Value>,
    table: &str,
    is_sought: fn(&str) -> bool,
) -> Vec<String> {
    let table = settings
        .get(table)
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    table
        .filter(|(name, _)| is_sought(name))
        .filter_map(|(_, value)| value.as_str().map(str::to_owned))
        .collect()
}

fn is_key_header(name: &str) -> bool {
    ["authorization", "x-api-key"].contains(&name.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_an_entry_to_everything_reaches_all() {
        let own = SelfAddresses::of_url("http://127.0.0.1:8080/mcp");
        let config = [PathBuf::from("/etc/moongate.toml")];
        let reach =
            |entry: Value| own.reach_of(entry.as_object().unwrap(), &config, |key| key == "narrow");
        for all in [
            json!({"url": "http://localhost:8080/mcp"}),
            json!({"url": "http://127.0.0.1:8080/sse/",
                "headers": {"Authorization": "Bearer wide"}}),
            json!({"command": "moongate", "args": ["stdio", "--url", "http://127.0.0.1:8080/mcp"]}),
            json!({"command": "npx",
                "args": ["-y", "moongate", "stdio", "--config", "/etc/moongate.toml"]}),
        ] {
            assert_eq!(reach(all.clone()), GatewayReach::All, "{all}");
        }
        for part in [
            json!({"url": "http://127.0.0.1:8080/mcp/reading"}),
            json!({"url": "http://127.0.0.1:8080/sse/files"}),
            json!({"url": "http://127.0.0.1:8080/mcp",
                "headers": {"authorization": "Bearer narrow"}}),
            json!({"url": "http://127.0.0.1:8080/mcp", "headers": {"X-API-Key": "narrow"}}),
            json!({"command": "moongate",
                "args": ["stdio", "--url=http://127.0.0.1:8080/mcp/files"]}),
            json!({"command": "moongate", "args": ["stdio", "--config", "/other.toml"]}),
            json!({"command": "moongate", "args": ["stdio", "--endpoint", "files"]}),
            json!({"command": "moongate", "args": ["stdio"], "env": {"MOONGATE_KEY": "narrow"}}),
        ] {
            assert_eq!(reach(part.clone()), GatewayReach::Part, "{part}");
        }
        for nothing in [
            json!({"url": "http://127.0.0.1:8080/mcp", "disabled": true}),
            json!({"url": "http://127.0.0.1:8080/mcp", "enabled": false}),
            json!({"url": "http://127.0.0.1:9/mcp"}),
        ] {
            assert_eq!(reach(nothing.clone()), GatewayReach::Nothing, "{nothing}");
        }
    }
}
