//! Text of others that people and models read as lines.
//!
//! Owns which characters a reader cannot see, and which sequences only a terminal reads. Does not
//! hide credentials (`redact.rs`). Invariant: no text can start a line, reorder the text next to
//! it, or hide words in itself.

use std::borrow::Cow;
use std::sync::OnceLock;

use regex_lite::Regex;

/// Sequences of ECMA-48 for a terminal: CSI, OSC and other strings, and two-character escapes.
const SEQUENCES: &str = concat!(
    r"(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]",
    r"|(?:\x1b[\]PX^_]|[\x{90}\x{98}\x{9d}-\x{9f}])[^\x07\x1b\x{9c}]*(?:\x07|\x1b\\|\x{9c})",
    r"|\x1b[@-_]",
);
/// Colour codes whose ESC was lost on the way. A bracket behind one would make it an index or a
/// duration, `[5m]`.
const BARE_COLOUR: &str = r"\[[0-9]{1,3}(?:;[0-9]{1,3})*m(?:$|([^\]]))";

/// True for control characters other than a line break or a tab, marks of direction, characters
/// without width, and tags.
pub fn is_invisible(character: char) -> bool {
    // Marks of direction can reverse a name, and tag characters can hide instructions to a model.
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
        || (character.is_control() && !matches!(character, '\n' | '\t'))
}

/// Returns a text without what a reader cannot see. Line breaks and tabs stay.
pub fn readable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_invisible) {
        return Cow::Borrowed(text);
    }
    let clean = without_sequences(text);
    Cow::Owned(
        clean
            .chars()
            .filter_map(|character| readable_char(character, |c| matches!(c, '\n' | '\t')))
            .collect(),
    )
}

/// Returns a text in one line, without what a reader cannot see.
pub fn readable_line(text: &str) -> String {
    without_sequences(text)
        .chars()
        .filter_map(|character| readable_char(character, |_| false))
        .collect()
}

/// Returns what replaces a character. Those that end a line or move the cursor become a space.
fn readable_char(character: char, stays: impl Fn(char) -> bool) -> Option<char> {
    match character {
        c if stays(c) => Some(c),
        c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => Some(' '),
        c if is_invisible(c) => None,
        c => Some(c),
    }
}

/// Removes the sequences that only a terminal reads.
fn without_sequences(text: &str) -> Cow<'_, str> {
    static WHOLE: OnceLock<Regex> = OnceLock::new();
    static BARE: OnceLock<Regex> = OnceLock::new();
    let mut clean = Cow::Borrowed(text);
    if clean.contains([
        '\u{1b}', '\u{90}', '\u{98}', '\u{9b}', '\u{9d}', '\u{9e}', '\u{9f}',
    ]) {
        clean = Cow::Owned(replace_pattern(&clean, &WHOLE, SEQUENCES, ""));
    }
    if clean.contains('[') && clean.contains('m') {
        // Twice: the first search does not find a code directly behind another.
        for _ in 0..2 {
            clean = Cow::Owned(replace_pattern(&clean, &BARE, BARE_COLOUR, "$1"));
        }
    }
    clean
}

/// Replaces each match of a pattern, which is compiled once.
fn replace_pattern(
    text: &str,
    cell: &'static OnceLock<Regex>,
    pattern: &str,
    with: &str,
) -> String {
    cell.get_or_init(|| Regex::new(pattern).expect("the pattern is a literal of ours"))
        .replace_all(text, with)
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_nothing_that_a_reader_cannot_see() {
        for (text, line) in [
            (
                "plain text, with ümläuts and 漢字",
                "plain text, with ümläuts and 漢字",
            ),
            ("two\nlines\r\nand\ttabs", "two lines  and tabs"),
            (
                "next\u{85}line\u{2028}and\u{2029}paragraph",
                "next line and paragraph",
            ),
            (
                "\u{202e}reversed\u{202c} \u{2066}isolated\u{2069}\u{200f}",
                "reversed isolated",
            ),
            ("zero\u{200b}\u{200d}\u{feff}width", "zerowidth"),
            ("tags\u{e0001}\u{e0049}\u{e007f}", "tags"),
            (
                "\u{1b}[31merror\u{1b}[0m: \u{1b}[1;38;5;196mbad\u{1b}[m",
                "error: bad",
            ),
            ("\u{9b}31merror\u{9b}0m", "error"),
            ("[31merror[0m [1;31mbad[0m", "error bad"),
            ("[31m[1mboth[0m[22m", "both"),
            (
                "\u{1b}]0;title\u{7}text \u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\",
                "text link",
            ),
            ("a\u{1b}b \u{1b}", "a b  "),
            (
                "rate(x[5m]) and list[0] and [30s]",
                "rate(x[5m]) and list[0] and [30s]",
            ),
        ] {
            assert_eq!(readable_line(text), line, "{text:?}");
        }
    }

    #[test]
    fn a_text_keeps_its_lines() {
        assert!(matches!(readable("plain\n\ttext"), Cow::Borrowed(_)));
        assert_eq!(
            readable("one\n\ttwo\u{2028}three\u{200b}\r\n"),
            "one\n\ttwo three \n"
        );
    }
}
