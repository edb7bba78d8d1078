//! Processes and descriptors, as the kernel shows them.

use std::collections::{BTreeMap, BTreeSet};

/// The processes whose parent this is, with their command lines; those without one are zombies.
pub(crate) fn children(pid: u32) -> Vec<(u32, Vec<String>)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|child| parent(*child) == Some(pid))
        .map(|child| (child, words(child)))
        .collect()
}

/// All processes below one.
pub(crate) fn descendants(pid: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut open = vec![pid];
    while let Some(pid) = open.pop() {
        for (child, _) in children(pid) {
            if found.insert(child) {
                open.push(child);
            }
        }
    }
    found
}

/// The children that have an argument which ends like this.
pub(crate) fn with_argument(pid: u32, end: &str) -> Vec<u32> {
    let has = |words: &Vec<String>| words.iter().any(|word| word.ends_with(end));
    children(pid)
        .into_iter()
        .filter(|(_, words)| has(words))
        .map(|(pid, _)| pid)
        .collect()
}

/// How many processes have this in their environment.
pub(crate) fn marked(mark: &str) -> usize {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return 0;
    };
    let environments =
        entries.filter_map(|entry| std::fs::read(entry.ok()?.path().join("environ")).ok());
    environments
        .filter(|environment| memchr::memmem::find(environment, mark.as_bytes()).is_some())
        .count()
}

/// Whether a process is there, and no zombie.
pub(crate) fn alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

pub(crate) fn is_zombie(pid: u32) -> bool {
    state(pid) == Some('Z')
}

fn state(pid: u32) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// The fields behind the name.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(
        text.rsplit_once(')')?
            .1
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
    )
}

fn words(pid: u32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|w| String::from_utf8_lossy(w).into_owned())
        .collect()
}

/// The descriptors of a process by kind; connections to these ports are kept for later calls, and
/// are a kind of their own.
pub(crate) fn descriptors(pid: u32, ports: &[u16]) -> BTreeMap<String, usize> {
    let pooled = sockets_to(pid, ports);
    let mut kinds = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let Ok(link) = std::fs::read_link(entry.path()) else {
            continue;
        };
        let link = link.to_string_lossy().into_owned();
        let kind = match link.split_once(":[") {
            Some(("socket", rest)) if pooled.contains(rest.trim_end_matches(']')) => {
                "pooled connection".to_owned()
            }
            Some((kind, _)) => kind.to_owned(),
            None => link,
        };
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
}

/// The inodes of TCP sockets whose other end is one of these ports.
fn sockets_to(pid: u32, ports: &[u16]) -> BTreeSet<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let port = u16::from_str_radix(fields.get(2)?.rsplit_once(':')?.1, 16).ok()?;
        ports
            .contains(&port)
            .then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    };
    text.lines().skip(1).filter_map(inode).collect()
}
