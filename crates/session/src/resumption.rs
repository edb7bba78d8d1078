//! Resumption buffer: events sent to a client, retained so that it can come back for them.
//!
//! Owns stream and event numbers, and the retained events. Does not know how an id is encoded in a
//! header. Invariant: each event is retained in one stream of one session, within that session's
//! limits and the shared ones. Evicted responses are known to be missing.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fair_budget::{FairByteBudget, PrincipalShare};
use moongate_jsonrpc::message::RequestId;
use moongate_jsonrpc::sse;
use moongate_model::Principal;
use moongate_telemetry::Metrics;

/// Number of the session's GET stream.
pub const GET_STREAM: u64 = 0;
/// Maximum number of streams that one session may have. The oldest ended one makes room.
const STREAMS_MAX: usize = 1000;
/// Bits for events within one process number. Each process has its own numbers, so an id never
/// means two events. A process number is its start time in milliseconds. Each millisecond leaves
/// room for this many bits of events.
const RUN_SHIFT: u32 = 22;
/// Interval between two checks of a stream without a reader.
const UNREAD_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Limits of the resumption buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplaySettings {
    /// Maximum bytes for one session.
    pub bytes: usize,
    /// Maximum bytes for all sessions together.
    pub total: usize,
    /// Maximum number of events for one session.
    pub events: usize,
    /// Retention time of an event, and of a stream that waits for its client. A stream's time runs
    /// from the moment that nobody reads it, and again from its end.
    pub time: Duration,
}

/// State that the buffers of all sessions share.
pub(super) struct SharedResumption {
    settings: ReplaySettings,
    budget: Arc<FairByteBudget>,
    metrics: Arc<Metrics>,
}

impl SharedResumption {
    pub(super) fn new(settings: ReplaySettings, metrics: Arc<Metrics>) -> Arc<Self> {
        let budget = FairByteBudget::new(settings.total, metrics.clients.replay_bytes.clone());
        Arc::new(SharedResumption {
            settings,
            budget,
            metrics,
        })
    }
}

/// Streams of one session.
pub struct ResumptionBuffer {
    shared: Arc<SharedResumption>,
    share: PrincipalShare,
    events: Mutex<RetainedEvents>,
    /// Last number of earlier lives of this session. New numbers start behind it.
    base: u64,
}

#[derive(Default)]
struct RetainedEvents {
    streams: BTreeMap<u64, BufferedStream>,
    /// Stream numbers in order of arrival, with one entry for each event.
    order: VecDeque<u64>,
    bytes: usize,
    /// Last number that was given to a stream.
    last: u64,
}

impl RetainedEvents {
    /// Returns the time of the oldest event. Events are in order of time, so it is the first one.
    fn oldest_time(&self) -> Option<Instant> {
        let stream = self.streams.get(self.order.front()?)?;
        stream.events.front().map(|(_, _, sent_at)| *sent_at)
    }
}

struct BufferedStream {
    /// Number, bytes and time of each retained event, in order.
    events: VecDeque<(u64, Bytes, Instant)>,
    /// Number of the last event.
    last: u64,
    /// Request that this stream responds to, if any.
    request: Option<RequestId>,
    ended: Option<Instant>,
    /// True if the response arrived and was evicted.
    is_evicted: bool,
    added: Arc<Notify>,
    /// Cancelled when another reader takes over the stream.
    reader: CancellationToken,
    /// Time since which nobody has read the stream.
    unread_since: Option<Instant>,
}

/// Next step of a stream's reader.
pub enum NextEvent {
    /// Framed event.
    Event(Bytes),
    /// Evicted response to this request.
    Evicted(RequestId),
    /// End of the stream, or another reader has taken over.
    End,
}

/// Position of a session's numbers. The session has no event and no open stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResumePosition {
    base: u64,
    /// Last number of a stream.
    stream: u64,
    /// Last event of the session's GET stream, if that stream was begun.
    get_stream: Option<u64>,
}

impl ResumptionBuffer {
    /// Resumes from a session's stored position.
    pub(super) fn resume_from(
        shared: Arc<SharedResumption>,
        principal: &Principal,
        numbers: ResumePosition,
    ) -> Self {
        let ResumePosition {
            base,
            stream,
            get_stream: last_get_event,
        } = numbers;
        let mut retained = RetainedEvents {
            last: stream,
            ..RetainedEvents::default()
        };
        // The GET stream continues its numbers: its client may come back with the last id.
        if let Some(last) = last_get_event {
            retained.streams.insert(
                GET_STREAM,
                BufferedStream {
                    last,
                    ..BufferedStream::new(None)
                },
            );
        }
        let share = shared.budget.share(principal);
        ResumptionBuffer {
            share,
            shared,
            events: Mutex::new(retained),
            base,
        }
    }

    /// Returns the position of the numbers. Returns `None` while there is anything that a client
    /// could come back for.
    pub(super) fn resume_position(&self) -> Option<ResumePosition> {
        let retained = self.events.lock();
        let only_get_stream = retained.streams.keys().all(|number| *number == GET_STREAM)
            && retained.order.is_empty();
        let last_get_event = retained.streams.get(&GET_STREAM).map(|stream| stream.last);
        only_get_stream.then_some(ResumePosition {
            base: self.base,
            stream: retained.last,
            get_stream: last_get_event,
        })
    }

    /// Creates an empty buffer. `run` numbers this process among those that share a store.
    pub(super) fn new(shared: Arc<SharedResumption>, principal: &Principal, run: u64) -> Self {
        let base = run << RUN_SHIFT;
        let share = shared.budget.share(principal);
        ResumptionBuffer {
            share,
            shared,
            events: Mutex::new(RetainedEvents {
                last: base,
                ..RetainedEvents::default()
            }),
            base,
        }
    }

    /// Returns true if a previous process sent this event. All that followed in its stream went
    /// with that process.
    pub fn is_from_previous_process(&self, (number, after): (u64, u64)) -> bool {
        // The GET stream has the same number in every process, so the event decides. Other streams
        // have their own numbers.
        if number == GET_STREAM {
            after < self.base
        } else {
            number <= self.base
        }
    }

    /// Returns the streams whose response is still to come, each with its request.
    pub fn unanswered(&self) -> Vec<(u64, RequestId)> {
        let retained = self.events.lock();
        let open = retained
            .streams
            .iter()
            .filter(|(_, stream)| stream.ended.is_none());
        open.filter_map(|(number, stream)| Some((*number, stream.request.clone()?)))
            .collect()
    }

    fn get_stream(&self) -> BufferedStream {
        BufferedStream {
            last: self.base,
            ..BufferedStream::new(None)
        }
    }

    /// Starts the stream that responds to a request. Returns its number, and a token that is
    /// cancelled when another reader takes over.
    ///
    /// Returns `None` if the session has too many streams.
    pub fn begin(&self, request: &RequestId) -> Option<(u64, CancellationToken)> {
        let mut retained = self.events.lock();
        if retained.streams.len() >= STREAMS_MAX {
            // Only ended streams make room: an open one still owes its response.
            let oldest = retained
                .streams
                .iter()
                .filter(|(_, s)| s.ended.is_some())
                .min_by_key(|(_, s)| s.ended);
            let oldest = oldest.map(|(number, _)| *number)?;
            self.remove(&mut retained, oldest);
        }
        // Numbers are never reused, so that a late `Last-Event-ID` finds its own stream or none.
        retained.last += 1;
        let number = retained.last;
        let stream = BufferedStream::new(Some(request.clone()));
        let reader = stream.reader.clone();
        retained.streams.insert(number, stream);
        Some((number, reader))
    }

    /// Frames a message as the next event of a stream, and retains it. `last` means that no event
    /// follows.
    pub fn add(&self, number: u64, message: &[u8], last: bool) -> Bytes {
        let mut retained = self.events.lock();
        if number == GET_STREAM {
            retained
                .streams
                .entry(GET_STREAM)
                .or_insert_with(|| self.get_stream());
        }
        // Without its stream the event is sent, but cannot be resumed.
        let Some(stream) = retained.streams.get_mut(&number) else {
            return sse::encode_event(message);
        };
        // 2025-11-25/basic/transports.mdx, Resumability and Redelivery: an id "MUST be globally
        // unique across all streams within that session". With the stream's number in front it is.
        stream.last += 1;
        let event = (
            stream.last,
            sse::encode_event_with_id(message, &id(number, stream.last)),
            Instant::now(),
        );
        let frame = event.1.clone();
        if last {
            stream.ended = Some(Instant::now());
        }
        let fits = self.make_room(&mut retained, frame.len());
        // Looked up again: `make_room` needs the whole table in between.
        if let Some(stream) = retained.streams.get_mut(&number) {
            if fits {
                stream.events.push_back(event);
            } else {
                stream.is_evicted |= last;
            }
            stream.added.notify_one();
        }
        if fits {
            retained.bytes += frame.len();
            retained.order.push_back(number);
        } else {
            self.shared.metrics.clients.replay_dropped.inc();
        }
        frame
    }

    /// Returns the priming event of a stream: an id without data, so that the client can come back
    /// from the start.
    pub fn priming_event(&self, number: u64, retry: Duration) -> Bytes {
        let last = self
            .events
            .lock()
            .streams
            .get(&number)
            .map_or(self.base, |stream| stream.last);
        // A request's stream starts at 0, so that its client can come back to the first event. The
        // GET stream starts at its current position.
        let start = if number == GET_STREAM { last } else { 0 };
        sse::encode_priming_event(&id(number, start), retry)
    }

    /// Ends a stream that has no response.
    pub fn end(&self, number: u64) {
        if let Some(stream) = self.events.lock().streams.get_mut(&number) {
            stream.ended.get_or_insert_with(Instant::now);
            stream.added.notify_one();
        }
    }

    /// Reads a stream from behind an event on. The reader before this one stops.
    ///
    /// Returns `None` if the stream is evicted, or the event never existed.
    pub fn read(self: &Arc<Self>, number: u64, after: u64) -> Option<ResumptionReader> {
        let mut retained = self.events.lock();
        // A position behind the last event was never given out.
        let stream = retained
            .streams
            .get_mut(&number)
            .filter(|stream| after <= stream.last)?;
        let token = CancellationToken::new();
        // A client that comes back has lost its old connection, even if the gateway has not noticed
        // that yet.
        std::mem::replace(&mut stream.reader, token.clone()).cancel();
        stream.unread_since = None;
        let added = stream.added.clone();
        drop(retained);
        Some(ResumptionReader {
            buffer: self.clone(),
            number,
            after,
            token,
            added,
        })
    }

    /// Returns the position of the session's GET stream.
    pub fn get_stream_position(&self) -> u64 {
        self.events
            .lock()
            .streams
            .get(&GET_STREAM)
            .map_or(self.base, |stream| stream.last)
    }

    /// Returns the first retained event of the session's GET stream behind `after`.
    pub fn get_stream_event(&self, after: u64) -> Option<(u64, Bytes)> {
        self.events
            .lock()
            .streams
            .get(&GET_STREAM)?
            .event_after(after)
    }

    /// Marks a stream as unread, unless another reader took over from the owner of this token.
    pub fn mark_unread(&self, number: u64, reader: &CancellationToken) {
        if let Some(stream) = self.events.lock().streams.get_mut(&number)
            && !reader.is_cancelled()
        {
            stream.unread_since = Some(Instant::now());
        }
    }

    /// Waits until a stream has been unread for the full retention time, and removes it.
    pub async fn expire_unread(self: Arc<Self>, number: u64) {
        let time = self.shared.settings.time;
        loop {
            // Short sleeps, because a reader may come and go meanwhile, and start the time again.
            tokio::time::sleep(time.min(UNREAD_CHECK_INTERVAL)).await;
            let mut retained = self.events.lock();
            let Some(stream) = retained.streams.get(&number) else {
                return;
            };
            if stream
                .unread_since
                .is_some_and(|since| since.elapsed() >= time)
            {
                self.remove(&mut retained, number);
                return;
            }
        }
    }

    /// Removes events that are older than the retention time.
    pub(super) fn evict_expired(&self) {
        let mut retained = self.events.lock();
        let time = self.shared.settings.time;
        while retained
            .oldest_time()
            .is_some_and(|sent_at| sent_at.elapsed() >= time)
            && self.drop_oldest(&mut retained)
        {}
        let expired: Vec<u64> = retained
            .streams
            .iter()
            .filter(|(_, stream)| stream.ended.is_some_and(|at| at.elapsed() >= time))
            .map(|(number, _)| *number)
            .collect();
        for number in expired {
            self.remove(&mut retained, number);
        }
    }

    /// Makes room for an event by evicting the oldest events of this session. Returns false if it
    /// does not fit.
    fn make_room(&self, retained: &mut RetainedEvents, size: usize) -> bool {
        let settings = &self.shared.settings;
        // An event that can never fit must not evict all others.
        if size > settings.bytes || size > settings.total || settings.events == 0 {
            return false;
        }
        while retained.bytes + size > settings.bytes
            || retained.order.len() >= settings.events
            || !self.share.try_reserve(size)
        {
            if !self.drop_oldest(retained) {
                return false;
            }
            self.shared.metrics.clients.replay_dropped.inc();
        }
        true
    }

    /// Evicts the oldest event. Returns false if there is none.
    fn drop_oldest(&self, retained: &mut RetainedEvents) -> bool {
        let Some(number) = retained.order.pop_front() else {
            return false;
        };
        let Some(stream) = retained.streams.get_mut(&number) else {
            return true;
        };
        let Some((_, event, _)) = stream.events.pop_front() else {
            return true;
        };
        // The response is the last event: an ended stream without events has lost it.
        stream.is_evicted |= stream.events.is_empty() && stream.ended.is_some();
        retained.bytes -= event.len();
        self.share.release(event.len());
        true
    }

    fn remove(&self, retained: &mut RetainedEvents, number: u64) {
        let Some(stream) = retained.streams.remove(&number) else {
            return;
        };
        let size = stream.events.iter().map(|(_, event, _)| event.len()).sum();
        // Entries of a removed stream would count towards `events` and evict those of live streams.
        retained.order.retain(|other| *other != number);
        retained.bytes -= size;
        self.share.release(size);
    }
}

impl Drop for ResumptionBuffer {
    fn drop(&mut self) {
        // The shared budget outlives the session.
        let bytes = self.events.lock().bytes;
        self.share.release(bytes);
    }
}

/// Encodes an event id. 2025-11-25/basic/transports.mdx, Resumability and Redelivery: "Event IDs
/// SHOULD encode sufficient information to identify the originating stream".
fn id(stream: u64, event: u64) -> String {
    format!("{stream}-{event}")
}

/// Parses the stream and the event that an id names.
pub fn parse_id(id: &str) -> Option<(u64, u64)> {
    let (stream, event) = id.split_once('-')?;
    Some((parse_digits(stream)?, parse_digits(event)?))
}

/// Parses a number that has no sign.
fn parse_digits(text: &str) -> Option<u64> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

impl BufferedStream {
    fn new(request: Option<RequestId>) -> Self {
        BufferedStream {
            events: VecDeque::new(),
            last: 0,
            request,
            ended: None,
            is_evicted: false,
            added: Arc::default(),
            reader: CancellationToken::new(),
            unread_since: None,
        }
    }

    fn event_after(&self, after: u64) -> Option<(u64, Bytes)> {
        let (number, event, _) = self.events.iter().find(|(number, _, _)| *number > after)?;
        Some((*number, event.clone()))
    }
}

/// Reader of one stream.
pub struct ResumptionReader {
    buffer: Arc<ResumptionBuffer>,
    number: u64,
    after: u64,
    token: CancellationToken,
    added: Arc<Notify>,
}

impl ResumptionReader {
    /// Waits for the next event.
    pub async fn next(&mut self) -> NextEvent {
        loop {
            if self.token.is_cancelled() {
                return NextEvent::End;
            }
            if let Some(next) = self.ready() {
                return next;
            }
            tokio::select! {
                () = self.added.notified() => {}
                () = self.token.cancelled() => {}
            }
        }
    }

    fn ready(&mut self) -> Option<NextEvent> {
        let retained = self.buffer.events.lock();
        let Some(stream) = retained.streams.get(&self.number) else {
            return Some(NextEvent::End);
        };
        if let Some((number, event)) = stream.event_after(self.after) {
            self.after = number;
            return Some(NextEvent::Event(event));
        }
        stream.ended?;
        // Reported once: `after` is then at the last event, so the next read does not report it
        // again.
        let behind = std::mem::replace(&mut self.after, stream.last) < stream.last;
        Some(match &stream.request {
            Some(request) if stream.is_evicted && behind => NextEvent::Evicted(request.clone()),
            _ => NextEvent::End,
        })
    }
}

impl Drop for ResumptionReader {
    fn drop(&mut self) {
        self.buffer.mark_unread(self.number, &self.token);
    }
}

#[cfg(test)]
mod tests;
