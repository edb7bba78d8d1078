//! Path of a request to an MCP endpoint, from its head to its response.
//!
//! Owns the order of the steps. Does not decode messages (`moongate-protocol`) or check origins
//! (`origin.rs`). Invariant: every HTTP request takes this path, and lines of a pipe take its typed
//! steps (`stdio.rs`).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::address::PeerAddress;
use crate::admission::DEFAULT_RETRY_AFTER;
use crate::connection_limit::SlotRequest;
use crate::host_rules::request_hosts;
use crate::listener_state::ListenerState;
use crate::panic_guard::{StartedResponse, finish_caught, start_caught};
use crate::request_body::{RequestBody, body_timed_out};
use crate::small_response::{json, small_response};
use moongate_access::auth::{
    AuthError, AuthRefusal, CachedIdentity, CredentialFetch, LackedRight, ProvenIdentity,
};
use moongate_gateway::Endpoint;
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::{RpcMessage, RpcPayload};
use moongate_model::{Error, McpErrorKind, Principal};
use moongate_protocol::body::Body;
use moongate_protocol::{Admitted, BodyHint, ClientPayload, Dialect, McpRequest, RequestHead};
use moongate_telemetry::{AuthOutcome, DeniedRule, Limit, MemoryHolder};

/// Longest time that a request waits for a fetch of its authentication.
const FETCH_TIMEOUT: Duration = Duration::from_secs(2);

/// HTTP request to an endpoint, without its body.
pub(super) struct ReceivedRequest {
    pub(super) head: Parts,
    /// Endpoint that the path names, empty for all servers.
    pub(super) scope: ByteString,
    /// Dialect of the path, if it has its own.
    pub(super) dialect: Option<&'static dyn Dialect>,
    /// Time at which the head was read.
    pub(super) received: Instant,
}

/// Connection that a request came on.
pub(super) struct RequestSource<'a> {
    pub(super) peer: Option<PeerAddress>,
    pub(super) slot: Option<&'a SlotRequest>,
    /// Identity of the connection's last request, where connections remember it.
    pub(super) identity: Option<&'a mut Option<CachedIdentity>>,
}

/// Response to a request that ends before its dialect serves it.
type EarlyResponse = Box<http::Response<Body>>;

/// Serves one HTTP request: the path of a call, with one call for each step.
///
/// `Dialect::serve` reaches the steps that are not the listener's. It decodes the params.
/// `Endpoint::call` resolves the name, lets policy permit it, and starts the call. The dialect's
/// `ResponseEncoder` encodes what comes back.
///
/// All steps before the first wait are done at once. A future of them would be moved from one layer
/// to the next, and each move would copy a kilobyte.
pub(super) fn serve_request<'a, B: RequestBody + 'a>(
    state: &'a ListenerState,
    mut source: RequestSource<'a>,
    request: ReceivedRequest,
    body: B,
) -> impl Future<Output = http::Response<Body>> + Send + use<'a, B> {
    let started = start_caught(move || {
        // The key comes first, so that a caller without one learns nothing about endpoints or load.
        match authenticate(state, &mut source, &request) {
            Ok(identity) => serve_identity(state, source.peer, identity, request, body),
            Err(AuthRefusal { error, fetch: None }) => Err(refuse(
                state,
                source.peer,
                &RefusedRequest::of(&request),
                &error,
            )),
            Err(AuthRefusal {
                error,
                fetch: Some(fetch),
            }) => Ok(serve_after_fetch(state, source, (request, body), (error, fetch)).boxed()),
        }
    });
    finish_caught(&state.downstream.metrics, started)
}

/// Serves a request whose sender is authenticated, for as long as the login is valid.
fn serve_identity<'a, B: RequestBody + 'a>(
    state: &'a ListenerState,
    peer: Option<PeerAddress>,
    ProvenIdentity {
        principal, login, ..
    }: ProvenIdentity,
    request: ReceivedRequest,
    body: B,
) -> StartedResponse<'a> {
    let Some(login) = login else {
        return serve_principal(state, peer, principal, request, body);
    };
    let refused = RefusedRequest::of(&request);
    let serving = serve_principal(state, peer, principal, request, body)?;
    let until_end = async move {
        match login.clone().run_until_cancelled_owned(serving).await {
            Some(response) => response.map(|body| end_with_login(body, login)),
            None => *refuse(state, peer, &refused, &AuthError::invalid("ended login")),
        }
    };
    Ok(until_end.boxed())
}

/// Ends a stream with the login that it started with.
fn end_with_login(body: Body, login: CancellationToken) -> Body {
    match body {
        Body::Stream(chunks) => Body::Stream(Box::pin(chunks.take_until(login.cancelled_owned()))),
        Body::Parts(parts) => Body::Parts(parts),
    }
}

/// Serves a request from an authenticated principal.
fn serve_principal<'a, B: RequestBody + 'a>(
    state: &'a ListenerState,
    peer: Option<PeerAddress>,
    principal: Arc<Principal>,
    request: ReceivedRequest,
    body: B,
) -> StartedResponse<'a> {
    let endpoint = find_endpoint(state, &request, &principal)?;
    admit_body(state, &request, &body)?;
    let holder = memory_holder(&principal, peer);
    body.read_then(state, holder.clone(), move |body| {
        let payload = decode(state, &request, body)?;
        let dialect = request.select_dialect(Some(&payload));
        let admitted = admit(state, dialect, &principal, payload)?;
        let request = admitted.map(|payload| request.into_mcp_request(principal, holder, payload));
        Ok(dialect.serve(request, endpoint, &state.downstream))
    })
}

/// Authenticates again after a fetch, while the body is unread. Refuses the request at once if too
/// many are waiting.
async fn serve_after_fetch<B: RequestBody>(
    state: &ListenerState,
    mut source: RequestSource<'_>,
    (request, body): (ReceivedRequest, B),
    (refused, fetch): (AuthError, CredentialFetch),
) -> http::Response<Body> {
    let Some(waiting) = state.admission.begin_fetch() else {
        return *refuse(state, source.peer, &RefusedRequest::of(&request), &refused);
    };
    // The method keeps what was fetched, so a slower fetch still helps the next request.
    let _ = tokio::time::timeout(FETCH_TIMEOUT, fetch).await;
    drop(waiting);
    let started = match authenticate(state, &mut source, &request) {
        Ok(identity) => serve_identity(state, source.peer, identity, request, body),
        Err(AuthRefusal { error, .. }) => Err(refuse(
            state,
            source.peer,
            &RefusedRequest::of(&request),
            &error,
        )),
    };
    match started {
        Ok(serving) => serving.await,
        Err(response) => *response,
    }
}

/// Authenticates the sender of a request by its head.
fn authenticate(
    state: &ListenerState,
    source: &mut RequestSource<'_>,
    request: &ReceivedRequest,
) -> Result<ProvenIdentity, AuthRefusal> {
    let identity = state.auth.authenticate(
        &request.head.headers,
        &request.scope,
        source.identity.as_deref_mut(),
    )?;
    if let Some(slot) = source.slot {
        // From here on, the connection is not evicted, because its sender has shown a key.
        slot.admit();
        slot.set_holder(memory_holder(&identity.principal, source.peer));
    }
    state.downstream.metrics.access.auth_accepted.inc();
    Ok(identity)
}

/// Parts of a refused request that its challenge depends on.
struct RefusedRequest {
    scope: ByteString,
    host: Option<String>,
}

impl RefusedRequest {
    fn of(request: &ReceivedRequest) -> Self {
        let host = request_hosts(&request.head.headers, &request.head.uri)
            .next()
            .flatten();
        RefusedRequest {
            scope: request.scope.clone(),
            host: host.map(str::to_owned),
        }
    }
}

/// Logs and counts refused credentials, and responds to them.
fn refuse(
    state: &ListenerState,
    peer: Option<PeerAddress>,
    refused: &RefusedRequest,
    denied: &AuthError,
) -> EarlyResponse {
    state
        .refused_keys
        .log(peer.map(|PeerAddress(address)| address), denied);
    Box::new(match denied {
        AuthError::Missing => unauthorized(state, refused, denied, AuthOutcome::Missing),
        AuthError::Invalid(_) => unauthorized(state, refused, denied, AuthOutcome::Wrong),
        // Not counted as wrong, because the client may try again with the same credentials.
        AuthError::Unavailable(_) => {
            let metrics = &state.downstream.metrics;
            metrics.calls.refused.inc(Limit::Principals);
            unavailable()
        }
        AuthError::Unchecked(_) => unavailable(),
        AuthError::Forbidden(right) => forbidden(state, refused, *right),
    })
}

/// Returns whose memory a request takes. Without keys, addresses distinguish clients.
pub(super) fn memory_holder(principal: &Principal, peer: Option<PeerAddress>) -> MemoryHolder {
    match (principal.id, peer) {
        (Principal::ANONYMOUS, Some(PeerAddress(address))) => MemoryHolder::Peer(address),
        (Principal::ANONYMOUS, None) => MemoryHolder::Local,
        (id, _) => MemoryHolder::Principal(id),
    }
}

/// Finds the endpoint of a request.
fn find_endpoint(
    state: &ListenerState,
    request: &ReceivedRequest,
    principal: &Principal,
) -> Result<Arc<Endpoint>, EarlyResponse> {
    // No other key learns whether the endpoint exists: unknown and forbidden names get the same
    // response.
    state
        .endpoints
        .find_endpoint(&request.scope, principal)
        .ok_or_else(|| {
            Box::new(small_response(
                StatusCode::NOT_FOUND,
                "not_found",
                "There is no such server or view",
            ))
        })
}

/// Admits a body before it is read, since a body takes memory, too.
fn admit_body(
    state: &ListenerState,
    request: &ReceivedRequest,
    body: &impl RequestBody,
) -> Result<(), EarlyResponse> {
    // Small bodies pass even when memory is short: a cancellation, which frees memory, is one.
    if body.is_small(&request.head) {
        return Ok(());
    }
    state.admission.check_memory().map_err(|rejection| {
        let response = request
            .select_dialect(None)
            .error_response(None, &rejection.error);
        Box::new(rejection.apply_to(response, &state.downstream.metrics))
    })
}

/// Decodes the messages of a body, or responds that there is none.
fn decode(
    state: &ListenerState,
    request: &ReceivedRequest,
    body: Result<Bytes, Error>,
) -> Result<ClientPayload, EarlyResponse> {
    match body {
        Ok(bytes) => Ok(RpcPayload::parse_from_client(&bytes, state.limits.batch)),
        Err(error) => {
            let mut response = request.select_dialect(None).error_response(None, &error);
            if error.kind == McpErrorKind::Overloaded {
                let seconds = HeaderValue::from(DEFAULT_RETRY_AFTER.as_secs());
                response.headers_mut().insert(header::RETRY_AFTER, seconds);
            }
            Err(Box::new(response))
        }
    }
}

/// Admits the messages of a request, or responds in its dialect.
fn admit(
    state: &ListenerState,
    dialect: &dyn Dialect,
    principal: &Principal,
    payload: ClientPayload,
) -> Result<Admitted<ClientPayload>, EarlyResponse> {
    state.admit(principal, payload).map_err(|refused| {
        let (payload, rejection) = *refused;
        let response = dialect.error_response(
            single_message(&payload).and_then(RpcMessage::id),
            &rejection.error,
        );
        Box::new(rejection.apply_to(response, &state.downstream.metrics))
    })
}

impl ReceivedRequest {
    /// Selects the dialect by the path, or by the head and as much of the body as there is.
    fn select_dialect(&self, payload: Option<&ClientPayload>) -> &'static dyn Dialect {
        self.dialect
            .unwrap_or_else(|| select_dialect(&self.head, payload))
    }

    fn into_mcp_request(
        self,
        principal: Arc<Principal>,
        holder: MemoryHolder,
        payload: ClientPayload,
    ) -> McpRequest {
        let ReceivedRequest {
            head:
                Parts {
                    method,
                    uri,
                    headers,
                    ..
                },
            scope,
            received,
            ..
        } = self;
        McpRequest {
            method,
            uri,
            headers,
            payload,
            principal,
            holder,
            scope,
            received,
        }
    }
}

/// Selects the dialect that a request is written in.
fn select_dialect(head: &Parts, payload: Option<&ClientPayload>) -> &'static dyn Dialect {
    let head = RequestHead {
        method: &head.method,
        headers: &head.headers,
    };
    let message = payload.and_then(single_message);
    moongate_protocol::select_dialect(&head, &BodyHint { message })
}

/// Builds the response to a request whose body did not arrive in time.
pub(super) fn refuse_timed_out(state: &ListenerState, head: &Parts) -> http::Response<Body> {
    select_dialect(head, None).error_response(None, &body_timed_out(state))
}

fn single_message(payload: &ClientPayload) -> Option<&RpcMessage> {
    match payload {
        Ok(RpcPayload::One(message)) => Some(message),
        _ => None,
    }
}

/// Answers 503.
fn unavailable() -> http::Response<Body> {
    let mut response = small_response(
        StatusCode::SERVICE_UNAVAILABLE,
        "unavailable",
        "Try again in a second",
    );
    response.headers_mut().insert(
        header::RETRY_AFTER,
        HeaderValue::from(DEFAULT_RETRY_AFTER.as_secs()),
    );
    response
}

/// Answers 403. The credentials are valid, so their sender may learn what is missing.
fn forbidden(
    state: &ListenerState,
    refused: &RefusedRequest,
    right: LackedRight,
) -> http::Response<Body> {
    let (rule, error, message) = match right {
        LackedRight::Scope => (
            "scope",
            "insufficient_scope",
            "The access token lacks this gateway's scope; log in again and grant it",
        ),
        // Only the operator's log has the difference.
        LackedRight::Role | LackedRight::Groups => (
            "role",
            "forbidden",
            "You have no role on this gateway; ask its operator for one",
        ),
    };
    let denied = &state.downstream.metrics.access.policy_denied;
    denied.inc(DeniedRule(rule));
    let mut response = small_response(StatusCode::FORBIDDEN, error, message);
    // 2026-07-28, basic/authorization, "Runtime Insufficient Scope Errors": 403 comes with the
    // challenge that names the scope.
    if right == LackedRight::Scope {
        let denied = AuthError::Forbidden(right);
        let host = refused.host.as_deref();
        let challenge = state.auth.challenge(&denied, &refused.scope, host);
        if let Ok(challenge) = HeaderValue::try_from(challenge) {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
        }
    }
    response
}

/// Answers 401.
fn unauthorized(
    state: &ListenerState,
    refused: &RefusedRequest,
    denied: &AuthError,
    outcome: AuthOutcome,
) -> http::Response<Body> {
    state.downstream.metrics.access.auth.inc(outcome);
    let challenge = HeaderValue::try_from(state.auth.challenge(
        denied,
        &refused.scope,
        refused.host.as_deref(),
    ));
    let message = state.auth.advice();
    // A JSON-RPC error, since many clients show nothing else from a response. The `message` at the
    // top level is for all others.
    let error = serde_json::json!({
        "code": moongate_protocol::UNAUTHORIZED, "message": message,
        "data": { "error": "unauthorized" },
    });
    let body =
        serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": error, "message": message });
    let mut response = json(StatusCode::UNAUTHORIZED, &body);
    // RFC 9110, section 15.5.2: a server that answers 401 "MUST send a WWW-Authenticate header
    // field".
    let challenge = challenge.unwrap_or(HeaderValue::from_static("Bearer"));
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, challenge);
    response
}
