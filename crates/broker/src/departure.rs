//! Sends browsers to the company's login.
//!
//! Owns the start of a transaction and its cookie. Does not ask the person. Invariant: a browser
//! leaves only after approval, with a unique cookie and `state`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::response::Response;
use http::{HeaderMap, header};
use jiff::Timestamp;
use moongate_oauth::random_text;

use crate::answer_address::answer_address;
use crate::authorize_request::AuthorizeRequest;
use crate::broker::Broker;
use crate::client_record::ClientRecord;
use crate::error_page::refusal_page;
use crate::login_cookies::{LoginCookies, cookie_hash};
use crate::moving_page::moving_page;
use crate::oauth_error::OAuthError;
use crate::provider::client::ProviderRequest;
use crate::provider::fault::ProviderFault;
use crate::redirect_rules::RedirectKind;
use crate::transactions::Transaction;

/// Approved login, about to go to the company's login.
pub(crate) struct Departure {
    /// Request that the person approved.
    pub(crate) request: AuthorizeRequest,
    /// Client of the request.
    pub(crate) client: Arc<ClientRecord>,
    /// Kind of the redirect address.
    pub(crate) redirect: RedirectKind,
    /// True if the company's login is being asked a second time.
    pub(crate) asked_again: bool,
}

/// Sends a browser to the company's login. `headers` are those of its request.
pub(crate) async fn send_to_provider(
    broker: &Broker,
    headers: &HeaderMap,
    peer: Option<IpAddr>,
    departure: Departure,
) -> Response {
    let state = random_text();
    let asked_again = departure.asked_again;
    let ProviderRequest { url, sent } = match broker.provider.begin(&state, asked_again).await {
        Ok(begun) => begun,
        Err(fault) => {
            tracing::warn!("start of a login failed: company login: {fault}");
            return provider_fault_page(broker, &departure.request, fault);
        }
    };
    let secret = random_text();
    let transaction = Transaction {
        request: departure.request,
        client: departure.client,
        redirect: departure.redirect,
        sent,
        cookie: cookie_hash(secret.expose()),
        started: Timestamp::now(),
        asked_again,
    };
    broker.transactions.begin(&state, peer, transaction);
    let kind = RedirectKind::Web {
        host: url.host_str().unwrap_or_default().to_owned(),
    };
    let text = match asked_again {
        true => "Your company's login needs your permission again",
        false => "Going to your company's login",
    };
    let mut response = moving_page(url.as_str(), &kind, text);
    let cookies = LoginCookies::of(&broker.settings.public_url);
    for removed in cookies.remove_oldest(headers) {
        response.headers_mut().append(header::SET_COOKIE, removed);
    }
    let added = cookies.set_login(&state, &secret);
    response.headers_mut().append(header::SET_COOKIE, added);
    response
}

/// Builds the page for a failure of the company's login. Its link reports the error to the client.
pub(crate) fn provider_fault_page(
    broker: &Broker,
    request: &AuthorizeRequest,
    fault: ProviderFault,
) -> Response {
    let text = fault.page_text();
    let error = OAuthError::new(fault.code(), text);
    let back = answer_address(&broker.issuer, request, Err(&error));
    let status = error.code.status();
    refusal_page(status, "You are not logged in", text, Some(&back))
}
