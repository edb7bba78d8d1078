//! Files of others on Unix: the links on the way, judged by their folders and owners.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};

/// Maximum number of symbolic links on the way, as many as the kernel follows.
const SYMLINKS_MAX: usize = 40;

/// Opens a file without waiting for anybody.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let target = resolve(&std::path::absolute(path)?)?;
    // NONBLOCK: opening a pipe would wait for its other end. NOFOLLOW: the way was checked, and no new link is taken.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(&target, flags, Mode::empty())?))
}

/// Follows the links of a path. Fails at one that other users may change.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let mut steps = steps_of(path);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(step) = steps.pop() {
        if step == ".." {
            // `at` has no links, so its parent is the folder that `..` means.
            at.pop();
            continue;
        }
        let next = at.join(&step);
        let stat = rustix::fs::lstat(&next)?;
        if !FileType::from_raw_mode(stat.st_mode).is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > SYMLINKS_MAX {
            return Err(io::Error::other("its path has too many symbolic links"));
        }
        if is_changeable(&rustix::fs::lstat(&at)?, &stat, own) {
            let message = format!("{} is a symbolic link that other users may change", next.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        let target = std::fs::read_link(&next)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        steps.extend(steps_of(&target));
    }
    Ok(at)
}

/// True if others than this user, root and the folder's owner may have made or replaced a link. proc_sys_fs(5),
/// `protected_symlinks`, has the same rule for folders such as `/tmp`.
fn is_changeable(folder: &Stat, link: &Stat, own: u32) -> bool {
    let mode = Mode::from_raw_mode(folder.st_mode);
    let is_sticky = mode.contains(Mode::SVTX);
    let is_trusted = [own, 0, folder.st_uid].contains(&link.st_uid);
    mode.contains(Mode::WOTH) && !(is_sticky && is_trusted)
}

/// Splits a path into its names, the first one last.
fn steps_of(path: &Path) -> Vec<OsString> {
    let named = path.components().filter(|step| matches!(step, Component::Normal(_) | Component::ParentDir));
    let mut steps: Vec<OsString> = named.map(|step| step.as_os_str().to_owned()).collect();
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::super::read_text;
    use rustix::fs::RawMode;

    use super::*;

    #[test]
    fn pipes_and_devices_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        symlink(&pipe, dir.path().join("link")).unwrap();
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [pipe, dir.path().join("link"), socket, "/dev/zero".into(), "/dev/null".into()] {
            assert_eq!(read_text(&path, 10).unwrap_err().to_string(), "it is not a regular file", "{path:?}");
        }
    }

    #[test]
    fn links_are_followed_unless_others_may_change_them() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str, mode: u32| {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let (own, open, sticky) = (folder("own", 0o755), folder("open", 0o777), folder("sticky", 0o1777));
        std::fs::write(own.join("file"), "text").unwrap();
        for from in [&own, &open, &sticky] {
            symlink("../own/file", from.join("link")).unwrap();
            symlink(&own, from.join("folder")).unwrap();
        }
        for (from, is_fine) in [(&own, true), (&open, false), (&sticky, true)] {
            for way in ["link", "folder/file", "folder/../own/link"] {
                assert_eq!(read_text(&from.join(way), 10).is_ok(), is_fine, "{from:?} {way}");
            }
        }
        // A file in such a folder is read: it holds what it holds, and no other file's text.
        std::fs::write(open.join("file"), "text").unwrap();
        assert_eq!(read_text(&open.join("file"), 10).unwrap(), "text");
        symlink("round", own.join("round")).unwrap();
        assert!(read_text(&own.join("round"), 10).is_err());
    }

    #[test]
    fn owners_of_links_count_where_everybody_may_write() {
        let stat = |mode: RawMode, uid: u32| {
            let mut stat = rustix::fs::stat("/").unwrap();
            (stat.st_mode, stat.st_uid) = (FileType::Directory.as_raw_mode() | mode, uid);
            stat
        };
        let changeable =
            |folder: (RawMode, u32), link: u32| is_changeable(&stat(folder.0, folder.1), &stat(0o777, link), 1000);
        assert!(!changeable((0o1777, 0), 1000) && !changeable((0o1777, 0), 0) && changeable((0o1777, 0), 1001));
        // The owner of a folder may do everything in it, and who names such a folder trusts its owner.
        assert!(!changeable((0o755, 1001), 1001) && !changeable((0o1777, 1001), 1001));
        assert!(changeable((0o777, 1000), 1000));
    }
}
