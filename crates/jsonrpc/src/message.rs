//! JSON-RPC 2.0 messages, parsed in one pass and written by splicing.
//!
//! Owns [`RequestId`], [`RpcMessage`] and their codec. Does not know methods, revisions or
//! transports. Invariant: a parsed message has exactly one meaning: no duplicate members, no result
//! next to an error, an id of a legal type.

mod fault;
mod from_server;

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::{
    BorrowedKey, ByteString, JsonObject, JsonScanner, RawJson, ShallowObject, is_lookalike, utf8,
    write_string,
};

pub use from_server::{ServerPayload, answered_id, batch_items, echoed_number, mended_length};

/// Request id as its sender wrote it: a string or a whole number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(RawJson);

/// JSON-RPC message.
#[derive(Clone, Debug)]
pub enum RpcMessage {
    /// Message that expects a response.
    Request(RpcRequest),
    /// Message without a response.
    Notification(RpcNotification),
    /// Response to a request.
    Response(RpcResponse),
}

/// JSON-RPC request.
#[derive(Clone, Debug)]
pub struct RpcRequest {
    /// Id chosen by the sender; valid on one hop only.
    pub id: RequestId,
    /// Requested method.
    pub method: ByteString,
    /// Params; empty if the message had none.
    pub params: JsonObject,
}

/// JSON-RPC notification.
#[derive(Clone, Debug)]
pub struct RpcNotification {
    /// Name of the event.
    pub method: ByteString,
    /// Params; empty if the message had none.
    pub params: JsonObject,
}

/// JSON-RPC response.
#[derive(Clone, Debug)]
pub struct RpcResponse {
    /// Id of the request; `None` if the request could not be read.
    pub id: Option<RequestId>,
    /// Result or error.
    pub outcome: Result<JsonObject, RpcError>,
}

/// `error` member of a response.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcError {
    /// Error code.
    pub code: i64,
    /// Description in one sentence.
    pub message: ByteString,
    /// Further data, unchanged.
    pub data: Option<RawJson>,
}

/// Error codes that JSON-RPC defines.
pub mod code {
    /// The text is not JSON.
    pub const PARSE: i64 = -32700;
    /// The JSON is not a JSON-RPC message, or not one that is valid at this point.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The method is unknown.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The method's params are wrong.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The receiver failed.
    pub const INTERNAL: i64 = -32603;
}

/// Reason why a text isn't a message.
#[derive(Debug, thiserror::Error)]
pub enum MalformedMessage {
    /// The text isn't JSON, or is nested too deep or duplicated on a level that must be read.
    #[error("not valid JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The text is JSON, but not JSON-RPC 2.0.
    #[error("not a JSON-RPC 2.0 message: {reason}")]
    Shape {
        /// Description of the fault.
        reason: Cow<'static, str>,
        /// Id of the request for the response, if it could be read.
        id: Option<RequestId>,
    },
    /// A member name would be one of JSON-RPC's to a reader that ignores case.
    #[error("the member {member:?} differs only by case from a JSON-RPC member")]
    Lookalike {
        /// Name of the member.
        member: String,
        /// Id of the request for the response.
        id: Option<RequestId>,
    },
}

/// Content of a body: one message, or a batch (revision 2025-03-26 only).
pub enum RpcPayload {
    /// Single message.
    One(RpcMessage),
    /// Several messages, each parsed on its own.
    Batch(Vec<Result<RpcMessage, MalformedMessage>>),
}

impl RpcPayload {
    /// Returns the number of requests.
    pub fn request_count(&self) -> usize {
        self.request_ids().count()
    }

    /// Returns the ids of the requests.
    pub fn request_ids(&self) -> impl Iterator<Item = &RequestId> {
        let (one, all) = match self {
            RpcPayload::One(message) => (Some(message), None),
            RpcPayload::Batch(items) => (None, Some(items)),
        };
        let all = all
            .into_iter()
            .flatten()
            .filter_map(|item| item.as_ref().ok());
        one.into_iter()
            .chain(all)
            .filter_map(|message| match message {
                RpcMessage::Request(request) => Some(&request.id),
                _ => None,
            })
    }
}

// === impl RequestId ===

/// Limit of an id, in bytes. Longer ids are not remembered or echoed.
const ID_BYTES_MAX: usize = 1024;

impl RequestId {
    /// Creates a numeric id.
    pub fn number(n: u64) -> Self {
        RequestId(RawJson::number(n))
    }

    /// Creates a string id.
    pub fn string(text: &str) -> Self {
        RequestId(RawJson::string(text))
    }

    /// Converts a JSON value to an id, if it is a string or a whole number of bounded length.
    pub fn from_raw(raw: RawJson) -> Option<Self> {
        let bytes = raw.bytes();
        // JSON-RPC allows fractions and `null`; MCP ids are strings or integers.
        // 2025-11-25/basic/index.mdx, Requests: "Requests MUST include a string or integer ID."
        // "Unlike base JSON-RPC, the ID MUST NOT be `null`."
        let legal = match bytes.first()? {
            b'"' => true,
            b'-' | b'0'..=b'9' => bytes[1..].iter().all(u8::is_ascii_digit),
            _ => false,
        };
        (legal && bytes.len() <= ID_BYTES_MAX).then_some(RequestId(raw))
    }

    /// Returns the id as JSON.
    pub fn raw(&self) -> &RawJson {
        &self.0
    }

    /// Returns the number, if [`RequestId::number`] can have made the id.
    pub fn as_number(&self) -> Option<u64> {
        std::str::from_utf8(self.0.bytes()).ok()?.parse().ok()
    }
}

// === impl RpcMessage ===

/// Members of a message in serde's view: flat, borrowed, one pass. The derive refuses duplicates.
#[derive(Deserialize)]
struct RpcEnvelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<BorrowedKey<'a>>,
    #[serde(borrow, default)]
    params: Option<ShallowObject<'a>>,
    #[serde(borrow, default)]
    result: Option<ShallowObject<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Distinguishes `null` from an absent member: `"id": null` is a separate error.
fn present<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

#[derive(Deserialize)]
struct ErrorShape<'a> {
    #[serde(deserialize_with = "from_server::read_whole_number")]
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

impl RpcMessage {
    /// Parses one message.
    pub fn parse(bytes: &Bytes) -> Result<Self, MalformedMessage> {
        match RpcMessage::parse_fast(bytes)? {
            Some(message) => Ok(message),
            None => RpcMessage::parse_strict(bytes, RequestId::from_raw),
        }
    }

    /// Parses one message of a client. Also refuses members that only some readers would take for
    /// JSON-RPC's.
    pub fn parse_from_client(bytes: &Bytes) -> Result<Self, MalformedMessage> {
        match RpcMessage::parse_fast(bytes)? {
            Some(message) => Ok(message),
            None => match lookalike(bytes) {
                Some(member) => Err(MalformedMessage::Lookalike {
                    member,
                    id: readable_id(bytes),
                }),
                None => RpcMessage::parse_strict(bytes, RequestId::from_raw),
            },
        }
    }

    /// Parses a message of the common form. `None` for any other.
    fn parse_fast(bytes: &Bytes) -> Result<Option<Self>, MalformedMessage> {
        // Most messages are ASCII, and that check is faster than the one for UTF-8.
        if !bytes.is_ascii() {
            utf8(bytes).map_err(MalformedMessage::Json)?;
        }
        Ok(RpcMessage::scanned(bytes))
    }

    /// Parses any message. `read_id` decides which ids are legal.
    fn parse_strict(
        bytes: &Bytes,
        read_id: fn(RawJson) -> Option<RequestId>,
    ) -> Result<Self, MalformedMessage> {
        let text = utf8(bytes).map_err(MalformedMessage::Json)?;
        // Serde would accept an array as the members in their order.
        if bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[') {
            serde_json::from_slice::<IgnoredAny>(bytes)?;
            return Err(shape_error(bytes, None));
        }
        let envelope: RpcEnvelope<'_> = match serde_json::from_str(text) {
            Ok(envelope) => envelope,
            // Data errors are valid JSON of the wrong shape, such as params that are an array.
            Err(e) if e.classify() == serde_json::error::Category::Data => {
                return Err(data_error(bytes, e));
            }
            Err(e) => return Err(e.into()),
        };
        let id = envelope.id.map(|raw| read_id(RawJson::slice(bytes, raw)));
        // JSON-RPC 2.0, section 4: "A String specifying the version of the JSON-RPC protocol. MUST
        // be exactly "2.0"."
        if envelope.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
            return Err(shape_error(bytes, id.flatten()));
        }
        if envelope.method.is_some() && envelope.result.is_none() && envelope.error.is_none() {
            let method = envelope.method.map(|key| key.0).unwrap_or_default();
            let method = ByteString::within(bytes, method);
            let params = envelope.params.map(|p| p.within(bytes)).unwrap_or_default();
            return match id {
                // JSON-RPC 2.0, section 4.1: "A Notification is a Request object without an "id"
                // member."
                None => Ok(RpcMessage::Notification(RpcNotification { method, params })),
                Some(Some(id)) => Ok(RpcMessage::Request(RpcRequest { id, method, params })),
                Some(None) => Err(shape_error(bytes, None)),
            };
        }
        // A response may carry `"id": null` if its request could not be read (JSON-RPC 2.0, section
        // 5).
        if id == Some(None) && envelope.id.is_some_and(|raw| raw.get() != "null") {
            return Err(shape_error(bytes, None));
        }
        let outcome = match (envelope.method, envelope.result, envelope.error) {
            // 2025-11-25/basic/index.mdx, Result Responses: "Result responses MUST include a
            // `result` field." Error Responses have `error` instead.
            (None, Some(result), None) => Ok(result.within(bytes)),
            (None, None, Some(error)) => match read_error(bytes, error) {
                Some(error) => Err(error),
                None => return Err(shape_error(bytes, id.flatten())),
            },
            _ => return Err(shape_error(bytes, id.flatten())),
        };
        Ok(RpcMessage::Response(RpcResponse {
            id: id.flatten(),
            outcome,
        }))
    }

    /// Scans a message of the common form. `None` if it must be parsed with care, and perhaps
    /// refused.
    fn scanned(bytes: &Bytes) -> Option<Self> {
        let mut version = None;
        let mut id = None;
        let mut method = None;
        let mut params = None;
        let mut result = None;
        let mut scan = JsonScanner::new(bytes);
        scan.object(|scan, key| {
            let first = match &bytes[key] {
                b"jsonrpc" => version.replace(scan.value()?).is_none(),
                b"id" => id
                    .replace(RequestId::from_raw(RawJson::span(bytes, scan.value()?))?)
                    .is_none(),
                b"method" => method
                    .replace(ByteString::span(bytes, scan.plain_string()?))
                    .is_none(),
                b"params" => params.replace(JsonObject::scanned(scan, bytes)?).is_none(),
                b"result" => result.replace(JsonObject::scanned(scan, bytes)?).is_none(),
                // Errors are rare, and their members need more checks than a scan makes.
                b"error" => false,
                key => !is_envelope_lookalike(key) && scan.value().is_some(),
            };
            first.then_some(())
        })?;
        if !scan.is_finished() || &bytes[version?] != b"\"2.0\"" {
            return None;
        }
        match (method, result, id) {
            (Some(method), None, Some(id)) => Some(RpcMessage::Request(RpcRequest {
                id,
                method,
                params: params.unwrap_or_default(),
            })),
            (Some(method), None, None) => Some(RpcMessage::Notification(RpcNotification {
                method,
                params: params.unwrap_or_default(),
            })),
            (None, Some(result), id @ Some(_)) => Some(RpcMessage::Response(RpcResponse {
                id,
                outcome: Ok(result),
            })),
            _ => None,
        }
    }

    /// Returns the id of a request or response.
    pub fn id(&self) -> Option<&RequestId> {
        match self {
            RpcMessage::Request(r) => Some(&r.id),
            RpcMessage::Notification(_) => None,
            RpcMessage::Response(r) => r.id.as_ref(),
        }
    }
}

fn read_error(buffer: &Bytes, raw: &RawValue) -> Option<RpcError> {
    if !raw.get().starts_with('{') {
        return None;
    }
    let shape: ErrorShape<'_> = serde_json::from_str(raw.get()).ok()?;
    // The data keeps its bytes; only code and message are read.
    let data = shape.data.map(|d| RawJson::slice(buffer, d));
    Some(RpcError {
        code: shape.code,
        message: ByteString::from(shape.message),
        data,
    })
}

/// Builds the error for JSON that isn't a message.
fn shape_error(bytes: &Bytes, id: Option<RequestId>) -> MalformedMessage {
    MalformedMessage::Shape {
        reason: fault::describe(bytes),
        id,
    }
}

/// Distinguishes JSON of the wrong shape from invalid JSON, and finds the id for the response.
fn data_error(bytes: &Bytes, error: serde_json::Error) -> MalformedMessage {
    // Serde reports wrong members and duplicates before it has seen the rest of the text.
    if serde_json::from_slice::<IgnoredAny>(bytes).is_err() {
        return error.into();
    }
    shape_error(bytes, readable_id(bytes))
}

/// Returns the id of a malformed message, for the error response.
fn readable_id(bytes: &Bytes) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct Ids<'a> {
        #[serde(borrow, default)]
        id: Option<&'a RawValue>,
    }
    let ids: Ids<'_> = serde_json::from_slice(bytes).ok()?;
    RequestId::from_raw(RawJson::slice(bytes, ids.id?))
}

/// Member names of a message.
const ENVELOPE: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

fn is_envelope_lookalike(key: &[u8]) -> bool {
    ENVELOPE.iter().any(|name| is_lookalike(key, name))
}

/// Returns the first member that differs only by case from one of JSON-RPC's. `None` if the text
/// isn't an object.
fn lookalike(bytes: &[u8]) -> Option<String> {
    struct Members(Option<String>);
    struct MembersVisitor;
    impl<'de> Visitor<'de> for MembersVisitor {
        type Value = Members;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a JSON object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
            let mut found = None;
            while let Some(BorrowedKey(key)) = map.next_key::<BorrowedKey<'de>>()? {
                map.next_value::<IgnoredAny>()?;
                if found.is_none() && is_envelope_lookalike(key.as_bytes()) {
                    found = Some(key.into_owned());
                }
            }
            Ok(Members(found))
        }
    }
    impl<'de> Deserialize<'de> for Members {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(MembersVisitor)
        }
    }
    serde_json::from_slice::<Members>(bytes).ok()?.0
}

impl RpcPayload {
    /// Parses a body. `batch_max` limits the messages in a batch.
    pub fn parse(bytes: &Bytes, batch_max: usize) -> Result<Self, MalformedMessage> {
        RpcPayload::read(bytes, batch_max, RpcMessage::parse)
    }

    /// Parses the body of a client.
    pub fn parse_from_client(bytes: &Bytes, batch_max: usize) -> Result<Self, MalformedMessage> {
        RpcPayload::read(bytes, batch_max, RpcMessage::parse_from_client)
    }

    fn read(
        bytes: &Bytes,
        batch_max: usize,
        message: impl Fn(&Bytes) -> Result<RpcMessage, MalformedMessage>,
    ) -> Result<Self, MalformedMessage> {
        // Only the first byte distinguishes a batch from a message.
        let start = bytes
            .iter()
            .position(|b| !b.is_ascii_whitespace())
            .unwrap_or(0);
        if bytes.get(start) != Some(&b'[') {
            return message(bytes).map(RpcPayload::One);
        }
        // Items stay unparsed, so that one malformed message does not spoil the batch.
        let items: Vec<&RawValue> = serde_json::from_slice(bytes)?;
        if items.is_empty() || items.len() > batch_max {
            let count = items.len();
            let reason = format!(
                "a batch has at least one message and at most {batch_max}, but this one has {count}"
            );
            return Err(MalformedMessage::Shape {
                reason: reason.into(),
                id: None,
            });
        }
        let messages = items
            .into_iter()
            .map(|item| message(&bytes.slice_ref(item.get().as_bytes())));
        Ok(RpcPayload::Batch(messages.collect()))
    }
}

// === writing ===

const HEAD: &[u8] = br#"{"jsonrpc":"2.0","#;

/// Appends a request. `params` are left out if nobody gave any.
pub fn write_request(out: &mut BytesMut, id: &RequestId, method: &str, params: &JsonObject) {
    out.put_slice(HEAD);
    out.put_slice(br#""id":"#);
    out.put_slice(id.raw().bytes());
    out.put_u8(b',');
    write_method(out, method, params);
}

/// Appends a notification.
pub fn write_notification(out: &mut BytesMut, method: &str, params: &JsonObject) {
    out.put_slice(HEAD);
    write_method(out, method, params);
}

fn write_method(out: &mut BytesMut, method: &str, params: &JsonObject) {
    out.put_slice(br#""method":"#);
    write_string(out, method);
    if params.is_given() {
        out.put_slice(br#","params":"#);
        params.write(out);
    }
    out.put_u8(b'}');
}

/// Appends the part of a result response in front of the result.
pub fn write_result_head(out: &mut BytesMut, id: &RequestId) {
    out.put_slice(HEAD);
    out.put_slice(br#""id":"#);
    out.put_slice(id.raw().bytes());
    out.put_slice(br#","result":"#);
}

/// Appends a result response.
pub fn write_result(out: &mut BytesMut, id: &RequestId, result: &JsonObject) {
    write_result_head(out, id);
    result.write(out);
    out.put_u8(b'}');
}

/// Appends an error response. Without an id the member is left out.
pub fn write_error(out: &mut BytesMut, id: Option<&RequestId>, error: &RpcError) {
    out.put_slice(HEAD);
    if let Some(id) = id {
        out.put_slice(br#""id":"#);
        out.put_slice(id.raw().bytes());
        out.put_u8(b',');
    }
    out.put_slice(br#""error":{"code":"#);
    out.put_slice(error.code.to_string().as_bytes());
    out.put_slice(br#","message":"#);
    write_string(out, &error.message);
    if let Some(data) = &error.data {
        out.put_slice(br#","data":"#);
        out.put_slice(data.bytes());
    }
    out.put_slice(b"}}");
}

/// Encodes a message as one line. "Messages are delimited by newlines, and MUST NOT contain
/// embedded newlines" (2026-07-28/basic/transports/stdio.mdx). JSON has newlines only as white
/// space between tokens, where a space means the same.
pub fn encode_line(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(message.len() + 1);
    let mut rest = message;
    while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(b" ");
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(b"\n");
    out.freeze()
}

/// Writes a message into a new buffer.
pub fn encode_with(size_hint: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::with_capacity(size_hint + 128);
    write(&mut out);
    out.freeze()
}

#[cfg(test)]
mod tests;
