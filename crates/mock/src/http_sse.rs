//! HTTP+SSE, the transport of 2024-11-05: a stream of events for one direction, POSTs for the other.
//!
//! Owns both ends of the pair, joined to a pipe of lines. Does not own what the lines say. Invariant: when the stream
//! ends, so does the pipe, and its POSTs find nobody.

use std::{collections::HashMap, io, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream},
    sync::Mutex,
};

use super::{
    answer::{self, HttpBody},
    events, pipe,
    record::lock,
    seal,
    server::MockServer,
};

/// Where a client opens its stream.
pub(super) const OPEN: &str = "/sse";
/// Where it then sends its messages.
pub(super) const SEND: &str = "/message";
/// Bytes between the two ends that nobody has read.
const BUFFER: usize = 1 << 16;
/// Pairs at once.
const SESSIONS_MAX: usize = 4096;

/// The ends that POSTs write to, by session.
#[derive(Default)]
pub(super) struct HttpSseSessions(std::sync::Mutex<HashMap<String, Arc<Mutex<DuplexStream>>>>);

impl HttpSseSessions {
    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

/// Forgets a pair when its stream goes.
struct HttpSseGuard {
    server: Arc<MockServer>,
    id: String,
}

impl Drop for HttpSseGuard {
    fn drop(&mut self) {
        lock(&self.server.pairs.0).remove(&self.id);
    }
}

/// Opens a pair: its first event says where to send.
pub(super) fn open(server: &Arc<MockServer>) -> Response<HttpBody> {
    let id = seal::random_name();
    let (input, reader) = tokio::io::duplex(BUFFER);
    let (writer, output) = tokio::io::duplex(BUFFER);
    let mut all = lock(&server.pairs.0);
    if all.len() >= SESSIONS_MAX {
        return answer::status(503);
    }
    all.insert(id.clone(), Arc::new(Mutex::new(input)));
    drop(all);
    // It ends with either end; there is nobody to tell how.
    tokio::spawn(pipe::serve(server.clone(), BufReader::new(reader), writer));
    let path = server.script.http.endpoint.as_deref().unwrap_or(SEND);
    let mut first = events::named(&server.script.http.sse, "endpoint", &format!("{path}?sessionId={id}"));
    first.reverse();
    let state = (first, BufReader::new(output).split(b'\n'), HttpSseGuard { server: server.clone(), id });
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

/// Takes a message for the pair that the query names.
pub(super) async fn send(server: &MockServer, query: Option<&str>, body: &Bytes) -> Response<HttpBody> {
    let id = query.and_then(|q| q.split('&').find_map(|one| one.strip_prefix("sessionId=")));
    let found = id.and_then(|id| lock(&server.pairs.0).get(id).cloned());
    let Some(input) = found else {
        return answer::status(404);
    };
    // Between the tokens of JSON a line break may be any space, and within them there is none.
    let mut line: Vec<u8> = body.iter().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { *b }).collect();
    line.push(b'\n');
    match input.lock().await.write_all(&line).await {
        Ok(()) => answer::with_headers(202, [], "Accepted".into()),
        Err(_) => answer::status(404),
    }
}
