//! Locks across processes, each on a file that is never replaced.
//!
//! Owns the wait for such a lock. Does not know what it protects. Invariant: a lock ends when its
//! value is dropped or its process dies, and every wait has a limit.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

use moongate_platform::private_file;

/// Pause between two attempts. The system's own wait has no timeout.
const PAUSE: Duration = Duration::from_millis(20);

/// Lock on a file, across processes and threads.
#[derive(Debug)]
pub(crate) struct FileLock(File);

/// Reason why a lock was not taken.
#[derive(Debug)]
pub(crate) enum LockFailure {
    /// Another process held it the whole time.
    Busy,
    /// The file cannot be opened or locked.
    Io(io::Error),
}

impl FileLock {
    /// Locks a file, and creates it and its folder if necessary. Blocks this thread for at most
    /// `patience`.
    pub(crate) fn acquire(path: &Path, patience: Duration) -> Result<FileLock, LockFailure> {
        let file = private_file::open(path).map_err(LockFailure::Io)?;
        let mut waited = Duration::ZERO;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(FileLock(file)),
                Err(TryLockError::WouldBlock) if waited < patience => {}
                Err(TryLockError::WouldBlock) => return Err(LockFailure::Busy),
                Err(TryLockError::Error(cause)) => return Err(LockFailure::Io(cause)),
            }
            block_thread(PAUSE);
            waited += PAUSE;
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file would unlock it, too, but a child that another thread is starting may
        // still hold a copy.
        let _ = self.0.unlock();
    }
}

/// Sleeps. Callers run on threads that may block.
#[allow(clippy::disallowed_methods)]
fn block_thread(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_second_lock_waits_for_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("folder/lock");
        let first = FileLock::acquire(&path, Duration::ZERO).unwrap();
        let is_released = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let lock = FileLock::acquire(&path, Duration::from_secs(60)).unwrap();
                assert!(is_released.load(Ordering::SeqCst));
                drop(lock);
            });
            block_thread(PAUSE * 3);
            is_released.store(true, Ordering::SeqCst);
            drop(first);
            second.join().unwrap();
        });
        FileLock::acquire(&path, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_lock_that_stays_taken_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let _first = FileLock::acquire(&path, Duration::ZERO).unwrap();
        let second = FileLock::acquire(&path, PAUSE * 2);
        assert!(matches!(second, Err(LockFailure::Busy)), "{second:?}");
    }

    #[test]
    fn only_files_can_be_locked() {
        let dir = tempfile::tempdir().unwrap();
        let refused = FileLock::acquire(dir.path(), Duration::ZERO);
        assert!(matches!(refused, Err(LockFailure::Io(_))), "{refused:?}");
    }
}
