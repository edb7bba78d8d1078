//! JSON-RPC as the mock reads and writes it.
//!
//! Owns the shapes of messages and errors, and results that keep their members as written. Does not
//! know any method. Invariant: an id and a raw value leave exactly as they came.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

/// Message, or the error that it gets.
#[derive(Debug)]
pub(super) enum IncomingMessage {
    Request(WireRequest),
    Notification {
        method: String,
        params: Value,
    },
    Response {
        id: String,
        outcome: Result<Value, Value>,
    },
    Broken(RpcFailure),
}

/// Content of a body or line.
#[derive(Debug)]
pub(super) enum ParsedInput {
    One(IncomingMessage),
    Batch(Vec<IncomingMessage>),
}

/// Request with its id and params as written.
#[derive(Debug, Clone)]
pub(super) struct WireRequest {
    pub(super) id: String,
    pub(super) method: String,
    pub(super) params: Value,
    pub(super) raw: String,
}

impl WireRequest {
    /// Tool that a `tools/call` names.
    pub(super) fn tool(&self) -> Option<&str> {
        (self.method == "tools/call")
            .then(|| self.params["name"].as_str())
            .flatten()
    }

    /// Member of the params, as written.
    pub(super) fn raw_param(&self, key: &str) -> Option<String> {
        let all: std::collections::HashMap<String, Box<RawValue>> =
            serde_json::from_str(&self.raw).ok()?;
        all.get(key).map(|raw| raw.get().to_owned())
    }

    /// Reserved member of `params._meta`.
    pub(super) fn meta(&self, key: &str) -> &Value {
        &self.params["_meta"][key]
    }
}

// Ids and parameters stay raw, since a value would not keep `1.0` or the order of members.
#[derive(Deserialize)]
struct MessageShape {
    jsonrpc: Option<String>,
    id: Option<Box<RawValue>>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
    result: Option<Value>,
    error: Option<Value>,
}

/// Parses one body or line.
pub(super) fn parse(bytes: &[u8]) -> ParsedInput {
    match bytes.iter().find(|b| !b.is_ascii_whitespace()) {
        Some(b'[') => match serde_json::from_slice::<Vec<Box<RawValue>>>(bytes) {
            // JSON-RPC 2.0, section 6: an empty array is one invalid request, and no batch.
            Ok(all) if all.is_empty() => ParsedInput::One(IncomingMessage::Broken(
                RpcFailure::new(-32600, "Invalid Request: empty batch"),
            )),
            Ok(all) => ParsedInput::Batch(all.iter().map(|one| read(one.get())).collect()),
            Err(e) => unparsable(&e),
        },
        _ => match serde_json::from_slice::<Box<RawValue>>(bytes) {
            Ok(one) => ParsedInput::One(read(one.get())),
            Err(e) => unparsable(&e),
        },
    }
}

fn unparsable(error: &serde_json::Error) -> ParsedInput {
    ParsedInput::One(IncomingMessage::Broken(RpcFailure::new(
        -32700,
        format!("Parse error: {error}"),
    )))
}

fn read(text: &str) -> IncomingMessage {
    let shape: MessageShape = match serde_json::from_str(text) {
        Ok(shape) => shape,
        Err(e) => return invalid(&e.to_string()),
    };
    if shape.jsonrpc.as_deref() != Some("2.0") {
        return invalid("`jsonrpc` must be \"2.0\"");
    }
    // "Requests MUST include a string or integer ID. Unlike base JSON-RPC, the ID MUST NOT be
    // `null`" (basic/index).
    let id = shape.id.map(|raw| raw.get().to_owned());
    if id.as_deref().is_some_and(|id| {
        !id.starts_with(['"', '-']) && !id.starts_with(|c: char| c.is_ascii_digit())
    }) {
        return invalid("`id` must be a string or a number");
    }
    let raw = shape
        .params
        .map_or_else(|| "{}".to_owned(), |raw| raw.get().to_owned());
    // A value besides the raw text: most methods look members up, and few need them as written.
    let params: Value = serde_json::from_str(&raw).unwrap_or_default();
    match (shape.method, id) {
        (Some(_), _) if !params.is_object() => invalid("`params` must be an object"),
        (Some(method), Some(id)) => IncomingMessage::Request(WireRequest {
            id,
            method,
            params,
            raw,
        }),
        (Some(method), None) => IncomingMessage::Notification { method, params },
        (None, Some(id)) => match (shape.result, shape.error) {
            (Some(result), None) => IncomingMessage::Response {
                id,
                outcome: Ok(result),
            },
            (None, Some(error)) => IncomingMessage::Response {
                id,
                outcome: Err(error),
            },
            _ => invalid("a response has either `result` or `error`"),
        },
        (None, None) => invalid("neither `method` nor `id`"),
    }
}

fn invalid(why: &str) -> IncomingMessage {
    IncomingMessage::Broken(RpcFailure::new(-32600, format!("Invalid Request: {why}")))
}

/// JSON-RPC error with its HTTP status, where the revision asks for one.
#[derive(Debug, Clone)]
pub(super) struct RpcFailure {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Option<Value>,
    pub(super) status: u16,
}

impl RpcFailure {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
            status: 200,
        }
    }

    pub(super) fn params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    pub(super) fn data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    pub(super) fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Encodes the response. `id` is null if the request's could not be read.
    pub(super) fn response(&self, id: Option<&str>) -> String {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        // Not by `json!`: the id has to leave as it was written, 1.0 or 1e3 too.
        format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#,
            id.unwrap_or("null")
        )
    }
}

/// Result: its members in order, each as JSON text.
#[derive(Debug, Clone, Default)]
pub(super) struct ResultBody(Vec<(String, String)>);

impl ResultBody {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Takes the members of an object as written. `None` if the text isn't an object.
    pub(super) fn verbatim(text: &str) -> Option<Self> {
        // The map of values has the order of the members, the map of raw texts has their bytes.
        let all: serde_json::Map<String, Value> = serde_json::from_str(text).ok()?;
        let mut raw: std::collections::HashMap<String, Box<RawValue>> =
            serde_json::from_str(text).ok()?;
        Some(Self(
            all.into_iter()
                .filter_map(|(k, _)| raw.remove(&k).map(|v| (k, v.get().to_owned())))
                .collect(),
        ))
    }

    pub(super) fn put(self, key: &str, value: &Value) -> Self {
        self.raw(key, value.to_string())
    }

    pub(super) fn raw(mut self, key: &str, text: String) -> Self {
        // A member that is set twice would be there twice, and clients differ in which one they
        // read.
        self.0.retain(|(k, _)| k != key);
        self.0.push((key.to_owned(), text));
        self
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(k, _)| k == key)
    }

    pub(super) fn get(&self, key: &str) -> Option<Value> {
        self.0
            .iter()
            .find(|(k, _)| k == key)
            .and_then(|(_, v)| serde_json::from_str(v).ok())
    }

    pub(super) fn text(&self) -> String {
        let members: Vec<String> = self
            .0
            .iter()
            .map(|(k, v)| format!("{}:{v}", Value::from(k.as_str())))
            .collect();
        format!("{{{}}}", members.join(","))
    }

    pub(super) fn response(&self, id: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, self.text())
    }
}

pub(super) fn notification(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

pub(super) fn request(id: &str, method: &str, params: &Value) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":{},"params":{params}}}"#,
        Value::from(method)
    )
}
