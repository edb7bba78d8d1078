//! Timeout that sets no timer where there is no need to wait. Owns when the timer starts.
//!
//! Does not cancel work other than by dropping it. Invariant: work that never completes is dropped after its limit.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// Waits for `work` for at most `limit`. Returns `None` if it took longer.
///
/// The timer starts with the second poll. Most bodies are complete by then, since the connection reads on as soon as it
/// is asked for more. A timer for each would be set only to be cancelled.
pub(super) async fn within<F: Future>(limit: Duration, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut asked = false;
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        if !std::mem::replace(&mut asked, true) {
            // Polled again at once, so that a body which never comes does start the timer.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        timer.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx).map(|()| None)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_never_comes_is_given_up() {
        let limit = Duration::from_secs(5);
        let start = tokio::time::Instant::now();
        assert_eq!(within(limit, std::future::pending::<()>()).await, None);
        assert_eq!(start.elapsed(), limit);
        assert_eq!(within(limit, async { 7 }).await, Some(7));
        assert_eq!(within(limit, sleep(limit / 2)).await, Some(()));
    }
}
