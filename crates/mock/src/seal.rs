//! Seal of `requestState`, the state that a modern client carries between two requests.
//!
//! Owns sealing and opening. Does not know the content. Invariant: state of another key, changed
//! state and old state do not open.

use aws_lc_rs::{hmac, rand};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use serde_json::{Value, json};

/// Lifetime of a sealed state in seconds.
const TTL_SECONDS: i64 = 600;

pub(super) struct RequestStateSeal(hmac::Key);

impl RequestStateSeal {
    /// Creates the seal of this secret, or of a random one.
    pub(super) fn new(secret: Option<&str>) -> Self {
        let mut random = [0_u8; 32];
        // Without randomness the seal is weaker, not wrong. This server guards nothing.
        let _ = rand::fill(&mut random);
        Self(hmac::Key::new(
            hmac::HMAC_SHA256,
            secret.map_or(&random, str::as_bytes),
        ))
    }

    /// Seals `value` for the request that `of` describes.
    pub(super) fn seal(&self, of: &str, value: &Value) -> String {
        let until = jiff::Timestamp::now().as_second() + TTL_SECONDS;
        let text = json!({"of": of, "until": until, "value": value}).to_string();
        let tag = hmac::sign(&self.0, text.as_bytes());
        format!("{}.{}", B64.encode(text), B64.encode(tag.as_ref()))
    }

    /// Opens a state that was sealed for the same request.
    pub(super) fn open(&self, of: &str, sealed: &str) -> Result<Value, &'static str> {
        let (text, tag) = sealed
            .split_once('.')
            .ok_or("requestState is not one of ours")?;
        let text = B64
            .decode(text)
            .map_err(|_| "requestState is not one of ours")?;
        let tag = B64
            .decode(tag)
            .map_err(|_| "requestState is not one of ours")?;
        // Verify before parsing: the text is the client's until the tag proves otherwise.
        hmac::verify(&self.0, &text, &tag)
            .map_err(|_| "requestState failed its integrity check")?;
        let state: Value =
            serde_json::from_slice(&text).map_err(|_| "requestState is not one of ours")?;
        if state["of"] != of {
            return Err("requestState belongs to another request");
        }
        if state["until"].as_i64().unwrap_or(0) < jiff::Timestamp::now().as_second() {
            return Err("requestState has expired");
        }
        Ok(state["value"].clone())
    }
}

/// Returns a name for a session that cannot be guessed.
pub(super) fn random_name() -> String {
    let mut random = [0_u8; 18];
    let _ = rand::fill(&mut random);
    B64.encode(random)
}
