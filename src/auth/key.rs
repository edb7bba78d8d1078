//! Named API keys: only their SHA-256 is known.

use std::fmt;

use aws_lc_rs::{digest, hmac};
use base64::Engine;

use crate::policy::{GlobList, PrincipalSecret, RequestRate};

/// One named key and what it opens.
#[derive(Clone, Debug, PartialEq)]
pub struct KeySettings {
    /// Who this is, in logs.
    pub name: String,
    /// The key's hash.
    pub hash: KeyHash,
    /// The views and servers it opens by their own path, and together by the one over everything; `None`: all of them.
    pub views: Option<Vec<String>>,
    /// The tools it may see and call, by exposed name.
    pub tools: GlobList,
    /// Requests in a time, instead of what holds for all; `Some(None)`: any number.
    pub rate: Option<Option<RequestRate>>,
    /// From when on it is refused.
    pub expires: Option<jiff::Timestamp>,
}

/// SHA-256 of an API key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash of a key.
    pub fn of(key: &str) -> Self {
        let digest = digest::digest(&digest::SHA256, key.as_bytes());
        KeyHash(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// Reads `sha256:<64 hex digits>`.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?.as_bytes();
        let mut hash = [0; 32];
        if hex.len() != 64 || !hex.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        for (byte, pair) in hash.iter_mut().zip(hex.chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(KeyHash(hash))
    }

    /// A secret for one purpose, the same for as long as the key is: it outlives a restart, and all replicas share it.
    pub fn secret(&self, purpose: &str) -> PrincipalSecret {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        PrincipalSecret::new(
            hmac::sign(&key, purpose.as_bytes()).as_ref().try_into().expect("HMAC-SHA256 has 32 bytes"),
        )
    }

    /// Whether the two are the same, in a time that does not depend on where they differ.
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
        f.write_str("KeyHash(..)")
    }
}

/// A new key: 256 random bits, recognisable by its first letters.
pub fn new_key() -> String {
    let bytes: [u8; 32] = crate::random::random_bytes();
    format!("mg_{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes))
}
