//! Connections beside the main one: those that belong to one session or one principal, and the one in the other era.
//!
//! Owns the table of them, its limit, and the task that each has from its opening to its end; how often one is tried,
//! `pace` knows. Invariant: a connection kept for one client is never used by another, and is closed when that client's
//! session ends, the connection breaks, or another client needs its place while it is unused. Whatever is opened is in the
//! table, or about to be closed.

mod table;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::json::Text;
use crate::model::{Caller, Error, Reason, Task};
use crate::revision::{ConnectError, Era, Times};
use crate::telemetry::Metrics;
use crate::upstream::attempts::{Attempts, CountedAttempt, PROVEN, Spent};
use crate::upstream::connect::{Active, For, open_with};
use crate::upstream::connections::Seeker;
use crate::upstream::ears::{self, Hearing, Owner};
use crate::upstream::handed::Row;
use crate::upstream::health::Health;
use crate::upstream::need::Need;
use crate::upstream::pace::{Pace, Paces, Pause};
use crate::upstream::settings::Backoff;
use crate::upstream::sharing::{self, Ends};
use crate::upstream::told::Told;
use crate::upstream::{ServerSettings, Shared, Upstream, seconds};

/// How long a connection without a session is kept while no call uses it.
const UNUSED_TIME: Duration = Duration::from_secs(300);

/// A connection that is wanted.
pub(super) struct Claim {
    /// What it is found by.
    pub(super) key: Text,
    /// What it is opened with.
    pub(super) whom: For,
    /// When it ends.
    pub(super) ends: Ends,
    /// Whose it is.
    pub(super) owner: Owner,
}

/// The connections kept for single clients.
#[derive(Clone, Default)]
pub(super) struct Leases(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    leases: HashMap<Text, Arc<Lease>>,
    /// Of those that could not be opened, or broke.
    paces: Paces,
    /// The one whose last attempt the server refused by an answer.
    refused: Option<Text>,
    /// Of all connections of the server.
    attempts: Attempts,
}

struct Lease {
    /// What opening it came to.
    opened: OnceLock<Result<Arc<Active>, Error>>,
    /// Cancelled once that is known.
    settled: CancellationToken,
    /// Calls that have it, or wait for it; changed from 0 only while the table is locked.
    uses: AtomicUsize,
    /// When a call had it last, and the tasks that run on it.
    need: Need,
    /// Counts until a call on it was answered, or it lasts.
    attempt: Mutex<Option<CountedAttempt>>,
    /// Cancelled when another client gets its place, or its principal is gone.
    evicted: CancellationToken,
    /// Cancelled when it is the main connection from now on.
    released: CancellationToken,
}

/// A connection is in use until this is dropped.
pub(super) struct Used(Arc<Lease>);

/// What is found under a name.
enum Claimed {
    /// A connection, or an attempt at one.
    There(Used),
    /// Nothing: it is for the caller to begin an attempt.
    New(Used, Pace),
    /// Other attempts have to come to something first.
    Busy(Instant),
    /// It is not to be tried yet.
    Resting(Pause),
    /// There are too many, all in use.
    Full,
}

impl Leases {
    /// The connection that is claimed for the caller, opened if there is none.
    ///
    /// All who wait for an attempt get what came of it. How that ends is nothing to the breaker: it may be a matter of one
    /// client's capabilities or credentials, which must not keep others from connections that serve them, and each
    /// connection has its own pauses. What cannot be started for anybody has a pause for all (`Paces`).
    pub(super) async fn get(&self, claim: Claim, seeker: &mut Seeker<'_>) -> Result<(Arc<Active>, Used), Error> {
        if let Some(found) = self.at_hand(&claim.key) {
            return Ok(found);
        }
        seeker.ticket.step_aside();
        let used = self.claimed(claim, seeker.caller, seeker.upstream).await?;
        used.0.settled.cancelled().await;
        match used.0.opened.get() {
            Some(Ok(active)) => Ok((active.clone(), used)),
            Some(Err(error)) => Err(error.clone()),
            None => Err(Error::internal("the attempt to connect broke off")),
        }
    }

    /// The connection of this name, if it is open.
    fn at_hand(&self, key: &Text) -> Option<(Arc<Active>, Used)> {
        let table = self.lock();
        let lease = table.leases.get(key)?;
        let active = lease.active()?.clone();
        Some((active, Used::begin(lease)))
    }

    async fn claimed(&self, claim: Claim, caller: &Arc<Caller>, upstream: &Upstream) -> Result<Used, Error> {
        let settings = upstream.live.load_full();
        let (name, max) = (&settings.name, settings.max_connections);
        let attempts = self.attempts();
        loop {
            // Made before the look, so that no end of an attempt is missed.
            let changed = attempts.changed();
            match self.claim(&claim, max, settings.backoff) {
                Claimed::There(used) => return Ok(used),
                Claimed::New(used, pace) => {
                    self.measure(name, &upstream.shared.metrics);
                    self.begin(&used, pace, claim, caller, upstream);
                    return Ok(used);
                }
                Claimed::Busy(until) => {
                    let _ = tokio::time::timeout_at(until, changed).await;
                }
                Claimed::Resting(pause) if pause.is_waited_for() => tokio::time::sleep_until(pause.until).await,
                Claimed::Resting(pause) => return Err(unconnected(name, &pause)),
                Claimed::Full => {
                    upstream.shared.metrics.refused.with_label_values(&["max_connections"]).inc();
                    let message = format!(
                        "Server \"{name}\" has {max} connections for single clients, all in use, and no more are allowed (servers.{name}.max_connections)"
                    );
                    return Err(Error::new(Reason::Overloaded, message));
                }
            }
        }
    }

    /// A use of the connection of this name. Where there are too many, the one that was unused longest makes room.
    fn claim(&self, claim: &Claim, max: usize, backoff: Backoff) -> Claimed {
        let (key, mut table) = (&claim.key, self.lock());
        if let Some(lease) = table.leases.get(key) {
            return Claimed::There(Used::begin(lease));
        }
        let oldest = if table.leases.len() >= max {
            let unused = table.leases.iter().filter(|(_, lease)| lease.is_unused());
            let oldest = unused.min_by_key(|(_, lease)| lease.need.last()).map(|(key, _)| key.clone());
            if oldest.is_none() {
                return Claimed::Full;
            }
            oldest
        } else {
            None
        };
        let attempt = match table.attempts.begin(Instant::now()) {
            Ok(attempt) => attempt,
            Err(Spent::Pending(until)) => return Claimed::Busy(until),
            Err(Spent::Failed(until)) => return Claimed::Resting(table.paces.spent(until)),
        };
        let pace = match table.paces.begin(key, backoff, Instant::now()) {
            Ok(pace) => pace,
            Err(pause) => return Claimed::Resting(pause),
        };
        if let Some(lease) = oldest.and_then(|oldest| table.leases.remove(&oldest)) {
            lease.evicted.cancel();
        }
        let lease = Arc::new(Lease::new(attempt));
        let used = Used::begin(&lease);
        table.leases.insert(key.clone(), lease);
        Claimed::New(used, pace)
    }

    /// Begins to open a connection, whoever waits for it: who comes later finds it.
    fn begin(&self, used: &Used, pace: Pace, claim: Claim, caller: &Arc<Caller>, upstream: &Upstream) {
        let (settings, shared) = (upstream.live.load_full(), upstream.shared.clone());
        let Claim { key, mut whom, ends, owner } = claim;
        let row = Row::of(&settings, &shared, caller, ends);
        whom.handed_over = row.as_ref().and_then(Row::take);
        let told = Told::new(upstream, &key, owner.clone());
        let mut hearing = shared.ears.hear(owner, upstream.name.clone());
        hearing.always_lists = told.wants_lists();
        let place = Place {
            leases: self.clone(),
            key,
            lease: used.0.clone(),
            ends,
            stop: upstream.stop.clone(),
            server: settings.name.clone(),
            metrics: shared.metrics.clone(),
            backoff: settings.backoff,
            health: Health::of(upstream),
            patience: settings.connect_timeout,
            row,
            hearing,
            told,
            settings: settings.clone(),
        };
        let attempt = Attempt { settings, shared, times: upstream.times.clone(), whom, pace };
        tokio::spawn(live(place, attempt, caller.clone()));
    }

    /// Waits until nobody has needed a connection for so long, and takes it out of the table.
    async fn unused(&self, key: &Text, lease: &Arc<Lease>, time: Duration, otherwise: impl Fn() -> bool) {
        loop {
            lease.need.over(time, || lease.uses.load(Ordering::Acquire) > 0 || otherwise()).await;
            let mut table = self.lock();
            // Somebody may have been given it a moment ago.
            if lease.uses.load(Ordering::Acquire) == 0 {
                table.remove(key, lease);
                return;
            }
        }
    }

    fn measure(&self, server: &str, metrics: &Metrics) {
        let connections = i64::try_from(self.len()).unwrap_or(i64::MAX);
        metrics.server_connections.with_label_values(&[server]).set(connections);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Takes a connection out, if it is still that one: another may stand there by now.
    fn remove(&mut self, key: &Text, lease: &Arc<Lease>) {
        if self.leases.get(key).is_some_and(|there| Arc::ptr_eq(there, lease)) {
            self.leases.remove(key);
        }
    }
}

impl Lease {
    fn new(attempt: CountedAttempt) -> Self {
        Lease {
            opened: OnceLock::new(),
            settled: CancellationToken::new(),
            uses: AtomicUsize::new(0),
            need: Need::default(),
            attempt: Mutex::new(Some(attempt)),
            evicted: CancellationToken::new(),
            released: CancellationToken::new(),
        }
    }

    /// Tells whether it may end to make room: neither a call nor a task has it.
    fn is_unused(&self) -> bool {
        self.uses.load(Ordering::Acquire) == 0 && !self.need.has_tasks()
    }

    /// Takes the attempt that it was opened by, if that still counts.
    fn take_attempt(&self) -> Option<CountedAttempt> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The connection, while it is open.
    fn active(&self) -> Option<&Arc<Active>> {
        self.opened.get()?.as_ref().ok()
    }
}

impl Used {
    /// To be called while the table is locked.
    fn begin(lease: &Arc<Lease>) -> Self {
        lease.uses.fetch_add(1, Ordering::AcqRel);
        Used(lease.clone())
    }

    /// A call on the connection showed this of a task.
    pub(super) fn task(&self, task: &Task) {
        self.0.need.task(task);
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        self.0.need.touch();
        if self.0.active().is_some_and(|active| active.calls.were_answered())
            && let Some(attempt) = self.0.take_attempt()
        {
            attempt.serve();
        }
        self.0.uses.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn close(leases: &[Arc<Lease>]) {
    let open = leases.iter().filter_map(|lease| lease.active());
    futures_util::future::join_all(open.map(|active| active.link.close(Vec::new()))).await;
}

/// Why there is no connection, and when another attempt may be made.
fn unconnected(server: &str, pause: &Pause) -> Error {
    let left = pause.until.saturating_duration_since(Instant::now());
    let when = match left.is_zero() {
        true => String::new(),
        false => format!("; the next attempt can be made in {}", seconds(left)),
    };
    Error::new(Reason::ServerDown, format!("Server \"{server}\" cannot be connected: {}{when}", pause.reason))
}

/// Where a connection is kept.
struct Place {
    leases: Leases,
    key: Text,
    lease: Arc<Lease>,
    ends: Ends,
    /// Cancelled when the gateway is done with the server.
    stop: CancellationToken,
    server: String,
    metrics: Arc<Metrics>,
    backoff: Backoff,
    health: Health,
    /// How long calls wait where it breaks.
    patience: Duration,
    /// What another run finds of it.
    row: Option<Row>,
    hearing: Hearing,
    told: Told,
    settings: Arc<ServerSettings>,
}

/// What a connection is opened with.
struct Attempt {
    settings: Arc<ServerSettings>,
    shared: Arc<Shared>,
    times: Arc<Times>,
    whom: For,
    pace: Pace,
}

/// However an attempt ends, nobody waits for it after that, and what was not opened is not in the table.
struct Attempted {
    leases: Leases,
    key: Text,
    lease: Arc<Lease>,
}

impl Drop for Attempted {
    fn drop(&mut self) {
        if self.lease.active().is_none() {
            self.leases.lock().remove(&self.key, &self.lease);
        }
        self.lease.settled.cancel();
    }
}

/// Why there is none.
enum Failure {
    Connect(ConnectError),
    /// Nobody can want it any more.
    Unwanted(&'static str),
}

impl Place {
    /// Waits until nobody can want the connection, and says why.
    async fn unwanted(&self, caller: &Caller) -> &'static str {
        let ended = async {
            match self.ends {
                Ends::WithSession => caller.ended.cancelled().await,
                Ends::Unused | Ends::Idle(_) | Ends::Never => std::future::pending().await,
            }
        };
        tokio::select! {
            () = ended => "the client's session ended",
            () = self.lease.evicted.cancelled() => "its place was given to another client's connection",
            () = self.stop.cancelled() => "it is being stopped",
        }
    }

    /// There will be no connection: the next call may make another attempt, when it is time for that.
    fn give_up(&self, pace: Pace, failure: Failure) -> Error {
        let mut table = self.leases.lock();
        table.remove(&self.key, &self.lease);
        match failure {
            Failure::Connect(error) => {
                if let Some(attempt) = self.lease.take_attempt() {
                    attempt.fail();
                }
                let refused = matches!(error, ConnectError::Answered(_) | ConnectError::NoCommonRevision(_));
                table.refused = refused.then(|| self.key.clone());
                let pause = table.paces.failed(&self.key, pace, &error, Instant::now());
                // One that refuses an era may well speak one alone.
                let is_known = [Era::Legacy, Era::Modern].map(sharing::era_key).contains(&self.key);
                if !(refused && is_known) {
                    let reason = &*pause.reason;
                    tracing::warn!(server = self.server, "a connection for a single client cannot be opened: {reason}");
                }
                unconnected(&self.server, &pause)
            }
            Failure::Unwanted(reason) => {
                drop(self.lease.take_attempt());
                if self.lease.evicted.is_cancelled() {
                    table.paces.lost(&self.key, pace, Duration::ZERO, reason, self.patience);
                }
                let message = format!("Server \"{}\" was not connected: {reason}", self.server);
                Error::new(Reason::ServerDown, message)
            }
        }
    }
}

/// Opens a connection, and keeps it until its time is over.
async fn live(place: Place, attempt: Attempt, caller: Arc<Caller>) {
    let attempted = Attempted { leases: place.leases.clone(), key: place.key.clone(), lease: place.lease.clone() };
    let Attempt { settings, shared, times, whom, pace } = attempt;
    let opened = tokio::select! {
        biased;
        reason = place.unwanted(&caller) => Err(Failure::Unwanted(reason)),
        opened = open_with(&settings, &shared, whom, times) => opened.map_err(Failure::Connect),
    };
    drop((settings, shared));
    match opened {
        Ok(active) => {
            let active = Arc::new(active);
            place.leases.lock().paces.opened();
            if let Some(row) = &place.row {
                row.keep(&active);
            }
            let _ = place.lease.opened.set(Ok(active.clone()));
            drop(attempted);
            watch(place, active, caller, pace).await;
        }
        Err(failure) => {
            let error = place.give_up(pace, failure);
            let _ = place.lease.opened.set(Err(error));
            place.leases.measure(&place.server, &place.metrics);
        }
    }
}

/// Takes the connection out when its time is over or it breaks.
async fn watch(place: Place, active: Arc<Active>, caller: Arc<Caller>, pace: Pace) {
    let Place {
        leases,
        key,
        lease,
        ends,
        stop,
        server,
        metrics,
        backoff,
        health,
        patience,
        row,
        hearing,
        told,
        settings,
    } = place;
    let (began, mut lost) = (Instant::now(), None);
    let subscribed = hearing.subscribed();
    let ended = async {
        match ends {
            Ends::WithSession => caller.ended.cancelled().await,
            Ends::Unused => leases.unused(&key, &lease, UNUSED_TIME, || false).await,
            Ends::Idle(time) => leases.unused(&key, &lease, time, subscribed).await,
            Ends::Never => std::future::pending().await,
        }
    };
    let proven = async {
        tokio::time::sleep(PROVEN).await;
        drop(lease.take_attempt());
        std::future::pending::<()>().await;
    };
    let renewed = async {
        match &row {
            Some(row) => row.follow(&active).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = ended => {}
        () = ears::pass_on(&*active.server, &caller, hearing, backoff, |notice| told.tell(&server, notice)) => {}
        () = renewed => {}
        () = told.take_lists(&active, &settings) => {}
        () = proven => {}
        () = lease.evicted.cancelled() => {}
        () = lease.released.cancelled() => {}
        reason = health.lost(&active) => {
            tracing::warn!(server, "a connection of one client's is given up: {reason}");
            lost = Some(reason);
        }
        reason = active.link.broken() => lost = Some(reason.to_string()),
        () = stop.cancelled() => {}
    }
    if lease.released.is_cancelled() {
        told.end();
        leases.measure(&server, &metrics);
        return;
    }
    // At a stop the link is closed, too: what woke this task first means nothing.
    if stop.is_cancelled() && active.is_kept.load(Ordering::Relaxed) {
        active.server.let_go();
    } else if let Some(row) = &row {
        row.forget();
    }
    // Else with the last call that still runs on it.
    stop.is_cancelled().then(|| active.server.end());
    leases.take_out(&key, &lease, lost.as_deref(), (pace, began.elapsed(), patience));
    told.end();
    leases.measure(&server, &metrics);
    active.link.close(Vec::new()).await;
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::*;
    use crate::json::{Object, Raw};
    use crate::model::{Outcome, TaskStatus, testing};
    use crate::upstream::memory::{Memory, Way, call};
    use crate::upstream::{Share, Start};

    fn key(text: &str) -> Text {
        Text::from(text)
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn claim_of(name: &str, ends: Ends) -> Claim {
        Claim { key: key(name), whom: For::everybody(None), ends, owner: Owner::Era(Era::Legacy) }
    }

    fn claim(leases: &Leases, name: &str) -> Option<Used> {
        match leases.claim(&claim_of(name, Ends::Never), 2, Backoff::default()) {
            Claimed::There(used) | Claimed::New(used, _) => Some(used),
            Claimed::Full => None,
            Claimed::Resting(_) | Claimed::Busy(_) => panic!("there is no pause"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_unused_longest_makes_room_and_none_that_is_in_use() {
        let leases = Leases::default();
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
        let leases = Leases::default();
        let (first, second) = (claim(&leases, "first").unwrap(), claim(&leases, "second").unwrap());
        let (status, ttl) = (TaskStatus::Working, Some(Raw::number(60_000)));
        let (id, rest) = (Text::literal("t"), Object::new());
        first.task(&Task { id, status, ttl, poll: None, rest, questions: Vec::new(), end: None });
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
        for way in [Way::Dies, Way::DiesLater] {
            let memory = Memory::new(&[way]);
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
        let memory = Memory::new(&[Way::Answers(Duration::from_millis(10))]);
        let upstream = memory.upstream(|_| {});
        let began = Instant::now();
        let callers = (0..100).map(|n| testing::caller(n, Some(&format!("s{n}"))));
        let calls: Vec<_> = callers.map(|caller| call(&upstream, &caller, "t")).collect();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert!(memory.dialed() == 100 && began.elapsed() < SECOND * 5, "{:?}", began.elapsed());
    }

    /// How long it took, and what it said.
    async fn failed(call: JoinHandle<Result<Outcome, Error>>) -> (Duration, String) {
        let began = Instant::now();
        let error = call.await.unwrap().unwrap_err();
        (began.elapsed(), error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_wait_for_an_attempt_get_what_came_of_it() {
        let memory = Memory::new(&[Way::Mute]);
        let upstream = memory.upstream(|settings| settings.start_timeout = SECOND * 5);
        let caller = testing::caller(1, Some("s"));
        let began = Instant::now();
        let calls: Vec<_> = (0..10).map(|_| call(&upstream, &caller, "t")).collect();
        for call in calls {
            let (_, told) = failed(call).await;
            assert!(told.contains("servers.a.start_timeout"), "{told}");
        }
        assert_eq!((began.elapsed(), memory.dialed()), (SECOND * 5, 1));
        assert_eq!((upstream.connections(), memory.open()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_its_connection_in_its_own_time() {
        let memory = Memory::new(&[Way::Mute]);
        let upstream = memory.upstream(|settings| settings.timeout = SECOND * 2);
        let (waited, told) = failed(call(&upstream, &testing::caller(1, Some("s")), "t")).await;
        assert_eq!(waited, SECOND * 2);
        assert!(told.contains("servers.a.timeout"), "{told}");
        // Whoever comes next finds the same attempt.
        let (waited, _) = failed(call(&upstream, &testing::caller(1, Some("s")), "t")).await;
        assert_eq!((waited, memory.dialed()), (SECOND * 2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_wait_for_one_clients_connection_keep_nobody_else_out() {
        let memory = Memory::new(&[Way::Mute, Way::Mute, Way::Answers(Duration::ZERO)]);
        let upstream = memory.upstream(|settings| settings.max_concurrency = 2);
        let waiting: Vec<_> = ["a", "b"].map(|session| call(&upstream, &testing::caller(1, Some(session)), "t")).into();
        tokio::time::sleep(SECOND).await;
        let other = call(&upstream, &testing::caller(2, Some("c")), "t");
        tokio::time::sleep(SECOND).await;
        assert!(other.is_finished() && waiting.iter().all(|call| !call.is_finished()));
        other.await.unwrap().unwrap();
    }

    /// How often a server was started in a minute of calls.
    async fn minute_of_calls(way: Way) -> (usize, Vec<String>) {
        let memory = Memory::new(&[way]);
        let upstream = memory.upstream(|_| {});
        let (caller, began) = (testing::caller(1, Some("s")), Instant::now());
        let mut told = Vec::new();
        while began.elapsed() < SECOND * 60 {
            told.push(failed(call(&upstream, &caller, "t")).await.1);
            tokio::time::sleep(SECOND / 10).await;
        }
        assert_eq!(memory.open(), upstream.connections());
        (memory.dialed(), told)
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_dies_is_started_only_so_often() {
        for way in [Way::Dies, Way::DiesLater, Way::Unstartable] {
            let (started, told) = minute_of_calls(way).await;
            assert!((2..=8).contains(&started), "{way:?}: {started} starts");
            let resting = told.iter().find(|told| told.contains("the next attempt"));
            assert!(resting.is_some_and(|told| told.starts_with("Server \"a\" ")), "{way:?}: {told:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_attempt_leaves_nothing_that_another_opens_unseen() {
        let memory = Memory::new(&[Way::Mute, Way::Answers(Duration::ZERO)]);
        let upstream = memory.upstream(|settings| {
            (settings.share, settings.start_timeout) = (Share::Principal, SECOND);
        });
        let caller = testing::caller(1, None);
        let (first, second) = (call(&upstream, &caller, "t"), call(&upstream, &caller, "t"));
        first.await.unwrap().unwrap_err();
        let _ = second.await.unwrap();
        tokio::time::sleep(SECOND).await;
        assert_eq!(memory.open(), upstream.connections());
        tokio::time::sleep(SECOND * 10).await;
        call(&upstream, &caller, "t").await.unwrap().unwrap();
        assert_eq!((memory.open(), upstream.connections()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_principal_that_goes_while_its_connection_opens_leaves_none() {
        let memory = Memory::new(&[Way::Answers(SECOND)]);
        let upstream = memory.upstream(|settings| settings.share = Share::Principal);
        let called = call(&upstream, &testing::caller(1, None), "t");
        tokio::time::sleep(SECOND / 2).await;
        upstream.forget(&|id| id == 1).await;
        let _ = called.await.unwrap();
        tokio::time::sleep(SECOND * 10).await;
        assert_eq!((memory.open(), upstream.connections()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_leaves_its_attempt_to_the_next() {
        let memory = Memory::new(&[Way::Answers(SECOND)]);
        let upstream = memory.upstream(|settings| settings.share = Share::Principal);
        let caller = testing::caller(1, None);
        let called = call(&upstream, &caller, "t");
        tokio::time::sleep(SECOND / 2).await;
        called.abort();
        call(&upstream, &caller, "t").await.unwrap().unwrap();
        assert_eq!((memory.dialed(), memory.open(), upstream.connections()), (1, 1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_what_is_being_opened() {
        let memory = Memory::new(&[Way::Mute]);
        let upstream = memory.upstream(|_| {});
        let called = call(&upstream, &testing::caller(1, Some("s")), "t");
        tokio::time::sleep(SECOND).await;
        upstream.stop().await;
        called.await.unwrap().unwrap_err();
        assert_eq!((memory.open(), upstream.connections()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_started_on_use_is_stopped_whoever_has_its_connections() {
        let memory = Memory::new(&[Way::Answers(Duration::ZERO)]);
        let upstream = memory.upstream(|settings| {
            (settings.share, settings.start, settings.idle_stop) = (Share::Principal, Start::Lazy, SECOND * 10);
        });
        let running = tokio::spawn(upstream.clone().run());
        let caller = testing::caller(1, None);
        call(&upstream, &caller, "t").await.unwrap().unwrap();
        assert_eq!(upstream.connections(), 1);
        let hanging = call(&upstream, &caller, "hang");
        tokio::time::sleep(SECOND * 30).await;
        assert_eq!(upstream.connections(), 1, "a call has it");
        hanging.abort();
        let ear = upstream.shared.ears.listen(&caller, false, vec![(upstream.name.clone(), Text::from("x:1"))]);
        tokio::time::sleep(SECOND * 60).await;
        assert_eq!(upstream.connections(), 1, "somebody is subscribed to what is there");
        drop(ear);
        tokio::time::sleep(SECOND * 60).await;
        assert_eq!((upstream.connections(), memory.open()), (0, 0));
        call(&upstream, &caller, "t").await.unwrap().unwrap();
        running.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_unused_some_time_after_its_last_call_and_task() {
        let leases = Leases::default();
        let used = match leases.claim(&claim_of("a", Ends::Unused), 2, Backoff::default()) {
            Claimed::New(used, _) => used,
            _ => unreachable!(),
        };
        let (began, lease) = (Instant::now(), used.0.clone());
        let waiting = tokio::spawn({
            let leases = leases.clone();
            async move { leases.unused(&key("a"), &lease, UNUSED_TIME, || false).await }
        });
        tokio::time::sleep(UNUSED_TIME * 2).await;
        assert!(!waiting.is_finished(), "a call has it");
        let (status, ttl) = (TaskStatus::Working, Some(Raw::number(1_200_000)));
        let (id, rest) = (Text::literal("t"), Object::new());
        used.task(&Task { id, status, ttl, poll: None, rest, questions: Vec::new(), end: None });
        drop(used);
        tokio::time::sleep(UNUSED_TIME * 3).await;
        assert!(!waiting.is_finished() && leases.len() == 1, "a task runs there");
        waiting.await.unwrap();
        assert!(began.elapsed() <= UNUSED_TIME * 8 && leases.len() == 0);
    }

    #[tokio::test]
    async fn whoever_watches_a_connection_of_a_principal_that_is_gone_ends_it() {
        let leases = Leases::default();
        let claim = |name: &str| match leases.claim(&claim_of(name, Ends::Never), 3, Backoff::default()) {
            Claimed::There(used) | Claimed::New(used, _) => used,
            Claimed::Full | Claimed::Resting(_) | Claimed::Busy(_) => panic!("there is room"),
        };
        let (gone, other, stateless) = (claim("principal 1"), claim("principal 2"), claim("principal 1, 0"));
        leases.close_of(&|id| id == 1).await;
        assert_eq!(leases.len(), 1);
        assert!(gone.0.evicted.is_cancelled() && stateless.0.evicted.is_cancelled());
        assert!(!other.0.evicted.is_cancelled());
    }
}
