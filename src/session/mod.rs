//! What is kept for clients between their requests: the sessions of the legacy revisions, and exchanges that wait for
//! a client's answers.
//!
//! Owns the table of sessions, its cap and its clock; what is parked or sealed is in its own files. Does not know how a session is spelled on the wire. Invariant:
//! a session answers only the principal and the endpoint that it was made for, and everything kept for it goes when
//! it ends.

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

/// Requests of servers that may wait for a client's answer, for each session.
const PENDING_MAX: usize = 64;
/// Pages that a session's user may be at; the first is forgotten for another.
const ELICITATIONS_MAX: usize = 64;
/// Calls that one session may have open.
const CALLS_MAX: usize = 1000;
/// Tasks that a session is told of: the last that it made.
const TASKS_MAX: usize = 64;

/// All sessions.
pub struct Sessions {
    /// The ends of calls that were to become tasks.
    pub task_results: TaskResults,
    table: Mutex<HashMap<ByteString, Arc<Session>>>,
    settings: ArcSwap<SessionSettings>,
    metrics: Arc<Metrics>,
    resumption: Arc<resumption::SharedResumption>,
    outboxes: Arc<FairByteBudget>,
    dropped_messages: CounterHandle,
    epoch: Instant,
    /// Those of an earlier run, and those that sleep, whose clients have not come back yet.
    persisted: persisted::PersistedSessionTable,
    store: StateStore,
}

/// How many sessions there may be, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionSettings {
    /// At most so many.
    pub max: usize,
    /// A session without requests and streams for this long ends.
    pub idle: Duration,
    /// What may be kept of their streams.
    pub replay: ReplaySettings,
    /// Bytes that may wait for one session's own stream.
    pub outbox: usize,
    /// The same for all sessions together.
    pub outbox_total: usize,
    /// Resources that one session may subscribe to.
    pub subscriptions: usize,
}

/// One client's session.
pub struct Session {
    /// Its id: a secret of 256 bits.
    pub id: ByteString,
    /// Whose it is.
    pub principal: Arc<Principal>,
    /// The endpoint that it was opened on.
    pub scope: ByteString,
    /// Who calls, as far as the session knows: its capabilities, its log level.
    pub caller: ArcSwap<Caller>,
    /// Messages for the session's own stream.
    pub outbox: Outbox,
    /// What went out on its streams.
    pub resumption: Arc<ResumptionBuffer>,
    /// Takes every message for the client, where there is one stream for all of them.
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
    /// The listener of a stream that broke off: it goes on hearing until the client comes back.
    retained_notifications: Mutex<Option<NotificationStream>>,
    /// Whether that has heard something already.
    has_unread_changes: AtomicBool,
    /// Whether its client may have missed changes, and has not been told so.
    pending_catch_up: AtomicBool,
    /// Where it is kept for another run, if it is.
    row: Option<persisted::SessionRowHandle>,
    /// Answers that an earlier run owed: their streams, and the requests.
    lost_requests: Mutex<HashMap<u64, RequestId>>,
}

/// One stream for all messages to a client.
#[derive(Clone)]
pub struct SharedStream {
    /// Takes messages, delimited.
    pub out: mpsc::Sender<Bytes>,
    /// Delimits one.
    pub frame: fn(&[u8]) -> Bytes,
}

/// What became of a subscription.
pub enum SubscribeOutcome {
    /// It is new.
    New(SessionSubscription),
    /// It was there.
    Already(SessionSubscription),
    /// The session has too many.
    TooMany,
}

/// Takes the client's answer to one request.
type PendingResponse = oneshot::Sender<Result<JsonObject, RpcError>>;

impl Sessions {
    /// An empty table.
    pub fn new(settings: SessionSettings, metrics: Arc<Metrics>) -> Self {
        Sessions::persistent(settings, metrics, StateStore::memory(), PrincipalFingerprints::new())
    }

    /// An empty table whose sessions outlive the process. `owners`: by what each principal's are known.
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
    /// Where the table is full, the longest unused session of the same principal makes room, or of the one that has the
    /// most; fails where all of those are in use.
    pub fn open(&self, caller: Caller, scope: ByteString, pipe: Option<SharedStream>) -> Result<Arc<Session>, Error> {
        let principal = caller.principal.clone();
        let session = self.make(new_id(), caller, scope, pipe, None);
        let max = self.settings.load().max;
        let mut table = lock(&self.table);
        if table.len() + self.persisted.len() >= max && !self.make_room(&mut table, principal.id) {
            self.metrics.refused.with_label_values(&["sessions"]).inc();
            return Err(Error::new(
                McpErrorKind::Overloaded,
                format!("There are {max} sessions, and no more are allowed (limits.sessions)"),
            ));
        }
        table.insert(session.id.clone(), session.clone());
        self.count(&table);
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
            // What ends with its stream need not outlive it.
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

    /// The session, if it is this principal's and belongs to this endpoint; otherwise it looks as if there were none.
    pub fn find(&self, id: &str, principal: &Principal, scope: &ByteString) -> Option<Arc<Session>> {
        let session = lock(&self.table).get(id.as_bytes()).cloned()?;
        let owned = *session.principal == *principal && session.scope == *scope;
        owned.then(|| {
            session.mark_active();
            session
        })
    }

    /// Ends a session.
    pub fn close(&self, session: &Session) {
        let mut table = lock(&self.table);
        table.remove(&session.id);
        self.count(&table);
        drop(table);
        session.end();
    }

    /// Changes how many there may be, for how long, and how much a new one may subscribe to; what is kept of their
    /// streams stays as it was.
    pub fn adjust(&self, max: usize, idle: Duration, subscriptions: usize) {
        let before = (**self.settings.load()).clone();
        self.settings.store(Arc::new(SessionSettings { max, idle, subscriptions, ..before }));
    }

    /// Ends the sessions of principals, on endpoints, that are no longer allowed; says how many.
    pub fn retain(&self, allowed: impl Fn(&Principal, &str) -> bool) -> usize {
        let mut table = lock(&self.table);
        let ended: Vec<_> = table.extract_if(|_, s| !allowed(&s.principal, &s.scope)).map(|(_, s)| s).collect();
        let dormant = self.retain_persisted(allowed);
        self.count(&table);
        drop(table);
        ended.iter().for_each(|session| session.end());
        ended.len() + dormant
    }

    /// Ends the sessions that have been idle for too long; says how many.
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

    /// Reaps, and puts to sleep, for as long as it runs. `must_stay`: whether a session has to be awake.
    pub async fn expire_forever(self: Arc<Self>, must_stay: impl Fn(&ByteString) -> bool) {
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

    /// Ends every session's stream, for the drain; the sessions stay.
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
        lock(&self.retained_notifications).take();
        for (_, token) in lock(&self.calls).iter() {
            token.cancel();
        }
    }

    /// Notes that the session is in use now.
    fn mark_active(&self) {
        let now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used_ms.store(now, Ordering::Relaxed);
    }

    /// Keeps the session from being reaped for as long as the guard lives.
    pub fn begin_activity(self: &Arc<Self>) -> SessionActivityGuard {
        self.activities.fetch_add(1, Ordering::Relaxed);
        SessionActivityGuard(self.clone())
    }

    /// Notes a request of a server, and gives the id that it goes to the client under.
    ///
    /// Fails where too many wait already.
    pub fn expect_response(&self) -> Option<(RequestId, oneshot::Receiver<Result<JsonObject, RpcError>>)> {
        let mut pending = lock(&self.pending);
        pending.retain(|_, sender| !sender.is_closed());
        if pending.len() >= PENDING_MAX {
            return None;
        }
        let n = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        pending.insert(n, sender);
        Some((server_request_id(n), receiver))
    }

    /// Takes the client's answer to a request of a server. False: nobody waits for it.
    pub fn deliver_response(&self, id: &RequestId, outcome: Result<JsonObject, RpcError>) -> bool {
        let number = id.raw().as_text().and_then(|t| t.strip_prefix(REQUEST_ID_PREFIX).and_then(|n| n.parse().ok()));
        let sender = number.and_then(|n: u64| lock(&self.pending).remove(&n));
        sender.is_some_and(|sender| sender.send(outcome).is_ok())
    }

    /// Notes an open call, so that it can be cancelled by the client's id.
    ///
    /// Fails where the session has too many.
    pub fn begin_call(self: &Arc<Self>, id: &RequestId) -> Option<OpenCall> {
        let mut calls = lock(&self.calls);
        if calls.len() >= CALLS_MAX {
            return None;
        }
        let token = CancellationToken::new();
        calls.push((id.clone(), token.clone()));
        if self.ended.is_cancelled() {
            token.cancel();
        }
        Some(OpenCall { session: self.clone(), token, _activity: self.begin_activity() })
    }

    /// Cancels the open call with the client's `id`. False: there is none, or there are several (some clients use one
    /// id for everything at once), so that it cannot be said which is meant.
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

    /// Notes a subscription.
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

    /// Ends a subscription, if there is one: from here on nothing about the resource leaves, not even what waits.
    pub fn unsubscribe(&self, uri: &ByteString) {
        let mut subscriptions = lock(&self.subscriptions);
        if let Some(subscription) = subscriptions.remove(uri) {
            subscription.ended.cancel();
            self.outbox.remove_about(uri);
            drop(subscriptions);
            self.persist();
        }
    }

    /// Puts a message about a subscribed resource into the outbox, unless the subscription has ended. False: it has.
    pub fn update(&self, uri: &ByteString, subscription: &SessionSubscription, message: Bytes) -> bool {
        // The lock that `unsubscribe` takes: a message is either there to be forgotten, or never gets there.
        let _held = lock(&self.subscriptions);
        let live = !subscription.ended.is_cancelled();
        if live {
            self.outbox.push(message, Some(uri.clone()));
        }
        live
    }

    /// Notes a task that the session made.
    pub fn record_task(&self, id: &str) {
        let mut tasks = lock(&self.tasks);
        if tasks.len() >= TASKS_MAX {
            tasks.pop_front();
        }
        tasks.push_back(ByteString::from(id));
        drop(tasks);
        self.persist();
    }

    /// Whether the session made this task, as far as it is remembered.
    pub fn has_task(&self, id: &ByteString) -> bool {
        lock(&self.tasks).contains(id)
    }

    /// The resources that the session is subscribed to.
    pub fn subscriptions(&self) -> HashSet<ByteString> {
        lock(&self.subscriptions).keys().cloned().collect()
    }

    /// Notes that the user was sent to a page, by the id of the elicitation.
    pub fn elicitation_opened(&self, id: &str) {
        let mut pages = lock(&self.elicitations);
        if pages.len() >= ELICITATIONS_MAX {
            pages.pop_front();
        }
        // A copy: the id is a span of a whole message.
        pages.push_back(ByteString::from(id));
    }

    /// Whether the session's user was at this page; it is forgotten then.
    pub fn elicitation_completed(&self, id: &ByteString) -> bool {
        let mut pages = lock(&self.elicitations);
        let at = pages.iter().position(|page| page == id);
        at.and_then(|at| pages.remove(at)).is_some()
    }

    /// Whether any call is open.
    pub fn is_calling(&self) -> bool {
        !lock(&self.calls).is_empty()
    }

    /// Keeps the listener of a stream that broke off.
    pub fn retain_notifications(&self, notices: NotificationStream) {
        if !self.ended.is_cancelled() {
            let mut listener = lock(&self.retained_notifications);
            self.has_unread_changes.store(false, Ordering::Relaxed);
            *listener = Some(notices);
        }
    }

    /// The listener that was kept, if there is one.
    pub fn take_retained_notifications(&self) -> Option<NotificationStream> {
        lock(&self.retained_notifications).take()
    }

    /// Starts the session's own stream; one that was open before ends, since a client that opens a second has lost
    /// the first.
    pub fn open_stream(&self) -> CancellationToken {
        let token = self.ended.child_token();
        std::mem::replace(&mut *lock(&self.stream), token.clone()).cancel();
        token
    }
}

/// What our request ids to clients begin with; string ids cannot be taken for the client's own numbers.
const REQUEST_ID_PREFIX: &str = "ask-";

fn server_request_id(n: u64) -> RequestId {
    RequestId::string(&format!("{REQUEST_ID_PREFIX}{n}"))
}

/// Keeps a session from being reaped.
pub struct SessionActivityGuard(Arc<Session>);

impl Drop for SessionActivityGuard {
    fn drop(&mut self) {
        // Idle from now on, not since its last request.
        self.0.mark_active();
        self.0.activities.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One open call of a session.
pub struct OpenCall {
    /// A session with a call open is in use, however long the call takes.
    _activity: SessionActivityGuard,
    session: Arc<Session>,
    token: CancellationToken,
}

impl OpenCall {
    /// The session.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Cancelled when the client takes the call back, or its session ends.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut calls = lock(&self.session.calls);
        // The token tells apart two calls of the same id; cancelling this one is how it is found.
        self.token.cancel();
        if let Some(at) = calls.iter().position(|(_, token)| token.is_cancelled()) {
            calls.swap_remove(at);
        }
    }
}
