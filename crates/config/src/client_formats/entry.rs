//! Conversion of a server's entry in a client's file into ours.
//!
//! Owns aliases of our keys, and values in forms of clients. Does not check values (`check`).
//! Invariant: an entry with only our keys stays as it is.

use std::collections::{BTreeMap, HashSet};

use super::super::collector::ProblemCollector;
use super::super::problem::ProblemKind;
use super::super::tree::{ConfigNode, ConfigPath, ConfigValue, SourceSpan};
use super::client::{ClientFormat, OWN, WITSY};
use super::command_line::{is_file, split, windows_program};
use super::ignored::IgnoredSettings;
use super::references::{self, EditorContext};
use super::tools;

/// Aliases of our keys.
pub(in super::super) const ALIASES: [(&str, &str); 21] = [
    ("serverUrl", "url"),
    ("httpUrl", "url"),
    ("server_url", "url"),
    ("http_url", "url"),
    ("uri", "url"),
    ("baseUrl", "url"),
    ("cmd", "command"),
    ("arguments", "args"),
    ("environment", "env"),
    ("envs", "env"),
    ("http_headers", "headers"),
    ("httpHeaders", "headers"),
    ("workingDirectory", "cwd"),
    ("working_directory", "cwd"),
    ("workDir", "cwd"),
    ("displayName", "title"),
    ("display_name", "title"),
    ("startup_timeout", "start_timeout"),
    ("startupTimeout", "start_timeout"),
    ("toolTimeout", "timeout"),
    ("tool_timeout", "timeout"),
];

/// Types of servers as clients write them, with ours. An empty text means that the URL decides.
const TYPES: [(&str, &str); 16] = [
    ("stdio", "stdio"),
    ("STDIO", "stdio"),
    ("local", "stdio"),
    ("command", "stdio"),
    ("http", "http"),
    ("https", "http"),
    ("streamable-http", "http"),
    ("streamableHttp", "http"),
    ("streamable_http", "http"),
    ("streamablehttp", "http"),
    ("streamable", "http"),
    ("http-stream", "http"),
    ("sse", "sse"),
    ("ws", "ws"),
    ("websocket", "ws"),
    ("remote", ""),
];

/// Type here that a client's word means. Empty if the URL decides.
pub(super) fn type_of(word: &str) -> Option<&'static str> {
    TYPES
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, meaning)| *meaning)
}

/// Accepted names of a server's type.
pub(in super::super) fn type_names() -> Vec<&'static str> {
    TYPES.iter().map(|(name, _)| *name).collect()
}

/// Entry of a server during its conversion.
pub(super) struct ClientEntry<'a> {
    pub(super) path: &'a ConfigPath,
    pub(super) table: &'a mut BTreeMap<String, ConfigNode>,
    pub(super) format: &'a ClientFormat,
    pub(super) editor: &'a EditorContext,
    pub(super) asked_inputs: &'a mut Vec<String>,
    pub(super) ignored: &'a mut IgnoredSettings,
    pub(super) faults: &'a mut ProblemCollector,
}

impl ClientEntry<'_> {
    /// Converts the entry.
    pub(super) fn convert(mut self) {
        let foreign = *self.format != OWN;
        if foreign {
            self.references();
        }
        self.lift("config");
        self.lift("transport");
        self.lift("requestOptions");
        // After the tables are lifted: their keys may be aliases too.
        self.command_table();
        if foreign {
            self.remove_blanks();
        }
        for (alias, key) in ALIASES {
            self.rename(alias, key);
        }
        if foreign {
            self.read_loosely();
            self.rules_of_gateways();
        }
        self.credentials();
        self.switch(foreign);
        self.kind(foreign);
        self.arguments_as_url();
        self.command(foreign);
        self.approvals();
        // After the aliases: a time may have come under another name.
        tools::convert(self.path, self.table, self.faults);
        self.times(foreign);
        if foreign {
            self.scalars();
            self.own_variables();
        }
        // Last: every key that is left is unknown to the steps before.
        self.ignored.take_from(self.path, self.table, foreign);
        if foreign {
            self.leave_out_harmless();
        }
    }

    fn error(&mut self, kind: ProblemKind, span: SourceSpan, message: String, fix: &str) {
        self.faults
            .for_setting(self.path)
            .error(kind, span, message, fix);
    }

    /// Rewrites the client's references in every text.
    fn references(&mut self) {
        for (key, node) in self.table.iter_mut() {
            let path = self.path.key(key);
            rewrite(
                node,
                &path,
                (self.format, self.editor),
                self.asked_inputs,
                self.faults,
            );
        }
    }

    /// Moves the keys of an inner table into the entry.
    fn lift(&mut self, key: &str) {
        if self
            .table
            .get(key)
            .is_none_or(|node| node.as_table().is_none())
        {
            return;
        }
        if let Some(ConfigNode {
            value: ConfigValue::Table(inner),
            ..
        }) = self.table.remove(key)
        {
            for (key, node) in inner {
                self.table.entry(key).or_insert(node);
            }
        }
    }

    /// Unpacks `command = { path, args, env }`.
    fn command_table(&mut self) {
        if self
            .table
            .get("command")
            .is_none_or(|node| node.child("path").is_none())
        {
            return;
        }
        if let Some(ConfigNode {
            value: ConfigValue::Table(inner),
            ..
        }) = self.table.remove("command")
        {
            for (key, node) in inner {
                let key = if key == "path" {
                    "command".to_owned()
                } else {
                    key
                };
                self.table.entry(key).or_insert(node);
            }
        }
    }

    fn rename(&mut self, alias: &str, key: &str) {
        let Some(node) = self.table.remove(alias) else {
            return;
        };
        match (
            self.table.get_mut(key).map(|there| &mut there.value),
            node.value,
        ) {
            (None, value) => drop(
                self.table
                    .insert(key.to_owned(), ConfigNode { value, ..node }),
            ),
            (Some(ConfigValue::Table(there)), ConfigValue::Table(more)) => {
                for (key, node) in more {
                    there.entry(key).or_insert(node);
                }
            }
            // Some clients write the same URL under two names.
            (Some(there), value) if *there == value => {}
            _ => {
                let what = if key == "url" {
                    "two URLs".to_owned()
                } else {
                    format!("`{key}` twice")
                };
                let message = format!(
                    "`{}` has {what}: `{alias}` is another spelling of `{key}`",
                    self.path
                );
                self.error(
                    ProblemKind::Conflict,
                    node.key,
                    message,
                    "keep one of the two",
                );
            }
        }
    }

    /// Turns credentials into headers and variables. Some clients give only the name of a variable.
    fn credentials(&mut self) {
        let mut headers: Vec<(String, ConfigNode)> = Vec::new();
        let mut env: Vec<(String, ConfigNode)> = Vec::new();
        // Codex names a variable, so its file holds no secret. A reference keeps it that way.
        for (key, as_value) in [
            ("bearer_token_env_var", false),
            ("api_key_env", false),
            ("apiKey", true),
        ] {
            let Some(node) = self.table.remove(key) else {
                continue;
            };
            if let Some(name) = node.as_text().filter(|name| !name.is_empty()) {
                let value = if as_value {
                    name.to_owned()
                } else {
                    format!("${{{name}}}")
                };
                let bearer = with_text(&node, format!("Bearer {value}"));
                headers.push(("Authorization".to_owned(), bearer));
            }
        }
        if let Some(ConfigNode {
            value: ConfigValue::Table(names),
            ..
        }) = self.table.remove("env_http_headers")
        {
            for (header, node) in names {
                let value = node
                    .as_text()
                    .map(|name| with_text(&node, format!("${{{name}}}")));
                headers.extend(value.map(|value| (header, value)));
            }
        }
        // Variables of `env_vars` may be missing. Those of `env_keys` are secrets that the server
        // needs.
        for (key, default) in [("env_vars", ":-"), ("env_keys", "")] {
            let Some(ConfigNode {
                value: ConfigValue::List(names),
                ..
            }) = self.table.remove(key)
            else {
                continue;
            };
            for node in names {
                if let Some(name) = node.as_text() {
                    let reference = with_text(&node, format!("${{{name}{default}}}"));
                    env.push((name.to_owned(), reference));
                }
            }
        }
        self.add("headers", headers);
        self.add("env", env);
    }

    fn add(&mut self, key: &str, entries: Vec<(String, ConfigNode)>) {
        let Some(span) = entries.first().map(|(_, node)| node.span) else {
            return;
        };
        let node = self
            .table
            .entry(key.to_owned())
            .or_insert_with(|| ConfigNode::table(span));
        let Some(table) = node.as_table_mut() else {
            return;
        };
        // Names of headers have no case, and an entry's own value wins.
        let mut there: HashSet<String> =
            table.keys().map(|name| name.to_ascii_lowercase()).collect();
        for (name, node) in entries {
            if there.insert(name.to_ascii_lowercase()) {
                table.insert(name, node);
            }
        }
    }

    /// Turns `disabled`, `isActive` and `state` into `enabled`.
    fn switch(&mut self, foreign: bool) {
        if let Some(node) = self.table.get("state")
            && let Some(state @ ("enabled" | "disabled")) = node.as_text()
        {
            let node = ConfigNode {
                value: ConfigValue::Bool(state == "enabled"),
                ..node.clone()
            };
            self.table.remove("state");
            self.table.entry("enabled".to_owned()).or_insert(node);
        }
        for (name, inverted) in [
            ("disabled", true),
            ("isActive", false),
            ("isEnabled", false),
            ("active", false),
        ] {
            let Some(mut node) = self.table.remove(name) else {
                continue;
            };
            match node.value {
                // A client that writes both means one of them. Off is the one that does no harm.
                ConfigValue::Bool(value) if foreign && self.table.contains_key("enabled") => {
                    node.value = ConfigValue::Bool(false);
                    if value == inverted {
                        self.table.insert("enabled".to_owned(), node);
                    }
                }
                ConfigValue::Bool(_) if self.table.contains_key("enabled") => {
                    let message = format!("`{}` and `enabled` are both set", self.path.key(name));
                    self.error(ProblemKind::Conflict, node.key, message, "keep `enabled`");
                }
                ConfigValue::Bool(value) => {
                    node.value = ConfigValue::Bool(value != inverted);
                    self.table.insert("enabled".to_owned(), node);
                }
                _ => {
                    let message = format!(
                        "`{}` must be true or false, but is {}",
                        self.path.key(name),
                        node.kind()
                    );
                    self.error(ProblemKind::Type, node.span, message, "write true or false");
                }
            }
        }
    }

    /// Turns a client's types into ours. Clients also write them under `transport`.
    fn kind(&mut self, foreign: bool) {
        for key in ["type", "transport", "transportType"] {
            let Some(mut node) = self.table.remove(key) else {
                continue;
            };
            let meaning = node.as_text().and_then(type_of);
            match meaning {
                Some("") => continue,
                Some(meaning) => node.value = ConfigValue::Text(meaning.to_owned()),
                None => {}
            }
            // Our `transport` has no word for programs. Its `http` also excludes HTTP+SSE, which a
            // client's `http` does not.
            let as_type = key == "transportType"
                || meaning == Some("stdio")
                || (foreign && meaning.is_some());
            let key = if as_type { "type" } else { key };
            self.table.entry(key.to_owned()).or_insert(node);
        }
    }

    /// Moves the arguments of a program from `url` to `args`. One client keeps them there.
    fn arguments_as_url(&mut self) {
        let is_program = self.table.contains_key("command") && !self.table.contains_key("args");
        if *self.format != WITSY || !is_program {
            return;
        }
        let Some(node) = self.table.remove("url") else {
            return;
        };
        let words = node.as_text().map(split).unwrap_or_default();
        let words = words
            .into_iter()
            .map(|word| ConfigNode::new(ConfigValue::Text(word), node.span))
            .collect();
        self.table.insert(
            "args".to_owned(),
            ConfigNode {
                value: ConfigValue::List(words),
                ..node
            },
        );
    }

    /// Splits a command that is a list or, in clients' files, one line.
    fn command(&mut self, foreign: bool) {
        let Some(node) = self.table.get_mut("command") else {
            return;
        };
        let words: Vec<ConfigNode> = match &mut node.value {
            ConfigValue::List(words) => std::mem::take(words),
            // A path with spaces is one word if such a file exists.
            ConfigValue::Text(line)
                if foreign && line.trim().contains(char::is_whitespace) && !is_file(line) =>
            {
                let span = node.span;
                let (program, rest) = line.split_at(windows_program(line).unwrap_or_default());
                let program = (!program.is_empty()).then(|| program.to_owned());
                let words = program.into_iter().chain(split(rest));
                words
                    .map(|word| ConfigNode::new(ConfigValue::Text(word), span))
                    .collect()
            }
            _ => return,
        };
        let mut words = words.into_iter();
        match words.next() {
            Some(first) => (node.value, node.span) = (first.value, first.span),
            None => node.value = ConfigValue::Text(String::new()),
        }
        let key = node.key;
        let rest: Vec<ConfigNode> = words.collect();
        if rest.is_empty() {
            return;
        }
        let span = rest[0].span;
        let args = self.table.entry("args".to_owned());
        let args = args.or_insert_with(|| ConfigNode {
            key,
            ..ConfigNode::new(ConfigValue::List(Vec::new()), span)
        });
        if let ConfigValue::List(args) = &mut args.value {
            // The words of the command come before the arguments.
            args.splice(0..0, rest);
        }
    }

    /// Ignores a table of tools that only has the approvals of the client's user.
    fn approvals(&mut self) {
        if self
            .table
            .get("tools")
            .and_then(ConfigNode::as_table)
            .is_some_and(|tools| !tools.is_empty() && tools.values().all(has_approval_mode))
            && let Some(node) = self.table.remove("tools")
        {
            self.ignored
                .add(node.key, self.path.key("tools").to_string());
        }
    }

    /// Turns numbers and booleans into text where only text makes sense.
    fn scalars(&mut self) {
        for key in ["env", "headers", "args"] {
            let Some(node) = self.table.get_mut(key) else {
                continue;
            };
            match &mut node.value {
                ConfigValue::Table(table) => table.values_mut().for_each(as_text),
                ConfigValue::List(items) => items.iter_mut().for_each(as_text),
                _ => {}
            }
        }
    }
}

fn rewrite(
    node: &mut ConfigNode,
    path: &ConfigPath,
    (format, editor): (&ClientFormat, &EditorContext),
    asked: &mut Vec<String>,
    faults: &mut ProblemCollector,
) {
    match &mut node.value {
        ConfigValue::Text(text) => {
            match references::rewrite(text, format.references, editor, asked) {
                Ok(rewritten) => *text = rewritten,
                Err((message, fix)) => {
                    faults.for_setting(path).error(
                        ProblemKind::Reference,
                        node.span,
                        format!("`{path}`: {message}"),
                        fix,
                    );
                    // The problem is reported. A null keeps the check from reporting it again.
                    node.value = ConfigValue::Null;
                }
            }
        }
        ConfigValue::List(items) => {
            let items = items.iter_mut().enumerate();
            items.for_each(|(i, item)| {
                rewrite(item, &path.item(i), (format, editor), asked, faults)
            });
        }
        ConfigValue::Table(table) => {
            for (key, child) in table {
                rewrite(child, &path.key(key), (format, editor), asked, faults);
            }
        }
        _ => {}
    }
}

/// Copies a node with another text.
fn with_text(node: &ConfigNode, text: String) -> ConfigNode {
    ConfigNode {
        value: ConfigValue::Text(text),
        ..node.clone()
    }
}

fn has_approval_mode(tool: &ConfigNode) -> bool {
    tool.as_table()
        .is_some_and(|tool| tool.contains_key("approval_mode"))
}

fn as_text(node: &mut ConfigNode) {
    match node.value {
        ConfigValue::Int(number) => node.value = ConfigValue::Text(number.to_string()),
        ConfigValue::Bool(value) => node.value = ConfigValue::Text(value.to_string()),
        ConfigValue::Float(number) => node.value = ConfigValue::Text(number.to_string()),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
