//! Check that the config here is the one of the running gateway.
//!
//! Owns the comparison of the files. Does not read the gateway's settings. Invariant: files with
//! the same bytes count as the same, since a container has its own paths.

use std::path::Path;

use moongate_api::ConfigFile;

use super::codes::DoctorCode;
use super::examined::ExaminedGateway;
use super::finding::DoctorFinding;

/// Compares the config that was read with the one of the running gateway.
pub(super) fn check(gateway: &ExaminedGateway) -> Option<DoctorFinding> {
    let running = gateway.running_files.as_ref()?;
    let here = &gateway.options.paths;
    if here.len() == running.len()
        && here
            .iter()
            .zip(running)
            .all(|(here, running)| is_same(here, running))
    {
        return None;
    }
    let files: Vec<&str> = running.iter().map(|file| file.path.as_str()).collect();
    let read: Vec<String> = here.iter().map(|file| file.display().to_string()).collect();
    let message = format!(
        "the running gateway has its config from {}, but this command read {}",
        names(&files),
        names(&read.iter().map(String::as_str).collect::<Vec<_>>())
    );
    let fix = match files[..] {
        [] => "restart the gateway with this config: `moongate --config PATH`".to_owned(),
        _ => {
            let flags: Vec<String> = files
                .iter()
                .map(|file| format!("--config {file}"))
                .collect();
            format!("moongate doctor {}", flags.join(" "))
        }
    };
    Some(DoctorFinding::new(DoctorCode::OtherConfig, message, fix))
}

/// Returns true if both are one file, or have the same bytes.
pub(crate) fn is_same(here: &Path, running: &ConfigFile) -> bool {
    let is_one = here.canonicalize().is_ok_and(|here| {
        Path::new(&running.path)
            .canonicalize()
            .is_ok_and(|there| here == there)
    });
    is_one || moongate_config::read_redacted(here).is_ok_and(|(tag, _)| tag == running.etag)
}

fn names(files: &[&str]) -> String {
    if files.is_empty() {
        "no file".to_owned()
    } else {
        files.join(", ")
    }
}
