//! Names that sound like secrets: of settings, variables, headers and flags.
//!
//! Owns the words. Does not judge values (`secret_look`). Invariant: a name in doubt sounds like a
//! secret.

/// Parts of a name that mark a secret anywhere in it.
const PARTS: [&str; 13] = [
    "token",
    "secret",
    "passw",
    "passphrase",
    "passcode",
    "pwd",
    "apikey",
    "privatekey",
    "accesskey",
    "authorization",
    "credential",
    "cookie",
    "bearer",
];
/// Whole words of a name that mark a secret.
const WORDS: [&str; 8] = [
    "key",
    "auth",
    "pass",
    "pat",
    "sig",
    "signature",
    "jwt",
    "pin",
];

/// Returns true if a name sounds like that of a secret.
pub fn sounds_secret(name: &str) -> bool {
    is_secret_word(name) || plain(name).ends_with("key")
}

/// Returns true if a word of a sentence is surely the name of a secret: there, a `monkey` isn't a
/// key.
pub(crate) fn is_secret_word(word: &str) -> bool {
    let ends_in_key = word.ends_with("Key") && word.len() > 3;
    let mut parts = word.split(['_', '-', '.', ' ']);
    has_secret_part(&plain(word))
        || ends_in_key
        || parts.any(|part| WORDS.iter().any(|mark| mark.eq_ignore_ascii_case(part)))
}

/// Returns true if a text has a word that marks secrets, in any spelling: `private_key`, too.
pub fn has_secret_part(text: &str) -> bool {
    let joined: String = text
        .chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .map(|c| c.to_ascii_lowercase())
        .collect();
    PARTS.iter().any(|part| joined.contains(part))
}

/// Leaves out case and separators, which say nothing: `apiKey`, `API_KEY` and `api-key` are one
/// name.
fn plain(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_sounds_secret_in_any_spelling() {
        for name in [
            "API_KEY",
            "apiKey",
            "x-api-key",
            "PRIVATEKEY",
            "DB_PASSWD",
            "OLDPWD",
            "key",
            "X-Auth",
            "jwt",
            "my.sig",
        ] {
            assert!(sounds_secret(name), "{name}");
        }
        for name in [
            "keyboard",
            "author",
            "passenger",
            "pinned",
            "url",
            "PATH",
            "",
        ] {
            assert!(!sounds_secret(name), "{name}");
        }
        assert!(
            sounds_secret("monkey") && !is_secret_word("monkey") && is_secret_word("openaiKey")
        );
        assert!(has_secret_part("the Token of") && !has_secret_part("the key of"));
    }

    #[test]
    fn a_word_marks_a_secret_with_and_without_separators() {
        for text in [
            "private_key",
            "api-key",
            "ACCESS_KEY",
            "old-pass_word",
            "a secret",
        ] {
            assert!(has_secret_part(text), "{text}");
        }
        for text in ["key", "keyboard", "private", "access"] {
            assert!(!has_secret_part(text), "{text}");
        }
    }
}
