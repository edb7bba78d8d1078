//! Variables that an entry in a client's file sets for its own program.
//!
//! Owns their names, and the references to them in arguments. Does not convert references
//! (`references`). Invariant: a variable that the entry only passes on has the client's value.

use std::collections::{BTreeMap, HashSet};

use super::super::tree::{ConfigNode, ConfigValue};
use super::entry::ClientEntry;

/// Programs that take variables before the program that they start.
const VARIABLE_SETTERS: [&str; 3] = ["env", "cross-env", "sudo"];
/// Flags of these with a value.
const SETTER_FLAGS: [&str; 8] = [
    "-u", "--unset", "-C", "--chdir", "-g", "--group", "--user", "-D",
];
/// Flags of containers and runners whose value is a variable.
const VARIABLE_FLAGS: [&str; 2] = ["-e", "--env"];
/// Programs that run a text.
const SHELLS: [&str; 7] = ["sh", "bash", "zsh", "dash", "ash", "ksh", "busybox"];

impl ClientEntry<'_> {
    /// Leaves references in arguments to the program if the entry sets their variables: clients do
    /// not replace these, but the program or its shell does.
    pub(super) fn own_variables(&mut self) {
        let Some(mut args) = self.table.remove("args") else {
            return;
        };
        let mut names = self
            .table
            .get("env")
            .and_then(ConfigNode::as_table)
            .map(set_variables)
            .unwrap_or_default();
        let command = self.table.get("command").and_then(ConfigNode::as_text);
        let line: Vec<String> = command
            .into_iter()
            .chain(texts(&args))
            .map(str::to_owned)
            .collect();
        names.extend(set_in_words(&line));
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

/// Names of the variables that an entry sets itself. One that passes on its namesake has the
/// client's value.
fn set_variables(env: &BTreeMap<String, ConfigNode>) -> HashSet<&str> {
    env.iter()
        .filter(|(name, node)| !is_passed_on(name, node))
        .map(|(name, _)| name.as_str())
        .collect()
}

fn is_passed_on(name: &str, node: &ConfigNode) -> bool {
    let rest = node
        .as_text()
        .and_then(|text| text.strip_prefix("${")?.strip_prefix(name));
    rest.is_some_and(|rest| rest.starts_with(['}', ':']))
}

/// Texts of a list.
fn texts(list: &ConfigNode) -> impl Iterator<Item = &str> {
    let items = if let ConfigValue::List(items) = &list.value {
        &items[..]
    } else {
        &[]
    };
    items.iter().filter_map(ConfigNode::as_text)
}

/// Names of the variables that the words of a command line set: `env NAME=value`, `docker run -e
/// NAME=value`, and `sh -c 'NAME=value ...'`.
fn set_in_words(words: &[String]) -> HashSet<&str> {
    let mut names = HashSet::new();
    let mut before = "";
    let mut takes_variables = false;
    let mut has_shell = false;
    for word in words {
        let in_flag = word
            .strip_prefix("--env=")
            .or_else(|| word.strip_prefix("-e"));
        let value = if VARIABLE_FLAGS.contains(&before) {
            Some(word.as_str())
        } else {
            in_flag
        };
        names.extend(value.and_then(own_name));
        if has_shell && before.starts_with('-') && before.ends_with('c') {
            let parts =
                word.split(|c: char| c.is_whitespace() || matches!(c, ';' | '&' | '|' | '('));
            names.extend(parts.filter_map(own_name));
        }
        if takes_variables {
            names.extend(own_name(word));
            let is_of_setter = word.starts_with('-')
                || SETTER_FLAGS.contains(&before)
                || assignment(word).is_some();
            // Behind the program, such words are its arguments.
            takes_variables = is_of_setter;
        }
        let program = word.rsplit(['/', '\\']).next().unwrap_or_default();
        takes_variables |= VARIABLE_SETTERS.contains(&program);
        has_shell |= SHELLS.contains(&program);
        before = word;
    }
    names
}

/// Returns the name that a word sets, unless the value has the variable of this name in it.
fn own_name(word: &str) -> Option<&str> {
    let (name, value) = assignment(word)?;
    let mut references = value
        .split("${")
        .skip(1)
        .filter_map(|inside| inside.strip_prefix(name));
    (!references.any(|rest| rest.starts_with(['}', ':']))).then_some(name)
}

/// Splits `NAME=value`.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, value))
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
    // No name has a dollar sign. Openings alone would otherwise be searched to the end of the text,
    // each of them.
    let end = inside
        .find(['}', ':', '$'])
        .filter(|end| !inside[*end..].starts_with('$'))?;
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
        let env = [("A", "${A}"), ("B", "b"), ("C", "${A}"), ("D", "${D:-d}")];
        let env = env
            .into_iter()
            .map(|(name, value)| (name.to_owned(), text_node(value)))
            .collect();
        assert_eq!(set_variables(&env), HashSet::from(["B", "C"]));
    }

    fn text_node(text: &str) -> ConfigNode {
        ConfigNode::new(
            ConfigValue::Text(text.to_owned()),
            SourceSpan {
                source: 0,
                start: 0,
                end: 0,
            },
        )
    }

    #[test]
    fn variables_of_a_wrapper_are_left_to_its_program() {
        let url = "https://a.example/mcp";
        for (words, names) in [
            (
                &[
                    "env",
                    "AUTH=Bearer k",
                    "mcp-remote",
                    url,
                    "--header",
                    "Authorization:${AUTH}",
                ][..],
                &["AUTH"][..],
            ),
            (
                &["/usr/bin/env", "-u", "X", "-i", "A=1", "B=2", "run", "c=3"],
                &["A", "B"],
            ),
            (&["sudo", "-u", "me", "env", "A=1", "run"], &["A"]),
            (
                &[
                    "docker",
                    "run",
                    "-e",
                    "A=1",
                    "--env",
                    "B=2",
                    "--env=C=3",
                    "-eD=4",
                    "-e",
                    "E",
                    "image",
                    "f=5",
                ],
                &["A", "B", "C", "D"],
            ),
            (
                &["sh", "-c", "A=1; export B=2 && (C=3 exec x --d=4)"],
                &["A", "B", "C"],
            ),
            (&["busybox", "sh", "-ec", "A=1 x"], &["A"]),
            // These have the client's value.
            (
                &[
                    "env",
                    "A=${A}",
                    "PATH=/x:${PATH}",
                    "B=${B:-b}",
                    "C=${D}",
                    "x",
                ],
                &["C"],
            ),
            (&["x", "A=1", "--set", "B=2", "-c", "C=3"], &[]),
        ] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(
                set_in_words(&words),
                names.iter().copied().collect(),
                "{words:?}"
            );
        }
    }
}
