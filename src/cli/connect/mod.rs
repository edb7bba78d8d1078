//! `moongate connect`: clients of this machine that use the gateway. Owns the flags, and the order
//! of the steps.
//!
//! Does not know how a client's file looks (`moongate-clients`). Invariant: without `--write`,
//! `--remove` or `--undo`, nothing is written.

mod args;
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
use std::process::ExitCode;

use crate::cli::process::{environment, print_message};
pub use args::ConnectArgs;
pub(in crate::cli) use args::unknown_client;
use args::{DEFAULT_VARIABLE, file_of};
use change::{ChangeConsent, ClientFile};
use client_key::KeyDemand;
use endpoint::endpoint_url;
use moongate_clients::import::SelfAddresses;
use moongate_clients::{
    ClientProfile, ConnectKey, ConnectMethod, ConnectRequest, StepKind, UserDirectories,
    connect_steps,
};
use moongate_platform::Platform;
use request::request;
pub(in crate::cli) use take_over::{TakenServer, take_over};
use write::write_entries;

/// Placeholder for a key that nobody knows yet.
const KEY_PLACEHOLDER: &str = "mg_your_key";
/// Endpoint of a gateway without a config.
const DEFAULT_URL: &str = "http://127.0.0.1:8080/mcp";

/// Runs the command. Returns exit code 1 if a client could not be connected, 2 for bad usage.
pub async fn run(args: ConnectArgs) -> anyhow::Result<ExitCode> {
    let env = environment();
    let directories = UserDirectories {
        env: &env,
        platform: Platform::CURRENT,
    };
    let profiles = match chosen_clients(&args, &directories) {
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
        return Ok(for_each(&profiles, |profile| {
            take_back(&args, profile, &directories)
        }));
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
    let demand = KeyDemand::of(&args, &request.url);
    let lacks_key =
        |profile: &ClientProfile| request.key.is_none() && demand.needs_key(profile, &request);
    if profiles.iter().any(|profile| lacks_key(profile)) {
        print_message(&format!(
            "the gateway needs a key, and {KEY_PLACEHOLDER} is only a placeholder: `moongate \
             connect CLIENT --write --key NAME` makes one"
        ));
    }
    Ok(for_each(&profiles, |profile| {
        let shown = match lacks_key(profile) {
            true => with_placeholder(request.clone()),
            false => request.clone(),
        };
        show(profile, &shown, &args, &directories)
    }))
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
fn chosen_clients(
    args: &ConnectArgs,
    directories: &UserDirectories<'_>,
) -> Result<Vec<&'static ClientProfile>, String> {
    if args.all {
        let here = moongate_clients::clients().filter(|profile| {
            profile.method == ConnectMethod::File && directories.has_client(profile)
        });
        return Ok(here.collect());
    }
    args.clients
        .iter()
        .map(|word| moongate_clients::client(word).ok_or_else(|| unknown_client(word)))
        .collect()
}

/// Lists all clients, with the config files of those installed here.
fn list(directories: &UserDirectories<'_>) -> anyhow::Result<ExitCode> {
    let mut out = String::new();
    for profile in moongate_clients::clients() {
        let file = directories
            .file(profile)
            .filter(|_| directories.has_client(profile));
        let file = file.map_or_else(|| "-".to_owned(), |file| file.display().to_string());
        let _ = writeln!(out, "{:<16} {:<24} {file}", profile.id, profile.title);
    }
    std::io::stdout().write_all(out.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the request whose steps are shown where a key is needed and none is given.
fn with_placeholder(request: ConnectRequest) -> ConnectRequest {
    let name = DEFAULT_VARIABLE.to_owned();
    let value = Some(KEY_PLACEHOLDER.to_owned());
    ConnectRequest {
        key: Some(ConnectKey::Variable { name, value }),
        ..request
    }
}

/// Shows the steps for a client.
fn show(
    profile: &ClientProfile,
    request: &ConnectRequest,
    args: &ConnectArgs,
    directories: &UserDirectories<'_>,
) -> anyhow::Result<()> {
    let path = file_of(profile, args, directories)
        .ok()
        .map(|path| path.display().to_string());
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

/// Removes the entry of a client, or restores its file.
fn take_back(
    args: &ConnectArgs,
    profile: &ClientProfile,
    directories: &UserDirectories<'_>,
) -> anyhow::Result<()> {
    let file = ClientFile::read(file_of(profile, args, directories)?)?;
    let consent = ChangeConsent {
        force: args.force,
        confirmed: args.yes,
    };
    if args.undo {
        return file.undo(consent);
    }
    // Without a config that says where the gateway is, it would be at its default address.
    let url = endpoint_url(args).unwrap_or_else(|_| DEFAULT_URL.to_owned());
    file.disconnect(profile, &args.name, &SelfAddresses::of_url(&url), consent)
}
