//! Key check of the admin listener. Owns which pages need a key.
//!
//! Does not decide which role an action needs (`actions.rs`). Invariant: beyond loopback only probes, and metrics
//! unless they are restricted, are served without a key. With keys, the page's own files are, too.

use moongate_telemetry::DeniedRule;
use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::AdminState;
use moongate_access::auth::{AdminRole, AuthError, MetricsAccess};
use moongate_server::{PeerAddress, SlotRequest, json_response};

/// Ground on which a request was let in. Routes read it as an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessGrant {
    /// Listener without keys, on loopback or a Unix socket.
    Loopback,
    /// Valid key with this role.
    Key(AdminRole),
}

/// Lets in probes, requests with a valid key, and requests that need none.
pub(super) async fn require_key(Shared(admin): Shared<Arc<AdminState>>, mut request: Request, next: Next) -> Response {
    let needs_none = match request.uri().path() {
        "/healthz" | "/livez" | "/readyz" => true,
        "/metrics" => admin.access.load().metrics == MetricsAccess::Open,
        // The page that asks for a key needs its style.
        path => path.starts_with("/assets/") && !admin.access.load().keys.is_empty(),
    };
    if !needs_none {
        match find_grant(&admin, request.headers()) {
            Ok(grant) => {
                // Connections with a valid key are safe from eviction while they have a request.
                if let Some(slot) = request.extensions().get::<Arc<SlotRequest>>() {
                    slot.admit();
                }
                request.extensions_mut().insert(grant);
            }
            Err((denied, refused)) => {
                let peer = request.extensions().get::<PeerAddress>().map(|PeerAddress(address)| *address);
                admin.server_state.load().refused_keys.log(peer, &denied);
                return refused;
            }
        }
    }
    next.run(request).await
}

/// Text of a refusal, for people. The page reads it as an extension of the response.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusalText(pub(super) &'static str);

fn find_grant(admin: &AdminState, headers: &HeaderMap) -> Result<AccessGrant, (AuthError, Response)> {
    let access = admin.access.load();
    if access.keys.is_empty() {
        if !admin.is_reachable_by_others {
            return Ok(AccessGrant::Loopback);
        }
        let message = "This address can be reached from other machines, and there are no admin.keys: without one, only \
                       /healthz, /livez, /readyz and /metrics are answered here. Add [[admin.keys]] to the config; \
                       `moongate key new NAME --admin` prints an entry";
        return Err(refuse(admin, AuthError::Missing, message));
    }
    let message = "A key of admin.keys is needed: Authorization: Bearer <key>; for moongate's own commands --admin-key, or \
                   MOONGATE_ADMIN_KEY";
    let key = access.authenticate(headers).map_err(|denied| refuse(admin, denied, message))?;
    Ok(AccessGrant::Key(key.role))
}

fn refuse(admin: &AdminState, denied: AuthError, message: &'static str) -> (AuthError, Response) {
    admin.metrics.access.policy_denied.inc(DeniedRule("admin_key"));
    // RFC 6750, section 3.1: without credentials in a request, the response "SHOULD NOT include an error
    // code".
    let challenge = match &denied {
        AuthError::Missing => r#"Bearer realm="moongate admin""#,
        AuthError::Invalid(_) => r#"Bearer realm="moongate admin", error="invalid_token""#,
    };
    let mut response = json_response(StatusCode::UNAUTHORIZED, "unauthorized", message);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response.extensions_mut().insert(RefusalText(message));
    (denied, response)
}
