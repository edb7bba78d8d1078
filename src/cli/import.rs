//! `moongate import`: servers of other MCP clients that go into our config. Owns the flags, and the
//! order of the steps.
//!
//! Does not read clients' formats (`moongate-clients`). Invariant: the config is written only if it
//! can be used afterwards, and no entry that it has is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::cli::admin_client::AdminArgs;
use crate::cli::config_edit::EditedConfig;
use crate::cli::connect::{TakenServer, take_over};
use crate::cli::import_env_file::EnvFileTarget;
use crate::cli::import_readiness::unready_servers;
use crate::cli::import_sources::{EntryPlace, SourceError, read_sources};
use crate::cli::local_config::LocalConfig;
use crate::cli::process::{CONFIG_VARIABLE, environment, load_options, print_message};
use crate::cli::table_format::TableFormat;
use moongate_clients::UserDirectories;
use moongate_clients::import::{ImportRow, ImportState, MissingSetting, is_off, written_settings};
use moongate_config::ParsedServer;
use moongate_config::edit::ConfigOperation;
use moongate_platform::Platform;
use moongate_telemetry::logs;

/// Text below the help.
const HELP: &str = "\
Examples:
  moongate import                      read the files of all clients
  moongate import cursor               only those of Cursor
  moongate import ./mcp.json --dry-run
  pbpaste | moongate import - --yes    a config, a server.json, a URL, `claude mcp add ...` or \
  `npx ...`
  moongate import cursor --take-over   then let Cursor use this gateway instead of its servers
  moongate import --env-file .env      move keys into a separate file

The servers go into the config that `moongate` would load, or the last of several. Without any, they
go into ~/.config/moongate/moongate.toml. Keys are copied as they are, unless --env-file moves them
out.
--take-over replaces only entries whose servers are ready, in the running gateway or else in a trial
of at most one minute. `moongate connect CLIENT --undo` reverts it.

Exit codes: 0 success, 1 failure, 2 bad usage or config.";

/// Flags of `import`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub struct ImportArgs {
    /// A client, a file, or `-` for stdin; without it, all clients on this machine
    #[arg(value_name = "CLIENT|PATH|-")]
    source: Option<String>,
    /// Show what would be done without writing anything
    #[arg(long)]
    dry_run: bool,
    /// Import only these servers, by the names that the list shows (repeatable)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Replace the client's servers that are ready here with one entry for this gateway, after
    /// showing the change
    #[arg(long)]
    take_over: bool,
    /// Move the servers' keys into this file, which the gateway reads
    #[arg(long, value_name = "PATH")]
    env_file: Option<PathBuf>,
    /// Do not ask before writing
    #[arg(long, short = 'y')]
    yes: bool,
    /// How to show the servers
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
    /// The config to write to; repeat the flag to let later files override earlier ones
    #[arg(long, short, value_name = "PATH", env = CONFIG_VARIABLE)]
    config: Vec<PathBuf>,
}

/// Runs the command. Returns exit code 1 if nothing could be read or written.
pub async fn run(args: ImportArgs) -> anyhow::Result<ExitCode> {
    let env = environment();
    let is_text = args
        .source
        .as_deref()
        .is_some_and(|word| moongate_clients::client(word).is_none());
    if args.take_over && is_text {
        print_message(
            "error: --take-over is for clients: name one, or none to read the files of all clients",
        );
        return Ok(ExitCode::from(2));
    }
    let found = match read_sources(
        args.source.as_deref(),
        &UserDirectories {
            env: &env,
            platform: Platform::CURRENT,
        },
    ) {
        Ok(found) => found,
        Err(SourceError::Usage(message)) => {
            print_message(&format!("error: {message}"));
            return Ok(ExitCode::from(2));
        }
        Err(SourceError::Failed(error)) => return Err(error),
    };
    let config = LocalConfig::read(load_options(&args.config))?;
    let (places, found): (Vec<_>, Vec<_>) = found
        .into_iter()
        .map(|found| (found.places, (found.origin, found.server)))
        .unzip();
    // A row for each server, in the same order.
    let mut rows: Vec<(Vec<EntryPlace>, ImportRow)> =
        places.into_iter().zip(config.plan_import(found)).collect();
    // The names are those after renaming, as the list shows them, so the filter comes after the
    // plan.
    if !args.only.is_empty() {
        choose_only(&mut rows, &args.only)?;
    }
    let (places, rows): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let shown = match args.format {
        TableFormat::Table => import_table(&rows),
        TableFormat::Json => json(&rows, &config.target)?,
    };
    // The list comes before the question, so that the answer is an informed one.
    std::io::stdout().write_all(shown.as_bytes())?;
    let new: Vec<ParsedServer> = new_servers(&rows).into_iter().cloned().collect();
    if new.is_empty() {
        print_message("nothing new to import");
    } else {
        write(&args, &config, new, &env).await?;
    }
    if !args.take_over {
        return Ok(ExitCode::SUCCESS);
    }
    let entries: Vec<ClientEntry> = places
        .into_iter()
        .zip(&rows)
        .flat_map(client_entries)
        .collect();
    if args.dry_run {
        print_replacements(&entries);
        return Ok(ExitCode::SUCCESS);
    }
    let taken = ready_entries(entries, &args.config).await?;
    take_over(&taken, &args.config, &config.own, args.yes).await
}

/// Keeps only the servers of these names, and chooses them. Fails if one of them was not found.
fn choose_only(
    rows: &mut Vec<(Vec<EntryPlace>, ImportRow)>,
    only: &[String],
) -> anyhow::Result<()> {
    let unknown = only
        .iter()
        .find(|name| !rows.iter().any(|(_, row)| row.server.name == **name));
    if let Some(name) = unknown {
        bail!("--only {name:?}: there is no such server");
    }
    rows.retain(|(_, row)| only.contains(&row.server.name));
    rows.iter_mut().for_each(|(_, row)| row.choose());
    Ok(())
}

/// Prints which entries a take-over would replace.
fn print_replacements(entries: &[ClientEntry]) {
    for ClientEntry { taken, server } in entries {
        if server.is_ok() {
            print_message(&format!(
                "{}: `{}` would be replaced, if it is ready",
                taken.place.path.display(),
                taken.name
            ));
        }
    }
}

/// Writes the new servers into the config, and their keys into the env file if there is to be one.
/// A dry run shows both.
async fn write(
    args: &ImportArgs,
    config: &LocalConfig,
    mut new: Vec<ParsedServer>,
    env: &BTreeMap<String, String>,
) -> anyhow::Result<()> {
    let variables = match &args.env_file {
        Some(path) => EnvFileTarget::find(path, config)?.move_secrets(&mut new, env)?,
        None => None,
    };
    let mut operations: Vec<ConfigOperation> = variables
        .iter()
        .filter_map(|variables| variables.setting.clone())
        .map(ConfigOperation::SetEnvFile)
        .collect();
    operations.extend(new.iter().map(|server| ConfigOperation::AddServer {
        name: server.name.clone(),
        settings: written_settings(&server.settings),
    }));
    let edited = EditedConfig::of(&args.config);
    if args.dry_run {
        edited.show(&operations, variables.as_ref())?;
        return Ok(());
    }
    edited.confirm_and_write(&operations, variables.as_ref(), args.yes)?;
    // A server that does not work yet was still imported, so its state is shown and decides
    // nothing.
    let names: Vec<&str> = new.iter().map(|server| server.name.as_str()).collect();
    edited.report(&AdminArgs::of_environment(), &names).await?;
    Ok(())
}

/// Returns the servers that the config gets.
pub(super) fn new_servers(rows: &[ImportRow]) -> Vec<&ParsedServer> {
    rows.iter()
        .filter(|row| row.is_added)
        .map(|row| &row.server)
        .collect()
}

/// Entry of a client's file, and who serves it from now on.
struct ClientEntry {
    taken: TakenServer,
    /// Name of the server in the config, or the reason why there is none.
    server: Result<String, String>,
}

/// Returns the entries of a row: one for each file or project that has it. Those that lead to this
/// gateway are left out.
fn client_entries((places, row): (Vec<EntryPlace>, &ImportRow)) -> Vec<ClientEntry> {
    let server = match &row.state {
        ImportState::New | ImportState::Renamed { .. } => Ok(row.server.name.clone()),
        ImportState::Differs { .. } if row.is_added => Ok(row.server.name.clone()),
        // Without what the gateway lacks, the server may refuse it.
        ImportState::Differs { name, .. } => Err(format!("it differs from `{name}`")),
        ImportState::Same { name } => Ok(name.clone()),
        ImportState::Broken => Err("its entry is unusable".to_owned()),
        ImportState::Own => return Vec::new(),
    };
    let name = &row.server.source_name;
    places
        .into_iter()
        .map(|place| ClientEntry {
            taken: TakenServer {
                place,
                name: name.clone(),
            },
            server: server.clone(),
        })
        .collect()
}

/// Returns the entries whose servers are ready, and says of all others why they stay.
async fn ready_entries(
    entries: Vec<ClientEntry>,
    config: &[PathBuf],
) -> anyhow::Result<Vec<TakenServer>> {
    let servers: BTreeSet<String> = entries
        .iter()
        .filter_map(|entry| entry.server.clone().ok())
        .collect();
    let unready = unready_servers(&servers, config).await?;
    let mut ready = Vec::new();
    let mut left = BTreeSet::new();
    for ClientEntry { taken, server } in entries {
        match server.and_then(|server| {
            unready
                .get(&server)
                .map_or(Ok(()), |reason| Err(reason.clone()))
        }) {
            Ok(()) => ready.push(taken),
            // Once for all projects of a file.
            Err(reason) => drop(left.insert((taken.place.path, taken.name, reason))),
        }
    }
    for (path, name, reason) in &left {
        let line =
            format!("`{name}` stays in this file, since the gateway cannot serve it: {reason}");
        print_message(&format!("{}: {}", path.display(), logs::one_line(&line)));
    }
    if !left.is_empty() {
        print_message("run it again once they are ready; `moongate status` shows what they lack");
    }
    Ok(ready)
}

/// Formats the servers as one line each, with notes below.
pub(super) fn import_table(rows: &[ImportRow]) -> String {
    let names = width(rows.iter().map(|row| row.server.name.as_str()));
    let origins = width(rows.iter().map(|row| row.origin.as_str()));
    let states = width(rows.iter().map(|row| describe_state(row, rows)));
    let mut out = String::new();
    for row in rows {
        let name = &row.server.name;
        let origin = &row.origin;
        let state = describe_state(row, rows);
        let target = row.server.target();
        let line = format!("{name:<names$}  {origin:<origins$}  {state:<states$}  {target}");
        // Clients' files are somebody else's text.
        let _ = writeln!(out, "{}", logs::one_line(line.trim_end()));
        for note in row.server.notes.iter().cloned().chain(difference(row)) {
            let _ = writeln!(out, "    {}", logs::one_line(&note));
        }
    }
    out
}

/// Returns the number of characters of the longest text.
fn width(texts: impl Iterator<Item = impl AsRef<str>>) -> usize {
    texts
        .map(|text| text.as_ref().chars().count())
        .max()
        .unwrap_or(0)
}

/// Says what an entry of the config lacks, and what can be done.
fn difference(row: &ImportRow) -> Option<String> {
    let ImportState::Differs { name, lacks } = &row.state else {
        return None;
    };
    let lacks: Vec<String> = lacks
        .iter()
        .map(|setting| format!("`{}`", setting.path()))
        .collect();
    let lacks = lacks.join(", ");
    let only = &row.server.name;
    let also = format!("or `moongate import --only {only}` imports it as a separate server");
    Some(format!(
        "`{name}` lacks {lacks}: add what is missing there, {also}"
    ))
    .filter(|_| !row.is_added)
}

fn describe_state(row: &ImportRow, rows: &[ImportRow]) -> String {
    let state = match &row.state {
        ImportState::New => "new".to_owned(),
        ImportState::Renamed { from } => format!("new, was {from}"),
        // The config does not have it yet.
        ImportState::Same { name } if is_new(name, rows) => format!("same as {name}"),
        ImportState::Same { name } => format!("already added as {name}"),
        ImportState::Differs { name, .. } => format!("differs from {name}"),
        ImportState::Own => "this gateway".to_owned(),
        ImportState::Broken => "unusable".to_owned(),
    };
    if is_off(&row.server.settings) {
        state + ", off"
    } else {
        state
    }
}

fn is_new(name: &str, rows: &[ImportRow]) -> bool {
    rows.iter()
        .any(|row| row.state.is_new() && row.server.name == name)
}

/// Servers that were found, as scripts read them.
#[derive(Serialize)]
struct FoundServers<'a> {
    file: String,
    servers: Vec<ListedServer<'a>>,
}

/// Server that was found, with masked settings.
#[derive(Serialize)]
struct ListedServer<'a> {
    name: &'a str,
    origin: &'a str,
    state: &'static str,
    settings: &'a Map<String, Value>,
    notes: &'a [String],
    /// Name in its client's file, if the server got another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<&'a str>,
    /// Name of the server that is there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    same_as: Option<&'a str>,
    /// Settings that the server lacks that is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    lacks: Option<Vec<String>>,
}

impl<'a> ListedServer<'a> {
    fn of(row: &'a ImportRow) -> Self {
        let mut listed = ListedServer {
            name: &row.server.name,
            origin: &row.origin,
            state: match &row.state {
                ImportState::New | ImportState::Renamed { .. } => "new",
                ImportState::Same { .. } => "same",
                ImportState::Differs { .. } => "differs",
                ImportState::Own => "own",
                ImportState::Broken => "broken",
            },
            settings: &row.server.masked,
            notes: &row.server.notes,
            was: None,
            same_as: None,
            lacks: None,
        };
        match &row.state {
            ImportState::Renamed { from } => listed.was = Some(from),
            ImportState::Same { name } => listed.same_as = Some(name),
            ImportState::Differs { name, lacks } => {
                listed.same_as = Some(name);
                listed.lacks = Some(lacks.iter().map(MissingSetting::path).collect());
            }
            ImportState::New | ImportState::Own | ImportState::Broken => {}
        }
        listed
    }
}

fn json(rows: &[ImportRow], target: &Path) -> serde_json::Result<String> {
    let found = FoundServers {
        file: target.display().to_string(),
        servers: rows.iter().map(ListedServer::of).collect(),
    };
    Ok(serde_json::to_string_pretty(&found)? + "\n")
}
