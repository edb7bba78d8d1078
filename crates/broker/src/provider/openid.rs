//! People authenticated by ID tokens.
//!
//! Owns the steps from tokens to claims, and from claims to a subject. Does not know roles.
//! Invariant: all claims are about the subject of one verified answer.

use jiff::Timestamp;
use moongate_access::auth::{ProviderKind, ProviderSettings};
use moongate_oauth::SecretText;
use moongate_tokens::{ClaimSet, EntraTenant, IdTokenUse, JwkSet, TokenFault, verify_id_token};

use crate::provider::entra;
use crate::provider::facts::PersonClaims;
use crate::provider::fault::{ProviderFault, StepFault};
use crate::provider::google;
use crate::provider::metadata::ProviderEndpoints;
use crate::provider::provider_http::ProviderHttp;
use crate::provider::token_request::ProviderTokens;
use crate::provider::userinfo::fetch_userinfo;

/// Provider that issues ID tokens.
pub(crate) struct OpenIdProvider<'a> {
    pub(crate) http: &'a ProviderHttp,
    pub(crate) endpoints: &'a ProviderEndpoints,
    pub(crate) settings: &'a ProviderSettings,
}

impl OpenIdProvider<'_> {
    /// Returns the claims of the tokens' person. With the `nonce` of a login, an ID token is
    /// required. A renewal may lack one (OpenID Connect Core 1.0, section 12.2).
    pub(crate) async fn claims_of(
        &self,
        tokens: &ProviderTokens,
        nonce: Option<&SecretText>,
    ) -> Result<PersonClaims, StepFault> {
        let id = match &tokens.id_token {
            Some(text) => Some(self.verify(text, nonce).await?),
            None if nonce.is_some() => return Err(ProviderFault::BadToken.into()),
            None => None,
        };
        let userinfo = match &self.endpoints.userinfo {
            Some(url) if self.settings.userinfo || id.is_none() => {
                Some(fetch_userinfo(self.http, url, &tokens.access).await?)
            }
            _ => None,
        };
        // Section 5.3.2: claims about another subject "MUST NOT be used".
        if let (Some(id), Some(userinfo)) = (&id, &userinfo)
            && id.text("sub") != userinfo.text("sub")
        {
            return Err(StepFault::OtherSubject);
        }
        Ok(PersonClaims { id, userinfo })
    }

    /// Verifies an ID token. Keys are fetched if none matches.
    async fn verify(
        &self,
        text: &SecretText,
        nonce: Option<&SecretText>,
    ) -> Result<ClaimSet, StepFault> {
        let keys = self.endpoints.keys.as_ref();
        let keys = keys.ok_or(ProviderFault::BadAnswer)?;
        if let Some(set) = keys.current() {
            match self.verify_with(&set, text, nonce) {
                Err(StepFault::Token(TokenFault::UnknownKey)) => {}
                verified => return verified,
            }
        }
        if keys.may_fetch() {
            keys.clone().refresh().await;
        }
        let set = keys.current().ok_or(ProviderFault::Down)?;
        self.verify_with(&set, text, nonce)
    }

    fn verify_with(
        &self,
        keys: &JwkSet,
        text: &SecretText,
        nonce: Option<&SecretText>,
    ) -> Result<ClaimSet, StepFault> {
        let call = IdTokenUse {
            issuer: &self.endpoints.issuer,
            client_id: &self.settings.client_id,
            nonce: nonce.map(SecretText::expose),
            now: Timestamp::now(),
        };
        verify_id_token(text.expose(), keys, &call).map_err(StepFault::Token)
    }
}

/// Returns the subject of claims. `None`: the answer has no subject, because the provider sends no
/// ID token at a renewal.
pub(crate) fn subject_of(
    settings: &ProviderSettings,
    claims: &PersonClaims,
) -> Result<Option<String>, ProviderFault> {
    match &settings.kind {
        ProviderKind::Entra { tenant } => {
            // Only an ID token has the tenant and object ids.
            let id = claims.id.as_ref().ok_or(ProviderFault::BadAnswer)?;
            let tenant = EntraTenant::new(&settings.issuer, tenant);
            return entra::subject_of(tenant, id).map(Some);
        }
        ProviderKind::Google { domain } => {
            let first = claims.sets().next().ok_or(ProviderFault::BadAnswer)?;
            google::check_domain(domain, first)?;
        }
        ProviderKind::GitHub { .. } | ProviderKind::Issuer => {}
    }
    let first = claims.sets().next();
    Ok(first
        .and_then(|claims| claims.text("sub"))
        .map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(id: Option<&str>, userinfo: Option<&str>) -> PersonClaims {
        let read = |text: &str| serde_json::from_str(text).unwrap();
        PersonClaims {
            id: id.map(read),
            userinfo: userinfo.map(read),
        }
    }

    fn settings(kind: &ProviderKind) -> ProviderSettings {
        ProviderSettings {
            kind: kind.clone(),
            issuer: "https://login.test".to_owned(),
            client_id: "app".to_owned(),
            client_secret: None,
            scopes: None,
            userinfo: false,
            trust_email: false,
        }
    }

    #[test]
    fn a_subject_comes_from_a_proof_that_has_what_the_kind_needs() {
        let entra = ProviderKind::Entra {
            tenant: "t1".to_owned(),
        };
        let google = ProviderKind::Google {
            domain: "example.com".to_owned(),
        };
        let sub = Some(r#"{"sub":"ann"}"#);
        let own = Some(r#"{"sub":"ann","hd":"example.com"}"#);
        let object = Some(r#"{"sub":"s","tid":"t1","oid":"o1"}"#);
        for (kind, id, userinfo, expected) in [
            (&ProviderKind::Issuer, sub, None, Ok(Some("ann"))),
            (&ProviderKind::Issuer, None, sub, Ok(Some("ann"))),
            (&ProviderKind::Issuer, None, None, Ok(None)),
            (&google, own, None, Ok(Some("ann"))),
            (&google, sub, None, Err(ProviderFault::OtherDomain)),
            (&google, sub, own, Err(ProviderFault::OtherDomain)),
            (&google, None, own, Ok(Some("ann"))),
            (&google, None, None, Err(ProviderFault::BadAnswer)),
            (&entra, object, None, Ok(Some("o1"))),
            (&entra, None, object, Err(ProviderFault::BadAnswer)),
            (&entra, sub, object, Err(ProviderFault::OtherTenant)),
        ] {
            let found = subject_of(&settings(kind), &claims(id, userinfo));
            let expected = expected.map(|subject| subject.map(str::to_owned));
            assert_eq!(found, expected, "{kind:?}");
        }
    }
}
