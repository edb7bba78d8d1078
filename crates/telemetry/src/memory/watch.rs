//! Memory watch: usage of the process against its limit. Owns the sampling.
//!
//! Backs up the budget, for what no reservation counts: heads, sessions, connections. Does not
//! decide what is refused (`listener/admission.rs`). Invariant: the answer whether memory is over
//! its limit is at most one sample old and takes no system call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::MemoryLimit;
use crate::{Metrics, process};

/// Time between samples. In between, a client can send at most this time's worth of network
/// traffic.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Percentage of the limit above which large work is refused.
// The tenth above it is room for calls that run already.
const OVER_LIMIT_PERCENT: usize = 90;

/// State of memory usage against the limit.
pub struct MemoryWatch {
    /// Limit in bytes. `None` means that there is none.
    pub limit: Option<usize>,
    over_limit: AtomicBool,
}

impl MemoryWatch {
    /// Creates a watch for a limit. [`MemoryWatch::watch`] takes the samples.
    pub fn new(limit: MemoryLimit, metrics: &Metrics) -> Arc<Self> {
        let limit = limit.in_bytes();
        metrics.process.memory_limit.set(
            limit
                .and_then(|bytes| i64::try_from(bytes).ok())
                .unwrap_or(0),
        );
        Arc::new(MemoryWatch {
            limit,
            over_limit: AtomicBool::new(false),
        })
    }

    /// True if more than nine tenths of the limit are in use.
    pub fn is_over_limit(&self) -> bool {
        self.over_limit.load(Ordering::Relaxed)
    }

    /// Takes samples until dropped, and calls `relieve` where memory is short. Returns at once
    /// without a limit.
    pub async fn watch(self: Arc<Self>, relieve: impl Fn()) {
        let Some(limit) = self.limit else { return };
        let mut clock = tokio::time::interval(SAMPLE_INTERVAL);
        // A late tick must not be followed by a burst of others.
        clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            clock.tick().await;
            let used = process::resident().unwrap_or_default();
            // Divided first: the product could overflow on 32 bits.
            let short = used > (limit / 100 * OVER_LIMIT_PERCENT) as f64;
            // Only a change is logged. Relaxed: no other data depends on the flag.
            if short != self.over_limit.swap(short, Ordering::Relaxed) {
                let used = used as u64 >> 20;
                let limit = limit >> 20;
                if short {
                    tracing::warn!(
                        "memory is at its limit ({used} of {limit} MiB, limits.memory): new calls \
                         are refused"
                    );
                } else {
                    tracing::info!("memory is below its limit again ({used} of {limit} MiB)");
                }
            }
            if short {
                relieve();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn memory_is_short_above_nine_tenths() {
        let used = process::resident().unwrap_or_default() as usize;
        if used == 0 {
            return;
        }
        for (limit, short) in [(used / 2, true), (used * 100, false)] {
            let memory = MemoryWatch::new(MemoryLimit::Bytes(limit), &Metrics::new());
            assert!(!memory.is_over_limit());
            let watching = tokio::spawn(memory.clone().watch(|| ()));
            tokio::time::sleep(SAMPLE_INTERVAL).await;
            assert_eq!(memory.is_over_limit(), short);
            watching.abort();
        }
    }
}
