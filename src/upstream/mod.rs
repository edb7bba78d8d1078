//! One configured server: connected, watched, listed, shared.
//!
//! Owns the life of a server and what it offers. Does not merge it with others (`gateway`) and does not spell its
//! messages (`revision`). Invariant: whatever a server does or fails to do, nobody else waits for it.

mod asked;
mod connect;
mod fresh;
mod handed;
mod items;
mod kept;
mod lease;
mod settings;
mod status;
mod supervise;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::json::{Object, Raw, Text};
use crate::link::LinkError;
use crate::link::guard::Guard;
use crate::model::{
    Call, Caller, Can, Error, Event, Exchange, Face, Kind, Level, LogWish, Notice, Principal, Reason, Task,
};
use crate::revision::Era;
use crate::store::Store;
use crate::telemetry::Metrics;
use crate::upstream::asked::Reserved;
use crate::upstream::lease::{Claim, Ends};

pub use connect::{Active, For, open};
pub use handed::owner_of;
pub use items::{Items, List, depth, list_all, offers};
pub use settings::{Connect, HttpTransport, ListLimits, ServerSettings, Share};
pub use status::{State, Status};

/// Longest time for the ends of sessions, when the gateway stops.
const CLOSE_TIME: std::time::Duration = std::time::Duration::from_secs(3);

/// What all servers share.
pub struct Shared {
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Ends children if we cannot.
    pub guard: Arc<Guard>,
    /// What outlives the process.
    pub store: Store,
    /// Sessions at servers that are being ended.
    pub closing: TaskTracker,
    handed: handed::Handed,
    tls: OnceLock<Arc<rustls::ClientConfig>>,
    dialer: Option<Dialer>,
}

/// Opens a pipe to the server of this name: what it says, and what it is told.
pub type Dialer = Arc<dyn Fn(&str) -> Result<Pipe, LinkError> + Send + Sync>;
/// The two ends of a pipe.
pub type Pipe = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

impl Shared {
    /// Shared parts with a guard for children.
    pub fn new(metrics: Arc<Metrics>, guard: Guard) -> Self {
        Shared::kept(metrics, guard, Store::memory())
    }

    /// The same with a store for what outlives the process.
    pub fn kept(metrics: Arc<Metrics>, guard: Guard, store: Store) -> Self {
        Shared {
            metrics,
            guard: Arc::new(guard),
            store,
            closing: TaskTracker::new(),
            handed: handed::Handed::default(),
            tls: OnceLock::new(),
            dialer: None,
        }
    }

    /// Waits until servers know that their sessions have ended; not for ever.
    pub async fn closed(&self) {
        self.closing.close();
        let _ = tokio::time::timeout(CLOSE_TIME, self.closing.wait()).await;
    }

    /// The same, with pipes that lead to no process: whatever the config says, servers are where the dialer says.
    #[must_use]
    pub fn dialing(self, dialer: Dialer) -> Self {
        Shared { dialer: Some(dialer), ..self }
    }

    /// Read when the first server needs it: the system's certificates take a while.
    fn tls(&self) -> Arc<rustls::ClientConfig> {
        self.tls.get_or_init(crate::link::http::tls_config).clone()
    }
}

/// What an upstream tells the gateway.
#[derive(Debug)]
pub enum News {
    /// Its items changed, or its description did.
    Items,
    /// One of its resources changed: its own URI and the params.
    Updated(Text, Object),
    /// It logged something that belongs to no call: the level and the params.
    Logged(Option<Level>, Object),
    /// A user is done with the page of one of its elicitations: the elicitation's id and the params.
    Elicited(Text, Object),
    /// It told of one of its tasks.
    Task(Box<Task>),
}

/// Takes news of an upstream, by the server's name. Must not block.
pub type Sink = Arc<dyn Fn(&str, News) + Send + Sync>;

/// One configured server.
pub struct Upstream {
    /// Its settings.
    pub settings: Arc<ServerSettings>,
    shared: Arc<Shared>,
    active: ArcSwapOption<Active>,
    /// The era that it was last connected in, and whether over a pipe.
    spoke: ArcSwapOption<(Era, bool)>,
    /// Whether it refused to be connected in the legacy era since then.
    modern_only: AtomicBool,
    /// Its name, as routes and news carry it.
    pub(crate) name: Text,
    items: ArcSwap<Items>,
    kept: kept::Kept,
    fresh: fresh::Fresh,
    stale: Notify,
    status: watch::Sender<Status>,
    leases: lease::Leases,
    /// Whether it was ever seen to ask clients for something on a pipe.
    asks: AtomicBool,
    asked: asked::InUse,
    turns: Mutex<()>,
    wake: Notify,
    suspect: Notify,
    wanted: ArcSwap<Vec<Text>>,
    resubscribe: Notify,
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    sink: Sink,
    stop: CancellationToken,
}

impl Upstream {
    /// A server that is not connected; [`Upstream::run`] brings it up.
    pub fn new(settings: ServerSettings, shared: Arc<Shared>, sink: Sink) -> Arc<Self> {
        let slots = Arc::new(Semaphore::new(settings.max_concurrency));
        Arc::new(Upstream {
            name: Text::from(settings.name.as_str()),
            settings: Arc::new(settings),
            shared,
            active: ArcSwapOption::empty(),
            spoke: ArcSwapOption::empty(),
            modern_only: AtomicBool::new(false),
            items: ArcSwap::default(),
            kept: kept::Kept::default(),
            fresh: fresh::Fresh::default(),
            stale: Notify::new(),
            status: watch::Sender::new(Status::default()),
            leases: lease::Leases::default(),
            asks: AtomicBool::new(false),
            asked: asked::InUse::default(),
            turns: Mutex::default(),
            wake: Notify::new(),
            suspect: Notify::new(),
            wanted: ArcSwap::default(),
            resubscribe: Notify::new(),
            slots,
            waiting: AtomicUsize::new(0),
            sink,
            stop: CancellationToken::new(),
        })
    }

    /// Connects and keeps connected, until it is stopped.
    pub async fn run(self: Arc<Self>) {
        supervise::run(self).await;
    }

    /// Stops the server's processes and connections, and waits for that.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.leases.close_all().await;
        let mut status = self.status.subscribe();
        // The supervisor closes the link; it needs a moment, and never more than the link's own steps.
        let stopped = status.wait_for(|status| status.state == State::Stopped);
        let _ = tokio::time::timeout(std::time::Duration::from_secs(8), stopped).await;
    }

    /// What it offers; the last good lists while it is away.
    pub fn items(&self) -> Arc<Items> {
        self.items.load_full()
    }

    /// For how many milliseconds one of its lists may still be taken for fresh, as somebody is given it; `None`: its age
    /// says nothing. A list whose time is over is taken again, for whoever asks next.
    pub fn fresh_for(&self, kind: Kind) -> Option<u64> {
        if self.is_unconfirmed() {
            return Some(0);
        }
        let items = self.items.load();
        let list = items.get(kind);
        if self.fresh.is_stale(kind, list) {
            self.stale.notify_one();
        }
        self.fresh.remaining(kind, list)
    }

    fn is_stale(&self) -> bool {
        let items = self.items.load();
        Kind::ALL.into_iter().any(|kind| self.fresh.is_stale(kind, items.get(kind)))
    }

    /// How it is.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Changes of its state.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// What it says of itself, if it is connected; until then, what it said in an earlier run.
    pub fn face(&self) -> Option<Face> {
        let active = self.active.load();
        active.as_ref().map(|active| active.server.describe(&own_caller())).or_else(|| self.kept.face())
    }

    /// Why a tool of this server may not be exposed, by the rules of its revision; `None` if it may.
    pub fn tool_problem(&self, definition: &Object) -> Option<String> {
        // What held when it was connected last: its lists are kept while it is away, and so are the rules for them.
        let spoke = self.spoke.load();
        spoke.as_ref().and_then(|spoke| crate::revision::tool_problem(spoke.0, spoke.1, definition))
    }

    /// The revision that it speaks, while it is connected.
    pub fn revision(&self) -> Option<&'static str> {
        self.active.load().as_ref().map(|active| active.revision)
    }

    /// Names the resources (by the server's own URIs) whose changes somebody wants to hear of.
    pub fn subscribe(&self, uris: Vec<Text>) {
        let known = self.shared.metrics.subscriptions.with_label_values(&[&self.settings.name]);
        known.set(i64::try_from(uris.len()).unwrap_or(i64::MAX));
        if **self.wanted.load() != uris {
            self.wanted.store(Arc::new(uris));
            self.resubscribe.notify_one();
        }
    }

    /// Passes on what a client tells its servers.
    pub fn tell(&self, caller: &Arc<Caller>, notice: Notice) {
        if let Some(active) = self.leases.find(self.settings.share, caller) {
            active.server.tell(caller, notice);
        }
    }

    /// Starts a call; waits for a server that is not connected yet, within its limits.
    pub fn call(self: &Arc<Self>, caller: &Arc<Caller>, call: Call) -> Exchange {
        let caller = self.with_own_headers(caller);
        let slot = self.slots.clone().try_acquire_owned();
        let shared = self.settings.share == Share::Auto && !self.legacy_first(&caller);
        let about_task = asked::is_about_task(&call);
        if let (Ok(slot), true, Some(active)) = (slot, shared, self.active.load().as_ref()) {
            // One at a time: of two that begin together, the second sees the first.
            let _turn = self.turn(active, &caller);
            if !self.needs_own(active, &caller, about_task) {
                return self.start(active, slot, None, &caller, call);
            }
        }
        let upstream = self.clone();
        Exchange::later(async move {
            let started = async {
                let slot = upstream.slot().await?;
                let (mut active, mut reserved) = upstream.connection(&caller, about_task).await?;
                if reserved.is_none() && upstream.is_taken(&active, &caller, about_task) {
                    // Somebody else's call began meanwhile.
                    (active, reserved) = upstream.connection(&caller, about_task).await?;
                }
                let _turn = upstream.turn(&active, &caller);
                Ok(upstream.start(&active, slot, reserved, &caller, call))
            };
            started.await.unwrap_or_else(|error| Exchange::done(Err(error)))
        })
    }

    fn start(
        self: &Arc<Self>,
        active: &Active,
        slot: OwnedSemaphorePermit,
        reserved: Option<Reserved>,
        caller: &Arc<Caller>,
        call: Call,
    ) -> Exchange {
        active.count(caller.revision);
        let upstream = self.clone();
        let mut slot = Some(slot);
        active.server.call(caller, call).map(move |event| {
            let _until_it_is_over = &reserved;
            // A user's time is no load on the server: a call that waits for an answer keeps nobody out, and goes on
            // afterwards without another turn.
            if matches!(event, Event::Ask(_) | Event::Done(_)) {
                drop(slot.take());
            }
            if let Event::Done(Err(error)) = &event
                && error.reason == Reason::ServerDown
            {
                upstream.suspect.notify_one();
            }
            event
        })
    }

    async fn slot(&self) -> Result<OwnedSemaphorePermit, Error> {
        if let Ok(slot) = self.slots.clone().try_acquire_owned() {
            return Ok(slot);
        }
        let ServerSettings { name, queue, max_concurrency, .. } = &*self.settings;
        let _place = Waiting::enter(self).ok_or_else(|| {
            self.shared.metrics.refused.with_label_values(&["queue"]).inc();
            let message = format!("Server \"{name}\" is busy: {max_concurrency} calls run and {queue} wait; raise servers.{name}.max_concurrency or .queue");
            Error::new(Reason::Overloaded, message)
        })?;
        match tokio::time::timeout(self.settings.timeout, self.slots.clone().acquire_owned()).await {
            Ok(Ok(slot)) => Ok(slot),
            _ => Err(Error::new(
                Reason::Overloaded,
                format!(
                    "Server \"{name}\" is busy: the call waited {:?} for its turn (servers.{name}.max_concurrency)",
                    self.settings.timeout
                ),
            )),
        }
    }

    /// The connection for a call, and what keeps it from others while the call runs.
    async fn connection(
        &self,
        caller: &Arc<Caller>,
        about_task: bool,
    ) -> Result<(Arc<Active>, Option<Reserved>), Error> {
        let active = self.shared_or_leased(caller).await?;
        if !self.needs_own(&active, caller, about_task) {
            return Ok((active, None));
        }
        let reserved = self.asked.reserve(caller, &self.shared.metrics);
        let own = Claim {
            key: reserved.key.clone(),
            whom: For::one(caller, Some(active.era)),
            ends: if caller.session.is_some() { Ends::WithSession } else { Ends::Unused },
        };
        match self.leases.get(own, caller, self).await {
            Ok(active) => Ok((active, Some(reserved))),
            // On the shared one the call runs at least, and its questions find it if it is alone.
            Err(error) => {
                tracing::warn!(server = self.settings.name, "no connection of its own for a call: {error}");
                Ok((active, None))
            }
        }
    }

    /// Held while it is decided whether a call of a client that can be asked is alone on a pipe, and until it is open.
    fn turn(&self, active: &Active, caller: &Caller) -> Option<MutexGuard<'_, ()>> {
        asked::is_ambiguous(active, caller).then(|| self.turns.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_taken(&self, active: &Active, caller: &Caller, about_task: bool) -> bool {
        let _turn = self.turn(active, caller);
        self.needs_own(active, caller, about_task)
    }

    /// Whether a call needs a connection on which no other call can be asked something.
    fn needs_own(&self, active: &Active, caller: &Caller, about_task: bool) -> bool {
        let shared = match self.settings.share {
            Share::Auto => true,
            Share::Session => caller.session.is_none(),
            Share::Principal => false,
        };
        if !shared || about_task || !asked::is_ambiguous(active, caller) {
            return false;
        }
        // Remembered longer than the connection that showed it.
        if active.calls.were_asked() {
            self.asks.store(true, Ordering::Relaxed);
        }
        let asks = self.asks.load(Ordering::Relaxed);
        match caller.session {
            // Where each client is to have a connection, nobody waits to be shown.
            None => asks || self.settings.share == Share::Session,
            // What a session did before is on the shared one: it leaves that only when a question could be another's, and
            // then for good.
            Some(_) => asks && (active.calls.have_others(caller) || self.leases.has_own(caller)),
        }
    }

    async fn shared_or_leased(&self, caller: &Arc<Caller>) -> Result<Arc<Active>, Error> {
        if self.legacy_first(caller) {
            match self.leased(caller, Some(Era::Legacy)).await {
                Ok(active) => return Ok(active),
                Err(error) => {
                    self.modern_only.store(true, Ordering::Relaxed);
                    let server = &self.settings.name;
                    tracing::info!(server, "it does not speak to legacy clients in their era: {error}");
                }
            }
        }
        if lease::key(self.settings.share, caller).is_none() {
            return self.connected().await;
        }
        self.leased(caller, None).await
    }

    /// Whether a call should go to the server in the legacy era, even if it is connected in the modern one.
    ///
    /// A server that speaks both may be able to ask its caller only in the era that it was written for: what sends
    /// requests in the middle of a call cannot do that where they do not exist. With `protocol = "client"` a legacy
    /// client meets it as it would without us.
    ///
    /// 2026-07-28/basic/versioning.mdx, Compatibility Matrix: "A dual-era server **MAY** serve both eras concurrently
    /// on the same endpoint or process", and for a legacy client at one: "Works."
    fn legacy_first(&self, caller: &Caller) -> bool {
        self.settings.as_client
            && crate::revision::era(caller.revision) == Era::Legacy
            && !self.modern_only.load(Ordering::Relaxed)
            && self.spoke.load().as_ref().is_some_and(|spoke| spoke.0 == Era::Modern)
    }

    /// A connection beside the main one: the caller's own, or one that all legacy clients share.
    async fn leased(&self, caller: &Arc<Caller>, era: Option<Era>) -> Result<Arc<Active>, Error> {
        let ends = match (self.settings.share, &caller.session) {
            (Share::Session, Some(_)) => Ends::WithSession,
            (Share::Session, None) => Ends::Unused,
            _ => Ends::Never,
        };
        let claim = match lease::key(self.settings.share, caller) {
            Some(key) => Claim { key, whom: For::one(caller, era), ends },
            // No session and no principal is called so.
            None => Claim { key: Text::from("legacy"), whom: For::everybody(era), ends },
        };
        self.leases.get(claim, caller, self).await
    }

    /// The shared connection, waited for within the limit.
    async fn connected(&self) -> Result<Arc<Active>, Error> {
        if let Some(active) = self.active.load_full() {
            return Ok(active);
        }
        self.wake.notify_one();
        let mut status = self.status.subscribe();
        let limit = self.settings.connect_timeout;
        let ready = status.wait_for(|status| !status.state.may_become_ready() || self.active.load().is_some());
        let waited = tokio::time::timeout(limit, ready).await.is_err();
        self.active.load_full().ok_or_else(|| {
            let name = &self.settings.name;
            let Status { state, reason, .. } = self.status();
            let mut message = format!("Server \"{name}\" is not connected ({})", state.name());
            if waited {
                message.push_str(&format!(" after {limit:?} (servers.{name}.connect_timeout)"));
            }
            if !reason.is_empty() {
                message.push_str(": ");
                message.push_str(&reason);
            }
            Error::new(Reason::ServerDown, message)
        })
    }

    /// The caller with the headers that this server's config forwards, under the server's names, and no others.
    fn with_own_headers(&self, caller: &Arc<Caller>) -> Arc<Caller> {
        if caller.headers.is_empty() {
            return caller.clone();
        }
        let wanted: &[_] = match &self.settings.connect {
            Connect::Http { forward_headers, .. } => forward_headers,
            Connect::Stdio { .. } | Connect::Socket(_) => &[],
        };
        let value = |from: &http::HeaderName| caller.headers.iter().find(|(name, _)| name.as_str() == from.as_str());
        let headers = wanted.iter().filter_map(|(from, to)| Some((Text::from(to.as_str()), value(from)?.1.clone())));
        Arc::new(Caller { headers: headers.collect(), ..(**caller).clone() })
    }
}

/// A place in the queue for a slot.
struct Waiting<'a>(&'a Upstream);

impl<'a> Waiting<'a> {
    fn enter(upstream: &'a Upstream) -> Option<Self> {
        let place = Waiting(upstream);
        let before = upstream.waiting.fetch_add(1, Ordering::AcqRel);
        place.count(1);
        (before < upstream.settings.queue).then_some(place)
    }

    fn count(&self, change: i64) {
        self.0.shared.metrics.queue_depth.with_label_values(&[&self.0.settings.name]).add(change);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
        self.count(-1);
    }
}

/// The gateway itself, where it asks a server for its lists.
pub fn own_caller() -> Arc<Caller> {
    static OWN: OnceLock<Arc<Caller>> = OnceLock::new();
    let make = || {
        Arc::new(Caller {
            principal: Arc::new(Principal { name: "moongate".to_owned(), id: Principal::GATEWAY }),
            session: None,
            capabilities: Raw::literal("{}"),
            can: Can::default(),
            info: None,
            log: LogWish::Nothing,
            revision: "",
            headers: Vec::new(),
            ended: CancellationToken::new(),
        })
    };
    OWN.get_or_init(make).clone()
}
