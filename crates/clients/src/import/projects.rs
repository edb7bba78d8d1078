//! Servers that a client's file of the user has for single projects.
//!
//! Owns their location in the file of Claude Code: `projects`, by path. Does not know which project
//! is meant. Invariant: a program whose words are relative paths is started in the folder of its
//! project.

use std::path::Path;

use moongate_config::ParsedServer;
use moongate_edit::Format;
use serde_json::{Map, Value, json};

use super::remote_bridge;
use crate::connect_file::format_of;

/// Servers of one project.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectServers {
    /// Path of the project.
    pub path: String,
    /// Servers, in our words.
    pub servers: Vec<ParsedServer>,
}

/// Reads the servers of all projects, and returns the text without them. `None` if the file has no
/// projects.
pub(super) fn split(path: &Path, text: &str) -> Option<(String, Vec<ProjectServers>)> {
    // Such a file may have megabytes of history, so most files are not parsed a second time.
    if format_of(path) != Format::Json || !text.contains("\"projects\"") {
        return None;
    }
    let mut file: Map<String, Value> =
        serde_json::from_str(text.trim_start_matches('\u{feff}')).ok()?;
    let projects = file.remove("projects")?;
    let found: Vec<ProjectServers> = projects
        .as_object()?
        .iter()
        .filter_map(|(project, settings)| servers_of_project(path, project, settings))
        .collect();
    // A `projects` of something else stays, so that the reader of the file reports it.
    (!found.is_empty()).then(|| (Value::Object(file).to_string(), found))
}

/// Reads the servers of one project. `None` if it has none.
fn servers_of_project(path: &Path, project: &str, settings: &Value) -> Option<ProjectServers> {
    let servers = settings
        .get("mcpServers")
        .filter(|servers| servers.is_object())?;
    let wrapped = json!({ "mcpServers": servers }).to_string();
    let entries = moongate_config::parse_servers(path, &wrapped).ok()?;
    let servers: Vec<ParsedServer> = entries
        .servers
        .into_iter()
        .map(remote_bridge::unwrap)
        .map(|server| in_folder(server, project))
        .collect();
    (!servers.is_empty()).then(|| ProjectServers {
        path: project.to_owned(),
        servers,
    })
}

/// Names the folder of a program that would otherwise look for its paths in the folder of the
/// gateway.
fn in_folder(mut server: ParsedServer, project: &str) -> ParsedServer {
    let args = server
        .settings
        .get("args")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mut words = server
        .settings
        .get("command")
        .into_iter()
        .chain(args)
        .filter_map(Value::as_str);
    if words.any(is_relative) && !server.settings.contains_key("cwd") {
        // A dollar sign is doubled, or it would start a reference.
        let folder = Value::from(project.replace('$', "$$"));
        server.settings.insert("cwd".to_owned(), folder.clone());
        server.masked.insert("cwd".to_owned(), folder);
    }
    server
}

fn is_relative(word: &str) -> bool {
    word == "." || word == ".." || word.starts_with("./") || word.starts_with("../")
}
