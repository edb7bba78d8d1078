//! Replies that the gateway itself gives to server requests, such as pings.
//!
//! Owns the limits of these replies, apart from the limits of calls. Does not decide the replies
//! (`rpc_pipe` and the revision do). Invariant: a server that asks faster than it reads replies is
//! not read meanwhile, but never longer than [`ROOM_TIME`]. It may be blocked in writing data that
//! a call waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::reply_rate_limit::{ReplyMeter, ReplyRateLimit};

/// Limit of replies waiting to be written.
const REPLIES_MAX: usize = 256;
/// Limit of their bytes.
const REPLY_BYTES: usize = 64 * 1024;
/// Longest wait for room, while the server is not read. Later replies are dropped until there is
/// room.
const ROOM_TIME: Duration = Duration::from_secs(5);

/// Line to be written, with its share of the write budget.
pub(crate) type QueuedLine = (Bytes, OwnedSemaphorePermit);

/// Bounded queue of replies to the server.
pub(super) struct ReplyQueue {
    queue: mpsc::Sender<QueuedLine>,
    room: Arc<Semaphore>,
    rate_limit: ReplyRateLimit,
    meter: ReplyMeter,
    /// True after a wait for room timed out, until there is room again.
    is_stuck: AtomicBool,
}

impl ReplyQueue {
    /// Creates a queue. The receiver yields replies in order.
    pub(super) fn new(meter: ReplyMeter) -> (Self, mpsc::Receiver<QueuedLine>) {
        let (queue, receiver) = mpsc::channel(REPLIES_MAX);
        let room = Arc::new(Semaphore::new(REPLY_BYTES));
        (
            ReplyQueue {
                queue,
                room,
                rate_limit: ReplyRateLimit::default(),
                meter,
                is_stuck: AtomicBool::new(false),
            },
            receiver,
        )
    }

    /// Queues a reply, at its rate and when there is room. The reading task waits here, which slows
    /// the server down.
    pub(super) async fn send(&self, answer: Bytes) {
        let was_delayed = self.rate_limit.wait_turn().await;
        // A reply larger than the whole room would wait for ever.
        let size = u32::try_from(answer.len().min(REPLY_BYTES)).unwrap_or(u32::MAX);
        if let Ok(permit) = self.room.clone().try_acquire_many_owned(size)
            && self.queue.try_send((answer.clone(), permit)).is_ok()
        {
            self.is_stuck.store(false, Ordering::Relaxed);
            return self.meter.record_answered(was_delayed);
        }
        // One full wait is enough for a server that reads nothing; later replies are dropped at
        // once.
        if self.queue.is_closed() || self.is_stuck.load(Ordering::Relaxed) {
            return self.meter.record_dropped();
        }
        match tokio::time::timeout(ROOM_TIME, self.wait_for_room(answer, size)).await {
            Ok(true) => self.meter.record_answered(true),
            Ok(false) => self.meter.record_dropped(),
            Err(_) => {
                self.is_stuck.store(true, Ordering::Relaxed);
                self.meter.record_dropped();
            }
        }
    }

    async fn wait_for_room(&self, answer: Bytes, size: u32) -> bool {
        let Ok(permit) = self.room.clone().acquire_many_owned(size).await else {
            return false;
        };
        let line: (Bytes, OwnedSemaphorePermit) = (answer, permit);
        self.queue.send(line).await.is_ok()
    }
}
