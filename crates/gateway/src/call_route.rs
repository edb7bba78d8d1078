//! Target of a call, between its resolution and its start.
//!
//! Owns the check that a continuation goes back to its server. Does not resolve names
//! (`resolve_call.rs`). Invariant: a route leads to exactly one server.

use std::sync::Arc;

use crate::running_server::RunningServer;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Call, Error, McpErrorKind};
use moongate_protocol::ListedOutput;
use moongate_telemetry::CallMeter;

/// Target of a call.
pub(super) struct CallRoute {
    pub(super) server: Arc<RunningServer>,
    pub(super) meter: Arc<CallMeter>,
    /// Tool or prompt, as clients see it. Empty where there is none.
    pub(super) tool: ByteString,
    /// Structured output that it was listed with.
    pub(super) output: ListedOutput,
}

/// Checks that a continuation goes to the server that issued its state. A name may have moved to
/// another server between two rounds.
pub(super) fn check_issuer(server: &RunningServer, call: &Call) -> Result<(), Error> {
    let issuer = call
        .continuation
        .as_ref()
        .and_then(|resume| resume.server.as_ref());
    match issuer {
        Some(issuer) if *issuer != server.name => {
            let message = "Invalid params: requestState is from a server that no longer answers to \
                           this name; call again without it";
            Err(Error::new(McpErrorKind::InvalidParams, message))
        }
        _ => Ok(()),
    }
}
