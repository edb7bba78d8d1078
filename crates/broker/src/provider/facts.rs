//! Facts about a person, from a provider's claims.
//!
//! Owns which claims are kept, and which address is trusted. Does not decide roles. Invariant: a
//! missing claim is empty, never an earlier value, and claims that no role needs are not kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use moongate_access::auth::{ProviderKind, ProviderSettings, RoleMatch};
use moongate_tokens::{ClaimSet, EntraTenant, lacks_groups, log_name, roles_of};

use crate::person_facts::{PersonFacts, wanted_digest};
use crate::provider::entra;

/// Maximum size of a person's claims, in bytes.
const CLAIMS_MAX: usize = 4 * 1024;
/// Longest email address, in bytes (RFC 5321, section 4.5.3.1.3).
const EMAIL_MAX: usize = 254;

/// Claims that the current roles need.
pub(crate) struct WantedFacts {
    matches: Arc<[RoleMatch]>,
    issuer: String,
    digest: [u8; 8],
    values: BTreeMap<String, BTreeSet<String>>,
}

/// Claims of one person, those of the ID token first.
#[derive(Debug)]
pub(crate) struct PersonClaims {
    pub(crate) id: Option<ClaimSet>,
    pub(crate) userinfo: Option<ClaimSet>,
}

impl WantedFacts {
    /// Finds out what these roles ask for people of a company's login.
    pub(crate) fn new(matches: Arc<[RoleMatch]>, settings: &ProviderSettings) -> Self {
        let issuer = settings.issuer.as_str();
        let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for role in matches.iter().filter(|role| role.issuer == issuer) {
            for (path, texts) in &role.claims {
                let known = values.entry(path.clone()).or_default();
                known.extend(texts.iter().cloned());
            }
        }
        WantedFacts {
            digest: wanted_digest(&matches, settings),
            matches,
            issuer: issuer.to_owned(),
            values,
        }
    }

    /// Returns the digest of the needed claims.
    pub(crate) fn digest(&self) -> [u8; 8] {
        self.digest
    }

    /// Returns the values that roles name for a claim.
    pub(crate) fn values(&self, path: &str) -> impl Iterator<Item = &str> {
        self.values
            .get(path)
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    /// Returns true if some role matches a person with these facts.
    pub(crate) fn fits(&self, facts: &PersonFacts) -> bool {
        !roles_of(&self.matches, &self.issuer, facts).is_empty()
    }

    /// Returns those of a person's claims that some role names.
    fn keep(&self, claims: &PersonClaims) -> BTreeMap<String, Vec<String>> {
        let mut kept = BTreeMap::new();
        let mut size = 0;
        for (path, values) in &self.values {
            let own: BTreeSet<&str> = claims.texts(path).into_iter().collect();
            let mut texts = Vec::new();
            for value in values.iter().filter(|value| own.contains(value.as_str())) {
                size += path.len() + value.len();
                if size <= CLAIMS_MAX {
                    texts.push(value.clone());
                }
            }
            if !texts.is_empty() {
                kept.insert(path.clone(), texts);
            }
        }
        kept
    }
}

impl PersonClaims {
    /// Returns the claims of all sources, the ID token first.
    pub(crate) fn sets(&self) -> impl Iterator<Item = &ClaimSet> {
        self.id.iter().chain(&self.userinfo)
    }

    /// Returns the texts of a claim, from the first source that has any.
    fn texts(&self, path: &str) -> Vec<&str> {
        self.sets()
            .map(|claims| claims.texts(path))
            .find(|texts| !texts.is_empty())
            .unwrap_or_default()
    }

    /// Returns the trusted email address. Address and proof come from the same source.
    fn email(&self, trusts_all: bool) -> Option<&str> {
        self.sets()
            .filter(|claims| trusts_all || claims.is_true("email_verified"))
            .find_map(|claims| claims.text("email"))
    }

    /// Returns true if the person has more groups than a token can name.
    pub(crate) fn lacks_groups(&self) -> bool {
        self.sets().any(lacks_groups)
    }
}

/// Returns the facts about a person from verified claims.
pub(crate) fn facts_of(
    settings: &ProviderSettings,
    wanted: &WantedFacts,
    claims: &PersonClaims,
    subject: &str,
) -> PersonFacts {
    let mut kept = wanted.keep(claims);
    let mut is_guest = false;
    let email = match (&settings.kind, &claims.id) {
        (ProviderKind::Entra { tenant }, Some(id)) => {
            let tenant = EntraTenant::new(&settings.issuer, tenant);
            is_guest = tenant.is_guest(id);
            entra::email_of(tenant, id)
        }
        (ProviderKind::Entra { .. }, None) => None,
        _ => claims.email(settings.trust_email),
    };
    if is_guest {
        kept.retain(|path, _| entra::GUEST_CLAIMS.contains(&path.as_str()));
    }
    person_facts(settings, subject, email, kept, is_guest)
}

/// Assembles facts. Only a plain email address is kept.
pub(crate) fn person_facts(
    settings: &ProviderSettings,
    subject: &str,
    email: Option<&str>,
    claims: BTreeMap<String, Vec<String>>,
    is_guest: bool,
) -> PersonFacts {
    let email = email.filter(|email| is_plain_email(email));
    let name = match email {
        Some(email) => log_name(email),
        None => log_name(&format!("{subject} at {}", settings.issuer)),
    };
    PersonFacts {
        name,
        email: email.map(str::to_owned),
        claims,
        is_guest,
    }
}

fn is_plain_email(email: &str) -> bool {
    let is_visible = email.bytes().all(|byte| byte.is_ascii_graphic());
    // With a second sign, readers differ about where the domain begins.
    is_visible && email.len() <= EMAIL_MAX && email.matches('@').count() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://login.test";

    fn settings(kind: ProviderKind, trust_email: bool) -> ProviderSettings {
        ProviderSettings {
            kind,
            issuer: ISSUER.to_owned(),
            client_id: "app".to_owned(),
            client_secret: None,
            scopes: None,
            userinfo: false,
            trust_email,
        }
    }

    fn wanted(claims: &[(&str, &[&str])]) -> WantedFacts {
        let texts = |values: &[&str]| -> Vec<String> {
            values.iter().map(|&value| value.to_owned()).collect()
        };
        let role = RoleMatch {
            role: "staff".to_owned(),
            issuer: ISSUER.to_owned(),
            anyone: false,
            claims: claims
                .iter()
                .map(|(path, values)| ((*path).to_owned(), texts(values)))
                .collect(),
            emails: None,
        };
        let foreign = RoleMatch {
            issuer: "https://other.test".to_owned(),
            claims: [("secrets".to_owned(), vec!["x".to_owned()])].into(),
            ..role.clone()
        };
        let settings = settings(ProviderKind::Issuer, false);
        WantedFacts::new(vec![role, foreign].into(), &settings)
    }

    fn claims(id: &str, userinfo: Option<&str>) -> PersonClaims {
        PersonClaims {
            id: Some(serde_json::from_str(id).unwrap()),
            userinfo: userinfo.map(|text| serde_json::from_str(text).unwrap()),
        }
    }

    #[test]
    fn only_what_a_role_of_this_issuer_asks_for_is_kept() {
        let wanted = wanted(&[("groups", &["a", "b"]), ("realm.roles", &["admin"])]);
        let claims = claims(
            r#"{"groups":["b","secret"],"secrets":["x"],"realm":{"other":["user"]}}"#,
            Some(r#"{"groups":["a"],"realm":{"roles":["admin"]}}"#),
        );
        let facts = facts_of(
            &settings(ProviderKind::Issuer, false),
            &wanted,
            &claims,
            "ann",
        );
        let expected = [
            ("groups".to_owned(), vec!["b".to_owned()]),
            ("realm.roles".to_owned(), vec!["admin".to_owned()]),
        ];
        assert_eq!(facts.claims, BTreeMap::from(expected));
        assert_eq!(facts.name, "ann at https://login.test");
        assert!(wanted.fits(&facts));
        let nothing = PersonClaims {
            id: None,
            userinfo: None,
        };
        let facts = facts_of(
            &settings(ProviderKind::Issuer, true),
            &wanted,
            &nothing,
            "ann",
        );
        assert!(facts.claims.is_empty() && facts.email.is_none());
        assert!(!wanted.fits(&facts));
    }

    #[test]
    fn claims_have_a_bound() {
        let long = "x".repeat(1000);
        let values: Vec<String> = (0..10).map(|n| format!("{long}{n}")).collect();
        let texts: Vec<&str> = values.iter().map(String::as_str).collect();
        let wanted = wanted(&[("groups", &texts)]);
        let text = format!(r#"{{"groups":["{}"]}}"#, texts.join("\",\""));
        let kept = wanted.keep(&claims(&text, None));
        assert_eq!(kept["groups"].len(), 4);
    }

    #[test]
    fn an_address_counts_only_if_it_is_proved_or_the_provider_trusted() {
        let wanted = wanted(&[]);
        for (id, userinfo, trusted, email) in [
            (r#"{"email":"a@b.test"}"#, None, false, None),
            (r#"{"email":"a@b.test"}"#, None, true, Some("a@b.test")),
            (
                r#"{"email":"a@b.test","email_verified":true}"#,
                None,
                false,
                Some("a@b.test"),
            ),
            (
                r#"{"email":"a@b.test","email_verified":"true"}"#,
                None,
                false,
                None,
            ),
            // The proof of one address does not cover another.
            (
                r#"{"email":"boss@b.test"}"#,
                Some(r#"{"email_verified":true}"#),
                false,
                None,
            ),
            (
                "{}",
                Some(r#"{"email":"a@b.test","email_verified":true}"#),
                false,
                Some("a@b.test"),
            ),
            (r#"{"email":"\u00e4@b.test"}"#, None, true, None),
            (r#"{"email":"a@b.test\n"}"#, None, true, None),
            (r#"{"email":"nobody"}"#, None, true, None),
        ] {
            let settings = settings(ProviderKind::Issuer, trusted);
            let facts = facts_of(&settings, &wanted, &claims(id, userinfo), "ann");
            assert_eq!(facts.email.as_deref(), email, "{id}");
        }
    }

    #[test]
    fn a_guest_keeps_groups_and_app_roles_alone() {
        let wanted = wanted(&[
            ("groups", &["g"]),
            ("roles", &["r"]),
            ("department", &["board"]),
        ]);
        let entra = ProviderKind::Entra {
            tenant: "t1".to_owned(),
        };
        let member = r#""groups":["g"],"roles":["r"],"department":"board","email":"b@b.test""#;
        let settings = settings(entra, true);
        let own = claims(&format!("{{{member}}}"), None);
        let facts = facts_of(&settings, &wanted, &own, "o1");
        assert_eq!(facts.claims.len(), 3);
        assert_eq!(facts.email.as_deref(), Some("b@b.test"));
        let guest = claims(&format!(r#"{{{member},"acct":1}}"#), None);
        let facts = facts_of(&settings, &wanted, &guest, "o1");
        assert!(facts.is_guest && facts.email.is_none());
        let paths: Vec<&str> = facts.claims.keys().map(String::as_str).collect();
        assert_eq!(paths, ["groups", "roles"]);
    }

    #[test]
    fn groups_that_are_elsewhere_are_too_many() {
        for (text, expected) in [
            (r#"{"_claim_names":{"groups":"src1"}}"#, true),
            (r#"{"hasgroups":true}"#, true),
            (r#"{"_claim_names":{"address":"src1"}}"#, false),
            (r#"{"groups":["a"]}"#, false),
        ] {
            let claims = claims(text, None);
            assert_eq!(claims.lacks_groups(), expected, "{text}");
        }
    }
}
