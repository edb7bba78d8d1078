//! Persisted upstream sessions of single clients, across restarts of the gateway. Owns the rows of
//! the previous process and who owns each row now. Does not open rows
//! (`pool/dedicated/session_row.rs`). Invariant: of two connections with one row, only the later
//! one changes it.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use moongate_session::SessionDigest;
use moongate_session::store::StoredRows;

/// Rows of all servers, by key.
#[derive(Default)]
pub(crate) struct UpstreamSessionStore {
    /// Rows of the previous process.
    persisted: Mutex<HashMap<Bytes, Bytes>>,
    /// Connection that owns each row. A replacement has the same row, which its predecessor then
    /// leaves alone. There is an entry for each persisted connection (`max_connections`).
    owners: Mutex<HashMap<Bytes, u64>>,
    connections: AtomicU64,
}

impl UpstreamSessionStore {
    /// Restores the rows of a previous process.
    pub(crate) fn restore(&self, rows: StoredRows) {
        self.lock_persisted().extend(rows);
    }

    /// Takes a row of the previous process. Works once.
    pub(crate) fn take(&self, key: &Bytes) -> Option<Bytes> {
        self.lock_persisted().remove(key)
    }

    /// Returns the number of a new connection.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    fn lock_persisted(&self) -> MutexGuard<'_, HashMap<Bytes, Bytes>> {
        self.persisted.lock()
    }

    /// Locks the owners: the connection that owns each row.
    pub(crate) fn lock_owners(&self) -> MutexGuard<'_, HashMap<Bytes, u64>> {
        self.owners.lock()
    }
}

/// Returns the digest of the client's session from a row's key.
pub fn client_session_digest(key: &[u8]) -> Option<SessionDigest> {
    key.get(..32)?.try_into().ok()
}
