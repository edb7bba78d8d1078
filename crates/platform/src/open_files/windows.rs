//! Open files on Windows: a process cannot set a limit.

use std::io;

/// Raises the limit of this process as far as it may.
pub fn raise_limit() {}

/// Returns the limit of this process. `None` if there is none.
pub fn limit() -> Option<u64> {
    None
}

/// Returns the number of open files, or 0 if the system does not say.
pub fn open() -> u64 {
    0
}

/// True if an error says that no more files can be opened.
pub fn is_exhausted(error: &io::Error) -> bool {
    // WSAEMFILE: "Too many open sockets".
    error.raw_os_error() == Some(10024)
}
