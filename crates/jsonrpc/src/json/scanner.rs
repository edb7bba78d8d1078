//! Fast scanner for spans of JSON, for messages in their common form.
//!
//! Owns the walk over text that is known to be UTF-8. Does not report errors. Invariant: it accepts
//! exactly what `serde_json` accepts. Anything invalid or unusual (a key with escapes, deep
//! nesting) is `None`, and serde decides. Strings are scanned many bytes at a time: they are most
//! of a large message.

use std::ops::Range;

/// Limit of recursion. Deeper values are left to serde, which does not need the stack for them.
const DEPTH_MAX: usize = 64;

/// Position in one text.
pub(crate) struct JsonScanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> JsonScanner<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        JsonScanner { text, at: 0 }
    }

    /// Returns the current position.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Returns the next byte that isn't white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.text.get(self.at)? {
                b' ' | b'\n' | b'\t' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    /// True if only white space is left.
    pub(crate) fn is_finished(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Consumes this byte and any white space before it.
    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.peek()? == wanted).then(|| self.at += 1)
    }

    /// Scans an object. `member` gets each key and must consume its value.
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Range<usize>) -> Option<()>,
    ) -> Option<()> {
        self.take(b'{')?;
        // An empty object has no comma to look for.
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            let key = self.plain_string()?;
            self.take(b':')?;
            member(self, key)?;
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    /// Scans a string without escapes and returns the span between its quotes.
    pub(crate) fn plain_string(&mut self) -> Option<Range<usize>> {
        self.take(b'"')?;
        let start = self.at;
        self.at += plain_len(self.text.get(start..)?);
        let span = start..self.at;
        (*self.text.get(self.at)? == b'"').then(|| self.at += 1)?;
        Some(span)
    }

    /// Scans one value and returns its span.
    pub(crate) fn value(&mut self) -> Option<Range<usize>> {
        self.peek()?;
        let start = self.at;
        self.skip(0)?;
        Some(start..self.at)
    }

    fn skip(&mut self, depth: usize) -> Option<()> {
        // Recursion in a text from outside must be bounded: the stack is.
        if depth > DEPTH_MAX {
            return None;
        }
        match self.peek()? {
            b'"' => self.string(),
            b'{' => self.object_below(depth + 1),
            b'[' => self.array(depth + 1),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            _ => self.number(),
        }
    }

    fn object_below(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            // Keys below the first level may have escapes: they are not read, only passed over.
            (self.peek()? == b'"').then_some(())?;
            self.string()?;
            self.take(b':')?;
            self.skip(depth)?;
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => break,
                _ => return None,
            }
        }
        self.at += 1;
        Some(())
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        if self.peek()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.skip(depth)?;
            match self.peek()? {
                b',' => self.at += 1,
                b']' => break,
                _ => return None,
            }
        }
        self.at += 1;
        Some(())
    }

    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            self.at += plain_len(self.text.get(self.at..)?);
            match *self.text.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => self.at += self.escape()?,
                _ => return None,
            }
        }
    }

    /// Returns the length of the escape at the current position, if valid. Surrogate pairs are not
    /// checked, as in serde.
    fn escape(&self) -> Option<usize> {
        match self.text.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
            b'u' => {
                // Four hexadecimal digits; a truncated escape is left to serde.
                let digits = self.text.get(self.at + 2..self.at + 6)?;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(6)
            }
            _ => None,
        }
    }

    fn literal(&mut self, word: &[u8]) -> Option<()> {
        self.text
            .get(self.at..)?
            .starts_with(word)
            .then(|| self.at += word.len())
    }

    fn number(&mut self) -> Option<()> {
        if self.text.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        let whole = self.at;
        self.digits()?;
        // RFC 8259, section 6: "Leading zeros are not allowed."
        if self.text[whole] == b'0' && self.at > whole + 1 {
            return None;
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.text.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// Consumes at least one digit.
    fn digits(&mut self) -> Option<()> {
        // `get` instead of an index: a truncated text must not panic.
        let rest = self.text.get(self.at..)?;
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(())
    }
}

/// Length up to which strings are scanned in short steps. Only longer ones are worth the long
/// steps.
const SHORT: usize = 32;
/// Length of a long step, in bytes.
const STEP: usize = 64;

/// Returns the number of leading bytes that need no escape in a JSON string.
pub(crate) fn plain_len(text: &[u8]) -> usize {
    let short = &text[..text.len().min(SHORT)];
    // Keys and short values end here, before the long steps cost anything.
    let mut at = plain_len_by_words(short);
    if at < SHORT {
        return at;
    }
    at += STEP
        * text[at..]
            .chunks_exact(STEP)
            .take_while(|step| {
                // No early exit within a step, so that the compiler emits a few vector
                // instructions.
                !step
                    .iter()
                    .fold(false, |found, byte| found | is_special(*byte))
            })
            .count();
    at + plain_len_by_words(&text[at..])
}

/// True for quotes, backslashes and control characters. Flipping bit 1 of the quote (0x22) puts it
/// right behind the control characters, which stay in their range.
fn is_special(byte: u8) -> bool {
    (byte ^ 2 <= 0x20) | (byte == b'\\')
}

/// Counts plain bytes, eight at a time.
fn plain_len_by_words(text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks::<8>();
    for (n, word) in words.iter().enumerate() {
        let found = special_in(u64::from_le_bytes(*word));
        if found != 0 {
            return n * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    words.len() * 8 + rest.iter().take_while(|byte| !is_special(**byte)).count()
}

/// Returns a word whose lowest high bit marks the first special byte. Higher bits may be wrong.
fn special_in(word: u64) -> u64 {
    // The same flip as in `is_special`: one test finds quotes and control characters.
    bytes_below(word ^ (ONES * 2), 0x21) | bytes_equal(word, b'\\')
}

/// Factor that copies a byte to all bytes of a word.
const ONES: u64 = u64::MAX / 0xff;

/// Marks the bytes of a word that are below a limit, by the well-known test without branches.
#[inline]
fn bytes_below(word: u64, limit: u8) -> u64 {
    const HIGH: u64 = ONES * 0x80;
    word.wrapping_sub(ONES * u64::from(limit)) & !word & HIGH
}

#[inline]
fn bytes_equal(word: u64, byte: u8) -> u64 {
    bytes_below(word ^ (ONES * u64::from(byte)), 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;
    use crate::json::tests::value;

    fn scanned(text: &str) -> Option<&str> {
        let mut scan = JsonScanner::new(text.as_bytes());
        let span = scan.value()?;
        scan.is_finished().then(|| &text[span])
    }

    proptest! {
        /// Compares scanner and serde on valid text, and on text with one changed character.
        #[test]
        fn takes_what_serde_takes(text in value(), at in any::<prop::sample::Index>(),
            with in prop::sample::select(r#"{}[]",:\u0123456789eE.+-tfn abc"#.chars().collect::<Vec<_>>())) {
            prop_assert_eq!(scanned(&text), Some(text.trim()));
            let mut changed: Vec<char> = text.chars().collect();
            let at = at.index(changed.len());
            changed[at] = with;
            let changed: String = changed.into_iter().collect();
            prop_assert_eq!(scanned(&changed),
                serde_json::from_str::<&RawValue>(&changed).ok().map(RawValue::get), "{}", changed);
            let cut: String = text.chars().take(at).collect();
            prop_assert_eq!(scanned(&cut),
                serde_json::from_str::<&RawValue>(&cut).ok().map(RawValue::get), "{}", cut);
        }

        #[test]
        fn strings_end_where_they_do(text in "[a-z\u{e9}\u{7f}]{0,300}",
            rest in "[\"\\\\\u{0}-\u{1f}][a-z]{0,20}") {
            prop_assert_eq!(plain_len(format!("{text}{rest}").as_bytes()), text.len());
            prop_assert_eq!(plain_len(text.as_bytes()), text.len());
        }
    }

    #[test]
    fn odd_values_are_as_serde_has_them() {
        let odd = [
            "-",
            "01",
            "-01",
            "1.",
            ".5",
            "1e",
            "1e+",
            "-0",
            "0",
            "1E-3",
            "tru",
            "truex",
            "nul",
            "\"\\ud800\"",
            "\"\\u12g4\"",
            "\"\\x\"",
            "\"\u{1}\"",
            "\"\u{7f}\"",
            "{\"a\":1,}",
            "[1,]",
            "{,}",
            "{\"a\"}",
            "{1:2}",
            "[1 2]",
            "\u{a0}1",
            "\u{c}1",
            "",
            " ",
            "1 ",
        ];
        for text in odd {
            let serde = serde_json::from_str::<&RawValue>(text)
                .ok()
                .map(RawValue::get);
            assert_eq!(scanned(text), serde, "{text:?}");
        }
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert_eq!(scanned(&deep), None);
    }
}
