//! Routes of people's logins.
//!
//! Owns their paths and methods. Does not answer (`*_route.rs`). Invariant: all of them answer only
//! under the host of the public URL.

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::routing::{get, post};
use http::StatusCode;

use crate::authorize_route::show_consent;
use crate::broker::Broker;
use crate::callback_route::provider_answer;
use crate::consent_route::take_consent;
use crate::host_check::check_host;
use crate::metadata_route::metadata;
use crate::register_route::register;
use crate::revoke_route::revoke;
use crate::token_route::token;

/// Builds the routes of a broker.
pub fn broker_routes(broker: &Arc<Broker>) -> Router {
    // A link preview must not use up the answer. Without this route, HEAD would run the GET.
    let provider = get(provider_answer).head(refuse_head);
    Router::new()
        .route("/.well-known/oauth-authorization-server", get(metadata))
        .route("/register", post(register))
        .route("/authorize", get(show_consent).post(take_consent))
        .route("/token", post(token))
        .route("/revoke", post(revoke))
        .route("/oauth/provider", provider)
        .layer(middleware::from_fn_with_state(broker.clone(), check_host))
        .with_state(broker.clone())
}

async fn refuse_head() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use tower::ServiceExt as _;

    use super::*;
    use crate::test_broker::TestBroker;

    async fn send(method: &str, path: &str, host: &str) -> StatusCode {
        let test = TestBroker::in_memory();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", host)
            .body(Body::empty())
            .unwrap();
        let response = broker_routes(&test.broker).oneshot(request).await;
        response.unwrap().status()
    }

    #[tokio::test]
    async fn each_route_has_its_methods() {
        let metadata = "/.well-known/oauth-authorization-server";
        assert_eq!(send("GET", metadata, "mcp.test").await, StatusCode::OK);
        for (method, path) in [
            ("GET", "/register"),
            ("GET", "/token"),
            ("GET", "/revoke"),
            ("HEAD", "/oauth/provider"),
            ("POST", "/oauth/provider"),
            ("PUT", "/authorize"),
        ] {
            let status = send(method, path, "mcp.test").await;
            assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        }
    }

    #[tokio::test]
    async fn under_another_host_nothing_answers() {
        for host in ["127.0.0.1", "localhost", "evil.test", "mcp.test.evil.test"] {
            for path in ["/authorize", "/oauth/provider"] {
                let status = send("GET", path, host).await;
                assert_eq!(status, StatusCode::MISDIRECTED_REQUEST, "{host} {path}");
            }
            let status = send("POST", "/token", host).await;
            assert_eq!(status, StatusCode::MISDIRECTED_REQUEST, "{host}");
            let metadata = "/.well-known/oauth-authorization-server";
            assert_eq!(send("GET", metadata, host).await, StatusCode::NOT_FOUND);
        }
    }
}
