//! Login settings: `servers.*.auth`, after the config is resolved.
//!
//! Owns the types that the config fills and the login reads. Does not parse the config. Invariant:
//! a login is for a server and its URL together, so a changed URL never gets an old token.

use std::collections::BTreeMap;
use std::time::Duration;

use url::Url;

use crate::assertion_key::AssertionKey;
use crate::secret_text::SecretText;

/// Source of a server's credential: `servers.*.auth`.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerAuth {
    /// OAuth login of a person.
    OAuth(OAuthSettings),
    /// Command that prints a token.
    Command(CommandSettings),
    /// Client that gets tokens for itself, without a person.
    ClientCredentials(ClientCredentialsSettings),
}

impl Default for ServerAuth {
    fn default() -> Self {
        ServerAuth::OAuth(OAuthSettings::default())
    }
}

/// Settings of an OAuth login. The defaults suit servers that register clients themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct OAuthSettings {
    /// Client that somebody registered at the authorization server: `auth.client_id`.
    pub client_id: Option<String>,
    /// Secret of that client: `auth.client_secret`.
    pub client_secret: Option<SecretText>,
    /// Address of our client document, which is then our client id: `auth.client_id_url`.
    pub client_id_url: Option<Url>,
    /// Authorization server that the client and the secret belong to: `auth.issuer`.
    pub issuer: Option<Url>,
    /// Scopes to ask for, instead of those that the server names: `auth.scopes`.
    pub scopes: Option<Vec<String>>,
    /// True if requests name the resource: `auth.resource`. Some authorization servers refuse it.
    pub sends_resource: bool,
    /// Parameters to add to the authorization request: `auth.params`.
    pub params: BTreeMap<String, String>,
}

impl Default for OAuthSettings {
    fn default() -> Self {
        OAuthSettings {
            client_id: None,
            client_secret: None,
            client_id_url: None,
            issuer: None,
            scopes: None,
            sends_resource: true,
            params: BTreeMap::new(),
        }
    }
}

/// Settings of a command that prints a token.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandSettings {
    /// Program: `auth.command`.
    pub command: String,
    /// Arguments: `auth.args`.
    pub args: Vec<String>,
    /// Variables that the program gets: `auth.env`.
    pub env: Vec<(String, SecretText)>,
    /// Time after which the command runs again: `auth.ttl`.
    pub ttl: Duration,
}

/// Settings of a client that gets tokens for itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientCredentialsSettings {
    /// Client: `auth.client_id`.
    pub client_id: String,
    /// Proof that a request is the client's.
    pub proof: ClientProof,
    /// Authorization server that the client is at, and the only one that gets the proof:
    /// `auth.issuer`.
    pub issuer: Url,
    /// Scopes to ask for, instead of those that the server names: `auth.scopes`.
    pub scopes: Option<Vec<String>>,
    /// True if requests name the resource: `auth.resource`.
    pub sends_resource: bool,
}

/// Proof that a request is a client's.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientProof {
    /// Secret that both know: `auth.client_secret`.
    Secret(SecretText),
    /// Assertion for each request, which the client signs.
    Assertion(AssertionSettings),
}

/// Settings of the assertions that a client signs.
#[derive(Clone, Debug, PartialEq)]
pub struct AssertionSettings {
    /// Private key: `auth.private_key`.
    pub key: AssertionKey,
    /// Name of the key at the authorization server: `auth.key_id`.
    pub key_id: Option<String>,
    /// Audience, instead of the token endpoint: `auth.audience`.
    pub audience: Option<String>,
}

/// Server that a login is for. A changed URL never gets an old token.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoginTarget {
    /// Name of the server in the config.
    pub server: String,
    /// URL of the server.
    pub url: Url,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_settings_logs_in_with_oauth_and_names_the_resource() {
        let ServerAuth::OAuth(settings) = ServerAuth::default() else {
            panic!("OAuth is the default");
        };
        assert!(settings.sends_resource);
        assert_eq!(settings.client_id, None);
    }

    #[test]
    fn debug_shows_no_secret() {
        let oauth = OAuthSettings {
            client_secret: Some(SecretText::new("hush")),
            ..OAuthSettings::default()
        };
        let command = CommandSettings {
            command: "gh".to_owned(),
            args: vec!["auth".to_owned(), "token".to_owned()],
            env: vec![("GH_TOKEN".to_owned(), SecretText::new("hush"))],
            ttl: Duration::from_secs(600),
        };
        let client = ClientCredentialsSettings {
            client_id: "moongate".to_owned(),
            proof: ClientProof::Secret(SecretText::new("hush")),
            issuer: Url::parse("https://auth.example.com").unwrap(),
            scopes: None,
            sends_resource: true,
        };
        let client = ServerAuth::ClientCredentials(client);
        for auth in [
            ServerAuth::OAuth(oauth),
            ServerAuth::Command(command),
            client,
        ] {
            assert!(!format!("{auth:?}").contains("hush"), "{auth:?}");
        }
    }
}
