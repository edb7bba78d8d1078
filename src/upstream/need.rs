//! Whether anybody needs a server that is started on use, or a connection that is closed without need.
//!
//! Owns the count of its calls and what it runs beyond them: its tasks. Invariant: while a call is open or a task runs,
//! the server is needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::json::Text;
use crate::model::Task;

/// Tasks that are remembered; of more, those that end first are not waited for.
const TASKS_MAX: usize = 1024;
/// How long a task is waited for that does not say how long it is kept,
const TASK_TIME: Duration = Duration::from_secs(3600);
/// and one that says so.
const TASK_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Who needs a server.
#[derive(Clone)]
pub(super) struct Need(Arc<Mutex<Inner>>);

struct Inner {
    calls: usize,
    /// When it was needed last.
    last: Instant,
    /// Tasks that are not over, and until when they are waited for.
    tasks: HashMap<Text, Instant>,
}

/// A call needs it until this is dropped.
pub(super) struct Needed(Need);

impl Default for Need {
    fn default() -> Self {
        Need(Arc::new(Mutex::new(Inner { calls: 0, last: Instant::now(), tasks: HashMap::new() })))
    }
}

impl Need {
    /// A call begins.
    pub(super) fn call(&self) -> Needed {
        self.lock().calls += 1;
        Needed(self.clone())
    }

    /// It was needed just now.
    pub(super) fn touch(&self) {
        self.lock().last = Instant::now();
    }

    /// When it was needed last.
    pub(super) fn last(&self) -> Instant {
        self.lock().last
    }

    /// Tells whether a task runs, as far as is known.
    pub(super) fn has_tasks(&self) -> bool {
        let now = Instant::now();
        self.lock().tasks.values().any(|end| *end > now)
    }

    /// What a call showed of a task.
    pub(super) fn task(&self, task: &Task) {
        let mut inner = self.lock();
        inner.last = Instant::now();
        if task.status.is_over() {
            inner.tasks.remove(&task.id);
            return;
        }
        let ttl = task.ttl.as_ref().and_then(|ttl| ttl.read::<u64>().ok()).map(Duration::from_millis);
        let end = Instant::now() + ttl.unwrap_or(TASK_TIME).min(TASK_TIME_MAX);
        if inner.tasks.len() >= TASKS_MAX && !inner.tasks.contains_key(&task.id) {
            let first = inner.tasks.iter().min_by_key(|(_, end)| **end).map(|(id, _)| id.clone());
            first.and_then(|id| inner.tasks.remove(&id));
        }
        // A copy: the id is a span of the server's message, which must not live as long as the task.
        inner.tasks.insert(Text::from(task.id.as_str()), end);
    }

    /// Waits until nobody has needed it for so long. `otherwise`: whether something else does.
    pub(super) async fn over(&self, idle: Duration, otherwise: impl Fn() -> bool) {
        loop {
            let end = {
                let mut inner = self.lock();
                let now = Instant::now();
                inner.tasks.retain(|_, end| *end > now);
                if inner.calls > 0 || !inner.tasks.is_empty() || otherwise() {
                    inner.last = now;
                }
                inner.last + idle
            };
            if Instant::now() >= end {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Needed {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.calls -= 1;
        inner.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::json::{Object, Raw};
    use crate::model::TaskStatus;

    const IDLE: Duration = Duration::from_secs(10);

    fn task(status: TaskStatus) -> Task {
        let ttl = Some(Raw::number(120_000));
        Task { id: Text::literal("t"), status, ttl, poll: None, rest: Object::new(), questions: Vec::new(), end: None }
    }

    async fn over(need: &Need) -> Duration {
        let began = Instant::now();
        need.over(IDLE, || false).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn calls_and_tasks_keep_it() {
        let need = Need::default();
        assert_eq!(over(&need).await, IDLE);
        let call = need.call();
        let ending = async {
            tokio::time::sleep(IDLE * 5).await;
            drop(call);
        };
        let (waited, ()) = tokio::join!(over(&need), ending);
        assert!(waited >= IDLE * 6, "{waited:?}");
        need.task(&task(TaskStatus::Working));
        assert!(over(&need).await >= Duration::from_secs(120), "a task that is never heard of again has an end, too");
        need.task(&task(TaskStatus::Working));
        need.task(&task(TaskStatus::Completed));
        assert_eq!(over(&need).await, IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn so_does_whatever_else_needs_it() {
        let (need, other) = (Need::default(), Arc::new(AtomicBool::new(true)));
        let waiting = tokio::spawn({
            let (need, other) = (need.clone(), other.clone());
            async move { need.over(IDLE, || other.load(Ordering::Relaxed)).await }
        });
        tokio::time::sleep(IDLE * 10).await;
        assert!(!waiting.is_finished());
        other.store(false, Ordering::Relaxed);
        waiting.await.unwrap();
    }
}
