//! Root secret of a state folder: the file `secret`, from which the keys of login files and of
//! people's logins are derived.
//!
//! Owns how it is created, read and refused. Does not seal (`row_seal.rs`). Invariant: it is
//! created once, is never replaced while something is sealed with it, and is not used if other
//! users may have read it.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::hkdf::{HKDF_SHA256, Prk, Salt};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use moongate_platform::private_file;

use crate::durable_file;
use crate::file_lock::{FileLock, LockFailure};
use crate::row_seal::RowSeal;

/// Name of the secret's file in the state folder.
const SECRET_FILE: &str = "secret";
/// Name of the file that is locked while the secret is created.
const LOCK_FILE: &str = "secret.lock";
/// Minimum length of a secret. A new one has 43 characters, which encode 256 random bits.
const SECRET_MIN: usize = 32;
/// Maximum length of a secret.
const SECRET_MAX: usize = 4 << 10;
/// Longest wait for another process that is creating the secret.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Folder of sealed files in the state folder.
pub(crate) const LOGINS_FOLDER: &str = "logins";
/// Extension of sealed files that are lost without the secret.
pub(crate) const GRANT_ENDING: &str = "grant";

/// Secret of a state folder, from which each purpose gets its own key.
pub struct RootSecret {
    prk: Prk,
}

impl fmt::Debug for RootSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("RootSecret(hidden)")
    }
}

impl RootSecret {
    /// Opens the secret of a state folder, or creates it if nothing has been sealed yet.
    pub fn open(folder: &Path) -> Result<RootSecret, SecretError> {
        RootSecret::open_or_make(folder).map(|(secret, _)| secret)
    }

    /// Opens the secret as [`RootSecret::open`] does. The flag is true if this call made it.
    pub(crate) fn open_or_make(folder: &Path) -> Result<(RootSecret, bool), SecretError> {
        if let Some(secret) = RootSecret::read(folder)? {
            return Ok((secret, false));
        }
        let lock_path = folder.join(LOCK_FILE);
        let _lock = FileLock::acquire(&lock_path, LOCK_PATIENCE).map_err(|failure| {
            let path = lock_path.clone();
            match failure {
                LockFailure::Busy => SecretError::Busy { path },
                LockFailure::Io(cause) => SecretError::Io { path, cause },
            }
        })?;
        // Another process may have created it while this one waited.
        match RootSecret::find(folder)? {
            Some(secret) => Ok((secret, false)),
            None => RootSecret::make(folder).map(|secret| (secret, true)),
        }
    }

    /// Reads the secret in a setting, whose name is for the error.
    pub(crate) fn of_setting(key: &'static str, text: &str) -> Result<RootSecret, SecretError> {
        // As a file is read, so that the file's text can move into the setting.
        let secret = text.as_bytes().trim_ascii_end();
        match secret.len() {
            0..SECRET_MIN => Err(SecretError::SettingTooShort { key }),
            _ if text.len() > SECRET_MAX => Err(SecretError::SettingTooLong { key }),
            _ => Ok(RootSecret::of_bytes(secret)),
        }
    }

    /// Finds the secret of a state folder. `None` only if nothing was sealed with it.
    pub(crate) fn find(folder: &Path) -> Result<Option<RootSecret>, SecretError> {
        // In this order, because the secret is created before the first sealed file.
        let needs_secret = has_sealed_files(folder)?;
        match RootSecret::read(folder)? {
            None if needs_secret => Err(SecretError::missing(folder)),
            found => Ok(found),
        }
    }

    /// Reads the secret of a state folder. `None` if it does not exist yet.
    pub(crate) fn read(folder: &Path) -> Result<Option<RootSecret>, SecretError> {
        let path = folder.join(SECRET_FILE);
        let explain = |cause| SecretError::Io {
            path: path.clone(),
            cause,
        };
        match fs::symlink_metadata(&path) {
            Ok(_) => {}
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(explain(cause)),
        }
        // Before it is opened, since opening takes away other users' access.
        if private_file::is_readable_by_others(&path)
            || private_file::other_writers(&path).is_some()
        {
            return Err(SecretError::OpenToOthers { path });
        }
        let mut bytes = Vec::new();
        private_file::open(&path)
            .and_then(|file| file.take(SECRET_MAX as u64 + 1).read_to_end(&mut bytes))
            .map_err(explain)?;
        // Editors add a line end, which isn't part of the secret.
        let secret = bytes.trim_ascii_end();
        match secret.len() {
            // Somebody just removed it, and opening it created an empty file.
            0 => Ok(None),
            1..SECRET_MIN => Err(SecretError::TooShort { path }),
            _ if bytes.len() > SECRET_MAX => Err(SecretError::TooLong { path }),
            _ => Ok(Some(RootSecret::of_bytes(secret))),
        }
    }

    /// Creates the secret. The caller holds the lock.
    fn make(folder: &Path) -> Result<RootSecret, SecretError> {
        let random: [u8; 32] = moongate_random::random_bytes();
        // Text, so that it can be copied into a secret store as it is.
        let text = URL_SAFE_NO_PAD.encode(random);
        let path = folder.join(SECRET_FILE);
        match durable_file::write(&path, format!("{text}\n").as_bytes()) {
            Ok(()) => Ok(RootSecret::of_bytes(text.as_bytes())),
            Err(cause) => Err(SecretError::Io { path, cause }),
        }
    }

    /// Takes secret bytes as the secret.
    pub(crate) fn of_bytes(secret: &[u8]) -> RootSecret {
        let salt = Salt::new(HKDF_SHA256, b"moongate root secret");
        RootSecret {
            prk: salt.extract(secret),
        }
    }

    /// Derives the seal of a purpose. Each purpose has its own key.
    pub fn row_seal(&self, purpose: &'static str) -> RowSeal {
        RowSeal::of_key(&self.purpose_key(purpose))
    }

    /// Derives the key of a purpose, which reveals nothing about other keys.
    pub fn purpose_key(&self, purpose: &'static str) -> [u8; 32] {
        let mut key = [0; 32];
        let info = [purpose.as_bytes()];
        self.prk
            .expand(&info, HKDF_SHA256)
            .and_then(|derived| derived.fill(&mut key))
            .expect("HKDF gives as many bytes as its hash has");
        key
    }
}

/// True if the folder has files that only its secret can open. Unfinished logins don't count: they
/// last ten minutes, and nobody misses them.
fn has_sealed_files(folder: &Path) -> Result<bool, SecretError> {
    let path = folder.join(LOGINS_FOLDER);
    let entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(cause) => return Err(SecretError::Io { path, cause }),
    };
    Ok(entries
        .filter_map(Result::ok)
        .any(|entry| Path::new(&entry.file_name()).extension() == Some(GRANT_ENDING.as_ref())))
}

/// Reason why the root secret is not available.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Other users may have read or written the file.
    #[error(
        "{} can be read or written by other users: run `chmod 600` on it; if somebody may have \
         read it, delete it together with the folder `logins` next to it, and log in again",
        path.display()
    )]
    OpenToOthers {
        /// File.
        path: PathBuf,
    },
    /// The file has fewer than 32 bytes.
    #[error(
        "{} has fewer than 32 bytes: restore it, or delete it together with the folder `logins` \
         next to it, and log in again",
        path.display()
    )]
    TooShort {
        /// File.
        path: PathBuf,
    },
    /// The file has more than 4 KiB.
    #[error("{} is larger than 4 KiB, which no secret needs: restore it", path.display())]
    TooLong {
        /// File.
        path: PathBuf,
    },
    /// A setting has fewer than 32 bytes.
    #[error(
        "{key} has fewer than 32 bytes: use a random one, such as the output of \
         `openssl rand -base64 32`"
    )]
    SettingTooShort {
        /// Name of the setting.
        key: &'static str,
    },
    /// A setting has more than 4 KiB.
    #[error("{key} has more than 4 KiB, which no secret needs")]
    SettingTooLong {
        /// Name of the setting.
        key: &'static str,
    },
    /// Logins were sealed with a secret that is gone.
    #[error(
        "{} is missing, and {} has logins that only it can open: restore it, or delete that \
         folder and log in again",
        path.display(),
        logins.display()
    )]
    Missing {
        /// File.
        path: PathBuf,
        /// Folder with the sealed files.
        logins: PathBuf,
    },
    /// Another process has been creating the secret for too long.
    #[error(
        "another process holds {} and does not release it: stop that process, or try again",
        path.display()
    )]
    Busy {
        /// Lock file.
        path: PathBuf,
    },
    /// Operating system error.
    #[error("{} cannot be used: {cause}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Operating system error.
        cause: io::Error,
    },
}

impl SecretError {
    /// Builds the error for a state folder whose secret is gone.
    pub(crate) fn missing(folder: &Path) -> SecretError {
        SecretError::Missing {
            path: folder.join(SECRET_FILE),
            logins: folder.join(LOGINS_FOLDER),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    const PURPOSE: &str = "test";

    /// True if the second secret opens what the first one sealed.
    fn are_same(first: &RootSecret, second: &RootSecret) -> bool {
        let sealed = first.row_seal(PURPOSE).seal("a", b"plain");
        second.row_seal(PURPOSE).open("a", &sealed).is_some()
    }

    #[test]
    fn a_secret_is_made_once_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        assert!(RootSecret::find(&folder).unwrap().is_none());
        assert!(!folder.exists(), "reading creates nothing");
        let first = RootSecret::open(&folder).unwrap();
        let second = RootSecret::open(&folder).unwrap();
        assert!(are_same(&first, &second));
        let elsewhere = RootSecret::open(&dir.path().join("other")).unwrap();
        assert!(!are_same(&first, &elsewhere));
    }

    #[test]
    fn each_purpose_has_its_own_key() {
        let dir = tempfile::tempdir().unwrap();
        let secret = RootSecret::open(dir.path()).unwrap();
        let sealed = secret.row_seal("grants").seal("a", b"plain");
        assert!(secret.row_seal("grants").open("a", &sealed).is_some());
        assert!(secret.row_seal("marks").open("a", &sealed).is_none());
    }

    #[test]
    fn threads_that_open_at_once_get_the_same_secret() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let barrier = Barrier::new(8);
        let secrets: Vec<RootSecret> = std::thread::scope(|scope| {
            let open = || {
                barrier.wait();
                RootSecret::open(&folder).unwrap()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(secrets.iter().all(|secret| are_same(&secrets[0], secret)));
    }

    #[test]
    fn a_short_secret_is_refused_and_an_edited_one_keeps_its_value() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SECRET_FILE);
        write_private(&path, &"x".repeat(31));
        let refused = RootSecret::open(dir.path()).unwrap_err();
        assert!(matches!(refused, SecretError::TooShort { .. }), "{refused}");
        assert!(refused.to_string().contains(&path.display().to_string()));
        write_private(&path, &"x".repeat(32));
        let plain = RootSecret::open(dir.path()).unwrap();
        write_private(&path, &format!("{}\r\n", "x".repeat(32)));
        let with_line_end = RootSecret::open(dir.path()).unwrap();
        assert!(are_same(&plain, &with_line_end));
        write_private(&path, &"x".repeat(SECRET_MAX + 1));
        let refused = RootSecret::open(dir.path()).unwrap_err();
        assert!(matches!(refused, SecretError::TooLong { .. }), "{refused}");
    }

    fn write_private(path: &Path, text: &str) {
        durable_file::write(path, text.as_bytes()).unwrap();
    }

    #[test]
    fn an_empty_file_is_not_a_secret_yet() {
        let dir = tempfile::tempdir().unwrap();
        write_private(&dir.path().join(SECRET_FILE), "");
        let first = RootSecret::open(dir.path()).unwrap();
        assert!(are_same(&first, &RootSecret::open(dir.path()).unwrap()));
    }

    #[test]
    fn sealed_files_without_a_secret_are_an_error_and_no_new_secret() {
        let dir = tempfile::tempdir().unwrap();
        let logins = dir.path().join(LOGINS_FOLDER);
        fs::create_dir(&logins).unwrap();
        fs::write(logins.join("lock"), "").unwrap();
        assert!(RootSecret::find(dir.path()).unwrap().is_none());
        fs::write(logins.join("linear-0123456789abcdef.grant"), "sealed").unwrap();
        for refused in [
            RootSecret::open(dir.path()).unwrap_err(),
            RootSecret::find(dir.path()).unwrap_err(),
        ] {
            assert!(matches!(refused, SecretError::Missing { .. }), "{refused}");
        }
        assert!(!dir.path().join(SECRET_FILE).exists());
    }

    #[test]
    fn debug_hides_the_secret() {
        let dir = tempfile::tempdir().unwrap();
        let secret = RootSecret::open(dir.path()).unwrap();
        let text = fs::read_to_string(dir.path().join(SECRET_FILE)).unwrap();
        assert!(text.trim_end().len() >= SECRET_MIN);
        assert!(!format!("{secret:?}").contains(text.trim_end()));
    }

    #[cfg(unix)]
    mod unix {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        use super::*;

        fn set_mode(path: &Path, mode: u32) {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }

        #[test]
        fn a_secret_that_others_may_read_or_write_is_refused_and_left_as_it_is() {
            let dir = tempfile::tempdir().unwrap();
            RootSecret::open(dir.path()).unwrap();
            let path = dir.path().join(SECRET_FILE);
            let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(), 0o600);
            for open_mode in [0o604, 0o602] {
                set_mode(&path, open_mode);
                let refused = RootSecret::open(dir.path()).unwrap_err();
                assert!(
                    matches!(refused, SecretError::OpenToOthers { .. }),
                    "{open_mode:o}: {refused}"
                );
                assert_eq!(mode(), open_mode);
            }
            set_mode(&path, 0o600);
            RootSecret::open(dir.path()).unwrap();
        }

        #[test]
        fn a_symbolic_link_is_not_followed() {
            let dir = tempfile::tempdir().unwrap();
            let real = dir.path().join("real");
            write_private(&real, &"x".repeat(32));
            symlink(&real, dir.path().join(SECRET_FILE)).unwrap();
            let refused = RootSecret::open(dir.path()).unwrap_err();
            assert!(refused.to_string().contains("symbolic link"), "{refused}");
        }
    }
}
