//! Files of others on Unix: the links on the way, judged by their folders and owners.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, StatVfsMountFlags};

/// Maximum number of symbolic links on the way, as many as the kernel follows.
const SYMLINKS_MAX: usize = 40;

/// Link that others may have made. Its file is not read.
#[derive(Debug)]
struct ChangeableLink {
    link: PathBuf,
}

impl fmt::Display for ChangeableLink {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} is a symbolic link that other users may change",
            self.link.display()
        )
    }
}

impl std::error::Error for ChangeableLink {}

/// Returns what mends an error, if only this module knows.
pub(super) fn fix_of(error: &io::Error) -> Option<String> {
    let ChangeableLink { link } = error.get_ref()?.downcast_ref()?;
    let folder = link.parent().unwrap_or(link).display();
    Some(format!("`chmod o-w {folder}`, or name the file itself"))
}

/// Opens a file without waiting for anybody.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let target = resolve(&std::path::absolute(path)?)?;
    Ok(File::from(open_resolved(&target)?))
}

/// Follows the links of a path, whose last one may lead to a file that is not there yet.
pub(super) fn link_target(path: &Path) -> io::Result<PathBuf> {
    match follow(&std::path::absolute(path)?)? {
        LinkEnd::Existing(target) | LinkEnd::Missing(target) => Ok(target),
    }
}

/// Opens a file by a path that had no links when it was checked.
fn open_resolved(path: &Path) -> rustix::io::Result<OwnedFd> {
    // NONBLOCK: opening a pipe would wait for its other end. NOFOLLOW: no new link is taken.
    let flags =
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, ResolveFlags, openat2};
        use rustix::io::Errno;
        match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            // Kernels before 5.6 lack the call, and some containers refuse it.
            Err(Errno::NOSYS | Errno::PERM) => {}
            opened => return opened,
        }
    }
    // NOFOLLOW is about the last name. A folder that others make a link since the check is followed
    // here.
    rustix::fs::open(path, flags, Mode::empty())
}

/// Path without links that a path with links leads to.
enum LinkEnd {
    /// A file or a folder is there.
    Existing(PathBuf),
    /// Nothing is there, but its folder is.
    Missing(PathBuf),
}

/// Follows the links of a path to something that exists.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match follow(path)? {
        LinkEnd::Existing(target) => Ok(target),
        LinkEnd::Missing(_) => Err(rustix::io::Errno::NOENT.into()),
    }
}

/// Follows the links of a path. Fails at one that other users may change, if it leads where they
/// cannot put a file.
fn follow(path: &Path) -> io::Result<LinkEnd> {
    let own = rustix::process::geteuid().as_raw();
    let mut steps = steps_of(path);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    // Last link that others may have made.
    let mut doubtful: Option<PathBuf> = None;
    while let Some(step) = steps.pop() {
        if step == ".." {
            // `at` has no links, so its parent is the folder that `..` means.
            at.pop();
            continue;
        }
        let next = at.join(&step);
        let stat = match rustix::fs::lstat(&next) {
            Err(rustix::io::Errno::NOENT) if steps.is_empty() => {
                // No file shows whether others could have put it there, so the link decides.
                return match doubtful {
                    Some(link) => Err(refused(link)),
                    None => Ok(LinkEnd::Missing(next)),
                };
            }
            found => found?,
        };
        if !FileType::from_raw_mode(stat.st_mode).is_symlink() {
            // What they cannot read themselves, they could not have put there.
            if let Some(link) = doubtful.take_if(|_| !is_open_to_others(&stat)) {
                return Err(refused(link));
            }
            at = next;
            continue;
        }
        links += 1;
        if links > SYMLINKS_MAX {
            return Err(rustix::io::Errno::LOOP.into());
        }
        let target = std::fs::read_link(&next)?;
        if is_changeable(&rustix::fs::lstat(&at)?, &stat, own) && !is_read_only(&at)? {
            if !stays_below(&target) {
                return Err(refused(next));
            }
            doubtful = Some(next);
        }
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        steps.extend(steps_of(&target));
    }
    Ok(LinkEnd::Existing(at))
}

fn refused(link: PathBuf) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, ChangeableLink { link })
}

/// True if others than this user, root and the folder's owner may have made or replaced a link.
/// proc_sys_fs(5), `protected_symlinks`, has the same rule for folders such as `/tmp`.
fn is_changeable(folder: &Stat, link: &Stat, own: u32) -> bool {
    let mode = Mode::from_raw_mode(folder.st_mode);
    let is_sticky = mode.contains(Mode::SVTX);
    let is_trusted = [own, 0, folder.st_uid].contains(&link.st_uid);
    mode.contains(Mode::WOTH) && !(is_sticky && is_trusted)
}

/// True if nobody may change a folder, whatever its mode. The kubelet mounts ConfigMaps so, with
/// mode 0777.
fn is_read_only(folder: &Path) -> io::Result<bool> {
    Ok(rustix::fs::statvfs(folder)?
        .f_flag
        .contains(StatVfsMountFlags::RDONLY))
}

/// True for a target within the folder of its link. Who may make a link there may put a file there
/// as well.
fn stays_below(target: &Path) -> bool {
    target
        .components()
        .all(|step| matches!(step, Component::Normal(_) | Component::CurDir))
}

/// True if others may read a file, or look into a folder.
fn is_open_to_others(stat: &Stat) -> bool {
    let needed = if FileType::from_raw_mode(stat.st_mode).is_dir() {
        Mode::XOTH
    } else {
        Mode::ROTH
    };
    Mode::from_raw_mode(stat.st_mode).contains(needed)
}

/// Splits a path into its names, the first one last.
fn steps_of(path: &Path) -> Vec<OsString> {
    let named = path
        .components()
        .filter(|step| matches!(step, Component::Normal(_) | Component::ParentDir));
    let mut steps: Vec<OsString> = named.map(|step| step.as_os_str().to_owned()).collect();
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::super::{fix_of, read_text};
    use rustix::fs::RawMode;

    use super::*;

    #[test]
    fn pipes_and_devices_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        symlink(&pipe, dir.path().join("link")).unwrap();
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [
            pipe,
            dir.path().join("link"),
            socket,
            "/dev/zero".into(),
            "/dev/null".into(),
        ] {
            assert_eq!(
                read_text(&path, 10).unwrap_err().to_string(),
                "it is not a regular file",
                "{path:?}"
            );
        }
    }

    #[test]
    fn links_are_followed_unless_others_may_change_them() {
        let dir = tempfile::tempdir().unwrap();
        let own = create_folder(dir.path(), "own", 0o755);
        let open = create_folder(dir.path(), "open", 0o777);
        let sticky = create_folder(dir.path(), "sticky", 0o1777);
        std::fs::write(own.join("file"), "text").unwrap();
        for from in [&own, &open, &sticky] {
            symlink("../own/file", from.join("link")).unwrap();
            symlink(&own, from.join("folder")).unwrap();
        }
        for (from, is_fine) in [(&own, true), (&open, false), (&sticky, true)] {
            for way in ["link", "folder/file", "folder/../own/link"] {
                assert_eq!(
                    read_text(&from.join(way), 10).is_ok(),
                    is_fine,
                    "{from:?} {way}"
                );
            }
        }
        let refused = read_text(&open.join("link"), 10).unwrap_err();
        assert!(
            fix_of(&refused)
                .unwrap()
                .contains(&format!("chmod o-w {}", open.display())),
            "{refused}"
        );
        // A file in such a folder is read: it holds what it holds, and no other file's text.
        std::fs::write(open.join("file"), "text").unwrap();
        assert_eq!(read_text(&open.join("file"), 10).unwrap(), "text");
        symlink("round", own.join("round")).unwrap();
        assert!(read_text(&own.join("round"), 10).is_err());
    }

    fn create_folder(dir: &Path, name: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        std::fs::create_dir(&path).unwrap();
        set_mode(&path, mode);
        path
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_link_that_stays_in_its_folder_is_followed_wherever_it_is() {
        // As the kubelet lays out the files of a ConfigMap, in a folder of mode 0777.
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("..2026_11_25");
        std::fs::create_dir(&data).unwrap();
        let file = data.join("moongate.toml");
        std::fs::write(&file, "text").unwrap();
        symlink("..2026_11_25", dir.path().join("..data")).unwrap();
        symlink("..data/moongate.toml", dir.path().join("moongate.toml")).unwrap();
        symlink("./..data/../..data/moongate.toml", dir.path().join("up")).unwrap();
        symlink("/etc/hostname", data.join("elsewhere")).unwrap();
        symlink("..data/elsewhere", dir.path().join("elsewhere")).unwrap();
        set_mode(dir.path(), 0o777);
        set_mode(&data, 0o755);
        assert_eq!(
            read_text(&dir.path().join("moongate.toml"), 10).unwrap(),
            "text"
        );
        assert_eq!(
            read_text(&dir.path().join("..data/moongate.toml"), 10).unwrap(),
            "text"
        );
        assert!(read_text(&dir.path().join("up"), 10).is_err());
        // Others could not read this file, so a link of theirs does not lead there.
        set_mode(&file, 0o600);
        assert!(read_text(&dir.path().join("moongate.toml"), 10).is_err());
        set_mode(&file, 0o644);
        set_mode(&data, 0o700);
        assert!(read_text(&dir.path().join("moongate.toml"), 10).is_err());
        assert_eq!(read_text(&data.join("moongate.toml"), 10).unwrap(), "text");
        set_mode(&data, 0o777);
        assert!(
            read_text(&dir.path().join("elsewhere"), 1000).is_err(),
            "the second link leaves the folder"
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_that_becomes_a_link_after_the_check_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        std::fs::create_dir(folder.join("real")).unwrap();
        std::fs::write(folder.join("real/file"), "text").unwrap();
        symlink("real", folder.join("link")).unwrap();
        assert!(open_resolved(&folder.join("real/file")).is_ok());
        use rustix::fs::{CWD, ResolveFlags, openat2};
        let has_call = openat2(
            CWD,
            &folder,
            OFlags::RDONLY,
            Mode::empty(),
            ResolveFlags::NO_SYMLINKS,
        )
        .is_ok();
        assert_eq!(open_resolved(&folder.join("link/file")).is_err(), has_call);
    }

    #[test]
    fn owners_of_links_count_where_everybody_may_write() {
        assert!(!is_link_changeable((0o1777, 0), 1000));
        assert!(!is_link_changeable((0o1777, 0), 0));
        assert!(is_link_changeable((0o1777, 0), 1001));
        // The owner of a folder may do everything in it, and who names such a folder trusts its
        // owner.
        assert!(!is_link_changeable((0o755, 1001), 1001));
        assert!(!is_link_changeable((0o1777, 1001), 1001));
        assert!(is_link_changeable((0o777, 1000), 1000));
    }

    /// Asks for user 1000 about a link in a folder of this mode and owner.
    fn is_link_changeable((mode, owner): (RawMode, u32), link_owner: u32) -> bool {
        is_changeable(
            &stat_of_folder(mode, owner),
            &stat_of_folder(0o777, link_owner),
            1000,
        )
    }

    fn stat_of_folder(mode: RawMode, owner: u32) -> Stat {
        let mut stat = rustix::fs::stat("/").unwrap();
        stat.st_mode = FileType::Directory.as_raw_mode() | mode;
        stat.st_uid = owner;
        stat
    }
}
