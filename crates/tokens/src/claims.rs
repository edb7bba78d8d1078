//! Members of a token's header and claims.
//!
//! Owns their types, and how a claim is found by its path. Does not know what a claim means.
//! Invariant: no object repeats a member, at any depth, so nobody reads a different value from the
//! one that was checked.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Value of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimValue {
    /// Text.
    Text(String),
    /// Number, without its fraction.
    Number(i64),
    /// `true` or `false`.
    Flag(bool),
    /// List.
    List(Vec<ClaimValue>),
    /// Object.
    Members(ClaimSet),
    /// `null`.
    Null,
}

/// Object of claims.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimSet(BTreeMap<String, ClaimValue>);

impl ClaimSet {
    /// Creates a set of members. Of two with one name, the later one counts.
    pub fn of(members: impl IntoIterator<Item = (String, ClaimValue)>) -> Self {
        ClaimSet(members.into_iter().collect())
    }

    /// Returns true if a member is present, even as `null`.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns a member that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name)? {
            ClaimValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a member that is a number.
    pub fn number(&self, name: &str) -> Option<i64> {
        match self.0.get(name)? {
            ClaimValue::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns true if a member is `true`. The text `"true"` is not enough.
    pub fn is_true(&self, name: &str) -> bool {
        self.0.get(name) == Some(&ClaimValue::Flag(true))
    }

    /// Returns the texts of a claim, which is a text or a list.
    pub fn texts(&self, path: &str) -> Vec<&str> {
        match self.find(path) {
            Some(ClaimValue::Text(text)) => vec![text.as_str()],
            Some(ClaimValue::List(items)) => items
                .iter()
                .filter_map(|item| match item {
                    ClaimValue::Text(text) => Some(text.as_str()),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Finds a claim. A name with dots is tried whole first, since some issuers use URLs as names,
    /// and then as a path.
    fn find(&self, path: &str) -> Option<&ClaimValue> {
        if let Some(value) = self.0.get(path) {
            return Some(value);
        }
        path.match_indices('.').find_map(|(dot, _)| {
            let (name, rest) = path.split_at(dot);
            match self.0.get(name)? {
                ClaimValue::Members(inner) => inner.find(rest.strip_prefix('.')?),
                _ => None,
            }
        })
    }
}

impl<'de> Deserialize<'de> for ClaimSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SetVisitor)
    }
}

impl<'de> Deserialize<'de> for ClaimValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

fn read_members<'de, A: MapAccess<'de>>(mut map: A) -> Result<ClaimSet, A::Error> {
    let mut members = BTreeMap::new();
    while let Some((name, value)) = map.next_entry::<String, ClaimValue>()? {
        if members.insert(name, value).is_some() {
            return Err(A::Error::custom("a member appears twice"));
        }
    }
    Ok(ClaimSet(members))
}

struct SetVisitor;

impl<'de> Visitor<'de> for SetVisitor {
    type Value = ClaimSet;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ClaimSet, A::Error> {
        read_members(map)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = ClaimValue;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<ClaimValue, E> {
        Ok(ClaimValue::Flag(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<ClaimValue, E> {
        Ok(ClaimValue::Number(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<ClaimValue, E> {
        Ok(ClaimValue::Number(
            i64::try_from(number).unwrap_or(i64::MAX),
        ))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<ClaimValue, E> {
        // RFC 7519, section 2: a time may have a fraction. The cast saturates.
        Ok(ClaimValue::Number(number.floor() as i64))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ClaimValue, E> {
        Ok(ClaimValue::Text(text.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<ClaimValue, E> {
        Ok(ClaimValue::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ClaimValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(ClaimValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ClaimValue, A::Error> {
        read_members(map).map(ClaimValue::Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(text: &str) -> ClaimSet {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_repeated_member_is_refused_at_any_depth() {
        for text in [
            r#"{"sub":"a","sub":"b"}"#,
            r#"{"sub":"a","s\u0075b":"a"}"#,
            r#"{"a":{"b":1,"b":1}}"#,
            r#"{"a":[{"b":1,"b":2}]}"#,
            r#"["a"]"#,
            r#""a""#,
        ] {
            assert!(serde_json::from_str::<ClaimSet>(text).is_err(), "{text}");
        }
        assert!(claims(r#"{"a":{"b":1},"b":1}"#).has("b"));
    }

    #[test]
    fn a_name_with_dots_is_tried_whole_and_then_as_a_path() {
        let claims = claims(
            r#"{"a.b":"whole","a":{"b":"inner","c":["x",1,"y"]},
                "my.client":{"roles":["admin"]},"https://e.test/team":"red"}"#,
        );
        for (path, texts) in [
            ("a.b", &["whole"][..]),
            ("a.c", &["x", "y"]),
            ("my.client.roles", &["admin"]),
            ("https://e.test/team", &["red"]),
            ("a", &[]),
            ("a.", &[]),
            (".a", &[]),
            ("a.c.x", &[]),
        ] {
            assert_eq!(claims.texts(path), texts, "{path}");
        }
    }

    #[test]
    fn times_may_be_large_or_have_a_fraction() {
        let claims = claims(r#"{"a":1.9,"b":-1,"c":18446744073709551615,"d":1e300,"e":"1"}"#);
        for (name, number) in [
            ("a", Some(1)),
            ("b", Some(-1)),
            ("c", Some(i64::MAX)),
            ("d", Some(i64::MAX)),
            ("e", None),
        ] {
            assert_eq!(claims.number(name), number, "{name}");
        }
    }
}
