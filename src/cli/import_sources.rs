//! Texts that servers are imported from.
//!
//! Owns the search: a client's files, a path, or stdin. Does not compare servers. Invariant: one
//! unreadable file does not hide the others.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;

use crate::cli::connect::unknown_client;
use crate::cli::process::print_message;
use crate::cli::text_input::{TEXT_MAX, read_stdin};
use moongate_clients::import::{
    ImportError, ImportedServers, ProjectServers, read_file, read_text,
};
use moongate_clients::{ClientProfile, UserDirectories};
use moongate_config::ParsedServer;
use moongate_platform::foreign_file;

/// Most files of a folder that are read.
const FOLDER_FILES_MAX: usize = 256;

/// Server with its origin.
pub(super) struct FoundServer {
    /// Origin, as people read it.
    pub(super) origin: String,
    /// Files of a client, or one file for each of its projects. None for a text from elsewhere.
    pub(super) places: Vec<EntryPlace>,
    pub(super) server: ParsedServer,
}

/// Place of an entry in a file of a client.
#[derive(Clone, Debug)]
pub(super) struct EntryPlace {
    pub(super) profile: &'static ClientProfile,
    pub(super) path: PathBuf,
    /// Path of the project that the entry is for, in a file for all of them.
    pub(super) project: Option<String>,
    /// True for the user's file, false for a file that others may share.
    pub(super) is_users: bool,
}

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
) -> Result<Vec<FoundServer>, SourceError> {
    match source {
        None => Ok(of_clients(moongate_clients::clients(), directories).found),
        Some("-") => {
            let text = read_stdin().map_err(SourceError::Failed)?;
            Ok(named("stdin", None, of_text(read_text(&text))?))
        }
        Some(word) => match moongate_clients::client(word) {
            Some(profile) => of_client(profile, directories),
            // A word without any sign of a path is a misspelt client: "no such file" would point
            // the wrong way.
            None if !Path::new(word).exists() && !word.contains(['/', '\\', '.']) => {
                Err(SourceError::Usage(unknown_client(word)))
            }
            None => {
                let text = text_of(Path::new(word)).map_err(SourceError::Failed)?;
                Ok(named(
                    word,
                    None,
                    of_text(read_file(Path::new(word), &text))?,
                ))
            }
        },
    }
}

fn of_text(read: Result<ImportedServers, ImportError>) -> Result<ImportedServers, SourceError> {
    read.map_err(|error| SourceError::Failed(anyhow::anyhow!("{error}")))
}

fn named(origin: &str, place: Option<EntryPlace>, read: ImportedServers) -> Vec<FoundServer> {
    for warning in read.warnings.iter().chain(&read.ignored) {
        print_message(&format!("{origin}: {warning}"));
    }
    let places: Vec<EntryPlace> = place.clone().into_iter().collect();
    let found = read.servers.into_iter().map(|server| FoundServer {
        origin: origin.to_owned(),
        places: places.clone(),
        server,
    });
    let mut all: Vec<FoundServer> = found.collect();
    all.extend(of_projects(origin, place.as_ref(), read.projects));
    all
}

/// Collects the servers of projects, each once with all the projects that have it.
fn of_projects(
    origin: &str,
    place: Option<&EntryPlace>,
    projects: Vec<ProjectServers>,
) -> Vec<FoundServer> {
    let mut all: Vec<FoundServer> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    // A folder that is gone is kept in such a file for ever. A text from elsewhere is not about
    // this machine's folders.
    let here = projects
        .into_iter()
        .filter(|project| place.is_none() || Path::new(&project.path).is_dir());
    for project in here {
        for server in project.servers {
            let place = place.map(|place| EntryPlace {
                project: Some(project.path.clone()),
                ..place.clone()
            });
            let key = json!([server.source_name, server.settings]).to_string();
            let at = *known.entry(key).or_insert(all.len());
            match all.get_mut(at) {
                Some(row) => row.places.extend(place),
                None => {
                    let origin = format!("{origin}, {}", project.path);
                    all.push(FoundServer {
                        origin,
                        places: place.into_iter().collect(),
                        server,
                    });
                }
            }
        }
    }
    for row in &mut all {
        match row.places.len().saturating_sub(1) {
            0 => {}
            1 => row.origin.push_str(" and another project"),
            more => row.origin.push_str(&format!(" and {more} more projects")),
        }
    }
    all
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    foreign_file::read_text(path, TEXT_MAX).with_context(|| {
        // What a shell makes of `<(...)` is a pipe, as `/dev/stdin` often is.
        let is_stream = path
            .metadata()
            .is_ok_and(|found| !found.is_file() && !found.is_dir());
        let hint = if is_stream {
            "; `moongate import -` reads standard input"
        } else {
            ""
        };
        format!("{} cannot be read{hint}", path.display())
    })
}

/// Returns the files of a folder that may have servers, by name. None if the folder does not exist.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| has_servers_format(path)).collect();
    // The order of a folder is by chance, and the order of the files decides about names.
    files.sort();
    files.truncate(FOLDER_FILES_MAX);
    files
}

/// True for a file in one of the formats that folders of servers have.
fn has_servers_format(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| ["yaml", "yml", "json"].contains(&extension))
}

/// Servers of clients' files.
#[derive(Default)]
struct ClientServers {
    found: Vec<FoundServer>,
    /// Files that were there, each by its real path.
    files: Vec<PathBuf>,
}

/// Reads the files of one client. Fails if it has none.
fn of_client(
    profile: &'static ClientProfile,
    directories: &UserDirectories<'_>,
) -> Result<Vec<FoundServer>, SourceError> {
    let title = profile.title;
    let places = places_of(profile, directories);
    if places.is_empty() {
        return Err(SourceError::Failed(anyhow::anyhow!(
            "{title}: it does not keep its servers in a readable file; copy them, and use \
             `moongate import -`"
        )));
    }
    let read = of_clients([profile], directories);
    if read.files.is_empty() {
        let looked: Vec<String> = places
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return Err(SourceError::Failed(anyhow::anyhow!(
            "{title}: no file was found; looked for {}",
            looked.join(", ")
        )));
    }
    Ok(read.found)
}

/// Returns the files of a client: the user's, and that of the project in this directory.
fn places_of(profile: &ClientProfile, directories: &UserDirectories<'_>) -> Vec<PathBuf> {
    directories
        .files(profile)
        .into_iter()
        .chain(profile.project_file.map(PathBuf::from))
        .collect()
}

/// Reads the files of clients. One program of a family, such as a command line, may have its own
/// file.
fn of_clients(
    profiles: impl IntoIterator<Item = &'static ClientProfile>,
    directories: &UserDirectories<'_>,
) -> ClientServers {
    let mut all = ClientServers::default();
    let mut ignored = Vec::new();
    for profile in profiles {
        let own = directories.files(profile);
        let mut paths = places_of(profile, directories);
        // A relative folder: the file of the project is among its files, under the same path.
        paths.extend(
            directories
                .folders(profile, Path::new(""))
                .iter()
                .flat_map(|folder| files_of(folder)),
        );
        for path in paths.into_iter().filter(|path| path.is_file()) {
            // Several clients read the same file of a project, and in the home folder it is the
            // user's own.
            let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            if all.files.contains(&real) {
                continue;
            }
            all.files.push(real);
            let read = text_of(&path).and_then(|text| {
                read_file(&path, &text).map_err(|error| anyhow::anyhow!("{error}"))
            });
            match read {
                Ok(mut read) => {
                    if !std::mem::take(&mut read.ignored).is_empty()
                        && !ignored.contains(&profile.title)
                    {
                        ignored.push(profile.title);
                    }
                    let place = EntryPlace {
                        profile,
                        is_users: own.contains(&path),
                        path,
                        project: None,
                    };
                    all.found.extend(named(profile.title, Some(place), read));
                }
                // One client with a broken file must not keep the servers of the others from being
                // imported.
                Err(error) => {
                    print_message(&format!("{}: {}: {error:#}", profile.title, path.display()))
                }
            }
        }
    }
    if !ignored.is_empty() {
        print_message(&format!(
            "other settings of {} do not apply to Moongate and are not imported",
            ignored.join(", ")
        ));
    }
    all
}
