//! Server as it is configured now, with the upstream that serves it.
//!
//! Owns the pair of both. Does not replace either (`reconfigure.rs`). Invariant: the settings hold for what clients see,
//! even while the upstream is still connected with earlier ones.

use std::ops::Deref;
use std::sync::Arc;

use moongate_jsonrpc::json::ByteString;
use moongate_model::{Call, Caller, Exchange};
use moongate_upstream::{ServerCall, ServerSettings, Upstream};

/// Server as it is configured now. The upstream may still be connected with earlier settings.
pub struct ServerEntry {
    /// Settings that hold for what clients see of it.
    pub settings: Arc<ServerSettings>,
    /// Upstream that serves.
    pub upstream: Arc<Upstream>,
}

impl Deref for ServerEntry {
    type Target = Upstream;
    fn deref(&self) -> &Upstream {
        &self.upstream
    }
}

impl ServerEntry {
    pub(super) fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange {
        self.upstream.call(caller, call)
    }

    pub(super) fn begin_call(&self, caller: &Arc<Caller>, call: Call) -> ServerCall {
        self.upstream.start_call(caller, call)
    }
}

pub(super) fn server_name(upstream: &Upstream) -> ByteString {
    upstream.name.clone()
}
