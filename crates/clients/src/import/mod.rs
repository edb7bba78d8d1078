//! Import of servers from clients' files, pasted texts and command lines.
//!
//! Owns the choice of a reader for a text. Does not read files and does not write ours. Invariant:
//! a server that leads back to this gateway is never imported.

mod client_entry;
mod command_line;
mod env_variables;
mod gateway_reach;
mod merge;
mod naming;
mod written_settings;
mod projects;
mod registry;
mod remote_bridge;
mod runner;
mod same_server;
pub(crate) mod self_addresses;
mod taken_servers;

use std::fmt;
use std::path::Path;

use moongate_config::{ConfigProblem, ConfigProblems, ConfigSchema, ParsedServer, ProblemKind};
use serde_json::{Map, Value};

pub use env_variables::{MovedSecrets, move_secrets};
pub use gateway_reach::GatewayReach;
pub use merge::{ImportRow, ImportState, is_off, plan_import};
pub use projects::ProjectServers;
pub use same_server::MissingSetting;
pub use self_addresses::SelfAddresses;
pub use taken_servers::KnownServer;
pub use written_settings::written_settings;

/// Servers that a text has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportedServers {
    /// Servers, in our words.
    pub servers: Vec<ParsedServer>,
    /// Servers of single projects.
    pub projects: Vec<ProjectServers>,
    /// Warnings about the text as a whole.
    pub warnings: Vec<String>,
    /// Sentences about settings of the client that mean nothing here.
    pub ignored: Vec<String>,
}

/// Cause for which a text has no servers to import.
#[derive(Clone, Debug, PartialEq)]
pub enum ImportError {
    /// The file does not parse.
    Unreadable(ConfigProblems),
    /// The text is nothing that has servers.
    Unknown,
    /// The command line cannot be understood.
    CommandLine(String),
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Unreadable(problems) => write!(f, "{}", problems.to_string().trim_end()),
            ImportError::Unknown => f.write_str(
                "this is not a client's config, a server.json, a URL or a command that starts a \
                 server",
            ),
            ImportError::CommandLine(why) => f.write_str(why),
        }
    }
}

/// Reads the servers of a client's file.
pub fn read_file(path: &Path, text: &str) -> Result<ImportedServers, ImportError> {
    // A file may have entries for hundreds of projects.
    let _schema = ConfigSchema::keep();
    // A client's file without an entry for servers must not be taken for a server.json.
    if let Some(server) = registry::server_of(text) {
        return Ok(ImportedServers {
            servers: vec![server],
            ..ImportedServers::default()
        });
    }
    let (rest, projects) = projects::split(path, text).unzip();
    let entries = moongate_config::parse_servers(path, rest.as_deref().unwrap_or(text));
    let entries = entries.map_err(ImportError::Unreadable)?;
    let servers = entries
        .servers
        .into_iter()
        .map(remote_bridge::unwrap)
        .collect();
    let (ignored, warnings): (Vec<_>, Vec<_>) = entries
        .warnings
        .into_iter()
        .partition(|warning| warning.kind == ProblemKind::ClientSetting);
    Ok(ImportedServers {
        servers,
        projects: projects.unwrap_or_default(),
        warnings: messages(warnings),
        ignored: messages(ignored),
    })
}

fn messages(problems: Vec<ConfigProblem>) -> Vec<String> {
    problems
        .into_iter()
        .map(|problem| problem.message)
        .collect()
}

/// Reads the servers of a pasted text: a client's file, a `server.json`, a URL, or command lines.
pub fn read_text(text: &str) -> Result<ImportedServers, ImportError> {
    let trimmed = without_fence(text.trim().trim_start_matches('\u{feff}').trim());
    if trimmed.is_empty() {
        return Err(ImportError::Unknown);
    }
    // A text may have a server on each of its lines.
    let _schema = ConfigSchema::keep();
    if trimmed.starts_with('{') {
        return read_json(trimmed);
    }
    if let Some(servers) = command_line::read(trimmed) {
        let servers = servers.map_err(ImportError::CommandLine)?;
        return Ok(ImportedServers {
            servers: servers.into_iter().map(remote_bridge::unwrap).collect(),
            ..ImportedServers::default()
        });
    }
    // `key: value` is never TOML, and `[table]` never has servers in YAML.
    let by_format = ["pasted.toml", "pasted.yaml"].map(|name| read_file(Path::new(name), trimmed));
    let found = by_format
        .iter()
        .position(|read| read.as_ref().is_ok_and(|read| !read.servers.is_empty()));
    match (found, by_format) {
        (Some(at), by_format) => by_format
            .into_iter()
            .nth(at)
            .unwrap_or(Err(ImportError::Unknown)),
        // The table header shows that somebody meant TOML.
        (None, [Err(error), _]) if trimmed.lines().any(|line| line.starts_with('[')) => Err(error),
        // And this key shows that somebody meant YAML.
        (None, [_, Err(error)]) if trimmed.lines().any(|line| line.starts_with("servers:")) => {
            Err(error)
        }
        (None, _) => Err(ImportError::Unknown),
    }
}

/// Returns the text between the fences of a Markdown block, in which documents show their examples.
fn without_fence(text: &str) -> &str {
    let inside = text
        .strip_prefix("```")
        .and_then(|rest| rest.split_once('\n'))
        .map(|(_, inside)| inside);
    inside
        .and_then(|inside| inside.trim_end().strip_suffix("```"))
        .map_or(text, str::trim)
}

/// Reads JSON: a file of a client, or one server without a name.
fn read_json(text: &str) -> Result<ImportedServers, ImportError> {
    let path = Path::new("pasted.json");
    let read = read_file(path, text)?;
    if !read.servers.is_empty() || !read.projects.is_empty() {
        return Ok(read);
    }
    // `{"url": ...}` or `{"command": ...}`: the name comes from what the server is.
    let wrapped = format!("{{\"mcpServers\":{{\"{UNNAMED}\":{text}}}}}");
    let mut read = read_file(path, &wrapped).map_err(|_| ImportError::Unknown)?;
    for server in &mut read.servers {
        server.name = naming::name_of(&server.settings);
    }
    // Any JSON object fits the wrapper. Only one that names a place to connect to is a server.
    let usable = read
        .servers
        .iter()
        .any(|server| !server.is_broken && is_server(&server.settings));
    if usable {
        Ok(read)
    } else {
        Err(ImportError::Unknown)
    }
}

/// Stand-in for the name of a server that has none.
const UNNAMED: &str = "server";

fn is_server(settings: &Map<String, Value>) -> bool {
    ["url", "command", "unix", "tcp"]
        .iter()
        .any(|key| settings.contains_key(*key))
}
