//! Faults of JSON texts that aren't messages, in words for their sender.
//!
//! Owns the search for the first fault. Does not decide that a text is refused (`message.rs`).
//! Invariant: of the text itself only short names are repeated.

use std::borrow::Cow;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{ENVELOPE, ID_BYTES_MAX, RequestId, read_error};
use crate::json::{BorrowedKey, MEMBERS_MAX, RawJson};

/// Limit in characters of a member's name in a description.
const NAME_MAX: usize = 64;
/// Limit in bytes of a wrong version that is repeated.
const VERSION_MAX: usize = 16;

/// Describes the first fault of a text that is JSON, but no message.
pub(super) fn describe(text: &[u8]) -> Cow<'static, str> {
    let members = match serde_json::from_slice::<Members<'_>>(text) {
        Ok(members) => members,
        Err(_) => return format!("a message must be an object, not {}", kind_name(text)).into(),
    };
    if let Some(name) = members.repeated {
        return format!("the member {name} occurs twice").into();
    }
    match members.get("jsonrpc") {
        Some("\"2.0\"") => {}
        None => return "the member jsonrpc must be \"2.0\", but it is missing".into(),
        Some(found) => {
            let found = if found.len() <= VERSION_MAX {
                found
            } else {
                kind_name(found.as_bytes())
            };
            return format!("the member jsonrpc must be \"2.0\", not {found}").into();
        }
    }
    if let Some(found) = members
        .get("method")
        .filter(|found| !found.starts_with('"'))
    {
        return format!(
            "the method must be a string, not {}",
            kind_name(found.as_bytes())
        )
        .into();
    }
    for name in ["params", "result"] {
        if let Some(fault) = members
            .get(name)
            .and_then(|found| object_fault(name, found))
        {
            return fault.into();
        }
    }
    let outcomes: Vec<&str> = ["method", "result", "error"]
        .into_iter()
        .filter(|n| members.get(n).is_some())
        .collect();
    match outcomes[..] {
        [] => {
            return "a message has a method, a result or an error, but this one has none of them"
                .into();
        }
        [first, second, ..] => {
            return format!("a message has either {first} or {second}, but this one has both")
                .into();
        }
        ["error"] if members.get("error").is_some_and(|found| !is_error(found)) => {
            return "the error must be an object with a whole number as its code and a string as \
                    its message"
                .into();
        }
        [_] => {}
    }
    id_fault(members.id())
}

fn is_error(found: &str) -> bool {
    let buffer = bytes::Bytes::copy_from_slice(found.as_bytes());
    serde_json::from_slice::<&RawValue>(&buffer).is_ok_and(|raw| read_error(&buffer, raw).is_some())
}

/// Describes the fault of a member that must be an object with distinct members.
fn object_fault(name: &str, found: &str) -> Option<String> {
    if !found.starts_with('{') {
        return Some(format!(
            "the member {name} must be an object, not {}",
            kind_name(found.as_bytes())
        ));
    }
    let Ok(Keys { count, repeated }) = serde_json::from_str::<Keys<'_>>(found) else {
        return None;
    };
    if count > MEMBERS_MAX {
        return Some(format!(
            "the member {name} has more than {MEMBERS_MAX} members"
        ));
    }
    let repeated: String = repeated?.chars().take(NAME_MAX).collect();
    Some(format!("the member {name} has {repeated:?} twice"))
}

fn id_fault(id: Option<&str>) -> Cow<'static, str> {
    match id {
        Some(id) if id.len() > ID_BYTES_MAX => {
            format!("the id has more than {ID_BYTES_MAX} bytes").into()
        }
        Some(id) if RequestId::from_raw(RawJson::from_text(id)).is_none() => {
            let found = if id.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
                "a fraction"
            } else {
                kind_name(id.as_bytes())
            };
            format!("the id must be a string or a whole number, not {found}").into()
        }
        _ => "this is not a JSON-RPC 2.0 message".into(),
    }
}

/// Returns the kind of a JSON value, with its article.
fn kind_name(text: &[u8]) -> &'static str {
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// Members of a message, as far as a message has them. Values of `null` count as missing, apart
/// from the id.
#[derive(Default)]
struct Members<'a> {
    found: [Option<&'a str>; ENVELOPE.len()],
    repeated: Option<&'static str>,
}

impl Members<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        let at = ENVELOPE.iter().position(|known| *known == name)?;
        self.found[at].filter(|found| *found != "null")
    }

    fn id(&self) -> Option<&str> {
        let at = ENVELOPE.iter().position(|known| *known == "id")?;
        self.found[at]
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Members::default();
                while let Some(BorrowedKey(key)) = map.next_key::<BorrowedKey<'de>>()? {
                    let value: &'de RawValue = map.next_value()?;
                    let Some(at) = ENVELOPE.iter().position(|known| *known == key) else {
                        continue;
                    };
                    if members.found[at].replace(value.get()).is_some() {
                        members.repeated = Some(ENVELOPE[at]);
                    }
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// Names in an object: their number, and the first one that occurs twice.
struct Keys<'a> {
    count: usize,
    repeated: Option<Cow<'a, str>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Keys<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeysVisitor;
        impl<'de> Visitor<'de> for KeysVisitor {
            type Value = Keys<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut seen = std::collections::HashSet::new();
                let mut keys = Keys {
                    count: 0,
                    repeated: None,
                };
                while let Some(BorrowedKey(key)) = map.next_key::<BorrowedKey<'de>>()? {
                    map.next_value::<serde::de::IgnoredAny>()?;
                    keys.count += 1;
                    // The count alone is the fault of a larger object, so its names need no room.
                    if keys.count <= MEMBERS_MAX
                        && keys.repeated.is_none()
                        && !seen.insert(key.clone())
                    {
                        keys.repeated = Some(key);
                    }
                }
                Ok(keys)
            }
        }
        deserializer.deserialize_map(KeysVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with one fault, and its description.
    const FAULTS: [(&str, &str); 16] = [
        ("5", "a message must be an object, not a number"),
        (" \"a\"", "a message must be an object, not a string"),
        (
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#,
            "the member id occurs twice",
        ),
        (
            r#"{"id":1,"method":"a"}"#,
            r#"the member jsonrpc must be "2.0", but it is missing"#,
        ),
        (
            r#"{"jsonrpc":2.0,"id":1,"method":"a"}"#,
            r#"the member jsonrpc must be "2.0", not 2.0"#,
        ),
        (
            r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#,
            r#"the member jsonrpc must be "2.0", not "1.0""#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
            "the method must be a string, not a number",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[1]}"#,
            "the member params must be an object, not an array",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"n":1,"\u006e":2}}"#,
            r#"the member params has "n" twice"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":true}"#,
            "the member result must be an object, not a boolean",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1}"#,
            "a message has a method, a result or an error, but this one has none of them",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","result":{}}"#,
            "a message has either method or result, but this one has both",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":"m"}}"#,
            "the error must be an object with a whole number as its code and a string as its \
             message",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#,
            "the id must be a string or a whole number, not a fraction",
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#,
            "the id must be a string or a whole number, not null",
        ),
        (
            r#"{"jsonrpc":"2.0","id":[],"method":"a"}"#,
            "the id must be a string or a whole number, not an array",
        ),
    ];

    #[test]
    fn each_fault_is_named() {
        for (text, words) in FAULTS {
            assert_eq!(describe(text.as_bytes()), words, "{text}");
        }
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":"{}","method":"a"}}"#,
            "x".repeat(ID_BYTES_MAX)
        );
        assert_eq!(describe(long.as_bytes()), "the id has more than 1024 bytes");
        let members: Vec<String> = (0..=MEMBERS_MAX).map(|n| format!(r#""{n}":0"#)).collect();
        let many = format!(
            r#"{{"jsonrpc":"2.0","method":"a","params":{{{}}}}}"#,
            members.join(",")
        );
        assert_eq!(
            describe(many.as_bytes()),
            "the member params has more than 1024 members"
        );
        let name = "x".repeat(5000);
        let long =
            format!(r#"{{"jsonrpc":"2.0","method":"a","params":{{"{name}":1,"{name}":2}}}}"#);
        assert!(describe(long.as_bytes()).len() < 200);
    }
}
