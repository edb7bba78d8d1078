//! Media types of responses.
//!
//! Owns the reading of `Content-Type`. Does not read bodies. Invariant: parameters of a type do not
//! matter.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// Returns the media type without its parameters, in lower case.
pub(super) fn media_type(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let value = headers.get(CONTENT_TYPE)?;
    // The common form first, without a parse.
    if value == "application/json" {
        return Some(Cow::Borrowed("application/json"));
    }
    let value = value.to_str().ok()?;
    let media = value.split(';').next().unwrap_or(value).trim();
    // RFC 9110, 8.3.1: "The type and subtype tokens are case-insensitive."
    let is_lower = !media.bytes().any(|byte| byte.is_ascii_uppercase());
    Some(if is_lower {
        Cow::Borrowed(media)
    } else {
        Cow::Owned(media.to_ascii_lowercase())
    })
}

/// True if a response is an event stream.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type(headers).as_deref() == Some("text/event-stream")
}
