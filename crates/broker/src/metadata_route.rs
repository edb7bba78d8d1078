//! Route for the server metadata.
//!
//! Owns the form of the response. Does not know its contents (`server_document.rs`). Invariant: the
//! response is the same for everybody.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::broker::Broker;
use crate::server_document::server_document;

/// Answers `GET /.well-known/oauth-authorization-server`.
pub(crate) async fn metadata(State(broker): State<Arc<Broker>>) -> Response {
    let document = server_document(&broker.settings);
    let mut response = Response::new(Body::from(document));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Not cached, because a restart may change the settings and the document is cheap.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use crate::test_broker::TestBroker;

    use super::*;

    #[tokio::test]
    async fn the_document_is_json() {
        let test = TestBroker::in_memory();
        let response = metadata(State(test.broker.clone())).await;
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        let body = axum::body::to_bytes(response.into_body(), 8192).await;
        assert!(body.unwrap().starts_with(b"{\"issuer\":"));
    }
}
