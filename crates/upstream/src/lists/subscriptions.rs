//! Subscriptions of single clients, and the notifications of their dedicated connections. Owns the count of
//! subscriptions by owner. Does not know how clients subscribe. Invariant: a dedicated connection subscribes to what
//! its owner wants, and its notifications reach only the clients of that owner.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::lists::acknowledgement::{ACKNOWLEDGE_TIMEOUT, no_notifications, wait_acknowledged};
use crate::settings::BackoffSettings;
use crate::supervisor::backoff;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, Notification, Server, SubscriptionFilter};
use moongate_protocol::{Era, era_of};

/// Owner of a dedicated connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionOwner {
    /// Session of one client.
    Session(ByteString),
    /// Clients of a principal that have no session.
    Stateless(u32),
    /// Clients of a principal, with and without sessions.
    Principal(u32),
    /// Clients in this era.
    Era(Era),
}

impl ConnectionOwner {
    /// Returns true if the connection belongs to this caller.
    pub fn matches(&self, caller: &Caller) -> bool {
        match self {
            ConnectionOwner::Session(session) => caller.session.as_ref() == Some(session),
            ConnectionOwner::Stateless(id) => caller.session.is_none() && caller.principal.id == *id,
            ConnectionOwner::Principal(id) => caller.principal.id == *id,
            ConnectionOwner::Era(of) => era_of(caller.revision) == *of,
        }
    }

    /// Returns true if clients of several principals may share the connection.
    pub fn spans_principals(&self) -> bool {
        match self {
            ConnectionOwner::Era(_) => true,
            ConnectionOwner::Session(_) | ConnectionOwner::Stateless(_) | ConnectionOwner::Principal(_) => false,
        }
    }

    /// Returns all owners that match this caller.
    fn candidates_of(caller: &Caller) -> Vec<ConnectionOwner> {
        let id = caller.principal.id;
        let own = caller.session.clone().map_or(ConnectionOwner::Stateless(id), ConnectionOwner::Session);
        vec![own, ConnectionOwner::Principal(id), ConnectionOwner::Era(era_of(caller.revision))]
    }
}

/// Subscriptions of all clients. An entry exists for each owner that subscribes or has a dedicated connection. Both
/// are bounded where they begin (`limits.streams`, `max_subscriptions`, `max_connections`).
#[derive(Default)]
pub struct SubscriptionRegistry(Mutex<HashMap<ConnectionOwner, SubscriptionDemand>>);

#[derive(Default)]
struct SubscriptionDemand {
    /// Number of subscriptions to list changes and log messages.
    lists: usize,
    /// Number of subscriptions by server and resource.
    uris: BTreeMap<(ByteString, ByteString), usize>,
    /// Signalled when a first subscription appears or a last one disappears.
    changed: watch::Sender<()>,
}

impl SubscriptionDemand {
    fn is_unused(&self) -> bool {
        self.lists == 0 && self.uris.is_empty() && self.changed.receiver_count() == 0
    }
}

/// Guard of one subscription. Ends it on drop.
pub struct SubscriptionGuard {
    registry: Arc<SubscriptionRegistry>,
    owners: Vec<ConnectionOwner>,
    lists: bool,
    uris: Vec<(ByteString, ByteString)>,
}

impl SubscriptionRegistry {
    /// Subscribes a client to list changes (if `lists`), and to resources by server and the server's own URI.
    pub fn subscribe(
        self: &Arc<Self>,
        caller: &Caller,
        lists: bool,
        uris: Vec<(ByteString, ByteString)>,
    ) -> SubscriptionGuard {
        let ear =
            SubscriptionGuard { registry: self.clone(), owners: ConnectionOwner::candidates_of(caller), lists, uris };
        ear.count(true);
        ear
    }

    /// Returns a watch of what this owner wants from a server.
    pub(crate) fn watch(self: &Arc<Self>, owner: ConnectionOwner, server: ByteString) -> RegistryWatch {
        let changed = self.lock().entry(owner.clone()).or_default().changed.subscribe();
        RegistryWatch { registry: self.clone(), owner, server, always_lists: false, changed: Some(changed) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionOwner, SubscriptionDemand>> {
        self.0.lock()
    }
}

impl SubscriptionGuard {
    fn count(&self, more: bool) {
        let mut table = self.registry.lock();
        for owner in &self.owners {
            let wanted = table.entry(owner.clone()).or_default();
            let mut differs = false;
            if self.lists {
                wanted.lists = if more { wanted.lists + 1 } else { wanted.lists.saturating_sub(1) };
                // Only the first and the last subscription change what a connection has to subscribe to.
                differs = wanted.lists == usize::from(more);
            }
            for place in &self.uris {
                let before = wanted.uris.get(place).copied().unwrap_or(0);
                let after = if more { before + 1 } else { before.saturating_sub(1) };
                if after == 0 {
                    wanted.uris.remove(place);
                } else {
                    wanted.uris.insert(place.clone(), after);
                }
                differs |= (before == 0) != (after == 0);
            }
            if differs {
                wanted.changed.send_replace(());
            }
            // Removed under the lock, so that an unused entry never stays.
            if wanted.is_unused() {
                table.remove(owner);
            }
        }
    }
}

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        self.count(false);
    }
}

/// View of what one connection should subscribe to, as it changes.
pub(crate) struct RegistryWatch {
    registry: Arc<SubscriptionRegistry>,
    owner: ConnectionOwner,
    server: ByteString,
    /// True if list changes are subscribed to without any client's demand.
    pub(crate) always_lists: bool,
    /// Receiver of changes. `None` only during the drop.
    changed: Option<watch::Receiver<()>>,
}

impl RegistryWatch {
    fn filter(&self) -> SubscriptionFilter {
        // The completion of an elicitation is always wanted: a session waits for it without a subscription.
        let lists = self.always_lists;
        let always = SubscriptionFilter {
            elicitations: true,
            tools: lists,
            prompts: lists,
            resources: lists,
            ..SubscriptionFilter::default()
        };
        let table = self.registry.lock();
        let Some(wanted) = table.get(&self.owner) else { return always };
        let (lists, uris) = (wanted.lists > 0, wanted.uris.keys().filter(|(server, _)| *server == self.server));
        let uris = uris.map(|(_, uri)| uri.clone()).collect();
        let (all, logs) = (lists || self.always_lists, lists);
        SubscriptionFilter { tools: all, prompts: all, resources: all, logs, uris, ..always }
    }

    /// Returns a probe for current subscriptions to the server's resources.
    pub(crate) fn subscription_probe(&self) -> impl Fn() -> bool + Send + use<> {
        let (ears, owner, server) = (self.registry.clone(), self.owner.clone(), self.server.clone());
        move || ears.lock().get(&owner).is_some_and(|wanted| wanted.uris.keys().any(|(of, _)| *of == server))
    }

    async fn changed(&mut self) {
        // An error means that the sender is gone: nothing changes any more.
        if let Some(changed) = &mut self.changed
            && changed.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

impl Drop for RegistryWatch {
    fn drop(&mut self) {
        let mut table = self.registry.lock();
        // Dropped under the lock: of two watches that end together, the second sees that it is the last.
        self.changed = None;
        if table.get(&self.owner).is_some_and(SubscriptionDemand::is_unused) {
            table.remove(&self.owner);
        }
    }
}

/// Subscribes on a dedicated connection to what its owner wants, and forwards the notifications. Never returns.
pub(crate) async fn forward_notifications(
    server: &dyn Server,
    caller: &Arc<Caller>,
    mut hearing: RegistryWatch,
    backoff: BackoffSettings,
    tell: impl Fn(Notification),
) {
    let mut wanted = hearing.filter();
    let mut notices = server.subscribe(caller, wanted.clone());
    let (mut open, mut deaf) = (Instant::now() + ACKNOWLEDGE_TIMEOUT, 0);
    // True after the end of a stream, until another one is open.
    let mut gap = false;
    loop {
        if gap && !notices.is_pending() {
            gap = false;
            // Changes during the gap were announced to nobody. Every client learns that it may have missed one.
            notices.acknowledged.maybe_changed().for_each(&tell);
        }
        tokio::select! {
            // One replacement at a time: the pending stream is acknowledged first.
            () = hearing.changed(), if !notices.is_pending() => {
                let before = std::mem::replace(&mut wanted, hearing.filter());
                // Several changes may cancel out.
                if before == wanted {
                    continue;
                }
                open = Instant::now() + ACKNOWLEDGE_TIMEOUT;
                let fresh = server.subscribe(caller, wanted.clone());
                // The old stream runs until the server acknowledges the new one, so that nothing is missed in
                // between.
                let before = std::mem::replace(&mut notices, no_notifications());
                notices = fresh.take_over_from(before);
            }
            () = wait_acknowledged(notices.established.clone(), open), if notices.is_pending() => notices.assume_established(),
            notice = notices.stream.next() => match notice {
                Some(notice) => {
                    deaf = 0;
                    tell(notice);
                }
                None => {
                    (gap, deaf) = (true, deaf + 1);
                    tokio::time::sleep(backoff::backoff_delay(backoff, deaf)).await;
                    open = Instant::now() + ACKNOWLEDGE_TIMEOUT;
                    // Read after the delay: the demand may have changed meanwhile.
                    wanted = hearing.filter();
                    notices = server.subscribe(caller, wanted.clone());
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::stream;
    use tokio::sync::mpsc;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use moongate_jsonrpc::json::{JsonObject, RawJson};
    use moongate_model::{Call, Exchange, ItemKind, NotificationStream, ServerCapabilities, ServerDescription};
    use moongate_testing as testing;

    /// Server whose streams are scripted by the test.
    #[derive(Default)]
    struct FakeServer(Mutex<Vec<OpenedStream>>);

    /// Stream that was opened.
    struct OpenedStream {
        news: mpsc::Sender<Notification>,
        opened: CancellationToken,
    }

    impl FakeServer {
        fn streams(&self) -> MutexGuard<'_, Vec<OpenedStream>> {
            self.0.lock()
        }
    }

    impl Server for FakeServer {
        fn describe(&self, _: &Caller) -> ServerDescription {
            ServerDescription {
                info: RawJson::literal("{}"),
                instructions: None,
                features: ServerCapabilities::default(),
            }
        }

        fn call(&self, _: &Arc<Caller>, _: Call) -> Exchange {
            unreachable!("nobody calls it")
        }

        fn subscribe(&self, _: &Arc<Caller>, filter: SubscriptionFilter) -> NotificationStream {
            let ((news, heard), opened) = (mpsc::channel(8), CancellationToken::new());
            let next = |mut heard: mpsc::Receiver<Notification>| async { Some((heard.recv().await?, heard)) };
            self.streams().push(OpenedStream { news, opened: opened.clone() });
            NotificationStream {
                acknowledged: filter,
                stream: stream::unfold(heard, next).boxed(),
                established: Some(opened),
            }
        }

        fn notify(&self, _: &Arc<Caller>, _: Notification) {}
    }

    /// Subscribes to the server for the session "s". Returns the notifications as text.
    fn listening(ears: &Arc<SubscriptionRegistry>, server: &Arc<FakeServer>) -> mpsc::Receiver<String> {
        let (tell, told) = mpsc::channel(64);
        let hearing = ears.watch(ConnectionOwner::Session(ByteString::from("s")), ByteString::from("a"));
        let (server, backoff) = (server.clone(), BackoffSettings::default());
        tokio::spawn(async move {
            let tell = |notice| {
                let text = match notice {
                    Notification::ResourceUpdated(uri, _) => uri.to_string(),
                    other => format!("{other:?}"),
                };
                tell.try_send(text).unwrap();
            };
            forward_notifications(&*server, &testing::caller(1, Some("s")), hearing, backoff, tell).await;
        });
        told
    }

    fn differs(hearing: &RegistryWatch) -> bool {
        hearing.changed.as_ref().unwrap().has_changed().unwrap()
    }

    fn place(uri: &str) -> (ByteString, ByteString) {
        (ByteString::from("a"), ByteString::from(uri))
    }

    #[test]
    fn a_connection_listens_to_what_its_owner_listens_to() {
        let (ears, client) = (Arc::new(SubscriptionRegistry::default()), testing::caller(1, Some("s")));
        let other = testing::caller(1, Some("t"));
        let mut hearing = ears.watch(ConnectionOwner::Session(ByteString::from("s")), ByteString::from("a"));
        let always = SubscriptionFilter { elicitations: true, ..SubscriptionFilter::default() };
        assert_eq!(hearing.filter(), always);
        let _others = ears.subscribe(&other, true, vec![place("x:other")]);
        assert!(!differs(&hearing), "what another client wants is nothing to it");
        let ear = ears.subscribe(&client, true, vec![place("x:1"), (ByteString::from("b"), ByteString::from("x:2"))]);
        assert!(differs(&hearing));
        hearing.changed.as_mut().unwrap().mark_unchanged();
        let filter = hearing.filter();
        assert!(filter.tools && filter.logs && filter.uris == [ByteString::from("x:1")], "{filter:?}");
        let (second, third) =
            (ears.subscribe(&client, true, vec![place("x:1")]), ears.subscribe(&client, true, Vec::new()));
        drop(third);
        assert!(!differs(&hearing), "nothing differs as long as another one listens");
        drop((ear, second));
        assert!(differs(&hearing));
        assert_eq!(hearing.filter(), always);
    }

    #[test]
    fn a_dropped_subscription_leaves_no_entry() {
        let (ears, client) = (Arc::new(SubscriptionRegistry::default()), testing::caller(1, None));
        let hearing = ears.watch(ConnectionOwner::Stateless(1), ByteString::from("a"));
        let ear = ears.subscribe(&client, true, vec![place("x:1")]);
        assert!(ears.lock().len() >= 2, "as a client without a session, and as a principal");
        drop(ear);
        assert_eq!(ears.lock().len(), 1);
        drop(hearing);
        assert_eq!(ears.lock().len(), 0);
    }

    #[test]
    fn whose_a_connection_is() {
        let (session, stateless) = (testing::caller(1, Some("s")), testing::caller(1, None));
        let other = testing::caller(2, Some("t"));
        assert!(
            ConnectionOwner::Session(ByteString::from("s")).matches(&session)
                && !ConnectionOwner::Session(ByteString::from("s")).matches(&other)
        );
        assert!(ConnectionOwner::Stateless(1).matches(&stateless) && !ConnectionOwner::Stateless(1).matches(&session));
        assert!(ConnectionOwner::Principal(1).matches(&session) && ConnectionOwner::Principal(1).matches(&stateless));
        assert!(!ConnectionOwner::Principal(1).matches(&other));
    }

    #[test]
    fn two_subscriptions_that_end_together_leave_no_entry() {
        let (ears, both, left) = (Arc::new(SubscriptionRegistry::default()), Barrier::new(2), AtomicUsize::new(0));
        let end = || {
            // Many rounds, because the race is rare.
            for _ in 0..2000 {
                let hearing = ears.watch(ConnectionOwner::Stateless(1), ByteString::from("a"));
                both.wait();
                drop(hearing);
                both.wait();
                left.fetch_add(ears.lock().len(), Ordering::Relaxed);
                both.wait();
            }
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(end);
            end();
            other.join().unwrap();
        });
        assert_eq!(left.into_inner(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_says_that_it_is_listened_to_has_one_stream() {
        let (ears, server, client) =
            (Arc::new(SubscriptionRegistry::default()), Arc::new(FakeServer::default()), testing::caller(1, Some("s")));
        let mut told = listening(&ears, &server);
        let mut wanted = Vec::new();
        for n in 1..5 {
            tokio::time::sleep(ACKNOWLEDGE_TIMEOUT * 2).await;
            wanted.push(ears.subscribe(&client, true, vec![place(&format!("x:{n}"))]));
        }
        tokio::time::sleep(ACKNOWLEDGE_TIMEOUT * 2).await;
        let open = server.streams().iter().filter(|stream| !stream.news.is_closed()).count();
        assert_eq!((server.streams().len(), open), (5, 1));
        for stream in &*server.streams() {
            let _ = stream.news.try_send(Notification::ListChanged(ItemKind::Tools));
        }
        tokio::time::sleep(ACKNOWLEDGE_TIMEOUT).await;
        assert_eq!((told.try_recv().as_deref(), told.try_recv().ok()), (Ok("ListChanged(Tools)"), None));
    }

    #[tokio::test(start_paused = true)]
    async fn changes_without_a_subscriber_are_reported_to_the_next_one() {
        let (ears, server, client) =
            (Arc::new(SubscriptionRegistry::default()), Arc::new(FakeServer::default()), testing::caller(1, Some("s")));
        let _wanted = ears.subscribe(&client, true, vec![place("x:1")]);
        let mut told = listening(&ears, &server);
        let settled = || tokio::time::sleep(Duration::from_secs(1));
        settled().await;
        server.streams()[0].opened.cancel();
        settled().await;
        assert!(told.try_recv().is_err(), "nothing was missed");
        // The next attempt fails, too.
        for n in 0..2 {
            // Dropping the sender ends the stream.
            server.streams()[n].news = mpsc::channel(1).0;
            while server.streams().len() < n + 2 {
                settled().await;
            }
            assert!(told.try_recv().is_err(), "nobody listens yet");
        }
        server.streams()[2].opened.cancel();
        server.streams()[2]
            .news
            .try_send(Notification::ResourceUpdated(ByteString::from("x:1"), JsonObject::new()))
            .unwrap();
        settled().await;
        let mut all: Vec<String> = std::iter::from_fn(|| told.try_recv().ok()).collect();
        all.sort();
        assert_eq!(all, ["MaybeChanged(Prompts)", "MaybeChanged(Resources)", "MaybeChanged(Tools)", "x:1", "x:1"]);
    }
}
