//! Whole answers to one request, judged.
//!
//! Holds all messages of an answer, and finds the response among them. Reads no stream itself.
//! Invariant: an answer has one response, which comes last and has the id of the request, byte for
//! byte.

use http::HeaderMap;
use serde_json::Value;

use crate::RpcMessage;

/// A whole answer.
pub struct RpcAnswer {
    /// Status code.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// Whole body, as it came.
    pub bytes: Vec<u8>,
    /// All messages in it.
    pub messages: Vec<RpcMessage>,
    /// Id of the request, as JSON text.
    pub id: String,
}

impl std::fmt::Debug for RpcAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {}",
            self.status,
            String::from_utf8_lossy(&self.bytes)
        )
    }
}

impl RpcAnswer {
    /// Returns the response, and checks that it is the only one and the last message.
    pub fn end(&self) -> &RpcMessage {
        let responses = self.messages.iter().filter(|m| m.is_response()).count();
        assert_eq!(responses, 1, "there must be one response: {self:?}");
        let end = self.messages.last().unwrap();
        assert!(end.is_response(), "the response must come last: {self:?}");
        assert_eq!(
            end.member("id").as_deref(),
            Some(self.id.as_str()),
            "another id: {self:?}"
        );
        assert_eq!(end.value["jsonrpc"], "2.0");
        end
    }

    /// Returns the result.
    pub fn result(&self) -> &Value {
        let end = self.end();
        assert!(end.value["error"].is_null(), "an error: {}", end.raw);
        assert!(end.value["result"].is_object(), "no result: {}", end.raw);
        assert_eq!(self.status, 200, "{}", end.raw);
        &end.value["result"]
    }

    /// Returns the error.
    pub fn error(&self) -> &Value {
        let end = self.end();
        assert!(end.value["result"].is_null(), "a result: {}", end.raw);
        assert!(
            end.value["error"]["message"]
                .as_str()
                .is_some_and(|m| !m.is_empty()),
            "no message: {}",
            end.raw
        );
        &end.value["error"]
    }

    /// Returns the code of the error.
    pub fn code(&self) -> i64 {
        self.error()["code"].as_i64().unwrap()
    }

    /// Returns the text of a tool's first content block.
    pub fn text(&self) -> &str {
        self.result()["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("no text: {}", self.end().raw))
    }

    /// Returns the result, as it was written.
    pub fn raw_result(&self) -> String {
        self.end()
            .member("result")
            .unwrap_or_else(|| panic!("no result: {}", self.end().raw))
    }

    /// Lists the messages with this method.
    pub fn of(&self, method: &str) -> Vec<&RpcMessage> {
        self.messages
            .iter()
            .filter(|m| m.method() == method)
            .collect()
    }
}
