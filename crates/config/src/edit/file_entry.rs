//! Entry of a server in a file, as the file has it.
//!
//! Owns the search for it, under our key and under those of clients. Does not convert it
//! (`client_formats`). Invariant: an entry is found only under its own name.

use std::path::{Path, PathBuf};

use moongate_edit::PathStep;
use moongate_platform::foreign_file;

use super::edit_error::ConfigEditError;
use crate::client_formats::SERVER_MAPS;
use crate::collector::ProblemCollector;
use crate::layers::CONFIG_BYTES_MAX;
use crate::options::LoadOptions;
use crate::parse;
use crate::source::FileFormat;
use crate::tree::{ConfigNode, ConfigValue};

/// Keys whose servers are switched off by `disabled = true`.
const WITH_DISABLED: [&str; 2] = ["mcpServers", "amp.mcpServers"];

/// Entry of a server in a file.
pub(super) struct FileEntry {
    pub(super) path: PathBuf,
    pub(super) node: ConfigNode,
    /// Path of the entry in the file.
    pub(super) steps: Vec<PathStep>,
    map: &'static str,
}

impl FileEntry {
    /// Returns the path of a key of the entry.
    pub(super) fn key(&self, keys: &[&str]) -> Vec<PathStep> {
        self.steps
            .iter()
            .cloned()
            .chain(keys.iter().map(|key| PathStep::from(*key)))
            .collect()
    }

    /// Returns true if the file says `disabled` where we say `enabled`.
    pub(super) fn says_disabled(&self) -> bool {
        let is_usual = WITH_DISABLED.contains(&self.map);
        self.node.child("disabled").is_some() || (is_usual && self.node.child("enabled").is_none())
    }
}

/// Reads the tree of a file, or of the text in its place. A missing file is an empty table.
pub(super) fn read_tree(
    options: &LoadOptions<'_>,
    path: &Path,
) -> Result<ConfigNode, ConfigEditError> {
    let read = options.texts.get(path).map_or_else(
        || foreign_file::read_text(path, CONFIG_BYTES_MAX),
        |text| Ok(text.clone()),
    );
    let text = match read {
        Ok(text) => text.trim_start_matches('\u{feff}').to_owned(),
        // The first edit creates the file, so its absence is not an error.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => {
            return Err(ConfigEditError::new(
                "io",
                format!("{}: {error}", path.display()),
            ));
        }
    };
    let Some(format) = FileFormat::of(path) else {
        let message = format!("{}: name it .toml, .yaml or .json", path.display());
        return Err(ConfigEditError::new("cannot_edit", message));
    };
    // Problems of the file are reported when the whole config is loaded.
    Ok(parse::parse(
        format,
        &text,
        0,
        &mut ProblemCollector::default(),
    ))
}

/// Finds the entries of a server in the files, weakest file first.
pub(super) fn find_entries(
    options: &LoadOptions<'_>,
    name: &str,
) -> Result<Vec<FileEntry>, ConfigEditError> {
    let mut entries = Vec::new();
    for path in &options.paths {
        let tree = read_tree(options, path)?;
        for (map, steps) in server_maps() {
            let node = steps
                .iter()
                .try_fold(&tree, |node, key| node.as_table()?.get(*key));
            let Some((step, node)) = node.and_then(|node| entry_in(node, name)) else {
                continue;
            };
            let steps = steps
                .iter()
                .map(|key| PathStep::from(*key))
                .chain([step])
                .collect();
            entries.push(FileEntry {
                path: path.clone(),
                node: node.clone(),
                steps,
                map,
            });
            // A second spelling in the same file is an error of the config already.
            break;
        }
    }
    Ok(entries)
}

/// Returns the path of the map that a file keeps its servers in.
pub(super) fn map_of_file(
    options: &LoadOptions<'_>,
    path: &Path,
) -> Result<Vec<PathStep>, ConfigEditError> {
    let tree = read_tree(options, path)?;
    let used = server_maps().find(|(_, steps)| {
        let node = steps
            .iter()
            .try_fold(&tree, |node, key| node.as_table()?.get(*key));
        // `mcp` may be a table of servers or of settings. Only servers are tables themselves.
        node.and_then(ConfigNode::as_table)
            .is_some_and(|map| map.values().all(|entry| entry.as_table().is_some()))
    });
    Ok(used.map_or(vec![PathStep::from("servers")], |(_, steps)| {
        steps.into_iter().map(PathStep::from).collect()
    }))
}

/// Maps of servers: the last key, and the path to it.
fn server_maps() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let flat = std::iter::once("servers")
        .chain(SERVER_MAPS)
        .map(|map| (map, vec![map]));
    flat.chain([("servers", vec!["mcp", "servers"]), ("mcp", vec!["mcp"])])
}

fn entry_in<'a>(map: &'a ConfigNode, name: &str) -> Option<(PathStep, &'a ConfigNode)> {
    match &map.value {
        ConfigValue::Table(entries) => {
            let entry = entries
                .get(name)
                .filter(|entry| entry.as_table().is_some())?;
            Some((PathStep::from(name), entry))
        }
        ConfigValue::List(items) => {
            let entry = items
                .iter()
                .find(|item| item.child("name").and_then(ConfigNode::as_text) == Some(name))?;
            let step = PathStep::Item {
                field: "name".to_owned(),
                value: name.to_owned(),
            };
            Some((step, entry))
        }
        _ => None,
    }
}
