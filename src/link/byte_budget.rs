//! What a server said on a pipe and nobody has read yet, in bytes.
//!
//! Owns the bound and the counters. Does not hold messages (`duplex`). Invariant: what is taken is given back when the
//! message is read or dropped, whichever comes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::link::reply_rate_limit::ReplyMeter;
use crate::telemetry::{CounterHandle, GaugeHandle, Metrics};

/// The backlog of one pipe.
pub struct ByteBudget {
    limit: usize,
    used: AtomicUsize,
    gauge: GaugeHandle,
    /// Answers to nothing that is open: late, a second time, or invented.
    pub(super) answers: CounterHandle,
    /// Other messages, for which there was no room.
    pub(super) dropped: CounterHandle,
    /// Of these, the server's requests; each is answered with an error.
    pub(super) refused: CounterHandle,
    /// Counts what the gateway answers by itself.
    pub(super) replies: ReplyMeter,
}

/// A message's part of it.
pub struct ByteReservation(Arc<ByteBudget>, usize);

impl ByteBudget {
    /// Room for so many bytes of a server.
    pub fn new(most: usize, server: &str, metrics: &Metrics) -> Arc<Self> {
        Arc::new(ByteBudget {
            limit: most,
            used: AtomicUsize::new(0),
            gauge: metrics.backlog_bytes.with_label_values(&[server]),
            answers: metrics.dropped.with_label_values(&["server_answer"]),
            dropped: metrics.dropped.with_label_values(&["server_message"]),
            refused: metrics.refused.with_label_values(&["max_backlog"]),
            replies: ReplyMeter::new(server, metrics),
        })
    }

    /// Room for a message; `None`: there is none.
    pub fn reserve(self: &Arc<Self>, size: usize) -> Option<ByteReservation> {
        let fits = |used: usize| used.checked_add(size).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        self.gauge.add(i64::try_from(size).unwrap_or(i64::MAX));
        Some(ByteReservation(self.clone(), size))
    }

    /// The most that may wait.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        self.0.used.fetch_sub(self.1, Ordering::AcqRel);
        self.0.gauge.sub(i64::try_from(self.1).unwrap_or(i64::MAX));
    }
}
