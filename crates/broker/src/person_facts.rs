//! Facts about a person that roles match by.
//!
//! Owns which claims are kept, and the digest of what is asked of people. Does not read answers of
//! the company's login (`provider`). Invariant: an email is here only if it counts.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use aws_lc_rs::digest::{Context, SHA256};
use moongate_access::auth::{ProviderKind, ProviderSettings, RoleMatch};
use moongate_tokens::RoleClaims;
use serde::{Deserialize, Serialize};

/// Facts about a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PersonFacts {
    /// Name for logs, without line breaks.
    pub(crate) name: String,
    /// Email address, if the company's login vouches for it.
    pub(crate) email: Option<String>,
    /// Values that some role names, by claim path.
    pub(crate) claims: BTreeMap<String, Vec<String>>,
    /// True for a guest, who belongs to another company.
    pub(crate) is_guest: bool,
}

impl RoleClaims for PersonFacts {
    fn texts(&self, path: &str) -> Vec<&str> {
        let values = self.claims.get(path).map(Vec::as_slice);
        values
            .unwrap_or_default()
            .iter()
            .map(String::as_str)
            .collect()
    }

    fn verified_email(&self) -> Option<&str> {
        self.email.as_deref()
    }

    fn is_guest(&self) -> bool {
        self.is_guest
    }
}

/// Returns a digest of the claims that roles ask for, and of what the company's login admits. With
/// another one, facts that were kept may lack values that a role asks for now, or be those of
/// somebody who could not log in any more.
pub(crate) fn wanted_digest(matches: &[RoleMatch], settings: &ProviderSettings) -> [u8; 8] {
    let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (path, values) in matches.iter().flat_map(|role| &role.claims) {
        let known = wanted.entry(path).or_default();
        known.extend(values.iter().map(String::as_str));
    }
    let mut context = Context::new(&SHA256);
    for (path, values) in wanted {
        update_length(&mut context, values.len());
        for text in [path].into_iter().chain(values) {
            // Each with its length, so that the concatenation is unambiguous.
            update_length(&mut context, text.len());
            context.update(text.as_bytes());
        }
    }
    let admitted = match &settings.kind {
        ProviderKind::Google { domain } => slice::from_ref(domain),
        ProviderKind::GitHub { orgs } => orgs.as_slice(),
        // These are another authority then.
        ProviderKind::Entra { .. } | ProviderKind::Issuer => &[],
    };
    for text in admitted {
        update_length(&mut context, text.len());
        context.update(text.as_bytes());
    }
    context.update(&[u8::from(settings.userinfo), u8::from(settings.trust_email)]);
    let digest = context.finish();
    *digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes")
}

fn update_length(context: &mut Context, length: usize) {
    let length = u64::try_from(length).unwrap_or(u64::MAX);
    context.update(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_broker::settings;

    fn role(claims: &[(&str, &[&str])]) -> RoleMatch {
        let claims = claims.iter().map(|(path, values)| {
            let values = values.iter().map(|&value| value.to_owned()).collect();
            ((*path).to_owned(), values)
        });
        RoleMatch {
            role: "staff".to_owned(),
            issuer: "https://login.test".to_owned(),
            anyone: false,
            claims: claims.collect(),
            emails: None,
        }
    }

    #[test]
    fn other_claims_or_values_have_another_digest_and_another_order_does_not() {
        let settings = settings().provider;
        let matches = [role(&[("groups", &["a", "b"])]), role(&[("orgs", &["c"])])];
        let digest = wanted_digest(&matches, &settings);
        for same in [
            vec![role(&[("orgs", &["c"]), ("groups", &["b", "a"])])],
            vec![
                role(&[("groups", &["b"])]),
                role(&[("orgs", &["c"])]),
                role(&[("groups", &["a", "b"])]),
            ],
        ] {
            assert_eq!(wanted_digest(&same, &settings), digest, "{same:?}");
        }
        for other in [
            vec![],
            vec![role(&[("groups", &["a", "b"])])],
            vec![role(&[("groups", &["a"]), ("orgs", &["c"])])],
            vec![role(&[("groups", &["ab"]), ("orgs", &["c"])])],
            vec![role(&[("groups", &["a", "b", "orgs", "c"])])],
            vec![role(&[("groups", &[]), ("a", &["b"]), ("orgs", &["c"])])],
        ] {
            assert_ne!(wanted_digest(&other, &settings), digest, "{other:?}");
        }
    }

    #[test]
    fn other_people_who_may_log_in_have_another_digest() {
        let mut settings = settings().provider;
        let mut digests = BTreeSet::from([wanted_digest(&[], &settings)]);
        settings.trust_email = true;
        digests.insert(wanted_digest(&[], &settings));
        for domain in ["example.com", "example.org"] {
            let domain = domain.to_owned();
            settings.kind = ProviderKind::Google { domain };
            digests.insert(wanted_digest(&[], &settings));
        }
        for orgs in [vec!["acme"], vec!["acme", "other"], vec!["acmeother"]] {
            let orgs = orgs.into_iter().map(str::to_owned).collect();
            settings.kind = ProviderKind::GitHub { orgs };
            digests.insert(wanted_digest(&[], &settings));
        }
        assert_eq!(digests.len(), 7);
    }

    #[test]
    fn a_claim_that_was_not_kept_has_no_values() {
        let facts = PersonFacts {
            claims: BTreeMap::from([("groups".to_owned(), vec!["a".to_owned()])]),
            ..PersonFacts::default()
        };
        assert_eq!(facts.texts("groups"), ["a"]);
        assert!(facts.texts("roles").is_empty());
        assert_eq!(facts.verified_email(), None);
    }
}
