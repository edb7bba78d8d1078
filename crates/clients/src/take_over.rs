//! Edits of a client's file that replace its servers by one entry to a gateway.
//!
//! Owns the location of each entry to remove. Does not choose them: the caller knows what was
//! imported. Invariant: an entry that was not named stays, with its comments.

use moongate_edit::{Edit, EditAction, Format, PathStep, edit};

use crate::connect_file::{ConnectError, connect_text, entry_path};
use crate::entry::ConnectRequest;
use crate::profile::ClientProfile;

/// Entry of a client's file that the gateway has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenEntry<'a> {
    /// Name as the file has it.
    pub name: &'a str,
    /// Path of the project that it belongs to. `None` for an entry of the user.
    pub project: Option<&'a str>,
}

/// Removes entries from a client's file, and adds the one of a request. Returns the new text.
///
/// Without a request the file keeps the entry to the gateway that it has.
pub fn take_over_text(
    profile: &ClientProfile,
    request: Option<&ConnectRequest>,
    format: Format,
    text: &str,
    taken: &[TakenEntry<'_>],
) -> Result<String, ConnectError> {
    let removals: Vec<Edit> = taken
        .iter()
        .map(|entry| Edit::new(taken_entry_path(profile, entry), EditAction::Remove))
        .collect();
    // Removed first: one of them may have the name that ours gets.
    let without = edit(format, text, &removals)?;
    match request {
        Some(request) => connect_text(profile, request, format, &without),
        None => Ok(without),
    }
}

fn taken_entry_path(profile: &ClientProfile, entry: &TakenEntry<'_>) -> Vec<PathStep> {
    let own = entry_path(profile, entry.name);
    match entry.project {
        // Claude Code keeps a user's entries for one project under the project's path.
        Some(project) => ["projects", project]
            .map(PathStep::from)
            .into_iter()
            .chain(own)
            .collect(),
        None => own,
    }
}
