//! HTTP messages of all dialects: checks of a request's headers, and plain responses.
//!
//! Owns the media type and the headers that some server wants forwarded. Does not read bodies. Invariant: only
//! headers that the config names are forwarded.

use bytes::Bytes;
use http::{HeaderMap, Response, header};

use crate::body::Body;
use crate::dialect::DownstreamState;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Error, McpErrorKind};

/// Builds a response with a JSON body in parts.
pub(super) fn json_response(status: u16, parts: impl IntoIterator<Item = Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::Parts(parts.into_iter().collect()));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    if status == 503 {
        // A limit was hit. Room may be free soon, but a retry at once does not help.
        response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    response
}

/// Returns the client's headers to forward to the server, under the names from the config.
pub(super) fn forwarded_headers(caller: &moongate_model::Caller) -> moongate_transport::HeaderList {
    let header = |(name, value): &(ByteString, ByteString)| {
        Some((http::HeaderName::from_bytes(name.as_bytes()).ok()?, http::HeaderValue::from_str(value).ok()?))
    };
    caller.forwarded_headers.iter().filter_map(header).collect()
}

pub(crate) fn accepted_response() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    // 2025-11-25/basic/transports.mdx, Sending Messages to the Server: "If the server accepts the input, the server
    // MUST return HTTP status code 202 Accepted with no body."
    *response.status_mut() = http::StatusCode::ACCEPTED;
    response
}

/// Checks that the body is JSON. Pages of another origin can send other media types without a preflight request.
pub(crate) fn check_content_type(headers: &HeaderMap) -> Result<(), Error> {
    let json = headers.get(header::CONTENT_TYPE).is_none_or(|v| v.as_bytes().starts_with(b"application/json"));
    if !json {
        return Err(Error::new(
            McpErrorKind::InvalidRequest,
            "Unsupported media type: the body must be application/json",
        ));
    }
    Ok(())
}

/// Collects the client's headers that the config of some server names.
pub(crate) fn collect_forwarded(headers: &HeaderMap, state: &DownstreamState) -> Vec<(ByteString, ByteString)> {
    let value = |name: &http::HeaderName| Some(ByteString::from(headers.get(name)?.to_str().ok()?));
    state.forwarded_headers.iter().filter_map(|name| Some((ByteString::from(name.as_str()), value(name)?))).collect()
}
