//! Browser of the user.
//!
//! Owns the system's command that opens an address. Does not wait for it. Invariant: the address is
//! one argument.

use std::io;
use std::process::{Command, Stdio};

/// Opens an address in the user's browser.
pub fn open(url: &str) -> io::Result<()> {
    let words: &[&str] = match std::env::consts::OS {
        // `start` takes its first quoted argument as a title.
        "windows" => &["cmd", "/C", "start", ""],
        "macos" => &["open"],
        _ => &["xdg-open"],
    };
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = command.status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("{} failed", words[0])))
    }
}
