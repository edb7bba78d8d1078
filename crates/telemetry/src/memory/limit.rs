//! Limit of memory: what the config says, or what the system has.
//!
//! Owns the reading of control groups and of the machine's memory. Does not measure usage
//! (`watch.rs`). Invariant: without a setting there is a limit wherever the system reports its
//! size.

use std::path::Path;

/// Percentage of a container's limit that is used by default. The rest is for what no budget
/// counts.
const CONTAINER_PERCENT: usize = 75;
/// Percentage of a machine's memory that is used by default, since the machine runs other programs,
/// too.
const MACHINE_PERCENT: usize = 25;

/// Memory limit of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// No limit.
    None,
    /// Part of the container's limit, else of the machine's memory.
    System,
    /// Limit in bytes.
    Bytes(usize),
}

impl MemoryLimit {
    /// Returns the limit in bytes. `None` means that there is none, or that the system doesn't
    /// report its size.
    pub(super) fn in_bytes(self) -> Option<usize> {
        match self {
            MemoryLimit::None => None,
            MemoryLimit::Bytes(bytes) => Some(bytes),
            MemoryLimit::System => {
                let container = container("/proc/self/cgroup".as_ref(), "/sys/fs/cgroup".as_ref());
                default_of(container, machine("/proc/meminfo".as_ref()))
            }
        }
    }
}

/// Returns the default. A container's limit may be larger than the machine that it runs on.
fn default_of(container: Option<usize>, machine: Option<usize>) -> Option<usize> {
    match (container, machine) {
        (Some(container), machine) if machine.is_none_or(|machine| container < machine) => {
            Some(container / 100 * CONTAINER_PERCENT)
        }
        (_, machine) => machine.map(|bytes| bytes / 100 * MACHINE_PERCENT),
    }
}

/// Returns the machine's memory (proc(5)).
fn machine(info: &Path) -> Option<usize> {
    let info = std::fs::read_to_string(info).ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the lowest limit of the process's control groups: version 2, or the memory controller of
/// version 1.
fn container(groups: &Path, root: &Path) -> Option<usize> {
    let groups = std::fs::read_to_string(groups).ok()?;
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let number = parts.next()?;
        let controllers = parts.next()?;
        let path = parts.next()?;
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
        above
            .filter_map(|dir| {
                std::fs::read_to_string(dir.join(file))
                    .ok()?
                    .trim()
                    .parse::<u64>()
                    .ok()
            })
            .min()
    });
    // Version 1 encodes "no limit" as the largest number of pages that it can hold.
    limits
        .min()
        .filter(|bytes| *bytes < 1 << 60)
        .and_then(|bytes| usize::try_from(bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_part_of_the_container_or_of_the_machine() {
        assert_eq!(default_of(Some(1000), Some(8000)), Some(750));
        assert_eq!(
            default_of(Some(9000), Some(8000)),
            Some(2000),
            "no container is larger than its machine"
        );
        assert_eq!(default_of(None, Some(8000)), Some(2000));
        assert_eq!(default_of(Some(1000), None), Some(750));
        assert_eq!(default_of(None, None), None);
    }

    #[test]
    fn the_machine_tells_its_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meminfo");
        std::fs::write(&path, "MemTotal:       24676356 kB\nMemFree:  1 kB\n").unwrap();
        assert_eq!(machine(&path), Some(24_676_356 * 1024));
        assert_eq!(machine(&dir.path().join("none")), None);
    }

    fn limit_in_groups(dir: &Path, groups: &str) -> Option<usize> {
        std::fs::write(dir.join("groups"), groups).unwrap();
        container(&dir.join("groups"), &dir.join("root"))
    }

    #[test]
    fn the_lowest_limit_of_the_control_groups_holds() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        for (path, text) in [
            ("root/memory.max", "max\n"),
            ("root/a/memory.max", "1000000\n"),
            ("root/a/b/memory.max", "max\n"),
            ("root/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("root/memory/c/memory.limit_in_bytes", "500000\n"),
        ] {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        for (groups, limit) in [
            ("0::/\n", None),
            ("0::/a/b\n", Some(1_000_000)),
            ("0::/gone/elsewhere\n", None),
            ("4:memory:/\n1:cpu:/c\n", None),
            ("4:cpu,memory:/c\n0::/a\n", Some(500_000)),
        ] {
            assert_eq!(limit_in_groups(dir, groups), limit, "{groups}");
        }
        assert_eq!(container(&dir.join("none"), dir), None);
    }
}
