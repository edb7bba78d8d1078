//! `moongate import`: servers of other MCP clients that go into our config. Owns the flags, and the order of the steps.
//!
//! Does not read clients' formats (`moongate-clients`). Invariant: the config is written only if it can be used
//! afterwards, and no entry that it has is changed.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::cli::import_sources::{SourceError, read_sources};
use crate::cli::own_config::OwnConfig;
use crate::cli::process::{environment, print_message};
use moongate_clients::UserDirectories;
use moongate_clients::import::{ImportRow, ImportState, plan_import};
use moongate_config::ServerEntry;
use moongate_platform::Platform;
use moongate_telemetry::logs;

/// Text below the help.
const HELP: &str = "\
  moongate import                      look into the files of all clients
  moongate import cursor               only of this one
  moongate import ./mcp.json --dry-run
  pbpaste | moongate import - --yes    a config, a server.json, a URL, `claude mcp add ...` or `npx ...`

The servers go into the config that `moongate` would load, the last of several; without any, into
~/.config/moongate/moongate.toml. Keys in them are copied as they are.

Exit codes: 0 fine, 1 failed, 2 bad usage or config.";

/// Flags of `import`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub struct ImportArgs {
    /// A client, a file, or `-` for stdin; without it, all clients of this machine
    #[arg(value_name = "CLIENT|PATH|-")]
    source: Option<String>,
    /// Show what would be done, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Import only these servers, by the names that the list shows (repeatable)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Do not ask before writing
    #[arg(long, short = 'y')]
    yes: bool,
    /// How to show the servers
    #[arg(long, value_enum, default_value_t)]
    format: ImportFormat,
    /// The config to write to; repeat it to lay later files over earlier ones
    #[arg(long = "config", short = 'c', value_name = "PATH", env = "MOONGATE_CONFIG")]
    config: Vec<PathBuf>,
}

/// How to show the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// One line a server
    #[default]
    Table,
    /// JSON, with secrets masked
    Json,
}

/// Runs the command. Returns exit code 1 if nothing could be read or written.
pub fn run(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let env = environment();
    let found = match read_sources(args.source.as_deref(), &UserDirectories { env: &env, platform: Platform::CURRENT })
    {
        Ok(found) => found,
        Err(SourceError::Usage(message)) => {
            print_message(&format!("error: {message}"));
            return Ok(ExitCode::from(2));
        }
        Err(SourceError::Failed(error)) => return Err(error),
    };
    let config = OwnConfig::find(&args.config, &env)?;
    let mut rows = plan_import(found, &config.known, &config.own);
    // The names are those after renaming, as the list shows them, so the filter comes after the plan.
    if !args.only.is_empty() {
        let unknown = args.only.iter().find(|name| !rows.iter().any(|row| row.server.name == **name));
        if let Some(name) = unknown {
            bail!("--only {name:?}: there is no such server");
        }
        rows.retain(|row| args.only.contains(&row.server.name));
    }
    let shown = match args.format {
        ImportFormat::Table => table(&rows),
        ImportFormat::Json => json(&rows, &config.target),
    };
    // The list comes before the question, so that the answer is an informed one.
    std::io::stdout().write_all(shown.as_bytes())?;
    let new: Vec<&ServerEntry> = rows.iter().filter(|row| row.state.is_new()).map(|row| &row.server).collect();
    if new.is_empty() {
        print_message("nothing new to import");
        return Ok(ExitCode::SUCCESS);
    }
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    config.add(&new, args.yes)?;
    Ok(ExitCode::SUCCESS)
}

/// Formats the servers as one line each, with notes below.
fn table(rows: &[ImportRow]) -> String {
    let width = |text: fn(&ImportRow) -> &str| rows.iter().map(|row| text(row).chars().count()).max().unwrap_or(0);
    let (names, origins) = (width(|row| &row.server.name), width(|row| &row.origin));
    let mut out = String::new();
    for row in rows {
        let (name, origin, state, target) = (&row.server.name, &row.origin, state(&row.state), target(&row.server));
        let line = format!("{name:<names$}  {origin:<origins$}  {state:<10}  {target}");
        // Clients' files are somebody else's text.
        let _ = writeln!(out, "{}", logs::one_line(line.trim_end()));
        for note in &row.server.notes {
            let _ = writeln!(out, "    {}", logs::one_line(note));
        }
    }
    out
}

fn state(state: &ImportState) -> String {
    match state {
        ImportState::New => "new".to_owned(),
        ImportState::Renamed { from } => format!("new, was {from}"),
        ImportState::Same { name } => format!("there as {name}"),
        ImportState::Own => "this gateway".to_owned(),
        ImportState::Broken => "unusable".to_owned(),
    }
}

/// URL or command of a server, without secrets.
fn target(server: &ServerEntry) -> String {
    let text = |key: &str| server.masked.get(key).and_then(Value::as_str);
    let args = server.masked.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    match (text("url"), text("command")) {
        (Some(url), _) => url.to_owned(),
        (None, Some(command)) => std::iter::once(command).chain(args).collect::<Vec<_>>().join(" "),
        (None, None) => text("unix").or_else(|| text("tcp")).unwrap_or_default().to_owned(),
    }
}

/// Encodes the servers, with masked settings.
fn json(rows: &[ImportRow], target: &Path) -> String {
    let servers: Vec<Value> = rows
        .iter()
        .map(|row| {
            let state = match &row.state {
                ImportState::New | ImportState::Renamed { .. } => "new",
                ImportState::Same { .. } => "same",
                ImportState::Own => "own",
                ImportState::Broken => "broken",
            };
            let mut server = json!({
                "name": row.server.name, "origin": row.origin, "state": state,
                "settings": row.server.masked, "notes": row.server.notes,
            });
            match &row.state {
                ImportState::Renamed { from } => server["was"] = json!(from),
                ImportState::Same { name } => server["same_as"] = json!(name),
                _ => {}
            }
            server
        })
        .collect();
    let file = json!({ "file": target.display().to_string(), "servers": servers });
    format!("{file:#}\n")
}
