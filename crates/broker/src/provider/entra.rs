//! People of one Entra tenant.
//!
//! Owns who they are, who is a guest, and which address counts. Does not verify tokens. Invariant:
//! a person of another tenant is refused, and a guest's address counts only if Entra verified it.

use moongate_tokens::ClaimSet;

use crate::provider::fault::ProviderFault;

/// Claims that guests may match by: groups and app roles, which the tenant gave them.
pub(crate) const GUEST_CLAIMS: [&str; 2] = ["groups", "roles"];

/// Returns the subject of a person, by the claims of the ID token: tenant and object id. `sub` is
/// another one for each client.
pub(crate) fn subject_of(tenant: &str, claims: &ClaimSet) -> Result<String, ProviderFault> {
    let found = claims.text("tid").ok_or(ProviderFault::OtherTenant)?;
    if !found.eq_ignore_ascii_case(tenant) {
        return Err(ProviderFault::OtherTenant);
    }
    match claims.text("oid") {
        // In one case, so that a person stays the same however the config writes the tenant.
        Some(id) if is_id(id) => Ok(format!("{tenant} {id}").to_ascii_lowercase()),
        _ => Err(ProviderFault::NoSubject),
    }
}

fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns true if a person was invited from elsewhere.
pub(crate) fn is_guest(issuer: &str, claims: &ClaimSet) -> bool {
    // 0 is a member. Whatever else is there is not one.
    let is_invited = claims.has("acct") && claims.number("acct") != Some(0);
    // Without `idp`, the issuer is the one who checked the password.
    let is_elsewhere = claims.has("idp") && claims.text("idp") != Some(issuer);
    is_invited || is_elsewhere
}

/// Returns the email address that counts. Entra has no `email_verified`: the tenant answers for its
/// members, and `xms_edov` says that somebody proved a guest's domain.
pub(crate) fn email_of(claims: &ClaimSet, is_guest: bool) -> Option<&str> {
    let is_proved = claims.is_true("xms_edov") || claims.number("xms_edov") == Some(1);
    claims.text("email").filter(|_| !is_guest || is_proved)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://login.microsoftonline.com/T1/v2.0";

    fn claims(text: &str) -> ClaimSet {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_person_is_an_object_of_the_tenant() {
        for (text, expected) in [
            (r#"{"tid":"T1","oid":"O1","sub":"s"}"#, Ok("t1 o1")),
            (r#"{"tid":"t1","oid":"o1"}"#, Ok("t1 o1")),
            (
                r#"{"tid":"T2","oid":"O1"}"#,
                Err(ProviderFault::OtherTenant),
            ),
            (r#"{"oid":"O1"}"#, Err(ProviderFault::OtherTenant)),
            (
                r#"{"tid":["T1"],"oid":"O1"}"#,
                Err(ProviderFault::OtherTenant),
            ),
            (r#"{"tid":"T1","sub":"s"}"#, Err(ProviderFault::NoSubject)),
            (r#"{"tid":"T1","oid":""}"#, Err(ProviderFault::NoSubject)),
            (r#"{"tid":"T1","oid":"O 1"}"#, Err(ProviderFault::NoSubject)),
        ] {
            let found = subject_of("T1", &claims(text));
            assert_eq!(found, expected.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn a_guest_with_the_address_of_the_boss_has_none_unless_it_is_proved() {
        let email = r#""email":"boss@example.com""#;
        for (more, is_invited, counts) in [
            ("", false, true),
            (r#","acct":0"#, false, true),
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
            assert_eq!(is_guest(ISSUER, &claims), is_invited, "{more}");
            let found = email_of(&claims, is_invited);
            assert_eq!(found.is_some(), counts, "{more}");
        }
        let own = format!(r#"{{"idp":"{ISSUER}"}}"#);
        assert!(!is_guest(ISSUER, &claims(&own)));
    }
}
