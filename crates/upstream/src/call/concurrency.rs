//! Concurrency limit of one server, with a queue. Owns the permits and the number of waiting calls.
//! Does not start calls (`call`). Invariant: permits are granted in the order of arrival, and no
//! call waits beyond its deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::options::LiveOptions;
use crate::pool::dedicated::ReleasePermit;
use crate::settings::ServerSettings;
use moongate_model::{Error, McpErrorKind};
use moongate_telemetry::{GaugeHandle, Limit, Metrics};

/// Permits of one server.
pub(crate) struct ConcurrencyLimit {
    free: Arc<Semaphore>,
    queued: AtomicUsize,
}

/// Permit of one call.
pub(crate) type ConcurrencyPermit = OwnedSemaphorePermit;

/// Permit of one call, or its slot in the queue while the call waits without load on the server.
pub(crate) struct QueuedPermit<'a> {
    pub(crate) permit: Option<ConcurrencyPermit>,
    queue_slot: Option<QueueSlot<'a>>,
    limit: &'a ConcurrencyLimit,
    settings: &'a ServerSettings,
    metrics: &'a Metrics,
    deadline: Instant,
}

impl ReleasePermit for QueuedPermit<'_> {
    /// Releases the permit and enters the queue. A full queue leaves the call its permit.
    fn release(&mut self) {
        if self.queue_slot.is_none() {
            self.queue_slot = QueueSlot::enter(self.limit, self.settings, self.metrics);
        }
        // In this order, so that the call never lacks both the permit and a slot.
        if self.queue_slot.is_some() {
            self.permit = None;
        }
    }
}

impl QueuedPermit<'_> {
    /// Waits for a permit, if the call has none.
    pub(crate) async fn reacquire(&mut self) -> Result<(), Error> {
        if self.permit.is_none() {
            self.permit = Some(
                self.limit
                    .wait_in_queue(self.settings, self.deadline)
                    .await?,
            );
        }
        // Left only now, so that the call counts as queued for as long as it waits.
        self.queue_slot = None;
        Ok(())
    }
}

impl ConcurrencyLimit {
    pub(crate) fn new(settings: &ServerSettings) -> Self {
        ConcurrencyLimit {
            free: Arc::new(Semaphore::new(settings.live.max_concurrency)),
            queued: AtomicUsize::new(0),
        }
    }

    /// Returns a permit, if one is free and no call waits for it.
    pub(crate) fn try_acquire(&self) -> Option<ConcurrencyPermit> {
        self.free.clone().try_acquire_owned().ok()
    }

    /// Changes the number of permits.
    pub(crate) fn resize(&self, from: usize, to: usize) {
        if to > from {
            // Waiting calls get the new permits at once, in their order.
            self.free.add_permits(to - from);
        } else if to < from {
            // Calls that run are not cut off by a smaller limit.
            let owed = from - to - self.free.forget_permits(from - to);
            // Permits in use are withdrawn once their calls return them.
            let free = self.free.clone();
            tokio::spawn(async move {
                if let Ok(permits) = free
                    .acquire_many_owned(u32::try_from(owed).unwrap_or(u32::MAX))
                    .await
                {
                    permits.forget();
                }
            });
        }
    }

    /// Returns the number of permits of this many that calls have.
    pub(crate) fn in_use(&self, max: usize) -> usize {
        max.saturating_sub(self.free.available_permits())
    }

    /// Returns the number of calls in the queue.
    pub(crate) fn queue_len(&self) -> usize {
        self.queued.load(Ordering::Acquire)
    }

    /// Waits for a permit. Fails if the queue is full, or at the deadline.
    pub(crate) async fn acquire(
        &self,
        settings: &ServerSettings,
        metrics: &Metrics,
        deadline: Instant,
    ) -> Result<ConcurrencyPermit, Error> {
        if let Some(permit) = self.try_acquire() {
            return Ok(permit);
        }
        let ServerSettings { name, live, .. } = settings;
        let LiveOptions {
            queue,
            max_concurrency,
            ..
        } = live;
        let _slot = QueueSlot::enter(self, settings, metrics).ok_or_else(|| {
            metrics.calls.refused.inc(Limit::Queue);
            let message = format!(
                "Server \"{name}\" is busy: {max_concurrency} calls are running and {queue} are \
                 waiting; raise servers.{name}.max_concurrency or .queue"
            );
            Error::new(McpErrorKind::Overloaded, message)
        })?;
        self.wait_in_queue(settings, deadline).await
    }

    /// Returns a handle that can release a call's permit for a while.
    pub(crate) fn queued_permit<'a>(
        &'a self,
        permit: Option<ConcurrencyPermit>,
        settings: &'a ServerSettings,
        metrics: &'a Metrics,
        deadline: Instant,
    ) -> QueuedPermit<'a> {
        QueuedPermit {
            permit,
            queue_slot: None,
            limit: self,
            settings,
            metrics,
            deadline,
        }
    }

    async fn wait_in_queue(
        &self,
        settings: &ServerSettings,
        deadline: Instant,
    ) -> Result<ConcurrencyPermit, Error> {
        let ServerSettings { name, live, .. } = settings;
        let timeout = live.timeout.0;
        match tokio::time::timeout_at(deadline, self.free.clone().acquire_owned()).await {
            // The semaphore is never closed, so that any other result is the deadline.
            Ok(Ok(permit)) => Ok(permit),
            _ => {
                let message = format!(
                    "Server \"{name}\" is busy: the call timed out while it waited in the queue \
                     (servers.{name}.max_concurrency, and .timeout = {timeout:?})"
                );
                Err(Error::new(McpErrorKind::Overloaded, message))
            }
        }
    }
}

/// Place in the queue.
struct QueueSlot<'a> {
    limit: &'a ConcurrencyLimit,
    /// Held because a later lookup may find another gauge, after the server left the config and
    /// came back.
    depth: GaugeHandle,
}

impl<'a> QueueSlot<'a> {
    fn enter(
        limit: &'a ConcurrencyLimit,
        settings: &ServerSettings,
        metrics: &Metrics,
    ) -> Option<Self> {
        let slot = QueueSlot {
            limit,
            depth: metrics.servers.queue_depth.series(&settings.name),
        };
        // Counted before the check: of two calls that enter together, only one can get the last
        // place.
        let before = limit.queued.fetch_add(1, Ordering::AcqRel);
        slot.depth.inc();
        // The guard exists already: a refused call is counted out again by its drop.
        (before < settings.live.queue).then_some(slot)
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.limit.queued.fetch_sub(1, Ordering::AcqRel);
        self.depth.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::ConnectTarget;

    #[tokio::test(start_paused = true)]
    async fn turns_are_in_order_and_within_the_calls_time() {
        let connect = ConnectTarget::Stdio {
            command: String::new(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
        };
        let mut settings = ServerSettings::new("a", connect);
        settings.live.max_concurrency = 1;
        settings.live.queue = 2;
        let limit = ConcurrencyLimit::new(&settings);
        let metrics = Metrics::new();
        let late = Instant::now() + Duration::from_secs(60);
        let first = limit.acquire(&settings, &metrics, late).await.unwrap();
        let mut second = Box::pin(limit.acquire(&settings, &metrics, late));
        // Its deadline comes before any permit.
        let mut third =
            Box::pin(limit.acquire(&settings, &metrics, Instant::now() + Duration::from_secs(1)));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        assert_eq!(limit.queue_len(), 2);
        let error = limit
            .acquire(&settings, &metrics, late)
            .now_or_never()
            .unwrap()
            .unwrap_err();
        assert!(
            error
                .message
                .contains("servers.a.max_concurrency or .queue"),
            "{error}"
        );
        assert_eq!(limit.queue_len(), 2, "who is refused does not wait");
        let error = third.await.unwrap_err();
        assert!(error.message.contains("waited in the queue"), "{error}");
        drop(first);
        assert!(limit.try_acquire().is_none(), "it is the second's turn");
        let permit = second.await.unwrap();
        assert_eq!(limit.queue_len(), 0);
        // A call with a permit gives it up, and gets it back after the other call.
        let mut aside = limit.queued_permit(Some(permit), &settings, &metrics, late);
        aside.release();
        let other = limit.try_acquire().unwrap();
        assert!(
            aside.reacquire().now_or_never().is_none() && limit.queue_len() == 1,
            "it waits like any other"
        );
        drop(other);
        aside.reacquire().await.unwrap();
        assert!(aside.permit.is_some() && limit.queue_len() == 0);
        aside.release();
        // The server leaves the config while the call is queued.
        metrics.forget_server("a", &[], &[]);
        aside.reacquire().await.unwrap();
        assert_eq!(
            metrics.servers.queue_depth.get("a"),
            0,
            "its server was forgotten meanwhile"
        );
        // Without a queue, a released permit could be lost.
        let mut full = settings.clone();
        full.live.queue = 0;
        let mut stays = limit.queued_permit(aside.permit.take(), &full, &metrics, late);
        stays.release();
        assert!(
            stays.permit.is_some(),
            "where nobody may wait, it keeps its slot"
        );
    }
}
