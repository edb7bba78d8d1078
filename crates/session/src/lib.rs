//! State kept for clients between their requests: legacy sessions, and exchanges that wait for
//! input responses.
//!
//! Owns the session table, its limit and its clock. Parked calls and sealed state have files of
//! their own. Does not know how a session is encoded on the wire. Invariant: a session serves only
//! the principal and the endpoint that it was opened for. Everything kept for it ends with it.

mod calls;
mod client_requests;
mod eviction;
mod fair_budget;
mod get_stream;
mod identity;
mod lifetime;
mod missed_events;
mod outbox;
mod outside_requests;
mod overview;
mod parked;
mod persisted;
mod recent_ids;
mod resumption;
mod sealed_state;
mod session;
mod session_row;
mod session_tasks;
mod sleep_state;
mod sleeping;
mod spent_states;
pub mod store;
mod subscription;
mod task_results;

use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine;
use tokio_util::sync::CancellationToken;

use crate::eviction::SessionTable;
use crate::fair_budget::FairByteBudget;
use crate::lifetime::{SessionClock, SessionLifetime};
use crate::outside_requests::SessionChannel;
use crate::persisted::PersistedEntry;
use crate::session_row::SessionRowHandle;
use crate::store::StateStore;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, Error, McpErrorKind, Principal, PrincipalKey, PrincipalStanding};
use moongate_telemetry::{CounterHandle, DroppedItem, Limit, Metrics};

pub use calls::SessionCalls;
pub use client_requests::ClientRequests;
pub use get_stream::GetStreamState;
pub use identity::SessionIdentity;
pub use missed_events::MissedEvents;
pub use outbox::Outbox;
pub use outside_requests::name_progress;
pub use overview::SessionSummary;
pub use parked::{
    OpenInput, OpenInputRequest, ParkTicket, ParkedCall, ParkedCallSettings, ParkedCalls,
    ParkedOwner,
};
pub use persisted::{RestoredFrom, SessionRecord};
pub use resumption::{
    GET_STREAM, NextEvent, ReplaySettings, ResumptionBuffer, ResumptionReader, parse_id,
};
pub use sealed_state::{OpenedState, SealBinding, SealError, StateSealer, StateUse};
pub use session::{
    Session, SessionActivityGuard, SessionCallGuard, SessionStreamGuard, SharedStream,
};
pub use session_row::{SessionDigest, digest};
pub use session_tasks::SessionTasks;
pub use spent_states::SealMark;
pub use subscription::{SessionSubscription, SessionSubscriptions, SubscribeOutcome};
pub use task_results::{TaskResult, TaskResults};

/// Table of all sessions.
pub struct Sessions {
    /// Results of calls that were requested as tasks.
    pub task_results: TaskResults,
    table: Mutex<SessionTable>,
    settings: ArcSwap<SessionSettings>,
    metrics: Arc<Metrics>,
    resumption: Arc<resumption::SharedResumption>,
    outboxes: Arc<FairByteBudget>,
    dropped_messages: CounterHandle,
    clock: SessionClock,
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

/// Origin of a session that is built.
enum SessionOrigin<'a> {
    /// Client that opens it.
    New,
    /// Entry that it left when it fell asleep, or when its process ended.
    Persisted(&'a PersistedEntry),
}

impl Sessions {
    /// Creates an empty table.
    pub fn new(settings: SessionSettings, metrics: Arc<Metrics>) -> Self {
        Sessions::persistent(settings, metrics, StateStore::memory())
    }

    /// Creates an empty table whose sessions outlive the process.
    pub fn persistent(settings: SessionSettings, metrics: Arc<Metrics>, store: StateStore) -> Self {
        let resumption =
            resumption::SharedResumption::new(settings.replay.clone(), metrics.clone());
        let task_results = TaskResults::new(metrics.clone());
        let outboxes =
            FairByteBudget::new(settings.outbox_total, metrics.clients.outbox_bytes.clone());
        let dropped_messages = metrics.calls.dropped.series(DroppedItem::Outbox);
        let persisted = persisted::PersistedSessionTable::new(store.is_persistent());
        let table = Mutex::default();
        let clock = SessionClock::start();
        let settings = ArcSwap::from_pointee(settings);
        Sessions {
            table,
            settings,
            metrics,
            resumption,
            outboxes,
            dropped_messages,
            task_results,
            clock,
            persisted,
            store,
        }
    }

    /// Opens a session.
    ///
    /// A full table evicts the longest idle session of the same principal, or of the principal with
    /// the most. Fails if all of those are in use.
    pub fn open(
        &self,
        caller: Caller,
        scope: ByteString,
        shared_stream: Option<SharedStream>,
    ) -> Result<Arc<Session>, Error> {
        let principal = caller.principal.clone();
        let session =
            self.build_session(new_id(), caller, scope, shared_stream, SessionOrigin::New);
        let max = self.settings.load().max;
        // Held from the check to the insertion. Otherwise many clients at once would pass a full
        // table.
        let mut table = self.table.lock();
        // The limit counts sleeping sessions too, since their clients may come back at any time.
        if table.len() + self.persisted.len() >= max && !self.make_room(&mut table, &principal.key)
        {
            self.metrics.calls.refused.inc(Limit::Sessions);
            return Err(Error::new(
                McpErrorKind::Overloaded,
                format!("The limit of {max} sessions is reached (limits.sessions)"),
            ));
        }
        table.insert(session.identity.id.clone(), session.clone());
        self.record_counts(&table);
        // Persisted outside the lock, which every request needs.
        drop(table);
        session.persist();
        Ok(session)
    }

    /// Creates the session of a single POST that came without a session id.
    ///
    /// It is in no table and in no store, and its client cannot be asked. It ends with its last
    /// call.
    pub fn transient(&self, caller: Caller, scope: ByteString) -> Arc<Session> {
        let id = ByteString::literal(identity::TRANSIENT_ID);
        self.build_session(id, caller, scope, None, SessionOrigin::New)
    }

    fn build_session(
        &self,
        id: ByteString,
        caller: Caller,
        scope: ByteString,
        shared_stream: Option<SharedStream>,
        origin: SessionOrigin<'_>,
    ) -> Arc<Session> {
        let (began, sleep_state) = match origin {
            SessionOrigin::New => (
                u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default(),
                None,
            ),
            SessionOrigin::Persisted(entry) => (entry.record.began(), entry.sleep_state.as_deref()),
        };
        // A restored session keeps its token: tasks that wait for its end hold clones of it.
        let ended = sleep_state.map_or_else(CancellationToken::new, |state| state.ended.clone());
        let caller = match sleep_state {
            Some(state) => state.restore_caller(caller),
            None => caller,
        };
        let settings = self.settings.load();
        let share = self.outboxes.share(&caller.principal);
        Arc::new_cyclic(|session| Session {
            get_stream: GetStreamState::new(Outbox::new(
                settings.outbox,
                share.clone(),
                self.dropped_messages.clone(),
            )),
            resumption: Arc::new(match sleep_state {
                Some(state) => ResumptionBuffer::resume_from(
                    self.resumption.clone(),
                    &caller.principal,
                    state.resume_position,
                ),
                None => ResumptionBuffer::new(
                    self.resumption.clone(),
                    &caller.principal,
                    self.persisted.process_number(),
                ),
            }),
            // A session that ends with its stream or its calls need not outlive the process.
            row: if shared_stream.is_none() && &*id != identity::TRANSIENT_ID {
                SessionRowHandle::of(&id, &self.store)
            } else {
                None
            },
            shared_stream,
            client_requests: ClientRequests::new(sleep_state.map_or(1, |state| state.next_request)),
            calls: SessionCalls::default(),
            extension_check: OnceLock::new(),
            subscriptions: SessionSubscriptions::new(settings.subscriptions),
            tasks: SessionTasks::new(share.clone()),
            missed: MissedEvents::new(sleep_state.is_some_and(|state| state.pending_catch_up)),
            lifetime: SessionLifetime::new(self.clock, ended.clone(), began),
            identity: SessionIdentity::new(id, scope, caller, (ended, SessionChannel::of(session))),
        })
    }

    fn record_counts(&self, table: &SessionTable) {
        let asleep = self.persisted.len();
        self.metrics
            .clients
            .sessions
            .set(i64::try_from(table.len() + asleep).unwrap_or(i64::MAX));
        self.metrics
            .clients
            .sessions_asleep
            .set(i64::try_from(asleep).unwrap_or(i64::MAX));
    }

    /// Finds a session. Another principal or endpoint gets the same `None` as an unknown id.
    pub fn find(
        &self,
        id: &str,
        principal: &Principal,
        scope: &ByteString,
    ) -> Option<Arc<Session>> {
        // The lock ends with this line. The checks below need only the session itself.
        let session = self.table.lock().get(id.as_bytes()).cloned()?;
        // A session of another principal looks like none: an id must not reveal that it exists.
        session.identity.is_owned_by(principal, scope).then(|| {
            session.lifetime.mark_active();
            session
        })
    }

    /// Closes a session.
    pub fn close(&self, session: &Session) {
        let mut table = self.table.lock();
        table.remove(&session.identity.id);
        self.record_counts(&table);
        drop(table);
        session.end();
    }

    /// Changes the maximum number, the idle time, and the subscription limit of new sessions.
    /// Limits of resumption buffers stay as they were.
    pub fn adjust(&self, max: usize, idle: Duration, subscriptions: usize) {
        let before = (**self.settings.load()).clone();
        self.settings.store(Arc::new(SessionSettings {
            max,
            idle,
            subscriptions,
            ..before
        }));
    }

    /// Ends the sessions whose principal or endpoint is no longer allowed. Returns their number.
    pub fn retain(
        &self,
        standing: impl Fn(&PrincipalKey) -> PrincipalStanding,
        allowed: impl Fn(&Principal, &str) -> bool,
    ) -> usize {
        let mut table = self.table.lock();
        let ended: Vec<_> = table
            .extract_if(|_, s| !allowed(&s.identity.principal, &s.identity.scope))
            .map(|(_, s)| s)
            .collect();
        let waiting = self.retain_persisted(standing, allowed);
        self.record_counts(&table);
        drop(table);
        // After the lock: the end of a session cancels its calls, and their tasks may wake at once.
        ended.iter().for_each(|session| session.end());
        ended.len() + waiting
    }

    /// Ends the sessions that have been idle for too long. Returns their number.
    pub fn expire_idle(&self) -> usize {
        self.task_results.evict_expired();
        let now = self.clock.now_ms();
        let time = self.settings.load().idle;
        let mut table = self.table.lock();
        let before = table.len();
        table.retain(|_, session| {
            session.resumption.evict_expired();
            let keep = !session.lifetime.is_idle_for(time, now);
            match keep {
                true => session.persist_last_use(time),
                false => session.end(),
            }
            keep
        });
        let waiting = self.persisted.expire(time, now, &self.store);
        self.record_counts(&table);
        before - table.len() + waiting
    }

    /// Expires sessions and puts them to sleep, until it is dropped. `must_stay` returns true for a
    /// session that has to stay awake.
    pub async fn expire_forever(self: Arc<Self>, must_stay: impl Fn(&ByteString) -> bool) {
        // Ten seconds at most, since sleep and the expiry of streams depend on these ticks, too.
        let mut ticks =
            tokio::time::interval(self.settings.load().idle.min(Duration::from_secs(10)));
        loop {
            ticks.tick().await;
            let reaped = self.expire_idle();
            self.sleep_unused(&must_stay);
            if reaped > 0 {
                tracing::debug!(reaped, "idle sessions ended");
            }
        }
    }

    /// Ends every session's stream, for the drain. The sessions stay.
    pub fn end_streams(&self) {
        for session in self.table.lock().values() {
            session.get_stream.close();
        }
    }
}

fn new_id() -> ByteString {
    // 2025-11-25/basic/transports.mdx, Session Management: the id "SHOULD be globally unique and
    // cryptographically secure", and "MUST only contain visible ASCII characters".
    let bytes: [u8; 32] = moongate_random::random_bytes();
    ByteString::from(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes))
}
