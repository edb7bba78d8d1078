//! Token checks, in order.
//!
//! Owns every reason to refuse a token, except for its key. Does not fetch keys or know roles.
//! Invariant: no claim affects a decision before the signature is verified, except for the issuer,
//! which determines the key.

use jiff::Timestamp;
use moongate_access::auth::{SignatureAlgorithm, TokenIssuer};
use moongate_model::PrincipalKey;

use crate::claims::ClaimSet;
use crate::compact_token::CompactToken;
use crate::jwk_set::JwkSet;
use crate::person_mark::{log_name, person_mark};
use crate::resource_names::ResourceNames;
use crate::token_fault::TokenFault;
use crate::token_subject::{TokenSubject, verified_email};

/// Allowed clock difference, in seconds.
pub(crate) const SKEW: i64 = 30;
/// Values of `typ` that an access token may have, if it has any (RFC 9068, section 4).
const TYPES: [&str; 3] = ["JWT", "at+jwt", "application/at+jwt"];
/// Claims of ID tokens (OpenID Connect Core 1.0, sections 2 and 3.3.2.11).
const ID_TOKEN_CLAIMS: [&str; 3] = ["nonce", "at_hash", "c_hash"];

/// Token that is valid for the called endpoint.
#[derive(Debug)]
pub(crate) struct VerifiedToken {
    /// Identity of its subject.
    pub(crate) mark: PrincipalKey,
    /// Subject's name, for logs.
    pub(crate) name: String,
    /// Time at which it expires.
    pub(crate) expires: Timestamp,
    /// True if it has the scope that the issuer's tokens need.
    pub(crate) has_scope: bool,
    /// Claims.
    pub(crate) claims: ClaimSet,
}

/// Header that passed its checks.
pub(crate) struct TokenHeader<'a> {
    algorithm: SignatureAlgorithm,
    kid: Option<&'a str>,
}

/// Context in which a token is used.
pub(crate) struct TokenUse<'a> {
    /// Names of all endpoints.
    pub(crate) resources: &'a ResourceNames,
    /// Endpoint that is called.
    pub(crate) endpoint: &'a str,
    /// Time of the call.
    pub(crate) now: Timestamp,
}

/// Checks the header of a token. `jku`, `jwk` and `x5u` are not read, because the sender of the
/// token wrote them.
pub(crate) fn check_header<'a>(
    header: &'a ClaimSet,
    issuer: &TokenIssuer,
) -> Result<TokenHeader<'a>, TokenFault> {
    check_form(header, &TYPES, &issuer.algorithms)
}

/// Checks the header of a token that may have these values of `typ`, apart from none, and these
/// algorithms. `jku`, `jwk` and `x5u` are not read, because whoever sends the token wrote them.
pub(crate) fn check_form<'a>(
    header: &'a ClaimSet,
    types: &[&str],
    algorithms: &[SignatureAlgorithm],
) -> Result<TokenHeader<'a>, TokenFault> {
    // RFC 7515, section 4.1.11: an extension in `crit` that is not understood makes the signature
    // invalid, and none is understood here.
    if header.has("crit") {
        return Err(TokenFault::Extension);
    }
    let is_known_type = match header.text("typ") {
        Some(typ) => types.iter().any(|known| known.eq_ignore_ascii_case(typ)),
        None => !header.has("typ"),
    };
    if !is_known_type {
        return Err(TokenFault::Type);
    }
    let algorithm = header
        .text("alg")
        .and_then(SignatureAlgorithm::parse)
        .filter(|algorithm| algorithms.contains(algorithm))
        .ok_or(TokenFault::Algorithm)?;
    let kid = header.text("kid");
    if kid.is_none() && header.has("kid") {
        return Err(TokenFault::Malformed);
    }
    Ok(TokenHeader { algorithm, kid })
}

/// Checks the signature of a token.
pub(crate) fn check_signature(
    token: &CompactToken<'_>,
    header: &TokenHeader<'_>,
    keys: &JwkSet,
) -> Result<(), TokenFault> {
    let candidates = keys.candidates(header.kid, header.algorithm);
    if candidates.is_empty() {
        return Err(TokenFault::UnknownKey);
    }
    let message = token.signed.as_bytes();
    let is_good = candidates
        .iter()
        .any(|key| key.verifies(header.algorithm, message, &token.signature));
    match (is_good, header.kid) {
        (true, _) => Ok(()),
        // The key may be new. If the token names its key, a new key would have another name.
        (false, None) => Err(TokenFault::UnknownKey),
        (false, Some(_)) => Err(TokenFault::Signature),
    }
}

/// Checks the claims of a token whose signature is valid.
pub(crate) fn check_claims(
    claims: ClaimSet,
    issuer: &TokenIssuer,
    call: &TokenUse<'_>,
) -> Result<VerifiedToken, TokenFault> {
    if claims.text("iss") != Some(issuer.issuer.as_str()) {
        return Err(TokenFault::Issuer);
    }
    let expires = check_times(&claims, call.now)?;
    if ID_TOKEN_CLAIMS.iter().any(|name| claims.has(name)) {
        return Err(TokenFault::IdToken);
    }
    // RFC 7800: such a token is valid only with a proof, which nothing here checks.
    if claims.has("cnf") {
        return Err(TokenFault::Bound);
    }
    let subject = TokenSubject::read(&claims, &issuer.issuer)?;
    if !names_endpoint(&claims, issuer, call) {
        return Err(TokenFault::Audience);
    }
    let TokenSubject {
        kind,
        authority,
        id,
    } = subject;
    let mark = person_mark(kind, authority, id);
    let name = match verified_email(&claims, &issuer.issuer) {
        Some(email) => log_name(email),
        None => log_name(&format!("{id} at {}", issuer.issuer)),
    };
    Ok(VerifiedToken {
        mark,
        name,
        expires,
        has_scope: has_scope(&claims, &issuer.scope),
        claims,
    })
}

/// Checks the times of a token. Returns the time at which it expires.
pub(crate) fn check_times(claims: &ClaimSet, now: Timestamp) -> Result<Timestamp, TokenFault> {
    let expires = claims.number("exp").ok_or(TokenFault::NoExpiry)?;
    let end = expires.saturating_add(SKEW);
    let now = now.as_second();
    if end <= now {
        return Err(TokenFault::Expired);
    }
    let has_begun = match claims.number("nbf") {
        Some(begin) => begin <= now.saturating_add(SKEW),
        None => !claims.has("nbf"),
    };
    if !has_begun {
        return Err(TokenFault::NotYet);
    }
    // A time beyond the calendar counts as its end.
    Ok(Timestamp::from_second(end).unwrap_or(Timestamp::MAX))
}

/// Returns true if the audience includes the endpoint that is called.
fn names_endpoint(claims: &ClaimSet, issuer: &TokenIssuer, call: &TokenUse<'_>) -> bool {
    let audiences = claims.texts("aud");
    match &issuer.audience {
        Some(ours) => audiences
            .iter()
            .any(|audience| ours.iter().any(|own| own == audience)),
        None => audiences
            .iter()
            .any(|audience| call.resources.endpoint_of(audience).as_deref() == Some(call.endpoint)),
    }
}

fn has_scope(claims: &ClaimSet, scope: &str) -> bool {
    ["scope", "scp"]
        .into_iter()
        .flat_map(|name| claims.texts(name))
        .flat_map(|text| text.split(' '))
        .any(|word| word == scope)
}
