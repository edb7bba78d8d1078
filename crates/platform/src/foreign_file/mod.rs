//! Files that others name, or may have placed: configs and what they name, certificates, files of
//! clients.
//!
//! Owns their opening and reading. Does not know what is in them. Invariant: only a regular file is
//! read, to a bound, so that no pipe, device or sparse file makes a reader wait or fills its
//! memory.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

/// Opens a regular file to read it. A link on the way that other users may change is refused.
pub fn open(path: &Path) -> io::Result<File> {
    // First by its name, since opening a pipe or a device may have effects. Then the open file
    // itself, whatever its name leads to by now.
    check_kind(&std::fs::metadata(path)?)?;
    let file = system::open(path)?;
    check_kind(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of at most so many bytes.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    // The length alone isn't a bound: the file may grow while it is read, and those of `/proc` have
    // none.
    if file.metadata()?.len() <= bytes_max {
        file.take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= bytes_max {
            return Ok(bytes);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("it is larger than {}", shown_size(bytes_max)),
    ))
}

/// Reads a regular file of at most so many bytes, which must be UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(read(path, bytes_max)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Follows the links of a path, whose last one may lead to a file that is not there yet. A link on
/// the way that other users may change is refused.
pub fn link_target(path: &Path) -> io::Result<PathBuf> {
    system::link_target(path)
}

/// Returns what mends an error of this module, if only this module knows.
pub fn fix_of(error: &io::Error) -> Option<String> {
    system::fix_of(error)
}

fn check_kind(found: &std::fs::Metadata) -> io::Result<()> {
    match found.file_type() {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::other("it is not a regular file")),
    }
}

fn shown_size(bytes: u64) -> String {
    match bytes {
        mib if mib.is_multiple_of(1 << 20) => format!("{} MiB", mib >> 20),
        kib if kib.is_multiple_of(1 << 10) => format!("{} KiB", kib >> 10),
        bytes => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_to_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "abcd").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "abcd");
        assert_eq!(
            read(&path, 3).unwrap_err().to_string(),
            "it is larger than 3 bytes"
        );
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(
            read_text(&path, 4).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        let sparse = File::create(&path).unwrap();
        sparse.set_len(1 << 40).unwrap();
        assert_eq!(
            read(&path, 1 << 20).unwrap_err().to_string(),
            "it is larger than 1 MiB"
        );
        assert_eq!(
            read(dir.path(), 4).unwrap_err().kind(),
            io::ErrorKind::IsADirectory
        );
        assert_eq!(
            read(&dir.path().join("none"), 4).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
