//! Identity of a session: its id, its owner, its endpoint and its caller.
//!
//! Owns the caller, which changes with the log level and with `initialize`. Does not find sessions.
//! Invariant: each caller of a session carries the session's id, if it has one, and the token of
//! its end.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio_util::sync::CancellationToken;

use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, ClientChannel, LogFilter, Principal};

/// Id of the session of a single POST. No client has it, since no table does.
pub(super) const TRANSIENT_ID: &str = "";

/// Identity of one session.
pub struct SessionIdentity {
    /// Session id: a secret of 256 bits. It is empty for a transient session.
    pub id: ByteString,
    /// Principal that opened the session.
    pub principal: Arc<Principal>,
    /// Endpoint that the session was opened on.
    pub scope: ByteString,
    caller: ArcSwap<Caller>,
}

impl SessionIdentity {
    /// Creates the identity of the session that `caller` opens. `ended` is cancelled when it ends.
    pub(super) fn new(
        id: ByteString,
        scope: ByteString,
        caller: Caller,
        (ended, channel): (CancellationToken, ClientChannel),
    ) -> Self {
        let principal = caller.principal.clone();
        // Servers that keep sessions apart take the principal of a caller without one.
        let is_transient = &*id == TRANSIENT_ID;
        let caller = Caller {
            session: (!is_transient).then(|| id.clone()),
            ended,
            channel: (!is_transient).then_some(channel),
            ..caller
        };
        SessionIdentity {
            id,
            principal,
            scope,
            caller: ArcSwap::from_pointee(caller),
        }
    }

    /// Returns true if the session is that of a single POST without a session id.
    pub fn is_transient(&self) -> bool {
        &*self.id == TRANSIENT_ID
    }

    /// Returns true if the session is this principal's, at this endpoint.
    pub(super) fn is_owned_by(&self, principal: &Principal, scope: &ByteString) -> bool {
        *self.principal == *principal && self.scope == *scope
    }

    /// Borrows the caller, with its capabilities and its log level.
    pub fn caller(&self) -> Guard<Arc<Caller>> {
        self.caller.load()
    }

    /// Returns the caller for longer than a look.
    pub fn shared_caller(&self) -> Arc<Caller> {
        self.caller.load_full()
    }

    /// Returns the revision that the client negotiated. It is empty before `initialize`.
    pub fn revision(&self) -> &'static str {
        self.caller.load().revision
    }

    /// Replaces the caller by the one that `initialize` declared.
    pub fn replace_caller(&self, caller: Caller) {
        // The token stays the same. Tasks that started before `initialize` wait for it, too.
        let Caller { ended, channel, .. } = (**self.caller.load()).clone();
        self.caller.store(Arc::new(Caller {
            session: Some(self.id.clone()),
            ended,
            channel,
            ..caller
        }));
    }

    pub(super) fn set_log_filter(&self, log_filter: LogFilter) {
        // Another request of the session may replace the caller at the same time.
        self.caller.rcu(|caller| Caller {
            log_filter,
            ..(**caller).clone()
        });
    }
}
