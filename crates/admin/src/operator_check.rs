//! Check whether a caller may view or act.
//!
//! Owns the role check that follows the key check (`key_check.rs`), and the refusal of what pages
//! of other origins and plain forms send. Does not perform actions (`operator_actions.rs`). Without
//! admin keys, only this machine may act: a request through a proxy is refused, whatever address
//! the listener has. Pages of other origins never may. Invariant: the check comes before any
//! action.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};

use crate::admin_state::AdminState;
use crate::json_body::media_type;
use crate::key_check::{AccessGrant, KeyCarrier};
use moongate_access::auth::AdminRole;
use moongate_listener::{PeerAddress, json_response};

/// Headers that proxies add to a request. Any header that begins with [`FORWARDED`] counts too.
const PROXIED: [&str; 7] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "cf-connecting-ip",
    "true-client-ip",
];
const FORWARDED: &str = "x-forwarded-";

/// Caller that may act. An action gets the gateway from its operator, and nowhere else.
pub(super) struct Operator(pub(super) Arc<AdminState>);

/// Reader of what only operators may see.
pub(super) struct Viewer(pub(super) Arc<AdminState>);

/// Proof that no page of another origin sent a request. Routes that need no key ask for it.
pub(super) struct SameSite;

impl<S: Sync> FromRequestParts<S> for SameSite {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        check_site(&parts.headers).map(|()| SameSite)
    }
}

impl FromRequestParts<Arc<AdminState>> for Operator {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        admin: &Arc<AdminState>,
    ) -> Result<Self, Response> {
        check_operator(parts, admin, AdminRole::Operate).map(|()| Operator(admin.clone()))
    }
}

impl FromRequestParts<Arc<AdminState>> for Viewer {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        admin: &Arc<AdminState>,
    ) -> Result<Self, Response> {
        check_operator(parts, admin, AdminRole::View).map(|()| Viewer(admin.clone()))
    }
}

fn check_operator(parts: &Parts, admin: &AdminState, needed: AdminRole) -> Result<(), Response> {
    match parts.extensions.get::<AccessGrant>() {
        Some(AccessGrant::Key { key, .. }) if key.role >= needed => {}
        Some(AccessGrant::Key { key, .. }) => {
            let role = key.role.name();
            let needed = needed.name();
            let message = format!(
                "The role of this key is \"{role}\", but this needs \"{needed}\" (admin.keys)"
            );
            return Err(json_response(
                StatusCode::FORBIDDEN,
                "role_not_allowed",
                &message,
            ));
        }
        // Without keys the grant says where the listener is. A proxy on this machine would still
        // let in others.
        Some(AccessGrant::Loopback) if is_direct(admin, parts.extensions.get(), &parts.headers) => {
        }
        Some(AccessGrant::Loopback) | None => {
            let message = "Without admin.keys, only this machine may do this, by connecting \
                           directly to a loopback address; from elsewhere, send SIGHUP or change \
                           the config file";
            return Err(json_response(StatusCode::FORBIDDEN, "not_local", message));
        }
    }
    check_site(&parts.headers)?;
    check_type(parts)?;
    // A browser adds its cookie automatically, so it must also say that our own page asks.
    let has_cookie = matches!(
        parts.extensions.get(),
        Some(AccessGrant::Key {
            carrier: KeyCarrier::Cookie(_),
            ..
        })
    );
    let is_own = parts
        .headers
        .get("sec-fetch-site")
        .is_some_and(|site| site == "same-origin");
    if has_cookie && needed == AdminRole::Operate && parts.method != Method::GET && !is_own {
        return Err(json_response(
            StatusCode::FORBIDDEN,
            "origin_not_allowed",
            "With a cookie, only the page itself may do this; programs must send Authorization: \
             Bearer",
        ));
    }
    Ok(())
}

/// Refuses requests of pages under other origins.
fn check_site(headers: &HeaderMap) -> Result<(), Response> {
    // Browsers send `Sec-Fetch-Site` with each request. Our own pages are of the same origin, which
    // the origin check has verified. Pages under an origin of `gateway.allowed_origins` may call
    // tools, but must not act here.
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    if site.is_some_and(|site| !matches!(site, b"same-origin" | b"none")) {
        return Err(json_response(
            StatusCode::FORBIDDEN,
            "origin_not_allowed",
            "Pages from other origins may not do this",
        ));
    }
    Ok(())
}

/// Refuses the types of bodies that a plain form of another page can have. Without a body no type
/// is needed.
fn check_type(parts: &Parts) -> Result<(), Response> {
    let kind = media_type(&parts.headers).filter(|_| parts.method != Method::GET);
    match kind.as_deref() {
        Some("application/x-www-form-urlencoded" | "multipart/form-data" | "text/plain") => {
            let message = "Send Content-Type: application/json, or no body";
            Err(json_response(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "not_json",
                message,
            ))
        }
        _ => Ok(()),
    }
}

/// True if a request comes from this machine and through no proxy.
pub(super) fn is_direct(
    admin: &AdminState,
    peer: Option<&PeerAddress>,
    headers: &HeaderMap,
) -> bool {
    // Only processes of this machine can open the file of a Unix socket.
    let local = admin.local || peer.is_some_and(|PeerAddress(address)| address.is_loopback());
    local && !is_proxied(headers)
}

fn is_proxied(headers: &HeaderMap) -> bool {
    headers
        .keys()
        .any(|name| PROXIED.contains(&name.as_str()) || name.as_str().starts_with(FORWARDED))
}
