//! Byte budget of unread messages from one server.
//!
//! Owns the limit and the counters. Does not hold messages (`rpc_pipe`). Invariant: a reservation
//! is returned when its message is read or dropped, whichever comes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::reply_rate_limit::ReplyMeter;
use moongate_telemetry::{
    CounterHandle, DroppedItem, GaugeHandle, Limit, MemoryBudget, MemoryHolder, MemoryShare,
    Metrics,
};

/// Byte budget of one pipe.
pub struct ByteBudget {
    limit: usize,
    used: AtomicUsize,
    gauge: GaugeHandle,
    /// Count of answers that match no open call: timed out, duplicate or invented.
    pub(super) answers: CounterHandle,
    /// Count of other messages dropped for lack of room.
    pub(super) dropped: CounterHandle,
    /// Count of server requests among the dropped messages; each gets an error reply.
    pub(super) refused: CounterHandle,
    /// Count of messages whose text had to be mended.
    pub(super) mended: CounterHandle,
    /// Count of replies that the gateway gives itself.
    pub(super) replies: ReplyMeter,
    /// Share of the gateway's memory that the server's messages take.
    pub(super) memory: MemoryShare,
}

/// Reserved bytes of one message, returned on drop.
pub struct ByteReservation(Arc<ByteBudget>, usize);

impl ByteBudget {
    /// Creates a budget of `most` bytes for a server, whose messages are reserved nowhere else.
    pub fn new(most: usize, server: &str, metrics: &Metrics) -> Arc<Self> {
        let memory = MemoryBudget::unlimited(metrics).share(MemoryHolder::Server(server.into()));
        ByteBudget::within(most, server, metrics, memory)
    }

    /// Creates a budget of `most` bytes for a server, within its share of the gateway's memory.
    pub fn within(most: usize, server: &str, metrics: &Metrics, memory: MemoryShare) -> Arc<Self> {
        Arc::new(ByteBudget {
            limit: most,
            used: AtomicUsize::new(0),
            gauge: metrics.servers.backlog_bytes.series(server),
            answers: metrics.calls.dropped.series(DroppedItem::ServerResponse),
            dropped: metrics.calls.dropped.series(DroppedItem::ServerMessage),
            refused: metrics.calls.refused.series(Limit::MaxBacklog),
            mended: metrics.servers.mended.series(server),
            replies: ReplyMeter::new(server, metrics),
            memory,
        })
    }

    /// Reserves bytes for a message. `None` if the budget is used up.
    pub fn reserve(self: &Arc<Self>, size: usize) -> Option<ByteReservation> {
        // Check and reservation are one step: messages are released on other threads meanwhile.
        self.used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                used.checked_add(size).filter(|sum| *sum <= self.limit)
            })
            .ok()?;
        self.gauge.add(i64::try_from(size).unwrap_or(i64::MAX));
        Some(ByteReservation(self.clone(), size))
    }

    /// Returns the limit in bytes.
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
