//! Host and origin check of the admin listener.
//!
//! Owns the refusals, and the protective headers of every response. Does not check keys
//! (`key_check.rs`). Invariant: it runs before the key check and all handlers.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::admin_state::AdminState;
use moongate_listener::{has_several_hosts, json_response, request_hosts};

/// Headers of every response. It is data for whoever may ask for it: no browser guesses that it is
/// a page, reports to another page where it was read, or shows it inside one.
const GUARDING_HEADERS: [(HeaderName, &str); 3] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Refuses pages of other origins. Scrapers and probes may use any host name.
pub(super) async fn check_origin(
    Shared(admin): Shared<Arc<AdminState>>,
    request: Request,
    next: Next,
) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let mut response = match origin_rejection(&admin, &request) {
        Some(refused) => refused,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in GUARDING_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_api {
        // States, names and keys: a cache would show them to the next user of a browser, or old.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Returns the response to a request whose host or origin is not accepted, or `None`.
fn origin_rejection(admin: &AdminState, request: &Request) -> Option<Response> {
    let headers = request.headers();
    let uri = request.uri();
    let listener_state = admin.listener_state.load_full();
    if has_several_hosts(headers) {
        return Some(json_response(
            StatusCode::BAD_REQUEST,
            "several_hosts",
            "The request names its host more than once",
        ));
    }
    // Prometheus and probes address a pod by its IP or service name.
    let open = matches!(uri.path(), "/metrics" | "/healthz" | "/livez" | "/readyz");
    if !open && !admin.local && listener_state.hosts.accepts_request(headers, uri).is_err() {
        let message = "This Host is not allowed; add it to gateway.allowed_hosts";
        return Some(json_response(
            StatusCode::FORBIDDEN,
            "host_not_allowed",
            message,
        ));
    }
    let host = request_hosts(headers, uri).next().flatten();
    let origin = headers.get(header::ORIGIN)?;
    let accepted = origin
        .to_str()
        .is_ok_and(|origin| listener_state.hosts.accepts_origin(origin, host));
    let message = "This Origin is not allowed; add it to gateway.allowed_origins";
    (!accepted).then(|| json_response(StatusCode::FORBIDDEN, "origin_not_allowed", message))
}
