//! Everything that knows how a revision of MCP is spelled.
//!
//! Owns dates, headers, reserved `_meta` keys and error codes, for both directions. Does not know which servers there
//! are. Invariant: an edge translates between its wire and the neutral model, and knows nothing of the other edge.

mod answer;
mod apps;
mod attribution;
mod calls;
mod codes;
mod connect;
mod driven;
mod extensions;
mod fault;
mod injected;
mod legacy;
mod lookalikes;
mod notices;
mod pipe;
mod route;
mod side_traffic;
mod tasks;
mod trace_context;
mod v2026_07_28;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Response};
use tokio::time::Instant;

use crate::alarm::Alarms;
use crate::body::Body;
use crate::json::{Object, Raw, Text};
use crate::jsonrpc::{Id, Malformed, Message, Payload};
use crate::model::{Error, Principal, Reason, Server};
use crate::session::{Parking, Seal, Sessions};
use crate::telemetry::Metrics;

pub use apps::{APP_SCHEME, app_pages, with_app_pages};
pub use attribution::AskRecord;
pub use calls::Calls;
use codes::count_own;
pub use codes::ending;
pub use connect::{ConnectError, Connected, Era, Hello, Times, connect, connect_http_sse, may_be_http_sse};
pub use extensions::shared_capabilities;
pub use pipe::{Gone, PipeClient};

/// Every revision that both edges speak, oldest first. A new one is a line here and a row or folder below.
pub const SUPPORTED: [&str; 5] = [
    legacy::PROFILES[0].name,
    legacy::PROFILES[1].name,
    legacy::PROFILES[2].name,
    legacy::PROFILES[3].name,
    v2026_07_28::NAME,
];

/// The client side of one family of revisions.
pub trait Front: Send + Sync {
    /// Whether this request is spelled in one of its revisions.
    fn claims(&self, head: &Head<'_>, peek: &Peek<'_>) -> bool;

    /// Answers the request.
    fn serve<'a>(
        &'a self,
        inbound: Inbound,
        server: Arc<dyn Server>,
        state: &'a Arc<FrontState>,
    ) -> BoxFuture<'a, Response<Body>>;

    /// Answers with an error, in its own spelling and with its own status.
    fn refuse(&self, id: Option<&Id>, error: &Error) -> Response<Body>;
}

/// What all fronts share.
pub struct FrontState {
    /// Sessions of legacy clients.
    pub sessions: Arc<Sessions>,
    /// Exchanges that wait for answers of stateless clients.
    pub parking: Arc<Parking>,
    /// Seals the state that those clients carry.
    pub seal: Arc<Seal>,
    /// Longest time for a user to answer what a server asks.
    pub ask_timeout: Duration,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// After this much silence a waiting answer becomes a stream, and a stream gets a comment.
    pub keep_alive: Duration,
    /// Streams that may be open at once.
    pub streams_max: usize,
    /// Resources that one stream may name.
    pub subscriptions: usize,
    /// Names of client headers that some server wants forwarded; lower case.
    pub forwarded: Vec<http::HeaderName>,
    /// How long a connection stays open for one stream, where the client can come back for the rest.
    pub stream_time: Duration,
    /// Timers of answers that keep their clients waiting.
    pub alarms: Arc<Alarms>,
    /// Cancelled when the gateway drains: streams end in their revision's way.
    pub draining: tokio_util::sync::CancellationToken,
}

/// One HTTP request to an MCP endpoint, after its credentials were checked.
pub struct Inbound {
    /// The HTTP method.
    pub method: http::Method,
    /// What was asked for.
    pub uri: http::Uri,
    /// The headers.
    pub headers: HeaderMap,
    /// The body: what it says, or why it says nothing.
    pub payload: Result<Payload, Malformed>,
    /// Who sent it.
    pub principal: Arc<Principal>,
    /// The endpoint: which server or view, empty for everything. Sessions are bound to it.
    pub scope: Text,
    /// When its head had been read.
    pub received: Instant,
}

/// What decides the dialect, of the head.
pub struct Head<'a> {
    /// The HTTP method.
    pub method: &'a http::Method,
    /// The headers.
    pub headers: &'a HeaderMap,
}

/// What decides the dialect, of the body.
pub struct Peek<'a> {
    /// The single message, if the body is one.
    pub message: Option<&'a Message>,
}

/// Which front answers a request: the first that claims it; the legacy front claims whatever is left.
pub fn detect(head: &Head<'_>, peek: &Peek<'_>) -> &'static dyn Front {
    const FRONTS: [&dyn Front; 2] = [&v2026_07_28::FRONT, &legacy::FRONT];
    FRONTS.into_iter().find(|front| front.claims(head, peek)).unwrap_or(&legacy::FRONT)
}

/// The front for clients of HTTP+SSE, the HTTP transport of 2024-11-05, which has endpoints of its own.
pub fn http_sse() -> &'static dyn Front {
    &legacy::HTTP_SSE
}

/// The revision of this name, if both edges speak it.
pub fn by_name(name: &str) -> Option<&'static str> {
    SUPPORTED.into_iter().find(|known| *known == name)
}

/// The era of one of [`SUPPORTED`].
pub fn era(revision: &str) -> Era {
    if revision == v2026_07_28::NAME { Era::Modern } else { Era::Legacy }
}

/// Whether a tool says that its calls may become tasks.
pub fn may_be_task(definition: Option<&Object>) -> bool {
    tasks::support(definition) != tasks::Support::Forbidden
}

/// Why a tool that a server lists may not be exposed, by the rules of the server's revision.
///
/// 2026-07-28/basic/transports/streamable-http.mdx, Schema Extension: "the client MUST exclude the invalid tool from
/// the result of `tools/list`". Pipes have no headers and may ignore the annotations.
pub fn tool_problem(era: Era, is_pipe: bool, definition: &Object) -> Option<String> {
    match era {
        Era::Modern if !is_pipe => v2026_07_28::tool_problem(definition),
        _ => None,
    }
}

/// A tool's definition, listed as one that may run as a task, for clients whose revision looks there; `None` if the
/// tool speaks of it itself.
pub fn offered_as_task(definition: &Raw) -> Option<Raw> {
    tasks::offered(definition)
}

/// The header in which a client says its revision; for logs and metrics of refused requests.
pub const VERSION_HEADER: &str = "mcp-protocol-version";

/// The code of the error that a request without a valid key gets, whatever its revision: one of those that JSON-RPC leaves to
/// implementations, and that clients show with its message.
pub const UNAUTHORIZED: i64 = -32001;

/// Headers that browsers must be allowed to send and to read.
pub mod cors {
    /// May be sent.
    pub const ALLOWED: [&str; 9] = [
        "authorization",
        "content-type",
        "accept",
        "mcp-session-id",
        super::VERSION_HEADER,
        "mcp-method",
        "mcp-name",
        "last-event-id",
        "x-api-key",
    ];
    /// May be read.
    pub const EXPOSED: [&str; 2] = ["mcp-session-id", "www-authenticate"];
    /// May be sent with anything behind it.
    pub const ALLOWED_PREFIX: &str = "mcp-param-";
}

/// The gateway as it names itself to servers and clients: an `Implementation`.
pub fn implementation() -> Raw {
    const JSON: &str =
        concat!(r#"{"name":"moongate","title":"Moongate","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);
    Raw::literal(JSON)
}

/// The gateway in the place of one server that the config gives a title or an icon.
///
/// 2025-11-25/basic/index.mdx, `icons`: "Icons are represented as an array of `Icon` objects".
pub fn implementation_as(title: Option<&str>, icon: Option<&str>) -> Raw {
    let own = implementation();
    let Some(mut info) = own.as_object().filter(|_| title.is_some() || icon.is_some()) else { return own };
    if let Some(title) = title {
        info.set(Text::literal("title"), Raw::string(title));
    }
    if let Some(icon) = icon {
        info.set(Text::literal("icons"), Raw::array([Object::new().with("src", Raw::string(icon)).raw()].iter()));
    }
    info.raw()
}

/// The gateway's own key in `_meta` of a list that is empty since its server is not there.
///
/// 2025-11-25/basic/index.mdx, `_meta`: a prefix "MUST be a series of labels separated by dots (`.`), followed by a
/// slash (`/`)".
const UNAVAILABLE: &str = "moongate/unavailable";

/// Writes into the `_meta` of a list why its server is not there.
pub fn explain_absence(result: &mut Object, reason: &str) {
    let mut meta = result.object("_meta").unwrap_or_default();
    meta.set(Text::literal(UNAVAILABLE), Raw::string(reason));
    result.set(Text::literal("_meta"), meta.raw());
}

/// What is wrong with a body, as an error for its sender.
fn malformed(error: &Malformed) -> (Option<Id>, Error) {
    match error {
        Malformed::Json(e) => (None, Error::new(Reason::Parse, format!("Parse error: {e}"))),
        Malformed::Shape { reason, id } => {
            (id.clone(), Error::new(Reason::InvalidRequest, format!("Invalid request: {reason}")))
        }
        Malformed::Lookalike { member, id } => (id.clone(), lookalikes::lookalike(member)),
    }
}

/// A response with a JSON body in parts.
fn json_response(status: u16, parts: impl IntoIterator<Item = Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::Parts(parts.into_iter().collect()));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    if status == 503 {
        // Something is full: it may have room again soon, and a client that comes at once is no help.
        response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    response
}

/// The members of `_meta`, if the params have one.
fn take_meta(params: &mut Object) -> Result<Object, Error> {
    let Some(raw) = params.remove("_meta") else { return Ok(Object::new()) };
    let wrong = || Error::new(Reason::InvalidParams, "params._meta must be an object without duplicate keys");
    let meta = raw.as_object().ok_or_else(wrong)?;
    lookalikes::refuse_lookalikes_in_meta(&meta)?;
    Ok(meta)
}

/// The client's headers that are passed on to the server, under the names that the config gives them.
fn forwarded_headers(caller: &crate::model::Caller) -> crate::link::Headers {
    let header = |(name, value): &(Text, Text)| {
        Some((http::HeaderName::from_bytes(name.as_bytes()).ok()?, http::HeaderValue::from_str(value).ok()?))
    };
    caller.headers.iter().filter_map(header).collect()
}
