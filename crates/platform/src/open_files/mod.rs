//! Limit of open files of this process, and of the programs that it starts.
//!
//! Owns the limit that this process was started with. Does not decide what the files are used for.
//! Invariant: programs get the limit that this process was started with, since some cannot use more
//! (`select`), or visit each number.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as system;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as system;

#[cfg(unix)]
pub(crate) use system::spawn;
pub use system::{is_exhausted, limit, open, raise_limit};

/// Highest limit that this process asks for.
#[cfg(unix)]
const LIMIT_MAX: u64 = 65_536;
