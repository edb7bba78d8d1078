//! Parts of the gateway that can give memory back.
//!
//! Owns their list. Does not choose whose memory (`budget.rs`), nor know how something ends
//! ([`MemoryRelief`]). Invariant: a part that is gone is asked for nothing.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::holder::MemoryHolder;

/// Part of the gateway that holds bytes for somebody who may never come back for them.
pub trait MemoryRelief: Send + Sync {
    /// Ends the oldest of what waits for this holder, or because of it. Returns false if nothing
    /// does.
    fn end_oldest(&self, holder: &MemoryHolder) -> bool;
}

/// Parts that can end something.
#[derive(Default)]
pub(super) struct MemoryReliefs(Mutex<Vec<Weak<dyn MemoryRelief>>>);

impl MemoryReliefs {
    pub(super) fn add(&self, relief: &Arc<dyn MemoryRelief>) {
        self.0.lock().push(Arc::downgrade(relief));
    }

    /// Ends the oldest thing of a holder. Returns false if it has none.
    pub(super) fn end_oldest(&self, holder: &MemoryHolder) -> bool {
        // Copied: what ends gives its bytes back, and may ask for more.
        let parts: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        parts.iter().any(|part| part.end_oldest(holder))
    }
}
