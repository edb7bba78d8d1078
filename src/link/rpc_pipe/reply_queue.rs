//! Answers to a server's own requests that the gateway gives by itself: to a ping, to what nobody can answer.
//!
//! Owns the bounds on them, apart from what calls may have waiting. Does not decide what is answered (`duplex`, and the
//! revision). Invariant: a server that asks faster than it takes answers is not read meanwhile, but never for longer
//! than [`ROOM_TIME`]: it may be blocked in writing what a call waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::QueuedLine;
use crate::link::reply_rate_limit::{ReplyMeter, ReplyRateLimit};

/// Answers that wait to be written.
const REPLIES_MAX: usize = 256;
/// Bytes of them.
const REPLY_BYTES: usize = 64 * 1024;
/// How long room is waited for, and the server not read. After that answers are dropped until there is room.
const ROOM_TIME: Duration = Duration::from_secs(5);

/// The way of such answers to the server.
pub(super) struct ReplyQueue {
    queue: mpsc::Sender<QueuedLine>,
    room: Arc<Semaphore>,
    rate_limit: ReplyRateLimit,
    meter: ReplyMeter,
    /// Room was waited for in vain, and there was none since.
    is_stuck: AtomicBool,
}

impl ReplyQueue {
    /// Answers come out of the receiver in order.
    pub(super) fn new(meter: ReplyMeter) -> (Self, mpsc::Receiver<QueuedLine>) {
        let (queue, receiver) = mpsc::channel(REPLIES_MAX);
        let room = Arc::new(Semaphore::new(REPLY_BYTES));
        (
            ReplyQueue { queue, room, rate_limit: ReplyRateLimit::default(), meter, is_stuck: AtomicBool::new(false) },
            receiver,
        )
    }

    /// Sends an answer, in its turn and when there is room. Whoever reads the server waits here, and thereby the server.
    pub(super) async fn send(&self, answer: Bytes) {
        let is_late = self.rate_limit.wait_turn().await;
        // One that is larger than all room would wait for ever.
        let size = u32::try_from(answer.len().min(REPLY_BYTES)).unwrap_or(u32::MAX);
        if let Ok(place) = self.room.clone().try_acquire_many_owned(size)
            && self.queue.try_send((answer.clone(), place)).is_ok()
        {
            self.is_stuck.store(false, Ordering::Relaxed);
            return self.meter.answered(is_late);
        }
        if self.queue.is_closed() || self.is_stuck.load(Ordering::Relaxed) {
            return self.meter.dropped();
        }
        match tokio::time::timeout(ROOM_TIME, self.wait_for_room(answer, size)).await {
            Ok(true) => self.meter.answered(true),
            Ok(false) => self.meter.dropped(),
            Err(_) => {
                self.is_stuck.store(true, Ordering::Relaxed);
                self.meter.dropped();
            }
        }
    }

    async fn wait_for_room(&self, answer: Bytes, size: u32) -> bool {
        let Ok(place) = self.room.clone().acquire_many_owned(size).await else { return false };
        let line: (Bytes, OwnedSemaphorePermit) = (answer, place);
        self.queue.send(line).await.is_ok()
    }
}
