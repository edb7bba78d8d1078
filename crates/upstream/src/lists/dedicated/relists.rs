//! List fetches that dedicated connections cause. Owns the pending changes of each owner, and the
//! fetch times. Does not fetch lists (`supervisor/refresh.rs`). Invariant: an owner is notified of
//! a change only after a later fetch of the shared lists. An owner without a connection is not
//! notified: its client finds the change in the shared lists.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::connection_owner::ConnectionOwner;
use crate::lists::fetch::SETTLE_TIME;
use moongate_model::ItemKind;

/// Shortest interval between fetches for announced changes. With many connections, changes are
/// announced all the time.
const CHANGED_INTERVAL: Duration = Duration::from_secs(2);
/// Longest interval, after announcements that changed nothing. A change may be one of the
/// connection's own list, which shows only later, so it must not wait for long.
const CHANGED_INTERVAL_MAX: Duration = Duration::from_secs(8);
/// Time without an announcement after which the next one is believed again.
const QUIET_TIME: Duration = Duration::from_secs(60);
/// Shortest interval between fetches for changes that may have been missed. Proxies cut all
/// streams, often once a minute. Changes of the shared lists are announced on the shared connection
/// as well.
const MAYBE_CHANGED_INTERVAL: Duration = Duration::from_secs(60);

/// Fetches that the dedicated connections of one server cause, and when each is due.
#[derive(Default)]
pub(crate) struct DedicatedRelists {
    pending: Mutex<PendingRelists>,
    has_pending: Notify,
}

#[derive(Default)]
struct PendingRelists {
    /// Changes by owner. Owners without a connection are removed, so that `max_connections` bounds
    /// the map.
    owners: HashMap<ConnectionOwner, OwnerChanges>,
    /// Time since when an announced change waits.
    changed_since: Option<Instant>,
    /// Time of the last announced change.
    announced_at: Option<Instant>,
    /// Fetches in a row for announced changes that brought the same shared lists.
    unchanged: u32,
    /// Lists that may have changed unnoticed.
    maybe_changed: KindFlags,
    /// Time since when such a list waits.
    maybe_changed_since: Option<Instant>,
    /// True while lists are fetched.
    in_progress: bool,
    /// Time of the last fetch.
    last_listed: Option<Instant>,
}

/// Flag for each kind of list.
type KindFlags = [bool; ItemKind::ALL.len()];

#[derive(Default)]
struct OwnerChanges {
    /// Number of the owner's connections.
    connections: usize,
    /// Lists that changed.
    changed: KindFlags,
    /// Changed lists that the current fetch covers.
    in_progress: KindFlags,
}

/// Reporter of one connection, for as long as it may announce changes.
pub(crate) struct ChangeReporter {
    relists: Arc<DedicatedRelists>,
    owner: ConnectionOwner,
}

impl DedicatedRelists {
    /// Creates the reporter of one connection of this owner.
    pub(crate) fn reporter(relists: &Arc<Self>, owner: ConnectionOwner) -> ChangeReporter {
        relists
            .pending
            .lock()
            .owners
            .entry(owner.clone())
            .or_default()
            .connections += 1;
        ChangeReporter {
            relists: relists.clone(),
            owner,
        }
    }

    /// Waits for the next lists to fetch: lists that changed or may have changed. This wait and the
    /// fetch can be cancelled without loss. [`DedicatedRelists::completed`] ends it.
    pub(crate) async fn next_batch(&self) -> Vec<ItemKind> {
        loop {
            let due = self.pending.lock().due();
            match due {
                None => self.has_pending.notified().await,
                Some(due) if due > Instant::now() => {
                    // New work may be due earlier.
                    let _ = timeout_at(due, self.has_pending.notified()).await;
                }
                Some(_) => {
                    let kinds = self.pending.lock().take_batch();
                    if !kinds.is_empty() {
                        return kinds;
                    }
                }
            }
        }
    }

    /// Ends a fetch. Returns the clients to notify, and of which lists. Empty if the fetch was for
    /// another reason.
    pub(crate) fn completed(&self) -> Vec<(ConnectionOwner, ItemKind)> {
        let mut pending = self.pending.lock();
        // A regular fetch also ends here, and no owner waits for that one.
        if !std::mem::take(&mut pending.in_progress) {
            return Vec::new();
        }
        pending.last_listed = Some(Instant::now());
        let is_announced = pending.owners.values().any(OwnerChanges::is_in_progress);
        pending.unchanged = pending.unchanged.saturating_add(u32::from(is_announced));
        let mut changed = Vec::new();
        for (owner, changes) in &mut pending.owners {
            let taken = std::mem::take(&mut changes.in_progress);
            let kinds = ItemKind::ALL
                .into_iter()
                .filter(|kind| taken[*kind as usize]);
            changed.extend(kinds.map(|kind| (owner.clone(), kind)));
        }
        changed
    }

    /// Records that a fetch brought other shared lists.
    pub(crate) fn record_difference(&self) {
        self.pending.lock().unchanged = 0;
    }
}

impl OwnerChanges {
    /// Returns true if the current fetch is for one of the owner's changes.
    fn is_in_progress(&self) -> bool {
        self.in_progress.contains(&true)
    }
}

impl PendingRelists {
    /// Returns the shortest interval between fetches for announced changes. Some servers announce
    /// their lists all the time.
    fn changed_interval(&self) -> Duration {
        // The first one may have been right.
        let doublings = self.unchanged.saturating_sub(1).min(16);
        CHANGED_INTERVAL
            .saturating_mul(1 << doublings)
            .min(CHANGED_INTERVAL_MAX)
    }

    /// Returns the time of the next fetch.
    fn due(&self) -> Option<Instant> {
        if self.in_progress {
            // The fetch was cancelled before its end.
            return Some(Instant::now());
        }
        let due = [
            self.due_since(self.changed_since, self.changed_interval()),
            self.due_since(self.maybe_changed_since, MAYBE_CHANGED_INTERVAL),
        ];
        due.into_iter().flatten().min()
    }

    /// Returns the time of the fetch for a change at this time, if there was one.
    fn due_since(&self, changed_at: Option<Instant>, interval: Duration) -> Option<Instant> {
        let settled = changed_at? + SETTLE_TIME;
        Some(
            self.last_listed
                .map_or(settled, |last| settled.max(last + interval)),
        )
    }

    /// Takes all lists that wait.
    fn take_batch(&mut self) -> Vec<ItemKind> {
        (self.changed_since, self.maybe_changed_since) = (None, None);
        let mut wanted = std::mem::take(&mut self.maybe_changed);
        for changes in self.owners.values_mut() {
            let changed = std::mem::take(&mut changes.changed);
            for kind in ItemKind::ALL.map(|kind| kind as usize) {
                // A cancelled fetch left its lists in progress. This batch includes them.
                changes.in_progress[kind] |= changed[kind];
                wanted[kind] |= changes.in_progress[kind];
            }
        }
        // Templates have no separate notification.
        wanted[ItemKind::Templates as usize] |= wanted[ItemKind::Resources as usize];
        let kinds: Vec<ItemKind> = ItemKind::ALL
            .into_iter()
            .filter(|kind| wanted[*kind as usize])
            .collect();
        self.in_progress = !kinds.is_empty();
        kinds
    }
}

impl ChangeReporter {
    /// Returns the owner of the connection.
    pub(crate) fn owner(&self) -> &ConnectionOwner {
        &self.owner
    }

    /// Records a change of a list. The owner is notified even if the shared lists stay the same.
    pub(crate) fn report_changed(&self, kind: ItemKind) {
        let mut pending = self.relists.pending.lock();
        let now = Instant::now();
        if pending
            .announced_at
            .replace(now)
            .is_some_and(|last| now - last > QUIET_TIME)
        {
            pending.unchanged = 0;
        }
        if let Some(changes) = pending.owners.get_mut(&self.owner) {
            changes.changed[kind as usize] = true;
            // The first change starts the clock. Later ones do not delay the fetch.
            pending.changed_since.get_or_insert_with(Instant::now);
        }
        drop(pending);
        self.relists.has_pending.notify_one();
    }

    /// Records that a list may have changed. The owner is notified like all others, if the shared
    /// lists change.
    pub(crate) fn report_maybe_changed(&self, kind: ItemKind) {
        let mut pending = self.relists.pending.lock();
        pending.maybe_changed[kind as usize] = true;
        pending.maybe_changed_since.get_or_insert_with(Instant::now);
        drop(pending);
        self.relists.has_pending.notify_one();
    }
}

impl Drop for ChangeReporter {
    fn drop(&mut self) {
        let mut pending = self.relists.pending.lock();
        let Some(changes) = pending.owners.get_mut(&self.owner) else {
            return;
        };
        changes.connections -= 1;
        if changes.connections == 0 {
            pending.owners.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use moongate_jsonrpc::json::ByteString;

    fn owner(session: &str) -> ConnectionOwner {
        ConnectionOwner::Session(ByteString::from(session))
    }

    /// Returns the time until lists are to be fetched, and which ones.
    async fn due(relists: &DedicatedRelists) -> (Duration, Vec<ItemKind>) {
        let began = Instant::now();
        let kinds = relists.next_batch().await;
        (began.elapsed(), kinds)
    }

    #[tokio::test(start_paused = true)]
    async fn lists_are_taken_at_once_and_then_at_most_so_often() {
        let relists = Arc::new(DedicatedRelists::default());
        let reporters: Vec<ChangeReporter> = (0..100)
            .map(|n| DedicatedRelists::reporter(&relists, owner(&n.to_string())))
            .collect();
        // The first interval has passed, so that only the settle time counts.
        tokio::time::advance(CHANGED_INTERVAL).await;
        reporters
            .iter()
            .for_each(|reporter| reporter.report_changed(ItemKind::Tools));
        assert_eq!(due(&relists).await, (SETTLE_TIME, vec![ItemKind::Tools]));
        // The time that the fetch takes does not count as a delay.
        tokio::time::advance(CHANGED_INTERVAL).await;
        assert_eq!(relists.completed().len(), 100);
        // Templates are fetched with resources.
        reporters[0].report_changed(ItemKind::Resources);
        assert_eq!(
            due(&relists).await,
            (
                CHANGED_INTERVAL,
                vec![ItemKind::Resources, ItemKind::Templates]
            )
        );
        assert_eq!(relists.completed(), [(owner("0"), ItemKind::Resources)]);
        assert_eq!(relists.completed(), []);
    }

    /// Reports a possible change of all lists by each reporter.
    fn report_maybe_changed(reporters: &[ChangeReporter]) {
        for reporter in reporters {
            ItemKind::ALL
                .into_iter()
                .for_each(|kind| reporter.report_maybe_changed(kind));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reopened_streams_relist_once_a_minute_and_report_no_change() {
        let relists = Arc::new(DedicatedRelists::default());
        let reporters: Vec<ChangeReporter> = (0..100)
            .map(|n| DedicatedRelists::reporter(&relists, owner(&n.to_string())))
            .collect();
        report_maybe_changed(&reporters);
        assert_eq!(due(&relists).await, (SETTLE_TIME, ItemKind::ALL.to_vec()));
        assert_eq!(
            relists.completed(),
            [],
            "nobody knows that anything changed"
        );
        // Now the long interval applies.
        report_maybe_changed(&reporters);
        assert_eq!(
            due(&relists).await,
            (MAYBE_CHANGED_INTERVAL, ItemKind::ALL.to_vec())
        );
        relists.completed();
        // A certain change does not wait for a possible one, although it comes later.
        report_maybe_changed(&reporters);
        let later = async {
            tokio::time::sleep(CHANGED_INTERVAL).await;
            reporters[0].report_changed(ItemKind::Prompts);
        };
        let ((waited, kinds), ()) = tokio::join!(due(&relists), later);
        assert_eq!(waited, CHANGED_INTERVAL + SETTLE_TIME);
        assert_eq!(kinds, ItemKind::ALL);
        assert_eq!(relists.completed(), [(owner("0"), ItemKind::Prompts)]);
    }

    #[tokio::test(start_paused = true)]
    async fn reports_of_closed_connections_are_dropped() {
        let relists = Arc::new(DedicatedRelists::default());
        for n in 0..1000 {
            DedicatedRelists::reporter(&relists, owner(&n.to_string()))
                .report_changed(ItemKind::Tools);
        }
        assert!(
            relists.pending.lock().owners.is_empty(),
            "also while nobody takes any list"
        );
        assert_eq!(relists.next_batch().now_or_never(), None);
        // The settle time is over, but no owner is left.
        tokio::time::advance(SETTLE_TIME).await;
        assert_eq!(
            relists.next_batch().now_or_never(),
            None,
            "no owner is to be notified"
        );
        let first = DedicatedRelists::reporter(&relists, owner("s"));
        let second = DedicatedRelists::reporter(&relists, owner("s"));
        first.report_changed(ItemKind::Tools);
        drop(first);
        assert_eq!(relists.next_batch().await, [ItemKind::Tools]);
        assert_eq!(
            relists.completed(),
            [(owner("s"), ItemKind::Tools)],
            "the owner has another connection"
        );
        drop(second);
        assert!(relists.pending.lock().owners.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn changes_of_an_aborted_relist_are_still_published() {
        let relists = Arc::new(DedicatedRelists::default());
        let reporter = DedicatedRelists::reporter(&relists, owner("s"));
        reporter.report_changed(ItemKind::Tools);
        assert_eq!(relists.next_batch().await, [ItemKind::Tools]);
        // The shared connection ended meanwhile. Its successor continues the fetch.
        reporter.report_changed(ItemKind::Prompts);
        assert_eq!(
            due(&relists).await,
            (Duration::ZERO, vec![ItemKind::Tools, ItemKind::Prompts])
        );
        // A change during a fetch may have come too late for it.
        reporter.report_changed(ItemKind::Tools);
        assert_eq!(
            relists.completed(),
            [
                (owner("s"), ItemKind::Tools),
                (owner("s"), ItemKind::Prompts)
            ]
        );
        assert_eq!(due(&relists).await.1, [ItemKind::Tools]);
        assert_eq!(relists.completed(), [(owner("s"), ItemKind::Tools)]);
    }

    #[tokio::test(start_paused = true)]
    async fn announcements_that_change_nothing_are_followed_ever_more_rarely() {
        let relists = Arc::new(DedicatedRelists::default());
        let reporter = DedicatedRelists::reporter(&relists, owner("s"));
        let announced = async || {
            reporter.report_changed(ItemKind::Tools);
            let (waited, _) = due(&relists).await;
            relists.completed();
            waited
        };
        assert_eq!(announced().await, SETTLE_TIME);
        for interval in [1, 2, 4, 4] {
            assert_eq!(announced().await, CHANGED_INTERVAL * interval);
        }
        relists.record_difference();
        assert_eq!(announced().await, CHANGED_INTERVAL);
        for _ in 0..4 {
            announced().await;
        }
        tokio::time::advance(QUIET_TIME * 2).await;
        assert_eq!(announced().await, SETTLE_TIME);
        assert_eq!(announced().await, CHANGED_INTERVAL);
    }
}
