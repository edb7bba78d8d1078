//! Texts that servers are imported from.
//!
//! Owns the search: a client's files, a path, or stdin. Does not compare servers. Invariant: one unreadable file does
//! not hide the others.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cli::connect::unknown_client;
use crate::cli::process::print_message;
use moongate_clients::import::{ImportError, ImportedServers, read_file, read_text};
use moongate_clients::{ClientProfile, UserDirectories};
use moongate_config::ServerEntry;

/// Largest file that is read.
// A pipe or a device has no length, so the bound is on what is read.
const TEXT_MAX: u64 = 64 * 1024 * 1024;

/// Server with the place that it comes from.
pub(super) type OriginalServer = (String, ServerEntry);

/// Cause for which there are no servers.
pub(super) enum SourceError {
    /// Wrong word on the command line.
    Usage(String),
    /// Text that cannot be read.
    Failed(anyhow::Error),
}

/// Reads the servers of what the command line names, or of all clients.
pub(super) fn read_sources(
    source: Option<&str>,
    directories: &UserDirectories<'_>,
) -> Result<Vec<OriginalServer>, SourceError> {
    match source {
        None => Ok(of_clients(moongate_clients::clients(), directories)),
        Some("-") => {
            let mut text = String::new();
            let read = std::io::stdin().lock().take(TEXT_MAX).read_to_string(&mut text).context("stdin cannot be read");
            read.map_err(SourceError::Failed)?;
            Ok(named("stdin", of_text(read_text(&text))?))
        }
        Some(word) => match moongate_clients::client(word) {
            Some(profile) => Ok(of_clients([profile], directories)),
            // A word without any sign of a path is a misspelt client: "no such file" would point the wrong
            // way.
            None if !Path::new(word).exists() && !word.contains(['/', '\\', '.']) => {
                Err(SourceError::Usage(unknown_client(word)))
            }
            None => {
                let text = text_of(Path::new(word)).map_err(SourceError::Failed)?;
                Ok(named(word, of_text(read_file(Path::new(word), &text))?))
            }
        },
    }
}

fn of_text(read: Result<ImportedServers, ImportError>) -> Result<ImportedServers, SourceError> {
    read.map_err(|error| SourceError::Failed(anyhow::anyhow!("{error}")))
}

fn named(origin: &str, read: ImportedServers) -> Vec<OriginalServer> {
    for warning in &read.warnings {
        print_message(&format!("{origin}: {warning}"));
    }
    read.servers.into_iter().map(|server| (origin.to_owned(), server)).collect()
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    let cannot = || format!("{} cannot be read", path.display());
    let file = std::fs::File::open(path).with_context(cannot)?;
    let mut text = String::new();
    file.take(TEXT_MAX).read_to_string(&mut text).with_context(cannot)?;
    Ok(text)
}

/// Reads the files of clients: the user's, and those of the project in this directory.
fn of_clients(
    profiles: impl IntoIterator<Item = &'static ClientProfile>,
    directories: &UserDirectories<'_>,
) -> Vec<OriginalServer> {
    let (mut found, mut seen) = (Vec::new(), Vec::new());
    for profile in profiles {
        let project = profile.project_file.map(PathBuf::from);
        for path in directories.file(profile).into_iter().chain(project).filter(|path| path.is_file()) {
            // Several clients read the same file of a project.
            if seen.contains(&path) {
                continue;
            }
            seen.push(path.clone());
            let read =
                text_of(&path).and_then(|text| read_file(&path, &text).map_err(|error| anyhow::anyhow!("{error}")));
            match read {
                Ok(read) => found.extend(named(profile.title, read)),
                // One client with a broken file must not keep the servers of the others from being imported.
                Err(error) => print_message(&format!("{}: {}: {error:#}", profile.title, path.display())),
            }
        }
    }
    found
}
