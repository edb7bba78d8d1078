//! Dollar signs of edits in clients' files.
//!
//! Owns their spelling there: a client's format has no escape, so each stands for itself. Does not
//! find the position of an edit (`operation`). Invariant: no setting that anybody may write gets a
//! reference of ours.

use moongate_edit::{Edit, EditAction, PathStep};
use serde_json::Value;

use super::edit_error::ConfigEditError;
use super::file_entry;
use super::operation::EditTarget;
use crate::client_formats;
use crate::options::LoadOptions;

/// Setting whose references are the program's own where its entry sets their variables.
const PROGRAM_WORDS: &str = "args";

/// Respells the dollar signs of edits for the file that gets them.
pub(super) fn respell(
    target: EditTarget,
    options: &LoadOptions<'_>,
) -> Result<EditTarget, ConfigEditError> {
    let tree = file_entry::read_tree(options, &target.path)?;
    let edits = target.edits.iter().map(|edit| {
        let is_plain = key(edit.path().first())
            .is_some_and(|key| client_formats::has_plain_dollars(&tree, &target.path, key));
        if is_plain {
            plain(edit)
        } else {
            Ok(edit.clone())
        }
    });
    Ok(EditTarget {
        edits: edits.collect::<Result<_, _>>()?,
        path: target.path,
    })
}

fn key(step: Option<&PathStep>) -> Option<&str> {
    match step? {
        PathStep::Key(key) => Some(key),
        PathStep::Item { .. } => None,
    }
}

fn plain(edit: &Edit) -> Result<Edit, ConfigEditError> {
    let setting = edit
        .path()
        .iter()
        .rev()
        .find_map(|step| key(Some(step)))
        .unwrap_or_default();
    let action = match edit.action() {
        EditAction::Set(value) => EditAction::Set(plain_value(setting, value)?),
        EditAction::AddItem(text) => EditAction::AddItem(plain_text(setting, text)?),
        EditAction::RemoveItem(text) => EditAction::RemoveItem(plain_text(setting, text)?),
        action @ (EditAction::Remove | EditAction::RemoveIfEmpty) => action.clone(),
    };
    Ok(Edit::new(edit.path().iter().cloned(), action))
}

fn plain_value(setting: &str, value: &Value) -> Result<Value, ConfigEditError> {
    Ok(match value {
        Value::String(text) => plain_text(setting, text)?.into(),
        Value::Array(items) => items
            .iter()
            .map(|item| plain_value(setting, item))
            .collect::<Result<_, _>>()?,
        Value::Object(members) => Value::Object(
            members
                .iter()
                .map(|(name, value)| Ok((name.clone(), plain_value(name, value)?)))
                .collect::<Result<_, ConfigEditError>>()?,
        ),
        value => value.clone(),
    })
}

fn plain_text(setting: &str, text: &str) -> Result<String, ConfigEditError> {
    if setting != PROGRAM_WORDS && has_plain_opening(text) {
        let message = format!(
            "`{setting}`: in a client's file, \
             `${{` cannot be escaped: use another file"
        );
        return Err(ConfigEditError::new("cannot_edit", message));
    }
    Ok(text.replace("$$", "$"))
}

/// True if a text has an escaped `${`.
fn has_plain_opening(text: &str) -> bool {
    text.split("$$").skip(1).any(|rest| rest.starts_with('{'))
}
