//! Files of others on Windows. Making a symbolic link needs a privilege there, so links are
//! followed.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a file.
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Returns nothing: no error here has a fix that only this module knows.
pub(super) fn fix_of(_error: &io::Error) -> Option<String> {
    None
}
