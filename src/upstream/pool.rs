//! The connections of one server: the main one, those beside it, and which of them a call uses.
//!
//! Owns the pools; who shares what is decided in `sharing`. Does not bring the main connection up (`supervise`).
//! Invariant: between the choice of a connection that questions make ambiguous and the start of the call on it, nobody
//! else's call begins there.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};

use crate::json::ByteString;
use crate::model::{Caller, ClientCapabilities, Error, McpErrorKind, TaskState};
use crate::revision::{Era, InputRecord};
use crate::upstream::concurrency::QueuedPermit;
use crate::upstream::connect_budget::ConnectBudget;
use crate::upstream::dedicated::{DedicatedPool, DedicatedRequest, UseGuard};
use crate::upstream::dial::{ConnectAs, UpstreamConnection};
use crate::upstream::era_selection::{EraSelection, LastHandshake};
use crate::upstream::home_connection::{self, HomeConnection, SharedTenant};
use crate::upstream::isolation::{self, DedicatedSpec};
use crate::upstream::{ServerSettings, ServerStart, SharingMode, Upstream, gateway_caller};

/// The connections of one server.
pub(super) struct ConnectionPool {
    share: SharingMode,
    /// How long a connection that several share is kept without need; `None`: for ever.
    shared_idle: Option<Duration>,
    /// How long a process in the era of other clients is kept without need.
    idle_stop: Duration,
    shared: ArcSwapOption<UpstreamConnection>,
    /// How it was connected last.
    last_handshake: ArcSwapOption<LastHandshake>,
    pub(super) eras: EraSelection,
    /// Whether it was ever seen to ask clients for something on a pipe.
    pub(super) record: InputRecord,
    /// Whose calls the main connection had.
    tenant: SharedTenant,
    dedicated: DedicatedPool,
    turn_lock: Mutex<()>,
}

/// What a call keeps from others while it runs.
#[derive(Default)]
pub(super) struct CheckedOut {
    use_guard: Option<UseGuard>,
    /// Whether it stays, whoever else is on that connection: it is its own, or there is no other.
    is_final: bool,
}

impl CheckedOut {
    /// The call showed this of a task.
    pub(super) fn track_task(&self, task: &TaskState) {
        if let Some(used) = &self.use_guard {
            used.track_task(task);
        }
    }
}

/// A call that looks for its connection.
pub(super) struct CheckoutRequest<'a> {
    pub(super) upstream: &'a Upstream,
    pub(super) caller: &'a Arc<Caller>,
    /// Its slot, which it gives up while a connection is opened for it.
    pub(super) permit: QueuedPermit<'a>,
    about_task: bool,
    /// Whether another's call began where it would have been alone.
    needs_isolation: bool,
}

impl<'a> CheckoutRequest<'a> {
    pub(super) fn new(
        upstream: &'a Upstream,
        caller: &'a Arc<Caller>,
        about_task: bool,
        permit: QueuedPermit<'a>,
    ) -> Self {
        CheckoutRequest { upstream, caller, permit, about_task, needs_isolation: false }
    }
}

/// The turn of a call that begins before this is dropped.
pub(super) struct CallTurn<'a> {
    _turn: Option<MutexGuard<'a, ()>>,
}

/// The main connection, for a call that begins before this is dropped.
pub(super) struct TryCheckout<'a> {
    connection: Guard<Option<Arc<UpstreamConnection>>>,
    _turn: Option<MutexGuard<'a, ()>>,
}

impl TryCheckout<'_> {
    pub(super) fn connection(&self) -> Option<&UpstreamConnection> {
        self.connection.as_deref()
    }
}

impl ConnectionPool {
    pub(super) fn new(settings: &ServerSettings) -> Self {
        ConnectionPool {
            share: settings.share,
            shared_idle: (settings.start == ServerStart::Lazy).then_some(settings.idle_stop),
            idle_stop: settings.idle_stop,
            shared: ArcSwapOption::empty(),
            last_handshake: ArcSwapOption::empty(),
            eras: EraSelection::new(settings.as_client && settings.protocol.is_none()),
            record: InputRecord::default(),
            tenant: SharedTenant::default(),
            dedicated: DedicatedPool::default(),
            turn_lock: Mutex::default(),
        }
    }

    // === the main connection ===

    /// It, while there is one.
    pub(super) fn shared(&self) -> Option<Arc<UpstreamConnection>> {
        self.shared.load_full()
    }

    /// Takes it into use.
    pub(super) fn set_shared(&self, active: Arc<UpstreamConnection>) {
        let face = active.server.describe(&gateway_caller());
        let other = self.eras.record_connected(active.era, self.last_handshake.load().as_deref());
        let spoke = LastHandshake {
            era: active.era,
            is_multiplexed: active.link.is_multiplexed(),
            description: face,
            speaks_other_era: other,
        };
        self.last_handshake.store(Some(Arc::new(spoke)));
        self.tenant.reset();
        self.shared.store(Some(active));
    }

    /// Takes it out of use, unless another took its place. What was learned of the server stays.
    pub(super) fn clear_shared(&self, active: &Arc<UpstreamConnection>) {
        let main = self.shared.compare_and_swap(active, None);
        if let (Some(main), Some(spoke)) = (&*main, self.last_handshake.load_full())
            && Arc::ptr_eq(main, active)
        {
            let face = active.server.describe(&gateway_caller());
            self.last_handshake.store(Some(Arc::new(LastHandshake { description: face, ..(*spoke).clone() })));
        }
    }

    /// Takes over how it was connected in an earlier run: in its clients' era, where it speaks both.
    pub(super) fn restore_handshake(&self, spoke: LastHandshake) {
        if spoke.is_multiplexed && spoke.speaks_other_era == Some(true) {
            self.eras.prefer_era(spoke.era);
        }
        self.last_handshake.store(Some(Arc::new(spoke)));
    }

    /// How it was connected last, if it ever was.
    pub(super) fn last_handshake(&self) -> Option<Arc<LastHandshake>> {
        self.last_handshake.load_full()
    }

    // === the choice ===

    /// The main connection, if this call goes there and nothing has to be waited for.
    pub(super) fn try_checkout(&self, caller: &Caller, about_task: bool) -> Option<TryCheckout<'_>> {
        if self.share != SharingMode::Auto {
            return None;
        }
        let main = self.shared.load();
        let active = main.as_ref()?;
        if active.era != crate::revision::era_of(caller.revision) && self.other_era(caller).is_some() {
            return None;
        }
        // One at a time: of two that begin together, the second sees the first.
        let turn = self.lock_turn(active, caller);
        if self.must_isolate(active, caller, about_task) {
            return None;
        }
        self.note_call_start(active, caller, about_task);
        Some(TryCheckout { connection: main, _turn: turn })
    }

    /// The connection for a call, waited for; the call begins once it has [entered](Connections::enter) it.
    pub(super) async fn checkout(
        &self,
        seeker: &mut CheckoutRequest<'_>,
    ) -> Result<(Arc<UpstreamConnection>, CheckedOut), Error> {
        let (active, used) = self.checkout_shared_or_dedicated(seeker).await?;
        let caller = seeker.caller;
        if !seeker.needs_isolation && !self.must_isolate(&active, caller, seeker.about_task) {
            return Ok((active, CheckedOut { use_guard: used, ..CheckedOut::default() }));
        }
        let home = self.tenant.home(caller) != HomeConnection::Shared;
        let own = isolation::isolated_for(caller, home, self.shared_idle);
        match self.checkout_dedicated(seeker, own, Some(active.era)).await {
            Ok((active, used)) => Ok((active, CheckedOut { use_guard: Some(used), is_final: true })),
            // On the shared one the call runs at least, and its questions find it if it is alone.
            Err(error) => {
                tracing::debug!(server = &*seeker.upstream.name, "no connection of its own for a call: {error}");
                Ok((active, CheckedOut { use_guard: used, is_final: true }))
            }
        }
    }

    /// Held while it is decided whether a call is alone on a pipe, as far as that matters to anybody, and until it is open.
    fn lock_turn(&self, active: &UpstreamConnection, caller: &Caller) -> Option<MutexGuard<'_, ()>> {
        let matters = caller.capabilities != ClientCapabilities::default() || self.record.was_seen();
        let turn = matters && home_connection::input_is_ambiguous(active);
        turn.then(|| self.turn_lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A call begins on this connection, with its turn held.
    fn note_call_start(&self, active: &UpstreamConnection, caller: &Caller, about_task: bool) {
        if self.share == SharingMode::Auto
            && !about_task
            && home_connection::input_is_ambiguous(active)
            && self.is_shared(active)
        {
            self.tenant.record_call(caller);
        }
    }

    fn is_shared(&self, active: &UpstreamConnection) -> bool {
        self.shared.load().as_deref().is_some_and(|main| std::ptr::eq(main, active))
    }

    /// Takes a connection that was chosen. `None`: since then another's call began there that a question could be meant
    /// for as well, and the choice is to be made again.
    pub(super) fn begin_turn(
        &self,
        active: &UpstreamConnection,
        held: &CheckedOut,
        seeker: &mut CheckoutRequest<'_>,
    ) -> Option<CallTurn<'_>> {
        let turn = self.lock_turn(active, seeker.caller);
        if !held.is_final && self.must_isolate(active, seeker.caller, seeker.about_task) {
            seeker.needs_isolation = true;
            return None;
        }
        if !held.is_final {
            self.note_call_start(active, seeker.caller, seeker.about_task);
        }
        Some(CallTurn { _turn: turn })
    }

    async fn checkout_shared_or_dedicated(
        &self,
        seeker: &mut CheckoutRequest<'_>,
    ) -> Result<(Arc<UpstreamConnection>, Option<UseGuard>), Error> {
        let (upstream, caller) = (seeker.upstream, seeker.caller);
        self.connect_in_era(seeker).await?;
        if let Some(era) = self.other_era(caller)
            && let Some(beside) = isolation::dedicated_for(self.share, caller, Some(era), self.dedicated_idle())
        {
            let key = beside.key.clone();
            let known = self.last_handshake.load().as_ref().is_some_and(|spoke| spoke.speaks_other_era == Some(true));
            // One that says nothing in the other era leaves the call time to be made in this one.
            let limit = upstream.timeouts.call() / if known { 1 } else { 2 };
            match tokio::time::timeout(limit, self.checkout_dedicated(seeker, beside, Some(era))).await {
                Ok(Ok((active, used))) if can_request_input(&active, era) => {
                    self.promote(&key, &active);
                    return Ok((active, Some(used)));
                }
                Ok(Ok((active, _))) => self.leave_era(upstream, &key, &active),
                // That there is no place for it shows nothing of the server.
                Ok(Err(error)) if error.kind == McpErrorKind::Overloaded => {}
                Ok(Err(error)) => self.stay_in_one_era(upstream, &key, error)?,
                Err(_) => self.stay_in_one_era(upstream, &key, upstream.checkout_timeout())?,
            }
        }
        match isolation::dedicated_for(self.share, caller, None, self.shared_idle) {
            None => {
                let main = upstream.wait_connected().await?;
                Ok(self.checkout_session_shared(seeker, &main).await.unwrap_or((main, None)))
            }
            Some(beside) => {
                let (active, used) = self.checkout_dedicated(seeker, beside, None).await?;
                Ok((active, Some(used)))
            }
        }
    }

    async fn checkout_dedicated(
        &self,
        seeker: &mut CheckoutRequest<'_>,
        beside: DedicatedSpec,
        era: Option<Era>,
    ) -> Result<(Arc<UpstreamConnection>, UseGuard), Error> {
        let whom = if beside.as_caller { ConnectAs::for_caller(seeker.caller, era) } else { ConnectAs::for_all(era) };
        let whom = ConnectAs { record: self.record.clone(), ..whom };
        let claim =
            DedicatedRequest { key: beside.key, connect_as: whom, lifetime: beside.lifetime, owner: beside.owner };
        self.dedicated.checkout(claim, seeker).await
    }

    /// The connection that clients with sessions share where the main one is a principal's, of a server that asks.
    async fn checkout_session_shared(
        &self,
        seeker: &mut CheckoutRequest<'_>,
        main: &Arc<UpstreamConnection>,
    ) -> Option<(Arc<UpstreamConnection>, Option<UseGuard>)> {
        let asks = self.record.was_seen() && home_connection::input_is_ambiguous(main) && !seeker.about_task;
        if !asks
            || self.tenant.home(seeker.caller) != HomeConnection::SessionShared
            || self.dedicated.has_dedicated(seeker.caller)
        {
            return None;
        }
        let (active, used) = self
            .checkout_dedicated(seeker, isolation::shared_in_era(Era::Legacy, self.dedicated_idle()), Some(main.era))
            .await
            .ok()?;
        Some((active, Some(used)))
    }

    /// Whether a call needs a connection on which no other client's call can be meant by a question.
    fn must_isolate(&self, active: &UpstreamConnection, caller: &Caller, about_task: bool) -> bool {
        // A connection of one session or one principal is never left.
        if about_task
            || self.share != SharingMode::Auto
            || !self.record.was_seen()
            || !home_connection::input_is_ambiguous(active)
        {
            return false;
        }
        // What a session did before is on the shared one: it leaves that only when a question could be another's, and
        // then for good.
        self.is_shared(active) && self.tenant.home(caller) != HomeConnection::Shared
            || active.calls.has_other_clients(caller)
            || self.dedicated.has_dedicated(caller)
    }

    // === the eras ===

    /// The era in which a call should go to the server, although its main connection is in the other one.
    ///
    /// A server that speaks both may be able to ask its caller only in the era that it was written for: what sends
    /// requests in the middle of a call cannot do that where they do not exist. So each client meets it as it would
    /// without us.
    fn other_era(&self, caller: &Caller) -> Option<Era> {
        self.eras.dedicated_era(self.last_handshake.load().as_deref(), crate::revision::era_of(caller.revision))
    }

    /// The main connection where it decides: what speaks both eras on a pipe begins with that of its first client.
    async fn connect_in_era(&self, seeker: &CheckoutRequest<'_>) -> Result<(), Error> {
        let is_pipe = self.last_handshake.load().as_ref().is_none_or(|spoke| spoke.is_multiplexed);
        if self.share == SharingMode::Auto && is_pipe && self.shared.load().is_none() {
            self.eras.prefer_era(crate::revision::era_of(seeker.caller.revision));
            seeker.upstream.wait_connected().await?;
        }
        Ok(())
    }

    /// How long connections beside the main one are kept without need: on a pipe there may be a process behind each.
    fn dedicated_idle(&self) -> Option<Duration> {
        let is_pipe = self.last_handshake.load().as_ref().is_some_and(|spoke| spoke.is_multiplexed);
        self.shared_idle.or(is_pipe.then_some(self.idle_stop))
    }

    /// Makes a connection in the other era the main one, where no client has called on that: a program whose clients are
    /// all of one era runs once.
    fn promote(&self, key: &ByteString, active: &Arc<UpstreamConnection>) {
        let Some(main) = self.shared() else { return };
        let unused = main.era != active.era && !main.is_called.load(Ordering::Acquire);
        if self.share == SharingMode::Auto
            && active.link.is_multiplexed()
            && unused
            && self.dedicated.release(key, active)
        {
            self.eras.promote(active.clone(), |active| self.set_shared(active));
        }
    }

    /// An attempt in the other era failed; an error, where that era is known to be spoken.
    fn stay_in_one_era(&self, upstream: &Upstream, key: &ByteString, error: Error) -> Result<(), Error> {
        let spoke = self.last_handshake.load_full();
        if let Some(spoke) = spoke.filter(|_| self.dedicated.was_refused(key)) {
            self.last_handshake
                .store(Some(Arc::new(LastHandshake { speaks_other_era: Some(false), ..(*spoke).clone() })));
        } else if self.last_handshake.load().as_ref().is_some_and(|spoke| spoke.speaks_other_era == Some(true)) {
            return Err(error);
        }
        self.eras.disable_other_era();
        // Of the same name may be the one that it is to have instead.
        self.dedicated.reset_backoff(key);
        let server = &upstream.settings.name;
        tracing::info!(server, "it is met in one era by all clients: {error}");
        Ok(())
    }

    /// Meets all clients in the era of the main connection: in the other one, the server keeps nothing to ask them by.
    fn leave_era(&self, upstream: &Upstream, key: &ByteString, active: &Arc<UpstreamConnection>) {
        if let Some(spoke) = self.last_handshake.load_full() {
            self.last_handshake
                .store(Some(Arc::new(LastHandshake { speaks_other_era: Some(false), ..(*spoke).clone() })));
        }
        self.eras.disable_other_era();
        self.dedicated.release(key, active);
        tracing::info!(server = upstream.settings.name, "server without sessions: all clients meet it in one era");
    }

    // === those beside ===

    /// The caller's own connection, if it has one.
    pub(super) fn dedicated_of(&self, caller: &Caller) -> Option<Arc<UpstreamConnection>> {
        self.dedicated.find(self.share, caller, self.other_era(caller))
    }

    /// The open connections that all clients of an era share, the main one first.
    pub(super) fn all_shared(&self) -> Vec<Arc<UpstreamConnection>> {
        self.shared().into_iter().chain(self.dedicated.shared_by_era()).collect()
    }

    /// Whether a session has a connection of its own.
    pub(super) fn has_session_connection(&self, session: &ByteString) -> bool {
        self.dedicated.has_session_connection(session)
    }

    /// The attempts of all of them.
    pub(super) fn attempts(&self) -> ConnectBudget {
        self.dedicated.attempts()
    }

    /// How many there are beside the main one.
    pub(super) fn dedicated_count(&self) -> usize {
        self.dedicated.len()
    }

    /// Closes those of principals that are gone.
    pub(super) async fn revoke_principals(&self, gone: &(dyn Fn(u32) -> bool + Sync)) {
        self.tenant.revoke_principals(gone);
        self.dedicated.revoke_principals(gone).await;
    }

    /// No other run goes on with those beside the main one.
    pub(super) fn discard_persisted(&self) {
        self.dedicated.discard_persisted();
    }

    /// Closes all but the main one.
    pub(super) async fn close_dedicated(&self) {
        self.dedicated.close_all().await;
    }
}

impl Upstream {
    /// Whether a session has a connection of its own here.
    pub fn has_dedicated(&self, session: &ByteString) -> bool {
        self.pool.has_session_connection(session)
    }
}

/// Whether a server can ask the clients of a connection. One that opens no session for clients of the legacy era serves each
/// of their requests by itself, and has nowhere to take an answer.
fn can_request_input(active: &UpstreamConnection, era: Era) -> bool {
    era == Era::Modern || active.link.is_multiplexed() || active.server.export_session().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing;
    use crate::upstream::memory::{MemoryServer, ServerBehaviour, tool};
    use crate::upstream::open_call;

    #[tokio::test(start_paused = true)]
    async fn of_two_sessions_that_find_a_pipe_empty_one_stays() {
        let memory = MemoryServer::new(&[ServerBehaviour::Answers(Duration::ZERO)]);
        let upstream = memory.upstream(|settings| settings.share = SharingMode::Auto);
        let running = tokio::spawn(upstream.clone().run());
        let main = upstream.wait_connected().await.ok().unwrap();
        let connections = &upstream.pool;
        connections.record.record();
        let can = ClientCapabilities { elicit_form: true, ..ClientCapabilities::default() };
        let [one, other] = ["one", "other"]
            .map(|session| Arc::new(Caller { capabilities: can, ..(*testing::caller(1, Some(session))).clone() }));
        let (settings, late) =
            (upstream.live_settings.load_full(), tokio::time::Instant::now() + Duration::from_secs(60));
        let seeker = |caller| {
            let ticket = upstream.concurrency.queued_permit(
                upstream.concurrency.try_acquire(),
                &settings,
                &upstream.context.metrics,
                late,
            );
            CheckoutRequest::new(&upstream, caller, false, ticket)
        };
        let (mut first, mut second) = (seeker(&one), seeker(&other));
        let chosen = connections.checkout(&mut first).await.ok().unwrap();
        let too = connections.checkout(&mut second).await.ok().unwrap();
        assert!(Arc::ptr_eq(&chosen.0, &main) && Arc::ptr_eq(&too.0, &main), "each is alone there");
        let entered = connections.begin_turn(&chosen.0, &chosen.1, &mut first).unwrap();
        let _call = open_call(&chosen.0, &one, tool("hang"));
        drop(entered);
        assert!(connections.begin_turn(&too.0, &too.1, &mut second).is_none(), "the first call began there");
        let (own, held) = connections.checkout(&mut second).await.ok().unwrap();
        assert!(!Arc::ptr_eq(&own, &main) && connections.begin_turn(&own, &held, &mut second).is_some());
        running.abort();
    }
}
