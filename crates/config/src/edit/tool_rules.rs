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
use super::operation::without_references;
use super::server_layers::ServerLayers;

/// Characters that mean something in a pattern, and can be in a class.
const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// Lists of one server, as they hold before the edits. The patterns are those of the file, with
/// dollar signs doubled.
pub(super) struct ToolLists<'a> {
    entry: &'a FileEntry,
    deny: Vec<String>,
    allow: Option<Vec<String>>,
    /// True if the server's own entry has the list.
    has_own_deny: bool,
    /// True if another list of denied tools holds without the entry's own.
    inherits_deny: bool,
}

impl<'a> ToolLists<'a> {
    /// Reads the lists of an entry. Its own list replaces the one that the layers have.
    pub(super) fn of(entry: &'a FileEntry, layers: &ServerLayers<'_>) -> Self {
        let own_deny = layers.own_tools("deny");
        let inherited_deny = layers.inherited_tools("deny");
        ToolLists {
            entry,
            has_own_deny: own_deny.is_some(),
            inherits_deny: inherited_deny.is_some(),
            deny: own_deny.or(inherited_deny).unwrap_or_default(),
            allow: layers
                .own_tools("allow")
                .or_else(|| layers.inherited_tools("allow")),
        }
    }

    /// Returns the edits that switch tools off.
    pub(super) fn switch_off(mut self, tools: &[String]) -> Result<Vec<Edit>, ConfigEditError> {
        let tools = patterns(tools)?;
        let exceptions: BTreeSet<String> = tools
            .iter()
            .map(|(_, pattern)| format!("!{pattern}"))
            .collect();
        let mut edits = self.remove_own_denied(&exceptions);
        let exact: BTreeSet<String> = tools.iter().map(|(_, pattern)| pattern.clone()).collect();
        if let Some(allow) = &mut self.allow {
            let gone = take(allow, &exact);
            edits.extend(gone.map(|pattern| self.edit("allow", EditAction::RemoveItem(pattern))));
        }
        // Asked after the lists were cleaned: a tool that is off already needs no new pattern.
        let is_on = self.enabled_test()?;
        let denied = tools
            .into_iter()
            .filter(|(tool, _)| is_on(tool))
            .map(|(_, pattern)| pattern)
            .collect();
        edits.extend(self.add_denied(denied));
        Ok(edits)
    }

    /// Returns the edits that switch tools on.
    pub(super) fn switch_on(mut self, tools: &[String]) -> Result<Vec<Edit>, ConfigEditError> {
        let tools = patterns(tools)?;
        let exact: BTreeSet<String> = tools.iter().map(|(_, pattern)| pattern.clone()).collect();
        let mut edits = self.remove_own_denied(&exact);
        // Off and on again leaves the file as it was, without empty tables. Where a list is
        // inherited, an empty one stays: without it the inherited one would hold again.
        if !edits.is_empty() && !self.inherits_deny {
            edits.push(self.edit("deny", EditAction::RemoveIfEmpty));
            edits.push(Edit::new(
                self.entry.key(&["tools"]),
                EditAction::RemoveIfEmpty,
            ));
        }
        if let Some(allow) = &mut self.allow {
            let globs = glob_list(allow)?;
            let missing = tools
                .iter()
                .filter(|(tool, _)| !globs.matches(tool))
                .map(|(_, pattern)| pattern.clone());
            let missing: Vec<String> = missing.collect();
            allow.extend(missing.iter().cloned());
            edits.extend(
                missing
                    .into_iter()
                    .map(|pattern| self.edit("allow", EditAction::AddItem(pattern))),
            );
        }
        // A pattern decides about these. It stays, and the tool becomes its exception.
        let is_on = self.enabled_test()?;
        let exceptions = tools
            .iter()
            .filter(|(tool, _)| !is_on(tool))
            .map(|(_, pattern)| format!("!{pattern}"))
            .collect();
        edits.extend(self.add_denied(exceptions));
        Ok(edits)
    }

    /// Takes patterns out of the server's own list of denied tools.
    fn remove_own_denied(&mut self, wanted: &BTreeSet<String>) -> Vec<Edit> {
        if !self.has_own_deny {
            return Vec::new();
        }
        let gone = take(&mut self.deny, wanted);
        gone.map(|pattern| self.edit("deny", EditAction::RemoveItem(pattern)))
            .collect()
    }

    /// Adds patterns to the server's own list of denied tools.
    fn add_denied(&self, patterns: Vec<String>) -> Vec<Edit> {
        if self.has_own_deny || patterns.is_empty() {
            return patterns
                .into_iter()
                .map(|pattern| self.edit("deny", EditAction::AddItem(pattern)))
                .collect();
        }
        // An entry's own list replaces the inherited one, so the new list starts with it.
        let all = self
            .deny
            .iter()
            .cloned()
            .chain(patterns)
            .map(Value::from)
            .collect();
        vec![self.edit("deny", EditAction::Set(all))]
    }

    /// Returns a test for the tools that are on.
    fn enabled_test(&self) -> Result<impl Fn(&str) -> bool + use<>, ConfigEditError> {
        let allow = self.allow.as_deref().map(glob_list).transpose()?;
        let deny = glob_list(&self.deny)?;
        Ok(move |tool: &str| {
            allow.as_ref().is_none_or(|allow| allow.matches(tool)) && !deny.matches(tool)
        })
    }

    fn edit(&self, list: &str, action: EditAction) -> Edit {
        Edit::new(self.entry.key(&["tools", list]), action)
    }
}

/// Returns the tools, each once, with its pattern.
fn patterns(tools: &[String]) -> Result<Vec<(&str, String)>, ConfigEditError> {
    let mut seen = BTreeSet::new();
    let each = tools.iter().filter(|tool| seen.insert(tool.as_str()));
    each.map(|tool| Ok((tool.as_str(), without_references(&escape(tool)?))))
        .collect()
}

/// Takes texts out of a list. Returns those that were in it.
fn take(list: &mut Vec<String>, wanted: &BTreeSet<String>) -> impl Iterator<Item = String> + use<> {
    let (gone, kept) = std::mem::take(list)
        .into_iter()
        .partition(|text| wanted.contains(text));
    *list = kept;
    Vec::into_iter(gone)
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
