//! Sink for the events of servers, on their way to the event bus.
//!
//! Owns which log messages are forwarded, and the list changes that wait for the next catalogue.
//! Does not translate events (`translate_event.rs`). Invariant: nobody gets a log message that may
//! be about another principal.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};

use crate::events::{EventBus, GatewayEvent};
use moongate_access::auth::PrincipalTable;
use moongate_model::Notification;
use moongate_telemetry::{DroppedItem, Metrics};
use moongate_upstream::{Audience, EventSink, UpstreamEvent};

/// Sink for the events of all servers.
pub(super) struct GatewaySink {
    events: Arc<EventBus>,
    metrics: Arc<Metrics>,
    principals: Arc<PrincipalTable>,
    /// List changes on dedicated connections, published with the next catalogue.
    list_changes: Mutex<Vec<UpstreamEvent>>,
    catalog_dirty: Notify,
    /// Number of signals that the catalogue must be built again.
    signalled: AtomicU64,
    /// Number of those that the catalogue has.
    built: watch::Sender<u64>,
}

impl GatewaySink {
    /// Creates the sink in front of a bus.
    pub(super) fn new(
        events: Arc<EventBus>,
        metrics: Arc<Metrics>,
        principals: Arc<PrincipalTable>,
    ) -> Arc<Self> {
        Arc::new(GatewaySink {
            events,
            metrics,
            principals,
            list_changes: Mutex::default(),
            catalog_dirty: Notify::new(),
            signalled: AtomicU64::new(0),
            built: watch::Sender::new(0),
        })
    }

    /// Waits until the catalogue must be rebuilt.
    pub(super) async fn until_catalog_dirty(&self) {
        self.catalog_dirty.notified().await;
    }

    /// Returns the number of signals so far.
    pub(super) fn signalled_changes(&self) -> u64 {
        self.signalled.load(Ordering::Acquire)
    }

    /// Records that the catalogue has the changes of so many signals.
    pub(super) fn mark_built(&self, signalled: u64) {
        self.built
            .send_modify(|built| *built = signalled.max(*built));
    }

    /// Returns true if a message without a call may be about any of several principals.
    fn may_mix(&self, audience: &Audience) -> bool {
        audience.spans_principals() && !self.principals.is_single()
    }

    /// Takes the list changes on dedicated connections.
    pub(super) fn take_list_changes(&self) -> Vec<UpstreamEvent> {
        std::mem::take(&mut *self.list_changes.lock())
    }
}

impl EventSink for GatewaySink {
    fn publish(&self, event: UpstreamEvent) {
        match (&event.audience, &event.notification) {
            (Audience::Owner(_), Notification::ListChanged(_)) => {
                self.list_changes.lock().push(event);
                self.lists_changed();
            }
            // The message may be about any principal that shares its connection. A lone one may see
            // them all.
            (audience, Notification::Log(..)) if self.may_mix(audience) => {
                self.metrics.calls.dropped.inc(DroppedItem::LogMessage);
            }
            (audience, Notification::Extension(..)) if self.may_mix(audience) => {
                self.metrics.calls.dropped.inc(DroppedItem::Extension);
            }
            _ => self.events.publish(GatewayEvent::FromServer(event)),
        }
    }

    fn lists_changed(&self) {
        self.signalled.fetch_add(1, Ordering::AcqRel);
        self.catalog_dirty.notify_one();
    }

    fn lists_published(&self) -> BoxFuture<'static, ()> {
        let signalled = self.signalled_changes();
        let mut built = self.built.subscribe();
        async move {
            // An error means that the gateway has ended.
            let _ = built.wait_for(|built| *built >= signalled).await;
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::broadcast;

    use super::*;
    use moongate_jsonrpc::json::{ByteString, JsonObject};
    use moongate_model::ItemKind;
    use moongate_protocol::Era;
    use moongate_upstream::ConnectionOwner;

    fn event(audience: Audience, notification: Notification) -> UpstreamEvent {
        UpstreamEvent {
            server: ByteString::literal("a"),
            audience,
            notification,
        }
    }

    fn log(audience: Audience) -> UpstreamEvent {
        event(audience, Notification::Log(None, JsonObject::new()))
    }

    /// Publishes a log message. Returns true if it reaches the bus.
    fn forwards_log(
        sink: &GatewaySink,
        receiver: &mut broadcast::Receiver<GatewayEvent>,
        audience: Audience,
    ) -> bool {
        sink.publish(log(audience));
        receiver.try_recv().is_ok()
    }

    fn shared_audiences() -> [Audience; 2] {
        let era = ConnectionOwner::Era(Era::Legacy);
        [Audience::Everyone, Audience::Owner(era)]
    }

    #[test]
    fn log_messages_about_any_of_several_principals_are_dropped() {
        let events = Arc::new(EventBus::default());
        let metrics = Arc::new(Metrics::new());
        let principals = Arc::new(PrincipalTable::default());
        principals.intern("test", [1; 16], "one", None);
        let sink = GatewaySink::new(events.clone(), metrics.clone(), principals.clone());
        let mut receiver = events.subscribe_events();
        for audience in shared_audiences() {
            assert!(
                forwards_log(&sink, &mut receiver, audience),
                "a lone principal gets all of them"
            );
        }
        principals.intern("test", [2; 16], "two", None);
        for audience in shared_audiences() {
            assert!(!forwards_log(&sink, &mut receiver, audience));
        }
        assert_eq!(metrics.calls.dropped.get(DroppedItem::LogMessage), 2);
        let news =
            Notification::Extension(ByteString::literal("notifications/x"), JsonObject::new());
        sink.publish(event(Audience::Everyone, news));
        assert_eq!(metrics.calls.dropped.get(DroppedItem::Extension), 1);
        let owner = Audience::Owner(ConnectionOwner::Principal(1));
        assert!(
            forwards_log(&sink, &mut receiver, owner),
            "it can only be about its owner"
        );
    }

    #[test]
    fn list_changes_of_one_owner_wait_for_the_next_catalogue() {
        let events = Arc::new(EventBus::default());
        let metrics = Arc::new(Metrics::new());
        let sink = GatewaySink::new(events.clone(), metrics, Arc::default());
        let mut receiver = events.subscribe_events();
        let owner = Audience::Owner(ConnectionOwner::Principal(1));
        sink.publish(event(owner, Notification::ListChanged(ItemKind::Tools)));
        assert!(
            receiver.try_recv().is_err(),
            "its owner would read the old list"
        );
        assert!(sink.until_catalog_dirty().now_or_never().is_some());
        assert_eq!(sink.take_list_changes().len(), 1);
        assert!(sink.take_list_changes().is_empty());
    }
}
