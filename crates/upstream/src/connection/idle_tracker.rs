//! Idle tracker of a lazy server, or of a connection that closes when idle. Owns the count of calls
//! and the running tasks. Does not stop anything. Invariant: while a call is open or a task runs,
//! the server is not idle.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use moongate_jsonrpc::json::ByteString;
use moongate_model::TaskState;

/// Time without a call after which a client without a session has left.
pub(crate) const UNUSED_TIME: Duration = Duration::from_secs(300);

/// Limit of remembered tasks. Beyond it, the task that ends first is forgotten.
// A server could announce tasks without end, and each of them would be remembered here.
const TASKS_MAX: usize = 1024;
/// Lifetime of a task that states none.
const TASK_TIME: Duration = Duration::from_secs(3600);
/// Longest lifetime of a task that states one.
// A server may state any `ttl`. Without a limit, one task could keep it running for ever.
const TASK_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Activity of one server or connection.
#[derive(Clone)]
pub(crate) struct IdleTracker(Arc<Mutex<ActivityRecord>>);

struct ActivityRecord {
    calls: usize,
    /// Time of the last activity.
    last_active: Instant,
    /// Running tasks, with the time until which each is waited for.
    tasks: HashMap<ByteString, Instant>,
}

/// Guard of one call.
pub(crate) struct CallActivityGuard(IdleTracker);

impl Default for IdleTracker {
    fn default() -> Self {
        IdleTracker(Arc::new(Mutex::new(ActivityRecord {
            calls: 0,
            last_active: Instant::now(),
            tasks: HashMap::new(),
        })))
    }
}

impl IdleTracker {
    /// Starts a call.
    pub(crate) fn track_call(&self) -> CallActivityGuard {
        self.0.lock().calls += 1;
        CallActivityGuard(self.clone())
    }

    /// Records activity now.
    pub(crate) fn mark_active(&self) {
        self.0.lock().last_active = Instant::now();
    }

    /// Returns the time of the last activity.
    pub(crate) fn last_active(&self) -> Instant {
        self.0.lock().last_active
    }

    /// Returns true if a task runs, as far as is known.
    pub(crate) fn has_tasks(&self) -> bool {
        let now = Instant::now();
        // A task whose time is over counts as gone, even if nobody asked about it again.
        self.0.lock().tasks.values().any(|end| *end > now)
    }

    /// Records what a call showed of a task.
    pub(crate) fn track_task(&self, task: &TaskState) {
        let mut inner = self.0.lock();
        inner.last_active = Instant::now();
        if task.status.is_terminal() {
            inner.tasks.remove(&task.id);
            return;
        }
        let ttl = task
            .ttl
            .as_ref()
            .and_then(|ttl| ttl.parse_as::<u64>().ok())
            .map(Duration::from_millis);
        let end = Instant::now() + ttl.unwrap_or(TASK_TIME).min(TASK_TIME_MAX);
        if inner.tasks.len() >= TASKS_MAX && !inner.tasks.contains_key(&task.id) {
            let first = inner
                .tasks
                .iter()
                .min_by_key(|(_, end)| **end)
                .map(|(id, _)| id.clone());
            first.and_then(|id| inner.tasks.remove(&id));
        }
        // Copied, because the id is a slice of the server's message, which must not live as long as
        // the task.
        inner.tasks.insert(ByteString::from(task.id.as_str()), end);
    }

    /// Forgets all tasks, because their connection is no longer used.
    pub(crate) fn forget_tasks(&self) {
        self.0.lock().tasks.clear();
    }

    /// Waits until nothing was active for this time. `is_needed`: true while something else needs
    /// the server.
    pub(crate) async fn wait_idle_for(&self, idle: Duration, is_needed: impl Fn() -> bool) {
        loop {
            let end = {
                let mut inner = self.0.lock();
                let now = Instant::now();
                inner.tasks.retain(|_, end| *end > now);
                // Activity moves the deadline, so that the loop sleeps again.
                if inner.calls > 0 || !inner.tasks.is_empty() || is_needed() {
                    inner.last_active = now;
                }
                inner.last_active + idle
            };
            if Instant::now() >= end {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

impl Drop for CallActivityGuard {
    fn drop(&mut self) {
        let mut inner = self.0.0.lock();
        inner.calls -= 1;
        inner.last_active = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use moongate_jsonrpc::json::{JsonObject, RawJson};
    use moongate_model::TaskStatus;

    const IDLE: Duration = Duration::from_secs(10);

    fn task(status: TaskStatus) -> TaskState {
        let ttl = Some(RawJson::number(120_000));
        TaskState {
            id: ByteString::literal("t"),
            status,
            ttl,
            poll_interval: None,
            other_members: JsonObject::new(),
            input_requests: Vec::new(),
            outcome: None,
        }
    }

    async fn time_until_idle(need: &IdleTracker) -> Duration {
        let began = Instant::now();
        need.wait_idle_for(IDLE, || false).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn calls_and_tasks_keep_it() {
        let need = IdleTracker::default();
        assert_eq!(time_until_idle(&need).await, IDLE);
        let call = need.track_call();
        let ending = async {
            // The call is open for much longer than the idle timeout.
            tokio::time::sleep(IDLE * 5).await;
            drop(call);
        };
        let (waited, ()) = tokio::join!(time_until_idle(&need), ending);
        assert!(waited >= IDLE * 6, "{waited:?}");
        // The `ttl` of the task is two minutes.
        need.track_task(&task(TaskStatus::Working));
        assert!(
            time_until_idle(&need).await >= Duration::from_secs(120),
            "a task that is never heard of again has an end, too"
        );
        need.track_task(&task(TaskStatus::Working));
        need.track_task(&task(TaskStatus::Completed));
        assert_eq!(time_until_idle(&need).await, IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn so_does_whatever_else_needs_it() {
        let need = IdleTracker::default();
        let other = Arc::new(AtomicBool::new(true));
        let waiting = tokio::spawn({
            let need = need.clone();
            let other = other.clone();
            async move {
                need.wait_idle_for(IDLE, || other.load(Ordering::Relaxed))
                    .await
            }
        });
        tokio::time::sleep(IDLE * 10).await;
        assert!(!waiting.is_finished());
        other.store(false, Ordering::Relaxed);
        waiting.await.unwrap();
    }
}
