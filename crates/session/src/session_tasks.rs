//! Tasks that a session made, and statuses that came before the session knew of its task.
//!
//! Owns their bounds. Does not say how statuses are encoded. Invariant: a status leaves only for a
//! task of the session, once the session knows it.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::fair_budget::PrincipalShare;
use crate::recent_ids::RecentIds;
use moongate_jsonrpc::json::ByteString;

/// Maximum number of tasks that a session is notified of. The most recent ones stay.
const TASKS_MAX: usize = 64;
/// Maximum number of statuses that are kept for tasks that nobody knows yet. The oldest makes room.
const EARLY_MAX: usize = 16;
/// Maximum size of such a status in bytes. The specification's members need a fraction of it.
const EARLY_BYTES_MAX: usize = 4 * 1024;

/// Tasks of one session.
pub struct SessionTasks {
    known: RecentIds<TASKS_MAX>,
    /// Statuses of tasks that may turn out to be the session's.
    early: Mutex<EarlyStatuses>,
}

/// Statuses that wait for their task, oldest first.
struct EarlyStatuses {
    waiting: VecDeque<(ByteString, Bytes)>,
    /// Budget that their bytes come from.
    share: PrincipalShare,
}

impl SessionTasks {
    pub(super) fn new(share: PrincipalShare) -> Self {
        SessionTasks {
            known: RecentIds::default(),
            early: Mutex::new(EarlyStatuses {
                waiting: VecDeque::new(),
                share,
            }),
        }
    }

    /// Adds a task. Returns its statuses that came before.
    pub(super) fn add(&self, id: &str) -> Vec<Bytes> {
        let mut early = self.early.lock();
        self.known.add(id);
        early.take(id)
    }

    /// Returns a task's status if the task is the session's. Otherwise keeps it while a call of the
    /// session is open.
    ///
    /// Each session hears of each task, so a status of another's task is not encoded.
    pub fn admit_status(
        &self,
        id: &ByteString,
        has_open_calls: bool,
        encode: impl FnOnce() -> Bytes,
    ) -> Option<Bytes> {
        // One lock with `add`: a status finds its task known, or is found by it.
        let mut early = self.early.lock();
        if self.known.contains(id) {
            return Some(encode());
        }
        if has_open_calls {
            early.push(id, encode());
        }
        None
    }

    /// Forgets statuses without a task: no call of the session is open that could turn out to be
    /// one.
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

impl EarlyStatuses {
    /// Keeps a status. The oldest ones make room, and one that finds none is lost.
    fn push(&mut self, id: &ByteString, status: Bytes) {
        let size = id.len() + status.len();
        if size > EARLY_BYTES_MAX {
            return;
        }
        while self.waiting.len() >= EARLY_MAX || !self.share.try_reserve(size) {
            if !self.drop_oldest() {
                return;
            }
        }
        // Copied: the id is a span that would keep a whole message alive.
        self.waiting
            .push_back((ByteString::from(id.as_str()), status));
    }

    /// Takes the statuses of a task.
    fn take(&mut self, id: &str) -> Vec<Bytes> {
        let (own, others) = self
            .waiting
            .drain(..)
            .partition::<VecDeque<_>, _>(|(task, _)| task.as_str() == id);
        self.waiting = others;
        own.into_iter()
            .map(|(task, status)| {
                self.share.release(task.len() + status.len());
                status
            })
            .collect()
    }

    fn drop_oldest(&mut self) -> bool {
        let Some((id, status)) = self.waiting.pop_front() else {
            return false;
        };
        self.share.release(id.len() + status.len());
        true
    }

    fn clear(&mut self) {
        while self.drop_oldest() {}
    }
}

impl Drop for EarlyStatuses {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair_budget::FairByteBudget;
    use moongate_telemetry::Metrics;
    use moongate_testing::principal;

    fn tasks_within(bytes: usize, metrics: &Metrics) -> SessionTasks {
        let budget = FairByteBudget::new(bytes, metrics.clients.outbox_bytes.clone());
        SessionTasks::new(budget.share(&principal(1)))
    }

    fn admit(tasks: &SessionTasks, id: &'static str, status: &'static str) -> Option<Bytes> {
        tasks.admit_status(&ByteString::literal(id), true, || {
            Bytes::from_static(status.as_bytes())
        })
    }

    #[test]
    fn a_status_before_its_task_is_kept_and_bounded() {
        let metrics = Metrics::new();
        let tasks = tasks_within(1 << 20, &metrics);
        assert_eq!(admit(&tasks, "a", "a1"), None);
        assert_eq!(admit(&tasks, "b", "b1"), None);
        assert_eq!(admit(&tasks, "a", "a2"), None);
        assert_eq!(
            tasks.add("a"),
            [Bytes::from_static(b"a1"), Bytes::from_static(b"a2")]
        );
        assert_eq!(admit(&tasks, "a", "a3"), Some(Bytes::from_static(b"a3")));
        for _ in 0..EARLY_MAX {
            admit(&tasks, "c", "c");
        }
        assert!(tasks.add("b").is_empty(), "the oldest made room");
        let large = tasks.admit_status(&ByteString::literal("d"), true, || {
            Bytes::from(vec![b'x'; EARLY_BYTES_MAX + 1])
        });
        assert_eq!(large, None);
        assert!(tasks.add("d").is_empty());
        tasks.forget_early();
        assert!(tasks.add("c").is_empty());
        assert_eq!(metrics.clients.outbox_bytes.get(), 0);
    }

    #[test]
    fn a_status_of_another_sessions_task_is_not_encoded() {
        let tasks = tasks_within(1 << 20, &Metrics::new());
        let id = ByteString::literal("e");
        assert_eq!(
            tasks.admit_status(&id, false, || unreachable!(
                "without an open call no task can come"
            )),
            None
        );
        assert!(tasks.add("e").is_empty());
        assert_eq!(
            tasks.admit_status(&id, false, || Bytes::from_static(b"e")),
            Some(Bytes::from_static(b"e"))
        );
    }

    #[test]
    fn statuses_of_unknown_tasks_take_their_bytes_from_the_budget() {
        let metrics = Metrics::new();
        let held = &metrics.clients.outbox_bytes;
        let tasks = tasks_within(18, &metrics);
        assert_eq!(admit(&tasks, "a", "1234567"), None);
        assert_eq!(held.get(), 8);
        assert_eq!(admit(&tasks, "b", "1234567"), None);
        assert_eq!(admit(&tasks, "c", "1234567"), None);
        assert_eq!(held.get(), 16);
        assert!(tasks.add("a").is_empty(), "the oldest made room");
        assert_eq!(tasks.add("b").len(), 1);
        assert_eq!(held.get(), 8);
        drop(tasks);
        assert_eq!(held.get(), 0);
    }
}
