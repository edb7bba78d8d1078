//! One pipe, many calls: newline-delimited JSON-RPC over any reader and writer.
//!
//! Owns the table of open requests and the two tasks that read and write. Does not start processes (`stdio`).
//! Invariant: the reading task never waits for anybody: a call whose queue is full loses notifications, not answers,
//! and delays no other call; when the pipe ends, every open call fails at once with the reason.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};

use crate::jsonrpc::{Malformed, Message, Payload};
use crate::link::{BATCH_MAX, Correlate, Dropped, Headers, Link, LinkError, Messages, Outgoing, Reply};

/// Messages that a call may have waiting before notifications of it are dropped; one place is kept for the answer.
const CALL_QUEUE: usize = 256;
/// Messages that belong to no call, waiting to be read.
const EVENT_QUEUE: usize = 256;
/// Messages waiting to be written.
const WRITE_QUEUE: usize = 1024;
/// How long a full write queue is waited for: the server does not read its input.
const WRITE_WAIT: Duration = Duration::from_secs(5);
/// Longest time for what was gathered to be written.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// What is kept of the buffer for writing, in bytes.
const WRITE_BUFFER_MAX: usize = 256 * 1024;
/// How long the end of the output is waited for, once the input is closed.
const END_WAIT: Duration = Duration::from_millis(250);

/// What is told about lines that are no messages.
pub type OnGarbage = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// A pipe to a server.
pub struct Duplex {
    shared: Arc<Shared>,
    writer: Mutex<Option<mpsc::Sender<Bytes>>>,
    events: Mutex<Option<mpsc::Receiver<Message>>>,
    broke: Arc<watch::Sender<Option<LinkError>>>,
}

struct Shared {
    open: Mutex<Open>,
    correlate: Correlate,
    events: mpsc::Sender<Message>,
    dropped: OnceLock<Dropped>,
}

/// The open requests, or why there can be none any more.
enum Open {
    Calls(HashMap<u64, mpsc::Sender<Result<Message, LinkError>>>),
    Broken(LinkError),
}

/// What a pipe needs to know.
pub struct DuplexSettings {
    /// Longest line accepted, in bytes.
    pub max_message: usize,
    /// Which open call a message without an id of ours is about.
    pub correlate: Correlate,
    /// Told about each line that is no message.
    pub on_garbage: OnGarbage,
    /// Finds a better reason for the end of the pipe, such as how the process ended.
    pub explain: Explain,
}

/// Turns the end of a pipe into a reason for people. Must not take long: open calls wait for it.
pub type Explain = Box<dyn FnOnce(LinkError) -> BoxFuture<'static, LinkError> + Send>;

impl Duplex {
    /// Starts to read and write.
    pub fn start<R, W>(reader: R, writer: W, settings: DuplexSettings) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (events, event_reader) = mpsc::channel(EVENT_QUEUE);
        let (to_write, lines) = mpsc::channel(WRITE_QUEUE);
        let broke = Arc::new(watch::Sender::new(None));
        let shared = Arc::new(Shared {
            open: Mutex::new(Open::Calls(HashMap::new())),
            correlate: settings.correlate,
            events,
            dropped: OnceLock::new(),
        });
        tokio::spawn(write_lines(writer, lines, shared.clone(), broke.clone()));
        tokio::spawn({
            let (shared, broke) = (shared.clone(), broke.clone());
            async move {
                let end = read_lines(reader, &shared, settings.max_message, &settings.on_garbage).await;
                shared.fail((settings.explain)(end).await, &broke);
            }
        });
        Duplex { shared, writer: Mutex::new(Some(to_write)), events: Mutex::new(Some(event_reader)), broke }
    }

    /// The reading half alone, over messages that something else delimits; whoever owns it writes in its own way.
    pub(super) fn reading<S>(messages: S, settings: DuplexSettings) -> Self
    where
        S: Stream<Item = Result<Bytes, LinkError>> + Send + 'static,
    {
        let (events, event_reader) = mpsc::channel(EVENT_QUEUE);
        let broke = Arc::new(watch::Sender::new(None));
        let shared = Arc::new(Shared {
            open: Mutex::new(Open::Calls(HashMap::new())),
            correlate: settings.correlate,
            events,
            dropped: OnceLock::new(),
        });
        tokio::spawn({
            let (shared, broke) = (shared.clone(), broke.clone());
            async move {
                let mut messages = std::pin::pin!(messages);
                let end = loop {
                    match messages.next().await {
                        Some(Ok(message)) => take_line(message, &shared, &settings.on_garbage),
                        Some(Err(error)) => break error,
                        None => break LinkError::Gone("the server ended its event stream".to_owned()),
                    }
                };
                shared.fail((settings.explain)(end).await, &broke);
            }
        });
        Duplex { shared, writer: Mutex::new(None), events: Mutex::new(Some(event_reader)), broke }
    }

    /// Expects the answer to a request that goes out another way; the entry leaves the table with the stream.
    pub(super) fn expect(&self, id: u64) -> Result<Messages, LinkError> {
        let receiver = self.register(id)?;
        Ok(Entry { id, shared: self.shared.clone(), receiver }.into_messages())
    }

    /// Fails one open request.
    pub(super) fn fail_call(&self, id: u64, error: LinkError) {
        if let Open::Calls(calls) = &mut *lock(&self.shared.open)
            && let Some(call) = calls.remove(&id)
        {
            let _ = call.try_send(Err(error));
        }
    }

    /// Ends the pipe for a reason that its own end does not show.
    pub(super) fn fail(&self, error: LinkError) {
        self.shared.fail(error, &self.broke);
    }

    /// Stops writing, which tells a child that it should end.
    pub fn close_writer(&self) {
        lock(&self.writer).take();
    }

    fn register(&self, id: u64) -> Result<mpsc::Receiver<Result<Message, LinkError>>, LinkError> {
        match &mut *lock(&self.shared.open) {
            Open::Broken(error) => Err(error.clone()),
            Open::Calls(calls) => {
                let (sender, receiver) = mpsc::channel(CALL_QUEUE);
                calls.insert(id, sender);
                Ok(receiver)
            }
        }
    }

    async fn write(&self, body: Bytes) -> Result<(), LinkError> {
        let gone = || LinkError::Gone("the server is being stopped".to_owned());
        let writer = lock(&self.writer).clone().ok_or_else(gone)?;
        match writer.try_send(body) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(gone()),
            Err(mpsc::error::TrySendError::Full(body)) => writer.send_timeout(body, WRITE_WAIT).await.map_err(|_| {
                LinkError::Full(format!("the server does not read its input; {WRITE_QUEUE} messages wait for it"))
            }),
        }
    }
}

impl Link for Duplex {
    fn send(&self, outgoing: Outgoing) -> BoxFuture<'_, Result<Reply, LinkError>> {
        async move {
            let Some(id) = outgoing.id else {
                self.write(outgoing.body).await?;
                return Ok(Reply { headers: HeaderMap::new(), status: 200, messages: stream::empty().boxed() });
            };
            let receiver = self.register(id)?;
            // From here on the entry leaves the table with the stream, however the call ends.
            let entry = Entry { id, shared: self.shared.clone(), receiver };
            self.write(outgoing.body).await?;
            Ok(Reply { headers: HeaderMap::new(), status: 200, messages: entry.into_messages() })
        }
        .boxed()
    }

    fn listen(&self, _: Headers) -> BoxFuture<'_, Result<Messages, LinkError>> {
        let events = lock(&self.events).take();
        async move {
            let mut events =
                events.ok_or_else(|| LinkError::Protocol("the pipe's events are already being read".into()))?;
            Ok(stream::poll_fn(move |cx| events.poll_recv(cx)).map(Ok).boxed())
        }
        .boxed()
    }

    fn close(&self, _: Headers) -> BoxFuture<'_, ()> {
        self.close_writer();
        std::future::ready(()).boxed()
    }

    fn broken(&self) -> BoxFuture<'_, LinkError> {
        let mut broken = self.broke.subscribe();
        async move {
            let reason = broken.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
            reason.unwrap_or_else(|| LinkError::Gone("the pipe was closed".to_owned()))
        }
        .boxed()
    }

    fn count_in(&self, dropped: Dropped) {
        // The first counters stay: a link belongs to one server.
        let _ = self.shared.dropped.set(dropped);
    }

    fn is_pipe(&self) -> bool {
        true
    }
}

/// One open request's place in the table.
struct Entry {
    id: u64,
    shared: Arc<Shared>,
    receiver: mpsc::Receiver<Result<Message, LinkError>>,
}

impl Entry {
    fn into_messages(self) -> Messages {
        let mut entry = self;
        stream::poll_fn(move |cx| entry.receiver.poll_recv(cx)).boxed()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Open::Calls(calls) = &mut *lock(&self.shared.open) {
            calls.remove(&self.id);
        }
    }
}

// === impl Shared ===

impl Shared {
    fn deliver(&self, message: Message) {
        let answer_to = match &message {
            Message::Response(response) => match response.id.as_ref().and_then(|id| id.as_number()) {
                Some(id) => Some(id),
                // An answer to nothing that we asked: late, or invented.
                None => return self.count_answer(),
            },
            _ => None,
        };
        let id = answer_to.or_else(|| (self.correlate)(&message));
        if let Some(id) = id
            && let Open::Calls(calls) = &mut *lock(&self.open)
        {
            if answer_to.is_some() {
                // The answer ends the call: the table forgets it, so that a second answer finds nobody.
                match calls.remove(&id) {
                    Some(call) => drop(call.try_send(Ok(message))),
                    None => self.count_answer(),
                }
                return;
            }
            if let Some(call) = calls.get(&id) {
                // One place stays free for the answer.
                if call.capacity() <= 1 || call.try_send(Ok(message)).is_err() {
                    self.count_dropped();
                }
                return;
            }
        }
        if answer_to.is_some() {
            self.count_answer();
        } else if self.events.try_send(message).is_err() {
            self.count_dropped();
        }
    }

    fn count_answer(&self) {
        if let Some(dropped) = self.dropped.get() {
            dropped.answers.inc();
        }
    }

    fn count_dropped(&self) {
        if let Some(dropped) = self.dropped.get() {
            dropped.messages.inc();
        }
    }

    /// Ends the pipe: every open call fails now, every later one at once.
    fn fail(&self, error: LinkError, broke: &watch::Sender<Option<LinkError>>) {
        let mut open = lock(&self.open);
        let Open::Calls(calls) = std::mem::replace(&mut *open, Open::Broken(error.clone())) else {
            return;
        };
        drop(open);
        for call in calls.into_values() {
            let _ = call.try_send(Err(error.clone()));
        }
        broke.send_replace(Some(error));
    }
}

// === the two tasks ===

async fn write_lines<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut lines: mpsc::Receiver<Bytes>,
    shared: Arc<Shared>,
    broke: Arc<watch::Sender<Option<LinkError>>>,
) {
    let mut waiting = Vec::new();
    let mut buffer = BytesMut::new();
    while lines.recv_many(&mut waiting, 64).await > 0 {
        for line in waiting.drain(..) {
            // A line break inside would end the message early. JSON allows one only as white space between tokens,
            // where a space means the same.
            let mut rest = &line[..];
            while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
                buffer.extend_from_slice(&rest[..at]);
                buffer.extend_from_slice(b" ");
                rest = &rest[at + 1..];
            }
            buffer.extend_from_slice(rest);
            buffer.extend_from_slice(b"\n");
        }
        let written = async {
            writer.write_all(&buffer).await?;
            writer.flush().await
        };
        // A server that does not read its input is of no more use than one whose input is closed.
        let late = |_| std::io::Error::other(format!("it does not read: nothing was taken for {WRITE_TIME:?}"));
        let written = tokio::time::timeout(WRITE_TIME, written).await;
        if let Err(e) = written.map_err(late).and_then(|written| written) {
            // Mostly the server has ended, and its output is about to: the reading task can then say how.
            let _ = tokio::time::timeout(END_WAIT, broke.subscribe().wait_for(Option::is_some)).await;
            shared.fail(LinkError::Gone(format!("the server's input is closed: {e}")), &broke);
            return;
        }
        buffer.clear();
        // One large message shall not be paid for ever after.
        if buffer.capacity() > WRITE_BUFFER_MAX {
            buffer = BytesMut::new();
        }
    }
}

async fn read_lines<R: AsyncRead + Unpin>(
    mut reader: R,
    shared: &Shared,
    limit: usize,
    on_garbage: &OnGarbage,
) -> LinkError {
    let mut buffer = BytesMut::with_capacity(16 * 1024);
    let mut scanned = 0;
    // Inside a line that is too long: all of it is thrown away, but for the id of the call that it answers.
    let mut skipping: Option<IdScan> = None;
    loop {
        while let Some(at) = memchr::memchr(b'\n', &buffer[scanned..]) {
            let line = buffer.split_to(scanned + at + 1).freeze();
            scanned = 0;
            match skipping.take() {
                Some(mut scan) => shared.too_large(scan.feed(&line), limit),
                // It came at once, and is too long all the same.
                None if line.len() - 1 > limit => {
                    on_garbage(too_long(limit).as_bytes());
                    shared.too_large(IdScan::default().feed(&line), limit);
                }
                None => take_line(line, shared, on_garbage),
            }
        }
        scanned = buffer.len();
        if scanned > limit && skipping.is_none() {
            on_garbage(too_long(limit).as_bytes());
            skipping = Some(IdScan::default());
        }
        if let Some(scan) = &mut skipping {
            shared.too_large(scan.feed(&buffer), limit);
            buffer.clear();
            scanned = 0;
        }
        buffer.reserve(8 * 1024);
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return LinkError::Gone("the server closed its output".to_owned()),
            Ok(_) => {}
            Err(e) => return LinkError::Gone(format!("the server's output broke: {e}")),
        }
    }
}

fn too_long(limit: usize) -> String {
    format!("a line longer than max_message = {limit} bytes")
}

fn take_line(line: Bytes, shared: &Shared, on_garbage: &OnGarbage) {
    let mut text = line.trim_ascii();
    text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    if text.is_empty() {
        return;
    }
    let text = line.slice_ref(text);
    // 2025-03-26 has batches, and servers of it may send them.
    match Payload::parse(&text, BATCH_MAX) {
        Ok(Payload::One(message)) => shared.deliver(message),
        Ok(Payload::Batch(messages)) => {
            for message in messages {
                match message {
                    Ok(message) => shared.deliver(message),
                    Err(_) => on_garbage(&text),
                }
            }
        }
        Err(wrong) => {
            on_garbage(&text);
            shared.spoiled(&text, &wrong);
        }
    }
}

impl Shared {
    /// Fails the call that a malformed answer names, if it does: nothing else will come for it. What may be a request,
    /// or a line for people that has an `id`, is no answer.
    fn spoiled(&self, line: &[u8], wrong: &Malformed) {
        let has = |word: &[u8]| memchr::memmem::find(line, word).is_some();
        let answers = has(b"\"jsonrpc\"") && (has(b"\"result\"") || has(b"\"error\"")) && !has(b"\"method\"");
        if let Some(id) = answers.then(|| IdScan::default().feed(line)).flatten()
            && let Open::Calls(calls) = &mut *lock(&self.open)
            && let Some(call) = calls.remove(&id)
        {
            let _ = call.try_send(Err(LinkError::Protocol(format!("the answer is {wrong}"))));
        }
    }

    /// Fails the call that an over-long line answers.
    fn too_large(&self, id: Option<u64>, limit: usize) {
        if let Some(id) = id
            && let Open::Calls(calls) = &mut *lock(&self.open)
            && let Some(call) = calls.remove(&id)
        {
            let _ = call.try_send(Err(LinkError::TooLarge { limit }));
        }
    }
}

/// Finds the `id` of a message that is read in parts and not kept. Some servers write it last, behind a result that
/// may hold ids of other things.
#[derive(Default)]
struct IdScan {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The last string of the outermost object, as far as it can be told from `id`.
    key: Vec<u8>,
    /// The number behind the key, while it is read.
    number: Option<u64>,
    reading: bool,
    /// The first id counts, in whatever part it stood.
    told: bool,
}

impl IdScan {
    /// Reads on; gives the id where it ends in this part.
    fn feed(&mut self, part: &[u8]) -> Option<u64> {
        let mut found = None;
        for byte in part.iter().copied() {
            if self.in_string {
                self.string(byte);
                continue;
            }
            match byte {
                b'"' => {
                    (self.in_string, self.reading) = (true, false);
                    self.key.clear();
                }
                b'{' | b'[' => {
                    self.depth += 1;
                    self.reading = false;
                }
                b':' if self.depth == 1 => (self.reading, self.number) = (self.key == b"id", None),
                b',' | b'}' | b']' => {
                    if std::mem::take(&mut self.reading) {
                        found = found.or(self.number);
                    }
                    self.depth -= usize::from(byte != b',' && self.depth > 0);
                }
                b'0'..=b'9' if self.reading => {
                    self.number =
                        self.number.unwrap_or(0).checked_mul(10).and_then(|n| n.checked_add(u64::from(byte - b'0')));
                    self.reading = self.number.is_some();
                }
                _ => {}
            }
        }
        found = found.filter(|_| !self.told);
        self.told |= found.is_some();
        found
    }

    fn string(&mut self, byte: u8) {
        match byte {
            _ if std::mem::take(&mut self.escaped) => {}
            b'\\' => self.escaped = true,
            b'"' => {
                self.in_string = false;
                return;
            }
            _ => {}
        }
        if self.depth == 1 && self.key.len() <= b"id".len() {
            self.key.push(byte);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the calls 1 and 2 are told of this text, written in pieces of this size.
    async fn told(text: &str, size: usize) -> Vec<String> {
        let (ours, mut theirs) = tokio::io::duplex(size);
        let settings = DuplexSettings {
            max_message: 60,
            correlate: Arc::new(|_| None),
            on_garbage: Arc::new(|_| ()),
            explain: Box::new(|error| std::future::ready(error).boxed()),
        };
        let duplex = Duplex::start(ours, tokio::io::sink(), settings);
        let mut calls = Vec::new();
        for id in [1, 2] {
            let outgoing = Outgoing { body: Bytes::from_static(b"{}"), id: Some(id), headers: Vec::new() };
            calls.push(duplex.send(outgoing).await.unwrap().messages);
        }
        theirs.write_all(text.as_bytes()).await.unwrap();
        drop(theirs);
        let mut told = Vec::new();
        for mut call in calls {
            told.push(match call.next().await {
                Some(Ok(message)) => format!("{message:?}"),
                Some(Err(error)) => error.to_string(),
                None => String::new(),
            });
        }
        told
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_none_however_it_comes() {
        let long = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"x":"{}"}}}}"#, "x".repeat(40));
        let text = format!("{long}\n{}\n", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
        for size in [1, 7, 1000] {
            let told = told(&text, size).await;
            assert!(told[0].contains("max_message"), "pieces of {size}: {told:?}");
            assert!(told[1].contains("Response"), "pieces of {size}: {told:?}");
        }
    }

    #[tokio::test]
    async fn a_malformed_answer_fails_the_call_that_it_names() {
        let both = r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#;
        let told_of = told(&format!("{both}\n"), 1000).await;
        assert!(told_of[0].contains("the answer is not a JSON-RPC 2.0 message"), "{told_of:?}");
        // A log line of a program that logs as JSON, and a request that is none.
        for other in [r#"{"level":30,"id":1,"error":"no"}"#, r#"{"jsonrpc":"2.0","id":1,"method":7,"error":1}"#] {
            let told = told(&format!("{other}\n"), 1000).await;
            assert_eq!(told[0], "the server closed its output", "{other}");
        }
    }

    fn id(text: &str, part: usize) -> Option<u64> {
        let mut scan = IdScan::default();
        text.as_bytes().chunks(part).fold(None, |found, part| found.or(scan.feed(part)))
    }

    #[test]
    fn the_id_of_a_message_is_found_wherever_it_stands() {
        let own = [
            r#"{"jsonrpc":"2.0","id":17,"result":{"id":4}}"#,
            r#"{"result":{"id":4,"text":"\"id\":5,{\\"},"jsonrpc":"2.0","id": 17 }"#,
            r#"{ "error": [{"id":3}], "x": "id", "id" : 17, "result": {}}"#,
        ];
        for text in own {
            for part in [1, 2, 7, 1000] {
                assert_eq!(id(text, part), Some(17), "{text}");
            }
        }
        let none = [
            r#"{"result":{"id":4}}"#,
            r#"{"id":"17","result":4}"#,
            r#"{"id":null,"result":4}"#,
            r#"{"ids":4,"i":5,"\u0069d":6}"#,
            r#"[{"id":4}]"#,
            r#"{"id":99999999999999999999,"x":1}"#,
            "4,5]}}",
        ];
        for text in none {
            for part in [1, 1000] {
                assert_eq!(id(text, part), None, "{text}");
            }
        }
    }
}
