//! Resolver: the checked keys of a config become a plan.
//!
//! Owns the meaning of values, their ranges, and the conflicts between them. Submodules have the servers, views, keys,
//! listeners and state. Does not check types and unknown keys (`check`). Invariant: without an error the plan can run
//! as it is.

mod access;
mod admin;
mod log_levels;
mod listen;
mod network;
mod server;
mod state;
mod system;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use moongate_platform::Platform;

use super::check::{alternatives, nearest};
use super::file::{Calls, ConfigFile, DurationText, LogFormat, RateText, Server, SizeText};
use super::parse_units;
use super::plan::{LogSettings, NameSettings, Plan, PlanLimits, ReloadSettings};
use super::problem::{ProblemCollector, ProblemKind};
use super::server_names::is_name_character;
use super::source::ConfigSources;
use super::tree::{ConfigNode, ConfigPath, ConfigValue};
use moongate_access::policy::RequestRate;
use moongate_telemetry::{CallLog, MemoryLimit};
use moongate_upstream::ServerSettings;

/// Inputs of the resolver besides the keys.
pub(super) struct PlanResolver<'a> {
    /// Merged tree, before any value was removed. It has the places, and shows which keys were written.
    pub(super) tree: &'a ConfigNode,
    pub(super) faults: &'a mut ProblemCollector,
    /// Protocol revisions that a server can be made to speak.
    pub(super) revisions: &'a [&'a str],
    /// Servers of `--only`. All servers if empty.
    pub(super) only: &'a [String],
    /// Variables of the environment.
    pub(super) env: &'a BTreeMap<String, String>,
    /// Sources of the config, for paths relative to a file.
    pub(super) sources: &'a ConfigSources,
    /// Files that settings name. They are watched like the config itself.
    pub(super) files: &'a mut Vec<PathBuf>,
    /// Abilities of the system that the config is for.
    pub(super) platform: Platform,
}

impl<'a> PlanResolver<'a> {
    /// Resolves the plan. It is valid only if no error was reported.
    pub(super) fn plan(mut self, file: &ConfigFile) -> Plan {
        let path = |keys: &[&str]| ConfigPath::of(keys);
        let names = self.names(file);
        let admin = self.admin(&file.gateway.admin);
        let listen = self.listen(&file.gateway.listen, admin.as_ref());
        let ask_timeout = self.duration(&path(&["gateway", "ask_timeout"]), &file.gateway.ask_timeout);
        let keys = self.keys(file);
        self.check_system(&file.gateway);
        let plan = Plan {
            public_url: self.public_url(file),
            allowed_hosts: self.hosts(&file.gateway.allowed_hosts),
            allowed_origins: self.origins(&file.gateway.allowed_origins),
            drain: self.duration_or_zero(&path(&["gateway", "drain"]), &file.gateway.drain),
            keep_alive: self.duration(&path(&["gateway", "keep_alive"]), &file.gateway.keep_alive),
            state: self.state(&file.gateway, &listen),
            catalog_age: self.duration(&path(&["gateway", "catalog_age"]), &file.gateway.catalog_age),
            schema: file.gateway.schema.style(),
            names,
            // `ask_timeout` is one setting of the gateway, and each server's calls need it.
            servers: self.servers(file).into_iter().map(|server| ServerSettings { ask_timeout, ..server }).collect(),
            ask_timeout,
            disabled: disabled(file),
            views: self.views(file),
            admin_access: self.admin_access(file, &keys, admin.as_ref()),
            keys,
            limits: self.limits(file),
            reload: ReloadSettings {
                watch: file.gateway.reload.watch,
                interval: self.duration(&path(&["gateway", "reload", "interval"]), &file.gateway.reload.interval),
                signal: file.gateway.reload.signal,
            },
            log: self.log(file),
            sockets: self.sockets(&file.gateway),
            tls: self.tls(&file.gateway),
            listen,
            admin,
        };
        self.only_exist();
        plan
    }

    /// Reports a problem with the value at a path.
    fn error(&mut self, kind: ProblemKind, path: &ConfigPath, message: impl Into<String>, fix: impl Into<String>) {
        let node = self.tree.near(path);
        // A table may span the whole file, so its key marks the place.
        let place = if matches!(node.value, ConfigValue::Table(_)) { node.key } else { node.span };
        self.faults.about(path).error(kind, place, message, fix);
    }

    /// Reports a problem with the key at a path.
    fn error_at_key(
        &mut self,
        kind: ProblemKind,
        path: &ConfigPath,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let place = self.tree.near(path).key;
        self.faults.about(path).error(kind, place, message, fix);
    }

    fn warn(&mut self, path: &ConfigPath, message: impl Into<String>, fix: impl Into<String>) {
        let place = self.tree.near(path).span;
        self.faults.about(path).warn(ProblemKind::Value, place, message, fix);
    }

    /// True if a key was written, even with a wrong value.
    fn is_written(&self, path: &ConfigPath) -> bool {
        self.tree.at(path).is_some()
    }

    /// Value at a path in the form in which a message may quote it.
    fn quoted_value(&self, path: &ConfigPath) -> String {
        match self.tree.at(path) {
            Some(node) if !node.expanded && !node.secret => match node.as_text() {
                // A long value would hide the message around it.
                Some(text) if text.len() <= 100 && !super::redact::is_secret(path, text, None) => format!("{text:?}"),
                _ => "its value".to_owned(),
            },
            _ => "its value".to_owned(),
        }
    }

    fn duration_or_zero(&mut self, path: &ConfigPath, text: &DurationText) -> Duration {
        parse_units::duration(&text.0).unwrap_or_else(|wrong| {
            let message = format!("`{path}`: {} {wrong}", self.quoted_value(path));
            let fix = match wrong {
                "has no unit" => format!("write the unit, such as \"{}s\" or \"{}ms\"", text.0.trim(), text.0.trim()),
                "is too long" => "use at most ten years".to_owned(),
                _ => "write a duration such as \"30s\", \"1m30s\" or \"500ms\"".to_owned(),
            };
            // An expanded value may be a secret, so the fix must not quote it either.
            let fix = if self.tree.at(path).is_some_and(|node| node.expanded) {
                "write a duration such as \"30s\", \"1m30s\" or \"500ms\"".to_owned()
            } else {
                fix
            };
            self.error(ProblemKind::Value, path, message, fix);
            Duration::ZERO
        })
    }

    fn duration(&mut self, path: &ConfigPath, text: &DurationText) -> Duration {
        let before = self.faults.errors.len();
        // A text that is no duration gives zero too, and has its error already.
        let duration = self.duration_or_zero(path, text);
        if duration.is_zero() && self.faults.errors.len() == before {
            self.error(ProblemKind::Value, path, format!("`{path}` cannot be zero"), "write at least \"1ms\"");
        }
        duration
    }

    /// Reads a size of at least one KiB. A smaller one would not hold any message.
    fn size(&mut self, path: &ConfigPath, text: &SizeText) -> usize {
        self.size_from(path, text, 1, "1KiB")
    }

    fn size_from(&mut self, path: &ConfigPath, text: &SizeText, least: usize, shown: &str) -> usize {
        let size = match text {
            SizeText::Bytes(bytes) => usize::try_from(*bytes).map_err(|_| "is too large"),
            SizeText::Text(text) => parse_units::size(text),
        };
        match size {
            Ok(size) if size >= least * 1024 => size,
            Ok(_) => {
                self.error(
                    ProblemKind::Value,
                    path,
                    format!("`{path}` is too small"),
                    format!("use at least \"{shown}\""),
                );
                0
            }
            Err(wrong) => {
                let message = format!("`{path}`: {} {wrong}", self.quoted_value(path));
                self.error(
                    ProblemKind::Value,
                    path,
                    message,
                    "write a size such as \"4MiB\" or \"16KB\", or a number of bytes",
                );
                0
            }
        }
    }

    pub(super) fn rate(&mut self, path: &ConfigPath, text: &RateText) -> Option<RequestRate> {
        parse_units::rate(&text.0).unwrap_or_else(|wrong| {
            let message = format!("`{path}`: {} {wrong}", self.quoted_value(path));
            let fix = "write a number in a time, such as \"100/min\" or \"10/s\"; \"0\" for any number";
            self.error(ProblemKind::Value, path, message, fix);
            None
        })
    }

    fn public_url(&mut self, file: &ConfigFile) -> Option<url::Url> {
        let path = ConfigPath::of(&["gateway", "public_url"]);
        let url = self.url(&path, file.gateway.public_url.as_ref()?, &["https", "http"])?;
        if url.query().is_some() || url.fragment().is_some() {
            let message = "`gateway.public_url` has a query or a fragment";
            self.error(ProblemKind::Value, &path, message, "leave out everything from `?` or `#` on");
        }
        Some(url)
    }

    /// Parses an absolute URL without credentials.
    fn url(&mut self, path: &ConfigPath, text: &str, schemes: &[&str]) -> Option<url::Url> {
        let example = "write a whole URL, such as \"https://example.com/mcp\"";
        let url = match url::Url::parse(text.trim()) {
            Ok(url) => url,
            Err(error) => {
                let wrong = match error {
                    url::ParseError::RelativeUrlWithoutBase => {
                        let starts: Vec<String> = schemes.iter().map(|scheme| format!("{scheme}://")).collect();
                        let starts: Vec<&str> = starts.iter().map(String::as_str).collect();
                        format!("does not start with {}", alternatives(&starts))
                    }
                    error => format!("is not a URL: {error}"),
                };
                let message = format!("`{path}`: {} {wrong}", self.quoted_value(path));
                self.error(ProblemKind::Value, path, message, example);
                return None;
            }
        };
        if !schemes.contains(&url.scheme()) || url.host().is_none() {
            let message = format!("`{path}`: {} is not a URL of {}", self.quoted_value(path), alternatives(schemes));
            self.error(ProblemKind::Value, path, message, example);
            return None;
        }
        // A URL shows up in logs and in the status, so credentials have no place in it.
        if !url.username().is_empty() || url.password().is_some() {
            let message = format!("`{path}`: credentials in a URL are not sent");
            self.error(ProblemKind::Value, path, message, "send them with `headers`, as `Authorization`");
            return None;
        }
        Some(url)
    }

    fn hosts(&mut self, hosts: &[String]) -> Vec<String> {
        let path = ConfigPath::of(&["gateway", "allowed_hosts"]);
        for (i, host) in hosts.iter().enumerate() {
            let name = host.strip_prefix("*.").unwrap_or(host);
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            // An IPv6 address stands in brackets, as in a URL.
            let six = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            let six = six.is_some_and(|name| name.parse::<std::net::Ipv6Addr>().is_ok());
            if !six && (name.is_empty() || !name.chars().all(plain)) {
                let path = path.item(i);
                let message = format!("`{path}`: {} is not a host", self.quoted_value(&path));
                let fix = "write only the name, such as \"mcp.example.com\" or \"*.example.com\"; any port is allowed";
                self.error(ProblemKind::Value, &path, message, fix);
            }
        }
        // Hosts are compared without regard to case.
        hosts.iter().map(|host| host.to_ascii_lowercase()).collect()
    }

    fn origins(&mut self, origins: &[String]) -> Vec<String> {
        let path = ConfigPath::of(&["gateway", "allowed_origins"]);
        let mut out = Vec::new();
        for (i, text) in origins.iter().enumerate() {
            let origin = url::Url::parse(text).ok().filter(|url| url.path() == "/" && url.query().is_none());
            // Browsers send the origin of an extension as it is written. `url` gives none for such schemes.
            let origin =
                origin.map(|url| url.origin()).filter(url::Origin::is_tuple).map(|it| it.ascii_serialization());
            let extension = text.split_once("://").is_some_and(|(scheme, host)| {
                scheme.ends_with("extension") && !host.is_empty() && !host.contains(['/', '?', '#'])
            });
            match origin {
                Some(origin) => out.push(origin),
                None if extension => out.push(text.clone()),
                None => {
                    let path = path.item(i);
                    let message = format!("`{path}`: {} is not an origin", self.quoted_value(&path));
                    let fix = "write scheme, host and port, such as \"https://app.example.com\"; list each origin";
                    self.error(ProblemKind::Value, &path, message, fix);
                }
            }
        }
        out
    }

    fn names(&mut self, file: &ConfigFile) -> NameSettings {
        let separator = &file.names.separator;
        // The separator becomes part of names, and model APIs accept few characters there.
        if !separator.chars().all(is_name_character) {
            let path = ConfigPath::of(&["names", "separator"]);
            let message =
                format!("`{path}`: {} has characters that names of tools cannot have", self.quoted_value(&path));
            self.error(ProblemKind::Value, &path, message, "use only letters, digits, `-` and `_`");
        }
        NameSettings { separator: separator.clone(), max_length: count(file.names.max_length) }
    }

    fn limits(&mut self, file: &ConfigFile) -> PlanLimits {
        let (limits, path) = (&file.limits, |key: &str| ConfigPath::of(&["limits", key]));
        PlanLimits {
            rate: self.rate(&path("rate"), &limits.rate),
            calls_per_key: count(limits.calls_per_key),
            memory: match &limits.memory {
                // Zero means no limit here. In other sizes it is a mistake.
                None => MemoryLimit::Container,
                Some(SizeText::Bytes(0)) => MemoryLimit::None,
                Some(SizeText::Text(text)) if parse_units::size(text) == Ok(0) => MemoryLimit::None,
                Some(size) => {
                    self.check_memory_limit(&path("memory"));
                    MemoryLimit::Bytes(self.size(&path("memory"), size))
                }
            },
            sessions: count(limits.sessions),
            session_idle: self.duration(&path("session_idle"), &limits.session_idle),
            streams: count(limits.streams),
            parked: count(limits.parked),
            stream_time: self.duration(&path("stream_time"), &limits.stream_time),
            replay: self.size(&path("replay"), &limits.replay),
            replay_total: self.size(&path("replay_total"), &limits.replay_total),
            replay_events: count(limits.replay_events),
            replay_time: self.duration(&path("replay_time"), &limits.replay_time),
            outbox: self.size(&path("outbox"), &limits.outbox),
            outbox_total: self.size(&path("outbox_total"), &limits.outbox_total),
            subscriptions: count(limits.subscriptions),
            connections: count(limits.connections),
            admin_connections: count(limits.admin_connections),
            // hyper panics with a smaller buffer (`max_buf_size`).
            head: self.size_from(&path("head"), &limits.head, 8, "8KiB"),
            batch: count(limits.batch),
            uri: self.size(&path("uri"), &limits.uri),
            body: self.size(&path("body"), &limits.body),
            calls: count(limits.calls),
            read_timeout: self.duration(&path("read_timeout"), &limits.read_timeout),
            write_timeout: self.duration(&path("write_timeout"), &limits.write_timeout),
        }
    }

    fn log(&mut self, file: &ConfigFile) -> LogSettings {
        let path = ConfigPath::of(&["telemetry", "log"]);
        let filter = file.telemetry.log.trim().to_owned();
        let fix = "write a level (off, error, warn, info, debug, trace), or a list such as \"info,moongate=debug\"";
        // Before the parser, which takes any lone word as the name of a module.
        if let Some(level) = log_levels::suggested_level(&filter) {
            let message = format!("`{path}`: {} is not a filter of the log", self.quoted_value(&path));
            self.error(ProblemKind::Value, &path, message, format!("did you mean `{level}`?"));
        } else if !log_levels::has_level(&filter) || moongate_telemetry::logs::filter(&filter).is_err() {
            let message = format!("`{path}`: {} is not a filter of the log", self.quoted_value(&path));
            self.error(ProblemKind::Value, &path, message, fix);
        }
        let calls = match file.telemetry.calls {
            Calls::Off => CallLog::Off,
            Calls::Errors => CallLog::Errors,
            Calls::All => CallLog::All,
        };
        LogSettings { filter, json: file.telemetry.log_format == LogFormat::Json, calls }
    }

    /// Checks that the servers of `--only` exist.
    fn only_exist(&mut self) {
        let names = self.server_names();
        for name in self.only {
            if !names.contains(&name.as_str()) {
                let fix = unknown_name_fix(name, &names, "servers");
                // A flag has no place in the tree.
                let place = super::ONLY_PLACE;
                self.faults.error(ProblemKind::Conflict, place, format!("there is no server {name:?}"), fix);
            }
        }
    }

    /// Names of all servers of the config, used or not.
    fn server_names(&self) -> Vec<&'a str> {
        self.names_in("servers")
    }

    fn names_in(&self, table: &str) -> Vec<&'a str> {
        let tree: &'a ConfigNode = self.tree;
        let table = tree.child(table).and_then(ConfigNode::as_table);
        table.into_iter().flat_map(|table| table.keys()).map(String::as_str).collect()
    }
}

/// Returns the fix for a name that does not exist.
fn unknown_name_fix(name: &str, names: &[&str], what: &str) -> String {
    match nearest(name, names) {
        Some(known) => format!("did you mean `{known}`?"),
        None if names.is_empty() => format!("there are no {what}"),
        None => format!("the {what} are {}", super::check::listed(names)),
    }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Names of the servers that are disabled by themselves or by the defaults.
fn disabled(file: &ConfigFile) -> Vec<String> {
    let is_off = |server: &Server| server.common.enabled.or(file.defaults.enabled) == Some(false);
    file.servers.iter().filter(|(_, server)| is_off(server)).map(|(name, _)| name.clone()).collect()
}
