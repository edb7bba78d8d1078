//! Handlers for signing in: a key or a ticket for a cookie, sign-out, tickets, and who one is.
//!
//! Owns their bodies and answers. Does not keep sessions (`sign_in`). Invariant: a session starts
//! only with a key that is right, and no answer says why one is wrong.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State as Shared;
use axum::response::Response;
use http::{HeaderMap, StatusCode, Uri, header};

use crate::admin_state::AdminState;
use crate::json_answer::json;
use crate::json_body::JsonBody;
use crate::key_check::{AccessGrant, KeyCarrier, refuse_guesses};
use crate::operator_check::{SameSite, Viewer, is_direct};
use crate::sign_in::COOKIE;
use moongate_access::auth::{AdminRole, KeyHash, UNKNOWN_KEY};
use moongate_api::{SignInRequest, SignInTicket, SignOutReport, SignedInOperator};
use moongate_browser::{BrowserPath, KeyAttempt, TICKET_LIFETIME};
use moongate_listener::{PeerAddress, json_response};
use moongate_telemetry::DeniedRule;

/// Handles `POST /api/v1/signin`.
pub(super) async fn sign_in(
    _: SameSite,
    Shared(admin): Shared<Arc<AdminState>>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    uri: Uri,
    JsonBody(request): JsonBody<SignInRequest>,
) -> Response {
    let access = admin.access.load_full();
    if access.keys.is_empty() {
        return no_keys();
    }
    // Before the key is compared: a refusal after that would show that the key is right.
    let Some(path) = BrowserPath::of(&headers, &uri) else {
        let message = "A cookie would cross the network in plain text here: open the page over \
                       HTTPS, or on a loopback \
                       address (ssh -L reaches that from elsewhere)";
        return json_response(StatusCode::FORBIDDEN, "needs_tls", message);
    };
    let peer = peer.map(|Extension(PeerAddress(address))| address);
    let attempt = match request {
        SignInRequest::Key(key) => {
            admin
                .sign_in
                .wrong_keys
                .attempt(peer, KeyHash::of(key.trim()), |hash| access.find(hash))
        }
        // Tickets count as guesses, too, since they open the same sessions.
        SignInRequest::Ticket(ticket) => {
            admin
                .sign_in
                .wrong_keys
                .attempt(peer, KeyHash::of(&ticket), |hash| {
                    admin
                        .sign_in
                        .tickets
                        .redeem(hash)
                        .and_then(|key| access.find(&key))
                })
        }
    };
    let key = match attempt {
        KeyAttempt::Right(key) => key,
        KeyAttempt::Wrong => {
            admin
                .metrics
                .access
                .policy_denied
                .inc(DeniedRule("admin_key"));
            admin
                .listener_state
                .load()
                .refused_keys
                .log(peer, &UNKNOWN_KEY);
            let message = "This is not a key from admin.keys, or the ticket was already used or \
                           has expired";
            return json_response(StatusCode::UNAUTHORIZED, "unauthorized", message);
        }
        KeyAttempt::Refused(wait) => return refuse_guesses(&admin, wait),
    };
    // A browser has one session: the earlier one of its cookie ends.
    for earlier in COOKIE.hashes_in(&headers) {
        admin.sign_in.sessions.end(&earlier);
    }
    let cookie = COOKIE.set(path, &admin.sign_in.sessions.start(key.hash));
    let address = peer.map_or_else(|| "local".to_owned(), |address| address.to_string());
    tracing::info!(key = key.name, address, "operator signed in");
    let mut response = json(
        StatusCode::OK,
        &signed_in_operator(Some((&key.name, key.role)), "session"),
    );
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// Handles `POST /api/v1/signout`. Without a session there is nothing to end, which is as well.
pub(super) async fn sign_out(
    _: SameSite,
    Shared(admin): Shared<Arc<AdminState>>,
    headers: HeaderMap,
) -> Response {
    for session in COOKIE.hashes_in(&headers) {
        admin.sign_in.sessions.end(&session);
    }
    let mut response = json(
        StatusCode::OK,
        &SignOutReport {
            outcome: "signed_out".to_owned(),
        },
    );
    // By both names: an earlier sign-in may have come another way.
    for cookie in COOKIE.clear() {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// Handles `POST /api/v1/tickets`.
pub(super) async fn make_ticket(
    Viewer(admin): Viewer,
    Extension(grant): Extension<AccessGrant>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
) -> Response {
    match grant {
        AccessGrant::Loopback => no_keys(),
        // Not for cookies: a ticket would let a stolen session outlive its sign-out.
        AccessGrant::Key {
            key,
            carrier: KeyCarrier::Bearer,
        } if is_direct(&admin, peer.as_ref().map(|Extension(peer)| peer), &headers) => {
            let ticket = admin.sign_in.tickets.issue(key.hash);
            // Behind `#`, which browsers never send: no log on the way has the ticket.
            let path = format!("/signin#t={ticket}");
            json(
                StatusCode::OK,
                &SignInTicket {
                    ticket,
                    path,
                    expires_seconds: TICKET_LIFETIME.as_secs(),
                },
            )
        }
        AccessGrant::Key { .. } => {
            let message = "Only this machine gets tickets: over loopback or a Unix socket, with a \
                           key and no proxy";
            json_response(StatusCode::FORBIDDEN, "not_local", message)
        }
    }
}

/// Handles `GET /api/v1/me`.
pub(super) async fn me(_: Viewer, Extension(grant): Extension<AccessGrant>) -> Response {
    let body = match &grant {
        AccessGrant::Loopback => signed_in_operator(None, "loopback"),
        AccessGrant::Key {
            key,
            carrier: KeyCarrier::Bearer,
        } => signed_in_operator(Some((&key.name, key.role)), "key"),
        AccessGrant::Key {
            key,
            carrier: KeyCarrier::Cookie(_),
        } => signed_in_operator(Some((&key.name, key.role)), "session"),
    };
    json(StatusCode::OK, &body)
}

/// Describes who a request is of. Without keys, this machine operates.
fn signed_in_operator(key: Option<(&str, AdminRole)>, by: &str) -> SignedInOperator {
    SignedInOperator {
        name: key.map(|(name, _)| name.to_owned()),
        role: key
            .map_or(AdminRole::Operate, |(_, role)| role)
            .name()
            .to_owned(),
        by: by.to_owned(),
        keys: key.is_some(),
    }
}

fn no_keys() -> Response {
    let message = "There are no admin.keys: the page needs no sign-in here";
    json_response(StatusCode::CONFLICT, "no_keys", message)
}
