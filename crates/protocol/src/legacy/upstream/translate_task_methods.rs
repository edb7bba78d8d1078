//! Task methods of a 2026-07-28 client on a legacy server, which has other ones.
//!
//! Owns the translation of polls, input responses and cancellations. Does not hold a task's
//! requests (`task_inputs.rs`). Invariant: responses to unknown requests are ignored.

use std::sync::Arc;

use crate::call_error;
use crate::legacy::upstream::call::LegacyCall;
use crate::legacy::upstream::collect_task_inputs::wait_for_requests;
use crate::legacy::upstream::connection::LegacyConnection;
use crate::legacy::upstream::task_inputs::OpenTaskInput;
use crate::v2026_07_28::error_codes::current_code;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::code;
use moongate_model::{
    Call, Caller, Error, McpErrorKind, Outcome, TaskMethod, TaskState, TaskStatus,
};

/// Reads a task with its open input requests, or with its outcome if it is finished.
pub(crate) async fn read_detailed(
    server: Arc<LegacyConnection>,
    caller: Arc<Caller>,
    id: ByteString,
) -> Result<Outcome, Error> {
    let get_call = Call::for_task(TaskMethod::Get, &id);
    let mut outcome = LegacyCall::start(server.clone(), caller.clone(), get_call)
        .0
        .outcome()
        .await?;
    let Some(task) = &mut outcome.task else {
        return Err(call_error::protocol_error(
            &server.options.server,
            "the answer to tasks/get is not a task",
        ));
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
            // A finished task asks nothing any more. Its held requests would stay until the
            // connection ends.
            server.task_inputs.forget(&id);
            let wait = Call::for_task(TaskMethod::Result, &id);
            finish(
                task,
                LegacyCall::start(server.clone(), caller, wait)
                    .0
                    .outcome()
                    .await,
            )?;
        }
    }
    Ok(outcome)
}

/// Writes the end of a task into its state.
///
/// SEP-2663, Task Execution Errors: "If the underlying request resulted in a JSON-RPC error, the
/// task uses `failed` status"; "if the request completed with a result (even if `isError: true`)
/// the task uses `completed` status".
fn finish(task: &mut TaskState, end: Result<Outcome, Error>) -> Result<(), Error> {
    match end {
        Ok(outcome) => {
            task.status = TaskStatus::Completed;
            task.outcome = Some(Ok(outcome.result.to_raw()));
        }
        Err(Error {
            kind: McpErrorKind::ServerError(error),
            ..
        }) => {
            task.status = TaskStatus::Failed;
            let mut object = JsonObject::new()
                .with("code", RawJson::from_value(&current_code(error.code)))
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

/// Delivers the client's responses. Responses to unknown requests are ignored, as SEP-2663 says.
pub(crate) async fn deliver_responses(
    server: Arc<LegacyConnection>,
    caller: Arc<Caller>,
    call: Call,
) -> Result<Outcome, Error> {
    let id = call
        .target()
        .ok_or_else(|| Error::invalid_params("taskId must be a string"))?;
    let responses = call
        .params
        .get_object("inputResponses")
        .ok_or_else(|| Error::invalid_params("inputResponses must be an object"))?;
    let collector = server.task_inputs.tasks.lock().get(&id).cloned();
    let Some(collector) = collector else {
        // "Servers SHOULD return a JSON-RPC error if the `taskId` does not correspond to a known
        // task": the server decides.
        let get_call = Call::for_task(TaskMethod::Get, &id);
        return LegacyCall::start(server, caller, get_call)
            .0
            .outcome()
            .await
            .map(|_| Outcome::default());
    };
    for (key, response) in responses.iter() {
        // Skipped and not refused: the other responses of the same message are still needed.
        let Some(result) = response.as_object() else {
            continue;
        };
        // Found and removed under one lock, so that a repeated response is delivered once.
        let mut open = collector.open.lock();
        if let Some(index) = open.iter().position(|waiting| waiting.key == *key) {
            let OpenTaskInput {
                server_key,
                responder,
                ..
            } = open.remove(index);
            // A server that disconnected meanwhile takes no response.
            drop(responder.send(vec![(server_key, Ok(result))]));
        }
    }
    collector.changed.notify_waiters();
    Ok(Outcome::default())
}

/// Cancels a task. For a client of 2026-07-28, cancelling a finished task is not an error.
///
/// SEP-2663: "The server MUST acknowledge the request with an empty result".
pub(crate) async fn cancel_task(
    server: Arc<LegacyConnection>,
    caller: Arc<Caller>,
    call: Call,
) -> Result<Outcome, Error> {
    let id = call.target().unwrap_or(ByteString::literal(""));
    let detailed = call.detailed;
    server.task_inputs.forget(&id);
    match LegacyCall::start(server.clone(), caller.clone(), call)
        .0
        .outcome()
        .await
    {
        Err(error)
            if !detailed
                && matches!(&error.kind,
                    McpErrorKind::ServerError(e) if e.code == code::INVALID_PARAMS) =>
        {
            let get_call = Call::for_task(TaskMethod::Get, &id);
            let state = LegacyCall::start(server, caller, get_call)
                .0
                .outcome()
                .await;
            let is_terminal = state
                .is_ok_and(|outcome| outcome.task.is_some_and(|task| task.status.is_terminal()));
            if is_terminal {
                Ok(Outcome::default())
            } else {
                Err(error)
            }
        }
        end => end,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

    use super::*;
    use crate::connect_options::ConnectOptions;
    use crate::{PendingCalls, legacy};
    use moongate_jsonrpc::message::{RequestId, RpcRequest};
    use moongate_model::{ExchangeEvent, McpServer};
    use moongate_telemetry::Metrics;
    use moongate_transport::rpc_pipe::{RpcPipe, RpcPipeSettings};
    use moongate_transport::{ByteBudget, Link};

    /// Reads the next message that the server gets.
    async fn read_line(pipe: &mut BufReader<DuplexStream>) -> String {
        let mut line = String::new();
        pipe.read_line(&mut line).await.unwrap();
        line
    }

    #[tokio::test]
    async fn an_input_request_sent_before_the_wait_is_delivered() {
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
            greeting: None,
            server: "a".to_owned(),
            accepts_login: false,
            revision: None,
            era: None,
            preferred_era: None,
            capabilities: RawJson::literal("{}"),
            is_shared: false,
            client: None,
            client_info: RawJson::literal("{}"),
            timeouts: Arc::new(crate::CallTimeouts::new(
                Duration::from_secs(60),
                Duration::from_secs(60),
            )),
            max_backlog: 1 << 20,
            metrics: Arc::new(Metrics::new()),
            closing: tokio_util::task::TaskTracker::new(),
            persisted_session: None,
        };
        let opening = async {
            assert!(read_line(&mut pipe).await.contains("initialize"));
            let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}}"#;
            pipe.write_all(format!("{answer}\n").as_bytes())
                .await
                .unwrap();
            read_line(&mut pipe).await
        };
        let (opened, _) = tokio::join!(legacy::open(&link, &calls, &hello), opening);
        let server = legacy::LegacyHandle::attach(link, calls, hello, opened.unwrap());
        let caller = moongate_testing::caller(1, Some("s"));
        let task = ByteString::literal("t");
        let mut end = server.call(&caller, Call::for_task(TaskMethod::Result, &task));
        let (event, ()) = tokio::join!(
            tokio::time::timeout(Duration::from_secs(20), end.next_event()),
            async {
                assert!(read_line(&mut pipe).await.contains("tasks/result"));
                let request = RpcRequest {
                    id: RequestId::number(7),
                    method: ByteString::literal("elicitation/create"),
                    params: JsonObject::new(),
                };
                // Read from the pipe before any call awaited the task, and processed only now.
                server
                    .connection
                    .on_task_request(task.clone(), request)
                    .await;
            }
        );
        assert!(matches!(
            event.expect("the question is lost"),
            ExchangeEvent::InputRequired(_)
        ));
    }
}
