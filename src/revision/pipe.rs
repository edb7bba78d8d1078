//! A client at the other end of a pipe: both eras, as each of its messages says.
//!
//! Owns which message is whose, and the end of it all. Does not read or write the pipe. Invariant: what is answered at
//! once has its place among what goes out before it is begun, so that a client that does not read is not answered for
//! ever more requests.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::json::Text;
use crate::jsonrpc::{Id, Malformed, Message, Notification, Payload, Request, line};
use crate::model::{Error, Principal, Reason, Server};
use crate::revision::{FrontState, legacy, malformed, v2026_07_28};

/// A client on a pipe.
pub struct PipeClient {
    server: Arc<dyn Server>,
    principal: Arc<Principal>,
    scope: Text,
    state: Arc<FrontState>,
    out: mpsc::Sender<Bytes>,
    /// 2026-07-28/basic/versioning.mdx: "An `initialize` request selects legacy semantics, scoped to the stdio process".
    session: Option<legacy::PipeSession>,
    requests: v2026_07_28::OpenRequests,
    tasks: TaskTracker,
}

/// Nobody reads what is said.
#[derive(Debug)]
pub struct Gone;

type Place = mpsc::OwnedPermit<Bytes>;

impl PipeClient {
    /// A client that has not said anything yet; what is said to it goes to `out`, a line each.
    pub fn new(
        server: Arc<dyn Server>,
        principal: Arc<Principal>,
        scope: Text,
        state: Arc<FrontState>,
        out: mpsc::Sender<Bytes>,
    ) -> Self {
        let (requests, tasks) = (v2026_07_28::OpenRequests::default(), TaskTracker::new());
        PipeClient { server, principal, scope, state, out, session: None, requests, tasks }
    }

    /// Answers what comes from now on with another server.
    pub fn use_server(&mut self, server: Arc<dyn Server>) {
        if let Some(session) = &mut self.session {
            session.use_server(server.clone());
        }
        self.server = server;
    }

    /// Takes what one line said. Waits while the client does not read.
    pub async fn take(&mut self, payload: Result<Payload, Malformed>) -> Result<(), Gone> {
        match payload {
            Ok(Payload::One(Message::Notification(notification))) => self.notified(notification),
            Ok(Payload::One(Message::Response(response))) => match &self.session {
                Some(session) => session.other(Message::Response(response)),
                None => self.state.metrics.dropped.with_label_values(&["client_answer"]).inc(),
            },
            Ok(Payload::One(Message::Request(request))) => {
                let place = self.place().await?;
                self.request(request, place);
            }
            Ok(Payload::Batch(items)) => {
                let place = self.place().await?;
                self.batch(items, place);
            }
            Err(e) => {
                let (id, error) = malformed(&e);
                self.refuse(id.as_ref(), &error).await?;
            }
        }
        Ok(())
    }

    /// Refuses what was no message.
    pub async fn refuse(&self, id: Option<&Id>, error: &Error) -> Result<(), Gone> {
        say(self.place().await?, &[legacy::refusal(id, error)]);
        Ok(())
    }

    /// Counts what was refused for its size.
    pub fn count_too_large(&self) {
        self.state.metrics.refused.with_label_values(&["body"]).inc();
    }

    /// Ends the streams that a client listens on: it says nothing more, and will not hear.
    pub fn end_listening(&self) {
        self.requests.end_listening();
    }

    /// Waits until everything was answered.
    pub async fn idle(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn place(&self) -> Result<Place, Gone> {
        self.out.clone().reserve_owned().await.map_err(|_| Gone)
    }

    fn who(&self) -> (Arc<Principal>, Text) {
        (self.principal.clone(), self.scope.clone())
    }

    fn request(&mut self, request: Request, place: Place) {
        let answer = if v2026_07_28::OpenRequests::claims(&request) {
            let (who, out) = (self.who(), (&self.out, &self.tasks));
            self.requests.begin(request, who, &self.server, &self.state, out)
        } else {
            match &self.session {
                Some(session) => session.request(request, &self.tasks),
                None if &*request.method == "initialize" => return self.initialize(&request, place),
                None => Some(legacy::early(&request)),
            }
        };
        if let Some(parts) = answer {
            say(place, &parts);
        }
    }

    fn initialize(&mut self, request: &Request, place: Place) {
        let who = self.who();
        match legacy::PipeSession::open(request, who, &self.server, &self.state, &self.out) {
            Ok((session, introduction)) => {
                say(place, &introduction);
                session.speak();
                self.session = Some(session);
            }
            Err(error) => say(place, &[legacy::refusal(Some(&request.id), &error)]),
        }
    }

    fn notified(&self, notification: Notification) {
        if &*notification.method == "notifications/cancelled" {
            let id = notification.params.get("requestId").and_then(|raw| Id::from_raw(raw.clone()));
            if id.is_some_and(|id| self.requests.cancel(&id)) {
                return self.state.metrics.cancelled.inc();
            }
        }
        // Whatever else a stateless client tells is for nobody that we know.
        if let Some(session) = &self.session {
            session.other(Message::Notification(notification));
        }
    }

    fn batch(&self, items: Vec<Result<Message, Malformed>>, place: Place) {
        let early = || Error::new(Reason::InvalidRequest, "Invalid request: a client starts with a single initialize");
        let begun = match &self.session {
            Some(session) => session.batch(items, &self.tasks),
            None => Err(early()),
        };
        if let Err(error) = begun {
            say(place, &[legacy::refusal(None, &error)]);
        }
    }
}

impl Drop for PipeClient {
    fn drop(&mut self) {
        // The session ends with its part of this.
        self.requests.end();
    }
}

/// Says something that is known.
fn say(place: Place, parts: &[Bytes]) {
    place.send(line(&parts.concat()));
}
