//! Access to all dedicated connections of a server at once.
//!
//! Owns nothing: the pool has them (`dedicated/`). Invariant: no call is chosen or begun here.

use std::sync::Arc;

use crate::connection::UpstreamConnection;
use crate::pool::ConnectionPool;
use crate::pool::connect_budget::ConnectBudget;
use moongate_jsonrpc::json::ByteString;
use moongate_model::Caller;

impl ConnectionPool {
    /// Returns the dedicated connection of the caller, if it is open.
    pub(crate) fn dedicated_of(&self, caller: &Caller) -> Option<Arc<UpstreamConnection>> {
        let era = moongate_protocol::era_of(caller.revision);
        self.dedicated
            .find(self.sharing_mode(), caller, self.other_era(era))
    }

    /// Returns the open connections whose notifications the caller gets. The last one has its
    /// calls.
    pub(crate) fn connections_of(&self, caller: &Caller) -> Vec<Arc<UpstreamConnection>> {
        let era = moongate_protocol::era_of(caller.revision);
        let of_era = self
            .dedicated
            .shared_by_era()
            .into_iter()
            .filter(|connection| connection.era == era);
        self.shared()
            .into_iter()
            .chain(of_era)
            .chain(self.dedicated_of(caller))
            .collect()
    }

    /// Returns the open connections that clients of an era share, the shared one first.
    pub(crate) fn all_shared(&self) -> Vec<Arc<UpstreamConnection>> {
        self.shared()
            .into_iter()
            .chain(self.dedicated.shared_by_era())
            .collect()
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

    /// Discards the persisted sessions of the dedicated connections. The next process does not
    /// resume them.
    pub(crate) fn discard_persisted(&self) {
        self.dedicated.discard_persisted();
    }

    /// Closes all dedicated connections.
    pub(crate) async fn close_dedicated(&self) {
        self.dedicated.close_all().await;
    }
}
