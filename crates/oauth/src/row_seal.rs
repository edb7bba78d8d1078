//! Encryption of rows and files at rest.
//!
//! Owns the format: the key's id, the nonce and the ciphertext. Does not store anything. Invariant:
//! a seal opens only with the same secret, purpose and name, so sealed rows can't be swapped or
//! altered.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Length of the key's id.
const ID_LEN: usize = 4;

/// Seal of one purpose, under a root secret.
#[derive(Debug)]
pub struct RowSeal {
    /// Id of the key. Each seal names it, so one from another secret is refused without decryption.
    id: [u8; ID_LEN],
    key: LessSafeKey,
}

impl RowSeal {
    /// Creates the seal of a key that no other purpose has.
    pub fn of_key(key: &[u8; 32]) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(b"moongate id of a row seal's key");
        context.update(key);
        let digest = context.finish();
        let id = *digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        let key = UnboundKey::new(&AES_256_GCM_SIV, key).expect("the key has 256 bits");
        RowSeal {
            id,
            key: LessSafeKey::new(key),
        }
    }

    /// Seals bytes under a name, and returns base64url. Two seals of the same bytes differ.
    pub fn seal(&self, aad: &str, plain: &[u8]) -> String {
        // A random nonce is safe: AES-GCM-SIV (RFC 8452) tolerates a repeated nonce.
        let nonce: [u8; NONCE_LEN] = moongate_random::random_bytes();
        let mut sealed = plain.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(unique, self.bind(aad), &mut sealed)
            .expect("a row fits into memory");
        URL_SAFE_NO_PAD.encode([&self.id[..], &nonce, &sealed].concat())
    }

    /// Opens what [`RowSeal::seal`] returned for the same name. `None` for anything else.
    pub fn open(&self, aad: &str, sealed: &str) -> Option<Vec<u8>> {
        let whole = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (id, rest) = whole.split_first_chunk::<ID_LEN>()?;
        if *id != self.id {
            return None;
        }
        let (nonce, encrypted) = rest.split_first_chunk::<NONCE_LEN>()?;
        let mut encrypted = encrypted.to_vec();
        let unique = Nonce::assume_unique_for_key(*nonce);
        let plain = self
            .key
            .open_in_place(unique, self.bind(aad), &mut encrypted)
            .ok()?;
        Some(plain.to_vec())
    }

    /// Returns true if a text names the key of this seal. It may still be altered.
    pub fn has_sealed(&self, sealed: &str) -> bool {
        // Eight characters are six bytes, and the first four are the id.
        let start = sealed
            .get(..8)
            .and_then(|start| URL_SAFE_NO_PAD.decode(start).ok());
        start.is_some_and(|start| start.starts_with(&self.id))
    }

    /// Builds the data that is authenticated but not encrypted. The id's length is fixed, so the
    /// two do not run together.
    fn bind(&self, aad: &str) -> Aad<Vec<u8>> {
        Aad::from([&self.id[..], aad.as_bytes()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_opens_with_its_key_and_name_alone() {
        let seal = RowSeal::of_key(&[7; 32]);
        let sealed = seal.seal("linear", b"token");
        assert_eq!(seal.open("linear", &sealed).as_deref(), Some(&b"token"[..]));
        assert_eq!(seal.open("sentry", &sealed), None);
        assert_eq!(RowSeal::of_key(&[8; 32]).open("linear", &sealed), None);
        assert!(!sealed.contains("token"));
    }

    #[test]
    fn a_seal_knows_what_its_key_has_sealed() {
        let seal = RowSeal::of_key(&[7; 32]);
        let sealed = seal.seal("linear", b"");
        assert!(seal.has_sealed(&sealed));
        assert!(!RowSeal::of_key(&[8; 32]).has_sealed(&sealed));
        for text in ["", "AAAA", "not base64!", "\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}"] {
            assert!(!seal.has_sealed(text), "{text}");
        }
    }

    #[test]
    fn seals_of_the_same_bytes_differ() {
        let seal = RowSeal::of_key(&[7; 32]);
        assert_ne!(seal.seal("a", b"token"), seal.seal("a", b"token"));
    }

    #[test]
    fn no_flipped_bit_and_no_cut_goes_unnoticed() {
        let seal = RowSeal::of_key(&[7; 32]);
        let sealed = URL_SAFE_NO_PAD.decode(seal.seal("a", b"token")).unwrap();
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut flipped = sealed.clone();
                flipped[at] ^= 1 << bit;
                let text = URL_SAFE_NO_PAD.encode(&flipped);
                assert_eq!(seal.open("a", &text), None, "byte {at}, bit {bit}");
            }
            let cut = URL_SAFE_NO_PAD.encode(&sealed[..at]);
            assert_eq!(seal.open("a", &cut), None, "cut at {at}");
        }
        assert_eq!(seal.open("a", "not base64!"), None);
    }
}
