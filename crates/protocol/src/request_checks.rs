//! Checks that every request passes, in all dialects.
//!
//! Owns the errors of media types, malformed bodies and `_meta`. Does not read methods. Invariant:
//! a member that was checked is the only one that a server can read.

use http::{HeaderMap, header};

use crate::lookalike_members;
use moongate_jsonrpc::json::JsonObject;
use moongate_jsonrpc::message::{MalformedMessage, RequestId};
use moongate_model::{Error, McpErrorKind};

/// Checks that the body is JSON. Pages of another origin can send other media types without a
/// preflight request.
pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), Error> {
    let json = headers
        .get(header::CONTENT_TYPE)
        .is_none_or(|v| v.as_bytes().starts_with(b"application/json"));
    if !json {
        return Err(Error::new(
            McpErrorKind::InvalidRequest,
            "Unsupported media type: the body must be application/json",
        ));
    }
    Ok(())
}

/// Converts a malformed body into an error for its sender.
pub(super) fn malformed_error(error: &MalformedMessage) -> (Option<RequestId>, Error) {
    match error {
        MalformedMessage::Json(e) => (
            None,
            Error::new(McpErrorKind::Parse, format!("Parse error: {e}")),
        ),
        MalformedMessage::Shape { reason, id } => (
            id.clone(),
            Error::new(
                McpErrorKind::InvalidRequest,
                format!("Invalid request: {reason}"),
            ),
        ),
        MalformedMessage::Lookalike { member, id } => {
            (id.clone(), lookalike_members::lookalike_error(member))
        }
    }
}

/// Takes the members of `_meta` out of the params, if there are any.
pub(super) fn take_meta(params: &mut JsonObject) -> Result<JsonObject, Error> {
    let Some(raw) = params.remove("_meta") else {
        return Ok(JsonObject::new());
    };
    let Some(meta) = raw.as_object() else {
        return Err(Error::invalid_params(if raw.is_object() {
            "_meta has a member twice"
        } else {
            "_meta must be an object"
        }));
    };
    lookalike_members::reject_lookalikes_in_meta(&meta)?;
    if params.is_empty() {
        // The client gave params, and a server of extensions may demand some.
        *params = JsonObject::given_empty();
    }
    Ok(meta)
}
