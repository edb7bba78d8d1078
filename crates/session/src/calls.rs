//! Open calls of a session.
//!
//! Owns their ids and their cancellation. Does not run them. Invariant: the calls of an ended session are cancelled.

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use moongate_jsonrpc::message::RequestId;

/// Maximum number of calls that one session may have open.
// Far above what a client needs. One that never reads its responses would otherwise grow the list for ever.
const CALLS_MAX: usize = 1000;

/// Calls of one session, by the ids that its client gave them.
#[derive(Default)]
pub struct SessionCalls(Mutex<Vec<(RequestId, CancellationToken)>>);

impl SessionCalls {
    /// Adds a call of a session. `ended` is the session's end. Returns `None` if the session has too many calls.
    pub(super) fn add(&self, id: &RequestId, ended: &CancellationToken) -> Option<CancellationToken> {
        let mut calls = self.0.lock();
        if calls.len() >= CALLS_MAX {
            return None;
        }
        let token = CancellationToken::new();
        calls.push((id.clone(), token.clone()));
        // The session may have ended before the call was added: `cancel_all` knows only the calls in the list.
        if ended.is_cancelled() {
            token.cancel();
        }
        Some(token)
    }

    /// Cancels and removes a call that has ended.
    pub(super) fn remove(&self, ended: &CancellationToken) {
        let mut calls = self.0.lock();
        // Two calls can have the same id, so the token identifies this one: it is the cancelled one of the list.
        ended.cancel();
        if let Some(at) = calls.iter().position(|(_, token)| token.is_cancelled()) {
            calls.swap_remove(at);
        }
    }

    /// Cancels the open call with the client's `id`. Returns false if there is none, or several. Some clients use one
    /// id for everything at once, so the call that is meant is unknown.
    pub fn cancel(&self, id: &RequestId) -> bool {
        let calls = self.0.lock();
        // 2025-11-25/basic/index.mdx, Requests: an id "MUST NOT have been previously used by the requestor
        // within the same session". Clients that break this rule get no cancellation rather than a wrong one.
        let mut named = calls.iter().filter(|(open, _)| open == id);
        match (named.next(), named.next()) {
            (Some((_, token)), None) => {
                token.cancel();
                true
            }
            _ => false,
        }
    }

    pub(super) fn cancel_all(&self) {
        for (_, token) in self.0.lock().iter() {
            token.cancel();
        }
    }

    /// Returns true if no call is open.
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Returns true if no call is open.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}
