//! HTTP response of a POST or GET: one JSON object, or an event stream.
//!
//! Owns the choice between them, resumption, and the signal that a modern client disconnected. Does
//! not encode events. Invariant: a message leaves once, on one stream, unless `Last-Event-ID` asks
//! for it again.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
};

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body::Frame as HttpFrame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::{
    sync::mpsc::Receiver,
    task::AbortHandle,
    time::{Duration, sleep},
};

use super::{
    answer::{self, HttpBody, HttpReply},
    events,
    frame::{OutgoingFrame, RequestEnd},
    listeners::ListenGuard,
    pipe::join_batch,
    script::{AnswerMode, SseRules},
    server::MockServer,
    session::{MockSession, StoredEvent},
};

/// Origin of the frames of a response.
#[derive(Default)]
pub(super) struct ResponseOrigin {
    /// Requests that have not ended.
    pub(super) unanswered: usize,
    /// True if the responses belong in an array.
    pub(super) batch: bool,
    /// Session that `initialize` opened.
    pub(super) opened: Option<String>,
    /// Session that sent the request (legacy).
    pub(super) session: Option<Arc<MockSession>>,
    /// Guard that cancels when the client disconnects (modern).
    pub(super) cancel_on_drop: Option<CancelOnDrop>,
}

/// Guard that stops a request when its response drops before its end. Modern clients cancel this
/// way.
pub(super) struct CancelOnDrop {
    server: Arc<MockServer>,
    id: String,
    task: AbortHandle,
    ended: AtomicBool,
}

impl CancelOnDrop {
    pub(super) fn new(server: &Arc<MockServer>, id: String, task: AbortHandle) -> Self {
        Self {
            server: server.clone(),
            id,
            task,
            ended: AtomicBool::new(false),
        }
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.task.abort();
        if !self.ended.load(Ordering::Relaxed) {
            self.server.record.cancelled(&self.id);
        }
    }
}

/// Event id: the kind and number of its stream, and its number there.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventPosition {
    pub(super) post: bool,
    stream: u64,
    number: u64,
}

impl EventPosition {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (stream, number) = text.get(1..)?.split_once('-')?;
        Some(Self {
            post: text.starts_with('p'),
            stream: stream.parse().ok()?,
            number: number.parse().ok()?,
        })
    }

    fn encode(self) -> String {
        format!(
            "{}{}-{}",
            if self.post { 'p' } else { 'g' },
            self.stream,
            self.number
        )
    }
}

/// Answers a POST.
pub(super) async fn respond(
    server: &Arc<MockServer>,
    mut frames: Receiver<OutgoingFrame>,
    mut origin: ResponseOrigin,
) -> HttpReply {
    let http = &server.script.http;
    let at_once = http.answer == AnswerMode::Sse && http.sse.prime;
    // Frames decide the form: a stream is needed only if a message comes before the response.
    let mut ends = Vec::new();
    let mut before = VecDeque::new();
    if !at_once {
        before.extend(read_ends(http.answer, &mut frames, &mut origin, &mut ends).await);
    }
    if before.is_empty() && !at_once {
        // The response is complete, so its drop isn't a cancellation.
        if let Some(guard) = &origin.cancel_on_drop {
            guard.ended.store(true, Ordering::Relaxed);
        }
        let end = if origin.batch {
            join_batch(ends)
        } else {
            ends.pop().unwrap_or(RequestEnd::Nothing)
        };
        match end {
            RequestEnd::Broken { reset, .. } => return HttpReply::Broken { reset },
            RequestEnd::Http {
                status,
                headers,
                body,
            } => {
                return HttpReply::Response(answer::with_headers(status, headers, body));
            }
            // HTTP sends the status first, so a stream could not carry another status than 200.
            RequestEnd::Answer {
                text,
                status,
                content_type,
                twice,
            } if status != 200 || http.answer != AnswerMode::Sse => {
                if twice {
                    before.push_back(OutgoingFrame::Final(RequestEnd::Answer {
                        text,
                        status,
                        twice,
                        content_type,
                    }));
                } else {
                    let mut response = answer::json(status, text, origin.opened.as_deref());
                    if let Some(kind) = content_type.and_then(|kind| kind.parse().ok()) {
                        response.headers_mut().insert("content-type", kind);
                    }
                    return HttpReply::Response(response);
                }
            }
            end => before.push_back(OutgoingFrame::Final(end)),
        }
        origin.unanswered = before.len();
    } else {
        origin.unanswered += ends.len();
        before.extend(ends.into_iter().map(OutgoingFrame::Final));
    }
    let opened = origin.opened.take();
    let stream = EventWriter::new(server, FrameSource::Post { frames, origin }, before);
    HttpReply::Response(stream.response(opened))
}

/// Reads the ends of the requests, up to the last one or to the first message that comes before it.
/// Returns that message.
async fn read_ends(
    answer: AnswerMode,
    frames: &mut Receiver<OutgoingFrame>,
    origin: &mut ResponseOrigin,
    ends: &mut Vec<RequestEnd>,
) -> Option<OutgoingFrame> {
    loop {
        match frames.recv().await {
            Some(OutgoingFrame::Final(end)) => {
                origin.unanswered -= 1;
                ends.push(end);
                if origin.unanswered == 0 {
                    return None;
                }
            }
            // One JSON object has no room for messages before it.
            Some(_) if answer == AnswerMode::Json => {}
            Some(frame) => return Some(frame),
            // The request was cancelled and has no response, but HTTP needs one.
            None => {
                origin.unanswered = 0;
                return None;
            }
        }
    }
}

/// Answers a GET with the messages that the server sends outside of calls.
pub(super) fn listening(
    server: &Arc<MockServer>,
    session: Arc<MockSession>,
    frames: Receiver<OutgoingFrame>,
    listening: ListenGuard,
) -> Response<HttpBody> {
    EventWriter::new(
        server,
        FrameSource::Get {
            frames,
            session,
            _listening: listening,
        },
        VecDeque::new(),
    )
    .response(None)
}

/// Answers a GET with `Last-Event-ID` by the rest of a POST's stream.
pub(super) fn replay(
    server: &Arc<MockServer>,
    session: &Arc<MockSession>,
    last: EventPosition,
) -> Response<HttpBody> {
    EventWriter::new(
        server,
        FrameSource::Replay {
            session: session.clone(),
            last,
        },
        VecDeque::new(),
    )
    .response(None)
}

enum FrameSource {
    Post {
        frames: Receiver<OutgoingFrame>,
        origin: ResponseOrigin,
    },
    Get {
        frames: Receiver<OutgoingFrame>,
        session: Arc<MockSession>,
        _listening: ListenGuard,
    },
    Replay {
        session: Arc<MockSession>,
        last: EventPosition,
    },
}

/// Event stream that is being written.
struct EventWriter {
    server: Arc<MockServer>,
    source: FrameSource,
    /// Frames that came before the choice of a stream.
    early_frames: VecDeque<OutgoingFrame>,
    /// Pieces of events that are ready to leave.
    ready: VecDeque<Bytes>,
    number: u64,
    sent: u64,
    ended: bool,
    broken: bool,
}

impl EventWriter {
    fn new(server: &Arc<MockServer>, source: FrameSource, before: VecDeque<OutgoingFrame>) -> Self {
        let mut stream = Self {
            number: server.next_number(),
            server: server.clone(),
            source,
            early_frames: before,
            ready: VecDeque::new(),
            sent: 0,
            ended: false,
            broken: false,
        };
        if stream.server.script.http.sse.prime {
            let event_id = stream.next_event_id(false).map(EventPosition::encode);
            let sse = &stream.server.script.http.sse;
            stream.ready.extend(events::prime(sse, event_id.as_deref()));
        }
        stream
    }

    fn response(self, opened: Option<String>) -> Response<HttpBody> {
        let stream = stream::unfold(self, |mut stream| async move {
            let item = stream.next().await?;
            Some((item.map(HttpFrame::data), stream))
        });
        let mut headers = vec![
            ("content-type".to_owned(), "text/event-stream".to_owned()),
            ("cache-control".to_owned(), "no-cache".to_owned()),
            ("x-accel-buffering".to_owned(), "no".to_owned()),
        ];
        headers.extend(opened.map(|id| ("mcp-session-id".to_owned(), id)));
        let mut response = answer::with_headers(200, headers, String::new());
        *response.body_mut() = StreamBody::new(stream).boxed_unsync();
        response
    }

    fn sse(&self) -> &SseRules {
        &self.server.script.http.sse
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            // Ready pieces leave before an error, so a broken stream still delivers what came
            // before it.
            if let Some(bytes) = self.ready.pop_front() {
                return Some(Ok(bytes));
            }
            if self.broken {
                self.broken = false;
                self.ended = true;
                return Some(Err(io::ErrorKind::ConnectionReset.into()));
            }
            // The rest of a cut stream comes by `Last-Event-ID`, so its events need ids.
            let cut = self.sse().cut_after as u64;
            let cuts = cut > 0
                && self.sse().ids
                && self.sent >= cut
                && matches!(self.source, FrameSource::Post { .. });
            let polls = self.sse().poll
                && matches!(&self.source, FrameSource::Post { origin, .. }
                    if origin.session.is_some());
            if self.ended || cuts || polls {
                return None;
            }
            match self.frame().await {
                Some(frame) => self.handle_frame(frame),
                None => self.ended = true,
            }
        }
    }

    async fn frame(&mut self) -> Option<OutgoingFrame> {
        if let Some(frame) = self.early_frames.pop_front() {
            return Some(frame);
        }
        match &mut self.source {
            FrameSource::Post { frames, origin } if origin.unanswered > 0 => frames.recv().await,
            FrameSource::Post { .. } => None,
            FrameSource::Get { frames, .. } => frames.recv().await,
            FrameSource::Replay { session, last } => {
                loop {
                    let next = {
                        let all = session.replay.lock();
                        all.iter()
                            .find(|e| e.stream == last.stream && e.number > last.number)
                            .cloned()
                    };
                    if let Some(event) = next {
                        last.number = event.number;
                        self.number = event.stream;
                        self.sent = event.number - 1;
                        self.ended = event.last;
                        return Some(OutgoingFrame::Message(event.message));
                    }
                    // Another task still produces the rest. Polling is simple, and this is a mock.
                    sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }

    /// Returns the id of the next event if events have ids. Counts the event if `count` is set.
    fn next_event_id(&mut self, count: bool) -> Option<EventPosition> {
        self.sent += u64::from(count);
        let post = match &self.source {
            FrameSource::Post { origin, .. } => origin.session.is_some().then_some(true),
            FrameSource::Get { .. } => Some(false),
            FrameSource::Replay { .. } => Some(true),
        };
        let stream = self.number;
        let number = self.sent;
        post.filter(|_| self.sse().ids).map(|post| EventPosition {
            post,
            stream,
            number,
        })
    }

    fn handle_frame(&mut self, frame: OutgoingFrame) {
        match frame {
            OutgoingFrame::Message(text) => self.event(&text, false),
            OutgoingFrame::Raw(bytes) => {
                // The fault's text becomes an event whose data need not be JSON.
                let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                self.ready.extend(events::event(self.sse(), None, &text));
            }
            OutgoingFrame::Final(end) => {
                let last = match &mut self.source {
                    FrameSource::Post { origin, .. } => {
                        origin.unanswered = origin.unanswered.saturating_sub(1);
                        if let (0, Some(guard)) = (origin.unanswered, &origin.cancel_on_drop) {
                            guard.ended.store(true, Ordering::Relaxed);
                        }
                        origin.unanswered == 0
                    }
                    _ => true,
                };
                match end {
                    RequestEnd::Answer { text, twice, .. } => {
                        for nth in 0..=usize::from(twice) {
                            self.event(&text, last && nth == usize::from(twice));
                        }
                    }
                    RequestEnd::Broken { .. } => self.broken = true,
                    // Headers have left already, so another status cannot follow.
                    RequestEnd::Nothing | RequestEnd::Http { .. } => {}
                }
                self.ended |= last && !self.broken;
            }
        }
    }

    fn event(&mut self, text: &str, last: bool) {
        let event_id = self.next_event_id(true);
        // A replayed event is stored already.
        if let (Some(event_id), Some(session)) =
            (event_id, self.session().filter(|_| !self.is_replay()))
        {
            let message = text.to_owned();
            session.store_event(StoredEvent {
                stream: event_id.stream,
                number: event_id.number,
                message,
                last,
            });
        }
        let id = event_id.map(EventPosition::encode);
        self.ready
            .extend(events::event(self.sse(), id.as_deref(), text));
    }

    fn is_replay(&self) -> bool {
        matches!(self.source, FrameSource::Replay { .. })
    }

    fn session(&self) -> Option<&Arc<MockSession>> {
        match &self.source {
            FrameSource::Post { origin, .. } => origin.session.as_ref(),
            FrameSource::Get { session, .. } | FrameSource::Replay { session, .. } => Some(session),
        }
    }
}

impl Drop for EventWriter {
    /// Stores the rest of an unfinished stream. "Disconnection SHOULD NOT be interpreted as the
    /// client cancelling its request" (2025-11-25, basic/transports).
    fn drop(&mut self) {
        let unfinished = !self.ended && self.sse().ids;
        let FrameSource::Post { frames, origin } = &mut self.source else {
            return;
        };
        let (true, Some(session)) = (unfinished, origin.session.clone()) else {
            return;
        };
        // The new channel is never read. It only replaces the real one.
        let (_, never) = tokio::sync::mpsc::channel(1);
        let mut frames = std::mem::replace(frames, never);
        let mut left = origin.unanswered;
        let stream = self.number;
        let mut number = self.sent;
        let before = std::mem::take(&mut self.early_frames);
        // A runtime that is shutting down drops streams too, and starts no tasks.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let mut before = before;
            while left > 0 {
                let next = match before.pop_front() {
                    Some(frame) => Some(frame),
                    None => frames.recv().await,
                };
                let (message, last) = match next {
                    Some(OutgoingFrame::Message(text)) => (text, false),
                    Some(OutgoingFrame::Final(RequestEnd::Answer { text, .. })) => {
                        left -= 1;
                        (text, left == 0)
                    }
                    Some(OutgoingFrame::Raw(_)) => continue,
                    Some(OutgoingFrame::Final(_)) | None => return,
                };
                number += 1;
                session.store_event(StoredEvent {
                    stream,
                    number,
                    message,
                    last,
                });
            }
        });
    }
}
