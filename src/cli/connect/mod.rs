//! `moongate connect`: clients of this machine that use the gateway. Owns the flags, and the order of the steps.
//!
//! Does not know how a client's file looks (`moongate-clients`). Invariant: without `--write`, `--remove` or `--undo`,
//! nothing is written.

mod backup;
mod bundle;
mod change;
mod probe;
mod take_over;
mod zip_archive;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::cli::config_edit::EditedConfig;
use crate::cli::process::{environment, print_message};
use crate::cli::{key, locate};
use change::{ChangeConsent, ClientFile};
use moongate_access::auth::{is_key_name, new_key};
use moongate_clients::import::OwnGateway;
use moongate_clients::{
    ClientProfile, ConnectKey, ConnectMethod, ConnectRequest, ConnectRoute, StepKind, UserDirectories, connect_steps,
};
use moongate_config::edit::{ConfigOperation, KeyList};
use moongate_platform::Platform;
pub(in crate::cli) use take_over::{TakenServer, take_over};

/// Text below the help.
const HELP: &str = "\
Examples:
  moongate connect                           list the clients, and those that are here
  moongate connect cursor                    show what Cursor needs
  moongate connect claude-code --write       write it, after showing the change
  moongate connect --all --write --yes       write it for all clients that are here
  moongate connect cursor --undo             put back the file as it was
  moongate connect claude-desktop --bundle moongate.mcpb
                                             a file that Claude Desktop installs

A client with a key gets it from MOONGATE_KEY, or the variable of --key-env. Where the client can read variables, its
file has only the name of the variable.

Exit codes: 0 fine, 1 failed, 2 bad usage or config.";

/// Variable with the key, unless a flag names another.
const DEFAULT_VARIABLE: &str = "MOONGATE_KEY";

/// Flags of `connect`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub struct ConnectArgs {
    /// The clients; without any, they are listed
    #[arg(value_name = "CLIENT", conflicts_with = "all")]
    clients: Vec<String>,
    /// All clients that are on this machine
    #[arg(long)]
    all: bool,
    /// Write the client's file; the change is shown first
    #[arg(long)]
    write: bool,
    /// Take the entry out of the client's file
    #[arg(long, conflicts_with_all = ["write", "undo"])]
    remove: bool,
    /// Put back the client's file as it was before the last change
    #[arg(long, conflicts_with = "write")]
    undo: bool,
    /// Do not ask before writing
    #[arg(long, short = 'y')]
    yes: bool,
    /// Replace an entry of this name that leads somewhere else
    #[arg(long)]
    force: bool,
    /// The file of the project in this directory, instead of the user's
    #[arg(long)]
    project: bool,
    /// The endpoint: a path such as /mcp/coding, or a whole URL [default: /mcp, where the config says]
    #[arg(long, value_name = "PATH|URL")]
    endpoint: Option<String>,
    /// The name of the entry
    #[arg(long, value_name = "NAME", default_value = "moongate")]
    name: String,
    /// The variable with the key for the gateway
    #[arg(long, value_name = "VAR", default_value = DEFAULT_VARIABLE)]
    key_env: String,
    /// Make a key of this name: its hash goes into the config, and the key to the client
    #[arg(long, value_name = "NAME", requires = "write", conflicts_with = "key_env")]
    key: Option<String>,
    /// Write the key itself, also where the client could read a variable
    #[arg(long)]
    key_inline: bool,
    /// Let the client start `moongate stdio`, also where it could use HTTP
    #[arg(long)]
    stdio: bool,
    /// Write a bundle that installs Moongate in Claude Desktop, instead of its file
    #[arg(long, value_name = "PATH", conflicts_with_all = ["all", "write", "remove", "undo", "project", "key"])]
    bundle: Option<PathBuf>,
    /// The config that says where the gateway is; repeat it to lay later files over earlier ones
    #[arg(long = "config", short = 'c', value_name = "PATH", env = "MOONGATE_CONFIG")]
    config: Vec<PathBuf>,
}

impl ConnectArgs {
    /// Flags of a client that uses the gateway of this config, with all defaults.
    fn for_take_over(config: &[PathBuf]) -> Self {
        ConnectArgs {
            clients: Vec::new(),
            all: false,
            write: true,
            remove: false,
            undo: false,
            yes: false,
            force: false,
            project: false,
            endpoint: None,
            name: "moongate".to_owned(),
            key_env: DEFAULT_VARIABLE.to_owned(),
            key: None,
            key_inline: false,
            stdio: false,
            bundle: None,
            config: config.to_vec(),
        }
    }
}

/// Runs the command. Returns exit code 1 if a client could not be connected, 2 for bad usage.
pub async fn run(args: ConnectArgs) -> anyhow::Result<ExitCode> {
    let env = environment();
    let directories = UserDirectories { env: &env, platform: Platform::CURRENT };
    let profiles = match chosen(&args, &directories) {
        Ok(profiles) => profiles,
        Err(message) => {
            print_message(&format!("error: {message}"));
            return Ok(ExitCode::from(2));
        }
    };
    if profiles.is_empty() && !args.all && args.bundle.is_none() {
        return list(&directories);
    }
    let mut request = match request(&args, &env) {
        Ok(request) => request,
        Err(message) => {
            print_message(&format!("error: {message}"));
            return Ok(ExitCode::from(2));
        }
    };
    if let Some(path) = &args.bundle {
        bundle::write(&profiles, &request, path)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(name) = &args.key {
        // Made once for all clients of this call: a second key of the same name would be refused.
        request.key = Some(new_client_key(&args, name)?);
    }
    let mut code = ExitCode::SUCCESS;
    for profile in profiles {
        let result = match args.write || args.remove || args.undo {
            true => change(&args, profile, &request, &directories).await,
            false => show(profile, &request, &args, &directories),
        };
        // The other clients still get their entry. The exit code tells that one did not.
        if let Err(error) = result {
            print_message(&format!("error: {}: {error:#}", profile.title));
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Returns the clients that the flags name.
fn chosen(args: &ConnectArgs, directories: &UserDirectories<'_>) -> Result<Vec<&'static ClientProfile>, String> {
    if args.all {
        let here = |profile: &&ClientProfile| profile.method == ConnectMethod::File && directories.has_client(profile);
        return Ok(moongate_clients::clients().filter(here).collect());
    }
    let find = |word: &String| moongate_clients::client(word).ok_or_else(|| unknown_client(word));
    args.clients.iter().map(find).collect()
}

/// Returns the message about a word that is no client.
pub(super) fn unknown_client(word: &str) -> String {
    let hint = match moongate_clients::nearest_client(word) {
        Some(near) => format!("did you mean `{}`?", near.id),
        None => "`moongate connect` lists those that are known".to_owned(),
    };
    format!("there is no client {word:?}; {hint}")
}

/// Builds the request of the flags.
fn request(args: &ConnectArgs, env: &BTreeMap<String, String>) -> Result<ConnectRequest, String> {
    // The name becomes a key in files and an argument of commands: these characters need quotes in none.
    if args.name.is_empty() || !args.name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
        return Err(format!("--name {:?}: clients take letters, digits, `-` and `_`", args.name));
    }
    let url = match &args.endpoint {
        Some(url) if !url.starts_with('/') => url.clone(),
        path => {
            let located = locate::endpoint(&args.config)?;
            located.url(path.as_deref().unwrap_or("/mcp"))
        }
    };
    let value = env.get(&args.key_env).map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
    let key = match value {
        None if args.key_env != DEFAULT_VARIABLE => return Err(format!("the variable {} is not set", args.key_env)),
        None => None,
        // Such a key would break the header that carries it, and a client's message about that helps nobody.
        Some(key) if !key.bytes().all(|byte| byte.is_ascii_graphic()) => {
            return Err(format!("the key in {} has characters that no key has", args.key_env));
        }
        Some(key) if args.key_inline => Some(ConnectKey::Value(key)),
        Some(key) => Some(ConnectKey::Variable { name: args.key_env.clone(), value: Some(key) }),
    };
    let program = std::env::current_exe().map_err(|error| format!("the path of this program is unknown: {error}"))?;
    let route = if args.stdio { ConnectRoute::Bridge } else { ConnectRoute::Best };
    Ok(ConnectRequest { name: args.name.clone(), url, key, route, program: program.display().to_string() })
}

/// Makes a key, and adds its hash to the config.
fn new_client_key(args: &ConnectArgs, name: &str) -> anyhow::Result<ConnectKey> {
    ensure!(is_key_name(name), "--key: a key's name has 1 to 64 characters");
    let value = new_key();
    let entry = key::entry_value(KeyList::Clients, name, &value);
    let edited = EditedConfig::of(&args.config);
    let operations = [ConfigOperation::AddKey { list: KeyList::Clients, entry }];
    if edited.prepare(&operations)?.loaded().plan.auth.keys.len() == 1 {
        print_message("this is the first key: from now on, every client needs one");
    }
    edited.confirm_and_write(&operations, None, args.yes)?;
    Ok(match args.key_inline {
        true => ConnectKey::Value(value),
        false => ConnectKey::Variable { name: DEFAULT_VARIABLE.to_owned(), value: Some(value) },
    })
}

/// Lists all clients, with the files of those that are here.
fn list(directories: &UserDirectories<'_>) -> anyhow::Result<ExitCode> {
    let mut out = String::new();
    for profile in moongate_clients::clients() {
        let file = directories.file(profile).filter(|_| directories.has_client(profile));
        let file = file.map_or_else(|| "-".to_owned(), |file| file.display().to_string());
        let _ = writeln!(out, "{:<16} {:<24} {file}", profile.id, profile.title);
    }
    std::io::stdout().write_all(out.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the steps for a client.
fn show(
    profile: &ClientProfile,
    request: &ConnectRequest,
    args: &ConnectArgs,
    directories: &UserDirectories<'_>,
) -> anyhow::Result<()> {
    let path = file_of(profile, args, directories).ok().map(|path| path.display().to_string());
    let mut out = format!("# {}\n", profile.title);
    for step in connect_steps(profile, request, path.as_deref()) {
        let (before, after) = match (step.kind, &step.path) {
            (StepKind::Link, _) => ("\nOpen this link:\n\n".to_owned(), "\n"),
            (StepKind::Command, _) => ("\nRun:\n\n".to_owned(), "\n"),
            (StepKind::File, Some(path)) => (format!("\nIn {path}:\n\n"), ""),
            (StepKind::File, None) => ("\nPaste:\n\n".to_owned(), ""),
            (StepKind::Note, _) => ("\n".to_owned(), "\n"),
        };
        let _ = write!(out, "{before}{}{after}", step.text);
    }
    out.push('\n');
    std::io::stdout().write_all(out.as_bytes())?;
    Ok(())
}

/// Returns the file of a client that the flags mean.
fn file_of(profile: &ClientProfile, args: &ConnectArgs, directories: &UserDirectories<'_>) -> anyhow::Result<PathBuf> {
    if profile.method != ConnectMethod::File {
        bail!("it has no file that can be written; `moongate connect {}` shows what it needs", profile.id);
    }
    if args.project {
        let file = profile.project_file.context("it has no file for a project")?;
        return Ok(std::env::current_dir()?.join(file));
    }
    directories.file(profile).context("the place of its file is unknown: HOME is not set")
}

/// Writes, removes or restores the entry of a client.
async fn change(
    args: &ConnectArgs,
    profile: &ClientProfile,
    request: &ConnectRequest,
    directories: &UserDirectories<'_>,
) -> anyhow::Result<()> {
    let file = ClientFile::read(file_of(profile, args, directories)?)?;
    let consent = ChangeConsent { force: args.force, confirmed: args.yes };
    if args.undo {
        return file.undo(consent);
    }
    // An entry with another path of the same gateway is ours, too: only the address counts.
    let own = OwnGateway::of_url(&request.url);
    if args.remove {
        return file.disconnect(profile, &request.name, &own, consent);
    }
    let written = file.connect(profile, request, &own, consent)?;
    // Nobody else knows a new key, and it is shown only this once.
    if let (Some(_), Some(ConnectKey::Variable { name, value: Some(key) })) = (&args.key, &request.key)
        && request.variable(profile).is_some()
    {
        writeln!(std::io::stdout(), "export {name}={key}")?;
    }
    // A running gateway knows a new key only after it has read its config again.
    let wait = if args.key.is_some() { probe::RELOAD_WAIT } else { Duration::ZERO };
    finish(profile, request, &written, wait).await
}

/// Says what to do in the client, and checks its entry.
async fn finish(
    profile: &ClientProfile,
    request: &ConnectRequest,
    written: &ClientFile,
    wait: Duration,
) -> anyhow::Result<()> {
    print_message(profile.next_step);
    if let Some(name) = request.variable(profile).filter(|_| request.input(profile).is_none()) {
        print_message(&format!("{} reads the key from {name}: set it where the client starts.", profile.title));
    }
    probe::check(written, request, wait).await
}
