//! Session on a pipe: it starts with `initialize`, ends with the pipe, and all its messages go
//! there.
//!
//! Owns the session's lifetime. Does not run calls (`session_request.rs`) or write messages outside
//! of calls (`get_stream.rs`). Invariant: a pipe has one session.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::dialect::DownstreamState;
use crate::legacy::downstream::session_request::{LegacyStarted, SessionRequest, collect_array};
use crate::legacy::downstream::{encode, get_stream, initialize};
use crate::respond;
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::{MalformedMessage, RequestId, RpcMessage, RpcRequest, encode_line};
use moongate_model::{Error, McpErrorKind, McpServer, Principal};
use moongate_session::{Session, SharedStream};

/// Session of a pipe.
pub(crate) struct StdioSession {
    session: Arc<Session>,
    endpoint: Arc<dyn McpServer>,
    state: Arc<DownstreamState>,
    out: mpsc::Sender<Bytes>,
    headers: HeaderMap,
}

impl StdioSession {
    /// Opens the session. Returns the response to `initialize`, too.
    pub(crate) fn open(
        request: &RpcRequest,
        (principal, scope): (Arc<Principal>, ByteString),
        endpoint: &Arc<dyn McpServer>,
        state: &Arc<DownstreamState>,
        out: &mpsc::Sender<Bytes>,
    ) -> Result<(Self, Vec<Bytes>), Error> {
        // A pipe has no headers, so none can be forwarded to servers.
        let headers = HeaderMap::new();
        let caller = initialize::read_caller(&request.params, &headers, principal, state)?;
        // The pipe is the session's only stream: responses and notifications share it.
        let shared_stream = SharedStream {
            out: out.clone(),
            frame: encode_line,
        };
        let opened = state.sessions.open(caller, scope, Some(shared_stream));
        initialize::count_initialize(
            state,
            opened.as_ref().err(),
            &request.params,
            Instant::now(),
        );
        // Counted before it fails: a refused `initialize` is in the metrics, too.
        let session = opened?;
        let response = initialize::initialize_result(request, &session, endpoint);
        let endpoint = endpoint.clone();
        let state = state.clone();
        let out = out.clone();
        Ok((
            StdioSession {
                session,
                endpoint,
                state,
                out,
                headers,
            },
            response,
        ))
    }

    /// Replaces the server for all later requests.
    pub(crate) fn replace_endpoint(&mut self, endpoint: Arc<dyn McpServer>) {
        self.endpoint = endpoint;
    }

    /// Starts to forward messages outside of calls. Called once the client has the `initialize`
    /// response.
    pub(crate) fn start_stream(&self) {
        let session = &self.session;
        let out = self.out.clone();
        let mut open = get_stream::GetStream::new(
            session,
            &self.endpoint,
            &self.state,
            session.open_stream(),
            Bytes::new(),
        );
        tokio::spawn(async move {
            while let Some(message) = open.next_message().await {
                if out.send(encode_line(&message)).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Starts a request. Returns an immediate response; later ones go out from a task of `tasks`.
    pub(crate) fn request(&self, request: RpcRequest, tasks: &TaskTracker) -> Option<Vec<Bytes>> {
        match self.session_request().start(request, true) {
            LegacyStarted::Ready(parts) => return Some(parts),
            LegacyStarted::Running(exchange, encoder) => {
                tasks.spawn(respond::forward(exchange, *encoder, self.out.clone()));
            }
        }
        None
    }

    /// Starts a batch. Its responses go out as one array.
    pub(crate) fn batch(
        &self,
        items: Vec<Result<RpcMessage, MalformedMessage>>,
        tasks: &TaskTracker,
    ) -> Result<(), Error> {
        if let Some(answers) = self.session_request().start_batch(items)? {
            let out = self.out.clone();
            tasks.spawn(async move {
                let answers = collect_array(answers).await;
                // A client that is gone needs no response.
                let _ = out.send(encode_line(&answers.concat())).await;
            });
        }
        Ok(())
    }

    /// Accepts a notification or a response.
    pub(crate) fn accept(&self, message: RpcMessage) {
        self.session_request().accept(message);
    }

    fn session_request(&self) -> SessionRequest<'_> {
        SessionRequest {
            session: self.session.clone(),
            endpoint: self.endpoint.clone(),
            received: Instant::now(),
            stream: true,
            headers: &self.headers,
            state: &self.state,
        }
    }
}

impl Drop for StdioSession {
    fn drop(&mut self) {
        // The client cannot come back to a pipe that has ended, so nothing is kept for it.
        self.state.sessions.close(&self.session);
    }
}

/// Encodes the response to a request without a session: an error, or the result of a ping.
pub(crate) fn answer_before_initialize(request: &RpcRequest) -> Vec<Bytes> {
    // 2025-11-25/basic/lifecycle.mdx, Initialization: "The client SHOULD NOT send requests other
    // than pings before the server has responded to the `initialize` request."
    if &*request.method == "ping" {
        return encode::encode_result(&request.id, &moongate_jsonrpc::json::JsonObject::new());
    }
    let message = "Invalid request: a client starts with initialize, or says its revision in _meta";
    vec![encode_refusal(
        Some(&request.id),
        &Error::new(McpErrorKind::InvalidRequest, message),
    )]
}

/// Encodes an error in the wire form that every client understands.
pub(crate) fn encode_refusal(id: Option<&RequestId>, error: &Error) -> Bytes {
    encode::encode_error(id, error)
}
