//! Random bytes from the operating system.
//!
//! Owns the only source of randomness for secrets. Does not derive keys. Invariant: the program
//! stops rather than return weak bytes.

/// Returns random bytes that are fit for secrets.
///
/// Panics if the operating system has no random source: nothing that needs a secret may continue
/// then.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if let Err(e) = getrandom::fill(&mut bytes) {
        panic!("the operating system has no random source: {e}");
    }
    bytes
}
