//! Tests of `json.rs`.

use proptest::prelude::*;

use super::*;

/// Generates white space where JSON allows it.
pub(crate) fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "", "", " ", "\n", "\t\r\n "])
}

/// Writes a character in one of its forms.
fn spelled(c: char, way: u8) -> String {
    match (c, way) {
        ('/', 1) => "\\/".to_owned(),
        ('"' | '\\', 0 | 1) => format!("\\{c}"),
        ('\n', _) => "\\n".to_owned(),
        ('\0'..' ' | '"' | '\\', _) | (_, 2) => c
            .encode_utf16(&mut [0; 2])
            .iter()
            .map(|unit| format!("\\u{unit:04x}"))
            .collect(),
        _ => c.to_string(),
    }
}

/// Generates a string and one of its encodings.
pub(crate) fn string() -> impl Strategy<Value = (String, String)> {
    let characters = prop_oneof![
        any::<char>(),
        prop::sample::select(vec!['a', '/', '"', '\\', '\u{1F600}', '{'])
    ];
    prop::collection::vec((characters, 0..6_u8), 0..8).prop_map(|all| {
        let text = all.iter().map(|(c, _)| *c).collect();
        let inner: String = all.iter().map(|(c, way)| spelled(*c, *way)).collect();
        (text, format!("\"{inner}\""))
    })
}

fn scalar() -> impl Strategy<Value = String> {
    let odd = [
        "null",
        "true",
        "1.0",
        "1e5",
        "-0.0",
        "1E+2",
        "-0",
        "123456789012345678901234567890",
        "1e-400",
    ];
    prop_oneof![
        string().prop_map(|(_, spelling)| spelling),
        prop::sample::select(odd.to_vec()).prop_map(str::to_owned)
    ]
}

/// Generates a value in any form.
pub(crate) fn value() -> impl Strategy<Value = String> {
    scalar().prop_recursive(3, 24, 4, |inner| {
        let items = prop::collection::vec((inner.clone(), space()), 0..4);
        let array = (items, space()).prop_map(|(items, s)| {
            let items: Vec<String> = items
                .into_iter()
                .map(|(item, s)| format!("{s}{item}"))
                .collect();
            format!("[{}{s}]", items.join(","))
        });
        prop_oneof![
            array,
            members_of(inner).prop_map(|members| object_text(&members))
        ]
    })
}

/// Member of an object: key, encoded key, value, white space.
pub(crate) type Member = (String, String, String, &'static str);

fn members_of(value: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<Member>> {
    let member = (string(), value, space())
        .prop_map(|((key, spelling), value, s)| (key, spelling, value, s));
    prop::collection::vec(member, 0..5).prop_map(|mut all| {
        let mut seen = std::collections::HashSet::new();
        all.retain(|(key, ..)| seen.insert(key.clone()));
        all
    })
}

/// Generates members with distinct keys.
pub(crate) fn members() -> impl Strategy<Value = Vec<Member>> {
    members_of(value())
}

/// Writes an object with white space around everything.
pub(crate) fn object_text(members: &[Member]) -> String {
    let all: Vec<String> = members
        .iter()
        .map(|(_, key, value, s)| format!("{s}{key}{s}:{s}{value}{s}"))
        .collect();
    format!("{{{}}}", all.join(","))
}

fn parse(text: &str) -> JsonObject {
    JsonObject::parse(Bytes::copy_from_slice(text.as_bytes()))
        .unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Returns the members of an object, as they are read again from its text.
fn entries_of(object: &JsonObject) -> Vec<(String, String)> {
    parse(std::str::from_utf8(&object.bytes()).unwrap())
        .iter()
        .map(|(key, raw)| {
            let text = String::from_utf8(raw.bytes().to_vec()).unwrap();
            (key.to_string(), text)
        })
        .collect()
}

fn owned(members: &[(&str, &str)]) -> Vec<(String, String)> {
    members
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

proptest! {
    #[test]
    fn an_object_holds_its_values_as_they_were_written(members in members(), before in space(),
        after in space()) {
        let text = object_text(&members);
        let object = parse(&format!("{before}{text}{after}"));
        prop_assert_eq!(object.iter().count(), members.len());
        for ((key, _, value, _), (found, raw)) in members.iter().zip(object.iter()) {
            prop_assert_eq!(found.as_str(), key);
            prop_assert_eq!(&raw.bytes()[..], value.as_bytes());
        }
        // An unmodified object has the same bytes, unless the first key has escapes.
        let plain = members.first().is_none_or(|(_, key, ..)| !key.contains('\\'));
        if plain && !members.is_empty() {
            prop_assert_eq!(object.bytes(), text.as_bytes());
        }
        prop_assert_eq!(&parse(std::str::from_utf8(&object.bytes()).unwrap()), &object);
    }

    #[test]
    fn splicing_touches_nothing_else(members in members(), at in any::<prop::sample::Index>(),
        new in value()) {
        prop_assume!(!members.is_empty());
        let at = at.index(members.len());
        let whole = parse(&object_text(&members));
        let mut set = whole.clone();
        let mut removed = whole.clone();
        set.set(members[at].0.as_str(), RawJson::parse(Bytes::from(new.clone())).unwrap());
        removed.remove(&members[at].0).unwrap();
        let mut wanted: Vec<(&str,
            &str)> = members.iter().map(|(k, _, v, _)| (k.as_str(), v.as_str())).collect();
        wanted[at].1 = &new;
        prop_assert_eq!(entries_of(&set), owned(&wanted));
        wanted.remove(at);
        prop_assert_eq!(entries_of(&removed), owned(&wanted));
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused(members in members(),
        at in any::<prop::sample::Index>()) {
        prop_assume!(!members.is_empty());
        let mut twice = members.clone();
        // A key in another encoding is the same key.
        let key = &members[at.index(members.len())].0;
        let spelling: String = key.chars().map(|c| spelled(c, 2)).collect();
        twice.push((key.clone(), format!("\"{spelling}\""), "1".to_owned(), ""));
        prop_assert!(JsonObject::parse(Bytes::from(object_text(&twice))).is_err());
    }

    #[test]
    fn strings_are_read_and_written((text, spelling) in string()) {
        let read = RawJson::parse(Bytes::from(spelling)).unwrap().as_text().unwrap();
        prop_assert_eq!(read.as_str(), text.as_str());
        let mut out = BytesMut::new();
        write_string(&mut out, &text);
        prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }

    #[test]
    fn array_items_stay_as_they_are(items in prop::collection::vec(value(), 0..5), s in space()) {
        let raw = RawJson::parse(Bytes::from(format!("[{s}{}{s}]", items.join(",")))).unwrap();
        let found = raw.as_array().unwrap();
        let texts: Vec<&[u8]> = found.iter().map(|item| &item.bytes()[..]).collect();
        prop_assert_eq!(texts, items.iter().map(String::as_bytes).collect::<Vec<_>>());
        let array = RawJson::array(found.iter());
        prop_assert_eq!(array.bytes(), &format!("[{}]", items.join(",")));
    }
}
