//! Checks of the clients on this machine.
//!
//! Owns which files are read. Does not know their forms (`moongate-clients`). Invariant: no client's file is written.

use std::path::Path;

use moongate_clients::{ClientProfile, ConnectMethod, ExistingEntry, UserDirectories, existing_entry, shape_problem};
use moongate_config::edit::raw_entry;
use moongate_platform::Platform;

use super::codes::DoctorCode;
use super::examined::ExaminedGateway;
use super::finding::DoctorFinding;

/// Name of our entry, unless the user chose another.
const ENTRY: &str = "moongate";

/// Looks for problems of clients.
pub(super) fn check(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let directories = UserDirectories { env: &gateway.options.env, platform: Platform::CURRENT };
    let with_files = moongate_clients::clients().filter(|profile| profile.method == ConnectMethod::File);
    with_files.filter_map(|profile| check_client(gateway, profile, &directories)).collect()
}

/// Returns what the client cannot read of our entry.
fn entry_problem(profile: &ClientProfile, path: &Path) -> Option<String> {
    shape_problem(profile, &raw_entry(path, ENTRY)?)
}

fn check_client(
    gateway: &ExaminedGateway,
    profile: &ClientProfile,
    directories: &UserDirectories<'_>,
) -> Option<DoctorFinding> {
    let path = directories.file(profile).filter(|path| path.is_file())?;
    let text = std::fs::read_to_string(&path).ok()?;
    let (title, id) = (profile.title, profile.id);
    // The shape first: an entry that cannot be read may look foreign, and the shape is the cause.
    let finding = if let Some(problem) = entry_problem(profile, &path) {
        let fix = format!("moongate connect {id} --write --force");
        DoctorFinding::new(DoctorCode::ClientShape, format!("{title}: {problem}"), fix)
    } else if let ExistingEntry::Foreign(entry) = existing_entry(&path, &text, ENTRY, &gateway.own) {
        let target = entry["url"].as_str().or(entry["command"].as_str()).unwrap_or("something else").to_owned();
        let message = format!("{title}: the entry `{ENTRY}` leads to {target}");
        DoctorFinding::new(DoctorCode::ClientElsewhere, message, format!("moongate connect {id} --write --force"))
    } else {
        return None;
    };
    Some(DoctorFinding { place: Some(path.display().to_string()), ..finding })
}
