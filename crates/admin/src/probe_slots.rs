//! Limit on previews that connect to servers.
//!
//! Owns the number of slots. Does not connect. Invariant: no more previews probe at once than there
//! are slots, because clones share them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Previews with a probe at once.
const PROBES_MAX: usize = 4;

/// Slots of previews that probe.
#[derive(Clone)]
pub struct ProbeSlots(Arc<Semaphore>);

impl Default for ProbeSlots {
    fn default() -> Self {
        ProbeSlots(Arc::new(Semaphore::new(PROBES_MAX)))
    }
}

impl ProbeSlots {
    /// Takes a slot, or returns `None` if all are in use.
    pub(super) fn try_take(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().try_acquire_owned().ok()
    }
}
