//! Variables that an entry in a client's file sets for its own program.
//!
//! Owns their names, and the references to them in arguments. Does not convert references (`references`). Invariant: a
//! variable that the entry only passes on has the client's value.

use std::collections::{BTreeMap, HashSet};

use super::super::tree::{ConfigNode, ConfigValue};
use super::entry::ClientEntry;

impl ClientEntry<'_> {
    /// Leaves references in arguments to the program if the entry sets their variables: clients do not replace these, but
    /// the program or its shell does.
    pub(super) fn own_variables(&mut self) {
        let Some(mut args) = self.table.remove("args") else { return };
        let names = self.table.get("env").and_then(ConfigNode::as_table).map(set_variables).unwrap_or_default();
        if let ConfigValue::List(words) = &mut args.value {
            for word in words {
                if let ConfigValue::Text(text) = &mut word.value {
                    *text = escape_references(text, &names);
                }
            }
        }
        self.table.insert("args".to_owned(), args);
    }
}

/// Names of the variables that an entry sets itself. One that passes on its namesake has the client's value.
fn set_variables(env: &BTreeMap<String, ConfigNode>) -> HashSet<&str> {
    let is_passed_on = |name: &str, node: &ConfigNode| {
        let rest = node.as_text().and_then(|text| text.strip_prefix("${")?.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with(['}', ':']))
    };
    env.iter().filter(|(name, node)| !is_passed_on(name, node)).map(|(name, _)| name.as_str()).collect()
}

/// Keeps references to these variables from being replaced here.
fn escape_references(text: &str, names: &HashSet<&str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, mark) = rest.split_at(at);
        out.push_str(before);
        // Of what is escaped already, the first dollar sign hides the second.
        let taken = if mark.starts_with("$$") { 2 } else { 1 };
        let name = mark.strip_prefix("${").and_then(variable_name);
        if name.is_some_and(|name| names.contains(name)) {
            out.push('$');
        }
        out.push_str(&mark[..taken]);
        rest = &mark[taken..];
    }
    out + rest
}

/// Returns the name at the start of a reference, behind its brace.
fn variable_name(inside: &str) -> Option<&str> {
    // No name has a dollar sign. Openings alone would otherwise be searched to the end of the text, each of them.
    let end = inside.find(['}', ':', '$']).filter(|end| !inside[*end..].starts_with('$'))?;
    Some(&inside[..end])
}

#[cfg(test)]
mod tests {
    use super::super::super::tree::SourceSpan;
    use super::*;

    #[test]
    fn references_to_variables_of_the_entry_are_left_to_its_program() {
        let names = HashSet::from(["KEY", "B"]);
        for (text, escaped) in [
            ("Authorization:${KEY}", "Authorization:$${KEY}"),
            ("${KEY:-x} ${OTHER} $KEY", "$${KEY:-x} ${OTHER} $KEY"),
            ("$${KEY} $$ ${KEY}", "$${KEY} $$ $${KEY}"),
            ("$$${KEY}", "$$$${KEY}"),
            ("${A:-${B}}${KEY}${KE${KEY", "${A:-$${B}}$${KEY}${KE${KEY"),
        ] {
            assert_eq!(escape_references(text, &names), escaped, "{text}");
        }
        let text = |text: &str| {
            ConfigNode::new(ConfigValue::Text(text.to_owned()), SourceSpan { source: 0, start: 0, end: 0 })
        };
        let env = [("A", "${A}"), ("B", "b"), ("C", "${A}"), ("D", "${D:-d}")];
        let env = env.into_iter().map(|(name, value)| (name.to_owned(), text(value))).collect();
        assert_eq!(set_variables(&env), HashSet::from(["B", "C"]));
    }
}
