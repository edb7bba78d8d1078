//! Open calls of a session.
//!
//! Owns their ids and their cancellation. Does not run them. Invariant: the calls of an ended
//! session are cancelled.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use moongate_jsonrpc::json::RawJson;
use moongate_jsonrpc::message::RequestId;
use moongate_model::{CancelReason, CancelReasons};

/// Maximum number of calls that one session may have open.
// Far above what a client needs. One that never reads its responses would otherwise grow the list
// for ever.
const CALLS_MAX: usize = 1000;

/// Calls of one session, by the ids that its client gave them.
#[derive(Default)]
pub struct SessionCalls {
    last: AtomicU64,
    open: Mutex<Vec<ListedCall>>,
    reasons: CancelReasons,
}

/// Open call in the list.
struct ListedCall {
    /// Number of the call. Two calls can have the same id.
    number: u64,
    id: RequestId,
    cancelled: CancellationToken,
}

impl SessionCalls {
    /// Adds a call of a session. `ended` is the session's end. Returns `None` if the session has
    /// too many calls.
    pub(super) fn add(
        &self,
        id: &RequestId,
        ended: &CancellationToken,
    ) -> Option<(u64, CancellationToken, CancelReason)> {
        let mut calls = self.open.lock();
        if calls.len() >= CALLS_MAX {
            return None;
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let cancelled = CancellationToken::new();
        calls.push(ListedCall {
            number,
            id: id.clone(),
            cancelled: cancelled.clone(),
        });
        // The session may have ended before the call was added: `cancel_all` knows only the calls
        // in the list.
        if ended.is_cancelled() {
            cancelled.cancel();
        }
        Some((number, cancelled, self.reasons.of_call(number)))
    }

    /// Removes a call that has ended. Returns true if no other is open.
    pub(super) fn remove(&self, number: u64) -> bool {
        let mut calls = self.open.lock();
        if let Some(at) = calls.iter().position(|call| call.number == number) {
            calls.swap_remove(at);
        }
        calls.is_empty()
    }

    /// Cancels the open call with the client's `id`, for the client's reason. Returns false if
    /// there is none, or several. Some clients use one id for everything at once, so the call that
    /// is meant is unknown.
    pub fn cancel(&self, id: &RequestId, reason: Option<&RawJson>) -> bool {
        let calls = self.open.lock();
        // 2025-11-25/basic/index.mdx, Requests: an id "MUST NOT have been previously used by the
        // requestor within the same session". Clients that break this rule get no cancellation
        // rather than a wrong one.
        let mut named = calls.iter().filter(|call| call.id == *id);
        match (named.next(), named.next()) {
            (Some(call), None) => {
                // First the reason: the call ends at once.
                self.reasons.of_call(call.number).set(reason);
                call.cancelled.cancel();
                true
            }
            _ => false,
        }
    }

    pub(super) fn cancel_all(&self) {
        for call in self.open.lock().iter() {
            call.cancelled.cancel();
        }
    }

    /// Returns true if no call is open.
    pub(super) fn len(&self) -> usize {
        self.open.lock().len()
    }

    /// Returns true if no call is open.
    pub fn is_empty(&self) -> bool {
        self.open.lock().is_empty()
    }
}
