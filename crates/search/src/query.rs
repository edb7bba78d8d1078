//! Queries: the words of a request, each once.
//!
//! Owns the bounds of a query. Does not know the index. Invariant: a query has at most
//! `MAX_QUERY_WORDS` words, one bit of a mask for each.

use crate::stem::stem;
use crate::tokens::for_each_word;

/// Words of a query that count.
pub(crate) const MAX_QUERY_WORDS: usize = 64;
/// Read from a query, in bytes.
const MAX_QUERY: usize = 4096;

/// Word of a query.
pub(crate) struct QueryWord {
    pub(crate) stem: String,
    /// As the query has it, in lower case.
    pub(crate) text: String,
    /// Whole of several parts, which counts only where it is found.
    pub(crate) joined: bool,
}

/// Reads the words of a query.
pub(crate) fn query_words(query: &str) -> Vec<QueryWord> {
    let mut words: Vec<QueryWord> = Vec::new();
    for_each_word(&query[..query.floor_char_boundary(MAX_QUERY)], |word| {
        // Comparing with all known words is cheap here: there are at most 64.
        let stem = stem(word.text);
        match words.iter_mut().find(|known| known.stem == stem) {
            // A word that is also alone counts even if it is found nowhere.
            Some(known) => known.joined &= word.joined,
            None => words.push(QueryWord {
                stem,
                text: word.text.to_owned(),
                joined: word.joined,
            }),
        }
        words.len() < MAX_QUERY_WORDS
    });
    words
}
