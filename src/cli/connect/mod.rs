//! `moongate connect`: clients of this machine that use the gateway. Owns the flags, and the order of the steps.
//!
//! Does not know how a client's file looks (`moongate-clients`). Invariant: without `--write`, `--remove` or `--undo`,
//! nothing is written.

mod backup;
mod bundle;
mod change;
mod client_key;
mod endpoint;
mod new_key;
mod probe;
mod request;
mod take_over;
mod write;
mod zip_archive;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;

use crate::cli::process::{environment, print_message};
use change::{ChangeConsent, ClientFile};
use client_key::KeyDemand;
use endpoint::endpoint_url;
use moongate_clients::import::SelfAddresses;
use moongate_clients::{
    ClientProfile, ConnectKey, ConnectMethod, ConnectRequest, StepKind, UserDirectories, connect_steps,
};
use moongate_platform::Platform;
use request::request;
pub(in crate::cli) use take_over::{TakenServer, take_over};
use write::write_entries;

/// Text below the help.
const HELP: &str = "\
Examples:
  moongate connect                           list the clients, and those that are here
  moongate connect cursor                    show what Cursor needs
  moongate connect claude-code --write       write it, after showing the change
  moongate connect --all --write --yes       write it for all clients that are here
  moongate connect cursor --undo             take back what was written
  moongate connect claude-desktop --bundle moongate.mcpb
                                             a file that Claude Desktop installs

A client with a key gets it from MOONGATE_KEY, or the variable of --key-env. Where the client can read variables, its
file has only the name of the variable. Where no key is given and the config has keys, an entry keeps the one that it
has, or names MOONGATE_KEY.

Exit codes: 0 fine, 1 failed, 2 bad usage or config.";

/// Variable with the key, unless a flag names another.
const DEFAULT_VARIABLE: &str = "MOONGATE_KEY";
/// Stands for a key that nobody knows yet.
const KEY_PLACEHOLDER: &str = "mg_your_key";
/// Endpoint of a gateway without a config.
const DEFAULT_URL: &str = "http://127.0.0.1:8080/mcp";

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
    /// Take back the last change of the client's file; what others wrote since then stays
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
    /// The endpoint: a name or a path, such as coding or /mcp/coding, or a whole URL [default: /mcp, where the config says]
    #[arg(long, value_name = "NAME|PATH|URL")]
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
    if args.remove || args.undo {
        let take_back = |profile| take_back(&args, profile, &directories);
        return Ok(for_each(&profiles, take_back));
    }
    let request = match request(&args, &env) {
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
    if args.write {
        return write_entries(&args, &profiles, request, &directories).await;
    }
    let request = shown_request(&args, request);
    Ok(for_each(&profiles, |profile| show(profile, &request, &args, &directories)))
}

/// Does one thing for each client. An error of one does not keep the others from it.
fn for_each(
    profiles: &[&'static ClientProfile],
    work: impl Fn(&'static ClientProfile) -> anyhow::Result<()>,
) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for profile in profiles {
        if let Err(error) = work(profile) {
            print_message(&format!("error: {}: {error:#}", profile.title));
            code = ExitCode::FAILURE;
        }
    }
    code
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

/// Returns the request whose steps are shown: with a place for the key, if one is needed and none is given.
fn shown_request(args: &ConnectArgs, request: ConnectRequest) -> ConnectRequest {
    if request.key.is_some() || KeyDemand::of(args, &request.url) != KeyDemand::Needed {
        return request;
    }
    print_message(&format!(
        "the gateway needs a key, which {KEY_PLACEHOLDER} stands for: `moongate connect CLIENT --write --key NAME` makes one"
    ));
    let (name, value) = (DEFAULT_VARIABLE.to_owned(), Some(KEY_PLACEHOLDER.to_owned()));
    ConnectRequest { key: Some(ConnectKey::Variable { name, value }), ..request }
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

/// Removes the entry of a client, or restores its file.
fn take_back(args: &ConnectArgs, profile: &ClientProfile, directories: &UserDirectories<'_>) -> anyhow::Result<()> {
    let file = ClientFile::read(file_of(profile, args, directories)?)?;
    let consent = ChangeConsent { force: args.force, confirmed: args.yes };
    if args.undo {
        return file.undo(consent);
    }
    // Without a config that says where the gateway is, it would be at its default address.
    let url = endpoint_url(args).unwrap_or_else(|_| DEFAULT_URL.to_owned());
    file.disconnect(profile, &args.name, &SelfAddresses::of_url(&url), consent)
}
