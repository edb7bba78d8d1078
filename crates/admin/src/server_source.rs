//! Servers that an operator typed, pasted or chose, compared with this config.
//!
//! Owns how such a body is read. Does not answer requests (`new_servers.rs`, `server_preview.rs`),
//! and does not know clients' formats (`moongate_clients`). Invariant: a server that the config
//! already has is never added a second time.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::admin_state::AdminState;
use crate::change_answer::problem_row;
use crate::control_types::{ChangeRefusal, ComparedServers};
use moongate_api::{ConfigProblemRow, ProblemConcern, ServerSource, TextProblem};
use moongate_clients::import::{ImportError, ImportRow, ImportState, ImportedServers, read_text};
use moongate_config::edit::{ConfigEditError, ConfigOperation, KnownReferences};
use moongate_config::{ConfigProblem, popular_server};

/// Most servers at once. A pasted file of a client has a few dozen at most.
pub(super) const SERVERS_MAX: usize = 200;

/// Slot of the text that is being read. One for the process, since all listeners share its memory.
static READING: Semaphore = Semaphore::const_new(1);

/// Choice among the servers of a source.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerChoice {
    /// Only these, by the names that the preview shows, also one that differs. Without it, all that
    /// are new.
    pub(super) only: Option<Vec<String>>,
    /// Other names, by those that the preview shows.
    pub(super) names: BTreeMap<String, String>,
}

/// Servers of a source that were compared with the config.
#[derive(Default)]
pub(super) struct FoundServers {
    pub(super) rows: Vec<ImportRow>,
    pub(super) warnings: Vec<String>,
    known: KnownReferences,
    /// Text that somebody wrote.
    written: String,
}

/// Reason why a source has no servers.
pub(super) enum SourceProblem {
    /// Text that cannot be read. Normal while somebody types.
    Unreadable(Vec<TextProblem>),
    /// Request that cannot be understood: a code, and a message.
    BadRequest(&'static str, String),
    /// Config that cannot be read.
    Config(ChangeRefusal),
}

/// Reads the servers of a source, and compares them with those of the config.
pub(super) async fn find_servers(
    source: ServerSource,
    admin: &AdminState,
    choice: ServerChoice,
) -> Result<FoundServers, SourceProblem> {
    let broke_off = || {
        let interrupted = ConfigEditError::new("internal", "reading the config was interrupted");
        SourceProblem::Config(interrupted.into())
    };
    let written = written_text(&source);
    // One text at a time: its tree takes many times its size, and operators paste one after the
    // other.
    let slot = READING.acquire().await.map_err(|_| broke_off())?;
    // `spawn_blocking`: a quarter of a megabyte of YAML takes a while. The slot is held until that
    // has ended, even if the operator is gone.
    let read = tokio::task::spawn_blocking(move || {
        let read = read_source(source);
        drop(slot);
        read
    });
    let read = read.await.map_err(|_| broke_off())??;
    if read.servers.len() > SERVERS_MAX {
        let message = format!(
            "the text has {} servers, but at most {SERVERS_MAX} can be added at once",
            read.servers.len()
        );
        return Err(SourceProblem::BadRequest("too_many_servers", message));
    }
    let planned = admin
        .editor
        .plan_import(read.servers, admin.endpoint_url.clone())
        .await;
    let ComparedServers { rows, known } = planned.map_err(SourceProblem::Config)?;
    let rows = choice.apply(rows)?;
    Ok(FoundServers {
        rows,
        warnings: [read.warnings, read.ignored].concat(),
        known,
        written,
    })
}

/// Returns all that somebody wrote.
fn written_text(source: &ServerSource) -> String {
    let headers = source.headers.iter().flatten().map(|(_, value)| value);
    // Not those of the table of popular servers: an operator gives a key when the server is added.
    source
        .text
        .iter()
        .chain(&source.url)
        .chain(headers)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Entry of a typed URL.
#[derive(Serialize)]
struct PastedEntry<'a> {
    url: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
}

/// File with the entries of servers.
#[derive(Serialize)]
struct PastedServers<'a> {
    servers: BTreeMap<&'a str, Map<String, Value>>,
}

fn read_source(source: ServerSource) -> Result<ImportedServers, SourceProblem> {
    let ServerSource {
        text,
        url,
        headers,
        popular,
        args,
    } = source;
    match (text, url, popular) {
        (Some(_), None, None) | (None, None, Some(_)) if headers.is_some() => {
            Err(bad_body("`headers` can only be used with `url`"))
        }
        (Some(_), None, None) | (None, Some(_), None) if !args.is_empty() => {
            Err(bad_body("`args` can only be used with `popular`"))
        }
        (Some(text), None, None) => read_text(&text).map_err(unreadable),
        (None, Some(url), None) => {
            let entry = PastedEntry {
                url: url.trim(),
                headers: headers.unwrap_or_default(),
            };
            // As if the entry had been pasted: the name and the masks come from one place.
            read_text(&json!(entry).to_string()).map_err(unreadable)
        }
        (None, None, Some(name)) => popular_entry(&name, &args),
        _ => Err(bad_body("give exactly one of `text`, `url` and `popular`")),
    }
}

fn bad_body(message: &str) -> SourceProblem {
    SourceProblem::BadRequest("bad_body", message.to_owned())
}

impl ServerChoice {
    fn apply(&self, mut rows: Vec<ImportRow>) -> Result<Vec<ImportRow>, SourceProblem> {
        let names = self.only.iter().flatten().chain(self.names.keys());
        if let Some(name) = names
            .into_iter()
            .find(|name| !rows.iter().any(|row| row.server.name == **name))
        {
            let message = format!("the source has no server {name:?}; check the preview again");
            return Err(SourceProblem::BadRequest("unknown_name", message));
        }
        if let Some(only) = &self.only {
            rows.retain(|row| only.contains(&row.server.name));
            rows.iter_mut().for_each(ImportRow::choose);
        }
        for row in rows.iter_mut().filter(|row| row.is_added) {
            if let Some(name) = self.names.get(&row.server.name) {
                row.server.name.clone_from(name);
            }
        }
        Ok(rows)
    }
}

impl FoundServers {
    /// Returns the operations that add the new servers.
    pub(super) fn operations(&self) -> Vec<ConfigOperation> {
        self.rows
            .iter()
            .filter(|row| row.is_added)
            .map(add_operation)
            .collect()
    }

    /// Returns the operation that a probe takes the settings from: without values that refer to
    /// variables which nobody wrote. A `server.json` names headers only, and the reading makes
    /// references of them.
    pub(super) fn probe_operation(&self, row: &ImportRow) -> ConfigOperation {
        let ConfigOperation::AddServer { name, mut settings } = add_operation(row) else {
            return add_operation(row);
        };
        for table in ["headers", "env"] {
            if let Some(members) = settings.get_mut(table).and_then(Value::as_object_mut) {
                members
                    .retain(|_, value| value.as_str().is_none_or(|text| self.has_references(text)));
            }
        }
        ConfigOperation::AddServer { name, settings }
    }

    /// Returns true if an operation is made only where commands are allowed.
    pub(super) fn needs_command(&self, operation: &ConfigOperation) -> bool {
        let ConfigOperation::AddServer { settings, .. } = operation else {
            return false;
        };
        !self.known.guarded_settings(settings).is_empty()
    }

    /// Returns true if somebody wrote all references of a value.
    fn has_references(&self, value: &str) -> bool {
        let names = value.split("${").skip(1).map(|rest| {
            let end = rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            &rest[..end]
        });
        names.into_iter().all(|name| {
            ["${", "$", "${env:", "${input:"]
                .map(|mark| format!("{mark}{name}"))
                .iter()
                .any(|spelling| self.written.contains(spelling))
        })
    }

    /// Finds a server that cannot be added, although it was asked for.
    pub(super) fn refused(&self) -> Option<String> {
        let row = self.rows.iter().find(|row| !row.is_added)?;
        let name = &row.server.name;
        Some(match &row.state {
            ImportState::Same { name: known } => {
                format!("{name} is already in the config as {known}")
            }
            ImportState::Differs { name: known, .. } => {
                format!(
                    "{known} is in the config without some of these settings; name {name} in \
                     `only` to add it as another server"
                )
            }
            ImportState::Own => format!("{name} leads back to this gateway"),
            _ => format!("{name} cannot be used: {}", row.server.notes.join("; ")),
        })
    }
}

/// Returns the operation that adds a server.
pub(super) fn add_operation(row: &ImportRow) -> ConfigOperation {
    ConfigOperation::AddServer {
        name: row.server.name.clone(),
        settings: moongate_clients::import::written_settings(&row.server.settings),
    }
}

fn popular_entry(name: &str, args: &[String]) -> Result<ImportedServers, SourceProblem> {
    let Some(server) = popular_server(name) else {
        let message =
            format!("there is no popular server {name:?}; GET /api/v1/popular lists them");
        return Err(SourceProblem::BadRequest("unknown_popular", message));
    };
    let settings = server
        .settings(args)
        .map_err(|why| SourceProblem::BadRequest("bad_arguments", why))?;
    // As if the entry had been pasted: the name and the masks come from one place.
    let servers = BTreeMap::from([(name, settings)]);
    read_text(&json!(PastedServers { servers }).to_string()).map_err(unreadable)
}

fn unreadable(error: ImportError) -> SourceProblem {
    SourceProblem::Unreadable(match error {
        ImportError::Unreadable(problems) => problems.errors.iter().map(text_problem).collect(),
        ImportError::Unknown | ImportError::CommandLine(_) => {
            vec![TextProblem {
                message: error.to_string(),
                ..TextProblem::default()
            }]
        }
    })
}

/// Describes a problem of a text. It has no file: its name here is one that was made up.
fn text_problem(problem: &ConfigProblem) -> TextProblem {
    let ConfigProblemRow {
        line,
        column,
        message,
        hint,
        server,
        file: _,
    } = problem_row(problem);
    TextProblem {
        line,
        column,
        message,
        hint: Some(hint),
        concern: Some(ProblemConcern { server }),
    }
}
