//! Copies of clients' files from before a change, each with one from after it.
//!
//! Owns their names and their number. Does not decide when one is made. Invariant: a copy is a new
//! file with the mode of its original, at most five pairs are kept, and a missing copy is never
//! taken for a file that was not there.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use moongate_platform::{file_replacement, foreign_file};

/// Number of pairs that are kept of a file.
const KEPT_MAX: usize = 5;
const MARK: &str = ".moongate-";
/// Ending of the copy from before a change.
const BEFORE_ENDING: &str = ".bak";
/// Ending of the empty file in its place, where the file did not exist.
const ABSENT_ENDING: &str = ".none";
/// Ending of the copy from after a change. `--undo` compares with it to keep what others wrote
/// since then.
const AFTER_ENDING: &str = ".after";
const ENDINGS: [&str; 3] = [BEFORE_ENDING, ABSENT_ENDING, AFTER_ENDING];
/// Names that are tried for one copy, a millisecond apart.
const NAMES_MAX: i64 = 1000;
/// Largest copy that is read, as for the file itself.
const COPY_MAX: u64 = 16 << 20;

/// Text of a client's file from before a change, and from after it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileBackup {
    /// Path of both, without their endings.
    start: PathBuf,
}

/// Returns the backups of a file, oldest first.
pub(super) fn backups(file: &Path) -> Vec<FileBackup> {
    let (Some(directory), Some(name)) = (
        file.parent(),
        file.file_name().and_then(|name| name.to_str()),
    ) else {
        return Vec::new();
    };
    let start = format!("{name}{MARK}");
    let entries = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let found: BTreeSet<FileBackup> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter_map(|name| {
            let stem = ENDINGS
                .iter()
                .find_map(|ending| name.strip_suffix(*ending))?;
            stem.starts_with(&start).then(|| FileBackup {
                start: directory.join(stem),
            })
        })
        .collect();
    // The names have the time, so they sort by it.
    found.into_iter().collect()
}

/// Keeps the text that a file has before a change. `None` if the file does not exist.
pub(super) fn keep(file: &Path, text: Option<&str>) -> anyhow::Result<FileBackup> {
    keep_at(file, text, jiff::Timestamp::now())
}

fn keep_at(file: &Path, text: Option<&str>, now: jiff::Timestamp) -> anyhow::Result<FileBackup> {
    let ending = match text {
        Some(_) => BEFORE_ENDING,
        None => ABSENT_ENDING,
    };
    for later in 0..NAMES_MAX {
        let time = jiff::Timestamp::from_millisecond(now.as_millisecond() + later)?;
        let time = time
            .strftime("%Y-%m-%dT%H%M%S%.3f")
            .to_string()
            .replace('.', "");
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(format!("{MARK}{time}"));
        let backup = FileBackup {
            start: file.with_file_name(name),
        };
        let is_taken = ENDINGS
            .iter()
            .any(|ending| backup.copy(ending).symlink_metadata().is_ok());
        if is_taken {
            continue;
        }
        match backup.create(ending, file, text.unwrap_or_default()) {
            // Somebody took the name in this moment.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("cannot keep a copy at {}", backup.copy(ending).display())
                });
            }
            Ok(()) => return Ok(backup),
        }
    }
    bail!(
        "cannot keep a copy of {}: all names for it are taken",
        file.display()
    )
}

impl FileBackup {
    fn copy(&self, ending: &str) -> PathBuf {
        let mut path = self.start.clone().into_os_string();
        path.push(ending);
        path.into()
    }

    /// Path of the copy from before the change.
    pub(super) fn before_path(&self) -> PathBuf {
        self.copy(BEFORE_ENDING)
    }

    /// Path of the copy from after the change.
    pub(super) fn after_path(&self) -> PathBuf {
        self.copy(AFTER_ENDING)
    }

    /// Returns the text from before the change. `None` if the file did not exist.
    pub(super) fn before(&self) -> anyhow::Result<Option<String>> {
        let path = self.before_path();
        match foreign_file::read_text(&path, COPY_MAX) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // Somebody may have deleted the copy, and the file would go with it.
                let mark = self.copy(ABSENT_ENDING).symlink_metadata();
                ensure!(
                    mark.is_ok_and(|found| found.is_file()),
                    "{} is missing",
                    path.display()
                );
                Ok(None)
            }
            read => read.map(Some).with_context(|| path.display().to_string()),
        }
    }

    /// Returns the text from after the change.
    pub(super) fn after(&self) -> Option<String> {
        foreign_file::read_text(&self.after_path(), COPY_MAX).ok()
    }

    /// Keeps the text that the file has after the change, and removes the oldest backups.
    pub(super) fn keep_after(&self, file: &Path, text: &str) -> anyhow::Result<()> {
        let kept = self.create(AFTER_ENDING, file, text);
        kept.with_context(|| format!("cannot keep a copy at {}", self.after_path().display()))?;
        let all = backups(file);
        for old in all.iter().take(all.len().saturating_sub(KEPT_MAX)) {
            // A copy too many does no harm.
            let _ = old.remove();
        }
        Ok(())
    }

    /// Removes both copies.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        for path in [AFTER_ENDING, BEFORE_ENDING, ABSENT_ENDING].map(|ending| self.copy(ending)) {
            match std::fs::remove_file(&path) {
                // No change has all three.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                removed => removed.with_context(|| path.display().to_string())?,
            }
        }
        Ok(())
    }

    /// Creates a copy, which nobody else may read before it has the mode of the file. Leaves
    /// nothing behind on failure.
    fn create(&self, ending: &str, file: &Path, text: &str) -> std::io::Result<()> {
        let path = self.copy(ending);
        // A file or a link that waits at the name is an error: nobody else decides where the text
        // goes.
        let copy = file_replacement::create_private(&path)?;
        fill(&copy, file, text).inspect_err(|_| drop(std::fs::remove_file(&path)))
    }
}

fn fill(mut copy: &File, original: &Path, text: &str) -> std::io::Result<()> {
    copy.write_all(text.as_bytes())?;
    if let Ok(original) = foreign_file::open(original) {
        file_replacement::copy_attributes(&original, copy)?;
    }
    copy.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn time(milliseconds: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(1_763_000_000_000 + milliseconds).unwrap()
    }

    #[test]
    fn the_last_five_pairs_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mcp.json");
        std::fs::write(directory.path().join("mcp.json.moongate-other"), "x").unwrap();
        std::fs::write(&file, "now").unwrap();
        for n in 0..7 {
            let backup = keep_at(&file, Some(&n.to_string()), time(n)).unwrap();
            backup.keep_after(&file, "after").unwrap();
        }
        let texts: Vec<String> = backups(&file)
            .iter()
            .map(|backup| backup.before().unwrap().unwrap())
            .collect();
        assert_eq!(texts, ["2", "3", "4", "5", "6"]);
        assert_eq!(backups(&file)[0].after().as_deref(), Some("after"));
        let count = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(count, 12, "the file, five pairs, and what is no copy");
    }

    #[test]
    fn a_file_that_was_not_there_is_marked_and_one_without_a_copy_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mcp.json");
        for before in [None, Some(String::new()), Some("old".to_owned())] {
            let backup = keep_at(&file, before.as_deref(), time(0)).unwrap();
            std::fs::write(&file, "new").unwrap();
            backup.keep_after(&file, "new").unwrap();
            assert_eq!(backups(&file), std::slice::from_ref(&backup));
            assert_eq!(backup.before().unwrap(), before);
            assert_eq!(backup.before_path().exists(), before.is_some());
            // Whichever it was, its loss is an error.
            for ending in [BEFORE_ENDING, ABSENT_ENDING] {
                let _ = std::fs::remove_file(backup.copy(ending));
            }
            let error = backup.before().unwrap_err().to_string();
            assert!(error.ends_with(".bak is missing"), "{error}");
            backup.remove().unwrap();
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        }
        // A mark alone is a backup, too, and goes with it.
        keep_at(&file, None, time(0)).unwrap();
        for backup in backups(&file) {
            backup.remove().unwrap();
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_copy_from_after_another_change_stays_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mcp.json");
        let new = keep_at(&file, None, time(0)).unwrap();
        new.keep_after(&file, "new").unwrap();
        let next = keep_at(&file, Some("new"), time(0)).unwrap();
        assert_ne!(next, new);
        assert_eq!(
            new.before().unwrap(),
            None,
            "its undo brings the other text back"
        );
        assert!(!new.before_path().exists() && next.before_path().exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_waits_at_the_name_is_not_followed() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mcp.json");
        let target = directory.path().join("target");
        std::fs::write(&file, "secret").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let waiting = keep_at(&file, Some("secret"), time(0)).unwrap();
        waiting.remove().unwrap();
        symlink(&target, waiting.before_path()).unwrap();
        let backup = keep_at(&file, Some("secret"), time(0)).unwrap();
        assert!(
            !target.exists() && backup != waiting,
            "another name is taken"
        );
        assert_eq!(backup.before().unwrap().as_deref(), Some("secret"));
        let mode = std::fs::metadata(backup.before_path())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o640);
        symlink(&target, backup.after_path()).unwrap();
        assert!(backup.keep_after(&file, "secret").is_err() && !target.exists());
    }
}
