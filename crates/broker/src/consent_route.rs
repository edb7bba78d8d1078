//! Route that takes a person's answer to the consent page.
//!
//! Owns the checks of the answer. Does not show the page (`authorize_route.rs`). Invariant:
//! approval counts only from our own page, in the browser that it was shown in, for the request
//! that it showed.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};

use crate::answer_address::answer_address;
use crate::authorize_request::{AuthorizeRequest, PageFault};
use crate::broker::Broker;
use crate::consent_page::{ANSWER_FIELD, NO, REQUEST_FIELD, YES};
use crate::departure::{Departure, send_to_provider};
use crate::error_page::{error_page, refusal_page};
use crate::fault_page::page_of_fault;
use crate::form_fields::FormFields;
use crate::login_cookies::LoginCookies;
use crate::oauth_error::{OAuthCode, OAuthError};
use crate::page_guards::{check_origin, check_page_load, check_rate, check_store, run_to_the_end};

/// Title of the page for an invalid answer.
const NOT_COUNTED: &str = "Nothing was approved";

/// Handles `POST /authorize`: accepts the answer.
pub(crate) async fn take_consent(State(broker): State<Arc<Broker>>, request: Request) -> Response {
    let peer = broker.peer_of(&request);
    // The rate comes last: the page of another site must not use it up.
    let checked = check_page_load(request.headers())
        .and_then(|()| check_origin(&broker.issuer, request.headers()))
        .and_then(|()| check_rate(&broker, peer));
    if let Err(refusal) = checked {
        return refusal;
    }
    let (head, fields) = match FormFields::of_body(request).await {
        Ok(parts) => parts,
        Err(fault) => return page_of_fault(&broker.settings, &PageFault::Form(fault)),
    };
    run_to_the_end(async move { answer(&broker, &head.headers, &fields, peer).await }).await
}

async fn answer(
    broker: &Broker,
    headers: &HeaderMap,
    fields: &FormFields,
    peer: Option<IpAddr>,
) -> Response {
    let cookies = LoginCookies::of(&broker.settings.public_url);
    let secrets = cookies.form_secrets(headers);
    if secrets.is_empty() {
        let text = "This page was opened in another browser or too long ago, or your browser \
                    blocks cookies. Start the login again in your program, and open the page \
                    in your own browser.";
        return error_page(NOT_COUNTED, text, None);
    }
    let sealed = fields.get(REQUEST_FIELD).unwrap_or_default();
    let opened = secrets
        .iter()
        .find_map(|secret| broker.forms.open(sealed, secret.expose()));
    let Some(request) = opened else {
        let text = "The page was open for more than ten minutes, or was shown in another browser. \
                    Start the login again in your program.";
        return error_page(NOT_COUNTED, text, None);
    };
    match fields.get(ANSWER_FIELD) {
        Some(YES) => start_login(broker, headers, request, peer).await,
        Some(NO) => refused(broker, &request),
        _ => error_page(
            NOT_COUNTED,
            "The form came back without a valid answer.",
            None,
        ),
    }
}

/// Starts an approved login. Client and redirect are checked again, since either may have changed
/// while the page was open.
async fn start_login(
    broker: &Broker,
    headers: &HeaderMap,
    request: AuthorizeRequest,
    peer: Option<IpAddr>,
) -> Response {
    if let Err(refusal) = check_store(broker).await {
        return refusal;
    }
    let client = match broker.clients.find(&request.client_id).await {
        Ok(client) => client,
        Err(fault) => {
            let id = request.client_id;
            return page_of_fault(&broker.settings, &PageFault::Client { id, fault });
        }
    };
    let redirect = match broker.redirects.allows(&client, &request.redirect) {
        Ok(redirect) => redirect,
        Err(fault) => {
            let fault = PageFault::Redirect {
                client: client.name.clone(),
                address: request.redirect,
                fault,
            };
            return page_of_fault(&broker.settings, &fault);
        }
    };
    let departure = Departure {
        request,
        client,
        redirect,
        asked_again: false,
    };
    send_to_provider(broker, headers, peer, departure).await
}

/// Builds the page after a refusal. Its link reports the refusal to the client.
fn refused(broker: &Broker, request: &AuthorizeRequest) -> Response {
    let error = OAuthError::new(OAuthCode::AccessDenied, "The person did not approve.");
    let back = answer_address(&broker.issuer, request, Err(&error));
    let text = "The program was not given access. You can close this page.";
    refusal_page(StatusCode::OK, "Not approved", text, Some(&back))
}

#[cfg(test)]
pub(crate) mod tests {
    use axum::body::Body as AxumBody;
    use http::header;
    use moongate_access::auth::{PrincipalTable, ProviderKind};
    use moongate_listener::TrustedProxies;
    use moongate_oauth::RootSecrets;
    use moongate_session::store::StateStore;
    use moongate_telemetry::Metrics;
    use moongate_transport::fetcher::FetchRules;

    use crate::authorize_route::tests::{open_page, register};
    use crate::broker::BrokerParts;
    use crate::page_frame::tests::html_of;
    use crate::test_broker::{REDIRECT, settings};

    use super::*;

    const ORIGIN: (&str, &str) = ("origin", "https://mcp.test");

    /// Broker in front of GitHub, whose endpoints need no discovery.
    pub(crate) fn github_broker() -> Arc<Broker> {
        let mut settings = settings();
        settings.provider.kind = ProviderKind::GitHub {
            orgs: vec!["acme".to_owned()],
        };
        settings.provider.issuer = "https://github.com".to_owned();
        let broker = Broker::new(BrokerParts {
            settings,
            matches: Vec::new(),
            proxies: TrustedProxies::default(),
            principals: Arc::new(PrincipalTable::default()),
            store: StateStore::memory(),
            secrets: Arc::new(RootSecrets::of_bytes(&[7; 32])),
            person_secret: [8; 32],
            metrics: Arc::new(Metrics::new()),
            rules: FetchRules::default(),
        });
        broker.restore(None).unwrap();
        broker
    }

    async fn post(broker: &Arc<Broker>, body: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = http::Request::builder()
            .method("POST")
            .uri("/authorize")
            .header("content-type", "application/x-www-form-urlencoded");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(AxumBody::from(body.to_owned())).unwrap();
        take_consent(State(broker.clone()), request).await
    }

    /// Returns true if a login started.
    fn has_started(response: &Response) -> bool {
        login_cookie(response).is_some()
    }

    fn login_cookie(response: &Response) -> Option<String> {
        let cookies = response.headers().get_all(header::SET_COOKIE).iter();
        let mut pairs = cookies.filter_map(|cookie| cookie.to_str().ok()?.split(';').next());
        pairs
            .find(|pair| pair.starts_with("__Host-moongate-login-") && !pair.ends_with('='))
            .map(str::to_owned)
    }

    #[tokio::test]
    async fn forms_of_another_site_use_no_rate_up() {
        let broker = github_broker();
        let client = register(&broker, REDIRECT);
        for _ in 0..100 {
            let response = post(&broker, "answer=yes", &[("origin", "https://evil.test")]).await;
            assert_eq!(response.status(), StatusCode::FORBIDDEN);
        }
        open_page(&broker, &client).await;
    }

    #[tokio::test]
    async fn a_yes_from_elsewhere_starts_nothing() {
        let broker = github_broker();
        let client = register(&broker, REDIRECT);
        let (sealed, cookie) = open_page(&broker, &client).await;
        let (_, other_cookie) = open_page(&broker, &client).await;
        let body = format!("request={sealed}&answer=yes");
        let own = ("cookie", cookie.as_str());
        for (what, headers) in [
            ("no origin", vec![own]),
            ("an opaque origin", vec![own, ("origin", "null")]),
            ("another origin", vec![own, ("origin", "https://evil.test")]),
            ("plain text", vec![own, ("origin", "http://mcp.test")]),
            ("no cookie", vec![ORIGIN]),
            (
                "another browser",
                vec![ORIGIN, ("cookie", other_cookie.as_str())],
            ),
            ("a frame", vec![ORIGIN, own, ("sec-fetch-dest", "iframe")]),
        ] {
            let response = post(&broker, &body, &headers).await;
            assert!(response.status().is_client_error(), "{what}");
            assert!(!has_started(&response), "{what}");
            let page = html_of(response).await;
            assert!(!page.contains("github.com"), "{what}");
        }
        let response = post(&broker, &body, &[ORIGIN, own]).await;
        assert!(has_started(&response), "the same form in its own browser");
    }

    #[tokio::test]
    async fn a_form_that_was_changed_or_has_no_answer_starts_nothing() {
        let broker = github_broker();
        let client = register(&broker, REDIRECT);
        let (sealed, cookie) = open_page(&broker, &client).await;
        let headers = [ORIGIN, ("cookie", cookie.as_str())];
        for body in [
            String::new(),
            "answer=yes".to_owned(),
            format!("request={sealed}"),
            format!("request={sealed}&answer=maybe"),
            format!("request={}&answer=yes", &sealed[1..]),
            format!("request={sealed}&request={sealed}&answer=yes"),
            format!("request={sealed}&answer=no&answer=yes"),
        ] {
            let response = post(&broker, &body, &headers).await;
            assert!(response.status().is_client_error(), "{body}");
            assert!(!has_started(&response), "{body}");
        }
    }

    #[tokio::test]
    async fn each_yes_starts_its_own_login() {
        let broker = github_broker();
        let client = register(&broker, REDIRECT);
        let (sealed, cookie) = open_page(&broker, &client).await;
        let body = format!("request={sealed}&answer=yes");
        let headers = [ORIGIN, ("cookie", cookie.as_str())];
        let mut started = Vec::new();
        for _ in 0..2 {
            let response = post(&broker, &body, &headers).await;
            started.push(login_cookie(&response).unwrap());
        }
        let names: Vec<_> = started.iter().map(|pair| pair.split_once('=')).collect();
        assert_ne!(names[0].unwrap().0, names[1].unwrap().0, "two tabs");
        assert_ne!(names[0].unwrap().1, names[1].unwrap().1);
    }

    #[tokio::test]
    async fn a_yes_answers_with_a_page_that_moves_on() {
        let broker = github_broker();
        let client = register(&broker, REDIRECT);
        let (sealed, cookie) = open_page(&broker, &client).await;
        let body = format!("request={sealed}&answer=yes");
        let headers = [ORIGIN, ("cookie", cookie.as_str())];
        let response = post(&broker, &body, &headers).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(!response.headers().contains_key(header::LOCATION));
        assert_eq!(response.headers()[header::REFERRER_POLICY], "no-referrer");
        let page = html_of(response).await;
        let refresh = "http-equiv=\"refresh\" content=\"0; url=https://github.com/login/oauth/";
        assert!(page.contains(refresh), "{page}");
        assert!(!page.contains("their-state"), "their state stays here");
    }

    #[tokio::test]
    async fn a_no_is_a_page_whose_link_reports_it_to_the_client() {
        let broker = github_broker();
        let client = register(&broker, REDIRECT);
        let (sealed, cookie) = open_page(&broker, &client).await;
        let body = format!("request={sealed}&answer=no");
        let headers = [ORIGIN, ("cookie", cookie.as_str())];
        let response = post(&broker, &body, &headers).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(!has_started(&response));
        let page = html_of(response).await;
        assert!(!page.contains("http-equiv"), "{page}");
        for part in [
            "error=access_denied",
            "state=their-state",
            "iss=https%3A%2F%2Fmcp.test",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }
}
