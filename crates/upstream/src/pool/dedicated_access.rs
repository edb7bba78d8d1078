//! Access to all dedicated connections of a server at once.
//!
//! Owns nothing: the pool has them (`dedicated/`). Invariant: no call is chosen or begun here.

use std::sync::Arc;

use crate::connection::UpstreamConnection;
use crate::pool::ConnectionPool;
use crate::pool::connect_budget::ConnectBudget;
use moongate_jsonrpc::json::ByteString;

impl ConnectionPool {
    /// Returns the open connections that clients of an era share, the shared one first.
    pub(crate) fn all_shared(&self) -> Vec<Arc<UpstreamConnection>> {
        self.shared().into_iter().chain(self.dedicated.shared_by_era()).collect()
    }

    /// Returns true if a session has a dedicated connection.
    pub(crate) fn has_session_connection(&self, session: &ByteString) -> bool {
        self.dedicated.has_session_connection(session)
    }

    /// Returns the budget of attempts of all connections, the shared one included.
    pub(crate) fn connect_budget(&self) -> ConnectBudget {
        self.dedicated.connect_budget()
    }

    /// Returns the number of dedicated connections.
    pub(crate) fn dedicated_count(&self) -> usize {
        self.dedicated.len()
    }

    /// Closes the connections of principals that were revoked.
    pub(crate) async fn revoke_principals(&self, revoked: &(dyn Fn(u32) -> bool + Sync)) {
        self.shared_clients.revoke_principals(revoked);
        self.dedicated.revoke_principals(revoked).await;
    }

    /// Discards the persisted sessions of the dedicated connections. The next process does not resume them.
    pub(crate) fn discard_persisted(&self) {
        self.dedicated.discard_persisted();
    }

    /// Closes all dedicated connections.
    pub(crate) async fn close_dedicated(&self) {
        self.dedicated.close_all().await;
    }
}
