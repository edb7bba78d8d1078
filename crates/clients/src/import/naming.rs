//! Names for servers that have none.
//!
//! Owns the choice of a name by what a server is. Does not check that a name is free. Invariant: a
//! name is legal in our config.

use serde_json::{Map, Value};
use url::Url;

use super::client_entry::text_of;
use super::remote_bridge::RemoteBridge;

/// Parts of a package's name that say only that it is an MCP server.
const PLAIN_WORDS: [&str; 3] = ["mcp", "server", "modelcontextprotocol"];
/// Parts of a host's name that say nothing about the server.
const PLAIN_LABELS: [&str; 5] = ["mcp", "api", "www", "docs", "remote"];
/// Programs that run a package.
const RUNNERS: [&str; 9] = [
    "npx", "uvx", "bunx", "pnpm", "yarn", "docker", "podman", "node", "python",
];

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
            of_command(command, &args)
        }
        (None, None) => None,
    };
    name.and_then(|name| moongate_config::legal_server_name(&name))
        .unwrap_or_else(|| "server".to_owned())
}

/// True if a command runs a package that its arguments name.
pub(super) fn runs_packages(command: &str) -> bool {
    RUNNERS.contains(&of_path(command).as_str())
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
fn of_command(command: &str, args: &[&str]) -> Option<String> {
    let program = of_path(command);
    if !runs_packages(command) {
        return Some(of_package(&program));
    }
    let words = args
        .iter()
        .filter(|word| !word.starts_with('-') && !matches!(**word, "run" | "exec" | "dlx" | "x"));
    // `docker run -e NAME image`: the value of a flag isn't an image, and has no slash, colon or
    // dash.
    let in_container = matches!(program.as_str(), "docker" | "podman");
    let package = match in_container {
        true => words.clone().find(|word| {
            word.contains('/') && !word.starts_with(['/', '.']) && !word.contains('=')
        }),
        false => words.clone().next(),
    };
    package
        .or_else(|| words.clone().next_back())
        .map(|package| of_package(package))
}

/// Last part of a path, without its extension.
fn of_path(path: &str) -> String {
    let last = path.rsplit(['/', '\\']).next().unwrap_or(path);
    last.trim_end_matches(".exe")
        .trim_end_matches(".cmd")
        .to_owned()
}

fn of_package(package: &str) -> String {
    let last = package
        .trim_start_matches('@')
        .rsplit('/')
        .next()
        .unwrap_or(package);
    let scope = package
        .strip_prefix('@')
        .and_then(|package| package.split('/').next())
        .unwrap_or_default();
    let plain = last.split(['@', ':', '=']).next().unwrap_or(last);
    let plain = plain
        .trim_end_matches(".js")
        .trim_end_matches(".mjs")
        .trim_end_matches(".py");
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
