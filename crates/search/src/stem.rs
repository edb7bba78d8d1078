//! Stems: one form for the inflections of an English word.
//!
//! Owns a dozen suffixes. Does not know irregular words. Invariant: a stem is a prefix of its word
//! with at most one letter changed.

/// Cuts inflections off an English word in lower case. Other words stay as they are.
pub(crate) fn stem(word: &str) -> String {
    let mut word = word.to_owned();
    cut_to_stem(&mut word);
    word
}

/// Cuts a word to its stem in place.
pub(crate) fn cut_to_stem(word: &mut String) {
    // Other alphabets have other inflections. Short words, such as `bed` and `ads`, lose their
    // meaning.
    if word.len() < 4 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return;
    }
    cut_plural(word);
    for suffix in ["ing", "ed"] {
        let Some(rest) = word.strip_suffix(suffix) else {
            continue;
        };
        // `string` and `spring` end with `ing` by themselves: what would stay has no vowel.
        if rest.len() >= 3 && has_vowel(rest) {
            word.truncate(word.len() - suffix.len());
            cut_doubled(word);
            break;
        }
    }
    // `creation` and `create`, `calculator` and `calculate`.
    for (suffix, least) in [("ion", 4), ("or", 4), ("er", 4)] {
        let Some(rest) = word.strip_suffix(suffix) else {
            continue;
        };
        if rest.len() >= least && (suffix == "er" || rest.ends_with(['t', 's'])) {
            word.truncate(word.len() - suffix.len());
            cut_doubled(word);
            break;
        }
    }
    if word.len() > 3 && word.ends_with('e') {
        word.pop();
    }
    if word.len() > 3 && word.ends_with('y') {
        word.pop();
        word.push('i');
    }
}

fn cut_plural(word: &mut String) {
    if word.ends_with("ies") && word.len() > 4 {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if ["sses", "xes", "ches", "shes", "zes"]
        .iter()
        .any(|suffix| word.ends_with(suffix))
    {
        word.truncate(word.len() - 2);
    } else if word.ends_with('s')
        && !["ss", "us", "is"]
            .iter()
            .any(|suffix| word.ends_with(suffix))
    {
        word.pop();
    }
}

fn has_vowel(text: &str) -> bool {
    text.contains(['a', 'e', 'i', 'o', 'u', 'y'])
}

/// Turns `stopp` into `stop`. Words such as `call` and `pass` double their last letter by
/// themselves.
fn cut_doubled(word: &mut String) {
    let bytes = word.as_bytes();
    if let [.., a, b] = bytes
        && a == b
        && !matches!(b, b'l' | b's' | b'z' | b'e' | b'o')
    {
        word.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inflections_share_a_stem() {
        for family in [
            "create creates created creating creation",
            "calculate calculator calculation",
            "search searches searching searched",
            "repository repositories",
            "stop stopped stopping",
            "convert converter converts",
        ] {
            let stems: Vec<String> = family.split(' ').map(stem).collect();
            assert!(
                stems.iter().all(|other| *other == stems[0]),
                "{family}: {stems:?}"
            );
        }
    }

    #[test]
    fn short_and_foreign_words_stay() {
        for word in ["is", "as", "ids", "größe", "文件", "s3a9ed"] {
            assert_eq!(stem(word), word);
        }
    }
}
