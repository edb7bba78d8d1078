//! Nearest words: what a word with a typo may have meant.
//!
//! Owns the comparison of spellings by trigrams. Does not decide when to compare (`ranking.rs`).
//! Invariant: a shape never rules out a word that is near enough.

/// Least similarity of a word that may have been meant.
const LEAST_SIMILARITY: f32 = 0.4;

/// Spelling of a word that was found nowhere.
pub(crate) struct Spelling {
    trigrams: Vec<u64>,
    shape: u64,
}

impl Spelling {
    pub(crate) fn new(word: &str) -> Spelling {
        let mut trigrams = Vec::new();
        collect_trigrams(word, &mut trigrams);
        Spelling {
            shape: spelling_shape(word),
            trigrams,
        }
    }

    /// Returns false if no word of this shape can be near. Rules out nearly all words at the price
    /// of a few instructions.
    ///
    /// A near word shares a part of all trigrams that both have. Each bit that it lacks stands for
    /// at least one trigram that it lacks, and it has at least as many trigrams as bits.
    pub(crate) fn may_be_near(&self, shape: u64) -> bool {
        let own = self.trigrams.len() as f32;
        let other = shape.count_ones() as f32;
        let lacking = (self.shape & !shape).count_ones() as f32;
        own - lacking >= LEAST_SIMILARITY * (own + other) / 2.0
    }

    /// Similarity of a word, if it is near: twice the shared trigrams over the sum of both.
    /// `buffer` saves allocations.
    pub(crate) fn similarity(&self, word: &str, buffer: &mut Vec<u64>) -> Option<f32> {
        collect_trigrams(word, buffer);
        let mut a = 0;
        let mut b = 0;
        let mut shared = 0;
        while let (Some(left), Some(right)) = (self.trigrams.get(a), buffer.get(b)) {
            shared += u32::from(left == right);
            (a, b) = (
                a + usize::from(left <= right),
                b + usize::from(right <= left),
            );
        }
        let similarity = 2.0 * shared as f32 / (self.trigrams.len() + buffer.len()) as f32;
        (similarity >= LEAST_SIMILARITY).then_some(similarity)
    }
}

/// Set of a word's trigrams as one bit each, where several share a bit.
pub(crate) fn spelling_shape(word: &str) -> u64 {
    trigrams(word).fold(0, |shape, trigram| {
        shape | 1 << (trigram.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
    })
}

/// Collects the trigrams of a word in order, each once.
fn collect_trigrams(word: &str, found: &mut Vec<u64>) {
    found.clear();
    found.extend(trigrams(word));
    found.sort_unstable();
    found.dedup();
}

/// Trigrams of a word. Two spaces before it and one behind it weigh its start.
fn trigrams(word: &str) -> impl Iterator<Item = u64> {
    // 21 bits hold any Unicode character, so three of them fit into one number without a hash.
    let mut window = u64::from(b' ') << 21 | u64::from(b' ');
    word.chars().chain([' ']).map(move |c| {
        window = (window << 21 | u64::from(c)) & ((1 << 63) - 1);
        window
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "search serach issue isue issues repository repositry reposit weather \
                         wether file files a \
                         calendar calender message massage 中文 文中";

    fn are_near(a: &str, b: &str) -> bool {
        Spelling::new(a).similarity(b, &mut Vec::new()).is_some()
    }

    #[test]
    fn typos_are_near_and_others_are_not() {
        assert!(are_near("serach", "search"));
        assert!(are_near("isue", "issue"));
        assert!(are_near("calender", "calendar"));
        assert!(!are_near("weather", "message"));
        assert!(!are_near("file", "issue"));
        assert_eq!(
            Spelling::new("file").similarity("file", &mut Vec::new()),
            Some(1.0)
        );
    }

    #[test]
    fn shapes_rule_out_no_near_word() {
        for a in WORDS.split(' ') {
            let spelling = Spelling::new(a);
            for b in WORDS.split(' ').filter(|b| are_near(a, b)) {
                assert!(spelling.may_be_near(spelling_shape(b)), "{a} {b}");
            }
        }
    }
}
