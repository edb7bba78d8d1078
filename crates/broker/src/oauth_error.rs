//! OAuth errors, as clients see them.
//!
//! Owns their names, statuses and form. Does not choose an error. Invariant: an error contains only
//! our own text, and no cache keeps a response.

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, PRAGMA, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

/// Code of an error (RFC 6749, sections 4.1.2.1 and 5.2; RFC 7591, section 3.2.2; RFC 8707).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OAuthCode {
    /// A parameter is missing, repeated or malformed.
    InvalidRequest,
    /// The client is unknown or not authenticated.
    InvalidClient,
    /// The code or token is invalid.
    InvalidGrant,
    /// The client may not do this.
    UnauthorizedClient,
    /// The grant type is not supported.
    UnsupportedGrantType,
    /// The response type is not supported.
    UnsupportedResponseType,
    /// The resource is not ours, or not the one that was granted.
    InvalidTarget,
    /// The person, the provider or the roles denied access.
    AccessDenied,
    /// Something failed in this gateway.
    ServerError,
    /// The same request may succeed later.
    TemporarilyUnavailable,
    /// A redirect address in a registration is unusable.
    InvalidRedirectUri,
    /// A registration is unusable.
    InvalidClientMetadata,
    /// There were too many requests.
    SlowDown,
}

impl OAuthCode {
    /// Returns the name that clients see.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OAuthCode::InvalidRequest => "invalid_request",
            OAuthCode::InvalidClient => "invalid_client",
            OAuthCode::InvalidGrant => "invalid_grant",
            OAuthCode::UnauthorizedClient => "unauthorized_client",
            OAuthCode::UnsupportedGrantType => "unsupported_grant_type",
            OAuthCode::UnsupportedResponseType => "unsupported_response_type",
            OAuthCode::InvalidTarget => "invalid_target",
            OAuthCode::AccessDenied => "access_denied",
            OAuthCode::ServerError => "server_error",
            OAuthCode::TemporarilyUnavailable => "temporarily_unavailable",
            OAuthCode::InvalidRedirectUri => "invalid_redirect_uri",
            OAuthCode::InvalidClientMetadata => "invalid_client_metadata",
            OAuthCode::SlowDown => "slow_down",
        }
    }

    /// Returns the status of a response with this code.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            OAuthCode::InvalidClient => StatusCode::UNAUTHORIZED,
            OAuthCode::SlowDown => StatusCode::TOO_MANY_REQUESTS,
            OAuthCode::TemporarilyUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

/// Error with a description for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OAuthError {
    /// Code.
    pub(crate) code: OAuthCode,
    /// Description for people.
    pub(crate) text: &'static str,
}

/// Error for a code or token that is good for nothing. One text for all causes.
pub(crate) const INVALID_GRANT: OAuthError = OAuthError::new(
    OAuthCode::InvalidGrant,
    "The grant is not valid any more: log in again",
);

#[derive(Serialize)]
struct ErrorDocument {
    error: &'static str,
    error_description: &'static str,
}

impl OAuthError {
    /// Creates an error.
    pub(crate) const fn new(code: OAuthCode, text: &'static str) -> Self {
        OAuthError { code, text }
    }

    /// Returns the response for a client.
    pub(crate) fn response(&self) -> Response {
        let document = ErrorDocument {
            error: self.code.name(),
            error_description: self.text,
        };
        let mut response = json_reply(self.code.status(), &document);
        if self.code == OAuthCode::InvalidClient {
            // RFC 6749, section 5.2: a client that used Authorization finds its scheme here.
            let scheme = HeaderValue::from_static("Basic realm=\"moongate\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// Returns an uncacheable JSON response.
pub(crate) fn json_reply(status: StatusCode, body: &impl Serialize) -> Response {
    let text = serde_json::to_vec(body).expect("our documents are JSON");
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_error_has_these_bytes_and_no_cache_keeps_it() {
        let error = OAuthError::new(OAuthCode::InvalidGrant, "The code is not good");
        let response = error.response();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
        assert_eq!(response.headers()[PRAGMA], "no-cache");
        assert!(!response.headers().contains_key(WWW_AUTHENTICATE));
        let body = axum::body::to_bytes(response.into_body(), 1024).await;
        assert_eq!(
            body.unwrap(),
            r#"{"error":"invalid_grant","error_description":"The code is not good"}"#
        );
    }

    #[test]
    fn an_unknown_client_is_401_and_a_later_attempt_may_succeed_after_429_and_503() {
        for (code, status) in [
            (OAuthCode::InvalidClient, 401),
            (OAuthCode::SlowDown, 429),
            (OAuthCode::TemporarilyUnavailable, 503),
            (OAuthCode::InvalidRequest, 400),
            (OAuthCode::ServerError, 400),
        ] {
            let response = OAuthError::new(code, "").response();
            assert_eq!(response.status().as_u16(), status);
            let has_scheme = response.headers().contains_key(WWW_AUTHENTICATE);
            assert_eq!(has_scheme, status == 401);
        }
    }
}
