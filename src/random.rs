//! Random bytes from the kernel.
//!
//! Owns the only source of randomness for secrets. Does not derive keys. Invariant: the program stops rather than
//! return weak bytes.

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns random bytes that are fit for secrets.
///
/// Panics if the kernel has no random source: nothing that needs a secret may continue then.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        // A signal can shorten the result, or interrupt the call before any byte.
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => panic!("the kernel has no random source: {e}"),
        }
    }
    bytes
}
