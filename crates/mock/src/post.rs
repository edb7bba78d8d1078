//! POST: finds the era and session of a message, and starts its requests.
//!
//! Owns admission over HTTP. Does not own the wire form of the response. Invariant: a modern
//! request is judged by its body and headers alone, a legacy one by its session.

use std::sync::{Arc, atomic::Ordering};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    answer::{self, HttpReply},
    call::{CallOutcome, CallStop, MockCall},
    engine,
    fault::FaultAction,
    frame::OutgoingFrame,
    headers, legacy, modern,
    received_request::ReceivedRequest,
    revision::Revision,
    server::MockServer,
    session::MockSession,
    stream::{self, ResponseOrigin},
    wire::{self, IncomingMessage, ParsedInput, RpcFailure, WireRequest},
};

/// Frames that wait for the client to read.
const QUEUE: usize = 64;

pub(super) async fn answer(server: &Arc<MockServer>, received: ReceivedRequest) -> HttpReply {
    match wire::parse(&received.body) {
        ParsedInput::One(IncomingMessage::Request(request)) => {
            requests(server, &received, vec![request], false).await
        }
        ParsedInput::One(IncomingMessage::Broken(fail)) => {
            server.record.count(|c| c.stray += 1);
            refuse(fail.status(400))
        }
        ParsedInput::One(other) => handle_messages(server, &received, vec![other]).await,
        ParsedInput::Batch(all) => batch(server, &received, all).await,
    }
}

fn refuse(fail: RpcFailure) -> HttpReply {
    HttpReply::Response(answer::json(fail.status, fail.response(None), None))
}

/// Finds the session that the headers name.
pub(super) fn session(
    server: &MockServer,
    received: &ReceivedRequest,
) -> Result<Arc<MockSession>, RpcFailure> {
    let id = received.header("mcp-session-id");
    let id = id.ok_or_else(|| {
        RpcFailure::new(-32000, "Bad Request: Mcp-Session-Id header is required").status(400)
    })?;
    let unknown =
        || RpcFailure::new(-32001, "Session not found").status(server.script.http.lost_session);
    let session = server.sessions.find(id).ok_or_else(unknown)?;
    // The header `MCP-Protocol-Version` is new in 2025-06-18.
    if session.revision >= Revision::V2025_06_18 {
        let version = received.header("mcp-protocol-version");
        let missing = version.is_none() && server.script.http.strict;
        if missing || version.is_some_and(|v| v != session.revision.date()) {
            return Err(unsupported(server, version));
        }
    }
    Ok(session)
}

/// Error for a version header, as servers without the modern revision word it.
fn unsupported(server: &MockServer, version: Option<&str>) -> RpcFailure {
    let dates: Vec<_> = Revision::LEGACY
        .iter()
        .filter(|r| server.speaks(**r))
        .map(|r| r.date())
        .collect();
    let text = format!(
        "Bad Request: Unsupported protocol version: {} (supported versions: {})",
        version.unwrap_or("none"),
        dates.join(", ")
    );
    RpcFailure::new(-32000, text).status(400)
}

/// Handles notifications and responses.
async fn handle_messages(
    server: &Arc<MockServer>,
    received: &ReceivedRequest,
    all: Vec<IncomingMessage>,
) -> HttpReply {
    let mut legacy = None;
    // A modern notification carries no session. No message does at a server without sessions.
    if server.legacy().is_some() && server.script.http.session {
        match session(server, received) {
            Ok(session) => legacy = Some(session),
            Err(fail) if !server.modern() || received.header("mcp-session-id").is_some() => {
                return refuse(fail);
            }
            Err(_) => {}
        }
    }
    for one in all {
        match one {
            IncomingMessage::Notification { method, params } => {
                server.record.method(&method);
                for act in server.strike(&method, None) {
                    if let FaultAction::Status { status, body, .. } = act {
                        return HttpReply::Response(answer::with_headers(status, [], body));
                    }
                }
                match (method.as_str(), &legacy) {
                    ("notifications/cancelled", Some(session)) => {
                        let id = params["requestId"].to_string();
                        server.record.cancelled(&id);
                        session.running.cancel(&id);
                    }
                    ("notifications/initialized", Some(session)) => {
                        session.ready.store(true, Ordering::Relaxed);
                        server.ask_roots(session);
                    }
                    ("notifications/roots/list_changed", Some(session)) => {
                        server.ask_roots(session)
                    }
                    _ => {}
                }
            }
            IncomingMessage::Response { id, outcome } => match &legacy {
                Some(session) => {
                    if !session.deliver_response(&id, outcome) {
                        server.record.count(|c| c.stray += 1);
                    }
                }
                None => {
                    return refuse(
                        RpcFailure::new(-32600, "Invalid Request: a response to nothing")
                            .status(400),
                    );
                }
            },
            _ => {}
        }
    }
    HttpReply::Response(answer::status(202))
}

async fn batch(
    server: &Arc<MockServer>,
    received: &ReceivedRequest,
    all: Vec<IncomingMessage>,
) -> HttpReply {
    // Batches exist only in 2025-03-26: "Remove support for JSON-RPC batching" (2025-06-18,
    // changelog).
    let known = received
        .header("mcp-session-id")
        .and_then(|id| server.sessions.find(id))
        .map(|s| s.revision);
    let sessionless = !server.script.http.session && server.speaks(Revision::V2025_03_26);
    if known != Some(Revision::V2025_03_26) && !sessionless {
        return refuse(
            RpcFailure::new(
                -32600,
                "Invalid Request: batches are not part of this revision",
            )
            .status(400),
        );
    }
    let mut calls = Vec::new();
    let mut others = Vec::new();
    for one in all {
        match one {
            IncomingMessage::Request(request) if request.method == "initialize" => {
                // "The initialize request MUST NOT be part of a JSON-RPC batch" (2025-03-26,
                // basic/lifecycle).
                return refuse(
                    RpcFailure::new(-32600, "Invalid Request: `initialize` in a batch").status(400),
                );
            }
            IncomingMessage::Request(request) => calls.push(request),
            IncomingMessage::Broken(fail) => return refuse(fail.status(400)),
            other => others.push(other),
        }
    }
    let handled = if others.is_empty() {
        None
    } else {
        Some(handle_messages(server, received, others).await)
    };
    match (calls.is_empty(), handled) {
        (true, Some(reply)) => reply,
        _ => requests(server, received, calls, true).await,
    }
}

/// Starts one request or the requests of a batch, and responds with their frames.
async fn requests(
    server: &Arc<MockServer>,
    received: &ReceivedRequest,
    all: Vec<WireRequest>,
    batch: bool,
) -> HttpReply {
    let (out, frames) = mpsc::channel(QUEUE);
    let mut origin = ResponseOrigin {
        unanswered: all.len(),
        batch,
        ..ResponseOrigin::default()
    };
    for request in all {
        server.record.method(&request.method);
        let acts = server.strike(&request.method, request.tool());
        // The fault has to strike before admission finds the session.
        if acts.iter().any(|a| matches!(a, FaultAction::DropSessions)) {
            server.drop_sessions(None);
        }
        let id = request.id.clone();
        let (call, ready, opened) = admit(server, received, request, &out);
        let modern = call.revision.is_modern();
        let session = call.session.clone();
        let task = tokio::spawn(async move {
            let end = engine::answer_call(&call, ready, acts).await;
            // A client that disconnected does not wait for it.
            let _ = call.out.send(OutgoingFrame::Final(end)).await;
        });
        // A modern request ends with its connection. A legacy one ends by
        // `notifications/cancelled`.
        if modern {
            origin.cancel_on_drop =
                Some(stream::CancelOnDrop::new(server, id, task.abort_handle()));
        } else if let Some(session) = &session {
            session.running.add(&id, task.abort_handle());
        }
        if let Some(opened) = opened {
            origin.opened = Some(opened.id.clone());
        }
        origin.session = session;
    }
    // The tasks hold the other senders, so the channel closes when the last one ends.
    drop(out);
    stream::respond(server, frames, origin).await
}

type AdmittedCall = (MockCall, Option<CallOutcome>, Option<Arc<MockSession>>);

/// Finds the caller and the revision of a request, or the error that it gets.
fn admit(
    server: &Arc<MockServer>,
    received: &ReceivedRequest,
    request: WireRequest,
    out: &mpsc::Sender<OutgoingFrame>,
) -> AdmittedCall {
    let mut call = MockCall {
        server: server.clone(),
        revision: server.legacy().unwrap_or(Revision::V2026_07_28),
        capabilities: json!({}),
        client: request.meta(modern::CLIENT).clone(),
        session: None,
        headers: Some(received.headers.clone()),
        input_responses: Value::Null,
        out: out.clone(),
        task: None,
        request,
    };
    let request = &call.request;
    if is_modern(server, received, request) {
        let known = headers::check(server, received, request)
            .and_then(|()| modern::check(server, request))
            .and_then(|known| Ok((known, modern::input_responses(server, request)?)));
        let ready = match known {
            Ok(((revision, caps), answers)) => {
                (call.revision, call.capabilities, call.input_responses) =
                    (revision, caps, answers);
                None
            }
            Err(fail) => Some(Err(CallStop::Fail(fail))),
        };
        return (call, ready, None);
    }
    if request.method == "initialize" {
        return match legacy::initialize(server, &request.params) {
            Ok((session, body)) => {
                call.revision = session.revision;
                let opened = server.script.http.session.then(|| {
                    server.add_session(&session);
                    session
                });
                (call, Some(Ok(body)), opened)
            }
            Err(fail) => (call, Some(Err(fail.into())), None),
        };
    }
    if !server.script.http.session {
        let ready = sessionless(server, received, &mut call)
            .err()
            .map(|fail| Err(fail.into()));
        return (call, ready, None);
    }
    match session(server, received) {
        Ok(session) => {
            (call.revision, call.capabilities, call.client) = (
                session.revision,
                session.capabilities.clone(),
                session.client.clone(),
            );
            call.session = Some(session);
            (call, None, None)
        }
        Err(fail) => (call, Some(Err(fail.into())), None),
    }
}

/// Finds the revision of a legacy request to a server without sessions: the header's, or one that
/// had no header.
fn sessionless(
    server: &MockServer,
    received: &ReceivedRequest,
    call: &mut MockCall,
) -> Result<(), RpcFailure> {
    let newest = call.revision;
    call.revision = match received.header("mcp-protocol-version") {
        Some(version) if newest >= Revision::V2025_06_18 => {
            let known = Revision::of(version).filter(|r| !r.is_modern() && server.speaks(*r));
            known.ok_or_else(|| unsupported(server, Some(version)))?
        }
        // "the server SHOULD assume protocol version `2025-03-26`" without the header (2025-06-18,
        // basic/transports).
        _ if server.speaks(Revision::V2025_03_26) => Revision::V2025_03_26,
        _ => newest,
    };
    Ok(())
}

/// True if a request is modern. A server of one era takes every request for its own.
fn is_modern(server: &MockServer, received: &ReceivedRequest, request: &WireRequest) -> bool {
    if server.legacy().is_none() {
        return true;
    }
    if !server.modern() || request.method == "initialize" {
        return false;
    }
    let header = received.header("mcp-protocol-version");
    modern::is_modern(request)
        || header.is_some_and(|v| Revision::of(v).is_none_or(Revision::is_modern))
}
