//! Sink for the events of servers, on their way to the event bus.
//!
//! Owns which log messages are forwarded, and the list changes that wait for the next catalogue. Does not translate
//! events (`translate_event.rs`). Invariant: nobody gets a log message that may be about another principal.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::events::{EventBus, GatewayEvent};
use moongate_jsonrpc::json::ByteString;
use moongate_model::{ItemKind, Notification};
use moongate_telemetry::{DroppedItem, Metrics};
use moongate_upstream::{ConnectionOwner, EventSink, UpstreamEvent};

/// Server, owner of the connection, and the list that changed.
pub(super) type PendingListChanges = Arc<Mutex<Vec<(ByteString, ConnectionOwner, ItemKind)>>>;

/// Creates the sink for the events of servers. A log message that belongs to no call may be about any principal. Where
/// several share its connection, it is forwarded only if there is one principal.
pub(super) fn event_sink(
    hub: Arc<EventBus>,
    dirty: Arc<Notify>,
    metrics: Arc<Metrics>,
    shares_logs: Arc<AtomicBool>,
    owed: PendingListChanges,
) -> EventSink {
    Arc::new(move |server, news| match news {
        UpstreamEvent::ToOwner(owner, notice) => match *notice {
            Notification::ListChanged(kind) => {
                owed.lock().push((ByteString::from(server), owner, kind));
                dirty.notify_one();
            }
            Notification::Log(..) if owner.spans_principals() && !shares_logs.load(Ordering::Relaxed) => {
                metrics.calls.dropped.inc(DroppedItem::LogMessage);
            }
            other => {
                hub.publish(GatewayEvent::FromDedicatedConnection(ByteString::from(server), owner, Box::new(other)))
            }
        },
        UpstreamEvent::ListsChanged => dirty.notify_one(),
        UpstreamEvent::ResourceUpdated(uri, params) => {
            hub.publish(GatewayEvent::ResourceUpdated(ByteString::from(server), uri, params))
        }
        UpstreamEvent::ElicitationCompleted(id, params) => {
            hub.publish(GatewayEvent::ElicitationCompleted(ByteString::from(server), id, params))
        }
        UpstreamEvent::Task(task) => hub.publish(GatewayEvent::TaskChanged(ByteString::from(server), task)),
        UpstreamEvent::Logged(level, params) if shares_logs.load(Ordering::Relaxed) => {
            hub.publish(GatewayEvent::LogMessage(ByteString::from(server), level, params))
        }
        UpstreamEvent::Logged(..) => metrics.calls.dropped.inc(DroppedItem::LogMessage),
    })
}
