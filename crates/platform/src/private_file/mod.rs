//! Files that hold secrets or start programs: who else may write them.
//!
//! Owns the checks of owners and modes. Does not read the files. Invariant: only the owner may
//! write the folder of a file that is opened here, and no other user's symbolic link leads there.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as system;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as system;

pub use system::{is_open_folder, is_readable_by_others, make_private, open, other_writers};

/// Others than the owner who may write a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherWriters {
    /// All users of this machine.
    Everybody,
    /// Members of the file's group.
    Group,
}
