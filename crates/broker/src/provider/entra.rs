//! People of one Entra tenant.
//!
//! Owns whom the tenant answers for. Does not verify tokens, or read what claims of Entra mean
//! (`moongate_tokens`). Invariant: a person of another tenant is refused, and a guest's address
//! counts only if Entra verified it.

use moongate_tokens::{ClaimSet, EntraTenant, TokenFault};

use crate::provider::fault::ProviderFault;

/// Claims that guests may match by: groups and app roles, which the tenant assigns.
pub(crate) const GUEST_CLAIMS: [&str; 2] = ["groups", "roles"];

/// Returns the subject of a person, by the claims of the ID token.
pub(crate) fn subject_of(
    tenant: EntraTenant<'_>,
    claims: &ClaimSet,
) -> Result<String, ProviderFault> {
    let object = tenant.object_of(claims).map_err(|fault| match fault {
        TokenFault::Tenant => ProviderFault::OtherTenant,
        _ => ProviderFault::NoSubject,
    })?;
    Ok(object.to_owned())
}

/// Returns the email address that counts. Entra has no `email_verified`: the tenant, which is the
/// company's own, answers for its members.
pub(crate) fn email_of<'c>(tenant: EntraTenant<'_>, claims: &'c ClaimSet) -> Option<&'c str> {
    match tenant.is_guest(claims) {
        true => tenant.proved_email(claims),
        false => claims.text("email"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://login.microsoftonline.com/t1/v2.0";

    fn tenant() -> EntraTenant<'static> {
        EntraTenant::new(ISSUER, "t1")
    }

    fn claims(text: &str) -> ClaimSet {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_person_is_an_object_of_the_tenant() {
        for (text, expected) in [
            (r#"{"tid":"t1","oid":"o1","sub":"s"}"#, Ok("o1")),
            (r#"{"tid":"T1","oid":"o1"}"#, Ok("o1")),
            (
                r#"{"tid":"t2","oid":"o1"}"#,
                Err(ProviderFault::OtherTenant),
            ),
            (r#"{"oid":"o1"}"#, Err(ProviderFault::OtherTenant)),
            (
                r#"{"tid":["t1"],"oid":"o1"}"#,
                Err(ProviderFault::OtherTenant),
            ),
            (r#"{"tid":"t1","sub":"s"}"#, Err(ProviderFault::NoSubject)),
            (r#"{"tid":"t1","oid":""}"#, Err(ProviderFault::NoSubject)),
            (r#"{"tid":"t1","oid":"o 1"}"#, Err(ProviderFault::NoSubject)),
        ] {
            let found = subject_of(tenant(), &claims(text));
            assert_eq!(found, expected.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn a_guest_with_the_address_of_the_boss_has_none_unless_it_is_proved() {
        let email = r#""email":"boss@example.com""#;
        for (more, is_invited, counts) in [
            ("", false, true),
            (r#","acct":0"#, false, true),
            (r#","idp":"https://sts.windows.net/t1/""#, false, true),
            (r#","acct":1"#, true, false),
            (r#","acct":"1""#, true, false),
            (r#","idp":"https://sts.windows.net/other/""#, true, false),
            (r#","idp":["x"]"#, true, false),
            (r#","acct":0,"idp":"live.com""#, true, false),
            (r#","acct":1,"xms_edov":false"#, true, false),
            (r#","acct":1,"xms_edov":"0""#, true, false),
            (r#","acct":1,"xms_edov":true"#, true, true),
            (r#","acct":1,"xms_edov":1"#, true, true),
        ] {
            let claims = claims(&format!("{{{email}{more}}}"));
            assert_eq!(tenant().is_guest(&claims), is_invited, "{more}");
            let found = email_of(tenant(), &claims);
            assert_eq!(found.is_some(), counts, "{more}");
        }
    }
}
