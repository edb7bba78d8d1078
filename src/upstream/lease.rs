//! Connections beside the main one: those that belong to one session or one principal, and the one in the other era.
//!
//! Owns the table of them and its limit. Invariant: a connection kept for one client is never used by another, and is
//! closed when that client's session ends, the connection breaks, or another client needs its place while it is unused.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::json::Text;
use crate::model::{Caller, Error, Notice, Reason};
use crate::revision;
use crate::telemetry::Metrics;
use crate::upstream::connect::{Active, For, open_with};
use crate::upstream::ears::{self, Hearing, Owner};
use crate::upstream::elsewhere::{Elsewhere, Teller};
use crate::upstream::health::Health;
use crate::upstream::settings::Backoff;
use crate::upstream::sharing::{self, Ends};
use crate::upstream::{News, Share, Sink, Upstream, handed};

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
pub(super) struct Leases(Arc<Mutex<HashMap<Text, Arc<Lease>>>>);

struct Lease {
    active: OnceCell<Arc<Active>>,
    /// Calls that have it; changed from 0 only while the table is locked.
    uses: AtomicUsize,
    /// When a call had it last.
    last: Mutex<Instant>,
    freed: Notify,
    /// Cancelled when another client gets its place.
    evicted: CancellationToken,
}

/// A connection is in use until this is dropped.
pub(super) struct Used {
    leases: Leases,
    key: Text,
    lease: Arc<Lease>,
}

impl Leases {
    /// The connection that is claimed for the caller, opened if there is none.
    pub(super) async fn get(
        &self,
        claim: Claim,
        caller: &Arc<Caller>,
        upstream: &Upstream,
    ) -> Result<(Arc<Active>, Used), Error> {
        let (settings, shared) = (upstream.live.load_full(), &upstream.shared);
        let Claim { key, mut whom, ends, owner } = claim;
        let used = self.claim(key, settings.max_connections).ok_or_else(|| {
            shared.metrics.refused.with_label_values(&["max_connections"]).inc();
            let (name, max) = (&settings.name, settings.max_connections);
            let message = format!("Server \"{name}\" has {max} connections for single clients, all in use, and no more are allowed (servers.{name}.max_connections)");
            Error::new(Reason::Overloaded, message)
        })?;
        self.measure(&settings.name, &shared.metrics);
        let opened = used.lease.active.get_or_try_init(|| async {
            let row = handed::Row::of(&settings, shared, caller, ends);
            whom.handed_over = row.as_ref().and_then(handed::Row::take);
            let active = Arc::new(open_with(&settings, shared, whom, upstream.times.clone()).await?);
            if let Some(row) = row {
                row.keep(&active, &caller.ended, &used.lease.evicted);
            }
            let place = Place {
                leases: self.clone(),
                key: used.key.clone(),
                lease: used.lease.clone(),
                ends,
                stop: upstream.stop.clone(),
                server: settings.name.clone(),
                metrics: shared.metrics.clone(),
                backoff: settings.backoff,
                health: Health::of(upstream),
                hearing: shared.ears.hear(owner.clone(), upstream.name.clone()),
                told: Told {
                    lists: Elsewhere::teller(&upstream.elsewhere, owner.clone()),
                    sink: upstream.sink.clone(),
                },
            };
            tokio::spawn(watch(place, active.clone(), caller.clone()));
            Ok(active)
        });
        let opened: Result<Arc<Active>, revision::ConnectError> = opened.await.cloned();
        match opened {
            Ok(active) => Ok((active, used)),
            Err(e) => {
                self.remove(&used.key, &used.lease);
                self.measure(&settings.name, &shared.metrics);
                let message = format!("Server \"{}\" cannot be connected: {e}", settings.name);
                Err(Error::new(Reason::ServerDown, message))
            }
        }
    }

    /// A use of the connection of this name. Where there are too many, the one that was unused longest makes room;
    /// `None`: all are in use.
    fn claim(&self, key: Text, max: usize) -> Option<Used> {
        let mut table = self.lock();
        if table.len() >= max && !table.contains_key(&key) {
            let unused = table.iter().filter(|(_, lease)| lease.uses.load(Ordering::Acquire) == 0);
            let oldest = unused.min_by_key(|(_, lease)| lease.last_use()).map(|(key, _)| key.clone())?;
            if let Some(lease) = table.remove(&oldest) {
                lease.evicted.cancel();
            }
        }
        let lease = table.entry(key.clone()).or_default().clone();
        lease.uses.fetch_add(1, Ordering::AcqRel);
        Some(Used { leases: self.clone(), key, lease })
    }

    /// The caller's connection, if there is one.
    pub(super) fn find(&self, share: Share, caller: &Caller) -> Option<Arc<Active>> {
        let key = sharing::key(share, caller).or_else(|| caller.session.as_ref().map(sharing::session_key))?;
        self.lock().get(&key)?.active.get().cloned()
    }

    /// Whether the caller's session left the shared connection for one of its own.
    pub(super) fn has_own(&self, caller: &Caller) -> bool {
        caller.session.as_ref().is_some_and(|session| self.lock().contains_key(&sharing::session_key(session)))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Closes those of principals that are gone; those of sessions go with their sessions.
    pub(super) async fn close_of(&self, gone: &(dyn Fn(u32) -> bool + Sync)) {
        let theirs = |key: &Text| {
            let id = key.strip_prefix("principal ").and_then(|rest| rest.split(',').next()?.parse().ok());
            id.is_some_and(gone)
        };
        let all: Vec<Arc<Lease>> = self.lock().extract_if(|key, _| theirs(key)).map(|(_, lease)| lease).collect();
        // A connection over HTTP ends with whoever watches it.
        all.iter().for_each(|lease| lease.evicted.cancel());
        close(&all).await;
    }

    /// From now on their servers hear that their sessions end, even where another run could have gone on with them.
    pub(super) fn keep_none(&self) {
        for active in self.lock().values().filter_map(|lease| lease.active.get()) {
            active.is_kept.store(false, Ordering::Relaxed);
        }
    }

    /// Closes all.
    pub(super) async fn close_all(&self) {
        let all: Vec<Arc<Lease>> = self.lock().drain().map(|(_, lease)| lease).collect();
        for active in all.iter().filter_map(|lease| lease.active.get()) {
            if !active.is_kept.load(Ordering::Relaxed) {
                continue;
            }
            active.server.let_go();
        }
        close(&all).await;
    }

    /// Takes a connection out of the table, if it is still that one: another may stand there by now.
    fn remove(&self, key: &Text, lease: &Arc<Lease>) {
        let mut table = self.lock();
        if table.get(key).is_some_and(|there| Arc::ptr_eq(there, lease)) {
            table.remove(key);
        }
    }

    fn measure(&self, server: &str, metrics: &Metrics) {
        let connections = i64::try_from(self.len()).unwrap_or(i64::MAX);
        metrics.server_connections.with_label_values(&[server]).set(connections);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Text, Arc<Lease>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Lease {
    fn default() -> Self {
        Lease {
            active: OnceCell::new(),
            uses: AtomicUsize::new(0),
            last: Mutex::new(Instant::now()),
            freed: Notify::new(),
            evicted: CancellationToken::new(),
        }
    }
}

impl Lease {
    fn last_use(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no call has it.
    async fn free(&self) {
        loop {
            let freed = self.freed.notified();
            if self.uses.load(Ordering::Acquire) == 0 {
                return;
            }
            freed.await;
        }
    }

    /// Waits until no call has had it for a while.
    async fn unused(&self) {
        loop {
            self.free().await;
            let end = self.last_use() + UNUSED_TIME;
            if Instant::now() >= end {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        *self.lease.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        if self.lease.uses.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.lease.freed.notify_waiters();
            // Whoever wanted to open it went away before it was open.
            if self.lease.active.get().is_none() {
                self.leases.remove(&self.key, &self.lease);
            }
        }
    }
}

async fn close(leases: &[Arc<Lease>]) {
    let open = leases.iter().filter_map(|lease| lease.active.get());
    futures_util::future::join_all(open.map(|active| active.link.close(Vec::new()))).await;
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
    hearing: Hearing,
    told: Told,
}

/// Where news go of a connection that is one client's.
struct Told {
    lists: Teller,
    sink: Sink,
}

impl Told {
    fn tell(&self, server: &str, notice: Notice) {
        match notice {
            Notice::Changed(kind) => self.lists.changed(kind),
            Notice::Missed(kind) => self.lists.missed(kind),
            // Which of its owner's clients was sent to that page is known by the elicitation's id.
            Notice::Elicited(id, params) => (self.sink)(server, News::Elicited(id, params)),
            notice @ (Notice::Updated(..) | Notice::Log(..)) => {
                (self.sink)(server, News::Own(self.lists.owner().clone(), Box::new(notice)));
            }
            _ => {}
        }
    }
}

/// Takes the connection out when its time is over or it breaks.
async fn watch(place: Place, active: Arc<Active>, caller: Arc<Caller>) {
    let Place { leases, key, lease, ends, stop, server, metrics, backoff, health, hearing, told } = place;
    let ended = async {
        match ends {
            Ends::WithSession => caller.ended.cancelled().await,
            Ends::Unused => lease.unused().await,
            Ends::Never => std::future::pending().await,
        }
    };
    tokio::select! {
        () = ended => {}
        () = ears::pass_on(&*active.server, &caller, hearing, backoff, |notice| told.tell(&server, notice)) => {}
        () = lease.evicted.cancelled() => {}
        _ = active.link.broken() => {}
        reason = health.lost(&active) => tracing::warn!(server, "a connection of one client's is given up: {reason}"),
        () = stop.cancelled() => {
            if active.is_kept.load(Ordering::Relaxed) {
                active.server.let_go();
            }
            active.server.end();
        }
    }
    leases.remove(&key, &lease);
    leases.measure(&server, &metrics);
    if ends == Ends::Unused && !stop.is_cancelled() {
        // Somebody may have been given it a moment ago.
        tokio::select! {
            () = lease.free() => {}
            _ = active.link.broken() => {}
        }
    }
    active.link.close(Vec::new()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Text {
        Text::from(text)
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_unused_longest_makes_room_and_none_that_is_in_use() {
        let leases = Leases::default();
        let claim = |name: &str| leases.claim(key(name), 2);
        // As if they were open: one that never was goes with its last use.
        let open = |used: &Used| leases.lock().insert(used.key.clone(), used.lease.clone());
        let (first, second) = (claim("first").unwrap(), claim("second").unwrap());
        assert!(claim("third").is_none(), "both are in use");
        let again = claim("first").unwrap();
        drop(again);
        assert!(claim("third").is_none(), "its other call still has it");
        let evicted = (first.lease.evicted.clone(), second.lease.evicted.clone());
        for used in [second, first] {
            let kept = (used.key.clone(), used.lease.clone());
            tokio::time::advance(Duration::from_secs(1)).await;
            drop(used);
            leases.lock().insert(kept.0, kept.1);
        }
        let third = claim("third").unwrap();
        assert!(evicted.1.is_cancelled() && !evicted.0.is_cancelled(), "the second was unused longest");
        open(&third);
        assert_eq!(leases.len(), 2);
    }

    #[tokio::test]
    async fn what_was_never_opened_leaves_nothing_behind() {
        let leases = Leases::default();
        drop(leases.claim(key("a"), 2));
        assert_eq!(leases.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_unused_some_time_after_its_last_call() {
        let leases = Leases::default();
        let used = leases.claim(key("a"), 2).unwrap();
        let lease = used.lease.clone();
        let began = Instant::now();
        let waiting = tokio::spawn(async move { lease.unused().await });
        tokio::time::sleep(UNUSED_TIME * 2).await;
        assert!(!waiting.is_finished(), "a call has it");
        drop(used);
        waiting.await.unwrap();
        assert_eq!(began.elapsed(), UNUSED_TIME * 3);
    }

    #[tokio::test]
    async fn whoever_watches_a_connection_of_a_principal_that_is_gone_ends_it() {
        let leases = Leases::default();
        let claim = |name: &str| leases.claim(key(name), 3).unwrap();
        let (gone, other, stateless) = (claim("principal 1"), claim("principal 2"), claim("principal 1, 0"));
        leases.close_of(&|id| id == 1).await;
        assert_eq!(leases.len(), 1);
        assert!(gone.lease.evicted.is_cancelled() && stateless.lease.evicted.is_cancelled());
        assert!(!other.lease.evicted.is_cancelled());
    }
}
