//! Edits of TOML, JSON and YAML texts in place, and of the files that hold them.
//!
//! Owns the change of a text (`edit`), the edits between two texts (`difference`), and the atomic
//! replacement of a file (`ConfigFile`). Does not know any key of a config, and keeps no history.
//! Invariant: a text comes back only if its tree has exactly the intended change and every comment
//! is still there.
//!
//! # How an edit works
//!
//! 1. The format's parser, which the config uses too, reads the text into a tree of values and a
//!    tree of byte ranges.
//! 2. `plan.rs` turns the edit into single changes of the tree: insert, append, replace, remove.
//! 3. The format turns a change into splices of the text. All bytes outside of a splice stay as
//!    they are, and so do comments, line ends and the byte order mark.
//! 4. `proof.rs` parses the new text and compares trees and comments. Edits of one list share this
//!    step where they can.
//!
//! The three formats share these steps. Editors that print a syntax tree were the alternative:
//! `toml_edit` drops carriage returns and moves comments with keys that are removed, and
//! `yaml-edit` does not see through anchors. A splice cannot touch what it does not name.
//! `docs/adr/0007-edits-that-prove-themselves.md` says why the config keeps its own reader.
//!
//! # Comments
//!
//! A removed or replaced value takes the comments inside it, and the comment behind it on its last
//! line. A removed table or block also takes the comment lines directly beneath it, up to a blank
//! line or the next entry. Comments above it stay, as all others do.
//!
//! # Limits
//!
//! - Removing the last entry of a file that held no value leaves `{}` in JSON.
//! - A TOML table that only its members spell (`[a.b]` spells `a`) ends with the last of them.
//! - A null container of YAML (`servers:`) becomes `{}` or `[]` once its last entry is removed.
//! - A change that would show through an alias or a merge key of YAML is refused.

mod difference;
mod edit_action;
mod editor;
mod error;
mod file;
mod flow;
mod format;
mod json;
mod node;
mod plan;
mod proof;
mod snippet;
mod source;
mod text_bounds;
mod toml;
mod yaml;

pub use difference::difference;
pub use edit_action::{Edit, EditAction, PathStep};
pub use editor::{comments, edit, read_value};
pub use error::{EditError, WriteError};
pub use file::{ConfigFile, FileTag};
pub use format::Format;
pub use snippet::snippet;
pub use text_bounds::{TextBound, exceeded_bound};
