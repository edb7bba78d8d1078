//! Metadata of authorization servers (RFC 8414, OpenID Connect Discovery).
//!
//! Owns where the document may be, and the checks that it must pass. Does not fetch it. Invariant:
//! an `AuthorizationServer` has the issuer that was asked for, PKCE with S256, and endpoints that a
//! browser may open.

use serde::Deserialize;
use url::Url;

use crate::authorization_request::is_own_parameter;
use crate::token_server::TokenServer;
use crate::untrusted_url::{self, is_loopback};

/// Authorization server, from its checked metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationServer {
    /// Issuer.
    pub issuer: Url,
    /// Issuer, exactly as in the metadata, because `iss` is compared as text.
    pub iss: String,
    /// Endpoint that the browser opens.
    pub authorization_endpoint: Url,
    /// Endpoint that exchanges codes and refresh tokens.
    pub token_endpoint: Url,
    /// Endpoint that registers clients.
    pub registration_endpoint: Option<Url>,
    /// Endpoint that revokes tokens.
    pub revocation_endpoint: Option<Url>,
    /// Scopes, if the server lists them.
    pub scopes_supported: Option<Vec<String>>,
    /// Methods by which clients may authenticate at the token endpoint. Empty: not listed.
    pub auth_methods: Vec<String>,
    /// True if every response has `iss` (RFC 9207).
    pub iss_supported: bool,
    /// True if the address of a client document may be a client id.
    pub client_documents: bool,
}

/// Fault of a metadata document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MetadataFault {
    /// It has this other issuer, or none.
    Issuer(Option<String>),
    /// It does not list S256.
    Pkce,
    /// One of its endpoints is missing or cannot be used.
    Endpoint(&'static str),
}

/// Returns the URLs at which the metadata of an issuer may be, in the order to try them.
// 2026-07-28, basic/authorization/authorization-server-discovery, "Authorization Server Metadata
// Discovery": "For issuer URLs with path components [...] clients MUST try endpoints in the
// following priority order".
pub(crate) fn candidates(issuer: &Url) -> Vec<Url> {
    const OAUTH: &str = "/.well-known/oauth-authorization-server";
    const OPENID: &str = "/.well-known/openid-configuration";
    let path = issuer.path().trim_end_matches('/');
    let mut paths = vec![format!("{OAUTH}{path}"), format!("{OPENID}{path}")];
    if !path.is_empty() {
        paths.push(format!("{path}{OPENID}"));
    }
    let at = |path: String| {
        let mut url = issuer.clone();
        url.set_path(&path);
        url
    };
    paths.into_iter().map(at).collect()
}

/// Parses an issuer identifier.
pub(crate) fn parse_issuer(text: &str) -> Option<Url> {
    // RFC 8414, section 2: an issuer has no query and no fragment.
    untrusted_url::parse(text).filter(|url| url.query().is_none())
}

/// True if a document has the issuer that was asked for.
// 2026-07-28, basic/authorization/authorization-server-discovery: "the `issuer` value in the
// document MUST be identical to the issuer identifier used to construct the well-known URL."
pub(crate) fn is_same_issuer(named: &str, published: &str) -> bool {
    // Servers built on the Python SDK add a slash to an issuer without a path, and people omit
    // Auth0's. Both texts are the same URL, and so the same well-known address.
    let has_no_path = parse_issuer(named).is_some_and(|url| url.path() == "/");
    let bare = |text: &str| text.strip_suffix('/').unwrap_or(text).to_owned();
    named == published || has_no_path && bare(named) == bare(published)
}

/// Returns an issuer as people write it.
fn issuer_text(url: &Url) -> String {
    match url.path() {
        "/" => url.as_str().trim_end_matches('/').to_owned(),
        _ => url.as_str().to_owned(),
    }
}

/// Metadata of an authorization server, as far as a login needs it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ServerMetadata {
    issuer: Option<String>,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    registration_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    scopes_supported: Option<Vec<String>>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    token_endpoint_auth_signing_alg_values_supported: Option<Vec<String>>,
    code_challenge_methods_supported: Option<Vec<String>>,
    authorization_response_iss_parameter_supported: Option<bool>,
    client_id_metadata_document_supported: Option<bool>,
}

impl ServerMetadata {
    /// True if it may be metadata, because a site may answer every path with some JSON.
    pub(crate) fn names_issuer(&self) -> bool {
        self.issuer.is_some()
    }

    /// Checks the metadata of an issuer, as far as a client needs it that gets tokens for itself.
    pub(crate) fn check_token_server(self, named: &str) -> Result<TokenServer, MetadataFault> {
        let issuer = self.check_issuer(named)?;
        let token_endpoint = self
            .token_endpoint
            .and_then(|text| endpoint(&text, &issuer))
            .ok_or(MetadataFault::Endpoint("token_endpoint"))?;
        Ok(TokenServer {
            token_endpoint,
            auth_methods: self
                .token_endpoint_auth_methods_supported
                .unwrap_or_default(),
            signing_algorithms: self
                .token_endpoint_auth_signing_alg_values_supported
                .unwrap_or_default(),
        })
    }

    fn check_issuer(&self, named: &str) -> Result<Url, MetadataFault> {
        let iss = self.issuer.as_deref().unwrap_or_default();
        let parsed = parse_issuer(iss);
        let other = parsed.as_ref().map(issuer_text);
        let issuer = parsed.filter(|_| is_same_issuer(named, iss));
        issuer.ok_or(MetadataFault::Issuer(other))
    }

    /// Checks the metadata that was found for an issuer.
    pub(crate) fn check(self, named: &str) -> Result<AuthorizationServer, MetadataFault> {
        let issuer = self.check_issuer(named)?;
        let iss = self.issuer.unwrap_or_default();
        // "security-considerations", "Authorization Code Protection": "If
        // `code_challenge_methods_supported` is absent, the authorization server does not support
        // PKCE and MCP clients MUST refuse to proceed."
        let methods = self.code_challenge_methods_supported.unwrap_or_default();
        if !methods.iter().any(|method| method == "S256") {
            return Err(MetadataFault::Pkce);
        }
        let usable = |text: Option<String>| text.and_then(|text| endpoint(&text, &issuer));
        let authorization_endpoint = usable(self.authorization_endpoint)
            .filter(has_no_own_parameter)
            .ok_or(MetadataFault::Endpoint("authorization_endpoint"))?;
        let token_endpoint =
            usable(self.token_endpoint).ok_or(MetadataFault::Endpoint("token_endpoint"))?;
        let iss_supported = self.authorization_response_iss_parameter_supported;
        Ok(AuthorizationServer {
            authorization_endpoint,
            token_endpoint,
            registration_endpoint: usable(self.registration_endpoint),
            revocation_endpoint: usable(self.revocation_endpoint),
            scopes_supported: self.scopes_supported,
            auth_methods: self
                .token_endpoint_auth_methods_supported
                .unwrap_or_default(),
            iss_supported: iss_supported == Some(true),
            client_documents: self.client_id_metadata_document_supported == Some(true),
            issuer,
            iss,
        })
    }
}

/// Parses an endpoint of an issuer.
// "Communication Security": "All authorization server endpoints MUST be served over HTTPS." An
// issuer without it has passed the rules for fetches: it is on this machine or in `egress.allow`.
fn endpoint(text: &str, issuer: &Url) -> Option<Url> {
    let url = untrusted_url::parse(text)?;
    // Two programs of this machine reach each other without a network.
    let is_local = is_loopback(issuer) && is_loopback(&url);
    let is_allowed = url.scheme() == "https" || url.origin() == issuer.origin() || is_local;
    is_allowed.then_some(url)
}

/// True if an authorization endpoint sets none of our parameters.
// RFC 6749, section 3.1: its query "MUST be retained", and no parameter may appear twice.
fn has_no_own_parameter(endpoint: &Url) -> bool {
    endpoint
        .query_pairs()
        .all(|(name, _)| !is_own_parameter(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    const METADATA: &str = r#"{
        "issuer": "https://auth.example.com/tenant1",
        "authorization_endpoint": "https://login.example.com/authorize?tenant=1",
        "token_endpoint": "https://auth.example.com/token",
        "registration_endpoint": "https://auth.example.com/register",
        "revocation_endpoint": "https://auth.example.com/revoke",
        "response_types_supported": ["code"],
        "scopes_supported": ["read", "offline_access"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
        "code_challenge_methods_supported": ["plain", "S256"],
        "authorization_response_iss_parameter_supported": true,
        "client_id_metadata_document_supported": true,
        "mtls_endpoint_aliases": {"token_endpoint": 1}
    }"#;
    const ISSUER: &str = "https://auth.example.com/tenant1";

    /// Checks the metadata with one text replaced.
    fn check(from: &str, to: &str) -> Result<AuthorizationServer, MetadataFault> {
        let text = METADATA.replace(from, to);
        let metadata: ServerMetadata = serde_json::from_str(&text).unwrap();
        metadata.check(ISSUER)
    }

    #[test]
    fn candidates_come_in_the_order_of_the_specification() {
        for (issuer, expected) in [
            (
                "https://auth.example.com",
                &[
                    "https://auth.example.com/.well-known/oauth-authorization-server",
                    "https://auth.example.com/.well-known/openid-configuration",
                ][..],
            ),
            (
                "https://auth.example.com:8443/tenant1/",
                &[
                    "https://auth.example.com:8443/.well-known/oauth-authorization-server/tenant1",
                    "https://auth.example.com:8443/.well-known/openid-configuration/tenant1",
                    "https://auth.example.com:8443/tenant1/.well-known/openid-configuration",
                ][..],
            ),
        ] {
            let urls = candidates(&url(issuer));
            let found: Vec<&str> = urls.iter().map(Url::as_str).collect();
            assert_eq!(found, expected, "{issuer}");
        }
    }

    #[test]
    fn an_issuer_is_compared_as_text_but_for_the_slash_after_its_host() {
        for (named, published, expected) in [
            ("https://a.example", "https://a.example", true),
            ("https://a.example/", "https://a.example", true),
            ("https://a.example", "https://a.example/", true),
            ("https://a.example/t", "https://a.example/t", true),
            ("https://a.example/t", "https://a.example/t/", false),
            ("https://a.example/t/", "https://a.example/t", false),
            ("https://a.example", "https://a.example//", false),
            ("https://a.example", "https://A.example", false),
            ("https://a.example", "https://a.example:443", false),
            ("https://a.example", "http://a.example", false),
            ("https://a.example", "https://b.example", false),
            ("https://a.example", "", false),
        ] {
            assert_eq!(
                is_same_issuer(named, published),
                expected,
                "{named} {published}"
            );
        }
    }

    #[test]
    fn complete_metadata_is_read() {
        let server = check("", "").unwrap();
        let expected = AuthorizationServer {
            issuer: url(ISSUER),
            iss: ISSUER.to_owned(),
            authorization_endpoint: url("https://login.example.com/authorize?tenant=1"),
            token_endpoint: url("https://auth.example.com/token"),
            registration_endpoint: Some(url("https://auth.example.com/register")),
            revocation_endpoint: Some(url("https://auth.example.com/revoke")),
            scopes_supported: Some(vec!["read".to_owned(), "offline_access".to_owned()]),
            auth_methods: vec!["none".to_owned(), "client_secret_basic".to_owned()],
            iss_supported: true,
            client_documents: true,
        };
        assert_eq!(server, expected);
    }

    #[test]
    fn an_announcement_counts_only_if_it_is_true() {
        let server = check("_supported\": true", "_supported\": null").unwrap();
        assert!(!server.iss_supported);
        assert!(!server.client_documents);
    }

    #[test]
    fn metadata_of_another_issuer_or_without_s256_is_refused() {
        for (from, to, fault) in [
            (
                "\"https://auth.example.com/tenant1\"",
                "\"https://honest.example\"",
                MetadataFault::Issuer(Some("https://honest.example".to_owned())),
            ),
            (
                "\"https://auth.example.com/tenant1\"",
                "\"https://auth.example.com/tenant1/\"",
                MetadataFault::Issuer(Some("https://auth.example.com/tenant1/".to_owned())),
            ),
            (
                "\"https://auth.example.com/tenant1\"",
                "\"https://auth.example.com/tenant1?x=1\"",
                MetadataFault::Issuer(None),
            ),
            ("\"issuer\"", "\"other\"", MetadataFault::Issuer(None)),
            ("\"S256\"", "\"s256\"", MetadataFault::Pkce),
            (
                "code_challenge_methods_supported",
                "other",
                MetadataFault::Pkce,
            ),
        ] {
            assert_eq!(check(from, to), Err(fault), "{to}");
        }
    }

    #[test]
    fn a_client_without_a_person_needs_only_the_issuer_and_its_token_endpoint() {
        let read = |text: &str| serde_json::from_str::<ServerMetadata>(text).unwrap();
        let metadata = |issuer: &str, endpoint: &str| {
            read(&format!(
                r#"{{"issuer": "{issuer}", "token_endpoint": "{endpoint}",
                "token_endpoint_auth_signing_alg_values_supported": ["ES256"]}}"#
            ))
        };
        let token = "https://auth.example.com/token";
        let server = metadata(ISSUER, token).check_token_server(ISSUER).unwrap();
        let expected = TokenServer {
            token_endpoint: url(token),
            auth_methods: Vec::new(),
            signing_algorithms: vec!["ES256".to_owned()],
        };
        assert_eq!(server, expected);
        let other = metadata("https://honest.example", token).check_token_server(ISSUER);
        let fault = MetadataFault::Issuer(Some("https://honest.example".to_owned()));
        assert_eq!(other, Err(fault));
        let plain = metadata(ISSUER, "http://auth.example.com/token");
        let fault = MetadataFault::Endpoint("token_endpoint");
        assert_eq!(plain.check_token_server(ISSUER), Err(fault));
    }

    #[test]
    fn an_endpoint_that_a_browser_may_not_open_is_refused() {
        let authorization = "https://login.example.com/authorize?tenant=1";
        let token = "https://auth.example.com/token";
        for hostile in [
            "javascript:alert(1)//https://login.example.com",
            "$(x)",
            "/authorize",
            "http://login.example.com/authorize",
            "http://auth.example.com/authorize",
            "https://u:p@login.example.com/authorize",
            "https://login.example.com/authorize#x",
        ] {
            for (from, name) in [
                (authorization, "authorization_endpoint"),
                (token, "token_endpoint"),
            ] {
                let fault = MetadataFault::Endpoint(name);
                assert_eq!(check(from, hostile), Err(fault), "{hostile}");
            }
            let others = check("https://auth.example.com/re", &format!("{hostile}re")).unwrap();
            assert_eq!(others.registration_endpoint, None, "{hostile}");
            assert_eq!(others.revocation_endpoint, None, "{hostile}");
        }
        for query in ["redirect_uri=https://evil.example", "tenant=1&%73tate=x"] {
            let fault = MetadataFault::Endpoint("authorization_endpoint");
            assert_eq!(check("tenant=1", query), Err(fault), "{query}");
        }
    }

    #[test]
    fn an_issuer_that_the_config_allows_to_be_http_has_its_endpoints_there() {
        let text = METADATA.replace("https://", "http://");
        let read = |text: &str| serde_json::from_str::<ServerMetadata>(text).unwrap();
        let named = "http://auth.example.com/tenant1";
        let is_refused = |text: &str, named: &str| {
            let fault = MetadataFault::Endpoint("authorization_endpoint");
            read(text).check(named) == Err(fault)
        };
        assert!(is_refused(&text, named), "on another host");
        let text = text.replace("login.example.com", "auth.example.com");
        assert!(read(&text).check(named).is_ok());
        let text = METADATA.replace("https://auth.example.com", "http://127.0.0.1:8080");
        let text = text.replace("https://login.example.com", "http://localhost:3000");
        let named = "http://127.0.0.1:8080/tenant1";
        assert!(read(&text).check(named).is_ok(), "on this machine");
        let text = text.replace("http://localhost:3000", "http://10.0.0.1:3000");
        assert!(is_refused(&text, named), "on another machine");
    }
}
