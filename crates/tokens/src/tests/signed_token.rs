//! Tokens that tests sign, and their issuer's key set.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA512,
    RsaEncoding, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Issuer of the tokens.
pub(crate) const ISSUER: &str = "https://login.test";
/// URL that clients see.
pub(crate) const PUBLIC_URL: &str = "https://mcp.test";
/// Resource of the endpoint for all servers.
pub(crate) const RESOURCE: &str = "https://mcp.test/mcp";

/// Private keys of the issuer, one of each type.
pub(crate) struct IssuerSecrets {
    p256: EcdsaKeyPair,
    p384: EcdsaKeyPair,
    ed25519: Ed25519KeyPair,
    rsa: RsaKeyPair,
}

fn curve_key(algorithm: &'static EcdsaSigningAlgorithm) -> EcdsaKeyPair {
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref()).unwrap()
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the JSON Web Key of a point, whose first byte gives its form.
fn point_key(key: &EcdsaKeyPair, curve: &str, kid: &str) -> String {
    let point: &[u8] = key.public_key().as_ref();
    let (x, y) = point[1..].split_at(point.len() / 2);
    format!(
        r#"{{"kty":"EC","kid":"{kid}","crv":"{curve}","x":"{}","y":"{}"}}"#,
        encode(x),
        encode(y)
    )
}

impl IssuerSecrets {
    pub(crate) fn new() -> Self {
        let ed25519 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        IssuerSecrets {
            p256: curve_key(&ECDSA_P256_SHA256_FIXED_SIGNING),
            p384: curve_key(&ECDSA_P384_SHA384_FIXED_SIGNING),
            ed25519: Ed25519KeyPair::from_pkcs8(ed25519.as_ref()).unwrap(),
            rsa: RsaKeyPair::generate(KeySize::Rsa2048).unwrap(),
        }
    }

    /// Returns the key set of the issuer.
    pub(crate) fn key_set(&self) -> String {
        let rsa: &[u8] = self.rsa.public_key().as_ref();
        let keys = [
            point_key(&self.p256, "P-256", "es256"),
            point_key(&self.p384, "P-384", "es384"),
            format!(
                r#"{{"kty":"OKP","kid":"eddsa","crv":"Ed25519","x":"{}"}}"#,
                encode(self.ed25519.public_key())
            ),
            format!(
                r#"{{"kty":"RSA","kid":"rsa","use":"sig","n":"{}","e":"AQAB"}}"#,
                // DER of a modulus of 2048 bits, which follows the headers of two types.
                encode(&rsa[9..265])
            ),
        ];
        format!(r#"{{"keys":[{}]}}"#, keys.join(","))
    }

    /// Signs a token with the algorithm that its header names.
    pub(crate) fn sign(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encode(header), encode(claims));
        let signature = self.signature_of(header, signed.as_bytes());
        format!("{signed}.{}", encode(signature))
    }

    fn signature_of(&self, header: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        if header.contains("ES384") {
            self.p384.sign(&random, message).unwrap().as_ref().to_vec()
        } else if header.contains("EdDSA") {
            self.ed25519.sign(message).as_ref().to_vec()
        } else if header.contains("RS256") {
            self.sign_rsa(&RSA_PKCS1_SHA256, message)
        } else if header.contains("PS512") {
            self.sign_rsa(&RSA_PSS_SHA512, message)
        } else {
            self.p256.sign(&random, message).unwrap().as_ref().to_vec()
        }
    }

    fn sign_rsa(&self, encoding: &'static dyn RsaEncoding, message: &[u8]) -> Vec<u8> {
        let mut signature = vec![0; self.rsa.public_modulus_len()];
        let random = SystemRandom::new();
        self.rsa
            .sign(encoding, &random, message, &mut signature)
            .unwrap();
        signature
    }
}

/// Claims of a valid token, with extra members at the end.
pub(crate) fn claims_with(more: &str) -> String {
    let expires = jiff::Timestamp::now().as_second() + 600;
    format!(
        r#"{{"iss":"{ISSUER}","aud":"{RESOURCE}","sub":"ann","exp":{expires},"scope":"openid mcp"{more}}}"#
    )
}

/// Claims of a valid token, with one part of the text replaced.
pub(crate) fn claims_replacing(part: &str, other: &str) -> String {
    let claims = claims_with("");
    assert!(claims.contains(part), "{part}");
    claims.replace(part, other)
}
