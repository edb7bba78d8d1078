//! Keys of a client's file that hold its servers.
//!
//! Owns these keys, and the client that each belongs to. Does not convert an entry (`entry`).
//! Invariant: everything taken out of the tree comes back as a server, or is named as ignored.

use std::collections::{BTreeMap, HashMap};
use std::path::Path as FilePath;

use super::super::source::FileFormat;
use super::super::tree::{ConfigNode, ConfigValue, SourceSpan};
use super::client::{self, ClientFormat, is_server};
use super::ignored::IgnoredSettings;
use super::references::EditorInputs;
use super::switched_off;

/// Keys at the top of a file that hold a client's servers, besides `servers`.
pub(in super::super) const SERVER_MAPS: [&str; 5] = [
    "mcpServers",
    "mcp_servers",
    "context_servers",
    "extensions",
    "amp.mcpServers",
];

/// Types of entries that are parts of the client itself.
const BUILT_IN: [&str; 7] = [
    "builtin",
    "platform",
    "frontend",
    "inline_python",
    "native",
    "inMemory",
    "sdk",
];

/// Ends of the names of files that editors keep their servers in. The second is that of pasted
/// text.
const EDITOR_FILES: [&str; 2] = ["mcp.json", "pasted.json"];

/// Servers under one key of a file.
pub(super) struct ServerMap {
    pub(super) format: &'static ClientFormat,
    pub(super) entries: BTreeMap<String, ConfigNode>,
    pub(super) key: SourceSpan,
    pub(super) span: SourceSpan,
}

type NodeTable = BTreeMap<String, ConfigNode>;

/// Reads the inputs that an editor would ask for, and their span.
pub(super) fn inputs(table: &mut NodeTable) -> Option<(SourceSpan, EditorInputs)> {
    let own = table.remove("inputs");
    let nested = table
        .get_mut("mcp")
        .and_then(ConfigNode::as_table_mut)
        .and_then(|mcp| mcp.remove("inputs"));
    let node = own.or(nested)?;
    let ConfigValue::List(items) = &node.value else {
        return Some((node.key, EditorInputs::new()));
    };
    let inputs = items
        .iter()
        .filter_map(|item| Some((text_of(item, "id")?, text_of(item, "default"))));
    Some((node.key, inputs.collect()))
}

fn text_of(item: &ConfigNode, key: &str) -> Option<String> {
    item.child(key)
        .and_then(ConfigNode::as_text)
        .map(str::to_owned)
}

/// Folders for the settings of an editor in a project.
const EDITOR_FOLDERS: [&str; 2] = [".vscode", ".cursor"];

/// Finds the folder that an editor has open when it reads a file: the one above the folder of its
/// settings. The user's own file is for all projects.
pub(super) fn workspace_of(file: &FilePath) -> Option<String> {
    let file = std::path::absolute(file).ok()?;
    let settings = file
        .parent()
        .filter(|folder| EDITOR_FOLDERS.iter().any(|name| folder.ends_with(name)))?;
    let workspace = settings
        .parent()
        .filter(|folder| std::env::home_dir().as_deref() != Some(*folder))?;
    workspace.to_str().map(str::to_owned)
}

/// Takes all servers out of a file.
pub(super) fn take(
    table: &mut NodeTable,
    file: Option<&FilePath>,
    asks: bool,
    ignored: &mut IgnoredSettings,
) -> Vec<ServerMap> {
    let mut maps = Vec::new();
    maps.extend(moongate_servers(table, file, asks));
    for key in SERVER_MAPS {
        let Some(node) = table.get(key) else { continue };
        // Other programs have other things under `extensions`.
        if key == "extensions" && !has_goose_servers(node) {
            continue;
        }
        let list = matches!(node.value, ConfigValue::List(_));
        if let Some(node) = table.remove(key) {
            let hints = node.as_table().and_then(client::by_entries);
            let format = match (key, list) {
                ("mcpServers", true) => &client::LIST,
                ("mcpServers", false) => client::by_path(file).or(hints).unwrap_or(&client::SHARED),
                ("mcp_servers", true) => &client::VIBE,
                ("mcp_servers", false) => &client::CODEX,
                ("context_servers", _) => &client::ZED,
                ("extensions", _) => &client::GOOSE,
                _ => &client::AMP,
            };
            match server_map(node, format) {
                Ok(map) => maps.push(map),
                // A value of the wrong type goes back, so that the check reports it.
                Err(node) => drop(table.insert(key.to_owned(), node)),
            }
        }
    }
    maps.extend(of_mcp(table, file, ignored));
    // Only as a last resort: such a file has no mark of a client at all.
    if maps.is_empty() {
        maps.extend(take_bare_servers(table));
    }
    for map in &mut maps {
        leave_out_built_in(map, ignored);
    }
    maps
}

/// Takes `servers`. It is ours unless the file shows that it is an editor's.
fn moongate_servers(
    table: &mut NodeTable,
    file: Option<&FilePath>,
    asks: bool,
) -> Option<ServerMap> {
    let node = table.get("servers")?;
    let list = matches!(node.value, ConfigValue::List(_));
    let format = if list {
        &client::FIVE_IRE
    } else {
        format_of_servers(table, file, asks)
    };
    if list {
        table.remove("updated");
    }
    let node = table.remove("servers")?;
    match server_map(node, format) {
        Ok(map) => Some(map),
        Err(node) => {
            table.insert("servers".to_owned(), node);
            None
        }
    }
}

/// Identifies the format of a table `servers`.
fn format_of_servers(
    table: &NodeTable,
    file: Option<&FilePath>,
    asks: bool,
) -> &'static ClientFormat {
    let is_alone = table
        .keys()
        .all(|key| matches!(key.as_str(), "servers" | "$schema" | "updated"));
    let is_json = file.and_then(FileFormat::of) == Some(FileFormat::Json);
    let name = file
        .and_then(FilePath::file_name)
        .unwrap_or_default()
        .to_string_lossy();
    // VS Code has `servers` in its own file, with `inputs` next to them.
    match asks || (is_json && is_alone) {
        true if asks || EDITOR_FILES.iter().any(|end| name.ends_with(end)) => &client::VS_CODE,
        true => &client::SERVERS,
        false => &client::OWN,
    }
}

/// True if a text below this key of a file has no escape for a dollar sign, since a client's format
/// has none.
pub(in super::super) fn has_plain_dollars(tree: &ConfigNode, file: &FilePath, key: &str) -> bool {
    let Some(table) = tree.as_table() else {
        return false;
    };
    if key != "servers" {
        return SERVER_MAPS.contains(&key) || matches!(key, "mcp" | "mcp.servers");
    }
    let is_list = table
        .get(key)
        .is_some_and(|node| matches!(node.value, ConfigValue::List(_)));
    let asks = table.contains_key("inputs")
        || tree
            .child("mcp")
            .is_some_and(|mcp| mcp.child("inputs").is_some());
    is_list || *format_of_servers(table, Some(file), asks) == client::VS_CODE
}

/// Reads a map of servers, or a list of them with their names inside.
fn server_map(node: ConfigNode, format: &'static ClientFormat) -> Result<ServerMap, ConfigNode> {
    let key = node.key;
    let span = node.span;
    let entries = match node.value {
        ConfigValue::Table(entries) => entries,
        ConfigValue::List(items) => keyed_by_name(items),
        _ => return Err(node),
    };
    Ok(ServerMap {
        format,
        entries,
        key,
        span,
    })
}

/// Maps the items of a list by the names inside them.
fn keyed_by_name(items: Vec<ConfigNode>) -> NodeTable {
    let mut entries = NodeTable::new();
    let mut numbers: HashMap<String, u32> = HashMap::new();
    for (i, mut item) in items.into_iter().enumerate() {
        let mut name = None;
        if let Some(table) = item.as_table_mut() {
            // In an item with a `key`, `name` is the title for people.
            let keyed = table.contains_key("key");
            for key in ["key", "name", "id", "uuid"] {
                if name.is_none() {
                    name = table
                        .remove(key)
                        .and_then(|node| node.as_text().map(str::to_owned));
                }
            }
            if keyed && let Some(title) = table.remove("name") {
                table.entry("title".to_owned()).or_insert(title);
            }
        }
        let name = name
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| format!("server-{}", i + 1));
        let mut free = name.clone();
        // Two servers may have one name in a list, and none may get lost.
        while entries.contains_key(&free) {
            // The count continues from the last one, because a thousand of one name would otherwise
            // try all numbers.
            let number = numbers.entry(name.clone()).or_insert(1);
            *number += 1;
            free = format!("{name}-{number}");
        }
        entries.insert(free, item);
    }
    entries
}

/// Reads the forms of `mcp`: `mcp.servers`, or a server for each key.
fn of_mcp(
    table: &mut NodeTable,
    file: Option<&FilePath>,
    ignored: &mut IgnoredSettings,
) -> Vec<ServerMap> {
    let mut maps = Vec::new();
    if let Some(node) = table.remove("mcp.servers") {
        match server_map(node, &client::VS_CODE) {
            Ok(map) => maps.push(map),
            Err(node) => drop(table.insert("mcp.servers".to_owned(), node)),
        }
    }
    let Some(mcp) = table.get_mut("mcp") else {
        return maps;
    };
    let key = mcp.key;
    let span = mcp.span;
    let Some(inner) = mcp.as_table_mut() else {
        return maps;
    };
    // A server may itself be called "servers".
    if let Some(servers) = inner.get("servers").filter(|node| !is_server(node)) {
        let format = if matches!(servers.value, ConfigValue::List(_)) {
            &client::WITSY
        } else {
            &client::VS_CODE
        };
        if let Some(node) = inner.remove("servers") {
            match server_map(node, format) {
                Ok(map) => maps.push(map),
                Err(node) => drop(inner.insert("servers".to_owned(), node)),
            }
        }
    } else if inner.values().any(is_server) {
        let entries: NodeTable = std::mem::take(inner);
        let (entries, rest): (NodeTable, NodeTable) = entries
            .into_iter()
            .partition(|(_, node)| node.as_table().is_some());
        *inner = rest;
        let format = client::of_mcp_table(&entries, file);
        maps.push(ServerMap {
            format,
            entries,
            key,
            span,
        });
    }
    // Without servers and without lists, `mcp` is not a client's.
    if maps.is_empty() && !switched_off::has_lists(inner) {
        return maps;
    }
    for (name, node) in std::mem::take(inner) {
        if switched_off::LISTS.contains(&name.as_str()) {
            inner.insert(name, node);
        } else {
            ignored.add(node.key, format!("mcp.{name}"));
        }
    }
    if inner.is_empty() {
        table.remove("mcp");
    }
    maps
}

/// Reads servers without a key around them.
fn take_bare_servers(table: &mut NodeTable) -> Option<ServerMap> {
    let first = table
        .iter()
        .find(|(_, node)| is_server(node))
        .map(|(_, node)| (node.key, node.span))?;
    if !table
        .iter()
        .all(|(key, node)| key == "$schema" || is_server(node))
    {
        return None;
    }
    let schema = table.remove("$schema");
    let entries = std::mem::take(table);
    table.extend(schema.map(|schema| ("$schema".to_owned(), schema)));
    Some(ServerMap {
        format: &client::SHARED,
        entries,
        key: first.0,
        span: first.1,
    })
}

/// True if these extensions are servers, as in Goose.
fn has_goose_servers(node: &ConfigNode) -> bool {
    let entries = node
        .as_table()
        .map(|table| table.values().collect::<Vec<_>>())
        .unwrap_or_default();
    !entries.is_empty() && entries.iter().all(|entry| is_extension(entry))
}

fn is_extension(entry: &ConfigNode) -> bool {
    let kind = entry
        .child("type")
        .or_else(|| entry.child("config")?.child("type"));
    is_server(entry) || kind.is_some()
}

/// Leaves out parts of the client itself, and servers that its extensions bring.
fn leave_out_built_in(map: &mut ServerMap, ignored: &mut IgnoredSettings) {
    let zed = *map.format == client::ZED;
    if zed {
        for (name, node) in &mut map.entries {
            let settings = node
                .as_table_mut()
                .and_then(|entry| entry.remove("settings"));
            settings
                .into_iter()
                .for_each(|node| ignored.add(node.key, format!("{name}.settings")));
        }
    }
    map.entries.retain(|name, node| {
        let kind = node
            .child("type")
            .or_else(|| node.child("config").and_then(|config| config.child("type")));
        let built_in = kind
            .and_then(ConfigNode::as_text)
            .is_some_and(|kind| BUILT_IN.contains(&kind));
        let extension = zed && node.as_table().is_some() && !is_server(node);
        if built_in || extension {
            ignored.add_lost(node.key, name.clone());
        }
        !built_in && !extension
    });
}
