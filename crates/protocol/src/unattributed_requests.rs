//! Requests of a server on a pipe that found no single call when they arrived. Owns which calls were open by then. Does
//! not hold or answer them (`legacy/upstream/held_requests.rs`). Invariant: bounded in number.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::open_inputs::key_of;
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::RequestId;

/// Limit of requests that were read and not handled yet. The oldest goes first.
const REQUESTS_MAX: usize = 64;

/// Requests by their ids, with the newest call at the arrival of each.
#[derive(Default)]
pub(super) struct UnattributedRequests(Mutex<VecDeque<(ByteString, u64)>>);

impl UnattributedRequests {
    /// Records a request.
    pub(super) fn record(&self, id: &RequestId, newest_call: u64) {
        let mut requests = self.0.lock();
        if requests.len() >= REQUESTS_MAX {
            requests.pop_front();
        }
        requests.push_back((key_of(id), newest_call));
    }

    /// Returns the newest call at the arrival of a request, and forgets it.
    pub(super) fn take(&self, id: &RequestId) -> Option<u64> {
        let mut requests = self.0.lock();
        let at = requests.iter().position(|(key, _)| *key == key_of(id))?;
        requests.remove(at).map(|(_, newest)| newest)
    }
}
