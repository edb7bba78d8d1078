//! The stateless client side: every POST stands for itself.
//!
//! Owns reading a request and checking that its headers agree with it. Invariant: what is authorised and routed is
//! what the body says; a header only ever causes a refusal.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method as Verb, Response, header};
use tokio::time::Instant;

use crate::body::Body;
use crate::json::{Object, Raw, Text};
use crate::jsonrpc::{Id, Message, Payload, Request};
use crate::model::{
    Ask, AskState, CacheHint, Call, Caller, Check, Error, Exchange, Features, Method, Notice, Outcome, Principal,
    Reason, Server, TaskMethod, TaskWish,
};
use crate::revision::answer::{Asked, Spell, Writing, answer};
use crate::revision::lookalikes::refuse_lookalikes;
use crate::revision::v2026_07_28::asking::{Asker, Brought, Retry};
use crate::revision::v2026_07_28::state::Subject;
use crate::revision::v2026_07_28::{NAME, PROTOCOL_VERSION, asking, headers, listen, meta, spell, tasks};
use crate::revision::{
    Front, FrontState, Head, Inbound, Peek, count_own, json_response, legacy, malformed, notices, take_meta,
    trace_context,
};
use crate::sse;

/// The front of this revision.
pub(in crate::revision) static FRONT: ModernFront = ModernFront;

pub(in crate::revision) struct ModernFront;

/// Delimits a message on a stream.
type Frame = fn(&[u8]) -> Bytes;

impl Front for ModernFront {
    /// basic/versioning.mdx: "A request carrying modern per-request `_meta` is served statelessly according to this
    /// revision." A header of this revision, or of one that nobody knows, belongs here too: only this revision has
    /// words for the refusal.
    fn claims(&self, head: &Head<'_>, peek: &Peek<'_>) -> bool {
        // Whatever its headers say: no modern client opens with a handshake.
        if matches!(peek.message, Some(Message::Request(r)) if &*r.method == "initialize" && r.params.get("_meta").is_none())
        {
            return false;
        }
        if let Some(version) = head.headers.get(headers::VERSION) {
            let known = version.to_str().ok().and_then(legacy::profile).is_some();
            if version == NAME || (!known && !head.headers.contains_key(legacy::SESSION_HEADER)) {
                return true;
            }
        }
        matches!(peek.message, Some(Message::Request(request)) if says_its_version(request))
    }

    fn serve<'a>(
        &'a self,
        inbound: Inbound,
        server: Arc<dyn Server>,
        state: &'a Arc<FrontState>,
    ) -> BoxFuture<'a, Response<Body>> {
        async move {
            if inbound.method != Verb::POST {
                let error = Error::new(Reason::InvalidRequest, "Method not allowed: this revision has POST only");
                let mut response = json_response(405, [spell::failure(None, &error)]);
                response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
                return response;
            }
            match read(inbound, state) {
                Ok(Read::Nothing) => legacy::accepted(),
                Ok(Read::Request(request)) => serve_request(*request, server, state).await,
                Err((status, id, error)) => json_response(status, [spell::failure(id.as_ref(), &error)]),
            }
        }
        .boxed()
    }

    fn refuse(&self, id: Option<&Id>, error: &Error) -> Response<Body> {
        let status = match spell::status(error) {
            200 => 400,
            status => status,
        };
        json_response(status, [spell::failure(id, error)])
    }
}

// === reading ===

/// Whether a request carries the `_meta` of this revision.
pub(super) fn says_its_version(request: &Request) -> bool {
    request.params.get("_meta").is_some_and(|meta| {
        memchr::memmem::find(meta.bytes(), PROTOCOL_VERSION.as_bytes()).is_some()
            && meta.as_object().is_some_and(|meta| meta.get(PROTOCOL_VERSION).is_some())
    })
}

enum Read {
    Nothing,
    Request(Box<Checked>),
}

/// A request whose headers and `_meta` are in order.
pub(super) struct Checked {
    id: Id,
    method: Text,
    params: Object,
    meta: Object,
    /// The tool, prompt or resource.
    target: Option<Text>,
    caller: Arc<Caller>,
    scope: Text,
    /// "There is no header layer" on a pipe (basic/transports/stdio.mdx, Request Metadata).
    headers: Option<HeaderMap>,
    received: Instant,
}

/// Who sent a request, and where to.
pub(super) struct Sender {
    pub(super) principal: Arc<Principal>,
    pub(super) scope: Text,
}

type Refused = (u16, Option<Id>, Error);

fn read(inbound: Inbound, state: &FrontState) -> Result<Read, Refused> {
    let Inbound { headers, payload, principal, scope, received, .. } = inbound;
    let payload = payload.map_err(|e| {
        let (id, error) = malformed(&e);
        (400, id, error)
    })?;
    legacy::check_content_type(&headers).map_err(|error| (400, None, error))?;
    let one_only = "Invalid request: the body must be a single request or notification";
    let request = match payload {
        Payload::One(Message::Request(request)) => request,
        Payload::One(Message::Notification(_)) => return Ok(Read::Nothing),
        // "The body of the HTTP POST MUST be a single JSON-RPC request or notification."
        _ => return Err((400, None, Error::new(Reason::InvalidRequest, one_only))),
    };
    let id = request.id.clone();
    let checked = check(request, Some(headers), Sender { principal, scope }, received, state);
    checked.map(|checked| Read::Request(Box::new(checked))).map_err(|error| (400, Some(id), error))
}

/// Checks that a request says what it must, and that its headers agree where it has any.
pub(super) fn check(
    request: Request,
    headers: Option<HeaderMap>,
    sender: Sender,
    received: Instant,
    state: &FrontState,
) -> Result<Checked, Error> {
    let Request { id, method, mut params } = request;
    refuse_lookalikes(&method, &params)?;
    let mut meta = take_meta(&mut params)?;
    let version = meta::take_version(&mut meta)?;
    check_version(headers.as_ref(), &version)?;
    let none = HeaderMap::new();
    let caller = meta::take_caller(&mut meta, sender.principal, headers.as_ref().unwrap_or(&none), state)?;
    let target = match &*method {
        "tools/call" | "prompts/get" => params.text("name"),
        "resources/read" => params.text("uri"),
        // SEP-2663, Routing Headers: "the client MUST set the `Mcp-Name` header […] to the value of `params.taskId`".
        "tasks/get" | "tasks/update" | "tasks/cancel" => params.text("taskId"),
        _ => None,
    };
    if let Some(headers) = &headers {
        headers::check(headers, &method, target.as_deref())?;
        trace_context::adopt(&mut meta, headers);
    }
    Ok(Checked { id, method, params, meta, target, caller, scope: sender.scope, headers, received })
}

/// basic/transports/streamable-http.mdx, Protocol Version Header: the header MUST be there, MUST match the body, and
/// an unsupported one is answered with the supported ones.
fn check_version(headers: Option<&HeaderMap>, version: &Text) -> Result<(), Error> {
    let header = headers.map(|headers| headers.get(headers::VERSION).and_then(|v| v.to_str().ok()));
    if let Some(header) = header
        && header != Some(version.as_str())
    {
        let shown = header.unwrap_or("missing");
        return Err(Error::new(
            Reason::HeaderMismatch,
            format!("Header mismatch: MCP-Protocol-Version is {shown:?}, the body says {version:?}"),
        ));
    }
    if version.as_str() == NAME {
        return Ok(());
    }
    let data = Object::new().with("supported", Raw::of(&[NAME])).with("requested", Raw::string(version));
    Err(Error::new(Reason::UnsupportedRevision, "Unsupported protocol version").with_data(data.raw()))
}

// === answering ===

/// What a request becomes.
pub(super) enum Begun {
    /// It is answered: status and answer.
    Now(u16, Vec<Bytes>),
    /// It opens a stream of news.
    Listening(listen::Open),
    /// It runs.
    Running(Exchange, ModernSpell),
}

async fn serve_request(request: Checked, server: Arc<dyn Server>, state: &Arc<FrontState>) -> Response<Body> {
    let takes_streams = request.headers.as_ref().is_none_or(accepts_stream);
    let stream = takes_streams && state.metrics.streams.get() < i64::try_from(state.streams_max).unwrap_or(i64::MAX);
    match begin(request, &server, state, sse::frame) {
        Begun::Now(status, parts) => json_response(status, parts),
        Begun::Listening(open) => listen::respond(open),
        Begun::Running(exchange, spell) => {
            let (metrics, alarms) = (state.metrics.clone(), state.alarms.clone());
            let writing = Writing { keep_alive: state.keep_alive, stream, metrics, alarms };
            answer(exchange, spell, writing).await
        }
    }
}

/// Begins what a request asks for; `frame` delimits what goes out on a stream.
pub(super) fn begin(request: Checked, server: &Arc<dyn Server>, state: &Arc<FrontState>, frame: Frame) -> Begun {
    let refuse = |id: &Id, error: &Error| Begun::Now(spell::status(error), vec![spell::failure(Some(id), error)]);
    // What is answered here is counted here.
    let count = |method: &'static str, error: Option<&Error>| {
        count_own(&state.metrics, method, error, NAME, request.received.elapsed());
    };
    let method = match &*request.method {
        "server/discover" => {
            count("server/discover", None);
            return Begun::Now(200, discover(&request, &**server));
        }
        "subscriptions/listen" => {
            let listening = listen::begin(&request.id, &request.params, &request.caller, server, state);
            count("subscriptions/listen", listening.as_ref().err());
            return listening.map_or_else(|error| refuse(&request.id, &error), Begun::Listening);
        }
        name => Method::from_name(name),
    };
    // SEP-2663: "`tasks/result` is removed; clients calling it MUST receive `-32601`"; so is `tasks/list`.
    if let Method::Other(_) | Method::Task(TaskMethod::End | TaskMethod::List) = &method {
        let name = method.name();
        let error = Error::new(Reason::UnknownMethod, format!("Method not found: {name}"));
        count("_OTHER", Some(&error));
        return Begun::Now(404, vec![spell::failure(Some(&request.id), &error)]);
    }
    let may_task =
        matches!(method, Method::CallTool | Method::Task(_)) && tasks::declared(&request.caller.capabilities);
    if matches!(method, Method::Task(_)) && !may_task {
        return refuse(&request.id, &tasks::missing());
    }
    let Checked { id, mut params, mut meta, target, caller, scope, headers, received, .. } = request;
    let token = meta.remove("progressToken");
    let subject = Subject::of(&method, target, &params);
    let brought = if subject.may_ask() { Brought::take(&mut params) } else { Brought::default() };
    let spell = ModernSpell { id, subject, token, caller, scope, frame, state: state.clone() };
    let exchange = match spell.asker().retry(brought) {
        Ok(Retry::Call(resume)) => {
            let check = headers.filter(|_| method == Method::CallTool).map(|headers| -> Check {
                Box::new(move |definition, arguments| headers::check_params(&headers, definition, arguments))
            });
            let task = if may_task { TaskWish::May } else { TaskWish::Never };
            let (progress, whole) = (spell.token.is_some(), method == Method::Task(TaskMethod::State));
            let call = Call { meta, progress, check, resume, task, whole, received, ..Call::new(method, params) };
            server.call(&spell.caller, call)
        }
        Ok(Retry::Resumed(exchange)) => exchange,
        Ok(Retry::Again(exchange, open)) => {
            let (status, parts) = spell.asker().again(exchange, open);
            return Begun::Now(status, parts);
        }
        Err(error) => return refuse(&spell.id, &error),
    };
    Begun::Running(exchange, spell)
}

fn accepts_stream(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    accept.is_none_or(|a| a.contains("text/event-stream") || a.contains("*/*"))
}

/// The tasks of the revision before are no word of this one: "Servers […] MUST NOT continue to advertise the legacy
/// capabilities under any protocol version that includes this extension" (SEP-2663, Backward Compatibility).
fn capabilities(features: &Features) -> Object {
    let mut capabilities = notices::capabilities(features);
    if features.tasks.is_some() {
        capabilities.set(Text::literal("extensions"), tasks::extensions(&features.extensions));
    }
    capabilities
}

/// `server/discover` (server/discover.mdx).
fn discover(request: &Checked, server: &dyn Server) -> Vec<Bytes> {
    let face = server.describe(&request.caller);
    let mut result = Object::new()
        .with("supportedVersions", Raw::of(&[NAME]))
        .with("capabilities", capabilities(&face.features).raw());
    if let Some(instructions) = &face.instructions {
        result.set(Text::literal("instructions"), Raw::string(instructions));
    }
    let hint = CacheHint { ttl_ms: 60_000, public: false };
    spell::result_from(face.info, &request.id, result, Some(hint))
}

/// How an exchange is written to a client of this revision. Dropping it cancels: "The server MUST treat a client
/// disconnect as cancellation of that request" (basic/patterns/cancellation.mdx).
pub(super) struct ModernSpell {
    id: Id,
    subject: Subject,
    token: Option<Raw>,
    caller: Arc<Caller>,
    scope: Text,
    frame: Frame,
    state: Arc<FrontState>,
}

impl ModernSpell {
    fn asker(&self) -> Asker<'_> {
        Asker { id: &self.id, subject: &self.subject, caller: &self.caller, scope: &self.scope, front: &self.state }
    }
}

impl Spell for ModernSpell {
    fn notice(&mut self, notice: Notice) -> Option<Bytes> {
        match notice {
            Notice::Progress(params) => self.token.as_ref().map(|token| notices::progress(params, token)),
            Notice::Log(level, params) if self.caller.log.wants(level) => {
                Some(notices::notification("notifications/message", &params))
            }
            // "These notifications MUST relate to the originating client request": nothing else does.
            _ => None,
        }
    }

    fn ask(&mut self, ask: Ask) -> Asked {
        let asker = self.asker();
        if let Some(error) = asker.refusal(&ask) {
            asker.count(&ask, "refused");
            return Asked::End(spell::status(&error), vec![spell::failure(Some(&self.id), &error)]);
        }
        asker.count(&ask, "asked");
        match ask.state {
            AskState::ServerForgot(state) => Asked::End(200, asker.pass_on(&ask.requests, ask.server, state)),
            AskState::ServerWaits => Asked::Park(ask),
        }
    }

    fn event(&mut self, message: &[u8], _: bool) -> Bytes {
        (self.frame)(message)
    }

    async fn park(&mut self, exchange: Exchange, ask: Ask) -> Result<(u16, Vec<Bytes>), Exchange> {
        self.asker().park(exchange, ask).await
    }

    fn done(&mut self, end: Result<Outcome, Error>) -> (u16, Vec<Bytes>) {
        if let Err(error) = &end
            && let Some(ask) = asking::from_error(error)
            && let Asked::End(status, parts) = self.ask(ask)
        {
            return (status, parts);
        }
        spell::end(&self.id, self.subject.method(), end)
    }
}
