//! Client that requests a login.
//!
//! Owns what is known about it. Does not find or check it (`clients.rs`). Invariant: its name is
//! self-chosen, has no invisible characters, and proves nothing.

use std::sync::Arc;

use moongate_telemetry::plain_text::is_invisible;

use crate::client_keys::ClientKeys;
use crate::login_row::{ClientMark, client_mark};
use crate::loopback_address::is_loopback_address;

/// Longest name, in characters.
const NAME_MAX: usize = 64;
/// Name shown for a client that has none.
const NO_NAME: &str = "a client without a name";

/// Source of what is known about a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientOrigin {
    /// Document whose URL is the client's id.
    Document,
    /// Registration, sealed into its id.
    Registered,
}

/// Authentication method of a client.
#[derive(Clone, Debug)]
pub(crate) enum ClientProof {
    /// None: a public client.
    None,
    /// Assertions signed with these keys.
    Keys(Arc<ClientKeys>),
}

/// Client that requests a login.
#[derive(Clone, Debug)]
pub(crate) struct ClientRecord {
    /// Id.
    pub(crate) id: String,
    /// Name that the client chose, without invisible characters.
    pub(crate) name: String,
    /// Host of its document, if it has one.
    pub(crate) host: Option<String>,
    /// Source of this record.
    pub(crate) origin: ClientOrigin,
    /// Redirect addresses.
    pub(crate) redirects: Vec<String>,
    /// Authentication method.
    pub(crate) proof: ClientProof,
}

impl ClientRecord {
    /// Returns the identity of the client.
    pub(crate) fn mark(&self) -> ClientMark {
        client_mark(&self.id)
    }

    /// Returns true if all redirects are on loopback, where any program can claim its name.
    pub(crate) fn is_only_loopback(&self) -> bool {
        self.redirects
            .iter()
            .all(|address| is_loopback_address(address))
    }
}

/// Returns a name on one line, with invisible characters shown.
pub(crate) fn visible_name(text: Option<&str>) -> String {
    let mut name = String::new();
    let mut length = 0;
    for character in text.unwrap_or_default().trim().chars() {
        let shown: String = if is_invisible(character) || character.is_control() {
            character.escape_unicode().collect()
        } else {
            character.into()
        };
        length += shown.chars().count();
        if length > NAME_MAX {
            break;
        }
        name.push_str(&shown);
    }
    if name.is_empty() {
        NO_NAME.clone_into(&mut name);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_hides_nothing() {
        let long = "x".repeat(1000);
        for (text, name) in [
            (Some("Claude Code"), "Claude Code"),
            (Some("Caf\u{e9}"), "Caf\u{e9}"),
            (Some("a\nb"), "a\\u{a}b"),
            (Some("a\tb"), "a\\u{9}b"),
            (Some("a\u{202e}b"), "a\\u{202e}b"),
            (Some("a\u{0}\u{200b}"), "a\\u{0}\\u{200b}"),
            (Some("<script>"), "<script>"),
            (Some(&*long), &long[..NAME_MAX]),
            (Some("  \n "), NO_NAME),
            (Some(""), NO_NAME),
            (None, NO_NAME),
        ] {
            assert_eq!(visible_name(text), name, "{text:?}");
        }
    }

    #[test]
    fn any_program_can_claim_a_name_that_is_on_loopback_alone() {
        let record = |redirects: &[&str]| ClientRecord {
            id: "mgc_1".to_owned(),
            name: "shape".to_owned(),
            host: None,
            origin: ClientOrigin::Registered,
            redirects: redirects.iter().map(|&text| text.to_owned()).collect(),
            proof: ClientProof::None,
        };
        assert!(record(&["http://localhost/cb", "http://127.0.0.1:1/cb"]).is_only_loopback());
        assert!(!record(&["http://localhost/cb", "https://claude.ai/cb"]).is_only_loopback());
    }
}
