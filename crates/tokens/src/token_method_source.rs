//! Source of the access token method, which makes a method for each version of the config.
//!
//! Owns the keys of the issuers, which outlive a reload. Does not verify tokens (`verify.rs`).
//! Invariant: without an issuer in the config, no method exists and no OAuth metadata is served.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use moongate_access::auth::{
    AuthSettings, Authenticator, BrokerSettings, MethodSource, PrincipalTable, TokenSettings,
};
use moongate_transport::fetcher::{FetchRules, Fetcher};
use parking_lot::Mutex;
use url::Url;

use crate::issuer_keys::IssuerKeys;
use crate::person_mark::PersonKey;
use crate::resource_names::ResourceNames;
use crate::token_method::{TokenMethod, TrustedIssuer, common_scope};

/// Scope of the tokens that this gateway gives out itself.
const OWN_SCOPE: &str = "mcp";

/// Source of the method for access tokens.
pub struct TokenMethodSource {
    /// Listeners of this gateway, which are never fetched from.
    own: Vec<SocketAddr>,
    person_key: Arc<PersonKey>,
    /// Keys in use by a method.
    keys: Mutex<HashMap<Url, Weak<IssuerKeys>>>,
}

impl TokenMethodSource {
    /// Creates the source for a gateway with listeners at these addresses. People's secrets are
    /// derived from `secret`, which must survive a restart.
    pub fn new(own: Vec<SocketAddr>, secret: &[u8; 32]) -> Self {
        TokenMethodSource {
            own,
            person_key: Arc::new(PersonKey::new(secret)),
            keys: Mutex::default(),
        }
    }

    fn method(
        &self,
        settings: &AuthSettings,
        tokens: &TokenSettings,
        principals: &Arc<PrincipalTable>,
    ) -> TokenMethod {
        let issuers = tokens.issuers.iter().map(|issuer| TrustedIssuer {
            settings: issuer.clone(),
            keys: self.keys_at(&issuer.jwks_url),
        });
        let broker_issuer = settings.broker.as_ref().map(BrokerSettings::issuer);
        // With its own logins, the gateway is another issuer with another scope.
        let scope = common_scope(&tokens.issuers)
            .filter(|scope| broker_issuer.is_none() || *scope == OWN_SCOPE);
        TokenMethod {
            issuers: issuers.collect(),
            scope: scope.map(str::to_owned),
            broker_issuer,
            resources: ResourceNames::new(&tokens.public_url),
            matches: settings.matches.clone(),
            principals: principals.clone(),
            person_key: self.person_key.clone(),
        }
    }

    /// Returns the keys at a URL, and reuses those that a method already has.
    fn keys_at(&self, url: &Url) -> Arc<IssuerKeys> {
        let mut keys = self.keys.lock();
        if let Some(known) = keys.get(url).and_then(Weak::upgrade) {
            return known;
        }
        keys.retain(|_, known| known.strong_count() > 0);
        // The operator chose the URL, so it may be private, and needs no TLS.
        let rules = FetchRules {
            origins: vec![url.origin()],
            hosts: Vec::new(),
            own: self.own.clone(),
        };
        let made = IssuerKeys::new(url.clone(), Fetcher::with_system_roots(&rules));
        keys.insert(url.clone(), Arc::downgrade(&made));
        made
    }
}

impl MethodSource for TokenMethodSource {
    fn methods(
        &self,
        settings: &AuthSettings,
        principals: &Arc<PrincipalTable>,
    ) -> Vec<Arc<dyn Authenticator>> {
        let method = settings.tokens.as_ref().map(|tokens| {
            Arc::new(self.method(settings, tokens, principals)) as Arc<dyn Authenticator>
        });
        method.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use moongate_access::auth::{
        ClientKinds, ProviderKind, ProviderSettings, SignatureAlgorithm, TokenIssuer,
    };

    use super::*;

    const PATH: &str = "/.well-known/oauth-protected-resource/mcp";

    fn public_url() -> Url {
        Url::parse("https://mcp.test").unwrap()
    }

    fn broker() -> BrokerSettings {
        BrokerSettings {
            public_url: public_url(),
            provider: ProviderSettings {
                kind: ProviderKind::Issuer,
                issuer: "https://login.test".to_owned(),
                client_id: "gateway".to_owned(),
                client_secret: None,
                scopes: None,
                userinfo: false,
                trust_email: false,
            },
            access: Duration::from_secs(60),
            max: Duration::from_secs(600),
            recheck: Duration::from_secs(60),
            unchecked: Duration::from_secs(60),
            clients: ClientKinds {
                documents: true,
                registered: true,
            },
            allow_clients: Vec::new(),
            redirect_schemes: Vec::new(),
        }
    }

    /// Returns the metadata of a gateway whose one issuer needs this scope.
    fn document(scope: &str, broker: Option<BrokerSettings>) -> String {
        let issuer = TokenIssuer {
            issuer: "https://login.test".to_owned(),
            audience: None,
            algorithms: vec![SignatureAlgorithm::Es256],
            jwks_url: Url::parse("https://login.test/keys").unwrap(),
            scope: scope.to_owned(),
        };
        let settings = AuthSettings {
            tokens: Some(TokenSettings {
                public_url: public_url(),
                issuers: vec![issuer],
            }),
            broker,
            ..AuthSettings::default()
        };
        let source = TokenMethodSource::new(Vec::new(), &[7; 32]);
        let methods = source.methods(&settings, &Arc::default());
        methods[0].document(PATH, Some("mcp.test")).unwrap()
    }

    #[test]
    fn clients_try_the_logins_of_the_gateway_first() {
        let alone = document("tools", None);
        assert!(alone.contains(r#""authorization_servers":["https://login.test"]"#));
        assert!(alone.contains(r#""scopes_supported":["tools"]"#), "{alone}");
        let both = document("mcp", Some(broker()));
        let servers = r#""authorization_servers":["https://mcp.test","https://login.test"]"#;
        assert!(both.contains(servers), "{both}");
        assert!(both.contains(r#""scopes_supported":["mcp"]"#), "{both}");
        // A client that asked one for the scope of the other would be refused.
        let mixed = document("tools", Some(broker()));
        assert!(!mixed.contains("scopes_supported"), "{mixed}");
    }
}
