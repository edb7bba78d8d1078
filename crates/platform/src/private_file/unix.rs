//! Private files on Unix, by owners and modes, step by step on the way.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};

use super::OtherWriters;

/// Maximum number of symbolic links on the way to the folder, as many as the kernel follows.
const SYMLINKS_MAX: usize = 40;
/// Modes of new folders and files: no access for anybody else.
const FOLDER_MODE: Mode = Mode::RWXU;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Opens or creates the file, with its folder if need be.
pub fn open(path: &Path) -> io::Result<File> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("it names no file"))?;
    let folder = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let folder = resolve_folder(&std::path::absolute(folder)?)?;
    // The folder is opened once and the file relative to it, so that nobody can swap the path in
    // between.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&folder, flags, Mode::empty())?;
    let own = ProcessUser::of_process();
    own.check_folder(&rustix::fs::fstat(&opened)?)
        .map_err(|why| refused(&folder, why))?;
    // NONBLOCK, because opening a FIFO would wait for its other end.
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file =
        rustix::fs::openat(&opened, name, flags, FILE_MODE).map_err(|error| match error {
            rustix::io::Errno::LOOP | rustix::io::Errno::MLINK => io::Error::other(
                "it is a symbolic link; name the folder that it leads to in gateway.state_dir",
            ),
            error => error.into(),
        })?;
    own.check_file(&rustix::fs::fstat(&file)?)
        .map_err(io::Error::other)?;
    // An existing file may have a wider mode: `openat` sets the mode of new files only.
    rustix::fs::fchmod(&file, FILE_MODE)?;
    Ok(File::from(file))
}

/// Resolves a path to a folder without symbolic links, and creates missing folders. `path` is
/// absolute.
fn resolve_folder(path: &Path) -> io::Result<PathBuf> {
    let own = ProcessUser::of_process();
    let mut steps = steps_of(path);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(step) = steps.pop() {
        if step == ".." {
            // `at` has no symbolic links, so its parent is the folder that `..` means.
            at.pop();
            continue;
        }
        let next = at.join(&step);
        let stat = match rustix::fs::lstat(&next) {
            Ok(stat) => stat,
            Err(rustix::io::Errno::NOENT) => {
                // Another process may have made it in this moment.
                match rustix::fs::mkdir(&next, FOLDER_MODE) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => rustix::fs::lstat(&next)?,
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        };
        own.check_step(&stat).map_err(|why| refused(&next, why))?;
        if !FileType::from_raw_mode(stat.st_mode).is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > SYMLINKS_MAX {
            return Err(refused(&next, "has too many symbolic links"));
        }
        // A relative link starts at the folder that holds it.
        let target = std::fs::read_link(&next)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        steps.extend(steps_of(&target));
    }
    Ok(at)
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

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::other(format!("{} {why}", path.display()))
}

/// Finds out who else may write a file, by its mode.
pub fn other_writers(file: &Path) -> Option<OtherWriters> {
    use std::os::unix::fs::MetadataExt as _;
    let file = std::fs::metadata(file).ok()?;
    match file.mode() {
        mode if mode & 0o002 != 0 => Some(OtherWriters::Everybody),
        // Many systems give each user a group of the same number, which nobody else is in.
        mode if mode & 0o020 != 0 && file.gid() != file.uid() && file.gid() != 0 => {
            Some(OtherWriters::Group)
        }
        _ => None,
    }
}

/// True if others than the owner may read a file. A group of the user's own number is the user.
pub fn is_readable_by_others(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(file).is_ok_and(|file| {
        let own_group = file.gid() == file.uid() || file.gid() == 0;
        file.mode() & 0o004 != 0 || (file.mode() & 0o040 != 0 && !own_group)
    })
}

/// Takes the access to a file away from all but its owner.
pub fn make_private(file: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600))
}

/// True if everybody may replace the files in a folder. In one like `/tmp` nobody may replace the
/// files of others.
pub fn is_open_folder(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(folder).is_ok_and(|folder| folder.mode() & 0o1002 == 0o002)
}

/// User id of this process.
#[derive(Clone, Copy)]
struct ProcessUser(u32);

impl ProcessUser {
    fn of_process() -> Self {
        ProcessUser(rustix::process::geteuid().as_raw())
    }

    fn is_owner_or_root(self, user: u32) -> bool {
        user == self.0 || user == 0
    }

    /// Checks one step on the way. In a sticky folder such as `/tmp` nobody can rename the files of
    /// others. Its entries are judged by their owners.
    fn check_step(self, stat: &Stat) -> Result<(), &'static str> {
        let mode = Mode::from_raw_mode(stat.st_mode);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink if self.is_owner_or_root(stat.st_uid) => Ok(()),
            FileType::Symlink => Err("is a symbolic link of another user"),
            FileType::Directory if mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX) => Err(
                "can be written by every user: run chmod o-w on it, or name another \
                 gateway.state_dir",
            ),
            FileType::Directory => Ok(()),
            _ => Err("is not a folder"),
        }
    }

    /// Checks the folder of the file. The group may write if it is root's, or the user's own. Many
    /// systems give each user a group of the same number, and folders that it may write.
    fn check_folder(self, stat: &Stat) -> Result<(), &'static str> {
        let mode = Mode::from_raw_mode(stat.st_mode);
        if !self.is_owner_or_root(stat.st_uid) {
            return Err("belongs to another user: set gateway.state_dir to a folder that you own");
        }
        let own_group = stat.st_gid == 0 || stat.st_gid == self.0;
        if mode.contains(Mode::WOTH) || (mode.contains(Mode::WGRP) && !own_group) {
            return Err(
                "can be written by others: run chmod go-w on it, or name another gateway.state_dir",
            );
        }
        Ok(())
    }

    fn check_file(self, stat: &Stat) -> Result<(), &'static str> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if self.is_owner_or_root(stat.st_uid) => Ok(()),
            FileType::RegularFile => Err("it belongs to another user"),
            _ => Err("it is not a regular file"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use rustix::fs::RawMode;

    use super::*;

    fn folder(dir: &Path, name: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn refusal(path: &Path) -> String {
        open(path).unwrap_err().to_string()
    }

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn symbolic_links_of_the_file_are_not_followed_and_those_of_own_folders_are() {
        let dir = tempfile::tempdir().unwrap();
        let real = folder(dir.path(), "real", 0o700);
        let target = real.join("target");
        std::fs::write(&target, "mine").unwrap();
        symlink(&target, real.join("linked.redb")).unwrap();
        assert!(refusal(&real.join("linked.redb")).contains("symbolic link"));
        symlink(real.join("nothing"), real.join("dangling.redb")).unwrap();
        assert!(refusal(&real.join("dangling.redb")).contains("symbolic link"));
        assert!(!real.join("nothing").exists());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "mine");
        // Absolute and relative links, with `..`, and missing folders that are created.
        symlink(&real, dir.path().join("absolute")).unwrap();
        symlink("absolute/../real", dir.path().join("relative")).unwrap();
        for way in ["absolute", "relative"] {
            open(&dir.path().join(way).join("deep/er/state.redb")).unwrap();
        }
        assert_eq!(mode_of(&real.join("deep")), 0o700);
        assert_eq!(mode_of(&real.join("deep/er")), 0o700);
        assert_eq!(mode_of(&real.join("deep/er/state.redb")), 0o600);
        symlink("round", dir.path().join("round")).unwrap();
        assert!(refusal(&dir.path().join("round/state.redb")).contains("too many"));
        assert!(
            std::process::Command::new("mkfifo")
                .arg(real.join("pipe"))
                .status()
                .unwrap()
                .success()
        );
        assert!(refusal(&real.join("pipe")).contains("regular file"));
    }

    #[test]
    fn folders_that_others_may_write_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, why) in [
            (0o777, "every user"),
            (0o1777, "by others"),
            (0o757, "every user"),
        ] {
            let open_to_all = folder(dir.path(), &format!("{mode:o}"), mode);
            assert!(
                refusal(&open_to_all.join("state.redb")).contains(why),
                "{mode:o}"
            );
            assert!(
                std::fs::read_dir(&open_to_all).unwrap().next().is_none(),
                "nothing is left there"
            );
        }
        // Below a folder such as /tmp, and not below one where others may rename entries.
        open(&dir.path().join("1777/mine/state.redb")).unwrap();
        assert!(refusal(&dir.path().join("777/mine/state.redb")).contains("every user"));
        for mode in [0o700, 0o750, 0o755] {
            open(&folder(dir.path(), &format!("{mode:o}"), mode).join("state.redb")).unwrap();
        }
    }

    #[test]
    fn owners_and_groups_are_judged() {
        for (mode, owner, is_fine) in [
            (0o755, (1000, 100), true),
            (0o755, (0, 0), true),
            (0o775, (1000, 1000), true),
            (0o775, (1000, 0), true),
            (0o775, (1000, 100), false),
            (0o755, (1001, 1000), false),
            (0o757, (1000, 1000), false),
        ] {
            let folder = stat_of(FileType::Directory, mode, owner);
            assert_eq!(
                OWN.check_folder(&folder).is_ok(),
                is_fine,
                "{mode:o} {owner:?}"
            );
        }
        for (mode, owner, is_fine) in [
            (0o1777, (0, 0), true),
            (0o775, (10001, 0), true),
            (0o777, (1000, 1000), false),
        ] {
            let step = stat_of(FileType::Directory, mode, owner);
            assert_eq!(OWN.check_step(&step).is_ok(), is_fine, "{mode:o} {owner:?}");
        }
        for (user, is_fine) in [(1000, true), (0, true), (1001, false)] {
            let link = stat_of(FileType::Symlink, 0o777, (user, 0));
            assert_eq!(OWN.check_step(&link).is_ok(), is_fine, "{user}");
            let file = stat_of(FileType::RegularFile, 0o600, (user, 0));
            assert_eq!(OWN.check_file(&file).is_ok(), is_fine, "{user}");
        }
    }

    const OWN: ProcessUser = ProcessUser(1000);

    fn stat_of(kind: FileType, mode: RawMode, (user, group): (u32, u32)) -> Stat {
        let mut stat = rustix::fs::stat("/").unwrap();
        stat.st_mode = kind.as_raw_mode() | mode;
        stat.st_uid = user;
        stat.st_gid = group;
        stat
    }
}
