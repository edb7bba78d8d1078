//! Dedicated connections: those of one session or one principal, and the one in the other era. Owns their table, its
//! limit, and the task of each connection from dial to close. Does not decide how often one is dialed (`backoff.rs`).
//! Invariant: a connection of one client is never used by another, and every open connection is in the table or about
//! to close. It closes with its client's session, on a break, after an idle time, when its principal is revoked, or to
//! make room while it is unused.

mod table;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::json::ByteString;
use crate::model::{Caller, Error, McpErrorKind, TaskState};
use crate::revision::{CallTimeouts, ConnectError, Era};
use crate::telemetry::Metrics;
use crate::upstream::lists::subscriptions::{self, ConnectionOwner, RegistryWatch};
use crate::upstream::pool::CheckoutRequest;
use crate::upstream::pool::connect_budget::{BudgetDenied, ConnectBudget, CountedAttempt, PROVEN};
use crate::upstream::pool::dedicated_notifier::DedicatedNotifier;
use crate::upstream::pool::dial::{ConnectAs, UpstreamConnection, dial};
use crate::upstream::pool::isolation::{self, ConnectionLifetime};
use crate::upstream::pool::session_store::UpstreamSessionRow;
use crate::upstream::settings::BackoffSettings;
use crate::upstream::supervisor::backoff::{BackoffTable, ConnectCooldown, ReconnectBackoff};
use crate::upstream::supervisor::health_check::HealthCheck;
use crate::upstream::supervisor::idle::IdleTracker;
use crate::upstream::{ServerSettings, Upstream, UpstreamContext, seconds};

/// Idle time after which a connection without a session is closed.
const UNUSED_TIME: Duration = Duration::from_secs(300);

/// Request for a dedicated connection.
pub(in crate::upstream) struct DedicatedRequest {
    /// Key in the table.
    pub(in crate::upstream) key: ByteString,
    /// Parameters of the handshake.
    pub(in crate::upstream) connect_as: ConnectAs,
    /// Lifetime of the connection.
    pub(in crate::upstream) lifetime: ConnectionLifetime,
    /// Clients that the connection belongs to.
    pub(in crate::upstream) owner: ConnectionOwner,
}

/// Dedicated connections of one server.
#[derive(Clone, Default)]
pub(in crate::upstream) struct DedicatedPool(Arc<Mutex<DedicatedTable>>);

#[derive(Default)]
struct DedicatedTable {
    connections: HashMap<ByteString, Arc<DedicatedConnection>>,
    /// Backoff of connections that could not be opened, or broke.
    backoffs: BackoffTable,
    /// Key of the connection whose last dial the server refused by an answer.
    refused: Option<ByteString>,
    /// Attempts of all connections of the server.
    attempts: ConnectBudget,
}

struct DedicatedConnection {
    /// Result of the dial.
    opened: OnceLock<Result<Arc<UpstreamConnection>, Error>>,
    /// Cancelled once the result is known.
    settled: CancellationToken,
    /// Calls that have it, or wait for it. Changes from 0 only under the lock of the table.
    use_count: AtomicUsize,
    /// Time of the last call, and the tasks that run on the connection.
    activity: IdleTracker,
    /// Attempt that counts until a call on the connection was answered, or the connection lasts.
    attempt: Mutex<Option<CountedAttempt>>,
    /// Cancelled when another client gets the place, or the principal was revoked.
    evicted: CancellationToken,
    /// Cancelled when the connection becomes the shared one.
    released: CancellationToken,
}

/// Guard of one use. The connection is in use until it is dropped.
pub(in crate::upstream) struct UseGuard(Arc<DedicatedConnection>);

/// Result of a lookup in the table.
enum DedicatedLookup {
    /// A connection, or a pending dial.
    Existing(UseGuard),
    /// A new entry, for which the caller must begin the dial.
    New(UseGuard, ReconnectBackoff),
    /// Too many dials are pending. The time says when to look again at the latest.
    Busy(Instant),
    /// The backoff forbids a dial for now.
    CoolingDown(ConnectCooldown),
    /// The limit is reached and every connection is in use.
    Full,
}

impl DedicatedPool {
    /// Returns the requested connection. Opens it if there is none.
    ///
    /// Callers share one dial and its result. A failed dial does not count in the circuit breaker. It may concern one
    /// client's capabilities or credentials, which must not keep others from connections that work. Each connection
    /// has its own backoff. A program that cannot be started cools down for all (`BackoffTable`).
    pub(in crate::upstream) async fn checkout(
        &self,
        claim: DedicatedRequest,
        seeker: &mut CheckoutRequest<'_>,
    ) -> Result<(Arc<UpstreamConnection>, UseGuard), Error> {
        if let Some(found) = self.try_get(&claim.key) {
            return Ok(found);
        }
        // A caller that waits for a dial holds no concurrency permit: one slow client must not stop the others.
        seeker.permit.release();
        let used = self.get_or_begin(claim, seeker.caller, seeker.upstream).await?;
        used.0.settled.cancelled().await;
        match used.0.opened.get() {
            Some(Ok(active)) => Ok((active.clone(), used)),
            Some(Err(error)) => Err(error.clone()),
            None => Err(Error::internal("the attempt to connect broke off")),
        }
    }

    /// Returns the connection of this key, if it is open.
    fn try_get(&self, key: &ByteString) -> Option<(Arc<UpstreamConnection>, UseGuard)> {
        let table = self.lock();
        let lease = table.connections.get(key)?;
        let active = lease.connection()?.clone();
        Some((active, UseGuard::begin(lease)))
    }

    async fn get_or_begin(
        &self,
        claim: DedicatedRequest,
        caller: &Arc<Caller>,
        upstream: &Upstream,
    ) -> Result<UseGuard, Error> {
        let settings = upstream.live_settings.load_full();
        let (name, max) = (&settings.name, settings.max_connections);
        let attempts = self.attempts();
        loop {
            // Created before the lookup, so that no end of a dial is missed.
            let changed = attempts.changed();
            match self.look_up(&claim, max, settings.backoff) {
                DedicatedLookup::Existing(used) => return Ok(used),
                DedicatedLookup::New(used, pace) => {
                    self.publish_count(name, &upstream.context.metrics);
                    self.begin_dial(&used, pace, claim, caller, upstream);
                    return Ok(used);
                }
                DedicatedLookup::Busy(until) => {
                    let _ = tokio::time::timeout_at(until, changed).await;
                }
                DedicatedLookup::CoolingDown(pause) if pause.is_worth_waiting() => {
                    tokio::time::sleep_until(pause.until).await
                }
                DedicatedLookup::CoolingDown(pause) => return Err(cooldown_error(name, &pause)),
                DedicatedLookup::Full => {
                    upstream.context.metrics.refused.with_label_values(&["max_connections"]).inc();
                    let message = format!(
                        "Server \"{name}\" has {max} connections for single clients, all in use, and no more are allowed (servers.{name}.max_connections)"
                    );
                    return Err(Error::new(McpErrorKind::Overloaded, message));
                }
            }
        }
    }

    /// Takes the connection of this key into use. At the limit, the one that was unused longest is evicted.
    fn look_up(&self, claim: &DedicatedRequest, max: usize, backoff: BackoffSettings) -> DedicatedLookup {
        let (key, mut table) = (&claim.key, self.lock());
        if let Some(lease) = table.connections.get(key) {
            return DedicatedLookup::Existing(UseGuard::begin(lease));
        }
        let oldest = if table.connections.len() >= max {
            let unused = table.connections.iter().filter(|(_, lease)| lease.is_unused());
            let oldest = unused.min_by_key(|(_, lease)| lease.activity.last_active()).map(|(key, _)| key.clone());
            if oldest.is_none() {
                return DedicatedLookup::Full;
            }
            oldest
        } else {
            None
        };
        // The budget concerns the whole server, the backoff below only this key.
        let attempt = match table.attempts.try_begin(Instant::now()) {
            Ok(attempt) => attempt,
            Err(BudgetDenied::Pending(until)) => return DedicatedLookup::Busy(until),
            Err(BudgetDenied::Failed(until)) => return DedicatedLookup::CoolingDown(table.backoffs.over_budget(until)),
        };
        let pace = match table.backoffs.try_begin(key, backoff, Instant::now()) {
            Ok(pace) => pace,
            Err(pause) => return DedicatedLookup::CoolingDown(pause),
        };
        // Evicted only now, when nothing can refuse the new connection any more.
        if let Some(lease) = oldest.and_then(|oldest| table.connections.remove(&oldest)) {
            lease.evicted.cancel();
        }
        let lease = Arc::new(DedicatedConnection::new(attempt));
        let used = UseGuard::begin(&lease);
        table.connections.insert(key.clone(), lease);
        DedicatedLookup::New(used, pace)
    }

    /// Spawns the dial. Its task outlives the caller, so that later callers find the same dial.
    fn begin_dial(
        &self,
        used: &UseGuard,
        pace: ReconnectBackoff,
        claim: DedicatedRequest,
        caller: &Arc<Caller>,
        upstream: &Upstream,
    ) {
        let (settings, shared) = (upstream.live_settings.load_full(), upstream.context.clone());
        let DedicatedRequest { key, connect_as: mut whom, lifetime: ends, owner } = claim;
        let row = UpstreamSessionRow::of(&settings, &shared, caller, ends);
        whom.persisted_session = row.as_ref().and_then(UpstreamSessionRow::take_persisted);
        let told = DedicatedNotifier::new(upstream, &key, owner.clone());
        // Watched before the dial, so that no subscription during it is missed.
        let mut hearing = shared.subscriptions.watch(owner, upstream.name.clone());
        hearing.always_lists = told.wants_lists();
        let place = ConnectionTask {
            pool: self.clone(),
            key,
            connection: used.0.clone(),
            lifetime: ends,
            stop: upstream.stop.clone(),
            server: settings.name.clone(),
            metrics: shared.metrics.clone(),
            backoff: settings.backoff,
            health: HealthCheck::of(upstream),
            grace: settings.connect_timeout,
            row,
            watch: hearing,
            notifier: told,
            settings: settings.clone(),
        };
        let attempt = ConnectAttempt {
            settings,
            context: shared,
            times: upstream.timeouts.clone(),
            connect_as: whom,
            backoff: pace,
        };
        tokio::spawn(run_connection(place, attempt, caller.clone()));
    }

    /// Waits until a connection was unused for so long, and takes it out of the table.
    async fn evict_when_unused(
        &self,
        key: &ByteString,
        lease: &Arc<DedicatedConnection>,
        time: Duration,
        otherwise: impl Fn() -> bool,
    ) {
        loop {
            lease.activity.idle_for(time, || lease.use_count.load(Ordering::Acquire) > 0 || otherwise()).await;
            let mut table = self.lock();
            // A caller may have checked it out a moment ago.
            if lease.use_count.load(Ordering::Acquire) == 0 {
                table.remove(key, lease);
                return;
            }
        }
    }

    fn publish_count(&self, server: &str, metrics: &Metrics) {
        let connections = i64::try_from(self.len()).unwrap_or(i64::MAX);
        metrics.server_connections.with_label_values(&[server]).set(connections);
    }

    fn lock(&self) -> MutexGuard<'_, DedicatedTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DedicatedTable {
    /// Removes a connection, unless another one took its place meanwhile.
    fn remove(&mut self, key: &ByteString, lease: &Arc<DedicatedConnection>) {
        if self.connections.get(key).is_some_and(|there| Arc::ptr_eq(there, lease)) {
            self.connections.remove(key);
        }
    }
}

impl DedicatedConnection {
    fn new(attempt: CountedAttempt) -> Self {
        DedicatedConnection {
            opened: OnceLock::new(),
            settled: CancellationToken::new(),
            use_count: AtomicUsize::new(0),
            activity: IdleTracker::default(),
            attempt: Mutex::new(Some(attempt)),
            evicted: CancellationToken::new(),
            released: CancellationToken::new(),
        }
    }

    /// Returns true if it may end to make room: neither a call nor a task has it.
    fn is_unused(&self) -> bool {
        self.use_count.load(Ordering::Acquire) == 0 && !self.activity.has_tasks()
    }

    /// Takes the attempt that opened the connection, if it still counts.
    fn take_attempt(&self) -> Option<CountedAttempt> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the connection, while it is open.
    fn connection(&self) -> Option<&Arc<UpstreamConnection>> {
        self.opened.get()?.as_ref().ok()
    }
}

impl UseGuard {
    /// Takes the connection into use. Call it under the lock of the table.
    fn begin(lease: &Arc<DedicatedConnection>) -> Self {
        lease.use_count.fetch_add(1, Ordering::AcqRel);
        UseGuard(lease.clone())
    }

    /// Records what a call on the connection showed of a task.
    pub(in crate::upstream) fn track_task(&self, task: &TaskState) {
        self.0.activity.track_task(task);
    }
}

impl Drop for UseGuard {
    fn drop(&mut self) {
        // Marked active before the count falls, so that an eviction sees the time of this use.
        self.0.activity.mark_active();
        // An answered call proves the connection.
        if self.0.connection().is_some_and(|active| active.calls.was_answered())
            && let Some(attempt) = self.0.take_attempt()
        {
            attempt.succeed();
        }
        self.0.use_count.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn close(leases: &[Arc<DedicatedConnection>]) {
    let open = leases.iter().filter_map(|lease| lease.connection());
    futures_util::future::join_all(open.map(|active| active.link.close(Vec::new()))).await;
}

/// Returns the error of a connection that cools down, with the time of the next attempt.
fn cooldown_error(server: &str, pause: &ConnectCooldown) -> Error {
    let left = pause.until.saturating_duration_since(Instant::now());
    let when = match left.is_zero() {
        true => String::new(),
        false => format!("; the next attempt can be made in {}", seconds(left)),
    };
    Error::new(McpErrorKind::ServerDown, format!("Server \"{server}\" cannot be connected: {}{when}", pause.reason))
}

/// Context of the task that runs one connection.
struct ConnectionTask {
    pool: DedicatedPool,
    key: ByteString,
    connection: Arc<DedicatedConnection>,
    lifetime: ConnectionLifetime,
    /// Cancelled when the gateway stops the server.
    stop: CancellationToken,
    server: String,
    metrics: Arc<Metrics>,
    backoff: BackoffSettings,
    health: HealthCheck,
    /// Time that calls wait for a new connection after a break.
    grace: Duration,
    /// Row in the store, by which the next process resumes the session.
    row: Option<UpstreamSessionRow>,
    watch: RegistryWatch,
    notifier: DedicatedNotifier,
    settings: Arc<ServerSettings>,
}

/// Parameters of one dial.
struct ConnectAttempt {
    settings: Arc<ServerSettings>,
    context: Arc<UpstreamContext>,
    times: Arc<CallTimeouts>,
    connect_as: ConnectAs,
    backoff: ReconnectBackoff,
}

/// Ends a dial on every path: wakes its waiters, and removes a connection that was not opened.
struct AttemptGuard {
    pool: DedicatedPool,
    key: ByteString,
    connection: Arc<DedicatedConnection>,
}

impl Drop for AttemptGuard {
    fn drop(&mut self) {
        if self.connection.connection().is_none() {
            self.pool.lock().remove(&self.key, &self.connection);
        }
        self.connection.settled.cancel();
    }
}

/// Reason why there is no connection.
enum DialFailure {
    Dial(ConnectError),
    /// The client is gone, or the place was given away.
    Unwanted(&'static str),
}

impl ConnectionTask {
    /// Waits until no client can want the connection. Returns the reason.
    async fn wait_unwanted(&self, caller: &Caller) -> &'static str {
        let ended = async {
            match self.lifetime {
                ConnectionLifetime::WithSession => caller.ended.cancelled().await,
                ConnectionLifetime::Unused | ConnectionLifetime::Idle(_) | ConnectionLifetime::Never => {
                    std::future::pending().await
                }
            }
        };
        tokio::select! {
            () = ended => "the client's session ended",
            () = self.connection.evicted.cancelled() => "its place was given to another client's connection",
            () = self.stop.cancelled() => "it is being stopped",
        }
    }

    /// Records a failed dial and returns its error. The next call may dial again once the backoff allows it.
    fn give_up(&self, pace: ReconnectBackoff, failure: DialFailure) -> Error {
        let mut table = self.pool.lock();
        table.remove(&self.key, &self.connection);
        match failure {
            DialFailure::Dial(error) => {
                if let Some(attempt) = self.connection.take_attempt() {
                    attempt.fail();
                }
                // Both are answers of the server: it does not speak this era.
                let refused = matches!(error, ConnectError::Answered(_) | ConnectError::NoCommonRevision(_));
                table.refused = refused.then(|| self.key.clone());
                let pause = table.backoffs.on_failure(&self.key, pace, &error, Instant::now());
                // A server that speaks one era refuses the other. That is no failure worth a warning.
                let is_known = [Era::Legacy, Era::Modern].map(isolation::era_key).contains(&self.key);
                if !(refused && is_known) {
                    let reason = &*pause.reason;
                    tracing::warn!(server = self.server, "a connection for a single client cannot be opened: {reason}");
                }
                cooldown_error(&self.server, &pause)
            }
            DialFailure::Unwanted(reason) => {
                // The server did nothing wrong: the attempt is returned to the budget.
                drop(self.connection.take_attempt());
                // Evicted during the dial: the key cools down as after a loss.
                if self.connection.evicted.is_cancelled() {
                    table.backoffs.on_loss(&self.key, pace, Duration::ZERO, reason, self.grace);
                }
                let message = format!("Server \"{}\" was not connected: {reason}", self.server);
                Error::new(McpErrorKind::ServerDown, message)
            }
        }
    }
}

/// Opens a connection and runs it until its lifetime is over.
async fn run_connection(place: ConnectionTask, attempt: ConnectAttempt, caller: Arc<Caller>) {
    let attempted =
        AttemptGuard { pool: place.pool.clone(), key: place.key.clone(), connection: place.connection.clone() };
    let ConnectAttempt { settings, context: shared, times, connect_as: whom, backoff: pace } = attempt;
    let opened = tokio::select! {
        // Polled first: a connection that no client wants is not dialed.
        biased;
        reason = place.wait_unwanted(&caller) => Err(DialFailure::Unwanted(reason)),
        opened = dial(&settings, &shared, whom, times) => opened.map_err(DialFailure::Dial),
    };
    drop((settings, shared));
    match opened {
        Ok(active) => {
            let active = Arc::new(active);
            place.pool.lock().backoffs.on_success();
            if let Some(row) = &place.row {
                row.persist(&active);
            }
            // Set before the guard drops, since its drop wakes the callers that read the result.
            let _ = place.connection.opened.set(Ok(active.clone()));
            drop(attempted);
            watch_connection(place, active, caller, pace).await;
        }
        Err(failure) => {
            let error = place.give_up(pace, failure);
            let _ = place.connection.opened.set(Err(error));
            place.pool.publish_count(&place.server, &place.metrics);
        }
    }
}

/// Runs an open connection. Takes it out of the table when its lifetime is over, or on a break.
async fn watch_connection(
    place: ConnectionTask,
    active: Arc<UpstreamConnection>,
    caller: Arc<Caller>,
    pace: ReconnectBackoff,
) {
    let ConnectionTask {
        pool: leases,
        key,
        connection: lease,
        lifetime: ends,
        stop,
        server,
        metrics,
        backoff,
        health,
        grace: patience,
        row,
        watch: hearing,
        notifier: told,
        settings,
    } = place;
    let (began, mut lost) = (Instant::now(), None);
    let subscribed = hearing.subscription_probe();
    let ended = async {
        match ends {
            ConnectionLifetime::WithSession => caller.ended.cancelled().await,
            ConnectionLifetime::Unused => leases.evict_when_unused(&key, &lease, UNUSED_TIME, || false).await,
            ConnectionLifetime::Idle(time) => leases.evict_when_unused(&key, &lease, time, subscribed).await,
            ConnectionLifetime::Never => std::future::pending().await,
        }
    };
    let proven = async {
        tokio::time::sleep(PROVEN).await;
        // The uptime proves the connection, even if no call has ended on it.
        drop(lease.take_attempt());
        std::future::pending::<()>().await;
    };
    let renewed = async {
        match &row {
            Some(row) => row.persist_changes(&active).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = ended => {}
        () = subscriptions::forward_notifications(&*active.server, &caller, hearing, backoff, |notice| told.publish(&server, notice)) => {}
        () = renewed => {}
        () = told.collect_extra_items(&active, &settings) => {}
        () = proven => {}
        () = lease.evicted.cancelled() => {}
        () = lease.released.cancelled() => {}
        reason = health.failed(&active) => {
            tracing::warn!(server, "a connection of one client's is given up: {reason}");
            lost = Some(reason);
        }
        reason = active.link.closed() => lost = Some(reason.to_string()),
        () = stop.cancelled() => {}
    }
    // The connection lives on as the shared one, so that its link stays open.
    if lease.released.is_cancelled() {
        told.end();
        leases.publish_count(&server, &metrics);
        return;
    }
    // A stop closes the link, too. The branch that woke this task first does not tell which came first.
    if stop.is_cancelled() && active.is_persisted.load(Ordering::Relaxed) {
        active.server.detach();
    } else if let Some(row) = &row {
        row.discard();
    }
    // Without a stop, the session ends with the last call that still runs on it.
    stop.is_cancelled().then(|| active.server.close());
    // Removed before the close, so that no call finds a closing connection.
    leases.remove_ended(&key, &lease, lost.as_deref(), (pace, began.elapsed(), patience));
    told.end();
    leases.publish_count(&server, &metrics);
    active.link.close(Vec::new()).await;
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::*;
    use crate::json::{JsonObject, RawJson};
    use crate::model::{Outcome, TaskStatus};
    use crate::upstream::memory::{MemoryServer, ServerBehaviour, call};
    use crate::upstream::{ServerStart, SharingMode};
    use moongate_testing as testing;

    fn key(text: &str) -> ByteString {
        ByteString::from(text)
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn claim_of(name: &str, ends: ConnectionLifetime) -> DedicatedRequest {
        DedicatedRequest {
            key: key(name),
            connect_as: ConnectAs::for_all(None),
            lifetime: ends,
            owner: ConnectionOwner::Era(Era::Legacy),
        }
    }

    fn claim(leases: &DedicatedPool, name: &str) -> Option<UseGuard> {
        match leases.look_up(&claim_of(name, ConnectionLifetime::Never), 2, BackoffSettings::default()) {
            DedicatedLookup::Existing(used) | DedicatedLookup::New(used, _) => Some(used),
            DedicatedLookup::Full => None,
            DedicatedLookup::CoolingDown(_) | DedicatedLookup::Busy(_) => panic!("there is no pause"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_unused_longest_makes_room_and_none_that_is_in_use() {
        let leases = DedicatedPool::default();
        let (first, second) = (claim(&leases, "first").unwrap(), claim(&leases, "second").unwrap());
        assert!(claim(&leases, "third").is_none(), "both are in use");
        let again = claim(&leases, "first").unwrap();
        drop(again);
        assert!(claim(&leases, "third").is_none(), "its other call still has it");
        let evicted = (first.0.evicted.clone(), second.0.evicted.clone());
        for used in [second, first] {
            tokio::time::advance(SECOND).await;
            drop(used);
        }
        let _third = claim(&leases, "third").unwrap();
        assert!(evicted.1.is_cancelled() && !evicted.0.is_cancelled(), "the second was unused longest");
        assert_eq!(leases.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_on_which_a_task_runs_makes_no_room() {
        let leases = DedicatedPool::default();
        let (first, second) = (claim(&leases, "first").unwrap(), claim(&leases, "second").unwrap());
        let (status, ttl) = (TaskStatus::Working, Some(RawJson::number(60_000)));
        let (id, rest) = (ByteString::literal("t"), JsonObject::new());
        first.track_task(&TaskState {
            id,
            status,
            ttl,
            poll_interval: None,
            other_members: rest,
            input_requests: Vec::new(),
            outcome: None,
        });
        let evicted = (first.0.evicted.clone(), second.0.evicted.clone());
        drop(first);
        tokio::time::advance(SECOND).await;
        drop(second);
        let third = claim(&leases, "third").unwrap();
        assert!(!evicted.0.is_cancelled() && evicted.1.is_cancelled(), "the first was unused longest, but runs a task");
        assert!(claim(&leases, "fourth").is_none(), "a task and a call have all there are");
        tokio::time::advance(SECOND * 60).await;
        assert!(claim(&leases, "fourth").is_some() && evicted.0.is_cancelled(), "the task's time is over");
        drop(third);
    }

    #[tokio::test(start_paused = true)]
    async fn all_connections_of_a_server_together_keep_within_the_attempts_of_a_minute() {
        for way in [ServerBehaviour::Dies, ServerBehaviour::DiesLater] {
            let memory = MemoryServer::new(&[way]);
            let upstream = memory.upstream(|_| {});
            let running = tokio::spawn(upstream.clone().run());
            let began = Instant::now();
            while began.elapsed() < SECOND * 55 {
                let callers = (0..20).map(|n| testing::caller(n, Some(&format!("s{n}"))));
                let calls: Vec<_> = callers.map(|caller| call(&upstream, &caller, "t")).collect();
                for call in calls {
                    let _ = call.await.unwrap();
                }
                tokio::time::sleep(SECOND).await;
            }
            assert!((2..=15).contains(&memory.dialed()), "{way:?}: {} starts", memory.dialed());
            upstream.stop().await;
            running.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_clients_of_a_healthy_server_are_connected_at_once() {
        let memory = MemoryServer::new(&[ServerBehaviour::Answers(Duration::from_millis(10))]);
        let upstream = memory.upstream(|_| {});
        let began = Instant::now();
        let callers = (0..100).map(|n| testing::caller(n, Some(&format!("s{n}"))));
        let calls: Vec<_> = callers.map(|caller| call(&upstream, &caller, "t")).collect();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert!(memory.dialed() == 100 && began.elapsed() < SECOND * 5, "{:?}", began.elapsed());
    }

    /// Returns the time until the call failed, and its error.
    async fn failed(call: JoinHandle<Result<Outcome, Error>>) -> (Duration, String) {
        let began = Instant::now();
        let error = call.await.unwrap().unwrap_err();
        (began.elapsed(), error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_wait_for_an_attempt_get_what_came_of_it() {
        let memory = MemoryServer::new(&[ServerBehaviour::Mute]);
        let upstream = memory.upstream(|settings| settings.start_timeout = SECOND * 5);
        let caller = testing::caller(1, Some("s"));
        let began = Instant::now();
        let calls: Vec<_> = (0..10).map(|_| call(&upstream, &caller, "t")).collect();
        for call in calls {
            let (_, told) = failed(call).await;
            assert!(told.contains("servers.a.start_timeout"), "{told}");
        }
        assert_eq!((began.elapsed(), memory.dialed()), (SECOND * 5, 1));
        assert_eq!((upstream.dedicated_count(), memory.open()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_its_connection_in_its_own_time() {
        let memory = MemoryServer::new(&[ServerBehaviour::Mute]);
        let upstream = memory.upstream(|settings| settings.timeout = SECOND * 2);
        let (waited, told) = failed(call(&upstream, &testing::caller(1, Some("s")), "t")).await;
        assert_eq!(waited, SECOND * 2);
        assert!(told.contains("servers.a.timeout"), "{told}");
        // The next call finds the same dial.
        let (waited, _) = failed(call(&upstream, &testing::caller(1, Some("s")), "t")).await;
        assert_eq!((waited, memory.dialed()), (SECOND * 2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_wait_for_one_clients_connection_keep_nobody_else_out() {
        let memory = MemoryServer::new(&[
            ServerBehaviour::Mute,
            ServerBehaviour::Mute,
            ServerBehaviour::Answers(Duration::ZERO),
        ]);
        let upstream = memory.upstream(|settings| settings.max_concurrency = 2);
        let waiting: Vec<_> = ["a", "b"].map(|session| call(&upstream, &testing::caller(1, Some(session)), "t")).into();
        tokio::time::sleep(SECOND).await;
        let other = call(&upstream, &testing::caller(2, Some("c")), "t");
        tokio::time::sleep(SECOND).await;
        assert!(other.is_finished() && waiting.iter().all(|call| !call.is_finished()));
        other.await.unwrap().unwrap();
    }

    /// Returns the number of starts within a minute of calls, and their errors.
    async fn minute_of_calls(way: ServerBehaviour) -> (usize, Vec<String>) {
        let memory = MemoryServer::new(&[way]);
        let upstream = memory.upstream(|_| {});
        let (caller, began) = (testing::caller(1, Some("s")), Instant::now());
        let mut told = Vec::new();
        while began.elapsed() < SECOND * 60 {
            told.push(failed(call(&upstream, &caller, "t")).await.1);
            tokio::time::sleep(SECOND / 10).await;
        }
        assert_eq!(memory.open(), upstream.dedicated_count());
        (memory.dialed(), told)
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_dies_is_started_only_so_often() {
        for way in [ServerBehaviour::Dies, ServerBehaviour::DiesLater, ServerBehaviour::Unstartable] {
            let (started, told) = minute_of_calls(way).await;
            assert!((2..=8).contains(&started), "{way:?}: {started} starts");
            let resting = told.iter().find(|told| told.contains("the next attempt"));
            assert!(resting.is_some_and(|told| told.starts_with("Server \"a\" ")), "{way:?}: {told:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_attempt_leaves_nothing_that_another_opens_unseen() {
        let memory = MemoryServer::new(&[ServerBehaviour::Mute, ServerBehaviour::Answers(Duration::ZERO)]);
        let upstream = memory.upstream(|settings| {
            (settings.share, settings.start_timeout) = (SharingMode::Principal, SECOND);
        });
        let caller = testing::caller(1, None);
        let (first, second) = (call(&upstream, &caller, "t"), call(&upstream, &caller, "t"));
        first.await.unwrap().unwrap_err();
        let _ = second.await.unwrap();
        tokio::time::sleep(SECOND).await;
        assert_eq!(memory.open(), upstream.dedicated_count());
        tokio::time::sleep(SECOND * 10).await;
        call(&upstream, &caller, "t").await.unwrap().unwrap();
        assert_eq!((memory.open(), upstream.dedicated_count()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_principal_that_goes_while_its_connection_opens_leaves_none() {
        let memory = MemoryServer::new(&[ServerBehaviour::Answers(SECOND)]);
        let upstream = memory.upstream(|settings| settings.share = SharingMode::Principal);
        let called = call(&upstream, &testing::caller(1, None), "t");
        // Half-way through the dial.
        tokio::time::sleep(SECOND / 2).await;
        upstream.revoke_principals(&|id| id == 1).await;
        let _ = called.await.unwrap();
        tokio::time::sleep(SECOND * 10).await;
        assert_eq!((memory.open(), upstream.dedicated_count()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_leaves_its_attempt_to_the_next() {
        let memory = MemoryServer::new(&[ServerBehaviour::Answers(SECOND)]);
        let upstream = memory.upstream(|settings| settings.share = SharingMode::Principal);
        let caller = testing::caller(1, None);
        let called = call(&upstream, &caller, "t");
        tokio::time::sleep(SECOND / 2).await;
        // The first caller goes away. Its dial goes on.
        called.abort();
        call(&upstream, &caller, "t").await.unwrap().unwrap();
        assert_eq!((memory.dialed(), memory.open(), upstream.dedicated_count()), (1, 1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_what_is_being_opened() {
        let memory = MemoryServer::new(&[ServerBehaviour::Mute]);
        let upstream = memory.upstream(|_| {});
        let called = call(&upstream, &testing::caller(1, Some("s")), "t");
        tokio::time::sleep(SECOND).await;
        upstream.stop().await;
        called.await.unwrap().unwrap_err();
        assert_eq!((memory.open(), upstream.dedicated_count()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_started_on_use_is_stopped_whoever_has_its_connections() {
        let memory = MemoryServer::new(&[ServerBehaviour::Answers(Duration::ZERO)]);
        let upstream = memory.upstream(|settings| {
            (settings.share, settings.start, settings.idle_stop) =
                (SharingMode::Principal, ServerStart::Lazy, SECOND * 10);
        });
        let running = tokio::spawn(upstream.clone().run());
        let caller = testing::caller(1, None);
        call(&upstream, &caller, "t").await.unwrap().unwrap();
        assert_eq!(upstream.dedicated_count(), 1);
        let hanging = call(&upstream, &caller, "hang");
        tokio::time::sleep(SECOND * 30).await;
        assert_eq!(upstream.dedicated_count(), 1, "a call has it");
        hanging.abort();
        let ear = upstream.context.subscriptions.subscribe(
            &caller,
            false,
            vec![(upstream.name.clone(), ByteString::from("x:1"))],
        );
        tokio::time::sleep(SECOND * 60).await;
        assert_eq!(upstream.dedicated_count(), 1, "somebody is subscribed to what is there");
        drop(ear);
        tokio::time::sleep(SECOND * 60).await;
        assert_eq!((upstream.dedicated_count(), memory.open()), (0, 0));
        call(&upstream, &caller, "t").await.unwrap().unwrap();
        running.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_unused_some_time_after_its_last_call_and_task() {
        let leases = DedicatedPool::default();
        let used = match leases.look_up(&claim_of("a", ConnectionLifetime::Unused), 2, BackoffSettings::default()) {
            DedicatedLookup::New(used, _) => used,
            _ => unreachable!(),
        };
        let (began, lease) = (Instant::now(), used.0.clone());
        let waiting = tokio::spawn({
            let leases = leases.clone();
            async move { leases.evict_when_unused(&key("a"), &lease, UNUSED_TIME, || false).await }
        });
        tokio::time::sleep(UNUSED_TIME * 2).await;
        assert!(!waiting.is_finished(), "a call has it");
        let (status, ttl) = (TaskStatus::Working, Some(RawJson::number(1_200_000)));
        let (id, rest) = (ByteString::literal("t"), JsonObject::new());
        used.track_task(&TaskState {
            id,
            status,
            ttl,
            poll_interval: None,
            other_members: rest,
            input_requests: Vec::new(),
            outcome: None,
        });
        drop(used);
        tokio::time::sleep(UNUSED_TIME * 3).await;
        assert!(!waiting.is_finished() && leases.len() == 1, "a task runs there");
        waiting.await.unwrap();
        assert!(began.elapsed() <= UNUSED_TIME * 8 && leases.len() == 0);
    }

    #[tokio::test]
    async fn whoever_watches_a_connection_of_a_principal_that_is_gone_ends_it() {
        let leases = DedicatedPool::default();
        let claim = |name: &str| match leases.look_up(
            &claim_of(name, ConnectionLifetime::Never),
            3,
            BackoffSettings::default(),
        ) {
            DedicatedLookup::Existing(used) | DedicatedLookup::New(used, _) => used,
            DedicatedLookup::Full | DedicatedLookup::CoolingDown(_) | DedicatedLookup::Busy(_) => {
                panic!("there is room")
            }
        };
        let (gone, other, stateless) = (claim("principal 1"), claim("principal 2"), claim("principal 1, 0"));
        leases.revoke_principals(&|id| id == 1).await;
        assert_eq!(leases.len(), 1);
        assert!(gone.0.evicted.is_cancelled() && stateless.0.evicted.is_cancelled());
        assert!(!other.0.evicted.is_cancelled());
    }
}
