//! Named API keys.
//!
//! Owns their settings and hashes, how a new key is made, the secrets derived from a key, and marks
//! made with those. Does not authenticate requests (`api_keys.rs`). Invariant: only the SHA-256 of
//! a key is stored.

use std::fmt;

use aws_lc_rs::{digest, hmac};
use base64::Engine;

use crate::policy::{GlobList, RequestRate};
use moongate_model::PrincipalSecret;

/// Settings of one named key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeySettings {
    /// Name of the key's holder, in logs.
    pub name: String,
    /// Hash of the key.
    pub hash: KeyHash,
    /// Role whose views, tools and rate it has.
    pub role: Option<String>,
    /// Views and servers that it opens by their own path, and together by the endpoint over
    /// everything. `None`: all of them.
    pub views: Option<Vec<String>>,
    /// Tools that it may see and call, by exposed name.
    pub tools: GlobList,
    /// Request rate, instead of the general one. `Some(None)`: no limit.
    pub rate: Option<Option<RequestRate>>,
    /// Time from which it is refused.
    pub expires: Option<jiff::Timestamp>,
}

/// SHA-256 of an API key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Hashes a key.
    pub fn of(key: &str) -> Self {
        let digest = digest::digest(&digest::SHA256, key.as_bytes());
        KeyHash(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// Parses `sha256:<64 hex digits>`.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?.as_bytes();
        let mut hash = [0; 32];
        // Checked for each digit, since `from_str_radix` also accepts a leading plus sign.
        if hex.len() != 64 || !hex.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        for (byte, pair) in hash.iter_mut().zip(hex.chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(KeyHash(hash))
    }

    /// Derives a secret for one purpose. Depends on the key alone, so it outlives a restart and all
    /// replicas share it.
    pub fn secret(&self, purpose: &str) -> PrincipalSecret {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        PrincipalSecret::new(
            hmac::sign(&key, purpose.as_bytes())
                .as_ref()
                .try_into()
                .expect("HMAC-SHA256 has 32 bytes"),
        )
    }

    /// Returns the first digits, for people who compare. They prove nothing.
    pub fn prefix(&self) -> String {
        self.0
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Compares in constant time.
    pub fn matches(&self, other: &KeyHash) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Hashes must not reach the logs.
        f.write_str("KeyHash(..)")
    }
}

/// Returns 128 bits that only a holder of the secret can make from these texts.
pub fn mark_texts(secret: &PrincipalSecret, texts: &[&str]) -> [u8; 16] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret.bits()));
    for text in texts {
        // Lengths keep apart texts that would read the same in a row.
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text.as_bytes());
    }
    let mut mark = [0; 16];
    // 128 bits are enough for a mark.
    mark.copy_from_slice(&context.sign().as_ref()[..16]);
    mark
}

/// Returns true for a name that a key may have.
pub fn is_key_name(name: &str) -> bool {
    !name.is_empty() && name.chars().count() <= 64 && !name.chars().any(char::is_control)
}

/// Generates a key: 256 random bits, recognisable by its first letters.
pub fn new_key() -> String {
    let bytes: [u8; 32] = moongate_random::random_bytes();
    // Secret scanners recognise a key by its prefix.
    format!(
        "mg_{}",
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
    )
}
