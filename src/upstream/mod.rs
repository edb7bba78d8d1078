//! Upstream server: its connections, lists, health and calls. Owns what the server offers and the start of each call.
//! Does not merge servers (`gateway`) or encode messages (`revision`). Invariant: whatever a server does or fails to
//! do, no other server's clients wait for it.

mod call;
mod lists;
mod pool;
mod settings;
mod status;
mod supervisor;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::json::{ByteString, JsonObject, RawJson};
pub use crate::link::MemoryPipe;
use crate::link::proxy::{ProxyAddress, ProxyChoice, ProxyEnvironment};
use crate::link::reaper::Reaper;
use crate::link::trust::{self, CaFile};
use crate::link::{LinkError, connect_hints};
use crate::model::{
    Call, Caller, ClientCapabilities, Error, Exchange, ItemKind, LogFilter, LogLevel, McpErrorKind, Notification,
    Principal, Retryable, ServerDescription, TaskState,
};
use crate::revision::CallTimeouts;
use crate::store::StateStore;
use crate::telemetry::Metrics;
use crate::upstream::call::circuit_breaker::BreakerPermit;
use crate::upstream::call::concurrency::ConcurrencyPermit;
use crate::upstream::call::notification_quota::NotificationQuota;
use crate::upstream::call::retry::RetryableCall;
use crate::upstream::call::{ActiveCall, CallStep, StartedCall};
use crate::upstream::pool::{CheckedOut, CheckoutRequest, ConnectionPool};

pub use call::ServerCall;
pub use lists::fetch::{ItemList, ServerLists, depth, list_all, offers_list};
pub use lists::subscriptions::{ConnectionOwner, SubscriptionGuard, SubscriptionRegistry};
pub use pool::dial::{ConnectAs, UpstreamConnection, open};
pub use pool::session_store::client_session_digest;
pub use settings::{
    BackoffSettings, BreakerSettings, ConnectTarget, HttpTransport, ListLimits, NetworkSettings, PingSettings,
    ServerSettings, ServerStart, SharingMode,
};
pub use status::{UpstreamState, UpstreamStatus};

/// Longest time to end sessions at servers when the gateway stops.
const CLOSE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

/// Context that all servers share.
pub struct UpstreamContext {
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Process that ends children if the gateway cannot.
    pub reaper: Arc<Reaper>,
    /// Store that outlives the process.
    pub store: StateStore,
    /// Tasks that end sessions at servers.
    pub closing: TaskTracker,
    /// Subscriptions of single clients.
    pub(crate) subscriptions: Arc<SubscriptionRegistry>,
    session_store: pool::session_store::UpstreamSessionStore,
    tls: OnceLock<Arc<rustls::ClientConfig>>,
    roots: OnceLock<rustls::RootCertStore>,
    proxies: OnceLock<ProxyEnvironment>,
    dialer: Option<ServerDialer>,
}

/// Function that opens a pipe to the server of this name: its output and its input.
pub type ServerDialer = Arc<dyn Fn(&str) -> Result<MemoryPipe, LinkError> + Send + Sync>;

impl UpstreamContext {
    /// Creates the context with a store in memory.
    pub fn new(metrics: Arc<Metrics>, guard: Reaper) -> Self {
        UpstreamContext::with_store(metrics, guard, StateStore::memory())
    }

    /// Creates the context with a store that outlives the process.
    pub fn with_store(metrics: Arc<Metrics>, guard: Reaper, store: StateStore) -> Self {
        UpstreamContext {
            metrics,
            reaper: Arc::new(guard),
            store,
            closing: TaskTracker::new(),
            subscriptions: Arc::default(),
            session_store: pool::session_store::UpstreamSessionStore::default(),
            tls: OnceLock::new(),
            roots: OnceLock::new(),
            proxies: OnceLock::new(),
            dialer: None,
        }
    }

    /// Waits until servers know that their sessions have ended, at most `CLOSE_TIMEOUT`.
    pub async fn wait_closed(&self) {
        self.closing.close();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.closing.wait()).await;
    }

    /// Replaces all transports by pipes of the dialer, whatever the config says. A server that is configured with a
    /// URL speaks HTTP there.
    #[must_use]
    pub fn with_dialer(self, dialer: ServerDialer) -> Self {
        UpstreamContext { dialer: Some(dialer), ..self }
    }

    /// Replaces the system's certificates by this TLS configuration.
    #[must_use]
    pub fn with_tls(self, tls: Option<Arc<rustls::ClientConfig>>) -> Self {
        match tls {
            Some(tls) => UpstreamContext { tls: OnceLock::from(tls), ..self },
            None => self,
        }
    }

    /// Returns the TLS configuration of a server. Certificates are read on first use, since the system's take a
    /// while.
    fn tls(&self, ca: Option<&CaFile>) -> Arc<rustls::ClientConfig> {
        let roots = || self.roots.get_or_init(trust::system_roots).clone();
        match ca {
            Some(ca) => ca.tls_config(roots),
            None => self.tls.get_or_init(|| trust::client_config(roots())).clone(),
        }
    }

    /// Returns the proxy on the path to a server. The environment is read on first use.
    fn proxy(&self, url: &url::Url, choice: &ProxyChoice) -> Option<ProxyAddress> {
        match choice {
            ProxyChoice::Fixed(proxy) => Some(proxy.clone()),
            ProxyChoice::Direct => None,
            ProxyChoice::Environment => self.proxies.get_or_init(ProxyEnvironment::read).choose(url),
        }
    }
}

/// Event of one upstream server, for the gateway.
#[derive(Debug)]
pub enum UpstreamEvent {
    /// The items or the description of the server changed.
    ListsChanged,
    /// A resource changed: the server's own URI and the params.
    ResourceUpdated(ByteString, JsonObject),
    /// Log message outside of any call: the level and the params.
    Logged(Option<LogLevel>, JsonObject),
    /// A user finished the page of an elicitation: its id and the params.
    ElicitationCompleted(ByteString, JsonObject),
    /// Status of a task.
    Task(Box<TaskState>),
    /// Notification on a dedicated connection, for its owner alone.
    ToOwner(ConnectionOwner, Box<Notification>),
}

/// Consumer of upstream events, by the server's name. Must not block.
pub type EventSink = Arc<dyn Fn(&str, UpstreamEvent) + Send + Sync>;

/// Configured server with its connections, lists and health.
pub struct Upstream {
    /// Settings that it is connected with.
    pub settings: Arc<ServerSettings>,
    /// Settings that can change on a live connection: times and sizes.
    live_settings: ArcSwap<ServerSettings>,
    timeouts: Arc<CallTimeouts>,
    attempts: AtomicU32,
    /// Server that replaced this one after a change of the config.
    successor: OnceLock<Arc<Upstream>>,
    open_calls: supervisor::replace::OpenCalls,
    /// True if another `Upstream` stands for the server in the metrics.
    metrics_muted: AtomicBool,
    /// True if it ends with its calls, before the gateway does.
    is_draining: AtomicBool,
    /// True if its lists are copies of those of its predecessor.
    copied_lists: AtomicBool,
    context: Arc<UpstreamContext>,
    pool: ConnectionPool,
    /// Name of the server, as routes and events carry it.
    pub(crate) name: ByteString,
    lists: ArcSwap<ServerLists>,
    list_cache: lists::cache::ListCache,
    list_ages: lists::freshness::ListAges,
    list_expired: Notify,
    relist_requests: lists::relist_on_demand::RelistRequests,
    status: watch::Sender<UpstreamStatus>,
    stderr_history: supervisor::stderr_history::StderrHistory,
    state_log: supervisor::state_log::StateLog,
    demand: supervisor::backoff::ConnectDemand,
    connection_suspect: Notify,
    /// Signalled when the server's host refuses a call.
    call_refused: Notify,
    relist_scheduler: Arc<lists::relist_scheduler::RelistScheduler>,
    extra_items: Arc<lists::extra_items::ExtraItems>,
    subscribed_uris: ArcSwap<Vec<ByteString>>,
    resubscribe: Notify,
    concurrency: call::concurrency::ConcurrencyLimit,
    breaker: Arc<call::circuit_breaker::CircuitBreaker>,
    retry_budget: call::retry::RetryBudget,
    activity: supervisor::idle::IdleTracker,
    sink: EventSink,
    stop: CancellationToken,
    /// Cancelled once the server is stopped.
    stopped: CancellationToken,
}

impl Upstream {
    /// Creates a server that is not connected. [`Upstream::run`] connects it.
    pub fn new(settings: ServerSettings, shared: Arc<UpstreamContext>, sink: EventSink) -> Arc<Self> {
        Arc::new(Upstream {
            name: ByteString::from(settings.name.as_str()),
            live_settings: ArcSwap::from_pointee(settings.clone()),
            timeouts: Arc::new(CallTimeouts::new(settings.timeout, settings.ask_timeout)),
            attempts: AtomicU32::new(settings.attempts),
            successor: OnceLock::new(),
            open_calls: supervisor::replace::OpenCalls::default(),
            metrics_muted: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            copied_lists: AtomicBool::new(false),
            pool: ConnectionPool::new(&settings),
            concurrency: call::concurrency::ConcurrencyLimit::new(&settings),
            breaker: call::circuit_breaker::CircuitBreaker::new(settings.breaker),
            retry_budget: call::retry::RetryBudget::default(),
            activity: supervisor::idle::IdleTracker::default(),
            settings: Arc::new(settings),
            context: shared,
            lists: ArcSwap::default(),
            list_cache: lists::cache::ListCache::default(),
            list_ages: lists::freshness::ListAges::default(),
            list_expired: Notify::new(),
            relist_requests: lists::relist_on_demand::RelistRequests::default(),
            status: watch::Sender::new(UpstreamStatus::starting()),
            stderr_history: supervisor::stderr_history::StderrHistory::default(),
            state_log: supervisor::state_log::StateLog::default(),
            demand: supervisor::backoff::ConnectDemand::default(),
            connection_suspect: Notify::new(),
            call_refused: Notify::new(),
            relist_scheduler: Arc::default(),
            extra_items: Arc::default(),
            subscribed_uris: ArcSwap::default(),
            resubscribe: Notify::new(),
            sink,
            stop: CancellationToken::new(),
            stopped: CancellationToken::new(),
        })
    }

    /// Connects and stays connected until [`Upstream::stop`].
    pub async fn run(self: Arc<Self>) {
        supervisor::run(self).await;
    }

    /// Stops the server's processes and connections, and waits for that.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.pool.close_dedicated().await;
        // The supervisor closes the link. That takes a moment, and never more than the link's own steps.
        let _ = tokio::time::timeout(Duration::from_secs(8), self.stopped.cancelled()).await;
    }

    /// Returns the lists. While the server is disconnected, these are the last good ones.
    pub fn lists(&self) -> Arc<ServerLists> {
        self.lists.load_full()
    }

    /// Sets the lists, for tests of code that reads them.
    #[cfg(test)]
    pub(crate) fn serve_lists(&self, items: ServerLists) {
        self.lists.store(Arc::new(items));
    }

    /// Returns for how many milliseconds a list counts as fresh. `None`: its age says nothing. A list that has
    /// expired is fetched again for the next reader.
    pub fn list_ttl(&self, kind: ItemKind) -> Option<u64> {
        if self.is_unconfirmed() {
            return Some(0);
        }
        let items = self.lists.load();
        let list = items.get(kind);
        if self.list_ages.is_stale(kind, list) {
            self.list_expired.notify_one();
        }
        self.list_ages.remaining(kind, list)
    }

    fn is_stale(&self) -> bool {
        let items = self.lists.load();
        ItemKind::ALL.into_iter().any(|kind| self.list_ages.is_stale(kind, items.get(kind)))
    }

    /// Returns the current status.
    pub fn status(&self) -> UpstreamStatus {
        self.status.borrow().clone()
    }

    /// Returns the last lines on stderr. Those of a dead process stay until its successor is ready.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr_history.lines()
    }

    /// Returns a receiver of status changes.
    pub fn watch(&self) -> watch::Receiver<UpstreamStatus> {
        self.status.subscribe()
    }

    /// Returns the number of calls in the concurrency queue.
    pub fn queue_len(&self) -> usize {
        self.concurrency.queue_len()
    }

    /// Returns the number of dedicated connections.
    pub fn dedicated_count(&self) -> usize {
        self.pool.dedicated_count()
    }

    /// Returns the connections that clients of an era share: the revision and the process id, if there is one.
    pub fn shared_connections(&self) -> Vec<(&'static str, Option<u32>)> {
        self.pool.all_shared().iter().map(|active| (active.revision, active.link.pid())).collect()
    }

    /// Returns the server's description. While disconnected, this is the last known one, perhaps of a previous
    /// process.
    pub fn description(&self) -> Option<ServerDescription> {
        let described = self.pool.shared().map(|active| active.server.describe(&gateway_caller()));
        described.or_else(|| self.pool.last_handshake().map(|spoke| spoke.description.clone()))
    }

    /// Returns why the rules of the server's revision forbid to expose a tool. `None` if they allow it.
    pub fn tool_problem(&self, definition: &JsonObject) -> Option<String> {
        // The rules of the last handshake: its lists stay while the server is disconnected, and so do their rules.
        let spoke = self.pool.last_handshake()?;
        crate::revision::tool_problem(spoke.era, spoke.is_multiplexed, definition)
    }

    /// Returns true if the server's entry in the config cannot be used.
    pub fn is_misconfigured(&self) -> bool {
        matches!(self.settings.connect, ConnectTarget::Misconfigured { .. })
    }

    /// Returns the revision that the server speaks, while it is connected.
    pub fn revision(&self) -> Option<&'static str> {
        self.pool.shared().map(|active| active.revision)
    }

    /// Sets the resources whose changes clients subscribed to, by the server's own URIs.
    pub fn subscribe(&self, uris: Vec<ByteString>) {
        let known = self.context.metrics.subscriptions.with_label_values(&[&self.settings.name]);
        known.set(i64::try_from(uris.len()).unwrap_or(i64::MAX));
        if **self.subscribed_uris.load() != uris {
            self.subscribed_uris.store(Arc::new(uris));
            self.resubscribe.notify_one();
            self.demand.recheck();
        }
    }

    /// Tries a subscription on the shared connection, once there is one. For servers that deny the capability and
    /// were not tried yet.
    pub async fn try_subscription(&self, uri: &ByteString) -> Result<(), Error> {
        let active = self.wait_connected().await?;
        match active.server.try_subscriptions(&gateway_caller(), std::slice::from_ref(uri)) {
            Some(trial) => trial.await,
            None => Ok(()),
        }
    }

    fn is_subscribed(&self) -> bool {
        !self.subscribed_uris.load().is_empty()
    }

    fn has_items(&self) -> bool {
        let items = self.lists.load();
        ItemKind::ALL.into_iter().any(|kind| !items.get(kind).items.is_empty())
    }

    /// Passes a notification of a client on to its dedicated connection.
    pub fn notify(&self, caller: &Arc<Caller>, notice: Notification) {
        if let Some(active) = self.pool.dedicated_of(caller) {
            active.server.notify(caller, notice);
        }
    }

    /// Starts a call. It waits for a concurrency permit and for a connection within the call's limits.
    pub fn call(self: &Arc<Self>, caller: &Arc<Caller>, call: Call) -> Exchange {
        Exchange::new(self.start_call(caller, call))
    }

    /// Starts a call that knows in which revision its server is spoken to.
    pub fn start_call(self: &Arc<Self>, caller: &Arc<Caller>, call: Call) -> ServerCall {
        if let Some(next) = self.successor.get() {
            return next.start_call(caller, call);
        }
        let caller = self.with_forwarded_headers(caller);
        let pass = match self.check_breaker() {
            Ok(pass) => pass,
            Err(error) => return ServerCall::refused(error),
        };
        let deadline = call.received + self.timeouts.call();
        let mut run = ActiveCall {
            upstream: supervisor::replace::CallGuard::begin(self),
            step: CallStep::Finished,
            permit: None,
            breaker_permit: None,
            checked_out: CheckedOut::default(),
            is_multiplexed: false,
            revision: "",
            queue_time: Duration::ZERO,
            retryable: RetryableCall::of(&caller, &call, self.attempts.load(Ordering::Relaxed)),
            own_credentials: !caller.forwarded_headers.is_empty(),
            deadline,
            quota: NotificationQuota::default(),
            activity: (self.settings.start == ServerStart::Lazy).then(|| self.activity.track_call()),
        };
        let slot = self.concurrency.try_acquire();
        let at_hand =
            slot.as_ref().and_then(|_| self.pool.try_checkout(&caller, pool::isolation::is_about_task(&call)));
        if let Some(active) = at_hand.as_ref().and_then(|at_hand| at_hand.connection()) {
            (run.permit, run.breaker_permit, run.is_multiplexed) = (slot, Some(pass), active.link.is_multiplexed());
            run.revision = active.revision;
            run.step = CallStep::Running(open_call(active, &caller, call));
            return ServerCall::running(run);
        }
        drop(at_hand);
        let upstream = self.clone();
        run.step = CallStep::Starting(Box::pin(async move {
            let asked = Instant::now();
            let slot = match slot {
                Some(slot) => slot,
                None => {
                    upstream
                        .concurrency
                        .acquire(&upstream.live_settings.load_full(), &upstream.context.metrics, deadline)
                        .await?
                }
            };
            let queued = asked.elapsed();
            let begun = upstream.connect_and_start(&caller, call, Some(slot), pass, deadline).await;
            begun.map(|begun| StartedCall { queue_time: queued, ..begun })
        }));
        ServerCall::running(run)
    }

    /// Starts a call on its connection, once there is one, within the call's own deadline.
    async fn connect_and_start(
        &self,
        caller: &Arc<Caller>,
        call: Call,
        slot: Option<ConcurrencyPermit>,
        pass: BreakerPermit,
        deadline: Instant,
    ) -> Result<StartedCall, Error> {
        let settings = self.live_settings.load_full();
        let ticket = self.concurrency.queued_permit(slot, &settings, &self.context.metrics, deadline);
        let mut seeker = CheckoutRequest::new(self, caller, pool::isolation::is_about_task(&call), ticket);
        let begun = async {
            loop {
                let (active, held) = self.pool.checkout(&mut seeker).await?;
                seeker.permit.reacquire().await?;
                let Some(_turn) = self.pool.begin_turn(&active, &held, &mut seeker) else { continue };
                let (exchange, is_pipe) = (open_call(&active, caller, call), active.link.is_multiplexed());
                let (slot, revision) = (seeker.permit.permit.take(), active.revision);
                return Ok(StartedCall {
                    exchange,
                    checked_out: held,
                    is_multiplexed: is_pipe,
                    revision,
                    queue_time: Duration::ZERO,
                    permit: slot,
                    breaker_permit: pass,
                });
            }
        };
        tokio::time::timeout_at(deadline, begun).await.unwrap_or_else(|_| Err(self.checkout_timeout()))
    }

    /// Returns the error of a call that got no connection in its time.
    fn checkout_timeout(&self) -> Error {
        let (name, limit) = (&self.settings.name, self.timeouts.call());
        if self.pool.shared().is_none() {
            return self.unavailable(Some((limit, "timeout")));
        }
        let message =
            format!("Server \"{name}\" had no connection for this client within {limit:?} (servers.{name}.timeout)");
        Error::new(McpErrorKind::ServerTimeout, message)
    }

    /// Admits a call, or returns the error of an open circuit breaker.
    fn check_breaker(&self) -> Result<BreakerPermit, Error> {
        self.breaker.admit().map_err(|shut| {
            self.context.metrics.refused.with_label_values(&["breaker"]).inc();
            let name = &self.settings.name;
            let when = match shut.remaining {
                left if left.is_zero() => "another call is seeing whether it is back".to_owned(),
                left => format!("calls are sent again in {}", seconds(left)),
            };
            let message = format!("Server \"{name}\" keeps failing, so that this call was not sent (servers.{name}.breaker); {when}. Its last failure: {}", shut.reason);
            Error::new(McpErrorKind::ServerDown, message)
        })
    }

    /// Waits for the shared connection.
    ///
    /// The caller triggers an attempt as soon as the backoff allows one. A server that was lost a moment ago is
    /// waited for, over any number of attempts. After a longer outage the caller fails at once, with the time of the
    /// next attempt.
    async fn wait_connected(&self) -> Result<Arc<UpstreamConnection>, Error> {
        if let Some(active) = self.pool.shared() {
            return Ok(active);
        }
        let _waiter = self.demand.register();
        let settings = self.live_settings.load_full();
        let (limit, setting) = match settings.start {
            ServerStart::Eager => (settings.connect_timeout, "connect_timeout"),
            // The server may have to be started first, which takes its own time.
            ServerStart::Lazy => (settings.start_timeout.min(settings.timeout), "start_timeout"),
        };
        let late = Instant::now() + limit;
        let mut status = self.status.subscribe();
        loop {
            let (patient, grace) = {
                let status = status.borrow_and_update();
                let now = Instant::now();
                let lost = status.disconnected_since.map_or(late, |away| (away + limit).min(late));
                match status.state {
                    UpstreamState::Starting | UpstreamState::Ready | UpstreamState::Degraded => (true, late),
                    UpstreamState::BackingOff
                    | UpstreamState::Stopped
                    | UpstreamState::Failed
                    | UpstreamState::NeedsLogin
                        if status.demand_from.is_some_and(|wake| wake <= now) =>
                    {
                        (true, late)
                    }
                    UpstreamState::BackingOff => (now < lost, lost),
                    _ => (false, late),
                }
            };
            if let Some(active) = self.pool.shared() {
                return Ok(active);
            }
            if self.stop.is_cancelled() || !patient {
                return Err(self.unavailable(None));
            }
            match tokio::time::timeout_at(grace, status.changed()).await {
                Ok(Ok(())) => {}
                _ if Instant::now() >= late => return Err(self.unavailable(Some((limit, setting)))),
                // The grace period has elapsed, but an attempt may be under way all the same.
                _ => {}
            }
        }
    }

    /// Returns the error of a call that cannot be sent. `waited`: the time it tried, and the setting that limits it.
    fn unavailable(&self, waited: Option<(Duration, &str)>) -> Error {
        let name = &self.settings.name;
        let UpstreamStatus { state, reason, next_attempt, .. } = self.status();
        let mut message = format!("Server \"{name}\" is not connected ({})", state.name());
        if let Some((limit, setting)) = waited {
            message.push_str(&format!(" after {limit:?} (servers.{name}.{setting})"));
        }
        if !reason.is_empty() {
            message.push_str(&format!(": {}", connect_hints::without_container_hint(&reason)));
        }
        if let Some(next) = next_attempt {
            let left = next.saturating_duration_since(Instant::now());
            message.push_str(&format!("; the next attempt is in {}", seconds(left)));
        }
        Error::new(McpErrorKind::ServerDown, message).with_retryable(Retryable::No)
    }

    /// Returns the caller with the headers that this server's config forwards, under the server's names, and no
    /// others.
    fn with_forwarded_headers(&self, caller: &Arc<Caller>) -> Arc<Caller> {
        if caller.forwarded_headers.is_empty() {
            return caller.clone();
        }
        let wanted: &[_] = match &self.settings.connect {
            ConnectTarget::Http { forward_headers, .. } => forward_headers,
            ConnectTarget::Stdio { .. } | ConnectTarget::Socket(_) | ConnectTarget::Misconfigured { .. } => &[],
        };
        let value =
            |from: &http::HeaderName| caller.forwarded_headers.iter().find(|(name, _)| name.as_str() == from.as_str());
        let headers =
            wanted.iter().filter_map(|(from, to)| Some((ByteString::from(to.as_str()), value(from)?.1.clone())));
        Arc::new(Caller { forwarded_headers: headers.collect(), ..(**caller).clone() })
    }
}

/// Starts a call on a connection. The request is sent when its first event is polled.
fn open_call(active: &UpstreamConnection, caller: &Arc<Caller>, call: Call) -> Exchange {
    active.count_call(caller.revision);
    if !active.is_called.load(Ordering::Relaxed) {
        active.is_called.store(true, Ordering::Release);
    }
    active.server.call(caller, call)
}

/// Formats a time for people.
fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Returns the gateway's own identity, for its own requests to servers.
pub fn gateway_caller() -> Arc<Caller> {
    static OWN: OnceLock<Arc<Caller>> = OnceLock::new();
    let make = || {
        Arc::new(Caller {
            principal: Arc::new(Principal { name: "moongate".to_owned(), id: Principal::GATEWAY }),
            session: None,
            declared_capabilities: RawJson::literal("{}"),
            capabilities: ClientCapabilities::default(),
            client_info: None,
            log_filter: LogFilter::Nothing,
            revision: "",
            forwarded_headers: Vec::new(),
            ended: CancellationToken::new(),
        })
    };
    OWN.get_or_init(make).clone()
}

/// Servers in memory, for the tests of the modules below.
#[cfg(test)]
mod memory {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

    use super::*;
    use crate::model::{McpMethod, Outcome};

    /// Scripted behaviour of a connection.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(super) enum ServerBehaviour {
        /// Answers after this time.
        Answers(Duration),
        /// Reads and never answers.
        Mute,
        /// Ends on the first message.
        Dies,
        /// Answers the handshake, and ends on the first call.
        DiesLater,
        /// Cannot be started.
        Unstartable,
    }

    /// Server in memory: the script of its next connections, and counts of the earlier ones.
    pub(super) struct MemoryServer {
        ways: Mutex<Vec<ServerBehaviour>>,
        last: ServerBehaviour,
        /// Attempts to connect.
        pub(super) dialed: AtomicUsize,
        /// Connections that are open.
        pub(super) open: AtomicUsize,
    }

    impl MemoryServer {
        /// Creates a server whose connections behave in this order. The last behaviour repeats.
        pub(super) fn new(ways: &[ServerBehaviour]) -> Arc<Self> {
            let (last, first) = ways.split_last().unwrap();
            let ways = Mutex::new(first.iter().rev().copied().collect());
            Arc::new(MemoryServer { ways, last: *last, dialed: AtomicUsize::default(), open: AtomicUsize::default() })
        }

        pub(super) fn dialed(&self) -> usize {
            self.dialed.load(Ordering::SeqCst)
        }

        pub(super) fn open(&self) -> usize {
            self.open.load(Ordering::SeqCst)
        }

        fn dial(self: &Arc<Self>) -> Result<MemoryPipe, LinkError> {
            self.dialed.fetch_add(1, Ordering::SeqCst);
            let way = self.ways.lock().unwrap().pop().unwrap_or(self.last);
            if way == ServerBehaviour::Unstartable {
                return Err(LinkError::Spawn("no such command".to_owned()));
            }
            // One pipe for each direction, so that each can be closed by itself.
            let (reader, far_writer) = tokio::io::duplex(64 * 1024);
            let (writer, far_reader) = tokio::io::duplex(64 * 1024);
            self.open.fetch_add(1, Ordering::SeqCst);
            let memory = self.clone();
            tokio::spawn(async move {
                serve(far_reader, far_writer, way).await;
                memory.open.fetch_sub(1, Ordering::SeqCst);
            });
            Ok((Box::new(reader), Box::new(writer)))
        }

        /// Creates an upstream to this server. It speaks the newest revision with sessions.
        pub(super) fn upstream(self: &Arc<Self>, change: impl Fn(&mut ServerSettings)) -> Arc<Upstream> {
            let connect =
                ConnectTarget::Stdio { command: "memory".to_owned(), args: Vec::new(), env: Vec::new(), cwd: None };
            let mut settings = ServerSettings { share: SharingMode::Session, ..ServerSettings::new("a", connect) };
            settings.protocol = Some("2025-11-25".to_owned());
            change(&mut settings);
            let memory = self.clone();
            let shared = UpstreamContext::new(Arc::new(Metrics::new()), Reaper::disabled())
                .with_dialer(Arc::new(move |_| memory.dial()));
            Upstream::new(settings, Arc::new(shared), Arc::new(|_, _| {}))
        }
    }

    async fn serve(reader: DuplexStream, mut writer: DuplexStream, way: ServerBehaviour) {
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            let method = message["method"].as_str().unwrap_or_default();
            match way {
                ServerBehaviour::Mute => continue,
                ServerBehaviour::Dies => return,
                ServerBehaviour::DiesLater if method == "tools/call" => return,
                ServerBehaviour::Answers(time) => tokio::time::sleep(time).await,
                ServerBehaviour::DiesLater | ServerBehaviour::Unstartable => {}
            }
            let hangs = message["params"]["name"] == "hang";
            // Notifications and responses get no answer, and this tool never ends.
            if message["id"].is_null() || method.is_empty() || hangs {
                continue;
            }
            let info = json!({"name": "memory", "version": "1"});
            let result = match method {
                "initialize" => {
                    json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
                }
                "tools/list" => json!({"tools": []}),
                _ => json!({"content": []}),
            };
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
            writer.write_all(format!("{answer}\n").as_bytes()).await.ok();
        }
    }

    /// Creates a call of a tool.
    pub(super) fn tool(name: &str) -> Call {
        Call::new(McpMethod::CallTool, JsonObject::new().with("name", RawJson::string(name)))
    }

    /// Calls a tool in a task of its own.
    pub(super) fn call(
        upstream: &Arc<Upstream>,
        caller: &Arc<Caller>,
        name: &str,
    ) -> tokio::task::JoinHandle<Result<Outcome, Error>> {
        tokio::spawn(upstream.call(caller, tool(name)).outcome())
    }
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_AGO: Duration = Duration::from_secs(3600);

    fn upstream(start: ServerStart) -> Arc<Upstream> {
        let connect = ConnectTarget::Stdio { command: "none".to_owned(), args: Vec::new(), env: Vec::new(), cwd: None };
        let settings = ServerSettings { start, ..ServerSettings::new("a", connect) };
        let shared = UpstreamContext::new(Arc::new(Metrics::new()), Reaper::disabled());
        Upstream::new(settings, Arc::new(shared), Arc::new(|_, _| {}))
    }

    /// Returns how long a call waits for a server in this state, and its error.
    async fn waits(
        upstream: &Upstream,
        state: UpstreamState,
        wake: Option<Instant>,
        away: Instant,
    ) -> (Duration, String) {
        let next_attempt = (state == UpstreamState::BackingOff).then(|| Instant::now() + Duration::from_secs(20));
        let reason = "refused".to_owned();
        let status = UpstreamStatus {
            state,
            reason,
            next_attempt,
            demand_from: wake,
            disconnected_since: Some(away),
            ..UpstreamStatus::default()
        };
        upstream.status.send_replace(status);
        let began = Instant::now();
        let error = upstream.wait_connected().await.err().unwrap();
        (began.elapsed(), error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_what_is_on_its_way_and_for_nothing_else() {
        tokio::time::advance(LONG_AGO).await;
        let (upstream, now) = (upstream(ServerStart::Eager), Instant::now());
        let (limit, long_ago) = (upstream.settings.connect_timeout, now - LONG_AGO);
        let later = Some(now + LONG_AGO);
        let (waited, told) = waits(&upstream, UpstreamState::Starting, None, long_ago).await;
        assert!(waited == limit && told.contains("servers.a.connect_timeout"), "{waited:?}: {told}");
        let (waited, told) = waits(&upstream, UpstreamState::BackingOff, later, long_ago).await;
        assert_eq!(waited, Duration::ZERO);
        assert_eq!(told, "Server \"a\" is not connected (backing_off): refused; the next attempt is in 20.0 s");
        // Lost half a limit ago: the call waits for the other half.
        let (waited, _) = waits(&upstream, UpstreamState::BackingOff, later, Instant::now() - limit / 2).await;
        assert_eq!(waited, limit / 2, "it was lost a moment ago");
        let (waited, told) = waits(&upstream, UpstreamState::NeedsLogin, later, Instant::now()).await;
        assert!(waited.is_zero() && told.contains("needs_login"), "{told}");
        let (waited, _) = waits(&upstream, UpstreamState::Failed, Some(now), long_ago).await;
        assert_eq!(waited, limit, "an attempt may be made at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_a_server_that_it_starts_and_no_longer_than_for_its_attempt() {
        let upstream = upstream(ServerStart::Lazy);
        let now = Instant::now();
        let (waited, told) = waits(&upstream, UpstreamState::Stopped, Some(now), now).await;
        assert!(waited == upstream.settings.start_timeout && told.contains("servers.a.start_timeout"), "{told}");
        let failing = {
            let upstream = upstream.clone();
            tokio::spawn(async move {
                // The attempt begins on demand, and fails at once.
                upstream.demand.wait_for_demand(|| false).await;
                let wake = Some(Instant::now() + LONG_AGO);
                upstream
                    .status
                    .send_modify(|status| (status.state, status.demand_from) = (UpstreamState::Failed, wake));
            })
        };
        let (waited, told) = waits(&upstream, UpstreamState::Stopped, Some(now), now).await;
        failing.await.unwrap();
        assert!(waited.is_zero() && told.contains("(failed)"), "{waited:?}: {told}");
    }
}
