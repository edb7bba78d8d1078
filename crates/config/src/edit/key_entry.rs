//! Entry of a new key, as an edit writes it.
//!
//! Owns its form in the config. Does not make keys (`moongate_access`), or check rates and dates
//! (`resolve`). Invariant: no text of it refers to a variable or a file.

use moongate_access::auth::{AdminRole, KeyHash};
use moongate_edit::{Edit, EditAction, Format, PathStep};
use serde_json::{Map, Value};

use super::literal_text::without_references;
use crate::keys::KeyList;

/// Key that an edit adds. Its texts have single dollar signs, which are doubled where they are
/// written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// Owner of the key.
    pub name: String,
    /// Hash of the key.
    pub hash: KeyHash,
    /// Role, for operators.
    pub role: Option<AdminRole>,
    /// Views and servers that a client's key opens.
    pub views: Option<Vec<String>>,
    /// Patterns of tools that a client may call.
    pub tools: Option<Vec<String>>,
    /// Rate of a client's calls, such as `100/min`.
    pub rate: Option<String>,
    /// Time when a client's key expires.
    pub expires: Option<String>,
}

impl KeyEntry {
    /// Creates an entry without any limits.
    pub fn new(name: impl Into<String>, hash: KeyHash) -> Self {
        KeyEntry {
            name: name.into(),
            hash,
            role: None,
            views: None,
            tools: None,
            rate: None,
            expires: None,
        }
    }

    /// Returns the edit that adds the key to a list.
    pub(super) fn edit(&self, list: KeyList) -> Edit {
        let path = key_path(list, &without_references(&self.name));
        Edit::new(path, EditAction::Set(Value::Object(self.members())))
    }

    fn members(&self) -> Map<String, Value> {
        let KeyEntry {
            name,
            hash,
            role,
            views,
            tools,
            rate,
            expires,
        } = self;
        let members = [
            ("name", Some(literal(name))),
            ("hash", Some(hash.to_string().into())),
            ("role", role.map(|role| role.name().into())),
            ("views", views.as_deref().map(literals)),
            ("tools", tools.as_deref().map(literals)),
            ("rate", rate.as_deref().map(literal)),
            ("expires", expires.as_deref().map(literal)),
        ];
        let written = members
            .into_iter()
            .filter_map(|(member, value)| Some((member.to_owned(), value?)));
        written.collect()
    }
}

/// Returns the entry of a key as TOML.
pub fn key_toml(list: KeyList, key: &KeyEntry) -> Option<String> {
    moongate_edit::edit(Format::Toml, "", &[key.edit(list)]).ok()
}

/// Returns the path of a key in its list, by its name as the file has it.
pub(super) fn key_path(list: KeyList, name: &str) -> Vec<PathStep> {
    let item = PathStep::Item {
        field: "name".to_owned(),
        value: name.to_owned(),
    };
    vec![PathStep::from(list.table()), PathStep::from("keys"), item]
}

/// Returns a text that the config reads as it is, without variables.
fn literal(text: &str) -> Value {
    without_references(text).into()
}

fn literals(texts: &[String]) -> Value {
    texts.iter().map(|text| without_references(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_written_with_its_dollar_signs_doubled() {
        let hash = KeyHash::of("mg_key");
        let key = KeyEntry {
            views: Some(vec!["a$".to_owned()]),
            rate: Some("100/min".to_owned()),
            ..KeyEntry::new("lap$top", hash)
        };
        let expected = format!(
            "[[auth.keys]]\nname = \"lap$$top\"\nhash = \"{hash}\"\nviews = [\"a$$\"]\nrate = \
             \"100/min\"\n"
        );
        assert_eq!(key_toml(KeyList::Clients, &key), Some(expected));
    }
}
