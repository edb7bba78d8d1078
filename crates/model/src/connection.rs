//! Connection to an upstream server, and its lifecycle.
//!
//! Owns the trait. Does not know transports or revisions. Invariant: no method blocks.

use futures_util::future::BoxFuture;

use crate::McpServer;
use moongate_jsonrpc::json::RawJson;

/// Open connection to an MCP server. Servers without sessions need only [`Connection::ping`].
pub trait Connection: McpServer {
    /// Pings the server; true if any response came. `None` if the server has no ping, or no
    /// connection that could be lost.
    fn ping(&self) -> Option<BoxFuture<'static, bool>>;

    /// Returns the state with which another process can continue this connection, if any. It may be
    /// a secret.
    fn export_session(&self) -> Option<RawJson> {
        None
    }

    /// Waits until the exported state has changed. Supports one waiter.
    fn session_changed(&self) -> BoxFuture<'_, ()> {
        // A connection without a session never changes it.
        Box::pin(std::future::pending())
    }

    /// Detaches the connection: its end is no longer reported to the server, because another
    /// process continues it.
    fn detach(&self) {}

    /// Closes the connection now, whatever still runs on it. Without this call it closes with its
    /// last call.
    fn close(&self) {}
}
