//! Copies of clients' files from before a change.
//!
//! Owns their names and their number. Does not decide when one is made. Invariant: a copy has the mode of its file, and
//! at most five are kept.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Number of copies that are kept of a file.
const KEPT_MAX: usize = 5;
const MARK: &str = ".moongate-";
const ENDING: &str = ".bak";

/// Returns the copies of a file, oldest first.
pub(super) fn backups(file: &Path) -> Vec<PathBuf> {
    let (Some(directory), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let start = format!("{name}{MARK}");
    let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let is_copy = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(&start) && name.ends_with(ENDING)
    };
    let mut copies: Vec<PathBuf> = entries.filter(is_copy).collect();
    // The names have the time, so they sort by it.
    copies.sort();
    copies
}

/// Copies a file beside it, and removes the oldest copies. A file that is not there gets an empty copy.
pub(super) fn keep(file: &Path) -> anyhow::Result<PathBuf> {
    keep_at(file, jiff::Timestamp::now())
}

fn keep_at(file: &Path, time: jiff::Timestamp) -> anyhow::Result<PathBuf> {
    let time = time.strftime("%Y-%m-%dT%H%M%S%.3f").to_string().replace('.', "");
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!("{MARK}{time}{ENDING}"));
    let copy = file.with_file_name(name);
    let cannot = || format!("cannot keep a copy at {}", copy.display());
    match file.exists() {
        // This copies the mode, too.
        true => drop(std::fs::copy(file, &copy).with_context(cannot)?),
        false => std::fs::write(&copy, "").with_context(cannot)?,
    }
    let copies = backups(file);
    for old in copies.iter().take(copies.len().saturating_sub(KEPT_MAX)) {
        // A copy too many does no harm.
        let _ = std::fs::remove_file(old);
    }
    Ok(copy)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_last_five_copies_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mcp.json");
        std::fs::write(directory.path().join("mcp.json.moongate-other"), "x").unwrap();
        for n in 0..7 {
            std::fs::write(&file, n.to_string()).unwrap();
            keep_at(&file, jiff::Timestamp::from_millisecond(1_763_000_000_000 + n).unwrap()).unwrap();
        }
        let texts: Vec<String> = backups(&file).iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        assert_eq!(texts, ["2", "3", "4", "5", "6"]);
    }
}
