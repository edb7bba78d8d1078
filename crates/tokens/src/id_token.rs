//! ID tokens of the provider that people log in at.
//!
//! Owns every reason to refuse one, but for its key. Does not fetch keys or know roles. Invariant:
//! the claims that it returns were signed by the provider just now, for this client alone, and for
//! this login if there is one.

use jiff::Timestamp;
use moongate_access::auth::SignatureAlgorithm;

use crate::claims::ClaimSet;
use crate::compact_token::CompactToken;
use crate::jwk_set::JwkSet;
use crate::token_fault::TokenFault;
use crate::verify::{SKEW, check_form, check_signature, check_times};

/// Value of `typ` that an ID token may have, apart from none.
const TYPES: [&str; 1] = ["JWT"];
/// Longest subject, in bytes (OpenID Connect Core 1.0, section 2).
const SUBJECT_MAX: usize = 255;
/// Longest time since a token was made, in seconds. It comes straight from the token endpoint.
const AGE_MAX: i64 = 600;

/// Login, or its renewal, that an ID token comes with.
#[derive(Clone, Copy, Debug)]
pub struct IdTokenUse<'a> {
    /// Issuer, exactly as its metadata has it.
    pub issuer: &'a str,
    /// Our client at the issuer.
    pub client_id: &'a str,
    /// Nonce of the login. `None` for a renewal, whose token need not have one.
    pub nonce: Option<&'a str>,
    /// Time of the check.
    pub now: Timestamp,
}

/// Verifies an ID token (OpenID Connect Core 1.0, section 3.1.3.7). Returns its claims.
///
/// # Errors
/// The token proves nothing for this login.
pub fn verify_id_token(
    text: &str,
    keys: &JwkSet,
    call: &IdTokenUse<'_>,
) -> Result<ClaimSet, TokenFault> {
    let token = CompactToken::read(text)?;
    // None of these uses a shared secret, so the secret of our client makes no token good.
    let header = check_form(&token.header, &TYPES, &SignatureAlgorithm::ALL)?;
    check_signature(&token, &header, keys)?;
    let claims = token.claims;
    if claims.text("iss") != Some(call.issuer) {
        return Err(TokenFault::Issuer);
    }
    check_audience(&claims, call.client_id)?;
    check_times(&claims, call.now)?;
    check_age(&claims, call.now)?;
    let has_subject = claims
        .text("sub")
        .is_some_and(|subject| !subject.is_empty() && subject.len() <= SUBJECT_MAX);
    if !has_subject {
        return Err(TokenFault::NoSubject);
    }
    if call.nonce.is_some() && claims.text("nonce") != call.nonce {
        return Err(TokenFault::Nonce);
    }
    Ok(claims)
}

/// Checks that a token is for our client.
fn check_audience(claims: &ClaimSet, client_id: &str) -> Result<(), TokenFault> {
    let audiences = claims.texts("aud");
    if !audiences.contains(&client_id) {
        return Err(TokenFault::Audience);
    }
    // Other clients may be in the audience only if the token was given to us.
    let is_ours_alone = audiences.iter().all(|audience| *audience == client_id);
    let is_party = match claims.text("azp") {
        Some(party) => party == client_id,
        None => is_ours_alone && !claims.has("azp"),
    };
    match is_party {
        true => Ok(()),
        false => Err(TokenFault::Party),
    }
}

/// Checks when a token was made.
fn check_age(claims: &ClaimSet, now: Timestamp) -> Result<(), TokenFault> {
    let issued = claims.number("iat").ok_or(TokenFault::Stale)?;
    let age = now.as_second().saturating_sub(issued);
    if age < -SKEW {
        return Err(TokenFault::NotYet);
    }
    match age <= AGE_MAX {
        true => Ok(()),
        false => Err(TokenFault::Stale),
    }
}
