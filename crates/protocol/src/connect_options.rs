//! Options of a connection to a server.
//!
//! Owns what both eras need to open one and to run calls on it. Does not read the config.
//! Invariant: they do not change while the connection is open; `CallTimeouts` may.

use std::sync::Arc;

use crate::call_timeouts::CallTimeouts;
use crate::era::Era;
use crate::legacy::LegacyGreeting;
use moongate_jsonrpc::json::RawJson;
use moongate_model::ClientChannel;
use moongate_telemetry::Metrics;

/// Options for connecting to a server.
#[derive(Clone)]
pub struct ConnectOptions {
    /// Name of the server in the config, for messages.
    pub server: String,
    /// True if `moongate login` can get the credential that the server demands.
    pub accepts_login: bool,
    /// Revision to use without a probe; one of [`SUPPORTED`](super::SUPPORTED).
    pub revision: Option<&'static str>,
    /// Era of the last successful connection.
    pub era: Option<Era>,
    /// Form of `initialize` that the server took before.
    pub greeting: Option<LegacyGreeting>,
    /// Era to try first if none is known.
    pub preferred_era: Option<Era>,
    /// Capabilities for a connection that declares them once for all clients: a JSON object.
    pub capabilities: RawJson,
    /// True if several clients use the connection. Roots are then declared until the server asks
    /// for them: only so does it show that it would.
    pub is_shared: bool,
    /// Way to the only client that uses the connection, outside of its calls.
    pub client: Option<ClientChannel>,
    /// Gateway's own `Implementation`.
    pub client_info: RawJson,
    /// Time limits of calls.
    pub timeouts: Arc<CallTimeouts>,
    /// Limit in bytes of server messages that wait for clients, including the requests of tasks.
    pub max_backlog: usize,
    /// Metrics of the gateway.
    pub metrics: Arc<Metrics>,
    /// Tracker of sessions that are being closed.
    pub closing: tokio_util::task::TaskTracker,
    /// Session that an earlier process left.
    pub persisted_session: Option<RawJson>,
}
