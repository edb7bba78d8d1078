//! Operations on the config, each with its edits.
//!
//! Owns the choice of the file, and the edits in it. Does not write (`mod.rs`) or check the effect
//! (`effect.rs`). Invariant: an operation changes one file.

use std::path::{Path, PathBuf};

use moongate_edit::{Edit, EditAction, PathStep};
use serde_json::{Map, Value, json};

use super::edit_error::ConfigEditError;
use super::file_entry::{self, FileEntry};
use super::file_keys::FileKeys;
use super::guarded_settings::{check_new_keys, check_set_key, is_guarded_key};
use super::key_entry::{KeyEntry, key_path};
use super::literal_text::without_references;
use super::server_layers::ServerLayers;
use super::tool_rules::ToolLists;
use crate::keys::KeyList;
use crate::options::LoadOptions;
use crate::server_names;
use crate::suggest::alternatives;

/// Operation on the config.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigOperation {
    /// Adds a server with these settings.
    AddServer {
        /// Name of the new server.
        name: String,
        /// Settings, as an entry of `servers` has them.
        settings: Map<String, Value>,
    },
    /// Removes a server's entry.
    RemoveServer(String),
    /// Switches a server on.
    EnableServer(String),
    /// Switches a server off.
    DisableServer(String),
    /// Switches tools of a server on, by the server's own names.
    EnableTools(String, Vec<String>),
    /// Switches tools of a server off, by the server's own names.
    DisableTools(String, Vec<String>),
    /// Sets keys of a server, or removes those that are null.
    SetKeys {
        /// Name of the server.
        server: String,
        /// New values by key. Their dollar signs are doubled, so that they refer to nothing, unless
        /// the key is one that needs `admin.allow_commands`.
        values: Map<String, Value>,
    },
    /// Adds a key.
    AddKey {
        /// List that it goes into.
        list: KeyList,
        /// Entry of the key.
        key: KeyEntry,
    },
    /// Names the file that variables are read from, `gateway.env_file`.
    SetEnvFile(String),
    /// Asks clients for a key even where there is none, `auth.required`, in the file that has this
    /// key.
    RequireKeys(String),
    /// Removes a key by its name.
    RemoveKey(KeyList, String),
}

/// File that an operation changes, and how.
pub(super) struct EditTarget {
    pub(super) path: PathBuf,
    pub(super) edits: Vec<Edit>,
}

impl ConfigOperation {
    /// Returns true if the operation may decide where a server is.
    pub fn sets_target(&self) -> bool {
        match self {
            ConfigOperation::AddServer { .. } => true,
            ConfigOperation::SetKeys { values, .. } => values.keys().any(|key| is_guarded_key(key)),
            _ => false,
        }
    }

    /// Finds the file, and the edits in it.
    pub(super) fn target(
        &self,
        options: &LoadOptions<'_>,
        created: Option<&Path>,
    ) -> Result<EditTarget, ConfigEditError> {
        match self {
            ConfigOperation::AddServer { name, settings } => {
                add_server(options, created, name, settings)
            }
            ConfigOperation::RemoveServer(name) => {
                let entry = only_entry(options, name)?;
                Ok(EditTarget {
                    edits: vec![Edit::new(entry.steps, EditAction::Remove)],
                    path: entry.path,
                })
            }
            ConfigOperation::EnableServer(name) => enable(options, name),
            ConfigOperation::DisableServer(name) => {
                let entry = strongest_entry(options, name)?;
                // The file keeps its spelling: other clients that read it may know only `disabled`.
                let (key, value) = if entry.says_disabled() {
                    ("disabled", true)
                } else {
                    ("enabled", false)
                };
                let edits = vec![Edit::new(
                    entry.key(&[key]),
                    EditAction::Set(Value::Bool(value)),
                )];
                Ok(EditTarget {
                    path: entry.path,
                    edits,
                })
            }
            ConfigOperation::EnableTools(server, tools) => {
                switch_tools(options, server, tools, ToolSwitch::On)
            }
            ConfigOperation::DisableTools(server, tools) => {
                switch_tools(options, server, tools, ToolSwitch::Off)
            }
            ConfigOperation::SetKeys { server, values } => set_keys(options, server, values),
            ConfigOperation::AddKey { list, key } => add_key(options, created, *list, key),
            ConfigOperation::SetEnvFile(path) => Ok(EditTarget {
                path: last_file(options, created)?,
                edits: vec![env_file_edit(path)],
            }),
            ConfigOperation::RequireKeys(name) => require_keys(options, created, name),
            ConfigOperation::RemoveKey(list, name) => remove_key(options, *list, name),
        }
    }
}

fn add_server(
    options: &LoadOptions<'_>,
    created: Option<&Path>,
    name: &str,
    settings: &Map<String, Value>,
) -> Result<EditTarget, ConfigEditError> {
    check_new_keys(settings)?;
    if let Some(wrong) = server_names::name_problem(name) {
        let other = server_names::legal_name(name)
            .map(|name| format!("; call it {name}"))
            .unwrap_or_default();
        return Err(ConfigEditError::new(
            "bad_name",
            format!("the name {name:?} {wrong}{other}"),
        ));
    }
    // All files are searched: an entry of the same name would be merged with the other one, key by
    // key.
    if let Some(entry) = file_entry::find_entries(options, name)?.first() {
        let message = format!(
            "the server {name:?} already exists in {}",
            entry.path.display()
        );
        return Err(ConfigEditError::new("already_there", message));
    }
    let path = last_file(options, created)?;
    let mut steps = file_entry::map_of_file(options, &path)?;
    steps.push(PathStep::from(name));
    Ok(EditTarget {
        path,
        edits: vec![Edit::new(
            steps,
            EditAction::Set(Value::Object(settings.clone())),
        )],
    })
}

/// Returns the edit that names the env file.
fn env_file_edit(path: &str) -> Edit {
    let steps = ["gateway", "env_file"].map(PathStep::from);
    Edit::new(steps, EditAction::Set(without_references(path).into()))
}

/// Returns the file that new entries go into.
fn last_file(
    options: &LoadOptions<'_>,
    created: Option<&Path>,
) -> Result<PathBuf, ConfigEditError> {
    let path = options
        .paths
        .last()
        .cloned()
        .or_else(|| created.map(Path::to_owned));
    path.ok_or_else(|| {
        ConfigEditError::new(
            "no_file",
            "there is no config file, and no directory to create one in",
        )
    })
}

fn strongest_entry(options: &LoadOptions<'_>, name: &str) -> Result<FileEntry, ConfigEditError> {
    // Later files win, so an edit of an earlier entry might have no effect.
    file_entry::find_entries(options, name)?
        .pop()
        .ok_or_else(|| unknown_server(options, name))
}

fn only_entry(options: &LoadOptions<'_>, name: &str) -> Result<FileEntry, ConfigEditError> {
    let mut entries = file_entry::find_entries(options, name)?;
    let Some(entry) = entries.pop() else {
        return Err(unknown_server(options, name));
    };
    if entries.is_empty() {
        return Ok(entry);
    }
    let files: Vec<String> = entries
        .iter()
        .chain([&entry])
        .map(|entry| entry.path.display().to_string())
        .collect();
    // Without the last entry the one below would count, and the server would stay with other
    // settings.
    let message = format!(
        "several files define {name:?}: {}; remove its entries by hand",
        files.join(", ")
    );
    Err(ConfigEditError::new("cannot_edit", message))
}

fn unknown_server(options: &LoadOptions<'_>, name: &str) -> ConfigEditError {
    let plan = crate::load(options).map(|loaded| loaded.plan).ok();
    let names: Vec<String> = plan
        .into_iter()
        .flat_map(|plan| {
            let disabled = plan.disabled.into_iter().map(|server| server.name);
            plan.servers
                .into_iter()
                .map(|server| server.name)
                .chain(disabled)
        })
        .collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let near = alternatives(&known);
    let message = match known.is_empty() {
        true => format!(
            "there is no server {name:?}; the config has none, and `moongate add NAME URL` adds one"
        ),
        false if known.contains(&name) => {
            format!("the entry for {name:?} is not in any file under this name; edit it by hand")
        }
        false => format!("there is no server {name:?}; the config has {near}"),
    };
    ConfigEditError::new("unknown_server", message)
}

/// Switches a server on: without a trace if nothing else switches it off.
fn enable(options: &LoadOptions<'_>, name: &str) -> Result<EditTarget, ConfigEditError> {
    let entry = strongest_entry(options, name)?;
    let layers = ServerLayers::read(options, name, &entry)?;
    let has_disabled = entry.node.child("disabled").is_some();
    let has_enabled = entry.node.child("enabled").is_some();
    let mut edits = Vec::new();
    if has_disabled {
        edits.push(Edit::new(entry.key(&["disabled"]), EditAction::Remove));
    }
    // A server is on unless something says otherwise, so removing the key is enough where no other
    // layer says it.
    if layers.is_off_elsewhere() || !(has_disabled || has_enabled) {
        edits.push(Edit::new(
            entry.key(&["enabled"]),
            EditAction::Set(json!(true)),
        ));
    } else if has_enabled {
        edits.push(Edit::new(entry.key(&["enabled"]), EditAction::Remove));
    }
    Ok(EditTarget {
        path: entry.path,
        edits,
    })
}

#[derive(Clone, Copy)]
enum ToolSwitch {
    On,
    Off,
}

fn switch_tools(
    options: &LoadOptions<'_>,
    server: &str,
    tools: &[String],
    switch: ToolSwitch,
) -> Result<EditTarget, ConfigEditError> {
    let entry = strongest_entry(options, server)?;
    let layers = ServerLayers::read(options, server, &entry)?;
    let lists = ToolLists::of(&entry, &layers);
    let edits = match switch {
        ToolSwitch::On => lists.switch_on(tools)?,
        ToolSwitch::Off => lists.switch_off(tools)?,
    };
    Ok(EditTarget {
        path: entry.path.clone(),
        edits,
    })
}

fn set_keys(
    options: &LoadOptions<'_>,
    server: &str,
    values: &Map<String, Value>,
) -> Result<EditTarget, ConfigEditError> {
    let entry = strongest_entry(options, server)?;
    let mut edits = Vec::new();
    for (key, value) in values {
        check_set_key(key)?;
        edits.push(match value {
            Value::Null if entry.node.child(key).is_none() => continue,
            Value::Null => Edit::new(entry.key(&[key]), EditAction::Remove),
            value => Edit::new(
                entry.key(&[key]),
                EditAction::Set(written_value(key, value)),
            ),
        });
    }
    Ok(EditTarget {
        path: entry.path,
        edits,
    })
}

/// Returns the value that the file gets. Only a key that needs the permission may refer to
/// variables.
pub(super) fn written_value(key: &str, value: &Value) -> Value {
    match value {
        Value::String(text) if !is_guarded_key(key) => without_references(text).into(),
        Value::Array(items) => items.iter().map(|item| written_value(key, item)).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), written_value(key, value)))
            .collect(),
        value => value.clone(),
    }
}

fn add_key(
    options: &LoadOptions<'_>,
    created: Option<&Path>,
    list: KeyList,
    key: &KeyEntry,
) -> Result<EditTarget, ConfigEditError> {
    let lists = FileKeys::read_all(options, list)?;
    if lists
        .iter()
        .any(|keys| keys.written_name(&key.name).is_some())
    {
        // The old key would no longer work.
        let message = format!(
            "the key {:?} already exists in {}.keys: choose another name",
            key.name,
            list.table()
        );
        return Err(ConfigEditError::new("already_there", message));
    }
    // A list in a stronger file would replace the one that counts, and its keys would end.
    let path = match lists.last() {
        Some(keys) => keys.path.clone(),
        None => last_file(options, created)?,
    };
    Ok(EditTarget {
        path,
        edits: vec![key.edit(list)],
    })
}

fn require_keys(
    options: &LoadOptions<'_>,
    created: Option<&Path>,
    name: &str,
) -> Result<EditTarget, ConfigEditError> {
    let lists = FileKeys::read_all(options, KeyList::Clients)?;
    let with_key = lists.iter().rfind(|keys| keys.written_name(name).is_some());
    let path = match with_key {
        Some(keys) => keys.path.clone(),
        None => last_file(options, created)?,
    };
    let steps = [KeyList::Clients.table(), "required"].map(PathStep::from);
    Ok(EditTarget {
        path,
        edits: vec![Edit::new(steps, EditAction::Set(json!(true)))],
    })
}

fn remove_key(
    options: &LoadOptions<'_>,
    list: KeyList,
    name: &str,
) -> Result<EditTarget, ConfigEditError> {
    let lists = FileKeys::read_all(options, list)?;
    // The last file is searched first, since its entry is the one that counts.
    let found = lists
        .iter()
        .enumerate()
        .rev()
        .find_map(|(at, keys)| Some((at, keys, keys.written_name(name)?)));
    let Some((at, keys, written)) = found else {
        let message = format!("no config file has a key {name:?} in {}.keys", list.table());
        return Err(ConfigEditError::new("unknown_key", message));
    };
    if let Some(weaker) = lists[..at].last()
        && keys.is_single()
    {
        let message = format!(
            "{name:?} is the last key in {}, and those of {} would be valid without it: remove \
             them first",
            keys.path.display(),
            weaker.path.display()
        );
        return Err(ConfigEditError::new("cannot_edit", message));
    }
    // A key that is added and removed again leaves the file as it was, without empty lists.
    let mut edits = vec![Edit::new(key_path(list, written), EditAction::Remove)];
    for emptied in [&[list.table(), "keys"][..], &[list.table()]] {
        edits.push(Edit::new(
            emptied.iter().copied(),
            EditAction::RemoveIfEmpty,
        ));
    }
    Ok(EditTarget {
        path: keys.path.clone(),
        edits,
    })
}
