//! Media types of responses.
//!
//! Owns the reading of `Content-Type`. Does not read bodies. Invariant: parameters of a type do not matter.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// Returns the media type without its parameters.
pub(super) fn media_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(CONTENT_TYPE)?;
    // The common form first, without a parse.
    if value == "application/json" {
        return Some("application/json");
    }
    let value = value.to_str().ok()?;
    Some(value.split(';').next().unwrap_or(value).trim())
}

/// True if a response is an event stream.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type(headers) == Some("text/event-stream")
}
