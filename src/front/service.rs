//! From a connection's request to the routes, with a short way for the endpoints.
//!
//! Owns the choice between the two ways. Invariant: the short way is taken only where the guard has nothing to add,
//! and leads to the same function as the router's.

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

/// What a connection calls.
#[derive(Clone)]
pub struct ConnectionService {
    router: Router,
    /// Only the listener for clients has endpoints.
    state: Option<SharedServerState>,
    /// Whether the host of a request says nothing.
    local: bool,
    /// Whether each answer says that its connection ends.
    closing: Arc<AtomicBool>,
    peer: Option<PeerAddress>,
    /// Largest head of a request over HTTP/1, in bytes.
    head_max: usize,
    /// The connection's.
    slot: Option<Arc<ConnectionSlot>>,
}

/// Who is at the other end of a connection, for routes that ask: an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// What was accepted on a connection, so that the same need not be looked at again.
#[derive(Default)]
pub(super) struct AcceptedHost {
    state: Weak<ServerState>,
    host: Option<HeaderValue>,
}

/// A copy that does not keep the rest of its request.
fn detached_copy(value: Option<&HeaderValue>) -> Option<HeaderValue> {
    HeaderValue::from_bytes(value?.as_bytes()).ok()
}

/// A response body, and the place of its connection for as long as it is sent.
pub struct GuardedBody {
    body: EitherBody,
    _slot: Option<Arc<SlotRequest>>,
}

impl From<EitherBody> for GuardedBody {
    fn from(body: EitherBody) -> Self {
        GuardedBody { body, _slot: None }
    }
}

/// A response body of either way.
enum EitherBody {
    /// An endpoint's.
    Mcp(Body),
    /// Of a route.
    Route(AxumBody),
    /// Either, over HTTP/2: where nobody reads it, nothing else shows that.
    Watched(StallTimeoutBody),
}

impl ConnectionService {
    /// The routes, and the endpoints where there are any.
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

    /// Whether the connections are to end with their next answers.
    pub(super) fn is_closing(&self) -> &AtomicBool {
        &self.closing
    }

    /// The front that answers a plain request, if the request goes to an endpoint and the guard has nothing to add.
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

    /// Whose connection it is, where it has an address.
    pub(super) fn peer(&self) -> Option<PeerAddress> {
        self.peer
    }

    /// Says in each answer that its connection ends, once this is true.
    pub(super) fn closing_when(self, closing: Arc<AtomicBool>) -> Self {
        ConnectionService { closing, ..self }
    }

    /// Refuses larger heads: the general server has room for more, and judges only those that come in parts.
    pub(super) fn with_head_max(self, head_max: usize) -> Self {
        ConnectionService { head_max, ..self }
    }

    /// Tells this place of the requests of its connection.
    pub(super) fn in_slot(self, place: Arc<ConnectionSlot>) -> Self {
        ConnectionService { slot: Some(place), ..self }
    }

    /// The answer to a request whose head is too large; nothing else is known of it.
    fn refuse_head(&self) -> Response<GuardedBody> {
        if let Some(fronts) = &self.state {
            fronts.load().downstream.metrics.refused.with_label_values(&["head"]).inc();
        }
        let message = format!("The head of the request is larger than {} bytes (limits.head)", self.head_max);
        let mut response = small_response(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", &message);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response.map(|body| EitherBody::Mcp(body).into())
    }

    /// Counts, each time it is called, something that its client did not read.
    pub(super) fn count_stalled(&self) -> impl Fn() + Send + Unpin + use<> {
        let fronts = self.state.clone();
        move || {
            if let Some(fronts) = &fronts {
                fronts.load().stall_detector.record_dropped();
            }
        }
    }

    /// The same for one connection.
    pub(super) fn for_peer(&self, address: Option<SocketAddr>) -> Self {
        ConnectionService { peer: address.map(|address| PeerAddress(address.ip().to_canonical())), ..self.clone() }
    }
}

/// The endpoint that a path names, as the routes do it: `/mcp`, `/mcp/{name}`, with one slash behind it or none.
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

/// Whether the guard would let the request pass as it is.
fn needs_no_origin_check(front: &ServerState, local: bool, headers: &HeaderMap, uri: &Uri) -> bool {
    let plain = !headers.contains_key(header::ORIGIN) && !has_several_hosts(headers);
    plain && (local || front.hosts.accepts_request(headers, uri).is_ok())
}

/// Bytes of a request's head, as its client must have written it; spaces around values are not there any more.
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

/// The answer, with the end of its connection if that is near; HTTP/2 has other means.
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

/// The answer, watched where only that shows whether it is read.
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
        if request.version() <= Version::HTTP_11 && head_size(&request) > self.head_max {
            let response = self.refuse_head();
            return Box::pin(std::future::ready(Ok(response)));
        }
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
