//! Replacement servers that are being connected, by name.
//!
//! Owns them until they are ready. Does not connect them (`reconfigure.rs`). Invariant: a name has
//! one replacement at most.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;

use moongate_upstream::Upstream;

/// Replacement servers that are being connected, by name.
#[derive(Default)]
pub(super) struct PendingReplacements(Mutex<BTreeMap<String, ReplacementServer>>);

pub(super) struct ReplacementServer {
    pub(super) upstream: Arc<Upstream>,
    pub(super) reason: ReplacementReason,
}

/// Reason of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplacementReason {
    /// Settings that need another connection.
    NewSettings,
    /// Restart that an operator waits for: it has one attempt.
    Restart,
}

impl PendingReplacements {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ReplacementServer>> {
        self.0.lock()
    }

    pub(super) fn find(&self, name: &str) -> Option<(Arc<Upstream>, ReplacementReason)> {
        self.lock()
            .get(name)
            .map(|candidate| (candidate.upstream.clone(), candidate.reason))
    }

    /// Removes a replacement, if it is still the current one.
    pub(super) fn take(&self, upstream: &Arc<Upstream>) -> bool {
        let mut table = self.lock();
        let is_current = table
            .get(upstream.settings.name.as_str())
            .is_some_and(|c| Arc::ptr_eq(&c.upstream, upstream));
        if is_current {
            table.remove(upstream.settings.name.as_str());
        }
        is_current
    }

    pub(super) fn cancel(&self, name: &str) {
        if let Some(candidate) = self.lock().remove(name) {
            // A server may take seconds to stop, and a reload must not wait for it.
            tokio::spawn(async move { candidate.upstream.stop().await });
        }
    }

    /// Removes all replacements.
    pub(super) fn take_all(&self) -> Vec<Arc<Upstream>> {
        std::mem::take(&mut *self.lock())
            .into_values()
            .map(|candidate| candidate.upstream)
            .collect()
    }
}
