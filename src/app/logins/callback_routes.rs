//! Route to which browsers deliver login answers.
//!
//! Owns the path and the response. Does not check answers (`moongate_oauth::finish_login`).
//! Invariant: every answer gets a page with status 200, none a redirect, and a repeated answer gets
//! the same page.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use http::{HeaderValue, Response, StatusCode, Uri, header};
use moongate_oauth::{
    AuthorizationResponse, LoginDirectory, LoginError, LoginFolder, finish_login,
};

use super::callback_page::CallbackPage;
use super::recent_logins::RecentLogins;

/// Redirect addresses, one for each issuer.
const CALLBACK: &str = "/oauth/callback/{issuer}";

/// State that all answers share.
struct CallbackState {
    logins: Arc<LoginDirectory>,
    recent: RecentLogins,
}

/// Text of a gateway that cannot store logins. Anybody may open the address, so it names no path.
const NO_FOLDER: &str = "this gateway cannot keep logins; its log and `moongate login` say why";

/// Builds the routes to which browsers deliver answers.
pub(crate) fn callback_routes(logins: Arc<LoginDirectory>) -> Router {
    // A link preview must not use up the code. Without this route, HEAD would be a GET.
    let routes = get(finish).head(refuse_head);
    let state = CallbackState {
        logins,
        recent: RecentLogins::default(),
    };
    Router::new()
        .route(CALLBACK, routes)
        .with_state(Arc::new(state))
}

async fn finish(State(state): State<Arc<CallbackState>>, address: Uri) -> Response<Body> {
    // In its own task, so that a browser that disconnects does not leave a login half done.
    let finishing = tokio::spawn(async move { finish_answer(&state, &address).await });
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

async fn finish_answer(state: &CallbackState, address: &Uri) -> CallbackPage {
    let CallbackState { logins, recent } = state;
    let Some(folder) = logins.folder() else {
        return CallbackPage::failure(NO_FOLDER);
    };
    let query = address.query().unwrap_or_default();
    let response = match AuthorizationResponse::from_query(query) {
        Ok(response) => response,
        Err(error) => return CallbackPage::of_gateway(&Err(error)),
    };
    let known = response.state().unwrap_or_default();
    let hash = recent.hash(known);
    // Checked first, because once the login is taken, it is among the recent ones.
    let is_waiting = is_waiting_for(folder, known).await;
    if let Some(page) = recent.begin(hash, is_waiting) {
        return page;
    }
    let finishing = finish_login(logins.fetcher(), folder, &response, Some(address.path()));
    let page = CallbackPage::of_gateway(&finishing.await);
    // An answer that failed for a temporary reason may come again.
    if is_waiting_for(folder, known).await {
        recent.forget(hash);
    } else {
        recent.end(hash, &page);
    }
    page
}

/// Returns true if a login waits for a state. The folder is read on a thread that may block.
async fn is_waiting_for(folder: &LoginFolder, state: &str) -> bool {
    let folder = folder.clone();
    let state = state.to_owned();
    let asking = tokio::task::spawn_blocking(move || folder.is_pending(&state));
    asking.await.unwrap_or(false)
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
    use moongate_transport::fetcher::{FetchRules, Fetcher};
    use tower::ServiceExt as _;

    use super::super::fixtures::pending_login;
    use super::*;

    async fn send(method: &str, address: &str) -> (Response<()>, String) {
        let dir = tempfile::tempdir().unwrap();
        let folder = LoginFolder::open(dir.path()).unwrap();
        send_to(&routes(folder), method, address).await
    }

    fn routes(folder: LoginFolder) -> Router {
        let fetcher = Arc::new(Fetcher::with_system_roots(&FetchRules::default()));
        callback_routes(Arc::new(LoginDirectory::new(Some(folder), fetcher)))
    }

    async fn send_to(routes: &Router, method: &str, address: &str) -> (Response<()>, String) {
        let request = Request::builder()
            .method(method)
            .uri(address)
            .body(Body::empty())
            .unwrap();
        let response = routes.clone().oneshot(request).await;
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
            assert!(page.contains("paste this page's address"), "{page}");
            let headers = head.headers();
            assert_eq!(headers[header::CACHE_CONTROL], "no-store");
            assert_eq!(headers[header::REFERRER_POLICY], "no-referrer");
            assert!(!headers.contains_key(header::LOCATION));
        }
    }

    #[tokio::test]
    async fn a_page_that_is_opened_again_shows_the_same_end() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LoginFolder::open(dir.path()).unwrap();
        let pending = pending_login("known");
        folder.put_pending(&pending).unwrap();
        let routes = routes(folder);
        let path = pending.client.redirect.path();
        let address = format!("{path}?error=access_denied&state=known");
        let (_, first) = send_to(&routes, "GET", &address).await;
        assert!(first.contains("access_denied"), "{first}");
        assert!(!first.contains("paste"), "{first}");
        let (_, again) = send_to(&routes, "GET", &address).await;
        assert_eq!(again, first);
        let other = format!("{path}?error=access_denied&state=other");
        let (_, unknown) = send_to(&routes, "GET", &other).await;
        assert!(!unknown.contains("access_denied"), "{unknown}");
    }

    #[tokio::test]
    async fn the_page_says_that_there_is_no_place_and_names_none() {
        let fetcher = Arc::new(Fetcher::with_system_roots(&FetchRules::default()));
        let problem = Some("the folder is locked away".to_owned());
        let logins = LoginDirectory::new(None, fetcher).with_folder_problem(problem);
        let routes = callback_routes(Arc::new(logins));
        let (_, page) = send_to(&routes, "GET", "/oauth/callback/abcdefghij?code=a&state=b").await;
        assert!(page.contains("cannot keep logins"), "{page}");
        assert!(!page.contains("locked away"), "{page}");
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
