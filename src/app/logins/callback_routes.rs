//! Route at which browsers bring the answers of logins.
//!
//! Owns the path and the response. Does not check answers (`moongate_oauth::finish_login`).
//! Invariant: every answer gets a page with status 200, and none a redirect.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use http::{HeaderValue, Response, StatusCode, Uri, header};
use moongate_oauth::{AuthorizationResponse, LoginError, LoginTarget, Logins, finish_login};

use super::callback_page::CallbackPage;

/// Redirect addresses, one for each issuer.
const CALLBACK: &str = "/oauth/callback/{issuer}";

/// Builds the routes at which browsers bring answers.
pub(crate) fn callback_routes(logins: Arc<Logins>) -> Router {
    // A preview of a link must not use the code up. Without this route, HEAD would be a GET.
    let routes = get(finish).head(refuse_head);
    Router::new().route(CALLBACK, routes).with_state(logins)
}

async fn finish(State(logins): State<Arc<Logins>>, address: Uri) -> Response<Body> {
    // In its own task: a browser that goes away must not leave a login half done.
    let finishing = tokio::spawn(async move { finish_answer(&logins, &address).await });
    let page = match finishing.await {
        Ok(page) => page,
        Err(_) => CallbackPage::of(&Err(LoginError::Interrupted)),
    };
    let mut response = Response::new(Body::from(page.html()));
    for (name, value) in CallbackPage::headers() {
        response.headers_mut().insert(name, value.clone());
    }
    response
}

async fn finish_answer(logins: &Logins, address: &Uri) -> CallbackPage {
    let Some(folder) = logins.folder() else {
        return CallbackPage::failure(
            "this gateway has no folder to keep logins in: set gateway.state_dir",
        );
    };
    let finishing = async {
        let query = address.query().unwrap_or_default();
        let response = AuthorizationResponse::from_query(query)?;
        finish_login(logins.fetcher(), folder, &response, Some(address.path())).await
    };
    let end: Result<LoginTarget, LoginError> = finishing.await;
    CallbackPage::of(&end)
}

async fn refuse_head() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    let allowed = HeaderValue::from_static("GET");
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::BodyExt as _;
    use moongate_oauth::LoginFolder;
    use moongate_transport::fetcher::{FetchRules, Fetcher};
    use tower::ServiceExt as _;

    use super::*;

    async fn send(method: &str, address: &str) -> (Response<()>, String) {
        let dir = tempfile::tempdir().unwrap();
        let folder = LoginFolder::open(dir.path()).unwrap();
        let fetcher = Arc::new(Fetcher::with_system_roots(&FetchRules::default()));
        let logins = Logins::new(Some(folder), fetcher);
        let request = Request::builder()
            .method(method)
            .uri(address)
            .body(Body::empty())
            .unwrap();
        let response = callback_routes(Arc::new(logins)).oneshot(request).await;
        let (head, body) = response.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        (Response::from_parts(head, ()), body)
    }

    #[tokio::test]
    async fn an_answer_that_nobody_waits_for_gets_a_page_and_no_redirect() {
        for query in ["", "?code=a&state=b", "?state=a&state=b", "?error=x"] {
            let address = format!("/oauth/callback/abcdefghij{query}");
            let (head, page) = send("GET", &address).await;
            assert_eq!(head.status(), StatusCode::OK, "{query}");
            assert!(page.contains("The login failed"), "{page}");
            let headers = head.headers();
            assert_eq!(headers[header::CACHE_CONTROL], "no-store");
            assert_eq!(headers[header::REFERRER_POLICY], "no-referrer");
            assert!(!headers.contains_key(header::LOCATION));
        }
    }

    #[tokio::test]
    async fn only_get_brings_an_answer() {
        for method in ["HEAD", "POST"] {
            let (head, _) = send(method, "/oauth/callback/abcdefghij?code=a&state=b").await;
            assert_eq!(head.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
        }
        let (head, _) = send("GET", "/oauth/callback").await;
        assert_eq!(head.status(), StatusCode::NOT_FOUND);
    }
}
