//! Assertions by which a client proves itself (RFC 7523).
//!
//! Owns which assertions are good. Does not remember those that were used. Invariant: an assertion
//! is the client's own, for this server alone, and over within minutes.

use jiff::Timestamp;
use moongate_access::auth::SignatureAlgorithm;

use crate::claims::ClaimSet;
use crate::compact_token::CompactToken;
use crate::jwk_set::JwkSet;
use crate::token_fault::TokenFault;
use crate::verify::{check_form, check_signature, check_times};

/// Values of `typ` that an assertion may have, apart from none.
const TYPES: [&str; 2] = ["JWT", "client-authentication+jwt"];
/// Longest life, in seconds: five minutes, and 30 seconds for the clocks of each side.
const LIFE_MAX: i64 = 5 * 60 + 60;
/// Longest `jti`, in bytes.
const ID_MAX: usize = 256;

/// Request that an assertion comes with.
#[derive(Clone, Copy, Debug)]
pub struct AssertionUse<'a> {
    /// Client that is asked for.
    pub client_id: &'a str,
    /// Audiences that mean this server: its token endpoint and its issuer.
    pub audiences: [&'a str; 2],
    /// Time of the request.
    pub now: Timestamp,
}

/// Assertion that is good, unless it was used before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedAssertion {
    /// Id, which the client uses once.
    pub id: String,
    /// Time from which it is refused anyway.
    pub expires: Timestamp,
}

/// Verifies an assertion with the keys of its client.
pub fn verify_assertion(
    text: &str,
    keys: &JwkSet,
    call: &AssertionUse<'_>,
) -> Result<VerifiedAssertion, TokenFault> {
    let token = CompactToken::read(text)?;
    let header = check_form(&token.header, &TYPES, &SignatureAlgorithm::ALL)?;
    check_signature(&token, &header, keys)?;
    check_claims(&token.claims, call)
}

fn check_claims(
    claims: &ClaimSet,
    call: &AssertionUse<'_>,
) -> Result<VerifiedAssertion, TokenFault> {
    // RFC 7523, section 3: both are the client.
    if claims.text("iss") != Some(call.client_id) {
        return Err(TokenFault::Issuer);
    }
    if claims.text("sub") != Some(call.client_id) {
        return Err(TokenFault::NoSubject);
    }
    // A list may name another server, which could then use the assertion here.
    let audience = claims.text("aud").ok_or(TokenFault::Audience)?;
    if !call.audiences.contains(&audience) {
        return Err(TokenFault::Audience);
    }
    let expires = check_times(claims, call.now)?;
    if expires.as_second() > call.now.as_second().saturating_add(LIFE_MAX) {
        return Err(TokenFault::Stale);
    }
    let id = claims
        .text("jti")
        .filter(|id| !id.is_empty() && id.len() <= ID_MAX)
        .ok_or(TokenFault::Malformed)?;
    Ok(VerifiedAssertion {
        id: id.to_owned(),
        expires,
    })
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    const CLIENT: &str = "https://client.test/oauth/client.json";
    const ENDPOINT: &str = "https://mcp.test/token";
    const NOW: i64 = 1_800_000_000;

    fn check(claims: &str) -> Result<VerifiedAssertion, TokenFault> {
        let call = AssertionUse {
            client_id: CLIENT,
            audiences: [ENDPOINT, "https://mcp.test"],
            now: Timestamp::from_second(NOW).unwrap(),
        };
        check_claims(&serde_json::from_str(claims).unwrap(), &call)
    }

    fn claims(part: &str, other: &str) -> String {
        let expires = NOW + 300;
        let claims = format!(
            r#"{{"iss":"{CLIENT}","sub":"{CLIENT}","aud":"{ENDPOINT}","jti":"1","exp":{expires}}}"#
        );
        assert!(claims.contains(part), "{part}");
        claims.replace(part, other)
    }

    #[test]
    fn other_claims_are_refused() {
        let long = format!(r#""jti":"{}""#, "x".repeat(ID_MAX + 1));
        let list = format!(r#""aud":["{ENDPOINT}","https://evil.test"]"#);
        let endpoint = format!(r#""aud":"{ENDPOINT}""#);
        let (iss, sub) = (
            format!(r#""iss":"{CLIENT}""#),
            format!(r#""sub":"{CLIENT}""#),
        );
        let far = format!(r#""exp":{}"#, NOW + 331);
        let past = format!(r#""exp":{}"#, NOW - 30);
        let ahead = format!(r#""exp":{},"nbf":{}"#, NOW + 300, NOW + 31);
        let exp = format!(r#""exp":{}"#, NOW + 300);
        for (part, other, fault) in [
            (&*iss, r#""iss":"https://evil.test""#, TokenFault::Issuer),
            (&iss, r#""x":1"#, TokenFault::Issuer),
            (&sub, r#""sub":"ann""#, TokenFault::NoSubject),
            (
                &endpoint,
                r#""aud":"https://mcp.test/mcp""#,
                TokenFault::Audience,
            ),
            (
                &endpoint,
                r#""aud":"https://mcp.test/""#,
                TokenFault::Audience,
            ),
            (&endpoint, &list, TokenFault::Audience),
            (&endpoint, r#""x":1"#, TokenFault::Audience),
            (&exp, &far, TokenFault::Stale),
            (&exp, &past, TokenFault::Expired),
            (&exp, &ahead, TokenFault::NotYet),
            (&exp, r#""x":1"#, TokenFault::NoExpiry),
            (r#""jti":"1""#, r#""jti":"""#, TokenFault::Malformed),
            (r#""jti":"1""#, r#""jti":1"#, TokenFault::Malformed),
            (r#""jti":"1""#, &long, TokenFault::Malformed),
        ] {
            assert_eq!(check(&claims(part, other)), Err(fault), "{other}");
        }
    }

    #[test]
    fn the_token_endpoint_and_the_issuer_are_audiences() {
        for audience in [ENDPOINT, "https://mcp.test"] {
            let claims = claims(
                &format!(r#""aud":"{ENDPOINT}""#),
                &format!(r#""aud":"{audience}""#),
            );
            let verified = check(&claims).unwrap();
            assert_eq!(verified.id, "1");
            assert!(verified.expires.as_second() >= NOW + 300);
        }
    }

    #[test]
    fn an_assertion_counts_with_its_own_signature_and_type() {
        let random = SystemRandom::new();
        let secret = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(secret.as_ref()).unwrap();
        let key = URL_SAFE_NO_PAD.encode(pair.public_key());
        let set = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"a","x":"{key}"}}]}}"#);
        let keys = JwkSet::read(set.as_bytes()).unwrap();
        let claims = claims(r#""jti":"1""#, r#""jti":"1""#);
        let sign = |header: &str| {
            let head = URL_SAFE_NO_PAD.encode(header);
            let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(&claims));
            let signature = URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes()));
            format!("{signed}.{signature}")
        };
        let call = AssertionUse {
            client_id: CLIENT,
            audiences: [ENDPOINT, "https://mcp.test"],
            now: Timestamp::from_second(NOW).unwrap(),
        };
        let verify = |text: &str| verify_assertion(text, &keys, &call);
        for header in [
            r#"{"alg":"EdDSA","kid":"a"}"#,
            r#"{"alg":"EdDSA","kid":"a","typ":"JWT"}"#,
            r#"{"alg":"EdDSA","kid":"a","typ":"client-authentication+jwt"}"#,
        ] {
            assert_eq!(verify(&sign(header)).unwrap().id, "1", "{header}");
        }
        for (header, fault) in [
            (r#"{"alg":"EdDSA","kid":"b"}"#, TokenFault::UnknownKey),
            (
                r#"{"alg":"EdDSA","kid":"a","typ":"at+jwt"}"#,
                TokenFault::Type,
            ),
            (
                r#"{"alg":"EdDSA","kid":"a","crit":["x"]}"#,
                TokenFault::Extension,
            ),
            (r#"{"alg":"ES256","kid":"a"}"#, TokenFault::UnknownKey),
        ] {
            assert_eq!(verify(&sign(header)), Err(fault), "{header}");
        }
        let good = sign(r#"{"alg":"EdDSA","kid":"a"}"#);
        let (signed, _) = good.rsplit_once('.').unwrap();
        let other = URL_SAFE_NO_PAD.encode(pair.sign(b"other"));
        let forged = verify(&format!("{signed}.{other}"));
        assert_eq!(forged, Err(TokenFault::Signature));
    }

    #[test]
    fn a_text_that_is_not_a_token_is_malformed() {
        let set = r#"{"keys":[{"kty":"OKP","crv":"Ed25519",
            "x":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE"}]}"#;
        let keys = JwkSet::read(set.as_bytes()).unwrap();
        let call = AssertionUse {
            client_id: CLIENT,
            audiences: [ENDPOINT, "https://mcp.test"],
            now: Timestamp::from_second(NOW).unwrap(),
        };
        for (text, fault) in [
            ("", TokenFault::Malformed),
            ("e30.e30.AA", TokenFault::Algorithm),
            // {"alg":"none"} and {"alg":"HS256"}
            ("eyJhbGciOiJub25lIn0.e30.AA", TokenFault::Algorithm),
            ("eyJhbGciOiJIUzI1NiJ9.e30.AA", TokenFault::Algorithm),
        ] {
            assert_eq!(verify_assertion(text, &keys, &call), Err(fault), "{text}");
        }
    }
}
