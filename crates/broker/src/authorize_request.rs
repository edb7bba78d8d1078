//! Checked authorization request.
//!
//! Owns the order of the checks. Does not show pages. Invariant: no fault has an address to return
//! to until the redirect is known to belong to the client.

use std::sync::Arc;

use moongate_tokens::ResourceNames;
use serde::{Deserialize, Serialize};

use crate::client_record::ClientRecord;
use crate::client_registration::SCOPE;
use crate::clients::{ClientFault, Clients};
use crate::form_fields::{FormFault, FormFields};
use crate::oauth_error::{OAuthCode, OAuthError};
use crate::redirect_rules::{RedirectFault, RedirectKind, RedirectRules};

/// Longest query, in bytes.
const QUERY_MAX: usize = 7 * 1024;
/// Longest `state`, in bytes.
const STATE_MAX: usize = 1024;
/// Lengths of a PKCE challenge (RFC 7636, section 4.2).
const CHALLENGE_LENGTH: std::ops::RangeInclusive<usize> = 43..=128;

/// Authorization request whose redirect address belongs to its client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AuthorizeRequest {
    /// Id of the client.
    pub(crate) client_id: String,
    /// Redirect address.
    pub(crate) redirect: String,
    /// `state` of the client, returned with the answer.
    pub(crate) state: Option<String>,
    /// PKCE challenge.
    pub(crate) challenge: String,
    /// Endpoint that the login is for. Empty: all servers.
    pub(crate) endpoint: String,
    /// Granted scope.
    pub(crate) scope: String,
    /// True if the login is for all servers, which the page shows.
    pub(crate) is_all_servers: bool,
}

/// Reason to refuse a consent page.
#[derive(Debug)]
pub(crate) enum AuthorizeFault {
    /// The client or its redirect address is not trustworthy.
    Page(PageFault),
    /// The client made a mistake, so the page may link back to it.
    Client {
        /// Redirect address.
        redirect: String,
        /// `state` of the client.
        state: Option<String>,
        /// Mistake.
        error: OAuthError,
        /// Client.
        client: Arc<ClientRecord>,
    },
}

/// Reason that is shown only on a page, never sent to a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageFault {
    /// The parameters cannot be read.
    Form(FormFault),
    /// The client may not request logins.
    Client {
        /// Id.
        id: String,
        /// Reason.
        fault: ClientFault,
    },
    /// The redirect address is not allowed.
    Redirect {
        /// Name of the client.
        client: String,
        /// Address.
        address: String,
        /// Reason.
        fault: RedirectFault,
    },
}

/// Request that gets a consent page.
#[derive(Debug)]
pub(crate) struct CheckedRequest {
    /// Request.
    pub(crate) request: AuthorizeRequest,
    /// Client.
    pub(crate) client: Arc<ClientRecord>,
    /// Kind of the redirect address.
    pub(crate) redirect: RedirectKind,
}

/// Checks the query of an authorization request.
pub(crate) async fn check_authorize(
    query: &str,
    clients: &Clients,
    rules: &RedirectRules,
    resources: &ResourceNames,
) -> Result<CheckedRequest, AuthorizeFault> {
    let fields = read_fields(query).map_err(|fault| page(PageFault::Form(fault)))?;
    let id = fields.get("client_id").unwrap_or_default();
    let found = clients.find(id).await;
    let client = found.map_err(|fault| {
        let id = id.to_owned();
        page(PageFault::Client { id, fault })
    })?;
    let address = fields.get("redirect_uri").unwrap_or_default();
    let allowed = rules.allows(&client, address);
    let redirect = allowed.map_err(|fault| {
        page(PageFault::Redirect {
            client: client.name.clone(),
            address: address.to_owned(),
            fault,
        })
    })?;
    let state = fields.get("state").map(str::to_owned);
    let checked = check_rest(&fields, resources);
    let (challenge, endpoint) = checked.map_err(|error| AuthorizeFault::Client {
        redirect: address.to_owned(),
        state: state.clone(),
        error,
        client: client.clone(),
    })?;
    let request = AuthorizeRequest {
        client_id: client.id.clone(),
        redirect: address.to_owned(),
        state,
        challenge,
        is_all_servers: endpoint.is_empty(),
        endpoint,
        scope: SCOPE.to_owned(),
    };
    Ok(CheckedRequest {
        request,
        client,
        redirect,
    })
}

fn page(fault: PageFault) -> AuthorizeFault {
    AuthorizeFault::Page(fault)
}

fn read_fields(query: &str) -> Result<FormFields, FormFault> {
    // The form and the answer repeat most of it, and proxies truncate long URLs.
    if query.len() > QUERY_MAX {
        return Err(FormFault::TooLong);
    }
    let fields = FormFields::of_query(query)?;
    match fields.get("state") {
        Some(state) if state.len() > STATE_MAX => Err(FormFault::TooLong),
        _ => Ok(fields),
    }
}

/// Checks parameters that the client chose. Returns the challenge and the endpoint.
fn check_rest(
    fields: &FormFields,
    resources: &ResourceNames,
) -> Result<(String, String), OAuthError> {
    let invalid = |text| OAuthError::new(OAuthCode::InvalidRequest, text);
    // Either would override the parameters that were checked.
    if fields.get("request").is_some() || fields.get("request_uri").is_some() {
        return Err(invalid("Request objects are not supported"));
    }
    match fields.get("response_type") {
        Some("code") => {}
        None => return Err(invalid("The request needs response_type=code")),
        Some(_) => {
            let text = "The only response_type is code";
            return Err(OAuthError::new(OAuthCode::UnsupportedResponseType, text));
        }
    }
    if !matches!(fields.get("response_mode"), None | Some("query")) {
        return Err(invalid("The only supported response_mode is query"));
    }
    if fields.get("code_challenge_method") != Some("S256") {
        return Err(invalid("The request needs code_challenge_method=S256"));
    }
    let challenge = fields.get("code_challenge").unwrap_or_default();
    if !is_challenge(challenge) {
        return Err(invalid("The request needs a PKCE code_challenge"));
    }
    let endpoint = match fields.get("resource") {
        Some(resource) => resources.endpoint_of(resource).ok_or(OAuthError::new(
            OAuthCode::InvalidTarget,
            "The resource does not belong to this gateway",
        ))?,
        None => String::new(),
    };
    Ok((challenge.to_owned(), endpoint))
}

/// Returns true for a PKCE challenge: base64url, at least as long as a digest.
fn is_challenge(text: &str) -> bool {
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    CHALLENGE_LENGTH.contains(&text.len()) && is_plain
}

#[cfg(test)]
mod tests;
