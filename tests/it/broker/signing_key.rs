//! Key that signs the ID tokens of the company's login, or the assertions of a client.
//!
//! Owns one RSA key and its public form. Does not check claims. Invariant: every token names the
//! key that signed it.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// Id of the key.
const KEY_ID: &str = "tests";

/// RSA key of 2048 bits.
pub(super) struct SigningKey(RsaKeyPair);

impl SigningKey {
    pub(super) fn new() -> Self {
        SigningKey(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    /// Returns the key set that others check with.
    pub(super) fn key_set(&self) -> Value {
        let public: &[u8] = self.0.public_key().as_ref();
        // DER of a modulus of 2048 bits, which comes after the heads of two types.
        let modulus = URL_SAFE_NO_PAD.encode(&public[9..265]);
        json!({ "keys": [
            { "kty": "RSA", "kid": KEY_ID, "use": "sig", "alg": "RS256", "n": modulus, "e": "AQAB" }
        ] })
    }

    /// Signs claims.
    pub(super) fn sign(&self, claims: &Value) -> String {
        let header = format!(r#"{{"alg":"RS256","typ":"JWT","kid":"{KEY_ID}"}}"#);
        let signed = format!("{}.{}", encode(&header), encode(&claims.to_string()));
        let mut signature = vec![0; self.0.public_modulus_len()];
        self.0
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                signed.as_bytes(),
                &mut signature,
            )
            .unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn encode(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}
