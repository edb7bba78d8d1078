//! What a server said on a pipe and nobody has read yet, in bytes.
//!
//! Owns the bound and the counters. Does not hold messages (`duplex`). Invariant: what is taken is given back when the
//! message is read or dropped, whichever comes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::link::reply_pace::ReplyMeter;
use crate::telemetry::{Amount, Counter, Metrics};

/// The backlog of one pipe.
pub struct Backlog {
    most: usize,
    used: AtomicUsize,
    gauge: Amount,
    /// Answers to nothing that is open: late, a second time, or invented.
    pub(super) answers: Counter,
    /// Other messages, for which there was no room.
    pub(super) dropped: Counter,
    /// Of these, the server's requests; each is answered with an error.
    pub(super) refused: Counter,
    /// Counts what the gateway answers by itself.
    pub(super) replies: ReplyMeter,
}

/// A message's part of it.
pub struct Weight(Arc<Backlog>, usize);

impl Backlog {
    /// Room for so many bytes of a server.
    pub fn new(most: usize, server: &str, metrics: &Metrics) -> Arc<Self> {
        Arc::new(Backlog {
            most,
            used: AtomicUsize::new(0),
            gauge: metrics.backlog_bytes.with_label_values(&[server]),
            answers: metrics.dropped.with_label_values(&["server_answer"]),
            dropped: metrics.dropped.with_label_values(&["server_message"]),
            refused: metrics.refused.with_label_values(&["max_backlog"]),
            replies: ReplyMeter::new(server, metrics),
        })
    }

    /// Room for a message; `None`: there is none.
    pub fn take(self: &Arc<Self>, size: usize) -> Option<Weight> {
        let fits = |used: usize| used.checked_add(size).filter(|sum| *sum <= self.most);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        self.gauge.add(i64::try_from(size).unwrap_or(i64::MAX));
        Some(Weight(self.clone(), size))
    }

    /// The most that may wait.
    pub(super) fn most(&self) -> usize {
        self.most
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.0.used.fetch_sub(self.1, Ordering::AcqRel);
        self.0.gauge.sub(i64::try_from(self.1).unwrap_or(i64::MAX));
    }
}
