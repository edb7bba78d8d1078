//! Ids of logins.
//!
//! Owns their text form. Does not know what a login is. Invariant: an id is random and never
//! reused, so one login's row is never found for another.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Number of hexadecimal digits.
const DIGITS: usize = 32;

/// Id of a login, which is not a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoginId([u8; 16]);

impl LoginId {
    /// Creates an id that no other login has.
    pub(crate) fn new_random() -> Self {
        LoginId(moongate_random::random_bytes())
    }

    /// Creates an id from bytes.
    pub(crate) fn of(bytes: [u8; 16]) -> Self {
        LoginId(bytes)
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Parses the text form of an id: 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        // The integer parser would also accept a sign.
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if text.len() != DIGITS || !is_hex {
            return None;
        }
        let number = u128::from_str_radix(text, 16).ok()?;
        Some(LoginId(number.to_be_bytes()))
    }
}

impl fmt::Display for LoginId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl Serialize for LoginId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LoginId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        LoginId::parse(&text).ok_or_else(|| serde::de::Error::custom("not an id of a login"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_texts_are_not_ids() {
        let id = LoginId::new_random().to_string();
        for text in [
            "",
            &id[1..],
            &format!("{id}0"),
            &format!("+{}", &id[1..]),
            &format!("g{}", &id[1..]),
            &format!(" {}", &id[1..]),
            &format!("\u{fc}{}", &id[2..]),
        ] {
            assert_eq!(LoginId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_id_is_the_same_as_text_and_in_json() {
        let id = LoginId::of([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0eff");
        assert_eq!(LoginId::parse(&id.to_string()), Some(id));
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, "\"000102030405060708090a0b0c0d0eff\"");
        assert_eq!(serde_json::from_str::<LoginId>(&json).unwrap(), id);
        assert_ne!(LoginId::new_random(), LoginId::new_random());
    }
}
