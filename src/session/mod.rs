//! State kept for clients between their requests: legacy sessions, and exchanges that wait for input responses.
//!
//! Owns the session table, its limit and its clock. Parked calls and sealed state have files of their own. Does not
//! know how a session is encoded on the wire. Invariant: a session serves only the principal and the endpoint that it
//! was opened for. Everything kept for it ends with it.

mod fair_budget;
mod persisted;
mod task_results;
mod outbox;
mod parked;
mod sealed_state;
mod resumption;
mod eviction;
mod sleeping;
mod subscription;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::json::{ByteString, JsonObject};
use crate::jsonrpc::{RequestId, RpcError};
use crate::model::{Caller, Error, McpErrorKind, NotificationStream, Principal};
use crate::session::fair_budget::FairByteBudget;
use crate::store::StateStore;
use crate::telemetry::{CounterHandle, Metrics};

pub use outbox::Outbox;
pub use parked::{OpenInput, OpenInputRequest, ParkedCall, ParkedCallSettings, ParkedCalls, Ticket};
pub use persisted::{PrincipalFingerprint, PrincipalFingerprints, RestoredFrom, SessionDigest, SessionRecord, digest};
pub use resumption::{GET_STREAM, NextEvent, ReplaySettings, ResumptionBuffer, ResumptionReader, parse_id};
pub use sealed_state::{SealBinding, SealError, StateSealer};
pub use subscription::SessionSubscription;
pub use task_results::{TaskResult, TaskResults};

/// Maximum number of server requests that may wait for the client's response, for each session.
const PENDING_MAX: usize = 64;
/// Maximum number of open URL elicitations. The oldest is dropped for another.
const ELICITATIONS_MAX: usize = 64;
/// Maximum number of calls that one session may have open.
const CALLS_MAX: usize = 1000;
/// Maximum number of tasks that a session is notified of. The most recent ones stay.
const TASKS_MAX: usize = 64;

/// Table of all sessions.
pub struct Sessions {
    /// Results of calls that were requested as tasks.
    pub task_results: TaskResults,
    table: Mutex<HashMap<ByteString, Arc<Session>>>,
    settings: ArcSwap<SessionSettings>,
    metrics: Arc<Metrics>,
    resumption: Arc<resumption::SharedResumption>,
    outboxes: Arc<FairByteBudget>,
    dropped_messages: CounterHandle,
    epoch: Instant,
    /// Sessions of a previous process, and sleeping ones, whose clients have not come back yet.
    persisted: persisted::PersistedSessionTable,
    store: StateStore,
}

/// Limits of sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionSettings {
    /// Maximum number of sessions.
    pub max: usize,
    /// Idle time without requests and streams after which a session ends.
    pub idle: Duration,
    /// Limits of their resumption buffers.
    pub replay: ReplaySettings,
    /// Maximum bytes queued for one session's GET stream.
    pub outbox: usize,
    /// Maximum bytes queued for the GET streams of all sessions together.
    pub outbox_total: usize,
    /// Maximum number of resources that one session may subscribe to.
    pub subscriptions: usize,
}

/// Session of one client.
pub struct Session {
    /// Session id: a secret of 256 bits.
    pub id: ByteString,
    /// Principal that opened the session.
    pub principal: Arc<Principal>,
    /// Endpoint that the session was opened on.
    pub scope: ByteString,
    /// Caller as the session knows it, with its capabilities and its log level.
    pub caller: ArcSwap<Caller>,
    /// Messages for the session's GET stream.
    pub outbox: Outbox,
    /// Events sent on its streams.
    pub resumption: Arc<ResumptionBuffer>,
    /// Stream for every message to the client, where the transport has only one.
    pub shared_stream: Option<SharedStream>,
    /// Cancelled when the session ends.
    pub ended: CancellationToken,
    epoch: Instant,
    subscriptions_max: usize,
    used_ms: AtomicU64,
    activities: AtomicU64,
    next_request: AtomicU64,
    pending: Mutex<HashMap<u64, PendingResponse>>,
    calls: Mutex<Vec<(RequestId, CancellationToken)>>,
    subscriptions: Mutex<HashMap<ByteString, SessionSubscription>>,
    tasks: Mutex<VecDeque<ByteString>>,
    stream: Mutex<CancellationToken>,
    elicitations: Mutex<VecDeque<ByteString>>,
    /// Notifications of a stream that broke off. They stay subscribed until the client comes back.
    retained_notifications: Mutex<Option<NotificationStream>>,
    /// True if `retained_notifications` has already received one.
    has_unread_changes: AtomicBool,
    /// True if the client may have missed changes and has not been notified.
    pending_catch_up: AtomicBool,
    /// Persisted row of the session, if it has one.
    row: Option<persisted::SessionRowHandle>,
    /// Responses that a previous process did not deliver: stream numbers and requests.
    lost_requests: Mutex<HashMap<u64, RequestId>>,
}

/// Single stream for all messages to a client.
#[derive(Clone)]
pub struct SharedStream {
    /// Queue for framed messages.
    pub out: mpsc::Sender<Bytes>,
    /// Frames one message.
    pub frame: fn(&[u8]) -> Bytes,
}

/// Outcome of a subscribe request.
pub enum SubscribeOutcome {
    /// New subscription.
    New(SessionSubscription),
    /// Existing subscription.
    Already(SessionSubscription),
    /// Too many subscriptions in this session.
    TooMany,
}

/// Channel for the client's response to one request.
type PendingResponse = oneshot::Sender<Result<JsonObject, RpcError>>;

impl Sessions {
    /// Creates an empty table.
    pub fn new(settings: SessionSettings, metrics: Arc<Metrics>) -> Self {
        Sessions::persistent(settings, metrics, StateStore::memory(), PrincipalFingerprints::new())
    }

    /// Creates an empty table whose sessions outlive the process. `owners` are the fingerprints of the principals.
    pub fn persistent(
        settings: SessionSettings,
        metrics: Arc<Metrics>,
        store: StateStore,
        owners: PrincipalFingerprints,
    ) -> Self {
        let resumption = resumption::SharedResumption::new(settings.replay.clone(), metrics.clone());
        let task_results = TaskResults::new(metrics.clone());
        let outboxes = FairByteBudget::new(settings.outbox_total, metrics.outbox_bytes.clone());
        let dropped_messages = metrics.dropped.with_label_values(&["outbox"]);
        let persisted = persisted::PersistedSessionTable::new(owners, store.is_persistent());
        let (table, epoch) = (Mutex::default(), Instant::now());
        let settings = ArcSwap::from_pointee(settings);
        Sessions {
            table,
            settings,
            metrics,
            resumption,
            outboxes,
            dropped_messages,
            task_results,
            epoch,
            persisted,
            store,
        }
    }

    /// Opens a session.
    ///
    /// A full table evicts the longest idle session of the same principal, or of the principal with the most. Fails if
    /// all of those are in use.
    pub fn open(&self, caller: Caller, scope: ByteString, pipe: Option<SharedStream>) -> Result<Arc<Session>, Error> {
        let principal = caller.principal.clone();
        let session = self.make(new_id(), caller, scope, pipe, None);
        let max = self.settings.load().max;
        let mut table = lock(&self.table);
        // The limit counts sleeping sessions too, since their clients may come back at any time.
        if table.len() + self.persisted.len() >= max && !self.make_room(&mut table, principal.id) {
            self.metrics.refused.with_label_values(&["sessions"]).inc();
            return Err(Error::new(
                McpErrorKind::Overloaded,
                format!("There are {max} sessions, and no more are allowed (limits.sessions)"),
            ));
        }
        table.insert(session.id.clone(), session.clone());
        self.count(&table);
        // Persisted outside the lock, which every request needs.
        drop(table);
        session.persist();
        Ok(session)
    }

    fn make(
        &self,
        id: ByteString,
        caller: Caller,
        scope: ByteString,
        pipe: Option<SharedStream>,
        rest: Option<&sleeping::SleepState>,
    ) -> Arc<Session> {
        // A restored session keeps its token: tasks that wait for its end hold clones of it.
        let ended = rest.map_or_else(CancellationToken::new, |rest| rest.ended.clone());
        let caller = match rest {
            Some(rest) => rest.restore_caller(caller),
            None => caller,
        };
        let principal = caller.principal.clone();
        let caller = Caller { session: Some(id.clone()), ended: ended.clone(), ..caller };
        let settings = self.settings.load();
        Arc::new(Session {
            outbox: Outbox::new(settings.outbox, self.outboxes.share(&principal), self.dropped_messages.clone()),
            resumption: Arc::new(match rest {
                Some(rest) => ResumptionBuffer::resume_from(self.resumption.clone(), &principal, rest.resume_position),
                None => ResumptionBuffer::new(self.resumption.clone(), &principal, self.persisted.process_number()),
            }),
            // A session that ends with its stream need not outlive the process.
            row: if pipe.is_none() { self.persisted.row(&id, &principal, &self.store) } else { None },
            id,
            principal,
            scope,
            caller: ArcSwap::from_pointee(caller),
            subscriptions_max: settings.subscriptions,
            shared_stream: pipe,
            ended,
            epoch: self.epoch,
            used_ms: AtomicU64::new(self.now_ms()),
            activities: AtomicU64::new(0),
            // Request ids continue after sleep: a late response must not match a new request.
            next_request: AtomicU64::new(rest.map_or(1, |rest| rest.next_request)),
            pending: Mutex::default(),
            calls: Mutex::default(),
            subscriptions: Mutex::default(),
            tasks: Mutex::default(),
            stream: Mutex::default(),
            elicitations: Mutex::default(),
            retained_notifications: Mutex::default(),
            has_unread_changes: AtomicBool::new(false),
            pending_catch_up: AtomicBool::new(rest.is_some_and(|rest| rest.pending_catch_up)),
            lost_requests: Mutex::default(),
        })
    }

    fn count(&self, table: &HashMap<ByteString, Arc<Session>>) {
        let asleep = self.persisted.len();
        self.metrics.sessions.set(i64::try_from(table.len() + asleep).unwrap_or(i64::MAX));
        self.metrics.sessions_asleep.set(i64::try_from(asleep).unwrap_or(i64::MAX));
    }

    /// Finds a session. Another principal or endpoint gets the same `None` as an unknown id.
    pub fn find(&self, id: &str, principal: &Principal, scope: &ByteString) -> Option<Arc<Session>> {
        let session = lock(&self.table).get(id.as_bytes()).cloned()?;
        // A session of another principal looks like none: an id must not reveal that it exists.
        let owned = *session.principal == *principal && session.scope == *scope;
        owned.then(|| {
            session.mark_active();
            session
        })
    }

    /// Closes a session.
    pub fn close(&self, session: &Session) {
        let mut table = lock(&self.table);
        table.remove(&session.id);
        self.count(&table);
        drop(table);
        session.end();
    }

    /// Changes the maximum number, the idle time, and the subscription limit of new sessions. Limits of resumption
    /// buffers stay as they were.
    pub fn adjust(&self, max: usize, idle: Duration, subscriptions: usize) {
        let before = (**self.settings.load()).clone();
        self.settings.store(Arc::new(SessionSettings { max, idle, subscriptions, ..before }));
    }

    /// Ends the sessions whose principal or endpoint is no longer allowed. Returns their number.
    pub fn retain(&self, allowed: impl Fn(&Principal, &str) -> bool) -> usize {
        let mut table = lock(&self.table);
        let ended: Vec<_> = table.extract_if(|_, s| !allowed(&s.principal, &s.scope)).map(|(_, s)| s).collect();
        let dormant = self.retain_persisted(allowed);
        self.count(&table);
        drop(table);
        ended.iter().for_each(|session| session.end());
        ended.len() + dormant
    }

    /// Ends the sessions that have been idle for too long. Returns their number.
    pub fn expire_idle(&self) -> usize {
        self.task_results.evict_expired();
        let now = self.now_ms();
        let time = self.settings.load().idle;
        let idle = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut table = lock(&self.table);
        let before = table.len();
        table.retain(|_, session| {
            session.resumption.evict_expired();
            let keep = !session.is_idle() || now.saturating_sub(session.used_ms.load(Ordering::Relaxed)) < idle;
            match keep {
                true => session.persist_last_use(time),
                false => session.end(),
            }
            keep
        });
        let dormant = self.persisted.expire(time, now, &self.store);
        self.count(&table);
        before - table.len() + dormant
    }

    /// Expires sessions and puts them to sleep, until it is dropped. `must_stay` returns true for a session that has to
    /// stay awake.
    pub async fn expire_forever(self: Arc<Self>, must_stay: impl Fn(&ByteString) -> bool) {
        // Ten seconds at most, since sleep and the expiry of streams depend on this clock, too.
        let mut clock = tokio::time::interval(self.settings.load().idle.min(Duration::from_secs(10)));
        loop {
            clock.tick().await;
            let reaped = self.expire_idle();
            self.sleep_unused(&must_stay);
            if reaped > 0 {
                tracing::debug!(reaped, "idle sessions ended");
            }
        }
    }

    /// Ends every session's stream, for the drain. The sessions stay.
    pub fn end_streams(&self) {
        for session in lock(&self.table).values() {
            lock(&session.stream).cancel();
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn new_id() -> ByteString {
    let bytes: [u8; 32] = crate::random::random_bytes();
    ByteString::from(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Session ===

impl Session {
    fn is_idle(&self) -> bool {
        self.activities.load(Ordering::Relaxed) == 0
    }

    fn end(&self) {
        if let Some(row) = &self.row {
            row.remove();
        }
        self.ended.cancel();
        lock(&self.pending).clear();
        lock(&self.subscriptions).clear();
        // Dropped, so that the subscriptions at servers end with the session.
        lock(&self.retained_notifications).take();
        for (_, token) in lock(&self.calls).iter() {
            token.cancel();
        }
    }

    /// Marks the session as used now.
    fn mark_active(&self) {
        let now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used_ms.store(now, Ordering::Relaxed);
    }

    /// Keeps the session from expiring while the guard lives.
    pub fn begin_activity(self: &Arc<Self>) -> SessionActivityGuard {
        self.activities.fetch_add(1, Ordering::Relaxed);
        SessionActivityGuard(self.clone())
    }

    /// Registers a server's request. Returns the id that it goes to the client under.
    ///
    /// Returns `None` if too many wait already.
    pub fn expect_response(&self) -> Option<(RequestId, oneshot::Receiver<Result<JsonObject, RpcError>>)> {
        let mut pending = lock(&self.pending);
        // Requests whose sender stopped waiting free their places.
        pending.retain(|_, sender| !sender.is_closed());
        if pending.len() >= PENDING_MAX {
            return None;
        }
        let n = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        pending.insert(n, sender);
        Some((server_request_id(n), receiver))
    }

    /// Delivers the client's response to a server's request. Returns false if nobody waits for it.
    pub fn deliver_response(&self, id: &RequestId, outcome: Result<JsonObject, RpcError>) -> bool {
        let number = id.raw().as_text().and_then(|t| t.strip_prefix(REQUEST_ID_PREFIX).and_then(|n| n.parse().ok()));
        let sender = number.and_then(|n: u64| lock(&self.pending).remove(&n));
        sender.is_some_and(|sender| sender.send(outcome).is_ok())
    }

    /// Registers an open call, so that it can be cancelled by the client's id.
    ///
    /// Returns `None` if the session has too many.
    pub fn begin_call(self: &Arc<Self>, id: &RequestId) -> Option<OpenCall> {
        let mut calls = lock(&self.calls);
        if calls.len() >= CALLS_MAX {
            return None;
        }
        let token = CancellationToken::new();
        calls.push((id.clone(), token.clone()));
        // The session may have ended before the call was added: `end` cancels only the calls in the list.
        if self.ended.is_cancelled() {
            token.cancel();
        }
        Some(OpenCall { session: self.clone(), token, _activity: self.begin_activity() })
    }

    /// Cancels the open call with the client's `id`. Returns false if there is none, or several. Some clients use one
    /// id for everything at once, so the call that is meant is unknown.
    pub fn cancel_call(&self, id: &RequestId) -> bool {
        let calls = lock(&self.calls);
        let mut named = calls.iter().filter(|(open, _)| open == id);
        match (named.next(), named.next()) {
            (Some((_, token)), None) => {
                token.cancel();
                true
            }
            _ => false,
        }
    }

    /// Adds a subscription.
    pub fn subscribe(&self, uri: &ByteString) -> SubscribeOutcome {
        let mut subscriptions = lock(&self.subscriptions);
        if let Some(subscription) = subscriptions.get(uri) {
            return SubscribeOutcome::Already(subscription.clone());
        }
        if subscriptions.len() >= self.subscriptions_max {
            return SubscribeOutcome::TooMany;
        }
        let subscription = SessionSubscription::new(self.ended.child_token());
        subscriptions.insert(uri.clone(), subscription.clone());
        drop(subscriptions);
        self.persist();
        SubscribeOutcome::New(subscription)
    }

    /// Ends a subscription, if there is one. From here on no message about the resource leaves, not even a queued one.
    pub fn unsubscribe(&self, uri: &ByteString) {
        let mut subscriptions = lock(&self.subscriptions);
        if let Some(subscription) = subscriptions.remove(uri) {
            // Cancelled and removed under one lock, so that `update` queues nothing afterwards.
            subscription.ended.cancel();
            self.outbox.remove_about(uri);
            drop(subscriptions);
            self.persist();
        }
    }

    /// Queues a message about a subscribed resource in the outbox. Returns false if the subscription has ended.
    pub fn update(&self, uri: &ByteString, subscription: &SessionSubscription, message: Bytes) -> bool {
        // `unsubscribe` takes this lock too: a message is either queued before it and removed, or never queued.
        let _held = lock(&self.subscriptions);
        let live = !subscription.ended.is_cancelled();
        if live {
            self.outbox.push(message, Some(uri.clone()));
        }
        live
    }

    /// Records a task that the session made.
    pub fn record_task(&self, id: &str) {
        let mut tasks = lock(&self.tasks);
        if tasks.len() >= TASKS_MAX {
            tasks.pop_front();
        }
        tasks.push_back(ByteString::from(id));
        drop(tasks);
        self.persist();
    }

    /// Returns true if the session is known to have made this task.
    pub fn has_task(&self, id: &ByteString) -> bool {
        lock(&self.tasks).contains(id)
    }

    /// Returns the resources that the session is subscribed to.
    pub fn subscriptions(&self) -> HashSet<ByteString> {
        lock(&self.subscriptions).keys().cloned().collect()
    }

    /// Records that a URL elicitation was opened, by its id.
    pub fn elicitation_opened(&self, id: &str) {
        let mut pages = lock(&self.elicitations);
        if pages.len() >= ELICITATIONS_MAX {
            pages.pop_front();
        }
        // Copied: the id is a span that would keep a whole message alive.
        pages.push_back(ByteString::from(id));
    }

    /// Removes a URL elicitation. Returns true if this session's user had it open.
    pub fn elicitation_completed(&self, id: &ByteString) -> bool {
        let mut pages = lock(&self.elicitations);
        let at = pages.iter().position(|page| page == id);
        at.and_then(|at| pages.remove(at)).is_some()
    }

    /// Returns true if any call is open.
    pub fn is_calling(&self) -> bool {
        !lock(&self.calls).is_empty()
    }

    /// Retains the notifications of a stream that broke off.
    pub fn retain_notifications(&self, notices: NotificationStream) {
        // An ended session would hold the subscription for ever.
        if !self.ended.is_cancelled() {
            let mut listener = lock(&self.retained_notifications);
            self.has_unread_changes.store(false, Ordering::Relaxed);
            *listener = Some(notices);
        }
    }

    /// Takes the retained notifications, if there are any.
    pub fn take_retained_notifications(&self) -> Option<NotificationStream> {
        lock(&self.retained_notifications).take()
    }

    /// Starts the session's GET stream and ends the one before. A client that opens a second stream has lost the first.
    pub fn open_stream(&self) -> CancellationToken {
        let token = self.ended.child_token();
        std::mem::replace(&mut *lock(&self.stream), token.clone()).cancel();
        token
    }
}

/// Prefix of our request ids to clients. String ids cannot be confused with the client's own numbers.
const REQUEST_ID_PREFIX: &str = "ask-";

fn server_request_id(n: u64) -> RequestId {
    RequestId::string(&format!("{REQUEST_ID_PREFIX}{n}"))
}

/// Keeps a session from expiring.
pub struct SessionActivityGuard(Arc<Session>);

impl Drop for SessionActivityGuard {
    fn drop(&mut self) {
        // Idle time starts here, not at the last request.
        self.0.mark_active();
        self.0.activities.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Open call of a session.
pub struct OpenCall {
    /// Activity guard: a session with an open call is in use, however long the call takes.
    _activity: SessionActivityGuard,
    session: Arc<Session>,
    token: CancellationToken,
}

impl OpenCall {
    /// Returns the session.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Returns the token that is cancelled when the client cancels the call, or its session ends.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut calls = lock(&self.session.calls);
        // Two calls can have the same id, so the token identifies this one: it is the cancelled one of the list.
        self.token.cancel();
        if let Some(at) = calls.iter().position(|(_, token)| token.is_cancelled()) {
            calls.swap_remove(at);
        }
    }
}
