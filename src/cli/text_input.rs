//! Text on standard input. Owns the limit of its size.
//!
//! Does not parse it. Invariant: input without an end is an error, and never fills the memory.

use std::io::Read;

use anyhow::{Context, ensure};

/// Largest text that is read, in bytes. Files with a client's whole history have about 10 MiB.
pub(super) const TEXT_MAX: u64 = 64 << 20;

/// Reads standard input to its end.
pub(super) fn read_stdin() -> anyhow::Result<String> {
    read_text(std::io::stdin().lock(), TEXT_MAX)
}

fn read_text(input: impl Read, limit: u64) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = input.take(limit + 1).read_to_end(&mut bytes);
    let length = read.context("stdin cannot be read")? as u64;
    ensure!(length <= limit, "stdin has more than {} MiB", limit >> 20);
    String::from_utf8(bytes).context("stdin cannot be read")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn input_without_an_end_is_an_error_with_the_limit() {
        let limit = 1 << 20;
        let error = read_text(std::io::repeat(b'a'), limit).unwrap_err();
        assert_eq!(error.to_string(), "stdin has more than 1 MiB");
        let longest = read_text(std::io::repeat(b'a').take(limit), limit).unwrap();
        assert_eq!(longest.len() as u64, limit);
        let error = read_text(&b"\xff"[..], limit).unwrap_err();
        assert_eq!(error.to_string(), "stdin cannot be read");
    }
}
