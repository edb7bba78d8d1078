//! Timers that are set for every call and go off for hardly any.
//!
//! Owns [`Alarms`], which hands out timers that were set before. The runtime's timers are in one structure under one lock,
//! and nearly all that go in come out again a moment later, twice or three times with each call. An alarm takes over a
//! timer that somebody else left set, lets it go off too early, if it ever does, and only then sets it to its own time.
//! Invariant: an alarm is never early.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep};

/// Timers that are kept; they hold what they woke last until they go off.
const SPARE_MAX: usize = 256;

/// Timers that are set, and that nobody waits for.
#[derive(Debug, Default)]
pub struct TimerPool(Mutex<Vec<Pin<Box<Sleep>>>>);

/// Waits until a time.
pub struct PooledTimer {
    until: Instant,
    timer: Option<Pin<Box<Sleep>>>,
    pool: Arc<TimerPool>,
}

/// The time was over first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineElapsed;

impl TimerPool {
    /// An alarm; it costs nothing before it is waited for.
    pub fn timer_at(self: &Arc<Self>, until: Instant) -> PooledTimer {
        PooledTimer { until, timer: None, pool: self.clone() }
    }

    /// The output of `work`, or [`Late`] once `until` has passed. Holds against work that is always ready.
    pub async fn timeout_at<T>(
        self: &Arc<Self>,
        until: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T, DeadlineElapsed> {
        let (mut work, mut alarm) = (pin!(work), pin!(self.timer_at(until)));
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            // No timer fires for a task whose work has spent its budget, and none in time on threads that are never idle:
            // whoever always has more to do would have all the time there is. So the clock is looked at.
            if Instant::now() >= until {
                return Poll::Ready(Err(DeadlineElapsed));
            }
            alarm.as_mut().poll(cx).map(|()| Err(DeadlineElapsed))
        })
        .await
    }

    fn take_spare(&self) -> Option<Pin<Box<Sleep>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

impl Future for PooledTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let PooledTimer { until, timer, pool: home } = &mut *self;
        let timer = timer.get_or_insert_with(|| match home.take_spare() {
            Some(timer) if timer.deadline() <= *until => timer,
            _ => Box::pin(tokio::time::sleep_until(*until)),
        });
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= *until {
                return Poll::Ready(());
            }
            timer.as_mut().reset(*until);
        }
    }
}

impl Drop for PooledTimer {
    fn drop(&mut self) {
        let Some(timer) = self.timer.take().filter(|timer| !timer.is_elapsed()) else { return };
        let mut kept = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    async fn an_alarm_goes_off_in_time_with_whichever_timer() {
        let alarms = Arc::new(TimerPool::default());
        let (second, start) = (Duration::from_secs(1), Instant::now());
        // Leaves a timer for the first second, and one for the third.
        for n in [3, 1] {
            assert!(alarms.timer_at(start + second * n).now_or_never().is_none());
        }
        assert_eq!(alarms.0.lock().unwrap().len(), 1, "the second took the place of the first");
        alarms.timer_at(start + second * 2).await;
        assert_eq!(start.elapsed(), second * 2);
        alarms.timer_at(start + second * 5).await;
        assert_eq!(start.elapsed(), second * 5);
        alarms.timer_at(start).await;
        assert_eq!(start.elapsed(), second * 5, "it was over already");
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_is_taken_over_wakes_its_new_owner() {
        let alarms = Arc::new(TimerPool::default());
        let (second, start) = (Duration::from_secs(1), Instant::now());
        assert!(alarms.timer_at(start + second).now_or_never().is_none());
        let others = (2..20).map(|n| {
            let alarm = alarms.timer_at(start + second * n);
            tokio::spawn(async move {
                alarm.await;
                assert_eq!(start.elapsed(), second * n);
            })
        });
        for task in others.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    }

    /// Something that always has more, as a socket that is written to faster than it is read.
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
        let alarms = Arc::new(TimerPool::default());
        for _ in 0..3 {
            let until = Instant::now() + Duration::from_secs(2);
            let given_up = tokio::time::timeout(Duration::from_secs(1000), alarms.timeout_at(until, busy(1))).await;
            assert_eq!(given_up, Ok(Err(DeadlineElapsed)));
            assert!(Instant::now() < until + Duration::from_secs(1), "it was late by {:?}", Instant::now() - until);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_late_is_given_up() {
        let alarms = Arc::new(TimerPool::default());
        let (second, start) = (Duration::from_secs(1), Instant::now());
        for _ in 0..3 {
            let until = Instant::now() + second;
            assert_eq!(alarms.timeout_at(until, std::future::pending::<()>()).await, Err(DeadlineElapsed));
            assert_eq!(alarms.timeout_at(until, async { 7 }).await, Ok(7), "it was there at once");
        }
        assert_eq!(start.elapsed(), second * 3);
        let until = Instant::now() + second;
        assert_eq!(alarms.timeout_at(until, tokio::time::sleep(second / 2)).await, Ok(()));
        assert_eq!(alarms.0.lock().unwrap().len(), 1);
    }
}
