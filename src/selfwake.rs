//! Waker for a task that wakes itself: handled at once, without the scheduler.
//!
//! Owns [`SelfWake`], for a task that polls both ends of a channel. Each end wakes the other, which is the same task;
//! the scheduler would queue it and wake an idle thread to share the work. Does not schedule. Invariant: no wake is
//! lost, and a future that always wakes itself yields after a fixed number of rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Limit of polls before the task yields to the scheduler.
const ROUNDS_MAX: usize = 8;

/// Waker for the futures that one task polls.
pub struct SelfWake {
    inner: Arc<WakeState>,
    waker: Waker,
}

#[derive(Default)]
struct WakeState {
    task: AtomicWaker,
    /// True while the task is in [`SelfWake::poll`].
    polling: AtomicBool,
    woken: AtomicBool,
}

impl Wake for WakeState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // In this order: a polling task reads `woken` after it has cleared `polling`, so one of the two sees the wake.
        self.woken.store(true, Ordering::SeqCst);
        if !self.polling.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

impl Default for SelfWake {
    fn default() -> Self {
        let inner = Arc::new(WakeState::default());
        SelfWake { waker: Waker::from(inner.clone()), inner }
    }
}

impl SelfWake {
    /// Polls with `poll`, and repeats at once while that wakes itself.
    pub fn poll<T>(&self, cx: &Context<'_>, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let WakeState { task, polling, woken } = &*self.inner;
        // Registered before `polling` is set, so that a wake from outside always finds the task.
        task.register(cx.waker());
        polling.store(true, Ordering::SeqCst);
        let mut polled = Poll::Pending;
        for _ in 0..ROUNDS_MAX {
            woken.store(false, Ordering::SeqCst);
            polled = poll(&mut Context::from_waker(&self.waker));
            if polled.is_ready() || !woken.load(Ordering::SeqCst) {
                break;
            }
        }
        polling.store(false, Ordering::SeqCst);
        // A wake that arrived after the last round would be lost without this.
        if polled.is_pending() && woken.load(Ordering::SeqCst) {
            cx.waker().wake_by_ref();
        }
        polled
    }

    /// Removes the task. Wakes are dropped until the next poll.
    pub fn detach(&self) {
        drop(self.inner.task.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn wakes_from_inside_stay_inside_and_others_get_out() {
        let (count, own) = (Arc::new(Count::default()), SelfWake::default());
        let waker = Waker::from(count.clone());
        let cx = Context::from_waker(&waker);
        let woken = || count.0.load(Ordering::SeqCst);
        let mut left = 3;
        let mut kept = None;
        let polled = own.poll(&cx, |cx| {
            kept = Some(cx.waker().clone());
            left -= 1;
            if left > 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        });
        assert_eq!((polled, left, woken()), (Poll::Ready(()), 0, 0));
        // From outside, while no poll is running.
        kept.unwrap().wake();
        assert_eq!(woken(), 1);
    }

    #[test]
    fn who_always_wakes_itself_goes_back_to_the_scheduler() {
        let (count, own) = (Arc::new(Count::default()), SelfWake::default());
        let waker = Waker::from(count.clone());
        let mut rounds = 0;
        let polled: Poll<()> = own.poll(&Context::from_waker(&waker), |cx| {
            rounds += 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        assert_eq!((polled, rounds, count.0.load(Ordering::SeqCst)), (Poll::Pending, ROUNDS_MAX, 1));
    }
}
