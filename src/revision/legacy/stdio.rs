//! A session on a pipe: it begins with `initialize`, ends with the pipe, and everything it says goes out there.
//!
//! Owns the session's life. Calls are in `call`, what belongs to none is in `stream`. Invariant: a pipe has one
//! session.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::json::ByteString;
use crate::jsonrpc::{MalformedMessage, RequestId, RpcMessage, RpcRequest, encode_line};
use crate::model::{Error, McpErrorKind, Principal, Server};
use crate::revision::legacy::request::{LegacyStarted, SessionRequest, collect_array};
use crate::revision::legacy::{downstream, encode, get_stream};
use crate::revision::{DownstreamState, respond};
use crate::session::{Session, SharedStream};

/// The session of a pipe.
pub(in crate::revision) struct StdioSession {
    session: Arc<Session>,
    server: Arc<dyn Server>,
    state: Arc<DownstreamState>,
    out: mpsc::Sender<Bytes>,
    headers: HeaderMap,
}

impl StdioSession {
    /// Opens the session; gives the answer to `initialize`, too.
    pub(in crate::revision) fn open(
        request: &RpcRequest,
        (principal, scope): (Arc<Principal>, ByteString),
        server: &Arc<dyn Server>,
        state: &Arc<DownstreamState>,
        out: &mpsc::Sender<Bytes>,
    ) -> Result<(Self, Vec<Bytes>), Error> {
        let headers = HeaderMap::new();
        let caller = downstream::read_caller(&request.params, &headers, principal, state)?;
        let pipe = SharedStream { out: out.clone(), frame: encode_line };
        let opened = state.sessions.open(caller, scope, Some(pipe));
        downstream::count_initialize(state, opened.as_ref().err(), &request.params, Instant::now());
        let session = opened?;
        let introduction = downstream::initialize_result(request, &session, server);
        let (server, state, out) = (server.clone(), state.clone(), out.clone());
        Ok((StdioSession { session, server, state, out, headers }, introduction))
    }

    /// Answers requests from now on with another server.
    pub(in crate::revision) fn replace_server(&mut self, server: Arc<dyn Server>) {
        self.server = server;
    }

    /// Passes on what the session has to say beside its calls; only once its client has been introduced.
    pub(in crate::revision) fn start_stream(&self) {
        let (session, out) = (&self.session, self.out.clone());
        let mut open =
            get_stream::GetStream::new(session, &self.server, &self.state, session.open_stream(), Bytes::new());
        tokio::spawn(async move {
            while let Some(message) = open.next_message().await {
                if out.send(encode_line(&message)).await.is_err() {
                    return;
                }
            }
        });
    }

    /// A request; gives its answer if that is known at once. What is not goes out from a task of `tasks`.
    pub(in crate::revision) fn request(&self, request: RpcRequest, tasks: &TaskTracker) -> Option<Vec<Bytes>> {
        match self.session_request().start(request, true) {
            LegacyStarted::Ready(parts) => return Some(parts),
            LegacyStarted::Running(exchange, spell) => {
                tasks.spawn(respond::forward(exchange, *spell, self.out.clone()));
            }
        }
        None
    }

    /// Several messages; what is to be answered is answered by one array.
    pub(in crate::revision) fn batch(
        &self,
        items: Vec<Result<RpcMessage, MalformedMessage>>,
        tasks: &TaskTracker,
    ) -> Result<(), Error> {
        if let Some(answers) = self.session_request().start_batch(items)? {
            let out = self.out.clone();
            tasks.spawn(async move {
                let answers = collect_array(answers).await;
                // Where nobody reads any more, nobody is missing them.
                let _ = out.send(encode_line(&answers.concat())).await;
            });
        }
        Ok(())
    }

    /// A notification or an answer.
    pub(in crate::revision) fn accept(&self, message: RpcMessage) {
        self.session_request().accept(message);
    }

    fn session_request(&self) -> SessionRequest<'_> {
        SessionRequest {
            session: self.session.clone(),
            server: self.server.clone(),
            received: Instant::now(),
            stream: true,
            headers: &self.headers,
            state: &self.state,
        }
    }
}

impl Drop for StdioSession {
    fn drop(&mut self) {
        self.state.sessions.close(&self.session);
    }
}

/// What is said without a session: errors, and the answer to a ping.
pub(in crate::revision) fn answer_before_initialize(request: &RpcRequest) -> Vec<Bytes> {
    // 2025-11-25/basic/lifecycle.mdx, Initialization: "The client SHOULD NOT send requests other than pings before the
    // server has responded to the `initialize` request."
    if &*request.method == "ping" {
        return encode::encode_result(&request.id, &crate::json::JsonObject::new());
    }
    let message = "Invalid request: a client starts with initialize, or says its revision in _meta";
    vec![encode_refusal(Some(&request.id), &Error::new(McpErrorKind::InvalidRequest, message))]
}

/// An error in the spelling that every client understands.
pub(in crate::revision) fn encode_refusal(id: Option<&RequestId>, error: &Error) -> Bytes {
    encode::encode_error(id, error)
}
