//! Ages of a server's lists, where only their age says that they may have changed. Owns the clock
//! of each list. Does not fetch (`supervisor/refresh.rs`). Invariant: no reader of a list waits for
//! its fetch.
//!
//! 2026-07-28/server/utilities/caching.mdx: a server "MAY provide `ttlMs` without advertising
//! `listChanged: true`", and a list past its time SHOULD be fetched again when it is next wanted.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::{Duration, Instant};

use crate::lists::fetch::ItemList;
use moongate_model::{ItemKind, ServerCapabilities};

/// Shortest interval between fetches, whatever `ttlMs` says: a server may send 0.
// 2026-07-28/server/utilities/caching.mdx: "If `ttlMs` is `0`, the response SHOULD be considered
// immediately stale." Without a limit, each reader would cause a fetch.
const RELIST_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Time of each list's last fetch. 0: never, or its server announces changes.
pub(crate) struct ListAges {
    epoch: Instant,
    listed_ms: [AtomicU64; 4],
}

impl Default for ListAges {
    fn default() -> Self {
        ListAges {
            epoch: Instant::now(),
            listed_ms: Default::default(),
        }
    }
}

impl ListAges {
    /// Records that a list was fetched now, from a server with these capabilities.
    pub(crate) fn record_listed(&self, kind: ItemKind, capabilities: &ServerCapabilities) {
        let is_announced = match kind {
            ItemKind::Tools => capabilities.tools_changes,
            ItemKind::Prompts => capabilities.prompts_changes,
            ItemKind::Resources | ItemKind::Templates => capabilities.resources_changes,
        };
        // Never 0 for a taken list: 0 means that its age says nothing.
        let now = if is_announced {
            0
        } else {
            self.now_ms().max(1)
        };
        self.listed_ms[kind as usize].store(now, Ordering::Relaxed);
    }

    /// Returns for how many milliseconds a list counts as fresh. `None`: its age says nothing.
    pub(crate) fn remaining(&self, kind: ItemKind, list: &ItemList) -> Option<u64> {
        Some(list.cache?.ttl_ms.saturating_sub(self.age_ms(kind)?))
    }

    /// Returns true if a list should be fetched again.
    pub(crate) fn is_stale(&self, kind: ItemKind, list: &ItemList) -> bool {
        let least = u64::try_from(RELIST_INTERVAL_MIN.as_millis()).unwrap_or(u64::MAX);
        let Some((hint, age)) = list.cache.zip(self.age_ms(kind)) else {
            return false;
        };
        age >= hint.ttl_ms.max(least)
    }

    fn age_ms(&self, kind: ItemKind) -> Option<u64> {
        let taken = self.listed_ms[kind as usize].load(Ordering::Relaxed);
        (taken != 0).then(|| self.now_ms().saturating_sub(taken))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_model::CacheHint;

    fn list(ttl_ms: u64) -> ItemList {
        ItemList {
            cache: Some(CacheHint {
                ttl_ms,
                public: true,
            }),
            ..ItemList::default()
        }
    }

    fn remaining(ages: &ListAges, ttl_ms: u64) -> Option<u64> {
        ages.remaining(ItemKind::Tools, &list(ttl_ms))
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_ages_unless_its_server_would_tell() {
        let fresh = ListAges::default();
        assert_eq!(remaining(&fresh, 0), None, "it was never taken");
        tokio::time::advance(Duration::from_secs(1)).await;
        fresh.record_listed(ItemKind::Tools, &ServerCapabilities::default());
        assert_eq!(remaining(&fresh, 5000), Some(5000));
        assert!(
            !fresh.is_stale(ItemKind::Tools, &list(0)),
            "not more than once a second"
        );
        assert_eq!(
            fresh.remaining(ItemKind::Tools, &ItemList::default()),
            None,
            "its server says nothing of time"
        );
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(remaining(&fresh, 5000), Some(3000));
        assert_eq!(remaining(&fresh, 1500), Some(0));
        assert_eq!(remaining(&fresh, 0), Some(0));
        assert!(
            fresh.is_stale(ItemKind::Tools, &list(1500))
                && !fresh.is_stale(ItemKind::Tools, &list(5000))
        );
        fresh.record_listed(
            ItemKind::Tools,
            &ServerCapabilities {
                tools_changes: true,
                ..ServerCapabilities::default()
            },
        );
        assert_eq!(remaining(&fresh, 0), None, "its server would tell");
    }
}
