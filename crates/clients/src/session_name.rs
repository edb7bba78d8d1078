//! Names that clients give in `clientInfo`.
//!
//! Owns the comparison with the table. Does not see sessions. Invariant: a name is of one client at
//! most.

use crate::profile::ClientProfile;
use crate::table::clients;

/// Names that start with neither the id nor the title of the row.
const OTHER_NAMES: [(&str, &str); 2] = [
    ("Visual Studio Code", "vscode"),
    ("Visual Studio Code - Insiders", "vscode-insiders"),
];

/// Finds the client that calls itself this. Clients add to their names, as `cursor-vscode` does.
pub fn client_of_session(name: &str) -> Option<&'static ClientProfile> {
    let name = letters(name);
    // The longest one: VS Code's name starts with `visual-studio`, too.
    clients()
        .filter_map(|profile| Some((matching_length(profile, &name)?, profile)))
        .max_by_key(|(length, _)| *length)
        .map(|(_, profile)| profile)
}

/// Returns the length of a client's longest name that a session's name starts with.
fn matching_length(profile: &ClientProfile, session: &str) -> Option<usize> {
    let others = OTHER_NAMES.iter().filter(|(_, id)| *id == profile.id);
    let title = profile.title.split(" (").next().unwrap_or(profile.title);
    let names = [profile.id, title]
        .into_iter()
        .chain(others.map(|(name, _)| *name))
        .map(letters);
    names
        .filter(|known| session.starts_with(known.as_str()))
        .map(|known| known.len())
        .max()
}

fn letters(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_of_the_client_whose_name_it_begins_with() {
        for (name, id) in [
            ("cursor-vscode", "cursor"),
            ("claude-code", "claude-code"),
            ("Visual Studio Code", "vscode"),
            ("Visual Studio Code - Insiders", "vscode-insiders"),
            ("Visual Studio", "visual-studio"),
            ("Zed", "zed"),
            ("codex-mcp-client", "codex"),
            ("gemini-cli-mcp-client", "gemini"),
            ("my-own-agent", ""),
            ("", ""),
        ] {
            assert_eq!(
                client_of_session(name).map_or("", |profile| profile.id),
                id,
                "{name}"
            );
        }
        for profile in clients() {
            assert_eq!(
                client_of_session(profile.id).map(|found| found.id),
                Some(profile.id)
            );
        }
    }
}
