//! Replacement of a file on Windows. Files have no modes there: new files inherit the access list
//! of their folder.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens what writers of a folder's files lock: a separate file, since folders cannot be locked.
pub fn open_lock(folder: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(folder.join(".moongate-lock"))
}

/// Creates missing folders.
pub fn create_folders(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)
}

/// Creates a file. An existing one is an error.
pub fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Opens an existing file to write it.
pub fn open_to_write(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// Does nothing: the access list comes from the folder.
pub fn copy_attributes(_: &File, _: &File) -> io::Result<()> {
    Ok(())
}

/// Does nothing: only an attempt shows what an access list allows.
pub fn check_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Returns false: folders alone are mounted.
pub fn is_mounted_alone(_: &Path) -> bool {
    false
}

/// Does nothing: folders cannot be synced.
pub fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}
