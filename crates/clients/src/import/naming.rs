//! Names for servers that have none.
//!
//! Owns the choice of a name by what a server is. Does not check that a name is free. Invariant: a
//! name is legal in our config.

use serde_json::{Map, Value};
use url::Url;

use super::client_entry::text_of;
use super::remote_bridge::RemoteBridge;
use super::runner::{RunnerProgram, program_name};

/// Parts of a package's name that say only that it is an MCP server.
const PLAIN_WORDS: [&str; 3] = ["mcp", "server", "modelcontextprotocol"];
/// Parts of a host's name that say nothing about the server.
const PLAIN_LABELS: [&str; 5] = ["mcp", "api", "www", "docs", "remote"];
/// Endings of files that are run, and of repositories.
const FILE_ENDINGS: [&str; 8] = [".js", ".mjs", ".cjs", ".ts", ".mts", ".py", ".git", ".whl"];
/// Registries that a package may be spelled with.
const REGISTRIES: [&str; 2] = ["npm:", "jsr:"];

/// Chooses a name.
pub(super) fn name_of(settings: &Map<String, Value>) -> String {
    // The name of a bridge is that of the server behind it.
    let url =
        text_of(settings, "url").or_else(|| RemoteBridge::of(settings).map(|bridge| bridge.url));
    let name = match (url, text_of(settings, "command")) {
        (Some(url), _) => Url::parse(url)
            .ok()
            .and_then(|url| of_host(url.host_str()?)),
        (None, Some(command)) => {
            let args = settings.get("args").and_then(Value::as_array);
            let args: Vec<&str> = args
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            Some(of_command(command, &args))
        }
        (None, None) => None,
    };
    name.and_then(|name| moongate_config::legal_server_name(&name))
        .unwrap_or_else(|| "server".to_owned())
}

/// `mcp.deepwiki.com` is `deepwiki`.
fn of_host(host: &str) -> Option<String> {
    let labels: Vec<&str> = host.split('.').collect();
    if host.parse::<std::net::IpAddr>().is_ok() || labels.len() < 2 {
        return Some(host.to_owned())
            .filter(|host| host != "localhost" && !host.contains(['.', ':']));
    }
    // Without the last label, which is `com` or `dev` and names nobody.
    let known = labels[..labels.len() - 1]
        .iter()
        .find(|label| !PLAIN_LABELS.contains(label));
    known.map(|label| (*label).to_owned())
}

/// `npx -y @modelcontextprotocol/server-filesystem@1.0 DIR` is `filesystem`.
fn of_command(command: &str, args: &[&str]) -> String {
    let target = RunnerProgram::find(command).and_then(|runner| runner.target(args));
    of_package(target.unwrap_or_else(|| program_name(command)))
}

fn of_package(package: &str) -> String {
    let package = REGISTRIES
        .iter()
        .find_map(|registry| package.strip_prefix(registry))
        .unwrap_or(package);
    let last = package
        .trim_start_matches('@')
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or(package);
    let scope = package
        .strip_prefix('@')
        .and_then(|package| package.split('/').next())
        .unwrap_or_default();
    let plain = last.split(['@', ':', '=', '[']).next().unwrap_or(last);
    let plain = FILE_ENDINGS
        .iter()
        .find_map(|ending| plain.strip_suffix(ending))
        .unwrap_or(plain);
    let words: Vec<&str> = plain
        .split(['-', '_'])
        .filter(|word| !PLAIN_WORDS.contains(word))
        .collect();
    // `@playwright/mcp`: only the scope has a name.
    if words.is_empty() && !scope.is_empty() {
        scope.to_owned()
    } else if words.is_empty() {
        plain.to_owned()
    } else {
        words.join("-")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_says_what_the_server_is() {
        for (settings, name) in [
            (json!({"url": "https://mcp.deepwiki.com/mcp"}), "deepwiki"),
            (json!({"url": "http://127.0.0.1:3000/mcp"}), "server"),
            (
                json!({"url": "https://api.githubcopilot.com/mcp/"}),
                "githubcopilot",
            ),
            (
                json!({"command": "npx",
                    "args": ["-y", "@modelcontextprotocol/server-filesystem@1.0", "/d"]}),
                "filesystem",
            ),
            (
                json!({"command": "npx", "args": ["-y", "@playwright/mcp@0.0.83"]}),
                "playwright",
            ),
            (
                json!({"command": "uvx", "args": ["mcp-server-git", "--repository", "/d"]}),
                "git",
            ),
            (
                json!({"command": "docker",
                    "args": ["run", "-i", "--rm", "-e", "TOKEN",
                        "ghcr.io/github/github-mcp-server:1"]}),
                "github",
            ),
            (json!({"command": "/opt/my tools/run-it"}), "run-it"),
            (
                json!({"command": "node", "args": ["/srv/notes.js"]}),
                "notes",
            ),
            (json!({}), "server"),
        ] {
            let settings = settings.as_object().cloned().unwrap_or_default();
            assert_eq!(name_of(&settings), name, "{settings:?}");
        }
    }
}
