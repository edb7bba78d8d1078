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

use crate::json::Text;
use crate::jsonrpc::{Id, Malformed, Message, Request, line};
use crate::model::{Error, Principal, Reason, Server};
use crate::revision::legacy::call::{Started, Turn, array};
use crate::revision::legacy::{front, spell, stream};
use crate::revision::{FrontState, answer};
use crate::session::{Pipe, Session};

/// The session of a pipe.
pub(in crate::revision) struct PipeSession {
    session: Arc<Session>,
    server: Arc<dyn Server>,
    state: Arc<FrontState>,
    out: mpsc::Sender<Bytes>,
    headers: HeaderMap,
}

impl PipeSession {
    /// Opens the session; gives the answer to `initialize`, too.
    pub(in crate::revision) fn open(
        request: &Request,
        (principal, scope): (Arc<Principal>, Text),
        server: &Arc<dyn Server>,
        state: &Arc<FrontState>,
        out: &mpsc::Sender<Bytes>,
    ) -> Result<(Self, Vec<Bytes>), Error> {
        let headers = HeaderMap::new();
        let caller = front::caller(&request.params, &headers, principal, state)?;
        let pipe = Pipe { out: out.clone(), frame: line };
        let opened = state.sessions.open(caller, scope, Some(pipe));
        front::count_initialize(state, opened.as_ref().err(), &request.params, Instant::now());
        let session = opened?;
        let introduction = front::introduction(request, &session, server);
        let (server, state, out) = (server.clone(), state.clone(), out.clone());
        Ok((PipeSession { session, server, state, out, headers }, introduction))
    }

    /// Answers requests from now on with another server.
    pub(in crate::revision) fn use_server(&mut self, server: Arc<dyn Server>) {
        self.server = server;
    }

    /// Passes on what the session has to say beside its calls; only once its client has been introduced.
    pub(in crate::revision) fn speak(&self) {
        let (session, out) = (&self.session, self.out.clone());
        let mut open = stream::Open::new(session, &self.server, &self.state, session.open_stream(), Bytes::new());
        tokio::spawn(async move {
            while let Some(message) = open.message().await {
                if out.send(line(&message)).await.is_err() {
                    return;
                }
            }
        });
    }

    /// A request; gives its answer if that is known at once. What is not goes out from a task of `tasks`.
    pub(in crate::revision) fn request(&self, request: Request, tasks: &TaskTracker) -> Option<Vec<Bytes>> {
        match self.turn().start(request, true) {
            Started::Now(parts) => return Some(parts),
            Started::Running(exchange, spell) => {
                tasks.spawn(answer::pour(exchange, *spell, self.out.clone()));
            }
        }
        None
    }

    /// Several messages; what is to be answered is answered by one array.
    pub(in crate::revision) fn batch(
        &self,
        items: Vec<Result<Message, Malformed>>,
        tasks: &TaskTracker,
    ) -> Result<(), Error> {
        if let Some(answers) = self.turn().start_batch(items)? {
            let out = self.out.clone();
            tasks.spawn(async move {
                let answers = array(answers).await;
                // Where nobody reads any more, nobody is missing them.
                let _ = out.send(line(&answers.concat())).await;
            });
        }
        Ok(())
    }

    /// A notification or an answer.
    pub(in crate::revision) fn other(&self, message: Message) {
        self.turn().other(message);
    }

    fn turn(&self) -> Turn<'_> {
        Turn {
            session: self.session.clone(),
            server: self.server.clone(),
            received: Instant::now(),
            stream: true,
            headers: &self.headers,
            state: &self.state,
        }
    }
}

impl Drop for PipeSession {
    fn drop(&mut self) {
        self.state.sessions.close(&self.session);
    }
}

/// What is said without a session: errors, and the answer to a ping.
pub(in crate::revision) fn early(request: &Request) -> Vec<Bytes> {
    // 2025-11-25/basic/lifecycle.mdx, Initialization: "The client SHOULD NOT send requests other than pings before the
    // server has responded to the `initialize` request."
    if &*request.method == "ping" {
        return spell::result(&request.id, &crate::json::Object::new());
    }
    let message = "Invalid request: a client starts with initialize, or says its revision in _meta";
    vec![refusal(Some(&request.id), &Error::new(Reason::InvalidRequest, message))]
}

/// An error in the spelling that every client understands.
pub(in crate::revision) fn refusal(id: Option<&Id>, error: &Error) -> Bytes {
    spell::failure(id, error)
}
