//! Words of a text: runs of letters and digits, split where a name changes its case.
//!
//! Owns splitting, lower case and stop words. Does not stem (`stem.rs`). Invariant: no word is
//! longer than `MAX_WORD` bytes.

/// Longest word in bytes. The rest of a longer one is cut off.
// Longer ones are ids or encoded data, which nobody searches for.
pub(crate) const MAX_WORD: usize = 32;

const LONGEST_STOP_WORD: usize = "everything".len();
/// Words that say nothing about what a tool does, in order.
const STOP_WORDS: [&str; 81] = [
    "a",
    "about",
    "all",
    "am",
    "an",
    "and",
    "any",
    "anything",
    "are",
    "as",
    "at",
    "be",
    "been",
    "but",
    "by",
    "can",
    "could",
    "d",
    "did",
    "do",
    "does",
    "each",
    "everything",
    "for",
    "from",
    "given",
    "has",
    "have",
    "how",
    "i",
    "if",
    "in",
    "into",
    "is",
    "it",
    "its",
    "ll",
    "m",
    "may",
    "me",
    "my",
    "need",
    "of",
    "on",
    "or",
    "our",
    "please",
    "re",
    "s",
    "should",
    "so",
    "some",
    "something",
    "such",
    "t",
    "than",
    "that",
    "the",
    "their",
    "them",
    "then",
    "there",
    "these",
    "they",
    "this",
    "those",
    "to",
    "up",
    "use",
    "using",
    "ve",
    "want",
    "was",
    "we",
    "what",
    "when",
    "where",
    "which",
    "will",
    "with",
    "you",
];

/// Word of a text, in lower case.
pub(crate) struct TextWord<'a> {
    pub(crate) text: &'a str,
    /// Whole of several parts, such as `github` next to `git` and `hub` from `GitHub`.
    pub(crate) joined: bool,
}

/// Calls `visit` with each word that isn't a stop word. It returns false to end.
pub(crate) fn for_each_word(text: &str, mut visit: impl FnMut(TextWord) -> bool) {
    let mut buffer = String::new();
    let mut emit = |word: &str, joined: bool| {
        lower_into(&mut buffer, word);
        // A stop word is passed over and does not end the visit.
        is_stop_word(&buffer)
            || visit(TextWord {
                text: &buffer,
                joined,
            })
    };
    for run in text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|run| !run.is_empty())
    {
        if !split_run(run, &mut emit) {
            return;
        }
    }
}

fn is_stop_word(word: &str) -> bool {
    // The length first: most words of a schema are longer, and need no search.
    word.len() <= LONGEST_STOP_WORD && STOP_WORDS.binary_search(&word).is_ok()
}

fn lower_into(buffer: &mut String, word: &str) {
    buffer.clear();
    if word.is_ascii() {
        buffer.push_str(&word[..word.len().min(MAX_WORD)]);
        buffer.make_ascii_lowercase();
        return;
    }
    for c in word.chars().flat_map(char::to_lowercase) {
        // Lower case may be longer than the word: `İ` becomes two characters.
        if buffer.len() + c.len_utf8() > MAX_WORD {
            break;
        }
        buffer.push(c);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Lower,
    Upper,
    Digit,
    Ideograph,
}

fn class_of(c: char) -> CharClass {
    match c {
        '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{323af}' => CharClass::Ideograph,
        _ if c.is_numeric() => CharClass::Digit,
        _ if c.is_uppercase() => CharClass::Upper,
        _ => CharClass::Lower,
    }
}

/// Splits a run of letters and digits into parts, then names the whole if there was more than one.
fn split_run(run: &str, emit: &mut impl FnMut(&str, bool) -> bool) -> bool {
    let mut chars = run
        .char_indices()
        .map(|(at, c)| (at, class_of(c)))
        .peekable();
    let mut start = 0;
    let mut parts = 0;
    let mut has_ideographs = false;
    while let Some((at, class)) = chars.next() {
        has_ideographs |= class == CharClass::Ideograph;
        let Some(&(next, next_class)) = chars.peek() else {
            break;
        };
        // `HTTPServer` is `HTTP` and `Server`: the last capital belongs to the letters that follow
        // it.
        let ends_capitals =
            class == CharClass::Upper && next_class == CharClass::Lower && at > start;
        let end = match (class, next_class) {
            (CharClass::Upper, CharClass::Lower) if ends_capitals => at,
            (CharClass::Upper, CharClass::Lower) => continue,
            (a, b) if a == b => continue,
            _ => next,
        };
        parts += 1;
        if !emit_part(&run[start..end], emit) {
            return false;
        }
        start = end;
    }
    // People write `git hub` and `github` alike. The joined word finds names that the split would
    // miss.
    emit_part(&run[start..], emit) && (parts == 0 || has_ideographs || emit(run, true))
}

/// Emits a part, or each pair of neighbours in scripts that write no spaces.
fn emit_part(part: &str, emit: &mut impl FnMut(&str, bool) -> bool) -> bool {
    if part
        .chars()
        .next()
        .is_none_or(|c| class_of(c) != CharClass::Ideograph)
        || part.chars().nth(1).is_none()
    {
        return emit(part, false);
    }
    let ends = part
        .char_indices()
        .map(|(at, _)| at)
        .skip(2)
        .chain([part.len()]);
    let starts = part.char_indices().map(|(at, _)| at);
    // Pairs overlap, so that a query of two characters finds them wherever a word starts.
    starts
        .zip(ends)
        .all(|(start, end)| emit(&part[start..end], false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        let mut found = Vec::new();
        for_each_word(text, |word| {
            found.push(if word.joined {
                format!("({})", word.text)
            } else {
                word.text.to_owned()
            });
            true
        });
        found.join(" ")
    }

    #[test]
    fn words_are_split_where_names_change_their_case() {
        for (text, expected) in [
            ("get_current-weather", "get current weather"),
            ("getHTTPServer2", "get http server 2 (gethttpserver2)"),
            ("GitHub", "git hub (github)"),
            ("Étage été", "étage été"),
            ("all of the files in S3", "files s 3 (s3)"),
            ("", ""),
        ] {
            let expected = expected.replace(" s 3", " 3");
            assert_eq!(words(text), expected, "{text}");
        }
    }

    #[test]
    fn scripts_without_spaces_become_pairs() {
        assert_eq!(words("中文必应 search"), "中文 文必 必应 search");
        assert_eq!(words("bing搜索"), "bing 搜索");
        assert_eq!(words("字"), "字");
    }

    #[test]
    fn words_are_bounded_and_stop_words_in_order() {
        assert_eq!(words(&"é".repeat(1000)).len(), MAX_WORD);
        assert!(STOP_WORDS.is_sorted());
        assert_eq!(
            STOP_WORDS.iter().map(|word| word.len()).max(),
            Some(LONGEST_STOP_WORD)
        );
    }
}
