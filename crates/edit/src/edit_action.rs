//! Edits of a text.
//!
//! Owns the words for edits. Does not make them, and does not know any format.

use serde_json::Value;

/// Step of a path into a tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathStep {
    /// Entry of a table.
    Key(String),
    /// First element of a list whose field has this value, as in `[[auth.keys]]` by `name`.
    Item {
        /// Field of the element.
        field: String,
        /// Text that the field has.
        value: String,
    },
}

impl From<&str> for PathStep {
    fn from(key: &str) -> Self {
        PathStep::Key(key.to_owned())
    }
}

/// Action at the end of a path.
#[derive(Clone, Debug, PartialEq)]
pub enum EditAction {
    /// Sets the value, and creates what is missing on the way. Of tables and lists only the
    /// differing parts change.
    Set(Value),
    /// Removes the value, if it is there.
    Remove,
    /// Adds a text to a list, if it lacks it. Creates the list.
    AddItem(String),
    /// Removes a text from a list, as often as it is there.
    RemoveItem(String),
    /// Removes a table or a list if it is empty.
    RemoveIfEmpty,
}

impl EditAction {
    /// Returns the text that it adds to a list, or takes from it.
    pub(crate) fn item(&self) -> Option<&str> {
        match self {
            EditAction::AddItem(text) | EditAction::RemoveItem(text) => Some(text),
            EditAction::Set(_) | EditAction::Remove | EditAction::RemoveIfEmpty => None,
        }
    }
}

/// Edit at one path.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    path: Vec<PathStep>,
    action: EditAction,
}

impl Edit {
    /// Creates an edit. The path has at least one step.
    pub fn new(path: impl IntoIterator<Item = impl Into<PathStep>>, action: EditAction) -> Self {
        Edit {
            path: path.into_iter().map(Into::into).collect(),
            action,
        }
    }

    /// Returns the path.
    pub fn path(&self) -> &[PathStep] {
        &self.path
    }

    /// Returns the action.
    pub fn action(&self) -> &EditAction {
        &self.action
    }
}
