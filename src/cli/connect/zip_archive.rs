//! ZIP archives with stored files.
//!
//! Owns the records of the format (PKWARE APPNOTE 6.3.10, sections 4.3.7, 4.3.12 and 4.3.16). Does
//! not compress: the two files of a bundle need no reader of other methods. Invariant: an archive
//! that cannot be described in 32 bits is refused.

use std::io::{self, Read, Seek, SeekFrom, Write};

/// Bytes that are copied at once.
const CHUNK: usize = 64 * 1024;
/// Version that a reader needs: 2.0, which has folders in names.
const VERSION: u16 = 20;
/// Version of the writer, on Unix, whose modes the attributes have.
const MADE_BY: u16 = (3 << 8) | VERSION;
/// Flag for names in UTF-8.
const UTF8: u16 = 1 << 11;
/// The first day that the format knows: 1980-01-01. The same contents make the same bytes.
const DATE: u16 = (1 << 5) | 1;

/// Kind of a file in an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// Readable by all.
    Text,
    /// Executable, too.
    Program,
}

/// Archive that is being written.
pub(super) struct ZipArchive<W> {
    out: W,
    files: Vec<StoredFile>,
}

/// File of the archive.
struct StoredFile {
    name: String,
    kind: FileKind,
    crc: u32,
    size: u32,
    /// Position of its header.
    at: u32,
}

impl<W: Write + Seek> ZipArchive<W> {
    /// Starts an archive at the start of `out`.
    pub(super) fn new(out: W) -> Self {
        ZipArchive {
            out,
            files: Vec::new(),
        }
    }

    /// Adds a file.
    pub(super) fn add(
        &mut self,
        name: &str,
        kind: FileKind,
        content: &mut dyn Read,
    ) -> io::Result<()> {
        let at = self.position()?;
        let mut file = StoredFile {
            name: name.to_owned(),
            kind,
            crc: 0,
            size: 0,
            at,
        };
        self.out.write_all(&file.header())?;
        let mut crc = crc32fast::Hasher::new();
        let mut size = 0_u64;
        let mut chunk = vec![0; CHUNK];
        loop {
            let length = match content.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            crc.update(&chunk[..length]);
            size += length as u64;
            self.out.write_all(&chunk[..length])?;
        }
        file.crc = crc.finalize();
        file.size = u32::try_from(size).map_err(|_| too_large())?;
        // The header comes before the content, whose sum is known only now.
        self.out.seek(SeekFrom::Start(u64::from(at)))?;
        self.out.write_all(&file.header())?;
        self.out.seek(SeekFrom::End(0))?;
        self.files.push(file);
        Ok(())
    }

    /// Writes the directory of the archive.
    pub(super) fn finish(mut self) -> io::Result<W> {
        let start = self.position()?;
        for file in &self.files {
            self.out.write_all(&file.directory_entry())?;
        }
        let length = self.position()? - start;
        let count = u16::try_from(self.files.len()).map_err(|_| too_large())?;
        let mut end = b"PK\x05\x06\0\0\0\0".to_vec();
        end.extend([count, count].map(u16::to_le_bytes).concat());
        end.extend([length, start].map(u32::to_le_bytes).concat());
        end.extend(0_u16.to_le_bytes());
        self.out.write_all(&end)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn position(&mut self) -> io::Result<u32> {
        u32::try_from(self.out.stream_position()?).map_err(|_| too_large())
    }
}

impl StoredFile {
    fn header(&self) -> Vec<u8> {
        let mut header = b"PK\x03\x04".to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend(self.shared_fields());
        header.extend(self.name.as_bytes());
        header
    }

    fn directory_entry(&self) -> Vec<u8> {
        let mode: u32 = match self.kind {
            FileKind::Text => 0o100_644,
            FileKind::Program => 0o100_755,
        };
        let mut entry = b"PK\x01\x02".to_vec();
        entry.extend([MADE_BY, VERSION].map(u16::to_le_bytes).concat());
        entry.extend(self.shared_fields());
        // No comment, the first disk, no internal attributes.
        entry.extend([0; 6]);
        entry.extend([mode << 16, self.at].map(u32::to_le_bytes).concat());
        entry.extend(self.name.as_bytes());
        entry
    }

    /// Fields that both records have, in the same order.
    fn shared_fields(&self) -> Vec<u8> {
        // Method 0 is "stored": both sizes are the same.
        let mut fields = [UTF8, 0, 0, DATE].map(u16::to_le_bytes).concat();
        fields.extend(
            [self.crc, self.size, self.size]
                .map(u32::to_le_bytes)
                .concat(),
        );
        // Names are ours, and far shorter than 64 KiB.
        fields.extend([self.name.len() as u16, 0].map(u16::to_le_bytes).concat());
        fields
    }
}

fn too_large() -> io::Error {
    io::Error::other("the archive would have 4 GiB or more")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Cursor;

    use super::*;

    fn number(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn records_are_where_the_end_says() {
        let mut archive = ZipArchive::new(Cursor::new(Vec::new()));
        archive
            .add("a.txt", FileKind::Text, &mut &b"123456789"[..])
            .unwrap();
        archive
            .add("b/c", FileKind::Program, &mut &b""[..])
            .unwrap();
        let bytes = archive.finish().unwrap().into_inner();
        let end = bytes.len() - 22;
        assert_eq!(&bytes[end..end + 4], b"PK\x05\x06");
        let length = number(&bytes, end + 12) as usize;
        let start = number(&bytes, end + 16) as usize;
        assert_eq!(start + length, end);
        assert_eq!(&bytes[start..start + 4], b"PK\x01\x02");
        assert_eq!(number(&bytes, start + 16), 0xCBF4_3926);
        assert_eq!(number(&bytes, start + 20), 9);
        // Header, name, content.
        assert_eq!(&bytes[30..44], b"a.txt123456789");
        let second = start + 46 + 5;
        assert_eq!(number(&bytes, second + 38) >> 16, 0o100_755);
        assert_eq!(number(&bytes, second + 42), 44);
        assert_eq!(&bytes[44..48], b"PK\x03\x04");
    }
}
