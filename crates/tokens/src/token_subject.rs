//! Subjects of tokens: who they are, and which of their claims count.
//!
//! Owns the difference between people, guests and programs, also for Microsoft Entra, whose claims
//! mean other things. Does not verify tokens (`verify.rs`). Invariant: the rules for an issuer
//! follow from its name in the config, and never from a claim.

use crate::claims::ClaimSet;
use crate::person_mark::SubjectKind;
use crate::token_fault::TokenFault;

/// Beginnings of Entra's issuers, which the tenant follows: those of both versions of its tokens,
/// for its clouds.
// https://learn.microsoft.com/entra/identity-platform/access-tokens#token-formats
const ENTRA_ISSUERS: [&str; 5] = [
    "https://login.microsoftonline.com/",
    "https://login.microsoftonline.us/",
    "https://login.partner.microsoftonline.cn/",
    "https://sts.windows.net/",
    "https://sts.chinacloudapi.cn/",
];

/// Longest id of an object, in bytes. Those of Entra have 36.
const OBJECT_MAX: usize = 64;

/// Subject of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenSubject<'a> {
    /// Kind of the subject.
    pub(crate) kind: SubjectKind,
    /// Whoever gives out the ids: the issuer, or the tenant of Entra.
    pub(crate) authority: &'a str,
    /// Id of the subject there.
    pub(crate) id: &'a str,
}

/// Tenant of Entra, which gives out the ids of its people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntraTenant<'a> {
    issuer: &'a str,
    id: &'a str,
}

impl<'a> EntraTenant<'a> {
    /// Takes the tenant with this id, in lower case, whose tokens have this issuer.
    pub fn new(issuer: &'a str, id: &'a str) -> Self {
        EntraTenant { issuer, id }
    }

    /// Returns the tenant of an issuer of Entra. `None`: it is another issuer.
    fn of_issuer(issuer: &'a str) -> Option<Self> {
        let path = ENTRA_ISSUERS
            .iter()
            .find_map(|start| issuer.strip_prefix(start))?;
        let id = path.split('/').next().filter(|id| !id.is_empty())?;
        Some(EntraTenant { issuer, id })
    }

    /// Returns the id of the object in the tenant that claims are about.
    ///
    /// # Errors
    /// The claims are of another tenant, or lack the id.
    pub fn object_of<'c>(&self, claims: &'c ClaimSet) -> Result<&'c str, TokenFault> {
        let tenant = claims.text("tid").ok_or(TokenFault::Tenant)?;
        if !tenant.eq_ignore_ascii_case(self.id) {
            return Err(TokenFault::Tenant);
        }
        // `sub` is another one for each application, and `oid` is the same for all of them.
        let object = required_text(claims, "oid")?;
        let is_plain = object.bytes().all(|byte| byte.is_ascii_graphic());
        match is_plain && object.len() <= OBJECT_MAX {
            true => Ok(object),
            false => Err(TokenFault::NoSubject),
        }
    }

    /// Returns true for somebody whom the tenant invited, and another organization vouches for.
    pub fn is_guest(&self, claims: &ClaimSet) -> bool {
        let is_own = |provider: &str| {
            let of_version_1 = provider.strip_prefix("https://sts.windows.net/");
            let of_version_1 = of_version_1.map(|path| path.trim_end_matches('/'));
            provider == self.issuer || of_version_1.is_some_and(|id| id == self.id)
        };
        // Without `idp`, the issuer is the one who checked the password.
        let is_external = claims.has("idp") && !claims.text("idp").is_some_and(is_own);
        // Zero is a member. What is neither counts as a guest.
        let has_account = claims.has("acct") && claims.number("acct") != Some(0);
        is_external || has_account
    }

    /// Returns the email address if Entra has checked who owns its domain. An administrator of any
    /// tenant writes any address into `email`.
    pub fn proved_email<'c>(&self, claims: &'c ClaimSet) -> Option<&'c str> {
        let is_proved = claims.is_true("xms_edov") || claims.number("xms_edov") == Some(1);
        claims.text("email").filter(|_| is_proved)
    }
}

impl<'a> TokenSubject<'a> {
    /// Reads the subject of a token of this issuer.
    pub(crate) fn read(claims: &'a ClaimSet, issuer: &'a str) -> Result<Self, TokenFault> {
        let subject = required_text(claims, "sub")?;
        let Some(tenant) = EntraTenant::of_issuer(issuer) else {
            return Ok(TokenSubject {
                kind: kind_of(claims, subject, None),
                authority: issuer,
                id: subject,
            });
        };
        let id = tenant.object_of(claims)?;
        Ok(TokenSubject {
            kind: kind_of(claims, subject, Some(id)),
            // Two versions of tokens have two issuers, so the tenant stands for both.
            authority: tenant.id,
            id,
        })
    }
}

fn required_text<'a>(claims: &'a ClaimSet, name: &str) -> Result<&'a str, TokenFault> {
    let text = claims.text(name).filter(|text| !text.is_empty());
    text.ok_or(TokenFault::NoSubject)
}

/// Returns whether somebody logged in for a token, or a program used its own credentials.
/// `object` is the `oid` of Entra.
fn kind_of(claims: &ClaimSet, subject: &str, object: Option<&str>) -> SubjectKind {
    // RFC 9068, section 2.2: without a resource owner, `sub` is the client. Entra has `idtyp` if it
    // is asked for, and otherwise gives only a program the same `sub` and `oid`.
    let is_client = [claims.text("client_id"), claims.text("azp")].contains(&Some(subject));
    if is_client || claims.text("idtyp") == Some("app") || object == Some(subject) {
        SubjectKind::Program
    } else {
        SubjectKind::Person
    }
}

/// Returns true for a guest of a tenant of Entra. Other issuers do not tell.
pub(crate) fn is_guest(claims: &ClaimSet, issuer: &str) -> bool {
    EntraTenant::of_issuer(issuer).is_some_and(|tenant| tenant.is_guest(claims))
}

/// Returns the email address of a subject, if the issuer has verified it.
pub(crate) fn verified_email<'a>(claims: &'a ClaimSet, issuer: &str) -> Option<&'a str> {
    let email = match EntraTenant::of_issuer(issuer) {
        Some(tenant) => tenant.proved_email(claims),
        None => claims
            .text("email")
            .filter(|_| claims.is_true("email_verified")),
    };
    email.filter(|email| email.is_ascii())
}

/// Returns true if a token names its groups elsewhere, because they are too many for it.
pub fn lacks_groups(claims: &ClaimSet) -> bool {
    // OpenID Connect Core 1.0, section 5.6.2. Entra has `hasgroups` where a URL carries the token.
    claims.has("hasgroups") || !claims.texts("_claim_names.groups").is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: &str = "11111111-2222-3333-4444-555555555555";
    const ENTRA: &str =
        "https://login.microsoftonline.com/11111111-2222-3333-4444-555555555555/v2.0";
    const ENTRA_V1: &str = "https://sts.windows.net/11111111-2222-3333-4444-555555555555/";
    const OTHER: &str = "https://login.test";

    fn claims(text: &str) -> ClaimSet {
        serde_json::from_str(text).unwrap()
    }

    fn with_tenant(more: &str) -> ClaimSet {
        claims(&format!(
            r#"{{"tid":"{TENANT}","sub":"pairwise","oid":"o1"{more}}}"#
        ))
    }

    #[test]
    fn a_person_of_entra_is_the_tenant_and_the_object() {
        let token = with_tenant("");
        let person = TokenSubject {
            kind: SubjectKind::Person,
            authority: TENANT,
            id: "o1",
        };
        // The same person with tokens of both versions.
        for issuer in [ENTRA, ENTRA_V1] {
            assert_eq!(TokenSubject::read(&token, issuer), Ok(person), "{issuer}");
        }
        // Elsewhere these claims are of no importance.
        let other = TokenSubject::read(&token, OTHER).unwrap();
        assert_eq!((other.authority, other.id), (OTHER, "pairwise"));
    }

    #[test]
    fn a_token_of_entra_without_its_tenant_or_object_is_refused() {
        for (text, fault) in [
            (r#"{"sub":"a","oid":"o"}"#.to_owned(), TokenFault::Tenant),
            (
                r#"{"sub":"a","oid":"o","tid":"66666666-2222-3333-4444-555555555555"}"#.to_owned(),
                TokenFault::Tenant,
            ),
            (
                format!(r#"{{"sub":"a","tid":"{TENANT}"}}"#),
                TokenFault::NoSubject,
            ),
            (
                format!(r#"{{"sub":"a","oid":"","tid":"{TENANT}"}}"#),
                TokenFault::NoSubject,
            ),
            (
                format!(r#"{{"sub":"a","oid":"o 1","tid":"{TENANT}"}}"#),
                TokenFault::NoSubject,
            ),
            (
                format!(r#"{{"oid":"o","tid":"{TENANT}"}}"#),
                TokenFault::NoSubject,
            ),
        ] {
            let token = claims(&text);
            assert_eq!(TokenSubject::read(&token, ENTRA), Err(fault), "{text}");
        }
        // A name that only looks like Entra's is another issuer.
        for issuer in [
            "https://login.microsoftonline.com.evil.test/11111111-2222-3333-4444-555555555555/",
            "http://login.microsoftonline.com/11111111-2222-3333-4444-555555555555/",
            "https://login.microsoftonline.com/",
        ] {
            assert_eq!(EntraTenant::of_issuer(issuer), None, "{issuer}");
        }
    }

    #[test]
    fn a_program_is_not_the_person_of_the_same_id() {
        for (issuer, token) in [
            (OTHER, claims(r#"{"sub":"x","client_id":"x"}"#)),
            (OTHER, claims(r#"{"sub":"x","azp":"x"}"#)),
            (OTHER, claims(r#"{"sub":"x","idtyp":"app"}"#)),
            (ENTRA, with_tenant(r#","idtyp":"app""#)),
            (
                ENTRA,
                claims(&format!(r#"{{"tid":"{TENANT}","sub":"o1","oid":"o1"}}"#)),
            ),
        ] {
            let kind = TokenSubject::read(&token, issuer).map(|subject| subject.kind);
            assert_eq!(kind, Ok(SubjectKind::Program), "{token:?}");
        }
        // `oid` means nothing elsewhere.
        let token = claims(r#"{"sub":"x","oid":"x"}"#);
        let kind = TokenSubject::read(&token, OTHER).map(|subject| subject.kind);
        assert_eq!(kind, Ok(SubjectKind::Person));
    }

    #[test]
    fn a_guest_is_whom_another_organization_vouches_for() {
        let own = format!(r#","idp":"https://sts.windows.net/{TENANT}/""#);
        for (more, expected) in [
            ("", false),
            (r#","acct":0"#, false),
            (&*format!(r#","idp":"{ENTRA}""#), false),
            (&*own, false),
            (r#","acct":1"#, true),
            (r#","acct":"1""#, true),
            (r#","idp":"live.com""#, true),
            (r#","idp":7"#, true),
            (
                r#","idp":"https://sts.windows.net/66666666-2222-3333-4444-555555555555/""#,
                true,
            ),
        ] {
            assert_eq!(is_guest(&with_tenant(more), ENTRA), expected, "{more}");
            assert!(!is_guest(&with_tenant(more), OTHER), "{more}");
        }
    }

    #[test]
    fn an_email_of_entra_counts_only_if_its_domain_was_checked() {
        for (more, entra, other) in [
            ("", false, false),
            (r#","email_verified":true"#, false, true),
            (r#","xms_edov":true"#, true, false),
            (r#","xms_edov":1"#, true, false),
            (r#","xms_edov":false"#, false, false),
            (r#","xms_edov":"true""#, false, false),
        ] {
            let token = with_tenant(&format!(r#","email":"boss@example.com"{more}"#));
            assert_eq!(verified_email(&token, ENTRA).is_some(), entra, "{more}");
            assert_eq!(verified_email(&token, OTHER).is_some(), other, "{more}");
        }
    }

    #[test]
    fn groups_that_do_not_fit_into_a_token_are_noticed() {
        for (text, expected) in [
            (r#"{"groups":["a"]}"#, false),
            (r#"{"_claim_names":{"address":"src1"}}"#, false),
            (
                r#"{"_claim_names":{"groups":"src1"},"_claim_sources":{"src1":{"endpoint":"https://graph.windows.net/x"}}}"#,
                true,
            ),
            (r#"{"hasgroups":true}"#, true),
        ] {
            assert_eq!(lacks_groups(&claims(text)), expected, "{text}");
        }
    }
}
