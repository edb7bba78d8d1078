//! Resolver: the checked keys of a config become a plan.
//!
//! Owns the meaning of values, their ranges, and the conflicts between them. Submodules have the servers, views, keys,
//! listeners and state. Does not check types and unknown keys (`check`). Invariant: without an error the plan can run
//! as it is.

mod access;
mod admin;
mod listen;
mod log_levels;
mod network;
mod resolver;
mod server;
mod state;
mod system;

pub(super) use resolver::PlanResolver;

use super::choices::{Calls, LogFormat};
use super::file::{ConfigFile, Server};
use super::parse_units;
use super::plan::{LogSettings, NameSettings, Plan, PlanLimits, ReloadSettings};
use super::problem::ProblemKind;
use super::schema_types::SizeText;
use super::server_names::is_name_character;
use super::source::ONLY_PLACE;
use super::tree::ConfigPath;
use moongate_telemetry::{CallLog, MemoryLimit};
use moongate_upstream::ServerSettings;
use resolver::{count, unknown_name_fix};

impl PlanResolver<'_> {
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

    fn public_url(&mut self, file: &ConfigFile) -> Option<url::Url> {
        let path = ConfigPath::of(&["gateway", "public_url"]);
        let url = self.url(&path, file.gateway.public_url.as_ref()?, &["https", "http"])?;
        if url.query().is_some() || url.fragment().is_some() {
            let message = "`gateway.public_url` has a query or a fragment";
            self.error(ProblemKind::Value, &path, message, "leave out everything from `?` or `#` on");
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
                let place = ONLY_PLACE;
                self.faults.error(ProblemKind::Conflict, place, format!("there is no server {name:?}"), fix);
            }
        }
    }
}

/// Names of the servers that are disabled by themselves or by the defaults.
fn disabled(file: &ConfigFile) -> Vec<String> {
    let is_off = |server: &Server| server.common.enabled.or(file.defaults.enabled) == Some(false);
    file.servers.iter().filter(|(_, server)| is_off(server)).map(|(name, _)| name.clone()).collect()
}
