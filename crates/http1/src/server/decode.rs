//! Parser for the head of a simple POST. Owns the decision which requests are simple.
//!
//! Does not read bodies. Invariant: an ambiguous request, or one that needs more than a response,
//! is not simple.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use httparse::{ParserConfig, Status};

/// Maximum number of headers of a simple request. hyper judges requests with more.
const HEADERS_MAX: usize = 64;

/// Head of a simple POST.
pub(super) struct SimplePost {
    pub(super) head: Parts,
    /// Size of the head, in bytes.
    pub(super) size: usize,
    /// Size of the body, in bytes.
    pub(super) length: usize,
}

/// Parses the request that `bytes` start with, if it is simple. Simple is a POST of HTTP/1.1 to a
/// path without a query, with one length, and without headers that concern the connection.
pub(super) fn decode_simple_post(bytes: &[u8], head_max: usize) -> Option<SimplePost> {
    // The cheapest test first: most connections that are not simple fail here.
    if !bytes.starts_with(b"POST /") {
        return None;
    }
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let status =
        ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, bytes, &mut headers);
    // An incomplete or invalid head is left to hyper, which has the timer and the error responses.
    let Ok(Status::Complete(size)) = status else {
        return None;
    };
    if size > head_max || parsed.version != Some(1) || parsed.method != Some("POST") {
        return None;
    }
    // One copy holds all values.
    let whole = Bytes::copy_from_slice(&bytes[..size]);
    let path = parsed.path.filter(|path| !path.contains(['?', '#']))?;
    let uri = Uri::from_maybe_shared(whole.slice_ref_of(bytes, path.as_bytes())?).ok()?;
    let mut map = HeaderMap::with_capacity(parsed.headers.len() + 1);
    let mut length = None;
    for header in parsed.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        match name {
            CONTENT_LENGTH if length.is_none() => length = Some(number(header.value)?),
            // Two lengths, or a length with a transfer coding, are how request smuggling starts.
            // hyper judges them.
            CONTENT_LENGTH | TRANSFER_ENCODING | EXPECT | UPGRADE => return None,
            CONNECTION if !header.value.eq_ignore_ascii_case(b"keep-alive") => return None,
            _ => {}
        }
        let value = match common_value(header.value) {
            Some(value) => value,
            // The slices keep the copy alive, not the connection's read buffer.
            None => {
                HeaderValue::from_maybe_shared(whole.slice_ref_of(bytes, header.value)?).ok()?
            }
        };
        map.append(name, value);
    }
    let mut head = http::Request::new(()).into_parts().0;
    (head.method, head.uri, head.version, head.headers) =
        (Method::POST, uri, Version::HTTP_11, map);
    Some(SimplePost {
        head,
        size,
        length: length?,
    })
}

/// Returns a value that many requests have. A constant needs no check of its bytes, and no reference
/// to the copy.
fn common_value(value: &[u8]) -> Option<HeaderValue> {
    Some(match value {
        b"application/json" => const { HeaderValue::from_static("application/json") },
        b"application/json, text/event-stream" => {
            const { HeaderValue::from_static("application/json, text/event-stream") }
        }
        b"text/event-stream, application/json" => {
            const { HeaderValue::from_static("text/event-stream, application/json") }
        }
        b"keep-alive" => const { HeaderValue::from_static("keep-alive") },
        _ => return None,
    })
}

/// Parses digits only: `str::parse` accepts a sign as well.
fn number(digits: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(digits)
        .ok()
        .filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    text.parse().ok()
}

/// Slice of a copy at the position of a part of the original.
trait SliceRef {
    fn slice_ref_of(&self, original: &[u8], part: &[u8]) -> Option<Bytes>;
}

impl SliceRef for Bytes {
    fn slice_ref_of(&self, original: &[u8], part: &[u8]) -> Option<Bytes> {
        let start = (part.as_ptr() as usize).checked_sub(original.as_ptr() as usize)?;
        let end = start.checked_add(part.len())?;
        (end <= self.len()).then(|| self.slice(start..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_plain(text: &str) -> bool {
        decode_simple_post(text.as_bytes(), 1024).is_some()
    }

    #[test]
    fn a_plain_request_is_read_whole() {
        let text = "POST /mcp HTTP/1.1\r\nHost: a:1\r\nX-Two:  1 \r\nx-two: 2\r\nContent-Length: \
                    3\r\n\r\n{}!more";
        let SimplePost { head, size, length } = decode_simple_post(text.as_bytes(), 1024).unwrap();
        assert_eq!(&text[size..], "{}!more");
        assert_eq!(length, 3);
        assert_eq!(head.method, Method::POST);
        assert_eq!(head.uri.path(), "/mcp");
        assert_eq!(head.version, Version::HTTP_11);
        assert_eq!(head.headers.len(), 4);
        assert_eq!(head.headers["host"], "a:1");
        assert_eq!(
            head.headers.get_all("x-two").iter().collect::<Vec<_>>(),
            ["1", "2"]
        );
    }

    /// Returns a request with another line in its head.
    fn post_with(line: &str) -> String {
        format!("POST /mcp HTTP/1.1\r\ncontent-length: 2\r\n{line}\r\n{{}}")
    }

    #[test]
    fn other_requests_fall_back_to_the_routes() {
        assert!(is_plain(&post_with("")) && is_plain(&post_with("Connection: Keep-Alive\r\n")));
        for line in [
            "content-length: 2\r\n",
            "Content-Length: 2, 2\r\n",
            "transfer-encoding: chunked\r\n",
            "Transfer-Encoding : chunked\r\n",
            "expect: 100-continue\r\n",
            "upgrade: h2c\r\n",
            "connection: close\r\n",
            "connection: keep-alive, upgrade\r\n",
            "a: 1\r\n b: folded\r\n",
            "no colon\r\n",
            "a: \u{1}\r\n",
        ] {
            assert!(!is_plain(&post_with(line)), "{line:?}");
        }
        for first in [
            "GET /mcp HTTP/1.1",
            "POST /mcp HTTP/1.0",
            "POST /mcp?a=b HTTP/1.1",
            "POST http://a/mcp HTTP/1.1",
        ] {
            assert!(
                !is_plain(&format!("{first}\r\ncontent-length: 2\r\n\r\n{{}}")),
                "{first}"
            );
        }
        for length in ["", "+2", "-0", "0x2", "2 2", "99999999999999999999999"] {
            assert!(
                !is_plain(&format!(
                    "POST /mcp HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{{}}"
                )),
                "{length:?}"
            );
        }
        assert!(!is_plain("POST /mcp HTTP/1.1\r\n\r\n"), "without a length");
        let long = format!("a: {}\r\n", "x".repeat(1024));
        assert!(!is_plain(&post_with(&long)), "longer than a head may be");
        let whole = post_with("");
        for cut in 0..whole.len() - 2 {
            assert!(!is_plain(&whole[..cut]), "cut at {cut}");
        }
    }
}
