//! Era selection of one server. Owns the known eras of the server, and the era of its next shared
//! connection. Does not dial (`pool`, `supervisor`). Invariant: a server is not tried in an era
//! that it is known not to speak.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::connection::UpstreamConnection;
use moongate_model::ServerDescription;
use moongate_protocol::{Era, LegacyGreeting};

/// Facts that the last handshake of the shared connection showed.
#[derive(Clone)]
pub(crate) struct LastHandshake {
    pub(crate) era: Era,
    pub(crate) is_multiplexed: bool,
    pub(crate) description: ServerDescription,
    /// True if the server speaks the other era, too. `None`: not tried.
    pub(crate) speaks_other_era: Option<bool>,
    /// Form of the legacy handshake that the server took.
    pub(crate) greeting: Option<LegacyGreeting>,
}

impl LastHandshake {
    /// Returns the era of a dedicated connection for a client, if there is a reason to try it.
    ///
    /// 2026-07-28/basic/versioning.mdx, Compatibility Matrix, for a legacy client at a server of
    /// both eras: "Works." A legacy server was probed for the newer era already: only an earlier
    /// success there is a reason.
    fn dedicated_era(&self, client: Era) -> Option<Era> {
        let tried = match self.era {
            Era::Modern => self.speaks_other_era != Some(false),
            Era::Legacy => self.speaks_other_era == Some(true),
        };
        (client != self.era && tried).then_some(client)
    }
}

/// Eras of one server.
pub(crate) struct EraSelection {
    /// True if each client meets the server in its own era.
    by_client: bool,
    /// True if an attempt in the other era failed during this shared connection, for any reason.
    single_era: AtomicBool,
    next: Mutex<NextEra>,
    promoted: Notify,
}

#[derive(Default)]
struct NextEra {
    /// Era to try first for the next shared connection, if the server speaks it.
    first: Option<Era>,
    /// Era that the current attempt tries for that reason.
    tried: Option<Era>,
    /// Connection that was promoted, until the supervisor takes it.
    promoted: Option<Arc<UpstreamConnection>>,
}

impl EraSelection {
    pub(crate) fn new(by_client: bool) -> Self {
        EraSelection {
            by_client,
            single_era: AtomicBool::new(false),
            next: Mutex::default(),
            promoted: Notify::new(),
        }
    }

    /// Returns the era of a dedicated connection for a client. `handshake` is the last one of the
    /// shared connection.
    pub(crate) fn dedicated_era(
        &self,
        handshake: Option<&LastHandshake>,
        client: Era,
    ) -> Option<Era> {
        if !self.by_client || self.single_era.load(Ordering::Relaxed) {
            return None;
        }
        handshake?.dedicated_era(client)
    }

    /// Returns true if the server may be called in an era: it speaks it, or was not tried.
    pub(crate) fn is_open(&self, handshake: Option<&LastHandshake>, era: Era) -> bool {
        let is_shared = self.by_client && handshake.is_some_and(|handshake| handshake.era == era);
        is_shared || self.dedicated_era(handshake, era).is_some()
    }

    /// Keeps all clients in one era until the shared connection is opened again.
    pub(crate) fn disable_other_era(&self) {
        self.single_era.store(true, Ordering::Relaxed);
    }

    /// Requests the era of the first client for the next shared connection.
    pub(crate) fn prefer_era(&self, era: Era) {
        if self.by_client {
            self.next.lock().first = Some(era);
        }
    }

    /// Starts an attempt at the shared connection, and returns the era to try first. `None` probes
    /// for the newest era first, as the specification says for a server of which nothing is known.
    pub(crate) fn begin_attempt(&self, handshake: Option<&LastHandshake>) -> Option<Era> {
        let mut next = self.next.lock();
        // Taken, so that the request of one client is tried once.
        let first = next.first.take().filter(|first| {
            handshake.is_some_and(|handshake| {
                handshake.era == *first || handshake.dedicated_era(*first).is_some()
            })
        });
        next.tried = first;
        first
    }

    /// Records the era of a new shared connection. Returns what that shows of the other era.
    pub(crate) fn record_connected(
        &self,
        era: Era,
        before: Option<&LastHandshake>,
    ) -> Option<bool> {
        self.single_era.store(false, Ordering::Relaxed);
        let tried = {
            let mut next = self.next.lock();
            next.first = None;
            next.tried.take()
        };
        match before {
            Some(before) if before.era == era && tried.is_some_and(|tried| tried != era) => {
                Some(false)
            }
            Some(before) if before.era == era => before.speaks_other_era,
            // The server was in the other era before, and follows the request for this one. It
            // speaks both.
            Some(_) if tried == Some(era) => Some(true),
            // Without a request, a change of era means that the server may have been replaced.
            _ => None,
        }
    }

    /// Promotes a connection to the shared one. `open` takes it into use.
    pub(crate) fn promote(
        &self,
        connection: Arc<UpstreamConnection>,
        open: impl FnOnce(Arc<UpstreamConnection>),
    ) {
        // Recorded before `open`: it makes `record_connected` see a requested era.
        self.next.lock().tried = Some(connection.era);
        // Called without the lock: `open` ends in `record_connected`, which locks.
        open(connection.clone());
        self.next.lock().promoted = Some(connection);
        self.promoted.notify_one();
    }

    /// Waits for a promoted connection.
    pub(crate) async fn promoted(&self) {
        while self.next.lock().promoted.is_none() {
            // `notify_one` stores a permit, so that a promotion before this wait is seen.
            self.promoted.notified().await;
        }
    }

    /// Takes the promoted connection, if there is one.
    pub(crate) fn take_promoted(&self) -> Option<Arc<UpstreamConnection>> {
        self.next.lock().promoted.take()
    }
}

#[cfg(test)]
mod tests;
