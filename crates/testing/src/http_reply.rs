//! Whole responses.
//!
//! Reads a body to its end and finds JSON-RPC messages in it. Sends nothing. Invariant: the body is
//! kept as it came.

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::wait::within;

/// A whole response.
#[derive(Debug, Clone)]
pub struct HttpReply {
    /// Status code.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// Body, as it came.
    pub body: Bytes,
}

impl HttpReply {
    /// Reads a response to its end.
    pub async fn read(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = within("the body", body.collect()).await.unwrap().to_bytes();
        HttpReply {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
        }
    }

    /// Returns a header, or an empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map(|v| v.to_str().unwrap())
            .unwrap_or_default()
    }

    /// Returns the body as text.
    pub fn text_body(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    /// Returns all JSON-RPC messages. The body is one message or an event stream of them.
    pub fn messages(&self) -> Vec<Value> {
        if !self.header("content-type").starts_with("text/event-stream") {
            return vec![self.json()];
        }
        let text = self.text_body();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|json| !json.is_empty())
            .map(|json| serde_json::from_str(json).unwrap())
            .collect()
    }

    /// Returns the last message, which is the JSON-RPC response.
    pub fn answer(&self) -> Value {
        self.messages()
            .pop()
            .unwrap_or_else(|| panic!("no message in {:?}", self.body))
    }

    /// Returns the JSON-RPC result.
    pub fn result(&self) -> Value {
        let answer = self.answer();
        assert!(
            answer["result"].is_object(),
            "status {}: {answer}",
            self.status
        );
        answer["result"].clone()
    }

    /// Returns the JSON-RPC error.
    pub fn error(&self) -> Value {
        let answer = self.answer();
        assert!(
            answer["error"].is_object(),
            "status {}: {answer}",
            self.status
        );
        answer["error"].clone()
    }

    /// Returns the first text of a tool's result that isn't an error.
    pub fn text(&self) -> String {
        let result = self.result();
        assert_ne!(result["isError"], true, "{result}");
        result["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("no text: {result}"))
            .to_owned()
    }

    /// Returns the text of a tool's result that is an error, over HTTP 200.
    pub fn failure(&self) -> String {
        let result = self.result();
        assert_eq!(self.status, 200, "{result}");
        assert_eq!(result["isError"], json!(true), "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Returns the names of the items in a list.
    pub fn names(&self) -> Vec<String> {
        let result = self.result();
        let list = ["tools", "prompts", "resources", "resourceTemplates"]
            .into_iter()
            .find_map(|k| result[k].as_array());
        list.unwrap_or_else(|| panic!("no list in {result}"))
            .iter()
            .map(|item| item["name"].as_str().unwrap().to_owned())
            .collect()
    }
}
