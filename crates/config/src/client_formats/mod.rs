//! Config files of MCP clients, converted into ours.
//!
//! Owns the steps from a client's file to `servers`: find the servers (`wrappers`), identify the
//! client (`client`), convert each entry (`entry`). Does not check values (`check`). Invariant: a
//! file with only our keys stays as it is.

mod client;
mod client_login;
mod command_line;
mod entry;
mod harmless;
mod ignored;
mod own_variables;
mod references;
mod switched_off;
mod times;
mod tools;
mod wrappers;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path as FilePath;

pub use command_line::split as split_command;
pub(super) use entry::{ALIASES, type_names};
pub(super) use wrappers::{SERVER_MAPS, has_plain_dollars};

use super::collector::ProblemCollector;
use super::problem::ProblemKind;
use super::schema::ConfigSchema;
use super::server_names::{self, UnusedNames};
use super::tree::{ConfigNode, ConfigPath, ConfigValue, SourceSpan};
use client::OWN;
use entry::ClientEntry;
use ignored::IgnoredSettings;
use moongate_search::nearest;
use references::EditorContext;
use wrappers::ServerMap;

/// Converts a client's file into ours. `file` is its path.
pub(super) fn normalise(
    tree: &mut ConfigNode,
    file: Option<&FilePath>,
    faults: &mut ProblemCollector,
) {
    let Some(table) = tree.as_table_mut() else {
        return;
    };
    let mut ignored = IgnoredSettings::default();
    let asks = wrappers::inputs(table);
    let maps = wrappers::take(table, file, asks.is_some(), &mut ignored);
    let client = maps
        .iter()
        .map(|map| map.format)
        .find(|format| **format != OWN);
    let mut switched = switched_off::take(table);
    // Without a client's servers, an unknown key is a mistake in our own format.
    if client.is_some() {
        ignore_settings_of_client(table, &mut ignored);
    }
    // Each entry asks for the keys that a server may have.
    let _schema = ConfigSchema::keep();
    let inputs = asks
        .as_ref()
        .map(|(_, inputs)| inputs.clone())
        .unwrap_or_default();
    let editor = EditorContext {
        inputs,
        workspace: file.and_then(wrappers::workspace_of),
    };
    let mut asked = Vec::new();
    for map in maps {
        let mut map = with_legal_names(map, faults);
        for (name, server) in &mut map.entries {
            let path = ConfigPath::of(&["servers", name]);
            let Some(entry) = server.as_table_mut() else {
                continue;
            };
            let ignored = &mut ignored;
            let asked = &mut asked;
            let format = map.format;
            let editor = &editor;
            ClientEntry {
                path: &path,
                table: entry,
                format,
                editor,
                asked_inputs: asked,
                ignored,
                faults,
            }
            .convert();
            // After the conversion, whose lists of tools this one extends.
            switched.apply(&path, name, server, faults);
        }
        merge(table, map, faults);
    }
    report_inputs(asks.map(|(span, _)| span), asked, faults);
    ignored.report(client.map_or("clients", |format| format.title), faults);
}

/// Warns that variables stand for the inputs that an editor would ask for.
fn report_inputs(span: Option<SourceSpan>, mut asked: Vec<String>, faults: &mut ProblemCollector) {
    asked.sort();
    asked.dedup();
    let Some(span) = span.filter(|_| !asked.is_empty()) else {
        return;
    };
    let message = format!(
        "Moongate does not prompt for `inputs`; it reads them from environment variables: {}",
        asked.join(", ")
    );
    faults.warn(
        ProblemKind::UnknownKey,
        span,
        message,
        "set these variables for the gateway, or write `${file:/path}` instead",
    );
}

/// Gives servers of a client names that are legal here.
fn with_legal_names(map: ServerMap, faults: &mut ProblemCollector) -> ServerMap {
    if *map.format == OWN {
        return map;
    }
    let mut entries: BTreeMap<String, ConfigNode> = BTreeMap::new();
    // Legal names first: they keep theirs, and substitutes avoid them.
    let (legal, other): (Vec<_>, Vec<_>) = map
        .entries
        .into_iter()
        .partition(|(name, _)| server_names::name_problem(name).is_none());
    entries.extend(legal);
    let mut unused = UnusedNames::new(entries.keys().cloned());
    for (name, node) in other {
        let legal = unused.take(&name);
        let message = format!(
            "the server {name:?} is called `{legal}` here, because its name cannot be part of a \
             path"
        );
        faults.warn(
            ProblemKind::Value,
            node.key,
            message,
            format!("call it `{legal}` to silence this"),
        );
        entries.insert(legal, node);
    }
    ServerMap { entries, ..map }
}

/// Adds servers to those that the file has already.
fn merge(table: &mut BTreeMap<String, ConfigNode>, map: ServerMap, faults: &mut ProblemCollector) {
    let servers = table
        .entry("servers".to_owned())
        .or_insert_with(|| ConfigNode {
            key: map.key,
            ..ConfigNode::table(map.span)
        });
    let Some(servers) = servers.as_table_mut() else {
        let fix = "write one table, keyed by server name";
        return faults.error(
            ProblemKind::Type,
            map.key,
            "the servers must be a table",
            fix,
        );
    };
    for (name, server) in map.entries {
        let path = ConfigPath::of(&["servers", &name]);
        let twice =
            format!("the server `{name}` is defined twice, under two spellings of `servers`");
        match servers.entry(name) {
            Entry::Vacant(free) => drop(free.insert(server)),
            Entry::Occupied(_) => {
                faults.for_setting(&path).error(
                    ProblemKind::Conflict,
                    server.key,
                    twice,
                    "keep one of the two",
                );
            }
        }
    }
}

/// Ignores other settings of a client in its file: every key that is not close to one of ours.
fn ignore_settings_of_client(
    table: &mut BTreeMap<String, ConfigNode>,
    ignored: &mut IgnoredSettings,
) {
    let schema = ConfigSchema::read();
    let root = schema.root();
    let keys = root.keys().unwrap_or_default();
    table.retain(|name, node| {
        if name.starts_with("x-") || name == "$schema" {
            return true;
        }
        // Our sections are tables. A key with another value isn't a misspelt section.
        let known = if keys.contains(&name.as_str()) {
            Some(name.as_str())
        } else {
            nearest(name, &keys).filter(|_| node.as_table().is_some())
        };
        let ours = known.is_some_and(|known| match root.key(known).and_then(|rule| rule.keys()) {
            Some(keys) => shares_a_key(node, &keys),
            // Our tables of names hold tables. Those of clients hold other values.
            None => node
                .as_table()
                .is_none_or(|table| table.values().all(|entry| entry.as_table().is_some())),
        });
        if !ours {
            ignored.add(node.key, name.clone());
        }
        ours
    });
}

/// True if a table has one of these keys, or one that was probably meant. An empty table counts as
/// ours.
fn shares_a_key(node: &ConfigNode, keys: &[&str]) -> bool {
    let ConfigValue::Table(table) = &node.value else {
        return true;
    };
    table.is_empty()
        || table
            .keys()
            .any(|key| keys.contains(&key.as_str()) || nearest(key, keys).is_some())
}
