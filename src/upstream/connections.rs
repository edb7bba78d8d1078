//! The connections of one server: the main one, those beside it, and which of them a call uses.
//!
//! Owns the pools; who shares what is decided in `sharing`. Does not bring the main connection up (`supervise`).
//! Invariant: between the choice of a connection that questions make ambiguous and the start of the call on it, nobody
//! else's call begins there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};

use crate::model::{Caller, Error, Face, Reason, Task};
use crate::revision::Era;
use crate::upstream::asked::{self, Reserved};
use crate::upstream::connect::{Active, For};
use crate::upstream::lease::{Claim, Leases, Used};
use crate::upstream::sharing::{self, Beside, Ends};
use crate::upstream::slots::Ticket;
use crate::upstream::{ServerSettings, Share, Start, Upstream, own_caller};

/// The connections of one server.
pub(super) struct Connections {
    share: Share,
    as_client: bool,
    /// How long a connection that several share is kept without need; `None`: for ever.
    idle: Option<Duration>,
    main: ArcSwapOption<Active>,
    /// How it was connected last.
    spoke: ArcSwapOption<Spoke>,
    /// Whether it refused to be connected in the legacy era since then.
    modern_only: AtomicBool,
    /// Whether it was ever seen to ask clients for something on a pipe.
    asks: AtomicBool,
    leases: Leases,
    in_use: asked::InUse,
    turns: Mutex<()>,
}

/// What is remembered of the main connection while there is none.
pub(super) struct Spoke {
    pub(super) era: Era,
    pub(super) is_pipe: bool,
    pub(super) face: Face,
}

/// What a call keeps from others while it runs.
#[derive(Default)]
pub(super) struct Held {
    _reserved: Option<Reserved>,
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
            as_client: settings.as_client,
            idle: (settings.start == Start::Lazy).then_some(settings.idle_stop),
            main: ArcSwapOption::empty(),
            spoke: ArcSwapOption::empty(),
            modern_only: AtomicBool::new(false),
            asks: AtomicBool::new(false),
            leases: Leases::default(),
            in_use: asked::InUse::default(),
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
        self.spoke.store(Some(Arc::new(Spoke { era: active.era, is_pipe: active.link.is_pipe(), face })));
        self.main.store(Some(active));
        self.modern_only.store(false, Ordering::Relaxed);
    }

    /// Takes it out of use. What was learned of the server stays.
    pub(super) fn close(&self) {
        if let (Some(active), Some(spoke)) = (self.main.swap(None), self.spoke.load_full()) {
            let face = active.server.describe(&own_caller());
            self.spoke.store(Some(Arc::new(Spoke { face, ..*spoke })));
        }
    }

    /// Takes over how it was connected in an earlier run.
    pub(super) fn remember(&self, spoke: Spoke) {
        self.spoke.store(Some(Arc::new(spoke)));
    }

    /// How it was connected last, if it ever was.
    pub(super) fn spoke(&self) -> Option<Arc<Spoke>> {
        self.spoke.load_full()
    }

    // === the choice ===

    /// The main connection, if this call goes there and nothing has to be waited for.
    pub(super) fn at_hand(&self, caller: &Caller, about_task: bool) -> Option<AtHand<'_>> {
        if self.share != Share::Auto || self.legacy_first(caller) {
            return None;
        }
        let main = self.main.load();
        let active = main.as_ref()?;
        // One at a time: of two that begin together, the second sees the first.
        let turn = self.turn(active, caller);
        if self.needs_own(active, caller, about_task) {
            return None;
        }
        Some(AtHand { main, _turn: turn })
    }

    /// The connection for a call, waited for; the call begins once it has [entered](Connections::enter) it.
    pub(super) async fn for_call(&self, seeker: &mut Seeker<'_>) -> Result<(Arc<Active>, Held), Error> {
        let (active, used) = self.shared_or_leased(seeker).await?;
        let caller = seeker.caller;
        if !seeker.crowded && !self.needs_own(&active, caller, seeker.about_task) {
            return Ok((active, Held { used, ..Held::default() }));
        }
        let reserved = self.in_use.reserve(caller, &seeker.upstream.shared.metrics);
        let own = Claim {
            key: reserved.key.clone(),
            whom: For::one(caller, Some(active.era)),
            owner: sharing::owner(Share::Session, caller),
            ends: if caller.session.is_some() { Ends::WithSession } else { Ends::Unused },
        };
        match self.leases.get(own, seeker).await {
            Ok((active, used)) => Ok((active, Held { _reserved: Some(reserved), used: Some(used), stays: true })),
            // On the shared one the call runs at least, and its questions find it if it is alone.
            Err(error) => {
                tracing::debug!(server = &*seeker.upstream.name, "no connection of its own for a call: {error}");
                Ok((active, Held { _reserved: None, used, stays: true }))
            }
        }
    }

    /// Held while it is decided whether a call of a client that can be asked is alone on a pipe, and until it is open.
    fn turn(&self, active: &Active, caller: &Caller) -> Option<MutexGuard<'_, ()>> {
        asked::is_ambiguous(active, caller).then(|| self.turns.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a connection that was chosen. `None`: since then another's call began there that a question could be meant
    /// for as well, and the choice is to be made again.
    pub(super) fn enter(&self, active: &Active, held: &Held, seeker: &mut Seeker<'_>) -> Option<Entered<'_>> {
        let turn = self.turn(active, seeker.caller);
        if !held.stays && self.needs_own(active, seeker.caller, seeker.about_task) {
            seeker.crowded = true;
            return None;
        }
        Some(Entered { _turn: turn })
    }

    async fn shared_or_leased(&self, seeker: &mut Seeker<'_>) -> Result<(Arc<Active>, Option<Used>), Error> {
        let (upstream, caller) = (seeker.upstream, seeker.caller);
        if self.legacy_first(caller)
            && let Some(beside) = sharing::beside(self.share, caller, true, self.idle)
        {
            let key = beside.key.clone();
            match self.leased(seeker, beside, Some(Era::Legacy)).await {
                Ok((active, used)) => return Ok((active, Some(used))),
                // That there is no place for it shows nothing of the server.
                Err(error) if error.reason == Reason::Overloaded => {}
                Err(error) => {
                    self.modern_only.store(true, Ordering::Relaxed);
                    // Of the same name may be the one that it is to have instead.
                    self.leases.forgive(&key);
                    let server = &upstream.settings.name;
                    tracing::info!(server, "it does not speak to legacy clients in their era: {error}");
                }
            }
        }
        match sharing::beside(self.share, caller, false, self.idle) {
            None => Ok((upstream.connected().await?, None)),
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
        let claim = Claim { key: beside.key, whom, ends: beside.ends, owner: beside.owner };
        self.leases.get(claim, seeker).await
    }

    /// Whether a call needs a connection on which no other call can be asked something.
    fn needs_own(&self, active: &Active, caller: &Caller, about_task: bool) -> bool {
        if about_task || !sharing::is_shared(self.share, caller) || !asked::is_ambiguous(active, caller) {
            return false;
        }
        // Remembered longer than the connection that showed it.
        if active.calls.were_asked() {
            self.asks.store(true, Ordering::Relaxed);
        }
        let crowded = || active.calls.have_others(caller) || self.leases.has_own(caller);
        sharing::leaves(self.share, caller, self.asks.load(Ordering::Relaxed), crowded)
    }

    /// Whether a call should go to the server in the legacy era, even if it is connected in the modern one.
    ///
    /// A server that speaks both may be able to ask its caller only in the era that it was written for: what sends
    /// requests in the middle of a call cannot do that where they do not exist. With `protocol = "client"` a legacy
    /// client meets it as it would without us.
    ///
    /// 2026-07-28/basic/versioning.mdx, Compatibility Matrix: "A dual-era server **MAY** serve both eras concurrently
    /// on the same endpoint or process", and for a legacy client at one: "Works."
    fn legacy_first(&self, caller: &Caller) -> bool {
        self.as_client
            && crate::revision::era(caller.revision) == Era::Legacy
            && !self.modern_only.load(Ordering::Relaxed)
            && self.spoke.load().as_ref().is_some_and(|spoke| spoke.era == Era::Modern)
    }

    // === those beside ===

    /// The caller's own connection, if it has one.
    pub(super) fn own(&self, caller: &Caller) -> Option<Arc<Active>> {
        self.leases.find(self.share, caller)
    }

    /// How many there are beside the main one.
    pub(super) fn beside(&self) -> usize {
        self.leases.len()
    }

    /// Closes those of principals that are gone.
    pub(super) async fn close_of(&self, gone: &(dyn Fn(u32) -> bool + Sync)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Can, testing};
    use crate::upstream::memory::{Memory, Way, tool};
    use crate::upstream::open_call;

    #[tokio::test(start_paused = true)]
    async fn of_two_sessions_that_find_a_pipe_empty_one_stays() {
        let memory = Memory::new(&[Way::Answers(Duration::ZERO)]);
        let upstream = memory.upstream(|settings| settings.share = Share::Auto);
        let running = tokio::spawn(upstream.clone().run());
        let main = upstream.connected().await.ok().unwrap();
        let connections = &upstream.connections;
        connections.asks.store(true, Ordering::Relaxed);
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
