//! Route `/revoke` (RFC 7009).
//!
//! Owns which login a token ends. Does not end logins itself (`login_store.rs`). Invariant: a
//! client can end only its own logins, and learns nothing about others.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderValue, header};

use crate::broker::Broker;
use crate::client_record::ClientRecord;
use crate::end_cause::{EndCause, EndOutcome};
use crate::grant_owner::login_of;
use crate::oauth_error::{INVALID_GRANT, OAuthCode, OAuthError};
use crate::token_route::{BROKEN, read_form};

/// Error for a request without a token.
const INCOMPLETE: OAuthError =
    OAuthError::new(OAuthCode::InvalidRequest, "The request needs token");
/// Error for a revocation that a restart would undo. Clients retry after a 503.
const NOT_ON_DISK: OAuthError = OAuthError::new(
    OAuthCode::TemporarilyUnavailable,
    "The login has ended, but that is not on disk yet: try again later",
);
/// Answers `POST /revoke`.
pub(crate) async fn revoke(State(broker): State<Arc<Broker>>, request: Request) -> Response {
    let ending = tokio::spawn(async move {
        let (client, form) = read_form(&broker, request).await?;
        let token = form.get("token").ok_or(INCOMPLETE)?;
        end_login(&broker, &client, token).await
    });
    match ending.await.unwrap_or(Err(BROKEN)) {
        Ok(()) => done(),
        // RFC 7009, section 2.2: "invalid tokens do not cause an error response".
        Err(error) if error == INVALID_GRANT => done(),
        Err(error) => error.response(),
    }
}

/// Ends the login of a token. Either kind of token will do, however old.
async fn end_login(broker: &Broker, client: &ClientRecord, token: &str) -> Result<(), OAuthError> {
    let login = login_of(broker, token).and_then(|login| broker.store.find(login));
    // RFC 7009, section 2.2: an unknown token counts as revoked.
    let Some(live) = login.filter(|live| live.row.client == client.mark()) else {
        return Ok(());
    };
    match broker.store.end(live.id, EndCause::Revoked).await {
        EndOutcome::Synced | EndOutcome::Unknown => Ok(()),
        EndOutcome::InMemory => Err(NOT_ON_DISK),
    }
}

fn done() -> Response {
    let mut response = Response::new(Body::empty());
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_broker::{TestBroker, client};

    #[tokio::test]
    async fn either_token_ends_the_login_of_its_own_client_alone() {
        let test = TestBroker::on_disk().await;
        for is_refresh in [false, true] {
            let live = test.login(|row| row.generation = 7).await;
            let token = if is_refresh {
                test.refresh_token(&live, 2)
            } else {
                test.access_token(&live, 2)
            };
            let other = end_login(&test.broker, &client("other client"), &token).await;
            assert_eq!(other, Ok(()));
            assert!(!live.ended.is_cancelled());
            for _ in 0..2 {
                let own = end_login(&test.broker, &client("client"), &token).await;
                assert_eq!(own, Ok(()));
                assert!(live.ended.is_cancelled());
            }
        }
        let unknown = end_login(&test.broker, &client("client"), "mgr_unknown").await;
        assert_eq!(unknown, Ok(()));
    }

    #[tokio::test]
    async fn an_end_that_is_not_on_disk_holds_and_says_so() {
        let test = TestBroker::on_disk().await;
        let live = test.login(|_| {}).await;
        let token = test.refresh_token(&live, 0);
        test.close_store().await;
        let ended = end_login(&test.broker, &client("client"), &token).await;
        assert_eq!(ended, Err(NOT_ON_DISK));
        assert!(live.ended.is_cancelled());
    }
}
