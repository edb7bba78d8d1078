//! Tests of writes: what others did meanwhile, what fails, and what a kill leaves.

use std::process::Command;

use super::*;

const STEPS: [WriteStep; 8] = [
    WriteStep::Lock,
    WriteStep::Compare,
    WriteStep::Create,
    WriteStep::Fill,
    WriteStep::CopyAttributes,
    WriteStep::SyncFile,
    WriteStep::Rename,
    WriteStep::SyncFolder,
];
const OLD: &str = "# old\n";
const NEW: &str = "# new\n";

fn folder_with_file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("moongate.toml");
    fs::write(&path, OLD).unwrap();
    (dir, path)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_write_replaces_the_text_and_returns_its_tag() {
    let (dir, path) = folder_with_file();
    let file = ConfigFile::read(&path).unwrap();
    assert_eq!(file.text(), OLD);
    assert_eq!(file.path(), path);
    let tag = file.write(NEW).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), NEW);
    assert_eq!(&tag, ConfigFile::read(&path).unwrap().tag());
    assert_ne!(&tag, file.tag());
    assert_eq!(tag.as_str().len(), 64);
    assert_eq!(names(dir.path()), ["moongate.toml"]);
}

#[test]
fn a_missing_file_is_created_with_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b/moongate.toml");
    let file = ConfigFile::read(&path).unwrap();
    assert_eq!(file.text(), "");
    file.write(NEW).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), NEW);
    // It is there now, so the old tag does not hold.
    assert!(matches!(file.write(OLD), Err(WriteError::Changed { .. })));
}

#[test]
fn a_file_that_somebody_changed_is_left_as_it_is() {
    let (_dir, path) = folder_with_file();
    let file = ConfigFile::read(&path).unwrap();
    fs::write(&path, "# theirs\n").unwrap();
    let error = file.write(NEW).unwrap_err();
    assert!(matches!(error, WriteError::Changed { .. }), "{error}");
    assert!(error.to_string().contains("moongate.toml"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "# theirs\n");
    fs::remove_file(&path).unwrap();
    assert!(matches!(file.write(NEW), Err(WriteError::Changed { .. })));
    assert!(!path.exists());
}

#[test]
fn a_change_at_the_last_moment_is_seen() {
    let (_dir, path) = folder_with_file();
    let file = ConfigFile::read(&path).unwrap();
    let result = file.write_in_steps(NEW, &mut |step| {
        if step == WriteStep::Compare {
            fs::write(&path, "# theirs\n")?;
        }
        Ok(())
    });
    assert!(matches!(result, Err(WriteError::Changed { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "# theirs\n");
}

#[test]
fn one_of_two_writers_wins_and_nobody_mixes() {
    let (_dir, path) = folder_with_file();
    let first = ConfigFile::read(&path).unwrap();
    let second = ConfigFile::read(&path).unwrap();
    let result = first.write_in_steps(NEW, &mut |step| {
        if step == WriteStep::Rename {
            assert!(matches!(
                second.write("# second\n"),
                Err(WriteError::Locked { .. })
            ));
        }
        Ok(())
    });
    result.unwrap();
    assert!(matches!(
        second.write("# second\n"),
        Err(WriteError::Changed { .. })
    ));
    assert_eq!(fs::read_to_string(&path).unwrap(), NEW);
}

#[test]
fn threads_that_retry_lose_no_write() {
    let (_dir, path) = folder_with_file();
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let path = path.clone();
            std::thread::spawn(move || {
                for round in 0..10 {
                    loop {
                        let file = ConfigFile::read(&path).unwrap();
                        match file.write(&format!("{}{n} {round}\n", file.text())) {
                            Ok(_) => break,
                            Err(WriteError::Changed { .. } | WriteError::Locked { .. }) => {
                                std::thread::yield_now()
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            })
        })
        .collect();
    writers
        .into_iter()
        .for_each(|writer| writer.join().unwrap());
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 41);
}

#[test]
fn a_failure_at_any_step_leaves_the_old_file_or_the_new_one() {
    for failing in STEPS {
        let (dir, path) = folder_with_file();
        let file = ConfigFile::read(&path).unwrap();
        let result = file.write_in_steps(NEW, &mut |step| match step == failing {
            true => Err(io::Error::from(io::ErrorKind::StorageFull)),
            false => Ok(()),
        });
        let text = fs::read_to_string(&path).unwrap();
        if failing == WriteStep::SyncFolder {
            assert!(result.is_ok() && text == NEW, "{failing:?}");
        } else {
            let error = result.unwrap_err();
            assert!(
                matches!(error, WriteError::NoSpace { .. }),
                "{failing:?}: {error}"
            );
            assert_eq!(text, OLD, "{failing:?}");
        }
        assert_eq!(names(dir.path()), ["moongate.toml"], "{failing:?}");
        ConfigFile::read(&path).unwrap().write("# later\n").unwrap();
    }
}

/// Writes the file, and ends this process before a step.
fn die_before(dying: WriteStep, path: &Path) {
    let _ = ConfigFile::read(path)
        .unwrap()
        .write_in_steps(NEW, &mut |step| {
            if step == dying {
                std::process::abort();
            }
            Ok(())
        });
}

#[test]
fn a_kill_between_any_two_steps_leaves_the_old_file_or_the_new_one() {
    // Only another process can be killed, so this test starts itself once a step with these
    // variables.
    if let Some(path) = std::env::var_os("MOONGATE_EDIT_FILE") {
        let number: usize = std::env::var("MOONGATE_EDIT_STEP")
            .unwrap()
            .parse()
            .unwrap();
        return die_before(STEPS[number], Path::new(&path));
    }
    for (number, step) in STEPS.iter().enumerate() {
        let (dir, path) = folder_with_file();
        let status = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "file::tests::a_kill_between_any_two_steps_leaves_the_old_file_or_the_new_one",
            ])
            .env("MOONGATE_EDIT_FILE", &path)
            .env("MOONGATE_EDIT_STEP", number.to_string())
            .output()
            .unwrap()
            .status;
        assert!(!status.success(), "{step:?}");
        let text = fs::read_to_string(&path).unwrap();
        let expected = if *step == WriteStep::SyncFolder {
            NEW
        } else {
            OLD
        };
        assert_eq!(text, expected, "{step:?}");
        // The next write clears away what the killed one left.
        ConfigFile::read(&path).unwrap().write("# later\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "# later\n");
        assert_eq!(names(dir.path()), ["moongate.toml"], "{step:?}");
    }
}

#[test]
fn what_is_no_text_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(
        ConfigFile::read(dir.path()),
        Err(WriteError::NotText { .. })
    ));
    let path = dir.path().join("x.toml");
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(
        ConfigFile::read(&path),
        Err(WriteError::NotText { .. })
    ));
    File::create(&path).unwrap().set_len(SIZE_MAX + 1).unwrap();
    assert!(matches!(
        ConfigFile::read(&path),
        Err(WriteError::NotText { .. })
    ));
}

#[test]
fn a_read_only_file_is_refused() {
    let (_dir, path) = folder_with_file();
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    let error = ConfigFile::read(&path).unwrap().write(NEW).unwrap_err();
    assert!(matches!(error, WriteError::ReadOnly { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), OLD);
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// User and group.
    fn owner(path: &Path) -> (u32, u32) {
        let found = fs::metadata(path).unwrap();
        (found.uid(), found.gid())
    }

    #[test]
    fn modes_and_owners_stay_and_new_files_are_private() {
        let (dir, path) = folder_with_file();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        // Only root can give files away, as in a container.
        let _ = std::os::unix::fs::chown(&path, Some(1234), Some(5678));
        let before = owner(&path);
        ConfigFile::read(&path).unwrap().write(NEW).unwrap();
        assert_eq!(mode(&path), 0o640);
        assert_eq!(owner(&path), before);
        let new = dir.path().join("new.toml");
        ConfigFile::read(&new).unwrap().write(NEW).unwrap();
        assert_eq!(mode(&new), 0o600);
    }

    #[test]
    fn a_symbolic_link_stays_and_its_target_is_replaced() {
        let (dir, path) = folder_with_file();
        let links = dir.path().join("links");
        fs::create_dir(&links).unwrap();
        symlink("../moongate.toml", links.join("one.toml")).unwrap();
        symlink("one.toml", links.join("two.toml")).unwrap();
        ConfigFile::read(&links.join("two.toml"))
            .unwrap()
            .write(NEW)
            .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), NEW);
        assert!(
            fs::symlink_metadata(links.join("two.toml"))
                .unwrap()
                .is_symlink()
        );
        assert_eq!(names(&links), ["one.toml", "two.toml"]);
    }

    fn is_link(path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
    }

    #[test]
    fn a_dangling_link_gets_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let [link, target] = ["link.toml", "files/target.toml"].map(|name| dir.path().join(name));
        fs::create_dir(dir.path().join("files")).unwrap();
        symlink("files/one.toml", &link).unwrap();
        symlink("target.toml", dir.path().join("files/one.toml")).unwrap();
        // Twice: a removal leaves a dangling link, which must not be the end of it.
        for _ in 0..2 {
            let file = ConfigFile::read(&link).unwrap();
            assert!(file.tag().is_absent());
            file.write(NEW).unwrap();
            assert_eq!(fs::read_to_string(&target).unwrap(), NEW);
            assert!(is_link(&link));
            ConfigFile::read(&link).unwrap().remove().unwrap();
            assert!(!target.exists() && is_link(&link));
        }
        // A file that somebody else created meanwhile.
        let file = ConfigFile::read(&link).unwrap();
        fs::write(&target, OLD).unwrap();
        assert!(matches!(file.write(NEW), Err(WriteError::Changed { .. })));
        assert_eq!(fs::read_to_string(&target).unwrap(), OLD);
    }

    #[test]
    fn a_dangling_link_into_no_folder_or_by_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        for (link, target, new) in [
            ("lost.toml", "none/x.toml", "none"),
            ("shared/up.toml", "../planted.toml", "planted.toml"),
            ("shared/here.toml", "planted.toml", "shared/planted.toml"),
        ] {
            let path = dir.path().join(link);
            symlink(target, &path).unwrap();
            let error = ConfigFile::read(&path).unwrap().write(NEW).unwrap_err();
            assert!(error.to_string().contains(link), "{error}");
            assert!(!dir.path().join(new).exists(), "{link}");
        }
    }

    #[test]
    fn the_links_of_a_config_map_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("..2026_11_22_14_00")).unwrap();
        fs::write(dir.path().join("..2026_11_22_14_00/moongate.toml"), OLD).unwrap();
        symlink("..2026_11_22_14_00", dir.path().join("..data")).unwrap();
        symlink("..data/moongate.toml", dir.path().join("moongate.toml")).unwrap();
        let path = dir.path().join("moongate.toml");
        let error = ConfigFile::read(&path).unwrap().write(NEW).unwrap_err();
        assert!(
            matches!(&error, WriteError::Mounted { path: named } if *named == path),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), OLD);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_refused_by_its_path() {
        let (dir, path) = folder_with_file();
        let file = ConfigFile::read(&path).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o500)).unwrap();
        let looked = ConfigFile::check_writable(&path);
        let result = file.write(NEW);
        assert_eq!(
            looked.is_ok(),
            result.is_ok(),
            "the look tells what the write meets"
        );
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        match result {
            // Root writes everywhere.
            Ok(_) => assert_eq!(fs::metadata(&path).unwrap().uid(), 0),
            Err(error) => {
                assert!(matches!(error, WriteError::ReadOnly { .. }), "{error}");
                assert_eq!(fs::read_to_string(&path).unwrap(), OLD);
            }
        }
        let denied = explain(&path, io::Error::from(io::ErrorKind::ReadOnlyFilesystem));
        assert!(
            matches!(denied, WriteError::ReadOnly { .. })
                && denied.to_string().contains("moongate.toml")
        );
    }

    /// Runs this test again in its own namespace, where the file is mounted alone. `None` where
    /// that is not allowed.
    #[cfg(target_os = "linux")]
    fn run_mounted(path: &Path, test: &str) -> Option<std::process::Output> {
        let script =
            "mount --bind \"$1\" \"$1\" || exit 77; exec \"$0\" --exact \"$2\" --nocapture";
        let program = std::env::current_exe().unwrap();
        let output = Command::new("unshare")
            .args(["-rm", "sh", "-c", script])
            .args([&program, path, Path::new(test)])
            .env("MOONGATE_EDIT_FILE", path)
            .output()
            .ok()?;
        let is_refused = output.status.code() == Some(77) || output.stderr.starts_with(b"unshare:");
        (!is_refused).then_some(output)
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_that_is_mounted_alone_is_written_over() {
        if let Some(path) = std::env::var_os("MOONGATE_EDIT_FILE") {
            let path = Path::new(&path);
            ConfigFile::check_writable(path).unwrap();
            return drop(ConfigFile::read(path).unwrap().write(NEW).unwrap());
        }
        let (dir, _) = folder_with_file();
        // With a blank, which the list of mounts escapes.
        let path = dir.path().join("my config.toml");
        fs::write(&path, format!("{OLD}# longer\n")).unwrap();
        let number = fs::metadata(&path).unwrap().ino();
        let test = "file::tests::unix::a_file_that_is_mounted_alone_is_written_over";
        let Some(output) = run_mounted(&path, test) else {
            return eprintln!("skipped: no mount name space");
        };
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), NEW);
        assert_eq!(fs::metadata(&path).unwrap().ino(), number);
    }
}
