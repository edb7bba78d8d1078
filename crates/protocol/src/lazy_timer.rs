//! Timers for deadlines that are set for every request and hardly ever pass.
//!
//! Owns [`LazyTimer`], which stays armed from one deadline to the next, and [`TimerPool`], which
//! passes armed timers on. Does not know the work that is timed. Invariant: no timer completes
//! early.
//!
//! The runtime keeps its timers in one structure under one lock, and each call would add and remove
//! two or three. A timer that is armed already may fire early for its new deadline. Only then is it
//! armed for the right time.

use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::task::coop;
use tokio::time::{Instant, Sleep};

/// Limit of spare timers. Each holds its last waker until it fires.
const SPARE_MAX: usize = 256;

/// Timer that is armed when it is first waited for, and stays armed for the next deadline.
#[derive(Debug, Default)]
pub struct LazyTimer(Option<Pin<Box<Sleep>>>);

impl LazyTimer {
    /// Waits until `until`.
    pub fn poll_until(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()> {
        let sleep = self
            .0
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        // A later deadline needs no new entry in the runtime. An earlier one does: the timer would
        // be late.
        if sleep.deadline() > until {
            sleep.as_mut().reset(until);
        }
        loop {
            // With its cooperative budget spent, the task would only be woken again and the timer
            // would not be set.
            ready!(pin!(coop::unconstrained(sleep.as_mut())).poll(cx));
            if sleep.deadline() >= until {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(until);
        }
    }

    /// Starts to wait until `until`, as the task that waited before. A timer that is armed need not
    /// be polled: it wakes that task.
    pub fn poll_again_until(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()> {
        match &self.0 {
            Some(sleep) if !sleep.is_elapsed() && sleep.deadline() <= until => Poll::Pending,
            _ => self.poll_until(cx, until),
        }
    }

    /// True if the timer will fire.
    fn is_armed(&self) -> bool {
        self.0.as_ref().is_some_and(|sleep| !sleep.is_elapsed())
    }
}

/// Armed timers that no task waits for.
#[derive(Debug, Default)]
pub struct TimerPool(Mutex<Vec<LazyTimer>>);

/// Future that completes at a given time.
pub struct PooledTimer {
    until: Instant,
    timer: Option<LazyTimer>,
    pool: Arc<TimerPool>,
}

/// Error for work that was not done before its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineElapsed;

impl TimerPool {
    /// Creates a timer. It costs nothing before its first poll.
    pub fn timer_at(self: &Arc<Self>, until: Instant) -> PooledTimer {
        PooledTimer {
            until,
            timer: None,
            pool: self.clone(),
        }
    }

    /// Returns the output of `work`, or [`DeadlineElapsed`] after `until`. Also stops work that is
    /// always ready.
    pub async fn timeout_at<T>(
        self: &Arc<Self>,
        until: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T, DeadlineElapsed> {
        let mut work = pin!(work);
        let mut timer = pin!(self.timer_at(until));
        let mut is_again = false;
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            // The clock is read because timers alone do not suffice. None fires for a task that has
            // spent its budget, and none fires in time on threads that are never idle. Both take
            // more than one poll, and most work is pending once.
            if std::mem::replace(&mut is_again, true) && Instant::now() >= until {
                return Poll::Ready(Err(DeadlineElapsed));
            }
            timer.as_mut().poll(cx).map(|()| Err(DeadlineElapsed))
        })
        .await
    }

    fn take_spare(&self) -> Option<LazyTimer> {
        self.0.lock().pop()
    }
}

impl Future for PooledTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let PooledTimer { until, timer, pool } = &mut *self;
        timer
            .get_or_insert_with(|| pool.take_spare().unwrap_or_default())
            .poll_until(cx, *until)
    }
}

impl Drop for PooledTimer {
    fn drop(&mut self) {
        // A timer that has fired is useless to others.
        let Some(timer) = self.timer.take().filter(LazyTimer::is_armed) else {
            return;
        };
        let mut kept = self.pool.0.lock();
        // Over the limit the timer is dropped, which removes it from the runtime.
        if kept.len() < SPARE_MAX {
            kept.push(timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_timer_fires_in_time_with_whichever_timer() {
        let timers = Arc::new(TimerPool::default());
        let second = Duration::from_secs(1);
        let start = Instant::now();
        // Leaves a timer for the first second, and one for the third.
        for n in [3, 1] {
            assert!(timers.timer_at(start + second * n).now_or_never().is_none());
        }
        assert_eq!(
            timers.0.lock().len(),
            1,
            "the second took the place of the first"
        );
        timers.timer_at(start + second * 2).await;
        assert_eq!(start.elapsed(), second * 2);
        timers.timer_at(start + second * 5).await;
        assert_eq!(start.elapsed(), second * 5);
        timers.timer_at(start).await;
        assert_eq!(start.elapsed(), second * 5, "it was over already");
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_is_taken_over_wakes_its_new_owner() {
        let timers = Arc::new(TimerPool::default());
        let second = Duration::from_secs(1);
        let start = Instant::now();
        assert!(timers.timer_at(start + second).now_or_never().is_none());
        let others = (2..20).map(|n| {
            let timer = timers.timer_at(start + second * n);
            tokio::spawn(async move {
                timer.await;
                assert_eq!(start.elapsed(), second * n);
            })
        });
        for task in others.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_serves_one_deadline_after_another() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let mut timer = LazyTimer::default();
        for n in [2, 3, 1, 4, 5, 9] {
            // Each wait but the last is given up half-way.
            let until = start + second * n;
            let first = poll_fn(|cx| Poll::Ready(timer.poll_again_until(cx, until))).await;
            assert!(first.is_pending() && timer.is_armed());
        }
        poll_fn(|cx| timer.poll_until(cx, start + second * 9)).await;
        assert_eq!(start.elapsed(), second * 9);
        poll_fn(|cx| timer.poll_again_until(cx, start + second * 9)).await;
        assert_eq!(start.elapsed(), second * 9, "it was over already");
        assert!(!timer.is_armed(), "it was over already");
    }

    /// Work that is always ready, like a socket that is written to faster than it is read.
    async fn busy(milliseconds: u64) {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        loop {
            sender.send(()).await.unwrap();
            receiver.recv().await;
            tokio::time::advance(std::time::Duration::from_millis(milliseconds)).now_or_never();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_always_ready_is_given_up_too() {
        let timers = Arc::new(TimerPool::default());
        for _ in 0..3 {
            let until = Instant::now() + Duration::from_secs(2);
            let given_up =
                tokio::time::timeout(Duration::from_secs(1000), timers.timeout_at(until, busy(1)))
                    .await;
            assert_eq!(given_up, Ok(Err(DeadlineElapsed)));
            assert!(
                Instant::now() < until + Duration::from_secs(1),
                "it was late by {:?}",
                Instant::now() - until
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_late_is_given_up() {
        let timers = Arc::new(TimerPool::default());
        let second = Duration::from_secs(1);
        let start = Instant::now();
        for _ in 0..3 {
            let until = Instant::now() + second;
            assert_eq!(
                timers.timeout_at(until, std::future::pending::<()>()).await,
                Err(DeadlineElapsed)
            );
            assert_eq!(
                timers.timeout_at(until, async { 7 }).await,
                Ok(7),
                "it was there at once"
            );
        }
        assert_eq!(start.elapsed(), second * 3);
        let until = Instant::now() + second;
        assert_eq!(
            timers
                .timeout_at(until, tokio::time::sleep(second / 2))
                .await,
            Ok(())
        );
        assert_eq!(timers.0.lock().len(), 1);
    }
}
