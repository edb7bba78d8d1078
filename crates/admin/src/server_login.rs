//! Logins at servers: the handlers that start and end one.
//!
//! Owns the handlers, and the status of each refusal. Does not check who may act
//! (`operator_check.rs`) or log in. Invariant: only an operator gets the address of a login.

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;

use crate::control_types::{LoginRefusal, LoginRefusalReason};
use crate::json_answer::json;
use crate::json_body::JsonBody;
use crate::operator_check::Operator;
use moongate_api::LoginRequest;
use moongate_listener::json_response;

/// Handles `POST /api/v1/servers/{name}/login`. Responds with the address to open.
pub(super) async fn log_in(
    Operator(admin): Operator,
    Path(name): Path<String>,
    JsonBody(request): JsonBody<LoginRequest>,
) -> Response {
    match admin.logins.start_login(name, request).await {
        Ok(started) => json(StatusCode::OK, &started),
        Err(refusal) => refuse(&refusal),
    }
}

/// Handles `POST /api/v1/servers/{name}/logout`. Responds when the login has been deleted.
pub(super) async fn log_out(Operator(admin): Operator, Path(name): Path<String>) -> Response {
    // In a separate task: if its client disconnected after the revocation, a login that no server
    // accepts would stay.
    let ending = tokio::spawn(async move { admin.logins.log_out(name).await });
    match ending.await {
        Ok(Ok(report)) => json(StatusCode::OK, &report),
        Ok(Err(refusal)) => refuse(&refusal),
        // A panic in that task does not stop the gateway.
        Err(_) => json_response(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "The sign-out was interrupted",
        ),
    }
}

fn refuse(refusal: &LoginRefusal) -> Response {
    let (status, code) = match refusal.reason {
        LoginRefusalReason::UnknownServer => (StatusCode::NOT_FOUND, "not_found"),
        LoginRefusalReason::NoLogin => (StatusCode::CONFLICT, "no_login"),
        LoginRefusalReason::NoFolder => (StatusCode::CONFLICT, "no_folder"),
        LoginRefusalReason::NoRedirect => (StatusCode::CONFLICT, "no_redirect"),
        LoginRefusalReason::Failed => (StatusCode::BAD_GATEWAY, "login_failed"),
    };
    json_response(status, code, &refusal.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_differ_by_who_can_do_something_about_them() {
        for (reason, expected) in [
            (LoginRefusalReason::UnknownServer, 404),
            (LoginRefusalReason::NoLogin, 409),
            (LoginRefusalReason::NoFolder, 409),
            (LoginRefusalReason::NoRedirect, 409),
            (LoginRefusalReason::Failed, 502),
        ] {
            let message = "why".to_owned();
            let response = refuse(&LoginRefusal { reason, message });
            assert_eq!(response.status().as_u16(), expected, "{reason:?}");
        }
    }
}
