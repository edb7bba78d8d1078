//! Table of all clients.
//!
//! Owns the order of the rows, and how a client is found. Rows are in `terminals`, `editors` and
//! `assistants`. Does not look at this machine. Invariant: ids are unique.

mod assistants;
mod editors;
mod terminals;
mod usual;

use crate::profile::ClientProfile;
use moongate_search::few_edits_or_beginning;

/// Returns all clients, those for terminals first.
pub fn clients() -> impl Iterator<Item = &'static ClientProfile> {
    [
        &terminals::ROWS[..],
        &editors::ROWS[..],
        &assistants::ROWS[..],
    ]
    .into_iter()
    .flatten()
}

/// Finds a client by its id.
pub fn client(id: &str) -> Option<&'static ClientProfile> {
    clients().find(|profile| profile.id == id)
}

/// Finds the client whose id or title resembles a word most.
pub fn nearest_client(word: &str) -> Option<&'static ClientProfile> {
    let near = clients().filter_map(|profile| {
        let edits = [profile.id, profile.title]
            .into_iter()
            .filter_map(|name| few_edits_or_beginning(word, name));
        Some((edits.min()?, profile))
    });
    near.min_by_key(|(edits, _)| *edits)
        .map(|(_, profile)| profile)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;
    use crate::profile::{ConnectMethod, UserFiles};

    #[test]
    fn rows_are_whole_and_different() {
        let mut ids = BTreeSet::new();
        for row in clients() {
            assert!(ids.insert(row.id), "{} is there twice", row.id);
            assert!(
                row.id
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{}",
                row.id
            );
            assert!(
                !row.title.is_empty() && row.next_step.ends_with('.'),
                "{}",
                row.id
            );
            assert!(row.note.is_empty() || row.note.ends_with('.'), "{}", row.id);
            let date: Vec<u32> = row
                .checked
                .split('-')
                .map(|part| part.parse().unwrap())
                .collect();
            assert!(
                matches!(date[..], [2026..=2099, 1..=12, 1..=31]),
                "{}",
                row.id
            );
            for template in row.http.iter().chain([&row.stdio]) {
                assert!(
                    serde_json::from_str::<serde_json::Value>(template)
                        .unwrap()
                        .is_object(),
                    "{}",
                    row.id
                );
            }
            let files = [UserFiles::Same(&[])] != [row.user_files];
            let in_file = matches!(
                row.method,
                ConnectMethod::File | ConnectMethod::Discontinued
            );
            assert_eq!(files, in_file, "{}: its files and its method agree", row.id);
        }
        assert!(ids.len() >= 32, "{}", ids.len());
    }

    #[test]
    fn a_client_is_found_by_what_resembles_its_name() {
        for (word, id) in [
            ("claude code", "claude-code"),
            ("Cursor", "cursor"),
            ("vscod", "vscode"),
            ("droid", ""),
        ] {
            assert_eq!(nearest_client(word).map_or("", |row| row.id), id, "{word}");
        }
        assert_eq!(client("codex").unwrap().title, "Codex");
    }
}
