//! Edits of the lists that switch tools on and off.
//!
//! Owns which list an edit changes. Does not match names itself (`moongate_access`). Invariants: a pattern that somebody
//! wrote is never changed, and off then on leads back to the same lists.

use moongate_access::policy::GlobList;
use moongate_edit::{Edit, EditAction};
use serde_json::Value;

use super::edit_error::ConfigEditError;
use super::server_entry::ServerEntry;
use crate::tree::{ConfigNode, ConfigValue};

/// Characters that mean something in a pattern.
const SPECIAL: [char; 6] = ['*', '?', '[', ']', '{', '}'];

/// Lists of one server, as they hold before the edits.
pub(super) struct ToolLists<'a> {
    entry: &'a ServerEntry,
    deny: Vec<String>,
    allow: Option<Vec<String>>,
    /// True if the server's own entry has the list.
    has_own_deny: bool,
}

impl<'a> ToolLists<'a> {
    /// Reads the lists of an entry. `defaults` are those of the config, which an entry's own list replaces.
    pub(super) fn of(entry: &'a ServerEntry, defaults: Option<&ConfigNode>) -> Self {
        let own = |list: &str| texts(entry.node.child("tools")?.child(list)?);
        let default = |list: &str| texts(defaults?.child("tools")?.child(list)?);
        ToolLists {
            entry,
            has_own_deny: own("deny").is_some(),
            deny: own("deny").or_else(|| default("deny")).unwrap_or_default(),
            allow: own("allow").or_else(|| default("allow")),
        }
    }

    /// Returns the edits that switch a tool off.
    pub(super) fn off(&mut self, tool: &str) -> Result<Vec<Edit>, ConfigEditError> {
        let pattern = escape(tool)?;
        let mut edits = Vec::new();
        let exception = format!("!{pattern}");
        if self.has_own_deny && self.deny.contains(&exception) {
            edits.push(self.edit("deny", EditAction::RemoveItem(exception.clone())));
            self.deny.retain(|known| *known != exception);
        }
        if let Some(allow) = self.allow.as_mut().filter(|allow| allow.contains(&pattern)) {
            allow.retain(|known| *known != pattern);
            edits.push(self.edit("allow", EditAction::RemoveItem(pattern.clone())));
        }
        // Asked after the lists were cleaned: a tool that is off already needs no new pattern.
        if self.is_on(tool)? {
            self.deny.push(pattern.clone());
            let copied = self.deny.iter().cloned().map(Value::from).collect();
            // An entry's own list replaces that of the defaults, so the new list begins with it.
            let action = if self.has_own_deny { EditAction::AddItem(pattern) } else { EditAction::Set(copied) };
            edits.push(self.edit("deny", action));
            self.has_own_deny = true;
        }
        Ok(edits)
    }

    /// Returns the edits that switch a tool on.
    pub(super) fn on(&mut self, tool: &str) -> Result<Vec<Edit>, ConfigEditError> {
        let pattern = escape(tool)?;
        let mut edits = Vec::new();
        if self.has_own_deny && self.deny.contains(&pattern) {
            self.deny.retain(|known| *known != pattern);
            edits.push(self.edit("deny", EditAction::RemoveItem(pattern.clone())));
            // Off and on again leaves the file as it was, without empty tables.
            edits.push(self.edit("deny", EditAction::RemoveIfEmpty));
            edits.push(Edit::new(self.entry.key(&["tools"]), EditAction::RemoveIfEmpty));
        }
        if let Some(allow) = &mut self.allow
            && !glob_list(allow)?.matches(tool)
        {
            allow.push(pattern.clone());
            edits.push(self.edit("allow", EditAction::AddItem(pattern.clone())));
        }
        if !self.is_on(tool)? {
            // A pattern decides. It stays, and the tool becomes its exception.
            let exception = format!("!{pattern}");
            self.deny.push(exception.clone());
            let copied = self.deny.iter().cloned().map(Value::from).collect();
            let action = if self.has_own_deny { EditAction::AddItem(exception) } else { EditAction::Set(copied) };
            edits.push(self.edit("deny", action));
            self.has_own_deny = true;
        }
        Ok(edits)
    }

    fn is_on(&self, tool: &str) -> Result<bool, ConfigEditError> {
        let allowed = self.allow.as_deref().map(glob_list).transpose()?.is_none_or(|allow| allow.matches(tool));
        Ok(allowed && !glob_list(&self.deny)?.matches(tool))
    }

    fn edit(&self, list: &str, action: EditAction) -> Edit {
        Edit::new(self.entry.key(&["tools", list]), action)
    }
}

fn texts(node: &ConfigNode) -> Option<Vec<String>> {
    match &node.value {
        ConfigValue::List(items) => Some(items.iter().filter_map(ConfigNode::as_text).map(str::to_owned).collect()),
        _ => None,
    }
}

fn glob_list(patterns: &[String]) -> Result<GlobList, ConfigEditError> {
    GlobList::new(patterns).map_err(|problem| ConfigEditError::new("problems", problem))
}

/// Returns true for a pattern that means one name and no other, as an edit writes it.
pub fn is_pattern_of(pattern: &str, name: &str) -> bool {
    escape(name).is_ok_and(|escaped| pattern.strip_prefix('!').unwrap_or(pattern) == escaped)
}

/// Writes a name as a pattern that matches nothing else.
pub(super) fn escape(name: &str) -> Result<String, ConfigEditError> {
    // A leading `!` would exclude, and a reference or an escape would be read as one.
    if name.is_empty() || name.starts_with('!') || name.contains(['$', '\\']) || name.chars().any(char::is_control) {
        let message = format!("the tool {name:?} cannot be named by a pattern; write a rule for it into the config");
        return Err(ConfigEditError::new("cannot_edit", message));
    }
    Ok(name.chars().map(|c| if SPECIAL.contains(&c) { format!("[{c}]") } else { c.to_string() }).collect())
}
