//! Headers that protect the page in browsers.
//!
//! Owns their values. Does not know the routes (`page_routes.rs`). Invariant: whatever belongs to
//! the page has all of them.

use axum::response::Response;
use http::{HeaderName, HeaderValue, header};

/// Headers of everything that belongs to the page.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (
        // The page shows texts of servers. If one were ever taken for markup, the browser would
        // still run nothing of it.
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src \
             'self' data:; media-src data:; \
             form-action 'self'; frame-ancestors 'none'; base-uri 'none'; \
             require-trusted-types-for 'script'; \
             trusted-types moongate",
        ),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    // URLs of views name servers and clients, which other sites must not learn.
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static("camera=(), microphone=(), geolocation=(), clipboard-read=()"),
    ),
];

/// Adds the headers to a response.
pub(super) async fn add_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, value);
    }
    response
}
