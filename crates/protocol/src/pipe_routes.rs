//! Routes of a server's messages on a pipe: to a call, to the subscribers, or straight back.
//!
//! Owns the choice of requests that the gateway answers itself. Does not know which call a message
//! is about (`correlation.rs`). Invariant: a request that needs no client is answered by the task
//! that reads it. No call, client or subscriber delays that.

use std::sync::Arc;

use crate::PendingCalls;
use moongate_jsonrpc::json::JsonObject;
use moongate_jsonrpc::message::{
    RpcError, RpcMessage, RpcRequest, code, encode_with, write_error, write_result,
};
use moongate_model::InputKind;
use moongate_transport::{CorrelateFn, MessageRoute};

impl PendingCalls {
    /// Returns the function that routes messages on a pipe.
    pub fn correlate(&self) -> CorrelateFn {
        let calls = self.clone();
        Arc::new(move |message, is_awaited| match message {
            RpcMessage::Request(request) if request.method.as_str() == "ping" => {
                // 2025-11-25/basic/utilities/ping.mdx, Behavior Requirements: "The receiver MUST
                // respond promptly with an empty response".
                MessageRoute::Answer(encode_with(64, |out| {
                    write_result(out, &request.id, &JsonObject::new())
                }))
            }
            RpcMessage::Request(request)
                if InputKind::classify(&request.method, &request.params) == InputKind::Other =>
            {
                refuse(request)
            }
            RpcMessage::Request(request)
                if InputKind::classify(&request.method, &request.params)
                    == InputKind::Extension =>
            {
                match calls.find_call(message, is_awaited) {
                    Some(id) => MessageRoute::Call(id),
                    None if calls.extension_requests().has_client() => MessageRoute::Events,
                    None => refuse(request),
                }
            }
            other => calls
                .find_call(other, is_awaited)
                .map_or(MessageRoute::Events, MessageRoute::Call),
        })
    }
}

/// Refuses a request at once.
fn refuse(request: &RpcRequest) -> MessageRoute {
    let error = unsupported_request(request);
    MessageRoute::Answer(encode_with(128, |out| {
        write_error(out, Some(&request.id), &error)
    }))
}

/// Builds the error for a request that no client could answer.
pub(super) fn unsupported_request(request: &RpcRequest) -> RpcError {
    let message = format!("Method not found: {}", request.method);
    RpcError {
        code: code::METHOD_NOT_FOUND,
        message: message.into(),
        data: None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use futures_util::StreamExt;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::correlation::{CallEntry, LogInterest};
    use moongate_model::{Caller, ClientCapabilities};
    use moongate_telemetry::Metrics;
    use moongate_transport::rpc_pipe::{RpcPipe, RpcPipeSettings};
    use moongate_transport::{ByteBudget, HeaderList, Link, MessageStream, OutgoingMessage};

    fn route(calls: &PendingCalls, text: &'static str) -> MessageRoute {
        calls.correlate()(
            &RpcMessage::parse(&Bytes::from_static(text.as_bytes())).unwrap(),
            &|_| true,
        )
    }

    #[test]
    fn requests_that_need_no_server_are_answered_at_once() {
        let calls = PendingCalls::default();
        let caller = moongate_testing::caller(1, Some("a"));
        // With and without an open call.
        for _ in 0..2 {
            let MessageRoute::Answer(pong) =
                route(&calls, r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#)
            else {
                panic!()
            };
            assert_eq!(pong, r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
            let MessageRoute::Answer(unknown) =
                route(&calls, r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#)
            else {
                panic!()
            };
            let unknown = String::from_utf8_lossy(&unknown).into_owned();
            assert!(
                unknown.contains("-32601") && unknown.contains(r#""id":7"#),
                "{unknown}"
            );
            assert_eq!(
                route(
                    &calls,
                    r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#
                ),
                MessageRoute::Events
            );
            std::mem::forget(calls.open(
                &caller,
                crate::correlation::LogInterest::Never,
                Default::default(),
            ));
        }
        assert!(matches!(
            route(&calls, r#"{"jsonrpc":"2.0","id":8,"method":"roots/list"}"#),
            MessageRoute::Call(_) | MessageRoute::Events
        ));
    }

    /// Question that names no call.
    const ASK: &str = r#"{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}"#;

    /// Starts a pipe whose server writes to the returned end and reads nothing.
    fn pipe(calls: &PendingCalls) -> (RpcPipe, tokio::io::DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let settings = RpcPipeSettings {
            max_message: 64 * 1024,
            backlog: ByteBudget::new(1 << 20, "a", &Metrics::new()),
            correlate: calls.correlate(),
            on_garbage: Arc::new(|line| panic!("{}", String::from_utf8_lossy(line))),
            closed: "it was closed",
            explain: None,
        };
        (RpcPipe::start(ours, tokio::io::sink(), settings), theirs)
    }

    /// Opens a call of the one client.
    fn open(calls: &PendingCalls) -> CallEntry {
        let capabilities = ClientCapabilities {
            sample: true,
            ..ClientCapabilities::default()
        };
        let caller = Caller {
            capabilities,
            ..(*moongate_testing::caller(1, None)).clone()
        };
        calls.open(&caller, LogInterest::Never, Default::default())
    }

    async fn send(pipe: &RpcPipe, call: &CallEntry) -> MessageStream {
        let outgoing = OutgoingMessage {
            body: Bytes::from_static(b"{}"),
            id: Some(call.id),
            headers: HeaderList::new(),
        };
        Link::send(pipe, outgoing).await.unwrap().messages
    }

    /// Asserts that the next message of the call is the question.
    async fn assert_asked(call: &mut MessageStream) {
        let next = tokio::time::timeout(Duration::from_secs(20), call.next()).await;
        assert!(
            matches!(next, Ok(Some(Ok(RpcMessage::Request(_))))),
            "{next:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_input_request_reaches_no_call_that_is_not_sent_yet() {
        let calls = PendingCalls::default();
        let (pipe, mut server) = pipe(&calls);
        // Two calls of one client. The first one's task has not run yet.
        let first = open(&calls);
        let second = open(&calls);
        let mut sent = send(&pipe, &second).await;
        server
            .write_all(format!("{ASK}\n").as_bytes())
            .await
            .unwrap();
        assert_asked(&mut sent).await;
        drop(first);
    }

    #[tokio::test(start_paused = true)]
    async fn an_input_request_reaches_no_call_that_was_answered() {
        let calls = PendingCalls::default();
        let (pipe, mut server) = pipe(&calls);
        let first = open(&calls);
        let second = open(&calls);
        let _answered = send(&pipe, &first).await;
        let mut other = send(&pipe, &second).await;
        // The first call's task does not read its response before the question arrives.
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, first.id);
        server
            .write_all(format!("{answer}\n{ASK}\n").as_bytes())
            .await
            .unwrap();
        assert_asked(&mut other).await;
    }
}
