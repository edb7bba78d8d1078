//! Edits of the lists that switch tools on and off.
//!
//! Owns which list an edit changes. Does not match names itself (`moongate_access`). Invariants: a
//! pattern that somebody wrote is never changed, and off then on leads back to the same lists.

use std::collections::BTreeSet;

use moongate_access::policy::GlobList;
use moongate_edit::{Edit, EditAction};
use serde_json::Value;

use super::edit_error::ConfigEditError;
use super::file_entry::FileEntry;
use super::literal_text::without_references;
use super::server_layers::{ServerLayers, texts};

/// Characters that mean something in a pattern, and can be in a class.
const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// Lists of one server, as they hold before the edits. The patterns are those of the file, with
/// dollar signs doubled.
pub(super) struct ToolLists<'a> {
    entry: &'a FileEntry,
    deny: EditedList,
    allow: Option<EditedList>,
}

impl<'a> ToolLists<'a> {
    /// Reads the lists of an entry. Its own list replaces the one that the layers have.
    pub(super) fn of(entry: &'a FileEntry, layers: &ServerLayers<'_>) -> Self {
        ToolLists {
            entry,
            deny: EditedList::read("deny", entry, layers)
                .unwrap_or_else(|| EditedList::absent("deny")),
            allow: EditedList::read("allow", entry, layers),
        }
    }

    /// Returns the edits that switch tools off.
    pub(super) fn switch_off(mut self, tools: &[String]) -> Result<Vec<Edit>, ConfigEditError> {
        let tools = patterns(tools)?;
        self.deny.remove(&exceptions(&tools));
        if let Some(allow) = &mut self.allow {
            allow.remove(&exact(&tools));
        }
        // Asked after the lists were cleaned: a tool that is off already needs no new pattern.
        let is_on = self.enabled_test()?;
        let denied = tools.into_iter().filter(|(tool, _)| is_on(tool));
        self.deny.add(denied.map(|(_, pattern)| pattern).collect());
        Ok(self.into_edits())
    }

    /// Returns the edits that switch tools on.
    pub(super) fn switch_on(mut self, tools: &[String]) -> Result<Vec<Edit>, ConfigEditError> {
        let tools = patterns(tools)?;
        self.deny.remove(&exact(&tools));
        let entry = self.entry;
        let emptied = self.deny.is_emptied().then(|| {
            // Off and on again leaves the file as it was, without empty tables.
            [&["tools", "deny"][..], &["tools"]]
                .map(|keys| Edit::new(entry.key(keys), EditAction::RemoveIfEmpty))
        });
        if let Some(allow) = &mut self.allow {
            allow.remove(&exceptions(&tools));
            let globs = glob_list(&allow.patterns)?;
            let missing = tools.iter().filter(|(tool, _)| !globs.matches(tool));
            allow.add(missing.map(|(_, pattern)| pattern.clone()).collect());
        }
        // A pattern decides about these. It stays, and the tool becomes its exception.
        let is_on = self.enabled_test()?;
        let excepted = tools.iter().filter(|(tool, _)| !is_on(tool));
        self.deny
            .add(excepted.map(|(_, pattern)| format!("!{pattern}")).collect());
        let mut edits = self.into_edits();
        edits.extend(emptied.into_iter().flatten());
        Ok(edits)
    }

    /// Returns a test for the tools that are on.
    fn enabled_test(&self) -> Result<impl Fn(&str) -> bool + use<>, ConfigEditError> {
        let allow = self.allow.as_ref();
        let allow = allow.map(|allow| glob_list(&allow.patterns)).transpose()?;
        let deny = glob_list(&self.deny.patterns)?;
        Ok(move |tool: &str| {
            allow.as_ref().is_none_or(|allow| allow.matches(tool)) && !deny.matches(tool)
        })
    }

    fn into_edits(self) -> Vec<Edit> {
        let entry = self.entry;
        let lists = [Some(self.deny), self.allow].into_iter().flatten();
        lists.flat_map(|list| list.into_edits(entry)).collect()
    }
}

/// List of patterns, with the changes that are made to it.
struct EditedList {
    key: &'static str,
    /// Patterns after the changes.
    patterns: Vec<String>,
    origin: ListOrigin,
    /// Changes of single patterns.
    changes: Vec<EditAction>,
}

/// Layer that a list comes from.
enum ListOrigin {
    /// Entry that is edited.
    Own {
        /// Patterns under the list's own key. Clients have other keys for more of them.
        written: Vec<String>,
        /// True if another list holds once the entry has none.
        hides_another: bool,
    },
    /// Another layer, or none. A list in the entry would replace it as a whole.
    Inherited,
}

impl EditedList {
    fn absent(key: &'static str) -> Self {
        EditedList {
            key,
            patterns: Vec::new(),
            origin: ListOrigin::Inherited,
            changes: Vec::new(),
        }
    }

    /// Reads the list of an entry, or the one that it inherits.
    fn read(key: &'static str, entry: &FileEntry, layers: &ServerLayers<'_>) -> Option<Self> {
        let inherited = layers.inherited_tools(key);
        let (patterns, origin) = match layers.own_tools(key) {
            Some(own) => {
                let tools = entry.node.child("tools");
                let written = tools.and_then(|tools| tools.child(key)).and_then(texts);
                let origin = ListOrigin::Own {
                    written: written.unwrap_or_default(),
                    hides_another: inherited.is_some(),
                };
                (own, origin)
            }
            None => (inherited?, ListOrigin::Inherited),
        };
        Some(EditedList {
            patterns,
            origin,
            ..EditedList::absent(key)
        })
    }

    /// Removes patterns, if they are in the list and an edit can reach them.
    fn remove(&mut self, wanted: &BTreeSet<String>) {
        let origin = &self.origin;
        let (gone, kept) = std::mem::take(&mut self.patterns)
            .into_iter()
            .partition(|pattern| wanted.contains(pattern) && origin.is_removable(pattern));
        self.patterns = kept;
        self.changes
            .extend(Vec::into_iter(gone).map(EditAction::RemoveItem));
    }

    fn add(&mut self, patterns: Vec<String>) {
        self.patterns.extend(patterns.iter().cloned());
        self.changes
            .extend(patterns.into_iter().map(EditAction::AddItem));
    }

    /// Returns true if patterns were removed, and the entry needs no empty list to hide another.
    fn is_emptied(&self) -> bool {
        let hides_none = matches!(
            self.origin,
            ListOrigin::Own {
                hides_another: false,
                ..
            }
        );
        hides_none && !self.changes.is_empty()
    }

    fn into_edits(self, entry: &FileEntry) -> Vec<Edit> {
        let changes = match self.origin {
            // An entry's own list replaces the inherited one, so the new list starts with it.
            ListOrigin::Inherited if !self.changes.is_empty() => {
                vec![EditAction::Set(
                    self.patterns.into_iter().map(Value::from).collect(),
                )]
            }
            ListOrigin::Inherited | ListOrigin::Own { .. } => self.changes,
        };
        let edit = |change| Edit::new(entry.key(&["tools", self.key]), change);
        changes.into_iter().map(edit).collect()
    }
}

impl ListOrigin {
    /// Returns true for a pattern that an edit can take out of the list.
    fn is_removable(&self, pattern: &str) -> bool {
        match self {
            // A client's file has no escape for dollar signs.
            ListOrigin::Own { written, .. } => written
                .iter()
                .any(|text| text == pattern || *text == pattern.replace("$$", "$")),
            ListOrigin::Inherited => true,
        }
    }
}

/// Returns the patterns that exclude exactly these tools.
fn exceptions(tools: &[(&str, String)]) -> BTreeSet<String> {
    let patterns = tools.iter().map(|(_, pattern)| format!("!{pattern}"));
    patterns.collect()
}

/// Returns the patterns that mean exactly these tools.
fn exact(tools: &[(&str, String)]) -> BTreeSet<String> {
    tools.iter().map(|(_, pattern)| pattern.clone()).collect()
}

/// Returns the tools, each once, with its pattern.
fn patterns(tools: &[String]) -> Result<Vec<(&str, String)>, ConfigEditError> {
    let mut seen = BTreeSet::new();
    let each = tools.iter().filter(|tool| seen.insert(tool.as_str()));
    each.map(|tool| Ok((tool.as_str(), without_references(&escape(tool)?))))
        .collect()
}

/// Compiles the patterns of a file. In the config's values each dollar sign is single.
fn glob_list(patterns: &[String]) -> Result<GlobList, ConfigEditError> {
    let patterns: Vec<String> = patterns
        .iter()
        .map(|pattern| pattern.replace("$$", "$"))
        .collect();
    GlobList::new(&patterns).map_err(|problem| ConfigEditError::new("problems", problem))
}

/// Returns true for a pattern that means one name and no other, as an edit writes it.
pub fn is_pattern_of(pattern: &str, name: &str) -> bool {
    pattern_of(name).is_some_and(|own| pattern.strip_prefix('!').unwrap_or(pattern) == own)
}

/// Returns the pattern that means one name and no other. An exception has a `!` before it.
pub fn pattern_of(name: &str) -> Option<String> {
    escape(name).ok()
}

/// Writes a name as a pattern that matches nothing else.
fn escape(name: &str) -> Result<String, ConfigEditError> {
    if name.is_empty() {
        return Err(ConfigEditError::new(
            "bad_value",
            "a tool without a name cannot be switched",
        ));
    }
    // A leading `!` would exclude, and in a class it would turn the meaning round. Alternatives may
    // be one.
    let (start, rest) = name
        .strip_prefix('!')
        .map_or(("", name), |rest| ("{!}", rest));
    let escaped = rest.chars().map(|c| {
        if SPECIAL.contains(&c) {
            format!("[{c}]")
        } else {
            c.to_string()
        }
    });
    Ok(start.to_owned() + &escaped.collect::<String>())
}
