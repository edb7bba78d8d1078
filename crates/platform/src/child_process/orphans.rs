//! Orphans: processes whose parent has ended, and that the kernel has made children of PID 1.
//!
//! Owns the reaping of those, where this process is PID 1, as in a container without an init. Does
//! not end any. Invariant: the exit of a child that this process started is never taken from
//! whoever waits for it.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::signal::unix::{SignalKind, signal};

/// Processes that this process has started and still waits for.
///
/// Locked while one is started and while orphans are reaped: a child that exits at once is known by
/// then.
static OWN_CHILDREN: Mutex<Option<HashSet<u32>>> = Mutex::new(None);
/// Pause after a signal. Many processes often end together.
const PAUSE: Duration = Duration::from_millis(100);

/// Children of this process, locked.
pub(super) struct OwnChildren(MutexGuard<'static, Option<HashSet<u32>>>);

impl OwnChildren {
    pub(super) fn lock() -> Self {
        OwnChildren(OWN_CHILDREN.lock())
    }

    pub(super) fn add(&mut self, pid: u32) {
        self.0.get_or_insert_default().insert(pid);
    }

    pub(super) fn remove(&mut self, pid: u32) {
        self.0.get_or_insert_default().remove(&pid);
    }

    fn has(&self, pid: u32) -> bool {
        self.0.as_ref().is_some_and(|own| own.contains(&pid))
    }
}

/// Reaps orphans if this process is PID 1, until it is dropped. Must be called on the runtime.
pub async fn reap_orphans() -> io::Result<()> {
    if std::process::id() != 1 {
        return Ok(());
    }
    let mut ended = signal(SignalKind::child())?;
    loop {
        // The scan of /proc blocks.
        let _ = tokio::task::spawn_blocking(reap_ended).await;
        if ended.recv().await.is_none() {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Reaps the orphans that have ended. Returns their number.
fn reap_ended() -> usize {
    let own = OwnChildren::lock();
    let orphans = ended_children().into_iter().filter(|pid| !own.has(*pid));
    let orphans = orphans.filter_map(|pid| Pid::from_raw(pid.cast_signed()));
    // By its id: a wait for any child would take the exits of our own.
    orphans
        .filter(|pid| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(Some(_))))
        .count()
}

/// Returns the children of this process that have ended and were not waited for.
fn ended_children() -> Vec<u32> {
    let own = std::process::id().to_string();
    // Only Linux has /proc, and containers.
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| is_ended_child(*pid, &own)).collect()
}

fn is_ended_child(pid: u32, parent: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The program's name, in parentheses, may contain spaces (proc(5)). Then come the state and
    // the parent.
    let mut fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    fields.next() == Some("Z") && fields.next() == Some(parent)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::process::Stdio;

    use super::super::ChildTree;
    use super::*;

    fn shell(line: &str) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("sh");
        command
            .args(["-c", line])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    #[tokio::test]
    async fn orphans_are_reaped_and_the_exits_of_children_are_left() {
        // This process gets the orphans below it, as PID 1 does.
        rustix::process::set_child_subreaper(Pid::from_raw(1)).unwrap();
        // Two grandchildren end after their parent. The second leads its own group, as a child of
        // ours does.
        let mut parent = ChildTree::spawn(shell("sleep 0.3 & setsid sleep 0.3 & exit 3")).unwrap();
        // Nobody waits for this one yet.
        let mut waits = ChildTree::spawn(shell("exit 7")).unwrap();
        let mut reaped = 0;
        for _ in 0..200 {
            reaped += reap_ended();
            if reaped == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(reaped, 2);
        assert_eq!(parent.wait().await.unwrap().code(), Some(3));
        assert_eq!(waits.wait().await.unwrap().code(), Some(7));
        drop((parent, waits));
        assert!(
            OwnChildren::lock()
                .0
                .as_ref()
                .is_some_and(HashSet::is_empty)
        );
        assert!(ended_children().is_empty());
    }
}
