//! Input requests of a legacy server's tasks, held for a client that polls for them.
//!
//! A 2025-11-25 server sends a task's requests on a stream while a client awaits the task's result
//! (2025-11-25/basic/utilities/tasks.mdx, Input Required Status). A client of 2026-07-28 polls for them and answers in
//! requests of its own. So the gateway awaits the result in the client's place. Owns the task requests without a
//! response. Does not decide which message belongs to which call. Invariant: they are bounded in number and in time,
//! and a request that is dropped gets an error response.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::json::{ByteString, JsonObject, RawJson};
use crate::jsonrpc::{RpcError, RpcRequest, code};
use crate::link::{ByteBudget, ByteReservation};
use crate::model::{
    Call, Caller, Error, ExchangeEvent, InputRequest, InputRequired, InputResponses, McpErrorKind, Outcome, TaskMethod,
    TaskState, TaskStatus,
};
use crate::revision::legacy::call::LegacyCall;
use crate::revision::legacy::tasks;
use crate::revision::legacy::upstream::LegacyConnection;
use crate::revision::link_error;
use crate::telemetry::CountGuard;

/// Limit of watched tasks on one connection. At the limit, the oldest task of the principal with the most is evicted.
const TASKS_MAX: usize = 256;
/// Limit of one task's requests that wait for responses.
const REQUESTS_MAX: usize = 32;
/// Limit of one connection's requests for tasks that no call awaits.
const UNCLAIMED_MAX: usize = 64;
/// Time for which a request is held.
const HOLD_TIME: Duration = Duration::from_secs(600);
/// Time that a polling client waits for requests that the server has ready.
const POLL_WAIT: Duration = Duration::from_secs(1);

/// Input requests of one connection's tasks.
pub(super) struct TaskInputs {
    tasks: Mutex<HashMap<ByteString, Arc<TaskWatch>>>,
    /// Requests that arrived outside of the call that awaits their task, or before there was one.
    unclaimed: Mutex<VecDeque<UnclaimedRequest>>,
    /// Notified when a request is added to `unclaimed`.
    added: Notify,
    /// Budget for the bytes of all requests.
    backlog: Arc<ByteBudget>,
}

/// Request for a task that no call awaits yet.
struct UnclaimedRequest {
    task: ByteString,
    at: Instant,
    request: RpcRequest,
    _weight: ByteReservation,
}

/// Watch of one task.
struct TaskWatch {
    principal: u32,
    since: Instant,
    open: Mutex<Vec<OpenTaskInput>>,
    changed: Notify,
    /// Cancelled when the watch is evicted.
    evicted: CancellationToken,
}

impl TaskWatch {
    fn new(principal: u32) -> Arc<Self> {
        let (open, changed, over) = (Mutex::default(), Notify::new(), CancellationToken::new());
        Arc::new(TaskWatch { principal, since: Instant::now(), open, changed, evicted: over })
    }
}

/// Request without a response.
struct OpenTaskInput {
    key: ByteString,
    request: InputRequest,
    /// Key of the request at the server.
    server_key: ByteString,
    responder: oneshot::Sender<InputResponses>,
    _weight: ByteReservation,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TaskInputs {
    /// Creates an empty table with a byte budget.
    pub(super) fn new(backlog: Arc<ByteBudget>) -> Self {
        TaskInputs { tasks: Mutex::default(), unclaimed: Mutex::default(), added: Notify::new(), backlog }
    }

    /// Holds a request until a call awaits its task. Returns the requests that had to be dropped.
    pub(super) fn hold(&self, task: ByteString, request: RpcRequest) -> Vec<RpcRequest> {
        let now = Instant::now();
        let mut early = lock(&self.unclaimed);
        let mut refused = Vec::new();
        while early.front().is_some_and(|early| now - early.at >= HOLD_TIME) || early.len() >= UNCLAIMED_MAX {
            refused.extend(early.pop_front().map(|early| early.request));
        }
        let weight = loop {
            match self.backlog.reserve(request.params.size_hint()) {
                Some(weight) => break weight,
                // The oldest requests are dropped first, until the new one fits or none is left.
                None => match early.pop_front() {
                    Some(oldest) => refused.push(oldest.request),
                    None => {
                        refused.push(request);
                        return refused;
                    }
                },
            }
        };
        early.push_back(UnclaimedRequest { task, at: now, request, _weight: weight });
        // Released first: the woken tasks take the same lock.
        drop(early);
        self.added.notify_waiters();
        refused
    }

    /// Waits for a held request of a task.
    ///
    /// There may be one at any time, since messages sent before the wait began may still arrive. A dropped future has
    /// taken no request.
    pub(super) async fn next_held(&self, task: &ByteString) -> RpcRequest {
        loop {
            // Created before the check, so that a request added right after it still wakes this task.
            let added = self.added.notified();
            if let Some(request) = self.take_held(task) {
                return request;
            }
            added.await;
        }
    }

    fn take_held(&self, task: &ByteString) -> Option<RpcRequest> {
        let mut early = lock(&self.unclaimed);
        let at = early.iter().position(|early| early.task == *task)?;
        early.remove(at).map(|early| early.request)
    }

    fn forget(&self, id: &ByteString) {
        lock(&self.tasks).remove(id);
    }

    /// Removes a watch, unless another one took its place.
    fn release(&self, id: &ByteString, waiter: &Arc<TaskWatch>) {
        let mut tasks = lock(&self.tasks);
        if tasks.get(id).is_some_and(|known| Arc::ptr_eq(known, waiter)) {
            tasks.remove(id);
        }
    }
}

/// Evicts the oldest watch of the principal that has the most.
///
/// Returns false if that is the given principal itself, or has hardly more.
fn make_room(tasks: &mut HashMap<ByteString, Arc<TaskWatch>>, principal: u32) -> bool {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for waiter in tasks.values() {
        *counts.entry(waiter.principal).or_default() += 1;
    }
    let own = counts.get(&principal).copied().unwrap_or(0);
    let Some((most, count)) = counts.into_iter().max_by_key(|(id, count)| (*count, *id)) else { return false };
    // A principal may not evict others to grow beyond their share.
    if count <= own + 1 {
        return false;
    }
    let theirs = tasks.iter().filter(|(_, waiter)| waiter.principal == most);
    let oldest = theirs.min_by_key(|(_, waiter)| waiter.since).map(|(id, _)| id.clone());
    let gone = oldest.and_then(|id| tasks.remove(&id));
    // Its responders are dropped with it, so the server learns that no responses come.
    gone.map(|waiter| waiter.evicted.cancel()).is_some()
}

/// Reads a task with its open input requests, or with its outcome if it is finished.
pub(super) async fn read_detailed(
    server: Arc<LegacyConnection>,
    caller: Arc<Caller>,
    id: ByteString,
) -> Result<Outcome, Error> {
    let look = Call::for_task(TaskMethod::Get, &id);
    let mut outcome = LegacyCall::start(server.clone(), caller.clone(), look).0.outcome().await?;
    let Some(task) = &mut outcome.task else {
        return Err(link_error::protocol_error(&server.options.server, "the answer to tasks/get is no task"));
    };
    match task.status {
        TaskStatus::Working | TaskStatus::Cancelled => {}
        TaskStatus::InputRequired => {
            task.input_requests = wait_for_requests(&server, &caller, &id).await?;
            if task.input_requests.is_empty() {
                // All requests have responses, or none was sent yet: the client has nothing to do.
                task.status = TaskStatus::Working;
            }
        }
        TaskStatus::Completed | TaskStatus::Failed => {
            server.task_inputs.forget(&id);
            let wait = Call::for_task(TaskMethod::Result, &id);
            finish(task, LegacyCall::start(server.clone(), caller, wait).0.outcome().await)?;
        }
    }
    Ok(outcome)
}

/// Writes the end of a task into its state.
///
/// SEP-2663, Task Execution Errors: "If the underlying request resulted in a JSON-RPC error, the task uses `failed`
/// status"; "if the request completed with a result (even if `isError: true`) the task uses `completed` status".
fn finish(task: &mut TaskState, end: Result<Outcome, Error>) -> Result<(), Error> {
    match end {
        Ok(outcome) => {
            task.status = TaskStatus::Completed;
            task.outcome = Some(Ok(outcome.result.to_raw()));
        }
        Err(Error { kind: McpErrorKind::ServerError(error), .. }) => {
            task.status = TaskStatus::Failed;
            let mut object = JsonObject::new()
                .with("code", RawJson::from_value(&error.code))
                .with("message", RawJson::string(&error.message));
            if let Some(data) = error.data {
                object.set(ByteString::literal("data"), data);
            }
            task.outcome = Some(Err(object.to_raw()));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Returns the task's open requests. Waits up to [`POLL_WAIT`] if there are none yet.
async fn wait_for_requests(
    server: &Arc<LegacyConnection>,
    caller: &Arc<Caller>,
    id: &ByteString,
) -> Result<Vec<(ByteString, InputRequest)>, Error> {
    let waiter = watch_task(server, caller, id)?;
    let until = Instant::now() + POLL_WAIT;
    loop {
        // Created before the check, as in `next_held`.
        let changed = waiter.changed.notified();
        let open: Vec<_> = lock(&waiter.open).iter().map(|w| (w.key.clone(), w.request.clone())).collect();
        if !open.is_empty() || timeout_at(until, changed).await.is_err() {
            return Ok(open);
        }
    }
}

/// Starts to watch a task, unless it is watched already.
fn watch_task(server: &Arc<LegacyConnection>, caller: &Arc<Caller>, id: &ByteString) -> Result<Arc<TaskWatch>, Error> {
    let mut all = lock(&server.task_inputs.tasks);
    if let Some(waiter) = all.get(id) {
        return Ok(waiter.clone());
    }
    if all.len() >= TASKS_MAX {
        server.options.metrics.refused.with_label_values(&["tasks"]).inc();
        if !make_room(&mut all, caller.principal.id) {
            let name = &server.options.server;
            let message = format!("Server \"{name}\" has {TASKS_MAX} tasks that wait for input, the most there may be");
            return Err(Error::new(McpErrorKind::Overloaded, message));
        }
    }
    let waiter = TaskWatch::new(caller.principal.id);
    // A copy: the id is a span of a client's message, whose buffer must not live as long as the watch.
    let id = ByteString::from(id.as_str());
    all.insert(id.clone(), waiter.clone());
    // A 2025-11-25 server sends a task's requests while `tasks/result` is pending.
    let exchange = LegacyCall::start(server.clone(), caller.clone(), Call::for_task(TaskMethod::Result, &id)).0;
    let (gone, over) = (server.closing.clone(), waiter.evicted.clone());
    let kept = CountGuard::new(&server.options.metrics.tasks.with_label_values(&["asked"]));
    // Weak, so that a watch does not keep its connection alive.
    let waiting = run_watch(Arc::downgrade(server), caller.clone(), id, waiter.clone(), exchange);
    tokio::spawn(gone.run_until_cancelled_owned(async move {
        let _kept = kept;
        over.run_until_cancelled_owned(waiting).await;
    }));
    Ok(waiter)
}

async fn run_watch(
    server: Weak<LegacyConnection>,
    caller: Arc<Caller>,
    id: ByteString,
    waiter: Arc<TaskWatch>,
    mut exchange: crate::model::Exchange,
) {
    let until = Instant::now() + HOLD_TIME;
    let end = loop {
        match timeout_at(until, exchange.next_event()).await {
            Ok(ExchangeEvent::InputRequired(ask)) => accept_request(&server, &caller, &waiter, ask),
            Ok(ExchangeEvent::Notification(_)) => {}
            Ok(ExchangeEvent::Done(end)) => break Some(end),
            Err(_) => break None,
        }
    };
    drop(exchange);
    // Some servers end the stream and still accept responses to requests that they sent on it.
    let streams_only = matches!(&end, Some(Err(error)) if error.kind == McpErrorKind::ServerProtocol);
    while streams_only && !lock(&waiter.open).is_empty() {
        if timeout_at(until, waiter.changed.notified()).await.is_err() {
            break;
        }
    }
    if let Some(server) = server.upgrade() {
        server.task_inputs.release(&id, &waiter);
    }
}

/// Stores a task's request, or refuses it if the client cannot receive it.
fn accept_request(server: &Weak<LegacyConnection>, caller: &Caller, waiter: &TaskWatch, ask: InputRequired) {
    let Some(server) = server.upgrade() else { return };
    let Some((own, mut question)) = ask.requests.into_iter().next() else { return };
    let mut open = lock(&waiter.open);
    let able = caller.capabilities.supports(question.kind);
    let asks = |outcome| server.options.metrics.asks.with_label_values(&[question.kind.capability(), outcome]).inc();
    let room =
        (able && open.len() < REQUESTS_MAX).then(|| server.task_inputs.backlog.reserve(question.params.size_hint()));
    let Some(weight) = room.flatten() else {
        asks(if able { "too_many" } else { "not_declared" });
        let message = match able {
            true => "Too many questions wait for the client already".to_owned(),
            false => format!("The client did not declare {}", question.kind.capability()),
        };
        let error = RpcError { code: code::METHOD_NOT_FOUND, message: message.into(), data: None };
        drop(ask.responder.send(vec![(own, Err(error))]));
        return;
    };
    asks("asked");
    tasks::untag_task(&mut question.params);
    // "Each request key in `inputRequests` MUST be unique over the lifetime of a single task" (SEP-2663).
    let key = ByteString::from(format!("ask-{}", server.calls.next_id()));
    open.push(OpenTaskInput { key, request: question, server_key: own, responder: ask.responder, _weight: weight });
    drop(open);
    waiter.changed.notify_waiters();
}

/// Delivers the client's responses. Responses to unknown requests are ignored, as SEP-2663 says.
pub(super) async fn deliver_responses(
    server: Arc<LegacyConnection>,
    caller: Arc<Caller>,
    call: Call,
) -> Result<Outcome, Error> {
    let wrong = |what: &str| Error::new(McpErrorKind::InvalidParams, format!("Invalid params: {what}"));
    let id = call.target().ok_or_else(|| wrong("taskId must be a string"))?;
    let responses =
        call.params.get_object("inputResponses").ok_or_else(|| wrong("inputResponses must be an object"))?;
    let waiter = lock(&server.task_inputs.tasks).get(&id).cloned();
    let Some(waiter) = waiter else {
        // "Servers SHOULD return a JSON-RPC error if the `taskId` does not correspond to a known task": the server
        // decides.
        let look = Call::for_task(TaskMethod::Get, &id);
        return LegacyCall::start(server, caller, look).0.outcome().await.map(|_| Outcome::default());
    };
    for (key, response) in responses.iter() {
        let Some(result) = response.as_object() else { continue };
        let mut open = lock(&waiter.open);
        if let Some(at) = open.iter().position(|waiting| waiting.key == *key) {
            let OpenTaskInput { server_key: own, responder: answer, .. } = open.remove(at);
            // A server that disconnected meanwhile takes no response.
            drop(answer.send(vec![(own, Ok(result))]));
        }
    }
    waiter.changed.notify_waiters();
    Ok(Outcome::default())
}

/// Cancels a task. For a client of 2026-07-28, cancelling a finished task is no error.
///
/// SEP-2663: "The server MUST acknowledge the request with an empty result".
pub(super) async fn cancel_task(
    server: Arc<LegacyConnection>,
    caller: Arc<Caller>,
    call: Call,
) -> Result<Outcome, Error> {
    let (id, whole) = (call.target().unwrap_or(ByteString::literal("")), call.detailed);
    server.task_inputs.forget(&id);
    match LegacyCall::start(server.clone(), caller.clone(), call).0.outcome().await {
        Err(error)
            if !whole && matches!(&error.kind, McpErrorKind::ServerError(e) if e.code == code::INVALID_PARAMS) =>
        {
            let look = Call::for_task(TaskMethod::Get, &id);
            let state = LegacyCall::start(server, caller, look).0.outcome().await;
            let over = state.is_ok_and(|outcome| outcome.task.is_some_and(|task| task.status.is_terminal()));
            if over { Ok(Outcome::default()) } else { Err(error) }
        }
        end => end,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

    use super::*;
    use crate::jsonrpc::RequestId;
    use crate::link::Link;
    use crate::link::rpc_pipe::{RpcPipe, RpcPipeSettings};
    use crate::model::Server;
    use crate::revision::negotiate::ConnectOptions;
    use crate::revision::{PendingCalls, legacy};
    use crate::telemetry::Metrics;

    fn request(n: u64) -> RpcRequest {
        RpcRequest {
            id: RequestId::number(n),
            method: ByteString::literal("elicitation/create"),
            params: JsonObject::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn early_questions_are_their_tasks_and_bounded() {
        let attended = TaskInputs::new(ByteBudget::new(1 << 20, "a", &Metrics::new()));
        let (a, b) = (ByteString::literal("a"), ByteString::literal("b"));
        assert!(attended.hold(a.clone(), request(1)).is_empty());
        assert!(attended.hold(b.clone(), request(2)).is_empty());
        assert!(attended.hold(a.clone(), request(3)).is_empty());
        assert_eq!(attended.next_held(&a).await.id, RequestId::number(1));
        assert_eq!(attended.next_held(&a).await.id, RequestId::number(3));
        // A waiting call gets a request that is held after the wait began.
        let (waited, refused) = tokio::join!(attended.next_held(&a), async { attended.hold(a.clone(), request(4)) });
        assert!(waited.id == RequestId::number(4) && refused.is_empty());
        assert!(attended.take_held(&a).is_none());
        let refused: usize = (0..UNCLAIMED_MAX as u64 + 5).map(|n| attended.hold(a.clone(), request(n)).len()).sum();
        assert_eq!(refused, 6, "the oldest make room");
        tokio::time::advance(HOLD_TIME).await;
        assert_eq!(attended.hold(b, request(9)).len(), UNCLAIMED_MAX, "nothing is kept for ever");
    }

    #[tokio::test(start_paused = true)]
    async fn early_questions_are_bounded_in_bytes() {
        let attended = TaskInputs::new(ByteBudget::new(1000, "a", &Metrics::new()));
        let large = |n| {
            let params = JsonObject::new().with("message", RawJson::string(&"x".repeat(400)));
            RpcRequest {
                id: RequestId::number(n),
                method: ByteString::literal("elicitation/create"),
                params: params.to_shared(),
            }
        };
        let task = ByteString::literal("a");
        assert!(attended.hold(task.clone(), large(1)).is_empty() && attended.hold(task.clone(), large(2)).is_empty());
        let refused = attended.hold(task.clone(), large(3));
        assert_eq!(refused.iter().map(|request| request.id.clone()).collect::<Vec<_>>(), [RequestId::number(1)]);
        assert_eq!(attended.take_held(&task).unwrap().id, RequestId::number(2));
        let huge = JsonObject::new().with("message", RawJson::string(&"x".repeat(2000))).to_shared();
        let huge =
            RpcRequest { id: RequestId::number(4), method: ByteString::literal("elicitation/create"), params: huge };
        let refused = attended.hold(task.clone(), huge);
        assert_eq!(refused.len(), 2, "what is larger than all has no place, whatever makes room");
        assert!(attended.take_held(&task).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_principal_with_the_most_tasks_makes_room() {
        let mut tasks = HashMap::new();
        for n in 0..10 {
            let waiter = TaskWatch::new(if n < 8 { 1 } else { 2 });
            tasks.insert(ByteString::from(format!("t{n}")), waiter);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let first = tasks[&ByteString::literal("t0")].clone();
        assert!(!make_room(&mut tasks, 1), "who has the most makes no room for itself");
        assert!(make_room(&mut tasks, 3) && first.evicted.is_cancelled() && tasks.len() == 9);
        for _ in 0..4 {
            assert!(make_room(&mut tasks, 2));
        }
        assert_eq!(tasks.values().filter(|waiter| waiter.principal == 1).count(), 3);
        assert!(!make_room(&mut tasks, 2), "hardly more is no reason");
    }

    /// Reads the next message that the server gets.
    async fn heard(pipe: &mut BufReader<DuplexStream>) -> String {
        let mut line = String::new();
        pipe.read_line(&mut line).await.unwrap();
        line
    }

    #[tokio::test]
    async fn what_was_on_its_way_when_the_wait_began_is_heard() {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let mut pipe = BufReader::new(theirs);
        let (reader, writer) = tokio::io::split(ours);
        let calls = PendingCalls::default();
        let settings = RpcPipeSettings {
            max_message: 64 * 1024,
            backlog: ByteBudget::new(1 << 20, "a", &Metrics::new()),
            correlate: calls.correlate(),
            on_garbage: Arc::new(|line| panic!("{}", String::from_utf8_lossy(line))),
            closed: "it was closed",
            explain: None,
        };
        let link: Arc<dyn Link> = Arc::new(RpcPipe::start(reader, writer, settings));
        let hello = ConnectOptions {
            server: "a".to_owned(),
            revision: None,
            era: None,
            preferred_era: None,
            capabilities: RawJson::literal("{}"),
            client_info: RawJson::literal("{}"),
            timeouts: Arc::new(crate::revision::CallTimeouts::new(Duration::from_secs(60), Duration::from_secs(60))),
            max_backlog: 1 << 20,
            metrics: Arc::new(Metrics::new()),
            closing: tokio_util::task::TaskTracker::new(),
            persisted_session: None,
        };
        let opening = async {
            assert!(heard(&mut pipe).await.contains("initialize"));
            let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
            pipe.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            heard(&mut pipe).await
        };
        let (opened, _) = tokio::join!(legacy::open(&link, &calls, &hello), opening);
        let server = legacy::LegacyConnection::attach(link, calls, hello, opened.unwrap());
        let caller = moongate_testing::caller(1, Some("s"));
        let task = ByteString::literal("t");
        let mut end = server.call(&caller, Call::for_task(TaskMethod::Result, &task));
        let (event, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(20), end.next_event()), async {
            assert!(heard(&mut pipe).await.contains("tasks/result"));
            // Read from the pipe before any call awaited the task, and processed only now.
            server.0.on_task_request(task.clone(), request(7)).await;
        });
        assert!(matches!(event.expect("the question is lost"), ExchangeEvent::InputRequired(_)));
    }
}
