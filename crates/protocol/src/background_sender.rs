//! Sender of messages that no call waits for: replies to a server's requests, cancellations and the
//! like.
//!
//! Owns the limits on these messages over all connections of one server. Does not write them.
//! Invariant: the number of tasks and connections is bounded, however many requests the server
//! sends and however many calls clients cancel.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use moongate_telemetry::CounterHandle;
use moongate_transport::reply_rate_limit::ReplyRateLimit;

/// Limit of concurrent replies to a server's requests, if each needs its own connection.
const REPLIES_AT_ONCE: usize = 16;
/// Limit of other messages being sent.
const SENT_AT_ONCE: usize = 16;
/// Limit of other messages being sent or queued.
const WAITING_MAX: usize = 1024;
/// Time limit for sending one message.
const SEND_TIME: Duration = Duration::from_secs(10);

/// Sender of one server's background messages.
#[derive(Debug)]
pub(super) struct BackgroundSender {
    reply_rate: ReplyRateLimit,
    replies: Arc<Semaphore>,
    sending: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Default for BackgroundSender {
    fn default() -> Self {
        BackgroundSender {
            reply_rate: ReplyRateLimit::default(),
            replies: permits(REPLIES_AT_ONCE),
            sending: permits(SENT_AT_ONCE),
            waiting: permits(WAITING_MAX),
        }
    }
}

fn permits(most: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(most))
}

/// Permit for one reply, held until it is sent.
pub(super) struct ReplyPermit {
    _permit: Option<OwnedSemaphorePermit>,
    /// True if the permit was not available at once.
    pub(super) was_delayed: bool,
}

impl BackgroundSender {
    /// Waits for a permit for one reply. The waiting task does not read the server's stream
    /// meanwhile.
    pub(super) async fn acquire_reply(&self) -> ReplyPermit {
        // The rate first: a permit that is held during the wait would hold up replies on other
        // connections.
        let was_delayed = self.reply_rate.wait_turn().await;
        match self.replies.clone().try_acquire_owned() {
            Ok(permit) => ReplyPermit {
                _permit: Some(permit),
                was_delayed,
            },
            Err(_) => ReplyPermit {
                _permit: self.replies.clone().acquire_owned().await.ok(),
                was_delayed: true,
            },
        }
    }

    /// Sends a message in the background. A message without a permit is counted in `dropped`.
    pub(super) fn send(
        &self,
        message: impl Future<Output = ()> + Send + 'static,
        dropped: &CounterHandle,
    ) {
        let Ok(queue_permit) = self.waiting.clone().try_acquire_owned() else {
            return dropped.inc();
        };
        let sending = self.sending.clone();
        tokio::spawn(async move {
            let _queue_permit = queue_permit;
            // The queue's permit is held meanwhile, which bounds the number of these tasks.
            let _permit = sending.acquire_owned().await;
            // A failure changes nothing, because no call waits for the message.
            let _ = tokio::time::timeout(SEND_TIME, message).await;
        });
    }

    /// Tries to get a permit for a longer task that no call waits for, such as a cancellation with
    /// its response.
    pub(super) fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        self.waiting.clone().try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_nothing_makes_a_bounded_number_of_messages() {
        let sender = BackgroundSender::default();
        let dropped = CounterHandle::new("dropped", "-").unwrap();
        let open = Arc::new(AtomicUsize::new(0));
        for _ in 0..WAITING_MAX + 100 {
            let open = open.clone();
            let message = async move {
                open.fetch_add(1, Ordering::Relaxed);
                std::future::pending().await
            };
            sender.send(message, &dropped);
        }
        assert_eq!(dropped.get(), 100);
        tokio::time::sleep(SEND_TIME / 2).await;
        assert_eq!(open.load(Ordering::Relaxed), SENT_AT_ONCE);
        tokio::time::sleep(SEND_TIME * 100).await;
        assert_eq!(
            open.load(Ordering::Relaxed),
            WAITING_MAX,
            "each has its turn"
        );
        assert_eq!(sender.waiting.available_permits(), WAITING_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_wait_for_a_place() {
        let sender = BackgroundSender::default();
        let mut permits = Vec::new();
        for _ in 0..REPLIES_AT_ONCE {
            let queue_permit = sender.acquire_reply().await;
            assert!(!queue_permit.was_delayed);
            permits.push(queue_permit);
        }
        let mut next = Box::pin(sender.acquire_reply());
        assert!((&mut next).now_or_never().is_none());
        permits.pop();
        assert!(next.await.was_delayed);
    }
}
