//! Role matching by the claims in people's tokens.
//!
//! Owns which roles match. Does not know what a role may use (`moongate_access`). Invariant: a role
//! applies only to people of its issuer, whatever another issuer claims.

use moongate_access::auth::RoleMatch;

use crate::claims::ClaimSet;
use crate::token_subject::{is_guest, lacks_groups, verified_email};

/// Claim with groups.
const GROUPS: &str = "groups";
/// Claims of guests that their tenant vouches for: groups, and app roles.
const GUEST_CLAIMS: [&str; 2] = [GROUPS, "roles"];

/// Claims about a person, from wherever they come.
pub trait RoleClaims {
    /// Returns the texts of a claim: of a text itself, or of a list.
    fn texts(&self, path: &str) -> Vec<&str>;

    /// Returns the email address, if the issuer vouches for it.
    fn verified_email(&self) -> Option<&str>;

    /// Returns true if the person belongs to another organisation.
    fn is_guest(&self) -> bool;
}

/// Claims of an issuer's token.
pub(crate) struct IssuedClaims<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) claims: &'a ClaimSet,
}

impl RoleClaims for IssuedClaims<'_> {
    fn texts(&self, path: &str) -> Vec<&str> {
        self.claims.texts(path)
    }

    fn verified_email(&self) -> Option<&str> {
        verified_email(self.claims, self.issuer)
    }

    fn is_guest(&self) -> bool {
        is_guest(self.claims, self.issuer)
    }
}

/// Returns the names of the roles that match an issuer's token.
pub fn roles_of<'a>(
    matches: &'a [RoleMatch],
    issuer: &str,
    claims: &impl RoleClaims,
) -> Vec<&'a str> {
    matches
        .iter()
        .filter(|role| role.issuer == issuer && is_match(role, claims))
        .map(|role| role.role.as_str())
        .collect()
}

/// Returns true if a role of an issuer goes by groups, but a token has them elsewhere.
pub(crate) fn lacks_matched_groups(matches: &[RoleMatch], issuer: &str, claims: &ClaimSet) -> bool {
    let mut own = matches.iter().filter(|role| role.issuer == issuer);
    lacks_groups(claims) && own.any(|role| role.claims.contains_key(GROUPS))
}

/// Returns true if every part of a match holds, each by any of its values.
fn is_match(role: &RoleMatch, claims: &impl RoleClaims) -> bool {
    let is_guest = claims.is_guest();
    // Whoever may invite guests must not decide who may use the gateway.
    if role.anyone {
        return !is_guest;
    }
    // Fails closed: a match without parts matches nobody.
    if role.claims.is_empty() && role.emails.is_none() {
        return false;
    }
    let has_claims = role.claims.iter().all(|(path, values)| {
        let counts = !is_guest || GUEST_CLAIMS.contains(&path.as_str());
        let texts = claims.texts(path);
        counts && values.iter().any(|value| texts.contains(&value.as_str()))
    });
    let matches_email = role.emails.as_ref().is_none_or(|patterns| {
        claims
            .verified_email()
            .is_some_and(|email| patterns.iter().any(|pattern| matches_email(pattern, email)))
    });
    has_claims && matches_email
}

/// Compares an address, ignoring case in its domain.
fn matches_email(pattern: &str, email: &str) -> bool {
    let (Some((name, domain)), Some((own_name, own_domain))) =
        (pattern.rsplit_once('@'), email.rsplit_once('@'))
    else {
        return false;
    };
    // With a second sign, readers differ about where the domain begins.
    let is_plain = !own_name.contains('@');
    is_plain && domain.eq_ignore_ascii_case(own_domain) && (name == "*" || name == own_name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const ISSUER: &str = "https://login.test";

    fn role(claims: &[(&str, &[&str])], emails: &[&str]) -> RoleMatch {
        let texts = |values: &[&str]| -> Vec<String> {
            values.iter().map(|&value| value.to_owned()).collect()
        };
        let claims: BTreeMap<String, Vec<String>> = claims
            .iter()
            .map(|(path, values)| ((*path).to_owned(), texts(values)))
            .collect();
        RoleMatch {
            role: "staff".to_owned(),
            issuer: ISSUER.to_owned(),
            anyone: false,
            claims,
            emails: (!emails.is_empty()).then(|| texts(emails)),
        }
    }

    fn matches_text(role: &RoleMatch, claims: &str) -> bool {
        let claims = &serde_json::from_str(claims).unwrap();
        let issuer = &role.issuer;
        is_match(role, &IssuedClaims { issuer, claims })
    }

    #[test]
    fn every_part_must_hold_by_any_of_its_values() {
        let role = role(
            &[("groups", &["a", "b"]), ("realm.roles", &["admin"])],
            &["*@Example.com", "bob@other.test"],
        );
        let rest = r#""realm":{"roles":["admin"]},"email_verified":true"#;
        for (claims, expected) in [
            (
                format!(r#"{{"groups":["x","b"],"email":"ann@example.COM",{rest}}}"#),
                true,
            ),
            (
                format!(r#"{{"groups":"a","email":"bob@other.test",{rest}}}"#),
                true,
            ),
            (
                format!(r#"{{"groups":"a","email":"Bob@other.test",{rest}}}"#),
                false,
            ),
            (
                format!(r#"{{"groups":["x"],"email":"ann@example.com",{rest}}}"#),
                false,
            ),
            (format!(r#"{{"groups":["a"],{rest}}}"#), false),
            (
                r#"{"groups":["a"],"email":"ann@example.com","email_verified":true}"#.to_owned(),
                false,
            ),
        ] {
            assert_eq!(matches_text(&role, &claims), expected, "{claims}");
        }
    }

    #[test]
    fn an_email_counts_only_if_it_is_verified_and_plain() {
        let role = role(&[], &["*@example.com"]);
        for (claims, expected) in [
            (r#"{"email":"ann@example.com","email_verified":true}"#, true),
            (
                r#"{"email":"ann@example.com","email_verified":"true"}"#,
                false,
            ),
            (
                r#"{"email":"ann@example.com","email_verified":false}"#,
                false,
            ),
            (r#"{"email":"ann@example.com"}"#, false),
            (
                r#"{"email":"\u00e4@example.com","email_verified":true}"#,
                false,
            ),
            (
                r#"{"email":"ann@example.com.evil.test","email_verified":true}"#,
                false,
            ),
            (
                r#"{"email":"ann@example.com@evil.test","email_verified":true}"#,
                false,
            ),
            (
                r#"{"email":"ann@evil.test@example.com","email_verified":true}"#,
                false,
            ),
        ] {
            assert_eq!(matches_text(&role, claims), expected, "{claims}");
        }
    }

    #[test]
    fn a_role_is_for_one_issuer_and_a_match_without_parts_for_nobody() {
        let claims: ClaimSet = serde_json::from_str(r#"{"groups":["a"]}"#).unwrap();
        let claims = IssuedClaims {
            issuer: ISSUER,
            claims: &claims,
        };
        let matches = [role(&[("groups", &["a"])], &[])];
        assert_eq!(roles_of(&matches, ISSUER, &claims), ["staff"]);
        for issuer in ["https://evil.test", "https://login.test/", ""] {
            assert!(roles_of(&matches, issuer, &claims).is_empty(), "{issuer}");
        }
        assert!(!is_match(&role(&[], &[]), &claims));
        let anyone = RoleMatch {
            anyone: true,
            ..role(&[], &[])
        };
        assert!(is_match(&anyone, &claims));
    }

    #[test]
    fn a_guest_of_entra_matches_by_groups_and_app_roles_alone() {
        const ENTRA: &str = "https://login.microsoftonline.com/t/v2.0";
        let of_entra = |role: RoleMatch| RoleMatch {
            issuer: ENTRA.to_owned(),
            ..role
        };
        let anyone = of_entra(RoleMatch {
            anyone: true,
            ..role(&[], &[])
        });
        let everything = r#""groups":["a"],"roles":["b"],"team":"red","email":"boss@example.com""#;
        let member = format!(r#"{{"tid":"t",{everything},"xms_edov":true}}"#);
        let guest = format!(r#"{{"tid":"t","acct":1,{everything}}}"#);
        let known_guest = format!(r#"{{"tid":"t","acct":1,{everything},"xms_edov":true}}"#);
        for (role, is_for_member, is_for_guest, is_for_known_guest) in [
            (anyone, true, false, false),
            (role(&[("groups", &["a"])], &[]), true, true, true),
            (role(&[("roles", &["b"])], &[]), true, true, true),
            (role(&[("team", &["red"])], &[]), true, false, false),
            (role(&[], &["*@example.com"]), true, false, true),
        ] {
            let role = of_entra(role);
            assert_eq!(matches_text(&role, &member), is_for_member, "{role:?}");
            assert_eq!(matches_text(&role, &guest), is_for_guest, "{role:?}");
            assert_eq!(
                matches_text(&role, &known_guest),
                is_for_known_guest,
                "{role:?}"
            );
        }
    }

    #[test]
    fn groups_elsewhere_matter_only_to_roles_that_go_by_groups() {
        let token: ClaimSet = serde_json::from_str(r#"{"hasgroups":true}"#).unwrap();
        let by_groups = [role(&[("groups", &["a"])], &[])];
        assert!(lacks_matched_groups(&by_groups, ISSUER, &token));
        assert!(!lacks_matched_groups(
            &by_groups,
            "https://other.test",
            &token
        ));
        let by_app_roles = [role(&[("roles", &["a"])], &[])];
        assert!(!lacks_matched_groups(&by_app_roles, ISSUER, &token));
    }

    /// Person of another organisation, with a group and an address.
    struct Guest;

    impl RoleClaims for Guest {
        fn texts(&self, path: &str) -> Vec<&str> {
            if path == "groups" {
                vec!["a"]
            } else {
                Vec::new()
            }
        }

        fn verified_email(&self) -> Option<&str> {
            None
        }

        fn is_guest(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_guest_is_not_anyone_and_has_the_roles_that_name_a_group() {
        let anyone = RoleMatch {
            anyone: true,
            ..role(&[], &[])
        };
        assert!(!is_match(&anyone, &Guest));
        assert!(is_match(&role(&[("groups", &["a"])], &[]), &Guest));
        assert!(!is_match(&role(&[], &["*@example.com"]), &Guest));
        assert!(roles_of(&[anyone], ISSUER, &Guest).is_empty());
    }
}
