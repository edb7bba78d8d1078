//! Requests of extensions on one connection: which calls can get one, and whether a client can be
//! asked outside of calls.
//!
//! Owns what the choice of a connection must know of them. Does not route them (`correlation.rs`,
//! `pipe_routes.rs`). Invariant: a call whose client may use no extension is never held back for
//! them.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::mcp_apps;
use crate::seen_input_flag::SeenInputFlag;
use moongate_model::ServerCapabilities;

/// Facts about one connection.
#[derive(Default)]
pub(super) struct ExtensionRequests {
    /// True if the server announced an extension that only its clients know.
    is_announced: AtomicBool,
    /// True if the connection has one client, which can be asked outside of its calls.
    has_client: AtomicBool,
}

impl ExtensionRequests {
    /// Records what the handshake showed. `has_client`: true if the connection has one client, with
    /// a session.
    pub(super) fn record(&self, capabilities: &ServerCapabilities, has_client: bool) {
        let mut names = capabilities
            .extensions
            .iter()
            .chain(capabilities.experimental.iter());
        let is_announced = names.any(|(name, _)| !mcp_apps::is_bridged_extension(name.as_str()));
        self.is_announced.store(is_announced, Ordering::Relaxed);
        self.has_client.store(has_client, Ordering::Relaxed);
    }

    /// Returns true if a request can go to the connection's client outside of its calls.
    pub(super) fn has_client(&self) -> bool {
        self.has_client.load(Ordering::Relaxed)
    }

    /// Returns true if the server announced an extension, or was seen to use one.
    pub(super) fn are_expected(&self, seen: &SeenInputFlag) -> bool {
        self.is_announced.load(Ordering::Relaxed) || seen.asks_extensions()
    }
}
