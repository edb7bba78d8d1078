//! Files that are edited: read once, replaced as a whole.
//!
//! Owns the steps of a write. Does not change texts. Invariant: at any moment the path leads to the
//! old file or to the new one, whole, whatever happens to this process. A file that is mounted
//! alone is written over.

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use moongate_platform::{file_replacement, foreign_file};

use crate::error::WriteError;

/// Largest file that is edited. Configs are far smaller.
const SIZE_MAX: u64 = 16 << 20;

/// Tag of a file's contents: the SHA-256 of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTag(String);

impl FileTag {
    /// Computes the tag of these bytes.
    pub fn of_bytes(bytes: &[u8]) -> FileTag {
        FileTag(
            digest(&SHA256, bytes)
                .as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        )
    }

    /// Creates the tag of a file that does not exist.
    pub fn absent() -> FileTag {
        FileTag("absent".to_owned())
    }

    /// Returns the tag as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true for the tag of a file that does not exist.
    pub fn is_absent(&self) -> bool {
        *self == FileTag::absent()
    }
}

/// File as it was read.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    text: String,
    tag: FileTag,
}

/// Steps of a write, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteStep {
    Lock,
    Compare,
    Create,
    Fill,
    SyncFile,
    CopyAttributes,
    Rename,
    SyncFolder,
}

/// Runs before each step. Tests fail or end the process there.
type StepHook<'a> = &'a mut dyn FnMut(WriteStep) -> io::Result<()>;

impl ConfigFile {
    /// Reads a file. A missing file is an empty one.
    pub fn read(path: &Path) -> Result<ConfigFile, WriteError> {
        let (text, tag) = match read_bytes(path)? {
            None => (String::new(), FileTag::absent()),
            Some(bytes) => {
                let tag = FileTag::of_bytes(&bytes);
                (
                    String::from_utf8(bytes).map_err(|_| not_text(path, "it is not UTF-8 text"))?,
                    tag,
                )
            }
        };
        Ok(ConfigFile {
            path: path.to_owned(),
            text,
            tag,
        })
    }

    /// Returns the path that was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the tag of the bytes.
    pub fn tag(&self) -> &FileTag {
        &self.tag
    }

    /// Replaces the file. Refuses if somebody else changed it since it was read. Returns the new
    /// tag.
    pub fn write(&self, text: &str) -> Result<FileTag, WriteError> {
        self.write_in_steps(text, &mut |_| Ok(()))
    }

    /// Removes the file. Refuses if somebody else changed it since it was read. A link to it stays,
    /// and a later write creates its file again.
    pub fn remove(&self) -> Result<(), WriteError> {
        let target = self.target()?;
        let _lock = self.lock(target.parent().unwrap_or(Path::new("/")), &mut |_| Ok(()))?;
        self.compare(&target)?;
        fs::remove_file(&target).map_err(|cause| explain(&target, cause))
    }

    /// Checks that the file can be replaced, as far as that shows without a write.
    pub fn check_writable(path: &Path) -> Result<(), WriteError> {
        let file = ConfigFile {
            path: path.to_owned(),
            text: String::new(),
            tag: FileTag::absent(),
        };
        // A missing file is fine, and its folder is created only when it is written.
        if !path.exists() {
            return Ok(());
        }
        let target = file.target()?;
        open_target(&target)?;
        let folder = target.parent().unwrap_or(Path::new("/"));
        match file_replacement::is_mounted_alone(&target) {
            true => Ok(()),
            false => file_replacement::check_folder(folder).map_err(|cause| explain(folder, cause)),
        }
    }

    fn compare(&self, target: &Path) -> Result<(), WriteError> {
        // The digest decides, since modification times are too coarse and editors may set them
        // back.
        let found =
            read_bytes(target)?.map_or_else(FileTag::absent, |bytes| FileTag::of_bytes(&bytes));
        if found == self.tag {
            Ok(())
        } else {
            Err(WriteError::Changed {
                path: self.path.clone(),
            })
        }
    }

    fn write_in_steps(&self, text: &str, before: StepHook<'_>) -> Result<FileTag, WriteError> {
        let target = self.target()?;
        let folder = target.parent().unwrap_or(Path::new("/")).to_owned();
        // The lock comes before the comparison. In between, another writer could replace the file
        // unseen.
        let lock = self.lock(&folder, before)?;
        run_hook(before, WriteStep::Compare, &target)?;
        self.compare(&target)?;
        let old = open_target(&target)?;
        if let Some(old) = old
            .as_ref()
            .filter(|_| file_replacement::is_mounted_alone(&target))
        {
            run_hook(before, WriteStep::Fill, &target)?;
            self.write_over(old, text)
                .map_err(|cause| explain(&target, cause))?;
            return Ok(FileTag::of_bytes(text.as_bytes()));
        }
        let temporary = TemporaryFile::next_to(&target, before)?;
        temporary
            .fill(text, old.as_ref(), before)
            .map_err(|cause| explain(&target, cause))?;
        run_hook(before, WriteStep::Rename, &target)?;
        fs::rename(&temporary.path, &target).map_err(|cause| explain(&target, cause))?;
        // From here on the temporary name leads nowhere. A drop must not remove what another
        // process creates there.
        temporary.keep();
        // The new file is in place already, and some file systems cannot sync folders: no error is
        // worth a second write.
        if before(WriteStep::SyncFolder).is_ok() {
            let _ = file_replacement::sync_folder(&folder);
        }
        drop(lock);
        Ok(FileTag::of_bytes(text.as_bytes()))
    }

    /// Writes over a file whose name no other one can take. Puts the old text back if that fails.
    fn write_over(&self, old: &File, text: &str) -> io::Result<()> {
        overwrite(old, text).inspect_err(|_| drop(overwrite(old, &self.text)))
    }

    /// Finds the file that symbolic links lead to. A link is kept, and its target replaced.
    fn target(&self) -> Result<PathBuf, WriteError> {
        let path = &self.path;
        let target = match fs::canonicalize(path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.missing_target()?,
            Err(cause) => return Err(explain(path, cause)),
        };
        // Kubernetes puts the files of a ConfigMap into `..2026_11_22_...`, behind a link `..data`.
        let is_mounted = target.components().any(|part| {
            part.as_os_str()
                .to_str()
                .is_some_and(|name| name.starts_with("..") && name.len() > 2)
        });
        if is_mounted {
            Err(WriteError::Mounted { path: path.clone() })
        } else {
            Ok(target)
        }
    }

    /// Finds the place of a file that does not exist, and creates its folder.
    fn missing_target(&self) -> Result<PathBuf, WriteError> {
        let path = &self.path;
        // A dangling link: its file is created, as a missing one is. Its folder is not, since a
        // link into a missing folder is more likely a mistake.
        if fs::symlink_metadata(path).is_ok() {
            return foreign_file::link_target(path).map_err(|cause| explain(path, cause));
        }
        let name = path
            .file_name()
            .ok_or_else(|| not_text(path, "it does not name a file"))?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        file_replacement::create_folders(folder).map_err(|cause| explain(folder, cause))?;
        Ok(fs::canonicalize(folder)
            .map_err(|cause| explain(folder, cause))?
            .join(name))
    }

    fn lock(&self, folder: &Path, before: StepHook<'_>) -> Result<File, WriteError> {
        before(WriteStep::Lock).map_err(|cause| explain(folder, cause))?;
        let lock = file_replacement::open_lock(folder).map_err(|cause| explain(folder, cause))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            // Waiting would not help: the other process changes the file, and this edit would be
            // refused as stale.
            Err(TryLockError::WouldBlock) => Err(WriteError::Locked {
                path: self.path.clone(),
            }),
            Err(TryLockError::Error(cause)) => Err(explain(folder, cause)),
        }
    }
}

fn not_text(path: &Path, why: &'static str) -> WriteError {
    WriteError::NotText {
        path: path.to_owned(),
        why,
    }
}

/// Sorts an error of the operating system.
fn explain(path: &Path, cause: io::Error) -> WriteError {
    let path = path.to_owned();
    match cause.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            WriteError::ReadOnly { path, cause }
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            WriteError::NoSpace { path, cause }
        }
        // A mount point cannot be renamed over, and not every system says which files are one.
        io::ErrorKind::ResourceBusy => WriteError::Mounted { path },
        _ => WriteError::Io { path, cause },
    }
}

/// Reads a regular file. `None` if it does not exist.
fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, WriteError> {
    match foreign_file::read(path, SIZE_MAX) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(cause) => match cause.kind() {
            io::ErrorKind::NotFound => Ok(None),
            io::ErrorKind::FileTooLarge => Err(not_text(path, "it is larger than 16 MiB")),
            io::ErrorKind::IsADirectory => Err(not_text(path, "it is a directory")),
            _ => Err(WriteError::Io {
                path: path.to_owned(),
                cause,
            }),
        },
    }
}

fn run_hook(before: StepHook<'_>, step: WriteStep, target: &Path) -> Result<(), WriteError> {
    before(step).map_err(|cause| explain(target, cause))
}

/// Replaces the contents of an open file.
fn overwrite(mut file: &File, text: &str) -> io::Result<()> {
    file.rewind()?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)?;
    file.sync_all()
}

/// Opens the file to be replaced, if there is one. A rename would pass over a mode that forbids
/// writing.
fn open_target(target: &Path) -> Result<Option<File>, WriteError> {
    let opened = file_replacement::open_to_write(target);
    match opened {
        Ok(file) => {
            let permissions = file
                .metadata()
                .map_err(|cause| explain(target, cause))?
                .permissions();
            match permissions.readonly() {
                true => Err(explain(
                    target,
                    io::Error::new(io::ErrorKind::PermissionDenied, "its mode is read-only"),
                )),
                false => Ok(Some(file)),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(explain(target, cause)),
    }
}

/// New file next to the one that it replaces. Removed on drop, unless it was kept.
struct TemporaryFile {
    path: PathBuf,
    file: File,
    is_kept: std::cell::Cell<bool>,
}

impl TemporaryFile {
    fn next_to(target: &Path, before: StepHook<'_>) -> Result<TemporaryFile, WriteError> {
        let mut name = std::ffi::OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        // In the same folder, since a rename across file systems fails. The leading dot hides it
        // from globs of configs.
        name.push(".moongate-new");
        let path = target.with_file_name(name);
        let file = create_temporary(&path, before)
            .map_err(|cause| explain(target.parent().unwrap_or(target), cause))?;
        Ok(TemporaryFile {
            path,
            file,
            is_kept: std::cell::Cell::new(false),
        })
    }

    fn fill(&self, text: &str, old: Option<&File>, before: StepHook<'_>) -> io::Result<()> {
        before(WriteStep::Fill)?;
        (&self.file).write_all(text.as_bytes())?;
        before(WriteStep::CopyAttributes)?;
        if let Some(old) = old {
            file_replacement::copy_attributes(old, &self.file)?;
        }
        // Without a sync before the rename, a power cut may leave the new name with no bytes.
        before(WriteStep::SyncFile)?;
        self.file.sync_all()
    }

    fn keep(&self) {
        self.is_kept.set(true);
    }
}

fn create_temporary(path: &Path, before: StepHook<'_>) -> io::Result<File> {
    before(WriteStep::Create)?;
    // The lock is held, so such a file is what a killed process left.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A config may hold keys. Nobody else may read the new file before it has the mode of the old
    // one.
    file_replacement::create_private(path)
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.is_kept.get() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
