//! Arguments of a call as people type them: JSON, or pairs. Owns their parsing.
//!
//! Does not read schemas (`moongate_form::schema`). Invariant: JSON is sent byte for byte as it was
//! typed. A number in a pair keeps its digits.

use bytes::Bytes;

use moongate_form::schema;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

use super::output::VerbFailure;
use crate::cli::text_input::read_stdin;

/// Arguments of a call, before the tool's schema is known.
#[derive(Debug, PartialEq)]
pub(super) enum CallArguments {
    /// No arguments.
    Nothing,
    /// JSON object.
    Json(JsonObject),
    /// Pairs `KEY=VALUE` and `KEY:=JSON`.
    Pairs(Vec<(ByteString, PairValue)>),
}

/// Value of a pair.
#[derive(Debug, PartialEq)]
pub(super) enum PairValue {
    /// Text, whose type the schema decides.
    Typed(String),
    /// JSON value.
    Json(RawJson),
}

impl CallArguments {
    /// Parses the arguments. `-` reads stdin to its end.
    pub(super) fn read(arguments: &[String]) -> Result<Self, VerbFailure> {
        match arguments {
            [] => Ok(CallArguments::Nothing),
            [dash] if dash == "-" => {
                let text = read_stdin().map_err(|error| {
                    VerbFailure::Usage(format!("the arguments cannot be read: {error:#}"))
                })?;
                json(&text, "stdin").map(CallArguments::Json)
            }
            // One argument that isn't a pair can only be JSON, so its error is about JSON.
            [text] if !is_pair(text) => json(text, "the argument").map(CallArguments::Json),
            pairs => {
                let mut out: Vec<(ByteString, PairValue)> = Vec::new();
                for text in pairs {
                    let (key, value) = pair(text)?;
                    // A repeated key could mean a list or a correction, so it is refused.
                    if out.iter().any(|(other, _)| *other == key) {
                        let hint = "write a list as KEY:='[…]'";
                        return Err(VerbFailure::Usage(format!(
                            "the argument {key:?} is given twice; {hint}"
                        )));
                    }
                    out.push((key, value));
                }
                Ok(CallArguments::Pairs(out))
            }
        }
    }

    /// Returns the arguments with the types of the schema, or as strings without one. `None` if
    /// there are none.
    pub(super) fn typed(
        self,
        schema: Option<&JsonObject>,
    ) -> Result<Option<JsonObject>, VerbFailure> {
        let pairs = match self {
            CallArguments::Nothing => return Ok(None),
            CallArguments::Json(object) => return Ok(Some(object)),
            CallArguments::Pairs(pairs) => pairs,
        };
        let mut object = JsonObject::new();
        for (key, value) in pairs {
            let value = match value {
                PairValue::Json(raw) => raw,
                PairValue::Typed(text) => {
                    let types = schema
                        .map(|schema| schema::types_of(schema, &key))
                        .unwrap_or_default();
                    typed(&text, &types).ok_or_else(|| {
                        let wanted = types.join(" or ");
                        VerbFailure::Usage(format!(
                            "the argument {key:?} must be of type {wanted}, but {text:?} is not"
                        ))
                    })?
                }
            };
            object.set(key, value);
        }
        Ok(Some(object))
    }
}

/// True if the text starts with a key, and not like JSON.
fn is_pair(text: &str) -> bool {
    !text.trim_start().starts_with(['{', '[', '"']) && text.contains('=')
}

fn pair(text: &str) -> Result<(ByteString, PairValue), VerbFailure> {
    // The first `=` splits: values such as URLs and base64 have more of them.
    let Some((key, value)) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty() && *key != ":")
    else {
        return Err(VerbFailure::Usage(format!(
            "{text:?} is not KEY=VALUE; arguments are one JSON object or such pairs"
        )));
    };
    // `:=` is split at its `=`, so the key ends with the colon.
    match key.strip_suffix(':') {
        Some(key) => {
            let raw = RawJson::parse(Bytes::copy_from_slice(value.as_bytes()));
            let raw = raw.map_err(|e| {
                VerbFailure::Usage(format!("the argument {key:?} is not JSON: {e}"))
            })?;
            Ok((key.into(), PairValue::Json(raw)))
        }
        None => Ok((key.into(), PairValue::Typed(value.to_owned()))),
    }
}

fn json(text: &str, source: &str) -> Result<JsonObject, VerbFailure> {
    let bytes = Bytes::copy_from_slice(text.trim().as_bytes());
    let raw = RawJson::parse(bytes.clone());
    let raw = raw.map_err(|e| {
        VerbFailure::Usage(format!(
            "{source} is not JSON: {e}; write '{{\"a\": 1}}' or a=1"
        ))
    })?;
    if !raw.is_object() {
        return Err(VerbFailure::Usage(format!(
            "{source} is JSON, but not an object; write '{{\"a\": 1}}' or a=1"
        )));
    }
    JsonObject::parse(bytes)
        .map_err(|e| VerbFailure::Usage(format!("{source} cannot be used: {e}")))
}

/// Returns a value in one of the types. A string wherever the types allow it.
fn typed(text: &str, types: &[String]) -> Option<RawJson> {
    // A postcode or a version that looks like a number must not become one.
    if types.is_empty() || types.iter().any(|name| name == "string") {
        return Some(RawJson::string(text));
    }
    // The parsed bytes are kept as they are: numbers keep all their digits.
    let raw = RawJson::parse(Bytes::copy_from_slice(text.trim().as_bytes())).ok()?;
    types
        .iter()
        .any(|name| schema::is_a(&raw, name))
        .then_some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r##"{"type":"object","properties":{"s":{"type":"string"},"n":{"type":"number"},
        "i":{"type":"integer"},"b":{"type":"boolean"},"o":{"type":"object"},"a":{"type":"array"},
        "maybe":{"anyOf":[{"type":"integer"},{"type":"null"}]},"either":{"type":["integer","string"]},
        "ref":{"$ref":"#/$defs/Count"},"loop":{"$ref":"#/$defs/Loop"}},
        "$defs":{"Count":{"type":"integer"},"Loop":{"$ref":"#/$defs/Loop"}}}"##;

    fn typed(arguments: &[&str]) -> Result<String, String> {
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        let schema = JsonObject::parse(Bytes::from_static(SCHEMA.as_bytes())).unwrap();
        let object = CallArguments::read(&arguments).and_then(|given| given.typed(Some(&schema)));
        match object {
            Ok(object) => Ok(object
                .map(|o| String::from_utf8(o.bytes().to_vec()).unwrap())
                .unwrap_or_default()),
            Err(VerbFailure::Usage(message)) => Err(message),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn pairs_mean_what_the_schema_says() {
        for (pair, json) in [
            ("s=5", r#"{"s":"5"}"#),
            ("s=", r#"{"s":""}"#),
            ("s=a=b", r#"{"s":"a=b"}"#),
            ("n=1.50e3", r#"{"n":1.50e3}"#),
            ("n=-0", r#"{"n":-0}"#),
            (
                "i=123456789012345678901234567890",
                r#"{"i":123456789012345678901234567890}"#,
            ),
            ("b=true", r#"{"b":true}"#),
            (r#"o={"x": 1.0}"#, r#"{"o":{"x": 1.0}}"#),
            ("a=[1, 2]", r#"{"a":[1, 2]}"#),
            ("maybe=null", r#"{"maybe":null}"#),
            ("maybe=3", r#"{"maybe":3}"#),
            ("either=3", r#"{"either":"3"}"#),
            ("either:=3", r#"{"either":3}"#),
            ("ref=3", r#"{"ref":3}"#),
            ("loop=x", r#"{"loop":"x"}"#),
            ("unknown=1", r#"{"unknown":"1"}"#),
        ] {
            assert_eq!(typed(&[pair]).as_deref(), Ok(json), "{pair}");
        }
        assert_eq!(typed(&["s=a", "n=1"]).as_deref(), Ok(r#"{"s":"a","n":1}"#));
        for wrong in [
            "n=x", "i=1.5", "i=", "b=1", "b=yes", "o=[]", "maybe=x", "ref=1.5", "=x", ":=1", "s:=x",
        ] {
            assert!(typed(&[wrong]).is_err(), "{wrong}");
        }
        assert!(typed(&["s=a", "s=b"]).unwrap_err().contains("twice"));
        assert!(typed(&["s=a", "b"]).unwrap_err().contains("KEY=VALUE"));
    }

    #[test]
    fn json_stays_as_it_was_typed() {
        let odd = r#"{"z":1.0, "a":1e5,"e":"\u00e9=","deep":{"a":1,"a":2}}"#;
        assert_eq!(typed(&[odd]).as_deref(), Ok(odd));
        assert_eq!(typed(&[]).as_deref(), Ok(""));
        for wrong in ["{", "[1]", "5", "\"a=b\"", "", "{} {}", r#"{"a":1,"a":2}"#] {
            assert!(typed(&[wrong]).is_err(), "{wrong}");
        }
    }
}
