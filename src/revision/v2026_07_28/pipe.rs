//! Requests of this revision on a pipe (basic/transports/stdio.mdx).
//!
//! Owns which of them are open, so that they can be taken back. Reading and answering are those of `front`, without
//! headers. Invariant: a request that was taken back says nothing more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::json::Text;
use crate::jsonrpc::{Id, Request, line};
use crate::model::{Error, Principal, Reason, Server};
use crate::revision::v2026_07_28::front::{self, Begun, Sender};
use crate::revision::v2026_07_28::spell;
use crate::revision::{FrontState, answer};

/// Requests that may be open on one pipe.
const OPEN_MAX: usize = 1000;

/// The open requests of one pipe.
#[derive(Clone, Default)]
pub(in crate::revision) struct OpenRequests {
    open: Arc<Mutex<Vec<(Id, CancellationToken)>>>,
    /// Ends the streams of news.
    listening: CancellationToken,
}

impl OpenRequests {
    /// Whether a request is one of this revision.
    pub(in crate::revision) fn claims(request: &Request) -> bool {
        front::says_its_version(request)
    }

    /// Begins a request; gives its answer if that is known at once. What is not goes to `out`, from a task of `tasks`.
    pub(in crate::revision) fn begin(
        &self,
        request: Request,
        (principal, scope): (Arc<Principal>, Text),
        server: &Arc<dyn Server>,
        state: &Arc<FrontState>,
        (out, tasks): (&mpsc::Sender<Bytes>, &TaskTracker),
    ) -> Option<Vec<Bytes>> {
        let id = request.id.clone();
        let checked = front::check(request, None, Sender { principal, scope }, Instant::now(), state);
        let checked = match checked {
            Ok(checked) => checked,
            Err(error) => return Some(vec![spell::failure(Some(&id), &error)]),
        };
        let Some(entry) = self.enter(&id) else {
            state.metrics.refused.with_label_values(&["session_calls"]).inc();
            let error = Error::new(Reason::Overloaded, "Too many requests are open on this pipe; wait for some to end");
            return Some(vec![spell::failure(Some(&id), &error)]);
        };
        let out = out.clone();
        match front::begin(checked, server, state, line) {
            Begun::Now(_, parts) => return Some(parts),
            Begun::Running(exchange, spell) => {
                // Where it is taken back, the exchange goes with the future, which is what cancels it.
                let run =
                    async move { entry.token.clone().run_until_cancelled(answer::pour(exchange, spell, out)).await };
                tasks.spawn(run);
            }
            Begun::Listening(mut open) => {
                let listening = self.listening.clone();
                tasks.spawn(async move {
                    let pass = async {
                        while let Some(message) = open.message().await {
                            if out.send(line(&message)).await.is_err() {
                                return;
                            }
                        }
                    };
                    tokio::select! {
                        () = entry.token.cancelled() => {}
                        () = listening.cancelled() => {}
                        () = pass => {}
                    }
                });
            }
        }
        None
    }

    /// "To cancel an in-flight request, the client MUST send a `notifications/cancelled` notification referencing the
    /// request's ID." False: none is open under this id, or several are.
    pub(in crate::revision) fn cancel(&self, id: &Id) -> bool {
        let open = self.lock();
        let mut named = open.iter().filter(|(other, _)| other == id);
        match (named.next(), named.next()) {
            (Some((_, token)), None) => {
                token.cancel();
                true
            }
            _ => false,
        }
    }

    /// Ends the streams of news: nobody listens any more.
    pub(in crate::revision) fn end_listening(&self) {
        self.listening.cancel();
    }

    /// Ends everything.
    pub(in crate::revision) fn end(&self) {
        self.end_listening();
        for (_, token) in self.lock().iter() {
            token.cancel();
        }
    }

    fn enter(&self, id: &Id) -> Option<Entry> {
        let mut open = self.lock();
        let token = CancellationToken::new();
        (open.len() < OPEN_MAX).then(|| {
            open.push((Id::from_raw(id.raw().detached()).unwrap_or_else(|| id.clone()), token.clone()));
            Entry { requests: self.clone(), token }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Id, CancellationToken)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open request.
struct Entry {
    requests: OpenRequests,
    token: CancellationToken,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut open = self.requests.lock();
        // The token tells apart two requests of the same id; cancelling this one is how it is found.
        self.token.cancel();
        if let Some(at) = open.iter().position(|(_, token)| token.is_cancelled()) {
            open.swap_remove(at);
        }
    }
}
