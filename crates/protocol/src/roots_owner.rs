//! Client whose roots a connection of all clients was given.
//!
//! Owns the rule that it is one client, for as long as the connection is open. Does not move other
//! clients to other connections (`upstream`). Invariant: a connection of several clients sees the
//! roots of one of them at the most, since servers keep what they got.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::PendingCalls;
use crate::correlation::{CallOwner, owner_of};
use moongate_model::{Caller, ClientChannel, InputKind};

/// Owner of the roots on one connection.
#[derive(Default)]
pub(super) struct RootsOwner {
    /// True if several clients use the connection.
    is_shared: AtomicBool,
    owner: Mutex<Option<RootsHolder>>,
    /// True if roots were declared to find out whether the server asks for them.
    is_trial: AtomicBool,
    /// Signalled when a client without roots needs a connection that declares none.
    unwanted: Notify,
    /// Signalled when another client is kept out.
    kept_out: Notify,
}

/// Client whose roots the server got.
struct RootsHolder {
    client: CallOwner,
    channel: Option<ClientChannel>,
    /// Cancelled when the client's session ends. `None`: it has no session.
    ended: Option<CancellationToken>,
}

impl RootsHolder {
    fn new(client: &CallOwner, caller: &Caller) -> Self {
        let ended = caller.session.as_ref().map(|_| caller.ended.clone());
        RootsHolder {
            client: client.clone(),
            channel: caller.channel.clone(),
            ended,
        }
    }
}

impl RootsOwner {
    /// Records that several clients use the connection.
    pub(super) fn mark_shared(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// Records that roots were declared to find out whether the server asks for them.
    pub(super) fn mark_trial(&self) {
        self.is_trial.store(true, Ordering::Relaxed);
    }

    /// Claims the connection for a client's roots. Returns false if another client's are there.
    fn claim(&self, client: &CallOwner, caller: &Caller) -> bool {
        if !self.is_shared.load(Ordering::Relaxed) {
            return true;
        }
        let mut owner = self.owner.lock();
        owner
            .get_or_insert_with(|| RootsHolder::new(client, caller))
            .client
            == *client
    }

    /// Returns true if a client may claim the connection.
    pub(super) fn is_free_for(&self, client: &CallOwner) -> bool {
        !self.is_any(|owner| owner != client)
    }

    /// Returns true if the roots of a client are there for which `is_client` holds.
    pub(super) fn is_any(&self, is_client: impl Fn(&CallOwner) -> bool) -> bool {
        self.owner
            .lock()
            .as_ref()
            .is_some_and(|owner| is_client(&owner.client))
    }

    /// Returns the way to the owner, outside of its calls.
    pub(super) fn channel(&self) -> Option<ClientChannel> {
        self.owner.lock().as_ref()?.channel.clone()
    }
}

impl PendingCalls {
    /// Records that the server asks for roots, if it does.
    pub(super) fn record_roots(&self, kind: InputKind) {
        if kind == InputKind::Roots {
            self.seen_input().set_roots();
        }
    }

    /// Claims the connection for a caller whose client is asked now, if it is asked for roots.
    /// Returns false if another client's are there.
    pub(super) fn claim_roots(&self, caller: &Caller, kind: InputKind) -> bool {
        // A client without roots is not asked, so the server learns nothing.
        kind != InputKind::Roots
            || !caller.capabilities.roots
            || owner_of(caller).is_none_or(|owner| self.roots_owner().claim(&owner, caller))
    }

    /// True if the server was seen to ask for roots, on any of its connections.
    pub(super) fn asks_roots(&self) -> bool {
        self.seen_input().asks_roots()
    }

    /// True if the server asks for roots, or was not seen without doing so yet.
    pub(super) fn may_ask_roots(&self) -> bool {
        self.seen_input().asks_roots() || !self.seen_input().is_roots_tried()
    }

    /// Records that the server was offered roots, and did not ask for them on its own.
    pub fn record_roots_tried(&self) {
        self.seen_input().set_roots_tried();
    }

    /// True if the server has the roots of this client, on a connection of several.
    pub fn has_roots_of(&self, caller: &Caller) -> bool {
        let owner = owner_of(caller);
        self.roots_owner()
            .is_any(|known| owner.as_ref() == Some(known))
    }

    /// True if the server has the roots of another client.
    pub fn has_roots_of_another(&self, caller: &Caller) -> bool {
        let owner = owner_of(caller);
        self.roots_owner()
            .is_any(|known| owner.as_ref() != Some(known))
    }

    /// True if the connection declares roots that no client gave, and it is not known whether the
    /// server asks for them.
    pub fn is_roots_trial(&self) -> bool {
        self.roots_owner().is_trial.load(Ordering::Relaxed)
            && !self.seen_input().asks_roots()
            && !self.seen_input().is_roots_tried()
    }

    /// True if the server asks for roots that the connection declares, and no client gave any.
    pub fn declares_missing_roots(&self) -> bool {
        self.roots_owner().is_trial.load(Ordering::Relaxed)
            && self.seen_input().asks_roots()
            && !self.roots_owner().is_any(|_| true)
    }

    /// Asks for another connection, which declares no roots.
    pub fn refuse_missing_roots(&self) {
        self.roots_owner().unwanted.notify_one();
    }

    /// Waits until a client without roots needs another connection.
    pub async fn wait_missing_roots_refused(&self) {
        self.roots_owner().unwanted.notified().await;
    }

    /// Keeps a caller out if the server has the roots of another client. Returns true if it does.
    pub fn keep_out(&self, caller: &Caller) -> bool {
        let is_kept_out = self.has_roots_of_another(caller);
        if is_kept_out {
            self.roots_owner().kept_out.notify_one();
        }
        is_kept_out
    }

    /// Waits until a client was kept out. Returns the end of the session whose roots the server
    /// has. `None`: their client has no session.
    pub async fn wait_kept_out(&self) -> Option<CancellationToken> {
        self.roots_owner().kept_out.notified().await;
        self.roots_owner().owner.lock().as_ref()?.ended.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::correlation::LogInterest;
    use crate::input_recipient::CallTarget;
    use moongate_jsonrpc::message::{RpcMessage, RpcRequest};
    use moongate_model::ClientCapabilities;
    use moongate_testing as testing;

    fn with_roots(session: &str) -> Arc<Caller> {
        let can = ClientCapabilities {
            roots: true,
            ..ClientCapabilities::default()
        };
        Arc::new(Caller {
            capabilities: can,
            ..(*testing::caller(1, Some(session))).clone()
        })
    }

    fn roots_request() -> RpcRequest {
        let text = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
        let RpcMessage::Request(request) = RpcMessage::parse(&text).unwrap() else {
            panic!("a request")
        };
        request
    }

    #[test]
    fn a_connection_is_claimed_only_when_its_client_is_asked() {
        let calls = PendingCalls::default();
        let one = with_roots("one");
        let other = with_roots("other");
        calls.roots_owner().mark_shared();
        let open = calls.open(&one, LogInterest::Never, CallTarget::default());
        // The call ends, and its queue takes nothing any more.
        open.stray_messages.as_ref().unwrap().close();
        assert!(calls.deliver_request(roots_request()).is_err());
        assert!(
            !calls.has_roots_of(&one) && !calls.has_roots_of_another(&other),
            "nobody was asked"
        );
        assert!(calls.claim_roots(&one, InputKind::Roots));
        assert!(calls.has_roots_of(&one) && calls.has_roots_of_another(&other));
        assert!(
            !calls.claim_roots(&other, InputKind::Roots),
            "it is the first one's"
        );
    }
}
