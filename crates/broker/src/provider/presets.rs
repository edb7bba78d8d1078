//! Authorization requests to each kind of company login.
//!
//! Owns scopes and parameters of the request that the browser opens. Does not read answers.
//! Invariant: `prompt` is sent only if a provider issued no token for renewals, and `resource`
//! never, because Entra refuses it.

use moongate_access::auth::{ProviderKind, ProviderSettings};
use moongate_oauth::{SecretText, code_challenge};
use url::Url;

use crate::provider::metadata::ProviderEndpoints;

/// Request that the browser opens.
pub(crate) struct AuthorizeCall<'a> {
    pub(crate) settings: &'a ProviderSettings,
    pub(crate) endpoints: &'a ProviderEndpoints,
    pub(crate) redirect: &'a str,
    pub(crate) state: &'a SecretText,
    pub(crate) nonce: &'a SecretText,
    pub(crate) verifier: &'a SecretText,
    /// True if the provider should ask for consent again.
    pub(crate) asks_again: bool,
}

impl AuthorizeCall<'_> {
    /// Returns the URL of the request.
    pub(crate) fn url(&self) -> Url {
        let mut url = self.endpoints.authorization.clone();
        let scope = scope_of(self.settings, &self.endpoints.scopes);
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", self.redirect)
            .append_pair("scope", &scope)
            .append_pair("state", self.state.expose())
            .append_pair("code_challenge", &code_challenge(self.verifier))
            .append_pair("code_challenge_method", "S256");
        if gives_id_tokens(&self.settings.kind) {
            query
                .append_pair("nonce", self.nonce.expose())
                .append_pair("response_mode", "query");
        }
        if let ProviderKind::Google { domain } = &self.settings.kind {
            // Google does not support `offline_access`. `hd` is only a hint here, and checked
            // later.
            query
                .append_pair("access_type", "offline")
                .append_pair("hd", domain);
            if self.asks_again {
                query.append_pair("prompt", "consent");
            }
        }
        drop(query);
        url
    }
}

/// Returns true if a provider issues ID tokens.
pub(crate) fn gives_id_tokens(kind: &ProviderKind) -> bool {
    !matches!(kind, ProviderKind::GitHub { .. })
}

/// Returns the scope of a login. `supported` lists the provider's scopes.
fn scope_of(settings: &ProviderSettings, supported: &[String]) -> String {
    if let Some(scopes) = &settings.scopes {
        let has_openid = scopes.iter().any(|scope| scope == "openid");
        let needs_openid = gives_id_tokens(&settings.kind) && !has_openid;
        let openid = needs_openid.then_some("openid");
        let configured = scopes.iter().map(String::as_str);
        return openid
            .into_iter()
            .chain(configured)
            .collect::<Vec<_>>()
            .join(" ");
    }
    let scope = match &settings.kind {
        ProviderKind::GitHub { .. } => "read:user user:email read:org",
        ProviderKind::Entra { .. } => "openid profile email offline_access",
        ProviderKind::Google { .. } => "openid profile email",
        ProviderKind::Issuer if supported.iter().any(|scope| scope == "offline_access") => {
            "openid profile email offline_access"
        }
        ProviderKind::Issuer => "openid profile email",
    };
    scope.to_owned()
}

/// Returns the scope of a renewal. Entra needs it to issue an ID token, and others keep that of the
/// login.
pub(crate) fn renewal_scope(settings: &ProviderSettings) -> Option<String> {
    matches!(settings.kind, ProviderKind::Entra { .. }).then(|| scope_of(settings, &[]))
}

/// Returns true if GitHub shows us a person's addresses.
pub(crate) fn reads_emails(settings: &ProviderSettings) -> bool {
    let scope = scope_of(settings, &[]);
    scope
        .split(' ')
        .any(|scope| matches!(scope, "user" | "user:email"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn settings(kind: ProviderKind, scopes: Option<&[&str]>) -> ProviderSettings {
        ProviderSettings {
            kind,
            issuer: "https://login.test".to_owned(),
            client_id: "app one".to_owned(),
            client_secret: None,
            scopes: scopes.map(|scopes| scopes.iter().map(|&scope| scope.to_owned()).collect()),
            userinfo: false,
            trust_email: false,
        }
    }

    fn google() -> ProviderKind {
        ProviderKind::Google {
            domain: "example.com".to_owned(),
        }
    }

    fn github() -> ProviderKind {
        ProviderKind::GitHub {
            orgs: vec!["acme".to_owned()],
        }
    }

    fn entra() -> ProviderKind {
        ProviderKind::Entra {
            tenant: "t".to_owned(),
        }
    }

    /// Returns the parameters of a request, without duplicates.
    fn query(settings: &ProviderSettings, asks_again: bool) -> BTreeMap<String, String> {
        let endpoints = ProviderEndpoints {
            issuer: settings.issuer.clone(),
            authorization: Url::parse("https://login.test/authorize?tenant=1").unwrap(),
            token: Url::parse("https://login.test/token").unwrap(),
            userinfo: None,
            keys: None,
            scopes: vec!["offline_access".to_owned()],
            takes_posted_secret: true,
            sends_issuer: false,
        };
        let call = AuthorizeCall {
            settings,
            endpoints: &endpoints,
            redirect: "https://mcp.test/oauth/provider",
            state: &SecretText::new("state"),
            nonce: &SecretText::new("nonce"),
            verifier: &SecretText::new("verifier"),
            asks_again,
        };
        let url = call.url();
        let query: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
        assert_eq!(query.len(), url.query_pairs().count(), "{url}");
        query
    }

    #[test]
    fn every_request_has_state_challenge_and_no_prompt_or_resource() {
        for kind in [google(), github(), entra(), ProviderKind::Issuer] {
            let query = query(&settings(kind.clone(), None), false);
            assert_eq!(query["state"], "state", "{kind:?}");
            assert_eq!(query["code_challenge_method"], "S256", "{kind:?}");
            assert_eq!(query["client_id"], "app one", "{kind:?}");
            assert_eq!(query["tenant"], "1", "{kind:?}");
            assert_ne!(query["code_challenge"], "verifier", "{kind:?}");
            assert!(!query.contains_key("prompt"), "{kind:?}");
            assert!(!query.contains_key("resource"), "{kind:?}");
            let has_nonce = query.contains_key("nonce");
            assert_eq!(has_nonce, gives_id_tokens(&kind), "{kind:?}");
        }
    }

    #[test]
    fn each_kind_asks_for_renewals_in_its_way() {
        let google = settings(google(), None);
        let first = query(&google, false);
        assert_eq!(first["access_type"], "offline");
        assert_eq!(first["scope"], "openid profile email");
        assert_eq!(query(&google, true)["prompt"], "consent");
        let entra = settings(entra(), None);
        let again = query(&entra, true);
        assert!(!again.contains_key("prompt"));
        assert_eq!(again["scope"], "openid profile email offline_access");
        assert_eq!(renewal_scope(&entra).as_ref(), Some(&again["scope"]));
        let issuer = settings(ProviderKind::Issuer, None);
        assert_eq!(query(&issuer, false)["scope"], again["scope"]);
        assert_eq!(renewal_scope(&issuer), None);
        assert_eq!(scope_of(&issuer, &[]), "openid profile email");
    }

    #[test]
    fn configured_scopes_replace_the_presets_but_for_openid() {
        let issuer = settings(ProviderKind::Issuer, Some(&["groups"]));
        assert_eq!(query(&issuer, false)["scope"], "openid groups");
        let issuer = settings(ProviderKind::Issuer, Some(&["groups", "openid"]));
        assert_eq!(query(&issuer, false)["scope"], "groups openid");
        let own = settings(github(), Some(&["read:org"]));
        assert_eq!(query(&own, false)["scope"], "read:org");
        assert!(!reads_emails(&own));
        assert!(reads_emails(&settings(github(), None)));
    }
}
