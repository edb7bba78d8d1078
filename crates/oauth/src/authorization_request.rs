//! Authorization requests: what the browser opens, and what we keep until it comes back.
//!
//! Owns the parameters of the request and the redirect address of an issuer. Does not read the
//! response. Invariant: no parameter appears twice, and nobody else can set one of ours.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::grant::ClientIdentity;
use crate::scope::asks_offline;
use crate::secret_text::SecretText;
use crate::settings::LoginTarget;

/// Path prefix of all redirect addresses.
const CALLBACK: &str = "/oauth/callback/";
/// Length of an issuer's digest in its redirect address. At least 128 bits, because another issuer
/// with the same digest would get the same address.
const DIGEST_LENGTH: usize = 26;
/// Alphabet of the digest. Each character encodes five bits (RFC 4648, section 6).
const ALPHABET: [u8; 32] = *b"abcdefghijklmnopqrstuvwxyz234567";
/// Parameters that neither the config nor an authorization server may set. Those that we do not
/// send would change where or how the response comes, or replace the others.
const OWN_PARAMETERS: [&str; 12] = [
    "client_id",
    "client_secret",
    "code_challenge",
    "code_challenge_method",
    "redirect_uri",
    "request",
    "request_uri",
    "resource",
    "response_mode",
    "response_type",
    "scope",
    "state",
];

/// Login that is waiting for its answer. Sealed on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingLogin {
    /// Name of the server in the config.
    pub target_server: String,
    /// URL of the server.
    pub target_url: Url,
    /// `state` of the request, which identifies the answer.
    pub state: SecretText,
    /// PKCE verifier.
    pub verifier: SecretText,
    /// Authorization server.
    pub issuer: Url,
    /// Its issuer, exactly as in the metadata, because `iss` is compared as text.
    pub iss: String,
    /// True if an answer without `iss` is refused.
    pub iss_required: bool,
    /// Token endpoint.
    pub token_endpoint: Url,
    /// Revocation endpoint, if there is one.
    pub revocation_endpoint: Option<Url>,
    /// Client that made the request.
    pub client: ClientIdentity,
    /// Requested scope.
    pub scope_asked: Option<String>,
    /// Resource that requests name.
    pub resource: Option<String>,
    /// Time at which the login started.
    pub started: Timestamp,
    /// Number of authorizations for more scope, including this one.
    pub step_ups: u8,
}

impl PendingLogin {
    /// Returns the server that the login is for.
    pub fn target(&self) -> LoginTarget {
        LoginTarget {
            server: self.target_server.clone(),
            url: self.target_url.clone(),
        }
    }
}

/// Returns the path of the redirect address of an issuer.
///
/// Each issuer has its own, so that an answer from one cannot pass for an answer from another (RFC
/// 9700, section 4.4.2.1).
pub fn callback_path(issuer: &Url) -> String {
    let digest = digest(&SHA256, issuer.as_str().as_bytes());
    let bytes: &[u8] = digest.as_ref();
    let bit = |at: usize| (bytes[at / 8] >> (7 - at % 8)) & 1;
    let character = |n: usize| {
        let value = (5 * n..5 * (n + 1)).fold(0, |value, at| (value << 1) | bit(at));
        char::from(ALPHABET[usize::from(value)])
    };
    let mut path = CALLBACK.to_owned();
    path.extend((0..DIGEST_LENGTH).map(character));
    path
}

/// Returns the redirect address of an issuer below our own address.
pub(crate) fn redirect_address(base: &Url, issuer: &Url) -> Url {
    let mut address = base.clone();
    let path = base.path().trim_end_matches('/');
    address.set_path(&format!("{path}{}", callback_path(issuer)));
    address.set_query(None);
    address.set_fragment(None);
    address
}

/// True for a request parameter that only we may set.
pub fn is_own_parameter(name: &str) -> bool {
    OWN_PARAMETERS.contains(&name)
}

/// Returns 256 random bits as 43 characters that URLs and PKCE allow.
pub fn random_text() -> SecretText {
    SecretText::new(URL_SAFE_NO_PAD.encode(moongate_random::random_bytes::<32>()))
}

/// Returns the S256 challenge of a PKCE verifier (RFC 7636, section 4.2).
pub fn code_challenge(verifier: &SecretText) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.expose().as_bytes()))
}

/// Returns the URL that the browser opens for a login. `params` come from the config.
pub(crate) fn authorization_url(
    endpoint: &Url,
    pending: &PendingLogin,
    params: &BTreeMap<String, String>,
) -> Url {
    let mut url = endpoint.clone();
    let offline = pending.scope_asked.as_deref().is_some_and(asks_offline);
    let optional = [
        ("scope", pending.scope_asked.as_deref()),
        ("resource", pending.resource.as_deref()),
        // OpenID Connect Core, section 11: without it, some providers ignore `offline_access`.
        ("prompt", offline.then_some("consent")),
    ];
    let optional = optional
        .into_iter()
        .filter(|(name, _)| !params.contains_key(*name) || is_own_parameter(name));
    let configured = params
        .iter()
        // An empty value removes a parameter, such as `prompt`.
        .filter(|(name, value)| !value.is_empty() && !is_own_parameter(name));
    // Parameters that the endpoint's URL already has.
    let retained: Vec<String> = endpoint
        .query_pairs()
        .map(|(name, _)| name.into_owned())
        .collect();
    let is_new = |name: &str| !retained.iter().any(|other| other == name);
    let mut query = url.query_pairs_mut();
    query
        .append_pair("response_type", "code")
        .append_pair("client_id", &pending.client.id)
        .append_pair("redirect_uri", pending.client.redirect.as_str())
        .append_pair("state", pending.state.expose())
        .append_pair("code_challenge", &code_challenge(&pending.verifier))
        .append_pair("code_challenge_method", "S256");
    for (name, value) in optional {
        if let Some(value) = value.filter(|_| is_new(name)) {
            query.append_pair(name, value);
        }
    }
    for (name, value) in configured.filter(|(name, _)| is_new(name)) {
        query.append_pair(name, value);
    }
    drop(query);
    url
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::grant::ClientAuthMethod;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    /// Waiting login at `auth.example.com`.
    pub(crate) fn pending() -> PendingLogin {
        let issuer = url("https://auth.example.com");
        PendingLogin {
            target_server: "files".to_owned(),
            target_url: url("https://mcp.example.com/mcp"),
            state: SecretText::new("state-of-this-login"),
            verifier: SecretText::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
            iss: "https://auth.example.com".to_owned(),
            iss_required: false,
            token_endpoint: url("https://auth.example.com/token"),
            revocation_endpoint: None,
            client: ClientIdentity {
                id: "client one".to_owned(),
                secret: None,
                method: ClientAuthMethod::None,
                redirect: redirect_address(&url("http://127.0.0.1:8080"), &issuer),
            },
            issuer,
            scope_asked: Some("read write".to_owned()),
            resource: Some("https://mcp.example.com/mcp".to_owned()),
            started: Timestamp::UNIX_EPOCH,
            step_ups: 0,
        }
    }

    fn params(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    fn query_of(
        endpoint: &str,
        pending: &PendingLogin,
        extra: &[(&str, &str)],
    ) -> Vec<(String, String)> {
        let url = authorization_url(&url(endpoint), pending, &params(extra));
        url.query_pairs().into_owned().collect()
    }

    #[test]
    fn each_issuer_has_its_own_redirect_path() {
        let path = callback_path(&url("https://auth.example.com"));
        let digest = path.strip_prefix("/oauth/callback/").unwrap();
        // Base32 of SHA-256 of `https://auth.example.com/`, truncated.
        assert_eq!(digest, "wct2kdqs5nx3uq2bepabcb26os");
        assert_eq!(callback_path(&url("https://auth.example.com/")), path);
        for other in [
            "https://auth.example.com/a",
            "https://evil.example",
            "http://auth.example.com",
        ] {
            assert_ne!(callback_path(&url(other)), path, "{other}");
        }
    }

    #[test]
    fn the_redirect_address_is_below_ours() {
        let issuer = url("https://auth.example.com");
        let path = callback_path(&issuer);
        for (base, expected) in [
            (
                "http://127.0.0.1:8080",
                format!("http://127.0.0.1:8080{path}"),
            ),
            (
                "https://gate.example/mcp/?x=1#y",
                format!("https://gate.example/mcp{path}"),
            ),
        ] {
            assert_eq!(redirect_address(&url(base), &issuer).as_str(), expected);
        }
    }

    #[test]
    fn random_texts_are_long_and_differ() {
        let first = random_text();
        assert_eq!(first.expose().len(), 43);
        assert_ne!(first, random_text());
    }

    #[test]
    fn the_challenge_matches_rfc_7636() {
        // RFC 7636, appendix B.
        let verifier = SecretText::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        let expected = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        assert_eq!(code_challenge(&verifier), expected);
    }

    #[test]
    fn the_request_has_each_parameter_once() {
        let pending = pending();
        let query = query_of(
            "https://login.example.com/authorize?tenant=1",
            &pending,
            &[],
        );
        let redirect = pending.client.redirect.as_str();
        let expected = [
            ("tenant", "1"),
            ("response_type", "code"),
            ("client_id", "client one"),
            ("redirect_uri", redirect),
            ("state", "state-of-this-login"),
            (
                "code_challenge",
                "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
            ),
            ("code_challenge_method", "S256"),
            ("scope", "read write"),
            ("resource", "https://mcp.example.com/mcp"),
        ];
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        assert_eq!(query, expected.map(owned));
    }

    #[test]
    fn scope_and_resource_may_be_absent() {
        let pending = PendingLogin {
            scope_asked: None,
            resource: None,
            ..pending()
        };
        let query = query_of("https://login.example.com/authorize", &pending, &[]);
        assert!(
            query
                .iter()
                .all(|(name, _)| name != "scope" && name != "resource")
        );
    }

    #[test]
    fn config_params_are_added_to_ours_and_replace_none() {
        let extra = [
            ("access_type", "offline"),
            ("client_id", "other"),
            ("redirect_uri", "https://evil.example"),
            ("request_uri", "https://evil.example"),
            ("resource", "https://evil.example"),
            ("scope", "all"),
            ("state", "known"),
            ("tenant", "2"),
        ];
        let pending = pending();
        let query = query_of(
            "https://login.example.com/authorize?tenant=1",
            &pending,
            &extra,
        );
        let plain = query_of(
            "https://login.example.com/authorize?tenant=1",
            &pending,
            &[],
        );
        let added = ("access_type".to_owned(), "offline".to_owned());
        assert_eq!(query, [plain, vec![added]].concat());
    }

    #[test]
    fn a_refresh_token_needs_consent_unless_the_config_says_otherwise() {
        let pending = PendingLogin {
            scope_asked: Some("read offline_access".to_owned()),
            ..pending()
        };
        let prompt = |extra: &[(&str, &str)]| -> Vec<String> {
            let query = query_of("https://login.example.com/authorize", &pending, extra);
            let prompts = query.into_iter().filter(|(name, _)| name == "prompt");
            prompts.map(|(_, value)| value).collect()
        };
        assert_eq!(prompt(&[]), ["consent"]);
        assert_eq!(prompt(&[("prompt", "select_account")]), ["select_account"]);
        assert_eq!(prompt(&[("prompt", "")]), Vec::<String>::new());
    }
}
