//! JSON Web Tokens in their compact form (RFC 7515, section 7.1).
//!
//! Owns the parts of a token. Does not verify anything. Invariant: the signed text is the one that
//! arrived, never one that was serialized again.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;

use crate::claims::ClaimSet;
use crate::token_fault::TokenFault;

/// Maximum size of a token, in bytes.
const SIZE_MAX: usize = 16 * 1024;

/// Token whose parts were read. Nothing in it has been verified.
#[derive(Debug)]
pub(crate) struct CompactToken<'a> {
    /// Header.
    pub(crate) header: ClaimSet,
    /// Claims.
    pub(crate) claims: ClaimSet,
    /// Text that the signature covers.
    pub(crate) signed: &'a str,
    /// Signature.
    pub(crate) signature: Vec<u8>,
}

/// Returns true if a text has the form of a token, so that it is not a key. It may still be
/// malformed.
pub(crate) fn looks_like_token(text: &str) -> bool {
    let mut parts = text.split('.');
    let (Some(header), Some(_), Some(_), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    // The header is an object, whose first character is in the first four of its base64.
    let start = header
        .get(..4)
        .and_then(|start| URL_SAFE_NO_PAD.decode(start).ok());
    start.is_some_and(|start| start.trim_ascii_start().first() == Some(&b'{'))
}

impl<'a> CompactToken<'a> {
    /// Reads a token.
    pub(crate) fn read(text: &'a str) -> Result<Self, TokenFault> {
        if text.len() > SIZE_MAX {
            return Err(TokenFault::Malformed);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenFault::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenFault::Malformed)?;
        Ok(CompactToken {
            header: decode_json(header)?,
            claims: decode_json(claims)?,
            signed,
            signature: decode(signature)?,
        })
    }
}

/// Decodes base64url. It has no dots, so a token has at most three parts.
fn decode(part: &str) -> Result<Vec<u8>, TokenFault> {
    URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| TokenFault::Malformed)
}

fn decode_json<T: DeserializeOwned>(part: &str) -> Result<T, TokenFault> {
    serde_json::from_slice(&decode(part)?).map_err(|_| TokenFault::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_taken_for_tokens() {
        for (text, expected) in [
            ("eyJhbGciOiJub25lIn0.e30.", true),
            ("eyAiYWxnIjoibm9uZSJ9.e30.x", true),
            ("eyJhbGciOiJub25lIn0.not base64.x", true),
            ("mg_0123456789", false),
            ("a.b.c", false),
            ("sk.live.key", false),
            ("eyJhbGciOiJub25lIn0.e30", false),
            ("eyJhbGciOiJub25lIn0.e30.x.y.z", false),
            ("", false),
            ("\u{fc}\u{fc}.\u{fc}.x", false),
        ] {
            assert_eq!(looks_like_token(text), expected, "{text}");
        }
    }

    #[test]
    fn a_token_is_three_parts_of_base64_without_padding() {
        assert!(CompactToken::read("e30.e30.AA").is_ok());
        let long = format!("e30.e30.{}", "A".repeat(SIZE_MAX));
        for text in [
            "",
            "e30",
            "e30.e30",
            "e30.e30.AA==",
            "e30.e30.A",
            "e30.e30.AA.AA",
            "e30.W10.AA",
            "W10.e30.AA",
            " e30.e30.AA",
            "e30.e30.+/",
            long.as_str(),
        ] {
            assert_eq!(
                CompactToken::read(text).unwrap_err(),
                TokenFault::Malformed,
                "{text}"
            );
        }
    }
}
