//! Key check of the admin listener.
//!
//! Owns which routes need a key, the grant that later checks read, and the refusals: no key, too
//! many wrong ones, no free connection. Does not decide which role an action needs
//! (`operator_check.rs`). Invariant: beyond loopback, only probes and unrestricted metrics are
//! served without a key. If there are admin keys, the page's files and the sign-in routes are, too.

use moongate_telemetry::DeniedRule;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State as Shared};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::admin_state::AdminState;
use crate::sign_in::COOKIE;
use moongate_access::auth::{
    AdminKey, AuthError, KeyHash, MetricsAccess, UNKNOWN_KEY, bearer_hash,
};
use moongate_browser::KeyAttempt;
use moongate_listener::{PeerAddress, SlotRequest, json_response};

/// Routes of the API that take a key instead of needing one. A test compares them with the table of
/// routes.
pub(super) const OPEN_ROUTES: [&str; 2] = ["/api/v1/signin", "/api/v1/signout"];

/// Paths of probes, which need no key.
const PROBES: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// Ground on which a request was let in. Routes read it as an extension of the request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AccessGrant {
    /// Listener without keys, on loopback or a Unix socket.
    Loopback,
    /// Valid key, and what carried it.
    Key { key: AdminKey, carrier: KeyCarrier },
}

/// Part of a request that carries a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyCarrier {
    /// `Authorization: Bearer`.
    Bearer,
    /// Cookie of this session. Browsers send it by themselves, whichever page asks.
    Cookie(KeyHash),
}

impl AccessGrant {
    /// Returns the name of the operator's key. `None` where no key is asked for.
    pub(super) fn key_name(&self) -> Option<&str> {
        match self {
            AccessGrant::Key { key, .. } => Some(&key.name),
            AccessGrant::Loopback => None,
        }
    }

    /// Returns true if a session has not ended meanwhile. The end of a key is another matter
    /// (`event_stream.rs`).
    pub(super) fn is_open(&self, admin: &AdminState) -> bool {
        match self {
            AccessGrant::Key {
                carrier: KeyCarrier::Cookie(session),
                ..
            } => admin.sign_in.sessions.is_open(session),
            AccessGrant::Key {
                carrier: KeyCarrier::Bearer,
                ..
            }
            | AccessGrant::Loopback => true,
        }
    }
}

/// Lets in probes, requests with a valid key, and requests that need none.
pub(super) async fn require_key(
    Shared(admin): Shared<Arc<AdminState>>,
    mut request: Request,
    next: Next,
) -> Response {
    if is_beyond_limit(&request) {
        return refuse_beyond_limit();
    }
    let needs_none = match request.uri().path() {
        path if PROBES.contains(&path) => true,
        "/metrics" => admin.access.load().metrics == MetricsAccess::Open,
        // The page that asks for a key needs its files, and the routes that take one.
        path => {
            let asks =
                path == "/signin" || path.starts_with("/assets/") || OPEN_ROUTES.contains(&path);
            asks && !admin.access.load().keys.is_empty()
        }
    };
    if !needs_none {
        let peer = request
            .extensions()
            .get::<PeerAddress>()
            .map(|PeerAddress(address)| *address);
        match find_grant(&admin, peer, request.headers()) {
            Ok(grant) => {
                // Connections with a valid key are safe from eviction while they have a request.
                if let Some(slot) = request.extensions().get::<Arc<SlotRequest>>() {
                    slot.admit();
                }
                request.extensions_mut().insert(grant);
            }
            Err((denied, refused)) => {
                admin.listener_state.load().refused_keys.log(peer, &denied);
                return refused;
            }
        }
    }
    next.run(request).await
}

/// True if the connection has a slot for probes, and the request isn't one.
fn is_beyond_limit(request: &Request) -> bool {
    let slot = request.extensions().get::<Arc<SlotRequest>>();
    slot.is_some_and(|slot| slot.is_for_probes()) && !PROBES.contains(&request.uri().path())
}

fn refuse_beyond_limit() -> Response {
    let message = "All admin connections are in use (limits.admin_connections): retry in a second";
    let mut response = json_response(StatusCode::SERVICE_UNAVAILABLE, "connections", message);
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from(1));
    response
        .extensions_mut()
        .insert(RefusalText::Other(message));
    response
}

/// Refusal, for people. The page reads it as an extension of the response.
#[derive(Clone, Copy, Debug)]
pub(super) enum RefusalText {
    /// Signing in helps.
    SignIn,
    /// Something else would help.
    Other(&'static str),
}

fn find_grant(
    admin: &AdminState,
    peer: Option<IpAddr>,
    headers: &HeaderMap,
) -> Result<AccessGrant, (AuthError, Response)> {
    let access = admin.access.load();
    if access.keys.is_empty() {
        if !admin.is_reachable_by_others {
            return Ok(AccessGrant::Loopback);
        }
        let message = "This address can be reached from other machines, but there are no \
                       admin.keys, so only /healthz, /livez, /readyz and /metrics are answered \
                       here. Add [[admin.keys]] to the config; `moongate key new NAME --admin` \
                       prints an entry";
        return Err(refuse(
            admin,
            AuthError::Missing,
            message,
            RefusalText::Other(message),
        ));
    }
    // A program that sends a key expects that one to count.
    if !headers.contains_key(header::AUTHORIZATION)
        && let Some((session, key)) = COOKIE.hashes_in(headers).find_map(|session| {
            let sessions = &admin.sign_in.sessions;
            let key = sessions.find(&session, |key| access.find(key))?;
            Some((session, key))
        })
    {
        admin.sign_in.key_uses.record(key);
        return Ok(AccessGrant::Key {
            key: key.clone(),
            carrier: KeyCarrier::Cookie(session),
        });
    }
    let hash = bearer_hash(headers).map_err(|denied| refuse_key(admin, denied))?;
    match admin
        .sign_in
        .wrong_keys
        .attempt(peer, hash, |hash| access.find(hash))
    {
        KeyAttempt::Right(key) => {
            admin.sign_in.key_uses.record(key);
            Ok(AccessGrant::Key {
                key: key.clone(),
                carrier: KeyCarrier::Bearer,
            })
        }
        KeyAttempt::Wrong => Err(refuse_key(admin, UNKNOWN_KEY)),
        KeyAttempt::Refused(wait) => Err((UNKNOWN_KEY, refuse_guesses(admin, wait))),
    }
}

/// Refuses a request without a key of the config, and says where one is given.
fn refuse_key(admin: &AdminState, denied: AuthError) -> (AuthError, Response) {
    let message = "A key from admin.keys is needed: send Authorization: Bearer <key>; for moongate \
                   commands, use --admin-key or MOONGATE_ADMIN_KEY";
    refuse(admin, denied, message, RefusalText::SignIn)
}

/// Refuses a wrong key after too many others.
pub(super) fn refuse_guesses(admin: &AdminState, wait: Duration) -> Response {
    admin
        .metrics
        .access
        .policy_denied
        .inc(DeniedRule("admin_key"));
    let message = "Too many wrong keys came from this address: wait a minute, then send a key \
                   from admin.keys";
    let mut response = json_response(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_wrong_keys",
        message,
    );
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
    response
        .extensions_mut()
        .insert(RefusalText::Other(message));
    response
}

fn refuse(
    admin: &AdminState,
    denied: AuthError,
    message: &'static str,
    text: RefusalText,
) -> (AuthError, Response) {
    admin
        .metrics
        .access
        .policy_denied
        .inc(DeniedRule("admin_key"));
    // RFC 6750, section 3.1: without credentials in a request, the response "SHOULD NOT include an
    // error code".
    let challenge = match &denied {
        AuthError::Missing => r#"Bearer realm="moongate admin""#,
        AuthError::Invalid(_)
        | AuthError::Unavailable(_)
        | AuthError::Unchecked(_)
        | AuthError::Forbidden(_) => r#"Bearer realm="moongate admin", error="invalid_token""#,
    };
    let mut response = json_response(StatusCode::UNAUTHORIZED, "unauthorized", message);
    response.headers_mut().insert(
        header::WWW_AUTHENTICATE,
        HeaderValue::from_static(challenge),
    );
    response.extensions_mut().insert(text);
    (denied, response)
}
