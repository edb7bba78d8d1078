//! Servers behind HTTP, over pipes in memory: Streamable HTTP of both eras, and HTTP+SSE. Answers
//! are late, break off, go on elsewhere, or are refusals; sessions are forgotten.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::DuplexStream;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::sim::link::WAITING;
use crate::sim::plans::{ServerPlan, SimCarrier};
use crate::sim::rng::Rng;
use crate::sim::server::{ClientTalk, OutputSink, ServerEra, SimServer};
use crate::sim::world::SimWorld;

type SimBody = UnsyncBoxBody<Bytes, io::Error>;
/// The connection ends without an answer.
type SimAnswer = Result<Response<SimBody>, io::Error>;

/// A server: what it keeps between connections.
pub(crate) struct HttpHost {
    world: Arc<SimWorld>,
    kind: ServerPlan,
    state: Mutex<HostState>,
}

struct HostState {
    rng: Rng,
    /// What is kept for clients, by the ids of their sessions; one without an id where there are
    /// none.
    sessions: HashMap<String, Arc<HostSession>>,
    opened: u64,
}

#[derive(Default)]
struct HostSession {
    talk: Arc<ClientTalk>,
    /// Streams that can be asked for again.
    streams: Mutex<Vec<Arc<EventLog>>>,
    /// What HTTP+SSE says its messages on.
    pipe: Mutex<Option<Arc<SimServer>>>,
}

/// What a server says on one event stream, which may be read on several connections, one after the
/// other.
pub(crate) struct EventLog {
    name: u64,
    lines: Mutex<Vec<Vec<u8>>>,
    over: AtomicBool,
    more: Notify,
    /// Whether its events have ids.
    numbered: bool,
    broken: CancellationToken,
    /// Whoever read it is gone.
    left: CancellationToken,
}

impl EventLog {
    pub(crate) fn write(&self, line: Vec<u8>) {
        self.lines.lock().unwrap().push(line);
        self.more.notify_one();
    }

    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.more.notify_one();
    }

    /// Waits for the line of this place; nothing comes after the last one.
    async fn line(&self, at: usize) -> Option<Vec<u8>> {
        loop {
            let line = self.lines.lock().unwrap().get(at).cloned();
            if line.is_some() || self.over.load(Ordering::Relaxed) {
                return line;
            }
            self.more.notified().await;
        }
    }
}

impl HttpHost {
    pub(crate) fn new(world: Arc<SimWorld>, kind: ServerPlan, rng: Rng) -> Arc<Self> {
        let state = HostState {
            rng,
            sessions: HashMap::new(),
            opened: 0,
        };
        Arc::new(HttpHost {
            world,
            kind,
            state: Mutex::new(state),
        })
    }

    /// Serves one connection until it ends.
    pub(crate) async fn serve(self: Arc<Self>, stream: DuplexStream) {
        let service = service_fn(|request| {
            let site = self.clone();
            async move { site.answer(request).await }
        });
        // How it ends is the gateway's affair.
        let _ = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    fn rng(&self) -> Rng {
        self.state.lock().unwrap().rng.fork()
    }

    /// Whether this happens: never where servers behave.
    fn happens(&self, rng: &mut Rng, one_in: u64, what: &'static str) -> bool {
        let happens = !self.world.is_calm() && rng.one_in(one_in);
        if happens {
            self.world.count(what);
        }
        happens
    }

    fn session(&self, id: &str) -> Option<Arc<HostSession>> {
        self.state.lock().unwrap().sessions.get(id).cloned()
    }

    fn open(&self) -> (String, Arc<HostSession>) {
        let mut state = self.state.lock().unwrap();
        state.opened += 1;
        let id = format!("session-{}", state.opened);
        let session = state.sessions.entry(id.clone()).or_default().clone();
        (id, session)
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> SimAnswer {
        let mut rng = self.rng();
        if self.happens(&mut rng, 12, "a server was slow over HTTP") {
            tokio::time::sleep(rng.time(Duration::from_secs(20))).await;
        }
        if self.happens(&mut rng, 60, "a connection broke before anything ran") {
            return Err(io::Error::other("broken"));
        }
        if self.happens(&mut rng, 60, "a server refused over HTTP") {
            let status = [
                StatusCode::SERVICE_UNAVAILABLE,
                StatusCode::BAD_GATEWAY,
                StatusCode::TOO_MANY_REQUESTS,
            ];
            let mut refused = status_only(status[rng.pick(3)]);
            if rng.one_in(2) {
                refused
                    .headers_mut()
                    .insert("retry-after", http::HeaderValue::from_static("3"));
            }
            return Ok(refused);
        }
        let (head, body) = request.into_parts();
        let given = |name: &str| {
            head.headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        // What the gateway broke off is nobody's request.
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        if self.kind.carrier == SimCarrier::HttpSse {
            return Ok(self.over_sse(
                &head.method,
                head.uri.query().unwrap_or_default(),
                &body,
                rng,
            ));
        }
        if self.kind.era == ServerEra::Modern {
            return match head.method {
                Method::POST => self.post(&body, "", rng).await,
                _ => Ok(status_only(StatusCode::METHOD_NOT_ALLOWED)),
            };
        }
        let session = given("mcp-session-id").unwrap_or_default();
        if self.happens(&mut rng, 50, "a server forgot its sessions") {
            self.state.lock().unwrap().sessions.clear();
        }
        match head.method {
            Method::POST => self.post(&body, &session, rng).await,
            Method::DELETE => {
                self.state.lock().unwrap().sessions.remove(&session);
                Ok(status_only(StatusCode::OK))
            }
            _ => Ok(self.get(&session, given("last-event-id").as_deref(), rng)),
        }
    }

    async fn post(self: &Arc<Self>, body: &Bytes, session: &str, mut rng: Rng) -> SimAnswer {
        let Ok(message) = serde_json::from_slice::<Value>(body) else {
            self.world
                .fail(format!("{} got what is no JSON", self.kind.name));
            return Ok(status_only(StatusCode::BAD_REQUEST));
        };
        let (session, opened) = match (self.kind.era, message["method"].as_str()) {
            (ServerEra::Modern, _) => {
                let mut state = self.state.lock().unwrap();
                (
                    state.sessions.entry(String::new()).or_default().clone(),
                    None,
                )
            }
            (ServerEra::Legacy, Some("initialize")) => {
                let (id, session) = self.open();
                (session, Some(id))
            }
            (ServerEra::Legacy, _) if session.is_empty() => {
                return Ok(status_only(StatusCode::BAD_REQUEST));
            }
            (ServerEra::Legacy, _) => match self.session(session) {
                Some(session) => (session, None),
                None => return Ok(status_only(StatusCode::NOT_FOUND)),
            },
        };
        let id = message["id"].clone();
        if id.is_null() || message["method"].is_null() {
            session.talk.hear(message);
            return Ok(status_only(StatusCode::ACCEPTED));
        }
        // Every request without a session says everything, its id among it, for itself.
        if self.kind.era == ServerEra::Legacy && !session.talk.is_new(&id) {
            self.world.fail(format!(
                "P1: {} got the id {id} twice in a session",
                self.kind.name
            ));
        }
        let events = self.run(&session, message, &mut rng);
        if self.happens(&mut rng, 40, "a connection broke after a request ran") {
            return Err(io::Error::other("broken"));
        }
        let mut response = match rng.one_in(2) {
            true => as_json(&events, &id).await,
            false => None,
        };
        if response.is_none() {
            let cut = self
                .happens(&mut rng, 12, "an event stream was cut")
                .then(|| rng.pick(3));
            response = Some(read(events, 0, cut));
        }
        let mut response = response.unwrap_or_else(|| unreachable!("it was just made"));
        if rng.one_in(10) {
            response
                .headers_mut()
                .insert("connection", http::HeaderValue::from_static("close"));
        }
        if let Some(id) = opened {
            response
                .headers_mut()
                .insert("mcp-session-id", id.parse().unwrap());
        }
        Ok(response)
    }

    /// Begins what a request wants; it says what it has to say on a stream.
    fn run(
        self: &Arc<Self>,
        session: &Arc<HostSession>,
        message: Value,
        rng: &mut Rng,
    ) -> Arc<EventLog> {
        let events = self.events(session, rng.one_in(2));
        let out = OutputSink::Events(events.clone());
        let broken = events.broken.clone();
        let server = SimServer {
            world: self.world.clone(),
            kind: self.kind,
            out,
            broken: broken.clone(),
            talk: session.talk.clone(),
        };
        let told = events.clone();
        let stays = message["method"] == "subscriptions/listen";
        let mut rng = rng.fork();
        let modern = self.kind.era == ServerEra::Modern;
        let running = rng.fork();
        self.world
            .spawn("a request to a server over HTTP", async move {
                tokio::select! {
                    () = server.request(&message, running) => {}
                    () = broken.cancelled() => return told.end(),
                    // Whoever closes the stream of a request cancels it, where there are no sessions.
                    () = told.left.cancelled(), if modern => {}
                }
                let id = &message["id"];
                let is_answered = told
                    .lines
                    .lock()
                    .unwrap()
                    .iter()
                    .any(|line| is_answer(line, id));
                if stays || (!is_answered && rng.one_in(2)) {
                    let _ =
                        tokio::time::timeout(Duration::from_secs(600), told.left.cancelled()).await;
                }
                told.end();
            });
        events
    }

    fn events(&self, session: &Arc<HostSession>, numbered: bool) -> Arc<EventLog> {
        let mut streams = session.streams.lock().unwrap();
        let events = Arc::new(EventLog {
            name: streams.len() as u64,
            lines: Mutex::default(),
            over: AtomicBool::new(false),
            more: Notify::new(),
            numbered: numbered && self.kind.era == ServerEra::Legacy,
            broken: CancellationToken::new(),
            left: CancellationToken::new(),
        });
        streams.push(events.clone());
        events
    }

    /// The stream for what belongs to no request, or the rest of one that ended too early.
    fn get(self: &Arc<Self>, session: &str, last: Option<&str>, mut rng: Rng) -> Response<SimBody> {
        let Some(session) = self.session(session) else {
            return status_only(StatusCode::NOT_FOUND);
        };
        let cut = self
            .happens(&mut rng, 6, "an event stream was cut")
            .then(|| rng.pick(3));
        let Some(last) = last else {
            if rng.one_in(4) {
                return status_only(StatusCode::METHOD_NOT_ALLOWED);
            }
            let events = self.events(&session, rng.one_in(2));
            session
                .talk
                .listens(&OutputSink::Events(events.clone()), &Value::Null);
            return read(events, 0, cut);
        };
        let place = last
            .split_once('-')
            .and_then(|(name, at)| Some((name.parse::<u64>().ok()?, at.parse::<usize>().ok()?)));
        let (name, at) = place.unwrap_or_else(|| panic!("{last} is no id of an event of ours"));
        let found = session
            .streams
            .lock()
            .unwrap()
            .iter()
            .find(|events| events.name == name)
            .cloned();
        match found.filter(|_| !self.happens(&mut rng, 5, "a stream could not be resumed")) {
            Some(events) => {
                self.world.count("a stream was resumed");
                read(events, at + 1, cut)
            }
            None => status_only(StatusCode::BAD_REQUEST),
        }
    }

    fn over_sse(
        self: &Arc<Self>,
        method: &Method,
        session: &str,
        body: &Bytes,
        mut rng: Rng,
    ) -> Response<SimBody> {
        if method == Method::POST {
            let server = self
                .session(session)
                .and_then(|session| session.pipe.lock().unwrap().clone());
            let Some(server) = server.filter(|server| !server.broken.is_cancelled()) else {
                return status_only(StatusCode::NOT_FOUND);
            };
            server.receive(body, &mut rng);
            return status_only(StatusCode::ACCEPTED);
        }
        let (id, session) = self.open();
        let (out, lines) = mpsc::channel::<Vec<u8>>(WAITING);
        let broken = CancellationToken::new();
        let talk = session.talk.clone();
        let out = OutputSink::Pipe(out);
        let server = SimServer {
            world: self.world.clone(),
            kind: self.kind,
            out,
            broken: broken.clone(),
            talk,
        };
        *session.pipe.lock().unwrap() = Some(Arc::new(server));
        let endpoint = format!("event: endpoint\ndata: /messages?{id}\n\n");
        // Once nobody reads it, it is over.
        let state = (Some(endpoint), lines, broken.clone().drop_guard());
        let frames = stream::unfold(state, move |(first, mut lines, guard)| {
            let broken = broken.clone();
            async move {
                if let Some(first) = first {
                    return Some((Ok(Frame::data(Bytes::from(first))), (None, lines, guard)));
                }
                let line = tokio::select! {
                    line = lines.recv() => line?,
                    () = broken.cancelled() => return Some((Err(io::Error::other("broken")),
                        (None, lines, guard))),
                };
                Some((Ok(Frame::data(event("", &line))), (None, lines, guard)))
            }
        });
        stream_of(frames)
    }
}

fn is_answer(line: &[u8], id: &Value) -> bool {
    serde_json::from_slice::<Value>(line)
        .is_ok_and(|message| message["method"].is_null() && message["id"] == *id)
}

fn event(id: &str, line: &[u8]) -> Bytes {
    let line = String::from_utf8_lossy(line);
    Bytes::from(format!("{id}data: {}\n\n", line.trim_end()))
}

fn status_only(status: StatusCode) -> Response<SimBody> {
    let mut response = Response::new(
        Full::default()
            .map_err(|never: Infallible| match never {})
            .boxed_unsync(),
    );
    *response.status_mut() = status;
    response
}

fn stream_of<S>(frames: S) -> Response<SimBody>
where
    S: futures_util::Stream<Item = Result<Frame<Bytes>, io::Error>> + Send + 'static,
{
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(
        "content-type",
        http::HeaderValue::from_static("text/event-stream"),
    );
    response
}

/// The answer alone, if it is the first that is said.
async fn as_json(events: &Arc<EventLog>, id: &Value) -> Option<Response<SimBody>> {
    let mut leaving = ReaderGuard(Some(events.clone()));
    let line = tokio::select! {
        line = events.line(0) => line.filter(|line| is_answer(line, id)),
        () = events.broken.cancelled() => None,
    };
    leaving.0 = None;
    let body = Full::from(line?)
        .map_err(|never: Infallible| match never {})
        .boxed_unsync();
    let mut response = Response::new(body);
    response.headers_mut().insert(
        "content-type",
        http::HeaderValue::from_static("application/json"),
    );
    Some(response)
}

/// Says that nobody reads the stream any more.
struct ReaderGuard(Option<Arc<EventLog>>);

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        if let Some(events) = &self.0 {
            events.left.cancel();
        }
    }
}

/// A stream from this place on; it breaks off after so many events, if it does.
fn read(events: Arc<EventLog>, at: usize, cut: Option<usize>) -> Response<SimBody> {
    let leaving = ReaderGuard(Some(events.clone()));
    let state = (events, at, cut.map(|events| at + events), leaving);
    stream_of(stream::unfold(
        state,
        |(events, at, cut, leaving)| async move {
            let broken = || Err(io::Error::other("broken"));
            if cut == Some(at) {
                return Some((broken(), (events, at, cut, leaving)));
            }
            let line = tokio::select! {
                biased;
                line = events.line(at) => line,
                () = events.broken.cancelled() => return Some((broken(),
                    (events, at, cut, leaving))),
            };
            let id = if events.numbered {
                format!("id: {}-{at}\nretry: 100\n", events.name)
            } else {
                String::new()
            };
            let frame = Frame::data(event(&id, &line?));
            Some((Ok(frame), (events, at + 1, cut, leaving)))
        },
    ))
}
