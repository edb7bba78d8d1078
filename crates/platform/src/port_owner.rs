//! Program that listens on a port.
//!
//! Reads `/proc` of Linux. Does not work on other systems, which have no such files. Invariant: a
//! guess isn't an answer.

use std::path::{Path, PathBuf};

/// State of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Finds the program that listens on a TCP port, as `NAME (pid N)`. `None`: unknown, or of another
/// user.
pub fn find(port: u16) -> Option<String> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .flat_map(|table| inodes(table, port))
        .collect();
    let entries = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    // Only numbers are processes: `self` and `thread-self` lead to this one a second time.
    let processes = entries.filter(|entry| {
        entry
            .file_name()
            .as_encoded_bytes()
            .iter()
            .all(u8::is_ascii_digit)
    });
    let mut owners = processes
        .map(|entry| entry.path())
        .filter(|process| has_socket(process, &inodes));
    owners.find_map(|process| describe(&process))
}

/// Returns the inodes of the sockets that listen on a port.
fn inodes(table: &str, port: u16) -> Vec<String> {
    let text = std::fs::read_to_string(table).unwrap_or_default();
    let ending = format!(":{port:04X}");
    let listening = text.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let local = fields.get(1)?;
        let state = fields.get(3)?;
        let inode = fields.get(9)?;
        (local.ends_with(&ending) && *state == LISTENING).then(|| (*inode).to_owned())
    });
    listening.collect()
}

fn has_socket(process: &Path, inodes: &[String]) -> bool {
    let Ok(files) = std::fs::read_dir(process.join("fd")) else {
        return false;
    };
    let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let wanted: Vec<PathBuf> = inodes
        .iter()
        .map(|inode| PathBuf::from(format!("socket:[{inode}]")))
        .collect();
    targets.into_iter().any(|target| wanted.contains(&target))
}

fn describe(process: &Path) -> Option<String> {
    let name = std::fs::read_to_string(process.join("comm")).ok()?;
    Some(format!(
        "{} (pid {})",
        name.trim(),
        process.file_name()?.to_str()?
    ))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_listener_of_this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let owner = find(listener.local_addr().unwrap().port()).unwrap();
        assert!(
            owner.ends_with(&format!("(pid {})", std::process::id())),
            "{owner}"
        );
    }
}
