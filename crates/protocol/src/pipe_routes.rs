//! Routes of a server's messages on a pipe: to a call, to the subscribers, or straight back.
//!
//! Owns the choice of requests that the gateway answers itself. Does not know which call a message is about
//! (`correlation.rs`). Invariant: a request that needs no client is answered by the task that reads it. No call, client
//! or subscriber delays that.

use std::sync::Arc;

use crate::PendingCalls;
use moongate_jsonrpc::json::JsonObject;
use moongate_jsonrpc::message::{RpcError, RpcMessage, RpcRequest, code, encode_with, write_error, write_result};
use moongate_model::InputKind;
use moongate_transport::{CorrelateFn, MessageRoute};

impl PendingCalls {
    /// Returns the function that routes messages on a pipe.
    pub fn correlate(&self) -> CorrelateFn {
        let calls = self.clone();
        Arc::new(move |message| match message {
            RpcMessage::Request(request) if request.method.as_str() == "ping" => {
                // 2025-11-25/basic/utilities/ping.mdx, Behavior Requirements: "The receiver MUST respond promptly with an
                // empty response".
                MessageRoute::Answer(encode_with(64, |out| write_result(out, &request.id, &JsonObject::new())))
            }
            RpcMessage::Request(request)
                if InputKind::classify(&request.method, &request.params) == InputKind::Other =>
            {
                let error = unsupported_request(request);
                MessageRoute::Answer(encode_with(128, |out| write_error(out, Some(&request.id), &error)))
            }
            other => calls.find_call(other).map_or(MessageRoute::Events, MessageRoute::Call),
        })
    }
}

/// Builds the error for a request that no client could answer.
pub(super) fn unsupported_request(request: &RpcRequest) -> RpcError {
    let message = format!("Method not found: {}", request.method);
    RpcError { code: code::METHOD_NOT_FOUND, message: message.into(), data: None }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn route(calls: &PendingCalls, text: &'static str) -> MessageRoute {
        calls.correlate()(&RpcMessage::parse(&Bytes::from_static(text.as_bytes())).unwrap())
    }

    #[test]
    fn requests_that_need_no_server_are_answered_at_once() {
        let calls = PendingCalls::default();
        let caller = moongate_testing::caller(1, Some("a"));
        // With and without an open call.
        for _ in 0..2 {
            let MessageRoute::Answer(pong) = route(&calls, r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#) else {
                panic!()
            };
            assert_eq!(pong, r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
            let MessageRoute::Answer(unknown) = route(&calls, r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#)
            else {
                panic!()
            };
            let unknown = String::from_utf8_lossy(&unknown).into_owned();
            assert!(unknown.contains("-32601") && unknown.contains(r#""id":7"#), "{unknown}");
            assert_eq!(
                route(&calls, r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#),
                MessageRoute::Events
            );
            std::mem::forget(calls.open(&caller, crate::correlation::LogInterest::Never, Default::default()));
        }
        assert!(matches!(
            route(&calls, r#"{"jsonrpc":"2.0","id":8,"method":"roots/list"}"#),
            MessageRoute::Call(_) | MessageRoute::Events
        ));
    }
}
