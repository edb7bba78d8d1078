//! Route `/token`.
//!
//! Owns the order of its steps: form, client, rate, grant. Does not check grants
//! (`code_exchange.rs`, `refresh_exchange.rs`). Invariant: a client that goes away leaves nothing
//! half done.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use http::request::Parts;

use crate::broker::Broker;
use crate::client_record::ClientRecord;
use crate::code_exchange::exchange_code;
use crate::form_fields::{FormFault, FormFields};
use crate::grant_owner::owner_of;
use crate::oauth_error::{OAuthCode, OAuthError};
use crate::refresh_exchange::refresh;

/// Longest wait for the logins of the previous process.
const READY_PATIENCE: Duration = Duration::from_secs(2);

/// Error for too many requests.
const TOO_MANY: OAuthError = OAuthError::new(
    OAuthCode::SlowDown,
    "Too many requests: try again in a minute",
);
/// Error while the logins are not loaded yet.
const NOT_READY: OAuthError = OAuthError::new(
    OAuthCode::TemporarilyUnavailable,
    "Logins have not been loaded yet: try again later",
);
/// Error for a request that ended in a panic.
pub(crate) const BROKEN: OAuthError =
    OAuthError::new(OAuthCode::ServerError, "The request could not be handled");
/// Error for an unsupported grant type.
const OTHER_GRANT: OAuthError = OAuthError::new(
    OAuthCode::UnsupportedGrantType,
    "The supported grants are authorization_code and refresh_token",
);
/// Error for a request without a grant type.
const NO_GRANT: OAuthError =
    OAuthError::new(OAuthCode::InvalidRequest, "The request needs grant_type");

/// Answers `POST /token`.
pub(crate) async fn token(State(broker): State<Arc<Broker>>, request: Request) -> Response {
    let answering = tokio::spawn(async move {
        let (client, form) = read_form(&broker, request).await?;
        match form.get("grant_type") {
            Some("authorization_code") => exchange_code(&broker, &client, &form).await,
            Some("refresh_token") => refresh(&broker, &client, &form).await,
            Some(_) => Err(OTHER_GRANT),
            None => Err(NO_GRANT),
        }
    });
    match answering.await.unwrap_or(Err(BROKEN)) {
        Ok(response) => response,
        Err(error) => error.response(),
    }
}

/// Reads the form of a request, and authenticates its client.
pub(crate) async fn read_form(
    broker: &Broker,
    request: Request,
) -> Result<(Arc<ClientRecord>, FormFields), OAuthError> {
    let read = FormFields::of_body(request).await;
    let (head, form): (Parts, FormFields) = read.map_err(|fault| form_error(&fault))?;
    if !broker.store.ready(READY_PATIENCE).await {
        return Err(NOT_READY);
    }
    let owner = owner_of(broker, &form);
    let holder = owner.as_ref().map(|owner| &owner.client);
    let client = broker
        .clients
        .authenticate(&head.headers, &form, holder)
        .await?;
    let is_admitted = owner
        .filter(|owner| owner.client == client.mark())
        .is_none_or(|owner| broker.rates.admit_owner(&owner.client, owner.login));
    if !is_admitted {
        return Err(TOO_MANY);
    }
    Ok((client, form))
}

fn form_error(fault: &FormFault) -> OAuthError {
    match fault {
        FormFault::TooLong => OAuthError::new(OAuthCode::InvalidRequest, "The form is too long"),
        FormFault::NotAForm => OAuthError::new(
            OAuthCode::InvalidRequest,
            "The body is not application/x-www-form-urlencoded",
        ),
        // RFC 8707 allows several, but our tokens open one endpoint each.
        FormFault::Twice(name) if name == "resource" => {
            OAuthError::new(OAuthCode::InvalidTarget, "A login covers one resource")
        }
        FormFault::Twice(_) => OAuthError::new(
            OAuthCode::InvalidRequest,
            "A parameter occurs more than once",
        ),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::{StatusCode, header};

    use super::*;
    use crate::login_row::client_mark;
    use crate::test_broker::TestBroker;

    async fn post(test: &TestBroker, body: &str) -> (StatusCode, String) {
        let request = Request::post("/token")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from(body.to_owned()))
            .unwrap();
        let response = token(State(test.broker.clone()), request).await;
        let status = response.status();
        assert_eq!(response.headers()["cache-control"], "no-store");
        let body = axum::body::to_bytes(response.into_body(), 4096).await;
        (status, String::from_utf8(body.unwrap().to_vec()).unwrap())
    }

    /// Registers a client. Returns its id.
    fn registered(test: &TestBroker) -> String {
        let body = r#"{"redirect_uris":["http://127.0.0.1:7000/callback"],
            "token_endpoint_auth_method":"none"}"#;
        let client = test.broker.clients.register(body.as_bytes()).unwrap();
        let answer = serde_json::to_string(&client).unwrap();
        let id = answer.split('"').find(|text| text.starts_with("mgc_"));
        id.unwrap().to_owned()
    }

    #[tokio::test]
    async fn errors_are_those_of_oauth() {
        let test = TestBroker::in_memory();
        let id = registered(&test);
        for (body, error) in [
            (
                "client_id=mgc_unknown&grant_type=refresh_token".to_owned(),
                "invalid_client",
            ),
            (format!("client_id={id}"), "invalid_request"),
            (
                format!("client_id={id}&grant_type=password"),
                "unsupported_grant_type",
            ),
            (
                format!("client_id={id}&grant_type=a&grant_type=b"),
                "invalid_request",
            ),
            (
                format!("client_id={id}&resource=a&resource=b"),
                "invalid_target",
            ),
            (
                format!("client_id={id}&grant_type=refresh_token"),
                "invalid_request",
            ),
            (
                format!("client_id={id}&grant_type=refresh_token&refresh_token=mgr_x"),
                "invalid_grant",
            ),
        ] {
            let (status, answer) = post(&test, &body).await;
            assert!(
                answer.contains(&format!(r#""error":"{error}""#)),
                "{body}: {answer}"
            );
            assert!(status.is_client_error(), "{body}: {status}");
            assert!(
                !answer.contains("mgr_") && !answer.contains("mgc_"),
                "{answer}"
            );
        }
    }

    #[tokio::test]
    async fn strangers_who_know_a_client_do_not_keep_it_from_renewals() {
        let test = TestBroker::in_memory();
        let id = registered(&test);
        let live = test.login(|row| row.client = client_mark(&id)).await;
        let form = format!("client_id={id}&grant_type=refresh_token&refresh_token=");
        for _ in 0..6_100 {
            let (status, _) = post(&test, &format!("{form}mgr_x")).await;
            assert_eq!(status, StatusCode::BAD_REQUEST);
        }
        let token = test.refresh_token(&live, 0);
        let (status, answer) = post(&test, &format!("{form}{token}")).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }

    #[tokio::test]
    async fn a_login_that_renews_in_a_loop_is_told_to_wait() {
        let test = TestBroker::in_memory();
        let id = registered(&test);
        let live = test.login(|row| row.client = client_mark(&id)).await;
        let token = test.refresh_token(&live, 0);
        let form = format!("client_id={id}&grant_type=refresh_token&refresh_token={token}");
        let mut last = StatusCode::OK;
        for _ in 0..200 {
            (last, _) = post(&test, &form).await;
        }
        assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
        assert!(!live.ended.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn logins_that_are_not_read_yet_are_no_reason_to_log_in_again() {
        let test = TestBroker::not_restored();
        let (status, answer) = post(&test, "client_id=mgc_x&grant_type=refresh_token").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(answer.contains("temporarily_unavailable"), "{answer}");
    }
}
