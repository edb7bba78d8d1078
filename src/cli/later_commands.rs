//! Commands of later versions. Owns their names and the advice that replaces them today.
//!
//! Does not run anything. Invariant: no command of this version is among them.

use std::ffi::OsStr;

/// Names of the commands.
pub(super) const NAMES: [&str; 3] = ["audit", "pin", "upgrade"];

/// Returns the refusal of a command of a later version.
pub(super) fn refusal(word: &OsStr) -> Option<String> {
    let name = NAMES.into_iter().find(|name| word == *name)?;
    let instead = match name {
        "audit" => "`telemetry.calls = \"all\"` logs each call",
        "pin" => {
            "name the version of each package in the config; `moongate check` shows which have none"
        }
        _ => "`moongate --help` lists all commands",
    };
    Some(format!(
        "error: `moongate {name}` is not available in this version; {instead}"
    ))
}
