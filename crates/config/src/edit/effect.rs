//! Effects of operations: the proof that a config has them, and their words.
//!
//! Owns both. Does not edit (`operation.rs`). Invariant: an operation without its effect is an error, so that an override
//! by a variable or by another file is never silent.

use moongate_access::policy::GlobList;
use moongate_edit::{Edit, EditAction, Format, PathStep};
use serde_json::{Map, Value};

use super::edit_error::ConfigEditError;
use super::operation::{ConfigOperation, env_file_edit, without_references, written_value};
use super::tool_rules::escape;
use crate::keys::KeyList;
use crate::load::LoadedConfig;
use crate::problem::{ConfigProblem, ProblemKind};

impl ConfigOperation {
    /// Returns the servers that it is about.
    pub fn server(&self) -> Option<&str> {
        match self {
            ConfigOperation::AddServer { name: server, .. }
            | ConfigOperation::RemoveServer(server)
            | ConfigOperation::EnableServer(server)
            | ConfigOperation::DisableServer(server)
            | ConfigOperation::EnableTools(server, _)
            | ConfigOperation::DisableTools(server, _)
            | ConfigOperation::SetKeys { server, .. } => Some(server),
            ConfigOperation::AddKey { .. } | ConfigOperation::RemoveKey(..) | ConfigOperation::SetEnvFile(_) => None,
        }
    }

    /// Returns the server that it adds.
    pub fn added_server(&self) -> Option<&str> {
        match self {
            ConfigOperation::AddServer { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Describes it in a few words, for a list of past edits.
    pub(super) fn summary(&self) -> String {
        match self {
            ConfigOperation::AddServer { name, .. } => format!("added {name}"),
            ConfigOperation::RemoveServer(name) => format!("removed {name}"),
            ConfigOperation::EnableServer(name) => format!("switched on {name}"),
            ConfigOperation::DisableServer(name) => format!("switched off {name}"),
            ConfigOperation::EnableTools(server, tools) => format!("switched on {} of {server}", tools_in_words(tools)),
            ConfigOperation::DisableTools(server, tools) => {
                format!("switched off {} of {server}", tools_in_words(tools))
            }
            ConfigOperation::SetKeys { server, values } => {
                let keys: Vec<&str> = values.keys().map(String::as_str).collect();
                format!("changed {} of {server}", keys.join(", "))
            }
            ConfigOperation::AddKey { entry, .. } => format!("added the key {}", entry["name"]),
            ConfigOperation::SetEnvFile(path) => format!("named the env file {path}"),
            ConfigOperation::RemoveKey(_, name) => format!("removed the key {name:?}"),
        }
    }

    /// Returns TOML to paste. `None` for operations that only take something away, and for new keys.
    pub fn snippet(&self) -> Option<String> {
        let of_server = |server: &str, keys: &[&str], value: Value| {
            let path = ["servers", server].iter().chain(keys).map(|key| PathStep::from(*key)).collect::<Vec<_>>();
            Edit::new(path, EditAction::Set(value))
        };
        let patterns = |tools: &[String], mark: &str| {
            tools.iter().map(|tool| Some(Value::from(format!("{mark}{}", escape(tool).ok()?)))).collect::<Option<_>>()
        };
        let edits = match self {
            ConfigOperation::AddServer { name, settings } => vec![of_server(name, &[], settings.clone())],
            ConfigOperation::EnableServer(name) => vec![of_server(name, &["enabled"], true.into())],
            ConfigOperation::DisableServer(name) => vec![of_server(name, &["enabled"], false.into())],
            ConfigOperation::EnableTools(server, tools) => {
                vec![of_server(server, &["tools", "deny"], Value::Array(patterns(tools, "!")?))]
            }
            ConfigOperation::DisableTools(server, tools) => {
                vec![of_server(server, &["tools", "deny"], Value::Array(patterns(tools, "")?))]
            }
            ConfigOperation::SetKeys { server, values } => {
                let set = values.iter().filter(|(_, value)| !value.is_null());
                set.map(|(key, value)| of_server(server, &[key], written_value(key, value))).collect()
            }
            ConfigOperation::SetEnvFile(path) => vec![env_file_edit(path)],
            // The hash of a key that nobody gets to see is of no use.
            ConfigOperation::AddKey { .. } | ConfigOperation::RemoveServer(_) | ConfigOperation::RemoveKey(..) => {
                return None;
            }
        };
        moongate_edit::edit(Format::Toml, "", &edits).ok()
    }

    /// Checks that the config with the edit does what was wanted.
    pub(super) fn check_effect(&self, loaded: &LoadedConfig) -> Result<(), ConfigEditError> {
        let plan = &loaded.plan;
        let find = |name: &String| plan.servers.iter().find(|server| server.name == *name);
        let is_off = |name: &String| plan.disabled.iter().any(|server| server.name == *name);
        if let ConfigOperation::AddServer { name, .. } | ConfigOperation::EnableServer(name) = self {
            // A variable that is missing here may be set where the gateway runs.
            let is_fatal = |kind: ProblemKind| kind != ProblemKind::Reference;
            let problems: Vec<&ConfigProblem> =
                loaded.failed.iter().filter(|problem| problem.server.as_ref() == Some(name)).collect();
            if problems.iter().any(|problem| is_fatal(problem.kind)) {
                return Err(ConfigEditError::of_problems(&problems));
            }
        }
        let has_tools = |server: &String, tools: &[String], on: bool| {
            tools.iter().all(|tool| is_tool_on(loaded, server, tool) == on)
        };
        let has_key = |list: &KeyList, name: &str| match list {
            KeyList::Clients => plan.auth.keys.iter().any(|key| key.name == name),
            KeyList::Operators => plan.admin_access.keys.iter().any(|key| key.name == name),
        };
        let done = match self {
            ConfigOperation::AddServer { name, .. } => find(name).is_some() || is_off(name),
            ConfigOperation::RemoveServer(name) => find(name).is_none() && !is_off(name),
            ConfigOperation::EnableServer(name) => find(name).is_some(),
            ConfigOperation::DisableServer(name) => is_off(name),
            ConfigOperation::EnableTools(server, tools) => has_tools(server, tools, true),
            ConfigOperation::DisableTools(server, tools) => has_tools(server, tools, false),
            ConfigOperation::SetKeys { server, values } => has_values(loaded, server, values),
            ConfigOperation::SetEnvFile(path) => loaded.resolved()["gateway"]["env_file"] == without_references(path),
            ConfigOperation::AddKey { list, entry } => {
                has_key(list, &entry["name"].as_str().unwrap_or_default().replace("$$", "$"))
            }
            ConfigOperation::RemoveKey(list, name) => !has_key(list, name),
        };
        if done {
            return Ok(());
        }
        let message = "nothing was changed: a variable (MOONGATE_…), a flag or another file decides this, and the edit \
                       would have no effect";
        Err(ConfigEditError::new("overridden", message))
    }
}

/// Names one tool, or counts several.
fn tools_in_words(tools: &[String]) -> String {
    match tools {
        [tool] => tool.clone(),
        _ => format!("{} tools", tools.len()),
    }
}

/// Returns true if the rules of a server let a tool exist.
fn is_tool_on(loaded: &LoadedConfig, server: &str, tool: &str) -> bool {
    // As they are written: a plan lacks the rules of a server that is off, or that cannot start here.
    let rules = |table: &Value, list: &str| {
        let patterns = table["tools"][list].as_array()?.iter().filter_map(Value::as_str).map(str::to_owned);
        GlobList::new(&patterns.collect::<Vec<_>>()).ok()
    };
    let resolved = loaded.resolved();
    let matches = |list| {
        let own = rules(&resolved["servers"][server], list).or_else(|| rules(&resolved["defaults"], list));
        own.map(|own| own.matches(tool))
    };
    matches("allow").unwrap_or(true) && !matches("deny").unwrap_or(false)
}

/// Returns true if the keys of a server have these values.
fn has_values(loaded: &LoadedConfig, server: &str, values: &Map<String, Value>) -> bool {
    let own = &loaded.resolved()["servers"][server];
    values.iter().all(|(key, value)| has_value(&own[key], &written_value(key, value)))
}

fn has_value(own: &Value, written: &Value) -> bool {
    match written {
        // What looks like a secret is masked there, and what a reference stands for is not known here.
        Value::String(text) => {
            own == written || own == "***" || (text.contains("${") && !text.contains("$${") && own.is_string())
        }
        Value::Array(items) => {
            let own = own.as_array().map_or(&[][..], Vec::as_slice);
            own.len() == items.len() && own.iter().zip(items).all(|(own, written)| has_value(own, written))
        }
        // Another file may add members to a table.
        Value::Object(members) => members.iter().all(|(key, written)| has_value(&own[key], written)),
        written => own == written,
    }
}
