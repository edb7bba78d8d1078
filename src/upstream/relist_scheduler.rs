//! Changes of lists that were told on connections of single clients.
//!
//! Owns who is still to hear of which list, and when the lists are taken again for that. Does not take them (`follow`).
//! Invariant: a client hears of such a change once the lists have been taken after it, unless its last connection ended:
//! whoever hears of a change and finds what everybody lists has found it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::model::ItemKind;
use crate::upstream::connected::SETTLE_TIME;
use crate::upstream::subscriptions::ConnectionOwner;

/// Lists are not taken again sooner for changes that single clients' connections tell: with many of them, there is always
/// one that tells something.
const CHANGED_INTERVAL: Duration = Duration::from_secs(2);
/// The same where news of changes may only have been missed. Streams are cut by proxies, all of them each minute or so; and
/// what everybody lists is listened to on the main connection.
const MAYBE_CHANGED_INTERVAL: Duration = Duration::from_secs(60);

/// What is told on the connections of one server that are single clients'.
#[derive(Default)]
pub(super) struct RelistScheduler {
    pending: Mutex<PendingRelists>,
    has_pending: Notify,
}

#[derive(Default)]
struct PendingRelists {
    /// By whose they are: nobody is here who has no connection, so there are as many at most as there are connections.
    owners: HashMap<ConnectionOwner, OwnerChanges>,
    /// Since when one of them waits.
    changed_since: Option<Instant>,
    /// Lists that may have changed, for all that anybody knows.
    maybe_changed: KindFlags,
    /// Since when such a list waits.
    maybe_changed_since: Option<Instant>,
    /// Whether lists are being taken.
    in_progress: bool,
    /// When lists were taken last.
    last_listed: Option<Instant>,
}

/// Whether it is so, for each kind of list.
type KindFlags = [bool; ItemKind::ALL.len()];

#[derive(Default)]
struct OwnerChanges {
    /// The owner's connections.
    connections: usize,
    /// Lists that changed.
    changed: KindFlags,
    /// Those of them that are being taken.
    in_progress: KindFlags,
}

/// One connection, for as long as it may tell something.
pub(super) struct ChangeReporter {
    scheduler: Arc<RelistScheduler>,
    owner: ConnectionOwner,
}

impl RelistScheduler {
    /// A connection of this owner's.
    pub(super) fn reporter(elsewhere: &Arc<Self>, owner: ConnectionOwner) -> ChangeReporter {
        elsewhere.lock().owners.entry(owner.clone()).or_default().connections += 1;
        ChangeReporter { scheduler: elsewhere.clone(), owner }
    }

    /// Waits until lists are to be taken: those that changed, and those that may have. May be given up and begun again, and
    /// so may the taking: nothing is lost by that. [`Elsewhere::taken`] is its end.
    pub(super) async fn next_batch(&self) -> Vec<ItemKind> {
        loop {
            let due = self.lock().due();
            match due {
                None => self.has_pending.notified().await,
                Some(due) if due > Instant::now() => {
                    let _ = timeout_at(due, self.has_pending.notified()).await;
                }
                Some(_) => {
                    let kinds = self.lock().take_batch();
                    if !kinds.is_empty() {
                        return kinds;
                    }
                }
            }
        }
    }

    /// The lists have been taken: who is to hear of which of them. Nobody, where they were not taken for that.
    pub(super) fn completed(&self) -> Vec<(ConnectionOwner, ItemKind)> {
        let mut waiting = self.lock();
        if !std::mem::take(&mut waiting.in_progress) {
            return Vec::new();
        }
        waiting.last_listed = Some(Instant::now());
        let mut told = Vec::new();
        for (owner, changes) in &mut waiting.owners {
            let taken = std::mem::take(&mut changes.in_progress);
            let kinds = ItemKind::ALL.into_iter().filter(|kind| taken[*kind as usize]);
            told.extend(kinds.map(|kind| (owner.clone(), kind)));
        }
        told
    }

    fn lock(&self) -> MutexGuard<'_, PendingRelists> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingRelists {
    /// When lists are to be taken.
    fn due(&self) -> Option<Instant> {
        if self.in_progress {
            // Whoever took them gave up.
            return Some(Instant::now());
        }
        let after = |since: Option<Instant>, pause: Duration| {
            let settled = since? + SETTLE_TIME;
            Some(self.last_listed.map_or(settled, |last| settled.max(last + pause)))
        };
        let due =
            [after(self.changed_since, CHANGED_INTERVAL), after(self.maybe_changed_since, MAYBE_CHANGED_INTERVAL)];
        due.into_iter().flatten().min()
    }

    /// The lists to be taken now, which is everything that waits.
    fn take_batch(&mut self) -> Vec<ItemKind> {
        (self.changed_since, self.maybe_changed_since) = (None, None);
        let mut wanted = std::mem::take(&mut self.maybe_changed);
        for changes in self.owners.values_mut() {
            let told = std::mem::take(&mut changes.changed);
            for kind in ItemKind::ALL.map(|kind| kind as usize) {
                changes.in_progress[kind] |= told[kind];
                wanted[kind] |= changes.in_progress[kind];
            }
        }
        // Templates have no notification of their own.
        wanted[ItemKind::Templates as usize] |= wanted[ItemKind::Resources as usize];
        let kinds: Vec<ItemKind> = ItemKind::ALL.into_iter().filter(|kind| wanted[*kind as usize]).collect();
        self.in_progress = !kinds.is_empty();
        kinds
    }
}

impl ChangeReporter {
    /// Whose it is.
    pub(super) fn owner(&self) -> &ConnectionOwner {
        &self.owner
    }

    /// A list changed: the owner hears of it, whatever everybody lists.
    pub(super) fn changed(&self, kind: ItemKind) {
        let mut waiting = self.scheduler.lock();
        if let Some(changes) = waiting.owners.get_mut(&self.owner) {
            changes.changed[kind as usize] = true;
            waiting.changed_since.get_or_insert_with(Instant::now);
        }
        drop(waiting);
        self.scheduler.has_pending.notify_one();
    }

    /// A list may have changed: the owner hears of it, like everybody, if what everybody lists did.
    pub(super) fn maybe_changed(&self, kind: ItemKind) {
        let mut waiting = self.scheduler.lock();
        waiting.maybe_changed[kind as usize] = true;
        waiting.maybe_changed_since.get_or_insert_with(Instant::now);
        drop(waiting);
        self.scheduler.has_pending.notify_one();
    }
}

impl Drop for ChangeReporter {
    fn drop(&mut self) {
        let mut waiting = self.scheduler.lock();
        let Some(changes) = waiting.owners.get_mut(&self.owner) else { return };
        changes.connections -= 1;
        if changes.connections == 0 {
            waiting.owners.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::json::ByteString;

    fn owner(session: &str) -> ConnectionOwner {
        ConnectionOwner::Session(ByteString::from(session))
    }

    /// How long it takes until lists are to be taken, and which.
    async fn due(elsewhere: &RelistScheduler) -> (Duration, Vec<ItemKind>) {
        let began = Instant::now();
        let kinds = elsewhere.next_batch().await;
        (began.elapsed(), kinds)
    }

    #[tokio::test(start_paused = true)]
    async fn lists_are_taken_at_once_and_then_at_most_so_often() {
        let elsewhere = Arc::new(RelistScheduler::default());
        let tellers: Vec<ChangeReporter> =
            (0..100).map(|n| RelistScheduler::reporter(&elsewhere, owner(&n.to_string()))).collect();
        tokio::time::advance(CHANGED_INTERVAL).await;
        tellers.iter().for_each(|teller| teller.changed(ItemKind::Tools));
        assert_eq!(due(&elsewhere).await, (SETTLE_TIME, vec![ItemKind::Tools]));
        // It takes its time, which is no pause.
        tokio::time::advance(CHANGED_INTERVAL).await;
        assert_eq!(elsewhere.completed().len(), 100);
        tellers[0].changed(ItemKind::Resources);
        assert_eq!(due(&elsewhere).await, (CHANGED_INTERVAL, vec![ItemKind::Resources, ItemKind::Templates]));
        assert_eq!(elsewhere.completed(), [(owner("0"), ItemKind::Resources)]);
        assert_eq!(elsewhere.completed(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_are_opened_again_have_lists_taken_each_minute_and_tell_nobody() {
        let elsewhere = Arc::new(RelistScheduler::default());
        let tellers: Vec<ChangeReporter> =
            (0..100).map(|n| RelistScheduler::reporter(&elsewhere, owner(&n.to_string()))).collect();
        let all =
            || tellers.iter().for_each(|teller| ItemKind::ALL.into_iter().for_each(|kind| teller.maybe_changed(kind)));
        all();
        assert_eq!(due(&elsewhere).await, (SETTLE_TIME, ItemKind::ALL.to_vec()));
        assert_eq!(elsewhere.completed(), [], "nobody knows that anything changed");
        all();
        assert_eq!(due(&elsewhere).await, (MAYBE_CHANGED_INTERVAL, ItemKind::ALL.to_vec()));
        elsewhere.completed();
        // A change that is known does not wait for that, although it comes later.
        all();
        let told = async {
            tokio::time::sleep(CHANGED_INTERVAL).await;
            tellers[0].changed(ItemKind::Prompts);
        };
        let ((waited, kinds), ()) = tokio::join!(due(&elsewhere), told);
        assert_eq!((waited, kinds), (CHANGED_INTERVAL + SETTLE_TIME, ItemKind::ALL.to_vec()));
        assert_eq!(elsewhere.completed(), [(owner("0"), ItemKind::Prompts)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_ended_connections_told_is_forgotten() {
        let elsewhere = Arc::new(RelistScheduler::default());
        for n in 0..1000 {
            RelistScheduler::reporter(&elsewhere, owner(&n.to_string())).changed(ItemKind::Tools);
        }
        assert!(elsewhere.lock().owners.is_empty(), "also while nobody takes any list");
        assert_eq!(elsewhere.next_batch().now_or_never(), None);
        tokio::time::advance(SETTLE_TIME).await;
        assert_eq!(elsewhere.next_batch().now_or_never(), None, "nobody is to hear of it");
        let (first, second) =
            (RelistScheduler::reporter(&elsewhere, owner("s")), RelistScheduler::reporter(&elsewhere, owner("s")));
        first.changed(ItemKind::Tools);
        drop(first);
        assert_eq!(elsewhere.next_batch().await, [ItemKind::Tools]);
        assert_eq!(elsewhere.completed(), [(owner("s"), ItemKind::Tools)], "the owner has another connection");
        drop(second);
        assert!(elsewhere.lock().owners.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_given_out_is_told_even_where_the_lists_were_not_taken_to_the_end() {
        let elsewhere = Arc::new(RelistScheduler::default());
        let teller = RelistScheduler::reporter(&elsewhere, owner("s"));
        teller.changed(ItemKind::Tools);
        assert_eq!(elsewhere.next_batch().await, [ItemKind::Tools]);
        // The main connection ended meanwhile; another one goes on.
        teller.changed(ItemKind::Prompts);
        assert_eq!(due(&elsewhere).await, (Duration::ZERO, vec![ItemKind::Tools, ItemKind::Prompts]));
        // What is told while lists are taken may have come too late for them.
        teller.changed(ItemKind::Tools);
        assert_eq!(elsewhere.completed(), [(owner("s"), ItemKind::Tools), (owner("s"), ItemKind::Prompts)]);
        assert_eq!(due(&elsewhere).await.1, [ItemKind::Tools]);
        assert_eq!(elsewhere.completed(), [(owner("s"), ItemKind::Tools)]);
    }
}
