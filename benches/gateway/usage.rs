//! What the kernel says a process has used.

use std::collections::HashMap;

/// Nanoseconds of CPU time, thread by thread.
pub(crate) fn cpu(pid: u32) -> HashMap<u32, u64> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return HashMap::new();
    };
    let used = |thread: std::fs::DirEntry| {
        let id = thread.file_name().to_str()?.parse().ok()?;
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        Some((id, text.split(' ').next()?.parse().ok()?))
    };
    threads.flatten().filter_map(used).collect()
}

/// What was used between two looks; threads that ended in between are left out.
pub(crate) fn cpu_between(before: &HashMap<u32, u64>, after: &HashMap<u32, u64>) -> u64 {
    after
        .iter()
        .map(|(id, used)| used.saturating_sub(before.get(id).copied().unwrap_or(0)))
        .sum()
}

/// Resident memory in KiB.
pub(crate) fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
