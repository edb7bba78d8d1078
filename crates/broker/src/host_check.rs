//! Host check for the routes of people's logins.
//!
//! Owns the answers under other hosts. Does not know the routes. Invariant: under any host other
//! than the public URL's, the gateway looks as if it had no logins.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::StatusCode;
use moongate_listener::{json_response, request_hosts};

use crate::broker::Broker;
use crate::error_page::refusal_page;

/// Paths opened by browsers.
const PAGES: [&str; 2] = ["/authorize", "/oauth/provider"];

/// Passes requests under the host of the public URL, and refuses all others.
// Cookies, consent and tokens are valid for one origin. The listener accepts any address, and a
// client that found a login at another one would stop using the key that it has there.
pub(crate) async fn check_host(
    State(broker): State<Arc<Broker>>,
    request: Request,
    next: Next,
) -> Response {
    if names_own_host(&broker, &request) {
        return next.run(request).await;
    }
    refuse_host(&broker.issuer, request.uri().path())
}

/// Returns true if a request names a host, and names no host other than ours.
fn names_own_host(broker: &Broker, request: &Request) -> bool {
    let mut hosts = request_hosts(request.headers(), request.uri()).peekable();
    hosts.peek().is_some() && hosts.all(|host| host.is_some_and(|host| broker.is_own_host(host)))
}

fn refuse_host(issuer: &str, path: &str) -> Response {
    if path.starts_with("/.well-known/") {
        // The same answer as from a gateway without logins.
        return json_response(
            StatusCode::NOT_FOUND,
            "not_found",
            "This server has no OAuth; if it asks for a key, send it as Authorization: Bearer",
        );
    }
    if PAGES.contains(&path) {
        let text = format!(
            "Logins work only at {issuer}. Start the login again in your program, with the gateway \
             address that starts with {issuer}."
        );
        return refusal_page(
            StatusCode::MISDIRECTED_REQUEST,
            "Wrong address",
            &text,
            None,
        );
    }
    json_response(
        StatusCode::MISDIRECTED_REQUEST,
        "wrong_host",
        &format!("Logins work only at {issuer}"),
    )
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body as AxumBody;
    use axum::middleware::from_fn_with_state;
    use tower::ServiceExt as _;

    use crate::test_broker::TestBroker;

    use super::*;

    async fn reached() -> &'static str {
        "reached"
    }

    async fn status(broker: &Arc<Broker>, path: &str, hosts: &[&str]) -> StatusCode {
        let routes: Router = Router::new()
            .fallback(reached)
            .layer(from_fn_with_state(broker.clone(), check_host));
        let mut request = http::Request::builder().uri(path);
        for host in hosts {
            request = request.header("host", *host);
        }
        let request = request.body(AxumBody::empty()).unwrap();
        routes.oneshot(request).await.unwrap().status()
    }

    #[tokio::test]
    async fn other_hosts_reach_nothing() {
        let test = TestBroker::in_memory();
        let broker = &test.broker;
        for hosts in [
            &["127.0.0.1"][..],
            &["localhost:8080"],
            &["mcp.test.evil.test"],
            &["evil.test"],
            &[],
            &["mcp.test", "evil.test"],
            &["evil.test", "mcp.test"],
        ] {
            for path in ["/authorize", "/token", "/oauth/provider", "/register"] {
                let status = status(broker, path, hosts).await;
                assert_eq!(status, StatusCode::MISDIRECTED_REQUEST, "{hosts:?} {path}");
            }
            let path = "/.well-known/oauth-authorization-server";
            let status = status(broker, path, hosts).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{hosts:?}");
        }
        let absolute = "https://evil.test/authorize";
        let status_of_both = status(broker, absolute, &["mcp.test"]).await;
        assert_eq!(status_of_both, StatusCode::MISDIRECTED_REQUEST);
        for host in ["mcp.test", "MCP.test:443"] {
            let status = status(broker, "/authorize", &[host]).await;
            assert_eq!(status, StatusCode::OK, "{host}");
        }
    }

    #[test]
    fn a_refusal_repeats_no_host_of_others() {
        let response = refuse_host("https://mcp.test", "/token");
        assert_eq!(response.headers()["content-type"], "application/json");
        let response = refuse_host("https://mcp.test", "/authorize");
        let kind = response.headers()["content-type"].to_str().unwrap();
        assert!(kind.starts_with("text/html"));
    }
}
