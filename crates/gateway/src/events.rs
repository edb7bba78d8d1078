//! Event bus: events of all servers, for every subscriber.
//!
//! Owns the subscribers' queue and the resource subscriptions. Does not translate events
//! (`translate_event.rs`). Invariant: a server is subscribed to exactly the resources that some
//! client is subscribed to.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::broadcast;

use moongate_jsonrpc::json::ByteString;
use moongate_upstream::{DemandCounter, SubscriptionTopic, Upstream, UpstreamEvent};

/// Maximum number of events queued for a slow subscriber. One that falls further behind is notified
/// that everything may have changed.
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

/// Resources subscribed to at one server.
struct ServerSubscriptions {
    /// Upstream that serves that name now. A reconfigured server takes over the existing
    /// subscriptions.
    upstream: Arc<Upstream>,
    uris: DemandCounter<ByteString>,
}

impl ServerSubscriptions {
    /// Subscribes the server to the current resources.
    fn update_server(&self) {
        self.upstream
            .current()
            .subscribe(self.uris.keys().cloned().collect());
    }
}

impl Default for EventBus {
    fn default() -> Self {
        EventBus {
            events: broadcast::Sender::new(EVENT_QUEUE_MAX),
            subscribed: Mutex::default(),
        }
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

    /// Subscribes to a resource of a server until the guard is dropped. Returns `None` if there are
    /// too many other resources already (`max_subscriptions`).
    pub(super) fn subscribe_resource(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        uri: &ByteString,
    ) -> Option<ResourceSubscription> {
        // Copied: the URI is a span of a client's message, which must not live as long as the
        // subscription.
        let uri = ByteString::from(uri.as_str());
        let is_added = self.add_subscriber(upstream, &uri);
        is_added.then(|| ResourceSubscription {
            events: self.clone(),
            server: upstream.name.clone(),
            uri,
        })
    }

    /// Adds a subscriber. Returns false without room for another resource.
    fn add_subscriber(&self, upstream: &Arc<Upstream>, uri: &ByteString) -> bool {
        // The lock is held until the server knows: of two updates, the later set of resources must
        // come last.
        let mut subscribed = self.subscribed.lock();
        let known = subscribed.get(&upstream.name).map(|server| &server.uris);
        let is_new = known.is_none_or(|uris| !uris.contains(uri));
        if is_new
            && known.map_or(0, DemandCounter::len)
                >= upstream.live_settings().live.max_subscriptions
        {
            return false;
        }
        let server =
            subscribed
                .entry(upstream.name.clone())
                .or_insert_with(|| ServerSubscriptions {
                    upstream: upstream.clone(),
                    uris: DemandCounter::default(),
                });
        // A reconfigured server is another upstream of the same name.
        let is_moved = !Arc::ptr_eq(&server.upstream, upstream);
        server.upstream = upstream.clone();
        // The server only learns of the first subscriber and of the last one's end.
        if server.uris.add(uri) || is_moved {
            server.update_server();
        }
        true
    }

    fn remove_subscriber(&self, server: &ByteString, uri: &ByteString) {
        let mut subscribed = self.subscribed.lock();
        let Some(known) = subscribed.get_mut(server) else {
            return;
        };
        if known.uris.remove(uri) {
            known.update_server();
        }
        if known.uris.is_empty() {
            subscribed.remove(server);
        }
    }

    /// Subscribes a server to the resources of the one that it replaces.
    pub(super) fn move_subscriptions(&self, upstream: &Arc<Upstream>) {
        let mut subscribed = self.subscribed.lock();
        if let Some(server) = subscribed.get_mut(&upstream.name) {
            server.upstream = upstream.clone();
            server.update_server();
        }
    }
}

/// Subscription of one client to one resource.
pub(super) struct ResourceSubscription {
    events: Arc<EventBus>,
    server: ByteString,
    uri: ByteString,
}

impl ResourceSubscription {
    /// Returns the server and its own URI.
    pub(super) fn location(&self) -> (ByteString, ByteString) {
        (self.server.clone(), self.uri.clone())
    }

    /// Returns the topic of the same subscription on a dedicated connection.
    pub(super) fn topic(&self) -> SubscriptionTopic {
        SubscriptionTopic::Resource(self.server.clone(), self.uri.clone())
    }
}

impl Drop for ResourceSubscription {
    fn drop(&mut self) {
        self.events.remove_subscriber(&self.server, &self.uri);
    }
}
