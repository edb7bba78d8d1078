//! Upstream server: its connections, lists, health and calls. Owns what the server offers and the
//! start of each call. Does not merge servers (`gateway`) or encode messages (`protocol`).
//! Invariant: a server that hangs or fails delays no call to another one.

// In reading order. Each module may use only the ones above it; `tests/tidy.rs` checks that.
mod supervision_options;
mod options;
mod settings;
mod login_need;
mod status;
mod connection_owner;
mod event;
mod gateway_caller;
mod all_servers;
mod server_context;
mod connection;
mod lists;
mod pool;
mod call;
mod supervisor;
#[cfg(test)]
mod testing;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::call::dispatcher::CallDispatcher;
use crate::lists::cache::{RestoredServer, settings_digest};
use crate::lists::relist_on_demand::RELIST_WAIT;
use crate::lists::{ConnectedFaces, ListStore};
use crate::pool::ConnectionPool;
use crate::pool::era_selection::LastHandshake;
use crate::server_context::ServerContext;
use crate::supervisor::state_log_policy::StateLogPolicy;
use crate::supervisor::stderr_history::StderrHistory;
use crate::supervisor::supervised_server::SupervisedServer;
use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_model::{
    Call, Caller, Error, ItemKind, Notification, ServerDescription, UpstreamState,
};
use moongate_protocol::Era;
pub use moongate_transport::MemoryPipe;

pub use all_servers::demand_counter::DemandCounter;
pub use all_servers::owner_subscriptions::{
    OwnerSubscriptionGuard, OwnerSubscriptions, SubscriptionTopic,
};
pub use all_servers::session_store::client_session_digest;
pub use all_servers::{ServerDialer, UpstreamRuntime};
pub use call::UpstreamCall;
pub use connection::UpstreamConnection;
pub use connection::dial::{ConnectIdentity, open_connection, transport_name};
pub use connection_owner::ConnectionOwner;
#[cfg(any(test, feature = "testing"))]
pub use event::NoSink;
pub use event::{Audience, DedicatedSessions, EventSink, UpstreamEvent};
pub use gateway_caller::gateway_caller;
pub use lists::definition_checks::DefinitionCheck;
pub use lists::eras::EraLists;
pub use lists::fetch::{ItemList, ServerLists, list_all, offers_list};
pub use options::{ConnectionOptions, ListOptions, LiveOptions};
pub use settings::{
    ConnectTarget, HttpTransport, NetworkSettings, ServerPresentation, ServerSettings,
};
pub use status::UpstreamStatus;
pub use supervision_options::{
    BackoffSettings, BreakerSettings, PingSettings, RetrySettings, WebSocketPingSettings,
};

/// Longest time of a stop. The supervisor closes the link, which takes a moment and never more than
/// the link's steps.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);

/// Configured server with its connections, lists and health.
pub struct Upstream {
    /// Settings that it is connected with.
    pub settings: Arc<ServerSettings>,
    /// Name of the server, as routes and events carry it.
    pub name: ByteString,
    server: Arc<ServerContext>,
    pool: Arc<ConnectionPool>,
    lists: Arc<ListStore>,
    calls: Arc<CallDispatcher>,
    supervised: Arc<SupervisedServer>,
    /// Server that replaced this one after a change of the config.
    successor: OnceLock<Arc<Upstream>>,
}

impl Upstream {
    /// Creates a server that is not connected. [`Upstream::run`] connects it.
    pub fn new(
        settings: ServerSettings,
        common: Arc<UpstreamRuntime>,
        sink: Arc<dyn EventSink>,
    ) -> Arc<Self> {
        let server = ServerContext::new(settings, common, sink);
        let lists = Arc::new(ListStore::new(server.clone()));
        let pool = Arc::new(ConnectionPool::new(server.clone(), lists.clone()));
        let calls = CallDispatcher::new(server.clone(), pool.clone());
        let supervised = SupervisedServer {
            server: server.clone(),
            pool: pool.clone(),
            lists: lists.clone(),
            breaker: calls.breaker.clone(),
            activity: calls.activity.clone(),
            stderr_history: StderrHistory::default(),
            log_policy: StateLogPolicy::default(),
            stopped: CancellationToken::new(),
        };
        Arc::new(Upstream {
            settings: server.settings.clone(),
            name: server.name.clone(),
            server,
            pool,
            lists,
            calls,
            supervised: Arc::new(supervised),
            successor: OnceLock::new(),
        })
    }

    // === start and stop ===

    /// Connects and stays connected until [`Upstream::stop`].
    pub async fn run(self: Arc<Self>) {
        supervisor::run(self.supervised.clone()).await;
    }

    /// Stops the server's processes and connections, and waits for that.
    pub async fn stop(&self) {
        self.server.stop.cancel();
        // Dedicated connections first: the supervisor, which is awaited next, closes only the
        // shared one.
        self.pool.close_dedicated().await;
        let _ = tokio::time::timeout(STOP_TIMEOUT, self.supervised.stopped.cancelled()).await;
    }

    /// Waits for the open calls, for at most `bound`, then stops.
    pub async fn drain(&self, bound: Duration) {
        // First, so that no list is persisted from here on.
        self.lists.cache.stop_persisting();
        if tokio::time::timeout(bound, self.calls.open_calls.wait_finished())
            .await
            .is_err()
        {
            tracing::warn!(
                server = self.settings.name,
                "calls still open after gateway.drain = {bound:?}"
            );
        }
        // The next process must not resume sessions of a server that was replaced.
        self.pool.discard_persisted();
        self.stop().await;
    }

    /// Returns true if the upstream was asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.server.stop.is_cancelled()
    }

    // === settings and replacement ===

    /// Applies settings that can change on a live connection. See
    /// [`ServerSettings::same_connection`].
    pub fn apply_settings(&self, settings: &ServerSettings) {
        let before = self.server.apply_settings(settings);
        self.calls.apply_settings(&before, settings);
    }

    /// Returns the settings in force.
    pub fn live_settings(&self) -> Arc<ServerSettings> {
        self.server.live_settings()
    }

    /// Returns true if the server's entry in the config cannot be used.
    pub fn is_misconfigured(&self) -> bool {
        matches!(self.settings.connect, ConnectTarget::Misconfigured { .. })
    }

    /// Copies the lists of another upstream, to serve them until this one is connected.
    pub fn copy_lists_from(&self, other: &Upstream) {
        if let Some(handshake) = other.pool.last_handshake() {
            self.pool.restore_handshake((*handshake).clone());
        }
        self.pool
            .seen_input_flag
            .restore(other.pool.seen_input_flag.seen_requests());
        self.pool
            .legacy_tools
            .restore(&other.pool.legacy_tools.names());
        self.pool
            .asking_tools
            .restore(&other.pool.asking_tools.names());
        self.lists.copy_from(&other.lists);
    }

    /// Redirects every new call to `next`, for good. Only the first redirect counts.
    pub fn redirect_to(&self, next: &Arc<Upstream>) {
        // Muted first, so that only one of the two publishes.
        self.mute_metrics();
        next.server.unmute_metrics();
        // A second redirect is ignored: calls may run on the first successor already.
        let _ = self.successor.set(next.clone());
    }

    /// Returns the upstream that represents this server now.
    pub fn current(self: &Arc<Self>) -> &Arc<Upstream> {
        // A chain arises where a server was replaced again while routes still hold the first one.
        let mut latest = self;
        while let Some(next) = latest.successor.get() {
            latest = next;
        }
        latest
    }

    /// Stops publishing the metrics of the server.
    pub fn mute_metrics(&self) {
        self.server.mute_metrics();
    }

    /// Counts a restart of the server's process.
    pub fn count_restart(&self) {
        self.server
            .metrics()
            .servers
            .restarts
            .inc(&self.settings.name);
    }

    // === status ===

    /// Returns the current status.
    pub fn status(&self) -> UpstreamStatus {
        self.server.status.borrow().clone()
    }

    /// Returns a receiver of status changes.
    pub fn watch(&self) -> watch::Receiver<UpstreamStatus> {
        self.server.status.subscribe()
    }

    /// Returns the last lines on stderr. Those of a dead process stay until its successor is ready.
    pub fn stderr(&self) -> Vec<String> {
        self.supervised.stderr_history.lines()
    }

    /// Explains why a server was never connected. `None` if it was, perhaps in a previous process.
    pub fn absence(&self) -> Option<String> {
        let is_known = self.pool.shared().is_some() || self.pool.last_handshake().is_some();
        (!is_known).then(|| self.status().explain_absence(&self.settings.name))
    }

    /// Returns the number of calls that run at the server.
    pub fn inflight(&self) -> usize {
        self.calls
            .concurrency
            .in_use(self.live_settings().live.max_concurrency)
    }

    /// Returns the number of calls in the concurrency queue.
    pub fn queue_len(&self) -> usize {
        self.calls.concurrency.queue_len()
    }

    // === connections ===

    /// Returns true if there is a shared connection.
    pub fn is_connected(&self) -> bool {
        self.pool.shared().is_some()
    }

    /// Returns the number of dedicated connections.
    pub fn dedicated_count(&self) -> usize {
        self.pool.dedicated_count()
    }

    /// Returns true if a session has a dedicated connection to this server.
    pub fn has_dedicated(&self, session: &ByteString) -> bool {
        self.pool.has_session_connection(session)
    }

    /// Returns the connections that clients of an era share: the revision and the process id, if
    /// there is one.
    pub fn shared_connections(&self) -> Vec<(&'static str, Option<u32>)> {
        self.pool
            .all_shared()
            .iter()
            .map(|connection| (connection.revision, connection.link.pid()))
            .collect()
    }

    /// Returns the server's description. While disconnected, this is the last known one, perhaps of
    /// a previous process.
    pub fn description(&self) -> Option<ServerDescription> {
        self.pool.description()
    }

    /// Returns the revision that the server speaks, while it is connected.
    pub fn revision(&self) -> Option<&'static str> {
        self.pool.shared().map(|connection| connection.revision)
    }

    /// Returns the transport in a word: of the connection, else of the config.
    pub fn transport(&self) -> &'static str {
        transport_name(&self.settings.connect, self.pool.shared().as_deref())
    }

    /// Returns why the rules of the server's revision forbid to expose a tool. `None` if they allow
    /// it. `era`: the era of the face that lists it.
    pub fn tool_problem(&self, era: Era, definition: &JsonObject) -> Option<String> {
        // The rules of the last handshake: its lists stay while the server is disconnected, and so
        // do their rules.
        let handshake = self.pool.last_handshake()?;
        moongate_protocol::tool_problem(era, handshake.is_multiplexed, definition)
    }

    /// Closes the connections of principals that were revoked.
    pub async fn revoke_principals(&self, gone: &(dyn Fn(u32) -> bool + Sync)) {
        self.pool.revoke_principals(gone).await;
    }

    // === lists ===

    /// Returns the items of both eras, for rules and operators. While the server is disconnected,
    /// these are the last good ones.
    pub fn lists(&self) -> Arc<ServerLists> {
        self.lists.load_eras().all().clone()
    }

    /// Returns the lists for clients of each era.
    pub fn era_lists(&self) -> Arc<EraLists> {
        self.lists.load_eras()
    }

    /// Checks a definition of the server's lists, once.
    pub fn check_definition(&self, kind: ItemKind, item: &Arc<JsonObject>) -> DefinitionCheck {
        self.lists.checks.check(kind, item)
    }

    /// Sets the lists, for tests of code that reads them.
    #[cfg(any(test, feature = "testing"))]
    pub fn serve_lists(&self, items: ServerLists) {
        self.lists.replace(Arc::new(items));
    }

    /// Returns for how many milliseconds a list counts as fresh. `None`: its age says nothing. A
    /// list that has expired is fetched again for the next reader.
    pub fn list_ttl(&self, kind: ItemKind) -> Option<u64> {
        self.lists.ttl(kind)
    }

    /// Requests a fetch of one list and waits for it. Skipped if the server is not ready, or
    /// shortly after the last one if no call ended since.
    pub async fn relist_now(&self, kind: ItemKind) {
        // In other states the lists are fetched anyway, once the server is ready.
        if self.server.state() == UpstreamState::Ready {
            self.lists.relist(kind, self.lists.connected_faces()).await;
        }
    }

    /// Requests a fetch of one list for a client of an era, and waits for it. Opens the face in
    /// that era first, because its list may have items that the other one has not.
    pub async fn relist_for(&self, era: Era, kind: ItemKind) {
        if self.server.state() != UpstreamState::Ready
            || self.lists.connected_faces() == ConnectedFaces::Both
        {
            return self.relist_now(kind).await;
        }
        // A face that takes longer lists its items for the next call.
        let is_open = tokio::time::timeout(RELIST_WAIT, self.pool.open_face(era))
            .await
            .unwrap_or_default();
        let faces = if is_open {
            ConnectedFaces::Both
        } else {
            self.lists.connected_faces()
        };
        self.lists.relist(kind, faces).await;
    }

    /// Returns true if the lists are those of a previous process, and the server has not confirmed
    /// them yet.
    pub fn is_unconfirmed(&self) -> bool {
        self.lists.cache.is_unconfirmed()
    }

    /// Returns true if all lists were fetched in full, now or before.
    pub fn is_listed(&self) -> bool {
        self.lists.cache.is_listed()
    }

    /// Restores a row of a previous process. Returns false if the row is of no use. A server that
    /// was listed meanwhile keeps its own lists.
    pub fn restore(&self, row: &Bytes, longest: Duration) -> bool {
        let Some(row) = RestoredServer::parse(row, longest, &self.settings) else {
            return false;
        };
        // Restored even if the server was listed meanwhile: the record only ever grows.
        self.pool.seen_input_flag.restore(row.seen_requests);
        self.lists.cache.restore_seen_requests(row.seen_requests);
        self.pool.legacy_tools.restore(&row.legacy_tools);
        self.pool.asking_tools.restore(&row.asking_tools);
        if self.pool.last_handshake().is_some() {
            return true;
        }
        self.pool.restore_handshake(LastHandshake {
            era: row.era,
            is_multiplexed: row.is_multiplexed,
            description: row.description,
            speaks_other_era: row.speaks_other_era,
            greeting: row.greeting,
        });
        self.lists.restore(row.era, row.lists, row.other_lists);
        true
    }

    /// Restores a row of a slow start. Returns false if it is of no use.
    pub fn restore_slow_start(&self, row: &Bytes) -> bool {
        if settings_digest(&self.settings).as_bytes() != &row[..] {
            return false;
        }
        self.lists
            .cache
            .was_slow
            .store(true, std::sync::atomic::Ordering::Relaxed);
        self.server
            .status
            .send_modify(|status| status.was_slow = status.state == UpstreamState::Starting);
        true
    }

    // === subscriptions ===

    /// Sets the resources whose changes clients subscribed to, by the server's own URIs.
    pub fn subscribe(&self, uris: Vec<ByteString>) {
        let known = self
            .server
            .metrics()
            .clients
            .subscriptions
            .series(&self.settings.name);
        known.set(i64::try_from(uris.len()).unwrap_or(i64::MAX));
        if self.lists.resources.set(uris) {
            self.pool.demand().recheck();
        }
    }

    /// Tries a subscription on the shared connection, once there is one. For servers that deny the
    /// capability and were not tried yet.
    pub async fn try_subscription(&self, uri: &ByteString) -> Result<(), Error> {
        let connection = self.pool.wait_connected().await?;
        match connection
            .server
            .try_subscriptions(&gateway_caller(), std::slice::from_ref(uri))
        {
            Some(trial) => trial.await,
            None => Ok(()),
        }
    }

    /// Passes a notification of a client on to its dedicated connection.
    pub fn notify(&self, caller: &Arc<Caller>, notification: Notification) {
        self.pool.notify_connections_of(caller, &notification);
    }

    /// Sends the notification of an extension on the connection that has the caller's calls, if it
    /// is open.
    pub fn notify_extension(&self, caller: &Arc<Caller>, notification: Notification) {
        if let Some(connection) = self.pool.connections_of(caller).last() {
            connection.server.notify(caller, notification);
        }
    }

    // === calls ===

    /// Waits until the server has answered to the subscription of a resource, on each connection
    /// whose updates the caller gets. An error is the refusal of the connection that has the
    /// caller's calls.
    pub async fn confirm_subscription(
        &self,
        caller: &Arc<Caller>,
        uri: &ByteString,
    ) -> Result<(), Error> {
        let answers = self.pool.connections_of(caller).into_iter();
        let answers =
            answers.filter_map(|connection| connection.server.confirm_subscription(caller, uri));
        let answers = futures_util::future::join_all(answers);
        // The subscription stays, and a server that is as slow as this may still take it.
        let answers = tokio::time::timeout(self.server.timeouts.call(), answers)
            .await
            .unwrap_or_default();
        answers.into_iter().next_back().unwrap_or(Ok(()))
    }

    // === calls ===

    #[cfg(test)]
    pub(crate) fn call(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        call: Call,
    ) -> moongate_model::Exchange {
        moongate_model::Exchange::new(self.begin_call(caller, call))
    }

    /// Starts a call of a client. It waits for a concurrency permit and for a connection within the
    /// call's limits.
    ///
    /// The one entry for calls. Fetched lists and pings of the supervisor use its own connection
    /// instead.
    pub fn begin_call(self: &Arc<Self>, caller: &Arc<Caller>, call: Call) -> UpstreamCall {
        self.current().calls.start(caller, call)
    }
}
