//! Tests of complete logins, against an authorization server in this process.
//!
//! Owns the fixtures that several of them share. Does not test single files. Invariant: every
//! request that a login sent is recorded, so that a test can say what was not sent.

mod client_credentials;
mod discovery;
mod fake_server;
mod hostile;
mod whole_login;

use std::collections::BTreeMap;

use moongate_transport::fetcher::{FetchRules, Fetcher};
use moongate_transport::trust::tls_without_roots;
use url::Url;

use crate::authorization_response::AuthorizationResponse;
use crate::challenge::BearerChallenge;
use crate::login::{FoundLogin, StartedLogin, find_login, finish_login};
use crate::login_error::LoginError;
use crate::login_folder::LoginFolder;
use crate::settings::{LoginTarget, OAuthSettings};

use fake_server::FakeServer;

/// Path of the resource metadata.
const RESOURCE: &str = "/.well-known/oauth-protected-resource/mcp";
/// Path of the metadata of the authorization server.
const SERVER: &str = "/.well-known/oauth-authorization-server";

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

/// Address that login answers come back to.
fn redirect_base() -> Url {
    url("http://127.0.0.1:8080")
}

/// Fetcher that may reach the servers in this process.
fn fetcher() -> Fetcher {
    let rules = FetchRules {
        hosts: vec!["127.0.0.1".to_owned()],
        ..FetchRules::default()
    };
    Fetcher::new(tls_without_roots(), &rules)
}

/// MCP server and its authorization server, each at its own origin.
struct World {
    server: FakeServer,
    issuer: FakeServer,
    fetcher: Fetcher,
    folder: LoginFolder,
    state: tempfile::TempDir,
}

impl World {
    /// Starts both, with everything that a login needs.
    async fn start() -> Self {
        let state = tempfile::tempdir().unwrap();
        let world = World {
            server: FakeServer::start().await,
            issuer: FakeServer::start().await,
            fetcher: fetcher(),
            folder: LoginFolder::open(state.path()).unwrap(),
            state,
        };
        let resource = world.resource_metadata();
        world.server.answer(RESOURCE, 200, &resource);
        let metadata = world.server_metadata();
        world.issuer.answer(SERVER, 200, &metadata);
        world
            .issuer
            .answer("/register", 201, r#"{"client_id": "registered"}"#);
        let tokens = r#"{"access_token": "access-1", "token_type": "Bearer", "expires_in": 3600,
            "refresh_token": "refresh-1"}"#;
        world.issuer.answer("/token", 200, tokens);
        world.issuer.answer("/revoke", 200, "");
        world
    }

    fn target(&self) -> LoginTarget {
        LoginTarget {
            server: "files".to_owned(),
            url: self.server.url("/mcp"),
        }
    }

    fn resource_metadata(&self) -> String {
        let resource = self.server.url("/mcp");
        let issuer = self.issuer.origin();
        format!(
            r#"{{
                "resource": "{resource}",
                "authorization_servers": ["{issuer}"],
                "scopes_supported": ["read"]
            }}"#
        )
    }

    fn server_metadata(&self) -> String {
        let origin = self.issuer.origin();
        format!(
            r#"{{
                "issuer": "{origin}",
                "authorization_endpoint": "{origin}/authorize",
                "token_endpoint": "{origin}/token",
                "registration_endpoint": "{origin}/register",
                "revocation_endpoint": "{origin}/revoke",
                "token_endpoint_auth_methods_supported": ["none"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": true
            }}"#
        )
    }

    /// Changes one text in the metadata of the authorization server.
    fn change_metadata(&self, from: &str, to: &str) {
        let metadata = self.server_metadata();
        assert!(metadata.contains(from), "{from}");
        self.issuer.answer(SERVER, 200, &metadata.replace(from, to));
    }

    async fn find(&self, settings: &OAuthSettings) -> Result<FoundLogin, LoginError> {
        find_login(&self.fetcher, &self.folder, &self.target(), settings, None).await
    }

    /// Finds the login that a challenge of the server leads to.
    async fn find_challenged(&self, challenge: &BearerChallenge) -> Result<FoundLogin, LoginError> {
        let settings = OAuthSettings::default();
        let (fetcher, folder) = (&self.fetcher, &self.folder);
        find_login(fetcher, folder, &self.target(), &settings, Some(challenge)).await
    }

    async fn begin(&self, settings: &OAuthSettings) -> Result<StartedLogin, LoginError> {
        let found = self.find(settings).await?;
        let begun = found
            .begin(&self.fetcher, settings, &redirect_base())
            .await?;
        self.folder.put_pending(&begun.pending).unwrap();
        Ok(begun)
    }

    /// Completes a login with this query, at its issuer's address.
    async fn finish(&self, begun: &StartedLogin, query: &str) -> Result<LoginTarget, LoginError> {
        let response = AuthorizationResponse::from_query(query)?;
        let path = begun.pending.client.redirect.path();
        finish_login(&self.fetcher, &self.folder, &response, Some(path)).await
    }

    /// Query of a valid answer.
    fn good_query(&self, begun: &StartedLogin) -> String {
        let state = begun.pending.state.expose();
        format!("code=code-1&state={state}&iss={}", self.issuer.origin())
    }

    async fn log_in(&self) -> LoginTarget {
        let begun = self.begin(&OAuthSettings::default()).await.unwrap();
        let query = self.good_query(&begun);
        self.finish(&begun, &query).await.unwrap()
    }
}

/// Parameters of a form or a query. Fails if one appears twice.
fn parameters(text: &str) -> BTreeMap<String, String> {
    let mut parameters = BTreeMap::new();
    for (name, value) in url::form_urlencoded::parse(text.as_bytes()).into_owned() {
        assert_eq!(parameters.insert(name, value), None, "{text}");
    }
    parameters
}
