//! Encoder of one exchange for a client of this revision.
//!
//! Owns the wire form of its events and the client's part in input requests. Does not start calls
//! (`dialect.rs`). Invariant: a client gets no input request of a kind that it did not declare.

use std::sync::Arc;

use bytes::Bytes;

use crate::dialect::DownstreamState;
use crate::notifications;
use crate::respond::{InputAction, ResponseEncoder};
use crate::v2026_07_28::downstream::encode;
use crate::v2026_07_28::downstream::input_rounds::{self, InputRound};
use crate::v2026_07_28::downstream::request_state::StateContext;
use moongate_jsonrpc::json::{ByteString, RawJson};
use moongate_jsonrpc::message::RequestId;
use moongate_model::{Caller, Error, Exchange, InputRequired, Notification, Outcome, StateHolder};
use moongate_session::StateUse;
use moongate_telemetry::{InputOutcome, MemoryHolder};

/// Function that delimits a message on a stream.
pub(super) type FrameFn = fn(&[u8]) -> Bytes;

/// Encoder of one exchange for a client of this revision.
///
/// Dropping it cancels the exchange: "The server MUST treat a client disconnect as cancellation of
/// that request" (basic/patterns/cancellation.mdx).
pub(crate) struct ModernEncoder {
    pub(super) id: RequestId,
    pub(super) context: StateContext,
    pub(super) token: Option<RawJson>,
    pub(super) caller: Arc<Caller>,
    pub(super) holder: MemoryHolder,
    pub(super) scope: ByteString,
    pub(super) frame: FrameFn,
    pub(super) state: Arc<DownstreamState>,
    /// Error of the first input request that the client did not declare. The response, if the
    /// server fails without it.
    pub(super) undeclared: Option<Box<Error>>,
    /// Use of the state that the request brought. It is taken back if the call had no effect.
    pub(super) used_state: Option<StateUse>,
}

impl ModernEncoder {
    /// Returns the input round of the exchange.
    pub(super) fn input_round(&self) -> InputRound<'_> {
        InputRound {
            id: &self.id,
            context: &self.context,
            caller: &self.caller,
            holder: &self.holder,
            scope: &self.scope,
            state: &self.state,
        }
    }
}

/// Returns true if a call failed, at the server or by its tool's own account.
fn has_failed(end: &Result<Outcome, Error>) -> bool {
    end.as_ref().map_or(true, |outcome| {
        outcome
            .result
            .get("isError")
            .is_some_and(|failed| failed.bytes() == "true")
    })
}

impl ResponseEncoder for ModernEncoder {
    fn notification(&mut self, notification: Notification) -> Option<Bytes> {
        match notification {
            Notification::Progress(params) => self
                .token
                .as_ref()
                .map(|token| notifications::encode_progress(params, token)),
            Notification::Log(level, params) if self.caller.log_filter.allows(level) => Some(
                notifications::encode_notification("notifications/message", &params),
            ),
            Notification::Extension(method, params) => {
                Some(notifications::encode_notification(&method, &params))
            }
            // "These notifications MUST relate to the originating client request": other
            // notifications do not.
            _ => None,
        }
    }

    fn input_required(&mut self, input: InputRequired) -> InputAction {
        let round = self.input_round();
        if let Some(error) = round.check_declared(&input) {
            if matches!(input.state_holder, StateHolder::Server) {
                round.refuse(input, &error);
                self.undeclared.get_or_insert_with(|| Box::new(error));
                return InputAction::Refused;
            }
            round.count(&input, InputOutcome::Refused);
            return InputAction::End(
                encode::http_status(&error),
                vec![encode::encode_error(Some(&self.id), &error)],
            );
        }
        round.count(&input, InputOutcome::Asked);
        match input.state_holder {
            StateHolder::Client(state) => {
                InputAction::End(200, round.forward(&input.requests, input.server, state))
            }
            StateHolder::Server => InputAction::Park(input),
        }
    }

    fn frame(&mut self, message: &[u8], _: bool) -> Bytes {
        (self.frame)(message)
    }

    async fn park(
        &mut self,
        exchange: Exchange,
        input: InputRequired,
    ) -> Result<(u16, Vec<Bytes>), Exchange> {
        self.input_round().park(exchange, input).await
    }

    fn result(&mut self, end: Result<Outcome, Error>) -> (u16, Vec<Bytes>) {
        if let Err(error) = &end
            && let Some(input) = input_rounds::from_error(error)
            && let InputAction::End(status, parts) = self.input_required(input)
        {
            return (status, parts);
        }
        // A server that could do without the input has answered. One that failed needs the
        // capability.
        let end = match self.undeclared.take().filter(|_| has_failed(&end)) {
            Some(missing) => Err(*missing),
            None => end,
        };
        if let (Some(used), Err(error)) = (self.used_state.take(), &end)
            && input_rounds::was_never_sent(error)
        {
            used.give_back();
        }
        encode::encode_outcome(&self.id, self.context.method(), end)
    }
}
