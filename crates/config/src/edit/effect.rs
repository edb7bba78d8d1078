//! Effects of operations: the proof that a config has them, and their words.
//!
//! Owns both. Does not edit (`operation.rs`). Invariant: an operation without its effect is an
//! error, so that an override by a variable or by another file is never silent.

use moongate_access::policy::GlobList;
use serde_json::{Map, Value};

use super::edit_error::ConfigEditError;
use super::literal_text::without_references;
use super::operation::{ConfigOperation, written_value};
use super::overriding::EditedConfig;
use crate::keys::KeyList;
use crate::load::LoadedConfig;
use crate::problem::{ConfigProblem, ProblemKind, ProblemOrigin};

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
            ConfigOperation::AddKey { .. }
            | ConfigOperation::RequireKeys(_)
            | ConfigOperation::RemoveKey(..)
            | ConfigOperation::SetEnvFile(_) => None,
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
            ConfigOperation::EnableTools(server, tools) => {
                format!("switched on {} of {server}", tools_in_words(tools))
            }
            ConfigOperation::DisableTools(server, tools) => {
                format!("switched off {} of {server}", tools_in_words(tools))
            }
            ConfigOperation::SetKeys { server, values } => {
                let keys: Vec<&str> = values.keys().map(String::as_str).collect();
                format!("changed {} of {server}", keys.join(", "))
            }
            ConfigOperation::AddKey { key, .. } => format!("added the key {:?}", key.name),
            ConfigOperation::SetEnvFile(path) => format!("set the env file to {path}"),
            ConfigOperation::RequireKeys(_) => "required a key for every client".to_owned(),
            ConfigOperation::RemoveKey(_, name) => format!("removed the key {name:?}"),
        }
    }

    /// Checks that the config with the edit does what the edit is for.
    pub(super) fn check_effect(
        &self,
        loaded: &LoadedConfig,
        edited: &EditedConfig<'_>,
    ) -> Result<(), ConfigEditError> {
        if let ConfigOperation::AddServer { name, .. } | ConfigOperation::EnableServer(name) = self
        {
            // A variable that is missing here may be set where the gateway runs.
            let problems: Vec<&ConfigProblem> = loaded
                .failed
                .iter()
                .filter(|problem| problem.server.as_ref() == Some(name))
                .collect();
            if problems
                .iter()
                .any(|problem| problem.kind != ProblemKind::Reference)
            {
                return Err(ConfigEditError::of_problems(&problems));
            }
        }
        let done = match self {
            ConfigOperation::AddServer { name, .. } => {
                has_server(loaded, name) || has_disabled_server(loaded, name)
            }
            ConfigOperation::RemoveServer(name) => {
                !has_server(loaded, name) && !has_disabled_server(loaded, name)
            }
            ConfigOperation::EnableServer(name) => has_server(loaded, name),
            ConfigOperation::DisableServer(name) => has_disabled_server(loaded, name),
            ConfigOperation::EnableTools(server, tools) => {
                let is_on = tool_switches(loaded, server);
                tools.iter().all(|tool| is_on(tool))
            }
            ConfigOperation::DisableTools(server, tools) => {
                let is_on = tool_switches(loaded, server);
                !tools.iter().any(|tool| is_on(tool))
            }
            ConfigOperation::SetKeys { server, values } => {
                let check = ValueCheck {
                    lacks_reference: lacks_reference(loaded, server, edited),
                };
                check.has_values(loaded, server, values)
            }
            ConfigOperation::SetEnvFile(path) => {
                loaded.resolved()["gateway"]["env_file"] == without_references(path)
            }
            ConfigOperation::AddKey { list, key } => has_key(loaded, *list, &key.name),
            ConfigOperation::RequireKeys(_) => loaded.plan.auth.required,
            ConfigOperation::RemoveKey(list, name) => !has_key(loaded, *list, name),
        };
        if done {
            return Ok(());
        }
        let decides = self
            .overriding(edited)
            .unwrap_or_else(|| "a variable (MOONGATE_…), a flag or another file".to_owned());
        let message = format!(
            "nothing was changed: {decides} overrides this setting, so the edit would have no \
             effect"
        );
        Err(ConfigEditError::new("overridden", message))
    }
}

/// Returns true for a server that is on.
fn has_server(loaded: &LoadedConfig, name: &str) -> bool {
    let mut servers = loaded.plan.servers.iter();
    servers.any(|server| server.name == name)
}

fn has_disabled_server(loaded: &LoadedConfig, name: &str) -> bool {
    let mut disabled = loaded.plan.disabled.iter();
    disabled.any(|server| server.name == name)
}

fn has_key(loaded: &LoadedConfig, list: KeyList, name: &str) -> bool {
    let plan = &loaded.plan;
    match list {
        KeyList::Clients => plan.auth.keys.iter().any(|key| key.name == name),
        KeyList::Operators => plan.admin_access.keys.iter().any(|key| key.name == name),
    }
}

/// Names one tool, or counts several.
fn tools_in_words(tools: &[String]) -> String {
    match tools {
        [tool] if tool.chars().any(char::is_control) => format!("{tool:?}"),
        [tool] => tool.clone(),
        _ => format!("{} tools", tools.len()),
    }
}

/// Returns a test for the tools that a server's rules let exist.
fn tool_switches(loaded: &LoadedConfig, server: &str) -> impl Fn(&str) -> bool + use<> {
    let allow = tool_list(loaded, server, "allow");
    let deny = tool_list(loaded, server, "deny");
    move |tool| {
        allow.as_ref().is_none_or(|allow| allow.matches(tool))
            && !deny.as_ref().is_some_and(|deny| deny.matches(tool))
    }
}

/// Reads the rules as they are written: a plan lacks those of a server that is off, or that cannot
/// start here.
fn tool_list(loaded: &LoadedConfig, server: &str, list: &str) -> Option<GlobList> {
    let resolved = loaded.resolved();
    own_tool_list(&resolved["servers"][server], list)
        .or_else(|| own_tool_list(&resolved["defaults"], list))
}

fn own_tool_list(table: &Value, list: &str) -> Option<GlobList> {
    let patterns: Vec<String> = table["tools"][list]
        .as_array()?
        .iter()
        .filter_map(Value::as_str)
        .map(|pattern| pattern.replace("$$", "$"))
        .collect();
    GlobList::new(&patterns).ok()
}

/// Returns true if a reference of a server's entry in the edited file leads nowhere here.
fn lacks_reference(loaded: &LoadedConfig, server: &str, edited: &EditedConfig<'_>) -> bool {
    loaded.failed.iter().any(|problem| {
        let is_written = match &problem.origin {
            ProblemOrigin::File { path, .. } => *path == *edited.path,
            ProblemOrigin::Variable(_) | ProblemOrigin::Flag(_) | ProblemOrigin::Nowhere => false,
        };
        let is_own = problem.server.as_deref() == Some(server);
        is_own && is_written && problem.kind == ProblemKind::Reference
    })
}

/// Comparison of a server's values with those that were written.
struct ValueCheck {
    /// True if a written reference may lead nowhere here, which makes its value null. It may lead
    /// somewhere where the gateway runs.
    lacks_reference: bool,
}

impl ValueCheck {
    /// Returns true if the keys of a server have these values.
    fn has_values(&self, loaded: &LoadedConfig, server: &str, values: &Map<String, Value>) -> bool {
        let own = &loaded.resolved()["servers"][server];
        values
            .iter()
            .all(|(key, value)| self.has_value(&own[key], &written_value(key, value)))
    }

    fn has_value(&self, own: &Value, written: &Value) -> bool {
        match written {
            // What looks like a secret is masked there, and what a reference stands for is not
            // known here.
            Value::String(text) => {
                let is_masked = own.as_str().is_some_and(|own| own.contains("***"));
                let is_reference = text.contains("${") && !text.contains("$${");
                let is_lacking = self.lacks_reference && own.is_null();
                own == written || is_masked || (is_reference && (own.is_string() || is_lacking))
            }
            Value::Array(items) => {
                let own = own.as_array().map_or(&[][..], Vec::as_slice);
                own.len() == items.len()
                    && own
                        .iter()
                        .zip(items)
                        .all(|(own, written)| self.has_value(own, written))
            }
            // Another file may add members to a table.
            Value::Object(members) => members
                .iter()
                .all(|(key, written)| self.has_value(&own[key], written)),
            written => own == written,
        }
    }
}
