//! What comes back for a request: one JSON message, or an event stream of them, read without the gateway's code.

use std::collections::VecDeque;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use serde_json::{Value, value::RawValue};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::GUARD;

/// One message, as it was written and as it is read.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) raw: String,
    pub(crate) value: Value,
}

impl Message {
    fn of(raw: &str) -> Self {
        let value = serde_json::from_str(raw).unwrap_or_else(|e| panic!("not JSON ({e}): {raw}"));
        Message { raw: raw.to_owned(), value }
    }

    /// A member of the message, as it was written.
    pub(crate) fn member(&self, name: &str) -> Option<String> {
        let members: std::collections::HashMap<String, Box<RawValue>> = serde_json::from_str(&self.raw).ok()?;
        members.get(name).map(|raw| raw.get().to_owned())
    }

    pub(crate) fn method(&self) -> &str {
        self.value["method"].as_str().unwrap_or_default()
    }

    fn is_response(&self) -> bool {
        self.value.get("method").is_none()
    }
}

/// An answer while it is being read.
pub(crate) struct Stream {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    body: AnswerSource,
    /// Everything of the body so far.
    pub(crate) read: Vec<u8>,
    taken: usize,
    waiting: VecDeque<Message>,
}

enum AnswerSource {
    Http(Incoming),
    /// Taken from a stream that carries others too.
    Messages(mpsc::Receiver<Message>),
}

impl Stream {
    pub(crate) fn of_messages(headers: HeaderMap, messages: mpsc::Receiver<Message>) -> Self {
        let body = AnswerSource::Messages(messages);
        Stream { status: 200, headers, body, read: Vec::new(), taken: 0, waiting: VecDeque::new() }
    }

    /// The data of the first event, which must be an `endpoint`.
    pub(crate) async fn endpoint(&mut self) -> String {
        while !self.read.windows(2).any(|two| two == b"\n\n") {
            assert!(self.more().await, "the stream ended at once");
        }
        let end = self.read.windows(2).position(|two| two == b"\n\n").unwrap() + 2;
        self.taken = end;
        let event = String::from_utf8(self.read[..end].to_vec()).unwrap();
        let data = event.strip_prefix("event: endpoint\ndata: ").unwrap_or_else(|| panic!("{event}"));
        data.trim_end().to_owned()
    }

    pub(crate) fn of(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let (status, headers) = (head.status.as_u16(), head.headers);
        Stream { status, headers, body: AnswerSource::Http(body), read: Vec::new(), taken: 0, waiting: VecDeque::new() }
    }

    pub(crate) fn is_events(&self) -> bool {
        self.headers.get("content-type").is_some_and(|v| v.as_bytes().starts_with(b"text/event-stream"))
    }

    /// Waits for the first bytes, whatever they are; false if there are none.
    pub(crate) async fn begun(&mut self) -> bool {
        matches!(self.body, AnswerSource::Messages(_)) || !self.read.is_empty() || self.more().await
    }

    /// The next message; none at the end.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Some(message);
            }
            if !self.is_events() {
                while self.more().await {}
                let text = String::from_utf8(self.read.split_off(self.taken)).unwrap();
                self.read.extend_from_slice(text.as_bytes());
                self.taken = self.read.len();
                return (!text.trim().is_empty()).then(|| Message::of(&text));
            }
            if !self.more().await {
                return None;
            }
            self.split();
        }
    }

    async fn more(&mut self) -> bool {
        let next = async {
            match &mut self.body {
                AnswerSource::Http(body) => body.frame().await,
                AnswerSource::Messages(messages) => {
                    let message = messages.recv().await?;
                    self.waiting.push_back(message);
                    Some(Ok(Frame::data(Bytes::new())))
                }
            }
        };
        let frame = timeout(GUARD, next).await.unwrap_or_else(|_| panic!("nothing came for {GUARD:?}"));
        match frame {
            Some(Ok(frame)) => {
                self.read.extend_from_slice(&frame.into_data().unwrap_or_else(|_| Bytes::new()));
                true
            }
            _ => false,
        }
    }

    /// Takes complete events; ours end their lines with LF.
    fn split(&mut self) {
        while let Some(end) = self.read[self.taken..].windows(2).position(|two| two == b"\n\n") {
            let event = String::from_utf8(self.read[self.taken..self.taken + end].to_vec()).unwrap();
            self.taken += end + 2;
            assert!(!event.contains('\r'), "a CR in an event: {event:?}");
            let data: Vec<&str> = event.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
            // An event without data is for the reader of the stream, not a message.
            if data.iter().any(|line| !line.is_empty()) {
                self.waiting.push_back(Message::of(&data.join("\n")));
            }
        }
    }

    /// The next message with this method; others are passed over.
    pub(crate) async fn until(&mut self, method: &str) -> Message {
        loop {
            match self.next().await {
                Some(message) if message.method() == method => return message,
                Some(_) => {}
                None => panic!("the stream ended without {method}"),
            }
        }
    }

    /// Reads to the end.
    pub(crate) async fn finish(mut self, id: &str) -> Answer {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await {
            messages.push(message);
        }
        Answer { status: self.status, headers: self.headers, bytes: self.read, messages, id: id.to_owned() }
    }
}

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The whole body.
    pub(crate) bytes: Vec<u8>,
    pub(crate) messages: Vec<Message>,
    pub(crate) id: String,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.status, String::from_utf8_lossy(&self.bytes))
    }
}

impl Answer {
    /// The response: there is exactly one, it comes last, and its id is the request's, byte for byte.
    pub(crate) fn end(&self) -> &Message {
        let responses = self.messages.iter().filter(|m| m.is_response()).count();
        assert_eq!(responses, 1, "there must be one response: {self:?}");
        let end = self.messages.last().unwrap();
        assert!(end.is_response(), "the response must come last: {self:?}");
        assert_eq!(end.member("id").as_deref(), Some(self.id.as_str()), "another id: {self:?}");
        assert_eq!(end.value["jsonrpc"], "2.0");
        end
    }

    pub(crate) fn result(&self) -> &Value {
        let end = self.end();
        assert!(end.value["error"].is_null(), "an error: {}", end.raw);
        assert!(end.value["result"].is_object(), "no result: {}", end.raw);
        assert_eq!(self.status, 200, "{}", end.raw);
        &end.value["result"]
    }

    pub(crate) fn error(&self) -> &Value {
        let end = self.end();
        assert!(end.value["result"].is_null(), "a result: {}", end.raw);
        assert!(end.value["error"]["message"].as_str().is_some_and(|m| !m.is_empty()), "no message: {}", end.raw);
        &end.value["error"]
    }

    pub(crate) fn code(&self) -> i64 {
        self.error()["code"].as_i64().unwrap()
    }

    /// The text of a tool's first content block.
    pub(crate) fn text(&self) -> &str {
        self.result()["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {}", self.end().raw))
    }

    /// The result, as it was written.
    pub(crate) fn raw_result(&self) -> String {
        self.end().member("result").unwrap_or_else(|| panic!("no result: {}", self.end().raw))
    }

    pub(crate) fn of(&self, method: &str) -> Vec<&Message> {
        self.messages.iter().filter(|m| m.method() == method).collect()
    }
}
