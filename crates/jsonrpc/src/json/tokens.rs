//! Tokens of a whole value, as deep as it goes.
//!
//! Owns the walk over text that was checked before. Does not decode strings. Invariant: one pass
//! without recursion, so that no value is too deep or too costly to walk.

use std::ops::Range;

use crate::json::RawJson;

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Start of an object.
    Object,
    /// Start of an array.
    Array,
    /// End of the innermost object or array.
    End,
    /// Key of a member: a string, with its quotes.
    Key,
    /// String that is a value, with its quotes.
    Text,
    /// Number, `true`, `false` or `null`.
    Scalar,
}

/// Token with its span in the value's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonToken {
    /// Kind.
    pub kind: TokenKind,
    /// Span.
    pub span: Range<usize>,
}

/// Walk over the tokens of one value.
pub struct JsonTokens<'a> {
    text: &'a [u8],
    at: usize,
}

impl RawJson {
    /// Returns the tokens of the value, from the outermost to the innermost, in their order.
    pub fn tokens(&self) -> JsonTokens<'_> {
        JsonTokens {
            text: &self.0,
            at: 0,
        }
    }
}

impl Iterator for JsonTokens<'_> {
    type Item = JsonToken;

    fn next(&mut self) -> Option<JsonToken> {
        let start = self.skip_separators(b" \n\t\r,:")?;
        let kind = match self.text[start] {
            b'{' => TokenKind::Object,
            b'[' => TokenKind::Array,
            b'}' | b']' => TokenKind::End,
            b'"' => {
                self.at = start + string_len(&self.text[start..]);
                let end = self.at;
                // Only a key is followed by a colon.
                let next = self.skip_separators(b" \n\t\r").map(|next| self.text[next]);
                let kind = if next == Some(b':') {
                    TokenKind::Key
                } else {
                    TokenKind::Text
                };
                return Some(JsonToken {
                    kind,
                    span: start..end,
                });
            }
            _ => {
                let left = &self.text[start..];
                let length = left.iter().position(|byte| b" \n\t\r,]}".contains(byte));
                self.at = start + length.unwrap_or(left.len());
                return Some(JsonToken {
                    kind: TokenKind::Scalar,
                    span: start..self.at,
                });
            }
        };
        self.at = start + 1;
        Some(JsonToken {
            kind,
            span: start..self.at,
        })
    }
}

impl JsonTokens<'_> {
    /// Returns the next position that has none of these bytes.
    fn skip_separators(&mut self, separators: &[u8]) -> Option<usize> {
        let left = self.text.get(self.at..)?;
        self.at += left.iter().position(|byte| !separators.contains(byte))?;
        Some(self.at)
    }
}

/// Returns the length of the string that starts here, with its quotes.
fn string_len(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(found) = text
        .get(at..)
        .and_then(|left| memchr::memchr2(b'"', b'\\', left))
    {
        at += found + 1;
        if text[at - 1] == b'"' {
            return at;
        }
        // The byte after a backslash belongs to the string, whatever it is.
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_has_its_place() {
        use TokenKind::{Array, End, Key, Object, Scalar, Text};
        let json = r#" { "a\"" : [ -1.5e3 , true, "x:\\" ,{}],"b":"c" } "#.trim();
        let value = RawJson::literal(json);
        let tokens: Vec<(TokenKind, &str)> = value
            .tokens()
            .map(|token| (token.kind, &json[token.span]))
            .collect();
        let expected = [
            (Object, "{"),
            (Key, r#""a\"""#),
            (Array, "["),
            (Scalar, "-1.5e3"),
            (Scalar, "true"),
            (Text, r#""x:\\""#),
            (Object, "{"),
            (End, "}"),
            (End, "]"),
            (Key, r#""b""#),
            (Text, r#""c""#),
            (End, "}"),
        ];
        assert_eq!(tokens, expected);
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        let value = RawJson(bytes::Bytes::from(deep));
        assert_eq!(value.tokens().count(), 400_000);
    }

    fn kinds(json: &'static str) -> Vec<TokenKind> {
        RawJson::literal(json)
            .tokens()
            .map(|token| token.kind)
            .collect()
    }

    #[test]
    fn single_values_are_tokens() {
        assert_eq!(kinds("null"), [TokenKind::Scalar]);
        assert_eq!(kinds("\"\""), [TokenKind::Text]);
        assert_eq!(kinds("17"), [TokenKind::Scalar]);
    }
}
