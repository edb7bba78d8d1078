//! The connections of one server: the main one, those beside it, and which of them a call uses.
//!
//! Owns the pools; who shares what is decided in `sharing`. Does not bring the main connection up (`supervise`).
//! Invariant: between the choice of a connection that questions make ambiguous and the start of the call on it, nobody
//! else's call begins there.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};

use crate::json::Text;
use crate::model::{Caller, Can, Error, Reason, Task};
use crate::revision::{AskRecord, Era};
use crate::upstream::asked::{self, Home, Tenant};
use crate::upstream::attempts::Attempts;
use crate::upstream::connect::{Active, For};
use crate::upstream::eras::{Eras, Spoke};
use crate::upstream::lease::{Claim, Leases, Used};
use crate::upstream::sharing::{self, Beside};
use crate::upstream::slots::Ticket;
use crate::upstream::{ServerSettings, Share, Start, Upstream, own_caller};

/// The connections of one server.
pub(super) struct Connections {
    share: Share,
    /// How long a connection that several share is kept without need; `None`: for ever.
    idle: Option<Duration>,
    /// How long a process in the era of other clients is kept without need.
    idle_stop: Duration,
    main: ArcSwapOption<Active>,
    /// How it was connected last.
    spoke: ArcSwapOption<Spoke>,
    pub(super) eras: Eras,
    /// Whether it was ever seen to ask clients for something on a pipe.
    pub(super) record: AskRecord,
    /// Whose calls the main connection had.
    tenant: Tenant,
    leases: Leases,
    turns: Mutex<()>,
}

/// What a call keeps from others while it runs.
#[derive(Default)]
pub(super) struct Held {
    used: Option<Used>,
    /// Whether it stays, whoever else is on that connection: it is its own, or there is no other.
    stays: bool,
}

impl Held {
    /// The call showed this of a task.
    pub(super) fn task(&self, task: &Task) {
        if let Some(used) = &self.used {
            used.task(task);
        }
    }
}

/// A call that looks for its connection.
pub(super) struct Seeker<'a> {
    pub(super) upstream: &'a Upstream,
    pub(super) caller: &'a Arc<Caller>,
    /// Its slot, which it gives up while a connection is opened for it.
    pub(super) ticket: Ticket<'a>,
    about_task: bool,
    /// Whether another's call began where it would have been alone.
    crowded: bool,
}

impl<'a> Seeker<'a> {
    pub(super) fn new(upstream: &'a Upstream, caller: &'a Arc<Caller>, about_task: bool, ticket: Ticket<'a>) -> Self {
        Seeker { upstream, caller, ticket, about_task, crowded: false }
    }
}

/// The turn of a call that begins before this is dropped.
pub(super) struct Entered<'a> {
    _turn: Option<MutexGuard<'a, ()>>,
}

/// The main connection, for a call that begins before this is dropped.
pub(super) struct AtHand<'a> {
    main: Guard<Option<Arc<Active>>>,
    _turn: Option<MutexGuard<'a, ()>>,
}

impl AtHand<'_> {
    pub(super) fn active(&self) -> Option<&Active> {
        self.main.as_deref()
    }
}

impl Connections {
    pub(super) fn new(settings: &ServerSettings) -> Self {
        Connections {
            share: settings.share,
            idle: (settings.start == Start::Lazy).then_some(settings.idle_stop),
            idle_stop: settings.idle_stop,
            main: ArcSwapOption::empty(),
            spoke: ArcSwapOption::empty(),
            eras: Eras::new(settings.as_client && settings.protocol.is_none()),
            record: AskRecord::default(),
            tenant: Tenant::default(),
            leases: Leases::default(),
            turns: Mutex::default(),
        }
    }

    // === the main connection ===

    /// It, while there is one.
    pub(super) fn main(&self) -> Option<Arc<Active>> {
        self.main.load_full()
    }

    /// Takes it into use.
    pub(super) fn open(&self, active: Arc<Active>) {
        let face = active.server.describe(&own_caller());
        let other = self.eras.opened(active.era, self.spoke.load().as_deref());
        let spoke = Spoke { era: active.era, is_pipe: active.link.is_pipe(), face, other };
        self.spoke.store(Some(Arc::new(spoke)));
        self.tenant.reset();
        self.main.store(Some(active));
    }

    /// Takes it out of use, unless another took its place. What was learned of the server stays.
    pub(super) fn close(&self, active: &Arc<Active>) {
        let main = self.main.compare_and_swap(active, None);
        if let (Some(main), Some(spoke)) = (&*main, self.spoke.load_full())
            && Arc::ptr_eq(main, active)
        {
            let face = active.server.describe(&own_caller());
            self.spoke.store(Some(Arc::new(Spoke { face, ..(*spoke).clone() })));
        }
    }

    /// Takes over how it was connected in an earlier run: in its clients' era, where it speaks both.
    pub(super) fn remember(&self, spoke: Spoke) {
        if spoke.is_pipe && spoke.other == Some(true) {
            self.eras.begin_with(spoke.era);
        }
        self.spoke.store(Some(Arc::new(spoke)));
    }

    /// How it was connected last, if it ever was.
    pub(super) fn spoke(&self) -> Option<Arc<Spoke>> {
        self.spoke.load_full()
    }

    // === the choice ===

    /// The main connection, if this call goes there and nothing has to be waited for.
    pub(super) fn at_hand(&self, caller: &Caller, about_task: bool) -> Option<AtHand<'_>> {
        if self.share != Share::Auto {
            return None;
        }
        let main = self.main.load();
        let active = main.as_ref()?;
        if active.era != crate::revision::era(caller.revision) && self.other_era(caller).is_some() {
            return None;
        }
        // One at a time: of two that begin together, the second sees the first.
        let turn = self.turn(active, caller);
        if self.needs_own(active, caller, about_task) {
            return None;
        }
        self.begins(active, caller, about_task);
        Some(AtHand { main, _turn: turn })
    }

    /// The connection for a call, waited for; the call begins once it has [entered](Connections::enter) it.
    pub(super) async fn for_call(&self, seeker: &mut Seeker<'_>) -> Result<(Arc<Active>, Held), Error> {
        let (active, used) = self.shared_or_leased(seeker).await?;
        let caller = seeker.caller;
        if !seeker.crowded && !self.needs_own(&active, caller, seeker.about_task) {
            return Ok((active, Held { used, ..Held::default() }));
        }
        let home = self.tenant.home(caller) != Home::Main;
        let own = sharing::apart(caller, home, self.idle);
        match self.leased(seeker, own, Some(active.era)).await {
            Ok((active, used)) => Ok((active, Held { used: Some(used), stays: true })),
            // On the shared one the call runs at least, and its questions find it if it is alone.
            Err(error) => {
                tracing::debug!(server = &*seeker.upstream.name, "no connection of its own for a call: {error}");
                Ok((active, Held { used, stays: true }))
            }
        }
    }

    /// Held while it is decided whether a call is alone on a pipe, as far as that matters to anybody, and until it is open.
    fn turn(&self, active: &Active, caller: &Caller) -> Option<MutexGuard<'_, ()>> {
        let matters = caller.can != Can::default() || self.record.was_seen();
        let turn = matters && asked::is_ambiguous(active);
        turn.then(|| self.turns.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A call begins on this connection, with its turn held.
    fn begins(&self, active: &Active, caller: &Caller, about_task: bool) {
        if self.share == Share::Auto && !about_task && asked::is_ambiguous(active) && self.is_main(active) {
            self.tenant.note(caller);
        }
    }

    fn is_main(&self, active: &Active) -> bool {
        self.main.load().as_deref().is_some_and(|main| std::ptr::eq(main, active))
    }

    /// Takes a connection that was chosen. `None`: since then another's call began there that a question could be meant
    /// for as well, and the choice is to be made again.
    pub(super) fn enter(&self, active: &Active, held: &Held, seeker: &mut Seeker<'_>) -> Option<Entered<'_>> {
        let turn = self.turn(active, seeker.caller);
        if !held.stays && self.needs_own(active, seeker.caller, seeker.about_task) {
            seeker.crowded = true;
            return None;
        }
        if !held.stays {
            self.begins(active, seeker.caller, seeker.about_task);
        }
        Some(Entered { _turn: turn })
    }

    async fn shared_or_leased(&self, seeker: &mut Seeker<'_>) -> Result<(Arc<Active>, Option<Used>), Error> {
        let (upstream, caller) = (seeker.upstream, seeker.caller);
        self.connect_in_era(seeker).await?;
        if let Some(era) = self.other_era(caller)
            && let Some(beside) = sharing::beside(self.share, caller, Some(era), self.idle_beside())
        {
            let key = beside.key.clone();
            let known = self.spoke.load().as_ref().is_some_and(|spoke| spoke.other == Some(true));
            // One that says nothing in the other era leaves the call time to be made in this one.
            let limit = upstream.times.call() / if known { 1 } else { 2 };
            match tokio::time::timeout(limit, self.leased(seeker, beside, Some(era))).await {
                Ok(Ok((active, used))) if keeps_session(&active, era) => {
                    self.promote(&key, &active);
                    return Ok((active, Some(used)));
                }
                Ok(Ok((active, _))) => self.leave_era(upstream, &key, &active),
                // That there is no place for it shows nothing of the server.
                Ok(Err(error)) if error.reason == Reason::Overloaded => {}
                Ok(Err(error)) => self.stay_in_one_era(upstream, &key, error)?,
                Err(_) => self.stay_in_one_era(upstream, &key, upstream.late())?,
            }
        }
        match sharing::beside(self.share, caller, None, self.idle) {
            None => {
                let main = upstream.connected().await?;
                Ok(self.of_sessions(seeker, &main).await.unwrap_or((main, None)))
            }
            Some(beside) => {
                let (active, used) = self.leased(seeker, beside, None).await?;
                Ok((active, Some(used)))
            }
        }
    }

    async fn leased(
        &self,
        seeker: &mut Seeker<'_>,
        beside: Beside,
        era: Option<Era>,
    ) -> Result<(Arc<Active>, Used), Error> {
        let whom = if beside.as_caller { For::one(seeker.caller, era) } else { For::everybody(era) };
        let whom = For { record: self.record.clone(), ..whom };
        let claim = Claim { key: beside.key, whom, ends: beside.ends, owner: beside.owner };
        self.leases.get(claim, seeker).await
    }

    /// The connection that clients with sessions share where the main one is a principal's, of a server that asks.
    async fn of_sessions(&self, seeker: &mut Seeker<'_>, main: &Arc<Active>) -> Option<(Arc<Active>, Option<Used>)> {
        let asks = self.record.was_seen() && asked::is_ambiguous(main) && !seeker.about_task;
        if !asks || self.tenant.home(seeker.caller) != Home::Sessions || self.leases.has_own(seeker.caller) {
            return None;
        }
        let (active, used) =
            self.leased(seeker, sharing::of_era(Era::Legacy, self.idle_beside()), Some(main.era)).await.ok()?;
        Some((active, Some(used)))
    }

    /// Whether a call needs a connection on which no other client's call can be meant by a question.
    fn needs_own(&self, active: &Active, caller: &Caller, about_task: bool) -> bool {
        // A connection of one session or one principal is never left.
        if about_task || self.share != Share::Auto || !self.record.was_seen() || !asked::is_ambiguous(active) {
            return false;
        }
        // What a session did before is on the shared one: it leaves that only when a question could be another's, and
        // then for good.
        self.is_main(active) && self.tenant.home(caller) != Home::Main
            || active.calls.have_others(caller)
            || self.leases.has_own(caller)
    }

    // === the eras ===

    /// The era in which a call should go to the server, although its main connection is in the other one.
    ///
    /// A server that speaks both may be able to ask its caller only in the era that it was written for: what sends
    /// requests in the middle of a call cannot do that where they do not exist. So each client meets it as it would
    /// without us.
    fn other_era(&self, caller: &Caller) -> Option<Era> {
        self.eras.beside(self.spoke.load().as_deref(), crate::revision::era(caller.revision))
    }

    /// The main connection where it decides: what speaks both eras on a pipe begins with that of its first client.
    async fn connect_in_era(&self, seeker: &Seeker<'_>) -> Result<(), Error> {
        let is_pipe = self.spoke.load().as_ref().is_none_or(|spoke| spoke.is_pipe);
        if self.share == Share::Auto && is_pipe && self.main.load().is_none() {
            self.eras.begin_with(crate::revision::era(seeker.caller.revision));
            seeker.upstream.connected().await?;
        }
        Ok(())
    }

    /// How long connections beside the main one are kept without need: on a pipe there may be a process behind each.
    fn idle_beside(&self) -> Option<Duration> {
        let is_pipe = self.spoke.load().as_ref().is_some_and(|spoke| spoke.is_pipe);
        self.idle.or(is_pipe.then_some(self.idle_stop))
    }

    /// Makes a connection in the other era the main one, where no client has called on that: a program whose clients are
    /// all of one era runs once.
    fn promote(&self, key: &Text, active: &Arc<Active>) {
        let Some(main) = self.main() else { return };
        let unused = main.era != active.era && !main.is_called.load(Ordering::Acquire);
        if self.share == Share::Auto && active.link.is_pipe() && unused && self.leases.release(key, active) {
            self.eras.promote(active.clone(), |active| self.open(active));
        }
    }

    /// An attempt in the other era failed; an error, where that era is known to be spoken.
    fn stay_in_one_era(&self, upstream: &Upstream, key: &Text, error: Error) -> Result<(), Error> {
        let spoke = self.spoke.load_full();
        if let Some(spoke) = spoke.filter(|_| self.leases.was_refused(key)) {
            self.spoke.store(Some(Arc::new(Spoke { other: Some(false), ..(*spoke).clone() })));
        } else if self.spoke.load().as_ref().is_some_and(|spoke| spoke.other == Some(true)) {
            return Err(error);
        }
        self.eras.stay_alone();
        // Of the same name may be the one that it is to have instead.
        self.leases.forgive(key);
        let server = &upstream.settings.name;
        tracing::info!(server, "it is met in one era by all clients: {error}");
        Ok(())
    }

    /// Meets all clients in the era of the main connection: in the other one, the server keeps nothing to ask them by.
    fn leave_era(&self, upstream: &Upstream, key: &Text, active: &Arc<Active>) {
        if let Some(spoke) = self.spoke.load_full() {
            self.spoke.store(Some(Arc::new(Spoke { other: Some(false), ..(*spoke).clone() })));
        }
        self.eras.stay_alone();
        self.leases.release(key, active);
        tracing::info!(server = upstream.settings.name, "server without sessions: all clients meet it in one era");
    }

    // === those beside ===

    /// The caller's own connection, if it has one.
    pub(super) fn own(&self, caller: &Caller) -> Option<Arc<Active>> {
        self.leases.find(self.share, caller, self.other_era(caller))
    }

    /// The open connections that all clients of an era share, the main one first.
    pub(super) fn shared(&self) -> Vec<Arc<Active>> {
        self.main().into_iter().chain(self.leases.of_eras()).collect()
    }

    /// Whether a session has a connection of its own.
    pub(super) fn serves(&self, session: &Text) -> bool {
        self.leases.serves(session)
    }

    /// The attempts of all of them.
    pub(super) fn attempts(&self) -> Attempts {
        self.leases.attempts()
    }

    /// How many there are beside the main one.
    pub(super) fn beside(&self) -> usize {
        self.leases.len()
    }

    /// Closes those of principals that are gone.
    pub(super) async fn close_of(&self, gone: &(dyn Fn(u32) -> bool + Sync)) {
        self.tenant.forget(gone);
        self.leases.close_of(gone).await;
    }

    /// No other run goes on with those beside the main one.
    pub(super) fn keep_none(&self) {
        self.leases.keep_none();
    }

    /// Closes all but the main one.
    pub(super) async fn close_beside(&self) {
        self.leases.close_all().await;
    }
}

impl Upstream {
    /// Whether a session has a connection of its own here.
    pub fn serves_alone(&self, session: &Text) -> bool {
        self.connections.serves(session)
    }
}

/// Whether a server can ask the clients of a connection. One that opens no session for clients of the legacy era serves each
/// of their requests by itself, and has nowhere to take an answer.
fn keeps_session(active: &Active, era: Era) -> bool {
    era == Era::Modern || active.link.is_pipe() || active.server.hand_over().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing;
    use crate::upstream::memory::{Memory, Way, tool};
    use crate::upstream::open_call;

    #[tokio::test(start_paused = true)]
    async fn of_two_sessions_that_find_a_pipe_empty_one_stays() {
        let memory = Memory::new(&[Way::Answers(Duration::ZERO)]);
        let upstream = memory.upstream(|settings| settings.share = Share::Auto);
        let running = tokio::spawn(upstream.clone().run());
        let main = upstream.connected().await.ok().unwrap();
        let connections = &upstream.connections;
        connections.record.note();
        let can = Can { elicit_form: true, ..Can::default() };
        let [one, other] =
            ["one", "other"].map(|session| Arc::new(Caller { can, ..(*testing::caller(1, Some(session))).clone() }));
        let (settings, late) = (upstream.live.load_full(), tokio::time::Instant::now() + Duration::from_secs(60));
        let seeker = |caller| {
            let ticket = upstream.slots.ticket(upstream.slots.at_hand(), &settings, &upstream.shared.metrics, late);
            Seeker::new(&upstream, caller, false, ticket)
        };
        let (mut first, mut second) = (seeker(&one), seeker(&other));
        let chosen = connections.for_call(&mut first).await.ok().unwrap();
        let too = connections.for_call(&mut second).await.ok().unwrap();
        assert!(Arc::ptr_eq(&chosen.0, &main) && Arc::ptr_eq(&too.0, &main), "each is alone there");
        let entered = connections.enter(&chosen.0, &chosen.1, &mut first).unwrap();
        let _call = open_call(&chosen.0, &one, tool("hang"));
        drop(entered);
        assert!(connections.enter(&too.0, &too.1, &mut second).is_none(), "the first call began there");
        let (own, held) = connections.for_call(&mut second).await.ok().unwrap();
        assert!(!Arc::ptr_eq(&own, &main) && connections.enter(&own, &held, &mut second).is_some());
        running.abort();
    }
}
