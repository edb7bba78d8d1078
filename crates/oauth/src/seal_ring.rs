//! Seals of one purpose: the current key seals, earlier ones still open.
//!
//! Owns the order of the keys. Does not know where they come from (`root_secrets.rs`). Invariant:
//! nothing is sealed with an earlier key.

use std::iter;

use crate::row_seal::RowSeal;

/// Seals of one purpose, under the current root secret and earlier ones.
#[derive(Debug)]
pub struct SealRing {
    current: RowSeal,
    before: Vec<RowSeal>,
}

impl SealRing {
    /// Creates the seals of a purpose.
    pub(crate) fn of(current: RowSeal, before: Vec<RowSeal>) -> Self {
        SealRing { current, before }
    }

    /// Seals bytes under a name with the current key, and returns base64url.
    pub fn seal(&self, aad: &str, plain: &[u8]) -> String {
        self.current.seal(aad, plain)
    }

    /// Opens a seal by any of the keys under the same name. `None` for anything else.
    pub fn open(&self, aad: &str, sealed: &str) -> Option<Vec<u8>> {
        // Each seal names its key, so the others refuse it without trying.
        iter::once(&self.current)
            .chain(&self.before)
            .find_map(|seal| seal.open(aad, sealed))
    }

    /// Returns true if the current key made a seal. Otherwise the row has to be resealed.
    pub fn is_current(&self, sealed: &str) -> bool {
        self.current.has_sealed(sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(key: u8) -> RowSeal {
        RowSeal::of_key(&[key; 32])
    }

    #[test]
    fn a_key_that_is_not_in_the_ring_opens_nothing_and_another_name_neither() {
        let ring = SealRing::of(seal(1), vec![seal(2)]);
        assert_eq!(ring.open("a", &seal(3).seal("a", b"row")), None);
        assert_eq!(ring.open("b", &ring.seal("a", b"row")), None);
        assert_eq!(ring.open("a", ""), None);
    }

    #[test]
    fn earlier_keys_open_and_only_the_current_one_seals() {
        let ring = SealRing::of(seal(1), vec![seal(2), seal(3)]);
        for key in 1..=3 {
            let sealed = seal(key).seal("a", b"row");
            assert_eq!(ring.open("a", &sealed).as_deref(), Some(&b"row"[..]));
            assert_eq!(ring.is_current(&sealed), key == 1);
        }
        assert!(ring.is_current(&ring.seal("a", b"row")));
        assert!(seal(1).open("a", &ring.seal("a", b"row")).is_some());
    }
}
