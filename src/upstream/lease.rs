//! Connections beside the main one: those that belong to one session or one principal, and the one in the other era.
//!
//! Owns the table of them. Invariant: a connection kept for one client is never used by another, and is closed when
//! that client's session ends or the connection breaks.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::json::Text;
use crate::model::{Caller, Error, Filter, Notice, Reason};
use crate::revision;
use crate::upstream::connect::{Active, For, open};
use crate::upstream::{News, Share, Sink, Upstream, asked, handed};

/// Connections of one server that may exist for single clients.
const LEASES_MAX: usize = 256;
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
}

/// When a connection ends that does not break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// With the session that it was opened for.
    WithSession,
    /// When no call has used it for a while.
    Unused,
    /// With the server.
    Never,
}

/// The connections kept for single clients.
#[derive(Default)]
pub(super) struct Leases(Arc<Mutex<HashMap<Text, Lease>>>);

type Lease = Arc<OnceCell<Arc<Active>>>;

/// What a caller's connection is found by; `None`: it uses the shared one.
///
/// A stateless client has no session. What comes nearest is who it is and what it can be asked for: its calls share a
/// connection that was opened with its own capabilities.
pub(super) fn key(share: Share, caller: &Caller) -> Option<Text> {
    let principal = caller.principal.id;
    match (share, &caller.session) {
        (Share::Auto, _) => None,
        (Share::Session, Some(session)) => Some(session.clone()),
        (Share::Session, None) => Some(asked::stateless_key(caller, 0)),
        (Share::Principal, _) => Some(Text::from(format!("principal {principal}"))),
    }
}

impl Leases {
    /// The connection that is claimed for the caller, opened if there is none.
    pub(super) async fn get(
        &self,
        claim: Claim,
        caller: &Arc<Caller>,
        upstream: &Upstream,
    ) -> Result<Arc<Active>, Error> {
        let Upstream { settings, shared, .. } = upstream;
        let Claim { key, mut whom, ends } = claim;
        let lease = {
            let mut table = self.lock();
            if table.len() >= LEASES_MAX && !table.contains_key(&key) {
                shared.metrics.refused.with_label_values(&["leases"]).inc();
                let name = &settings.name;
                return Err(Error::new(
                    Reason::Overloaded,
                    format!(
                        "Server \"{name}\" has {LEASES_MAX} connections for single clients, and no more are allowed (servers.{name}.share)"
                    ),
                ));
            }
            table.entry(key.clone()).or_default().clone()
        };
        let opened = lease.get_or_try_init(|| async {
            let row = handed::Row::of(settings, shared, caller, ends);
            whom.handed_over = row.as_ref().and_then(handed::Row::take);
            let active = Arc::new(open(settings, shared, whom).await?);
            if let Some(row) = row {
                row.keep(&active, &caller.ended);
            }
            let place = Place {
                table: self.0.clone(),
                key: key.clone(),
                lease: lease.clone(),
                ends,
                stop: upstream.stop.clone(),
            };
            tokio::spawn(watch(place, active.clone(), caller.clone(), settings.name.clone(), upstream.sink.clone()));
            Ok(active)
        });
        opened.await.cloned().map_err(|e: revision::ConnectError| {
            remove(&mut self.lock(), &key, &lease);
            Error::new(Reason::ServerDown, format!("Server \"{}\" cannot be connected: {e}", settings.name))
        })
    }

    /// The caller's connection, if there is one.
    pub(super) fn find(&self, share: Share, caller: &Caller) -> Option<Arc<Active>> {
        let key = key(share, caller).or_else(|| caller.session.as_ref().map(asked::session_key))?;
        self.lock().get(&key)?.get().cloned()
    }

    /// Whether the caller's session left the shared connection for one of its own.
    pub(super) fn has_own(&self, caller: &Caller) -> bool {
        caller.session.as_ref().is_some_and(|session| self.lock().contains_key(&asked::session_key(session)))
    }

    /// Closes all.
    pub(super) async fn close_all(&self) {
        let all: Vec<Lease> = self.lock().drain().map(|(_, lease)| lease).collect();
        let all = || all.iter().filter_map(|lease| lease.get());
        for active in all().filter(|active| active.is_kept.load(Ordering::Relaxed)) {
            active.server.let_go();
        }
        let closing = all().map(|active| active.link.close(Vec::new()));
        futures_util::future::join_all(closing).await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Text, Lease>> {
        lock(&self.0)
    }
}

fn lock(table: &Mutex<HashMap<Text, Lease>>) -> MutexGuard<'_, HashMap<Text, Lease>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a connection out of the table, if it is still that one: another may stand there by now.
fn remove(table: &mut HashMap<Text, Lease>, key: &Text, lease: &Lease) {
    if table.get(key).is_some_and(|there| Arc::ptr_eq(there, lease)) {
        table.remove(key);
    }
}

/// Where a connection is kept.
struct Place {
    table: Arc<Mutex<HashMap<Text, Lease>>>,
    key: Text,
    lease: Lease,
    ends: Ends,
    /// Cancelled when the gateway is done with the server.
    stop: CancellationToken,
}

/// Takes the connection out when its time is over or it breaks.
async fn watch(place: Place, active: Arc<Active>, caller: Arc<Caller>, server: String, sink: Sink) {
    let ended = async {
        match place.ends {
            Ends::WithSession => caller.ended.cancelled().await,
            Ends::Unused => unused(&active).await,
            Ends::Never => std::future::pending().await,
        }
    };
    // Of what it says by itself only this is about its own client; changes are told on the shared connection.
    let filter = Filter { elicitations: true, ..Filter::default() };
    let mut pages = active.server.listen(&caller, filter).stream;
    let told = async {
        while let Some(notice) = pages.next().await {
            if let Notice::Elicited(id, params) = notice {
                sink(&server, News::Elicited(id, params));
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = ended => {}
        () = told => {}
        _ = active.link.broken() => {}
        () = place.stop.cancelled() => {
            if active.is_kept.load(Ordering::Relaxed) {
                active.server.let_go();
            }
        }
    }
    remove(&mut lock(&place.table), &place.key, &place.lease);
    if place.ends == Ends::Unused && !place.stop.is_cancelled() {
        // Somebody may have been given it a moment ago.
        tokio::select! {
            () = idle(&active) => {}
            _ = active.link.broken() => {}
        }
    }
    active.link.close(Vec::new()).await;
}

/// Waits until no call is open, nor about to be.
async fn idle(active: &Active) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if active.calls.are_over() {
            return;
        }
    }
}

/// Waits until no call has used the connection for a while.
async fn unused(active: &Active) {
    let mut seen = active.calls.last();
    loop {
        tokio::time::sleep(UNUSED_TIME).await;
        let now = active.calls.last();
        if now == seen && active.calls.are_over() {
            return;
        }
        seen = now;
    }
}
