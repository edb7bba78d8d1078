//! Service of one connection: from a request to the routes. Owns the choice between the routes and
//! the fast path.
//!
//! Does not answer requests. Invariant: the fast path is taken only where the origin check has
//! nothing to add, and it ends in the same function as the routes.

use std::convert::Infallible;
use std::net::SocketAddr;
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

use crate::address::PeerAddress;
use crate::connection_limit::{ConnectionSlot, SlotRequest};
use crate::endpoint_path::endpoint_name;
use crate::h2_stall::StallTimeoutBody;
use crate::head_limit::HeadLimit;
use crate::host_rules::has_several_hosts;
use crate::listener_state::{ListenerState, SharedListenerState};
use crate::stalled_writes::StalledWrites;

/// Request handler of a connection.
#[derive(Clone)]
pub struct ConnectionService {
    router: Router,
    /// State of the endpoints. `None` on the admin listener.
    state: Option<SharedListenerState>,
    /// True if the request's host says nothing about the client, as on a Unix socket.
    local: bool,
    /// True if each response must announce the end of its connection.
    closing: Arc<AtomicBool>,
    peer: Option<PeerAddress>,
    /// Slot of this connection.
    slot: Option<Arc<ConnectionSlot>>,
}

/// Host that was accepted earlier on this connection. Saves the check of equal values.
#[derive(Default)]
pub(super) struct AcceptedHost {
    state: Weak<ListenerState>,
    host: Option<HeaderValue>,
}

/// Returns a copy that does not keep the buffer of its request alive.
fn detached_copy(value: Option<&HeaderValue>) -> Option<HeaderValue> {
    // A clone of a header shares the buffer of its whole request. This one lives as long as the
    // connection.
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

/// Response body of a route.
enum EitherBody {
    Route(AxumBody),
    /// Body over HTTP/2, where only the detector notices that its client stopped reading.
    Watched(StallTimeoutBody),
}

impl ConnectionService {
    /// Creates the service from the routes and, for clients, the endpoints' state.
    pub fn new(router: Router, state: Option<SharedListenerState>, local: bool) -> Self {
        ConnectionService {
            router,
            state,
            local,
            closing: Arc::default(),
            peer: None,
            slot: None,
        }
    }

    /// Returns the flag that makes connections end with their next response.
    pub(super) fn is_closing(&self) -> &AtomicBool {
        &self.closing
    }

    /// Returns the state that serves a simple POST, if it goes to an endpoint and needs no origin
    /// check.
    pub(super) fn fast_path_state(
        &self,
        head: &Parts,
        accepted: &mut AcceptedHost,
    ) -> Option<Arc<ListenerState>> {
        endpoint_name(head.uri.path())?;
        let state = self.state.as_ref()?.load_full();
        // Pointers are compared: a reload replaces the state, and with it the accepted hosts.
        let same = accepted.state.as_ptr() == Arc::as_ptr(&state)
            && accepted.host.as_ref() == head.headers.get(header::HOST);
        let only_host = same && !has_several_hosts(&head.headers);
        let skips_check = match only_host {
            // An origin is checked each time: one connection of a browser serves several pages.
            true => !head.headers.contains_key(header::ORIGIN),
            false => needs_no_origin_check(&state, self.local, &head.headers, &head.uri),
        };
        if !skips_check {
            return None;
        }
        if !same {
            *accepted = AcceptedHost {
                state: Arc::downgrade(&state),
                host: detached_copy(head.headers.get(header::HOST)),
            };
        }
        Some(state)
    }

    /// Returns the client's address, if it has one.
    pub(super) fn peer(&self) -> Option<PeerAddress> {
        self.peer
    }

    /// Announces the end of the connection in each response once `closing` is true.
    pub(super) fn closing_when(self, closing: Arc<AtomicBool>) -> Self {
        ConnectionService { closing, ..self }
    }

    /// Refuses larger heads of HTTP/1, before any route sees them.
    pub(super) fn with_head_max(self, head_max: usize) -> Self {
        let limit = HeadLimit {
            head_max,
            state: self.state.clone(),
        };
        ConnectionService {
            router: limit.apply_to(self.router),
            ..self
        }
    }

    /// Reports the connection's requests to this slot.
    pub(super) fn in_slot(self, slot: Arc<ConnectionSlot>) -> Self {
        ConnectionService {
            slot: Some(slot),
            ..self
        }
    }

    /// Returns a counter of responses that their client did not read.
    pub(super) fn count_stalled(&self) -> impl Fn() + Send + Unpin + use<> {
        let shared_state = self.state.clone();
        move || {
            if let Some(shared_state) = &shared_state {
                shared_state.load().stall_detector.record_dropped();
            }
        }
    }

    /// Returns the list of writes that wait for a client. Operators' listeners have none: each gets
    /// its own.
    pub(super) fn stalled_writes(&self) -> Arc<StalledWrites> {
        self.state
            .as_ref()
            .map_or_else(Arc::default, |state| state.load().stall_detector.writes())
    }

    /// Returns a copy for one connection.
    pub(super) fn for_peer(&self, address: Option<SocketAddr>) -> Self {
        // Canonical, since a dual-stack socket shows IPv4 clients as `::ffff:192.0.2.1`.
        ConnectionService {
            peer: address.map(|address| PeerAddress(address.ip().to_canonical())),
            ..self.clone()
        }
    }
}

/// True if the origin check would let the request pass unchanged.
fn needs_no_origin_check(
    state: &ListenerState,
    local: bool,
    headers: &HeaderMap,
    uri: &Uri,
) -> bool {
    let plain = !headers.contains_key(header::ORIGIN) && !has_several_hosts(headers);
    plain && (local || state.hosts.accepts_request(headers, uri).is_ok())
}

/// Adds the end of the connection to a response if the connection is closing. HTTP/2 has GOAWAY for
/// that.
fn with_connection_close(
    mut response: Response<GuardedBody>,
    version: Version,
    is_closing: bool,
) -> Response<GuardedBody> {
    // RFC 9113, section 8.2.2: an endpoint "MUST NOT generate an HTTP/2 message containing
    // connection-specific header fields".
    if version <= Version::HTTP_11 && is_closing {
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Watches a response body over HTTP/2, where a reader that stalls does not block the connection.
fn watch_if_h2(
    response: Response<EitherBody>,
    version: Version,
    state: Option<&ListenerState>,
    slot: Option<Arc<SlotRequest>>,
) -> Response<GuardedBody> {
    let holders = slot
        .as_ref()
        .map(|slot| slot.holders_of(&response))
        .unwrap_or_default();
    let is_h2 = version == Version::HTTP_2;
    // Only over HTTP/1 has a connection one answer at a time.
    if let Some(slot) = slot.as_ref().filter(|_| !is_h2) {
        slot.set_answer(holders.clone());
    }
    response.map(|body| match state {
        Some(state) if is_h2 => {
            let watched = state.stall_detector.watch(GuardedBody::from(body), holders);
            GuardedBody {
                body: EitherBody::Watched(watched),
                _slot: slot,
            }
        }
        _ => GuardedBody { body, _slot: slot },
    })
}

impl hyper::service::Service<Request<Incoming>> for ConnectionService {
    type Response = Response<GuardedBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<GuardedBody>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let closing = self.closing.clone();
        // The slot stays in use until the response is sent: the body holds this too.
        let slot = self.slot.as_ref().map(|slot| Arc::new(slot.begin()));
        let router = self.router.clone();
        let state = self.state.as_ref().map(|f| f.load_full());
        let mut request = request;
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        if let Some(slot) = &slot {
            request.extensions_mut().insert(slot.clone());
        }
        // A slot for probes is free again after each.
        let is_for_probes = slot.as_ref().is_some_and(|slot| slot.is_for_probes());
        Box::pin(async move {
            let version = request.version();
            let Ok(response) = router.oneshot(request.map(AxumBody::new)).await;
            let response = response.map(EitherBody::Route);
            let is_closing = is_for_probes || closing.load(Ordering::Relaxed);
            Ok(with_connection_close(
                watch_if_h2(response, version, state.as_deref(), slot),
                version,
                is_closing,
            ))
        })
    }
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl http_body::Body for EitherBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            EitherBody::Route(body) => Pin::new(body).poll_frame(cx),
            EitherBody::Watched(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            EitherBody::Route(body) => body.is_end_stream(),
            EitherBody::Watched(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            EitherBody::Route(body) => body.size_hint(),
            EitherBody::Watched(body) => body.size_hint(),
        }
    }
}
