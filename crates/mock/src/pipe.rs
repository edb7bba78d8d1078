//! Pipe of lines: stdin and stdout, a TCP connection, or a Unix socket.
//!
//! Owns reading lines, answering them concurrently, and writing lines. Does not own the process.
//! Invariant: a line is written whole.

use parking_lot::Mutex;
use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    time::{Duration, timeout},
};

use super::{
    call::{CallOutcome, MockCall},
    engine,
    frame::{OutgoingFrame, RequestEnd},
    legacy,
    listeners::{ListenGuard, ListenTarget},
    modern,
    record::RecordedRequest,
    revision::Revision,
    server::MockServer,
    session::{MockSession, RunningRequests},
    wire::{self, IncomingMessage, ParsedInput, RpcFailure, WireRequest},
};

/// Limit of a line in bytes.
const LINE_MAX: usize = 64 << 20;
/// Frames that wait to be written.
const QUEUE: usize = 256;

/// Time for open responses once the input has ended.
const EOF_GRACE: Duration = Duration::from_millis(500);

/// Reason why a pipe ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PipeEnd {
    /// End of the input.
    Eof,
    /// Fault. The process exits with this code, if there is one.
    Broken(Option<i32>),
}

struct LinePipe {
    server: Arc<MockServer>,
    out: mpsc::Sender<OutgoingFrame>,
    session: Mutex<Option<(Arc<MockSession>, Option<ListenGuard>)>>,
    running: RunningRequests,
}

/// Serves one pipe until it ends.
pub(super) async fn serve<R, W>(
    server: Arc<MockServer>,
    mut reader: R,
    writer: W,
) -> io::Result<PipeEnd>
where
    R: AsyncBufRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (out, frames) = mpsc::channel(QUEUE);
    let mut writing = tokio::spawn(write(writer, frames, server.script.stdio.exit_after));
    let pipe = Arc::new(LinePipe {
        server,
        out,
        session: Mutex::default(),
        running: RunningRequests::default(),
    });
    let mut stop = pipe.server.stop.subscribe();
    let mut line = Vec::new();
    loop {
        line.clear();
        tokio::select! {
            ended = &mut writing => return Ok(ended.unwrap_or(PipeEnd::Broken(None))),
            more = read_line(&mut reader, &mut line) => if !more? { break },
            _ = stop.wait_for(|stop| *stop) => break,
        }
        if line.iter().any(|b| !b.is_ascii_whitespace()) {
            pipe.receive(&line);
        }
    }
    // Responses that are nearly done still go out: `printf … | moongate mock` is a use of this
    // program. The session's listener holds a sender, which would keep the writer waiting for the
    // whole time.
    *pipe.session.lock() = None;
    drop(pipe);
    Ok(timeout(EOF_GRACE, writing)
        .await
        .ok()
        .and_then(Result::ok)
        .unwrap_or(PipeEnd::Eof))
}

async fn read_line<R: AsyncBufRead + Unpin>(
    reader: &mut R,
    line: &mut Vec<u8>,
) -> io::Result<bool> {
    loop {
        let part = reader.fill_buf().await?;
        if part.is_empty() {
            return Ok(!line.is_empty());
        }
        let end = part.iter().position(|b| *b == b'\n');
        let used = end.map_or(part.len(), |at| at + 1);
        line.extend_from_slice(&part[..used]);
        reader.consume(used);
        if end.is_some() {
            return Ok(true);
        }
        // Without a limit a client could fill the memory with one line.
        if line.len() > LINE_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a line is too long",
            ));
        }
    }
}

async fn write<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut frames: mpsc::Receiver<OutgoingFrame>,
    exit_after: u64,
) -> PipeEnd {
    let mut answered = 0;
    while let Some(frame) = frames.recv().await {
        let answers = matches!(frame, OutgoingFrame::Final(_));
        let written = match frame {
            OutgoingFrame::Message(text) => line(&mut writer, &text, false).await,
            OutgoingFrame::Raw(bytes) => writer.write_all(&bytes).await,
            OutgoingFrame::Final(RequestEnd::Answer { text, twice, .. }) => {
                line(&mut writer, &text, twice).await
            }
            OutgoingFrame::Final(RequestEnd::Http { body, .. }) => {
                line(&mut writer, &body, false).await
            }
            OutgoingFrame::Final(RequestEnd::Nothing) => continue,
            OutgoingFrame::Final(RequestEnd::Broken { exit, .. }) => return PipeEnd::Broken(exit),
        };
        // Flush when the queue is empty: one system call serves a burst of lines.
        if written.is_err() || (frames.is_empty() && writer.flush().await.is_err()) {
            return PipeEnd::Eof;
        }
        answered += u64::from(answers);
        if exit_after > 0 && answered >= exit_after {
            let _ = writer.flush().await;
            return PipeEnd::Broken(Some(4));
        }
    }
    PipeEnd::Eof
}

async fn line<W: AsyncWrite + Unpin>(writer: &mut W, text: &str, twice: bool) -> io::Result<()> {
    for _ in 0..=usize::from(twice) {
        writer.write_all(text.as_bytes()).await?;
        writer.write_all(b"\n").await?;
    }
    Ok(())
}

impl LinePipe {
    fn receive(self: &Arc<Self>, line: &[u8]) {
        let body = String::from_utf8_lossy(line).trim_end().to_owned();
        self.server.record.add_request(RecordedRequest {
            http_method: "LINE".into(),
            path: String::new(),
            headers: Vec::new(),
            body,
        });
        match wire::parse(line) {
            ParsedInput::One(IncomingMessage::Request(request)) => self.start(vec![request], false),
            ParsedInput::One(other) => self.handle_message(other),
            ParsedInput::Batch(all) => self.batch(all),
        }
    }

    fn batch(self: &Arc<Self>, all: Vec<IncomingMessage>) {
        // Batches exist only in 2025-03-26: "Remove support for JSON-RPC batching" (2025-06-18,
        // changelog).
        let batches = self
            .session
            .lock()
            .as_ref()
            .is_some_and(|(s, _)| s.revision == Revision::V2025_03_26);
        if !batches {
            return self.refuse(&RpcFailure::new(
                -32600,
                "Invalid Request: batches are not part of this revision",
            ));
        }
        let mut requests = Vec::new();
        for one in all {
            match one {
                IncomingMessage::Request(request) => requests.push(request),
                other => self.handle_message(other),
            }
        }
        if !requests.is_empty() {
            self.start(requests, true);
        }
    }

    /// Answers requests in their own task. A batch gets one line.
    fn start(self: &Arc<Self>, requests: Vec<WireRequest>, batch: bool) {
        let pipe = self.clone();
        let ids: Vec<String> = requests.iter().map(|r| r.id.clone()).collect();
        // Admission follows the order of the lines, so a request after `initialize` finds its
        // session.
        let admitted: Vec<_> = requests
            .into_iter()
            .map(|request| self.admit(request))
            .collect();
        let task = tokio::spawn(async move {
            let mut ends = join_all(admitted.into_iter().map(|(call, ready)| async move {
                let acts = call
                    .server
                    .strike(&call.request.method, call.request.tool());
                engine::answer_call(&call, ready, acts).await
            }))
            .await;
            let end = if batch {
                join_batch(ends)
            } else {
                ends.pop().unwrap_or(RequestEnd::Nothing)
            };
            // A writer that has gone leaves nobody to answer.
            let _ = pipe.out.send(OutgoingFrame::Final(end)).await;
        });
        for id in ids {
            self.running.add(&id, task.abort_handle());
        }
    }

    fn refuse(self: &Arc<Self>, fail: &RpcFailure) {
        self.server.record.count(|c| c.stray += 1);
        // The reader must not wait for the writer: a client may write without reading.
        let _ = self
            .out
            .try_send(OutgoingFrame::Message(fail.response(None)));
    }

    /// Handles messages that need no response.
    fn handle_message(self: &Arc<Self>, incoming: IncomingMessage) {
        let server = &self.server;
        match incoming {
            IncomingMessage::Notification { method, params } => {
                server.record.method(&method);
                match method.as_str() {
                    "notifications/cancelled" => {
                        let id = params["requestId"].to_string();
                        server.record.cancelled(&id);
                        if !server.script.stdio.ignore_cancelled {
                            self.running.cancel(&id);
                        }
                    }
                    "notifications/initialized" => self.initialized(),
                    "notifications/roots/list_changed" => {
                        if let Some((session, _)) = &*self.session.lock() {
                            server.ask_roots(session);
                        }
                    }
                    _ => {}
                }
            }
            // A response counts only for the session of this pipe, and only for a request that is
            // open.
            IncomingMessage::Response { id, outcome } => {
                let session = self.session.lock().as_ref().map(|(s, _)| s.clone());
                if !session.is_some_and(|s| s.deliver_response(&id, outcome)) {
                    server.record.count(|c| c.stray += 1);
                }
            }
            IncomingMessage::Broken(fail) => self.refuse(&fail),
            IncomingMessage::Request(request) => self.start(vec![request], false),
        }
    }

    fn initialized(&self) {
        if let Some((session, listening)) = self.session.lock().as_mut() {
            session.ready.store(true, Ordering::Relaxed);
            // A second `initialized` must not register a second listener.
            if listening.is_none() {
                *listening = self.server.listen(
                    ListenTarget::Session(session.clone()),
                    self.out.clone(),
                    None,
                );
                self.server.ask_roots(session);
            }
        }
    }

    /// Finds the caller and the revision of a request, or the error that it gets.
    fn admit(&self, request: WireRequest) -> (MockCall, Option<CallOutcome>) {
        let server = &self.server;
        server.record.method(&request.method);
        let mut call = MockCall {
            server: server.clone(),
            revision: server.legacy().unwrap_or(Revision::V2026_07_28),
            capabilities: json!({}),
            client: request.meta(modern::CLIENT).clone(),
            session: None,
            headers: None,
            input_responses: Value::Null,
            out: self.out.clone(),
            task: None,
            request,
        };
        let ready = self.resolve_caller(&mut call);
        (call, ready)
    }

    fn resolve_caller(&self, call: &mut MockCall) -> Option<CallOutcome> {
        let server = &self.server;
        let request = &call.request;
        let session = self.session.lock().as_ref().map(|(s, _)| s.clone());
        let opens = request.method == "initialize" && server.legacy().is_some();
        if server.modern() && !opens && (modern::is_modern(request) || session.is_none()) {
            let known = modern::check(server, request)
                .and_then(|k| Ok((k, modern::input_responses(server, request)?)));
            return match known {
                Ok(((revision, caps), answers)) => {
                    (call.revision, call.capabilities, call.input_responses) =
                        (revision, caps, answers);
                    None
                }
                // Without sessions `ping` is the one request that both eras may send first.
                Err(_) if request.method == "ping" && server.legacy().is_some() => None,
                Err(fail) => Some(Err(fail.into())),
            };
        }
        if opens {
            return Some(self.initialize(call));
        }
        let Some(session) = session else {
            return match request.method.as_str() {
                "ping" => None,
                "server/discover" => Some(Err(RpcFailure::new(
                    -32601,
                    "Method not found: server/discover",
                )
                .into())),
                _ => Some(Err(RpcFailure::new(
                    -32600,
                    "Invalid Request: not initialized",
                )
                .into())),
            };
        };
        (call.revision, call.capabilities, call.client) = (
            session.revision,
            session.capabilities.clone(),
            session.client.clone(),
        );
        call.session = Some(session);
        None
    }

    fn initialize(&self, call: &mut MockCall) -> CallOutcome {
        // The lock is held to the end, so two `initialize` cannot both open a session.
        let mut current = self.session.lock();
        if current
            .as_ref()
            .is_some_and(|(s, _)| s.ready.load(Ordering::Relaxed))
        {
            return Err(RpcFailure::new(-32600, "Invalid Request: already initialized").into());
        }
        let (session, body) = legacy::initialize(&self.server, &call.request.params)?;
        call.revision = session.revision;
        self.server.record.count(|c| c.sessions += 1);
        *current = Some((session, None));
        Ok(body)
    }
}

/// Joins the responses to a batch into one.
pub(super) fn join_batch(ends: Vec<RequestEnd>) -> RequestEnd {
    let mut texts = Vec::new();
    for end in ends {
        match end {
            RequestEnd::Answer { text, .. } => texts.push(text),
            RequestEnd::Nothing => {}
            // A fault that ends the connection ends it for the whole batch.
            other => return other,
        }
    }
    RequestEnd::Answer {
        text: format!("[{}]", texts.join(",")),
        status: 200,
        twice: false,
        content_type: None,
    }
}
