//! Input requests of a legacy server's tasks, held for a client that polls for them.
//!
//! A 2025-11-25 server sends a task's requests on a stream while a client awaits the task's result
//! (2025-11-25/basic/utilities/tasks.mdx, Input Required Status). A client of 2026-07-28 polls for
//! them and answers in its own requests. So the gateway awaits the result on the client's behalf
//! (`collect_task_inputs.rs`).
//!
//! Owns the task requests without a response. Does not decide which message belongs to which call.
//! Invariant: they are bounded in number and in time, and a request that is dropped gets an error
//! response.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::{RequestId, RpcRequest};
use moongate_model::{InputRequest, InputResponses};
use moongate_transport::{ByteBudget, ByteReservation};

/// Limit of such tasks on one connection. At the limit, the oldest task of the principal with the
/// most is evicted.
pub(crate) const TASKS_MAX: usize = 256;
/// Limit of one task's requests that wait for responses.
pub(crate) const REQUESTS_MAX: usize = 32;
/// Limit of one connection's requests for tasks that no call awaits.
const UNCLAIMED_MAX: usize = 64;
/// Time for which a request is held.
// As long as a user may take for an answer by default (`gateway.ask_timeout`).
pub(crate) const HOLD_TIME: Duration = Duration::from_secs(600);

/// Input requests of one connection's tasks.
pub(crate) struct TaskInputs {
    pub(crate) tasks: Mutex<HashMap<ByteString, Arc<InputCollector>>>,
    /// Requests that arrived outside of the call that awaits their task, or before there was one.
    unclaimed: Mutex<VecDeque<UnclaimedRequest>>,
    /// Notified when a request is added to `unclaimed`.
    added: Notify,
    /// Budget for the bytes of all requests.
    pub(crate) backlog: Arc<ByteBudget>,
}

/// Request for a task that no call awaits yet.
struct UnclaimedRequest {
    task: ByteString,
    at: Instant,
    request: RpcRequest,
    _weight: ByteReservation,
}

/// Collector of one task's input requests.
pub(crate) struct InputCollector {
    pub(crate) principal: u32,
    pub(crate) since: Instant,
    pub(crate) open: Mutex<Vec<OpenTaskInput>>,
    pub(crate) changed: Notify,
    /// Cancelled when the collector is evicted.
    pub(crate) evicted: CancellationToken,
}

impl InputCollector {
    pub(crate) fn new(principal: u32) -> Arc<Self> {
        let open = Mutex::default();
        let changed = Notify::new();
        let evicted = CancellationToken::new();
        Arc::new(InputCollector {
            principal,
            since: Instant::now(),
            open,
            changed,
            evicted,
        })
    }
}

/// Request without a response.
pub(crate) struct OpenTaskInput {
    pub(crate) key: ByteString,
    pub(crate) request: InputRequest,
    /// Key of the request at the server.
    pub(crate) server_key: ByteString,
    pub(crate) responder: oneshot::Sender<InputResponses>,
    pub(crate) _weight: ByteReservation,
}

impl TaskInputs {
    /// Creates an empty table with a byte budget.
    pub(crate) fn new(backlog: Arc<ByteBudget>) -> Self {
        TaskInputs {
            tasks: Mutex::default(),
            unclaimed: Mutex::default(),
            added: Notify::new(),
            backlog,
        }
    }

    /// Holds a request until a call awaits its task. Returns the requests that had to be dropped.
    pub(crate) fn hold(&self, task: ByteString, request: RpcRequest) -> Vec<RpcRequest> {
        let now = Instant::now();
        let mut unclaimed = self.unclaimed.lock();
        let mut refused = Vec::new();
        while unclaimed
            .front()
            .is_some_and(|unclaimed| now - unclaimed.at >= HOLD_TIME)
            || unclaimed.len() >= UNCLAIMED_MAX
        {
            refused.extend(unclaimed.pop_front().map(|unclaimed| unclaimed.request));
        }
        let weight = loop {
            match self.backlog.reserve(request.params.size_hint()) {
                Some(weight) => break weight,
                // The oldest requests are dropped first, until the new one fits or none is left.
                None => match unclaimed.pop_front() {
                    Some(oldest) => refused.push(oldest.request),
                    None => {
                        refused.push(request);
                        return refused;
                    }
                },
            }
        };
        unclaimed.push_back(UnclaimedRequest {
            task,
            at: now,
            request,
            _weight: weight,
        });
        // Released first: the woken tasks take the same lock.
        drop(unclaimed);
        self.added.notify_waiters();
        refused
    }

    /// Waits for a held request of a task.
    ///
    /// There may be one at any time, since messages sent before the wait started may still arrive.
    /// A dropped future has taken no request.
    pub(crate) async fn next_held(&self, task: &ByteString) -> RpcRequest {
        loop {
            // Created before the check, so that a request added right after it still wakes this
            // task.
            let added = self.added.notified();
            if let Some(request) = self.take_held(task) {
                return request;
            }
            added.await;
        }
    }

    pub(crate) fn take_held(&self, task: &ByteString) -> Option<RpcRequest> {
        let mut unclaimed = self.unclaimed.lock();
        let index = unclaimed
            .iter()
            .position(|unclaimed| unclaimed.task == *task)?;
        unclaimed.remove(index).map(|unclaimed| unclaimed.request)
    }

    /// Removes a held request that its server took back.
    pub(crate) fn withdraw(&self, id: &RequestId) {
        self.unclaimed
            .lock()
            .retain(|unclaimed| unclaimed.request.id != *id);
    }

    pub(crate) fn forget(&self, id: &ByteString) {
        self.tasks.lock().remove(id);
    }

    /// Removes a collector, unless another one took its place.
    pub(crate) fn release(&self, id: &ByteString, collector: &Arc<InputCollector>) {
        let mut tasks = self.tasks.lock();
        if tasks
            .get(id)
            .is_some_and(|known| Arc::ptr_eq(known, collector))
        {
            tasks.remove(id);
        }
    }
}

/// Evicts the oldest collector of the principal that has the most.
///
/// Returns false if that is the given principal itself, or has hardly more.
pub(crate) fn make_room(
    tasks: &mut HashMap<ByteString, Arc<InputCollector>>,
    principal: u32,
) -> bool {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for collector in tasks.values() {
        *counts.entry(collector.principal).or_default() += 1;
    }
    let own_count = counts.get(&principal).copied().unwrap_or(0);
    let Some((most, count)) = counts.into_iter().max_by_key(|(id, count)| (*count, *id)) else {
        return false;
    };
    // A principal may not evict others to grow beyond their share.
    if count <= own_count + 1 {
        return false;
    }
    let candidates = tasks
        .iter()
        .filter(|(_, collector)| collector.principal == most);
    let oldest = candidates
        .min_by_key(|(_, collector)| collector.since)
        .map(|(id, _)| id.clone());
    let evicted = oldest.and_then(|id| tasks.remove(&id));
    // Its responders are dropped with it, so the server learns that no responses come.
    evicted
        .map(|collector| collector.evicted.cancel())
        .is_some()
}

#[cfg(test)]
mod tests {
    use moongate_jsonrpc::json::{JsonObject, RawJson};

    use super::*;

    use moongate_telemetry::Metrics;

    fn request(n: u64) -> RpcRequest {
        RpcRequest {
            id: RequestId::number(n),
            method: ByteString::literal("elicitation/create"),
            params: JsonObject::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unclaimed_requests_belong_to_their_task_and_are_bounded() {
        let task_inputs = TaskInputs::new(ByteBudget::new(1 << 20, "a", &Metrics::new()));
        let a = ByteString::literal("a");
        let b = ByteString::literal("b");
        assert!(task_inputs.hold(a.clone(), request(1)).is_empty());
        assert!(task_inputs.hold(b.clone(), request(2)).is_empty());
        assert!(task_inputs.hold(a.clone(), request(3)).is_empty());
        assert_eq!(task_inputs.next_held(&a).await.id, RequestId::number(1));
        assert_eq!(task_inputs.next_held(&a).await.id, RequestId::number(3));
        // A waiting call gets a request that is held after the wait started.
        let (waited, refused) = tokio::join!(task_inputs.next_held(&a), async {
            task_inputs.hold(a.clone(), request(4))
        });
        assert!(waited.id == RequestId::number(4) && refused.is_empty());
        assert!(task_inputs.take_held(&a).is_none());
        let refused: usize = (0..UNCLAIMED_MAX as u64 + 5)
            .map(|n| task_inputs.hold(a.clone(), request(n)).len())
            .sum();
        assert_eq!(refused, 6, "the oldest make room");
        tokio::time::advance(HOLD_TIME).await;
        assert_eq!(
            task_inputs.hold(b, request(9)).len(),
            UNCLAIMED_MAX,
            "nothing is kept for ever"
        );
    }

    /// Returns a request with a message of some length.
    fn long_request(id: u64, length: usize) -> RpcRequest {
        let params = JsonObject::new().with("message", RawJson::string(&"x".repeat(length)));
        RpcRequest {
            id: RequestId::number(id),
            method: ByteString::literal("elicitation/create"),
            params: params.to_shared(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unclaimed_requests_are_bounded_in_bytes() {
        let task_inputs = TaskInputs::new(ByteBudget::new(1000, "a", &Metrics::new()));
        let task = ByteString::literal("a");
        assert!(
            task_inputs
                .hold(task.clone(), long_request(1, 400))
                .is_empty()
                && task_inputs
                    .hold(task.clone(), long_request(2, 400))
                    .is_empty()
        );
        let refused = task_inputs.hold(task.clone(), long_request(3, 400));
        assert_eq!(
            refused
                .iter()
                .map(|request| request.id.clone())
                .collect::<Vec<_>>(),
            [RequestId::number(1)]
        );
        assert_eq!(
            task_inputs.take_held(&task).unwrap().id,
            RequestId::number(2)
        );
        let huge = long_request(4, 2000);
        let refused = task_inputs.hold(task.clone(), huge);
        assert_eq!(
            refused.len(),
            2,
            "what is larger than all has no place, whatever makes room"
        );
        assert!(task_inputs.take_held(&task).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_principal_with_the_most_tasks_makes_room() {
        let mut tasks = HashMap::new();
        for n in 0..10 {
            let collector = InputCollector::new(if n < 8 { 1 } else { 2 });
            tasks.insert(ByteString::from(format!("t{n}")), collector);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let first = tasks[&ByteString::literal("t0")].clone();
        assert!(
            !make_room(&mut tasks, 1),
            "who has the most makes no room for itself"
        );
        assert!(make_room(&mut tasks, 3) && first.evicted.is_cancelled() && tasks.len() == 9);
        for _ in 0..4 {
            assert!(make_room(&mut tasks, 2));
        }
        assert_eq!(
            tasks
                .values()
                .filter(|collector| collector.principal == 1)
                .count(),
            3
        );
        assert!(!make_room(&mut tasks, 2), "hardly more is no reason");
    }
}
