//! Resource usage of the process. Owns the reading of `/proc`, and asks the program for its
//! allocator's figure.
//!
//! Does not register metrics. Invariant: a figure that the platform lacks is zero. Only Linux has
//! `/proc`.

use std::sync::OnceLock;

/// Reader of the bytes that the program has allocated. `None` if the allocator does not count.
pub type HeapReader = fn() -> Option<f64>;

/// The allocator belongs to the program, and compiles for longer than all else. A crate that asked
/// it here would keep every crate above this one waiting.
static HEAP_READER: OnceLock<HeapReader> = OnceLock::new();

/// Sets where the figure of allocated bytes comes from. Only the first call of a process has an
/// effect.
pub fn set_heap_reader(reader: HeapReader) {
    HEAP_READER.get_or_init(|| reader);
}

/// Resource usage at one moment.
#[derive(Debug, Default)]
pub(crate) struct ProcessUsage {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes: f64,
    pub(crate) open_fds: f64,
    pub(crate) threads: f64,
    /// Bytes that the program has allocated and not freed. `None` without an allocator that counts
    /// them.
    pub(crate) heap_bytes: Option<f64>,
}

pub(crate) fn usage() -> ProcessUsage {
    // One too many: the directory itself is open while it is read.
    let fds = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    ProcessUsage {
        cpu_seconds: cpu_seconds().unwrap_or_default(),
        resident_bytes: resident().unwrap_or_default(),
        open_fds: fds as f64,
        threads: threads().unwrap_or_default(),
        heap_bytes: HEAP_READER.get().and_then(|read| read()),
    }
}

/// Returns the start time, in seconds since 1970. It is that of the first registry, close enough to
/// the process's.
pub(crate) fn start_time() -> f64 {
    jiff::Timestamp::now().as_millisecond() as f64 / 1000.0
}

fn cpu_seconds() -> Option<f64> {
    // utime and stime of all threads, ended ones too, in ticks of 10 ms (proc(5)). The program's
    // name, in parentheses, may contain spaces.
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The first field behind the parenthesis is the state. It is the third field in proc(5).
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    // USER_HZ is 100 on x86-64 and ARM.
    Some(ticks / 100.0)
}

/// Returns the resident memory, in bytes.
pub(super) fn resident() -> Option<f64> {
    moongate_platform::resident_memory::resident_bytes().map(|bytes| bytes as f64)
}

fn threads() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Threads:"))?;
    line.trim().parse().ok()
}
