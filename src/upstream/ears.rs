//! What single clients listen to, and what their own connections tell them.
//!
//! Owns the count of what is listened to, by whom, and the news of changed lists that wait for the lists to be taken.
//! Does not know who listens in which way. Invariant: a connection of one client's listens to what that client listens
//! to, and what it says reaches nobody else.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::json::Text;
use crate::model::{Caller, Filter, Kind, Notice};
use crate::revision::{Era, era};
use crate::upstream::connect::Active;
use crate::upstream::follow::{OPENING, SETTLE, opening, silence};
use crate::upstream::pace;
use crate::upstream::settings::Backoff;

/// Whose a connection beside the main one is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// One session's.
    Session(Text),
    /// A principal's clients without sessions.
    Stateless(u32),
    /// A principal's.
    Principal(u32),
    /// All clients' in the legacy era.
    Legacy,
}

impl Owner {
    /// Whether it is this caller's.
    pub fn is(&self, caller: &Caller) -> bool {
        match self {
            Owner::Session(session) => caller.session.as_ref() == Some(session),
            Owner::Stateless(id) => caller.session.is_none() && caller.principal.id == *id,
            Owner::Principal(id) => caller.principal.id == *id,
            Owner::Legacy => era(caller.revision) == Era::Legacy,
        }
    }

    /// Everything that may be this caller's.
    fn all_of(caller: &Caller) -> Vec<Owner> {
        let id = caller.principal.id;
        let own = caller.session.clone().map_or(Owner::Stateless(id), Owner::Session);
        let legacy = (era(caller.revision) == Era::Legacy).then_some(Owner::Legacy);
        [own, Owner::Principal(id)].into_iter().chain(legacy).collect()
    }
}

/// What clients listen to. There is an entry for whoever listens or has a connection of its own that does: both are
/// bounded where they begin (`limits.streams`, `max_subscriptions`, `max_connections`).
#[derive(Default)]
pub struct Ears(Mutex<HashMap<Owner, Wanted>>);

#[derive(Default)]
struct Wanted {
    /// Listeners that want to hear of lists, or log messages.
    lists: usize,
    /// Listeners by server and resource.
    uris: BTreeMap<(Text, Text), usize>,
    /// Told when something is wanted that was not, or the other way round.
    changed: watch::Sender<()>,
}

impl Wanted {
    fn is_unused(&self, watchers: usize) -> bool {
        self.lists == 0 && self.uris.is_empty() && self.changed.receiver_count() <= watchers
    }
}

/// One listener, until it is dropped.
pub struct Ear {
    ears: Arc<Ears>,
    owners: Vec<Owner>,
    lists: bool,
    uris: Vec<(Text, Text)>,
}

impl Ears {
    /// A client listens to lists (or not), and to these resources by server and the server's own URI.
    pub fn listen(self: &Arc<Self>, caller: &Caller, lists: bool, uris: Vec<(Text, Text)>) -> Ear {
        let ear = Ear { ears: self.clone(), owners: Owner::all_of(caller), lists, uris };
        ear.count(true);
        ear
    }

    /// What is wanted of a server on a connection of this owner's.
    pub(super) fn hear(self: &Arc<Self>, owner: Owner, server: Text) -> Hearing {
        let changed = self.lock().entry(owner.clone()).or_default().changed.subscribe();
        Hearing { ears: self.clone(), owner, server, changed }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, Wanted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ear {
    fn count(&self, more: bool) {
        let mut table = self.ears.lock();
        for owner in &self.owners {
            let wanted = table.entry(owner.clone()).or_default();
            let mut differs = false;
            if self.lists {
                wanted.lists = if more { wanted.lists + 1 } else { wanted.lists.saturating_sub(1) };
                differs = wanted.lists == usize::from(more);
            }
            for place in &self.uris {
                let before = wanted.uris.get(place).copied().unwrap_or(0);
                let after = if more { before + 1 } else { before.saturating_sub(1) };
                if after == 0 {
                    wanted.uris.remove(place);
                } else {
                    wanted.uris.insert(place.clone(), after);
                }
                differs |= (before == 0) != (after == 0);
            }
            if differs {
                wanted.changed.send_replace(());
            }
            if wanted.is_unused(0) {
                table.remove(owner);
            }
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.count(false);
    }
}

/// What one connection is to listen to, as it changes.
pub(super) struct Hearing {
    ears: Arc<Ears>,
    owner: Owner,
    server: Text,
    changed: watch::Receiver<()>,
}

impl Hearing {
    fn filter(&self) -> Filter {
        // That a user is done with a page is told whoever listens: a session waits for it.
        let always = Filter { elicitations: true, ..Filter::default() };
        let table = self.ears.lock();
        let Some(wanted) = table.get(&self.owner) else { return always };
        let (lists, uris) = (wanted.lists > 0, wanted.uris.keys().filter(|(server, _)| *server == self.server));
        let uris = uris.map(|(_, uri)| uri.clone()).collect();
        Filter { tools: lists, prompts: lists, resources: lists, logs: lists, uris, ..always }
    }

    /// Whether somebody is subscribed to what is there, asked at any time.
    pub(super) fn subscribed(&self) -> impl Fn() -> bool + Send + use<> {
        let (ears, owner, server) = (self.ears.clone(), self.owner.clone(), self.server.clone());
        move || ears.lock().get(&owner).is_some_and(|wanted| wanted.uris.keys().any(|(of, _)| *of == server))
    }

    async fn changed(&mut self) {
        if self.changed.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        let mut table = self.ears.lock();
        if table.get(&self.owner).is_some_and(|wanted| wanted.is_unused(1)) {
            table.remove(&self.owner);
        }
    }
}

/// Listens on a connection of one client's to what that client listens to, and passes on what is told there.
pub(super) async fn pass_on(
    active: &Active,
    caller: &Arc<Caller>,
    mut hearing: Hearing,
    backoff: Backoff,
    tell: impl Fn(Notice),
) {
    let mut wanted = hearing.filter();
    let mut notices = active.server.listen(caller, wanted.clone());
    let (mut open, mut deaf) = (Instant::now() + OPENING, 0);
    loop {
        tokio::select! {
            () = hearing.changed(), if !notices.is_opening() => {
                let before = std::mem::replace(&mut wanted, hearing.filter());
                if before == wanted {
                    continue;
                }
                open = Instant::now() + OPENING;
                let fresh = active.server.listen(caller, wanted.clone());
                let before = std::mem::replace(&mut notices, silence());
                notices = fresh.in_place_of(before);
            }
            () = opening(notices.opened.clone(), open), if notices.is_opening() => notices.opened = None,
            notice = notices.stream.next() => match notice {
                Some(notice) => {
                    deaf = 0;
                    tell(notice);
                }
                None => {
                    deaf += 1;
                    tokio::time::sleep(pace::pause(backoff, deaf)).await;
                    open = Instant::now() + OPENING;
                    wanted = hearing.filter();
                    notices = active.server.listen(caller, wanted.clone());
                }
            },
        }
    }
}

/// Changes of lists that were told on connections of single clients. Clients hear of them once the lists have been
/// taken again: whoever hears of a change and finds what everybody lists has found it.
#[derive(Default)]
pub(super) struct Elsewhere {
    told: Mutex<Vec<(Owner, Kind)>>,
    /// When the first of them came.
    since: Mutex<Option<Instant>>,
    added: Notify,
}

impl Elsewhere {
    /// A list changed, as one client's connection says.
    pub(super) fn add(&self, owner: &Owner, kind: Kind) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // Each once: bounded by the number of connections.
        if !told.iter().any(|(other, of)| (other, *of) == (owner, kind)) {
            told.push((owner.clone(), kind));
        }
        self.since().get_or_insert_with(Instant::now);
        drop(told);
        self.added.notify_one();
    }

    /// Waits for changes, and takes those that come together. May be given up and begun again: nothing is lost by that.
    pub(super) async fn gather(&self) -> Vec<(Owner, Kind)> {
        loop {
            let since = *self.since();
            match since {
                None => self.added.notified().await,
                Some(since) => {
                    tokio::time::sleep_until(since + SETTLE).await;
                    let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                    *self.since() = None;
                    return std::mem::take(&mut *told);
                }
            }
        }
    }

    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lists to be taken for them.
pub(super) fn kinds(told: &[(Owner, Kind)]) -> Vec<Kind> {
    let changed = |kind: Kind| told.iter().any(|(_, of)| *of == kind);
    // Templates have no notification of their own.
    let wanted = |kind: &Kind| changed(*kind) || (*kind == Kind::Templates && changed(Kind::Resources));
    Kind::ALL.into_iter().filter(wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing;

    fn place(uri: &str) -> (Text, Text) {
        (Text::from("a"), Text::from(uri))
    }

    #[test]
    fn a_connection_listens_to_what_its_owner_listens_to() {
        let (ears, client) = (Arc::new(Ears::default()), testing::caller(1, Some("s")));
        let other = testing::caller(1, Some("t"));
        let mut hearing = ears.hear(Owner::Session(Text::from("s")), Text::from("a"));
        let always = Filter { elicitations: true, ..Filter::default() };
        assert_eq!(hearing.filter(), always);
        let _others = ears.listen(&other, true, vec![place("x:other")]);
        assert!(!hearing.changed.has_changed().unwrap(), "what another client wants is nothing to it");
        let ear = ears.listen(&client, true, vec![place("x:1"), (Text::from("b"), Text::from("x:2"))]);
        assert!(hearing.changed.has_changed().unwrap());
        hearing.changed.mark_unchanged();
        let filter = hearing.filter();
        assert!(filter.tools && filter.logs && filter.uris == [Text::from("x:1")], "{filter:?}");
        let (second, third) = (ears.listen(&client, true, vec![place("x:1")]), ears.listen(&client, true, Vec::new()));
        drop(third);
        assert!(!hearing.changed.has_changed().unwrap(), "nothing differs as long as another one listens");
        drop((ear, second));
        assert!(hearing.changed.has_changed().unwrap());
        assert_eq!(hearing.filter(), always);
    }

    #[test]
    fn nothing_is_left_of_who_is_gone() {
        let (ears, client) = (Arc::new(Ears::default()), testing::caller(1, None));
        let hearing = ears.hear(Owner::Stateless(1), Text::from("a"));
        let ear = ears.listen(&client, true, vec![place("x:1")]);
        assert!(ears.lock().len() >= 2, "as a client without a session, and as a principal");
        drop(ear);
        assert_eq!(ears.lock().len(), 1);
        drop(hearing);
        assert_eq!(ears.lock().len(), 0);
    }

    #[test]
    fn whose_a_connection_is() {
        let (session, stateless) = (testing::caller(1, Some("s")), testing::caller(1, None));
        let other = testing::caller(2, Some("t"));
        assert!(Owner::Session(Text::from("s")).is(&session) && !Owner::Session(Text::from("s")).is(&other));
        assert!(Owner::Stateless(1).is(&stateless) && !Owner::Stateless(1).is(&session));
        assert!(Owner::Principal(1).is(&session) && Owner::Principal(1).is(&stateless));
        assert!(!Owner::Principal(1).is(&other));
    }
}
