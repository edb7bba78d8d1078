//! Route to which a client sends a person to log in.
//!
//! Owns the order of the checks and the form's cookie. Does not render the page
//! (`consent_page.rs`). Invariant: an authorization request sets only the form's cookie, and is
//! never answered with a redirect.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::request::Parts;
use http::{StatusCode, header};
use moongate_oauth::random_text;

use crate::authorize_request::{CheckedRequest, check_authorize};
use crate::broker::Broker;
use crate::consent_page::ConsentView;
use crate::error_page::error_page;
use crate::fault_page::fault_page;
use crate::login_cookies::LoginCookies;
use crate::page_frame::page_response;
use crate::page_guards::{check_page_load, check_rate, check_store};
use crate::page_headers::PageKind;

/// Longest sealed request. It must fit into a form together with its name and the answer.
const SEALED_MAX: usize = 8000;

/// Handles `GET /authorize`: shows the consent page.
pub(crate) async fn show_consent(State(broker): State<Arc<Broker>>, request: Request) -> Response {
    let peer = broker.peer_of(&request);
    // The body is dropped because it is not `Sync`.
    let head = request.into_parts().0;
    // The page of another site can load this one as an image, as often as it likes. That must not
    // use up what the people behind this address have.
    let checked = check_page_load(&head.headers).and_then(|()| check_rate(&broker, peer));
    if let Err(refusal) = checked {
        return refusal;
    }
    if let Err(refusal) = check_store(&broker).await {
        return refusal;
    }
    let query = head.uri.query().unwrap_or_default();
    let checked =
        check_authorize(query, &broker.clients, &broker.redirects, &broker.resources).await;
    match checked {
        Ok(checked) => consent_response(&broker, &head, &checked),
        Err(fault) => fault_page(&broker.settings, &fault),
    }
}

fn consent_response(broker: &Broker, head: &Parts, checked: &CheckedRequest) -> Response {
    let cookies = LoginCookies::of(&broker.settings.public_url);
    // A browser keeps its secret, so pages in several tabs all remain valid.
    let held = cookies.form_secrets(&head.headers).into_iter().next();
    let secret = held.unwrap_or_else(random_text);
    let form = broker.forms.seal(&checked.request, &secret);
    if form.len() > SEALED_MAX {
        let text = "The request is too long. Start the login again in your program.";
        return error_page("This login can't start", text, None);
    }
    let resource = broker.resources.identifier(&checked.request.endpoint);
    let view = ConsentView {
        checked,
        resource: &resource,
        provider: broker.provider.host(),
        form: &form,
    };
    let mut response = page_response(
        StatusCode::OK,
        PageKind::Form,
        "Approve access",
        view.draw(),
    );
    let cookie = cookies.set_form(&secret);
    response.headers_mut().append(header::SET_COOKIE, cookie);
    response
}

#[cfg(test)]
pub(crate) mod tests {
    use axum::body::Body as AxumBody;
    use http::HeaderValue;
    use moongate_oauth::code_challenge;
    use serde::Deserialize;
    use url::form_urlencoded::Serializer;

    use crate::page_frame::tests::html_of;
    use crate::test_broker::{REDIRECT, TestBroker, VERIFIER};

    use super::*;

    /// Part of a registration response.
    #[derive(Deserialize)]
    struct Registered {
        client_id: String,
    }

    /// Registers a client with one redirect, and returns its id.
    pub(crate) fn register(broker: &Broker, redirect: &str) -> String {
        let body = format!(
            "{{\"client_name\":\"Test client\",\"redirect_uris\":[\"{redirect}\"],\
             \"token_endpoint_auth_method\":\"none\"}}"
        );
        let registered = broker.clients.register(body.as_bytes()).unwrap();
        let answer = serde_json::to_string(&registered).unwrap();
        serde_json::from_str::<Registered>(&answer)
            .unwrap()
            .client_id
    }

    /// Returns the query of a valid request, with one parameter changed or left out.
    fn query(client: &str, changed: &str, value: Option<&str>) -> String {
        let challenge = code_challenge(&moongate_oauth::SecretText::new(VERIFIER));
        let mut query = Serializer::new(String::new());
        for (name, usual) in [
            ("response_type", "code"),
            ("client_id", client),
            ("redirect_uri", REDIRECT),
            ("state", "their-state"),
            ("code_challenge", challenge.as_str()),
            ("code_challenge_method", "S256"),
            ("resource", "https://mcp.test/mcp/files"),
        ] {
            if name != changed {
                query.append_pair(name, usual);
            } else if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        query.finish()
    }

    async fn get(broker: &Arc<Broker>, query: &str, headers: &[(&'static str, &str)]) -> Response {
        let mut request = http::Request::builder().uri(format!("/authorize?{query}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(AxumBody::empty()).unwrap();
        show_consent(State(broker.clone()), request).await
    }

    /// Returns the sealed request of a consent page, and the browser's cookie.
    pub(crate) fn form_of(page: &str, cookie: &HeaderValue) -> (String, String) {
        let (_, rest) = page.split_once("name=\"request\" value=\"").unwrap();
        let (sealed, _) = rest.split_once('"').unwrap();
        let (pair, _) = cookie.to_str().unwrap().split_once(';').unwrap();
        (sealed.to_owned(), pair.to_owned())
    }

    /// Opens the consent page of a client, and returns its form and the browser's cookie.
    pub(crate) async fn open_page(broker: &Arc<Broker>, client: &str) -> (String, String) {
        let response = get(broker, &query(client, "", None), &[]).await;
        assert_eq!(response.status(), StatusCode::OK);
        let cookie = response.headers()[header::SET_COOKIE].clone();
        form_of(&html_of(response).await, &cookie)
    }

    fn assert_stays(response: &Response) {
        assert!(!response.headers().contains_key(header::LOCATION));
        assert!(!response.headers().contains_key(header::REFRESH));
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    }

    #[tokio::test]
    async fn what_another_site_loads_as_an_image_uses_no_rate_up() {
        let test = TestBroker::in_memory();
        let client = register(&test.broker, REDIRECT);
        for _ in 0..100 {
            let image = [("sec-fetch-dest", "image")];
            let response = get(&test.broker, &query(&client, "", None), &image).await;
            assert_eq!(response.status(), StatusCode::FORBIDDEN);
        }
        open_page(&test.broker, &client).await;
    }

    #[tokio::test]
    async fn a_bad_request_is_a_page_and_never_a_redirect() {
        let test = TestBroker::in_memory();
        let client = register(&test.broker, REDIRECT);
        for (changed, value, has_link) in [
            ("client_id", None, false),
            ("client_id", Some("mgc_unknown"), false),
            ("redirect_uri", Some("https://evil.test/cb"), false),
            ("redirect_uri", Some("javascript:alert(1)"), false),
            (
                "redirect_uri",
                Some("https://mcp.test/oauth/provider"),
                false,
            ),
            ("response_type", Some("token"), true),
            ("code_challenge", None, true),
            ("code_challenge_method", Some("plain"), true),
            ("resource", Some("https://evil.test/mcp"), true),
        ] {
            let response = get(&test.broker, &query(&client, changed, value), &[]).await;
            assert_ne!(response.status(), StatusCode::OK, "{changed} {value:?}");
            assert_stays(&response);
            assert!(!response.headers().contains_key(header::SET_COOKIE));
            let page = html_of(response).await;
            assert!(!page.contains("http-equiv") && !page.contains("<form"));
            assert_eq!(page.contains("href="), has_link, "{changed} {value:?}");
        }
    }

    #[tokio::test]
    async fn a_login_without_a_page_is_never_started() {
        let test = TestBroker::in_memory();
        let client = register(&test.broker, REDIRECT);
        let query = format!("{}&prompt=none", query(&client, "", None));
        let response = get(&test.broker, &query, &[]).await;
        assert_stays(&response);
        let page = html_of(response).await;
        assert!(!page.contains("http-equiv"), "{page}");
    }

    #[tokio::test]
    async fn a_frame_shows_nothing() {
        let test = TestBroker::in_memory();
        let client = register(&test.broker, REDIRECT);
        let headers = [("sec-fetch-dest", "iframe")];
        let response = get(&test.broker, &query(&client, "", None), &headers).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert!(!html_of(response).await.contains("<form"));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_asked_before_logins_can_be_kept() {
        let test = TestBroker::not_restored();
        let query = query("mgc_1", "", None);
        let response = get(&test.broker, &query, &[]).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn two_tabs_share_a_cookie_and_each_form_is_good() {
        let test = TestBroker::in_memory();
        let client = register(&test.broker, REDIRECT);
        let query = query(&client, "", None);
        let first = get(&test.broker, &query, &[]).await;
        let cookie = first.headers()[header::SET_COOKIE].clone();
        let (sealed, pair) = form_of(&html_of(first).await, &cookie);
        let second = get(&test.broker, &query, &[("cookie", pair.as_str())]).await;
        assert_eq!(second.headers()[header::SET_COOKIE], cookie);
        let (resealed, _) = form_of(&html_of(second).await, &cookie);
        assert_ne!(sealed, resealed);
        let (_, secret) = pair.split_once('=').unwrap();
        for sealed in [sealed, resealed] {
            let request = test.broker.forms.open(&sealed, secret).unwrap();
            assert_eq!(request.redirect, REDIRECT);
            assert_eq!(request.endpoint, "files");
        }
    }

    #[tokio::test]
    async fn the_page_asks_and_starts_nothing() {
        let test = TestBroker::in_memory();
        let client = register(&test.broker, REDIRECT);
        let response = get(&test.broker, &query(&client, "", None), &[]).await;
        assert_stays(&response);
        assert_eq!(response.headers()[header::REFERRER_POLICY], "same-origin");
        let cookies: Vec<_> = response
            .headers()
            .get_all(header::SET_COOKIE)
            .iter()
            .collect();
        assert_eq!(cookies.len(), 1, "no cookie of a login before the yes");
        let cookie = cookies[0].to_str().unwrap();
        assert!(cookie.starts_with("__Host-moongate-form="), "{cookie}");
        let page = html_of(response).await;
        for words in ["Test client", "registered itself", REDIRECT, "login.test"] {
            assert!(page.contains(words), "{words} in {page}");
        }
    }
}
