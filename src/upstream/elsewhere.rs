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

use crate::model::Kind;
use crate::upstream::ears::Owner;
use crate::upstream::follow::SETTLE;

/// Lists are not taken again sooner for changes that single clients' connections tell: with many of them, there is always
/// one that tells something.
const PAUSE: Duration = Duration::from_secs(2);
/// The same where news of changes may only have been missed. Streams are cut by proxies, all of them each minute or so; and
/// what everybody lists is listened to on the main connection.
const MISSED_PAUSE: Duration = Duration::from_secs(60);

/// What is told on the connections of one server that are single clients'.
#[derive(Default)]
pub(super) struct Elsewhere {
    waiting: Mutex<Waiting>,
    added: Notify,
}

#[derive(Default)]
struct Waiting {
    /// By whose they are: nobody is here who has no connection, so there are as many at most as there are connections.
    owners: HashMap<Owner, Changes>,
    /// Since when one of them waits.
    told: Option<Instant>,
    /// Lists that may have changed, for all that anybody knows.
    missed: Lists,
    /// Since when such a list waits.
    unsure: Option<Instant>,
    /// Whether lists are being taken.
    taking: bool,
    /// When lists were taken last.
    last: Option<Instant>,
}

/// Whether it is so, for each kind of list.
type Lists = [bool; Kind::ALL.len()];

#[derive(Default)]
struct Changes {
    /// The owner's connections.
    connections: usize,
    /// Lists that changed.
    told: Lists,
    /// Those of them that are being taken.
    taken: Lists,
}

/// One connection, for as long as it may tell something.
pub(super) struct Teller {
    elsewhere: Arc<Elsewhere>,
    owner: Owner,
}

impl Elsewhere {
    /// A connection of this owner's.
    pub(super) fn teller(elsewhere: &Arc<Self>, owner: Owner) -> Teller {
        elsewhere.lock().owners.entry(owner.clone()).or_default().connections += 1;
        Teller { elsewhere: elsewhere.clone(), owner }
    }

    /// Waits until lists are to be taken: those that changed, and those that may have. May be given up and begun again, and
    /// so may the taking: nothing is lost by that. [`Elsewhere::taken`] is its end.
    pub(super) async fn gather(&self) -> Vec<Kind> {
        loop {
            let due = self.lock().due();
            match due {
                None => self.added.notified().await,
                Some(due) if due > Instant::now() => {
                    let _ = timeout_at(due, self.added.notified()).await;
                }
                Some(_) => {
                    let kinds = self.lock().take();
                    if !kinds.is_empty() {
                        return kinds;
                    }
                }
            }
        }
    }

    /// The lists have been taken: who is to hear of which of them. Nobody, where they were not taken for that.
    pub(super) fn taken(&self) -> Vec<(Owner, Kind)> {
        let mut waiting = self.lock();
        if !std::mem::take(&mut waiting.taking) {
            return Vec::new();
        }
        waiting.last = Some(Instant::now());
        let mut told = Vec::new();
        for (owner, changes) in &mut waiting.owners {
            let taken = std::mem::take(&mut changes.taken);
            let kinds = Kind::ALL.into_iter().filter(|kind| taken[*kind as usize]);
            told.extend(kinds.map(|kind| (owner.clone(), kind)));
        }
        told
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// When lists are to be taken.
    fn due(&self) -> Option<Instant> {
        if self.taking {
            // Whoever took them gave up.
            return Some(Instant::now());
        }
        let after = |since: Option<Instant>, pause: Duration| {
            let settled = since? + SETTLE;
            Some(self.last.map_or(settled, |last| settled.max(last + pause)))
        };
        let due = [after(self.told, PAUSE), after(self.unsure, MISSED_PAUSE)];
        due.into_iter().flatten().min()
    }

    /// The lists to be taken now, which is everything that waits.
    fn take(&mut self) -> Vec<Kind> {
        (self.told, self.unsure) = (None, None);
        let mut wanted = std::mem::take(&mut self.missed);
        for changes in self.owners.values_mut() {
            let told = std::mem::take(&mut changes.told);
            for kind in Kind::ALL.map(|kind| kind as usize) {
                changes.taken[kind] |= told[kind];
                wanted[kind] |= changes.taken[kind];
            }
        }
        // Templates have no notification of their own.
        wanted[Kind::Templates as usize] |= wanted[Kind::Resources as usize];
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| wanted[*kind as usize]).collect();
        self.taking = !kinds.is_empty();
        kinds
    }
}

impl Teller {
    /// Whose it is.
    pub(super) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// A list changed: the owner hears of it, whatever everybody lists.
    pub(super) fn changed(&self, kind: Kind) {
        let mut waiting = self.elsewhere.lock();
        if let Some(changes) = waiting.owners.get_mut(&self.owner) {
            changes.told[kind as usize] = true;
            waiting.told.get_or_insert_with(Instant::now);
        }
        drop(waiting);
        self.elsewhere.added.notify_one();
    }

    /// A list may have changed: the owner hears of it, like everybody, if what everybody lists did.
    pub(super) fn missed(&self, kind: Kind) {
        let mut waiting = self.elsewhere.lock();
        waiting.missed[kind as usize] = true;
        waiting.unsure.get_or_insert_with(Instant::now);
        drop(waiting);
        self.elsewhere.added.notify_one();
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        let mut waiting = self.elsewhere.lock();
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
    use crate::json::Text;

    fn owner(session: &str) -> Owner {
        Owner::Session(Text::from(session))
    }

    /// How long it takes until lists are to be taken, and which.
    async fn due(elsewhere: &Elsewhere) -> (Duration, Vec<Kind>) {
        let began = Instant::now();
        let kinds = elsewhere.gather().await;
        (began.elapsed(), kinds)
    }

    #[tokio::test(start_paused = true)]
    async fn lists_are_taken_at_once_and_then_at_most_so_often() {
        let elsewhere = Arc::new(Elsewhere::default());
        let tellers: Vec<Teller> = (0..100).map(|n| Elsewhere::teller(&elsewhere, owner(&n.to_string()))).collect();
        tokio::time::advance(PAUSE).await;
        tellers.iter().for_each(|teller| teller.changed(Kind::Tools));
        assert_eq!(due(&elsewhere).await, (SETTLE, vec![Kind::Tools]));
        // It takes its time, which is no pause.
        tokio::time::advance(PAUSE).await;
        assert_eq!(elsewhere.taken().len(), 100);
        tellers[0].changed(Kind::Resources);
        assert_eq!(due(&elsewhere).await, (PAUSE, vec![Kind::Resources, Kind::Templates]));
        assert_eq!(elsewhere.taken(), [(owner("0"), Kind::Resources)]);
        assert_eq!(elsewhere.taken(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_are_opened_again_have_lists_taken_each_minute_and_tell_nobody() {
        let elsewhere = Arc::new(Elsewhere::default());
        let tellers: Vec<Teller> = (0..100).map(|n| Elsewhere::teller(&elsewhere, owner(&n.to_string()))).collect();
        let all = || tellers.iter().for_each(|teller| Kind::ALL.into_iter().for_each(|kind| teller.missed(kind)));
        all();
        assert_eq!(due(&elsewhere).await, (SETTLE, Kind::ALL.to_vec()));
        assert_eq!(elsewhere.taken(), [], "nobody knows that anything changed");
        all();
        assert_eq!(due(&elsewhere).await, (MISSED_PAUSE, Kind::ALL.to_vec()));
        elsewhere.taken();
        // A change that is known does not wait for that, although it comes later.
        all();
        let told = async {
            tokio::time::sleep(PAUSE).await;
            tellers[0].changed(Kind::Prompts);
        };
        let ((waited, kinds), ()) = tokio::join!(due(&elsewhere), told);
        assert_eq!((waited, kinds), (PAUSE + SETTLE, Kind::ALL.to_vec()));
        assert_eq!(elsewhere.taken(), [(owner("0"), Kind::Prompts)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_ended_connections_told_is_forgotten() {
        let elsewhere = Arc::new(Elsewhere::default());
        for n in 0..1000 {
            Elsewhere::teller(&elsewhere, owner(&n.to_string())).changed(Kind::Tools);
        }
        assert!(elsewhere.lock().owners.is_empty(), "also while nobody takes any list");
        assert_eq!(elsewhere.gather().now_or_never(), None);
        tokio::time::advance(SETTLE).await;
        assert_eq!(elsewhere.gather().now_or_never(), None, "nobody is to hear of it");
        let (first, second) = (Elsewhere::teller(&elsewhere, owner("s")), Elsewhere::teller(&elsewhere, owner("s")));
        first.changed(Kind::Tools);
        drop(first);
        assert_eq!(elsewhere.gather().await, [Kind::Tools]);
        assert_eq!(elsewhere.taken(), [(owner("s"), Kind::Tools)], "the owner has another connection");
        drop(second);
        assert!(elsewhere.lock().owners.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_given_out_is_told_even_where_the_lists_were_not_taken_to_the_end() {
        let elsewhere = Arc::new(Elsewhere::default());
        let teller = Elsewhere::teller(&elsewhere, owner("s"));
        teller.changed(Kind::Tools);
        assert_eq!(elsewhere.gather().await, [Kind::Tools]);
        // The main connection ended meanwhile; another one goes on.
        teller.changed(Kind::Prompts);
        assert_eq!(due(&elsewhere).await, (Duration::ZERO, vec![Kind::Tools, Kind::Prompts]));
        // What is told while lists are taken may have come too late for them.
        teller.changed(Kind::Tools);
        assert_eq!(elsewhere.taken(), [(owner("s"), Kind::Tools), (owner("s"), Kind::Prompts)]);
        assert_eq!(due(&elsewhere).await.1, [Kind::Tools]);
        assert_eq!(elsewhere.taken(), [(owner("s"), Kind::Tools)]);
    }
}
