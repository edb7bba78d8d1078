//! Token response.
//!
//! Owns its members, and the errors for store failures. Does not check a grant (`code_exchange.rs`,
//! `refresh_exchange.rs`). Invariant: a failed store never looks like an ended login.

use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use moongate_oauth::SecretText;
use serde::Serialize;

use crate::broker::{Broker, later};
use crate::login_row::LiveLogin;
use crate::login_store::StoreFault;
use crate::oauth_error::{INVALID_GRANT, OAuthCode, OAuthError, json_reply};
use crate::token_seals::{AccessClaims, RefreshClaims};

/// Scope of every login, whatever the client requested.
pub(crate) const SCOPE: &str = "mcp offline_access";

/// Error for a login that the store could not keep.
pub(crate) const UNWRITABLE: OAuthError = OAuthError::new(
    OAuthCode::TemporarilyUnavailable,
    "Logins cannot be stored right now: try again later",
);

/// Response with tokens (RFC 6749, section 5.1).
#[derive(Serialize)]
struct TokenReply<'a> {
    access_token: &'a SecretText,
    token_type: &'static str,
    expires_in: i64,
    refresh_token: &'a SecretText,
    scope: &'a str,
}

/// Returns the tokens of the newest generation of a login.
pub(crate) fn token_reply(broker: &Broker, live: &LiveLogin, scope: &str) -> Response {
    let now = Timestamp::now();
    let expires = later(now, broker.settings.access).min(live.row.ends);
    let access = broker.seals.seal_access(&AccessClaims {
        login: live.id,
        generation: live.row.generation,
        expires,
        endpoint: live.row.endpoint.clone(),
    });
    let refresh = broker.seals.seal_refresh(&RefreshClaims {
        login: live.id,
        generation: live.row.generation,
    });
    let reply = TokenReply {
        access_token: &access,
        token_type: "Bearer",
        expires_in: expires.duration_since(now).as_secs().max(0),
        refresh_token: &refresh,
        scope,
    };
    json_reply(StatusCode::OK, &reply)
}

/// Returns the error of a client whose login could not be stored.
pub(crate) fn store_error(fault: StoreFault) -> OAuthError {
    match fault {
        StoreFault::NotReady | StoreFault::Unwritable => UNWRITABLE,
        StoreFault::Full => OAuthError::new(
            OAuthCode::TemporarilyUnavailable,
            "There are too many logins: try again later",
        ),
        StoreFault::Gone => INVALID_GRANT,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::test_broker::TestBroker;

    #[tokio::test]
    async fn an_answer_has_these_members_and_no_token_outlives_its_login() {
        let test = TestBroker::in_memory();
        let ends = later(Timestamp::now(), Duration::from_secs(100));
        let live = test.login(|row| row.ends = ends).await;
        let response = token_reply(&test.broker, &live, SCOPE);
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["cache-control"], "no-store");
        let body = axum::body::to_bytes(response.into_body(), 4096).await;
        let body = String::from_utf8(body.unwrap().to_vec()).unwrap();
        assert!(body.starts_with(r#"{"access_token":"mga_"#), "{body}");
        assert!(
            body.contains(r#""token_type":"Bearer","expires_in":"#),
            "{body}"
        );
        assert!(body.contains(r#""refresh_token":"mgr_"#), "{body}");
        assert!(body.ends_with(r#""scope":"mcp offline_access"}"#), "{body}");
        let access = body.split('"').find(|text| text.starts_with("mga_"));
        let claims = test.broker.seals.open_access(access.unwrap()).unwrap();
        assert!(claims.expires <= ends);
        assert_eq!(claims.login, live.id);
    }

    #[test]
    fn a_failed_store_is_never_an_invalid_grant() {
        for fault in [
            StoreFault::NotReady,
            StoreFault::Unwritable,
            StoreFault::Full,
        ] {
            let error = store_error(fault);
            assert_eq!(error.code, OAuthCode::TemporarilyUnavailable, "{fault:?}");
            assert_eq!(error.code.status(), StatusCode::SERVICE_UNAVAILABLE);
        }
        assert_eq!(store_error(StoreFault::Gone), INVALID_GRANT);
    }
}
