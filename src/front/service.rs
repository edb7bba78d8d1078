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
use http::{HeaderMap, HeaderValue, Request, Response, Uri, Version, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tower::ServiceExt;

use crate::body::Body;
use crate::front::guard::has_several_hosts;
use crate::front::unread::Watched;
use crate::front::{Front, Fronts, mcp};

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

/// A response body of either way.
pub enum Answer {
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
        Service { router, fronts, local, closing: Arc::default(), peer: None }
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

/// The endpoint that a path names, as the routes do it: `/mcp`, `/mcp/{name}`, with a slash behind it or not.
pub(super) fn endpoint(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/mcp")?;
    let name = match rest.strip_prefix('/') {
        Some(name) => name.strip_suffix('/').unwrap_or(name),
        None => rest,
    };
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    (plain && (rest.is_empty() || rest.starts_with('/'))).then_some(name)
}

/// Whether the guard would let the request pass as it is.
fn is_unguarded(front: &Front, local: bool, headers: &HeaderMap, uri: &Uri) -> bool {
    let plain = !headers.contains_key(header::ORIGIN) && !has_several_hosts(headers);
    plain && (local || front.hosts.accepts(headers, uri).is_ok())
}

/// The answer, with the end of its connection if that is near; HTTP/2 has other means.
fn told(mut response: Response<Answer>, version: Version, closing: &AtomicBool) -> Response<Answer> {
    if version <= Version::HTTP_11 && closing.load(Ordering::Relaxed) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The answer, watched where only that shows whether it is read.
fn watched(response: Response<Answer>, version: Version, front: Option<&Front>) -> Response<Answer> {
    match front {
        Some(front) if version == Version::HTTP_2 => response.map(|body| Answer::Watched(front.unread.watch(body))),
        _ => response,
    }
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let closing = self.closing.clone();
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
                let response = mcp::serve(&front, name, request, peer).await.map(Answer::Mcp);
                Ok(told(watched(response, version, Some(&front)), version, &closing))
            });
        }
        let (router, front, mut request) = (self.router.clone(), self.fronts.as_ref().map(|f| f.load_full()), request);
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        Box::pin(async move {
            let version = request.version();
            let Ok(response) = router.oneshot(request.map(AxumBody::new)).await;
            Ok(told(watched(response.map(Answer::Route), version, front.as_deref()), version, &closing))
        })
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Answer::Mcp(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Answer::Route(body) => Pin::new(body).poll_frame(cx),
            Answer::Watched(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Answer::Mcp(body) => body.is_end_stream(),
            Answer::Route(body) => body.is_end_stream(),
            Answer::Watched(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Mcp(body) => body.size_hint(),
            Answer::Route(body) => body.size_hint(),
            Answer::Watched(body) => body.size_hint(),
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
        for path in ["/", "/mcpx", "/mcp/a/b", "/mcp//", "/mcp/.well-known/x", "/mcp/a%20b", "/MCP", "/metrics"] {
            assert!(
                endpoint(path).is_none_or(str::is_empty) && (path == "/mcp//" || endpoint(path).is_none()),
                "{path}"
            );
        }
    }
}
