//! The fast upstreams: an MCP server on hyper, the same over stdio, and two that never answer.

use crate::answers::{Answer, Answers};
use crate::serve::{Piece, serve};
use crate::wire::Era;
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
pub(crate) async fn http(era: Era, tools: usize, port: u16) -> Result<()> {
    let answers = Arc::new(Answers::new(era, tools));
    let sessions = Arc::new(AtomicU64::new(1));
    let service = service_fn(move |request| respond(request, Arc::clone(&answers), Arc::clone(&sessions)));
    serve(port, service).await
}

async fn respond(
    request: Request<Incoming>,
    answers: Arc<Answers>,
    sessions: Arc<AtomicU64>,
) -> Result<Response<Piece>, hyper::Error> {
    if request.method() != Method::POST {
        let ended = request.method() == Method::DELETE && answers.has_sessions();
        let status = if ended { StatusCode::NO_CONTENT } else { StatusCode::METHOD_NOT_ALLOWED };
        return Ok(with_status(status, Piece::empty()));
    }
    let body = request.into_body().collect().await?.to_bytes();
    let (kind, piece) = match answers.answer(&body, true) {
        Answer::Json(data) => (JSON, Piece::sized(data)),
        Answer::Sse(data) => (EVENTS, Piece::streamed(data)),
        Answer::Accepted => return Ok(with_status(StatusCode::ACCEPTED, Piece::empty())),
        Answer::Refused(data) => {
            let mut response = with_status(StatusCode::BAD_REQUEST, Piece::sized(data));
            response.headers_mut().insert(CONTENT_TYPE, JSON);
            return Ok(response);
        }
        Answer::Session(data) => {
            let mut response = Response::new(Piece::sized(data));
            response.headers_mut().insert(CONTENT_TYPE, JSON);
            response.headers_mut().insert(SESSION, HeaderValue::from(sessions.fetch_add(1, Ordering::Relaxed)));
            return Ok(response);
        }
    };
    let mut response = Response::new(piece);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

fn with_status(status: StatusCode, piece: Piece) -> Response<Piece> {
    let mut response = Response::new(piece);
    *response.status_mut() = status;
    response
}

/// The upstream over stdio: one message a line, until the input ends.
pub(crate) fn stdio(era: Era, tools: usize) -> Result<()> {
    use std::io::Read;
    let answers = Answers::new(era, tools);
    let mut input = std::io::stdin().lock();
    let mut output = std::io::stdout().lock();
    let (mut line, mut out) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        if input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let (Answer::Json(data) | Answer::Sse(data) | Answer::Session(data) | Answer::Refused(data)) =
            answers.answer(&line, false)
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
    serve(0, service_fn(async |_: Request<Incoming>| std::future::pending::<Result<Response<Piece>>>().await)).await
}

/// The same over stdio: reads and never answers.
pub(crate) fn mute_stdio() -> Result<()> {
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())?;
    Ok(())
}
