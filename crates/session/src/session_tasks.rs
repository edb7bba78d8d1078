//! Tasks that a session made, and statuses that came before the session knew of its task.
//!
//! Owns their bounds. Does not encode statuses. Invariant: a status leaves only for a task of the session, once the
//! session knows it.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::recent_ids::RecentIds;
use moongate_jsonrpc::json::ByteString;

/// Maximum number of tasks that a session is notified of. The most recent ones stay.
const TASKS_MAX: usize = 64;
/// Maximum number of statuses that are kept for tasks that nobody knows yet. The oldest makes room.
const EARLY_MAX: usize = 16;
/// Maximum size of such a status in bytes. The specification's members need a fraction of it.
const EARLY_BYTES_MAX: usize = 4 * 1024;

/// Tasks of one session.
#[derive(Default)]
pub struct SessionTasks {
    known: RecentIds<TASKS_MAX>,
    /// Statuses of tasks that may turn out to be the session's, oldest first.
    early: Mutex<VecDeque<(ByteString, Bytes)>>,
}

impl SessionTasks {
    /// Adds a task. Returns its statuses that came before.
    pub(super) fn add(&self, id: &str) -> Vec<Bytes> {
        let mut early = self.early.lock();
        self.known.add(id);
        let mut statuses = Vec::new();
        early.retain(|(task, status)| {
            let is_own = task.as_str() == id;
            if is_own {
                statuses.push(status.clone());
            }
            !is_own
        });
        statuses
    }

    /// Returns a task's status if the task is the session's. Otherwise keeps it while a call of the session is open.
    pub fn admit_status(&self, id: &ByteString, status: Bytes, has_open_calls: bool) -> Option<Bytes> {
        // One lock with `add`: a status finds its task known, or is found by it.
        let mut early = self.early.lock();
        if self.known.contains(id) {
            return Some(status);
        }
        if has_open_calls && status.len() <= EARLY_BYTES_MAX {
            if early.len() >= EARLY_MAX {
                early.pop_front();
            }
            // Copied: the id is a span that would keep a whole message alive.
            early.push_back((ByteString::from(id.as_str()), status));
        }
        None
    }

    /// Forgets statuses without a task: no call of the session is open that could turn out to be one.
    pub(super) fn forget_early(&self) {
        self.early.lock().clear();
    }

    /// Returns true if the task is the session's.
    #[cfg(test)]
    pub(crate) fn contains(&self, id: &ByteString) -> bool {
        self.known.contains(id)
    }

    pub(super) fn texts(&self) -> Vec<String> {
        self.known.texts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(tasks: &SessionTasks, id: &'static str, status: &'static str) -> Option<Bytes> {
        tasks.admit_status(&ByteString::literal(id), Bytes::from_static(status.as_bytes()), true)
    }

    #[test]
    fn a_status_before_its_task_is_kept_and_bounded() {
        let tasks = SessionTasks::default();
        assert_eq!(admit(&tasks, "a", "a1"), None);
        assert_eq!(admit(&tasks, "b", "b1"), None);
        assert_eq!(admit(&tasks, "a", "a2"), None);
        assert_eq!(tasks.add("a"), [Bytes::from_static(b"a1"), Bytes::from_static(b"a2")]);
        assert_eq!(admit(&tasks, "a", "a3"), Some(Bytes::from_static(b"a3")));
        for _ in 0..EARLY_MAX {
            admit(&tasks, "c", "c");
        }
        assert!(tasks.add("b").is_empty(), "the oldest made room");
        let large = Bytes::from(vec![b'x'; EARLY_BYTES_MAX + 1]);
        assert_eq!(tasks.admit_status(&ByteString::literal("d"), large, true), None);
        assert!(tasks.add("d").is_empty());
        tasks.forget_early();
        assert!(tasks.add("c").is_empty());
        assert_eq!(tasks.admit_status(&ByteString::literal("e"), Bytes::new(), false), None);
        assert!(tasks.add("e").is_empty(), "without an open call no task can come");
    }
}
