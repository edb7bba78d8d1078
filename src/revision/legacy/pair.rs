//! The client side of HTTP+SSE, the HTTP transport of 2024-11-05: one event stream, and POSTs that belong to it.
//!
//! Owns the stream's opening and the POSTs. What a session says beside its calls is in `stream`, calls are in `call`.
//! Invariant: the session begins and ends with its stream, and takes messages only from the principal and on the
//! endpoint that opened that.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method as Verb, Response, header};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::json::Raw;
use crate::jsonrpc::{Id, Message, Payload, Request};
use crate::model::{Caller, Can, Error, Reason, Server};
use crate::revision::legacy::call::{Started, Turn, array};
use crate::revision::legacy::front::{self, Refusal};
use crate::revision::legacy::{spell, stream};
use crate::revision::{Front, FrontState, Head, Inbound, Peek, answer, json_response, malformed};
use crate::session::{Pipe, Session, Sessions};
use crate::sse;

/// Events that wait for a client to read them; whoever has more to say waits with it.
const EVENTS: usize = 64;
/// Longest time for a POST to wait for a place among them.
const PLACE_TIME: Duration = Duration::from_secs(10);
/// Longest time between opening the stream and `initialize`.
const INITIALIZE_TIME: Duration = Duration::from_secs(30);
/// What names the session in the address for messages.
const SESSION: &str = "sessionId";

/// A place for one event.
type Place = mpsc::OwnedPermit<Bytes>;

/// The front of HTTP+SSE.
pub(in crate::revision) static FRONT: PairFront = PairFront;

pub(in crate::revision) struct PairFront;

impl Front for PairFront {
    /// It has endpoints of its own, and claims nothing elsewhere.
    fn claims(&self, _: &Head<'_>, _: &Peek<'_>) -> bool {
        false
    }

    fn serve<'a>(
        &'a self,
        inbound: Inbound,
        server: Arc<dyn Server>,
        state: &'a Arc<FrontState>,
    ) -> BoxFuture<'a, Response<Body>> {
        async move {
            let served = match (&inbound.method, session_id(&inbound)) {
                (&Verb::GET, _) => open(&inbound, &server, state),
                (&Verb::POST, Some(_)) => post(inbound, server, state).await,
                _ => Ok(not_allowed()),
            };
            served.unwrap_or_else(|refusal| self.refuse(refusal.id.as_ref(), &refusal.error))
        }
        .boxed()
    }

    fn refuse(&self, id: Option<&Id>, error: &Error) -> Response<Body> {
        front::FRONT.refuse(id, error)
    }
}

/// For a client of Streamable HTTP that tries this endpoint: "If it fails with \"405 Method Not Allowed\"" it comes
/// back with a GET (2025-11-25/basic/transports.mdx, Backwards Compatibility).
fn not_allowed() -> Response<Body> {
    let message = "Method not allowed: HTTP+SSE begins with a GET; Streamable HTTP is at /mcp";
    let mut response = json_response(405, [spell::failure(None, &Error::new(Reason::InvalidRequest, message))]);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
    response
}

fn session_id(inbound: &Inbound) -> Option<&str> {
    let query = inbound.uri.query()?;
    query.split('&').find_map(|part| part.strip_prefix(SESSION)?.strip_prefix('='))
}

// === the stream ===

/// Ends the session with its stream.
struct Ends {
    sessions: Arc<Sessions>,
    session: Arc<Session>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.sessions.close(&self.session);
    }
}

/// 2024-11-05/basic/transports.mdx, HTTP with SSE: "When a client connects, the server MUST send an `endpoint` event
/// containing a URI for the client to use for sending messages."
fn open(inbound: &Inbound, server: &Arc<dyn Server>, state: &FrontState) -> Result<Response<Body>, Refusal> {
    stream::check_room(state)?;
    let nobody_yet = Caller {
        principal: inbound.principal.clone(),
        session: None,
        can: Can::default(),
        capabilities: Raw::literal("{}"),
        info: None,
        log: crate::model::LogWish::ServerDecides,
        revision: "",
        headers: Vec::new(),
        ended: CancellationToken::new(),
    };
    let (pipe, calls) = mpsc::channel(EVENTS);
    let session =
        state.sessions.open(nobody_yet, inbound.scope.clone(), Some(Pipe { out: pipe, frame: sse::frame }))?;
    let first = sse::named("endpoint", &format!("{}?{SESSION}={}", inbound.uri.path(), session.id));
    let ends = Ends { sessions: state.sessions.clone(), session: session.clone() };
    let mut open = stream::Open::new(&session, server, state, session.open_stream(), first);
    open.calls = Some(calls);
    open.until = Some(Instant::now() + INITIALIZE_TIME);
    open.ends = Some(Box::new(ends));
    Ok(stream::respond(open))
}

// === messages ===

async fn post(inbound: Inbound, server: Arc<dyn Server>, state: &Arc<FrontState>) -> Result<Response<Body>, Refusal> {
    front::check_content_type(&inbound.headers)?;
    let id = session_id(&inbound).unwrap_or_default();
    let session = state.sessions.find(id, &inbound.principal, &inbound.scope);
    let session = session.and_then(|session| session.pipe.clone().map(|pipe| (session, pipe.out)));
    let Inbound { headers, payload, principal, received, .. } = inbound;
    let payload = payload.map_err(|e| {
        let (id, error) = malformed(&e);
        Refusal { id, error }
    })?;
    let (session, pipe) = session.ok_or_else(|| Refusal { id: front::request_id(&payload), error: gone() })?;
    // Before anything is begun: what is answered at once needs its place, and a call waits its turn for one.
    let place = match &payload {
        Payload::One(Message::Request(_)) | Payload::Batch(_) => Some(place(&payload, &pipe).await?),
        Payload::One(_) => None,
    };
    let first = session.caller.load().revision.is_empty();
    match payload {
        Payload::One(Message::Request(request)) if &*request.method == "initialize" && first => {
            let caller = front::caller(&request.params, &headers, principal, state);
            let caller = caller.map_err(|error| Refusal::to(&request.id, error))?;
            let (id, ended) = (session.id.clone(), session.ended.clone());
            session.caller.store(Arc::new(Caller { session: Some(id), ended, ..caller }));
            front::count_initialize(state, None, &request.params, received);
            say(place, &front::introduction(&request, &session, &server));
        }
        Payload::One(Message::Request(request)) if first => say(place, &too_early(&request)),
        Payload::Batch(_) if first => return Err(Error::new(Reason::InvalidRequest, TOO_EARLY).into()),
        payload => {
            let turn = Turn { session, server, received, stream: true, headers: &headers, state };
            take(&turn, payload, pipe, place)?;
        }
    }
    Ok(front::accepted())
}

fn gone() -> Error {
    Error::new(Reason::UnknownSession, "Session not found: it ended with its stream; open a new one")
}

const TOO_EARLY: &str = "Invalid request: a client starts with initialize";

fn too_early(request: &Request) -> Vec<Bytes> {
    vec![spell::failure(Some(&request.id), &Error::new(Reason::InvalidRequest, TOO_EARLY))]
}

/// A place in the client's stream. A client that reads gets one soon; one that does not is not answered for ever more
/// POSTs, since each answer would have to be kept.
async fn place(payload: &Payload, pipe: &mpsc::Sender<Bytes>) -> Result<Place, Refusal> {
    match tokio::time::timeout(PLACE_TIME, pipe.clone().reserve_owned()).await {
        Ok(Ok(place)) => Ok(place),
        Ok(Err(_)) => Err(Refusal { id: front::request_id(payload), error: gone() }),
        Err(_) => {
            let message = "The client does not read its event stream; no more is answered until it does";
            Err(Refusal { id: front::request_id(payload), error: Error::new(Reason::Overloaded, message) })
        }
    }
}

/// Begins what a body asks for; the answers come on the stream.
fn take(turn: &Turn<'_>, payload: Payload, pipe: mpsc::Sender<Bytes>, place: Option<Place>) -> Result<(), Refusal> {
    match payload {
        Payload::One(Message::Request(request)) => match turn.start(request, true) {
            Started::Now(parts) => say(place, &parts),
            Started::Running(exchange, spell) => drop(tokio::spawn(answer::pour(exchange, *spell, pipe))),
        },
        Payload::One(other) => turn.other(other),
        Payload::Batch(items) => {
            if let Some(answers) = turn.start_batch(items)? {
                // With its place, so that no more of these wait than there are places.
                tokio::spawn(async move { say(place, &array(answers).await) });
            }
        }
    }
    Ok(())
}

/// Says something that is known.
fn say(place: Option<Place>, parts: &[Bytes]) {
    if let Some(place) = place {
        place.send(sse::frame(&parts.concat()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Object, Text};

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_is_not_answered_for_ever() {
        let (pipe, mut stream) = mpsc::channel(EVENTS);
        let request = Request { id: Id::number(7), method: Text::literal("ping"), params: Object::new() };
        let ping = Payload::One(Message::Request(request));
        for _ in 0..EVENTS {
            say(place(&ping, &pipe).await.ok(), &[Bytes::from_static(b"{}")]);
        }
        let refusal = place(&ping, &pipe).await.expect_err("a place that is not there");
        assert_eq!((refusal.error.reason, refusal.id), (Reason::Overloaded, Some(Id::number(7))));
        // Who reads late gets what was said, and its turn.
        let (next, read) = tokio::join!(place(&ping, &pipe), stream.recv());
        assert!(next.is_ok() && read.is_some_and(|event| event.ends_with(b"data: {}\n\n")));
        drop((next, stream));
        assert_eq!(place(&ping, &pipe).await.err().map(|refusal| refusal.error.reason), Some(Reason::UnknownSession));
    }
}
