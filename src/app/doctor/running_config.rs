//! Check that the config here is the one of the running gateway.
//!
//! Owns the comparison of the files. Does not read the gateway's settings. Invariant: files with the same bytes count as
//! the same, since a container has its own paths.

use std::path::{Path, PathBuf};

use super::codes::DoctorCode;
use super::examined::{ExaminedGateway, RunningFile};
use super::finding::DoctorFinding;

/// Compares the config that was read with the one of the running gateway.
pub(super) fn check(gateway: &ExaminedGateway) -> Option<DoctorFinding> {
    let running = gateway.running_files.as_ref()?;
    let here = &gateway.options.paths;
    if here.len() == running.len() && here.iter().zip(running).all(|(here, running)| is_same(here, running)) {
        return None;
    }
    let files: Vec<&PathBuf> = running.iter().map(|file| &file.path).collect();
    let message = format!("the running gateway has its config from {}, and this command read {}", names(&files), {
        names(&here.iter().collect::<Vec<_>>())
    });
    let fix = match files[..] {
        [] => "restart the gateway with this config: `moongate --config PATH`".to_owned(),
        _ => {
            let flags: Vec<String> = files.iter().map(|file| format!("--config {}", file.display())).collect();
            format!("moongate doctor {}", flags.join(" "))
        }
    };
    Some(DoctorFinding::new(DoctorCode::OtherConfig, message, fix))
}

/// Returns true if both are one file, or have the same bytes.
pub(crate) fn is_same(here: &Path, running: &RunningFile) -> bool {
    let is_one = here.canonicalize().is_ok_and(|here| running.path.canonicalize().is_ok_and(|there| here == there));
    is_one || moongate_config::read_redacted(here).is_ok_and(|(tag, _)| tag == running.etag)
}

fn names(files: &[&PathBuf]) -> String {
    match files {
        [] => "no file".to_owned(),
        files => files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", "),
    }
}
