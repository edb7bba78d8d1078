//! Nearest words: what a word with a typo may have meant.
//!
//! Owns the comparison of spellings by trigrams. Does not decide when to compare (`ranking.rs`). Invariant: a shape never
//! rules out a word that is near enough.

/// Least similarity of a word that may have been meant.
const LEAST_SIMILARITY: f32 = 0.4;

/// Spelling of a word that was found nowhere.
pub(crate) struct Spelling {
    trigrams: Vec<u64>,
    shape: u64,
    /// Bits of the shape that a near word may lack.
    spare: u32,
}

impl Spelling {
    pub(crate) fn new(word: &str) -> Spelling {
        let trigrams = trigrams(word);
        let shape = shape_of(&trigrams);
        // A near word shares at least s * n / (2 - s) of n trigrams: then it is part of the word. Each bit that it lacks
        // stands for at least one trigram that it lacks.
        let shared = (LEAST_SIMILARITY * trigrams.len() as f32 / (2.0 - LEAST_SIMILARITY)).ceil() as u32;
        let spare = (trigrams.len() as u32).saturating_sub(shared);
        Spelling { trigrams, shape, spare }
    }

    /// Tells whether a word of this shape can be near. Rules out nearly all words at the price of a few instructions.
    pub(crate) fn may_be_near(&self, shape: u64) -> bool {
        (self.shape & !shape).count_ones() <= self.spare
    }

    /// Similarity of a word, if it is near: twice the shared trigrams over the sum of both.
    pub(crate) fn similarity(&self, word: &str) -> Option<f32> {
        let other = trigrams(word);
        let (mut a, mut b, mut shared) = (0, 0, 0);
        while let (Some(left), Some(right)) = (self.trigrams.get(a), other.get(b)) {
            shared += u32::from(left == right);
            (a, b) = (a + usize::from(left <= right), b + usize::from(right <= left));
        }
        let similarity = 2.0 * shared as f32 / (self.trigrams.len() + other.len()) as f32;
        (similarity >= LEAST_SIMILARITY).then_some(similarity)
    }
}

/// Set of a word's trigrams as one bit each, where several share a bit.
pub(crate) fn spelling_shape(word: &str) -> u64 {
    shape_of(&trigrams(word))
}

fn shape_of(trigrams: &[u64]) -> u64 {
    trigrams.iter().fold(0, |shape, trigram| shape | 1 << (trigram.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58))
}

/// Trigrams of a word in order, each once. Two spaces before it and one behind it weigh its beginning.
fn trigrams(word: &str) -> Vec<u64> {
    let mut window = u64::from(b' ') << 21 | u64::from(b' ');
    let mut found: Vec<u64> = word
        .chars()
        .chain([' '])
        .map(|c| {
            window = (window << 21 | u64::from(c)) & ((1 << 63) - 1);
            window
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "search serach issue isue issues repository repositry reposit weather wether file files a \
                         calendar calender message massage 中文 文中";

    #[test]
    fn typos_are_near_and_others_are_not() {
        let near = |a: &str, b: &str| Spelling::new(a).similarity(b).is_some();
        assert!(near("serach", "search") && near("isue", "issue") && near("calender", "calendar"));
        assert!(!near("weather", "message") && !near("file", "issue"));
        assert_eq!(Spelling::new("file").similarity("file"), Some(1.0));
    }

    #[test]
    fn shapes_rule_out_no_near_word() {
        for a in WORDS.split(' ') {
            let spelling = Spelling::new(a);
            for b in WORDS.split(' ').filter(|b| spelling.similarity(b).is_some()) {
                assert!(spelling.may_be_near(spelling_shape(b)), "{a} {b}");
            }
        }
    }
}
