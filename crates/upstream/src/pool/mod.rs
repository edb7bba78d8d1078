//! Connections of one server: the shared one and the dedicated ones. Owns the pools and the choice
//! of a connection for a call. Does not decide who must be isolated (`isolation.rs`) and does not
//! dial the shared connection (`supervisor`). Invariant: on a connection with ambiguous input
//! requests, no other client's call starts between its choice and its start.

mod asking_tools;
pub(crate) mod connect_budget;
pub(crate) mod connect_demand;
pub(crate) mod connection_affinity;
pub(crate) mod dedicated;
mod era_checkout;
pub(crate) mod era_selection;
mod dedicated_access;
mod first_question;
pub(crate) mod isolation;
pub(crate) mod legacy_tools;
pub(crate) mod liveness_triggers;
mod other_face;
mod own_capabilities;
mod roots_checkout;
mod shared_access;
pub(crate) mod shared_connection;
mod tool_names;

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use tokio::time::Instant;

use crate::connection::UpstreamConnection;
use crate::connection::dial::ConnectIdentity;
use crate::lists::ListStore;
use crate::pool::asking_tools::AskingTools;
use crate::pool::connection_affinity::{ConnectionAffinity, SharedConnectionClients};
use crate::pool::dedicated::table::{DedicatedPool, DedicatedRequest, UseGuard};
use crate::pool::dedicated::{DedicatedContext, ReleasePermit};
use crate::pool::era_selection::{EraSelection, LastHandshake};
use crate::pool::isolation::{CallTraits, ConnectionLifetime, DedicatedSpec};
use crate::pool::legacy_tools::LegacyTools;
use crate::pool::liveness_triggers::LivenessTriggers;
use crate::pool::shared_connection::SharedConnection;
use crate::server_context::ServerContext;
use moongate_model::{Call, Caller, Error, ServerStart, SharingMode};
use moongate_protocol::{CallTarget, Era, SeenInputFlag};

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
    /// True if the call stays on this connection: it is isolated, or has no alternative.
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
    /// Time until which the call waits for other clients' calls to show what they do, once it has
    /// to.
    first_question_until: Option<Instant>,
    received: Instant,
    /// True if another client's call started on the connection where this one would have been
    /// alone.
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
            first_question_until: None,
            received: call.received,
            needs_isolation: false,
        }
    }
}

/// Lock on the shared connection, which makes the choice and the start of a call one step. Drop it
/// after the start.
pub(crate) struct StartLock<'a> {
    _lock: Option<MutexGuard<'a, ()>>,
}

/// Shared connection for a call, which must start before this is dropped.
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
        self.server.settings.options.share
    }

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
        // One call at a time: of two that start together, the second sees the first.
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

    /// Waits for the connection of a call. The call may start once [`ConnectionPool::begin_start`]
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
        self.wait_first_question(&connection, request, permit).await;
        if request.first_question_until.is_some() && !self.shared_or_era(&connection) {
            // It was replaced meanwhile.
            (connection, use_guard) = self.checkout_shared_or_dedicated(request, permit).await?;
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

    /// Records that a call starts on a connection. The lock must be held.
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
        (settings.options.start == ServerStart::Lazy).then_some(settings.options.idle_stop.0)
    }

    /// Confirms the choice of a connection. `None`: meanwhile a call of another client, to which an
    /// input request could belong, started there. Choose again.
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
        let must_wait = request
            .first_question_until
            .is_none_or(|until| Instant::now() < until)
            && self.conflicts(connection, request);
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
}

#[cfg(test)]
mod tests;
