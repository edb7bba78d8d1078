//! Headers that mirror the body: written for servers, checked for clients
//! (basic/transports/streamable-http.mdx, Request Metadata).
//!
//! Owns the encoding of header values and the annotations of tools. Pure functions without state.
//! Invariant: a header that differs from the body is an error, never a source of truth.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem::Finder;

use crate::era::VERSION_HEADER;
use crate::v2026_07_28::REVISION;
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::{Error, McpErrorKind};
use moongate_transport::HeaderList;

/// Header of the revision.
/// Header of the method.
pub(super) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// Header of the tool, prompt or resource.
pub(super) const ITEM: HeaderName = HeaderName::from_static("mcp-name");
/// Prefix of the header of a mirrored argument.
const PARAM: &str = "mcp-param-";
/// Annotation in an input schema.
const ANNOTATION: &str = "x-mcp-header";

/// Search for it, prepared once: it runs for each call.
static ANNOTATION_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(ANNOTATION));
/// Limit of the depth of annotated properties. Schemas are hostile input.
const DEPTH_MAX: usize = 16;
/// Largest mirrored integer: "Integer values MUST be within the safe range for JavaScript."
const SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// Argument that is mirrored in a header.
#[derive(Debug, PartialEq)]
struct MirroredArgument {
    header: HeaderName,
    path: Vec<String>,
    /// True for integers: "When validating integer parameter values, servers SHOULD compare [...]
    /// numerically".
    integer: bool,
}

/// Encodes a header value: as it is if that is safe, otherwise in Base64 between the markers.
pub(super) fn encode(value: &str) -> Option<HeaderValue> {
    let plain = value.bytes().all(|b| matches!(b, 0x20..=0x7E | b'\t'))
        && value.trim_matches([' ', '\t']) == value
        // 2026-07-28/basic/transports/streamable-http.mdx: "To avoid ambiguity, clients MUST also
        // Base64-encode any plain-ASCII value that matches the sentinel pattern".
        && !(value.starts_with("=?base64?") && value.ends_with("?="));
    if plain {
        return HeaderValue::from_str(value).ok();
    }
    HeaderValue::from_str(&format!("=?base64?{}?=", STANDARD.encode(value))).ok()
}

/// Decodes a header value. `None` if it contains forbidden characters.
pub(super) fn decode(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    // 2026-07-28/basic/transports/streamable-http.mdx: "These markers are case-sensitive and MUST
    // appear exactly as shown (lowercase)."
    match text
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="))
    {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
        None => Some(text.to_owned()),
    }
}

/// Writes the headers of a request to a server.
pub(super) fn write_headers(
    method: &str,
    target: Option<&str>,
    definition: Option<&JsonObject>,
    arguments: Option<&RawJson>,
) -> HeaderList {
    let mut headers: HeaderList = Vec::with_capacity(4);
    headers.push((VERSION_HEADER, HeaderValue::from_static(REVISION)));
    headers.extend(
        HeaderValue::from_str(method)
            .ok()
            .map(|value| (METHOD, value)),
    );
    headers.extend(target.and_then(encode).map(|value| (ITEM, value)));
    if let Some(definition) = definition.filter(|d| is_annotated(d)) {
        for mirrored in mirrored(definition).unwrap_or_default() {
            // 2026-07-28/basic/transports/streamable-http.mdx, for a `null` and for a missing
            // argument: "Client MUST omit the header".
            let value = arguments
                .and_then(|a| at_path(a, &mirrored.path).ok()?)
                .and_then(|v| text_of(&v));
            headers.extend(
                value
                    .as_deref()
                    .and_then(encode)
                    .map(|value| (mirrored.header, value)),
            );
        }
    }
    headers
}

/// Checks the standard headers of a client's request.
pub(super) fn check_headers(
    headers: &HeaderMap,
    method: &str,
    target: Option<&str>,
) -> Result<(), Error> {
    check_header(headers, &METHOD, "Mcp-Method", method, false)?;
    match target {
        Some(target) => check_header(headers, &ITEM, "Mcp-Name", target, false),
        None => Ok(()),
    }
}

/// Checks the mirrored arguments of a client's request against the tool's definition.
pub(super) fn check_params(
    headers: &HeaderMap,
    definition: &JsonObject,
    arguments: Option<&RawJson>,
) -> Result<(), Error> {
    if !is_annotated(definition) {
        return Ok(());
    }
    for mirrored in mirrored(definition).unwrap_or_default() {
        let label = mirrored.header.as_str();
        let value = match arguments {
            Some(arguments) => at_path(arguments, &mirrored.path).map_err(|()| {
                mismatch(format!(
                    "the arguments that {label} mirrors cannot be read, or have duplicate keys"
                ))
            })?,
            None => None,
        };
        // A null argument counts as a missing one.
        let value = value.filter(|v| !v.is_null());
        match (
            value.as_ref().map(text_of),
            headers.contains_key(&mirrored.header),
        ) {
            (None | Some(None), false) => {}
            (None | Some(None), true) => {
                return Err(mismatch(format!(
                    "{label} is present, but the argument is missing"
                )));
            }
            (Some(Some(value)), _) => {
                check_header(headers, &mirrored.header, label, &value, mirrored.integer)?
            }
        }
    }
    Ok(())
}

/// Returns the reason to leave a tool with wrong annotations out of lists for HTTP. `None` if the
/// tool is fine.
pub(crate) fn annotation_problem(definition: &JsonObject) -> Option<String> {
    if is_annotated(definition) {
        mirrored(definition).err()
    } else {
        None
    }
}

fn check_header(
    headers: &HeaderMap,
    name: &HeaderName,
    label: &str,
    body: &str,
    integer: bool,
) -> Result<(), Error> {
    let mut values = headers.get_all(name).iter();
    // A repeated header is ambiguous: a proxy may read another value than the gateway.
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(mismatch(format!(
            "the required header {label} is missing or repeated"
        )));
    };
    let decoded = decode(value)
        .ok_or_else(|| mismatch(format!("{label} contains characters that are not allowed")))?;
    // 2026-07-28/basic/transports/streamable-http.mdx, Server Validation: "This prevents potential
    // security vulnerabilities when different components in the network rely on different sources
    // of truth".
    let same = decoded == body || (integer && same_number(&decoded, body));
    if same {
        Ok(())
    } else {
        Err(mismatch(format!(
            "{label} header value {decoded:?} does not match the body's value"
        )))
    }
}

/// Compares two numbers: `42.0` and `42` are the same integer.
fn same_number(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a == b && a.is_finite(),
        _ => false,
    }
}

fn mismatch(what: String) -> Error {
    Error::new(
        McpErrorKind::HeaderMismatch,
        format!("Header mismatch: {what}"),
    )
}

/// True if the schema may contain annotations. A search of bytes, which spares most tools the
/// parsing.
fn is_annotated(definition: &JsonObject) -> bool {
    definition
        .get("inputSchema")
        .is_some_and(|schema| ANNOTATION_FINDER.find(schema.bytes()).is_some())
}

/// Collects the mirrored arguments. Fails with the problem of an annotation.
fn mirrored(definition: &JsonObject) -> Result<Vec<MirroredArgument>, String> {
    let schema: serde_json::Value = definition
        .get("inputSchema")
        .and_then(|s| s.parse_as().ok())
        .ok_or("the input schema cannot be read")?;
    let mut found = Vec::new();
    walk(&schema, &mut Vec::new(), &mut found)?;
    // An annotation that the walk did not reach is in a position where it is not allowed.
    if found.len() != count(&schema, 0) {
        return Err(format!(
            "{ANNOTATION} is where it cannot be reached through properties alone"
        ));
    }
    for (n, one) in found.iter().enumerate() {
        // "MUST be case-insensitively unique among all `x-mcp-header` values": the names are in
        // lower case here.
        if found[..n].iter().any(|other| other.header == one.header) {
            return Err(format!(
                "{ANNOTATION} {:?} is used twice",
                one.header.as_str()
            ));
        }
    }
    Ok(found)
}

fn walk(
    schema: &serde_json::Value,
    path: &mut Vec<String>,
    found: &mut Vec<MirroredArgument>,
) -> Result<(), String> {
    let Some(properties) = schema.get("properties").and_then(|p| p.as_object()) else {
        return Ok(());
    };
    if path.len() >= DEPTH_MAX {
        return Ok(());
    }
    for (name, property) in properties {
        path.push(name.clone());
        if let Some(annotation) = property.get(ANNOTATION) {
            let name = annotation
                .as_str()
                .filter(|n| !n.is_empty())
                .ok_or(format!("{ANNOTATION} must be a name"))?;
            let primitive = matches!(
                property.get("type").and_then(|t| t.as_str()),
                Some("string" | "integer" | "boolean")
            );
            if !primitive {
                return Err(format!(
                    "{ANNOTATION} {name:?} is on a property that is not a string, integer or \
                     boolean"
                ));
            }
            let header =
                HeaderName::from_bytes(format!("{PARAM}{name}").to_ascii_lowercase().as_bytes());
            let header =
                header.map_err(|_| format!("{ANNOTATION} {name:?} is not a valid header name"))?;
            let integer = property.get("type").and_then(|t| t.as_str()) == Some("integer");
            found.push(MirroredArgument {
                header,
                path: path.clone(),
                integer,
            });
        }
        walk(property, path, found)?;
        path.pop();
    }
    Ok(())
}

/// Counts the annotation as a keyword, anywhere but as the name of a property.
fn count(value: &serde_json::Value, depth: usize) -> usize {
    match value {
        // Deeper schemas cannot occur: 128 is the parser's own limit.
        _ if depth > 128 => 0,
        serde_json::Value::Array(items) => items.iter().map(|item| count(item, depth + 1)).sum(),
        serde_json::Value::Object(members) => {
            let own_count = usize::from(members.contains_key(ANNOTATION));
            let below = members
                .iter()
                .map(|(key, value)| match (key.as_str(), value) {
                    ("properties", serde_json::Value::Object(named)) => {
                        named.values().map(|v| count(v, depth + 2)).sum()
                    }
                    // These keywords hold data, not schemas.
                    ("default" | "const" | "enum" | "examples", _) => 0,
                    _ => count(value, depth + 1),
                });
            own_count + below.sum::<usize>()
        }
        _ => 0,
    }
}

/// Returns the value at a path of properties.
///
/// Fails if an object on the path is ambiguous, since the server could read another value than the
/// gateway.
fn at_path(arguments: &RawJson, path: &[String]) -> Result<Option<RawJson>, ()> {
    let mut value = arguments.clone();
    for step in path {
        if !value.is_object() {
            return Ok(None);
        }
        match value.as_object().ok_or(())?.get(step) {
            Some(next) => value = next.clone(),
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

/// Returns the text of a primitive. `None` for anything else, `null` included.
fn text_of(value: &RawJson) -> Option<String> {
    match value.parse_as::<serde_json::Value>().ok()? {
        serde_json::Value::String(text) => Some(text),
        serde_json::Value::Bool(flag) => Some(flag.to_string()),
        serde_json::Value::Number(number) => {
            let value = number.as_f64()?;
            let whole = value.fract() == 0.0 && value.abs() <= SAFE_INTEGER;
            Some(if whole {
                format!("{value:.0}")
            } else {
                number.to_string()
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn encoding_is_as_the_specification_lists_it() {
        let table = [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ];
        for (value, header) in table {
            let encoded = encode(value).unwrap();
            assert_eq!(encoded, header);
            assert_eq!(decode(&encoded).as_deref(), Some(value));
        }
    }

    fn tool(schema: &str) -> JsonObject {
        JsonObject::parse(Bytes::from(format!(
            r#"{{"name":"t","inputSchema":{schema}}}"#
        )))
        .unwrap()
    }

    #[test]
    fn annotations_are_mirrored_and_checked() {
        let tool = tool(
            r#"{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},
            "in":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}"#,
        );
        let arguments = RawJson::literal(r#"{"region":"us","in":{"n":42.0}}"#);
        let written = write_headers("tools/call", Some("t"), Some(&tool), Some(&arguments));
        let headers: HeaderMap = written.into_iter().collect();
        assert_eq!(headers["mcp-param-region"], "us");
        assert_eq!(headers["mcp-param-n"], "42");
        assert!(check_params(&headers, &tool, Some(&arguments)).is_ok());
        let other = RawJson::literal(r#"{"region":"eu","in":{"n":42}}"#);
        assert!(check_params(&headers, &tool, Some(&other)).is_err());
        assert!(
            check_params(
                &headers,
                &tool,
                Some(&RawJson::literal(r#"{"region":"us"}"#))
            )
            .is_err()
        );
        assert!(check_params(&HeaderMap::new(), &tool, Some(&arguments)).is_err());
        let twice = RawJson::literal(r#"{"region":"eu","region":"us"}"#);
        assert!(check_params(&HeaderMap::new(), &tool, Some(&twice)).is_err());
        assert!(
            check_params(
                &HeaderMap::new(),
                &tool,
                Some(&RawJson::literal(r#"{"region":null}"#))
            )
            .is_ok()
        );
    }

    #[test]
    fn wrong_annotations_are_found() {
        let wrong = [
            r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
            r#"{"properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}"#,
            r#"{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}"#,
        ];
        for schema in wrong {
            assert!(annotation_problem(&tool(schema)).is_some(), "{schema}");
        }
        let right =
            r#"{"properties":{"x-mcp-header":{"type":"string","default":{"x-mcp-header":"A"}}}}"#;
        assert_eq!(annotation_problem(&tool(right)), None);
    }
}
