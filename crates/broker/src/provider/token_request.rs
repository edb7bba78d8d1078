//! Requests to the token endpoint of the company's login.
//!
//! Owns client authentication and the parsing of tokens. Does not verify an ID token or store
//! anything. Invariant: only known error codes end a login.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, StatusCode};
use moongate_access::auth::{ProviderSecret, ProviderSettings};
use moongate_oauth::SecretText;
use serde::Deserialize;
use serde::de::IgnoredAny;
use url::form_urlencoded;

use crate::provider::fault::{ProviderFault, StepFault};
use crate::provider::metadata::ProviderEndpoints;
use crate::provider::provider_http::{ProviderAnswer, ProviderHttp};

/// Maximum length of a token, in bytes.
const TOKEN_MAX: usize = 16 * 1024;
/// Error codes that end a login, because another attempt would be useless. The last one is
/// GitHub's.
const ENDS: [&str; 6] = [
    "invalid_grant",
    "interaction_required",
    "login_required",
    "consent_required",
    "account_selection_required",
    "bad_refresh_token",
];

/// Tokens from the provider.
#[derive(Debug)]
pub(crate) struct ProviderTokens {
    /// Access token.
    pub(crate) access: SecretText,
    /// Token for renewals.
    pub(crate) refresh: Option<SecretText>,
    /// ID token, still unverified.
    pub(crate) id_token: Option<SecretText>,
}

/// Client at the token endpoint.
pub(crate) struct TokenClient<'a> {
    pub(crate) http: &'a ProviderHttp,
    pub(crate) endpoints: &'a ProviderEndpoints,
    pub(crate) settings: &'a ProviderSettings,
}

impl TokenClient<'_> {
    /// Exchanges a code for tokens.
    pub(crate) async fn exchange(
        &self,
        code: &SecretText,
        verifier: &SecretText,
        redirect: &str,
    ) -> Result<ProviderTokens, StepFault> {
        let mut form = TokenForm::new("authorization_code");
        form.add("code", code.expose());
        form.add("redirect_uri", redirect);
        form.add("code_verifier", verifier.expose());
        self.send(form).await
    }

    /// Exchanges a refresh token for tokens.
    pub(crate) async fn renew(
        &self,
        token: &SecretText,
        scope: Option<&str>,
    ) -> Result<ProviderTokens, StepFault> {
        let mut form = TokenForm::new("refresh_token");
        form.add("refresh_token", token.expose());
        if let Some(scope) = scope {
            form.add("scope", scope);
        }
        self.send(form).await
    }

    async fn send(&self, mut form: TokenForm) -> Result<ProviderTokens, StepFault> {
        let secret = self.settings.client_secret.as_ref();
        let takes_posted = self.endpoints.takes_posted_secret;
        let authorization = form.authenticate(&self.settings.client_id, secret, takes_posted);
        let url = &self.endpoints.token;
        let answer = self.http.post_form(url, form.0, authorization).await?;
        read_tokens(&answer)
    }
}

/// Encoded form for the token endpoint.
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

    /// Adds client authentication. Returns the header for it, if it is not in the form. The form is
    /// preferred, because providers differ in how they decode the header.
    fn authenticate(
        &mut self,
        id: &str,
        secret: Option<&ProviderSecret>,
        takes_posted: bool,
    ) -> Option<HeaderValue> {
        match secret {
            Some(secret) if takes_posted => self.add("client_secret", secret.expose()),
            // RFC 6749, section 2.3: one authentication method per request.
            Some(secret) => return basic(id, secret),
            None => {}
        }
        self.add("client_id", id);
        None
    }
}

/// Returns the value of `Authorization` with a client's id and secret.
fn basic(id: &str, secret: &ProviderSecret) -> Option<HeaderValue> {
    // RFC 6749, section 2.3.1: both are form-encoded first.
    let pair = format!("{}:{}", form_encoded(id), form_encoded(secret.expose()));
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn form_encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Answer of the token endpoint: tokens, or an error.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenResponse {
    access_token: Option<Lenient>,
    token_type: Option<Lenient>,
    refresh_token: Option<Lenient>,
    id_token: Option<Lenient>,
    error: Option<Lenient>,
}

/// Text that may have the wrong type, which must not make the other members unreadable.
#[derive(Deserialize)]
#[serde(untagged)]
enum Lenient {
    Known(String),
    Other(IgnoredAny),
}

impl Lenient {
    fn text(member: Option<Lenient>) -> Option<String> {
        match member {
            Some(Lenient::Known(text)) if !text.is_empty() => Some(text),
            Some(Lenient::Known(_) | Lenient::Other(IgnoredAny)) | None => None,
        }
    }
}

fn read_tokens(answer: &ProviderAnswer) -> Result<ProviderTokens, StepFault> {
    let status = answer.status;
    // Whatever the body says, a failing server does not know if the person left.
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Err(ProviderFault::Down.into());
    }
    let response: TokenResponse = answer.json().ok_or(ProviderFault::BadAnswer)?;
    // GitHub sends errors with status 200.
    if let Some(error) = Lenient::text(response.error) {
        return Err(fault_of(&error));
    }
    let token_type = Lenient::text(response.token_type);
    let is_bearer = token_type.is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
    let access = Lenient::text(response.access_token).and_then(token);
    match access {
        Some(access) if is_bearer && status.is_success() => Ok(ProviderTokens {
            access,
            refresh: Lenient::text(response.refresh_token).and_then(token),
            id_token: Lenient::text(response.id_token).and_then(token),
        }),
        _ => Err(ProviderFault::BadAnswer.into()),
    }
}

/// Returns a token if it is short and visible ASCII.
fn token(text: String) -> Option<SecretText> {
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    (is_visible && text.len() <= TOKEN_MAX).then(|| SecretText::new(text))
}

fn fault_of(error: &str) -> StepFault {
    match error {
        code if ENDS.contains(&code) => StepFault::Ended,
        "server_error" | "temporarily_unavailable" | "slow_down" => ProviderFault::Down.into(),
        "invalid_client" | "unauthorized_client" | "incorrect_client_credentials" => {
            // An operator can fix this, so it ends nobody's login.
            tracing::error!(
                "company login refuses this gateway: check auth.oauth.client_id and client_secret"
            );
            ProviderFault::BadAnswer.into()
        }
        _ => ProviderFault::BadAnswer.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, body: &str) -> Result<ProviderTokens, StepFault> {
        read_tokens(&ProviderAnswer::of(status, body))
    }

    #[test]
    fn only_known_errors_end_a_login() {
        let ended = StepFault::Ended;
        let down = StepFault::Provider(ProviderFault::Down);
        let bad = StepFault::Provider(ProviderFault::BadAnswer);
        for (status, body, fault) in [
            (400, r#"{"error":"invalid_grant"}"#, ended),
            (400, r#"{"error":"interaction_required"}"#, ended),
            (200, r#"{"error":"bad_refresh_token"}"#, ended),
            (400, r#"{"error":"INVALID_GRANT"}"#, bad),
            (401, r#"{"error":"invalid_client"}"#, bad),
            (400, r#"{"error":"invalid_request"}"#, bad),
            (400, r#"{"error":["invalid_grant"]}"#, bad),
            (400, r#"{"error":"temporarily_unavailable"}"#, down),
            (500, r#"{"error":"invalid_grant"}"#, down),
            (503, "", down),
            (429, "<html>invalid_grant</html>", down),
            (403, "<html>invalid_grant</html>", bad),
            (404, "{}", bad),
        ] {
            assert_eq!(read(status, body).unwrap_err(), fault, "{status} {body}");
        }
    }

    #[test]
    fn tokens_are_bearer_tokens_that_can_be_sent() {
        let found = read(
            200,
            r#"{"access_token":"a","token_type":"bEARER","refresh_token":"r","id_token":"i",
                "expires_in":[1]}"#,
        );
        let found = found.unwrap();
        assert_eq!(found.access, SecretText::new("a"));
        assert_eq!(found.refresh, Some(SecretText::new("r")));
        assert_eq!(found.id_token, Some(SecretText::new("i")));
        let odd = r#"{"access_token":"a","token_type":"Bearer","refresh_token":5,"id_token":""}"#;
        let found = read(200, odd).unwrap();
        assert!(found.refresh.is_none() && found.id_token.is_none());
        let long = format!(
            r#"{{"access_token":"{}","token_type":"Bearer"}}"#,
            "x".repeat(TOKEN_MAX + 1)
        );
        for body in [
            r#"{"access_token":"a"}"#,
            r#"{"access_token":"a","token_type":"DPoP"}"#,
            r#"{"access_token":"a b","token_type":"Bearer"}"#,
            r#"{"access_token":"","token_type":"Bearer"}"#,
            r#"{"token_type":"Bearer"}"#,
            "[]",
            long.as_str(),
        ] {
            assert!(read(200, body).is_err(), "{body}");
        }
    }

    #[test]
    fn a_client_authenticates_once() {
        let secret = ProviderSecret::new("s~&");
        let sent = |secret: Option<&ProviderSecret>, takes_posted: bool| {
            let mut form = TokenForm::new("refresh_token");
            let header = form.authenticate("a b", secret, takes_posted);
            (form.0, header)
        };
        let alone = "grant_type=refresh_token&client_id=a+b".to_owned();
        assert_eq!(sent(None, true), (alone.clone(), None));
        assert_eq!(sent(None, false), (alone, None));
        let posted = "grant_type=refresh_token&client_secret=s%7E%26&client_id=a+b".to_owned();
        assert_eq!(sent(Some(&secret), true), (posted, None));
        let (form, header) = sent(Some(&secret), false);
        assert_eq!(form, "grant_type=refresh_token");
        assert!(header.unwrap().is_sensitive());
    }
}
