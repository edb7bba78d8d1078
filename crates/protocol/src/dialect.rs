//! Dialect: the client side of one family of revisions.
//!
//! Owns the trait and its parameters. Does not select the dialect (`lib.rs`). Invariant: a dialect
//! sees requests only after their credentials were checked and they were admitted.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{HeaderMap, Response};
use tokio::time::Instant;

use crate::admitted::{Admitted, ClientPayload};
use crate::body::Body;
use crate::lazy_timer::TimerPool;
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::{RequestId, RpcMessage};
use moongate_model::{Error, McpServer, Principal};
use moongate_session::{ParkedCalls, Sessions, StateSealer};
use moongate_telemetry::{MemoryHolder, Metrics};

/// Client side of one family of revisions.
pub trait Dialect: Send + Sync {
    /// True if this request belongs to one of the dialect's revisions.
    fn matches(&self, head: &RequestHead<'_>, peek: &BodyHint<'_>) -> bool;

    /// Serves a request that passed admission.
    ///
    /// Here the dialect decodes the members that its revision defines. `McpServer::call` resolves,
    /// permits and starts the call, and the dialect's encoder writes the response.
    fn serve<'a>(
        &'a self,
        request: Admitted<McpRequest>,
        endpoint: Arc<dyn McpServer>,
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
    /// Names of client headers that some server needs forwarded, in lower case.
    pub forwarded_headers: Vec<http::HeaderName>,
    /// Finds the key for this gateway that a request came with. `None` if the gateway asks for no
    /// key.
    pub sent_key: Option<fn(&http::HeaderMap) -> Option<&str>>,
    /// Lifetime of one stream's connection, for clients that can come back for the rest.
    pub stream_lifetime: Duration,
    /// Timers of responses in progress.
    pub timers: Arc<TimerPool>,
    /// Cancelled when the gateway drains: streams end in their revision's way.
    pub draining: tokio_util::sync::CancellationToken,
}

/// HTTP request to an MCP endpoint.
pub struct McpRequest {
    /// HTTP method.
    pub method: http::Method,
    /// Requested URI.
    pub uri: http::Uri,
    /// Headers of the request.
    pub headers: HeaderMap,
    /// Messages of the body, or the reason why it cannot be read.
    pub payload: ClientPayload,
    /// Principal that sent it.
    pub principal: Arc<Principal>,
    /// Holder of the memory that it takes.
    pub holder: MemoryHolder,
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
