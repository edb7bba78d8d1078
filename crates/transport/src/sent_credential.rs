//! Credential that a request carried, and its removal from the error that answers it.
//!
//! Owns which part of a header is secret, and the forms in which a server may quote it. Does not
//! look for credentials of others (`moongate_telemetry::logs::redact`). Invariant: only responses
//! that are errors are searched.

use bytes::Bytes;
use http::HeaderValue;

/// Replacement of a quoted credential.
const HIDDEN: &[u8] = b"[redacted]";
/// Shortest credential that is looked for. A shorter one may be a word of a sentence.
const LENGTH_MIN: usize = 8;

/// Value of `Authorization` that a request carried.
#[derive(Clone)]
pub(super) struct SentCredential(HeaderValue);

impl SentCredential {
    /// Keeps the header of a request.
    pub(super) fn new(header: HeaderValue) -> Self {
        SentCredential(header)
    }

    /// Returns the secret part: what follows the scheme, or the whole value without one.
    fn secret(&self) -> &[u8] {
        let value = self.0.as_bytes().trim_ascii();
        let space = value.iter().position(|byte| *byte == b' ');
        let behind = space.map(|space| value[space..].trim_ascii());
        // Several words are parameters, none of which is the secret alone.
        behind.filter(|rest| !rest.contains(&b' ')).unwrap_or(value)
    }

    /// Removes the credential from a text. `None`: it is not there.
    pub(super) fn hide(&self, text: &[u8]) -> Option<Vec<u8>> {
        let secret = self.secret();
        if secret.len() < LENGTH_MIN {
            return None;
        }
        let mut hidden = Vec::new();
        let mut done = 0;
        let mut at = 0;
        while at < text.len() {
            match quoted_length(&text[at..], secret) {
                Some(length) => {
                    hidden.extend_from_slice(&text[done..at]);
                    hidden.extend_from_slice(HIDDEN);
                    at += length;
                    done = at;
                }
                None => at += 1,
            }
        }
        (done > 0).then(|| {
            hidden.extend_from_slice(&text[done..]);
            hidden
        })
    }

    /// Removes the credential from a body.
    pub(super) fn hide_in_body(&self, body: Bytes) -> Bytes {
        self.hide(&body).map_or(body, Bytes::from)
    }
}

/// Returns the length of the secret at the start of a text, literally or with escapes.
fn quoted_length(text: &[u8], secret: &[u8]) -> Option<usize> {
    if text.starts_with(secret) {
        return Some(secret.len());
    }
    let mut length = 0;
    for byte in secret {
        let rest = text.get(length..)?;
        length += match escaped_length(rest, *byte) {
            Some(escaped) => escaped,
            None if rest.first() == Some(byte) => 1,
            None => return None,
        };
    }
    Some(length)
}

/// Returns the length of the escape for this byte at the start of a text: `%2B` of a URL, `\u002B`
/// or `\/` of JSON.
fn escaped_length(text: &[u8], byte: u8) -> Option<usize> {
    let (length, code) = match text {
        [b'%', high, low, ..] => (3, [*high, *low]),
        [b'\\', b'u', b'0', b'0', high, low, ..] => (6, [*high, *low]),
        [b'\\', plain, ..] => {
            return (*plain == byte && !plain.is_ascii_alphanumeric()).then_some(2);
        }
        _ => return None,
    };
    let code = std::str::from_utf8(&code).ok()?;
    (u8::from_str_radix(code, 16) == Ok(byte)).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(header: &'static str, text: &str) -> Option<String> {
        let sent = SentCredential::new(HeaderValue::from_static(header));
        let hidden = sent.hide(text.as_bytes());
        hidden.map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_credential_is_hidden_in_each_form_that_a_server_quotes() {
        for text in [
            "no right for a+b/c-d_e=",
            "no right for a%2Bb%2fc-d_e%3D",
            r"no right for a+b\/c-d_e=",
            r"no right for a\u002Bb/c-d_e\u003d",
        ] {
            let found = hidden("Bearer a+b/c-d_e=", text);
            assert_eq!(found.as_deref(), Some("no right for [redacted]"), "{text}");
        }
        let twice = hidden("Bearer abcdefgh", "abcdefgh, xabcdefghy").unwrap();
        assert_eq!(twice, "[redacted], x[redacted]y");
    }

    #[test]
    fn the_scheme_is_kept_and_a_short_value_is_no_secret() {
        let text = "Bearer Basic abc abcdefg";
        assert_eq!(hidden("Bearer abcdefg", text), None);
        assert_eq!(hidden("Bearer abcdefgh", text), None);
        assert_eq!(hidden("Basic abc", text), None);
        let whole = hidden("abcdefgh", "is abcdefgh");
        assert_eq!(whole.as_deref(), Some("is [redacted]"));
        let scheme = hidden("token abcdefgh", "token abcdefgh");
        assert_eq!(scheme.as_deref(), Some("token [redacted]"));
    }
}
