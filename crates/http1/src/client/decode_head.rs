//! Response heads: status, headers and body framing.
//!
//! Owns the parsing of heads and the choice of the framing. Does not read bodies (`decode_body`).
//! Invariant: a head that two recipients could frame differently is an error. One would take for a
//! response what the other takes for a body.

use std::mem::MaybeUninit;

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use httparse::{ParserConfig, Status};

use crate::error::ParseError;

/// Limit of a head, in bytes.
pub(super) const HEAD_MAX: usize = 64 * 1024;
/// Limit of headers in one response.
// As hyper's default, so that both clients accept the same responses.
const HEADERS_MAX: usize = 100;

/// End of a body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BodyFraming {
    /// Ends after this many bytes.
    Length(u64),
    /// Ends with the last chunk.
    Chunked,
    /// Ends with the connection.
    Close,
}

/// Parsed head of a response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) response: Response<()>,
    pub(super) framing: BodyFraming,
    /// True if the head lets the connection outlive the response.
    pub(super) keep_alive: bool,
}

/// Facts that the headers state about the connection and the body.
#[derive(Default)]
struct HeadFacts {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

/// True if these bytes may hold the end of a head. A cheap test before a full parse.
pub(super) fn may_end(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes)
        .any(|at| matches!(bytes.get(at + 1..), Some([b'\n', ..] | [b'\r', b'\n', ..])))
}

/// Parses the head at the start of `bytes` and returns it with its length. `None`: the head is
/// incomplete.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(ResponseHead, usize)>, ParseError> {
    // Checked before the parser runs, so that a server of another protocol fails on its first
    // bytes.
    if !b"HTTP/1.".starts_with(&bytes[..bytes.len().min(7)]) {
        return Err(ParseError("it does not start like an HTTP/1 response"));
    }
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let config = ParserConfig::default();
    let status = config
        .parse_response_with_uninit_headers(&mut parsed, bytes, &mut headers)
        .map_err(parse_error)?;
    let length = match status {
        Status::Complete(length) if length <= HEAD_MAX => length,
        Status::Partial if bytes.len() <= HEAD_MAX => return Ok(None),
        _ => return Err(ParseError("its head is longer than 64 KiB")),
    };
    // HTTP/1.0 closes by default and knows no chunks.
    let is_modern = parsed.version == Some(1);
    let code = parsed
        .code
        .and_then(|code| StatusCode::from_u16(code).ok())
        .ok_or(ParseError("its status is invalid"))?;
    let mut facts = HeadFacts::default();
    let mut map = HeaderMap::with_capacity(parsed.headers.len());
    for header in parsed.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes())
            .map_err(|_| ParseError("a header has an invalid name"))?;
        if facts.record(&name, header.value)? {
            continue;
        }
        let value = HeaderValue::from_bytes(header.value)
            .map_err(|_| ParseError("a header has an invalid value"))?;
        map.append(name, value);
    }
    let framing = facts.framing(code, is_modern)?;
    let keep_alive = if is_modern {
        !facts.close
    } else {
        facts.keep_alive && !facts.close
    };
    let mut response = Response::new(());
    (*response.status_mut(), *response.headers_mut()) = (code, map);
    Ok(Some((
        ResponseHead {
            response,
            framing,
            keep_alive: keep_alive && framing != BodyFraming::Close,
        },
        length,
    )))
}

impl HeadFacts {
    /// Records a header. True if it concerns only this connection, the body or the moment, and is
    /// not passed on.
    fn record(&mut self, name: &HeaderName, value: &[u8]) -> Result<bool, ParseError> {
        if *name == CONTENT_LENGTH {
            // RFC 9112, section 6.3: several identical values count as one.
            for value in value.split(|b| *b == b',') {
                let length = number(value.trim_ascii())
                    .ok_or(ParseError("its Content-Length is invalid"))?;
                if self.length.is_some_and(|other| other != length) {
                    return Err(ParseError("it has conflicting Content-Lengths"));
                }
                self.length = Some(length);
            }
        } else if *name == TRANSFER_ENCODING {
            if self.chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                // The gateway offers no other coding: it sends no `TE` header itself.
                return Err(ParseError("its Transfer-Encoding is not chunked"));
            }
            self.chunked = true;
        } else if *name == CONNECTION {
            for value in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                self.close |= value.eq_ignore_ascii_case(b"close");
                self.keep_alive |= value.eq_ignore_ascii_case(b"keep-alive");
            }
        } else {
            return Ok(*name == DATE);
        }
        Ok(true)
    }

    /// Chooses the framing by RFC 9112, section 6.3. The gateway sends no HEAD or CONNECT, so their
    /// rules do not apply.
    fn framing(&self, status: StatusCode, is_modern: bool) -> Result<BodyFraming, ParseError> {
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(ParseError(
                "it switches to another protocol, which was not requested",
            ));
        }
        match self {
            // "A server MAY reject [...] Regardless, the server MUST close the connection": a
            // client has no safe reading of such a response.
            HeadFacts {
                chunked: true,
                length: Some(_),
                ..
            } => Err(ParseError(
                "it has both a Transfer-Encoding and a Content-Length",
            )),
            // Section 6.1: "A server or client that receives an HTTP/1.0 message containing a
            // Transfer-Encoding header field MUST treat the message as if the framing is faulty".
            HeadFacts { chunked: true, .. } if !is_modern => {
                Err(ParseError("it has a Transfer-Encoding, but is HTTP/1.0"))
            }
            _ if status.is_informational() || matches!(status.as_u16(), 204 | 304) => {
                Ok(BodyFraming::Length(0))
            }
            HeadFacts { chunked: true, .. } => Ok(BodyFraming::Chunked),
            HeadFacts {
                length: Some(length),
                ..
            } => Ok(BodyFraming::Length(*length)),
            _ => Ok(BodyFraming::Close),
        }
    }
}

/// Parses digits only; `str::parse` would accept a sign as well.
fn number(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits)
        .ok()
        .filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    text.parse().ok()
}

fn parse_error(error: httparse::Error) -> ParseError {
    ParseError(match error {
        httparse::Error::HeaderName => "a header has an invalid name",
        httparse::Error::HeaderValue => "a header has an invalid value",
        httparse::Error::NewLine => "a line of its head has an invalid end",
        httparse::Error::Status => "its status is invalid",
        httparse::Error::TooManyHeaders => "it has more than 100 headers",
        httparse::Error::Token => "its head has characters that are not allowed there",
        httparse::Error::Version => "it is neither HTTP/1.0 nor HTTP/1.1",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the status, the framing and whether the connection is reusable.
    fn read(text: &str) -> Result<(u16, BodyFraming, bool), &'static str> {
        for end in 0..text.len() {
            match parse(&text.as_bytes()[..end]) {
                Ok(None) => {}
                Ok(Some((_, length))) => panic!("{text:?} ends after {length} of {end} bytes"),
                // An error shows as soon as its bytes are there, or at the end.
                Err(early) => {
                    assert_eq!(parse(text.as_bytes()).unwrap_err().0, early.0, "{text:?}");
                    return Err(early.0);
                }
            }
        }
        let more = format!("{text}more");
        let (head, length) = parse(more.as_bytes()).map_err(|wrong| wrong.0)?.unwrap();
        assert_eq!(length, text.len(), "{text:?}");
        Ok((
            head.response.status().as_u16(),
            head.framing,
            head.keep_alive,
        ))
    }

    #[test]
    fn heads_say_how_their_bodies_end() {
        for (text, expected) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
                (200, BodyFraming::Length(5), true),
            ),
            (
                "HTTP/1.1 200\r\ncontent-length:0\r\n\r\n",
                (200, BodyFraming::Length(0), true),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
                (200, BodyFraming::Length(5), true),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
                (200, BodyFraming::Length(5), true),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                (200, BodyFraming::Chunked, true),
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked \r\n\r\n",
                (200, BodyFraming::Chunked, true),
            ),
            (
                "HTTP/1.1 200 OK\r\nA: b\r\n\r\n",
                (200, BodyFraming::Close, false),
            ),
            (
                "HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\nConnection: close\r\n\r\n",
                (404, BodyFraming::Length(1), false),
            ),
            (
                "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 1\r\n\r\n",
                (200, BodyFraming::Length(1), false),
            ),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n",
                (200, BodyFraming::Length(1), false),
            ),
            (
                "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\n",
                (200, BodyFraming::Length(1), true),
            ),
            ("HTTP/1.0 200 OK\r\n\r\n", (200, BodyFraming::Close, false)),
            (
                "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
                (202, BodyFraming::Length(0), true),
            ),
            (
                "HTTP/1.1 204 No Content\r\n\r\n",
                (204, BodyFraming::Length(0), true),
            ),
            (
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
                (304, BodyFraming::Length(0), true),
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\n",
                (100, BodyFraming::Length(0), true),
            ),
            // RFC 9112, section 2.2: "a recipient MAY recognize a single LF as a line terminator".
            (
                "HTTP/1.1 200 OK\nContent-Length: 5\n\n",
                (200, BodyFraming::Length(5), true),
            ),
        ] {
            assert_eq!(read(text), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn heads_that_can_be_read_in_two_ways_are_refused() {
        for (head, why) in [
            (
                "Content-Length: 5\r\nTransfer-Encoding: chunked",
                "it has both a Transfer-Encoding and a Content-Length",
            ),
            (
                "Transfer-Encoding: chunked\r\nContent-Length: 5",
                "it has both a Transfer-Encoding and a Content-Length",
            ),
            (
                "Content-Length: 5\r\nContent-Length: 6",
                "it has conflicting Content-Lengths",
            ),
            ("Content-Length: 5, 6", "it has conflicting Content-Lengths"),
            ("Content-Length: +5", "its Content-Length is invalid"),
            ("Content-Length: -5", "its Content-Length is invalid"),
            ("Content-Length: 0x5", "its Content-Length is invalid"),
            ("Content-Length: 5 5", "its Content-Length is invalid"),
            ("Content-Length:", "its Content-Length is invalid"),
            ("Content-Length: 5,", "its Content-Length is invalid"),
            (
                "Content-Length: 18446744073709551616",
                "its Content-Length is invalid",
            ),
            (
                "Transfer-Encoding: gzip",
                "its Transfer-Encoding is not chunked",
            ),
            (
                "Transfer-Encoding: gzip, chunked",
                "its Transfer-Encoding is not chunked",
            ),
            (
                "Transfer-Encoding: chunked, chunked",
                "its Transfer-Encoding is not chunked",
            ),
            (
                "Transfer-Encoding: xchunked",
                "its Transfer-Encoding is not chunked",
            ),
            (
                "Transfer-Encoding: \x0bchunked",
                "a header has an invalid value",
            ),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
                "its Transfer-Encoding is not chunked",
            ),
            ("A: b\r\n c", "a header has an invalid name"),
            (" A: b", "a header has an invalid name"),
            ("A : b", "a header has an invalid name"),
            ("Content-Length : 5", "a header has an invalid name"),
            ("A", "a header has an invalid name"),
            ("A: b\0", "a header has an invalid value"),
            ("A: b\rC: d", "a header has an invalid value"),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
            assert_eq!(read(&text), Err(why), "{text:?}");
        }
    }

    #[test]
    fn malformed_heads_are_refused() {
        for (text, why) in [
            (
                "\r\nHTTP/1.1 200 OK\r\n\r\n",
                "it does not start like an HTTP/1 response",
            ),
            (
                "SSH-2.0-OpenSSH_9.6\r\n",
                "it does not start like an HTTP/1 response",
            ),
            (
                "HTTP/2 200\r\n\r\n",
                "it does not start like an HTTP/1 response",
            ),
            (
                "HTTP/1.2 200 OK\r\n\r\n",
                "it is neither HTTP/1.0 nor HTTP/1.1",
            ),
            ("HTTP/1.1 2x0 OK\r\n\r\n", "its status is invalid"),
            ("HTTP/1.1 099 OK\r\n\r\n", "its status is invalid"),
            (
                "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                "it has a Transfer-Encoding, but is HTTP/1.0",
            ),
            (
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
                "it switches to another protocol, which was not requested",
            ),
        ] {
            assert_eq!(read(text), Err(why), "{text:?}");
        }
    }

    fn head_of_lines(count: usize) -> String {
        format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(count))
    }

    fn head_of_length(length: usize) -> String {
        format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "b".repeat(length - 24))
    }

    #[test]
    fn heads_are_bounded() {
        assert_eq!(
            read(&head_of_lines(HEADERS_MAX)),
            Ok((200, BodyFraming::Close, false))
        );
        assert_eq!(
            read(&head_of_lines(HEADERS_MAX + 1)),
            Err("it has more than 100 headers")
        );
        let (_, length) = parse(head_of_length(HEAD_MAX).as_bytes()).unwrap().unwrap();
        assert_eq!(length, HEAD_MAX);
        for end in [HEAD_MAX + 1, HEAD_MAX + 9] {
            let text = head_of_length(HEAD_MAX + 9);
            assert_eq!(
                parse(&text.as_bytes()[..end]).unwrap_err().0,
                "its head is longer than 64 KiB"
            );
        }
    }

    #[test]
    fn headers_are_kept_as_they_are() {
        let text = "HTTP/1.1 200 OK\r\nA:  b c \r\nX-Two: 1\r\nx-two: ü\r\n\r\n";
        let (head, _) = parse(text.as_bytes()).unwrap().unwrap();
        let headers = head.response.headers();
        assert_eq!(headers["a"], "b c");
        assert_eq!(
            headers
                .get_all("X-Two")
                .iter()
                .map(HeaderValue::as_bytes)
                .collect::<Vec<_>>(),
            [&b"1"[..], "ü".as_bytes()]
        );
    }
}
