//! Session of a single POST that came without a session id.
//!
//! Owns its caller, and the refusal of methods that need more. Does not serve the POST
//! (`session_request.rs`). Invariant: nothing of it is kept, and its client is not asked.

use std::sync::Arc;

use http::HeaderMap;

use crate::client_headers;
use crate::dialect::DownstreamState;
use crate::era::VERSION_HEADER;
use crate::legacy::profile::{UNNAMED, profile};
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, Error, LogFilter, McpErrorKind, Principal};
use moongate_session::Session;

/// Opens the session of one POST for a client that sends no session id back.
///
/// claude.ai is one: it calls `initialize`, and its other requests come without the id that it got.
/// An answer to a question would come without it, too, so such a client is not asked.
pub(crate) fn open_transient(
    headers: &HeaderMap,
    principal: Arc<Principal>,
    scope: ByteString,
    state: &DownstreamState,
) -> Arc<Session> {
    let version = headers.get(VERSION_HEADER).and_then(|v| v.to_str().ok());
    let caller = Caller {
        revision: version.and_then(profile).unwrap_or(UNNAMED).name,
        log_filter: LogFilter::ServerDecides,
        forwarded_headers: client_headers::collect_headers(headers, state),
        ..Caller::without_capabilities(principal)
    };
    state.sessions.transient(caller, scope)
}

/// Refuses a method that changes its session if there is none.
pub(crate) fn require_session(session: &Session) -> Result<(), Error> {
    if !session.identity.is_transient() {
        return Ok(());
    }
    Err(Error::new(
        McpErrorKind::InvalidRequest,
        "This method needs a session: send the Mcp-Session-Id header that initialize returned",
    ))
}
