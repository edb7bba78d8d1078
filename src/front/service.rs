//! Service of one connection: from a request to the routes. Owns the choice between the router and the fast path.
//!
//! Does not answer requests (`mcp.rs`). Invariant: the fast path is taken only where the origin check has nothing to
//! add, and it ends in the same function as the router.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body as AxumBody;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tower::ServiceExt;

use crate::body::Body;
use crate::front::connection_limit::{ConnectionSlot, SlotRequest};
use crate::front::h2_stall::StallTimeoutBody;
use crate::front::origin::has_several_hosts;
use crate::front::{ServerState, SharedServerState, mcp, small_response};

/// Request handler of a connection.
#[derive(Clone)]
pub struct ConnectionService {
    router: Router,
    /// State of the endpoints. `None` on the admin listener.
    state: Option<SharedServerState>,
    /// True if the request's host says nothing about the client, as on a Unix socket.
    local: bool,
    /// True if each response must announce the end of its connection.
    closing: Arc<AtomicBool>,
    peer: Option<PeerAddress>,
    /// Maximum size of an HTTP/1 request head, in bytes.
    head_max: usize,
    /// Slot of this connection.
    slot: Option<Arc<ConnectionSlot>>,
}

/// Client address of a connection. Routes read it as an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// Host that was accepted earlier on this connection. Saves the check of equal values.
#[derive(Default)]
pub(super) struct AcceptedHost {
    state: Weak<ServerState>,
    host: Option<HeaderValue>,
}

/// Returns a copy that does not keep the buffer of its request alive.
fn detached_copy(value: Option<&HeaderValue>) -> Option<HeaderValue> {
    HeaderValue::from_bytes(value?.as_bytes()).ok()
}

/// Response body with its connection's slot, which it holds until it is sent.
pub struct GuardedBody {
    body: EitherBody,
    _slot: Option<Arc<SlotRequest>>,
}

impl From<EitherBody> for GuardedBody {
    fn from(body: EitherBody) -> Self {
        GuardedBody { body, _slot: None }
    }
}

/// Response body of the fast path or of a route.
enum EitherBody {
    /// Body of an endpoint.
    Mcp(Body),
    /// Body of a route.
    Route(AxumBody),
    /// Either body over HTTP/2, where only the detector notices that its client stopped reading.
    Watched(StallTimeoutBody),
}

impl ConnectionService {
    /// Creates the service from the routes and, for clients, the endpoints' state.
    pub fn new(router: Router, state: Option<SharedServerState>, local: bool) -> Self {
        ConnectionService {
            router,
            state,
            local,
            closing: Arc::default(),
            peer: None,
            head_max: usize::MAX,
            slot: None,
        }
    }

    /// Returns the flag that makes connections end with their next response.
    pub(super) fn is_closing(&self) -> &AtomicBool {
        &self.closing
    }

    /// Returns the state that serves a simple POST, if it goes to an endpoint and needs no origin check.
    pub(super) fn fast_path_state(&self, head: &Parts, known: &mut AcceptedHost) -> Option<Arc<ServerState>> {
        endpoint(head.uri.path())?;
        let front = self.state.as_ref()?.load_full();
        let same = known.state.as_ptr() == Arc::as_ptr(&front) && known.host.as_ref() == head.headers.get(header::HOST);
        let only_host = same && !has_several_hosts(&head.headers);
        let unguarded = match only_host {
            true => !head.headers.contains_key(header::ORIGIN),
            false => needs_no_origin_check(&front, self.local, &head.headers, &head.uri),
        };
        if !unguarded {
            return None;
        }
        if !same {
            *known =
                AcceptedHost { state: Arc::downgrade(&front), host: detached_copy(head.headers.get(header::HOST)) };
        }
        Some(front)
    }

    /// Returns the client's address, if it has one.
    pub(super) fn peer(&self) -> Option<PeerAddress> {
        self.peer
    }

    /// Announces the end of the connection in each response once `closing` is true.
    pub(super) fn closing_when(self, closing: Arc<AtomicBool>) -> Self {
        ConnectionService { closing, ..self }
    }

    /// Refuses larger heads. hyper has room for more, and judges only heads that arrive in parts.
    pub(super) fn with_head_max(self, head_max: usize) -> Self {
        ConnectionService { head_max, ..self }
    }

    /// Reports the connection's requests to this slot.
    pub(super) fn in_slot(self, place: Arc<ConnectionSlot>) -> Self {
        ConnectionService { slot: Some(place), ..self }
    }

    /// Answers a request whose head is too large. The rest of the request is unknown.
    fn refuse_head(&self) -> Response<GuardedBody> {
        if let Some(fronts) = &self.state {
            fronts.load().downstream.metrics.refused.with_label_values(&["head"]).inc();
        }
        let message = format!("The head of the request is larger than {} bytes (limits.head)", self.head_max);
        let mut response = small_response(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", &message);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response.map(|body| EitherBody::Mcp(body).into())
    }

    /// Returns a counter of responses that their client did not read.
    pub(super) fn count_stalled(&self) -> impl Fn() + Send + Unpin + use<> {
        let fronts = self.state.clone();
        move || {
            if let Some(fronts) = &fronts {
                fronts.load().stall_detector.record_dropped();
            }
        }
    }

    /// Returns a copy for one connection.
    pub(super) fn for_peer(&self, address: Option<SocketAddr>) -> Self {
        ConnectionService { peer: address.map(|address| PeerAddress(address.ip().to_canonical())), ..self.clone() }
    }
}

/// Returns the endpoint that a path names: `/mcp` or `/mcp/{name}`, with or without a slash at the end, as the routes
/// do.
pub(super) fn endpoint(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/mcp")?;
    if rest.is_empty() || rest == "/" {
        return Some("");
    }
    let name = rest.strip_prefix('/')?;
    let name = name.strip_suffix('/').unwrap_or(name);
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    (plain && !name.is_empty()).then_some(name)
}

/// True if the origin check would let the request pass unchanged.
fn needs_no_origin_check(front: &ServerState, local: bool, headers: &HeaderMap, uri: &Uri) -> bool {
    let plain = !headers.contains_key(header::ORIGIN) && !has_several_hosts(headers);
    plain && (local || front.hosts.accepts_request(headers, uri).is_ok())
}

/// Returns the size of a request's head as its client wrote it, in bytes. Spaces around values are lost by then.
fn head_size<B>(request: &Request<B>) -> usize {
    let target = request.uri().path_and_query().map_or(1, |target| target.as_str().len());
    let authority = request.uri().authority().map_or(0, |authority| authority.as_str().len());
    let line = request.method().as_str().len() + target + authority + " HTTP/1.1\r\n\r\n ".len();
    line + request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len())
        .sum::<usize>()
}

/// Adds the end of the connection to a response if the connection is closing. HTTP/2 has GOAWAY for that.
fn with_connection_close(
    mut response: Response<GuardedBody>,
    version: Version,
    closing: &AtomicBool,
) -> Response<GuardedBody> {
    if version <= Version::HTTP_11 && closing.load(Ordering::Relaxed) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Watches a response body over HTTP/2, where a reader that stalls does not block the connection.
fn watch_if_h2(
    response: Response<EitherBody>,
    version: Version,
    front: Option<&ServerState>,
    place: Option<Arc<SlotRequest>>,
) -> Response<GuardedBody> {
    response.map(|body| match front {
        Some(front) if version == Version::HTTP_2 => {
            GuardedBody { body: EitherBody::Watched(front.stall_detector.watch(GuardedBody::from(body))), _slot: place }
        }
        _ => GuardedBody { body, _slot: place },
    })
}

impl hyper::service::Service<Request<Incoming>> for ConnectionService {
    type Response = Response<GuardedBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<GuardedBody>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let closing = self.closing.clone();
        // HTTP/2 limits heads by itself (SETTINGS_MAX_HEADER_LIST_SIZE).
        if request.version() <= Version::HTTP_11 && head_size(&request) > self.head_max {
            let response = self.refuse_head();
            return Box::pin(std::future::ready(Ok(response)));
        }
        // The slot stays in use until the response is sent: the body holds this too.
        let place = self.slot.as_ref().map(|place| Arc::new(place.begin()));
        if let Some(fronts) = &self.state
            && endpoint(request.uri().path()).is_some()
            && let front = fronts.load_full()
            && needs_no_origin_check(&front, self.local, request.headers(), request.uri())
        {
            let peer = self.peer;
            return Box::pin(async move {
                let path = request.uri().path_and_query().cloned();
                let name = path.as_ref().and_then(|path| endpoint(path.path())).unwrap_or_default();
                let version = request.version();
                let response = mcp::serve(&front, name, request, peer, place.as_deref()).await.map(EitherBody::Mcp);
                Ok(with_connection_close(watch_if_h2(response, version, Some(&front), place), version, &closing))
            });
        }
        let (router, front, mut request) = (self.router.clone(), self.state.as_ref().map(|f| f.load_full()), request);
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        if let Some(place) = &place {
            request.extensions_mut().insert(place.clone());
        }
        Box::pin(async move {
            let version = request.version();
            let Ok(response) = router.oneshot(request.map(AxumBody::new)).await;
            let response = response.map(EitherBody::Route);
            Ok(with_connection_close(watch_if_h2(response, version, front.as_deref(), place), version, &closing))
        })
    }
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut self.get_mut().body {
            EitherBody::Mcp(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            EitherBody::Route(body) => Pin::new(body).poll_frame(cx),
            EitherBody::Watched(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            EitherBody::Mcp(body) => body.is_end_stream(),
            EitherBody::Route(body) => body.is_end_stream(),
            EitherBody::Watched(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            EitherBody::Mcp(body) => body.size_hint(),
            EitherBody::Route(body) => body.size_hint(),
            EitherBody::Watched(body) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::endpoint;

    #[test]
    fn paths_name_endpoints_as_the_routes_do() {
        for (path, name) in [("/mcp", ""), ("/mcp/", ""), ("/mcp/a", "a"), ("/mcp/a-b_1/", "a-b_1")] {
            assert_eq!(endpoint(path), Some(name), "{path}");
        }
        for path in ["/", "/mcpx", "/mcp/a/b", "/mcp//", "/mcp///", "/mcp/a//", "/mcp//a", "/mcp/.well-known/x"] {
            assert_eq!(endpoint(path), None, "{path}");
        }
        for path in ["/mcp/a%20b", "/MCP", "/metrics"] {
            assert_eq!(endpoint(path), None, "{path}");
        }
    }
}
