//! HTTP responses of the mock.
//!
//! Owns status, headers and whole bodies. Does not own streams. Invariant: a script's header that
//! is not valid HTTP is left out, never changed.

use std::io;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};

/// Body of a response, whole or streamed. An error in it breaks the connection.
pub(super) type HttpBody = UnsyncBoxBody<Bytes, io::Error>;

/// Reply to an HTTP request.
pub(super) enum HttpReply {
    Response(Response<HttpBody>),
    /// End of the connection without a response.
    Broken {
        reset: bool,
    },
}

pub(super) fn whole_body(text: String) -> HttpBody {
    Full::new(Bytes::from(text))
        .map_err(|never| match never {})
        .boxed_unsync()
}

pub(super) fn with_headers(
    status: u16,
    headers: impl IntoIterator<Item = (String, String)>,
    body: String,
) -> Response<HttpBody> {
    let mut response = Response::new(whole_body(body));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
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
