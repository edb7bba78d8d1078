//! Connection to a server: the open one, its dial, its health and the backoff of the next. Owns the
//! calls that start on it. Does not choose the connection of a call (`pool`). Invariant: no part
//! knows what the connection is for.

pub(crate) mod dial;
pub(crate) mod health_check;
pub(crate) mod idle_tracker;
pub(crate) mod installer;
pub(crate) mod reconnect_backoff;
pub(crate) mod roots_departure;
pub(crate) mod subscription_acknowledgement;

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tokio::time::Instant;

use moongate_model::{Call, Caller, Connection, Exchange};
use moongate_protocol::{Era, LegacyGreeting, PendingCalls};
use moongate_telemetry::{ClientRevision, CounterHandle, Metrics, ServerRevision};
use moongate_transport::Link;
use moongate_transport::stderr::StderrTail;

/// Open connection to a server.
pub struct UpstreamConnection {
    /// Server at the other end, to be called.
    pub server: Arc<dyn Connection>,
    /// Transport of the connection.
    pub link: Arc<dyn Link>,
    /// Revision that the server speaks.
    pub revision: &'static str,
    /// Era of that revision.
    pub era: Era,
    /// Form of the handshake that the server took.
    pub(crate) greeting: Option<LegacyGreeting>,
    /// Last lines on stderr, if the server is a child.
    pub(crate) stderr: StderrTail,
    /// True if the transport is HTTP+SSE.
    pub is_http_sse: bool,
    /// True if requests carry the credential of one person.
    pub is_personal: bool,
    /// Calls that are open on the connection.
    pub calls: PendingCalls,
    /// Time of the handshake.
    pub(crate) opened_at: Instant,
    /// True once a client has called on the connection.
    pub(crate) is_called: AtomicBool,
    /// One bit for each reader that has not seen the latest call yet.
    new_calls: AtomicU8,
    /// True if the next process may resume the session.
    pub(crate) is_persisted: AtomicBool,
    metrics: Arc<Metrics>,
    /// Counters of calls by the client's revision: at most as many as there are revisions.
    translated: Mutex<Vec<(&'static str, CounterHandle)>>,
}

/// Readers of the record of new calls.
#[derive(Clone, Copy)]
pub(crate) enum NewCalls {
    /// Wait for the client whose roots the server has.
    RootsOwner = 1,
    /// Polls of the connection's lists.
    Lists = 2,
}

impl NewCalls {
    /// All bits.
    const ALL: u8 = 3;
}

impl UpstreamConnection {
    /// Starts a call. The request is sent when its first event is polled.
    pub(crate) fn open_call(&self, caller: &Arc<Caller>, call: Call) -> Exchange {
        self.count_call(caller.revision);
        // Read first: the flags change rarely, and a store in each call would contend for its cache
        // line.
        if !self.is_called.load(Ordering::Relaxed) {
            self.is_called.store(true, Ordering::Release);
        }
        if self.new_calls.load(Ordering::Relaxed) != NewCalls::ALL {
            self.new_calls.store(NewCalls::ALL, Ordering::Relaxed);
        }
        self.server.call(caller, call)
    }

    /// Returns true if a client has called since this reader asked last.
    pub(crate) fn take_new_calls(&self, reader: NewCalls) -> bool {
        let bit = reader as u8;
        self.new_calls.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// Counts a call from a client of this revision.
    fn count_call(&self, from: &'static str) {
        // The gateway's own calls have no revision, so that nothing is translated.
        if from.is_empty() {
            return;
        }
        let mut translated = self.translated.lock();
        // A linear scan: there are only a few revisions.
        match translated.iter().find(|(known, _)| *known == from) {
            Some((_, counter)) => counter.inc(),
            None => {
                let counter = self
                    .metrics
                    .calls
                    .translated
                    .series((ClientRevision(from), ServerRevision(self.revision)));
                counter.inc();
                translated.push((from, counter));
            }
        }
    }
}
