//! Secret text, such as a token or the secret of a client.
//!
//! Owns how a secret is shown. Does not encrypt it. Invariant: Debug never shows the text, so no
//! log line and no error that formats a value can.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Secret, such as a token. Debug hides it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Self {
        SecretText(text.into())
    }

    /// Returns the secret itself, to send or to store it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SecretText(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_the_text_and_json_has_it() {
        let secret = SecretText::new("hush");
        assert_eq!(format!("{secret:?}"), "SecretText(hidden)");
        let json = serde_json::to_string(&secret).unwrap();
        assert_eq!(json, "\"hush\"");
        let read: SecretText = serde_json::from_str(&json).unwrap();
        assert_eq!(read.expose(), "hush");
    }
}
