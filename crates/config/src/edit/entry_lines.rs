//! Lines that add settings to a server's entry, for people who paste them.
//!
//! Owns their position: the entry as its file spells it. Does not show other values and does not
//! write files. Invariant: the lines have the format of the file, and repeat no table that the
//! entry has.

use std::path::Path;

use moongate_edit::{Edit, EditAction, Format};

use super::file_entry::find_entries;
use crate::options::LoadOptions;

/// Writes settings of the server that a file has, each as a table of the entry, a key in it and a
/// text. `None`: the file does not have the server, or cannot be read.
pub fn entry_lines(path: &Path, server: &str, settings: &[(&str, &str, String)]) -> Option<String> {
    let options = LoadOptions::of_files(vec![path.to_owned()], Default::default());
    let entry = find_entries(&options, server).ok()?.pop()?;
    let edits = settings.iter().map(|(table, key, text)| {
        let value = EditAction::Set(text.clone().into());
        // A second table of this name would be an error in the file.
        match entry.node.child(table) {
            Some(_) => Edit::new([*key], value),
            None => Edit::new(entry.key(&[table, key]), value),
        }
    });
    let edits: Vec<Edit> = edits.collect();
    moongate_edit::edit(Format::of_file(path)?, "", &edits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_format_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let settings = [
            ("headers", "X", "1".to_owned()),
            ("headers", "Authorization", "Bearer ${A_TOKEN}".to_owned()),
        ];
        for (file, text, lines) in [
            (
                "m.toml",
                "[servers.a]\nurl = \"https://a.example\"\n",
                "[servers.a.headers]\nX = \"1\"\nAuthorization = \"Bearer ${A_TOKEN}\"\n",
            ),
            (
                "there.toml",
                "[servers.a]\nurl = \"https://a.example\"\nheaders = { Y = \"hush\" }\n",
                "X = \"1\"\nAuthorization = \"Bearer ${A_TOKEN}\"\n",
            ),
            (
                "m.yaml",
                "servers:\n  a:\n    url: https://a.example\n",
                "servers:\n  a:\n    headers:\n      X: \"1\"\n      Authorization: \"Bearer \
                 ${A_TOKEN}\"\n",
            ),
        ] {
            let path = folder.path().join(file);
            std::fs::write(&path, text).unwrap();
            assert_eq!(entry_lines(&path, "a", &settings).as_deref(), Some(lines));
            assert_eq!(entry_lines(&path, "b", &settings), None);
        }
    }
}
