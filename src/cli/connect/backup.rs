//! Copies of clients' files from before a change, each with one from after it.
//!
//! Owns their names and their number. Does not decide when one is made. Invariant: a copy has the mode of its file, and
//! at most five pairs are kept.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Number of copies that are kept of a file.
const KEPT_MAX: usize = 5;
const MARK: &str = ".moongate-";
const ENDING: &str = ".bak";
/// Extension of the copy from after a change.
const AFTER_ENDING: &str = "after";

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
        let _ = remove(old);
    }
    Ok(copy)
}

/// Keeps the text that a file has after the change that a copy was made for.
pub(super) fn keep_after(file: &Path, copy: &Path, text: &str) -> anyhow::Result<()> {
    let after = copy.with_extension(AFTER_ENDING);
    let cannot = || format!("cannot keep a copy at {}", after.display());
    // For the mode. The client may have written the file again, so its text counts for nothing.
    std::fs::copy(file, &after).with_context(cannot)?;
    std::fs::write(&after, text).with_context(cannot)
}

/// Returns the text that a file had after the change that a copy was made for.
pub(super) fn text_after(copy: &Path) -> Option<String> {
    std::fs::read_to_string(copy.with_extension(AFTER_ENDING)).ok()
}

/// Removes a copy from before a change, and the one from after it.
pub(super) fn remove(copy: &Path) -> anyhow::Result<()> {
    // Copies of older versions have no other.
    let _ = std::fs::remove_file(copy.with_extension(AFTER_ENDING));
    std::fs::remove_file(copy).with_context(|| copy.display().to_string())
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
            let copy = keep_at(&file, jiff::Timestamp::from_millisecond(1_763_000_000_000 + n).unwrap()).unwrap();
            keep_after(&file, &copy, "after").unwrap();
        }
        let texts: Vec<String> = backups(&file).iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        assert_eq!(texts, ["2", "3", "4", "5", "6"]);
        assert_eq!(text_after(&backups(&file)[0]).as_deref(), Some("after"));
        assert_eq!(
            std::fs::read_dir(directory.path()).unwrap().count(),
            12,
            "the file, five pairs, and what is no copy"
        );
    }
}
