//! Event bus: events of all servers, for every subscriber.
//!
//! Owns the subscribers' queue and the count of resource subscriptions. Does not translate events
//! (`translate_event.rs`).
//! Invariant: a server is subscribed to exactly the resources that some client is subscribed to.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::broadcast;

use moongate_jsonrpc::json::ByteString;
use moongate_upstream::{Upstream, UpstreamEvent};

/// Maximum number of events queued for a slow subscriber. One that falls further behind is notified that everything may
/// have changed.
const EVENT_QUEUE_MAX: usize = 1024;

/// Longest URI that can be subscribed to, in bytes. The URI is stored, and sent to its server.
pub(super) const SUBSCRIBED_URI_MAX: usize = 8 * 1024;

/// Event of a server, or of the gateway.
#[derive(Clone, Debug)]
pub(super) enum GatewayEvent {
    /// Event of a server. The catalogue has a changed list already.
    FromServer(UpstreamEvent),
    /// Change of the config: servers, names or rules may differ.
    Reconfigured,
}

/// Bus of events, with the resource subscriptions of all clients.
pub(super) struct EventBus {
    events: broadcast::Sender<GatewayEvent>,
    /// Subscriptions by server, for servers that have any.
    subscribed: Mutex<HashMap<ByteString, ServerSubscriptions>>,
}

/// Resources subscribed to at one server, with their counts.
struct ServerSubscriptions {
    /// Upstream that serves that name now. A reconfigured server takes over the existing subscriptions.
    upstream: Arc<Upstream>,
    uris: BTreeMap<ByteString, usize>,
}

impl Default for EventBus {
    fn default() -> Self {
        EventBus { events: broadcast::Sender::new(EVENT_QUEUE_MAX), subscribed: Mutex::default() }
    }
}

impl EventBus {
    /// Publishes an event to every subscriber.
    pub(super) fn publish(&self, event: GatewayEvent) {
        // An error only means that nobody is subscribed.
        let _ = self.events.send(event);
    }

    /// Subscribes to all events from now on.
    pub(super) fn subscribe_events(&self) -> broadcast::Receiver<GatewayEvent> {
        self.events.subscribe()
    }

    /// Subscribes to a resource of a server until the guard is dropped. Returns `None` if there are too many other
    /// resources already (`max_subscriptions`).
    pub(super) fn subscribe_resource(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        uri: &ByteString,
    ) -> Option<ResourceSubscription> {
        // Copied: the URI is a span of a client's message, which must not live as long as the subscription.
        let uri = ByteString::from(uri.as_str());
        let counted = self.adjust_count(upstream, &uri, true);
        counted.then(|| ResourceSubscription { hub: self.clone(), upstream: upstream.clone(), uri })
    }

    /// Adds or removes one subscriber. Returns false if there is no room for another resource.
    fn adjust_count(&self, upstream: &Arc<Upstream>, uri: &ByteString, more: bool) -> bool {
        let mut subscribed = self.subscribed.lock();
        let fresh = || ServerSubscriptions { upstream: upstream.clone(), uris: BTreeMap::new() };
        let there = subscribed.entry(upstream.name.clone()).or_insert_with(fresh);
        // A reconfigured server is another upstream of the same name.
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
        // The server only learns of the first subscriber and of the last one's end.
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
    /// Subscribes a server to the resources of the one that it replaces.
    pub(super) fn move_subscriptions(&self, upstream: &Arc<Upstream>) {
        let mut subscribed = self.subscribed.lock();
        if let Some(there) = subscribed.get_mut(&upstream.name) {
            there.upstream = upstream.clone();
            upstream.subscribe(there.uris.keys().cloned().collect());
        }
    }
}

/// Subscription of one client to one resource.
pub(super) struct ResourceSubscription {
    hub: Arc<EventBus>,
    upstream: Arc<Upstream>,
    uri: ByteString,
}

impl ResourceSubscription {
    /// Returns the server and its own URI.
    pub(super) fn server_and_uri(&self) -> (ByteString, ByteString) {
        (self.upstream.name.clone(), self.uri.clone())
    }
}

impl Drop for ResourceSubscription {
    fn drop(&mut self) {
        self.hub.adjust_count(&self.upstream, &self.uri, false);
    }
}
