//! Everything that knows how a revision of MCP is spelled.
//!
//! Owns dates, headers, reserved `_meta` keys and error codes, for both directions. Does not know which servers there
//! are. Invariant: an edge translates between its wire and the neutral model, and knows nothing of the other edge.

mod respond;
mod mcp_apps;
mod attribution;
mod correlation;
mod error_codes;
mod negotiate;
mod await_task;
mod extensions;
mod link_error;
mod side_queue;
mod legacy;
mod lookalikes;
mod notifications;
mod stdio;
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

use crate::body::Body;
use crate::json::{ByteString, JsonObject, RawJson};
use crate::jsonrpc::{MalformedMessage, RequestId, RpcMessage, RpcPayload};
use crate::model::{Error, McpErrorKind, Principal, Server};
use crate::session::{ParkedCalls, Sessions, StateSealer};
use crate::telemetry::Metrics;
use crate::timer_pool::TimerPool;

pub use attribution::InputRecord;
pub use correlation::PendingCalls;
pub use error_codes::call_ending;
use error_codes::count_local_answer;
pub use extensions::shared_capabilities;
pub use mcp_apps::{APP_SCHEME, app_pages, with_app_pages};
pub use negotiate::{
    CallTimeouts, ConnectError, ConnectOptions, Era, NegotiatedServer, connect, connect_http_sse, may_be_http_sse,
};
pub use stdio::{ClientDisconnected, StdioClient};

/// Every revision that both edges speak, oldest first. A new one is a line here and a row or folder below.
pub const SUPPORTED: [&str; 5] = [
    legacy::PROFILES[0].name,
    legacy::PROFILES[1].name,
    legacy::PROFILES[2].name,
    legacy::PROFILES[3].name,
    v2026_07_28::NAME,
];

/// The client side of one family of revisions.
pub trait Dialect: Send + Sync {
    /// Whether this request is spelled in one of its revisions.
    fn matches(&self, head: &RequestHead<'_>, peek: &BodyHint<'_>) -> bool;

    /// Answers the request.
    fn serve<'a>(
        &'a self,
        inbound: McpRequest,
        server: Arc<dyn Server>,
        state: &'a Arc<DownstreamState>,
    ) -> BoxFuture<'a, Response<Body>>;

    /// Answers with an error, in its own spelling and with its own status.
    fn error_response(&self, id: Option<&RequestId>, error: &Error) -> Response<Body>;
}

/// What all fronts share.
pub struct DownstreamState {
    /// Sessions of legacy clients.
    pub sessions: Arc<Sessions>,
    /// Exchanges that wait for answers of stateless clients.
    pub parked_calls: Arc<ParkedCalls>,
    /// Seals the state that those clients carry.
    pub seal: Arc<StateSealer>,
    /// Longest time for a user to answer what a server asks.
    pub input_timeout: Duration,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// After this much silence a waiting answer becomes a stream, and a stream gets a comment.
    pub keep_alive: Duration,
    /// Streams that may be open at once.
    pub streams_max: usize,
    /// Resources that one stream may name.
    pub subscriptions_max: usize,
    /// Names of client headers that some server wants forwarded; lower case.
    pub forwarded_headers: Vec<http::HeaderName>,
    /// How long a connection stays open for one stream, where the client can come back for the rest.
    pub stream_lifetime: Duration,
    /// Timers of answers that keep their clients waiting.
    pub timers: Arc<TimerPool>,
    /// Cancelled when the gateway drains: streams end in their revision's way.
    pub draining: tokio_util::sync::CancellationToken,
}

/// One HTTP request to an MCP endpoint, after its credentials were checked.
pub struct McpRequest {
    /// The HTTP method.
    pub method: http::Method,
    /// What was asked for.
    pub uri: http::Uri,
    /// The headers.
    pub headers: HeaderMap,
    /// The body: what it says, or why it says nothing.
    pub payload: Result<RpcPayload, MalformedMessage>,
    /// Who sent it.
    pub principal: Arc<Principal>,
    /// The endpoint: which server or view, empty for everything. Sessions are bound to it.
    pub scope: ByteString,
    /// When its head had been read.
    pub received: Instant,
}

/// What decides the dialect, of the head.
pub struct RequestHead<'a> {
    /// The HTTP method.
    pub method: &'a http::Method,
    /// The headers.
    pub headers: &'a HeaderMap,
}

/// What decides the dialect, of the body.
pub struct BodyHint<'a> {
    /// The single message, if the body is one.
    pub message: Option<&'a RpcMessage>,
}

/// Which front answers a request: the first that claims it; the legacy front claims whatever is left.
pub fn select_dialect(head: &RequestHead<'_>, peek: &BodyHint<'_>) -> &'static dyn Dialect {
    const FRONTS: [&dyn Dialect; 2] = [&v2026_07_28::DIALECT, &legacy::DIALECT];
    FRONTS.into_iter().find(|front| front.matches(head, peek)).unwrap_or(&legacy::DIALECT)
}

/// The front for clients of HTTP+SSE, the HTTP transport of 2024-11-05, which has endpoints of its own.
pub fn http_sse_dialect() -> &'static dyn Dialect {
    &legacy::HTTP_SSE
}

/// The revision of this name, if both edges speak it.
pub fn supported_revision(name: &str) -> Option<&'static str> {
    SUPPORTED.into_iter().find(|known| *known == name)
}

/// The era of one of [`SUPPORTED`].
pub fn era_of(revision: &str) -> Era {
    if revision == v2026_07_28::NAME { Era::Modern } else { Era::Legacy }
}

/// Whether a tool says that its calls may become tasks.
pub fn may_be_task(definition: Option<&JsonObject>) -> bool {
    tasks::task_support(definition) != tasks::TaskSupport::Forbidden
}

/// Why a tool that a server lists may not be exposed, by the rules of the server's revision.
///
/// 2026-07-28/basic/transports/streamable-http.mdx, Schema Extension: "the client MUST exclude the invalid tool from
/// the result of `tools/list`". Pipes have no headers and may ignore the annotations.
pub fn tool_problem(era: Era, is_pipe: bool, definition: &JsonObject) -> Option<String> {
    match era {
        Era::Modern if !is_pipe => v2026_07_28::tool_problem(definition),
        _ => None,
    }
}

/// A tool's definition, listed as one that may run as a task, for clients whose revision looks there; `None` if the
/// tool speaks of it itself.
pub fn offer_as_task(definition: &RawJson) -> Option<RawJson> {
    tasks::offer_as_task(definition)
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
pub fn implementation() -> RawJson {
    const JSON: &str =
        concat!(r#"{"name":"moongate","title":"Moongate","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);
    RawJson::literal(JSON)
}

/// The gateway in the place of one server that the config gives a title or an icon.
///
/// 2025-11-25/basic/index.mdx, `icons`: "Icons are represented as an array of `Icon` objects".
pub fn implementation_as(title: Option<&str>, icon: Option<&str>) -> RawJson {
    let own = implementation();
    let Some(mut info) = own.as_object().filter(|_| title.is_some() || icon.is_some()) else { return own };
    if let Some(title) = title {
        info.set(ByteString::literal("title"), RawJson::string(title));
    }
    if let Some(icon) = icon {
        info.set(
            ByteString::literal("icons"),
            RawJson::array([JsonObject::new().with("src", RawJson::string(icon)).to_raw()].iter()),
        );
    }
    info.to_raw()
}

/// The gateway's own key in `_meta` of a list that is empty since its server is not there.
///
/// 2025-11-25/basic/index.mdx, `_meta`: a prefix "MUST be a series of labels separated by dots (`.`), followed by a
/// slash (`/`)".
const UNAVAILABLE: &str = "moongate/unavailable";

/// Writes into the `_meta` of a list why its server is not there.
pub fn explain_absence(result: &mut JsonObject, reason: &str) {
    let mut meta = result.get_object("_meta").unwrap_or_default();
    meta.set(ByteString::literal(UNAVAILABLE), RawJson::string(reason));
    result.set(ByteString::literal("_meta"), meta.to_raw());
}

/// What is wrong with a body, as an error for its sender.
fn malformed_error(error: &MalformedMessage) -> (Option<RequestId>, Error) {
    match error {
        MalformedMessage::Json(e) => (None, Error::new(McpErrorKind::Parse, format!("Parse error: {e}"))),
        MalformedMessage::Shape { reason, id } => {
            (id.clone(), Error::new(McpErrorKind::InvalidRequest, format!("Invalid request: {reason}")))
        }
        MalformedMessage::Lookalike { member, id } => (id.clone(), lookalikes::lookalike_error(member)),
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
fn take_meta(params: &mut JsonObject) -> Result<JsonObject, Error> {
    let Some(raw) = params.remove("_meta") else { return Ok(JsonObject::new()) };
    let wrong = || Error::new(McpErrorKind::InvalidParams, "params._meta must be an object without duplicate keys");
    let meta = raw.as_object().ok_or_else(wrong)?;
    lookalikes::reject_lookalikes_in_meta(&meta)?;
    Ok(meta)
}

/// The client's headers that are passed on to the server, under the names that the config gives them.
fn forwarded_headers(caller: &crate::model::Caller) -> crate::link::HeaderList {
    let header = |(name, value): &(ByteString, ByteString)| {
        Some((http::HeaderName::from_bytes(name.as_bytes()).ok()?, http::HeaderValue::from_str(value).ok()?))
    };
    caller.forwarded_headers.iter().filter_map(header).collect()
}
