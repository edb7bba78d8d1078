//! Files that are replaced as a whole, and are on disk when the call returns.
//!
//! Owns the steps of a write. Does not lock: the caller holds the folder's lock. Invariant: a path
//! always leads to the complete old contents or the complete new ones, whatever happens to this
//! process.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use moongate_platform::file_replacement;

/// Name of a new file until it is renamed. One name is enough, because a folder has one writer at a
/// time, and the next write removes whatever a killed process left.
const NEW_FILE: &str = ".new";

/// Steps of a write, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteStep {
    Create,
    Fill,
    SyncFile,
    Rename,
    SyncFolder,
}

/// Hook before each step. Tests use it to fail a write or to kill the process.
type StepHook<'a> = &'a mut dyn FnMut(WriteStep) -> io::Result<()>;

/// Replaces a file, or creates it so that only its owner can read it. Returns once it is on disk.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_in_steps(path, bytes, &mut |_| Ok(()))
}

/// Removes a file durably. False if it did not exist.
pub(crate) fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => sync_folder(folder_of(path)).map(|()| true),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(cause),
    }
}

fn write_in_steps(path: &Path, bytes: &[u8], before: StepHook<'_>) -> io::Result<()> {
    let folder = folder_of(path);
    let new = folder.join(NEW_FILE);
    let written = fill(&new, bytes, before).and_then(|()| {
        before(WriteStep::Rename)?;
        fs::rename(&new, path)
    });
    if let Err(cause) = written {
        // A full disk needs the space.
        let _ = fs::remove_file(&new);
        return Err(cause);
    }
    before(WriteStep::SyncFolder)?;
    sync_folder(folder)
}

fn fill(new: &Path, bytes: &[u8], before: StepHook<'_>) -> io::Result<()> {
    before(WriteStep::Create)?;
    let mut file = create(new)?;
    before(WriteStep::Fill)?;
    file.write_all(bytes)?;
    // Without a sync before the rename, a power cut may leave the new name with no bytes.
    before(WriteStep::SyncFile)?;
    file.sync_all()
}

/// Creates the new file, closed to other users, in place of what a killed process may have left.
fn create(new: &Path) -> io::Result<File> {
    match fs::remove_file(new) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(cause),
        _ => file_replacement::create_private(new),
    }
}

/// Makes a new name or a removal durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    match file_replacement::sync_folder(folder) {
        // Some network file systems cannot sync folders, and don't need to.
        Err(cause)
            if matches!(
                cause.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    const STEPS: [WriteStep; 5] = [
        WriteStep::Create,
        WriteStep::Fill,
        WriteStep::SyncFile,
        WriteStep::Rename,
        WriteStep::SyncFolder,
    ];

    /// Folder with a file that says "old".
    fn folder_with_file() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write(&path, b"old").unwrap();
        (dir, path)
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Contents after a write that stopped before this step.
    fn expected(step: WriteStep) -> &'static str {
        match step {
            WriteStep::SyncFolder => "new",
            _ => "old",
        }
    }

    #[test]
    fn a_file_is_created_replaced_and_removed() {
        let (dir, path) = folder_with_file();
        write(&path, b"newer").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "newer");
        assert_eq!(names(dir.path()), ["file"]);
        assert!(remove(&path).unwrap());
        assert!(!remove(&path).unwrap());
    }

    #[test]
    fn a_failure_at_any_step_leaves_the_old_file_or_the_new_one() {
        for failing in STEPS {
            let (dir, path) = folder_with_file();
            let mut hook = |step: WriteStep| {
                if step == failing {
                    return Err(io::Error::from(io::ErrorKind::StorageFull));
                }
                Ok(())
            };
            let failure = write_in_steps(&path, b"new", &mut hook).unwrap_err();
            assert_eq!(failure.kind(), io::ErrorKind::StorageFull, "{failing:?}");
            let text = fs::read_to_string(&path).unwrap();
            assert_eq!(text, expected(failing), "{failing:?}");
            assert_eq!(names(dir.path()), ["file"], "{failing:?}");
        }
    }

    #[test]
    fn a_kill_between_any_two_steps_leaves_the_old_file_or_the_new_one() {
        // Only another process can be killed, so this test runs itself once per step with these
        // variables.
        if let Some(path) = std::env::var_os("MOONGATE_OAUTH_FILE") {
            let step = std::env::var("MOONGATE_OAUTH_STEP").unwrap();
            return die_before(STEPS[step.parse::<usize>().unwrap()], Path::new(&path));
        }
        let test = "durable_file::tests::\
                    a_kill_between_any_two_steps_leaves_the_old_file_or_the_new_one";
        for (number, step) in STEPS.into_iter().enumerate() {
            let (dir, path) = folder_with_file();
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", test])
                .env("MOONGATE_OAUTH_FILE", &path)
                .env("MOONGATE_OAUTH_STEP", number.to_string())
                .output()
                .unwrap();
            assert!(!output.status.success(), "{step:?}");
            let text = fs::read_to_string(&path).unwrap();
            assert_eq!(text, expected(step), "{step:?}");
            // The next write removes what the killed one left.
            write(&path, b"later").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "later");
            assert_eq!(names(dir.path()), ["file"], "{step:?}");
        }
    }

    /// Writes the file, and kills this process before a step.
    fn die_before(dying: WriteStep, path: &Path) {
        let mut hook = |step: WriteStep| {
            if step == dying {
                std::process::abort();
            }
            Ok(())
        };
        let _ = write_in_steps(path, b"new", &mut hook);
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_may_read_a_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_dir, path) = folder_with_file();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
