//! Private key of a client, and the assertions that it signs (RFC 7523).
//!
//! Owns the reading of keys, and the form of assertions. Does not send them. Invariant: an
//! assertion has one audience, is good for two minutes, and no key is in a message or in Debug.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::Serialize;

use crate::secret_text::SecretText;

/// Life of an assertion, in seconds. Clocks may differ by less.
const LIFE_SECONDS: i64 = 120;
/// Label of a private key in PKCS #8 (RFC 7468, section 10).
const PKCS8: &str = "PRIVATE KEY";

/// Private key of a client.
#[derive(Clone)]
pub struct AssertionKey {
    /// Key as it is written, to compare it.
    pem: SecretText,
    pair: Arc<KeyPair>,
}

enum KeyPair {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

/// Reason why a text has no private key that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// The text is not PEM.
    #[error("is not a private key in PEM form")]
    NotPem,
    /// The key is encrypted.
    #[error("is encrypted with a password")]
    Encrypted,
    /// The key has an older form than PKCS #8.
    #[error("is not in the PKCS #8 form")]
    OtherForm,
    /// The key is damaged, too short or of another kind.
    #[error("is not an RSA key of 2048 bits or more, and not one of P-256, P-384 or Ed25519")]
    Unsupported,
}

impl KeyFault {
    /// Returns what to do about it.
    pub fn fix(self) -> &'static str {
        match self {
            KeyFault::NotPem => {
                "refer to a file that starts with `-----BEGIN PRIVATE KEY-----`: `${file:/path}`"
            }
            KeyFault::Encrypted | KeyFault::OtherForm => {
                "convert it: `openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW`"
            }
            KeyFault::Unsupported => "create another key, such as one of P-256 for ES256",
        }
    }
}

/// Audience of an assertion, and the client that signs it.
#[derive(Clone, Copy)]
pub(crate) struct AssertionParties<'a> {
    /// Client, which is also the subject.
    pub(crate) client: &'a str,
    /// Authorization server, by its token endpoint or another name.
    pub(crate) audience: &'a str,
    /// Name of the key at the authorization server.
    pub(crate) key_id: Option<&'a str>,
}

impl AssertionKey {
    /// Reads a key from PEM with PKCS #8.
    ///
    /// # Errors
    /// The text has no key that can be used.
    pub fn from_pem(text: &str) -> Result<Self, KeyFault> {
        let pair = KeyPair::from_pkcs8(&read_pem(text)?).ok_or(KeyFault::Unsupported)?;
        Ok(AssertionKey {
            pem: SecretText::new(text),
            pair: Arc::new(pair),
        })
    }

    /// Signs an assertion. `listed`: the algorithms that the authorization server announces, if it
    /// does.
    ///
    /// # Errors
    /// The key cannot sign, which no key that was read does.
    pub(crate) fn sign(
        &self,
        parties: AssertionParties<'_>,
        listed: &[String],
        now: Timestamp,
    ) -> Result<SecretText, Unspecified> {
        let algorithm = self.pair.algorithm(listed);
        let header = AssertionHeader {
            alg: algorithm,
            typ: "JWT",
            kid: parties.key_id,
        };
        let issued = now.as_second();
        let jti: [u8; 16] = moongate_random::random_bytes();
        // RFC 7523, section 3: the subject "MUST be the `client_id` of the OAuth client".
        let claims = AssertionClaims {
            iss: parties.client,
            sub: parties.client,
            aud: parties.audience,
            jti: URL_SAFE_NO_PAD.encode(jti),
            iat: issued,
            exp: issued.saturating_add(LIFE_SECONDS),
        };
        let message = format!("{}.{}", encode(&header), encode(&claims));
        let signature = self.pair.sign(algorithm, message.as_bytes())?;
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Ok(SecretText::new(format!("{message}.{signature}")))
    }
}

impl PartialEq for AssertionKey {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

impl fmt::Debug for AssertionKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("AssertionKey(hidden)")
    }
}

/// Header of an assertion (RFC 7515, section 4.1).
#[derive(Serialize)]
struct AssertionHeader<'a> {
    alg: &'static str,
    typ: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<&'a str>,
}

/// Claims of an assertion (RFC 7523, section 3). The audience is one text, so that no other server
/// can use it.
#[derive(Serialize)]
struct AssertionClaims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    jti: String,
    iat: i64,
    exp: i64,
}

/// Encodes a part of an assertion.
fn encode(part: &impl Serialize) -> String {
    let json = serde_json::to_vec(part).expect("our parts are JSON");
    URL_SAFE_NO_PAD.encode(json)
}

impl KeyPair {
    fn from_pkcs8(der: &[u8]) -> Option<Self> {
        let p256 = || EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der);
        let p384 = || EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, der);
        p256()
            .map(KeyPair::P256)
            .or_else(|_| p384().map(KeyPair::P384))
            .or_else(|_| Ed25519KeyPair::from_pkcs8(der).map(KeyPair::Ed25519))
            .or_else(|_| RsaKeyPair::from_pkcs8(der).map(KeyPair::Rsa))
            .ok()
    }

    /// Algorithm for this key. RSA has two, of which nearly all servers take RS256.
    fn algorithm(&self, listed: &[String]) -> &'static str {
        let is_listed = |name: &str| listed.iter().any(|other| other == name);
        match self {
            KeyPair::P256(_) => "ES256",
            KeyPair::P384(_) => "ES384",
            KeyPair::Ed25519(_) => "EdDSA",
            KeyPair::Rsa(_) if is_listed("PS256") && !is_listed("RS256") => "PS256",
            KeyPair::Rsa(_) => "RS256",
        }
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let random = SystemRandom::new();
        match self {
            KeyPair::P256(pair) | KeyPair::P384(pair) => {
                Ok(pair.sign(&random, message)?.as_ref().to_vec())
            }
            KeyPair::Ed25519(pair) => Ok(pair.try_sign(message)?.as_ref().to_vec()),
            KeyPair::Rsa(pair) => {
                let padding: &'static dyn RsaEncoding = match algorithm {
                    "PS256" => &RSA_PSS_SHA256,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &random, message, &mut signature)?;
                Ok(signature)
            }
        }
    }
}

/// Reads the first block of a PEM text.
fn read_pem(text: &str) -> Result<Vec<u8>, KeyFault> {
    let block = text.split_once("-----BEGIN ").map(|(_, block)| block);
    let labelled = block.and_then(|block| block.split_once("-----"));
    let (label, rest) = labelled.ok_or(KeyFault::NotPem)?;
    match label {
        PKCS8 => {}
        "ENCRYPTED PRIVATE KEY" => return Err(KeyFault::Encrypted),
        // What `openssl ecparam` writes has its parameters first.
        "EC PARAMETERS" | "EC PRIVATE KEY" | "RSA PRIVATE KEY" => return Err(KeyFault::OtherForm),
        _ => return Err(KeyFault::NotPem),
    }
    let body = rest.split_once("-----END ").map(|(body, _)| body);
    let packed: String = body.ok_or(KeyFault::NotPem)?.split_whitespace().collect();
    STANDARD.decode(packed).map_err(|_| KeyFault::NotPem)
}

#[cfg(test)]
pub(crate) mod tests {
    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, EcdsaSigningAlgorithm,
        KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, UnparsedPublicKey,
        VerificationAlgorithm,
    };
    use serde::Deserialize;

    use super::*;

    fn pem_of(label: &str, der: &[u8]) -> String {
        let packed = STANDARD.encode(der);
        let lines = packed.as_bytes().chunks(64);
        let lines: Vec<_> = lines.map(String::from_utf8_lossy).collect();
        format!(
            "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
            lines.join("\n")
        )
    }

    fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm) -> (String, Vec<u8>) {
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref()).unwrap();
        let public = pair.public_key().as_ref().to_vec();
        (pem_of(PKCS8, document.as_ref()), public)
    }

    /// Key of P-256 in PEM.
    pub(crate) fn p256_pem() -> String {
        ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING).0
    }

    fn ed25519() -> (String, Vec<u8>) {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        let public = pair.public_key().as_ref().to_vec();
        (pem_of(PKCS8, document.as_ref()), public)
    }

    fn rsa() -> (String, Vec<u8>) {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let der: Pkcs8V1Der<'static> = pair.as_der().unwrap();
        let public = pair.public_key().as_ref().to_vec();
        (pem_of(PKCS8, der.as_ref()), public)
    }

    /// Parts of an assertion, as an authorization server reads them.
    #[derive(Debug, Deserialize)]
    pub(crate) struct ReadAssertion {
        pub(crate) alg: Option<String>,
        pub(crate) kid: Option<String>,
        pub(crate) iss: Option<String>,
        pub(crate) sub: Option<String>,
        pub(crate) aud: Option<String>,
        pub(crate) jti: Option<String>,
        pub(crate) iat: Option<i64>,
        pub(crate) exp: Option<i64>,
    }

    /// Reads the header and the claims of an assertion.
    pub(crate) fn read_parts(assertion: &str) -> [ReadAssertion; 2] {
        let parts: Vec<&str> = assertion.split('.').collect();
        assert_eq!(parts.len(), 3, "{assertion}");
        [parts[0], parts[1]].map(|part| {
            let json = URL_SAFE_NO_PAD.decode(part).unwrap();
            serde_json::from_slice(&json).unwrap()
        })
    }

    const PARTIES: AssertionParties<'_> = AssertionParties {
        client: "moongate",
        audience: "https://auth.example.com/token",
        key_id: Some("key-1"),
    };

    fn sign(pem: &str, listed: &[&str]) -> String {
        let listed: Vec<String> = listed.iter().map(|&name| name.to_owned()).collect();
        let key = AssertionKey::from_pem(pem).unwrap();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let signed = key.sign(PARTIES, &listed, now).unwrap();
        signed.expose().to_owned()
    }

    #[test]
    fn each_kind_of_key_signs_with_its_algorithm() {
        let p256 = ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING);
        let p384 = ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING);
        let (edwards, rsa) = (ed25519(), rsa());
        type Case<'a> = (
            &'a (String, Vec<u8>),
            &'a [&'a str],
            &'a str,
            &'static dyn VerificationAlgorithm,
        );
        let cases: [Case<'_>; 6] = [
            (&p256, &[], "ES256", &ECDSA_P256_SHA256_FIXED),
            (&p384, &["RS256"], "ES384", &ECDSA_P384_SHA384_FIXED),
            (&edwards, &[], "EdDSA", &ED25519),
            (&rsa, &[], "RS256", &RSA_PKCS1_2048_8192_SHA256),
            (
                &rsa,
                &["PS256", "RS256"],
                "RS256",
                &RSA_PKCS1_2048_8192_SHA256,
            ),
            (
                &rsa,
                &["ES256", "PS256"],
                "PS256",
                &RSA_PSS_2048_8192_SHA256,
            ),
        ];
        for ((pem, public), listed, algorithm, verification) in cases {
            let assertion = sign(pem, listed);
            let [header, _] = read_parts(&assertion);
            assert_eq!(header.alg.as_deref(), Some(algorithm));
            let (message, signature) = assertion.rsplit_once('.').unwrap();
            let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            let key = UnparsedPublicKey::new(verification, public);
            let verified = key.verify(message.as_bytes(), &signature);
            assert!(verified.is_ok(), "{algorithm}");
        }
    }

    #[test]
    fn an_assertion_names_one_client_and_one_audience_and_ends_soon() {
        let pem = p256_pem();
        let [header, claims] = read_parts(&sign(&pem, &[]));
        assert_eq!(header.kid.as_deref(), Some("key-1"));
        assert_eq!(claims.iss.as_deref(), Some("moongate"));
        assert_eq!(claims.sub.as_deref(), Some("moongate"));
        assert_eq!(claims.aud.as_deref(), Some(PARTIES.audience));
        assert_eq!(claims.iat, Some(1_800_000_000));
        assert_eq!(claims.exp, Some(1_800_000_000 + LIFE_SECONDS));
        let [_, next] = read_parts(&sign(&pem, &[]));
        assert_ne!(claims.jti, next.jti, "each is used once");
    }

    #[test]
    fn a_text_without_a_usable_key_is_refused_with_the_reason() {
        let pem = p256_pem();
        let damaged = pem.replace(
            "-----BEGIN PRIVATE KEY-----\nM",
            "-----BEGIN PRIVATE KEY-----\n!",
        );
        let cut = pem.split("-----END").next().unwrap();
        for (text, fault) in [
            ("", KeyFault::NotPem),
            ("hush", KeyFault::NotPem),
            (cut, KeyFault::NotPem),
            (damaged.as_str(), KeyFault::NotPem),
            (pem_of("CERTIFICATE", b"x").as_str(), KeyFault::NotPem),
            (
                pem_of("ENCRYPTED PRIVATE KEY", b"x").as_str(),
                KeyFault::Encrypted,
            ),
            (
                pem_of("RSA PRIVATE KEY", b"x").as_str(),
                KeyFault::OtherForm,
            ),
            (pem_of("EC PARAMETERS", b"x").as_str(), KeyFault::OtherForm),
            (pem_of(PKCS8, b"x").as_str(), KeyFault::Unsupported),
        ] {
            assert_eq!(AssertionKey::from_pem(text), Err(fault), "{text}");
            assert!(!fault.to_string().contains("hush"));
        }
    }

    #[test]
    fn debug_shows_no_key() {
        let pem = p256_pem();
        let key = AssertionKey::from_pem(&pem).unwrap();
        assert_eq!(format!("{key:?}"), "AssertionKey(hidden)");
        assert_eq!(key, AssertionKey::from_pem(&pem).unwrap());
        assert_ne!(key, AssertionKey::from_pem(&p256_pem()).unwrap());
    }
}
