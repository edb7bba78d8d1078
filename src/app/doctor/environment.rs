//! Checks of this machine.
//!
//! Owns the search for programs and folders. Does not start programs. Invariant: what is written
//! for a check is removed.

use std::path::{Path, PathBuf};

use moongate_api::ServerCondition;
use moongate_model::UpstreamState;
use moongate_platform::Platform;
use moongate_upstream::ConnectTarget;

use super::codes::DoctorCode;
use super::examined::ExaminedGateway;
use super::finding::DoctorFinding;

/// Looks for problems of this machine.
pub(super) fn check(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    for (name, command, _) in gateway.programs() {
        if find_program(command, gateway.options.env.get("PATH").map(String::as_str)).is_none() {
            let message = format!("server {name}: there is no program {command:?}");
            let fix = format!("install it, or set `servers.{name}.command` to its full path");
            found.push(
                DoctorFinding::new(DoctorCode::CommandNotFound, message, fix).for_server(name),
            );
        }
    }
    if gateway.is_container {
        found.extend(gateway.servers().filter_map(|server| match &server.connect {
            ConnectTarget::Http { url, socket: None, .. }
            if is_local(url) && is_silent(gateway, &server.name) => {
                let message = format!("server {} is at {}, which is this \
                                       container", server.name, url.authority());
                let fix = "write `host.docker.internal`, or the name of the other container, in \
                           its `url`";
                Some(DoctorFinding::new(DoctorCode::ContainerLocalhost, message,
                    fix).for_server(&server.name))
            }
            _ => None,
        }));
    }
    let state = gateway
        .loaded
        .as_ref()
        .ok()
        .and_then(|loaded| loaded.plan.state.file.as_deref());
    // A running gateway has the file open, and says itself if it cannot write.
    if let Some(file) = state.filter(|_| !gateway.is_running())
        && let Err(error) = try_folder(file)
    {
        let message = format!("the state cannot be written to {}: {error}", file.display());
        let fix = "correct the directory's owner, or set `gateway.state_dir`";
        found.push(DoctorFinding::new(
            DoctorCode::StateNotWritable,
            message,
            fix,
        ));
    }
    found
}

/// Returns true if nothing answers there. A server in the same container does, if only with an
/// error.
fn is_silent(gateway: &ExaminedGateway, server: &str) -> bool {
    // One that is only starting may answer yet.
    gateway.state(server).is_some_and(|server| {
        let ServerCondition {
            state,
            reason,
            needs_login,
            ..
        } = &server.condition;
        matches!(state, UpstreamState::BackingOff | UpstreamState::Failed)
            && !needs_login
            && !reason.contains("HTTP status")
    })
}

fn is_local(url: &url::Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

/// Finds a program, by its path or in the folders of `PATH`.
fn find_program(command: &str, path: Option<&str>) -> Option<PathBuf> {
    let endings: &[&str] = if Platform::CURRENT.app_data_folders {
        &["", ".exe", ".cmd", ".bat"]
    } else {
        &[""]
    };
    let is_path = command.contains(['/', '\\']);
    let folders = match is_path {
        true => vec![PathBuf::new()],
        false => std::env::split_paths(path.unwrap_or_default()).collect(),
    };
    let named = folders.iter().flat_map(|folder| {
        endings
            .iter()
            .map(move |ending| folder.join(format!("{command}{ending}")))
    });
    named.into_iter().find(|file| file.is_file())
}

/// Writes into the nearest folder that exists, and removes that again.
fn try_folder(file: &Path) -> std::io::Result<()> {
    let folder = file
        .ancestors()
        .skip(1)
        .find(|folder| folder.is_dir())
        .unwrap_or(Path::new("."));
    // With the process id: two runs at once must not remove the file of each other.
    let probe = folder.join(format!(".moongate-doctor-{}", std::process::id()));
    // Only a write shows it: mode bits do not reveal a read-only file system.
    std::fs::write(&probe, "")?;
    std::fs::remove_file(probe)
}
