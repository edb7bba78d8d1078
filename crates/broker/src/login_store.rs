//! Store of logins.
//!
//! Owns the order of memory and disk, and what follows when a login ends. Does not judge tokens
//! (`refresh_verdict.rs`). Invariant: a new or renewed login is on disk before anybody learns of
//! it. An ended one is gone from memory before that.

use std::array;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use moongate_access::auth::PrincipalTable;
use moongate_model::PrincipalKey;
use moongate_oauth::{RootSecrets, RowSeal};
use moongate_session::store::{StateStore, StoreTable, StoredRows, StoredState};
use moongate_telemetry::{BrokerLimit, LoginEnd, Metrics};
use parking_lot::Mutex;
use tokio::sync::{MutexGuard, watch};

use crate::end_cause::{EndCause, EndOutcome};
use crate::login_id::LoginId;
use crate::login_index::{AdvanceStep, EndedLogin, LoginIndex};
use crate::login_row::{LiveLogin, LoginRow};
use crate::person_row::PersonRow;
use crate::pinned_names::{PinnedName, PinnedNames};
use crate::row_writes::{RowWrites, StartedWrite};
pub(crate) use crate::store_fault::StoreFault;

/// Key of the row that holds the key of client ids.
const CLIENT_KEY: &[u8] = b"client";
/// Prefix of the keys of pinned names.
const PIN_PREFIX: &[u8] = b"pin ";
/// Number of locks that people share, so that each person's writes are serialized.
const TURNS: usize = 64;
/// Longest wait for a person's lock.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// Store of logins.
pub(crate) struct LoginStore {
    writes: RowWrites,
    index: Mutex<LoginIndex>,
    pinned: Mutex<PinnedNames>,
    client_seal: OnceLock<Arc<RowSeal>>,
    turns: [tokio::sync::Mutex<()>; TURNS],
    /// True if the secret was made by this process.
    is_secret_new: bool,
    ready: watch::Sender<bool>,
    principals: Arc<PrincipalTable>,
    metrics: Arc<Metrics>,
}

/// Error for stored logins whose secret is gone.
#[derive(Debug, thiserror::Error)]
#[error(
    "the state file has people's logins, but the secret that opens them is gone: restore the \
     file `secret`, set gateway.secret to its contents, or delete the state file so that \
     everybody logs in again"
)]
pub struct LostSecret;

/// State of the previous process, and whose people may still be in.
pub(crate) struct EarlierState<'a> {
    /// Rows.
    pub(crate) contents: &'a mut StoredState,
    /// Whoever gives out the ids of people now (`ProviderSettings::authority`).
    pub(crate) authority: &'a str,
}

/// Rows of the previous process, opened.
struct RestoredRows {
    logins: Vec<(LoginId, LoginRow)>,
    people: Vec<(PrincipalKey, PersonRow)>,
}

impl LoginStore {
    /// Creates an empty store, unusable until it is restored.
    pub(crate) fn new(
        store: StateStore,
        secrets: &RootSecrets,
        principals: Arc<PrincipalTable>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(LoginStore {
            writes: RowWrites::new(store, secrets),
            index: Mutex::default(),
            pinned: Mutex::default(),
            client_seal: OnceLock::new(),
            turns: array::from_fn(|_| tokio::sync::Mutex::default()),
            is_secret_new: secrets.is_new(),
            ready: watch::Sender::new(false),
            principals,
            metrics,
        })
    }

    /// Takes over the rows of the previous process, once. `None`: nothing outlives this one.
    pub(crate) fn restore(&self, earlier: Option<EarlierState<'_>>) -> Result<(), LostSecret> {
        if self.is_ready() {
            return Ok(());
        }
        match earlier {
            Some(earlier) => self.restore_rows(earlier)?,
            None => {
                tracing::warn!(
                    "people's logins end with this process, which keeps no state on disk"
                );
            }
        }
        if self.client_seal.get().is_none() {
            let key: [u8; 32] = moongate_random::random_bytes();
            self.writes.put(StoreTable::BrokerKeys, CLIENT_KEY, &key);
            self.set_client_key(&key);
        }
        self.ready.send_replace(true);
        Ok(())
    }

    fn restore_rows(&self, earlier: EarlierState<'_>) -> Result<(), LostSecret> {
        let EarlierState {
            contents,
            authority,
        } = earlier;
        let logins = contents.take(StoreTable::Logins);
        let people = contents.take(StoreTable::People);
        let keys = contents.take(StoreTable::BrokerKeys);
        let has_rows = !logins.is_empty() || !people.is_empty() || !keys.is_empty();
        if self.is_secret_new && has_rows {
            return Err(LostSecret);
        }
        self.writes.enable();
        let mut lost = 0;
        let logins = self
            .writes
            .open_rows::<LoginRow>(StoreTable::Logins, logins, &mut lost);
        let people = self
            .writes
            .open_rows::<PersonRow>(StoreTable::People, people, &mut lost);
        self.take_over(RestoredRows {
            logins: logins
                .into_iter()
                .filter_map(|(key, row)| Some((LoginId::of(short_key(&key)?), row)))
                .collect(),
            people: self.own_people(people, authority),
        });
        // Keys and pinned names have different forms, so each is parsed separately.
        let (pins, keys): (StoredRows, StoredRows) = keys
            .into_iter()
            .partition(|(key, _)| key.starts_with(PIN_PREFIX));
        let pins = self
            .writes
            .open_rows::<PinnedName>(StoreTable::BrokerKeys, pins, &mut lost);
        for (_, pin) in pins {
            // Those beyond the limit are left out.
            let _ = self.pinned.lock().pin(&pin.name, pin.id);
        }
        let keys = self
            .writes
            .open_rows::<[u8; 32]>(StoreTable::BrokerKeys, keys, &mut lost);
        for (_, key) in keys.iter().filter(|(name, _)| name == CLIENT_KEY) {
            self.set_client_key(key);
        }
        if lost > 0 {
            tracing::warn!(
                rows = lost,
                "people's logins dropped: no configured secret opens them"
            );
        }
        Ok(())
    }

    /// Drops people of a company login that was replaced, and with them their logins. Their facts
    /// are its words, and their tokens must not be sent to the one of now.
    fn own_people(
        &self,
        people: Vec<(Bytes, PersonRow)>,
        authority: &str,
    ) -> Vec<(PrincipalKey, PersonRow)> {
        let count = people.len();
        let mut own = Vec::with_capacity(count);
        for (key, row) in people {
            match short_key(&key).filter(|_| row.authority == authority) {
                Some(mark) => own.push((mark, row)),
                None => self.writes.remove(StoreTable::People, &key),
            }
        }
        if own.len() < count {
            tracing::warn!(
                people = count - own.len(),
                "people's logins dropped: they belong to another company login than that of \
                 auth.oauth"
            );
        }
        own
    }

    fn take_over(&self, rows: RestoredRows) {
        let mut index = self.index.lock();
        let (over, alone) = index.restore(rows.logins, rows.people, Timestamp::now());
        for id in over {
            self.writes.remove(StoreTable::Logins, id.bytes());
        }
        for mark in alone {
            self.writes.remove(StoreTable::People, &mark);
        }
        self.count(&index);
    }

    fn set_client_key(&self, key: &[u8; 32]) {
        // Set once: a second key could not open the ids of the first.
        let _ = self.client_seal.set(Arc::new(RowSeal::of_key(key)));
    }

    fn count(&self, index: &LoginIndex) {
        let count = i64::try_from(index.len()).unwrap_or(i64::MAX);
        self.metrics.broker.logins.set(count);
    }

    /// Returns true once the rows of the previous process are loaded.
    pub(crate) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Waits until the rows of the previous process are loaded. Returns false after this time.
    pub(crate) async fn ready(&self, wait: Duration) -> bool {
        let mut ready = self.ready.subscribe();
        let waiting = ready.wait_for(|is_ready| *is_ready);
        matches!(tokio::time::timeout(wait, waiting).await, Ok(Ok(_)))
    }

    fn check_ready(&self) -> Result<(), StoreFault> {
        if self.is_ready() {
            Ok(())
        } else {
            Err(StoreFault::NotReady)
        }
    }

    /// Finds a login. `None`: it is unknown, has ended or has expired.
    pub(crate) fn find(&self, id: LoginId) -> Option<LiveLogin> {
        self.index.lock().find(id, Timestamp::now())
    }

    /// Returns a person with at least one login.
    pub(crate) fn person(&self, mark: &PrincipalKey) -> Option<Arc<PersonRow>> {
        self.index.lock().person(mark).cloned()
    }

    /// Lists all logins, after ending expired ones.
    pub(crate) fn logins(&self) -> Vec<LiveLogin> {
        let now = Timestamp::now();
        self.end_over(now);
        self.index.lock().live(now)
    }

    /// Lists the logins of a person.
    pub(crate) fn logins_of(&self, mark: &PrincipalKey) -> Vec<LiveLogin> {
        self.index.lock().live_of(mark, Timestamp::now())
    }

    /// Starts a login. Its person is written first, so that no login lacks one. A person without a
    /// new token keeps the stored one.
    pub(crate) async fn start(
        &self,
        login: LoginRow,
        person: PersonRow,
    ) -> Result<LiveLogin, StoreFault> {
        let mark = login.mark;
        let _turn = self.turn_of(&mark).await?;
        let id = LoginId::new_random();
        self.make_room();
        let (person, writes) = {
            let mut index = self.index.lock();
            let person = continue_person(index.person(&mark), person);
            if !index.hold(id, login.clone()) {
                self.metrics.broker.refused.inc(BrokerLimit("logins"));
                return Err(StoreFault::Full);
            }
            let of_person = self.writes.start_put(StoreTable::People, &mark, &person);
            let of_login = self
                .writes
                .start_put(StoreTable::Logins, id.bytes(), &login);
            (person, [of_person, of_login])
        };
        if let Err(fault) = finish_all(writes).await {
            self.give_up(id, &mark);
            return Err(fault);
        }
        let (live, crowded) = {
            let mut index = self.index.lock();
            let live = index.confirm(id, person).ok_or(StoreFault::Gone)?;
            self.count(&index);
            (live, index.crowded(&mark))
        };
        if let Some(unused) = crowded {
            self.end(unused, EndCause::Crowded).await;
        }
        Ok(live)
    }

    /// Waits for the lock to write a person.
    async fn turn_of(&self, mark: &PrincipalKey) -> Result<MutexGuard<'_, ()>, StoreFault> {
        self.check_ready()?;
        let turn = self.turns[usize::from(mark[0]) % TURNS].lock();
        tokio::time::timeout(TURN_TIMEOUT, turn)
            .await
            .map_err(|_| StoreFault::Unwritable)
    }

    /// Ends expired logins if there is no room for another one.
    fn make_room(&self) {
        let is_full = self.index.lock().is_full();
        if is_full {
            self.end_over(Timestamp::now());
        }
    }

    /// Undoes a start that could not be written.
    fn give_up(&self, id: LoginId, mark: &PrincipalKey) {
        let mut index = self.index.lock();
        index.remove(id);
        self.writes.remove(StoreTable::Logins, id.bytes());
        match index.person(mark) {
            Some(before) => self.writes.put(StoreTable::People, mark, &**before),
            None => self.writes.remove(StoreTable::People, mark),
        }
    }

    /// Creates the next generation of a login if the newest one is `from`. Otherwise returns the
    /// login unchanged.
    pub(crate) async fn advance(
        &self,
        id: LoginId,
        from: u32,
        now: Timestamp,
    ) -> Result<LiveLogin, StoreFault> {
        self.check_ready()?;
        let write = {
            let mut index = self.index.lock();
            let step = index.prepare_advance(id, from, now);
            match step.ok_or(StoreFault::Gone)? {
                AdvanceStep::Done(live) => return Ok(live),
                AdvanceStep::Write(row) => {
                    self.writes.start_put(StoreTable::Logins, id.bytes(), &row)
                }
            }
        };
        // After a failure the row may reach the disk later. It is unused then, so the refresh token
        // before it remains valid after a restart.
        write.finish().await?;
        let mut index = self.index.lock();
        index.finish_advance(id, from).ok_or(StoreFault::Gone)
    }

    /// Records that tokens of a generation were used. The disk follows later.
    pub(crate) fn record_use(&self, id: LoginId, generation: u32, now: Timestamp) {
        let mut index = self.index.lock();
        if let Some(row) = index.record_use(id, generation, now) {
            self.writes.put(StoreTable::Logins, id.bytes(), &row);
        }
    }

    /// Records a replay of the refresh token before the newest. The disk follows later.
    pub(crate) fn record_replay(&self, id: LoginId) {
        let mut index = self.index.lock();
        if let Some(row) = index.record_replay(id) {
            self.writes.put(StoreTable::Logins, id.bytes(), &row);
        }
    }

    /// Replaces a person, unless the version has changed meanwhile. If the disk cannot be written,
    /// or others wait for it too long, memory has the new row still: the company's login may have
    /// used the old token up.
    pub(crate) async fn put_person(
        &self,
        person: PersonRow,
        from_version: u64,
    ) -> Result<(), StoreFault> {
        self.check_ready()?;
        let mark = person.mark();
        let turn = self.turn_of(&mark).await;
        let write = {
            let mut index = self.index.lock();
            let row = index.replace_person(&mark, person, from_version);
            let row = row.ok_or(StoreFault::Gone)?;
            self.writes.start_put(StoreTable::People, &mark, &*row)
        };
        let _turn = turn?;
        write.finish().await
    }

    /// Ends a login: immediately in memory, then on disk.
    pub(crate) async fn end(&self, id: LoginId, cause: EndCause) -> EndOutcome {
        self.end_picked(|_| vec![id], cause).await
    }

    /// Ends the streams and calls that a login has open, and keeps the login.
    pub(crate) fn close_open(&self, id: LoginId) {
        self.index.lock().close_open(id);
    }

    /// Ends all logins of a person.
    pub(crate) async fn end_person(&self, mark: &PrincipalKey, cause: EndCause) -> EndOutcome {
        self.end_picked(|index| index.ids_of(mark), cause).await
    }

    async fn end_picked(
        &self,
        pick: impl FnOnce(&LoginIndex) -> Vec<LoginId>,
        cause: EndCause,
    ) -> EndOutcome {
        let (ended, writes) = {
            let mut index = self.index.lock();
            let picked = pick(&index);
            let ended: Vec<_> = picked
                .into_iter()
                .filter_map(|id| index.remove(id))
                .collect();
            let writes: Vec<_> = ended
                .iter()
                .flat_map(|ended| self.start_removal(ended))
                .collect();
            self.count(&index);
            (ended, writes)
        };
        if ended.is_empty() {
            return EndOutcome::Unknown;
        }
        for ended in &ended {
            self.announce(ended, cause);
        }
        if finish_all(writes).await.is_ok() {
            return EndOutcome::Synced;
        }
        for ended in &ended {
            self.remove_rows(ended);
        }
        EndOutcome::InMemory
    }

    /// Starts to remove the rows of a login. The caller holds the lock.
    fn start_removal(&self, ended: &EndedLogin) -> Vec<StartedWrite> {
        let id = ended.id.bytes();
        let mut writes = vec![self.writes.start_remove(StoreTable::Logins, id)];
        if ended.is_last {
            writes.push(self.writes.start_remove(StoreTable::People, &ended.mark));
        }
        writes
    }

    /// Queues the removal of a login's rows without waiting for it.
    fn remove_rows(&self, ended: &EndedLogin) {
        let index = self.index.lock();
        self.writes.remove(StoreTable::Logins, ended.id.bytes());
        // The person may have logged in again.
        if index.ids_of(&ended.mark).is_empty() {
            self.writes.remove(StoreTable::People, &ended.mark);
        }
    }

    /// Ends expired logins without waiting for the disk, because their rows are expired anyway.
    fn end_over(&self, now: Timestamp) {
        let ended: Vec<EndedLogin> = {
            let mut index = self.index.lock();
            let over = index.over(now);
            let ended = over.into_iter().filter_map(|id| index.remove(id)).collect();
            self.count(&index);
            ended
        };
        for ended in &ended {
            self.remove_rows(ended);
            self.announce(ended, EndCause::Expired);
        }
    }

    /// Ends everything that a login opened, and logs its end.
    fn announce(&self, ended: &EndedLogin, cause: EndCause) {
        if ended.is_last {
            self.principals.remove(&ended.mark);
        }
        if ended.is_started {
            let name = ended.name.as_deref().unwrap_or_default();
            let cause = cause.word();
            self.metrics.broker.ended.inc(LoginEnd(cause));
            tracing::info!("login of {name} ended: {cause}");
        }
    }

    /// Returns the seal of client ids. `None`: the store is not ready.
    pub(crate) fn client_seal(&self) -> Option<Arc<RowSeal>> {
        self.client_seal.get().filter(|_| self.is_ready()).cloned()
    }

    /// Returns the id that a name is pinned to.
    pub(crate) fn pinned_id(&self, name: &str) -> Option<u64> {
        self.pinned.lock().id_of(name)
    }

    /// Pins a name to an id. A name that is pinned already keeps its id.
    pub(crate) async fn pin_id(&self, name: &str, id: u64) -> Result<(), StoreFault> {
        self.check_ready()?;
        let write = {
            let mut pinned = self.pinned.lock();
            let Some(pin) = pinned.pin(name, id)? else {
                return Ok(());
            };
            let key = [PIN_PREFIX, name.as_bytes()].concat();
            self.writes.start_put(StoreTable::BrokerKeys, &key, &pin)
        };
        write.finish().await
    }
}

/// Parses a key of 16 bytes, as logins and people have.
fn short_key(key: &[u8]) -> Option<[u8; 16]> {
    key.try_into().ok()
}

/// Waits for all writes. Returns the last fault, if any.
async fn finish_all(writes: impl IntoIterator<Item = StartedWrite>) -> Result<(), StoreFault> {
    let mut outcome = Ok(());
    // All of them are queued already, so they finish together.
    for write in writes {
        outcome = write.finish().await.and(outcome);
    }
    outcome
}

/// Returns the row of a person who logs in, as the successor of a stored one.
fn continue_person(before: Option<&Arc<PersonRow>>, person: PersonRow) -> PersonRow {
    let Some(before) = before else {
        return person;
    };
    PersonRow {
        version: before.version.saturating_add(1),
        token: person.token.or_else(|| before.token.clone()),
        ..person
    }
}

#[cfg(test)]
mod tests;
