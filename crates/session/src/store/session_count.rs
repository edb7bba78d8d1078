//! Number of the stored sessions, in a file next to the store.
//!
//! Owns that file. Does not count (`embedded.rs`). Invariant: the number is only shown to people,
//! so a file that is lost, or older than the store, does no harm.

use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use moongate_platform::private_file;

/// Maximum size of the file, in bytes.
const SIZE_MAX: u64 = 32;

/// Number that was written last, and its file.
pub(super) struct SessionCount {
    path: PathBuf,
    written: Option<u64>,
}

impl SessionCount {
    /// Names the file next to the store. Nothing is read or written.
    pub(super) fn for_store(store: &Path) -> Self {
        let mut path = store.as_os_str().to_owned();
        path.push(".sessions");
        SessionCount {
            path: PathBuf::from(path),
            written: None,
        }
    }

    /// Reads the number that an earlier process wrote.
    pub(super) fn read(&self) -> Option<u64> {
        // Looked up first: opening would make it.
        self.path.symlink_metadata().ok()?;
        let mut text = String::new();
        private_file::open(&self.path)
            .ok()?
            .take(SIZE_MAX)
            .read_to_string(&mut text)
            .ok()?;
        text.trim().parse().ok()
    }

    /// Writes the number, unless it is the last one.
    pub(super) fn write(&mut self, sessions: u64) {
        if self.written == Some(sessions) {
            return;
        }
        let written = private_file::open(&self.path).and_then(|mut file| {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(format!("{sessions}\n").as_bytes())
        });
        // The sessions themselves are written. A disk that refuses this, too, is reported with the
        // next of them.
        self.written = written.is_ok().then_some(sessions);
    }

    /// Removes the file.
    pub(super) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_is_read_by_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("state.redb");
        assert_eq!(SessionCount::for_store(&store).read(), None);
        assert!(!dir.path().join("state.redb.sessions").exists());
        let mut first = SessionCount::for_store(&store);
        first.write(1234);
        first.write(7);
        first.write(7);
        assert_eq!(SessionCount::for_store(&store).read(), Some(7));
        std::fs::write(dir.path().join("state.redb.sessions"), "seven").unwrap();
        assert_eq!(SessionCount::for_store(&store).read(), None);
        SessionCount::for_store(&store).remove();
        assert!(!dir.path().join("state.redb.sessions").exists());
    }
}
