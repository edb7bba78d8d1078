//! Words of a server in the body of an HTTP error, for people.
//!
//! Owns where they are: in a JSON error, or as plain text. Does not decide what the status means
//! (`status_error.rs`). Invariant: they are one short line without credentials, and never a web
//! page.

use std::borrow::Cow;

use http::HeaderMap;
use moongate_telemetry::logs;

use crate::media_type::media_type;

/// Limit of the characters that are shown.
const WORDS_MAX: usize = 300;
/// Members in which frameworks put their words.
const MEMBERS: [&str; 10] = [
    "message",
    "detail",
    "error_description",
    "title",
    "error",
    "reason",
    "msg",
    "errors",
    "description",
    "details",
];
/// Nesting in which they are looked for: `{"errors": [{"message": ...}]}`.
const DEPTH_MAX: usize = 4;

/// Returns the words, if there are any.
pub(super) fn error_words(headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let kind = media_type(headers).unwrap_or_default();
    let text = match std::str::from_utf8(body) {
        Ok(text) => Cow::Borrowed(text),
        // In another encoding most letters are the same.
        Err(_) if *kind == *"text/plain" => String::from_utf8_lossy(body),
        Err(_) => return None,
    };
    let text = text.trim_start_matches('\u{feff}').trim();
    let is_json = text.starts_with(['{', '[', '"']);
    let words = match is_json.then(|| serde_json::from_str(text)) {
        Some(Ok(json)) => in_json(&json, DEPTH_MAX)? + &supported_list(&json),
        _ if (kind.is_empty() || *kind == *"text/plain") && !text.starts_with('<') => {
            text.to_owned()
        }
        _ => return None,
    };
    let line: String = logs::one_line(&words)
        .trim()
        .chars()
        .take(WORDS_MAX)
        .collect();
    // A server may quote what it was sent.
    (!line.is_empty()).then(|| logs::redact(&line))
}

fn in_json(json: &serde_json::Value, depth: usize) -> Option<String> {
    match json {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Object(members) if depth > 0 => MEMBERS
            .iter()
            .find_map(|name| in_json(members.get(*name)?, depth - 1)),
        // The first of several says enough for a reason.
        serde_json::Value::Array(items) if depth > 0 => in_json(items.first()?, depth - 1),
        _ => None,
    }
}

/// Returns what the error says to be supported, as servers do that refuse a revision.
fn supported_list(json: &serde_json::Value) -> String {
    let supported = ["/error/data/supported", "/data/supported", "/supported"]
        .into_iter()
        .find_map(|at| json.pointer(at));
    let names: Vec<&str> = supported
        .and_then(serde_json::Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str())
        .collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" (supported: {})", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::CONTENT_TYPE;

    fn words_of(kind: &'static str, body: &str) -> Option<String> {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, http::HeaderValue::from_static(kind))]);
        error_words(&headers, body.as_bytes())
    }

    #[test]
    fn words_are_found_in_json_and_in_plain_text_and_pages_are_left_out() {
        let rpc = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: (supported versions: 2025-06-18)"}}"#;
        assert_eq!(
            words_of("application/json", rpc).unwrap(),
            "Bad Request: (supported versions: 2025-06-18)"
        );
        assert_eq!(
            words_of("application/json", r#"{"detail":"no such\nthing"}"#).unwrap(),
            "no such thing"
        );
        assert_eq!(
            words_of("application/json", r#"{"error":"invalid_token"}"#).unwrap(),
            "invalid_token"
        );
        let listed = r#"{"detail":[{"loc":["body"],"msg":"Field required","type":"missing"}]}"#;
        assert_eq!(
            words_of("application/json", listed).unwrap(),
            "Field required"
        );
        assert_eq!(
            words_of(
                "application/json",
                r#"{"errors":[{"message":"suspended"}]}"#
            )
            .unwrap(),
            "suspended"
        );
        assert_eq!(
            words_of("application/json", r#""suspended""#).unwrap(),
            "suspended"
        );
        assert_eq!(words_of("application/json", r#"[[[[["deep"]]]]]"#), None);
        assert_eq!(
            words_of("text/plain; charset=utf-8", " no \n").unwrap(),
            "no"
        );
        assert_eq!(
            words_of("text/plain", "[error] suspended").unwrap(),
            "[error] suspended"
        );
        assert_eq!(words_of("text/html", "<html>no</html>"), None);
        assert_eq!(words_of("text/plain", "<!doctype html>"), None);
        assert_eq!(words_of("application/json", r#"{"status":7}"#), None);
        assert_eq!(
            words_of("text/plain", &"x".repeat(900)).unwrap().len(),
            WORDS_MAX
        );
        assert_eq!(error_words(&HeaderMap::new(), b"\xff"), None);
        let plain =
            HeaderMap::from_iter([(CONTENT_TYPE, http::HeaderValue::from_static("text/plain"))]);
        assert_eq!(error_words(&plain, b"expir\xe9").unwrap(), "expir\u{fffd}");
    }
}
