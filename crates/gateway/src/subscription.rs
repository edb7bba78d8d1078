//! Client subscription on an endpoint: the events it gets, and the resources it is subscribed to.
//!
//! Owns the path of a subscription from server to server, as lists and configs change. Does not
//! count subscriptions (`events.rs`). Invariant: a subscription is at the server that has the
//! resource, as far as known. Where the owner is unknown, it stays where it was, or waits for that
//! server.

use moongate_telemetry::Limit;
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use tokio::sync::broadcast;

use crate::catalog::Snapshot;
use crate::endpoint::Endpoint;
use crate::events::{GatewayEvent, ResourceSubscription, SUBSCRIBED_URI_MAX};
use crate::permitted::Permitted;
use crate::running_server::RunningServer;
use crate::templates::LookupBudget;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{Caller, Error, ItemKind, Notification, SubscriptionFilter};
use moongate_upstream::{Audience, OwnerSubscriptionGuard, SubscriptionTopic, UpstreamEvent};

/// Subscription of one client.
pub(super) struct ClientSubscription {
    endpoint: Endpoint,
    caller: Arc<Caller>,
    filter: SubscriptionFilter,
    /// Requested resources, including those that do not exist.
    watched: Vec<WatchedResource>,
    /// Digests of the lists as the client last knew them.
    seen_digests: [u64; 4],
    receiver: broadcast::Receiver<GatewayEvent>,
    /// Notifications that are still to be sent.
    pending: Vec<Notification>,
    _subscriptions: Vec<ResourceSubscription>,
    /// Guard of the subscriptions on the client's dedicated connections.
    _upstream_guard: OwnerSubscriptionGuard,
}

/// Resource that the client asked for.
#[derive(Clone)]
struct WatchedResource {
    uri: ByteString,
    /// Server where it was found last, and that server's own URI.
    location: Option<(ByteString, ByteString)>,
    /// True if it is subscribed to there.
    acknowledged: bool,
}

/// Causes that kept resources out of the subscription.
#[derive(Default)]
struct LeftOutCauses {
    /// Exceeded limit, by its setting.
    exceeded_limit: Option<ByteString>,
    /// Server that offers no subscriptions.
    unoffered: Option<ByteString>,
}

/// Endpoint and caller that resources are looked up for.
struct ResourceSearch<'a> {
    endpoint: &'a Endpoint,
    snapshot: &'a Snapshot,
    caller: &'a Caller,
    /// Budget of all resources of one client together.
    budget: &'a LookupBudget,
}

impl WatchedResource {
    fn new(uri: &ByteString) -> Self {
        WatchedResource {
            // Copied: it is a span of a message, which must not live as long as the subscription.
            uri: ByteString::from(uri.as_str()),
            location: None,
            acknowledged: false,
        }
    }

    /// Finds the resource. `first` means that it was never found before, so a guess is better than
    /// nothing.
    fn find(
        &self,
        search: &ResourceSearch<'_>,
        first: bool,
    ) -> Option<(Permitted<Arc<RunningServer>>, ByteString)> {
        let ResourceSearch {
            endpoint,
            snapshot,
            caller,
            budget,
        } = search;
        if first {
            return endpoint
                .resolve_uri(snapshot, caller, &self.uri, budget)
                .ok();
        }
        endpoint
            .resolve_known_uri(snapshot, caller, &self.uri, budget)
            .or_else(|| {
                let (server, local) = self.location.as_ref()?;
                let server = endpoint.server_for_uri(snapshot, server, local)?;
                Some((server, local.clone()))
            })
    }

    /// Returns true if it is elsewhere than where it is subscribed to.
    fn is_moved(&self, search: &ResourceSearch<'_>) -> bool {
        let Some((server, local)) = self.find(search, false) else {
            return false;
        };
        !self.acknowledged
            || self
                .location
                .as_ref()
                .is_none_or(|(name, uri)| *name != server.name || *uri != local)
    }
}

impl ClientSubscription {
    /// Creates a subscription. Also returns the acknowledged part of the filter.
    pub(super) fn new(
        endpoint: Endpoint,
        caller: &Arc<Caller>,
        filter: SubscriptionFilter,
        receiver: broadcast::Receiver<GatewayEvent>,
    ) -> (Self, SubscriptionFilter) {
        let mut watched: Vec<_> = filter.uris.iter().map(WatchedResource::new).collect();
        let (subscriptions, left_out) = endpoint.subscribe_resources(caller, &mut watched, true);
        let seen_digests = endpoint.list_digests(caller, &filter);
        let LeftOutCauses {
            exceeded_limit,
            unoffered,
        } = left_out;
        let filter = SubscriptionFilter {
            uris: acknowledged_uris(&watched),
            exceeded_limit,
            unoffered,
            ..filter
        };
        let acknowledged = filter.clone();
        let subscription = ClientSubscription {
            _upstream_guard: endpoint.subscribe_dedicated(caller, &filter, &subscriptions),
            endpoint,
            caller: caller.clone(),
            filter,
            watched,
            seen_digests,
            receiver,
            pending: Vec::new(),
            _subscriptions: subscriptions,
        };
        (subscription, acknowledged)
    }

    pub(super) async fn next(&mut self) -> Option<Notification> {
        loop {
            if let Some(notification) = self.pending.pop() {
                return Some(notification);
            }
            match self.receiver.recv().await {
                Ok(GatewayEvent::FromServer(UpstreamEvent {
                    server,
                    audience: Audience::Everyone,
                    notification: Notification::ListChanged(kind),
                })) => {
                    // A change of resources may move one to another server.
                    if matches!(kind, ItemKind::Resources | ItemKind::Templates) && self.is_moved()
                    {
                        self.relocate()?;
                    }
                    if self.endpoint.includes(&server)
                        && self.filter.matches(&Notification::ListChanged(kind))
                    {
                        self.diff_lists();
                    }
                }
                Ok(GatewayEvent::Reconfigured) => {
                    self.relocate()?;
                    self.diff_lists();
                }
                Ok(GatewayEvent::FromServer(event)) => {
                    let notification = self.endpoint.translate_event(&self.caller, event);
                    match notification.filter(|notification| self.filter.matches(notification)) {
                        // A change on the client's own connection is sent once, whether or not the
                        // shared lists differ.
                        Some(Notification::ListChanged(kind)) => {
                            self.diff_lists();
                            // In search mode the client's list of tools may be the same still.
                            if kind != ItemKind::Tools || self.endpoint.search_rules().is_none() {
                                self.queue_list_change(kind);
                            }
                        }
                        Some(notification) => return Some(notification),
                        None => {}
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    // Neither the subscriber nor we can know which events it missed.
                    self.relocate()?;
                    self.diff_lists();
                    for kind in [ItemKind::Tools, ItemKind::Prompts, ItemKind::Resources] {
                        if self.filter.matches(&Notification::ListChanged(kind)) {
                            self.queue_list_change(kind);
                        }
                    }
                    // The last pending notification is sent first.
                    for uri in self.filter.uris.clone() {
                        self.queue_update(&uri);
                    }
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Follows the endpoint to its current generation. Returns `None` if it no longer exists for
    /// this principal.
    fn relocate(&mut self) -> Option<()> {
        self.endpoint = self
            .endpoint
            .gateway
            .endpoint(&self.endpoint.name, &self.caller.principal)?
            .clone_endpoint();
        if self.watched.is_empty() {
            return Some(());
        }
        let before = self.watched.clone();
        // New subscriptions come before the old ones go, so that shared resources stay subscribed.
        (self._subscriptions, _) =
            self.endpoint
                .subscribe_resources(&self.caller, &mut self.watched, false);
        self.filter.uris = acknowledged_uris(&self.watched);
        self._upstream_guard =
            self.endpoint
                .subscribe_dedicated(&self.caller, &self.filter, &self._subscriptions);
        for (now, before) in self.watched.clone().iter().zip(before) {
            // Changes cannot be known while the resource was subscribed nowhere, or elsewhere.
            let missed = before.location.is_some()
                && (!before.acknowledged || before.location != now.location);
            if now.acknowledged && missed {
                self.queue_update(&now.uri);
            }
        }
        Some(())
    }

    fn is_moved(&self) -> bool {
        let snapshot = self.endpoint.generation.snapshot.load();
        let budget = LookupBudget::new();
        let search = ResourceSearch {
            endpoint: &self.endpoint,
            snapshot: &snapshot,
            caller: &self.caller,
            budget: &budget,
        };
        self.watched.iter().any(|watched| watched.is_moved(&search))
    }

    /// Queues a notification for each list that differs from what the client last knew.
    fn diff_lists(&mut self) {
        let now = self.endpoint.list_digests(&self.caller, &self.filter);
        let seen = std::mem::replace(&mut self.seen_digests, now);
        for kind in ItemKind::ALL
            .into_iter()
            .filter(|kind| now[*kind as usize] != seen[*kind as usize])
        {
            self.queue_list_change(kind);
        }
    }

    /// Queues the update of a resource, once.
    fn queue_update(&mut self, uri: &ByteString) {
        let params = JsonObject::new().with("uri", RawJson::string(uri));
        // One update is enough: the client reads the resource again.
        self.pending.retain(
            |pending| !matches!(pending, Notification::ResourceUpdated(other, _) if other == uri),
        );
        self.pending
            .push(Notification::ResourceUpdated(uri.clone(), params));
    }

    /// Queues the change of a list, once.
    fn queue_list_change(&mut self, kind: ItemKind) {
        // Templates have no separate notification.
        let kind = if kind == ItemKind::Templates {
            ItemKind::Resources
        } else {
            kind
        };
        if !self
            .pending
            .iter()
            .any(|pending| matches!(pending, Notification::ListChanged(other) if *other == kind))
        {
            self.pending.push(Notification::ListChanged(kind));
        }
    }
}

fn acknowledged_uris(watched: &[WatchedResource]) -> Vec<ByteString> {
    watched
        .iter()
        .filter(|resource| resource.acknowledged)
        .map(|resource| resource.uri.clone())
        .collect()
}

impl Endpoint {
    /// Subscribes to the resources that exist here. Also returns what kept others out.
    fn subscribe_resources(
        &self,
        caller: &Caller,
        watched: &mut [WatchedResource],
        first: bool,
    ) -> (Vec<ResourceSubscription>, LeftOutCauses) {
        let snapshot = self.generation.snapshot.load();
        let budget = LookupBudget::new();
        let search = ResourceSearch {
            endpoint: self,
            snapshot: &snapshot,
            caller,
            budget: &budget,
        };
        let mut subscriptions = Vec::new();
        let mut left_out = LeftOutCauses::default();
        for resource in watched {
            resource.acknowledged = false;
            let Some((server, local)) = resource.find(&search, first) else {
                continue;
            };
            let capabilities = server
                .description()
                .map(|description| description.capabilities);
            if capabilities.is_some_and(|capabilities| {
                !capabilities.subscribe && !capabilities.subscribe_untried
            }) {
                left_out.unoffered = Some(server.name.clone());
                continue;
            }
            if local.len() > SUBSCRIBED_URI_MAX {
                continue;
            }
            match self
                .gateway
                .context()
                .events
                .subscribe_resource(&server.upstream, &local)
            {
                Some(subscription) => {
                    (resource.location, resource.acknowledged) =
                        (Some(subscription.location()), true);
                    subscriptions.push(subscription);
                }
                None => {
                    self.gateway
                        .context()
                        .metrics
                        .calls
                        .refused
                        .inc(Limit::MaxSubscriptions);
                    left_out.exceeded_limit = Some(ByteString::from(format!(
                        "servers.{}.max_subscriptions",
                        server.settings.name
                    )));
                }
            }
        }
        (subscriptions, left_out)
    }

    /// Probes the resources' servers that deny subscriptions and were not probed before, all at
    /// once.
    pub(super) fn start_trials(
        &self,
        caller: &Caller,
        uris: &[ByteString],
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        if !self
            .generation
            .servers
            .iter()
            .any(|server| self.includes(&server.name) && is_untried(server))
        {
            return None;
        }
        let snapshot = self.generation.snapshot.load();
        let budget = LookupBudget::new();
        let mut trials: Vec<(Permitted<Arc<RunningServer>>, ByteString)> = Vec::new();
        for uri in uris {
            let Ok((server, local)) = self.resolve_uri(&snapshot, caller, uri, &budget) else {
                continue;
            };
            // One trial for each server is enough.
            let is_new = trials.iter().all(|(other, _)| other.name != server.name);
            if is_new && local.len() <= SUBSCRIBED_URI_MAX && is_untried(&server) {
                trials.push((server, ByteString::from(local.as_str())));
            }
        }
        (!trials.is_empty()).then(|| {
            Box::pin(async move {
                let outcomes = trials
                    .iter()
                    .map(|(server, uri)| server.try_subscription(uri));
                join_all(outcomes).await.into_iter().collect()
            }) as BoxFuture<'static, _>
        })
    }

    /// Subscribes the client's dedicated connections to the same filter.
    fn subscribe_dedicated(
        &self,
        caller: &Caller,
        filter: &SubscriptionFilter,
        subscriptions: &[ResourceSubscription],
    ) -> OwnerSubscriptionGuard {
        let wants_lists = filter.tools || filter.prompts || filter.resources || filter.logs;
        let lists = wants_lists.then_some(SubscriptionTopic::ListsAndLogs);
        let topics = lists
            .into_iter()
            .chain(subscriptions.iter().map(ResourceSubscription::topic))
            .collect();
        self.gateway
            .context()
            .upstreams
            .subscriptions
            .subscribe(caller, topics)
    }

    /// Returns a digest of each subscribed list. Lists without a subscription all get the same
    /// digest.
    fn list_digests(&self, caller: &Caller, filter: &SubscriptionFilter) -> [u64; 4] {
        ItemKind::ALL.map(
            |kind| match filter.matches(&Notification::ListChanged(kind)) {
                true => self.rendered_list(caller, kind, false).digest,
                false => 0,
            },
        )
    }
}

/// Returns true if the server denies subscriptions and was not probed for them.
fn is_untried(server: &RunningServer) -> bool {
    server
        .description()
        .is_some_and(|known| known.capabilities.subscribe_untried)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::task::unconstrained;

    use futures_util::StreamExt;

    use super::*;
    use crate::testing::gateway;
    use moongate_access::policy::ANONYMOUS;
    use moongate_model::McpServer as _;
    use moongate_testing as testing;

    #[tokio::test]
    async fn a_lagging_subscription_gets_its_missed_notifications() {
        let gateway = gateway();
        let caller = testing::caller(ANONYMOUS, None);
        let endpoint = gateway
            .endpoints()
            .find_endpoint("a", &caller.principal)
            .unwrap();
        let filter = SubscriptionFilter {
            tools: true,
            uris: vec![ByteString::from("x:1"), ByteString::from("x:2")],
            ..SubscriptionFilter::default()
        };
        let mut notifications = endpoint.subscribe(&caller, filter);
        for _ in 0..2000 {
            gateway
                .context
                .events
                .publish(GatewayEvent::FromServer(UpstreamEvent {
                    server: ByteString::from("a"),
                    audience: Audience::Everyone,
                    notification: Notification::Log(None, JsonObject::new()),
                }));
        }
        let mut received = Vec::new();
        while let Some(Some(notification)) =
            unconstrained(notifications.stream.next()).now_or_never()
        {
            received.push(match notification {
                Notification::ResourceUpdated(uri, params) => {
                    assert_eq!(params.get_string("uri").as_ref(), Some(&uri));
                    uri.to_string()
                }
                other => format!("{other:?}"),
            });
        }
        assert_eq!(
            received.pop().as_deref(),
            Some("ListChanged(Tools)"),
            "lists are looked at last"
        );
        received.sort();
        assert_eq!(received, ["x:1", "x:2"]);
    }
}
