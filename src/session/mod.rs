//! What is kept for clients between their requests: the sessions of the legacy revisions, and exchanges that wait for
//! a client's answers.
//!
//! Owns the table of sessions, its cap and its clock; what is parked or sealed is in its own files. Does not know how a session is spelled on the wire. Invariant:
//! a session answers only the principal and the endpoint that it was made for, and everything kept for it goes when
//! it ends.

mod budget;
mod dormant;
mod finished;
mod outbox;
mod parking;
mod seal;
mod replay;
mod room;
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

use crate::json::{Object, Text};
use crate::jsonrpc::{Id, RpcError};
use crate::model::{Caller, Error, Notices, Principal, Reason};
use crate::session::budget::Budget;
use crate::store::Store;
use crate::telemetry::{Counter, Metrics};

pub use dormant::{Digest, Owner, Owners, Record, Woken, digest};
pub use finished::{Ended, Finished};
pub use outbox::Outbox;
pub use parking::{OpenAsk, OpenRequest, Parked, Parking, ParkingSettings, Ticket};
pub use replay::{Next, OWN_STREAM, Reader, Replay, ReplaySettings, parse_id};
pub use seal::{Binding, Refused, Seal};
pub use subscription::Subscription;

/// Requests of servers that may wait for a client's answer, for each session.
const PENDING_MAX: usize = 64;
/// Pages that a session's user may be at; the first is forgotten for another.
const PAGES_MAX: usize = 64;
/// Calls that one session may have open.
const CALLS_MAX: usize = 1000;
/// Tasks that a session is told of: the last that it made.
const TASKS_MAX: usize = 64;

/// All sessions.
pub struct Sessions {
    /// The ends of calls that were to become tasks.
    pub finished: Finished,
    table: Mutex<HashMap<Text, Arc<Session>>>,
    settings: ArcSwap<SessionSettings>,
    metrics: Arc<Metrics>,
    replay: Arc<replay::Shared>,
    outboxes: Arc<Budget>,
    dropped: Counter,
    epoch: Instant,
    /// Those of an earlier run, and those that sleep, whose clients have not come back yet.
    dormant: dormant::Dormant,
    store: Store,
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
    pub id: Text,
    /// Whose it is.
    pub principal: Arc<Principal>,
    /// The endpoint that it was opened on.
    pub scope: Text,
    /// Who calls, as far as the session knows: its capabilities, its log level.
    pub caller: ArcSwap<Caller>,
    /// Messages for the session's own stream.
    pub outbox: Outbox,
    /// What went out on its streams.
    pub replay: Arc<Replay>,
    /// Takes every message for the client, where there is one stream for all of them.
    pub pipe: Option<Pipe>,
    /// Cancelled when the session ends.
    pub ended: CancellationToken,
    epoch: Instant,
    subscriptions_max: usize,
    used_ms: AtomicU64,
    busy: AtomicU64,
    next_ask: AtomicU64,
    pending: Mutex<HashMap<u64, Pending>>,
    calls: Mutex<Vec<(Id, CancellationToken)>>,
    subscriptions: Mutex<HashMap<Text, Subscription>>,
    tasks: Mutex<VecDeque<Text>>,
    stream: Mutex<CancellationToken>,
    pages: Mutex<VecDeque<Text>>,
    /// The listener of a stream that broke off: it goes on hearing until the client comes back.
    listener: Mutex<Option<Notices>>,
    /// Whether that has heard something already.
    unheard: AtomicBool,
    /// Whether its client may have missed changes, and has not been told so.
    owes: AtomicBool,
    /// Where it is kept for another run, if it is.
    row: Option<dormant::Row>,
    /// Answers that an earlier run owed: their streams, and the requests.
    lost: Mutex<HashMap<u64, Id>>,
}

/// One stream for all messages to a client.
#[derive(Clone)]
pub struct Pipe {
    /// Takes messages, delimited.
    pub out: mpsc::Sender<Bytes>,
    /// Delimits one.
    pub frame: fn(&[u8]) -> Bytes,
}

/// What became of a subscription.
pub enum Subscribed {
    /// It is new.
    New(Subscription),
    /// It was there.
    Already(Subscription),
    /// The session has too many.
    TooMany,
}

/// Takes the client's answer to one request.
type Pending = oneshot::Sender<Result<Object, RpcError>>;

impl Sessions {
    /// An empty table.
    pub fn new(settings: SessionSettings, metrics: Arc<Metrics>) -> Self {
        Sessions::kept(settings, metrics, Store::memory(), Owners::new())
    }

    /// An empty table whose sessions outlive the process. `owners`: by what each principal's are known.
    pub fn kept(settings: SessionSettings, metrics: Arc<Metrics>, store: Store, owners: Owners) -> Self {
        let replay = replay::Shared::new(settings.replay.clone(), metrics.clone());
        let finished = Finished::new(metrics.clone());
        let outboxes = Budget::new(settings.outbox_total, metrics.outbox_bytes.clone());
        let dropped = metrics.dropped.with_label_values(&["outbox"]);
        let dormant = dormant::Dormant::new(owners, store.keeps());
        let (table, epoch) = (Mutex::default(), Instant::now());
        let settings = ArcSwap::from_pointee(settings);
        Sessions { table, settings, metrics, replay, outboxes, dropped, finished, epoch, dormant, store }
    }

    /// Opens a session.
    ///
    /// Where the table is full, the longest unused session of the same principal makes room, or of the one that has the
    /// most; fails where all of those are in use.
    pub fn open(&self, caller: Caller, scope: Text, pipe: Option<Pipe>) -> Result<Arc<Session>, Error> {
        let principal = caller.principal.clone();
        let session = self.make(new_id(), caller, scope, pipe, None);
        let max = self.settings.load().max;
        let mut table = lock(&self.table);
        if table.len() + self.dormant.len() >= max && !self.make_room(&mut table, principal.id) {
            self.metrics.refused.with_label_values(&["sessions"]).inc();
            return Err(Error::new(
                Reason::Overloaded,
                format!("There are {max} sessions, and no more are allowed (limits.sessions)"),
            ));
        }
        table.insert(session.id.clone(), session.clone());
        self.count(&table);
        drop(table);
        session.keep();
        Ok(session)
    }

    fn make(
        &self,
        id: Text,
        caller: Caller,
        scope: Text,
        pipe: Option<Pipe>,
        rest: Option<&sleeping::Rest>,
    ) -> Arc<Session> {
        let ended = rest.map_or_else(CancellationToken::new, |rest| rest.ended.clone());
        let caller = match rest {
            Some(rest) => rest.awake(caller),
            None => caller,
        };
        let principal = caller.principal.clone();
        let caller = Caller { session: Some(id.clone()), ended: ended.clone(), ..caller };
        let settings = self.settings.load();
        Arc::new(Session {
            outbox: Outbox::new(settings.outbox, self.outboxes.share(&principal), self.dropped.clone()),
            replay: Arc::new(match rest {
                Some(rest) => Replay::going_on(self.replay.clone(), &principal, rest.numbers),
                None => Replay::new(self.replay.clone(), &principal, self.dormant.run()),
            }),
            // What ends with its stream need not outlive it.
            row: if pipe.is_none() { self.dormant.row(&id, &principal, &self.store) } else { None },
            id,
            principal,
            scope,
            caller: ArcSwap::from_pointee(caller),
            subscriptions_max: settings.subscriptions,
            pipe,
            ended,
            epoch: self.epoch,
            used_ms: AtomicU64::new(self.now_ms()),
            busy: AtomicU64::new(0),
            next_ask: AtomicU64::new(rest.map_or(1, |rest| rest.next_ask)),
            pending: Mutex::default(),
            calls: Mutex::default(),
            subscriptions: Mutex::default(),
            tasks: Mutex::default(),
            stream: Mutex::default(),
            pages: Mutex::default(),
            listener: Mutex::default(),
            unheard: AtomicBool::new(false),
            owes: AtomicBool::new(rest.is_some_and(|rest| rest.owes)),
            lost: Mutex::default(),
        })
    }

    fn count(&self, table: &HashMap<Text, Arc<Session>>) {
        let asleep = self.dormant.len();
        self.metrics.sessions.set(i64::try_from(table.len() + asleep).unwrap_or(i64::MAX));
        self.metrics.sessions_asleep.set(i64::try_from(asleep).unwrap_or(i64::MAX));
    }

    /// The session, if it is this principal's and belongs to this endpoint; otherwise it looks as if there were none.
    pub fn find(&self, id: &str, principal: &Principal, scope: &Text) -> Option<Arc<Session>> {
        let session = lock(&self.table).get(id.as_bytes()).cloned()?;
        let owned = *session.principal == *principal && session.scope == *scope;
        owned.then(|| {
            session.touch();
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
        let dormant = self.retain_dormant(allowed);
        self.count(&table);
        drop(table);
        ended.iter().for_each(|session| session.end());
        ended.len() + dormant
    }

    /// Ends the sessions that have been idle for too long; says how many.
    pub fn reap(&self) -> usize {
        self.finished.sweep();
        let now = self.now_ms();
        let time = self.settings.load().idle;
        let idle = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut table = lock(&self.table);
        let before = table.len();
        table.retain(|_, session| {
            session.replay.sweep();
            let keep = !session.is_idle() || now.saturating_sub(session.used_ms.load(Ordering::Relaxed)) < idle;
            match keep {
                true => session.keep_used(time),
                false => session.end(),
            }
            keep
        });
        let dormant = self.dormant.reap(time, now, &self.store);
        self.count(&table);
        before - table.len() + dormant
    }

    /// Reaps, and puts to sleep, for as long as it runs. `must_stay`: whether a session has to be awake.
    pub async fn reap_forever(self: Arc<Self>, must_stay: impl Fn(&Text) -> bool) {
        let mut clock = tokio::time::interval(self.settings.load().idle.min(Duration::from_secs(10)));
        loop {
            clock.tick().await;
            let reaped = self.reap();
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

fn new_id() -> Text {
    let bytes: [u8; 32] = crate::random::bytes();
    Text::from(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Session ===

impl Session {
    fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }

    fn end(&self) {
        if let Some(row) = &self.row {
            row.remove();
        }
        self.ended.cancel();
        lock(&self.pending).clear();
        lock(&self.subscriptions).clear();
        lock(&self.listener).take();
        for (_, token) in lock(&self.calls).iter() {
            token.cancel();
        }
    }

    /// Notes that the session is in use now.
    fn touch(&self) {
        let now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used_ms.store(now, Ordering::Relaxed);
    }

    /// Keeps the session from being reaped for as long as the guard lives.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// Notes a request of a server, and gives the id that it goes to the client under.
    ///
    /// Fails where too many wait already.
    pub fn expect_answer(&self) -> Option<(Id, oneshot::Receiver<Result<Object, RpcError>>)> {
        let mut pending = lock(&self.pending);
        pending.retain(|_, sender| !sender.is_closed());
        if pending.len() >= PENDING_MAX {
            return None;
        }
        let n = self.next_ask.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        pending.insert(n, sender);
        Some((ask_id(n), receiver))
    }

    /// Takes the client's answer to a request of a server. False: nobody waits for it.
    pub fn answered(&self, id: &Id, outcome: Result<Object, RpcError>) -> bool {
        let number = id.raw().as_text().and_then(|t| t.strip_prefix(ASK_PREFIX).and_then(|n| n.parse().ok()));
        let sender = number.and_then(|n: u64| lock(&self.pending).remove(&n));
        sender.is_some_and(|sender| sender.send(outcome).is_ok())
    }

    /// Notes an open call, so that it can be cancelled by the client's id.
    ///
    /// Fails where the session has too many.
    pub fn begin_call(self: &Arc<Self>, id: &Id) -> Option<OpenCall> {
        let mut calls = lock(&self.calls);
        if calls.len() >= CALLS_MAX {
            return None;
        }
        let token = CancellationToken::new();
        calls.push((id.clone(), token.clone()));
        if self.ended.is_cancelled() {
            token.cancel();
        }
        Some(OpenCall { session: self.clone(), token, _busy: self.busy() })
    }

    /// Cancels the open call with the client's `id`. False: there is none, or there are several (some clients use one
    /// id for everything at once), so that it cannot be said which is meant.
    pub fn cancel_call(&self, id: &Id) -> bool {
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
    pub fn subscribe(&self, uri: &Text) -> Subscribed {
        let mut subscriptions = lock(&self.subscriptions);
        if let Some(subscription) = subscriptions.get(uri) {
            return Subscribed::Already(subscription.clone());
        }
        if subscriptions.len() >= self.subscriptions_max {
            return Subscribed::TooMany;
        }
        let subscription = Subscription::new(self.ended.child_token());
        subscriptions.insert(uri.clone(), subscription.clone());
        drop(subscriptions);
        self.keep();
        Subscribed::New(subscription)
    }

    /// Ends a subscription, if there is one: from here on nothing about the resource leaves, not even what waits.
    pub fn unsubscribe(&self, uri: &Text) {
        let mut subscriptions = lock(&self.subscriptions);
        if let Some(subscription) = subscriptions.remove(uri) {
            subscription.ended.cancel();
            self.outbox.forget(uri);
            drop(subscriptions);
            self.keep();
        }
    }

    /// Puts a message about a subscribed resource into the outbox, unless the subscription has ended. False: it has.
    pub fn update(&self, uri: &Text, subscription: &Subscription, message: Bytes) -> bool {
        // The lock that `unsubscribe` takes: a message is either there to be forgotten, or never gets there.
        let _held = lock(&self.subscriptions);
        let live = !subscription.ended.is_cancelled();
        if live {
            self.outbox.push(message, Some(uri.clone()));
        }
        live
    }

    /// Notes a task that the session made.
    pub fn made_task(&self, id: &str) {
        let mut tasks = lock(&self.tasks);
        if tasks.len() >= TASKS_MAX {
            tasks.pop_front();
        }
        tasks.push_back(Text::from(id));
        drop(tasks);
        self.keep();
    }

    /// Whether the session made this task, as far as it is remembered.
    pub fn has_task(&self, id: &Text) -> bool {
        lock(&self.tasks).contains(id)
    }

    /// The resources that the session is subscribed to.
    pub fn subscriptions(&self) -> HashSet<Text> {
        lock(&self.subscriptions).keys().cloned().collect()
    }

    /// Notes that the user was sent to a page, by the id of the elicitation.
    pub fn sent_to_page(&self, id: &str) {
        let mut pages = lock(&self.pages);
        if pages.len() >= PAGES_MAX {
            pages.pop_front();
        }
        // A copy: the id is a span of a whole message.
        pages.push_back(Text::from(id));
    }

    /// Whether the session's user was at this page; it is forgotten then.
    pub fn page_is_done(&self, id: &Text) -> bool {
        let mut pages = lock(&self.pages);
        let at = pages.iter().position(|page| page == id);
        at.and_then(|at| pages.remove(at)).is_some()
    }

    /// Whether any call is open.
    pub fn is_calling(&self) -> bool {
        !lock(&self.calls).is_empty()
    }

    /// Keeps the listener of a stream that broke off.
    pub fn keep_listener(&self, notices: Notices) {
        if !self.ended.is_cancelled() {
            let mut listener = lock(&self.listener);
            self.unheard.store(false, Ordering::Relaxed);
            *listener = Some(notices);
        }
    }

    /// The listener that was kept, if there is one.
    pub fn take_listener(&self) -> Option<Notices> {
        lock(&self.listener).take()
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
const ASK_PREFIX: &str = "ask-";

fn ask_id(n: u64) -> Id {
    Id::string(&format!("{ASK_PREFIX}{n}"))
}

/// Keeps a session from being reaped.
pub struct Busy(Arc<Session>);

impl Drop for Busy {
    fn drop(&mut self) {
        // Idle from now on, not since its last request.
        self.0.touch();
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One open call of a session.
pub struct OpenCall {
    /// A session with a call open is in use, however long the call takes.
    _busy: Busy,
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
