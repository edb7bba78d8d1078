//! Resident memory of this process.
//!
//! Owns its reading. Does not judge it. Invariant: a reading costs three system calls and no
//! allocation, since a gateway takes one ten times a second.

/// Returns the resident memory in bytes. `None`: the system does not say. Only Linux has `/proc`.
#[cfg(unix)]
pub fn resident_bytes() -> Option<usize> {
    use std::io::Read;

    let mut text = [0; 128];
    let mut file = std::fs::File::open("/proc/self/statm").ok()?;
    let length = file.read(&mut text).ok()?;
    let pages = resident_pages(text.get(..length)?)?;
    pages.checked_mul(rustix::param::page_size())
}

/// Returns the resident memory in bytes. `None`: the system does not say.
#[cfg(not(unix))]
pub fn resident_bytes() -> Option<usize> {
    None
}

/// Reads the second number of `/proc/self/statm`, in pages (proc(5)).
#[cfg(unix)]
fn resident_pages(text: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(text).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_counts_pages() {
        assert_eq!(resident_pages(b"9000 1234 500 1 0 800 0\n"), Some(1234));
        assert_eq!(resident_pages(b"9000"), None);
        assert_eq!(resident_pages(b""), None);
    }

    #[test]
    fn memory_that_is_written_is_resident() {
        let Some(before) = resident_bytes() else {
            return;
        };
        let size = 64 << 20;
        let written = vec![1_u8; size];
        let after = resident_bytes().unwrap();
        assert!(after >= before + size / 2, "{before} {after}");
        drop(written);
    }
}
