//! Objects of a definition, read as parsers of clients read them.
//!
//! Owns the reading of repeated keys and the change of many values. Does not route by what it
//! reads: see [`JsonObject::parse`] for that. Invariant: an object without a change keeps its
//! bytes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{BorrowedKey, ByteString, JsonObject, RawJson};

/// Change of one value of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueChange {
    /// Keeps the value.
    Keep,
    /// Replaces the value.
    Set(RawJson),
    /// Drops the member.
    Drop,
}

impl RawJson {
    /// Parses one level of the value with any number of members. Of a repeated key the last value
    /// counts, as in the parsers of JavaScript and Python. `None` if the value isn't an object.
    pub fn as_lenient_object(&self) -> Option<JsonObject> {
        let bytes = self.bytes();
        let members: Members<'_> = serde_json::from_slice(bytes).ok()?;
        let mut entries = Vec::with_capacity(members.0.len());
        let mut known = HashMap::new();
        let mut has_duplicates = false;
        for (key, value) in members.0 {
            let entry = (ByteString::within(bytes, key), RawJson::slice(bytes, value));
            match known.entry(entry.0.clone()) {
                Entry::Occupied(at) => {
                    has_duplicates = true;
                    let at: usize = *at.get();
                    entries[at] = entry;
                }
                Entry::Vacant(free) => {
                    free.insert(entries.len());
                    entries.push(entry);
                }
            }
        }
        Some(JsonObject {
            whole: (!has_duplicates).then(|| bytes.clone()),
            entries,
        })
    }
}

impl RawJson {
    /// Returns the nesting depth of arrays and objects.
    pub fn depth(&self) -> usize {
        let mut depth = 0_usize;
        let mut most = 0;
        let mut is_text = false;
        let mut is_escaped = false;
        for byte in self.bytes() {
            match byte {
                // The byte after a backslash belongs to the string, whatever it is.
                _ if std::mem::take(&mut is_escaped) => {}
                b'\\' if is_text => is_escaped = true,
                b'"' => is_text = !is_text,
                b'{' | b'[' if !is_text => {
                    depth += 1;
                    most = most.max(depth);
                }
                b'}' | b']' if !is_text => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        most
    }
}

impl JsonObject {
    /// Changes each value as `change` says. The order stays.
    pub fn change_values(&mut self, mut change: impl FnMut(&ByteString, &RawJson) -> ValueChange) {
        let mut is_changed = false;
        self.entries.retain_mut(|(key, value)| {
            let change = change(key, value);
            is_changed |= change != ValueChange::Keep;
            if let ValueChange::Set(other) = &change {
                *value = other.clone();
            }
            change != ValueChange::Drop
        });
        if is_changed {
            self.whole = None;
        }
    }
}

/// Members of an object, all of them in order.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::with_capacity(8);
                while let Some(key) = map.next_key::<BorrowedKey<'de>>()? {
                    members.push((key.0, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn raw(json: &str) -> RawJson {
        RawJson::parse(Bytes::copy_from_slice(json.as_bytes())).unwrap()
    }

    #[test]
    fn the_last_of_a_repeated_key_counts_in_the_place_of_the_first() {
        let object = raw(r#"{"a": 1, "b":2, "\u0061":3}"#)
            .as_lenient_object()
            .unwrap();
        assert_eq!(&object.bytes()[..], br#"{"a":3,"b":2}"#);
        let same = r#"{ "a" : 1.0 }"#;
        assert_eq!(
            raw(same).as_lenient_object().unwrap().bytes(),
            same.as_bytes()
        );
        let many: Vec<String> = (0..5000).map(|n| format!(r#""k{n}":{n}"#)).collect();
        let many = raw(&format!("{{{}}}", many.join(",")))
            .as_lenient_object()
            .unwrap();
        assert_eq!(many.iter().count(), 5000);
        assert!(raw("[1]").as_lenient_object().is_none());
    }

    #[test]
    fn depth_is_that_of_brackets_outside_of_texts() {
        for (json, expected) in [
            ("1", 0),
            ("{}", 1),
            (r#"{"a":[{}],"b":{}}"#, 3),
            (r#"{"a":"[[[["}"#, 1),
            (r#"{"a":"\"[[","b":[]}"#, 2),
            (r#"{"a\\":[[]]}"#, 3),
        ] {
            assert_eq!(raw(json).depth(), expected, "{json}");
        }
    }

    #[test]
    fn values_are_changed_in_place() {
        let mut object = raw(r#"{"a": 1, "b":2,"c": 3}"#)
            .as_lenient_object()
            .unwrap();
        let before = object.bytes();
        object.change_values(|_, _| ValueChange::Keep);
        assert_eq!(object.bytes(), before);
        object.change_values(|key, _| match key.as_str() {
            "a" => ValueChange::Drop,
            "b" => ValueChange::Set(RawJson::literal("[]")),
            _ => ValueChange::Keep,
        });
        assert_eq!(&object.bytes()[..], br#"{"b":[],"c":3}"#);
    }
}
