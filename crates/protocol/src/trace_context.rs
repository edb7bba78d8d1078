//! Trace context of a client's HTTP request.
//!
//! Owns the copying of headers into `_meta` keys. Does not read or make spans. Invariant: a
//! client's own `_meta` is never changed or mixed with its headers.
//!
//! 2026-07-28/basic/index.mdx: "the keys `traceparent`, `tracestate`, and `baggage` are reserved
//! for [...] trace context propagation", with values as in W3C Trace Context and W3C Baggage.

use http::{HeaderMap, HeaderName};

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

const TRACEPARENT: &str = "traceparent";
/// Header of this name. A text would be parsed for every call.
static PARENT_HEADER: HeaderName = HeaderName::from_static(TRACEPARENT);
/// Headers that belong to a parent.
const COMPANIONS: [&str; 2] = ["tracestate", "baggage"];
/// Limit in bytes of a copied value: W3C Baggage lets platforms stop there.
const VALUE_MAX: usize = 8192;

/// Copies the context from the headers into `_meta`, unless that has one already.
pub(super) fn copy_headers(meta: &mut JsonObject, headers: &HeaderMap) {
    let Some(parent) = headers
        .get(&PARENT_HEADER)
        .and_then(|value| value.to_str().ok())
    else {
        return;
    };
    // W3C Trace Context: an invalid or repeated `traceparent` voids the whole context.
    if !is_parent(parent)
        || headers.get_all(&PARENT_HEADER).iter().nth(1).is_some()
        || meta.get(TRACEPARENT).is_some()
    {
        return;
    }
    meta.set(ByteString::literal(TRACEPARENT), RawJson::string(parent));
    for name in COMPANIONS {
        // "Multiple tracestate header fields MUST be handled as specified by RFC7230 Section 3.2.2"
        // (W3C Trace Context).
        let values: Option<Vec<&str>> = headers
            .get_all(name)
            .iter()
            .map(|value| value.to_str().ok())
            .collect();
        let value = values.unwrap_or_default().join(",");
        if !value.is_empty() && value.len() <= VALUE_MAX && meta.get(name).is_none() {
            meta.set(ByteString::literal(name), RawJson::string(&value));
        }
    }
}

/// True for a parent by W3C Trace Context, section 3.2.2: version, trace, parent and flags, in
/// lower-case hex.
fn is_parent(value: &str) -> bool {
    let mut parts = value.split('-');
    let (Some(version), Some(trace), Some(parent), Some(_)) = (
        next_part(&mut parts, 2),
        next_part(&mut parts, 32),
        next_part(&mut parts, 16),
        next_part(&mut parts, 2),
    ) else {
        return false;
    };
    // Later versions may have further fields; version 00 has none.
    version != "ff"
        && has_nonzero(trace)
        && has_nonzero(parent)
        && (version != "00" || parts.next().is_none())
}

/// Returns the next part if it has this length and lower-case hexadecimal digits.
fn next_part<'a>(parts: &mut impl Iterator<Item = &'a str>, length: usize) -> Option<&'a str> {
    let part = parts.next().filter(|part| part.len() == length)?;
    part.bytes()
        .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        .then_some(part)
}

fn has_nonzero(part: &str) -> bool {
    part.bytes().any(|b| b != b'0')
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

    fn adopted(meta: &str, headers: &[(&'static str, &str)]) -> String {
        let mut meta = JsonObject::parse(meta.to_owned().into()).unwrap();
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            )
        });
        copy_headers(&mut meta, &headers.collect());
        String::from_utf8(meta.bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_context_is_taken_whole_where_meta_has_none() {
        let headers = [
            ("traceparent", GOOD),
            ("tracestate", "a=1"),
            ("baggage", "k=\"v\""),
        ];
        let all =
            format!(r#"{{"x":1,"traceparent":"{GOOD}","tracestate":"a=1","baggage":"k=\"v\""}}"#);
        assert_eq!(adopted(r#"{"x":1}"#, &headers), all);
        // A context in `_meta` is never mixed with one from headers.
        let own = r#"{"traceparent":"00-1-2-03"}"#;
        assert_eq!(adopted(own, &headers), own);
        let own = r#"{"baggage":"mine=1"}"#;
        assert_eq!(
            adopted(own, &headers[..2]),
            format!(r#"{{"baggage":"mine=1","traceparent":"{GOOD}","tracestate":"a=1"}}"#)
        );
        assert_eq!(
            adopted("{}", &headers[1..]),
            "{}",
            "without a parent there is nothing that it belongs to"
        );
    }

    #[test]
    fn an_invalid_traceparent_is_ignored() {
        let zeros = GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32));
        let long = format!("{GOOD}-more");
        for value in [
            "",
            "00-1-2-03",
            "ff-",
            &GOOD.to_uppercase(),
            &zeros,
            &long,
            &GOOD.replacen("00", "ff", 1),
        ] {
            assert_eq!(adopted("{}", &[("traceparent", value)]), "{}", "{value}");
        }
        assert!(adopted("{}", &[("traceparent", &GOOD.replacen("00", "01", 1))]).contains("01-"));
        assert!(adopted("{}", &[("traceparent", &long.replacen("00", "01", 1))]).contains("-more"));
        assert_eq!(
            adopted(
                "{}",
                &[
                    ("traceparent", GOOD),
                    ("tracestate", &"x".repeat(VALUE_MAX + 1))
                ]
            )
            .len(),
            GOOD.len() + 18
        );
    }
}
