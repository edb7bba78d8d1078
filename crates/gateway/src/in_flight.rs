//! Calls in flight, in total and of each principal, and their end when the principal is revoked.
//!
//! Owns the counts, and the wakers of waiting calls. Does not know what calls do. Invariants: a
//! tracked call counts until its exchange is dropped. No part of its result is handed on once its
//! principal is revoked.

use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use futures_util::{Stream, StreamExt};

use moongate_access::auth::PrincipalTable;
use moongate_model::{Error, Exchange, ExchangeEvent, McpErrorKind, Principal};
use moongate_telemetry::{CountGuard, Metrics};

/// Counts of calls.
pub(super) struct InFlightCalls {
    /// Calls by principal. There are no more entries than principals, and calls of those that made
    /// room.
    each: RwLock<HashMap<u32, Arc<PrincipalCalls>>>,
    principals: Arc<PrincipalTable>,
}

/// Calls of one principal.
#[derive(Default)]
struct PrincipalCalls {
    count: AtomicUsize,
    is_revoked: AtomicBool,
    waiting: Mutex<WakerSet>,
}

/// Wakers, each in its own slot.
#[derive(Default)]
struct WakerSet {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl InFlightCalls {
    /// Creates an empty table for calls of these principals.
    pub(super) fn new(principals: Arc<PrincipalTable>) -> Self {
        InFlightCalls {
            each: RwLock::default(),
            principals,
        }
    }

    fn calls(&self, principal: &Principal) -> Arc<PrincipalCalls> {
        // Most calls find their principal under the read lock.
        let calls = self.each.read().get(&principal.id).cloned();
        calls.unwrap_or_else(|| {
            let mut each = self.each.write();
            if each.len() > self.principals.count() {
                let ids = self.principals.ids();
                each.retain(|id, calls| ids.contains(id) || Arc::strong_count(calls) > 1);
            }
            if self.principals.admits(principal) {
                return each.entry(principal.id).or_default().clone();
            }
            // The request came in before its key was removed.
            Arc::new(PrincipalCalls {
                is_revoked: AtomicBool::new(true),
                ..PrincipalCalls::default()
            })
        })
    }

    /// Ends the calls of principals that are no longer admitted.
    pub(super) fn revoke_removed(&self) {
        let mut each = self.each.write();
        let admitted = self.principals.ids();
        let revoked: Vec<_> = each.extract_if(|id, _| !admitted.contains(id)).collect();
        // Woken without the lock, which woken calls may need.
        drop(each);
        revoked.iter().for_each(|(_, calls)| calls.revoke());
    }

    /// Counts the calls of one principal.
    pub(super) fn count_of(&self, principal: &Principal) -> usize {
        self.calls(principal).count.load(Ordering::Relaxed)
    }

    /// Counts a call until its exchange is dropped. The exchange ends at once when the principal is
    /// revoked.
    pub(super) fn track(
        &self,
        principal: &Principal,
        metrics: &Metrics,
        events: impl Stream<Item = ExchangeEvent> + Send + Unpin + 'static,
    ) -> Exchange {
        let calls = self.calls(principal);
        calls.count.fetch_add(1, Ordering::Relaxed);
        let entered = InFlightGuard {
            calls: calls.clone(),
            _all: CountGuard::new(&metrics.calls.inflight),
        };
        Exchange::new(CancellableCall {
            events: Some(events),
            revoked: RevocationWait::of(calls),
            _guard: entered,
        })
    }

    /// Waits until a principal is revoked.
    pub(super) fn until_revoked(
        &self,
        principal: &Principal,
    ) -> impl Future<Output = ()> + Send + use<> {
        let mut revoked = RevocationWait::of(self.calls(principal));
        poll_fn(move |cx| revoked.poll(cx))
    }
}

impl PrincipalCalls {
    fn revoke(&self) {
        // The flag comes first, so that a waiter that registers later sees it.
        self.is_revoked.store(true, Ordering::SeqCst);
        let woken = std::mem::take(&mut self.waiting.lock().wakers);
        woken.into_iter().flatten().for_each(Waker::wake);
    }
}

/// Future that completes when a principal is revoked.
struct RevocationWait {
    calls: Arc<PrincipalCalls>,
    /// Slot of the registered waker, and the waker.
    registration: Option<(usize, Waker)>,
}

impl RevocationWait {
    fn of(calls: Arc<PrincipalCalls>) -> Self {
        RevocationWait {
            calls,
            registration: None,
        }
    }

    fn is_revoked(&self) -> bool {
        self.calls.is_revoked.load(Ordering::SeqCst)
    }

    /// Polls for revocation. Takes the lock on the first wait, or in another task than before.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self
            .registration
            .as_ref()
            .is_some_and(|(_, waker)| waker.will_wake(cx.waker()))
            && !self.is_revoked()
        {
            let before = self.registration.take();
            let waker = cx.waker().clone();
            let mut waiting = self.calls.waiting.lock();
            let index = before
                .map(|(index, _)| index)
                .or_else(|| waiting.free.pop())
                .unwrap_or(waiting.wakers.len());
            if index >= waiting.wakers.len() {
                waiting.wakers.resize(index + 1, None);
            }
            waiting.wakers[index] = Some(waker.clone());
            drop(waiting);
            self.registration = Some((index, waker));
        }
        // Checked after the waker is registered: a revocation sets the flag before it collects the
        // wakers.
        if self.is_revoked() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for RevocationWait {
    fn drop(&mut self) {
        let Some((index, _)) = self.registration.take() else {
            return;
        };
        let mut waiting = self.calls.waiting.lock();
        // A revocation takes out all wakers, so the slot may be missing.
        if let Some(waker) = waiting.wakers.get_mut(index) {
            *waker = None;
            waiting.free.push(index);
        }
    }
}

/// Guard that counts a call.
struct InFlightGuard {
    calls: Arc<PrincipalCalls>,
    _all: CountGuard,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.calls.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Exchange that ends with its principal.
struct CancellableCall<S> {
    /// Events of the call. Dropped to cancel it.
    events: Option<S>,
    revoked: RevocationWait,
    _guard: InFlightGuard,
}

impl<S: Stream<Item = ExchangeEvent> + Unpin> Stream for CancellableCall<S> {
    type Item = ExchangeEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ExchangeEvent>> {
        let this = self.get_mut();
        let Some(events) = &mut this.events else {
            return Poll::Ready(None);
        };
        if !this.revoked.is_revoked() {
            let polled = events.poll_next_unpin(cx);
            let goes_on = match &polled {
                Poll::Pending => this.revoked.poll(cx).is_pending(),
                // An event that came in the same moment is not handed on.
                Poll::Ready(_) => !this.revoked.is_revoked(),
            };
            if goes_on {
                return polled;
            }
        }
        // Dropping the events cancels the call at its server.
        this.events = None;
        let message = "The API key of this call was removed; the call was cancelled";
        Poll::Ready(Some(ExchangeEvent::Done(Err(Error::new(
            McpErrorKind::Cancelled,
            message,
        )))))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use futures_util::stream;
    use tokio::sync::oneshot;

    use super::*;
    use moongate_jsonrpc::json::JsonObject;
    use moongate_model::{Notification, Outcome};

    /// Creates a call that notifies once and then waits. The other end is notified of a
    /// cancellation, and can end the call.
    fn call(inflight: &InFlightCalls, principal: &Principal) -> (Exchange, oneshot::Sender<()>) {
        let (end, ended) = oneshot::channel::<()>();
        let first = stream::iter([ExchangeEvent::Notification(Notification::Progress(
            JsonObject::new(),
        ))]);
        let last = stream::once(async move {
            let _ = ended.await;
            ExchangeEvent::Done(Ok(Outcome::default()))
        });
        (
            inflight.track(principal, &Metrics::new(), Box::pin(first.chain(last))),
            end,
        )
    }

    fn is_refused(event: &ExchangeEvent) -> bool {
        matches!(event, ExchangeEvent::Done(Err(error)) if error.message.contains("removed"))
    }

    #[tokio::test]
    async fn a_call_ends_with_its_principal_and_delivers_nothing() {
        let principals = Arc::new(PrincipalTable::default());
        let one = principals.intern("test", [1; 16], "one", None);
        let two = principals.intern("test", [2; 16], "two", None);
        let inflight = InFlightCalls::new(principals.clone());
        let ((mut waits, mut cancelled), (mut stays, end)) =
            (call(&inflight, &one), call(&inflight, &two));
        assert!(matches!(
            waits.next_event().await,
            ExchangeEvent::Notification(_)
        ));
        assert!(matches!(
            stays.next_event().await,
            ExchangeEvent::Notification(_)
        ));
        // One call waits in a task, one ends in the same moment, and one was never polled.
        let waiting = tokio::spawn(async move { waits.next_event().await });
        tokio::task::yield_now().await;
        let ((mut ready, now), (mut fresh, _fresh)) =
            (call(&inflight, &one), call(&inflight, &one));
        assert!(matches!(
            ready.next_event().await,
            ExchangeEvent::Notification(_)
        ));
        assert!(futures_util::poll!(std::pin::pin!(ready.next_event())).is_pending());
        now.send(()).unwrap();
        assert_eq!(inflight.count_of(&one), 3);
        assert_eq!(inflight.count_of(&two), 1);
        principals.retain("test", &HashSet::from([two.id]));
        inflight.revoke_removed();
        assert!(is_refused(&waiting.await.unwrap()) && is_refused(&ready.next_event().await));
        assert!(is_refused(&fresh.next_event().await));
        cancelled.closed().await;
        assert!(!end.is_closed());
        end.send(()).unwrap();
        assert!(matches!(
            stays.next_event().await,
            ExchangeEvent::Done(Ok(_))
        ));
        // The caller was authenticated a moment before, and starts its call now.
        assert!(is_refused(&call(&inflight, &one).0.next_event().await));
        inflight.until_revoked(&one).await;
        assert!(futures_util::poll!(std::pin::pin!(inflight.until_revoked(&two))).is_pending());
    }

    #[tokio::test]
    async fn anonymous_calls_end_once_keys_are_configured() {
        let principals = Arc::new(PrincipalTable::default());
        let inflight = InFlightCalls::new(principals.clone());
        let (mut waits, _end) = call(&inflight, &principals.intern_anonymous());
        assert!(matches!(
            waits.next_event().await,
            ExchangeEvent::Notification(_)
        ));
        let waiting = tokio::spawn(async move { waits.next_event().await });
        tokio::task::yield_now().await;
        principals.intern("test", [1; 16], "one", None);
        principals.retain_methods(&["test"]);
        inflight.revoke_removed();
        assert!(matches!(
            waiting.await.unwrap(),
            ExchangeEvent::Done(Err(_))
        ));
    }

    #[tokio::test]
    async fn wakers_leave_no_trace() {
        let principals = Arc::new(PrincipalTable::default());
        let principal = principals.intern("test", [1; 16], "one", None);
        let inflight = InFlightCalls::new(principals);
        for _ in 0..100 {
            let (mut one, _end) = call(&inflight, &principal);
            one.next_event().await;
            assert!(futures_util::poll!(std::pin::pin!(one.next_event())).is_pending());
        }
        assert_eq!(inflight.calls(&principal).waiting.lock().wakers.len(), 1);
        assert_eq!(inflight.count_of(&principal), 0);
    }
}
