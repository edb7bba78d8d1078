//! Lines of a client's entry that no server should be lost for.
//!
//! Owns what is left out of an entry, or read in the client's sense, with one warning for each.
//! Does not know clients' spellings (`entry`). Invariant: what may be a restriction of tools stays,
//! so that it is reported as an error.

use http::HeaderName;

use super::super::check::accepts_setting;
use super::super::problem::ProblemKind;
use super::super::resolve;
use super::super::schema::{ConfigSchema, SchemaRule};
use super::super::tree::{ConfigNode, ConfigPath, ConfigValue};
use super::client::SERVERS;
use super::client_login::ClientLogin;
use super::command_line::split;
use super::entry::{ClientEntry, type_of};

/// Keys with the address of a server, under all names that clients have for them.
const ADDRESS_KEYS: [&str; 9] = [
    "url",
    "command",
    "cmd",
    "uri",
    "serverUrl",
    "httpUrl",
    "server_url",
    "http_url",
    "baseUrl",
];
/// Settings that a server of one kind cannot have, by the key that makes it one.
const FOREIGN_KEYS: [(&str, &[&str]); 2] = [
    ("url", &resolve::PROGRAM_ONLY),
    ("command", &resolve::URL_ONLY),
];
/// Settings that restrict what a server offers. A wrong value is an error, or it would offer more
/// than was meant.
const RULES: [&str; 3] = ["tools", "resources", "prompts"];
/// Settings of a login that the client makes itself.
pub(super) const LOGINS: [&str; 3] = ["oauth", "auth", "headersHelper"];
/// Words in the name of a list that says which tools there are.
const RESTRICTING: [&str; 9] = [
    "only", "allow", "deny", "block", "exclu", "includ", "disab", "enabl", "restrict",
];

impl ClientEntry<'_> {
    /// Removes empty addresses. Some clients write all keys that an entry may have.
    pub(super) fn remove_blanks(&mut self) {
        // An entry without any address keeps its empty one, so that its problem is reported there.
        let has_address = self
            .table
            .iter()
            .any(|(key, node)| is_address_key(key) && !is_blank(node));
        self.table.retain(|key, node| {
            !is_blank(node) || !(key == "cwd" || has_address && is_address_key(key))
        });
    }

    /// Reads values in forms that clients take.
    pub(super) fn read_loosely(&mut self) {
        for key in ["enabled", "disabled", "isActive", "isEnabled", "active"] {
            let Some(node) = self.table.get_mut(key) else {
                continue;
            };
            match &node.value {
                ConfigValue::Text(text) if text.eq_ignore_ascii_case("true") => {
                    node.value = ConfigValue::Bool(true)
                }
                ConfigValue::Text(text) if text.eq_ignore_ascii_case("false") => {
                    node.value = ConfigValue::Bool(false)
                }
                ConfigValue::Int(number @ (0 | 1)) => node.value = ConfigValue::Bool(*number == 1),
                _ => {}
            }
        }
        if let Some(node) = self.table.get_mut("args")
            && let ConfigValue::Text(line) = &node.value
        {
            let words = split(line)
                .into_iter()
                .map(|word| ConfigNode::new(ConfigValue::Text(word), node.span));
            node.value = ConfigValue::List(words.collect());
        }
        if let Some(node) = self.table.get_mut("env")
            && let ConfigValue::List(lines) = &node.value
        {
            node.value = ConfigValue::Table(lines.iter().filter_map(variable_of_line).collect());
        }
    }

    /// Takes rules from the forms of other gateways: a filter with a mode, and a switch for each
    /// item.
    pub(super) fn rules_of_gateways(&mut self) {
        let filter = self
            .table
            .get("options")
            .and_then(|options| options.child("toolFilter"))
            .cloned();
        if let Some(list) = filter.as_ref().and_then(|filter| filter.child("list")) {
            let mode = filter
                .as_ref()
                .and_then(|filter| filter.child("mode"))
                .and_then(ConfigNode::as_text);
            let key = if mode == Some("allow") {
                "allowedTools"
            } else {
                "disabledTools"
            };
            self.table.entry(key.to_owned()).or_insert(list.clone());
        }
        let server = self.path.0.last().cloned().unwrap_or_default();
        for kind in RULES {
            let Some(node) = self.table.get_mut(kind) else {
                continue;
            };
            let Some(items) = node
                .as_table()
                .filter(|items| !items.is_empty() && items.values().all(has_switch))
            else {
                continue;
            };
            let off = items.iter().filter(|(_, item)| {
                item.child("enabled")
                    .is_some_and(|on| on.value == ConfigValue::Bool(false))
            });
            // Some of them put the server's name before that of the item.
            let names = off.flat_map(|(name, item)| {
                let own = name
                    .strip_prefix(&format!("{server}-"))
                    .filter(|own| !own.is_empty());
                [Some(name.as_str()), own]
                    .into_iter()
                    .flatten()
                    .map(|name| (name.to_owned(), item.span))
            });
            let denied = names
                .map(|(name, span)| ConfigNode::new(ConfigValue::Text(name), span))
                .collect();
            let deny = ConfigNode::new(ConfigValue::List(denied), node.span);
            node.value = ConfigValue::Table([("deny".to_owned(), deny)].into());
        }
    }

    /// Leaves out what means nothing here, or is of a kind that the server is not.
    pub(super) fn leave_out_harmless(&mut self) {
        let mut auth = None;
        for key in LOGINS {
            if auth.is_none() {
                auth = self.take_login(key);
            } else {
                // Never a mixture: a secret stays with its own client.
                self.leave_out_unknown(key);
            }
        }
        if let Some(auth) = auth {
            self.table.insert("auth".to_owned(), auth);
        }
        self.choose_way();
        self.protocol_as_type();
        self.members_without_text();
        self.own_headers();
        let schema = ConfigSchema::read();
        let keys = schema
            .root()
            .key("servers")
            .and_then(|rule| rule.key("*"))
            .and_then(|rule| rule.keys());
        let keys = keys.unwrap_or_default();
        let written: Vec<String> = self.table.keys().cloned().collect();
        for key in written {
            if !keys.contains(&key.as_str()) {
                self.leave_out_unknown(&key);
            } else if !RULES.contains(&key.as_str()) && !self.is_usable(&key) {
                self.leave_out_value(&key);
            }
        }
    }

    /// Of a program's and an address' settings, keeps those of the server's kind.
    fn choose_way(&mut self) {
        if self.table.contains_key("url") && self.table.contains_key("command") {
            // The type decides for the client, too. Without one, nobody knows which of the two is
            // meant.
            let other = match self.table.get("type").and_then(ConfigNode::as_text) {
                Some("stdio") => "url",
                Some("http" | "sse" | "ws") => "command",
                _ => return,
            };
            self.leave_out_unknown(other);
        }
        for (way, strange) in FOREIGN_KEYS {
            if !self.table.contains_key(way) {
                continue;
            }
            for key in strange {
                let is_empty = self.table.get(*key).is_some_and(is_empty);
                if is_empty {
                    self.table.remove(*key);
                } else {
                    self.leave_out_unknown(key);
                }
            }
        }
        let is_program = self.table.contains_key("command");
        if self
            .table
            .get("type")
            .and_then(ConfigNode::as_text)
            .is_some_and(|kind| (kind == "stdio") != is_program)
        {
            self.leave_out_unknown("type");
        }
    }

    /// Takes a type that was written as `protocol`. Here that key has a revision.
    fn protocol_as_type(&mut self) {
        let Some(kind) = self.table.get("protocol").and_then(ConfigNode::as_text) else {
            return;
        };
        let is_revision = kind.starts_with(|c: char| c.is_ascii_digit())
            || matches!(kind, "auto" | "newest" | "client");
        let kind = type_of(kind);
        if is_revision {
            return;
        }
        match (kind, self.table.remove("protocol")) {
            (Some(kind), Some(node))
                if !kind.is_empty() && self.table.contains_key("url") == (kind != "stdio") =>
            {
                let node = ConfigNode {
                    value: ConfigValue::Text(kind.to_owned()),
                    ..node
                };
                self.table.entry("type".to_owned()).or_insert(node);
            }
            (_, Some(node)) => self
                .ignored
                .add(node.key, self.path.key("protocol").to_string()),
            _ => {}
        }
    }

    /// Leaves out variables, headers and arguments that aren't text.
    fn members_without_text(&mut self) {
        for key in ["env", "headers", "args"] {
            let path = self.path.key(key);
            let Some(node) = self.table.get_mut(key) else {
                continue;
            };
            let mut wrong = Vec::new();
            match &mut node.value {
                ConfigValue::Table(table) => table.retain(|name, node| {
                    let is_text = node.as_text().is_some() || node.value == ConfigValue::Null;
                    wrong.extend((!is_text).then(|| (node.key, path.key(name))));
                    is_text
                }),
                ConfigValue::List(items) => items.retain(|item| item.value != ConfigValue::Null),
                _ => {}
            }
            for (span, path) in wrong {
                let message = format!("`{path}` is not text, so it is ignored");
                self.faults.for_setting(&path).warn(
                    ProblemKind::Type,
                    span,
                    message,
                    "put it in quotes",
                );
            }
        }
    }

    /// Leaves out headers that the gateway sets itself.
    fn own_headers(&mut self) {
        let path = self.path.key("headers");
        let Some(headers) = self
            .table
            .get_mut("headers")
            .and_then(ConfigNode::as_table_mut)
        else {
            return;
        };
        let mut own = Vec::new();
        headers.retain(|name, node| {
            let is_own = HeaderName::try_from(name.as_str())
                .is_ok_and(|name| resolve::is_reserved_header(&name));
            own.extend(is_own.then(|| (node.key, path.key(name))));
            !is_own
        });
        for (span, path) in own {
            let message = format!("`{path}` is set by the gateway itself, so it is ignored");
            self.faults.for_setting(&path).warn(
                ProblemKind::ClientSetting,
                span,
                message,
                "remove it to silence this",
            );
        }
    }

    /// Takes a login out of the entry. Returns `auth` with it, if the gateway can make the same
    /// one. Nothing of it is run.
    fn take_login(&mut self, key: &str) -> Option<ConfigNode> {
        if self.is_own_login(key) {
            return None;
        }
        let node = self.table.remove(key)?;
        let path = self.path.key(key);
        if let Some(login) = self.read_login(&node) {
            self.note_login(&path, &node, &login);
            return Some(login.auth);
        }
        let message = format!(
            "`{path}` is a login that only {} can use, so it is ignored",
            self.format.title
        );
        let fix = "if the server needs a login, run `moongate login NAME`, or send a credential \
                   with `headers`";
        self.faults
            .for_setting(&path)
            .warn(ProblemKind::UnknownKey, node.key, message, fix);
        None
    }

    /// Reads a login of the client as ours. `None`: the gateway cannot make it, or another setting
    /// is the credential.
    fn read_login(&self, node: &ConfigNode) -> Option<ClientLogin> {
        let is_credential = |name: &String| name.eq_ignore_ascii_case("authorization");
        let headers = self.table.get("headers").and_then(ConfigNode::as_table);
        let has_credential = headers.is_some_and(|headers| headers.keys().any(is_credential));
        // Of two logins, one in our form counts.
        if !self.table.contains_key("url") || has_credential || self.is_own_login("auth") {
            return None;
        }
        ClientLogin::read(node).filter(|login| accepts_setting("x", "auth", &login.auth))
    }

    /// Warns about what a login needs here, or has no equal for.
    fn note_login(&mut self, path: &ConfigPath, node: &ConfigNode, login: &ClientLogin) {
        let left_out: Vec<String> = login
            .left_out
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        if left_out.is_empty() && !login.has_client {
            return;
        }
        let but = match left_out.is_empty() {
            true => String::new(),
            false => format!(", without {}", left_out.join(", ")),
        };
        let message = format!("`{path}` is used for Moongate's own login{but}");
        let fix = "its client must allow the redirect address that `moongate login NAME` uses";
        self.faults
            .for_setting(path)
            .warn(ProblemKind::ClientSetting, node.key, message, fix);
    }

    /// True for `auth` in our form, in a file that may be ours.
    fn is_own_login(&self, key: &str) -> bool {
        let node = self.table.get(key).filter(|_| key == "auth");
        *self.format == SERVERS && node.is_some_and(|node| accepts_setting("x", key, node))
    }

    fn leave_out_unknown(&mut self, key: &str) {
        if restricts_tools(key) {
            return;
        }
        if let Some(node) = self.table.remove(key) {
            self.ignored.add(node.key, self.path.key(key).to_string());
        }
    }

    /// True if the config takes the value of a key.
    fn is_usable(&self, key: &str) -> bool {
        let Some(node) = self.table.get(key) else {
            return true;
        };
        let is_address = matches!(
            key,
            "url" | "command" | "args" | "tcp" | "unix" | "enabled" | "env" | "headers"
        );
        let text = node.as_text().unwrap_or_default();
        // What is not written yet cannot be judged: the reference is replaced later.
        is_address
            || text.contains("${")
            || (accepts_setting("x", key, node) && resolve::is_text_usable(key, text))
    }

    fn leave_out_value(&mut self, key: &str) {
        let Some(node) = self.table.remove(key) else {
            return;
        };
        let path = self.path.key(key);
        let schema = ConfigSchema::read();
        let rule = schema
            .root()
            .key("servers")
            .and_then(|rule| rule.key("*"))
            .and_then(|rule| rule.key(key));
        let with_unit = rule.and_then(|rule| {
            rule.choices()
                .into_iter()
                .find(|rule| rule.unit().is_some())
        });
        let is_number = matches!(node.value, ConfigValue::Int(_) | ConfigValue::Float(_));
        let (message, fix) = match with_unit.and_then(SchemaRule::advice).filter(|_| is_number) {
            Some(advice) => (
                format!("`{path}` is a number without a unit, so it is ignored"),
                advice,
            ),
            None => (
                format!("`{path}` has a value that Moongate does not support, so it is ignored"),
                "remove it",
            ),
        };
        self.faults
            .for_setting(&path)
            .warn(ProblemKind::ClientSetting, node.span, message, fix);
    }
}

/// True if an unknown key may say which tools there are.
fn restricts_tools(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    key.contains("tool") && RESTRICTING.iter().any(|word| key.contains(word))
}

fn is_address_key(key: &str) -> bool {
    ADDRESS_KEYS.contains(&key)
}

fn is_blank(node: &ConfigNode) -> bool {
    node.as_text().is_some_and(|text| text.trim().is_empty())
}

/// Reads a line `NAME=value`.
fn variable_of_line(line: &ConfigNode) -> Option<(String, ConfigNode)> {
    let (name, value) = line.as_text()?.split_once('=')?;
    let value = ConfigNode {
        value: ConfigValue::Text(value.to_owned()),
        ..line.clone()
    };
    Some((name.to_owned(), value))
}

/// True for an item that is on or off.
fn has_switch(item: &ConfigNode) -> bool {
    matches!(
        item.child("enabled").map(|on| &on.value),
        Some(ConfigValue::Bool(_))
    )
}

fn is_empty(node: &ConfigNode) -> bool {
    match &node.value {
        ConfigValue::Text(text) => text.is_empty(),
        ConfigValue::List(items) => items.is_empty(),
        ConfigValue::Table(table) => table.is_empty(),
        _ => false,
    }
}
