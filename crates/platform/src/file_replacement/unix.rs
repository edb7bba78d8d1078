//! Replacement of a file on Unix.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Opens what writers of a folder's files lock: the folder itself, which no writer replaces.
pub fn open_lock(folder: &Path) -> io::Result<File> {
    File::open(folder)
}

/// Creates missing folders, closed to other users.
pub fn create_folders(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Creates a file that only its owner may read. An existing one is an error.
pub fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Opens an existing file to write it. Does not wait for the other end of a pipe.
pub fn open_to_write(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Gives a new file the mode of the old one, and its owner where this process may.
pub fn copy_attributes(old: &File, new: &File) -> io::Result<()> {
    let attributes = old.metadata()?;
    let own = new.metadata()?;
    if (attributes.uid(), attributes.gid()) != (own.uid(), own.gid()) {
        // Only root may give files away. The group may be possible without the owner.
        let _ = fchown(new, None, Some(attributes.gid()));
        let _ = fchown(new, Some(attributes.uid()), None);
    }
    new.set_permissions(attributes.permissions())
}

/// Checks that this process may give files of a folder other names.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    use rustix::fs::Access;
    Ok(rustix::fs::access(
        folder,
        Access::WRITE_OK | Access::EXEC_OK,
    )?)
}

/// True if the file itself is mounted, as container engines do it for a single file. No other file
/// can take its name.
pub fn is_mounted_alone(file: &Path) -> bool {
    // Linux only: elsewhere the file is not there, and folders alone are mounted.
    let Ok(mounts) = std::fs::read("/proc/self/mountinfo") else {
        return false;
    };
    // proc_pid_mountinfo(5): the fifth field is the mount point.
    let point: String = file
        .to_string_lossy()
        .chars()
        .map(escape_for_mountinfo)
        .collect();
    String::from_utf8_lossy(&mounts)
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(&point))
}

/// Writes blanks and backslashes as octal numbers, as proc_pid_mountinfo(5) does.
fn escape_for_mountinfo(c: char) -> String {
    if " \t\n\\".contains(c) {
        format!("\\{:03o}", u32::from(c))
    } else {
        c.to_string()
    }
}

/// Makes a rename in a folder durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_new_file_is_private_until_it_gets_the_attributes_of_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        create_folders(&folder).unwrap();
        assert_eq!(
            std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777,
            0o700
        );
        let old = File::create(folder.join("old")).unwrap();
        old.set_permissions(std::fs::Permissions::from_mode(0o640))
            .unwrap();
        let new = create_private(&folder.join("new")).unwrap();
        assert_eq!(new.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(create_private(&folder.join("new")).is_err());
        copy_attributes(&old, &new).unwrap();
        assert_eq!(new.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        sync_folder(&folder).unwrap();
    }

    #[test]
    fn one_holder_at_a_time_has_the_lock_of_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let first = open_lock(dir.path()).unwrap();
        first.try_lock().unwrap();
        assert!(open_lock(dir.path()).unwrap().try_lock().is_err());
        drop(first);
        open_lock(dir.path()).unwrap().try_lock().unwrap();
    }
}
