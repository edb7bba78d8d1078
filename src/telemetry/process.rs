//! The process as the kernel sees it. Linux only; elsewhere everything reads as zero.

/// What the process uses now.
#[derive(Debug, Default)]
pub(crate) struct ProcessUsage {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes: f64,
    pub(crate) open_fds: f64,
    pub(crate) threads: f64,
    /// What the program has allocated and not freed; `None` without an allocator that says so.
    pub(crate) heap_bytes: Option<f64>,
}

pub(crate) fn usage() -> ProcessUsage {
    let fds = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    ProcessUsage {
        cpu_seconds: cpu_seconds().unwrap_or_default(),
        resident_bytes: resident().unwrap_or_default(),
        open_fds: fds as f64,
        threads: status("Threads:").unwrap_or_default(),
        heap_bytes: heap(),
    }
}

#[cfg(all(feature = "jemalloc", any(target_os = "linux", target_os = "macos")))]
fn heap() -> Option<f64> {
    // Its figures are those of the last epoch.
    tikv_jemalloc_ctl::epoch::advance().ok()?;
    tikv_jemalloc_ctl::stats::allocated::read().ok().map(|bytes| bytes as f64)
}

#[cfg(not(all(feature = "jemalloc", any(target_os = "linux", target_os = "macos"))))]
fn heap() -> Option<f64> {
    None
}

/// Seconds since 1970 at which the first metrics were made, which is the start of the process for all that matters.
pub(crate) fn start_time() -> f64 {
    jiff::Timestamp::now().as_millisecond() as f64 / 1000.0
}

fn cpu_seconds() -> Option<f64> {
    // Nanoseconds on a CPU, for each thread that lives; the sum over ended ones is in `stat`, in ticks of 10 ms.
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(ticks / 100.0)
}

/// Resident memory in bytes.
pub(super) fn resident() -> Option<f64> {
    Some(status("VmRSS:")? * 1024.0)
}

fn status(field: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().trim_end_matches(" kB").trim().parse().ok()
}
