//! Route to which the company's login sends people back.
//!
//! Owns what follows from its answer. Does not verify the person (`provider`). Invariant: an answer
//! counts once, in the browser that gave consent, and only a person with a role gets a code.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use moongate_telemetry::BrokerLimit;

use crate::answer_address::answer_address;
use crate::authorize_request::AuthorizeRequest;
use crate::broker::Broker;
use crate::code_table::CodeGrant;
use crate::departure::{Departure, provider_fault_page, send_to_provider};
use crate::error_page::{error_page, refusal_page};
use crate::form_fields::FormFields;
use crate::login_cookies::LoginCookies;
use crate::moving_page::moving_page;
use crate::oauth_error::{OAuthCode, OAuthError};
use crate::page_guards::{check_page_load, run_to_the_end};
use crate::person_row::ProvenPerson;
use crate::provider::fault::ProviderFault;
use crate::transactions::Transaction;

/// Title of the page for a failed login.
const NOT_LOGGED_IN: &str = "You are not logged in";

/// Handles `GET /oauth/provider`: finishes a login.
pub(crate) async fn provider_answer(
    State(broker): State<Arc<Broker>>,
    request: Request,
) -> Response {
    // A HEAD request, such as from a link preview, would use up the answer.
    if request.method() != Method::GET {
        return wrong_method();
    }
    let peer = broker.peer_of(&request);
    let head = request.into_parts().0;
    if let Err(refusal) = check_page_load(&head.headers) {
        return refusal;
    }
    run_to_the_end(async move { take_answer(&broker, &head, peer).await }).await
}

fn wrong_method() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    let allowed = HeaderValue::from_static("GET");
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}

async fn take_answer(broker: &Broker, head: &Parts, peer: Option<IpAddr>) -> Response {
    let query = head.uri.query().unwrap_or_default();
    let Ok(fields) = FormFields::of_query(query) else {
        return unknown_login();
    };
    let state = fields.get("state").unwrap_or_default();
    let cookies = LoginCookies::of(&broker.settings.public_url);
    let hashes = cookies.login_hashes(&head.headers, state);
    let Some(transaction) = broker.transactions.take(state, &hashes) else {
        return unknown_login();
    };
    let proven = broker.provider.finish(&transaction.sent, query).await;
    let mut response = match proven {
        Ok(person) => hand_over(broker, &transaction, person),
        Err(ProviderFault::NoToken) if !transaction.asked_again => {
            let departure = Departure {
                request: transaction.request,
                client: transaction.client,
                redirect: transaction.redirect,
                asked_again: true,
            };
            send_to_provider(broker, &head.headers, peer, departure).await
        }
        Err(fault) => provider_fault_page(broker, &transaction.request, fault),
    };
    if let Some(removed) = cookies.remove_login(state) {
        response.headers_mut().append(header::SET_COOKIE, removed);
    }
    response
}

/// Builds the page for an answer that matches no login in this browser.
fn unknown_login() -> Response {
    let text = "This login was started in another browser, took more than ten minutes, or has \
                already finished. Start it again in your program.";
    error_page(NOT_LOGGED_IN, text, None)
}

/// Hands the client a code for a person whom a role matches.
fn hand_over(broker: &Broker, transaction: &Transaction, person: ProvenPerson) -> Response {
    let request = &transaction.request;
    if broker.roles_of_facts(&person.facts).is_empty() {
        return no_role(broker, request, &person.facts.name);
    }
    let grant = CodeGrant {
        client: transaction.client.mark(),
        client_name: transaction.client.name.clone(),
        redirect: request.redirect.clone(),
        challenge: request.challenge.clone(),
        endpoint: request.endpoint.clone(),
        scope: request.scope.clone(),
        person,
    };
    let Some(code) = broker.codes.issue(grant) else {
        return too_many(broker, request);
    };
    let target = answer_address(&broker.issuer, request, Ok(&code));
    moving_page(&target, &transaction.redirect, "You are logged in")
}

fn no_role(broker: &Broker, request: &AuthorizeRequest, name: &str) -> Response {
    tracing::warn!("login of {name} refused: no role in auth.roles matches");
    let error = OAuthError::new(
        OAuthCode::AccessDenied,
        "No role on this gateway matches this person.",
    );
    let back = answer_address(&broker.issuer, request, Err(&error));
    let text = format!(
        "Your company's login identified you as {name}, but you have no access to this gateway. \
         Ask its operator for access, or log in with another account."
    );
    refusal_page(StatusCode::FORBIDDEN, NOT_LOGGED_IN, &text, Some(&back))
}

fn too_many(broker: &Broker, request: &AuthorizeRequest) -> Response {
    broker.metrics.broker.refused.inc(BrokerLimit("codes"));
    let error = OAuthError::new(
        OAuthCode::TemporarilyUnavailable,
        "Too many people are logging in right now.",
    );
    let back = answer_address(&broker.issuer, request, Err(&error));
    let text = "Too many people are logging in right now. Start the login again in a minute.";
    let status = error.code.status();
    refusal_page(status, NOT_LOGGED_IN, text, Some(&back))
}

#[cfg(test)]
mod tests {
    use axum::body::Body as AxumBody;
    use jiff::Timestamp;
    use moongate_oauth::{SecretText, random_text};

    use crate::consent_route::tests::github_broker;
    use crate::login_cookies::cookie_hash;
    use crate::page_frame::tests::html_of;
    use crate::person_facts::PersonFacts;
    use crate::provider::client::SentRequest;
    use crate::redirect_rules::RedirectKind;
    use crate::test_broker::{REDIRECT, TestBroker, client, proven};

    use super::*;

    /// `state` of the login in progress.
    const STATE: &str = "abcdef-state-of-the-login";

    fn transaction(secret: &SecretText) -> Transaction {
        Transaction {
            request: AuthorizeRequest {
                client_id: "mgc_1".to_owned(),
                redirect: REDIRECT.to_owned(),
                state: Some("their-state".to_owned()),
                challenge: "c".repeat(43),
                endpoint: "files".to_owned(),
                scope: "mcp offline_access".to_owned(),
                is_all_servers: false,
            },
            client: Arc::new(client("mgc_1")),
            redirect: RedirectKind::Loopback,
            sent: SentRequest {
                verifier: random_text(),
                nonce: random_text(),
            },
            cookie: cookie_hash(secret.expose()),
            started: Timestamp::now(),
            asked_again: false,
        }
    }

    /// Starts a login, and returns the cookie of its browser.
    fn begin(broker: &Broker) -> String {
        let secret = random_text();
        let state = SecretText::new(STATE);
        broker
            .transactions
            .begin(&state, None, transaction(&secret));
        format!("__Host-moongate-login-abcdef={}", secret.expose())
    }

    async fn send(broker: &Arc<Broker>, method: &str, query: &str, cookie: &str) -> Response {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("/oauth/provider?{query}"))
            .header("cookie", cookie)
            .body(AxumBody::empty())
            .unwrap();
        provider_answer(State(broker.clone()), request).await
    }

    #[tokio::test]
    async fn an_answer_in_another_browser_finishes_nothing_and_ends_nothing() {
        let broker = github_broker();
        let cookie = begin(&broker);
        let denied = format!("error=access_denied&state={STATE}");
        let twice = format!("{denied}&state={STATE}");
        let foreign = format!("__Host-moongate-login-abcdef={}", random_text().expose());
        let plain = cookie.replace("__Host-", "");
        for (query, cookie) in [
            (denied.as_str(), ""),
            (denied.as_str(), foreign.as_str()),
            (denied.as_str(), plain.as_str()),
            ("error=access_denied&state=abcdef-another", cookie.as_str()),
            ("error=access_denied", cookie.as_str()),
            (twice.as_str(), cookie.as_str()),
            ("", cookie.as_str()),
        ] {
            let response = send(&broker, "GET", query, cookie).await;
            assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{query}");
            let page = html_of(response).await;
            assert!(!page.contains("their-state") && !page.contains(REDIRECT));
        }
        let response = send(&broker, "GET", &denied, &cookie).await;
        let page = html_of(response).await;
        assert!(page.contains("error=access_denied"), "{page}");
        assert!(page.contains("state=their-state"), "{page}");
    }

    #[tokio::test]
    async fn an_answer_counts_once_and_its_cookie_goes() {
        let broker = github_broker();
        let cookie = begin(&broker);
        let denied = format!("error=access_denied&state={STATE}");
        let response = send(&broker, "GET", &denied, &cookie).await;
        let removed = &response.headers()[header::SET_COOKIE];
        let removed = removed.to_str().unwrap();
        assert!(removed.starts_with("__Host-moongate-login-abcdef=; Max-Age=0"));
        assert!(!response.headers().contains_key(header::LOCATION));
        let page = html_of(response).await;
        assert!(!page.contains("http-equiv"), "an error never moves on");
        let replay = send(&broker, "GET", &denied, &cookie).await;
        assert!(!html_of(replay).await.contains("their-state"));
    }

    #[tokio::test]
    async fn other_methods_use_no_answer_up() {
        let broker = github_broker();
        let cookie = begin(&broker);
        let denied = format!("error=access_denied&state={STATE}");
        for method in ["HEAD", "POST", "OPTIONS"] {
            let response = send(&broker, method, &denied, &cookie).await;
            assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        }
        let response = send(&broker, "GET", &denied, &cookie).await;
        assert!(html_of(response).await.contains("their-state"));
    }

    #[tokio::test]
    async fn a_person_without_a_role_gets_no_code() {
        let test = TestBroker::in_memory();
        let mut person = proven();
        person.facts = PersonFacts {
            name: "<b>eve\u{202e}</b>".to_owned(),
            ..PersonFacts::default()
        };
        let transaction = transaction(&random_text());
        let response = hand_over(&test.broker, &transaction, person);
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        let page = html_of(response).await;
        assert!(!page.contains("http-equiv") && !page.contains("code="));
        assert!(page.contains("&lt;b&gt;eve⟨U+202E⟩&lt;/b&gt;"), "{page}");
        assert!(page.contains("error=access_denied"), "{page}");
    }

    #[tokio::test]
    async fn a_person_with_a_role_brings_a_code_to_the_client_of_the_request() {
        let test = TestBroker::in_memory();
        let transaction = transaction(&random_text());
        let response = hand_over(&test.broker, &transaction, proven());
        assert_eq!(response.status(), StatusCode::OK);
        assert!(!response.headers().contains_key(header::LOCATION));
        let page = html_of(response).await;
        let (_, rest) = page.split_once(&format!("url={REDIRECT}?code=")).unwrap();
        let (code, rest) = rest.split_once("&amp;").unwrap();
        assert!(rest.starts_with("state=their-state&amp;iss=https%3A%2F%2Fmcp.test\""));
        let grant = test.broker.codes.take(code).unwrap();
        assert_eq!(grant.client, client("mgc_1").mark());
        assert_eq!(grant.endpoint, "files");
        assert_eq!(grant.redirect, REDIRECT);
    }
}
