//! Row of one session in the store.
//!
//! Owns the row's key and the time that it was last written for. Does not know what is in it
//! (`persisted.rs`). Invariant: the store never sees a session's id, which is a secret.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::store::{StateStore, StoreTable};

/// Key of a session's row: SHA-256 of its id, which is a secret of 256 bits.
pub type SessionDigest = [u8; 32];

/// Returns the digest of a session's id.
pub fn digest(id: &str) -> SessionDigest {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, id.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Removes a session's row from the store.
pub(super) fn remove_row(digest: &SessionDigest, store: &StateStore) {
    store.remove(StoreTable::Sessions, digest.to_vec());
}

/// Persisted row of a session.
pub(super) struct SessionRowHandle {
    digest: SessionDigest,
    store: StateStore,
    /// Last use that was written, in seconds since 1970.
    written: AtomicU64,
}

impl SessionRowHandle {
    /// Returns the row handle of a session. Returns `None` without persistence.
    pub(super) fn of(id: &str, store: &StateStore) -> Option<Self> {
        let written = AtomicU64::new(0);
        store.is_persistent().then(|| SessionRowHandle {
            digest: digest(id),
            store: store.clone(),
            written,
        })
    }

    /// Returns true if the store still writes to disk.
    pub(super) fn is_persistent(&self) -> bool {
        self.store.is_persistent()
    }

    /// Returns the last use that was written, in seconds since 1970.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Queues a write of the row. `used` is the session's last use.
    pub(super) fn write(&self, record: &impl Serialize, used: u64) {
        self.written.store(used, Ordering::Relaxed);
        // Only a queue: the task of the store writes it. A request never waits for the disk.
        match serde_json::to_vec(record) {
            Ok(json) => self
                .store
                .put(StoreTable::Sessions, self.digest.to_vec(), json),
            Err(e) => tracing::warn!("session not persisted: {e}"),
        }
    }

    pub(super) fn remove(&self) {
        remove_row(&self.digest, &self.store);
    }
}
