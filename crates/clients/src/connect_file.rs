//! Edits of a client's file that connect it to a gateway, or undo that.
//!
//! Owns the location of our entry, and the judgement of an entry that is there already. Text in,
//! text out: does not read or write files. Invariant: somebody else's entry is never replaced or
//! removed unless the caller says so.

use std::fmt;
use std::path::Path;

use moongate_config::ParsedServer;
use moongate_edit::{Edit, EditAction, EditError, Format, PathStep, edit, read_value};
use serde_json::{Value, json};

use crate::entry::{ConnectRequest, EntryError, client_entry};
use crate::entry_update::updated_entry;
use crate::import::self_addresses::SelfAddresses;
use crate::profile::{ClientProfile, ServerWrapper, VariableForm};

/// Existing entry with the requested name.
#[derive(Clone, Debug, PartialEq)]
pub enum ExistingEntry {
    /// There is none.
    None,
    /// It leads to a gateway at this address, or starts our own gateway.
    Ours,
    /// It leads somewhere else. Its settings have secrets as `***`.
    Foreign(Value),
}

/// Cause for which a client's file cannot be changed.
#[derive(Clone, Debug, PartialEq)]
pub enum ConnectError {
    /// This client has no entry.
    Entry(EntryError),
    /// The file cannot be edited.
    Edit(EditError),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Entry(error) => error.fmt(f),
            ConnectError::Edit(error) => error.fmt(f),
        }
    }
}

impl From<EditError> for ConnectError {
    fn from(error: EditError) -> Self {
        ConnectError::Edit(error)
    }
}

impl From<EntryError> for ConnectError {
    fn from(error: EntryError) -> Self {
        ConnectError::Entry(error)
    }
}

/// Format of a client's file. Clients' files without a known extension are JSON.
pub fn format_of(path: &Path) -> Format {
    Format::of_file(path).unwrap_or(Format::Json)
}

/// Finds the entry of a name in a client's file.
pub fn existing_entry(path: &Path, text: &str, name: &str, own: &SelfAddresses) -> ExistingEntry {
    match entry_of(path, text, name) {
        None => ExistingEntry::None,
        Some(entry) if own.may_replace(&entry.settings) => ExistingEntry::Ours,
        Some(entry) => ExistingEntry::Foreign(Value::Object(entry.masked)),
    }
}

/// Returns the entry of a name in a client's file, in our words.
pub(crate) fn entry_of(path: &Path, text: &str, name: &str) -> Option<ParsedServer> {
    let entries = moongate_config::parse_servers(path, text)
        .map(|read| read.servers)
        .unwrap_or_default();
    // The config's reader makes names legal. A client's `a b` becomes `a-b`, and an entry with that
    // name must not be taken for it.
    entries.into_iter().find(|entry| entry.source_name == name)
}

/// Adds our entry to a client's file, or updates the one of this name. What the user set in that
/// one stays. Returns the new text.
pub fn connect_text(
    profile: &ClientProfile,
    request: &ConnectRequest,
    format: Format,
    text: &str,
) -> Result<String, ConnectError> {
    let entry = client_entry(profile, request)?;
    let path = entry_path(profile, &request.name);
    let entry = match read_value(format, text, &path)? {
        Some(old) => updated_entry(profile, &old, entry),
        None => entry,
    };
    set_entry(profile, request, format, text, entry)
}

/// Adds our entry to a client's file, in place of whatever has its name. Returns the new text.
pub fn replace_text(
    profile: &ClientProfile,
    request: &ConnectRequest,
    format: Format,
    text: &str,
) -> Result<String, ConnectError> {
    let entry = client_entry(profile, request)?;
    set_entry(profile, request, format, text, entry)
}

fn set_entry(
    profile: &ClientProfile,
    request: &ConnectRequest,
    format: Format,
    text: &str,
    entry: Value,
) -> Result<String, ConnectError> {
    let text = if text.trim().is_empty() {
        profile.file_head
    } else {
        text
    };
    let mut edits = Vec::new();
    if let Some(id) = request.input(profile) {
        let path = input_path(id);
        // The entry refers to the input, so both must be there. One that is there already may ask
        // in the user's own words.
        if read_value(format, text, &path)?.is_none() {
            let input = json!({"type": "promptString", "id": id, "description": "Moongate key",
                "password": true});
            edits.push(Edit::new(path, EditAction::Set(input)));
        }
    }
    edits.push(Edit::new(
        entry_path(profile, &request.name),
        EditAction::Set(entry),
    ));
    Ok(edit(format, text, &edits)?)
}

/// Removes the entry of a name, and the input that only it uses, from a client's file. Returns the
/// new text.
///
/// `before` is the text that the entry was once added to, if it is known: where nothing else
/// changed since then, that text comes back byte for byte.
pub fn disconnect_text(
    profile: &ClientProfile,
    name: &str,
    format: Format,
    text: &str,
    before: Option<&str>,
) -> Result<String, ConnectError> {
    let mut edits = removals(profile, name, format, text)?;
    let without = edit(format, text, &edits)?;
    let Some(before) = before else {
        return Ok(without);
    };
    // A client may need its wrapper, so an empty one stays unless the file had none before.
    edits.push(Edit::new(
        [profile.wrapper.key()],
        EditAction::RemoveIfEmpty,
    ));
    let bare = edit(format, text, &edits)?;
    let is_same = match before.is_empty() {
        // An edit leaves braces of a JSON text that was once empty.
        true => matches!(bare.trim(), "" | "{}") || bare.trim() == profile.file_head.trim(),
        // A text that has the entry itself isn't from before it.
        false => {
            read_value(format, before, &entry_path(profile, name))?.is_none()
                && edit(format, before, &edits)? == bare
        }
    };
    Ok(if is_same { before.to_owned() } else { without })
}

/// Returns the edits that remove an entry, and the input that only it uses.
fn removals(
    profile: &ClientProfile,
    name: &str,
    format: Format,
    text: &str,
) -> Result<Vec<Edit>, EditError> {
    let mut edits = vec![Edit::new(entry_path(profile, name), EditAction::Remove)];
    let VariableForm::Input(id) = profile.variable else {
        return Ok(edits);
    };
    let input = input_path(id);
    let without = edit(format, text, &edits)?;
    // Another entry of ours, such as one to a view, asks for the same key.
    let is_used = without.contains(&format!("${{input:{id}}}"));
    if !is_used && read_value(format, text, &input)?.is_some() {
        edits.push(Edit::new(input, EditAction::Remove));
        // VS Code keeps inputs next to the servers, and an empty list of them asks for nothing.
        edits.push(Edit::new(["inputs"], EditAction::RemoveIfEmpty));
    }
    Ok(edits)
}

pub(crate) fn entry_path(profile: &ClientProfile, name: &str) -> Vec<PathStep> {
    let wrapper = PathStep::from(profile.wrapper.key());
    let entry = match profile.wrapper {
        ServerWrapper::Map(_) => PathStep::from(name),
        ServerWrapper::List(_) => PathStep::Item {
            field: "name".to_owned(),
            value: name.to_owned(),
        },
    };
    vec![wrapper, entry]
}

fn input_path(id: &str) -> Vec<PathStep> {
    vec![
        PathStep::from("inputs"),
        PathStep::Item {
            field: "id".to_owned(),
            value: id.to_owned(),
        },
    ]
}
