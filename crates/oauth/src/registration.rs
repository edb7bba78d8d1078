//! Clients that we log in as at authorization servers.
//!
//! Owns the choice between the config's client, a client document and a registration. Does not keep
//! clients. Invariant: each login that registers gets its own client, for one redirect address.

use http::StatusCode;
use moongate_transport::fetcher::Fetcher;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::authorization_server::AuthorizationServer;
use crate::discovery::DiscoveryOutcome;
use crate::error_codes;
use crate::grant::{ClientAuthMethod, ClientIdentity};
use crate::login_error::LoginError;
use crate::login_fetcher::LoginFetcher;
use crate::secret_text::SecretText;
use crate::settings::OAuthSettings;
use crate::untrusted_url;

/// Maximum length of a registered client id, in bytes. It becomes part of URLs.
const ID_MAX: usize = 2048;
/// Words for a registration that failed without an error code.
const NO_REASON: &str = "it returned neither a client nor a reason";

/// Chooses a login's client: the one in the config, or else our client document, or else a new
/// registration. `scope` is what the login will ask for.
///
/// # Errors
/// The login has no way to get a client, or the authorization server refused to register one.
// 2026-07-28, basic/authorization/client-registration: "Clients supporting all options SHOULD use
// the following priority order".
pub async fn choose_client(
    fetcher: &Fetcher,
    discovered: &DiscoveryOutcome,
    settings: &OAuthSettings,
    redirect: &Url,
    scope: Option<&str>,
) -> Result<ClientIdentity, LoginError> {
    let server = &discovered.server;
    if let Some(id) = &settings.client_id {
        return Ok(configured_client(id, server, settings, redirect));
    }
    let document = settings.client_id_url.as_ref();
    if let Some(url) = document.filter(|url| takes_document(server, url, redirect)) {
        return Ok(ClientIdentity {
            id: url.as_str().to_owned(),
            secret: None,
            method: ClientAuthMethod::None,
            redirect: redirect.clone(),
        });
    }
    match &server.registration_endpoint {
        Some(endpoint) => {
            let registration = ClientRegistration {
                fetcher: LoginFetcher {
                    fetcher,
                    server: &discovered.target.url,
                },
                discovered,
                endpoint,
                redirect,
            };
            registration.register(scope).await
        }
        None => Err(LoginError::NoRegistration {
            server: discovered.target.server.clone(),
            issuer_host: untrusted_url::host(&server.issuer),
            issuer: server.iss.clone(),
            redirect: redirect.clone(),
        }),
    }
}

fn configured_client(
    id: &str,
    server: &AuthorizationServer,
    settings: &OAuthSettings,
    redirect: &Url,
) -> ClientIdentity {
    let secret = settings.client_secret.clone();
    let method = match secret {
        Some(_) => secret_method(server).unwrap_or(ClientAuthMethod::Basic),
        None => ClientAuthMethod::None,
    };
    ClientIdentity {
        id: id.to_owned(),
        secret,
        method,
        redirect: redirect.clone(),
    }
}

/// True if an authorization server takes the address of our client document as a client id.
fn takes_document(server: &AuthorizationServer, document: &Url, redirect: &Url) -> bool {
    // A document that others host may list the redirect addresses of several issuers, so that only
    // `iss` shows who sent an answer.
    let is_own = document.origin() == redirect.origin();
    let is_safe = is_own || server.iss_supported;
    server.client_documents && lists(server, "none") && is_safe
}

fn lists(server: &AuthorizationServer, method: &str) -> bool {
    server.auth_methods.iter().any(|other| other == method)
}

/// Method for a client with a secret, from the server's list.
fn secret_method(server: &AuthorizationServer) -> Option<ClientAuthMethod> {
    ClientAuthMethod::for_secret(&server.auth_methods)
}

/// Method that a registration asks for: none if possible, since a program on somebody's computer
/// cannot keep a secret.
fn registered_method(server: &AuthorizationServer) -> ClientAuthMethod {
    match secret_method(server) {
        Some(method) if !server.auth_methods.is_empty() && !lists(server, "none") => method,
        _ => ClientAuthMethod::None,
    }
}

/// Registration request (RFC 7591, section 2).
#[derive(Serialize)]
struct RegistrationRequest<'a> {
    client_name: &'static str,
    redirect_uris: [&'a str; 1],
    grant_types: [&'static str; 2],
    response_types: [&'static str; 1],
    token_endpoint_auth_method: ClientAuthMethod,
    /// Kind of client (OpenID Connect Dynamic Client Registration, section 2).
    application_type: &'static str,
    /// Scope that the client may ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'a str>,
}

/// Response to a registration: a client, or an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RegistrationResponse {
    client_id: Option<String>,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
    error: Option<String>,
}

/// Registration of a client for one login.
struct ClientRegistration<'a> {
    fetcher: LoginFetcher<'a>,
    discovered: &'a DiscoveryOutcome,
    endpoint: &'a Url,
    redirect: &'a Url,
}

impl ClientRegistration<'_> {
    /// Registers a client for this scope.
    // RFC 7591, section 2: "If omitted, an authorization server MAY register a client with a
    // default set of scopes", and strict ones then refuse every other scope.
    async fn register(&self, scope: Option<&str>) -> Result<ClientIdentity, LoginError> {
        match self.request(scope).await {
            // A server may refuse a scope here that it grants to a person who logs in.
            Err(LoginError::RegistrationRefused { .. }) if scope.is_some() => {
                self.request(None).await
            }
            requested => requested,
        }
    }

    async fn request(&self, scope: Option<&str>) -> Result<ClientIdentity, LoginError> {
        let server = &self.discovered.server;
        let asked = registered_method(server);
        let request = RegistrationRequest {
            client_name: "Moongate",
            redirect_uris: [self.redirect.as_str()],
            grant_types: ["authorization_code", "refresh_token"],
            response_types: ["code"],
            token_endpoint_auth_method: asked,
            application_type: application_type(self.redirect),
            scope,
        };
        let sent = self.fetcher.post_json(self.endpoint, &request).await;
        let response = sent.map_err(|failure| LoginError::Fetch {
            server: self.discovered.target.server.clone(),
            failure,
        })?;
        let read = read_registration(response.status(), response.body());
        let client = read.and_then(|given| given.into_client(server, asked, self.redirect));
        client.map_err(|reason| LoginError::RegistrationRefused {
            server: self.discovered.target.server.clone(),
            host: untrusted_url::host(self.endpoint),
            issuer: server.iss.clone(),
            reason,
            redirect: self.redirect.clone(),
        })
    }
}

/// Kind of client that may use a redirect address.
// 2026-07-28, basic/authorization/client-registration, "Application Type and Redirect URI
// Constraints": "MCP clients MUST specify an appropriate `application_type`".
fn application_type(redirect: &Url) -> &'static str {
    // OpenID Connect Dynamic Client Registration, section 2: native clients register "loopback URLs
    // using the `http` scheme", and web ones `https` URLs.
    match redirect.scheme() == "http" && untrusted_url::is_loopback(redirect) {
        true => "native",
        false => "web",
    }
}

fn read_registration(
    status: StatusCode,
    body: &[u8],
) -> Result<RegistrationResponse, &'static str> {
    let read = serde_json::from_slice::<RegistrationResponse>(body);
    let response = read.map_err(|_| NO_REASON)?;
    match &response.error {
        Some(code) => Err(error_codes::describe(code)),
        None if status.is_success() => Ok(response),
        None => Err(NO_REASON),
    }
}

impl RegistrationResponse {
    /// Builds the registered client. `asked` is the method that we asked for.
    fn into_client(
        self,
        server: &AuthorizationServer,
        asked: ClientAuthMethod,
        redirect: &Url,
    ) -> Result<ClientIdentity, &'static str> {
        let id = self.client_id.unwrap_or_default();
        let is_visible = id
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if id.is_empty() || id.len() > ID_MAX || !is_visible {
            return Err("it returned a client id that cannot be used");
        }
        let secret = self.client_secret.filter(|secret| !secret.is_empty());
        let secret = secret.map(SecretText::new);
        let method = match self.token_endpoint_auth_method.as_deref() {
            _ if secret.is_none() => ClientAuthMethod::None,
            Some("none") => ClientAuthMethod::None,
            Some("client_secret_basic") => ClientAuthMethod::Basic,
            Some("client_secret_post") => ClientAuthMethod::Post,
            Some(_) => return Err("it returned a client with an unknown auth method"),
            // RFC 7591, section 2: "If unspecified or omitted, the default is
            // `client_secret_basic`", unless the server takes no secret at all.
            None => secret_method(server).unwrap_or(asked),
        };
        Ok(ClientIdentity {
            id,
            secret: secret.filter(|_| method != ClientAuthMethod::None),
            method,
            redirect: redirect.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn server(methods: &[&str]) -> AuthorizationServer {
        AuthorizationServer {
            issuer: url("https://auth.example.com"),
            iss: "https://auth.example.com".to_owned(),
            authorization_endpoint: url("https://auth.example.com/authorize"),
            token_endpoint: url("https://auth.example.com/token"),
            registration_endpoint: None,
            revocation_endpoint: None,
            scopes_supported: None,
            auth_methods: methods.iter().map(|&method| method.to_owned()).collect(),
            iss_supported: false,
            client_documents: true,
        }
    }

    #[test]
    fn a_client_document_is_used_where_it_is_announced_and_safe() {
        let redirect = url("https://gate.example/oauth/callback/x");
        let own = url("https://gate.example/oauth/client.json");
        let foreign = url("https://clients.example/client.json");
        let announced = server(&["none"]);
        let with_iss = AuthorizationServer {
            iss_supported: true,
            ..announced.clone()
        };
        let silent = AuthorizationServer {
            client_documents: false,
            ..with_iss.clone()
        };
        let secret = AuthorizationServer {
            iss_supported: true,
            ..server(&["client_secret_basic"])
        };
        let unlisted = AuthorizationServer {
            iss_supported: true,
            ..server(&[])
        };
        for (server, document, expected) in [
            (&announced, &own, true),
            (&announced, &foreign, false),
            (&with_iss, &foreign, true),
            (&silent, &own, false),
            (&secret, &own, false),
            (&unlisted, &own, false),
        ] {
            assert_eq!(
                takes_document(server, document, &redirect),
                expected,
                "{document}"
            );
        }
    }

    #[test]
    fn a_client_with_a_secret_authenticates_in_one_listed_way() {
        use ClientAuthMethod::{Basic, None as Public, Post};
        let with_secret = OAuthSettings {
            client_secret: Some(SecretText::new("hush")),
            ..OAuthSettings::default()
        };
        let without = OAuthSettings::default();
        let redirect = url("http://127.0.0.1:8080/oauth/callback/x");
        let unlisted: &[&str] = &[];
        for (methods, with, registered) in [
            (
                &["none", "client_secret_post", "client_secret_basic"][..],
                Basic,
                Public,
            ),
            (
                &["client_secret_post", "client_secret_basic"][..],
                Basic,
                Basic,
            ),
            (&["client_secret_post", "private_key_jwt"][..], Post, Post),
            (&["client_secret_post", "none"][..], Post, Public),
            (&["none"][..], Basic, Public),
            (&["private_key_jwt"][..], Basic, Public),
            (unlisted, Basic, Public),
        ] {
            let server = server(methods);
            let client = configured_client("id", &server, &with_secret, &redirect);
            assert_eq!(client.method, with, "{methods:?}");
            assert!(client.secret.is_some());
            let client = configured_client("id", &server, &without, &redirect);
            assert_eq!(client.method, Public, "{methods:?}");
            assert_eq!(registered_method(&server), registered, "{methods:?}");
        }
    }

    #[test]
    fn a_registered_client_is_used_as_the_server_says() {
        use ClientAuthMethod::{Basic, None as Public, Post};
        let redirect = url("http://127.0.0.1:8080/oauth/callback/x");
        let client = |body: &str, methods: &[&str]| {
            let read = read_registration(StatusCode::CREATED, body.as_bytes());
            let asked = registered_method(&server(methods));
            read.and_then(|given| given.into_client(&server(methods), asked, &redirect))
        };
        let secret = r#"{"client_id": "a", "client_secret": "hush"}"#;
        let unlisted: &[&str] = &[];
        let listed = |method: &str| {
            format!(
                r#"{{"client_id": "a", "client_secret": "hush",
                    "token_endpoint_auth_method": "{method}", "redirect_uris": []}}"#
            )
        };
        for (body, methods, expected) in [
            (r#"{"client_id": "a"}"#.to_owned(), &["none"][..], Public),
            (
                r#"{"client_id": "a", "client_secret": ""}"#.to_owned(),
                &["client_secret_basic"][..],
                Public,
            ),
            (secret.to_owned(), &["none"][..], Public),
            (
                secret.to_owned(),
                &["none", "client_secret_basic"][..],
                Basic,
            ),
            (secret.to_owned(), &["client_secret_post"][..], Post),
            (secret.to_owned(), unlisted, Basic),
            (listed("none"), &["client_secret_basic"][..], Public),
            (listed("client_secret_basic"), &["none"][..], Basic),
            (listed("client_secret_post"), &["none"][..], Post),
        ] {
            let client = client(&body, methods).unwrap();
            assert_eq!(client.method, expected, "{body} {methods:?}");
            assert_eq!(client.secret.is_some(), expected != Public, "{body}");
            assert_eq!(client.redirect, redirect);
        }
        let long = format!(r#"{{"client_id": "{}"}}"#, "x".repeat(ID_MAX + 1));
        for body in [
            "{}",
            "[1]",
            "<html>",
            r#"{"client_id": ""}"#,
            r#"{"client_id": 7}"#,
            r#"{"client_id": "a\nb"}"#,
            r#"{"client_id": "a", "client_id": "b"}"#,
            r#"{"client_id": "a", "error": "invalid_redirect_uri"}"#,
            r#"{"client_id": "a", "client_secret": "b", "token_endpoint_auth_method": "tls"}"#,
            long.as_str(),
        ] {
            assert!(client(body, &["none"]).is_err(), "{body}");
        }
    }

    #[test]
    fn a_refused_registration_is_reported_only_in_our_words() {
        let refused = |status, body: &str| read_registration(status, body.as_bytes()).unwrap_err();
        let body = r#"{"error": "invalid_redirect_uri", "error_description": "<script>"}"#;
        let reason = refused(StatusCode::BAD_REQUEST, body);
        assert!(reason.ends_with("(invalid_redirect_uri)"), "{reason}");
        let reason = refused(StatusCode::OK, r#"{"error": "<script>"}"#);
        assert!(!reason.contains("script"), "{reason}");
        assert_eq!(
            refused(StatusCode::FORBIDDEN, r#"{"client_id": "a"}"#),
            NO_REASON
        );
    }

    #[test]
    fn the_kind_of_client_matches_its_redirect_address() {
        for (redirect, expected) in [
            ("http://127.0.0.1:8080/oauth/callback/x", "native"),
            ("http://[::1]:8080/oauth/callback/x", "native"),
            ("http://localhost:8080/oauth/callback/x", "native"),
            ("https://127.0.0.1:8443/oauth/callback/x", "web"),
            ("https://localhost/oauth/callback/x", "web"),
            ("https://gate.example/oauth/callback/x", "web"),
            ("http://10.0.0.1:8080/oauth/callback/x", "web"),
        ] {
            assert_eq!(application_type(&url(redirect)), expected, "{redirect}");
        }
    }
}
