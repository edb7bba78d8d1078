//! Memory watch: usage of the process against its limit. Owns the limit and the sampling.
//!
//! Does not decide what is refused (`server/admission.rs`). Invariant: the answer whether memory is over its limit is at
//! most one sample old and takes no system call.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{Metrics, process};

/// Time between samples. In between, a client can send at most this time's worth of network traffic.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Percentage of the limit above which large work is refused.
// The tenth above it is room for calls that run already.
const OVER_LIMIT_PERCENT: usize = 90;

/// Memory limit of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// No limit.
    None,
    /// Limit of the container's control group, if there is one.
    Container,
    /// Limit in bytes.
    Bytes(usize),
}

/// State of memory usage against the limit.
pub struct MemoryWatch {
    /// Limit in bytes. `None` means that there is none.
    pub limit: Option<usize>,
    over_limit: AtomicBool,
}

impl MemoryWatch {
    /// Creates a watch for a limit. [`MemoryWatch::watch`] takes the samples.
    pub fn new(limit: MemoryLimit, metrics: &Metrics) -> Arc<Self> {
        let limit = match limit {
            MemoryLimit::None => None,
            MemoryLimit::Container => container("/proc/self/cgroup".as_ref(), "/sys/fs/cgroup".as_ref()),
            MemoryLimit::Bytes(bytes) => Some(bytes),
        };
        metrics.process.memory_limit.set(limit.and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(0));
        Arc::new(MemoryWatch { limit, over_limit: AtomicBool::new(false) })
    }

    /// True if more than nine tenths of the limit are in use.
    pub fn is_over_limit(&self) -> bool {
        self.over_limit.load(Ordering::Relaxed)
    }

    /// Takes samples until dropped. Returns at once without a limit.
    pub async fn watch(self: Arc<Self>) {
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
                let (used, limit) = (used as u64 >> 20, limit >> 20);
                if short {
                    tracing::warn!(
                        "memory is at its limit ({used} of {limit} MiB, limits.memory): new calls are refused"
                    );
                } else {
                    tracing::info!("memory is below its limit again ({used} of {limit} MiB)");
                }
            }
        }
    }
}

/// Returns the lowest limit of the process's control groups: version 2, or the memory controller of version 1.
fn container(groups: &Path, root: &Path) -> Option<usize> {
    let groups = std::fs::read_to_string(groups).ok()?;
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (top, file) = match (number, controllers) {
            // `0::PATH` is the unified hierarchy of version 2 (cgroups(7)).
            ("0", "") => (root.to_path_buf(), "memory.max"),
            (_, controllers) if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // Inside a container the path may be that of the host, of which only the top is visible.
        let own = top.join(path.trim_start_matches('/'));
        // Each group above limits the process, too. The lowest limit is the one that kills it.
        let above = own.ancestors().take_while(|dir| dir.starts_with(&top));
        above.filter_map(|dir| std::fs::read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok()).min()
    });
    // Version 1 encodes "no limit" as the largest number of pages that it can hold.
    limits.min().filter(|bytes| *bytes < 1 << 60).and_then(|bytes| usize::try_from(bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_the_control_groups_holds() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let limit = |groups: &str| {
            put("groups", groups);
            container(&dir.path().join("groups"), &dir.path().join("root"))
        };
        put("root/memory.max", "max\n");
        put("root/a/memory.max", "1000000\n");
        put("root/a/b/memory.max", "max\n");
        put("root/memory/memory.limit_in_bytes", "9223372036854771712\n");
        put("root/memory/c/memory.limit_in_bytes", "500000\n");
        assert_eq!(limit("0::/\n"), None);
        assert_eq!(limit("0::/a/b\n"), Some(1_000_000));
        assert_eq!(limit("0::/gone/elsewhere\n"), None);
        assert_eq!(limit("4:memory:/\n1:cpu:/c\n"), None);
        assert_eq!(limit("4:cpu,memory:/c\n0::/a\n"), Some(500_000));
        assert_eq!(container(&dir.path().join("none"), dir.path()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_short_above_nine_tenths() {
        let used = process::resident().unwrap_or_default() as usize;
        if used == 0 {
            return;
        }
        for (limit, short) in [(used / 2, true), (used * 100, false)] {
            let memory = MemoryWatch::new(MemoryLimit::Bytes(limit), &Metrics::new());
            assert!(!memory.is_over_limit());
            let watching = tokio::spawn(memory.clone().watch());
            tokio::time::sleep(SAMPLE_INTERVAL).await;
            assert_eq!(memory.is_over_limit(), short);
            watching.abort();
        }
    }
}
