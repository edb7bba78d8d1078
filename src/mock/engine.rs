//! From a request to its answer.
//!
//! Owns the order of things: faults before the method, spelling after it. Does not own transports or methods.
//! Invariant: every request ends in exactly one `Final`, unless its task is aborted.

use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt as _,
    time::{Duration, sleep},
};

use super::{
    call::{Call, Outcome, Stop},
    fault::Act,
    legacy, lists, modern, prompts, resources,
    server::{Final, Frame},
    tasks, tools,
    wire::{Body, Fail},
};

/// Answers a request under these faults; `ready` is its outcome where the transport already knows it.
pub(super) async fn answer(call: &Call, ready: Option<Outcome>, acts: Vec<Act>) -> Final {
    let mut after = Vec::new();
    let mut fixed = ready;
    for act in acts {
        match before(call, act).await {
            Struck::Passed => {}
            Struck::Ended(end) => return end,
            Struck::Answered(outcome) => fixed = Some(outcome),
            Struck::Later(act) => after.push(act),
        }
    }
    let outcome = match fixed {
        Some(outcome) => outcome,
        None => dispatch(call).await,
    };
    finish(call, outcome, &after)
}

enum Struck {
    Passed,
    Ended(Final),
    Answered(Outcome),
    Later(Act),
}

async fn before(call: &Call, act: Act) -> Struck {
    match act {
        Act::Delay { ms } => sleep(Duration::from_millis(ms)).await,
        Act::Hang => std::future::pending().await,
        Act::Exit { code } => return Struck::Ended(Final::Broken { reset: true, exit: Some(code) }),
        Act::Close => return Struck::Ended(Final::Broken { reset: false, exit: None }),
        Act::Reset => return Struck::Ended(Final::Broken { reset: true, exit: None }),
        Act::Error { code, message } => return Struck::Answered(Err(Fail::new(code, message).into())),
        Act::Result { json } => {
            let body = Body::verbatim(&json).ok_or_else(|| Fail::new(-32603, "the script's result is no object"));
            return Struck::Answered(body.map_err(Stop::Fail));
        }
        Act::Status { .. } if call.headers.is_none() => {}
        Act::Status { status, headers, body, content_type } => {
            let mut headers: Vec<_> = headers.into_iter().collect();
            headers.extend(content_type.map(|value| ("content-type".to_owned(), value)));
            return Struck::Ended(Final::Http { status, headers, body });
        }
        Act::Body { text } => {
            let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
            return Struck::Ended(Final::Http { status: 200, headers, body: text.replace("{id}", &call.request.id) });
        }
        Act::Garbage { text } => {
            let text = filled(call, &text);
            let _ = call.out.send(Frame::Raw(format!("{text}\n").into_bytes())).await;
        }
        Act::Bytes { text } => {
            let bytes = filled(call, &text).chars().filter_map(|byte| u8::try_from(byte).ok()).collect();
            let _ = call.out.send(Frame::Raw(bytes)).await;
        }
        Act::Unending { bytes } => unending(call, bytes).await,
        Act::Flood { text, count } => {
            let text = filled(call, &text);
            for n in 1..=count {
                let _ = call.out.send(Frame::Message(text.replace("{n}", &n.to_string()))).await;
            }
        }
        Act::Stderr { bytes } => flood(bytes).await,
        Act::DropSessions => {
            call.server.drop_sessions(None);
        }
        act @ (Act::ContentType { .. } | Act::Cut | Act::WrongId | Act::Duplicate | Act::Huge { .. }) => {
            return Struck::Later(act);
        }
    }
    Struck::Passed
}

/// A text of the script's, about this call.
fn filled(call: &Call, text: &str) -> String {
    let token = call.request.meta("progressToken").to_string();
    text.replace("{id}", &call.request.id).replace("{token}", &token)
}

/// Writes so many bytes that are no line, then a line break.
async fn unending(call: &Call, bytes: usize) {
    const PART: usize = 64 * 1024;
    let mut left = bytes;
    while left > 0 {
        let part = left.min(PART);
        if call.out.send(Frame::Raw(vec![b'x'; part])).await.is_err() {
            return;
        }
        left -= part;
    }
    let _ = call.out.send(Frame::Raw(b"\n".to_vec())).await;
}

/// Writes so many bytes to stderr, in lines.
pub(super) async fn flood(bytes: usize) {
    let line = format!("{}\n", "stderr ".repeat(11));
    let mut stderr = tokio::io::stderr();
    let mut left = bytes;
    while left > 0 {
        let part = left.min(line.len());
        if stderr.write_all(&line.as_bytes()[..part]).await.is_err() {
            return;
        }
        left -= part;
    }
}

async fn dispatch(call: &Call) -> Outcome {
    let outcome = match call.request.method.as_str() {
        "tools/call" => tools::call(call).await,
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
    match outcome {
        Err(Stop::Failed(text)) if call.request.method == "tools/call" => {
            Ok(tools::text(&text).put("isError", &json!(true)))
        }
        Err(Stop::Failed(text)) => Err(Fail::new(-32603, text).into()),
        other => other,
    }
}

fn finish(call: &Call, outcome: Outcome, after: &[Act]) -> Final {
    let mut id = call.request.id.clone();
    let (mut twice, mut content_type) = (false, None);
    let mut padding = 0;
    for act in after {
        match act {
            Act::Cut => return Final::Nothing,
            Act::WrongId => id = wrong(&id),
            Act::Duplicate => twice = true,
            Act::Huge { bytes } => padding = *bytes,
            Act::ContentType { value } => content_type = Some(value.clone()),
            _ => {}
        }
    }
    let (text, status) = match outcome {
        Ok(body) => {
            let body = if padding > 0 { body.put("padding", &json!("x".repeat(padding))) } else { body };
            (spelled(call, body).response(&id), 200)
        }
        Err(Stop::Need(requests, state)) => {
            (spelled(call, modern::input_required(call, &requests, state)).response(&id), 200)
        }
        Err(Stop::Fail(fail)) => (fail.response(Some(&id)), fail.status),
        Err(Stop::Failed(text)) => (Fail::new(-32603, text).response(Some(&id)), 200),
        Err(Stop::Crash) => return Final::Broken { reset: true, exit: Some(3) },
    };
    Final::Answer { text, status, twice, content_type }
}

fn spelled(call: &Call, body: Body) -> Body {
    if call.revision.is_modern() { modern::spelled(call, body) } else { body }
}

fn wrong(id: &str) -> String {
    match serde_json::from_str(id) {
        Ok(Value::Number(n)) => (n.as_i64().unwrap_or(0) + 1_000_000).to_string(),
        _ => json!("an-id-nobody-used").to_string(),
    }
}
