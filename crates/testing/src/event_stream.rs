//! Responses that are still coming: one JSON message, or an event stream.
//!
//! Splits a body into events and messages. Sends nothing. Invariant: all bytes that came are kept,
//! as they came.

use std::collections::HashMap;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use serde_json::{Value, value::RawValue};
use tokio::sync::mpsc;

use crate::RpcAnswer;
use crate::wait::within;

/// One JSON-RPC message, as it was written and as it is read.
#[derive(Debug, Clone)]
pub struct RpcMessage {
    /// Text of the message.
    pub raw: String,
    /// The message as JSON.
    pub value: Value,
    /// Id of the event that carried it.
    pub event_id: Option<String>,
}

impl RpcMessage {
    fn parse(raw: &str, event_id: Option<String>) -> Self {
        let value = serde_json::from_str(raw).unwrap_or_else(|e| panic!("not JSON ({e}): {raw}"));
        RpcMessage {
            raw: raw.to_owned(),
            value,
            event_id,
        }
    }

    /// Returns a member of the message, as it was written.
    pub fn member(&self, name: &str) -> Option<String> {
        let members: HashMap<String, Box<RawValue>> = serde_json::from_str(&self.raw).ok()?;
        members.get(name).map(|raw| raw.get().to_owned())
    }

    /// Returns the method, or an empty text for a response.
    pub fn method(&self) -> &str {
        self.value["method"].as_str().unwrap_or_default()
    }

    /// Returns true for a response.
    pub fn is_response(&self) -> bool {
        self.value.get("method").is_none()
    }
}

/// A response while it is being read. Dropping it closes the connection.
pub struct EventStream {
    /// Status code.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    body: BodySource,
    bytes: Vec<u8>,
    /// Bytes that were given out as events.
    taken: usize,
    /// Bytes that were searched for an event's end.
    searched: usize,
    line_ends: LineEnds,
}

enum BodySource {
    Http(Incoming),
    /// Events from a stream that carries those of others, too.
    Relayed(mpsc::Receiver<Bytes>),
}

/// Line ends that a reader takes.
enum LineEnds {
    /// Only LF, which the gateway writes.
    Lf,
    /// LF, CR and CRLF.
    Any { after_cr: bool },
}

impl EventStream {
    /// Reads a response that must be an event stream.
    pub fn new(response: Response<Incoming>) -> Self {
        let kind = response.headers()["content-type"].to_str().unwrap();
        assert!(kind.starts_with("text/event-stream"), "{kind}");
        EventStream::of(response)
    }

    /// Reads a response of either kind.
    pub fn of(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        EventStream::from_parts(head.status.as_u16(), head.headers, BodySource::Http(body))
    }

    /// Reads events that somebody else takes from a stream.
    pub(crate) fn relayed(events: mpsc::Receiver<Bytes>) -> Self {
        let headers =
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))]);
        EventStream::from_parts(200, headers, BodySource::Relayed(events))
    }

    fn from_parts(status: u16, headers: HeaderMap, body: BodySource) -> Self {
        EventStream {
            status,
            headers,
            body,
            bytes: Vec::new(),
            taken: 0,
            searched: 0,
            line_ends: LineEnds::Lf,
        }
    }

    /// Reads a response of either kind, with any line ends that the standard allows.
    pub fn with_any_line_ends(response: Response<Incoming>) -> Self {
        EventStream {
            line_ends: LineEnds::Any { after_cr: false },
            ..EventStream::of(response)
        }
    }

    /// Returns true for an event stream.
    pub fn is_events(&self) -> bool {
        self.headers
            .get("content-type")
            .is_some_and(|v| v.as_bytes().starts_with(b"text/event-stream"))
    }

    /// Waits for the first bytes, whatever they are. Returns false if there are none.
    pub async fn has_begun(&mut self) -> bool {
        matches!(self.body, BodySource::Relayed(_))
            || !self.bytes.is_empty()
            || self.read_frame().await
    }

    /// Reads the next event or comment, as it was written. Returns nothing at the end.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            let from = self.searched.max(self.taken);
            if let Some(at) = self.bytes[from..].windows(2).position(|two| two == b"\n\n") {
                let event = String::from_utf8(self.bytes[self.taken..from + at].to_vec()).unwrap();
                self.taken = from + at + 2;
                assert!(!event.contains('\r'), "a CR in an event: {event:?}");
                return Some(event);
            }
            // The last byte may be the first half of the end.
            self.searched = self.bytes.len().saturating_sub(1);
            if !self.read_frame().await {
                return None;
            }
        }
    }

    /// Reads the next message as JSON. Passes over comments, and returns nothing at the end.
    pub async fn message(&mut self) -> Option<Value> {
        self.next_message().await.map(|message| message.value)
    }

    /// Reads the next message. Passes over comments, and returns nothing at the end.
    pub async fn next_message(&mut self) -> Option<RpcMessage> {
        if !self.is_events() {
            while self.read_frame().await {}
            let text = String::from_utf8(self.bytes[self.taken..].to_vec()).unwrap();
            self.taken = self.bytes.len();
            return (!text.trim().is_empty()).then(|| RpcMessage::parse(&text, None));
        }
        loop {
            let event = self.next().await?;
            // An event without data is for the reader of the stream, and no message.
            let data = field_of(&event, "data");
            if !data.is_empty() {
                return Some(RpcMessage::parse(
                    &data,
                    Some(field_of(&event, "id")).filter(|id| !id.is_empty()),
                ));
            }
        }
    }

    /// Reads up to the next notification or request with this method, as JSON.
    pub async fn notification(&mut self, method: &str) -> Value {
        self.until(method).await.value
    }

    /// Reads up to the next notification or request with this method.
    pub async fn until(&mut self, method: &str) -> RpcMessage {
        loop {
            let message = self
                .next_message()
                .await
                .unwrap_or_else(|| panic!("the stream ended without {method}"));
            if message.method() == method {
                return message;
            }
        }
    }

    /// Reads up to the next JSON-RPC response.
    pub async fn response(&mut self) -> Value {
        loop {
            let message = self.next_message().await.expect("one more message");
            if message.is_response() {
                return message.value;
            }
        }
    }

    /// Reads to the end.
    pub async fn finish(mut self, id: &str) -> RpcAnswer {
        let mut messages = Vec::new();
        while let Some(message) = self.next_message().await {
            messages.push(message);
        }
        self.into_answer(messages, id)
    }

    /// Makes an answer of a stream that was read to its end.
    pub(crate) fn into_answer(self, messages: Vec<RpcMessage>, id: &str) -> RpcAnswer {
        RpcAnswer {
            status: self.status,
            headers: self.headers,
            bytes: self.bytes,
            messages,
            id: id.to_owned(),
        }
    }

    /// Reads another frame of the body. Returns false at the end.
    async fn read_frame(&mut self) -> bool {
        let next = async {
            match &mut self.body {
                BodySource::Http(body) => body.frame().await?.ok(),
                BodySource::Relayed(events) => events.recv().await.map(Frame::data),
            }
        };
        let Some(frame) = within("more of the response", next).await else {
            return false;
        };
        let data = frame.into_data().unwrap_or_else(|_| Bytes::new());
        match &mut self.line_ends {
            LineEnds::Lf => self.bytes.extend_from_slice(&data),
            LineEnds::Any { after_cr } => {
                for byte in data {
                    // A line feed after a carriage return belongs to it.
                    if !(byte == b'\n' && *after_cr) {
                        self.bytes.push(if byte == b'\r' { b'\n' } else { byte });
                    }
                    *after_cr = byte == b'\r';
                }
            }
        }
        true
    }
}

/// Returns a field of an event. Several lines of one field are joined.
fn field_of(event: &str, name: &str) -> String {
    let values = event
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    values
        .map(|value| value.strip_prefix(' ').unwrap_or(value))
        .collect::<Vec<_>>()
        .join("\n")
}
