//! Replacement of a client's servers by one entry to the gateway, after an import.
//!
//! Owns the choice of files, and the messages. Does not choose the servers (`import`). Invariant:
//! only the user's own files change, and each can be undone.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::args::ConnectArgs;
use super::change::{ChangeConsent, ClientFile};
use super::client_key::{KeyDemand, request_of_client};
use super::request::request;
use super::write::finish;
use crate::cli::import_sources::EntryPlace;
use crate::cli::process::{environment, load_options, print_message};
use moongate_access::auth::{KeyHash, KeySettings};
use moongate_clients::import::{GatewayReach, SelfAddresses};
use moongate_clients::{ConnectMethod, TakenEntry};

/// Server of a client that the gateway has now.
pub(in crate::cli) struct TakenServer {
    pub(in crate::cli) place: EntryPlace,
    /// Name as the client's file has it.
    pub(in crate::cli) name: String,
}

/// Replaces the servers in their clients' files. Returns exit code 1 if a file could not be
/// changed.
pub(in crate::cli) async fn take_over(
    taken: &[TakenServer],
    config: &[PathBuf],
    own: &SelfAddresses,
    is_confirmed: bool,
) -> anyhow::Result<ExitCode> {
    let mut paths: Vec<&Path> = Vec::new();
    for taken in taken {
        if !paths.contains(&taken.place.path.as_path()) {
            paths.push(&taken.place.path);
        }
    }
    let mut code = ExitCode::SUCCESS;
    for path in paths {
        let of_file: Vec<&TakenServer> = taken
            .iter()
            .filter(|taken| taken.place.path == path)
            .collect();
        // One client that goes wrong must not keep the others from their entry.
        if let Err(error) = take_over_file(&of_file, config, own, is_confirmed).await {
            print_message(&format!("error: {}: {error:#}", path.display()));
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// True if a key opens a part of the gateway only, or if nobody can tell here. A reference stands
/// for any key.
fn may_be_narrow(keys: &[KeySettings], key: &str) -> bool {
    let hash = KeyHash::of(key);
    match keys.iter().find(|known| known.hash.matches(&hash)) {
        Some(known) => is_narrow(known),
        None => keys.iter().any(is_narrow),
    }
}

fn is_narrow(key: &KeySettings) -> bool {
    key.views.is_some() || !key.tools.matches_all()
}

/// Returns why the servers of a file stay there, whatever they are.
fn reason_to_stay(place: &EntryPlace) -> Option<&'static str> {
    if !place.is_users {
        Some("others may use this file, too")
    } else if place.profile.method != ConnectMethod::File {
        Some("the client is no longer developed")
    } else {
        None
    }
}

fn print_stay(path: &Path, why: &str) {
    print_message(&format!(
        "{}: its servers stay in this file, since {why}",
        path.display()
    ));
}

/// Describes an entry that does not reach all of this gateway.
fn partial_reach(name: &str) -> String {
    format!(
        "its entry `{name}` reaches only part of this gateway, or does not lead to this config's \
         gateway"
    )
}

/// Returns how much of this gateway the file's own entry reaches, and the entry's name.
fn entry_reach(
    file: &ClientFile,
    config: &[PathBuf],
    own: &SelfAddresses,
) -> anyhow::Result<(GatewayReach, String)> {
    let options = load_options(config);
    let keys = moongate_config::load(&options)
        .map(|loaded| loaded.plan.auth.keys)
        .unwrap_or_default();
    file.reach(|entry| own.reach_of(entry, &options.paths, |key| may_be_narrow(&keys, key)))
}

async fn take_over_file(
    taken: &[&TakenServer],
    config: &[PathBuf],
    own: &SelfAddresses,
    is_confirmed: bool,
) -> anyhow::Result<()> {
    let Some(place) = taken.first().map(|taken| &taken.place) else {
        return Ok(());
    };
    let EntryPlace { profile, path, .. } = place;
    if let Some(why) = reason_to_stay(place) {
        print_stay(path, why);
        return Ok(());
    }
    let args = ConnectArgs::for_take_over(config);
    let request = request(&args, &environment()).map_err(|message| anyhow::anyhow!(message))?;
    let mut own = own.clone();
    own.addresses
        .extend(SelfAddresses::of_url(&request.url).addresses);
    let names: Vec<(String, Option<String>)> = taken
        .iter()
        .map(|taken| (taken.name.clone(), taken.place.project.clone()))
        .collect();
    let entries: Vec<TakenEntry<'_>> = names
        .iter()
        .map(|(name, project)| TakenEntry {
            name,
            project: project.as_deref(),
        })
        .collect();
    let file = ClientFile::read(path.clone())?;
    let (reach, name) = entry_reach(&file, config, &own)?;
    if reach == GatewayReach::Part {
        // Another entry would offer what is left out there on purpose.
        print_stay(path, &partial_reach(&name));
        return Ok(());
    }
    let has_own = reach == GatewayReach::All;
    let consent = ChangeConsent {
        force: false,
        confirmed: is_confirmed,
    };
    let request = match has_own {
        true => request,
        // Before the servers go: an entry that is refused would leave the client with nothing.
        false => request_of_client(
            &args,
            KeyDemand::of(&args, &request.url),
            profile,
            &request,
            &file,
            &own,
        )?,
    };
    let written = file.take_over(
        profile,
        (!has_own).then_some(&request),
        &own,
        &entries,
        consent,
    )?;
    if has_own {
        print_message(&format!(
            "{} keeps its entry for this gateway",
            profile.title
        ));
        return Ok(());
    }
    print_message(&format!(
        "`moongate connect {} --undo` restores the file",
        profile.id
    ));
    finish(profile, &request, &written).await
}
