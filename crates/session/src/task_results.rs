//! Results of calls that were requested as tasks and finished at once, until they are fetched.
//!
//! 2025-11-25/basic/utilities/tasks.mdx, Result Retrieval: "Receivers that accept a task-augmented
//! request MUST return a `CreateTaskResult` as the response". A server of a later revision decides
//! whether a call becomes a task. Owns those results. Does not know tasks that a server runs.
//! Invariant: bounded in number, bytes and time. Each result is visible to its principal alone.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use tokio::time::Instant;

use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_model::Principal;
use moongate_telemetry::{CountGuard, Metrics, TaskRetention};

/// Maximum number of stored results. The oldest of the principal with the most goes first.
const RESULTS_MAX: usize = 1024;
/// Maximum bytes of all results together. Must hold the largest single one (`max_message`).
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Table of task results.
pub struct TaskResults {
    table: Mutex<TaskResultTable>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct TaskResultTable {
    results: VecDeque<TaskResult>,
    bytes: usize,
}

/// Result of one task.
#[derive(Clone)]
pub struct TaskResult {
    /// Task id, which cannot be guessed.
    pub id: ByteString,
    /// Result of the call.
    pub result: JsonObject,
    /// Time of the end, as a timestamp of RFC 3339.
    pub finished_at: ByteString,
    principal: u32,
    stored_at: Instant,
    _count_guard: Arc<CountGuard>,
}

impl TaskResults {
    /// Maximum retention time of a result.
    pub const KEEP: Duration = Duration::from_secs(600);

    /// Creates an empty table.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        TaskResults {
            table: Mutex::default(),
            metrics,
        }
    }

    /// Stores a result.
    pub fn store(&self, principal: &Principal, result: JsonObject) -> TaskResult {
        // 2025-11-25/basic/utilities/tasks.mdx, Security: ids need "enough entropy to prevent
        // guessing".
        let random: [u8; 24] = moongate_random::random_bytes();
        // Copied: a span would keep the server's whole message alive, whatever its size.
        let result = result.to_raw().detached().as_object().unwrap_or(result);
        let task_result = TaskResult {
            id: ByteString::from(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random)),
            result,
            finished_at: ByteString::from(jiff::Timestamp::now().to_string()),
            principal: principal.id,
            stored_at: Instant::now(),
            _count_guard: Arc::new(CountGuard::new(
                &self.metrics.inputs.tasks.series(TaskRetention::Finished),
            )),
        };
        let mut table = self.table.lock();
        table.evict_expired();
        table.bytes += task_result.result.size_hint();
        table.results.push_back(task_result.clone());
        // The new result stays even if it alone exceeds the limit: its client is about to learn the
        // id.
        while table.results.len() > 1
            && (table.results.len() > RESULTS_MAX || table.bytes > BYTES_MAX)
        {
            table.make_room();
        }
        task_result
    }

    /// Returns the result of this task, if it is the principal's.
    pub fn find(&self, principal: &Principal, id: &str) -> Option<TaskResult> {
        let mut table = self.table.lock();
        table.evict_expired();
        let mut results = table.results.iter();
        results
            .find(|result| result.principal == principal.id && result.id.as_str() == id)
            .cloned()
    }

    /// Removes the expired results.
    pub(super) fn evict_expired(&self) {
        self.table.lock().evict_expired();
    }
}

impl TaskResultTable {
    fn evict_expired(&mut self) {
        let now = Instant::now();
        // Results are in order of time.
        while self
            .results
            .front()
            .is_some_and(|task_result| now - task_result.stored_at >= TaskResults::KEEP)
        {
            self.remove_at(0);
        }
    }

    /// Drops the oldest result of the principal with the most, so that nobody's results cost
    /// another theirs. The last result stays, since a client is about to learn its id.
    fn make_room(&mut self) {
        let mut sizes: HashMap<u32, (usize, usize)> = HashMap::new();
        for task_result in &self.results {
            let size = sizes.entry(task_result.principal).or_default();
            *size = (size.0 + task_result.result.size_hint(), size.1 + 1);
        }
        let by_bytes = self.bytes > BYTES_MAX;
        let newest = self.results.back().map(|task_result| task_result.principal);
        // On a tie the owner of the newest result is spared.
        let most = sizes.into_iter().max_by_key(|(id, (bytes, count))| {
            (if by_bytes { *bytes } else { *count }, Some(*id) != newest)
        });
        let others = self.results.len() - 1;
        let theirs = self
            .results
            .iter()
            .take(others)
            .position(|task_result| most.is_some_and(|(id, _)| id == task_result.principal));
        self.remove_at(theirs.unwrap_or(0));
    }

    fn remove_at(&mut self, index: usize) {
        if let Some(task_result) = self.results.remove(index) {
            self.bytes -= task_result.result.size_hint();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_jsonrpc::json::RawJson;
    use moongate_testing::principal;

    #[tokio::test(start_paused = true)]
    async fn an_end_is_its_principals_and_not_for_ever() {
        let finished = TaskResults::new(Arc::new(Metrics::new()));
        let kept = finished.store(&principal(1), JsonObject::new().with("a", RawJson::NULL));
        assert_eq!(
            finished.find(&principal(1), &kept.id).unwrap().result,
            kept.result
        );
        assert!(finished.find(&principal(2), &kept.id).is_none());
        tokio::time::advance(TaskResults::KEEP).await;
        assert!(finished.find(&principal(1), &kept.id).is_none());
        assert_eq!(finished.table.lock().bytes, 0);
    }

    #[tokio::test]
    async fn ends_are_bounded() {
        let finished = TaskResults::new(Arc::new(Metrics::new()));
        let large = JsonObject::new().with("a", RawJson::string(&"x".repeat(BYTES_MAX / 3)));
        let first = finished.store(&principal(1), large.clone());
        for _ in 0..3 {
            finished.store(&principal(1), large.clone());
        }
        assert!(finished.find(&principal(1), &first.id).is_none());
        assert!(finished.table.lock().bytes <= BYTES_MAX);
        for _ in 0..RESULTS_MAX + 10 {
            finished.store(&principal(1), JsonObject::new());
        }
        assert_eq!(finished.table.lock().results.len(), RESULTS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn nobodys_ends_cost_another_theirs() {
        let finished = TaskResults::new(Arc::new(Metrics::new()));
        let few = finished.store(&principal(1), JsonObject::new());
        for _ in 0..RESULTS_MAX + 10 {
            finished.store(&principal(2), JsonObject::new());
        }
        assert!(finished.find(&principal(1), &few.id).is_some());
        let large = JsonObject::new().with("a", RawJson::string(&"x".repeat(BYTES_MAX / 2 + 1)));
        let first = finished.store(&principal(3), large.clone());
        let second = finished.store(&principal(4), large);
        assert!(finished.find(&principal(1), &few.id).is_some());
        assert!(
            finished.find(&principal(4), &second.id).is_some(),
            "the one that was just made"
        );
        assert!(finished.find(&principal(3), &first.id).is_none());
        assert!(finished.table.lock().bytes <= BYTES_MAX);
        // Results expire without a lookup, too.
        tokio::time::advance(TaskResults::KEEP).await;
        finished.evict_expired();
        let table = finished.table.lock();
        assert_eq!(table.results.len(), 0);
        assert_eq!(table.bytes, 0);
    }

    #[tokio::test]
    async fn an_end_does_not_keep_its_message_alive() {
        let message = bytes::Bytes::from(format!(
            r#"{{"x":"{}","result":{{"a":1}}}}"#,
            "x".repeat(10_000)
        ));
        let result = JsonObject::parse(message.clone())
            .unwrap()
            .get_object("result")
            .unwrap();
        let kept = TaskResults::new(Arc::new(Metrics::new())).store(&principal(1), result);
        assert_eq!(
            kept.result.bytes(),
            bytes::Bytes::from_static(br#"{"a":1}"#)
        );
        assert!(message.is_unique(), "a span of it is kept");
    }
}
