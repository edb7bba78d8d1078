//! Root secrets of people's logins: the current one, and earlier ones that still open seals.
//!
//! Owns which secret is the current one. Does not read the file (`root_secret.rs`). Invariant: the
//! file is not read if a setting has the secret, and a secret under 32 bytes is refused.

use std::fmt;
use std::path::Path;

use crate::root_secret::{RootSecret, SecretError};
use crate::seal_ring::SealRing;
use crate::secret_text::SecretText;

/// Key of the setting with the current secret.
const SECRET_KEY: &str = "gateway.secret";
/// Key of the setting with earlier secrets.
const BEFORE_KEY: &str = "gateway.secret_before";

/// Settings of the secrets, from the config.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SecretSettings {
    /// Current secret. `None`: the one in the state folder.
    pub secret: Option<SecretText>,
    /// Earlier secrets, which still open what they sealed.
    pub before: Vec<SecretText>,
}

/// Current secret and earlier ones.
pub struct RootSecrets {
    current: RootSecret,
    before: Vec<RootSecret>,
    is_new: bool,
}

impl fmt::Debug for RootSecrets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("RootSecrets(hidden)")
    }
}

impl RootSecrets {
    /// Opens the secret in the settings, or else the one in a state folder, which is created if
    /// missing. Without a folder, the secret is random and ends with the process. Blocks.
    pub fn open(
        folder: Option<&Path>,
        settings: &SecretSettings,
    ) -> Result<RootSecrets, SecretError> {
        let before = settings
            .before
            .iter()
            .map(|secret| RootSecret::of_setting(BEFORE_KEY, secret.expose()))
            .collect::<Result<Vec<_>, _>>()?;
        let (current, is_new) = match (&settings.secret, folder) {
            (Some(secret), _) => (RootSecret::of_setting(SECRET_KEY, secret.expose())?, false),
            (None, Some(folder)) => RootSecret::open_or_make(folder)?,
            (None, None) => {
                let random: [u8; 32] = moongate_random::random_bytes();
                (RootSecret::of_bytes(&random), false)
            }
        };
        Ok(RootSecrets {
            current,
            before,
            is_new,
        })
    }

    /// Creates a single secret from these bytes, for tests.
    pub fn of_bytes(secret: &[u8; 32]) -> RootSecrets {
        RootSecrets {
            current: RootSecret::of_bytes(secret),
            before: Vec::new(),
            is_new: false,
        }
    }

    /// Returns true if this process created the secret's file, so nothing can be sealed with it
    /// yet.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Derives the seals of a purpose. Each purpose has its own keys.
    pub fn seal_ring(&self, purpose: &'static str) -> SealRing {
        let before = self.before.iter().map(|secret| secret.row_seal(purpose));
        SealRing::of(self.current.row_seal(purpose), before.collect())
    }

    /// Derives the key of a purpose from the current secret.
    pub fn purpose_key(&self, purpose: &'static str) -> [u8; 32] {
        self.current.purpose_key(purpose)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const PURPOSE: &str = "test";
    const FILE: &str = "secret";

    fn text(character: &str) -> SecretText {
        SecretText::new(character.repeat(32))
    }

    fn settings(secret: Option<&str>, before: &[&str]) -> SecretSettings {
        SecretSettings {
            secret: secret.map(text),
            before: before.iter().map(|&secret| text(secret)).collect(),
        }
    }

    fn opens(secrets: &RootSecrets, sealed: &str) -> bool {
        secrets.seal_ring(PURPOSE).open("a", sealed).is_some()
    }

    fn seal(secrets: &RootSecrets) -> String {
        secrets.seal_ring(PURPOSE).seal("a", b"row")
    }

    #[test]
    fn a_short_or_long_secret_is_refused_with_its_key_and_is_in_no_error() {
        let dir = tempfile::tempdir().unwrap();
        for (secret, before, key) in [
            ("x".repeat(31), Vec::new(), "gateway.secret "),
            (
                format!("{}\n\n", "x".repeat(31)),
                Vec::new(),
                "gateway.secret ",
            ),
            ("x".repeat(4097), Vec::new(), "gateway.secret "),
            (
                "x".repeat(32),
                vec![SecretText::new("xxxx")],
                "gateway.secret_before ",
            ),
        ] {
            let settings = SecretSettings {
                secret: Some(SecretText::new(secret)),
                before,
            };
            let refused = RootSecrets::open(Some(dir.path()), &settings).unwrap_err();
            let message = refused.to_string();
            assert!(message.starts_with(key), "{message}");
            assert!(!message.contains("xxxx"), "{message}");
        }
        assert!(!dir.path().join(FILE).exists());
    }

    #[test]
    fn debug_hides_the_secrets() {
        let secrets = RootSecrets::open(None, &settings(Some("x"), &["y"])).unwrap();
        assert_eq!(format!("{secrets:?}"), "RootSecrets(hidden)");
        let shown = format!("{:?}", settings(Some("x"), &["y"]));
        assert!(!shown.contains("xx") && !shown.contains("yy"), "{shown}");
    }

    #[test]
    fn a_setting_leaves_the_file_unread() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "short").unwrap();
        let secrets = RootSecrets::open(Some(dir.path()), &settings(Some("x"), &[])).unwrap();
        assert!(!secrets.is_new());
        assert!(RootSecrets::open(Some(dir.path()), &SecretSettings::default()).is_err());
    }

    #[test]
    fn a_file_is_new_once() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let first = RootSecrets::open(Some(&folder), &SecretSettings::default()).unwrap();
        let second = RootSecrets::open(Some(&folder), &SecretSettings::default()).unwrap();
        assert!(first.is_new() && !second.is_new());
        assert!(opens(&second, &seal(&first)));
    }

    #[test]
    fn the_text_of_a_file_moves_into_a_setting() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let file = RootSecrets::open(Some(&folder), &SecretSettings::default()).unwrap();
        let moved = SecretSettings {
            secret: Some(text("x")),
            before: vec![SecretText::new(
                fs::read_to_string(folder.join(FILE)).unwrap(),
            )],
        };
        let moved = RootSecrets::open(Some(&folder), &moved).unwrap();
        assert!(opens(&moved, &seal(&file)));
        assert!(!opens(&file, &seal(&moved)));
    }

    #[test]
    fn a_secret_that_was_changed_twice_opens_with_all_of_its_predecessors() {
        let first = RootSecrets::open(None, &settings(Some("x"), &[])).unwrap();
        let third = RootSecrets::open(None, &settings(Some("z"), &["y", "x"])).unwrap();
        let leaked = RootSecrets::open(None, &settings(Some("z"), &[])).unwrap();
        let sealed = seal(&first);
        assert!(opens(&third, &sealed) && !opens(&leaked, &sealed));
        assert_ne!(first.purpose_key(PURPOSE), third.purpose_key(PURPOSE));
        assert_eq!(leaked.purpose_key(PURPOSE), third.purpose_key(PURPOSE));
    }

    #[test]
    fn without_folder_and_setting_the_secret_ends_with_the_process() {
        let first = RootSecrets::open(None, &SecretSettings::default()).unwrap();
        let second = RootSecrets::open(None, &SecretSettings::default()).unwrap();
        assert!(!opens(&second, &seal(&first)) && !first.is_new());
    }
}
