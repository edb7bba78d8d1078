//! Judgement of a single word: a machine made it, or a person chose it.
//!
//! Owns the measures of disorder, and the identifiers that are random but public. Does not find the
//! words of a text (`secret_look.rs`). Invariant: identifiers and hashes of commits never look
//! random.

/// Length in hexadecimal digits of the hash of a commit.
const COMMIT: usize = 40;
/// Shortest word that can be random beyond doubt.
const RANDOM: usize = 16;

/// Returns true for the hash of a commit.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == COMMIT && is_hex(text)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns true for an identifier of 32 hexadecimal digits in five groups.
pub fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12])
        && text
            .bytes()
            .all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// Returns true for a word of letters, digits, `-` and `_` that only a machine makes.
pub(super) fn looks_random(word: &str) -> bool {
    if word.len() < RANDOM || is_uuid(word) || is_commit(word) {
        return false;
    }
    let runs: Vec<&str> = word
        .split(['-', '_'])
        .filter(|run| !run.is_empty())
        .collect();
    let letters: usize = runs.iter().map(|run| run.len()).sum();
    // Words that people join are short. In base64, two of 64 characters part them.
    let mean = letters / runs.len().max(1);
    let whole = runs.concat();
    let is_joined = letters >= 24 && mean >= 7 && is_mixed(&whole)
        || letters >= 15 && mean >= 4 && changes_in(&whole) * 3 >= letters;
    runs.iter()
        .any(|run| run.len() >= RANDOM && is_random_run(run))
        || is_joined
}

/// Returns true for letters and digits in no order.
fn is_random_run(run: &str) -> bool {
    let has_digit = run.contains(|c: char| c.is_ascii_digit());
    let has_letter = run.contains(|c: char| c.is_ascii_alphabetic());
    match (has_digit, has_letter) {
        (true, false) => run.len() > 24,
        (true, true) => is_mixed(run) || run.len() >= 24 && is_hex(run),
        (false, _) => is_mixed(run) || is_unspeakable(run),
    }
}

/// Returns true if letters, capitals and digits alternate more often than in words and names.
fn is_mixed(run: &str) -> bool {
    let changes = changes_in(run);
    changes >= 4 && changes * 6 >= run.len()
}

/// Counts the changes between letters, capitals and digits, without those of words.
pub(super) fn changes_in(run: &str) -> usize {
    let mut changes = 0;
    let mut lower = 0;
    for pair in run.as_bytes().windows(2) {
        let before = char_class(pair[0]);
        let after = char_class(pair[1]);
        lower = if before == 1 { lower + 1 } else { 0 };
        // A capital starts a word, and follows one in `camelCase`.
        let is_word = before == 2 && after == 1 || before == 1 && after == 2 && lower >= 3;
        changes += usize::from(before != after && !is_word);
    }
    changes
}

/// Returns 0 for a digit, 1 for a small letter and 2 for a capital.
fn char_class(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => 0,
        b'a'..=b'z' => 1,
        _ => 2,
    }
}

/// Returns true for letters that nobody can say.
fn is_unspeakable(run: &str) -> bool {
    let vowels = run.bytes().filter(is_vowel).count();
    let longest = run
        .as_bytes()
        .split(is_vowel)
        .map(<[u8]>::len)
        .max()
        .unwrap_or_default();
    run.len() >= 20 && (vowels * 6 < run.len() || longest >= 8)
}

fn is_vowel(byte: &u8) -> bool {
    b"aeiouyAEIOUY".contains(byte)
}
