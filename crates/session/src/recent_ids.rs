//! Bounded list of ids.
//!
//! Owns the most recent ids of one kind. Does not know what they name. Invariant: the oldest id
//! makes room for another.

use std::collections::VecDeque;

use parking_lot::Mutex;

use moongate_jsonrpc::json::ByteString;

/// Most recent ids, `MAX` at most.
#[derive(Default)]
pub(super) struct RecentIds<const MAX: usize>(Mutex<VecDeque<ByteString>>);

impl<const MAX: usize> RecentIds<MAX> {
    pub(super) fn add(&self, id: &str) {
        let mut ids = self.0.lock();
        if ids.len() >= MAX {
            // Bounded, as a server may open any number of elicitations and complete none.
            ids.pop_front();
        }
        // Copied: the id is a span that would keep a whole message alive.
        ids.push_back(ByteString::from(id));
    }

    /// Removes an id. Returns false if it is not in the list.
    pub(super) fn remove(&self, id: &ByteString) -> bool {
        let mut ids = self.0.lock();
        let at = ids.iter().position(|known| known == id);
        at.and_then(|at| ids.remove(at)).is_some()
    }

    /// Returns true if the id is in the list.
    pub(super) fn contains(&self, id: &ByteString) -> bool {
        self.0.lock().contains(id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub(super) fn texts(&self) -> Vec<String> {
        self.0.lock().iter().map(ByteString::to_string).collect()
    }
}
