//! Collector of a task's input requests, which a legacy server sends only while somebody awaits the
//! task's result.
//!
//! Owns the wait for the result on behalf of a polling client. Does not hold the requests
//! (`task_inputs.rs`). Invariant: a collector does not keep its connection alive.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::legacy::tasks;
use crate::legacy::upstream::call::LegacyCall;
use crate::legacy::upstream::connection::LegacyConnection;
use crate::legacy::upstream::task_inputs::{
    HOLD_TIME, InputCollector, OpenTaskInput, REQUESTS_MAX, TASKS_MAX, make_room,
};
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::{RpcError, code};
use moongate_model::{
    Call, Caller, Error, ExchangeEvent, InputKind, InputRequest, InputRequired, McpErrorKind,
    TaskMethod,
};
use moongate_telemetry::{CountGuard, InputKindName, InputOutcome, Limit, TaskRetention};

/// Time that a polling client waits for requests that the server has ready.
const POLL_WAIT: Duration = Duration::from_secs(1);

/// Returns the task's open requests. Waits up to [`POLL_WAIT`] if there are none yet.
pub(crate) async fn wait_for_requests(
    server: &Arc<LegacyConnection>,
    caller: &Arc<Caller>,
    id: &ByteString,
) -> Result<Vec<(ByteString, InputRequest)>, Error> {
    let collector = collect_inputs(server, caller, id)?;
    let until = Instant::now() + POLL_WAIT;
    loop {
        // Created before the check, as in `next_held`.
        let changed = collector.changed.notified();
        let open: Vec<_> = collector
            .open
            .lock()
            .iter()
            // A closed one was withdrawn by its server.
            .filter(|input| !input.responder.is_closed())
            .map(|input| (input.key.clone(), input.request.clone()))
            .collect();
        if !open.is_empty() || timeout_at(until, changed).await.is_err() {
            return Ok(open);
        }
    }
}

/// Starts to collect the requests of a task, unless that has started already.
fn collect_inputs(
    server: &Arc<LegacyConnection>,
    caller: &Arc<Caller>,
    id: &ByteString,
) -> Result<Arc<InputCollector>, Error> {
    // Held until the entry is in: two polls at once must not start two collectors. Nothing is
    // awaited meanwhile.
    let mut all = server.task_inputs.tasks.lock();
    if let Some(collector) = all.get(id) {
        return Ok(collector.clone());
    }
    if all.len() >= TASKS_MAX {
        server.options.metrics.calls.refused.inc(Limit::Tasks);
        if !make_room(&mut all, caller.principal.id) {
            let name = &server.options.server;
            let message = format!(
                "Server \"{name}\" has reached its limit of {TASKS_MAX} tasks that wait for input"
            );
            return Err(Error::new(McpErrorKind::Overloaded, message));
        }
    }
    let collector = InputCollector::new(caller.principal.id);
    // A copy: the id is a span of a client's message, whose buffer must not live as long as the
    // collector.
    let id = ByteString::from(id.as_str());
    all.insert(id.clone(), collector.clone());
    // A 2025-11-25 server sends a task's requests while `tasks/result` is pending.
    let exchange = LegacyCall::start(
        server.clone(),
        caller.clone(),
        Call::for_task(TaskMethod::Result, &id),
    )
    .0;
    let closing = server.closing.clone();
    let evicted = collector.evicted.clone();
    let count_guard = CountGuard::new(
        &server
            .options
            .metrics
            .inputs
            .tasks
            .series(TaskRetention::InputRequired),
    );
    // Weak, so that a collector does not keep its connection alive.
    let waiting = run_collector(
        Arc::downgrade(server),
        caller.clone(),
        id,
        collector.clone(),
        exchange,
    );
    tokio::spawn(closing.run_until_cancelled_owned(async move {
        let _count_guard = count_guard;
        evicted.run_until_cancelled_owned(waiting).await;
    }));
    Ok(collector)
}

async fn run_collector(
    server: Weak<LegacyConnection>,
    caller: Arc<Caller>,
    id: ByteString,
    collector: Arc<InputCollector>,
    mut exchange: moongate_model::Exchange,
) {
    let until = Instant::now() + HOLD_TIME;
    let end = loop {
        match timeout_at(until, exchange.next_event()).await {
            Ok(ExchangeEvent::InputRequired(input)) => {
                accept_request(&server, &caller, &collector, input)
            }
            Ok(ExchangeEvent::Notification(_)) => {}
            Ok(ExchangeEvent::Done(end)) => break Some(end),
            Err(_) => break None,
        }
    };
    drop(exchange);
    // Some servers end the stream and still accept responses to requests that they sent on it.
    let streams_only =
        matches!(&end, Some(Err(error)) if error.kind == McpErrorKind::ServerProtocol);
    while streams_only && !collector.open.lock().is_empty() {
        if timeout_at(until, collector.changed.notified())
            .await
            .is_err()
        {
            break;
        }
    }
    if let Some(server) = server.upgrade() {
        server.task_inputs.release(&id, &collector);
    }
}

/// Stores a task's request, or refuses it if the client cannot receive it.
fn accept_request(
    server: &Weak<LegacyConnection>,
    caller: &Caller,
    collector: &InputCollector,
    input: InputRequired,
) {
    let Some(server) = server.upgrade() else {
        return;
    };
    let Some((server_key, mut input_request)) = input.requests.into_iter().next() else {
        return;
    };
    let mut open = collector.open.lock();
    open.retain(|input| !input.responder.is_closed());
    let kind = input_request.kind;
    let is_supported = caller.capabilities.supports(kind);
    let room = (is_supported && open.len() < REQUESTS_MAX).then(|| {
        server
            .task_inputs
            .backlog
            .reserve(input_request.params.size_hint())
    });
    let Some(weight) = room.flatten() else {
        let outcome = match is_supported {
            true => InputOutcome::TooMany,
            false => InputOutcome::NotDeclared,
        };
        count_outcome(&server, kind, outcome);
        let message = match is_supported {
            true => "Too many requests are already waiting for the client".to_owned(),
            false => format!("The client did not declare {}", kind.capability()),
        };
        let error = RpcError {
            code: code::METHOD_NOT_FOUND,
            message: message.into(),
            data: None,
        };
        drop(input.responder.send(vec![(server_key, Err(error))]));
        return;
    };
    count_outcome(&server, kind, InputOutcome::Asked);
    tasks::untag_task(&mut input_request.params);
    // "Each request key in `inputRequests` MUST be unique over the lifetime of a single task"
    // (SEP-2663).
    let key = ByteString::from(format!("ask-{}", server.calls.next_id()));
    open.push(OpenTaskInput {
        key,
        request: input_request,
        server_key,
        responder: input.responder,
        _weight: weight,
    });
    drop(open);
    collector.changed.notify_waiters();
}

fn count_outcome(server: &LegacyConnection, kind: InputKind, outcome: InputOutcome) {
    server
        .options
        .metrics
        .inputs
        .asks
        .inc((InputKindName(kind.capability()), outcome));
}
