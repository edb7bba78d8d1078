//! In-memory index of logins and their people.
//!
//! Owns the limits, and which row is the newest. Does not write rows (`login_store.rs`). Invariant:
//! a person is here exactly while one of their logins is, and a login is visible only once written.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use moongate_model::PrincipalKey;
use tokio_util::sync::CancellationToken;

use crate::login_id::LoginId;
use crate::login_row::{LiveLogin, LoginRow};
use crate::person_row::PersonRow;

/// Maximum number of logins.
const LOGINS_MAX: usize = 100_000;
/// Maximum number of logins of one person. Beyond it, the least recently used one ends.
const PERSON_LOGINS_MAX: usize = 100;
/// Shortest time between two updates of the last use, in seconds.
const USE_INTERVAL: i64 = 60;

/// Logins and people.
#[derive(Default)]
pub(crate) struct LoginIndex {
    logins: HashMap<LoginId, HeldLogin>,
    by_mark: HashMap<PrincipalKey, Vec<LoginId>>,
    people: HashMap<PrincipalKey, Arc<PersonRow>>,
}

struct HeldLogin {
    row: LoginRow,
    /// Row of the next generation, which may be on disk already. It takes effect once it certainly
    /// is.
    next: Option<LoginRow>,
    /// False until the first row is on disk.
    is_started: bool,
    ended: CancellationToken,
}

/// Login that was removed.
pub(crate) struct EndedLogin {
    /// Id.
    pub(crate) id: LoginId,
    /// Identity of the person.
    pub(crate) mark: PrincipalKey,
    /// Person's name for logs, if the person is known.
    pub(crate) name: Option<String>,
    /// True if it was the person's last login.
    pub(crate) is_last: bool,
    /// True if its client has tokens.
    pub(crate) is_started: bool,
}

/// Step towards the next generation.
pub(crate) enum AdvanceStep {
    /// Row that has to be written first.
    Write(LoginRow),
    /// Another caller has already made the step.
    Done(LiveLogin),
}

impl HeldLogin {
    fn live(&self, id: LoginId) -> LiveLogin {
        LiveLogin {
            id,
            row: self.row.clone(),
            ended: self.ended.clone(),
        }
    }

    fn is_live(&self, now: Timestamp) -> bool {
        self.is_started && now < self.row.over_at()
    }

    /// Changes the row and the next one. Returns the one to write.
    fn change(&mut self, change: impl Fn(&mut LoginRow)) -> LoginRow {
        change(&mut self.row);
        if let Some(next) = &mut self.next {
            change(next);
        }
        self.next.as_ref().unwrap_or(&self.row).clone()
    }
}

impl LoginIndex {
    /// Returns the number of logins.
    pub(crate) fn len(&self) -> usize {
        self.logins.len()
    }

    /// Returns true if there is no room for another login.
    pub(crate) fn is_full(&self) -> bool {
        self.logins.len() >= LOGINS_MAX
    }

    /// Finds a login that has not expired.
    pub(crate) fn find(&self, id: LoginId, now: Timestamp) -> Option<LiveLogin> {
        let held = self.logins.get(&id)?;
        held.is_live(now).then(|| held.live(id))
    }

    /// Lists all logins that have not expired.
    pub(crate) fn live(&self, now: Timestamp) -> Vec<LiveLogin> {
        let live = self.logins.iter().filter(|(_, held)| held.is_live(now));
        live.map(|(id, held)| held.live(*id)).collect()
    }

    /// Lists a person's logins that have not expired.
    pub(crate) fn live_of(&self, mark: &PrincipalKey, now: Timestamp) -> Vec<LiveLogin> {
        let ids = self.ids_of(mark).into_iter();
        ids.filter_map(|id| self.find(id, now)).collect()
    }

    /// Lists the ids of all of a person's logins.
    pub(crate) fn ids_of(&self, mark: &PrincipalKey) -> Vec<LoginId> {
        self.by_mark.get(mark).cloned().unwrap_or_default()
    }

    /// Lists the logins that have expired.
    pub(crate) fn over(&self, now: Timestamp) -> Vec<LoginId> {
        let over = self
            .logins
            .iter()
            .filter(|(_, held)| now >= held.row.over_at());
        over.map(|(id, _)| *id).collect()
    }

    /// Returns a person.
    pub(crate) fn person(&self, mark: &PrincipalKey) -> Option<&Arc<PersonRow>> {
        self.people.get(mark)
    }

    /// Loads rows of the previous process. Returns the logins and people that are left out, because
    /// they have expired, lack their counterpart or exceed the limits.
    pub(crate) fn restore(
        &mut self,
        logins: Vec<(LoginId, LoginRow)>,
        people: Vec<(PrincipalKey, PersonRow)>,
        now: Timestamp,
    ) -> (Vec<LoginId>, Vec<PrincipalKey>) {
        let people = people.into_iter().map(|(mark, row)| (mark, Arc::new(row)));
        self.people.extend(people);
        let mut left_out = Vec::new();
        for (id, row) in logins {
            let is_known = self.people.contains_key(&row.mark);
            if !is_known || now >= row.over_at() || !self.hold(id, row) {
                left_out.push(id);
            } else if let Some(held) = self.logins.get_mut(&id) {
                held.is_started = true;
            }
        }
        let by_mark = &self.by_mark;
        let alone = self
            .people
            .keys()
            .filter(|&mark| !by_mark.contains_key(mark));
        let alone: Vec<PrincipalKey> = alone.copied().collect();
        for mark in &alone {
            self.people.remove(mark);
        }
        (left_out, alone)
    }

    /// Reserves room for a login that is being written. Returns false if there is none.
    pub(crate) fn hold(&mut self, id: LoginId, row: LoginRow) -> bool {
        if self.is_full() {
            return false;
        }
        self.by_mark.entry(row.mark).or_default().push(id);
        let held = HeldLogin {
            row,
            next: None,
            is_started: false,
            ended: CancellationToken::new(),
        };
        self.logins.insert(id, held);
        true
    }

    /// Publishes a login that was written, with its person. `None`: it has ended in the meantime.
    pub(crate) fn confirm(&mut self, id: LoginId, person: PersonRow) -> Option<LiveLogin> {
        let held = self.logins.get_mut(&id)?;
        held.is_started = true;
        self.people.insert(held.row.mark, Arc::new(person));
        Some(held.live(id))
    }

    /// Returns a person's least recently used login, if they have too many.
    pub(crate) fn crowded(&self, mark: &PrincipalKey) -> Option<LoginId> {
        let ids = self.by_mark.get(mark)?;
        if ids.len() <= PERSON_LOGINS_MAX {
            return None;
        }
        let started = ids
            .iter()
            .filter_map(|id| self.logins.get(id).map(|held| (id, held)))
            .filter(|(_, held)| held.is_started);
        let unused = started.min_by_key(|(_, held)| held.row.last_used)?;
        Some(*unused.0)
    }

    /// Removes a login, and its person if it was their last one.
    pub(crate) fn remove(&mut self, id: LoginId) -> Option<EndedLogin> {
        let held = self.logins.remove(&id)?;
        // Before anything else can see that it is gone.
        held.ended.cancel();
        let mark = held.row.mark;
        let name = self
            .people
            .get(&mark)
            .map(|person| person.facts.name.clone());
        let is_last = match self.by_mark.get_mut(&mark) {
            Some(ids) => {
                ids.retain(|other| *other != id);
                ids.is_empty()
            }
            None => true,
        };
        if is_last {
            self.by_mark.remove(&mark);
            self.people.remove(&mark);
        }
        Some(EndedLogin {
            id,
            mark,
            name,
            is_last,
            is_started: held.is_started,
        })
    }

    /// Ends what a login has open, and keeps the login.
    pub(crate) fn close_open(&mut self, id: LoginId) {
        if let Some(held) = self.logins.get_mut(&id) {
            // What opens next has another token.
            std::mem::take(&mut held.ended).cancel();
        }
    }

    /// Takes over a changed person. Returns the row with its new number. `None`: the person is gone
    /// or was changed meanwhile.
    pub(crate) fn replace_person(
        &mut self,
        mark: &PrincipalKey,
        mut person: PersonRow,
        from_version: u64,
    ) -> Option<Arc<PersonRow>> {
        let known = self.people.get_mut(mark)?;
        if known.version != from_version {
            return None;
        }
        person.version = from_version.saturating_add(1);
        *known = Arc::new(person);
        Some(known.clone())
    }

    /// Prepares the next generation of a login. `None`: the login is gone or expired.
    pub(crate) fn prepare_advance(
        &mut self,
        id: LoginId,
        from: u32,
        now: Timestamp,
    ) -> Option<AdvanceStep> {
        let held = self.logins.get_mut(&id).filter(|held| held.is_live(now))?;
        if held.row.generation != from {
            return Some(AdvanceStep::Done(held.live(id)));
        }
        let row = LoginRow {
            generation: from.checked_add(1)?,
            advanced: now,
            is_used: false,
            ..held.row.clone()
        };
        held.next = Some(row.clone());
        Some(AdvanceStep::Write(row))
    }

    /// Makes the next generation current after it was written. `None`: the login is gone.
    pub(crate) fn finish_advance(&mut self, id: LoginId, from: u32) -> Option<LiveLogin> {
        let held = self.logins.get_mut(&id)?;
        // If two callers made the same step, the second finds it done.
        if held.row.generation == from
            && let Some(next) = held.next.take()
        {
            held.row = next;
        }
        Some(held.live(id))
    }

    /// Records a use of a login's tokens. Returns the row to write if it changed.
    pub(crate) fn record_use(
        &mut self,
        id: LoginId,
        generation: u32,
        now: Timestamp,
    ) -> Option<LoginRow> {
        let held = self.logins.get_mut(&id).filter(|held| held.is_started)?;
        let is_first = held.row.generation == generation && !held.row.is_used;
        let is_due = now.as_second() - held.row.last_used.as_second() >= USE_INTERVAL;
        if !is_first && !is_due {
            return None;
        }
        let last_used = held.row.last_used.max(now);
        Some(held.change(|row| {
            row.last_used = last_used;
            row.is_used |= row.generation == generation;
        }))
    }

    /// Records a replay of the refresh token before the newest. Returns the row to write.
    pub(crate) fn record_replay(&mut self, id: LoginId) -> Option<LoginRow> {
        let held = self.logins.get_mut(&id).filter(|held| held.is_started)?;
        Some(held.change(|row| row.replays = row.replays.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use crate::person_facts::PersonFacts;
    use crate::person_row::ProvenPerson;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn login(mark: u8, last_used: i64) -> LoginRow {
        LoginRow {
            mark: [mark; 16],
            client: [1; 16],
            client_name: "shape".to_owned(),
            endpoint: String::new(),
            since: at(0),
            ends: at(1_000_000),
            last_used: at(last_used),
            generation: 0,
            advanced: at(0),
            is_used: false,
            replays: 0,
        }
    }

    fn person(subject: &str) -> PersonRow {
        let person = ProvenPerson {
            subject: subject.to_owned(),
            facts: PersonFacts {
                name: subject.to_owned(),
                ..PersonFacts::default()
            },
            token: None,
            wanted: [0; 8],
        };
        PersonRow::of("https://login.test", person, at(0))
    }

    fn id(n: u8) -> LoginId {
        LoginId::of([n; 16])
    }

    fn start(index: &mut LoginIndex, n: u8, row: LoginRow) {
        assert!(index.hold(id(n), row));
        assert!(index.confirm(id(n), person("ann")).is_some());
    }

    #[test]
    fn a_login_is_seen_from_its_confirmation_to_its_end() {
        let mut index = LoginIndex::default();
        assert!(index.hold(id(1), login(1, 0)));
        assert!(index.find(id(1), at(0)).is_none() && index.person(&[1; 16]).is_none());
        let live = index.confirm(id(1), person("ann")).unwrap();
        assert!(index.find(id(1), at(999_999)).is_some());
        assert!(index.find(id(1), at(1_000_000)).is_none());
        assert_eq!(index.over(at(1_000_000)), [id(1)]);
        let ended = index.remove(id(1)).unwrap();
        assert!(ended.is_last && live.ended.is_cancelled());
        assert_eq!(ended.name.as_deref(), Some("ann"));
        assert!(index.person(&[1; 16]).is_none() && index.remove(id(1)).is_none());
        assert!(index.confirm(id(1), person("ann")).is_none());
    }

    #[test]
    fn what_a_login_has_open_ends_without_the_login() {
        let mut index = LoginIndex::default();
        start(&mut index, 1, login(1, 0));
        let before = index.find(id(1), at(1)).unwrap();
        index.close_open(id(1));
        assert!(before.ended.is_cancelled());
        let after = index.find(id(1), at(1)).unwrap();
        assert!(!after.ended.is_cancelled());
        index.remove(id(1)).unwrap();
        assert!(after.ended.is_cancelled());
    }

    #[test]
    fn the_longest_unused_login_of_a_crowded_person_is_found() {
        let mut index = LoginIndex::default();
        for n in 0..100 {
            start(&mut index, n, login(1, 1_000 - i64::from(n)));
        }
        assert_eq!(index.crowded(&[1; 16]), None);
        start(&mut index, 100, login(1, 2_000));
        assert_eq!(index.crowded(&[1; 16]), Some(id(99)));
        assert_eq!(index.crowded(&[2; 16]), None);
    }

    fn generation(index: &LoginIndex) -> u32 {
        index.find(id(1), at(1)).unwrap().row.generation
    }

    #[test]
    fn a_step_counts_once_it_is_written_and_two_callers_make_one() {
        let mut index = LoginIndex::default();
        start(&mut index, 1, login(1, 0));
        for _ in 0..2 {
            let step = index.prepare_advance(id(1), 0, at(1)).unwrap();
            assert!(matches!(step, AdvanceStep::Write(row) if row.generation == 1));
        }
        assert_eq!(generation(&index), 0);
        assert_eq!(index.finish_advance(id(1), 0).unwrap().row.generation, 1);
        // The next step is prepared before the second caller of the first one comes back.
        let step = index.prepare_advance(id(1), 1, at(2)).unwrap();
        assert!(matches!(step, AdvanceStep::Write(row) if row.generation == 2));
        assert_eq!(index.finish_advance(id(1), 0).unwrap().row.generation, 1);
        let step = index.prepare_advance(id(1), 0, at(2)).unwrap();
        assert!(matches!(step, AdvanceStep::Done(live) if live.row.generation == 1));
    }

    #[test]
    fn a_use_meanwhile_never_brings_the_old_generation_back_to_disk() {
        let mut index = LoginIndex::default();
        start(&mut index, 1, login(1, 0));
        index.prepare_advance(id(1), 0, at(1)).unwrap();
        let row = index.record_use(id(1), 0, at(100)).unwrap();
        assert_eq!((row.generation, row.is_used), (1, false));
        assert_eq!(row.last_used, at(100));
        let row = index.record_replay(id(1)).unwrap();
        assert_eq!((row.generation, row.replays), (1, 1));
        let live = index.finish_advance(id(1), 0).unwrap();
        assert_eq!(live.row, row);
    }

    #[test]
    fn a_use_is_recorded_once_a_minute_and_at_the_first_one_of_a_generation() {
        let mut index = LoginIndex::default();
        start(&mut index, 1, login(1, 0));
        assert!(index.record_use(id(1), 1, at(10)).is_none());
        assert!(index.record_use(id(1), 0, at(10)).unwrap().is_used);
        assert!(index.record_use(id(1), 0, at(69)).is_none());
        assert_eq!(
            index.record_use(id(1), 0, at(70)).unwrap().last_used,
            at(70)
        );
        assert!(index.record_use(id(2), 0, at(70)).is_none());
    }

    #[test]
    fn a_person_changes_from_the_known_version_alone() {
        let mut index = LoginIndex::default();
        start(&mut index, 1, login(1, 0));
        let mark = [1; 16];
        assert!(index.replace_person(&mark, person("lee"), 1).is_none());
        let changed = index.replace_person(&mark, person("lee"), 0).unwrap();
        assert_eq!((changed.version, &*changed.facts.name), (1, "lee"));
        assert!(index.replace_person(&mark, person("ann"), 0).is_none());
        assert!(index.replace_person(&[2; 16], person("ann"), 0).is_none());
    }

    #[test]
    fn rows_that_are_over_or_alone_are_left_out() {
        let mut index = LoginIndex::default();
        let over = LoginRow {
            ends: at(5),
            ..login(1, 0)
        };
        let logins = vec![(id(1), login(1, 0)), (id(2), over), (id(3), login(3, 0))];
        let people = vec![([1; 16], person("ann")), ([2; 16], person("bob"))];
        let left_out = index.restore(logins, people, at(10));
        assert_eq!(left_out, (vec![id(2), id(3)], vec![[2; 16]]));
        assert_eq!(index.live(at(10)).len(), 1);
        assert_eq!(index.live_of(&[1; 16], at(10)).len(), 1);
    }
}
