//! HTTP+SSE, the transport of 2024-11-05: an event stream in one direction, POSTs in the other.
//!
//! Owns both ends of the transport, joined to a pipe of lines. Does not read the lines. Invariant:
//! when the stream ends, the pipe ends too, and its POSTs get a 404.

use std::{io, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    sync::Mutex,
};

use super::{
    answer::{self, HttpBody},
    events,
    http_sse_sessions::SEND,
    pipe, seal,
    server::MockServer,
};

/// Bytes between the two ends that nobody has read.
const BUFFER: usize = 1 << 16;
/// Limit of open streams.
const SESSIONS_MAX: usize = 4096;

/// Guard that forgets a session when its stream drops.
struct HttpSseGuard {
    server: Arc<MockServer>,
    id: String,
}

impl Drop for HttpSseGuard {
    fn drop(&mut self) {
        self.server.sessions.http_sse.0.lock().remove(&self.id);
    }
}

/// Opens a stream. Its first event names the URI for messages.
pub(super) fn open(server: &Arc<MockServer>) -> Response<HttpBody> {
    let id = seal::random_name();
    let (input, reader) = tokio::io::duplex(BUFFER);
    let (writer, output) = tokio::io::duplex(BUFFER);
    let mut all = server.sessions.http_sse.0.lock();
    if all.len() >= SESSIONS_MAX {
        return answer::status(503);
    }
    all.insert(id.clone(), Arc::new(Mutex::new(input)));
    drop(all);
    // The pipe ends with either end, and nobody waits for its result.
    tokio::spawn(pipe::serve(server.clone(), BufReader::new(reader), writer));
    let path = server.script.http.endpoint.as_deref().unwrap_or(SEND);
    let mut first = events::named(
        &server.script.http.sse,
        "endpoint",
        &format!("{path}?sessionId={id}"),
    );
    // Reversed, so that `pop` takes the pieces in order.
    first.reverse();
    let state = (
        first,
        BufReader::new(output).split(b'\n'),
        HttpSseGuard {
            server: server.clone(),
            id,
        },
    );
    let stream = stream::unfold(state, |(mut ready, mut lines, open)| async move {
        while ready.is_empty() {
            let line = lines.next_segment().await.ok()??;
            let text = String::from_utf8_lossy(&line).into_owned();
            ready = events::event(&open.server.script.http.sse, None, &text);
            ready.reverse();
        }
        let piece = ready.pop()?;
        Some((Ok::<_, io::Error>(Frame::data(piece)), (ready, lines, open)))
    });
    let kind = ("content-type".to_owned(), "text/event-stream".to_owned());
    let mut response = answer::with_headers(200, [kind], String::new());
    *response.body_mut() = StreamBody::new(stream).boxed_unsync();
    response
}

/// Takes a message for the session that the query names.
pub(super) async fn send(
    server: &MockServer,
    query: Option<&str>,
    body: &Bytes,
) -> Response<HttpBody> {
    let id = query.and_then(|q| q.split('&').find_map(|one| one.strip_prefix("sessionId=")));
    let found = id.and_then(|id| server.sessions.http_sse.0.lock().get(id).cloned());
    let Some(input) = found else {
        return answer::status(404);
    };
    // Line breaks in JSON are only between tokens, where a space means the same.
    let mut line: Vec<u8> = body
        .iter()
        .map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { *b })
        .collect();
    line.push(b'\n');
    // The lock keeps two POSTs from mixing their lines.
    match input.lock().await.write_all(&line).await {
        Ok(()) => answer::with_headers(202, [], "Accepted".into()),
        Err(_) => answer::status(404),
    }
}
