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
use crate::front::guard::has_several_hosts;
use crate::front::places::{ConnectionPlace, PlaceUse};
use crate::front::unread::Watched;
use crate::front::{Front, Fronts, mcp, small};

/// What a connection calls.
#[derive(Clone)]
pub struct Service {
    router: Router,
    /// Only the listener for clients has endpoints.
    fronts: Option<Fronts>,
    /// Whether the host of a request says nothing.
    local: bool,
    /// Whether each answer says that its connection ends.
    closing: Arc<AtomicBool>,
    peer: Option<Peer>,
    /// Largest head of a request over HTTP/1, in bytes.
    head_max: usize,
    /// The connection's.
    place: Option<Arc<ConnectionPlace>>,
}

/// Who is at the other end of a connection, for routes that ask: an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// What was accepted on a connection, so that the same need not be looked at again.
#[derive(Default)]
pub(super) struct Known {
    front: Weak<Front>,
    host: Option<HeaderValue>,
}

/// A copy that does not keep the rest of its request.
fn own(value: Option<&HeaderValue>) -> Option<HeaderValue> {
    HeaderValue::from_bytes(value?.as_bytes()).ok()
}

/// A response body, and the place of its connection for as long as it is sent.
pub struct Answer {
    body: AnswerBody,
    _place: Option<Arc<PlaceUse>>,
}

impl From<AnswerBody> for Answer {
    fn from(body: AnswerBody) -> Self {
        Answer { body, _place: None }
    }
}

/// A response body of either way.
enum AnswerBody {
    /// An endpoint's.
    Mcp(Body),
    /// Of a route.
    Route(AxumBody),
    /// Either, over HTTP/2: where nobody reads it, nothing else shows that.
    Watched(Watched),
}

impl Service {
    /// The routes, and the endpoints where there are any.
    pub fn new(router: Router, fronts: Option<Fronts>, local: bool) -> Self {
        Service { router, fronts, local, closing: Arc::default(), peer: None, head_max: usize::MAX, place: None }
    }

    /// Whether the connections are to end with their next answers.
    pub(super) fn is_closing(&self) -> &AtomicBool {
        &self.closing
    }

    /// The front that answers a plain request, if the request goes to an endpoint and the guard has nothing to add.
    pub(super) fn takes(&self, head: &Parts, known: &mut Known) -> Option<Arc<Front>> {
        endpoint(head.uri.path())?;
        let front = self.fronts.as_ref()?.load_full();
        let same = known.front.as_ptr() == Arc::as_ptr(&front) && known.host.as_ref() == head.headers.get(header::HOST);
        let only_host = same && !has_several_hosts(&head.headers);
        let unguarded = match only_host {
            true => !head.headers.contains_key(header::ORIGIN),
            false => is_unguarded(&front, self.local, &head.headers, &head.uri),
        };
        if !unguarded {
            return None;
        }
        if !same {
            *known = Known { front: Arc::downgrade(&front), host: own(head.headers.get(header::HOST)) };
        }
        Some(front)
    }

    /// Whose connection it is, where it has an address.
    pub(super) fn peer(&self) -> Option<Peer> {
        self.peer
    }

    /// Says in each answer that its connection ends, once this is true.
    pub(super) fn closing(self, closing: Arc<AtomicBool>) -> Self {
        Service { closing, ..self }
    }

    /// Refuses larger heads: the general server has room for more, and judges only those that come in parts.
    pub(super) fn with_head_max(self, head_max: usize) -> Self {
        Service { head_max, ..self }
    }

    /// Tells this place of the requests of its connection.
    pub(super) fn at(self, place: Arc<ConnectionPlace>) -> Self {
        Service { place: Some(place), ..self }
    }

    /// The answer to a request whose head is too large; nothing else is known of it.
    fn refuse_head(&self) -> Response<Answer> {
        if let Some(fronts) = &self.fronts {
            fronts.load().state.metrics.refused.with_label_values(&["head"]).inc();
        }
        let message = format!("The head of the request is larger than {} bytes (limits.head)", self.head_max);
        let mut response = small(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", &message);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response.map(|body| AnswerBody::Mcp(body).into())
    }

    /// Counts, each time it is called, something that its client did not read.
    pub(super) fn counts_unread(&self) -> impl Fn() + Send + Unpin + use<> {
        let fronts = self.fronts.clone();
        move || {
            if let Some(fronts) = &fronts {
                fronts.load().unread.count();
            }
        }
    }

    /// The same for one connection.
    pub(super) fn for_peer(&self, address: Option<SocketAddr>) -> Self {
        Service { peer: address.map(|address| Peer(address.ip().to_canonical())), ..self.clone() }
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
fn is_unguarded(front: &Front, local: bool, headers: &HeaderMap, uri: &Uri) -> bool {
    let plain = !headers.contains_key(header::ORIGIN) && !has_several_hosts(headers);
    plain && (local || front.hosts.accepts(headers, uri).is_ok())
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
fn told(mut response: Response<Answer>, version: Version, closing: &AtomicBool) -> Response<Answer> {
    if version <= Version::HTTP_11 && closing.load(Ordering::Relaxed) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The answer, watched where only that shows whether it is read.
fn watched(
    response: Response<AnswerBody>,
    version: Version,
    front: Option<&Front>,
    place: Option<Arc<PlaceUse>>,
) -> Response<Answer> {
    response.map(|body| match front {
        Some(front) if version == Version::HTTP_2 => {
            Answer { body: AnswerBody::Watched(front.unread.watch(Answer::from(body))), _place: place }
        }
        _ => Answer { body, _place: place },
    })
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let closing = self.closing.clone();
        if request.version() <= Version::HTTP_11 && head_size(&request) > self.head_max {
            let response = self.refuse_head();
            return Box::pin(std::future::ready(Ok(response)));
        }
        let place = self.place.as_ref().map(|place| Arc::new(place.begin()));
        if let Some(fronts) = &self.fronts
            && endpoint(request.uri().path()).is_some()
            && let front = fronts.load_full()
            && is_unguarded(&front, self.local, request.headers(), request.uri())
        {
            let peer = self.peer;
            return Box::pin(async move {
                let path = request.uri().path_and_query().cloned();
                let name = path.as_ref().and_then(|path| endpoint(path.path())).unwrap_or_default();
                let version = request.version();
                let response = mcp::serve(&front, name, request, peer, place.as_deref()).await.map(AnswerBody::Mcp);
                Ok(told(watched(response, version, Some(&front), place), version, &closing))
            });
        }
        let (router, front, mut request) = (self.router.clone(), self.fronts.as_ref().map(|f| f.load_full()), request);
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        if let Some(place) = &place {
            request.extensions_mut().insert(place.clone());
        }
        Box::pin(async move {
            let version = request.version();
            let Ok(response) = router.oneshot(request.map(AxumBody::new)).await;
            let response = response.map(AnswerBody::Route);
            Ok(told(watched(response, version, front.as_deref(), place), version, &closing))
        })
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut self.get_mut().body {
            AnswerBody::Mcp(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            AnswerBody::Route(body) => Pin::new(body).poll_frame(cx),
            AnswerBody::Watched(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            AnswerBody::Mcp(body) => body.is_end_stream(),
            AnswerBody::Route(body) => body.is_end_stream(),
            AnswerBody::Watched(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            AnswerBody::Mcp(body) => body.size_hint(),
            AnswerBody::Route(body) => body.size_hint(),
            AnswerBody::Watched(body) => body.size_hint(),
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
