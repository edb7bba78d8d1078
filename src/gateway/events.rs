//! News of all servers, to whoever listens.
//!
//! Owns the listeners' queue and the count of subscriptions. Invariant: a server is subscribed to exactly the
//! resources that somebody listens to.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;

use crate::json::{ByteString, JsonObject};
use crate::model::{ItemKind, LogLevel, Notification, TaskState};
use crate::upstream::{ConnectionOwner, Upstream};

/// News that may wait for a slow listener; one that falls further behind is told that everything may have changed.
const EVENT_QUEUE_MAX: usize = 1024;

/// Longest URI that can be subscribed to, in bytes: it is kept, and sent to its server.
pub(super) const SUBSCRIBED_URI_MAX: usize = 8 * 1024;

/// What happened at a server.
#[derive(Clone, Debug)]
pub(super) enum GatewayEvent {
    /// What it lists changed.
    ListChanged(ByteString, ItemKind),
    /// Anything may be different: servers, names, rules.
    Reconfigured,
    /// One of its resources did: the server, its own URI, the params.
    ResourceUpdated(ByteString, ByteString, JsonObject),
    /// It told of one of its tasks.
    TaskChanged(ByteString, Box<TaskState>),
    /// It logged something that belongs to no call: the server, the level, the params.
    LogMessage(ByteString, Option<LogLevel>, JsonObject),
    /// It said this on a connection of one client's.
    FromDedicatedConnection(ByteString, ConnectionOwner, Box<Notification>),
    /// A user is done with a page that it sent them to: the server, the elicitation's id, the params.
    ElicitationCompleted(ByteString, ByteString, JsonObject),
}

/// Listeners and their subscriptions.
pub(super) struct EventBus {
    events: broadcast::Sender<GatewayEvent>,
    /// By server; only where there are any.
    subscribed: Mutex<HashMap<ByteString, ServerSubscriptions>>,
}

/// What is subscribed to at one server, and how often.
struct ServerSubscriptions {
    /// What stands for that server now: one that was configured anew is told what others are still counted for.
    upstream: Arc<Upstream>,
    uris: BTreeMap<ByteString, usize>,
}

impl Default for EventBus {
    fn default() -> Self {
        EventBus { events: broadcast::Sender::new(EVENT_QUEUE_MAX), subscribed: Mutex::default() }
    }
}

impl EventBus {
    /// Tells everybody.
    pub(super) fn publish(&self, happened: GatewayEvent) {
        let _ = self.events.send(happened);
    }

    /// Hears of everything from now on.
    pub(super) fn subscribe_events(&self) -> broadcast::Receiver<GatewayEvent> {
        self.events.subscribe()
    }

    /// Subscribes to a resource of a server until the guard is dropped. `None`: there are too many others already
    /// (`max_subscriptions`).
    pub(super) fn subscribe_resource(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        uri: &ByteString,
    ) -> Option<ResourceSubscription> {
        // A copy: the URI is a span of a client's message, which must not live as long as the subscription.
        let uri = ByteString::from(uri.as_str());
        let counted = self.adjust_count(upstream, &uri, true);
        counted.then(|| ResourceSubscription { hub: self.clone(), upstream: upstream.clone(), uri })
    }

    /// One listener more or less. False: there is no room for another resource.
    fn adjust_count(&self, upstream: &Arc<Upstream>, uri: &ByteString, more: bool) -> bool {
        let mut subscribed = self.subscribed.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || ServerSubscriptions { upstream: upstream.clone(), uris: BTreeMap::new() };
        let there = subscribed.entry(upstream.name.clone()).or_insert_with(fresh);
        let moved = more && !Arc::ptr_eq(&there.upstream, upstream);
        if moved {
            there.upstream = upstream.clone();
        }
        let uris = &mut there.uris;
        let before = uris.get(uri).copied().unwrap_or(0);
        if more && before == 0 && uris.len() >= upstream.live_settings().max_subscriptions {
            return false;
        }
        let after = if more { before + 1 } else { before.saturating_sub(1) };
        if after == 0 {
            uris.remove(uri);
        } else {
            uris.insert(uri.clone(), after);
        }
        // The server hears of it only where the first comes or the last goes.
        if (before == 0) != (after == 0) || moved {
            there.upstream.current().subscribe(there.uris.keys().cloned().collect());
        }
        if there.uris.is_empty() {
            subscribed.remove(&upstream.name);
        }
        true
    }
}

impl EventBus {
    /// Subscribes a server to what somebody listens to at the one that it takes the place of.
    pub(super) fn move_subscriptions(&self, upstream: &Arc<Upstream>) {
        let mut subscribed = self.subscribed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = subscribed.get_mut(&upstream.name) {
            there.upstream = upstream.clone();
            upstream.subscribe(there.uris.keys().cloned().collect());
        }
    }
}

/// One listener's interest in one resource.
pub(super) struct ResourceSubscription {
    hub: Arc<EventBus>,
    upstream: Arc<Upstream>,
    uri: ByteString,
}

impl ResourceSubscription {
    /// The server and its own URI.
    pub(super) fn server_and_uri(&self) -> (ByteString, ByteString) {
        (self.upstream.name.clone(), self.uri.clone())
    }
}

impl Drop for ResourceSubscription {
    fn drop(&mut self) {
        self.hub.adjust_count(&self.upstream, &self.uri, false);
    }
}
