//! Identities of people and programs, as marks that are the same in every process.
//!
//! Owns how they are derived from a token, the secrets that mark a person's handles, and names for
//! logs. Does not know about sessions. Invariant: an identity depends on nothing secret, so it
//! survives a new secret, and a secret is never derived from an identity alone.

use aws_lc_rs::{digest, hmac};
use moongate_model::{PrincipalKey, PrincipalSecret};

/// Longest name for logs, in characters.
const NAME_MAX: usize = 64;

/// Kind of a token's subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    /// Person who logged in.
    Person,
    /// Program with its own credentials.
    Program,
}

/// Returns the identity of a subject.
pub fn person_mark(kind: SubjectKind, issuer: &str, subject: &str) -> PrincipalKey {
    let purpose = match kind {
        SubjectKind::Person => "moongate person",
        SubjectKind::Program => "moongate program",
    };
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [purpose, issuer, subject] {
        // Each with its length, so that no text can move from one part to the next.
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        context.update(&length.to_be_bytes());
        context.update(part.as_bytes());
    }
    let digest = context.finish();
    let mut mark = PrincipalKey::default();
    mark.copy_from_slice(&digest.as_ref()[..16]);
    mark
}

/// Key from which people's secrets are derived.
pub struct PersonKey(hmac::Key);

impl PersonKey {
    /// Creates the key from secret bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        PersonKey(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Returns the secret of a person.
    pub fn secret_of(&self, mark: &PrincipalKey) -> PrincipalSecret {
        let mut secret = [0; 32];
        secret.copy_from_slice(hmac::sign(&self.0, mark).as_ref());
        PrincipalSecret::new(secret)
    }
}

/// Returns a name for logs. Characters that are invisible, or that change the text around them, are
/// escaped.
pub fn log_name(text: &str) -> String {
    let mut name = String::new();
    for character in text.chars().take(NAME_MAX) {
        if character.is_ascii_graphic() || character == ' ' {
            name.push(character);
        } else {
            name.extend(character.escape_unicode());
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_belongs_to_one_issuer_one_subject_and_one_kind() {
        let ann = person_mark(SubjectKind::Person, "https://a.test", "ann");
        assert_eq!(
            ann,
            person_mark(SubjectKind::Person, "https://a.test", "ann")
        );
        for (kind, issuer, subject) in [
            (SubjectKind::Program, "https://a.test", "ann"),
            (SubjectKind::Person, "https://a.test/", "ann"),
            (SubjectKind::Person, "https://a.testa", "nn"),
            (SubjectKind::Person, "https://a.test", "Ann"),
        ] {
            assert_ne!(
                ann,
                person_mark(kind, issuer, subject),
                "{issuer} {subject}"
            );
        }
    }

    #[test]
    fn names_cannot_break_a_log_line() {
        assert_eq!(log_name("ann@example.com"), "ann@example.com");
        assert_eq!(log_name("a\nb\u{202e}"), "a\\u{a}b\\u{202e}");
        assert_eq!(log_name(&"x".repeat(1000)).len(), NAME_MAX);
    }
}
