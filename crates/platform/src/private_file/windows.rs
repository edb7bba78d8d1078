//! Private files on Windows. Files have no modes there: the folder's access list decides, and new
//! files inherit it. The folders of a user (`LOCALAPPDATA`) are closed to other users.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::Path;

use windows::Win32::Storage::FileSystem::FILE_FLAG_OPEN_REPARSE_POINT;

use super::OtherWriters;

/// Opens or creates the file, with its folder if need be.
pub fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        std::fs::create_dir_all(folder)?;
    }
    // A symbolic link is opened itself, and then refused.
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(FILE_FLAG_OPEN_REPARSE_POINT.0);
    let file = options.open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_symlink() {
        return Err(io::Error::other(
            "it is a symbolic link; name the folder that it leads to in gateway.state_dir",
        ));
    }
    if !kind.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// Returns `None`: files have no modes.
pub fn other_writers(_: &Path) -> Option<OtherWriters> {
    None
}

/// Returns false: files have no modes.
pub fn is_readable_by_others(_: &Path) -> bool {
    false
}

/// Changes nothing: files have no modes.
pub fn make_private(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Returns false: folders have no modes.
pub fn is_open_folder(_: &Path) -> bool {
    false
}
