//! Replacement of a file by a new one: its lock, owner, mode and folder.
//!
//! Owns the calls that differ between systems. Does not write the contents. Invariant: no other
//! user can read a new file before it has the mode of the file that it replaces.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as system;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as system;

pub use system::{
    check_folder, copy_attributes, create_folders, create_private, is_mounted_alone, open_lock,
    open_to_write, sync_folder,
};
