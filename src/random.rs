//! Random bytes from the kernel.

use rustix::rand::{GetRandomFlags, getrandom};

/// Random bytes, fit for secrets.
///
/// # Panics
/// Where the kernel has no random source: nothing that needs a secret may go on then.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        // Interrupted by a signal, it gives less than was asked for, or an error that means the same.
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => panic!("the kernel has no random source: {e}"),
        }
    }
    bytes
}
