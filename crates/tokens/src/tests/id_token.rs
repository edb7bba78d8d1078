//! ID tokens that are refused, each with its reason, and those that are good.

use jiff::Timestamp;

use super::signed_token::{ISSUER, IssuerSecrets};
use crate::claims::ClaimSet;
use crate::id_token::{IdTokenUse, verify_id_token};
use crate::jwk_set::JwkSet;
use crate::token_fault::TokenFault;

const HEADER: &str = r#"{"alg":"ES256","kid":"es256","typ":"JWT"}"#;

struct Fixture {
    secrets: IssuerSecrets,
    keys: JwkSet,
    nonce: Option<&'static str>,
}

impl Fixture {
    fn new() -> Self {
        let secrets = IssuerSecrets::new();
        let keys = JwkSet::read(secrets.key_set().as_bytes()).unwrap();
        Fixture {
            secrets,
            keys,
            nonce: Some("n-1"),
        }
    }

    fn verify(&self, text: &str) -> Result<ClaimSet, TokenFault> {
        let call = IdTokenUse {
            issuer: ISSUER,
            client_id: "app",
            nonce: self.nonce,
            now: Timestamp::now(),
        };
        verify_id_token(text, &self.keys, &call)
    }

    /// Returns the reason why a token with these claims is refused.
    fn fault(&self, claims: &str) -> Option<TokenFault> {
        self.verify(&self.secrets.sign(HEADER, claims)).err()
    }
}

/// Claims of a good token where one part of the text is another.
fn claims(part: &str, other: &str) -> String {
    let now = Timestamp::now().as_second();
    let expires = now + 600;
    let text = format!(
        r#"{{"iss":"{ISSUER}","aud":"app","sub":"ann","exp":{expires},"iat":{now},"nonce":"n-1"}}"#
    );
    assert!(text.contains(part), "{part}");
    text.replacen(part, other, 1)
}

#[test]
fn a_good_token_passes_and_a_renewal_needs_no_nonce() {
    let fixture = Fixture::new();
    let good = fixture.secrets.sign(HEADER, &claims("", ""));
    assert_eq!(fixture.verify(&good).unwrap().text("sub"), Some("ann"));
    for other in [
        r#""aud":["app"]"#,
        r#""aud":["app","app"]"#,
        r#""aud":"app","azp":"app""#,
        r#""aud":["api","app"],"azp":"app""#,
    ] {
        let claims = claims(r#""aud":"app""#, other);
        assert_eq!(fixture.fault(&claims), None, "{other}");
    }
    let renewal = Fixture {
        nonce: None,
        ..fixture
    };
    let without = claims(r#","nonce":"n-1""#, "");
    assert_eq!(renewal.fault(&without), None);
}

#[test]
fn claims_of_another_login_client_or_issuer_are_refused() {
    let fixture = Fixture::new();
    let issuer = format!(r#""iss":"{ISSUER}""#);
    let audience = r#""aud":"app""#;
    let subject = r#""sub":"ann""#;
    let nonce = r#""nonce":"n-1""#;
    let long = format!(r#""sub":"{}""#, "x".repeat(256));
    for (part, other, fault) in [
        (
            issuer.as_str(),
            r#""iss":"https://evil.test""#,
            TokenFault::Issuer,
        ),
        (
            &issuer,
            r#""iss":"https://login.test/""#,
            TokenFault::Issuer,
        ),
        (&issuer, r#""issuer":"x""#, TokenFault::Issuer),
        (audience, r#""aud":"other""#, TokenFault::Audience),
        (audience, r#""aud":[]"#, TokenFault::Audience),
        (audience, r#""aud":"App""#, TokenFault::Audience),
        (audience, r#""aud":["app","other"]"#, TokenFault::Party),
        (audience, r#""aud":"app","azp":"other""#, TokenFault::Party),
        (audience, r#""aud":"app","azp":["app"]"#, TokenFault::Party),
        (
            audience,
            r#""aud":["app","other"],"azp":"other""#,
            TokenFault::Party,
        ),
        (subject, r#""sub":"""#, TokenFault::NoSubject),
        (subject, r#""sub":5"#, TokenFault::NoSubject),
        (subject, long.as_str(), TokenFault::NoSubject),
        (subject, r#""sub":"ann","sub":"bob""#, TokenFault::Malformed),
        (nonce, r#""nonce":"n-2""#, TokenFault::Nonce),
        (nonce, r#""nonce":["n-1"]"#, TokenFault::Nonce),
        (nonce, r#""nonces":"n-1""#, TokenFault::Nonce),
    ] {
        assert_eq!(
            fixture.fault(&claims(part, other)),
            Some(fault),
            "{part} {other}"
        );
    }
}

#[test]
fn a_token_was_made_just_now_and_has_not_expired() {
    let fixture = Fixture::new();
    let now = Timestamp::now().as_second();
    for (exp, iat, fault) in [
        (now + 600, (now - 590).to_string(), None),
        (now + 600, (now + 20).to_string(), None),
        (now - 20, now.to_string(), None),
        (now - 60, now.to_string(), Some(TokenFault::Expired)),
        (now + 600, (now - 700).to_string(), Some(TokenFault::Stale)),
        (now + 600, (now + 90).to_string(), Some(TokenFault::NotYet)),
        (now + 600, "null".to_owned(), Some(TokenFault::Stale)),
        (now + 600, i64::MIN.to_string(), Some(TokenFault::Stale)),
        (now + 600, i64::MAX.to_string(), Some(TokenFault::NotYet)),
    ] {
        let claims = format!(
            r#"{{"iss":"{ISSUER}","aud":"app","sub":"ann","exp":{exp},"iat":{iat},"nonce":"n-1"}}"#
        );
        assert_eq!(fixture.fault(&claims), fault, "{claims}");
    }
    let without = claims(r#""exp":"#, r#""expires":"#);
    assert_eq!(fixture.fault(&without), Some(TokenFault::NoExpiry));
}

#[test]
fn other_types_and_shared_secrets_are_refused() {
    let fixture = Fixture::new();
    let claims = claims("", "");
    for (header, fault) in [
        (r#"{"alg":"none"}"#, TokenFault::Algorithm),
        (r#"{"alg":"HS256"}"#, TokenFault::Algorithm),
        (
            r#"{"alg":"ES256","kid":"es256","typ":"at+jwt"}"#,
            TokenFault::Type,
        ),
        (
            r#"{"alg":"ES256","kid":"es256","typ":"logout+jwt"}"#,
            TokenFault::Type,
        ),
        (
            r#"{"alg":"ES256","kid":"es256","crit":["exp"]}"#,
            TokenFault::Extension,
        ),
        (r#"{"alg":"ES256","kid":"other"}"#, TokenFault::UnknownKey),
    ] {
        let token = fixture.secrets.sign(header, &claims);
        assert_eq!(fixture.verify(&token).unwrap_err(), fault, "{header}");
    }
    let foreign = IssuerSecrets::new().sign(HEADER, &claims);
    assert_eq!(fixture.verify(&foreign).unwrap_err(), TokenFault::Signature);
}
