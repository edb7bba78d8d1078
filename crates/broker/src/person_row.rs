//! Row of a person who logged in, with the provider's token.
//!
//! Owns the row of a person. Does not ask the company's login. Invariant: the identity depends on
//! authority and subject alone, so a person with another name stays the same one.

use jiff::Timestamp;
use moongate_model::PrincipalKey;
use moongate_oauth::SecretText;
use moongate_tokens::{SubjectKind, person_mark};
use serde::{Deserialize, Serialize};

use crate::person_facts::PersonFacts;

/// Person whom the company's login has just authenticated.
#[derive(Clone, Debug)]
pub(crate) struct ProvenPerson {
    /// Subject at the company's login.
    pub(crate) subject: String,
    /// Facts that roles match by.
    pub(crate) facts: PersonFacts,
    /// Token for asking the company's login again. `None`: it issued none.
    pub(crate) token: Option<SecretText>,
    /// Digest of the claims that roles needed.
    pub(crate) wanted: [u8; 8],
}

/// Person with at least one login.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PersonRow {
    /// Whoever gave out the subject (`ProviderSettings::authority`).
    pub(crate) authority: String,
    /// Subject at the company's login.
    pub(crate) subject: String,
    /// Facts that roles match by.
    pub(crate) facts: PersonFacts,
    /// Token for asking the company's login again.
    pub(crate) token: Option<SecretText>,
    /// Time at which the company's login last confirmed the person.
    pub(crate) checked: Timestamp,
    /// Digest of the claims that roles needed then.
    pub(crate) wanted: [u8; 8],
    /// Version of this row, incremented with each change of token or facts.
    pub(crate) version: u64,
}

impl PersonRow {
    /// Creates the row of a person who was proved at this time.
    pub(crate) fn of(authority: &str, person: ProvenPerson, now: Timestamp) -> Self {
        PersonRow {
            authority: authority.to_owned(),
            subject: person.subject,
            facts: person.facts,
            token: person.token,
            checked: now,
            wanted: person.wanted,
            version: 0,
        }
    }

    /// Returns the identity of the person.
    pub(crate) fn mark(&self) -> PrincipalKey {
        person_mark(SubjectKind::Person, &self.authority, &self.subject)
    }
}

#[cfg(test)]
mod tests {
    use moongate_access::auth::{ProviderKind, ProviderSettings};

    use super::*;

    fn row(issuer: &str, subject: &str, name: &str) -> PersonRow {
        let person = ProvenPerson {
            subject: subject.to_owned(),
            facts: PersonFacts {
                name: name.to_owned(),
                ..PersonFacts::default()
            },
            token: Some(SecretText::new("hush")),
            wanted: [0; 8],
        };
        PersonRow::of(issuer, person, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn another_name_is_the_same_person_and_another_subject_or_issuer_is_not() {
        let ann = row("https://login.test", "1", "ann");
        assert_eq!(ann.mark(), row("https://login.test", "1", "lee").mark());
        assert_ne!(ann.mark(), row("https://login.test", "2", "ann").mark());
        assert_ne!(ann.mark(), row("https://other.test", "1", "ann").mark());
    }

    #[test]
    fn a_person_of_entra_is_the_one_of_access_tokens_of_both_versions() {
        let settings = ProviderSettings {
            kind: ProviderKind::Entra {
                tenant: "t1".to_owned(),
            },
            issuer: "https://login.microsoftonline.com/t1/v2.0".to_owned(),
            client_id: "app".to_owned(),
            client_secret: None,
            scopes: None,
            userinfo: false,
            trust_email: false,
        };
        let ann = row(settings.authority(), "o1", "ann");
        assert_eq!(ann.mark(), person_mark(SubjectKind::Person, "t1", "o1"));
    }

    #[test]
    fn debug_hides_the_token_and_the_row_keeps_it() {
        let ann = row("https://login.test", "1", "ann");
        assert!(!format!("{ann:?}").contains("hush"));
        let json = serde_json::to_string(&ann).unwrap();
        assert_eq!(serde_json::from_str::<PersonRow>(&json).unwrap(), ann);
    }
}
