//! Errors of edits and of writes.
//!
//! Owns their texts. Invariant: each error says where the problem is: a position in the text, or a
//! path.

use std::io;
use std::path::PathBuf;

/// Reason why a text was not edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text does not parse.
    #[error("line {line}, column {column}: {message}")]
    Unreadable {
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// Message of the parser.
        message: String,
    },
    /// The text parses, but the edit cannot be made without touching something else.
    #[error("the file cannot be edited here: {why}")]
    CannotEdit {
        /// Reason, for people.
        why: String,
    },
}

impl EditError {
    pub(crate) fn refuse(why: impl Into<String>) -> EditError {
        EditError::CannotEdit { why: why.into() }
    }

    /// Builds the error for a byte offset of the text.
    pub(crate) fn unreadable(text: &str, at: usize, message: impl Into<String>) -> EditError {
        let mut at = at.min(text.len());
        // Offsets come from three parsers, and a slice inside a character would panic.
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &text[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        EditError::Unreadable {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
        }
    }
}

/// Reason why a file was not read or written. The file is as it was, unless a variant says
/// otherwise.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Somebody else changed the file since it was read.
    #[error("{} has changed since it was read", path.display())]
    Changed {
        /// File.
        path: PathBuf,
    },
    /// Another process is writing the file.
    #[error("{} is being written by another process", path.display())]
    Locked {
        /// File.
        path: PathBuf,
    },
    /// The file comes from a volume that is mounted over it, such as a ConfigMap.
    #[error("{} comes from a mounted volume: edit its source instead", path.display())]
    Mounted {
        /// File.
        path: PathBuf,
    },
    /// The file system or the file's mode refuses writes.
    #[error("{} cannot be written: {cause}", path.display())]
    ReadOnly {
        /// File or folder that refused.
        path: PathBuf,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// The disk or the quota is full.
    #[error("no space is left to write {}: {cause}", path.display())]
    NoSpace {
        /// File that was being written.
        path: PathBuf,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// The file is not UTF-8 text, too large, or a directory.
    #[error("{} cannot be edited: {why}", path.display())]
    NotText {
        /// File.
        path: PathBuf,
        /// Reason, for people.
        why: &'static str,
    },
    /// Any other error of the operating system.
    #[error("{}: {cause}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Error of the operating system.
        cause: io::Error,
    },
}
