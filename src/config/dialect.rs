//! Files of MCP clients, read as ours.
//!
//! Owns other spellings of our keys, and clients' own keys that mean nothing here. Does not check values. Invariant:
//! a file with only our spellings is left as it is.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::check::nearest;
use super::problem::{Faults, Kind};
use super::schema::Schema;
use super::tree::{Node, Path, Value};

/// Other names of the server map at the top of a file.
pub(super) const SERVER_MAPS: [&str; 1] = ["mcpServers"];

/// Other names of `url`.
pub(super) const URL_NAMES: [&str; 2] = ["serverUrl", "httpUrl"];

/// How clients say what a server is, and what that is here.
const TYPES: [(&str, &str); 9] = [
    ("stdio", "stdio"),
    ("http", "http"),
    ("streamable-http", "http"),
    ("streamableHttp", "http"),
    ("streamable_http", "http"),
    ("local", "stdio"),
    ("sse", "sse"),
    ("ws", "ws"),
    ("websocket", "ws"),
];

/// Keys that clients have for a server and that mean nothing to a gateway, with what to use instead.
const CLIENT_KEYS: [(&str, &str); 17] = [
    ("autoApprove", "remove it to silence this; approving calls is the client's business"),
    ("alwaysAllow", "remove it to silence this; approving calls is the client's business"),
    ("trust", "remove it to silence this; approving calls is the client's business"),
    ("disabledTools", "use `tools.deny` to take tools away"),
    ("excludeTools", "use `tools.deny` to take tools away"),
    ("includeTools", "use `tools.allow` to choose tools"),
    ("enabledTools", "use `tools.allow` to choose tools"),
    ("envFile", "put the variables in `env`"),
    ("dev", "remove it to silence this"),
    ("gallery", "remove it to silence this"),
    ("version", "remove it to silence this"),
    ("metadata", "remove it to silence this"),
    ("name", "use `title` for a name to show"),
    ("sandbox", "remove it to silence this"),
    ("sandboxEnabled", "remove it to silence this"),
    ("initTimeout", "use `start_timeout`, with a unit"),
    ("requestTimeout", "use `timeout`, with a unit"),
];

/// The accepted spellings of a server's type.
pub(super) fn type_names() -> Vec<&'static str> {
    TYPES.iter().map(|(name, _)| *name).collect()
}

/// Rewrites clients' spellings into ours.
pub(super) fn normalise(tree: &mut Node, faults: &mut Faults) {
    let Some(table) = tree.as_table_mut() else { return };
    let client = server_maps(table, faults);
    if client {
        ignore_settings_of_client(table, faults);
    }
    if let Some(servers) = table.get_mut("servers").and_then(Node::as_table_mut) {
        for (name, server) in servers {
            server_keys(&Path::of(&["servers", name]), server, faults);
        }
    }
}

/// Brings all spellings of the server map together; says whether there was one of a client.
fn server_maps(table: &mut BTreeMap<String, Node>, faults: &mut Faults) -> bool {
    let mut found = Vec::new();
    found.extend(SERVER_MAPS.iter().filter_map(|name| table.remove(*name)));
    let mut client = table.contains_key("inputs");
    if let Some(mcp) = table.get_mut("mcp").and_then(Node::as_table_mut) {
        client = true;
        found.extend(mcp.remove("servers"));
        if let Some(inputs) = mcp.remove("inputs") {
            ignore_inputs(&inputs, faults);
        }
        if mcp.is_empty() {
            table.remove("mcp");
        }
    }
    client |= !found.is_empty();
    if let Some(inputs) = table.remove("inputs") {
        ignore_inputs(&inputs, faults);
    }
    for map in found {
        let Some(servers) = table.get_mut("servers") else {
            table.insert("servers".to_owned(), map);
            continue;
        };
        let key = map.key;
        match (servers.as_table_mut(), map.value) {
            (Some(servers), Value::Table(more)) => {
                for (name, server) in more {
                    let twice = format!("the server `{name}` is there twice, in two spellings of `servers`");
                    match servers.entry(name) {
                        Entry::Occupied(_) => faults.error(Kind::Conflict, server.key, twice, "keep one of the two"),
                        Entry::Vacant(free) => drop(free.insert(server)),
                    }
                }
            }
            _ => faults.error(Kind::Type, key, "the servers must be a table", "write one table with a name for each"),
        }
    }
    client
}

fn ignore_inputs(inputs: &Node, faults: &mut Faults) {
    let fix = "use `${NAME}` for an environment variable; remove this to silence the warning";
    faults.warn(Kind::UnknownKey, inputs.key, "`inputs` are not asked for here", fix);
}

/// A client's file may hold its other settings too: whatever is not near one of our keys is left to it.
fn ignore_settings_of_client(table: &mut BTreeMap<String, Node>, faults: &mut Faults) {
    let schema = Schema::read();
    let keys = schema.root().keys().unwrap_or_default();
    table.retain(|name, node| {
        let ours = keys.contains(&name.as_str()) || name.starts_with("x-") || name == "$schema";
        if ours || nearest(name, &keys).is_some() {
            return true;
        }
        let message = format!("`{name}` is a client's setting, and means nothing here");
        faults.warn(Kind::UnknownKey, node.key, message, "remove it to silence this");
        false
    });
}

fn server_keys(path: &Path, server: &mut Node, faults: &mut Faults) {
    let Some(table) = server.as_table_mut() else { return };
    for name in URL_NAMES {
        if let Some(url) = table.remove(name) {
            if table.contains_key("url") {
                let message = format!("`{path}` has two URLs: `{name}` is another spelling of `url`");
                faults.error(Kind::Conflict, url.key, message, "keep one of the two");
            } else {
                table.insert("url".to_owned(), url);
            }
        }
    }
    disabled(path, table, faults);
    server_type(table);
    for (name, fix) in CLIENT_KEYS {
        if let Some(node) = table.remove(name) {
            let message = format!("`{}` is a client's setting, and means nothing here", path.key(name));
            faults.warn(Kind::UnknownKey, node.key, message, fix);
        }
    }
}

/// `disabled` and `isActive` become `enabled`.
fn disabled(path: &Path, table: &mut BTreeMap<String, Node>, faults: &mut Faults) {
    for (name, inverted) in [("disabled", true), ("isActive", false)] {
        let Some(mut node) = table.remove(name) else { continue };
        match node.value {
            Value::Bool(_) if table.contains_key("enabled") => {
                let message = format!("`{}` and `enabled` are both there", path.key(name));
                faults.error(Kind::Conflict, node.key, message, "keep `enabled`");
            }
            Value::Bool(value) => {
                node.value = Value::Bool(value != inverted);
                table.insert("enabled".to_owned(), node);
            }
            _ => {
                let message = format!("`{}` must be true or false, but is {}", path.key(name), node.kind());
                faults.error(Kind::Type, node.place, message, "write true or false");
            }
        }
    }
}

/// The types that clients know become ours.
fn server_type(table: &mut BTreeMap<String, Node>) {
    let Some(node) = table.get_mut("type") else { return };
    let Some(text) = node.as_text() else { return };
    if let Some((_, meaning)) = TYPES.iter().find(|(name, _)| *name == text) {
        node.value = Value::Text((*meaning).to_owned());
    }
}
