//! How many calls a server has at once, and how many may wait for their turn.
//!
//! Invariant: turns are given in the order of asking, and nobody waits longer than the call's own time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::model::{Error, Reason};
use crate::telemetry::{Amount, Metrics};
use crate::upstream::ServerSettings;

/// The slots of one server.
pub(super) struct Slots {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A call's slot.
pub(super) type Slot = OwnedSemaphorePermit;

/// A call's slot; while it waits for something that is no load on the server, its place among those that wait for one.
pub(super) struct Ticket<'a> {
    pub(super) slot: Option<Slot>,
    place: Option<Waiting<'a>>,
    slots: &'a Slots,
    settings: &'a ServerSettings,
    metrics: &'a Metrics,
    deadline: Instant,
}

impl Ticket<'_> {
    /// Lets others have the slot, where there is a place to wait for another; elsewhere it is kept.
    pub(super) fn step_aside(&mut self) {
        if self.place.is_none() {
            self.place = Waiting::enter(self.slots, self.settings, self.metrics);
        }
        if self.place.is_some() {
            self.slot = None;
        }
    }

    /// Waits for a slot, if it has none.
    pub(super) async fn redeem(&mut self) -> Result<(), Error> {
        if self.slot.is_none() {
            self.slot = Some(self.slots.turn(self.settings, self.deadline).await?);
        }
        self.place = None;
        Ok(())
    }
}

impl Slots {
    pub(super) fn new(settings: &ServerSettings) -> Self {
        Slots { free: Arc::new(Semaphore::new(settings.max_concurrency)), waiting: AtomicUsize::new(0) }
    }

    /// A slot, if one is free and nobody waits for it.
    pub(super) fn at_hand(&self) -> Option<Slot> {
        self.free.clone().try_acquire_owned().ok()
    }

    /// Changes how many there are.
    pub(super) fn resize(&self, from: usize, to: usize) {
        if to > from {
            self.free.add_permits(to - from);
        } else if to < from {
            let owed = from - to - self.free.forget_permits(from - to);
            // What is in use is taken away when it is given back.
            let free = self.free.clone();
            tokio::spawn(async move {
                if let Ok(permits) = free.acquire_many_owned(u32::try_from(owed).unwrap_or(u32::MAX)).await {
                    permits.forget();
                }
            });
        }
    }

    /// How many calls wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// A slot, waited for.
    pub(super) async fn take(
        &self,
        settings: &ServerSettings,
        metrics: &Metrics,
        deadline: Instant,
    ) -> Result<Slot, Error> {
        if let Some(slot) = self.at_hand() {
            return Ok(slot);
        }
        let ServerSettings { name, queue, max_concurrency, .. } = settings;
        let _place = Waiting::enter(self, settings, metrics).ok_or_else(|| {
            metrics.refused.with_label_values(&["queue"]).inc();
            let message = format!("Server \"{name}\" is busy: {max_concurrency} calls run and {queue} wait; raise servers.{name}.max_concurrency or .queue");
            Error::new(Reason::Overloaded, message)
        })?;
        self.turn(settings, deadline).await
    }

    /// The slot of a call, and what it needs to give it up for a while.
    pub(super) fn ticket<'a>(
        &'a self,
        slot: Option<Slot>,
        settings: &'a ServerSettings,
        metrics: &'a Metrics,
        deadline: Instant,
    ) -> Ticket<'a> {
        Ticket { slot, place: None, slots: self, settings, metrics, deadline }
    }

    async fn turn(&self, settings: &ServerSettings, deadline: Instant) -> Result<Slot, Error> {
        let ServerSettings { name, timeout, .. } = settings;
        match tokio::time::timeout_at(deadline, self.free.clone().acquire_owned()).await {
            Ok(Ok(slot)) => Ok(slot),
            _ => {
                let message = format!(
                    "Server \"{name}\" is busy: the call waited for its turn until its time was over (servers.{name}.max_concurrency, and .timeout = {timeout:?})"
                );
                Err(Error::new(Reason::Overloaded, message))
            }
        }
    }
}

/// A place in the queue for a slot.
struct Waiting<'a> {
    slots: &'a Slots,
    /// Kept: the server's may be another by the time the place is left, if the server is taken out of the config and back.
    depth: Amount,
}

impl<'a> Waiting<'a> {
    fn enter(slots: &'a Slots, settings: &ServerSettings, metrics: &Metrics) -> Option<Self> {
        let place = Waiting { slots, depth: metrics.queue_depth.with_label_values(&[&settings.name]) };
        let before = slots.waiting.fetch_add(1, Ordering::AcqRel);
        place.depth.inc();
        (before < settings.queue).then_some(place)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.slots.waiting.fetch_sub(1, Ordering::AcqRel);
        self.depth.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::upstream::Connect;

    #[tokio::test(start_paused = true)]
    async fn turns_are_in_order_and_within_the_calls_time() {
        let connect = Connect::Stdio { command: String::new(), args: Vec::new(), env: Vec::new(), cwd: None };
        let settings = ServerSettings { max_concurrency: 1, queue: 2, ..ServerSettings::new("a", connect) };
        let (slots, metrics) = (Slots::new(&settings), Metrics::new());
        let late = Instant::now() + Duration::from_secs(60);
        let first = slots.take(&settings, &metrics, late).await.unwrap();
        let mut second = Box::pin(slots.take(&settings, &metrics, late));
        let mut third = Box::pin(slots.take(&settings, &metrics, Instant::now() + Duration::from_secs(1)));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        assert_eq!(slots.waiting(), 2);
        let error = slots.take(&settings, &metrics, late).now_or_never().unwrap().unwrap_err();
        assert!(error.message.contains("servers.a.max_concurrency or .queue"), "{error}");
        assert_eq!(slots.waiting(), 2, "who is refused does not wait");
        let error = third.await.unwrap_err();
        assert!(error.message.contains("its time was over"), "{error}");
        drop(first);
        assert!(slots.at_hand().is_none(), "it is the second's turn");
        let slot = second.await.unwrap();
        assert_eq!(slots.waiting(), 0);
        let mut aside = slots.ticket(Some(slot), &settings, &metrics, late);
        aside.step_aside();
        let other = slots.at_hand().unwrap();
        assert!(aside.redeem().now_or_never().is_none() && slots.waiting() == 1, "it waits like any other");
        drop(other);
        aside.redeem().await.unwrap();
        assert!(aside.slot.is_some() && slots.waiting() == 0);
        aside.step_aside();
        metrics.forget_server("a", &[], &[]);
        aside.redeem().await.unwrap();
        assert_eq!(metrics.queue_depth.with_label_values(&["a"]).get(), 0, "its server was forgotten meanwhile");
        let full = ServerSettings { queue: 0, ..settings.clone() };
        let mut stays = slots.ticket(aside.slot.take(), &full, &metrics, late);
        stays.step_aside();
        assert!(stays.slot.is_some(), "where nobody may wait, it keeps its slot");
    }
}
