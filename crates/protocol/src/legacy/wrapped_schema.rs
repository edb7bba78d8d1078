//! Output schemas of tools, wrapped for clients that hold schemas of objects only.
//!
//! Owns the wrapped form and the references in it. Does not decide who gets it (`tool_output.rs`).
//! Invariant: each reference leads to the same subschema as before, and all other bytes of the
//! schema stay.
//!
//! The form is that of the official TypeScript SDK 2.4 for its own legacy clients, so that a tool
//! has one schema whether a client meets it directly or here.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{BufMut, BytesMut};

use moongate_jsonrpc::json::{JsonObject, RawJson, TokenKind};

/// Member of a wrapped schema that has the original one.
pub(super) const MEMBER: &str = "result";
/// Reference to the original schema.
const MOVED_ROOT: &str = "#/properties/result";
/// Dialect whose `$recursiveRef` would lead to the wrapper.
const DIALECT_2019: &str = "//json-schema.org/draft/2019-09/schema";
/// Keywords whose values are data. A `$ref` in them isn't a reference.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];
/// Keywords whose values have subschemas under names that an author chose.
const NAME_MAPS: [&str; 6] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
];
/// Keywords that can hold another reference, in the order in which they are tried.
const HOLDERS: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

/// Wraps an output schema. `None`: a legacy client can hold it as it is, or it isn't a schema.
pub(crate) fn wrap_schema(schema: &RawJson) -> Option<RawJson> {
    let (inner, dialect) = match &schema.bytes()[..] {
        // Some clients hold only objects under `properties`.
        b"true" => (RawJson::literal("{}"), None),
        b"false" => (RawJson::literal(r#"{"not":{}}"#), None),
        _ => {
            let root = schema.as_object()?;
            if root.get_string("type").as_deref() == Some("object") {
                return None;
            }
            (
                moved_references(schema, &root),
                root.get("$schema")
                    .filter(|raw| raw.as_text().is_some())
                    .cloned(),
            )
        }
    };
    let mut wrapped = JsonObject::new();
    if let Some(dialect) = dialect {
        wrapped = wrapped.with("$schema", dialect);
    }
    let properties = JsonObject::new().with(MEMBER, inner).to_raw();
    let wrapped = wrapped
        .with("type", RawJson::literal("\"object\""))
        .with("properties", properties);
    Some(
        wrapped
            .with("required", RawJson::literal(r#"["result"]"#))
            .to_raw(),
    )
}

/// Returns the schema with references that are right one level deeper.
fn moved_references(schema: &RawJson, root: &JsonObject) -> RawJson {
    let is_2019 = root.get_string("$schema").is_some_and(|dialect| {
        let dialect = dialect.trim_end_matches('#');
        dialect
            .strip_prefix("https:")
            .or_else(|| dialect.strip_prefix("http:"))
            == Some(DIALECT_2019)
    });
    // A recursive anchor at the root makes the reference dynamic, and then it finds the root by
    // itself.
    let is_anchored = root.is_true("$recursiveAnchor");
    let mut walk = SchemaWalk {
        text: schema.bytes(),
        converts: is_2019 && !is_anchored,
        ..SchemaWalk::default()
    };
    for token in schema.tokens() {
        walk.visit(token.kind, token.span);
    }
    walk.spliced().unwrap_or_else(|| schema.clone())
}

/// Walk through a schema that collects what changes.
#[derive(Default)]
struct SchemaWalk<'a> {
    text: &'a [u8],
    /// True if `$recursiveRef` is written as `$ref`.
    converts: bool,
    levels: Vec<Level>,
    /// Levels of data that the walk is in.
    data_depth: usize,
    edits: Vec<(Range<usize>, String)>,
}

/// Object or array that the walk is in.
struct Level {
    /// True if its keys are names and no keywords.
    has_names: bool,
    /// Meaning of the next value.
    next: Keyword,
    /// Span of the last key.
    key: Range<usize>,
    /// Number of edits before it.
    edits_before: usize,
    /// True if references in it do not start from the root.
    has_base: bool,
    /// Span of its `$recursiveRef`.
    recursive: Option<Range<usize>>,
    /// [`HOLDERS`] that it has.
    holders: [bool; 4],
}

/// Meaning of a value by its key.
#[derive(Clone, Copy, PartialEq)]
enum Keyword {
    Schema,
    Reference,
    RecursiveReference,
    Base,
    Data,
    NameMap,
}

impl Keyword {
    fn of(key: &str) -> Self {
        match key {
            "$ref" | "$dynamicRef" => Keyword::Reference,
            "$recursiveRef" => Keyword::RecursiveReference,
            "$id" => Keyword::Base,
            key if DATA.contains(&key) => Keyword::Data,
            key if NAME_MAPS.contains(&key) => Keyword::NameMap,
            _ => Keyword::Schema,
        }
    }
}

impl SchemaWalk<'_> {
    fn visit(&mut self, kind: TokenKind, span: Range<usize>) {
        if self.data_depth > 0 {
            match kind {
                TokenKind::Object | TokenKind::Array => self.data_depth += 1,
                TokenKind::End => self.data_depth -= 1,
                TokenKind::Key | TokenKind::Text | TokenKind::Scalar => {}
            }
            return;
        }
        match kind {
            TokenKind::Key => self.read_key(span),
            TokenKind::Text => self.read_text(span),
            TokenKind::Object | TokenKind::Array => self.begin_level(kind),
            TokenKind::End => self.end_level(),
            TokenKind::Scalar => {
                if let Some(level) = self.levels.last_mut() {
                    level.has_base |= level.next == Keyword::Base;
                }
            }
        }
    }

    fn begin_level(&mut self, kind: TokenKind) {
        let next = self
            .levels
            .last()
            .map_or(Keyword::Schema, |level| level.next);
        if next == Keyword::Data {
            self.data_depth = 1;
            return;
        }
        if let Some(level) = self.levels.last_mut() {
            level.has_base |= next == Keyword::Base;
        }
        self.levels.push(Level {
            has_names: next == Keyword::NameMap && kind == TokenKind::Object,
            next: Keyword::Schema,
            key: 0..0,
            edits_before: self.edits.len(),
            has_base: false,
            recursive: None,
            holders: [false; 4],
        });
    }

    fn read_key(&mut self, span: Range<usize>) {
        let key = decoded(self.text, &span);
        let Some(level) = self.levels.last_mut() else {
            return;
        };
        level.key = span;
        level.next = if level.has_names {
            Keyword::Schema
        } else {
            Keyword::of(&key)
        };
        if let Some(holder) = HOLDERS.iter().position(|holder| *holder == key) {
            level.holders[holder] = true;
        }
    }

    fn read_text(&mut self, span: Range<usize>) {
        let Some(next) = self.levels.last().map(|level| level.next) else {
            return;
        };
        let text = match next {
            Keyword::Reference | Keyword::Base | Keyword::RecursiveReference => {
                decoded(self.text, &span)
            }
            Keyword::Schema | Keyword::Data | Keyword::NameMap => return,
        };
        if next == Keyword::Reference
            && let Some(moved) = moved_reference(&text)
        {
            let quoted = RawJson::string(&moved);
            self.edits.push((
                span.clone(),
                String::from_utf8_lossy(quoted.bytes()).into_owned(),
            ));
        }
        let Some(level) = self.levels.last_mut() else {
            return;
        };
        // An `$id` of a fragment is the anchor of older dialects.
        level.has_base |= next == Keyword::Base && !text.starts_with('#');
        if next == Keyword::RecursiveReference && text == "#" && self.converts {
            level.recursive = Some(level.key.start..span.end);
        }
    }

    fn end_level(&mut self) {
        let Some(level) = self.levels.pop() else {
            return;
        };
        if level.has_base {
            // From here references start at this `$id`, wherever the schema is.
            self.edits.truncate(level.edits_before);
            return;
        }
        let Some(member) = level.recursive else {
            return;
        };
        if let Some(free) = level.holders.iter().position(|is_used| !is_used) {
            let value = match free {
                0 => format!("\"{MOVED_ROOT}\""),
                // One branch means the same under each of these keywords.
                _ => format!(r##"[{{"$ref":"{MOVED_ROOT}"}}]"##),
            };
            self.edits
                .push((member, format!("\"{}\":{value}", HOLDERS[free])));
        }
    }

    /// Returns the schema with all edits. `None` without any.
    fn spliced(mut self) -> Option<RawJson> {
        if self.edits.is_empty() {
            return None;
        }
        // Edits of an object come after those within it.
        self.edits.sort_by_key(|(span, _)| span.start);
        let mut out =
            BytesMut::with_capacity(self.text.len() + self.edits.len() * MOVED_ROOT.len());
        let mut copied = 0;
        for (span, text) in &self.edits {
            out.put_slice(&self.text[copied..span.start]);
            out.put_slice(text.as_bytes());
            copied = span.end;
        }
        out.put_slice(&self.text[copied..]);
        RawJson::parse(out.freeze()).ok()
    }
}

/// Returns a string of the text.
fn decoded<'a>(text: &'a [u8], span: &Range<usize>) -> Cow<'a, str> {
    let inner = &text[span.start + 1..span.end - 1];
    match std::str::from_utf8(inner) {
        Ok(plain) if !plain.contains('\\') => Cow::Borrowed(plain),
        _ => serde_json::from_slice(&text[span.clone()]).map_or_else(|_| "".into(), Cow::Owned),
    }
}

/// Returns a reference that started from the root as it is from the wrapper. `None` for all others:
/// to another document, and to an anchor, which is found wherever it is.
fn moved_reference(reference: &str) -> Option<String> {
    let pointer = match reference {
        // Without a fragment, a reference to the same document.
        "" => "",
        _ => reference.strip_prefix('#')?,
    };
    // RFC 6901, section 6: a fragment may have its slash in the percent-encoded form.
    let is_pointer = pointer.is_empty()
        || pointer.starts_with('/')
        || pointer.to_ascii_lowercase().starts_with("%2f");
    is_pointer.then(|| format!("{MOVED_ROOT}{pointer}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(schema: &str) -> Option<String> {
        let schema = RawJson::parse(bytes::Bytes::copy_from_slice(schema.as_bytes())).unwrap();
        wrap_schema(&schema).map(|wrapped| String::from_utf8(wrapped.bytes().to_vec()).unwrap())
    }

    /// Returns what is under `result`.
    fn inner(schema: &str) -> String {
        let wrapped = wrapped(schema).unwrap();
        let from = wrapped.find(r#"{"result":"#).unwrap() + r#"{"result":"#.len();
        let to = wrapped.rfind(r#"},"required":["result"]}"#).unwrap();
        wrapped[from..to].to_owned()
    }

    fn enveloped(inner: &str) -> String {
        format!(r#"{{"type":"object","properties":{{"result":{inner}}},"required":["result"]}}"#)
    }

    #[test]
    fn the_form_is_that_of_the_official_sdk() {
        for schema in [
            r#"{"type":"array","items":{"type": "number"} }"#,
            r#"{"type":"string"}"#,
            r#"{"anyOf":[{"type":"object"},{"type":"null"}]}"#,
            r#"{"oneOf":[ ]}"#,
            r#"{"allOf":[{"type":"object"}]}"#,
            r#"{"type":["object","null"]}"#,
            r#"{"type":["object"]}"#,
            r#"{"properties":{"a":{}}}"#,
            r#"{"x":1.0e2}"#,
            "{}",
        ] {
            assert_eq!(wrapped(schema), Some(enveloped(schema)));
        }
        assert_eq!(wrapped("true"), Some(enveloped("{}")));
        assert_eq!(wrapped("false"), Some(enveloped(r#"{"not":{}}"#)));
        let with_dialect =
            r#"{"type":"array","$schema":"http://json-schema.org/draft-07/schema#"}"#;
        let expected = enveloped(with_dialect).replacen(
            '{',
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","#,
            1,
        );
        assert_eq!(wrapped(with_dialect), Some(expected));
        for held in [
            r#"{"type":"object","oneOf":[{}]}"#,
            r#"{"typ\u0065":"\u006fbject"}"#,
            "null",
            "[]",
            "7",
            r#""x""#,
        ] {
            assert_eq!(wrapped(held), None, "{held}");
        }
    }

    #[test]
    fn references_lead_to_the_same_places() {
        for (schema, expected) in [
            (
                r##"{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#"}}}"##,
                r##"{"$ref":"#/properties/result/$defs/a","$defs":{"a":{"$ref":"#/properties/result"}}}"##,
            ),
            (
                r##"{"items":{"$dynamicRef":"#/items"}}"##,
                r##"{"items":{"$dynamicRef":"#/properties/result/items"}}"##,
            ),
            (
                r##"{"anyOf":[{"$ref":""},{"$ref":"#%2Fx"}]}"##,
                r##"{"anyOf":[{"$ref":"#/properties/result"},{"$ref":"#/properties/result%2Fx"}]}"##,
            ),
            // Keys and references may have escapes.
            (
                r##"{"items":{"\u0024ref":"\u0023\/a~1\"b"}}"##,
                r##"{"items":{"\u0024ref":"#/properties/result/a~1\"b"}}"##,
            ),
            // Names that look like keywords.
            (
                r##"{"properties":{"$ref":{"$ref":"#"},"const":{"$ref":"#"}}}"##,
                r##"{"properties":{"$ref":{"$ref":"#/properties/result"},"const":{"$ref":"#/properties/result"}}}"##,
            ),
            (
                r##"{"properties":{"$id":{"$ref":"#"}}}"##,
                r##"{"properties":{"$id":{"$ref":"#/properties/result"}}}"##,
            ),
            (
                r##"{"dependencies":{"a":["$ref"],"b":{"$ref":"#/x"}}}"##,
                r##"{"dependencies":{"a":["$ref"],"b":{"$ref":"#/properties/result/x"}}}"##,
            ),
            // A fragment as `$id` is an anchor.
            (
                r##"{"items":{"$id":"#i","$ref":"#/x"}}"##,
                r##"{"items":{"$id":"#i","$ref":"#/properties/result/x"}}"##,
            ),
        ] {
            assert_eq!(inner(schema), expected);
        }
    }

    #[test]
    fn all_else_keeps_its_bytes() {
        for schema in [
            r##"{ "const" : {"$ref":"#"} , "enum":[{"$ref":"#/a"}], "default":{"x":[{"$ref":"#"}]},"examples":["#"] }"##,
            r##"{"$ref":"other.json#/a"}"##,
            r##"{"$ref":"#anchor","$defs":{"a":{"$anchor":"anchor"}}}"##,
            r##"{"$id":"https://x/y","$ref":"#/a","a":{"$ref":"#"}}"##,
            r##"{"$ref":"x#","items":{"$ref":"y#/a","$id":"https://x"}}"##,
            r##"{"items":{"a":{"$ref":"#/b"},"$id":"other"}}"##,
            r##"{"$recursiveRef":"#"}"##,
        ] {
            assert_eq!(inner(schema), schema);
        }
    }

    /// Returns a schema of the draft 2019-09 with these members.
    fn of_2019(members: &str) -> String {
        format!(r#"{{"$schema":"https://json-schema.org/draft/2019-09/schema",{members}}}"#)
    }

    #[test]
    fn recursion_of_2019_finds_the_schema() {
        for (rest, expected) in [
            (
                r##""items":{"$recursiveRef":"#"}"##,
                r##""items":{"$ref":"#/properties/result"}"##,
            ),
            (
                r##""items":{"$ref":"#/a", "$recursiveRef" : "#"}"##,
                r##""items":{"$ref":"#/properties/result/a", "allOf":[{"$ref":"#/properties/result"}]}"##,
            ),
            (
                r##""items":{"$recursiveRef":"#","allOf":[],"$ref":"x"}"##,
                r##""items":{"anyOf":[{"$ref":"#/properties/result"}],"allOf":[],"$ref":"x"}"##,
            ),
            (
                r##""$recursiveAnchor":true,"items":{"$recursiveRef":"#"}"##,
                r##""$recursiveAnchor":true,"items":{"$recursiveRef":"#"}"##,
            ),
        ] {
            assert_eq!(inner(&of_2019(rest)), of_2019(expected));
        }
    }

    #[test]
    fn a_schema_of_a_thousand_levels_is_wrapped() {
        let deep = r#"{"items":"#.repeat(1000) + r##"{"$ref":"#"}"## + &"}".repeat(1000);
        assert_eq!(
            inner(&deep),
            deep.replace("\"#\"", "\"#/properties/result\"")
        );
    }
}
