//! Accounts of one Google domain.
//!
//! Owns the domain check. Does not verify tokens. Invariant: only `hd` decides, because a personal
//! account can have an address in any domain.

use moongate_tokens::ClaimSet;

use crate::provider::fault::ProviderFault;

/// Checks that an account belongs to a domain.
pub(crate) fn check_domain(domain: &str, claims: &ClaimSet) -> Result<(), ProviderFault> {
    let is_own = claims
        .text("hd")
        .is_some_and(|found| found.eq_ignore_ascii_case(domain));
    match is_own {
        true => Ok(()),
        false => Err(ProviderFault::OtherDomain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_that_of_the_account_and_not_of_the_address() {
        for (text, expected) in [
            (r#"{"hd":"example.com"}"#, true),
            (r#"{"hd":"Example.COM"}"#, true),
            (r#"{"email":"a@example.com","email_verified":true}"#, false),
            (r#"{"hd":"example.com.evil.test"}"#, false),
            (r#"{"hd":"a.example.com"}"#, false),
            (r#"{"hd":["example.com"]}"#, false),
            (r#"{"hd":""}"#, false),
        ] {
            let claims: ClaimSet = serde_json::from_str(text).unwrap();
            let found = check_domain("example.com", &claims);
            assert_eq!(found.is_ok(), expected, "{text}");
        }
    }
}
