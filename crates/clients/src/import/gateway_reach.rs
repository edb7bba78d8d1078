//! Reach of a client's entry: all of this gateway, a part, or nothing.
//!
//! Owns what is read from the entry. Does not know the keys of a config. Invariant: in doubt an
//! entry reaches a part, so that nobody counts on it.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::client_entry::text_of;
use super::merge::is_off;
use super::self_addresses::SelfAddresses;
use crate::entry_flags::{args_of, values_of};
use crate::entry_key::KEY_VARIABLE;
use crate::start_command::StartCommand;

/// Flags by which `moongate stdio` serves a part of its config.
const PART_FLAGS: [&str; 2] = ["--endpoint", "--only"];

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
        let args = args_of(settings);
        // A shell has the whole command of a bridge in one argument.
        let words: Vec<&str> = args
            .iter()
            .flat_map(|arg| arg.split([' ', '"', '\'']))
            .filter(|word| !word.is_empty())
            .collect();
        let is_bridge = text_of(settings, "command")
            .is_some_and(|command| StartCommand::is_bridge(command, &args));
        let urls = text_of(settings, "url")
            .into_iter()
            .chain(words.iter().flat_map(|word| word.split('=')));
        let is_part = urls
            .filter_map(|url| self.endpoint_of(url))
            .any(|path| !["/mcp", "/sse"].contains(&path.trim_end_matches('/')))
            || words
                .iter()
                .any(|word| PART_FLAGS.iter().any(|flag| word.starts_with(flag)))
            || is_bridge && self.may_start_another(settings, &args, config)
            || keys_of(settings, &args, &words)
                .iter()
                .any(|key| is_narrow(key));
        if is_part {
            GatewayReach::Part
        } else {
            GatewayReach::All
        }
    }

    /// True if our own bridge leads to an address that nobody knows here, or reads another config.
    fn may_start_another(
        &self,
        settings: &Map<String, Value>,
        args: &[&str],
        config: &[PathBuf],
    ) -> bool {
        let urls = values_of(args, "--url");
        if !urls.is_empty() {
            return !urls.iter().all(|url| self.has_url(url));
        }
        let flags = ["--config", "-c"]
            .map(|flag| values_of(args, flag))
            .concat();
        let variables = texts_of(settings, "env", |name| name == "MOONGATE_CONFIG");
        flags
            .into_iter()
            .chain(variables.iter().map(String::as_str))
            .any(|file| !config.iter().any(|own| is_same_file(own, Path::new(file))))
    }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    one == other
        || one
            .canonicalize()
            .is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Returns the keys that an entry sends, or that it finds in its environment.
fn keys_of(settings: &Map<String, Value>, args: &[&str], words: &[&str]) -> Vec<String> {
    let headers = texts_of(settings, "headers", is_key_header);
    let variables = texts_of(settings, "env", |name| name == KEY_VARIABLE);
    let of_bridges = values_of(args, "--header")
        .into_iter()
        .filter_map(|header| header.split_once(':'))
        .filter(|(name, _)| is_key_header(name.trim()))
        .map(|(_, value)| value.to_owned());
    let flags = values_of(words, "--key").into_iter().map(str::to_owned);
    headers
        .into_iter()
        .chain(variables)
        .chain(of_bridges)
        .chain(flags)
        .map(|text| text.rsplit(' ').next().unwrap_or_default().to_owned())
        .collect()
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
        let own = SelfAddresses {
            addresses: ["127.0.0.1:8080", "unix:/run/m.sock"]
                .map(str::to_owned)
                .to_vec(),
        };
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
            json!({"command": "moongate", "args": ["stdio", "--url", "unix:/run/m.sock"]}),
            json!({"command": "moongate", "args": ["stdio", "-c", "/etc/moongate.toml"]}),
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
            json!({"command": "moongate", "args": ["stdio", "--endpoint=files"]}),
            json!({"command": "moongate", "args": ["stdio", "--only", "files"]}),
            json!({"command": "uvx", "args": ["moongate@1.2.3", "stdio", "--only=files"]}),
            json!({"command": "moongate", "args": ["stdio", "-c", "/other.toml"]}),
            json!({"command": "moongate", "args": ["stdio"],
                "env": {"MOONGATE_CONFIG": "/other.toml"}}),
            json!({"command": "moongate",
                "args": ["stdio", "--url", "http://127.0.0.1:8080/mcp", "--key", "narrow"]}),
            json!({"command": "moongate",
                "args": ["stdio", "--url=http://127.0.0.1:8080/mcp", "--key=narrow"]}),
            json!({"command": "moongate", "args": ["stdio", "--url", "unix:/run/other.sock"]}),
            json!({"command": "moongate", "args": ["stdio", "--url", "unix:/run/m.sock:/mcp/a"]}),
            json!({"command": "npx", "args": ["mcp-remote", "http://127.0.0.1:8080/mcp",
                "--header", "Authorization: Bearer narrow"]}),
            json!({"command": "sh",
                "args": ["-c", "moongate stdio --url http://127.0.0.1:8080/mcp --key narrow"]}),
        ] {
            assert_eq!(reach(part.clone()), GatewayReach::Part, "{part}");
        }
        for nothing in [
            json!({"url": "http://127.0.0.1:8080/mcp", "disabled": true}),
            json!({"url": "http://127.0.0.1:8080/mcp", "enabled": false}),
            json!({"url": "http://127.0.0.1:9/mcp"}),
            json!({"command": "moongate",
                "args": ["stdio", "--url", "https://team.example.com/mcp"]}),
            json!({"command": "npx", "args":
                ["-y", "moongate@1.2.3", "stdio", "--url=https://team.example.com/mcp"]}),
            json!({"command": "moongate", "args": ["stdio", "--url",
                "https://team.example.com/mcp?from=http://127.0.0.1:8080/mcp"]}),
        ] {
            assert_eq!(reach(nothing.clone()), GatewayReach::Nothing, "{nothing}");
        }
    }
}
