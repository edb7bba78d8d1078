//! Token endpoints, which issue tokens for codes and refresh tokens, and revoke them.
//!
//! Owns the requests, the client's authentication and the reading of answers. Does not store
//! tokens. Invariant: only a known code ends a login, and no message quotes a byte of an answer.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Response};
use jiff::Timestamp;
use moongate_transport::fetcher::{FetchError, Fetcher};
use serde::Deserialize;
use serde::de::IgnoredAny;
use url::{Url, form_urlencoded};

use crate::assertion_key::AssertionParties;
use crate::authorization_request::PendingLogin;
use crate::error_codes;
use crate::grant::{ClientAuthMethod, ClientIdentity, LoginGrant};
use crate::login_fetcher::LoginFetcher;
use crate::scope::ScopeSources;
use crate::secret_text::SecretText;
use crate::settings::{ClientCredentialsSettings, ClientProof, LoginTarget};
use crate::token_server::FoundTokenServer;
use crate::untrusted_url;

/// Maximum length of an access token, in bytes. Servers limit headers to less.
const TOKEN_MAX: usize = 32 * 1024;
/// Maximum lifetime of a token. Longer ones are cut to this.
const LIFE_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Longest wait for tokens. A code and most refresh tokens work only once, so giving up on an
/// answer loses the login.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Type of an assertion (RFC 7523, section 2.2).
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// Longest refresh: one request with the scope, and one without.
pub(crate) const REFRESH_MAX: Duration = TOKEN_TIMEOUT.saturating_mul(2);
/// Longest wait for the revocation of one token.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Tokens that an authorization server issued.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenSet {
    /// Access token.
    pub access: SecretText,
    /// Refresh token. `None` after a refresh: the old one stays valid.
    pub refresh: Option<SecretText>,
    /// Lifetime of the access token, if the server says so.
    pub expires_in: Option<Duration>,
}

impl TokenSet {
    /// Expiry of the access token, if its request was sent at this time.
    pub fn expires_at(&self, obtained: Timestamp) -> Option<Timestamp> {
        self.expires_in
            .and_then(|life| obtained.checked_add(life).ok())
    }
}

/// Reason why a token endpoint issued no token. The texts are ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFailure {
    /// The login has ended, so another attempt is pointless.
    #[error("{0}")]
    Ended(String),
    /// The endpoint is down, or answered something else. The login may still be valid.
    #[error("{0}")]
    Unavailable(String),
}

/// Exchanges the code of an answer for tokens.
///
/// # Errors
/// The endpoint issued no token.
pub async fn exchange_code(
    fetcher: &Fetcher,
    pending: &PendingLogin,
    code: &SecretText,
) -> Result<TokenSet, TokenFailure> {
    let mut form = TokenForm::new("authorization_code");
    form.add("code", code.expose());
    form.add("redirect_uri", pending.client.redirect.as_str());
    form.add("code_verifier", pending.verifier.expose());
    form.add_optional("resource", pending.resource.as_deref());
    let endpoint = TokenEndpoint {
        fetcher: LoginFetcher {
            fetcher,
            server: &pending.target_url,
        },
        url: &pending.token_endpoint,
        client: &pending.client,
    };
    endpoint
        .request(ExchangeKind::Code, form)
        .await
        .map_err(|refusal| refusal.failure)
}

/// Exchanges the refresh token of a login for tokens. Never done for a login that has ended.
///
/// # Errors
/// The endpoint issued no token.
pub async fn refresh(
    fetcher: &Fetcher,
    target: &LoginTarget,
    grant: &LoginGrant,
) -> Result<TokenSet, TokenFailure> {
    let token = grant.refresh.as_ref().filter(|_| !grant.ended);
    let token = token.ok_or_else(|| TokenFailure::Ended("the login has ended".to_owned()))?;
    let endpoint = TokenEndpoint {
        fetcher: LoginFetcher {
            fetcher,
            server: &target.url,
        },
        url: &grant.token_endpoint,
        client: &grant.client,
    };
    let form = |scope: Option<&str>| {
        let mut form = TokenForm::new("refresh_token");
        form.add("refresh_token", token.expose());
        form.add_optional("scope", scope);
        form.add_optional("resource", grant.resource.as_deref());
        form
    };
    let kind = ExchangeKind::RefreshToken;
    let scope = grant.scope_asked.as_deref();
    let first = endpoint.request(kind, form(scope)).await;
    match first {
        Ok(tokens) => Ok(tokens),
        // RFC 6749, section 6: the scope "MUST NOT include any scope not originally granted", and
        // less may have been granted than was asked for. Without the parameter, all granted scope
        // is kept.
        Err(refusal) if refusal.is_scope && scope.is_some() => {
            let second = endpoint.request(kind, form(None)).await;
            second.map_err(|refusal| refusal.failure)
        }
        Err(refusal) => Err(refusal.failure),
    }
}

/// Gets a token for a client itself (RFC 6749, section 4.4).
///
/// # Errors
/// The endpoint gave no token.
pub(crate) async fn get_client_token(
    fetcher: LoginFetcher<'_>,
    found: &FoundTokenServer,
    settings: &ClientCredentialsSettings,
) -> Result<TokenSet, TokenFailure> {
    let url = &found.server.token_endpoint;
    // Nobody sees these scopes and agrees to them. Without a resource they alone determine which
    // server the token is for, so a server must not choose them: it could name another's.
    let published = found.scopes_supported.as_deref();
    let sources = ScopeSources {
        configured: settings.scopes.as_deref(),
        resource: published.filter(|_| found.resource.is_some()),
        ..ScopeSources::default()
    };
    // Only a challenge can lead to too many authorizations, and there is none here.
    let scope = sources.choose().ok().and_then(|choice| choice.asked);
    let mut form = TokenForm::new("client_credentials");
    form.add_optional("scope", scope.as_deref());
    form.add_optional("resource", found.resource.as_deref());
    let authorization = form.prove(settings, found)?;
    let sent = fetcher.post_form(url, form.0, authorization, TOKEN_TIMEOUT);
    let host = untrusted_url::host(url);
    match sent.await {
        Ok(response) => {
            read_tokens(&response, ExchangeKind::Proof, &host).map_err(|refusal| refusal.failure)
        }
        Err(error) => Err(TokenFailure::Unavailable(error.to_string())),
    }
}

/// Revokes the tokens of a login (RFC 7009).
///
/// # Errors
/// The server has no such endpoint, or it did not answer.
pub async fn revoke(
    fetcher: &Fetcher,
    target: &LoginTarget,
    grant: &LoginGrant,
) -> Result<(), TokenFailure> {
    let Some(url) = &grant.revocation_endpoint else {
        let host = untrusted_url::host(&grant.issuer);
        let text = format!("{host} has no endpoint that revokes tokens");
        return Err(TokenFailure::Unavailable(text));
    };
    let endpoint = TokenEndpoint {
        fetcher: LoginFetcher {
            fetcher,
            server: &target.url,
        },
        url,
        client: &grant.client,
    };
    let Some(token) = &grant.refresh else {
        return endpoint.revoke(&grant.access, "access_token").await;
    };
    let revoked = endpoint.revoke(token, "refresh_token").await;
    // Section 2.1: servers "MUST support the revocation of refresh tokens", which need not end the
    // access token, and need not accept that one at all. It is tried even after a failure: revoking
    // one token is better than revoking none.
    let _ = endpoint.revoke(&grant.access, "access_token").await;
    revoked
}

/// Credential that is exchanged for tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExchangeKind {
    /// Code of a login that is not complete yet.
    Code,
    /// Refresh token of a login.
    RefreshToken,
    /// Proof of a client that gets tokens for itself.
    Proof,
}

/// Form for a token endpoint, encoded.
struct TokenForm(String);

impl TokenForm {
    fn new(grant_type: &str) -> Self {
        let mut form = TokenForm(String::new());
        form.add("grant_type", grant_type);
        form
    }

    fn add(&mut self, name: &str, value: &str) {
        form_urlencoded::Serializer::new(&mut self.0).append_pair(name, value);
    }

    fn add_optional(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    /// Adds the client. Returns the header that authenticates it, if it is not in the form.
    // RFC 6749, section 2.3: "The client MUST NOT use more than one authentication method in each
    // request."
    fn authenticate(&mut self, client: &ClientIdentity) -> Option<HeaderValue> {
        match (client.method, &client.secret) {
            (ClientAuthMethod::Basic, Some(secret)) => return basic(&client.id, secret),
            (ClientAuthMethod::Post, Some(secret)) => self.add("client_secret", secret.expose()),
            _ => {}
        }
        self.add("client_id", &client.id);
        None
    }

    /// Adds the proof of a client that gets tokens for itself. Returns the header that has it, if
    /// it is not in the form.
    fn prove(
        &mut self,
        settings: &ClientCredentialsSettings,
        found: &FoundTokenServer,
    ) -> Result<Option<HeaderValue>, TokenFailure> {
        let client = &settings.client_id;
        let server = &found.server;
        let assertion = match &settings.proof {
            ClientProof::Secret(secret) => {
                let method = ClientAuthMethod::for_secret(&server.auth_methods);
                if method != Some(ClientAuthMethod::Post) {
                    return Ok(basic(client, secret));
                }
                self.add("client_id", client);
                self.add("client_secret", secret.expose());
                return Ok(None);
            }
            ClientProof::Assertion(assertion) => assertion,
        };
        let parties = AssertionParties {
            client,
            // The request goes to exactly this address, so no other server learns the assertion.
            audience: match &assertion.audience {
                Some(audience) => audience,
                None => server.token_endpoint.as_str(),
            },
            key_id: assertion.key_id.as_deref(),
        };
        let signed = assertion
            .key
            .sign(parties, &server.signing_algorithms, Timestamp::now())
            .map_err(|_| TokenFailure::Unavailable("the private key cannot sign".to_owned()))?;
        self.add("client_id", client);
        self.add("client_assertion_type", ASSERTION_TYPE);
        self.add("client_assertion", signed.expose());
        Ok(None)
    }
}

/// Value of `Authorization` with a client's id and secret.
fn basic(id: &str, secret: &SecretText) -> Option<HeaderValue> {
    // RFC 6749, section 2.3.1: both are form-encoded first.
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encoded(id), encoded(secret.expose()));
    let value = format!("Basic {}", STANDARD.encode(pair));
    let mut value = HeaderValue::from_str(&value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Token endpoint, or revocation endpoint.
struct TokenEndpoint<'a> {
    fetcher: LoginFetcher<'a>,
    url: &'a Url,
    client: &'a ClientIdentity,
}

/// Answer without a token.
#[derive(Debug)]
struct TokenRefusal {
    failure: TokenFailure,
    /// True if it is about the scope of the request.
    is_scope: bool,
}

impl TokenEndpoint<'_> {
    async fn request(&self, kind: ExchangeKind, form: TokenForm) -> Result<TokenSet, TokenRefusal> {
        match self.send(form, TOKEN_TIMEOUT).await {
            Ok(response) => read_tokens(&response, kind, &untrusted_url::host(self.url)),
            Err(error) => Err(TokenRefusal::unavailable(error.to_string())),
        }
    }

    async fn revoke(&self, token: &SecretText, kind: &str) -> Result<(), TokenFailure> {
        let mut form = TokenForm(String::new());
        form.add("token", token.expose());
        form.add("token_type_hint", kind);
        let sent = self.send(form, REVOKE_TIMEOUT).await;
        let response = sent.map_err(|error| TokenFailure::Unavailable(error.to_string()))?;
        if response.status().is_success() {
            return Ok(());
        }
        let host = untrusted_url::host(self.url);
        let text = format!("{host} did not revoke a token");
        Err(TokenFailure::Unavailable(text))
    }

    async fn send(
        &self,
        mut form: TokenForm,
        timeout: Duration,
    ) -> Result<Response<Bytes>, FetchError> {
        let authorization = form.authenticate(self.client);
        self.fetcher
            .post_form(self.url, form.0, authorization, timeout)
            .await
    }
}

impl TokenRefusal {
    fn unavailable(text: String) -> Self {
        TokenRefusal {
            failure: TokenFailure::Unavailable(text),
            is_scope: false,
        }
    }
}

/// Answer of a token endpoint: tokens, or an error. Only members that are used are read. One of the
/// wrong type is ignored, because it must not cost tokens that are issued only once.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenResponse {
    access_token: Option<LenientField<SecretText>>,
    token_type: Option<LenientField<String>>,
    expires_in: Option<TokenLife>,
    refresh_token: Option<LenientField<SecretText>>,
    error: Option<LenientField<String>>,
}

/// Member that may have the wrong type.
#[derive(Deserialize)]
#[serde(untagged)]
enum LenientField<T> {
    Known(T),
    Other(IgnoredAny),
}

impl<T> LenientField<T> {
    fn known(self) -> Option<T> {
        match self {
            LenientField::Known(value) => Some(value),
            LenientField::Other(IgnoredAny) => None,
        }
    }
}

/// Lifetime of a token in seconds. Some servers send it as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum TokenLife {
    Number(f64),
    Text(String),
    Other(IgnoredAny),
}

impl TokenLife {
    /// Reads the lifetime. `None` if it cannot be used.
    fn read(self) -> Option<Duration> {
        let seconds = match self {
            TokenLife::Number(seconds) => seconds,
            TokenLife::Text(text) => text.trim().parse().ok()?,
            TokenLife::Other(IgnoredAny) => return None,
        };
        let life = Duration::try_from_secs_f64(seconds).ok()?;
        (!life.is_zero()).then_some(life.min(LIFE_MAX))
    }
}

fn read_tokens(
    response: &Response<Bytes>,
    kind: ExchangeKind,
    host: &str,
) -> Result<TokenSet, TokenRefusal> {
    let read = serde_json::from_slice::<TokenResponse>(response.body());
    let Ok(answer) = read else {
        let status = response.status().as_u16();
        let text = format!("{host} answered with HTTP status {status} and no token");
        return Err(TokenRefusal::unavailable(text));
    };
    // GitHub sends errors with status 200, so the body is checked before the status.
    if let Some(LenientField::Known(code)) = &answer.error {
        let words = error_codes::describe(code);
        // Not "no token: ...", which log redaction would take for a token.
        let no_token = format!("{host} issued no token, because {words}");
        let failure = match (error_codes::ends_login(code), kind) {
            (true, ExchangeKind::RefreshToken) => {
                TokenFailure::Ended(format!("{host} has ended the login: {words}"))
            }
            (true, ExchangeKind::Code | ExchangeKind::Proof) => TokenFailure::Ended(no_token),
            // Somebody has changed the client's rights, and may change them back.
            (false, ExchangeKind::RefreshToken) if code == "unauthorized_client" => {
                let fix = "allow this client to renew logins there, or log in again";
                TokenFailure::Unavailable(format!("{no_token}; {fix}"))
            }
            (false, _) => TokenFailure::Unavailable(no_token),
        };
        return Err(TokenRefusal {
            failure,
            is_scope: code == "invalid_scope",
        });
    }
    let status = response.status();
    if !status.is_success() {
        let status = status.as_u16();
        let text = format!("{host} answered with HTTP status {status}");
        return Err(TokenRefusal::unavailable(text));
    }
    answer.into_tokens().map_err(|what| {
        let text = format!("{host} gave {what}");
        TokenRefusal::unavailable(text)
    })
}

impl TokenResponse {
    fn into_tokens(self) -> Result<TokenSet, &'static str> {
        // RFC 6749, section 7.1: "The client MUST NOT use an access token if it does not understand
        // the token type."
        let token_type = self.token_type.and_then(LenientField::known);
        if !token_type.is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
            return Err("a token that is not a bearer token");
        }
        let access = self
            .access_token
            .and_then(LenientField::known)
            .filter(is_usable);
        let refresh = self.refresh_token.and_then(LenientField::known);
        Ok(TokenSet {
            access: access.ok_or("no token that can be sent")?,
            refresh: refresh.filter(|token| !token.expose().is_empty()),
            expires_in: self.expires_in.and_then(TokenLife::read),
        })
    }
}

/// True if a header can carry an access token.
fn is_usable(token: &SecretText) -> bool {
    let token = token.expose();
    let is_visible = token.bytes().all(|byte| byte.is_ascii_graphic());
    !token.is_empty() && token.len() <= TOKEN_MAX && is_visible
}

#[cfg(test)]
mod tests;
