//! Findings of the checks that the gateway can run on itself.
//!
//! Owns the handler. Does not find problems (`src/app/doctor/`). Invariant: no secret is in a
//! finding.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;

use crate::json_answer::json;
use crate::operator_check::Viewer;
use moongate_api::FindingList;
use moongate_listener::json_response;

/// Time for the checks. They read files, and a network file system may stall.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Handles `GET /api/v1/doctor`.
pub(super) async fn doctor(Viewer(admin): Viewer) -> Response {
    match tokio::time::timeout(CHECK_TIMEOUT, admin.examiner.doctor()).await {
        Ok(Some(findings)) => json(StatusCode::OK, &FindingList { findings }),
        Ok(None) => {
            let message = "This gateway was started without a config, so there is nothing to check";
            json_response(StatusCode::CONFLICT, "no_config", message)
        }
        Err(_) => json_response(
            StatusCode::GATEWAY_TIMEOUT,
            "timeout",
            "The checks took too long",
        ),
    }
}
