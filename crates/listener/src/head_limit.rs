//! Limit on the heads of HTTP/1 requests.
//!
//! Owns the measuring of a head and its refusal. Does not parse heads. Invariant: a head over the
//! limit reaches no route.
//!
//! hyper has room for more, and judges only heads that arrive in parts. HTTP/2 limits heads by
//! itself (SETTINGS_MAX_HEADER_LIST_SIZE).

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use http::{HeaderValue, StatusCode, Version, header};
use moongate_telemetry::Limit;

use crate::listener_state::SharedListenerState;
use crate::small_response::json_response;

/// Limit of one listener.
#[derive(Clone)]
pub(super) struct HeadLimit {
    /// Maximum size of a head, in bytes.
    pub(super) head_max: usize,
    /// State that counts refusals. `None` on the admin listener.
    pub(super) state: Option<SharedListenerState>,
}

impl HeadLimit {
    /// Adds the limit to all routes.
    pub(super) fn apply_to(self, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(self, check_head))
    }

    /// Answers a request whose head is too large. The rest of the request is unknown.
    fn refuse(&self) -> Response {
        if let Some(shared_state) = &self.state {
            shared_state
                .load()
                .downstream
                .metrics
                .calls
                .refused
                .inc(Limit::Head);
        }
        let message = format!(
            "The head of the request is larger than {} bytes (limits.head)",
            self.head_max
        );
        let mut response = json_response(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "head_too_large",
            &message,
        );
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

async fn check_head(State(limit): State<HeadLimit>, request: Request, next: Next) -> Response {
    match request.version() <= Version::HTTP_11 && head_size(&request) > limit.head_max {
        true => limit.refuse(),
        false => next.run(request).await,
    }
}

/// Returns the size of a request's head as its client wrote it, in bytes. Spaces around values are
/// lost by then.
fn head_size<B>(request: &Request<B>) -> usize {
    let target = request
        .uri()
        .path_and_query()
        .map_or(1, |target| target.as_str().len());
    let authority = request
        .uri()
        .authority()
        .map_or(0, |authority| authority.as_str().len());
    let line = request.method().as_str().len() + target + authority + " HTTP/1.1\r\n\r\n ".len();
    line + request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len())
        .sum::<usize>()
}
