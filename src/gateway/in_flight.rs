//! Calls that are being served, of all and of each principal, and their end when the principal is gone.
//!
//! Owns the counts, and the wakers of calls that wait. Does not know what calls do. Invariants: a call counts from the moment
//! that it is routed until its exchange is dropped; nothing of its result is handed on once its principal is gone.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll, Waker};

use futures_util::{Stream, StreamExt};

use crate::model::{Error, Exchange, ExchangeEvent, McpErrorKind};
use crate::policy::AccessTable;
use crate::telemetry::{CountGuard, Metrics};

/// The counts.
pub(super) struct InFlightCalls(RwLock<CallTable>);

struct CallTable {
    /// By principal; there are as many as there are keys.
    each: HashMap<u32, Arc<PrincipalCalls>>,
    access: AccessTable,
}

/// The calls of one principal.
#[derive(Default)]
struct PrincipalCalls {
    count: AtomicUsize,
    is_revoked: AtomicBool,
    waiting: Mutex<WakerSet>,
}

/// Wakers, each in a place of its own.
#[derive(Default)]
struct WakerSet {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl InFlightCalls {
    /// No calls, of the principals in this table.
    pub(super) fn new(access: AccessTable) -> Self {
        InFlightCalls(RwLock::new(CallTable { each: HashMap::new(), access }))
    }

    fn calls(&self, principal: u32) -> Arc<PrincipalCalls> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).each.get(&principal).cloned();
        known.unwrap_or_else(|| {
            let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if known.access.contains(principal) {
                return known.each.entry(principal).or_default().clone();
            }
            // A request that came in before its key went.
            Arc::new(PrincipalCalls { is_revoked: AtomicBool::new(true), ..PrincipalCalls::default() })
        })
    }

    /// Ends the calls of principals that are not in this table, and forgets them.
    pub(super) fn apply_access(&self, access: &AccessTable) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.access = access.clone();
        let gone: Vec<_> = known.each.extract_if(|principal, _| !access.contains(*principal)).collect();
        drop(known);
        gone.iter().for_each(|(_, calls)| calls.revoke());
    }

    /// Calls of one principal.
    pub(super) fn count_of(&self, principal: u32) -> usize {
        self.calls(principal).count.load(Ordering::Relaxed)
    }

    /// One more, until its exchange is dropped; it ends at once when the principal is gone.
    pub(super) fn track(
        &self,
        principal: u32,
        metrics: &Metrics,
        events: impl Stream<Item = ExchangeEvent> + Send + Unpin + 'static,
    ) -> Exchange {
        let calls = self.calls(principal);
        calls.count.fetch_add(1, Ordering::Relaxed);
        let entered = InFlightGuard { calls: calls.clone(), _all: CountGuard::new(&metrics.inflight) };
        Exchange::new(RevocableCall { events: Some(events), revoked: RevocationWait::of(calls), _guard: entered })
    }

    /// Waits until a principal is gone.
    pub(super) fn until_revoked(&self, principal: u32) -> impl Future<Output = ()> + Send + use<> {
        let mut revoked = RevocationWait::of(self.calls(principal));
        poll_fn(move |cx| revoked.poll(cx))
    }
}

impl PrincipalCalls {
    fn revoke(&self) {
        self.is_revoked.store(true, Ordering::SeqCst);
        let woken = std::mem::take(&mut self.lock().wakers);
        woken.into_iter().flatten().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, WakerSet> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wait for the end of a principal.
struct RevocationWait {
    calls: Arc<PrincipalCalls>,
    /// What is registered, and where.
    registration: Option<(usize, Waker)>,
}

impl RevocationWait {
    fn of(calls: Arc<PrincipalCalls>) -> Self {
        RevocationWait { calls, registration: None }
    }

    fn is_revoked(&self) -> bool {
        self.calls.is_revoked.load(Ordering::SeqCst)
    }

    /// Takes the lock when it waits for the first time, or in another task than before.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.registration.as_ref().is_some_and(|(_, waker)| waker.will_wake(cx.waker())) && !self.is_revoked() {
            let before = self.registration.take();
            let waker = cx.waker().clone();
            let mut waiting = self.calls.lock();
            let place = before.map(|(place, _)| place).or_else(|| waiting.free.pop()).unwrap_or(waiting.wakers.len());
            if place >= waiting.wakers.len() {
                waiting.wakers.resize(place + 1, None);
            }
            waiting.wakers[place] = Some(waker.clone());
            drop(waiting);
            self.registration = Some((place, waker));
        }
        // After the waker is there: whoever revokes looks for it after that.
        if self.is_revoked() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for RevocationWait {
    fn drop(&mut self) {
        let Some((place, _)) = self.registration.take() else { return };
        let mut waiting = self.calls.lock();
        if let Some(waker) = waiting.wakers.get_mut(place) {
            *waker = None;
            waiting.free.push(place);
        }
    }
}

/// A call that counts.
struct InFlightGuard {
    calls: Arc<PrincipalCalls>,
    _all: CountGuard,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.calls.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An exchange that ends with its principal.
struct RevocableCall<S> {
    /// Dropped to cancel the call.
    events: Option<S>,
    revoked: RevocationWait,
    _guard: InFlightGuard,
}

impl<S: Stream<Item = ExchangeEvent> + Unpin> Stream for RevocableCall<S> {
    type Item = ExchangeEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ExchangeEvent>> {
        let this = self.get_mut();
        let Some(events) = &mut this.events else { return Poll::Ready(None) };
        if !this.revoked.is_revoked() {
            let polled = events.poll_next_unpin(cx);
            let goes_on = match &polled {
                Poll::Pending => this.revoked.poll(cx).is_pending(),
                // What came in the same moment is nobody's any more.
                Poll::Ready(_) => !this.revoked.is_revoked(),
            };
            if goes_on {
                return polled;
            }
        }
        this.events = None;
        let message = "The API key of this call was removed; the call was cancelled";
        Poll::Ready(Some(ExchangeEvent::Done(Err(Error::new(McpErrorKind::Cancelled, message)))))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tokio::sync::oneshot;

    use super::*;
    use crate::json::JsonObject;
    use crate::model::{Notification, Outcome, Principal};
    use crate::policy::{GlobList, PrincipalAccess, PrincipalSecret};

    fn table(ids: &[u32]) -> AccessTable {
        let access = || {
            let (name, endpoints, tools) = (String::new(), None, GlobList::all());
            PrincipalAccess { name, endpoints, tools, secret: PrincipalSecret::new([0; 32]) }
        };
        AccessTable::new(ids.iter().map(|id| (*id, access())).collect())
    }

    /// A call that notifies once and then waits; the other end hears when it is cancelled, and can end it.
    fn call(inflight: &InFlightCalls, principal: u32) -> (Exchange, oneshot::Sender<()>) {
        let (end, ended) = oneshot::channel::<()>();
        let first = stream::iter([ExchangeEvent::Notification(Notification::Progress(JsonObject::new()))]);
        let last = stream::once(async move {
            let _ = ended.await;
            ExchangeEvent::Done(Ok(Outcome::default()))
        });
        (inflight.track(principal, &Metrics::new(), Box::pin(first.chain(last))), end)
    }

    #[tokio::test]
    async fn a_call_ends_with_its_principal_and_delivers_nothing() {
        let inflight = InFlightCalls::new(table(&[1, 2]));
        let ((mut waits, mut cancelled), (mut stays, end)) = (call(&inflight, 1), call(&inflight, 2));
        assert!(matches!(waits.next_event().await, ExchangeEvent::Notification(_)));
        assert!(matches!(stays.next_event().await, ExchangeEvent::Notification(_)));
        // One that waits in a task, one that is over in the same moment, and one that nobody has looked at.
        let waiting = tokio::spawn(async move { waits.next_event().await });
        tokio::task::yield_now().await;
        let ((mut ready, now), (mut fresh, _fresh)) = (call(&inflight, 1), call(&inflight, 1));
        assert!(matches!(ready.next_event().await, ExchangeEvent::Notification(_)));
        assert!(futures_util::poll!(std::pin::pin!(ready.next_event())).is_pending());
        now.send(()).unwrap();
        assert_eq!((inflight.count_of(1), inflight.count_of(2)), (3, 1));
        inflight.apply_access(&table(&[2]));
        let is_refused = |event: &ExchangeEvent| matches!(event, ExchangeEvent::Done(Err(error)) if error.message.contains("removed"));
        assert!(is_refused(&waiting.await.unwrap()) && is_refused(&ready.next_event().await));
        assert!(is_refused(&fresh.next_event().await));
        cancelled.closed().await;
        assert!(!end.is_closed());
        end.send(()).unwrap();
        assert!(matches!(stays.next_event().await, ExchangeEvent::Done(Ok(_))));
        // Who came in a moment before, and starts now.
        assert!(is_refused(&call(&inflight, 1).0.next_event().await));
        inflight.until_revoked(1).await;
        assert!(futures_util::poll!(std::pin::pin!(inflight.until_revoked(2))).is_pending());
    }

    #[tokio::test]
    async fn where_keys_come_nobody_is_anybody_any_more() {
        let inflight = InFlightCalls::new(AccessTable::default());
        let (mut waits, _end) = call(&inflight, Principal::ANONYMOUS);
        assert!(matches!(waits.next_event().await, ExchangeEvent::Notification(_)));
        let waiting = tokio::spawn(async move { waits.next_event().await });
        tokio::task::yield_now().await;
        inflight.apply_access(&table(&[1]));
        assert!(matches!(waiting.await.unwrap(), ExchangeEvent::Done(Err(_))));
    }

    #[tokio::test]
    async fn wakers_leave_no_trace() {
        let inflight = InFlightCalls::new(table(&[1]));
        for _ in 0..100 {
            let (mut one, _end) = call(&inflight, 1);
            one.next_event().await;
            assert!(futures_util::poll!(std::pin::pin!(one.next_event())).is_pending());
        }
        assert_eq!(inflight.calls(1).lock().wakers.len(), 1);
        assert_eq!(inflight.count_of(1), 0);
    }
}
