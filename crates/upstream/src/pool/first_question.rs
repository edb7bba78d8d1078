//! First input request of a server on a pipe. Owns which calls wait for others, or leave the shared
//! connection, before the server was seen to ask. Does not know requests (`protocol`). Invariant:
//! the first call of a tool starts where no other client has an open call, if the time allows it.
//!
//! A request on a pipe names no call. Two open calls of two clients make it ambiguous, and a
//! refused request costs a call. Calls of a tool that once ran without asking do not wait, so a
//! server that never asks is held up once for each tool.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::connection::UpstreamConnection;
use crate::pool::dedicated::ReleasePermit;
use crate::pool::isolation::CallTraits;
use crate::pool::{CheckoutRequest, ConnectionPool, connection_affinity};
use moongate_model::{Caller, SharingMode};
use moongate_protocol::CallTarget;

/// Time for which a call waits for another client's, if its session can then have another
/// connection.
const FIRST_WAIT: Duration = Duration::from_millis(300);
/// The same for a session that has state on the shared connection, so that it cannot leave, beside
/// a call that may ask, too.
// A question that is refused costs a call, which may have had effects: that is worse than a wait,
// once for each tool.
const STATEFUL_WAIT: Duration = Duration::from_secs(10);
/// Time between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

impl ConnectionPool {
    /// Returns true if a call may be the first to ask, and another client's open call would make
    /// its request ambiguous.
    pub(super) fn may_ask_first(
        &self,
        connection: &UpstreamConnection,
        caller: &Caller,
        traits: CallTraits,
        target: impl FnOnce() -> CallTarget,
    ) -> bool {
        !self.seen_input_flag.is_set()
            && !traits.about_task
            && self.sharing_mode() == SharingMode::Auto
            && connection
                .calls
                .can_be_asked(caller.capabilities, traits.extensions)
            && connection_affinity::input_is_ambiguous(connection, &self.seen_input_flag)
            && self.shared_or_era(connection)
            && match traits.is_tool_call {
                true => connection.calls.is_unproven_beside_others(caller, target()),
                // Hardly anything else asks, and each resource would wait for itself.
                false => {
                    caller.session.is_some()
                        && connection.calls.has_unproven_others(caller, target())
                }
            }
    }

    /// Returns true if several clients use a connection.
    pub(super) fn shared_or_era(&self, connection: &UpstreamConnection) -> bool {
        self.shared.holds(connection)
            || self
                .dedicated
                .shared_by_era()
                .iter()
                .any(|shared| std::ptr::eq(&**shared, connection))
    }

    /// Waits until the other clients' calls have shown what they do. The call gives up its permit
    /// meanwhile.
    pub(super) async fn wait_first_question(
        &self,
        connection: &UpstreamConnection,
        request: &mut CheckoutRequest<'_>,
        permit: &mut dyn ReleasePermit,
    ) {
        if !self.conflicts(connection, request) {
            return;
        }
        let now = Instant::now();
        let until = *request
            .first_question_until
            .get_or_insert(now + self.first_question_wait(connection, request, now));
        if now < until {
            permit.release();
        }
        while Instant::now() < until && self.conflicts(connection, request) {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// Returns how long a call waits for others.
    fn first_question_wait(
        &self,
        connection: &UpstreamConnection,
        request: &CheckoutRequest<'_>,
        now: Instant,
    ) -> Duration {
        // Only a tool's call has effects that would be lost with it. Beside a call that is known
        // not to ask, a long wait would hold up clients of servers that never ask.
        let both_may_ask = request.caller.session.is_some()
            && connection
                .calls
                .has_unproven_others(request.caller, request.target);
        let wait = match request.traits.is_tool_call && both_may_ask && !self.is_new(request.caller)
        {
            true => STATEFUL_WAIT,
            false => FIRST_WAIT,
        };
        // A call that waits for more than half of its time would only fail later.
        let deadline = request.received + self.server.timeouts.call();
        wait.min(deadline.saturating_duration_since(now) / 2)
    }

    /// Returns true if a call must not start on a connection yet: together with another, it may be
    /// the first to ask.
    pub(super) fn conflicts(
        &self,
        connection: &UpstreamConnection,
        request: &CheckoutRequest<'_>,
    ) -> bool {
        self.may_ask_first(connection, request.caller, request.traits, || {
            request.target
        })
    }

    /// Returns true if a session leaves the shared connection for that reason. One that has state
    /// there stays.
    pub(super) fn leaves_early(
        &self,
        connection: &UpstreamConnection,
        request: &CheckoutRequest<'_>,
    ) -> bool {
        self.is_new(request.caller) && self.conflicts(connection, request)
    }

    /// Returns true if a caller's session has no state on the shared connection.
    fn is_new(&self, caller: &Caller) -> bool {
        caller
            .session
            .as_ref()
            .is_some_and(|session| !self.shared_clients.has_called(session))
    }

    /// Returns true if a session left the shared connection before the server was seen to ask. It
    /// never returns.
    pub(super) fn has_left_early(&self, caller: &Caller, traits: CallTraits) -> bool {
        self.has_early_leavers.load(Ordering::Acquire)
            && !traits.about_task
            && self.dedicated.has_dedicated(caller)
    }
}
