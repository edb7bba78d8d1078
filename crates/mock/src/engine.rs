//! Engine: leads a request to its response.
//!
//! Owns the order of the steps: faults, then the method, then encoding. Does not own transports or
//! methods. Invariant: every request ends in exactly one `Final`, unless its task is aborted.

use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt as _,
    time::{Duration, sleep},
};

use super::{
    call::{CallOutcome, CallStop, MockCall},
    fault::FaultAction,
    frame::{OutgoingFrame, RequestEnd},
    legacy, lists, modern, prompts, resources, tasks, tools,
    wire::{ResultBody, RpcFailure},
};

/// Answers a request under these faults. `ready` is its outcome if the transport knows it already.
pub(super) async fn answer_call(
    call: &MockCall,
    ready: Option<CallOutcome>,
    acts: Vec<FaultAction>,
) -> RequestEnd {
    let mut after = Vec::new();
    let mut fixed = ready;
    for act in acts {
        match apply_fault(call, act).await {
            FaultOutcome::Passed => {}
            FaultOutcome::Ended(end) => return end,
            FaultOutcome::Answered(outcome) => fixed = Some(outcome),
            FaultOutcome::AfterAnswer(act) => after.push(act),
        }
    }
    let outcome = match fixed {
        Some(outcome) => outcome,
        None => dispatch(call).await,
    };
    finish(call, outcome, &after)
}

enum FaultOutcome {
    Passed,
    Ended(RequestEnd),
    Answered(CallOutcome),
    AfterAnswer(FaultAction),
}

async fn apply_fault(call: &MockCall, act: FaultAction) -> FaultOutcome {
    match act {
        FaultAction::Delay { ms } => sleep(Duration::from_millis(ms)).await,
        FaultAction::Hang => std::future::pending().await,
        // Over HTTP the exit code is ignored, and the client sees a reset.
        FaultAction::Exit { code } => return reset_connection(Some(code)),
        FaultAction::Close => {
            return FaultOutcome::Ended(RequestEnd::Broken {
                reset: false,
                exit: None,
            });
        }
        FaultAction::Reset => return reset_connection(None),
        FaultAction::Error { code, message } => {
            return FaultOutcome::Answered(Err(RpcFailure::new(code, message).into()));
        }
        FaultAction::Result { json } => {
            let body = ResultBody::verbatim(&json)
                .ok_or_else(|| RpcFailure::new(-32603, "the script's result is no object"));
            return FaultOutcome::Answered(body.map_err(CallStop::Fail));
        }
        // Without headers the call came over a pipe, which has no HTTP status.
        FaultAction::Status { .. } if call.headers.is_none() => {}
        FaultAction::Status {
            status,
            headers,
            body,
            content_type,
        } => {
            let mut headers: Vec<_> = headers.into_iter().collect();
            headers.extend(content_type.map(|value| ("content-type".to_owned(), value)));
            return FaultOutcome::Ended(RequestEnd::Http {
                status,
                headers,
                body,
            });
        }
        FaultAction::Body { text } => {
            return json_body(text.replace("{id}", &call.request.id));
        }
        // A receiver that has gone ends the call elsewhere, so every send below ignores its result.
        FaultAction::Garbage { text } => {
            let text = fill_placeholders(call, &text);
            let _ = call
                .out
                .send(OutgoingFrame::Raw(format!("{text}\n").into_bytes()))
                .await;
        }
        FaultAction::Bytes { text } => {
            let bytes = fill_placeholders(call, &text)
                .chars()
                .filter_map(|byte| u8::try_from(byte).ok())
                .collect();
            let _ = call.out.send(OutgoingFrame::Raw(bytes)).await;
        }
        FaultAction::Unending { bytes } => unending(call, bytes).await,
        FaultAction::Flood { text, count } => {
            flood_messages(call, &fill_placeholders(call, &text), count).await;
        }
        FaultAction::Stderr { bytes } => flood(bytes).await,
        FaultAction::DropSessions => {
            call.server.drop_sessions(None);
        }
        // These faults change the response itself, which does not exist yet.
        act @ (FaultAction::ContentType { .. }
        | FaultAction::Cut
        | FaultAction::WrongId
        | FaultAction::Duplicate
        | FaultAction::Huge { .. }) => {
            return FaultOutcome::AfterAnswer(act);
        }
    }
    FaultOutcome::Passed
}

/// Ends a request by a reset, and the process if there is an exit code.
fn reset_connection(exit: Option<i32>) -> FaultOutcome {
    FaultOutcome::Ended(RequestEnd::Broken { reset: true, exit })
}

/// Ends a request by this body, which need not be JSON.
fn json_body(body: String) -> FaultOutcome {
    FaultOutcome::Ended(RequestEnd::Http {
        status: 200,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body,
    })
}

/// Writes this many messages, each with its number.
async fn flood_messages(call: &MockCall, text: &str, count: u64) {
    for n in 1..=count {
        let _ = call
            .out
            .send(OutgoingFrame::Message(text.replace("{n}", &n.to_string())))
            .await;
    }
}

/// Fills the placeholders of a script's text with this call's id and progress token.
fn fill_placeholders(call: &MockCall, text: &str) -> String {
    let token = call.request.meta("progressToken").to_string();
    text.replace("{id}", &call.request.id)
        .replace("{token}", &token)
}

/// Writes this many bytes without a line break, then a line break.
// Parts of 64 KiB: the fault may ask for gigabytes, and a reader with a limit stops long before
// that.
async fn unending(call: &MockCall, bytes: usize) {
    const PART: usize = 64 * 1024;
    let mut left = bytes;
    while left > 0 {
        let part = left.min(PART);
        if call
            .out
            .send(OutgoingFrame::Raw(vec![b'x'; part]))
            .await
            .is_err()
        {
            return;
        }
        left -= part;
    }
    let _ = call.out.send(OutgoingFrame::Raw(b"\n".to_vec())).await;
}

/// Writes this many bytes to stderr, in lines.
pub(super) async fn flood(bytes: usize) {
    // Each write is handed to another thread: many lines at once.
    let lines = format!("{}\n", "stderr ".repeat(11)).repeat(50);
    let mut stderr = tokio::io::stderr();
    let mut left = bytes;
    while left > 0 {
        let part = left.min(lines.len());
        if stderr.write_all(&lines.as_bytes()[..part]).await.is_err() {
            return;
        }
        left -= part;
    }
    // A process may end after this, and the last write continues in the background.
    let _ = stderr.flush().await;
}

async fn dispatch(call: &MockCall) -> CallOutcome {
    let outcome = match call.request.method.as_str() {
        "tools/call" => call_tool(call).await,
        "tools/list" => lists::tools(call),
        "resources/list" => lists::resources(call),
        "resources/templates/list" => lists::templates(call),
        "prompts/list" => lists::prompts(call),
        "resources/read" => resources::read(call).await,
        "prompts/get" => prompts::get(call).await,
        "completion/complete" => prompts::complete(call),
        _ if call.revision.is_modern() => match tasks::modern(call) {
            Some(outcome) => outcome,
            None => modern::method(call).await,
        },
        _ => match tasks::legacy(call).await {
            Some(outcome) => outcome,
            None => legacy::method(call),
        },
    };
    // Only tools have results with `isError`. Any other method reports a failure as a JSON-RPC
    // error.
    match outcome {
        Err(CallStop::Failed(text)) if call.request.method == "tools/call" => {
            Ok(tools::text(&text).put("isError", &json!(true)))
        }
        Err(CallStop::Failed(text)) => Err(RpcFailure::new(-32603, text).into()),
        other => other,
    }
}

/// Runs a tool, as a task if it should be one.
async fn call_tool(call: &MockCall) -> CallOutcome {
    let name = call.request.params["name"]
        .as_str()
        .ok_or_else(|| RpcFailure::params("`name` is missing"))?;
    // Calls use the live list, since a test may change the tools while the server runs.
    if !call
        .server
        .contents
        .lock()
        .tools
        .iter()
        .any(|t| t.key == name)
    {
        return Err(RpcFailure::params(format!("Unknown tool: {name}")).into());
    }
    if let Some(created) = tasks::create(call, name).await? {
        return Ok(created);
    }
    tools::run_tool(call, name).await
}

fn finish(call: &MockCall, outcome: CallOutcome, after: &[FaultAction]) -> RequestEnd {
    let mut id = call.request.id.clone();
    let mut twice = false;
    let mut content_type = None;
    let mut padding = 0;
    for act in after {
        match act {
            FaultAction::Cut => return RequestEnd::Nothing,
            FaultAction::WrongId => id = another_id(&id),
            FaultAction::Duplicate => twice = true,
            FaultAction::Huge { bytes } => padding = *bytes,
            FaultAction::ContentType { value } => content_type = Some(value.clone()),
            _ => {}
        }
    }
    let (text, status) = match outcome {
        Ok(body) => {
            let body = if padding > 0 {
                body.put("padding", &json!("x".repeat(padding)))
            } else {
                body
            };
            (encode_result(call, body).response(&id), 200)
        }
        Err(CallStop::InputRequired(requests, state)) => (
            encode_result(call, modern::input_required(call, &requests, state)).response(&id),
            200,
        ),
        Err(CallStop::Fail(fail)) => (fail.response(Some(&id)), fail.status),
        Err(CallStop::Failed(text)) => (RpcFailure::new(-32603, text).response(Some(&id)), 200),
        Err(CallStop::Crash) => {
            return RequestEnd::Broken {
                reset: true,
                exit: Some(3),
            };
        }
    };
    RequestEnd::Answer {
        text,
        status,
        twice,
        content_type,
    }
}

fn encode_result(call: &MockCall, body: ResultBody) -> ResultBody {
    if call.revision.is_modern() {
        modern::encode_result(call, body)
    } else {
        body
    }
}

fn another_id(id: &str) -> String {
    match serde_json::from_str(id) {
        Ok(Value::Number(n)) => (n.as_i64().unwrap_or(0) + 1_000_000).to_string(),
        _ => json!("an-id-nobody-used").to_string(),
    }
}
