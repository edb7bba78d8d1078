//! Session with a legacy server, across its renewals.
//!
//! Owns what was negotiated, and who may renew or end it. Does not send anything
//! (`session_renewal.rs`, `connection.rs`). Invariant: one renewal runs at a time, and the session
//! is ended once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::futures::Notified;
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard};

use crate::legacy::upstream::handshake::LegacyNegotiated;
use moongate_transport::HeaderList;

/// Session of one connection.
pub(crate) struct ServerSession {
    negotiated: ArcSwap<LegacyNegotiated>,
    /// Number of renewals. Two calls that fail in the same session renew it once.
    generation: AtomicU64,
    renewed: Notify,
    renewal: Arc<AsyncMutex<()>>,
    /// True if the server gets no DELETE: it was sent already, or another process continues the
    /// session.
    released: AtomicBool,
}

impl ServerSession {
    pub(crate) fn new(negotiated: LegacyNegotiated) -> Self {
        ServerSession {
            negotiated: ArcSwap::from_pointee(negotiated),
            generation: AtomicU64::new(0),
            renewed: Notify::new(),
            renewal: Arc::default(),
            released: AtomicBool::new(false),
        }
    }

    /// Borrows what was negotiated last.
    pub(crate) fn negotiated(&self) -> Guard<Arc<LegacyNegotiated>> {
        self.negotiated.load()
    }

    pub(crate) fn headers(&self) -> HeaderList {
        self.negotiated.load().headers()
    }

    /// Returns true if the server gave the session an id.
    pub(crate) fn has_id(&self) -> bool {
        self.negotiated.load().session.is_some()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Waits for the turn to renew the session.
    pub(crate) async fn begin_renewal(&self) -> OwnedMutexGuard<()> {
        self.renewal.clone().lock_owned().await
    }

    /// Replaces the session by a new one.
    pub(crate) fn replace(&self, negotiated: LegacyNegotiated) {
        self.negotiated.store(Arc::new(negotiated));
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.renewed.notify_one();
    }

    /// Waits for the next renewal.
    pub(crate) fn until_renewed(&self) -> Notified<'_> {
        self.renewed.notified()
    }

    /// Leaves the session to another process.
    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::Relaxed);
    }

    /// Claims the end of the session. Returns true for the caller that is to end it at the server.
    pub(crate) fn claim_end(&self) -> bool {
        !self.released.swap(true, Ordering::Relaxed) && self.has_id()
    }
}
