//! The fast upstreams: an MCP server on hyper, the same over stdio, and two that never answer.

use super::answers::{AnswerKind, AnswerTemplates};
use super::serve::{SinglePiece, serve};
use super::wire::ProtocolEra;
use anyhow::Result;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// The longest line that the stdio upstream reads.
const MAX_LINE: u64 = 16 * 1024 * 1024;

/// The upstream over HTTP.
pub(crate) async fn http(era: ProtocolEra, tools: usize, port: u16) -> Result<()> {
    let answers = Arc::new(AnswerTemplates::new(era, tools));
    let sessions = Arc::new(AtomicU64::new(1));
    let service =
        service_fn(move |request| respond(request, Arc::clone(&answers), Arc::clone(&sessions)));
    serve(port, service).await
}

async fn respond(
    request: Request<Incoming>,
    answers: Arc<AnswerTemplates>,
    sessions: Arc<AtomicU64>,
) -> Result<Response<SinglePiece>, hyper::Error> {
    if request.method() != Method::POST {
        let ended = request.method() == Method::DELETE && answers.has_sessions();
        let status = if ended {
            StatusCode::NO_CONTENT
        } else {
            StatusCode::METHOD_NOT_ALLOWED
        };
        return Ok(with_status(status, SinglePiece::empty()));
    }
    let body = request.into_body().collect().await?.to_bytes();
    let (kind, piece) = match answers.answer(&body, true) {
        AnswerKind::Json(data) => (JSON, SinglePiece::sized(data)),
        AnswerKind::Sse(data) => (EVENTS, SinglePiece::streamed(data)),
        AnswerKind::Accepted => return Ok(with_status(StatusCode::ACCEPTED, SinglePiece::empty())),
        AnswerKind::Refused(data) => {
            let mut response = with_status(StatusCode::BAD_REQUEST, SinglePiece::sized(data));
            response.headers_mut().insert(CONTENT_TYPE, JSON);
            return Ok(response);
        }
        AnswerKind::Session(data) => {
            let mut response = Response::new(SinglePiece::sized(data));
            response.headers_mut().insert(CONTENT_TYPE, JSON);
            response.headers_mut().insert(
                SESSION,
                HeaderValue::from(sessions.fetch_add(1, Ordering::Relaxed)),
            );
            return Ok(response);
        }
    };
    let mut response = Response::new(piece);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

fn with_status(status: StatusCode, piece: SinglePiece) -> Response<SinglePiece> {
    let mut response = Response::new(piece);
    *response.status_mut() = status;
    response
}

/// The upstream over stdio: one message a line, until the input ends.
pub(crate) fn stdio(era: ProtocolEra, tools: usize) -> Result<()> {
    use std::io::Read;
    let answers = AnswerTemplates::new(era, tools);
    let mut input = std::io::stdin().lock();
    let mut output = std::io::stdout().lock();
    let (mut line, mut out) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        if input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let (AnswerKind::Json(data)
        | AnswerKind::Sse(data)
        | AnswerKind::Session(data)
        | AnswerKind::Refused(data)) = answers.answer(&line, false)
        else {
            continue;
        };
        out.clear();
        out.extend_from_slice(&data);
        out.push(b'\n');
        output.write_all(&out)?;
        output.flush()?;
    }
}

/// A server that accepts connections and never answers.
pub(crate) async fn mute() -> Result<()> {
    serve(
        0,
        service_fn(async |_: Request<Incoming>| {
            std::future::pending::<Result<Response<SinglePiece>>>().await
        }),
    )
    .await
}

/// The same over stdio: reads and never answers.
pub(crate) fn mute_stdio() -> Result<()> {
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())?;
    Ok(())
}

/// Notifications that the flooding server writes, a second.
const FLOOD: u64 = 100_000;

/// A server over stdio whose calls hang, or flood: `flood` with log messages, `progress` with
/// progress of its own.
pub(crate) fn bad_stdio(tools: &[&str]) -> Result<()> {
    let (sender, receiver) = std::sync::mpsc::channel::<(u64, bool)>();
    let lines = std::sync::Arc::new(std::sync::Mutex::new(std::io::stdout()));
    std::thread::spawn({
        let lines = lines.clone();
        move || flood(&receiver, &lines)
    });
    let listed: Vec<String> = tools
        .iter()
        .map(|name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#))
        .collect();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let Some(id) = super::wire::raw_value(line.as_bytes(), "\"id\"") else {
            continue;
        };
        let id = String::from_utf8_lossy(id).into_owned();
        let method = super::wire::raw_value(line.as_bytes(), "\"method\"").unwrap_or_default();
        let result = match method {
            b"\"initialize\"" => r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"bad","version":"1"}}"#.to_owned(),
            b"\"tools/list\"" => format!(r#"{{"tools":[{}]}}"#, listed.join(",")),
            b"\"tools/call\"" => {
                let progress = line.contains(r#""name":"progress""#);
                if progress || line.contains(r#""name":"flood""#) {
                    sender.send((id.parse().unwrap_or(0), progress))?;
                }
                continue;
            }
            b"\"ping\"" | b"\"logging/setLevel\"" => "{}".to_owned(),
            _ => {
                let mut out = lines.lock().expect("no writer panics");
                writeln!(out,
                    r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no"}}}}"#)?;
                out.flush()?;
                continue;
            }
        };
        let mut out = lines.lock().expect("no writer panics");
        writeln!(out, r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)?;
        out.flush()?;
    }
    std::process::exit(0)
}

/// Writes at the rate, in turns for every call that asked for it.
#[expect(
    clippy::disallowed_methods,
    reason = "a thread of its own, in a program without a runtime"
)]
fn flood(
    calls: &std::sync::mpsc::Receiver<(u64, bool)>,
    lines: &std::sync::Mutex<std::io::Stdout>,
) {
    let Ok(first) = calls.recv() else { return };
    let (mut open, mut sent) = (vec![first], 0_u64);
    let start = std::time::SystemTime::now();
    loop {
        open.extend(calls.try_iter());
        // Once somebody wants progress, all of it is progress.
        if open.iter().any(|(_, progress)| *progress) {
            open.retain(|(_, progress)| *progress);
        }
        let due = u64::try_from(start.elapsed().unwrap_or_default().as_micros()).unwrap_or(0)
            * FLOOD
            / 1_000_000;
        // What a slow reader made it miss is not made up for.
        sent = sent.max(due.saturating_sub(1000));
        let mut out = Vec::new();
        while sent < due {
            let Some((id, progress)) = open.get(usize::try_from(sent).unwrap_or(0) % open.len())
            else {
                return;
            };
            let (method, params) = if *progress {
                (
                    "progress",
                    format!(r#"{{"progressToken":{id},"progress":{sent}}}"#),
                )
            } else {
                (
                    "message",
                    r#"{"level":"info","data":"a line of a log that nobody has asked for, again and again"}"#
                        .to_owned(),
                )
            };
            out.extend_from_slice(
                format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{method}\",\"params\":{params}}}\n")
                    .as_bytes(),
            );
            sent += 1;
        }
        let Ok(mut lines) = lines.lock() else { return };
        if lines.write_all(&out).and_then(|()| lines.flush()).is_err() {
            return;
        }
        drop(lines);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
