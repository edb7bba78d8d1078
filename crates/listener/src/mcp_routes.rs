//! Routes of the MCP endpoints, for requests that hyper reads.
//!
//! Owns the endpoint and the dialect that a path names. Does not serve requests
//! (`serve_request.rs`). Invariant: only the paths of HTTP+SSE name a dialect.

use std::sync::Arc;

use axum::body::Body as AxumBody;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::{HeaderValue, StatusCode, Version, header};
use tokio::time::Instant;

use crate::address::PeerAddress;
use crate::collect_body::WireBytes;
use crate::connection_limit::SlotRequest;
use crate::listener_state::SharedListenerState;
use crate::request_body::HyperBody;
use crate::serve_request::{ReceivedRequest, RequestSource, serve_request};
use crate::small_response::not_found;
use moongate_jsonrpc::json::ByteString;
use moongate_protocol::{Dialect, http_sse_dialect};

/// Serves `/mcp`.
pub(super) async fn all_servers(
    State(shared_state): State<SharedListenerState>,
    request: Request,
) -> Response {
    serve_route(&shared_state, "", request, None).await
}

/// Serves `/mcp/{view}` and `/mcp/{server}`.
pub(super) async fn one_endpoint(
    shared: State<SharedListenerState>,
    name: Path<String>,
    request: Request,
) -> Response {
    serve_named(&shared, &name, request, None).await
}

/// Serves `/sse`.
pub(super) async fn sse_all_servers(
    State(shared_state): State<SharedListenerState>,
    request: Request,
) -> Response {
    serve_route(&shared_state, "", request, Some(http_sse_dialect())).await
}

/// Serves `/sse/{view}` and `/sse/{server}`.
pub(super) async fn sse_one_endpoint(
    shared: State<SharedListenerState>,
    name: Path<String>,
    request: Request,
) -> Response {
    serve_named(&shared, &name, request, Some(http_sse_dialect())).await
}

async fn serve_named(
    shared_state: &SharedListenerState,
    name: &str,
    request: Request,
    dialect: Option<&'static dyn Dialect>,
) -> Response {
    match name.is_empty() {
        // Two slashes: the router finds an empty name between them.
        true => not_found().await,
        false => serve_route(shared_state, name, request, dialect).await,
    }
}

/// Serves a request in the given dialect, or in the one that it is written in.
async fn serve_route(
    shared_state: &SharedListenerState,
    name: &str,
    request: Request,
    dialect: Option<&'static dyn Dialect>,
) -> Response {
    // Loaded once: a reload must not change limits in the middle of a request.
    let received = Instant::now();
    let state = shared_state.load_full();
    let (mut head, body) = request.into_parts();
    let slot = head.extensions.remove::<Arc<SlotRequest>>();
    let peer = head.extensions.get::<PeerAddress>().copied();
    let version = head.version;
    let body = HyperBody {
        body,
        wire: WireBytes::of(version, slot.clone()),
    };
    let source = RequestSource {
        peer,
        slot: slot.as_deref(),
        identity: None,
    };
    let request = ReceivedRequest {
        head,
        scope: ByteString::from(name),
        dialect,
        received,
    };
    let mut response = serve_request(&state, source, request, body)
        .await
        .map(AxumBody::new);
    // The rest of the body is not read, so no other request can follow it. HTTP/2 ends the stream
    // instead.
    if version <= Version::HTTP_11 && response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
