//! Checks of Host and Origin. Owns the refusal of pages that make a browser talk to a local server,
//! and CORS.
//!
//! Does not know which hosts are right (`host_rules`). Invariant: a request with a foreign host or
//! origin reaches no route. On a Unix socket any host will do, since no browser connects there.
//!
//! 2026-07-28/basic/transports/streamable-http.mdx, Security: "Servers MUST validate the `Origin`
//! header on all incoming connections to prevent DNS rebinding attacks."

use moongate_telemetry::DeniedRule;

use axum::body::Body as AxumBody;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use crate::host_rules::{has_several_hosts, request_hosts};
use crate::listener_state::SharedListenerState;
use crate::small_response::json_response;
use moongate_protocol::cors_headers;

/// Checks every request of the listener, answers preflights, and adds CORS headers.
pub(super) async fn check_origin(
    State((shared_state, local)): State<(SharedListenerState, bool)>,
    request: Request,
    next: Next,
) -> Response {
    let state = shared_state.load_full();
    let denied = &state.downstream.metrics.access.policy_denied;
    if has_several_hosts(request.headers()) {
        denied.inc(DeniedRule("host"));
        return json_response(
            StatusCode::BAD_REQUEST,
            "several_hosts",
            "The request names its host more than once",
        );
    }
    if !local
        && let Err(host) = state
            .hosts
            .accepts_request(request.headers(), request.uri())
    {
        denied.inc(DeniedRule("host"));
        return host_rejected(host);
    }
    let host = request_hosts(request.headers(), request.uri())
        .next()
        .flatten();
    // Without Origin it isn't a browser's cross-origin request, so CORS does not apply.
    let Some(origin) = request.headers().get(header::ORIGIN).cloned() else {
        return next.run(request).await;
    };
    // 2025-11-25/basic/transports.mdx, Security Warning: "If the `Origin` header is present and
    // invalid, servers MUST respond with HTTP 403 Forbidden."
    if !origin
        .to_str()
        .is_ok_and(|origin| state.hosts.accepts_origin(origin, host))
    {
        denied.inc(DeniedRule("origin"));
        let shown = origin.to_str().unwrap_or("?").escape_default().to_string();
        tracing::warn!("request refused: Origin {shown} is not in gateway.allowed_origins");
        return json_response(
            StatusCode::FORBIDDEN,
            "origin_not_allowed",
            &format!("Origin {shown} is not allowed; add it to gateway.allowed_origins"),
        );
    }
    let requested_headers = request
        .headers()
        .get(header::ACCESS_CONTROL_REQUEST_HEADERS)
        .cloned();
    let preflight = request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if preflight {
        preflight_answer(requested_headers)
    } else {
        next.run(request).await
    };
    add_cors(response.headers_mut(), origin);
    response
}

fn host_rejected(host: Option<&str>) -> Response {
    // Escaped and cut: a client chose these bytes, and they go into the log.
    let shown: String = host
        .unwrap_or("(none)")
        .chars()
        .take(256)
        .flat_map(char::escape_default)
        .collect();
    tracing::warn!("request refused: Host {shown} is not in gateway.allowed_hosts");
    json_response(
        StatusCode::FORBIDDEN,
        "host_not_allowed",
        &format!(
            "Host {shown} is not allowed; add it to gateway.allowed_hosts, or set \
             gateway.public_url"
        ),
    )
}

fn preflight_answer(requested_headers: Option<HeaderValue>) -> Response {
    let mut response = Response::new(AxumBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET, POST, DELETE, OPTIONS"),
    );
    // Ten minutes, as Chromium caps it at two hours and WebKit at ten minutes.
    headers.insert(
        header::ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from_static("600"),
    );
    let requested_headers = requested_headers
        .as_ref()
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let allowed: Vec<String> = requested_headers
        .split(',')
        .map(|n| n.trim().to_ascii_lowercase())
        .filter(|name| is_allowed_header(name))
        .collect();
    if let Ok(value) = HeaderValue::from_str(&allowed.join(", ")) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, value);
    }
    response
}

fn is_allowed_header(name: &str) -> bool {
    (cors_headers::ALLOWED.contains(&name) || name.starts_with(cors_headers::ALLOWED_PREFIX))
        && HeaderName::from_bytes(name.as_bytes()).is_ok()
}

fn add_cors(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    // Caches must not serve one origin's response to another (Fetch, CORS protocol and HTTP
    // caches).
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Ok(exposed) = HeaderValue::from_str(&cors_headers::EXPOSED.join(", ")) {
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
}
