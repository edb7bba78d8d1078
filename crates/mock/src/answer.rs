//! HTTP responses, as the mock builds them.
//!
//! Owns status, headers and whole bodies. Does not own streams. Invariant: a header that the script spells wrongly is
//! left out rather than turned into something else.

use std::io;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};

/// A body: whole or streamed; its error breaks the connection.
pub(super) type HttpBody = UnsyncBoxBody<Bytes, io::Error>;

/// How an HTTP request ends.
pub(super) enum HttpReply {
    Response(Response<HttpBody>),
    /// Without a response: the connection ends.
    Broken {
        reset: bool,
    },
}

pub(super) fn whole(text: String) -> HttpBody {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn with_headers(
    status: u16,
    headers: impl IntoIterator<Item = (String, String)>,
    body: String,
) -> Response<HttpBody> {
    let mut response = Response::new(whole(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

pub(super) fn status(status: u16) -> Response<HttpBody> {
    with_headers(status, [], String::new())
}

pub(super) fn json(status: u16, text: String, session: Option<&str>) -> Response<HttpBody> {
    let kind = ("content-type".to_owned(), "application/json".to_owned());
    let session = session.map(|id| ("mcp-session-id".to_owned(), id.to_owned()));
    with_headers(status, [kind].into_iter().chain(session), text)
}
