//! Entries of clients: written, given their key, and checked.
//!
//! Owns the order of these steps over all clients. Does not change a file itself (`change`).
//! Invariant: a client whose key did not come into the config has no entry with it.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;

use super::args::{ConnectArgs, file_of};
use super::change::{ChangeConsent, ClientFile};
use super::client_key::{KeyDemand, request_of_client};
use super::new_key::NewClientKey;
use super::probe;
use crate::cli::process::print_message;
use moongate_clients::import::SelfAddresses;
use moongate_clients::{ClientProfile, ConnectKey, ConnectRequest, UserDirectories};

/// Client whose file has our entry.
struct ConnectedClient {
    profile: &'static ClientProfile,
    /// Request, with the key that its entry has.
    request: ConnectRequest,
    file: ClientFile,
    /// False if the file had the entry already.
    is_changed: bool,
}

/// Writes the entries. Returns exit code 1 if a client could not be connected.
pub(super) async fn write_entries(
    args: &ConnectArgs,
    profiles: &[&'static ClientProfile],
    mut request: ConnectRequest,
    directories: &UserDirectories<'_>,
) -> anyhow::Result<ExitCode> {
    // One for all clients of this call: a second key of the same name would be refused.
    let new_key = args
        .key
        .as_ref()
        .map(|name| NewClientKey::prepare(args, name))
        .transpose()?;
    if let Some(new_key) = &new_key {
        request.key = Some(new_key.request_key(args));
    }
    let demand = KeyDemand::of(args, &request.url);
    let mut code = ExitCode::SUCCESS;
    let mut connected = Vec::new();
    for profile in profiles {
        // The other clients still get their entry. The exit code shows that one did not.
        match write_entry(args, demand, profile, &request, directories) {
            Ok(client) => connected.push(client),
            Err(error) => code = report_failure(profile, &error),
        }
    }
    if let Some(new_key) = new_key.filter(|_| !connected.is_empty()) {
        // After the files: a key that no client has would be lost, and the first one would lock all
        // of them out.
        if let Err(error) = new_key.write() {
            connected.into_iter().for_each(take_back);
            return Err(error);
        }
        show_key(&request, &connected)?;
        probe::wait_for_key(&request).await;
    }
    for client in &connected {
        if let Err(error) = finish(client.profile, &client.request, &client.file).await {
            code = report_failure(client.profile, &error);
        }
    }
    Ok(code)
}

fn report_failure(profile: &ClientProfile, error: &anyhow::Error) -> ExitCode {
    print_message(&format!("error: {}: {error:#}", profile.title));
    ExitCode::FAILURE
}

fn write_entry(
    args: &ConnectArgs,
    demand: KeyDemand,
    profile: &'static ClientProfile,
    request: &ConnectRequest,
    directories: &UserDirectories<'_>,
) -> anyhow::Result<ConnectedClient> {
    let file = ClientFile::read(file_of(profile, args, directories)?)?;
    // An entry with another path of the same gateway is ours, too: only the address counts.
    let own = SelfAddresses::of_url(&request.url);
    let request = request_of_client(args, demand, profile, request, &file, &own)?;
    if args.project && request.key.is_some() && request.variable(profile).is_none() {
        let shown = file.path().display();
        print_message(&format!(
            "warning: {shown} gets the key itself, and project files are often shared: {ADVICE}"
        ));
    }
    let consent = ChangeConsent {
        force: args.force,
        confirmed: args.yes,
    };
    let before = file.text().to_owned();
    let file = file.connect(profile, &request, &own, consent)?;
    Ok(ConnectedClient {
        profile,
        request,
        is_changed: file.text() != before,
        file,
    })
}

/// Advice about a key in a file that others may get.
const ADVICE: &str = "keep it out of the repository, or leave out --project";

/// Takes an entry out again.
fn take_back(client: ConnectedClient) {
    let path = client.file.path().to_owned();
    let consent = ChangeConsent {
        force: false,
        confirmed: true,
    };
    if client.is_changed
        && let Err(error) = client
            .file
            .undo(consent)
            .with_context(|| path.display().to_string())
    {
        report_failure(client.profile, &error);
    }
}

/// Prints a new key for clients that do not have it in their file. Nobody else knows it, and it is
/// shown only this once.
fn show_key(request: &ConnectRequest, connected: &[ConnectedClient]) -> anyhow::Result<()> {
    let Some(ConnectKey::Variable {
        name,
        value: Some(key),
    }) = &request.key
    else {
        return Ok(());
    };
    let (asking, others): (Vec<_>, Vec<_>) = connected
        .iter()
        .map(|client| client.profile)
        .partition(|profile| request.input(profile).is_some());
    if others
        .iter()
        .any(|profile| request.variable(profile).is_some())
    {
        writeln!(std::io::stdout(), "export {name}={key}")?;
    } else if !asking.is_empty() {
        writeln!(std::io::stdout(), "{key}")?;
    }
    Ok(())
}

/// Says what to do in the client, and checks its entry.
pub(super) async fn finish(
    profile: &ClientProfile,
    request: &ConnectRequest,
    written: &ClientFile,
) -> anyhow::Result<()> {
    let title = profile.title;
    print_message(&format!("{title}: {}", profile.next_step));
    if request.input(profile).is_some() {
        print_message(&format!(
            "{title} asks for the key when it first connects, and keeps it."
        ));
    } else if let Some(name) = request.variable(profile) {
        let how = match &request.key {
            // Nobody here knows the key.
            Some(ConnectKey::Variable { value: None, .. }) => {
                format!(
                    ", as `export {name}=mg_your_key` does; `moongate key new NAME --write` \
                     makes a key"
                )
            }
            _ => String::new(),
        };
        print_message(&format!(
            "{title} reads the key from {name}: set it where the client starts{how}."
        ));
    }
    probe::check(profile, written, request).await
}
