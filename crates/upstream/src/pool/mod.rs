//! Connections of one server: the shared one and the dedicated ones. Owns the pools and the choice
//! of a connection for a call. Does not decide who must be isolated (`isolation.rs`) and does not
//! dial the shared connection (`supervisor`). Invariant: on a connection with ambiguous input
//! requests, no other client's call begins between choice and start.

mod asking_tools;
pub(crate) mod connect_budget;
pub(crate) mod connect_demand;
pub(crate) mod connection_affinity;
pub(crate) mod dedicated;
pub(crate) mod era_selection;
mod dedicated_access;
mod first_question;
pub(crate) mod isolation;
pub(crate) mod legacy_tools;
pub(crate) mod liveness_triggers;
mod other_face;
mod own_capabilities;
mod roots_checkout;
pub(crate) mod shared_connection;
mod tool_names;

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};

use crate::connection::UpstreamConnection;
use crate::connection::dial::ConnectIdentity;
use crate::event::{Audience, DedicatedSessions};
use crate::gateway_caller::gateway_caller;
use crate::lists::ListStore;
use crate::pool::asking_tools::AskingTools;
use crate::pool::connect_demand::ConnectDemand;
use crate::pool::connection_affinity::{ConnectionAffinity, SharedConnectionClients};
use crate::pool::dedicated::table::{DedicatedPool, DedicatedRequest, UseGuard};
use crate::pool::dedicated::{DedicatedContext, ReleasePermit};
use crate::pool::era_selection::{EraSelection, LastHandshake};
use crate::pool::isolation::{CallTraits, ConnectionLifetime, DedicatedSpec};
use crate::pool::legacy_tools::LegacyTools;
use crate::pool::liveness_triggers::LivenessTriggers;
use crate::pool::shared_connection::SharedConnection;
use crate::server_context::ServerContext;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Call, Caller, Error, ServerDescription, ServerStart, SharingMode, TaskState};
use moongate_protocol::{CallTarget, Era, LegacyGreeting, SeenInputFlag};

/// Connections of one server.
pub(crate) struct ConnectionPool {
    server: Arc<ServerContext>,
    /// Lists, which dedicated connections change.
    pub(crate) lists: Arc<ListStore>,
    shared: SharedConnection,
    /// Result of the last handshake.
    last_handshake: ArcSwapOption<LastHandshake>,
    pub(crate) eras: EraSelection,
    /// Tools that can ask only in the legacy era.
    pub(crate) legacy_tools: LegacyTools,
    /// Tools that were seen to ask their client.
    pub(crate) asking_tools: AskingTools,
    /// Record of whether the server ever sent an input request on a pipe.
    pub(crate) seen_input_flag: SeenInputFlag,
    /// Doubts about the shared connection.
    pub(crate) liveness_triggers: LivenessTriggers,
    /// Clients that have called on the shared connection.
    shared_clients: SharedConnectionClients,
    dedicated: DedicatedPool,
    /// True once a session left the shared connection before the server was seen to ask.
    has_early_leavers: AtomicBool,
    start_lock: Mutex<()>,
}

/// Claim of a call on its connection while it runs.
#[derive(Default)]
pub(crate) struct CheckedOut {
    use_guard: Option<UseGuard>,
    /// True if the call stays on this connection: it is isolated, or there is no alternative.
    is_final: bool,
}

impl CheckedOut {
    /// Returns true if the call stays on its connection.
    pub(crate) fn is_final(&self) -> bool {
        self.is_final
    }
}

/// Request of one call for a connection.
pub(crate) struct CheckoutRequest<'a> {
    caller: &'a Arc<Caller>,
    /// Era in which the call should go to the server, if the server speaks it.
    era: Era,
    traits: CallTraits,
    /// What the call is about, for the first input request of a server.
    target: CallTarget,
    /// True if the server would take the client for one that can answer what the tool was seen to
    /// ask for.
    pub(crate) exceeds_client: bool,
    /// True if the call waited for other clients' calls to show what they do.
    has_waited: bool,
    /// True if another client's call began on the connection where this one would have been alone.
    needs_isolation: bool,
}

impl<'a> CheckoutRequest<'a> {
    pub(crate) fn new(caller: &'a Arc<Caller>, era: Era, call: &Call) -> Self {
        let target = CallTarget::from_call(call);
        let traits = CallTraits::of(call);
        CheckoutRequest {
            caller,
            era,
            traits,
            target,
            exceeds_client: false,
            has_waited: false,
            needs_isolation: false,
        }
    }
}

/// Lock on the shared connection, which makes the choice and the start of a call one step. Drop it
/// after the start.
pub(crate) struct StartLock<'a> {
    _lock: Option<MutexGuard<'a, ()>>,
}

/// Shared connection for a call, which must begin before this is dropped.
pub(crate) struct TryCheckout<'a> {
    connection: Guard<Option<Arc<UpstreamConnection>>>,
    _lock: Option<MutexGuard<'a, ()>>,
}

impl TryCheckout<'_> {
    pub(crate) fn connection(&self) -> Option<&UpstreamConnection> {
        self.connection.as_deref()
    }
}

impl ConnectionPool {
    pub(crate) fn new(server: Arc<ServerContext>, lists: Arc<ListStore>) -> Self {
        let settings = &server.settings;
        ConnectionPool {
            shared: SharedConnection::new(server.clone()),
            last_handshake: ArcSwapOption::empty(),
            eras: EraSelection::new(settings.as_client && settings.protocol.is_none()),
            legacy_tools: LegacyTools::default(),
            asking_tools: AskingTools::default(),
            seen_input_flag: SeenInputFlag::default(),
            liveness_triggers: LivenessTriggers::default(),
            shared_clients: SharedConnectionClients::default(),
            dedicated: DedicatedPool::default(),
            has_early_leavers: AtomicBool::new(false),
            start_lock: Mutex::default(),
            lists,
            server,
        }
    }

    fn sharing_mode(&self) -> SharingMode {
        self.server.settings.share
    }

    // === shared connection ===

    /// Returns the shared connection, while there is one.
    pub(crate) fn shared(&self) -> Option<Arc<UpstreamConnection>> {
        self.shared.get()
    }

    /// Waits for the shared connection. Fails if none can be expected.
    pub(crate) async fn wait_connected(&self) -> Result<Arc<UpstreamConnection>, Error> {
        self.shared.wait().await
    }

    /// Returns the error of a call that got no connection in its time.
    pub(crate) fn checkout_timeout(&self) -> Error {
        self.shared.checkout_timeout()
    }

    /// Returns the demand of callers for the shared connection.
    pub(crate) fn demand(&self) -> &ConnectDemand {
        &self.shared.demand
    }

    /// Takes a connection into use as the shared one.
    pub(crate) fn set_shared(&self, connection: Arc<UpstreamConnection>) {
        let description = connection.server.describe(&gateway_caller());
        // Another release of the server may do without.
        let before = self
            .last_handshake
            .load_full()
            .filter(|before| before.era == connection.era);
        if before.is_some_and(|before| before.description.info != description.info) {
            self.legacy_tools.clear();
        }
        let other = self
            .eras
            .record_connected(connection.era, self.last_handshake.load().as_deref());
        let handshake = LastHandshake {
            era: connection.era,
            is_multiplexed: connection.link.is_multiplexed(),
            description,
            speaks_other_era: other,
            greeting: connection.greeting.or_else(|| self.greeting()),
        };
        // Stored before the connection, so that a call that sees the connection sees its handshake.
        self.last_handshake.store(Some(Arc::new(handshake)));
        // The clients of the previous connection have no state on this one.
        self.shared_clients.reset();
        self.shared.set(connection);
    }

    /// Takes a connection out of use, unless another took its place. The facts of its handshake
    /// stay.
    pub(crate) fn clear_shared(&self, connection: &Arc<UpstreamConnection>) {
        if !self.shared.clear(connection) {
            return;
        }
        if let Some(handshake) = self.last_handshake.load_full() {
            // The server may have changed its description since the handshake.
            let description = connection.server.describe(&gateway_caller());
            self.last_handshake.store(Some(Arc::new(LastHandshake {
                description,
                ..(*handshake).clone()
            })));
        }
    }

    /// Restores the handshake of a previous process. A pipe that speaks both eras starts in the era
    /// of its clients.
    pub(crate) fn restore_handshake(&self, handshake: LastHandshake) {
        if handshake.is_multiplexed && handshake.speaks_other_era == Some(true) {
            self.eras.prefer_era(handshake.era);
        }
        self.last_handshake.store(Some(Arc::new(handshake)));
    }

    /// Returns the form of the legacy handshake that the server took last, perhaps of a previous
    /// process.
    pub(crate) fn greeting(&self) -> Option<LegacyGreeting> {
        self.last_handshake
            .load()
            .as_ref()
            .and_then(|handshake| handshake.greeting)
    }

    /// Returns the result of the last handshake.
    pub(crate) fn last_handshake(&self) -> Option<Arc<LastHandshake>> {
        self.last_handshake.load_full()
    }

    /// Returns the server's description. While disconnected, this is the last known one, perhaps of
    /// a previous process.
    pub(crate) fn description(&self) -> Option<ServerDescription> {
        let described = self
            .shared()
            .map(|connection| connection.server.describe(&gateway_caller()));
        described.or_else(|| {
            self.last_handshake()
                .map(|handshake| handshake.description.clone())
        })
    }

    /// Records what a call showed of a task.
    pub(crate) fn track_task(&self, checked_out: &CheckedOut, task: &TaskState) {
        match &checked_out.use_guard {
            Some(use_guard) => use_guard.track_task(task),
            None => self.shared.tasks.track_task(task),
        }
    }

    /// Returns the audience of what the server tells on the shared connection.
    pub(crate) fn shared_clients(&self) -> Audience {
        let dedicated = self.dedicated.clone();
        let share = self.sharing_mode();
        Audience::SharedClients(DedicatedSessions(Arc::new(move |caller| {
            dedicated.has_open(share, caller)
        })))
    }

    /// Waits until the shared connection has the roots of a client that has left, and runs nothing.
    pub(crate) async fn wait_roots_client_left(&self, connection: &UpstreamConnection) {
        connection
            .wait_roots_client_left(|| self.shared.tasks.has_tasks())
            .await;
    }

    // === checkout ===

    /// Returns the shared connection, if this call goes there without waiting.
    pub(crate) fn try_checkout(
        &self,
        caller: &Caller,
        era: Era,
        call: &Call,
    ) -> Option<TryCheckout<'_>> {
        let traits = CallTraits::of(call);
        // In the other modes, clients have dedicated connections.
        if self.sharing_mode() != SharingMode::Auto {
            return None;
        }
        let shared = self.shared.peek();
        let connection = shared.as_ref()?;
        // The cheap comparison first: most clients are in the era of the shared connection.
        if connection.era != era && self.other_era(era).is_some() {
            return None;
        }
        // One call at a time: of two that begin together, the second sees the first.
        let lock = self.lock_start(connection, caller, traits);
        if self.must_isolate(connection, caller, traits)
            || self.needs_roots_connection(caller, traits)
            || self.is_mistaken_for_able(caller, traits, call)
            || self.roots_trial(connection, caller, traits).is_some()
            || self.finds_missing_roots(connection, caller, traits)
            || self.may_ask_first(connection, caller, traits, || CallTarget::from_call(call))
        {
            return None;
        }
        self.note_call_start(connection, caller, traits);
        Some(TryCheckout {
            connection: shared,
            _lock: lock,
        })
    }

    /// Waits for the connection of a call. The call may begin once [`ConnectionPool::begin_start`]
    /// succeeds.
    pub(crate) async fn checkout(
        &self,
        request: &mut CheckoutRequest<'_>,
        permit: &mut dyn ReleasePermit,
    ) -> Result<(Arc<UpstreamConnection>, CheckedOut), Error> {
        if let Some(own) = self.checkout_own(request, permit).await {
            return Ok(own);
        }
        let (mut connection, mut use_guard) =
            self.checkout_shared_or_dedicated(request, permit).await?;
        self.wait_roots_trial(&connection, request).await;
        if let Some(own) = self.checkout_own(request, permit).await {
            return Ok(own);
        }
        if self.wait_without_roots(&connection, request).await {
            (connection, use_guard) = self.checkout_shared_or_dedicated(request, permit).await?;
        }
        if !request.has_waited {
            self.wait_first_question(&connection, request).await;
        }
        let caller = request.caller;
        let leaves = self.leaves_early(&connection, request);
        if leaves {
            self.has_early_leavers.store(true, Ordering::Release);
        }
        if !request.needs_isolation
            && !leaves
            && !self.must_isolate(&connection, caller, request.traits)
        {
            return Ok((
                connection,
                CheckedOut {
                    use_guard,
                    ..CheckedOut::default()
                },
            ));
        }
        let stays = self.shared_clients.affinity_of(caller) != ConnectionAffinity::Shared;
        let spec = isolation::isolated_for(caller, stays, self.shared_idle());
        match self
            .checkout_dedicated(request, permit, spec, Some(connection.era))
            .await
        {
            Ok((connection, use_guard)) => Ok((
                connection,
                CheckedOut {
                    use_guard: Some(use_guard),
                    is_final: true,
                },
            )),
            Err(error) if connection.calls.has_roots_of_another(caller) => Err(error),
            // On the shared connection the call runs at least. Its input requests find their client
            // if it is alone there.
            Err(error) => {
                tracing::debug!(
                    server = &*self.server.name,
                    "dedicated connection failed: {error}"
                );
                Ok((
                    connection,
                    CheckedOut {
                        use_guard,
                        is_final: true,
                    },
                ))
            }
        }
    }

    /// Locks the start of a call: held from the choice of an ambiguous connection until the call is
    /// open. `None` if no lock is needed.
    fn lock_start(
        &self,
        connection: &UpstreamConnection,
        caller: &Caller,
        traits: CallTraits,
    ) -> Option<MutexGuard<'_, ()>> {
        // A client without capabilities gets no input requests. Until the first one was seen, its
        // calls need no lock.
        let matters = connection
            .calls
            .can_be_asked(caller.capabilities, traits.extensions)
            || self.seen_input_flag.is_set();
        let is_locked =
            matters && connection_affinity::input_is_ambiguous(connection, &self.seen_input_flag);
        is_locked.then(|| self.start_lock.lock())
    }

    /// Records that a call begins on a connection. The lock must be held.
    fn note_call_start(
        &self,
        connection: &UpstreamConnection,
        caller: &Caller,
        traits: CallTraits,
    ) {
        if self.sharing_mode() == SharingMode::Auto
            && !traits.about_task
            && connection_affinity::input_is_ambiguous(connection, &self.seen_input_flag)
            && self.shared.holds(connection)
        {
            self.shared_clients.record_call(caller);
            if let Some(session) = caller
                .session
                .as_ref()
                .filter(|_| !self.seen_input_flag.is_set())
            {
                self.shared_clients.record_session(session);
            }
        }
    }

    /// Returns the idle time after which a connection of several clients is closed. `None`: never.
    fn shared_idle(&self) -> Option<Duration> {
        let settings = &self.server.settings;
        (settings.start == ServerStart::Lazy).then_some(settings.idle_stop)
    }

    /// Confirms the choice of a connection. `None`: a call of another client began there meanwhile,
    /// to which an input request could belong. Choose again.
    pub(crate) fn begin_start(
        &self,
        connection: &UpstreamConnection,
        checked_out: &CheckedOut,
        request: &mut CheckoutRequest<'_>,
    ) -> Option<StartLock<'_>> {
        let lock = self.lock_start(connection, request.caller, request.traits);
        if !checked_out.is_final && self.must_isolate(connection, request.caller, request.traits) {
            request.needs_isolation = true;
            return None;
        }
        // The server may have asked since the checkout.
        if !checked_out.is_final
            && self.finds_missing_roots(connection, request.caller, request.traits)
        {
            return None;
        }
        let must_wait = !request.has_waited && self.conflicts(connection, request);
        if !checked_out.is_final && (must_wait || self.leaves_early(connection, request)) {
            return None;
        }
        if !checked_out.is_final {
            self.note_call_start(connection, request.caller, request.traits);
        }
        Some(StartLock { _lock: lock })
    }

    async fn checkout_shared_or_dedicated(
        &self,
        request: &CheckoutRequest<'_>,
        permit: &mut dyn ReleasePermit,
    ) -> Result<(Arc<UpstreamConnection>, Option<UseGuard>), Error> {
        let caller = request.caller;
        self.connect_in_era(request).await?;
        if let Some(era) = self.other_era(request.era)
            && let Some(spec) = isolation::dedicated_for(
                self.sharing_mode(),
                caller,
                Some(era),
                self.dedicated_idle(),
            )
        {
            let key = spec.key.clone();
            if let Some((connection, use_guard)) =
                self.checkout_other_era(request, permit, spec, era).await?
            {
                // A tool that needs the other era says nothing of the client's other calls.
                if era == moongate_protocol::era_of(caller.revision) {
                    self.promote(&key, &connection);
                }
                return Ok((connection, Some(use_guard)));
            }
        }
        match isolation::dedicated_for(self.sharing_mode(), caller, None, self.shared_idle()) {
            None => {
                let shared = self.wait_connected().await?;
                Ok(self
                    .checkout_session_shared(request, permit, &shared)
                    .await
                    .unwrap_or((shared, None)))
            }
            Some(spec) => {
                let (connection, use_guard) =
                    self.checkout_dedicated(request, permit, spec, None).await?;
                Ok((connection, Some(use_guard)))
            }
        }
    }

    async fn checkout_dedicated(
        &self,
        request: &CheckoutRequest<'_>,
        permit: &mut dyn ReleasePermit,
        spec: DedicatedSpec,
        era: Option<Era>,
    ) -> Result<(Arc<UpstreamConnection>, UseGuard), Error> {
        let connect_identity = if spec.as_caller {
            ConnectIdentity::for_caller(request.caller, era)
        } else {
            ConnectIdentity::for_all(era)
        };
        let connect_identity = ConnectIdentity {
            seen_input: self.seen_input_flag.clone(),
            greeting: self.greeting(),
            was_connected: true,
            is_shared: !spec.as_caller,
            person: (!spec.owner.spans_principals()).then_some(request.caller.principal.key),
            // A connection of a session has one client, whatever else is its owner.
            client: request
                .caller
                .channel
                .clone()
                .filter(|_| spec.as_caller && spec.lifetime == ConnectionLifetime::WithSession),
            ..connect_identity
        };
        let dedicated = DedicatedRequest {
            key: spec.key,
            connect_identity,
            lifetime: spec.lifetime,
            owner: spec.owner,
        };
        let context = DedicatedContext {
            server: &self.server,
            lists: &self.lists,
        };
        self.dedicated
            .checkout(dedicated, request.caller, context, permit)
            .await
    }

    /// Returns the connection that clients with sessions share, where a principal has the shared
    /// one of a server that sends input requests.
    async fn checkout_session_shared(
        &self,
        request: &CheckoutRequest<'_>,
        permit: &mut dyn ReleasePermit,
        shared: &Arc<UpstreamConnection>,
    ) -> Option<(Arc<UpstreamConnection>, Option<UseGuard>)> {
        let is_ambiguous = self.seen_input_flag.is_set()
            && connection_affinity::input_is_ambiguous(shared, &self.seen_input_flag)
            && !request.traits.about_task;
        if !is_ambiguous
            || self.shared_clients.affinity_of(request.caller) != ConnectionAffinity::SessionShared
            || self.dedicated.has_dedicated(request.caller)
        {
            return None;
        }
        let (connection, use_guard) = self
            .checkout_dedicated(
                request,
                permit,
                isolation::shared_in_era(Era::Legacy, self.dedicated_idle()),
                Some(shared.era),
            )
            .await
            .ok()?;
        Some((connection, Some(use_guard)))
    }

    /// Returns true if the call needs a connection on which input requests cannot belong to other
    /// clients.
    fn must_isolate(
        &self,
        connection: &UpstreamConnection,
        caller: &Caller,
        traits: CallTraits,
    ) -> bool {
        // A call about a task, and a connection of one session or principal, are never moved.
        if traits.about_task || self.sharing_mode() != SharingMode::Auto {
            return false;
        }
        if self.has_left_early(caller, traits) {
            return true;
        }
        // A session that was kept out has its state elsewhere, even if that client has left since.
        if self.seen_input_flag.asks_roots()
            && (connection.calls.keep_out(caller) || self.dedicated.has_dedicated(caller))
        {
            return true;
        }
        if !self.seen_input_flag.is_set()
            || !connection_affinity::input_is_ambiguous(connection, &self.seen_input_flag)
        {
            return false;
        }
        // The state of a session is on the shared connection. The session leaves it only when an
        // input request could be ambiguous, and then for good.
        self.shared.holds(connection)
            && self.shared_clients.affinity_of(caller) != ConnectionAffinity::Shared
            || connection
                .calls
                .has_other_clients(caller, traits.extensions)
            || self.dedicated.has_dedicated(caller)
    }

    // === eras ===

    /// Returns the era in which a call should go to the server: its client's, unless its tool can
    /// ask only in the legacy era.
    pub(crate) fn wanted_era(&self, caller: &Caller, call: &Call) -> Era {
        if self.legacy_tools.includes(call) {
            Era::Legacy
        } else {
            moongate_protocol::era_of(caller.revision)
        }
    }

    /// Returns true if the server may be called in an era: it speaks it, or was not tried.
    pub(crate) fn is_open_in(&self, era: Era) -> bool {
        self.eras
            .is_open(self.last_handshake.load().as_deref(), era)
    }

    /// Returns the era of a wanted dedicated connection, if the shared connection is in the other
    /// one.
    ///
    /// A server that speaks both eras may send input requests only in the era it was written for.
    /// Requests in the middle of a call do not exist in the modern era. Each client therefore meets
    /// the server as it would without the gateway.
    fn other_era(&self, era: Era) -> Option<Era> {
        self.eras
            .dedicated_era(self.last_handshake.load().as_deref(), era)
    }

    /// Connects the shared connection first: a pipe that speaks both eras starts in the era of its
    /// first client.
    async fn connect_in_era(&self, request: &CheckoutRequest<'_>) -> Result<(), Error> {
        let is_pipe = self
            .last_handshake
            .load()
            .as_ref()
            .is_none_or(|handshake| handshake.is_multiplexed);
        if self.sharing_mode() == SharingMode::Auto && is_pipe && self.shared().is_none() {
            self.eras
                .prefer_era(moongate_protocol::era_of(request.caller.revision));
            self.wait_connected().await?;
        }
        Ok(())
    }

    /// Returns the idle time of dedicated connections. On a pipe, each may have a process of its
    /// own.
    fn dedicated_idle(&self) -> Option<Duration> {
        let is_pipe = self
            .last_handshake
            .load()
            .as_ref()
            .is_some_and(|handshake| handshake.is_multiplexed);
        self.shared_idle()
            .or(is_pipe.then_some(self.server.settings.idle_stop))
    }

    /// Promotes a connection in the other era to the shared one, if no client has called on the
    /// shared one yet. If all clients are of one era, the program then runs once.
    fn promote(&self, key: &ByteString, connection: &Arc<UpstreamConnection>) {
        let Some(shared) = self.shared() else { return };
        // Acquire pairs with the release in `open_call`: a call that began there is seen.
        let unused = shared.era != connection.era && !shared.is_called.load(Ordering::Acquire);
        if self.sharing_mode() == SharingMode::Auto
            && connection.link.is_multiplexed()
            && unused
            && self.dedicated.release(key, connection)
        {
            self.eras
                .promote(connection.clone(), |connection| self.set_shared(connection));
        }
    }
}

#[cfg(test)]
mod tests;
