//! Access token methods of a config, before and after a reload.
//!
//! Owns the keys of the issuers, which outlive a reload. Does not verify tokens (`verify.rs`).
//! Invariant: without an issuer in the config, no method exists and no OAuth metadata is served.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use moongate_access::auth::{
    AuthSettings, Authenticator, MethodSource, PrincipalTable, TokenSettings,
};
use moongate_transport::fetcher::{FetchRules, Fetcher};
use parking_lot::Mutex;
use url::Url;

use crate::issuer_keys::IssuerKeys;
use crate::person_mark::PersonKey;
use crate::resource_names::ResourceNames;
use crate::token_method::{TokenMethod, TrustedIssuer, common_scope};

/// Source of the method for access tokens.
pub struct TokenMethods {
    /// Listeners of this gateway, which are never fetched from.
    own: Vec<SocketAddr>,
    person_key: Arc<PersonKey>,
    /// Keys in use by a method.
    keys: Mutex<HashMap<Url, Weak<IssuerKeys>>>,
}

impl TokenMethods {
    /// Creates the source for a gateway with listeners at these addresses. People's secrets are
    /// derived from `secret`, which must survive a restart.
    pub fn new(own: Vec<SocketAddr>, secret: &[u8; 32]) -> Self {
        TokenMethods {
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
        TokenMethod {
            issuers: issuers.collect(),
            resources: ResourceNames::new(&tokens.public_url),
            scope: common_scope(&tokens.issuers).map(str::to_owned),
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

impl MethodSource for TokenMethods {
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
