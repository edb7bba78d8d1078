//! Settings of people's logins, from the config.
//!
//! Owns the company's login, and which clients may request logins. Does not log anybody in
//! (`moongate_broker`). Invariant: Debug never shows the provider's secret.

use std::fmt;
use std::time::Duration;

use url::Url;

/// Hosts of the clients that were tried, in July 2026: what their https redirects end at.
pub const CLIENT_HOSTS: [&str; 8] = [
    "claude.ai",
    "claude.com",
    "chatgpt.com",
    "vscode.dev",
    "insiders.vscode.dev",
    "cursor.com",
    "www.cursor.com",
    "github.com",
];

/// Private schemes of the clients that were tried in July 2026.
pub const CLIENT_SCHEMES: [&str; 3] = ["cursor", "vscode", "vscode-insiders"];

/// Settings of people's logins.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerSettings {
    /// URL of this gateway, without a path. All resources start with it.
    pub public_url: Url,
    /// Company login.
    pub provider: ProviderSettings,
    /// Lifetime of an access token.
    pub access: Duration,
    /// Lifetime of a login, even if it is used.
    pub max: Duration,
    /// Age of a person's facts after which the provider is asked again.
    pub recheck: Duration,
    /// Lifetime of a login whose person cannot be rechecked, since the provider issued no token.
    pub unchecked: Duration,
    /// Kinds of clients that may request a login.
    pub clients: ClientKinds,
    /// Hosts allowed in https redirects, exact and in lower case.
    pub allow_clients: Vec<String>,
    /// Private schemes allowed in redirects besides [`CLIENT_SCHEMES`], in lower case.
    pub redirect_schemes: Vec<String>,
}

impl BrokerSettings {
    /// Returns the identifier of the authorization server: the public URL's origin, without a
    /// trailing slash.
    pub fn issuer(&self) -> String {
        self.public_url.origin().ascii_serialization()
    }
}

/// Kinds of clients that may request a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientKinds {
    /// Clients whose id is the URL of their metadata document.
    pub documents: bool,
    /// Clients that register themselves.
    pub registered: bool,
}

/// Settings of the company's login.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderSettings {
    /// Kind of provider, with its own settings.
    pub kind: ProviderKind,
    /// Issuer, exactly as in its tokens.
    pub issuer: String,
    /// Client id of this gateway at the provider.
    pub client_id: String,
    /// Client secret. `None`: a public client.
    pub client_secret: Option<ProviderSecret>,
    /// Scopes to request, instead of the usual ones.
    pub scopes: Option<Vec<String>>,
    /// True if the userinfo endpoint is asked for claims that ID tokens lack.
    pub userinfo: bool,
    /// True if email addresses are trusted even if the provider does not mark them as verified.
    pub trust_email: bool,
}

impl ProviderSettings {
    /// Returns whoever gives out the ids of people: the issuer, or the tenant of Entra, where a
    /// person is the same for each of its issuers.
    pub fn authority(&self) -> &str {
        match &self.kind {
            ProviderKind::Entra { tenant } => tenant,
            ProviderKind::Google { .. } | ProviderKind::GitHub { .. } | ProviderKind::Issuer => {
                &self.issuer
            }
        }
    }
}

/// Kind of provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// Microsoft Entra.
    Entra {
        /// Id of the tenant, in lower case.
        tenant: String,
    },
    /// Google Workspace.
    Google {
        /// Domain of the organisation, in lower case.
        domain: String,
    },
    /// GitHub, which has no ID tokens.
    GitHub {
        /// Organisations whose members may log in, at least one, in lower case.
        orgs: Vec<String>,
    },
    /// Any other OpenID Connect issuer.
    Issuer,
}

/// Secret of this gateway at the provider. Debug hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct ProviderSecret(String);

impl ProviderSecret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Self {
        ProviderSecret(text.into())
    }

    /// Returns the secret itself, to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ProviderSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ProviderSecret(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_issuer_is_the_origin_of_the_public_url() {
        for (url, issuer) in [
            ("https://mcp.example.com", "https://mcp.example.com"),
            ("https://MCP.example.com:443/", "https://mcp.example.com"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
            ("http://[::1]:8080", "http://[::1]:8080"),
        ] {
            let settings = BrokerSettings {
                public_url: Url::parse(url).unwrap(),
                provider: ProviderSettings {
                    kind: ProviderKind::Issuer,
                    issuer: "https://login.example.com".to_owned(),
                    client_id: "moongate".to_owned(),
                    client_secret: Some(ProviderSecret::new("hush")),
                    scopes: None,
                    userinfo: false,
                    trust_email: false,
                },
                access: Duration::from_secs(60),
                max: Duration::from_secs(60),
                recheck: Duration::from_secs(60),
                unchecked: Duration::from_secs(60),
                clients: ClientKinds {
                    documents: true,
                    registered: true,
                },
                allow_clients: Vec::new(),
                redirect_schemes: Vec::new(),
            };
            assert_eq!(settings.issuer(), issuer);
            let shown = format!("{settings:?}");
            assert!(shown.contains("ProviderSecret(hidden)") && !shown.contains("hush"));
        }
    }

    #[test]
    fn a_secret_is_exposed_only_on_purpose() {
        assert_eq!(ProviderSecret::new("hush").expose(), "hush");
    }
}
