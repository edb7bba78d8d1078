//! People's logins: the list, and the route that ends them.
//!
//! Owns the routes, and the status of each refusal. Does not keep logins (`moongate_broker`).
//! Invariant: only operators can end logins here, and an ambiguous name ends none.

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;

use crate::control_types::RevokeRefusal;
use crate::json_answer::json;
use crate::operator_check::{Operator, Viewer};
use moongate_api::{ApiError, SeveralPeople};
use moongate_listener::json_response;

/// Handles `GET /api/v1/people`.
pub(super) async fn people(Viewer(admin): Viewer) -> Response {
    match admin.people.people() {
        Some(list) => json(StatusCode::OK, &list),
        None => refuse(RevokeRefusal::None, ""),
    }
}

/// Handles `DELETE /api/v1/people/{who}`. Responds when the logins have ended.
pub(super) async fn revoke(Operator(admin): Operator, Path(who): Path<String>) -> Response {
    let named = who.clone();
    // In a separate task: otherwise a client that disconnects could leave some of a person's
    // logins.
    let ending = tokio::spawn(async move { admin.people.revoke(named).await });
    match ending.await {
        Ok(Ok(report)) => json(StatusCode::OK, &report),
        Ok(Err(refusal)) => refuse(refusal, &who),
        // The task panicked, but the gateway continues.
        Err(_) => json_response(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "Ending the login was interrupted",
        ),
    }
}

fn refuse(refusal: RevokeRefusal, who: &str) -> Response {
    match refusal {
        RevokeRefusal::None => json_response(
            StatusCode::CONFLICT,
            "no_login",
            "People cannot log in at this gateway: there is no [auth.oauth]",
        ),
        RevokeRefusal::Unknown => json_response(
            StatusCode::NOT_FOUND,
            "not_found",
            "There is no login with this id or name; it may have ended",
        ),
        RevokeRefusal::Several(logins) => json(
            StatusCode::CONFLICT,
            &SeveralPeople {
                error: ApiError {
                    error: "ambiguous_person".to_owned(),
                    message: format!(
                        "Several people are called {who:?}: use the id of one of their logins"
                    ),
                },
                logins,
            },
        ),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;
    use moongate_api::PersonItem;

    #[tokio::test]
    async fn each_refusal_has_its_status_and_its_code() {
        let item = PersonItem {
            id: "0a".to_owned(),
            name: "ann".to_owned(),
            ..PersonItem::default()
        };
        for (refusal, status, code, listed) in [
            (RevokeRefusal::None, 409, "no_login", 0),
            (RevokeRefusal::Unknown, 404, "not_found", 0),
            (
                RevokeRefusal::Several(vec![item]),
                409,
                "ambiguous_person",
                1,
            ),
        ] {
            let response = refuse(refusal, "ann");
            assert_eq!(response.status().as_u16(), status);
            let body = to_bytes(response.into_body(), 4096).await.unwrap();
            let read: SeveralPeople = serde_json::from_slice(&body).unwrap();
            assert_eq!(read.error.error, code);
            assert!(!read.error.message.is_empty());
            assert_eq!(read.logins.len(), listed);
        }
    }
}
