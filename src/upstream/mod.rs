//! One configured server: connected, watched, listed, shared.
//!
//! Owns what a server offers, and the start of each call: its slot, its connection. Does not merge servers (`gateway`) and
//! does not spell messages (`revision`). Invariant: whatever a server does or fails to do, nobody else waits for it.

mod absence;
mod added;
mod asked;
mod attempts;
mod breaker;
mod change;
mod connect;
mod connections;
mod ears;
mod elsewhere;
mod eras;
mod follow;
mod fresh;
mod handed;
mod health;
mod items;
mod kept;
mod last_words;
mod lease;
mod look;
mod need;
mod notification_quota;
mod pace;
mod retry;
mod run;
mod settings;
mod sharing;
mod slots;
mod state_log;
mod status;
mod supervise;
mod told;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::json::{Object, Raw, Text};
pub use crate::link::Pipe;
use crate::link::guard::Guard;
use crate::link::proxy::{ProxyAddress, ProxyChoice, ProxyEnvironment};
use crate::link::trust::{self, CaFile};
use crate::link::{LinkError, hints};
use crate::model::{
    Again, Call, Caller, Can, Error, Exchange, Face, Kind, Level, LogWish, Notice, Principal, Reason, Task,
};
use crate::revision::Times;
use crate::store::Store;
use crate::telemetry::Metrics;
use crate::upstream::breaker::Pass;
use crate::upstream::connections::{Connections, Held, Seeker};
use crate::upstream::notification_quota::NotificationQuota;
use crate::upstream::retry::Spare;
use crate::upstream::run::{Begun, Run, Step};
use crate::upstream::slots::Slot;

pub use connect::{Active, For, open};
pub use ears::{Ear, Ears, Owner};
pub use handed::owner_of;
pub use items::{Items, List, depth, list_all, offers};
pub use run::ServerCall;
pub use settings::{
    Backoff, BreakerSettings, Connect, HttpTransport, ListLimits, NetworkSettings, PingSettings, ServerSettings, Share,
    Start,
};
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
    /// What single clients listen to.
    pub(crate) ears: Arc<Ears>,
    handed: handed::Handed,
    tls: OnceLock<Arc<rustls::ClientConfig>>,
    roots: OnceLock<rustls::RootCertStore>,
    proxies: OnceLock<ProxyEnvironment>,
    dialer: Option<Dialer>,
}

/// Opens a pipe to the server of this name: what it says, and what it is told.
pub type Dialer = Arc<dyn Fn(&str) -> Result<Pipe, LinkError> + Send + Sync>;

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
            ears: Arc::default(),
            handed: handed::Handed::default(),
            tls: OnceLock::new(),
            roots: OnceLock::new(),
            proxies: OnceLock::new(),
            dialer: None,
        }
    }

    /// Waits until servers know that their sessions have ended; not for ever.
    pub async fn closed(&self) {
        self.closing.close();
        let _ = tokio::time::timeout(CLOSE_TIME, self.closing.wait()).await;
    }

    /// The same, with pipes that lead to no process and no socket: whatever the config says, servers are where the dialer
    /// says. What is configured with a URL speaks HTTP there.
    #[must_use]
    pub fn dialing(self, dialer: Dialer) -> Self {
        Shared { dialer: Some(dialer), ..self }
    }

    /// The same, trusting what this configuration trusts instead of the system's certificates.
    #[must_use]
    pub fn trusting(self, tls: Option<Arc<rustls::ClientConfig>>) -> Self {
        match tls {
            Some(tls) => Shared { tls: OnceLock::from(tls), ..self },
            None => self,
        }
    }

    /// TLS to a server. Certificates are read when the first server needs them: the system's take a while.
    fn tls(&self, ca: Option<&CaFile>) -> Arc<rustls::ClientConfig> {
        let roots = || self.roots.get_or_init(trust::system_roots).clone();
        match ca {
            Some(ca) => ca.tls_config(roots),
            None => self.tls.get_or_init(|| trust::client_config(roots())).clone(),
        }
    }

    /// The proxy on the way to a server. The environment is read when the first server needs it.
    fn proxy(&self, url: &url::Url, choice: &ProxyChoice) -> Option<ProxyAddress> {
        match choice {
            ProxyChoice::Fixed(proxy) => Some(proxy.clone()),
            ProxyChoice::Direct => None,
            ProxyChoice::Environment => self.proxies.get_or_init(ProxyEnvironment::read).choose(url),
        }
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
    /// It said this on a connection of one client's.
    Own(Owner, Box<Notice>),
}

/// Takes news of an upstream, by the server's name. Must not block.
pub type Sink = Arc<dyn Fn(&str, News) + Send + Sync>;

/// One configured server.
pub struct Upstream {
    /// The settings that it is connected with.
    pub settings: Arc<ServerSettings>,
    /// The same where they can change on a connection: times and sizes.
    live: ArcSwap<ServerSettings>,
    times: Arc<Times>,
    attempts: AtomicU32,
    /// What took its place.
    next: OnceLock<Arc<Upstream>>,
    open: change::Open,
    /// Whether another stands for the server in the metrics.
    quiet: AtomicBool,
    /// Whether it ends with its calls, before the gateway does.
    leaving: AtomicBool,
    /// Whether what it knows of the server is of the one that it takes the place of.
    heir: AtomicBool,
    shared: Arc<Shared>,
    connections: Connections,
    /// Its name, as routes and news carry it.
    pub(crate) name: Text,
    items: ArcSwap<Items>,
    kept: kept::Kept,
    fresh: fresh::Fresh,
    stale: Notify,
    looks: look::Looks,
    status: watch::Sender<Status>,
    last_words: last_words::LastWords,
    state_log: state_log::StateLog,
    wake: pace::Wake,
    suspect: Notify,
    /// A call was refused by the server's host.
    refused: Notify,
    elsewhere: Arc<elsewhere::Elsewhere>,
    added: Arc<added::Added>,
    wanted: ArcSwap<Vec<Text>>,
    resubscribe: Notify,
    slots: slots::Slots,
    breaker: Arc<breaker::Breaker>,
    budget: retry::Budget,
    need: need::Need,
    sink: Sink,
    stop: CancellationToken,
    /// Cancelled once it is stopped.
    over: CancellationToken,
}

impl Upstream {
    /// A server that is not connected; [`Upstream::run`] brings it up.
    pub fn new(settings: ServerSettings, shared: Arc<Shared>, sink: Sink) -> Arc<Self> {
        Arc::new(Upstream {
            name: Text::from(settings.name.as_str()),
            live: ArcSwap::from_pointee(settings.clone()),
            times: Arc::new(Times::new(settings.timeout, settings.ask_timeout)),
            attempts: AtomicU32::new(settings.attempts),
            next: OnceLock::new(),
            open: change::Open::default(),
            quiet: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            heir: AtomicBool::new(false),
            connections: Connections::new(&settings),
            slots: slots::Slots::new(&settings),
            breaker: breaker::Breaker::new(settings.breaker),
            budget: retry::Budget::default(),
            need: need::Need::default(),
            settings: Arc::new(settings),
            shared,
            items: ArcSwap::default(),
            kept: kept::Kept::default(),
            fresh: fresh::Fresh::default(),
            stale: Notify::new(),
            looks: look::Looks::default(),
            status: watch::Sender::new(Status::starting()),
            last_words: last_words::LastWords::default(),
            state_log: state_log::StateLog::default(),
            wake: pace::Wake::default(),
            suspect: Notify::new(),
            refused: Notify::new(),
            elsewhere: Arc::default(),
            added: Arc::default(),
            wanted: ArcSwap::default(),
            resubscribe: Notify::new(),
            sink,
            stop: CancellationToken::new(),
            over: CancellationToken::new(),
        })
    }

    /// Connects and keeps connected, until it is stopped.
    pub async fn run(self: Arc<Self>) {
        supervise::run(self).await;
    }

    /// Stops the server's processes and connections, and waits for that.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.connections.close_beside().await;
        // The supervisor closes the link; it needs a moment, and never more than the link's own steps.
        let _ = tokio::time::timeout(Duration::from_secs(8), self.over.cancelled()).await;
    }

    /// What it offers; the last good lists while it is away.
    pub fn items(&self) -> Arc<Items> {
        self.items.load_full()
    }

    /// Offers these, for tests of what is made of them.
    #[cfg(test)]
    pub(crate) fn serve_items(&self, items: Items) {
        self.items.store(Arc::new(items));
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

    /// The last lines that its processes wrote to stderr: those of a dead one until its successor is ready.
    pub fn stderr(&self) -> Vec<String> {
        self.last_words.lines()
    }

    /// Changes of its state.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// How many calls wait for their turn.
    pub fn waiting(&self) -> usize {
        self.slots.waiting()
    }

    /// How many connections there are beside the one that all share.
    pub fn connections(&self) -> usize {
        self.connections.beside()
    }

    /// The connections that all clients of an era share: the revision spoken there, and the process, if there is one.
    pub fn shared_connections(&self) -> Vec<(&'static str, Option<u32>)> {
        self.connections.shared().iter().map(|active| (active.revision, active.link.pid())).collect()
    }

    /// What it says of itself; while it is not connected, what it said last, perhaps in an earlier run.
    pub fn face(&self) -> Option<Face> {
        let described = self.connections.main().map(|active| active.server.describe(&own_caller()));
        described.or_else(|| self.connections.spoke().map(|spoke| spoke.face.clone()))
    }

    /// Why a tool of this server may not be exposed, by the rules of its revision; `None` if it may.
    pub fn tool_problem(&self, definition: &Object) -> Option<String> {
        // What held when it was connected last: its lists are kept while it is away, and so are the rules for them.
        let spoke = self.connections.spoke()?;
        crate::revision::tool_problem(spoke.era, spoke.is_pipe, definition)
    }

    /// Whether its entry in the config cannot be used.
    pub fn is_misconfigured(&self) -> bool {
        matches!(self.settings.connect, Connect::Misconfigured { .. })
    }

    /// The revision that it speaks, while it is connected.
    pub fn revision(&self) -> Option<&'static str> {
        self.connections.main().map(|active| active.revision)
    }

    /// Names the resources (by the server's own URIs) whose changes somebody wants to hear of.
    pub fn subscribe(&self, uris: Vec<Text>) {
        let known = self.shared.metrics.subscriptions.with_label_values(&[&self.settings.name]);
        known.set(i64::try_from(uris.len()).unwrap_or(i64::MAX));
        if **self.wanted.load() != uris {
            self.wanted.store(Arc::new(uris));
            self.resubscribe.notify_one();
            self.wake.look();
        }
    }

    /// Tries a subscription on the shared connection, once there is one, where the server denies having any and was not
    /// tried.
    pub async fn try_subscription(&self, uri: &Text) -> Result<(), Error> {
        let active = self.connected().await?;
        match active.server.try_subscriptions(&own_caller(), std::slice::from_ref(uri)) {
            Some(trial) => trial.await,
            None => Ok(()),
        }
    }

    fn is_subscribed(&self) -> bool {
        !self.wanted.load().is_empty()
    }

    fn knows_items(&self) -> bool {
        let items = self.items.load();
        Kind::ALL.into_iter().any(|kind| !items.get(kind).items.is_empty())
    }

    /// Passes on what a client tells its servers.
    pub fn tell(&self, caller: &Arc<Caller>, notice: Notice) {
        if let Some(active) = self.connections.own(caller) {
            active.server.tell(caller, notice);
        }
    }

    /// Starts a call; waits for its turn and for a server that is on its way, within limits.
    pub fn call(self: &Arc<Self>, caller: &Arc<Caller>, call: Call) -> Exchange {
        Exchange::new(self.begin_call(caller, call))
    }

    /// Starts a call that says of itself in which revision its server is spoken to.
    pub fn begin_call(self: &Arc<Self>, caller: &Arc<Caller>, call: Call) -> ServerCall {
        if let Some(next) = self.next.get() {
            return next.begin_call(caller, call);
        }
        let caller = self.with_own_headers(caller);
        let pass = match self.admit() {
            Ok(pass) => pass,
            Err(error) => return ServerCall::refused(error),
        };
        let deadline = call.received + self.times.call();
        let mut run = Run {
            upstream: change::InCall::begin(self),
            step: Step::Over,
            slot: None,
            pass: None,
            held: Held::default(),
            is_pipe: false,
            revision: "",
            queued: Duration::ZERO,
            spare: Spare::of(&caller, &call, self.attempts.load(Ordering::Relaxed)),
            own_credentials: !caller.headers.is_empty(),
            deadline,
            quota: NotificationQuota::default(),
            needed: (self.settings.start == Start::Lazy).then(|| self.need.call()),
        };
        let slot = self.slots.at_hand();
        let at_hand = slot.as_ref().and_then(|_| self.connections.at_hand(&caller, sharing::is_about_task(&call)));
        if let Some(active) = at_hand.as_ref().and_then(|at_hand| at_hand.active()) {
            (run.slot, run.pass, run.is_pipe) = (slot, Some(pass), active.link.is_pipe());
            run.revision = active.revision;
            run.step = Step::Running(open_call(active, &caller, call));
            return ServerCall::running(run);
        }
        drop(at_hand);
        let upstream = self.clone();
        run.step = Step::Starting(Box::pin(async move {
            let asked = Instant::now();
            let slot = match slot {
                Some(slot) => slot,
                None => upstream.slots.take(&upstream.live.load_full(), &upstream.shared.metrics, deadline).await?,
            };
            let queued = asked.elapsed();
            let begun = upstream.begin(&caller, call, Some(slot), pass, deadline).await;
            begun.map(|begun| Begun { queued, ..begun })
        }));
        ServerCall::running(run)
    }

    /// Opens a call on its connection, once there is one, in the call's own time.
    async fn begin(
        &self,
        caller: &Arc<Caller>,
        call: Call,
        slot: Option<Slot>,
        pass: Pass,
        deadline: Instant,
    ) -> Result<Begun, Error> {
        let settings = self.live.load_full();
        let ticket = self.slots.ticket(slot, &settings, &self.shared.metrics, deadline);
        let mut seeker = Seeker::new(self, caller, sharing::is_about_task(&call), ticket);
        let begun = async {
            loop {
                let (active, held) = self.connections.for_call(&mut seeker).await?;
                seeker.ticket.redeem().await?;
                let Some(_turn) = self.connections.enter(&active, &held, &mut seeker) else { continue };
                let (exchange, is_pipe) = (open_call(&active, caller, call), active.link.is_pipe());
                let (slot, revision) = (seeker.ticket.slot.take(), active.revision);
                return Ok(Begun { exchange, held, is_pipe, revision, queued: Duration::ZERO, slot, pass });
            }
        };
        tokio::time::timeout_at(deadline, begun).await.unwrap_or_else(|_| Err(self.late()))
    }

    /// A call had no connection in its time.
    fn late(&self) -> Error {
        let (name, limit) = (&self.settings.name, self.times.call());
        if self.connections.main().is_none() {
            return self.away(Some((limit, "timeout")));
        }
        let message =
            format!("Server \"{name}\" had no connection for this client within {limit:?} (servers.{name}.timeout)");
        Error::new(Reason::ServerTimeout, message)
    }

    /// Whether a call may be sent to a server that perhaps keeps failing.
    fn admit(&self) -> Result<Pass, Error> {
        self.breaker.admit().map_err(|shut| {
            self.shared.metrics.refused.with_label_values(&["breaker"]).inc();
            let name = &self.settings.name;
            let when = match shut.left {
                left if left.is_zero() => "another call is seeing whether it is back".to_owned(),
                left => format!("calls are sent again in {}", seconds(left)),
            };
            let message = format!("Server \"{name}\" keeps failing, so that this call was not sent (servers.{name}.breaker); {when}. Its last failure: {}", shut.reason);
            Error::new(Reason::ServerDown, message)
        })
    }

    /// The main connection, waited for.
    ///
    /// Whoever asks causes an attempt as soon as there may be one, and waits for it. A server that was lost a moment ago
    /// is waited for, however many attempts that takes; where it has been away for longer, the caller hears at once why,
    /// and when the next attempt is.
    async fn connected(&self) -> Result<Arc<Active>, Error> {
        if let Some(active) = self.connections.main() {
            return Ok(active);
        }
        let _waiter = self.wake.wait();
        let settings = self.live.load_full();
        let (limit, setting) = match settings.start {
            Start::Eager => (settings.connect_timeout, "connect_timeout"),
            // It was not even started: that takes its time.
            Start::Lazy => (settings.start_timeout.min(settings.timeout), "start_timeout"),
        };
        let late = Instant::now() + limit;
        let mut status = self.status.subscribe();
        loop {
            let (patient, grace) = {
                let status = status.borrow_and_update();
                let now = Instant::now();
                let lost = status.away.map_or(late, |away| (away + limit).min(late));
                match status.state {
                    State::Starting | State::Ready | State::Degraded => (true, late),
                    State::BackingOff | State::Stopped | State::Failed | State::NeedsLogin
                        if status.wake.is_some_and(|wake| wake <= now) =>
                    {
                        (true, late)
                    }
                    State::BackingOff => (now < lost, lost),
                    _ => (false, late),
                }
            };
            if let Some(active) = self.connections.main() {
                return Ok(active);
            }
            if self.stop.is_cancelled() || !patient {
                return Err(self.away(None));
            }
            match tokio::time::timeout_at(grace, status.changed()).await {
                Ok(Ok(())) => {}
                _ if Instant::now() >= late => return Err(self.away(Some((limit, setting)))),
                // It has been away for too long by now; perhaps an attempt is on its way all the same.
                _ => {}
            }
        }
    }

    /// Why a call cannot be sent; `waited`: for how long it tried, by which setting.
    fn away(&self, waited: Option<(Duration, &str)>) -> Error {
        let name = &self.settings.name;
        let Status { state, reason, next_attempt, .. } = self.status();
        let mut message = format!("Server \"{name}\" is not connected ({})", state.name());
        if let Some((limit, setting)) = waited {
            message.push_str(&format!(" after {limit:?} (servers.{name}.{setting})"));
        }
        if !reason.is_empty() {
            message.push_str(&format!(": {}", hints::without_place(&reason)));
        }
        if let Some(next) = next_attempt {
            let left = next.saturating_duration_since(Instant::now());
            message.push_str(&format!("; the next attempt is in {}", seconds(left)));
        }
        Error::new(Reason::ServerDown, message).with_again(Again::No)
    }

    /// The caller with the headers that this server's config forwards, under the server's names, and no others.
    fn with_own_headers(&self, caller: &Arc<Caller>) -> Arc<Caller> {
        if caller.headers.is_empty() {
            return caller.clone();
        }
        let wanted: &[_] = match &self.settings.connect {
            Connect::Http { forward_headers, .. } => forward_headers,
            Connect::Stdio { .. } | Connect::Socket(_) | Connect::Misconfigured { .. } => &[],
        };
        let value = |from: &http::HeaderName| caller.headers.iter().find(|(name, _)| name.as_str() == from.as_str());
        let headers = wanted.iter().filter_map(|(from, to)| Some((Text::from(to.as_str()), value(from)?.1.clone())));
        Arc::new(Caller { headers: headers.collect(), ..(**caller).clone() })
    }
}

/// The start of a call on a connection; nothing is sent before its first event is asked for.
fn open_call(active: &Active, caller: &Arc<Caller>, call: Call) -> Exchange {
    active.count(caller.revision);
    if !active.is_called.load(Ordering::Relaxed) {
        active.is_called.store(true, Ordering::Release);
    }
    active.server.call(caller, call)
}

/// A time as people read it.
fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
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

/// Servers in memory, for the tests of the modules below.
#[cfg(test)]
mod memory {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

    use super::*;
    use crate::model::{Method, Outcome};

    /// What becomes of a connection to such a server.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(super) enum Way {
        /// It answers, after this time.
        Answers(Duration),
        /// It reads, and answers nothing.
        Mute,
        /// It ends as soon as it is told something.
        Dies,
        /// It answers the handshake, and ends with the first call.
        DiesLater,
        /// It cannot be started.
        Unstartable,
    }

    /// A server in memory: what is done with its next connections, and what became of the earlier ones.
    pub(super) struct Memory {
        ways: Mutex<Vec<Way>>,
        last: Way,
        /// Attempts to connect.
        pub(super) dialed: AtomicUsize,
        /// Connections that are open.
        pub(super) open: AtomicUsize,
    }

    impl Memory {
        /// A server whose first connections go these ways, and all others the last one.
        pub(super) fn new(ways: &[Way]) -> Arc<Self> {
            let (last, first) = ways.split_last().unwrap();
            let ways = Mutex::new(first.iter().rev().copied().collect());
            Arc::new(Memory { ways, last: *last, dialed: AtomicUsize::default(), open: AtomicUsize::default() })
        }

        pub(super) fn dialed(&self) -> usize {
            self.dialed.load(Ordering::SeqCst)
        }

        pub(super) fn open(&self) -> usize {
            self.open.load(Ordering::SeqCst)
        }

        fn dial(self: &Arc<Self>) -> Result<Pipe, LinkError> {
            self.dialed.fetch_add(1, Ordering::SeqCst);
            let way = self.ways.lock().unwrap().pop().unwrap_or(self.last);
            if way == Way::Unstartable {
                return Err(LinkError::Unstartable("no such command".to_owned()));
            }
            // One for each direction, so that each can be closed by itself.
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

        /// An upstream that is connected to it; its settings speak the newest revision with sessions.
        pub(super) fn upstream(self: &Arc<Self>, change: impl Fn(&mut ServerSettings)) -> Arc<Upstream> {
            let connect = Connect::Stdio { command: "memory".to_owned(), args: Vec::new(), env: Vec::new(), cwd: None };
            let mut settings = ServerSettings { share: Share::Session, ..ServerSettings::new("a", connect) };
            settings.protocol = Some("2025-11-25".to_owned());
            change(&mut settings);
            let memory = self.clone();
            let shared = Shared::new(Arc::new(Metrics::new()), Guard::none()).dialing(Arc::new(move |_| memory.dial()));
            Upstream::new(settings, Arc::new(shared), Arc::new(|_, _| {}))
        }
    }

    async fn serve(reader: DuplexStream, mut writer: DuplexStream, way: Way) {
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            let method = message["method"].as_str().unwrap_or_default();
            match way {
                Way::Mute => continue,
                Way::Dies => return,
                Way::DiesLater if method == "tools/call" => return,
                Way::Answers(time) => tokio::time::sleep(time).await,
                Way::DiesLater | Way::Unstartable => {}
            }
            let hangs = message["params"]["name"] == "hang";
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

    /// A call of a tool.
    pub(super) fn tool(name: &str) -> Call {
        Call::new(Method::CallTool, Object::new().with("name", Raw::string(name)))
    }

    /// Calls a tool, in a task of its own.
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

    fn upstream(start: Start) -> Arc<Upstream> {
        let connect = Connect::Stdio { command: "none".to_owned(), args: Vec::new(), env: Vec::new(), cwd: None };
        let settings = ServerSettings { start, ..ServerSettings::new("a", connect) };
        let shared = Shared::new(Arc::new(Metrics::new()), Guard::none());
        Upstream::new(settings, Arc::new(shared), Arc::new(|_, _| {}))
    }

    /// How long a call waits for a server in this state, and what it is told.
    async fn waits(upstream: &Upstream, state: State, wake: Option<Instant>, away: Instant) -> (Duration, String) {
        let next_attempt = (state == State::BackingOff).then(|| Instant::now() + Duration::from_secs(20));
        let reason = "refused".to_owned();
        let status = Status { state, reason, next_attempt, wake, away: Some(away), ..Status::default() };
        upstream.status.send_replace(status);
        let began = Instant::now();
        let error = upstream.connected().await.err().unwrap();
        (began.elapsed(), error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_what_is_on_its_way_and_for_nothing_else() {
        tokio::time::advance(LONG_AGO).await;
        let (upstream, now) = (upstream(Start::Eager), Instant::now());
        let (limit, long_ago) = (upstream.settings.connect_timeout, now - LONG_AGO);
        let later = Some(now + LONG_AGO);
        let (waited, told) = waits(&upstream, State::Starting, None, long_ago).await;
        assert!(waited == limit && told.contains("servers.a.connect_timeout"), "{waited:?}: {told}");
        let (waited, told) = waits(&upstream, State::BackingOff, later, long_ago).await;
        assert_eq!(waited, Duration::ZERO);
        assert_eq!(told, "Server \"a\" is not connected (backing_off): refused; the next attempt is in 20.0 s");
        let (waited, _) = waits(&upstream, State::BackingOff, later, Instant::now() - limit / 2).await;
        assert_eq!(waited, limit / 2, "it was lost a moment ago");
        let (waited, told) = waits(&upstream, State::NeedsLogin, later, Instant::now()).await;
        assert!(waited.is_zero() && told.contains("needs_login"), "{told}");
        let (waited, _) = waits(&upstream, State::Failed, Some(now), long_ago).await;
        assert_eq!(waited, limit, "an attempt may be made at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_a_server_that_it_starts_and_no_longer_than_for_its_attempt() {
        let upstream = upstream(Start::Lazy);
        let now = Instant::now();
        let (waited, told) = waits(&upstream, State::Stopped, Some(now), now).await;
        assert!(waited == upstream.settings.start_timeout && told.contains("servers.a.start_timeout"), "{told}");
        let failing = {
            let upstream = upstream.clone();
            tokio::spawn(async move {
                upstream.wake.needed(|| false).await;
                let wake = Some(Instant::now() + LONG_AGO);
                upstream.status.send_modify(|status| (status.state, status.wake) = (State::Failed, wake));
            })
        };
        let (waited, told) = waits(&upstream, State::Stopped, Some(now), now).await;
        failing.await.unwrap();
        assert!(waited.is_zero() && told.contains("(failed)"), "{waited:?}: {told}");
    }
}
