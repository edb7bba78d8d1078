//! Wire forms of all revisions of MCP.
//!
//! Owns dates, headers, reserved `_meta` keys and error codes, for clients and for servers. Does not know the
//! configured servers. Invariant: each side translates between its wire and the neutral model, and knows nothing of the
//! other side.

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
use crate::lazy_timer::TimerPool;
use crate::model::{Error, McpErrorKind, Principal, Server};
use crate::session::{ParkedCalls, Sessions, StateSealer};
use crate::telemetry::Metrics;

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

/// Revisions supported on both sides, oldest first. A new one is a line here and a row or folder below.
pub const SUPPORTED: [&str; 5] = [
    legacy::PROFILES[0].name,
    legacy::PROFILES[1].name,
    legacy::PROFILES[2].name,
    legacy::PROFILES[3].name,
    v2026_07_28::NAME,
];

/// Client side of one family of revisions.
pub trait Dialect: Send + Sync {
    /// True if this request belongs to one of the dialect's revisions.
    fn matches(&self, head: &RequestHead<'_>, peek: &BodyHint<'_>) -> bool;

    /// Serves the request.
    fn serve<'a>(
        &'a self,
        inbound: McpRequest,
        server: Arc<dyn Server>,
        state: &'a Arc<DownstreamState>,
    ) -> BoxFuture<'a, Response<Body>>;

    /// Builds an error response with the dialect's wire form and status.
    fn error_response(&self, id: Option<&RequestId>, error: &Error) -> Response<Body>;
}

/// State shared by all dialects.
pub struct DownstreamState {
    /// Sessions of legacy clients.
    pub sessions: Arc<Sessions>,
    /// Exchanges that wait for responses of stateless clients.
    pub parked_calls: Arc<ParkedCalls>,
    /// Sealer of the state that those clients carry.
    pub seal: Arc<StateSealer>,
    /// Time limit for a user to answer an input request.
    pub input_timeout: Duration,
    /// Metrics of the gateway.
    pub metrics: Arc<Metrics>,
    /// Keep-alive: silence after which a response becomes a stream, and a stream gets a comment.
    pub keep_alive: Duration,
    /// Limit of open streams.
    pub streams_max: usize,
    /// Limit of resources that one stream may name.
    pub subscriptions_max: usize,
    /// Names of client headers that some server wants forwarded, in lower case.
    pub forwarded_headers: Vec<http::HeaderName>,
    /// Lifetime of one stream's connection, for clients that can come back for the rest.
    pub stream_lifetime: Duration,
    /// Timers of responses in progress.
    pub timers: Arc<TimerPool>,
    /// Cancelled when the gateway drains: streams end in their revision's way.
    pub draining: tokio_util::sync::CancellationToken,
}

/// HTTP request to an MCP endpoint, after its credentials were checked.
pub struct McpRequest {
    /// HTTP method.
    pub method: http::Method,
    /// Requested URI.
    pub uri: http::Uri,
    /// Headers of the request.
    pub headers: HeaderMap,
    /// Parsed body, or the reason why it cannot be read.
    pub payload: Result<RpcPayload, MalformedMessage>,
    /// Principal that sent it.
    pub principal: Arc<Principal>,
    /// Endpoint: a server or a view, empty for all servers. Sessions are bound to it.
    pub scope: ByteString,
    /// Time at which its head was read.
    pub received: Instant,
}

/// Parts of the request head that select the dialect.
pub struct RequestHead<'a> {
    /// HTTP method.
    pub method: &'a http::Method,
    /// Headers of the request.
    pub headers: &'a HeaderMap,
}

/// Part of the body that selects the dialect.
pub struct BodyHint<'a> {
    /// Single message, if the body is one.
    pub message: Option<&'a RpcMessage>,
}

/// Selects the dialect of a request: the first that matches. The legacy dialect matches all requests that are left.
pub fn select_dialect(head: &RequestHead<'_>, peek: &BodyHint<'_>) -> &'static dyn Dialect {
    // The order matters: the legacy dialect matches everything.
    const FRONTS: [&dyn Dialect; 2] = [&v2026_07_28::DIALECT, &legacy::DIALECT];
    FRONTS.into_iter().find(|front| front.matches(head, peek)).unwrap_or(&legacy::DIALECT)
}

/// Returns the dialect of HTTP+SSE, the HTTP transport of 2024-11-05, which has endpoints of its own.
pub fn http_sse_dialect() -> &'static dyn Dialect {
    &legacy::HTTP_SSE
}

/// Returns the revision of this name if it is supported.
pub fn supported_revision(name: &str) -> Option<&'static str> {
    SUPPORTED.into_iter().find(|known| *known == name)
}

/// Returns the era of one of [`SUPPORTED`].
pub fn era_of(revision: &str) -> Era {
    if revision == v2026_07_28::NAME { Era::Modern } else { Era::Legacy }
}

/// True if a tool declares that its calls may become tasks.
pub fn may_be_task(definition: Option<&JsonObject>) -> bool {
    tasks::task_support(definition) != tasks::TaskSupport::Forbidden
}

/// Returns the reason not to expose a listed tool, by the rules of the server's revision.
///
/// 2026-07-28/basic/transports/streamable-http.mdx, Schema Extension: "the client MUST exclude the invalid tool from
/// the result of `tools/list`". Pipes have no headers and may ignore the annotations.
pub fn tool_problem(era: Era, is_pipe: bool, definition: &JsonObject) -> Option<String> {
    match era {
        Era::Modern if !is_pipe => v2026_07_28::tool_problem(definition),
        _ => None,
    }
}

/// Returns a tool's definition with the mark that it may run as a task, for clients whose revision reads it there.
///
/// `None` if the definition has the mark already.
pub fn offer_as_task(definition: &RawJson) -> Option<RawJson> {
    tasks::offer_as_task(definition)
}

/// Header of the client's revision; for logs and metrics of refused requests.
pub const VERSION_HEADER: &str = "mcp-protocol-version";

/// Error code for a request without a valid key, in all revisions.
///
/// JSON-RPC leaves this range to implementations, and clients show such an error with its message.
pub const UNAUTHORIZED: i64 = -32001;

/// Headers that browsers must be allowed to send and to read.
pub mod cors {
    /// Headers that pages may send.
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
    /// Headers that pages may read.
    pub const EXPOSED: [&str; 2] = ["mcp-session-id", "www-authenticate"];
    /// Prefix of further headers that pages may send.
    pub const ALLOWED_PREFIX: &str = "mcp-param-";
}

/// Returns the gateway's own `Implementation`, for servers and clients.
pub fn implementation() -> RawJson {
    const JSON: &str =
        concat!(r#"{"name":"moongate","title":"Moongate","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);
    RawJson::literal(JSON)
}

/// Returns the gateway's `Implementation` for the endpoint of a server with a title or an icon in the config.
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

/// Gateway's own `_meta` key in a list that is empty because its server is unavailable.
///
/// 2025-11-25/basic/index.mdx, `_meta`: a prefix "MUST be a series of labels separated by dots (`.`), followed by a
/// slash (`/`)".
const UNAVAILABLE: &str = "moongate/unavailable";

/// Writes the reason for a server's absence into the `_meta` of a list.
pub fn explain_absence(result: &mut JsonObject, reason: &str) {
    let mut meta = result.get_object("_meta").unwrap_or_default();
    meta.set(ByteString::literal(UNAVAILABLE), RawJson::string(reason));
    result.set(ByteString::literal("_meta"), meta.to_raw());
}

/// Converts a malformed body into an error for its sender.
fn malformed_error(error: &MalformedMessage) -> (Option<RequestId>, Error) {
    match error {
        MalformedMessage::Json(e) => (None, Error::new(McpErrorKind::Parse, format!("Parse error: {e}"))),
        MalformedMessage::Shape { reason, id } => {
            (id.clone(), Error::new(McpErrorKind::InvalidRequest, format!("Invalid request: {reason}")))
        }
        MalformedMessage::Lookalike { member, id } => (id.clone(), lookalikes::lookalike_error(member)),
    }
}

/// Builds a response with a JSON body in parts.
fn json_response(status: u16, parts: impl IntoIterator<Item = Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::Parts(parts.into_iter().collect()));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    if status == 503 {
        // A limit was hit. Room may be free soon, but a retry at once does not help.
        response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    response
}

/// Takes the members of `_meta` out of the params, if there are any.
fn take_meta(params: &mut JsonObject) -> Result<JsonObject, Error> {
    let Some(raw) = params.remove("_meta") else { return Ok(JsonObject::new()) };
    let wrong = || Error::new(McpErrorKind::InvalidParams, "params._meta must be an object without duplicate keys");
    let meta = raw.as_object().ok_or_else(wrong)?;
    lookalikes::reject_lookalikes_in_meta(&meta)?;
    Ok(meta)
}

/// Returns the client's headers to forward to the server, under the names from the config.
fn forwarded_headers(caller: &crate::model::Caller) -> crate::link::HeaderList {
    let header = |(name, value): &(ByteString, ByteString)| {
        Some((http::HeaderName::from_bytes(name.as_bytes()).ok()?, http::HeaderValue::from_str(value).ok()?))
    };
    caller.forwarded_headers.iter().filter_map(header).collect()
}
