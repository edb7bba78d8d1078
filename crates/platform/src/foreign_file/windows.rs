//! Files of others on Windows. Making a symbolic link needs a privilege there, so links are
//! followed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of symbolic links on the way.
const SYMLINKS_MAX: usize = 40;

/// Opens a file.
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Follows the links of a path, whose last one may lead to a file that is not there yet.
pub(super) fn link_target(path: &Path) -> io::Result<PathBuf> {
    let mut at = std::path::absolute(path)?;
    for _ in 0..SYMLINKS_MAX {
        let folder = at.parent().unwrap_or(&at).to_owned();
        match std::fs::read_link(&at) {
            Ok(target) => at = folder.join(target),
            // Either no link, or nothing at all.
            Err(_) => {
                let name = at.file_name().unwrap_or_default();
                return Ok(std::fs::canonicalize(&folder)?.join(name));
            }
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Returns nothing: no error here has a fix that only this module knows.
pub(super) fn fix_of(_error: &io::Error) -> Option<String> {
    None
}
