//! Wakes that a task gives to itself: answered at once, instead of by way of the scheduler.
//!
//! Owns [`SelfWake`], for a task that polls two ends of one channel. Each end wakes the other one, which is the same
//! task: the scheduler would put it into its queue for that, and call an idle thread to share the work. Invariant: no
//! wake is lost, and a future that always wakes itself gets no more than its rounds before others have theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Polls before the scheduler has its say.
const ROUNDS_MAX: usize = 8;

/// The waker of what one task polls.
pub struct SelfWake {
    inner: Arc<WakeState>,
    waker: Waker,
}

#[derive(Default)]
struct WakeState {
    task: AtomicWaker,
    /// The task is in [`SelfWake::poll`].
    polling: AtomicBool,
    woken: AtomicBool,
}

impl Wake for WakeState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // In this order: whoever is polling looks at `woken` after it has taken `polling` back.
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
    /// Polls with `poll`, again and at once for as long as that wakes itself.
    pub fn poll<T>(&self, cx: &Context<'_>, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let WakeState { task, polling, woken } = &*self.inner;
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
        if polled.is_pending() && woken.load(Ordering::SeqCst) {
            cx.waker().wake_by_ref();
        }
        polled
    }

    /// Forgets the task; a wake goes nowhere until the next poll.
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
        // From outside, while nobody polls.
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
