//! The servers of a config.
//!
//! Owns what a server's settings mean and what they take from the defaults. Does not connect to anything. Invariant: a
//! server that is switched off is not looked at beyond its keys, so that what only it needs may be missing.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::{Resolver, count, is_name_character};
use crate::config::check::alternatives;
use crate::config::file::{
    Common, DurationText, File, Items, Server, ServerKind, Share as FileShare, Start as FileStart, Transport,
};
use crate::config::is_used;
use crate::config::problem::Kind;
use crate::config::tree::Path;
use crate::policy::{Globs, ItemRules};
use crate::upstream::{Backoff, BreakerSettings, Connect, HttpTransport, PingSettings, ServerSettings, Share, Start};

/// Headers that the transport itself sets.
const RESERVED: [&str; 10] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "accept",
    "upgrade",
    "te",
    "trailer",
    "keep-alive",
];

/// Settings that belong to one way of connecting.
const HTTP_ONLY: [&str; 3] = ["headers", "forward_headers", "transport"];
const PROGRAM_ONLY: [&str; 3] = ["args", "env", "cwd"];

/// `protocol`: the era of whoever calls, where the server speaks both.
const CLIENT: &str = "client";

impl Resolver<'_> {
    pub(super) fn servers(&mut self, file: &File) -> Vec<ServerSettings> {
        let defaults = Path::of(&["defaults"]);
        // Once for itself, so that a mistake in the defaults is reported once, and without any server.
        self.common("", &defaults, &file.defaults, None);
        let mut servers = Vec::new();
        for (name, server) in &file.servers {
            let path = Path::of(&["servers", name]);
            self.server_name(name, &path);
            if is_used(self.tree, name, self.only) {
                servers.extend(self.server(name, server, &path, &file.defaults));
            }
        }
        servers
    }

    fn server_name(&mut self, name: &str, path: &Path) {
        let wrong = if name.is_empty() {
            "is empty"
        } else if name.len() > 64 {
            "is longer than 64 characters"
        } else if !name.chars().all(is_name_character) {
            "has characters other than letters, digits, `-` and `_`"
        } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            "does not start with a letter or digit"
        } else if name.contains("__") {
            "has two underscores in a row"
        } else {
            return;
        };
        let suggestion: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(64).collect();
        let suggestion = suggestion.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
        let fix = match suggestion.as_str() {
            "" => "give it a name of letters, digits, `-` and `_`".to_owned(),
            suggestion => format!("call it `{suggestion}`"),
        };
        self.error_at_key(Kind::Value, path, format!("the name {name:?} {wrong}"), fix);
    }

    fn server(&mut self, name: &str, server: &Server, path: &Path, defaults: &Common) -> Option<ServerSettings> {
        let connect = self.connect(server, path);
        let common = self.common(name, path, &server.common, Some(defaults));
        if server.common.idle_stop.is_some() && common.start == Start::Eager {
            let key = path.key("idle_stop");
            let fix = "write `start = \"lazy\"` beside it, or remove it";
            self.error_at_key(
                Kind::Conflict,
                &key,
                format!("`{key}` is only for a server that is started on use"),
                fix,
            );
        }
        Some(ServerSettings {
            title: server.title.clone(),
            description: server.description.clone(),
            connect: connect?,
            ..common
        })
    }

    /// The settings that every server has; `connect` stands in for the server's own.
    fn common(&mut self, name: &str, path: &Path, own: &Common, defaults: Option<&Common>) -> ServerSettings {
        let empty = Common::default();
        let base = defaults.unwrap_or(&empty);
        let prefix = own.prefix.as_ref().or(base.prefix.as_ref());
        self.prefix(path, own.prefix.as_deref());
        let (share, protocol) = (own.share.or(base.share), self.protocol(path, own, base));
        let (tools, resources, prompts) = (
            self.items(&path.key("tools"), own.tools.as_ref(), base.tools.as_ref(), true),
            self.items(&path.key("resources"), own.resources.as_ref(), base.resources.as_ref(), false),
            self.items(&path.key("prompts"), own.prompts.as_ref(), base.prompts.as_ref(), true),
        );
        ServerSettings {
            name: name.to_owned(),
            prefix: prefix.cloned().unwrap_or_else(|| name.to_owned()),
            title: None,
            description: None,
            connect: Connect::Stdio { command: String::new(), args: Vec::new(), env: Vec::new(), cwd: None },
            as_client: protocol.as_deref() == Some(CLIENT),
            protocol: protocol.filter(|protocol| protocol != CLIENT),
            tools,
            resources,
            prompts,
            share: match share {
                Some(FileShare::Session) => Share::Session,
                Some(FileShare::Principal) => Share::Principal,
                Some(FileShare::Auto) | None => Share::Auto,
            },
            start: match own.start.or(base.start) {
                Some(FileStart::Lazy) => Start::Lazy,
                Some(FileStart::Eager) | None => Start::Eager,
            },
            idle_stop: self.time(path, "idle_stop", &own.idle_stop, &base.idle_stop),
            max_connections: count(own.max_connections.or(base.max_connections).unwrap_or_default()),
            backoff: self.backoff(path, own, base),
            attempts: attempts(own, base),
            breaker: self.breaker(path, own, base),
            ping: self.ping(path, own, base),
            timeout: self.time(path, "timeout", &own.timeout, &base.timeout),
            // The gateway's, which is not known here.
            ask_timeout: Duration::ZERO,
            connect_timeout: self.time(path, "connect_timeout", &own.connect_timeout, &base.connect_timeout),
            start_timeout: self.time(path, "start_timeout", &own.start_timeout, &base.start_timeout),
            list_timeout: self.time(path, "list_timeout", &own.list_timeout, &base.list_timeout),
            max_message: match (&own.max_message, &base.max_message) {
                (Some(own), _) => self.size(&path.key("max_message"), own),
                (None, Some(base)) => self.size(&Path::of(&["defaults", "max_message"]), base),
                (None, None) => 0,
            },
            max_concurrency: count(own.max_concurrency.or(base.max_concurrency).unwrap_or_default()),
            queue: count(own.queue.or(base.queue).unwrap_or_default()),
        }
    }

    fn backoff(&mut self, path: &Path, own: &Common, base: &Common) -> Backoff {
        let (own, base) = (own.backoff.clone().unwrap_or_default(), base.backoff.clone().unwrap_or_default());
        let min = self.part(path, ["backoff", "min"], &own.min, &base.min);
        let max = self.part(path, ["backoff", "max"], &own.max, &base.max);
        if min > max && !max.is_zero() {
            let path = path.key("backoff");
            let message = format!("`{path}`: the first pause is longer than the longest");
            self.error_at_key(Kind::Value, &path, message, "make `min` at most as long as `max`");
        }
        Backoff { min, max }
    }

    fn breaker(&mut self, path: &Path, own: &Common, base: &Common) -> BreakerSettings {
        let (own, base) = (own.breaker.clone().unwrap_or_default(), base.breaker.clone().unwrap_or_default());
        BreakerSettings {
            failures: small(own.failures.or(base.failures)),
            open: self.part(path, ["breaker", "open"], &own.open, &base.open),
        }
    }

    fn ping(&mut self, path: &Path, own: &Common, base: &Common) -> PingSettings {
        let (own, base) = (own.ping.clone().unwrap_or_default(), base.ping.clone().unwrap_or_default());
        let interval = match (&own.interval, &base.interval) {
            (Some(own), _) => self.duration_or_zero(&path.key("ping").key("interval"), own),
            (None, Some(base)) => self.duration_or_zero(&Path::of(&["defaults", "ping", "interval"]), base),
            (None, None) => Duration::ZERO,
        };
        PingSettings {
            interval,
            timeout: self.part(path, ["ping", "timeout"], &own.timeout, &base.timeout),
            misses: small(own.misses.or(base.misses)),
        }
    }

    /// A duration in a table of a server's.
    fn part(
        &mut self,
        path: &Path,
        [table, key]: [&str; 2],
        own: &Option<DurationText>,
        base: &Option<DurationText>,
    ) -> Duration {
        match (own, base) {
            (Some(own), _) => self.duration(&path.key(table).key(key), own),
            (None, Some(base)) => self.duration(&Path::of(&["defaults", table, key]), base),
            (None, None) => Duration::ZERO,
        }
    }

    fn time(&mut self, path: &Path, key: &str, own: &Option<DurationText>, base: &Option<DurationText>) -> Duration {
        match (own, base) {
            (Some(own), _) => self.duration(&path.key(key), own),
            (None, Some(base)) => self.duration(&Path::of(&["defaults", key]), base),
            (None, None) => Duration::ZERO,
        }
    }

    fn prefix(&mut self, path: &Path, prefix: Option<&str>) {
        let path = path.key("prefix");
        let Some(prefix) = prefix else { return };
        if !prefix.chars().all(is_name_character) || prefix.len() > 64 {
            let message = format!("`{path}`: {} cannot stand before names of tools", self.shown(&path));
            self.error(Kind::Value, &path, message, "use at most 64 letters, digits, `-` and `_`; \"\" for no prefix");
        }
    }

    fn protocol(&mut self, path: &Path, own: &Common, base: &Common) -> Option<String> {
        let path = match own.protocol {
            Some(_) => path.key("protocol"),
            None => Path::of(&["defaults", "protocol"]),
        };
        let text = own.protocol.as_ref().or(base.protocol.as_ref())?;
        if text == "auto" {
            return None;
        }
        if text != CLIENT && !self.revisions.contains(&text.as_str()) {
            let message = format!("`{path}`: {} is not a revision that Moongate speaks", self.shown(&path));
            let words: Vec<&str> = ["auto", CLIENT].into_iter().chain(self.revisions.iter().copied()).collect();
            self.error(Kind::Value, &path, message, format!("use {}", alternatives(&words)));
        }
        Some(text.clone())
    }

    /// How to reach the server: exactly one way.
    fn connect(&mut self, server: &Server, path: &Path) -> Option<Connect> {
        let (url, program) = (self.written(&path.key("url")), self.written(&path.key("command")));
        let other = ["tcp", "unix"].into_iter().any(|key| self.written(&path.key(key)));
        let conflict = |this: &mut Self, key: &str, message: String, fix: &str| {
            this.error_at_key(Kind::Conflict, &path.key(key), message, fix);
        };
        match (url, program) {
            (true, true) => {
                let message = format!("`{path}` has both `url` and `command`: a server has one way to be reached");
                conflict(self, "command", message, "keep one of the two, or make it two servers");
            }
            // Reported as not available.
            (false, false) if other => {}
            (false, false) => {
                let message = format!("`{path}` has neither `url` nor `command`");
                let fix = "add the `url` of its endpoint, or the `command` that starts it";
                self.error_at_key(Kind::Missing, path, message, fix);
            }
            (true, false) => {
                for key in PROGRAM_ONLY.into_iter().filter(|key| self.written(&path.key(key))).collect::<Vec<_>>() {
                    let message = format!("`{}` is only for a server with `command`", path.key(key));
                    conflict(self, key, message, "remove it: a server with `url` is not started by the gateway");
                }
            }
            (false, true) => {
                for key in HTTP_ONLY.into_iter().filter(|key| self.written(&path.key(key))).collect::<Vec<_>>() {
                    let message = format!("`{}` is only for a server with `url`", path.key(key));
                    conflict(self, key, message, "remove it; a program gets its settings through `env` and `args`");
                }
            }
        }
        match server.kind {
            Some(ServerKind::Stdio) if url && !program => {
                let message = format!("`{path}` is of type `stdio`, but has a `url`");
                conflict(self, "type", message, "write `type = \"http\"`, or leave `type` out");
            }
            Some(kind @ (ServerKind::Http | ServerKind::Sse)) if program && !url => {
                let kind = if kind == ServerKind::Sse { "sse" } else { "http" };
                let message = format!("`{path}` is of type `{kind}`, but has a `command`");
                conflict(self, "type", message, "write `type = \"stdio\"`, or leave `type` out");
            }
            Some(ServerKind::Sse) if server.transport == Some(Transport::Http) => {
                let message = format!("`{path}` is of type `sse`, but its `transport` is `http`");
                conflict(self, "transport", message, "remove one of the two");
            }
            _ => {}
        }
        match (&server.url, &server.command) {
            (Some(url), None) => self.http(url, server, path),
            (None, Some(command)) => self.program(command, server, path),
            _ => None,
        }
    }

    fn program(&mut self, command: &str, server: &Server, path: &Path) -> Option<Connect> {
        let key = path.key("command");
        if command.trim().is_empty() {
            self.error(Kind::Value, &key, format!("`{key}` is empty"), "name the program that starts the server");
        } else if command.contains(char::is_whitespace) && server.args.is_none() && !command.contains('/') {
            let message = format!("`{key}` is one program, not a line for a shell");
            self.error(Kind::Value, &key, message, "put what follows the program's name into `args`");
        }
        let env = server.env.clone().unwrap_or_default();
        for (name, value) in &env {
            let path = path.key("env").key(name);
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let message = format!("`{path}` cannot be an environment variable");
                self.error_at_key(
                    Kind::Value,
                    &path,
                    message,
                    "use a name without `=`, and a value without zero bytes",
                );
            }
        }
        Some(Connect::Stdio {
            command: command.to_owned(),
            args: server.args.clone().unwrap_or_default(),
            env: env.into_iter().collect(),
            cwd: server.cwd.as_ref().map(Into::into),
        })
    }

    fn http(&mut self, url: &str, server: &Server, path: &Path) -> Option<Connect> {
        let mut headers = Vec::new();
        for (name, value) in server.headers.iter().flatten() {
            let path = path.key("headers").key(name);
            let name = self.header_name(&path, name);
            match HeaderValue::from_str(value) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    headers.extend(name.map(|name| (name, value)));
                }
                Err(_) => {
                    let message = format!("the value of `{path}` has characters that a header cannot have");
                    self.error(Kind::Value, &path, message, "remove line breaks and control characters");
                }
            }
        }
        let mut forward_headers = Vec::new();
        for (from, to) in server.forward_headers.iter().flatten() {
            let path = path.key("forward_headers").key(from);
            let from = self.header_name(&path, from);
            let to = self.header_name(&path, to);
            forward_headers.extend(from.zip(to));
        }
        let url = self.http_url(&path.key("url"), url)?;
        let transport = match (server.transport, server.kind) {
            (Some(Transport::Http), _) => HttpTransport::Streamable,
            (Some(Transport::Sse), _) | (_, Some(ServerKind::Sse)) => HttpTransport::Sse,
            // `type = "http"` is how clients write either: many of them try both.
            _ => HttpTransport::Auto,
        };
        Some(Connect::Http { url, transport, headers, forward_headers })
    }

    fn header_name(&mut self, path: &Path, name: &str) -> Option<HeaderName> {
        let Ok(name) = HeaderName::try_from(name) else {
            let message = format!("`{path}` is not the name of a header");
            self.error_at_key(Kind::Value, path, message, "use letters, digits and `-`, such as `X-Tenant`");
            return None;
        };
        if RESERVED.contains(&name.as_str()) {
            let message = format!("`{path}`: `{name}` is set by the gateway itself");
            self.error_at_key(Kind::Value, path, message, "remove it");
            return None;
        }
        Some(name)
    }

    fn items(&mut self, path: &Path, own: Option<&Items>, base: Option<&Items>, renames: bool) -> ItemRules {
        let empty = Items::default();
        let (own, base) = (own.unwrap_or(&empty), base.unwrap_or(&empty));
        for (name, to) in own.rename.iter().flatten() {
            let path = path.key("rename").key(name);
            if !renames {
                let message = format!("`{path}`: resources cannot be renamed");
                self.error_at_key(Kind::Value, &path, message, "remove it; resources keep their URIs");
            } else if to.is_empty() || !to.chars().all(is_name_character) {
                let message = format!("`{path}`: {} cannot be a name", self.shown(&path));
                self.error(Kind::Value, &path, message, "use only letters, digits, `-` and `_`");
            }
        }
        let text = |own: &Option<BTreeMap<String, String>>, base: &Option<BTreeMap<String, String>>| {
            own.clone().or_else(|| base.clone()).unwrap_or_default()
        };
        ItemRules {
            allow: self
                .patterns(&path.key("allow"), own.allow.as_ref())
                .or_else(|| globs(&base.allow))
                .unwrap_or_default(),
            deny: self.patterns(&path.key("deny"), own.deny.as_ref()).or_else(|| globs(&base.deny)).unwrap_or_default(),
            hide: self.patterns(&path.key("hide"), own.hide.as_ref()).or_else(|| globs(&base.hide)).unwrap_or_default(),
            rename: text(&own.rename, &base.rename),
            describe: text(&own.describe, &base.describe),
        }
    }

    /// Compiles patterns; each that is none is reported.
    pub(super) fn patterns(&mut self, path: &Path, patterns: Option<&Vec<String>>) -> Option<Globs> {
        let patterns = patterns?;
        for (i, pattern) in patterns.iter().enumerate() {
            let path = path.item(i);
            if Globs::new(std::slice::from_ref(pattern)).is_err() {
                let message = format!("`{path}`: {} is not a pattern", self.shown(&path));
                let fix = "close every `[` and `{`; `*` matches any characters, `?` one, and `\\` takes a meaning away";
                self.error(Kind::Value, &path, message, fix);
            } else if pattern.is_empty() || pattern == "!" {
                let message = format!("`{path}` is an empty pattern");
                self.error(Kind::Value, &path, message, "remove it; `*` matches everything");
            }
        }
        Some(Globs::new(patterns).unwrap_or_default())
    }
}

fn attempts(own: &Common, base: &Common) -> u32 {
    let attempts = |common: &Common| common.retry.as_ref().and_then(|retry| retry.attempts);
    small(attempts(own).or(attempts(base)))
}

/// A number whose range was checked.
fn small(number: Option<u64>) -> u32 {
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}

/// Patterns of the defaults, which were checked there.
fn globs(patterns: &Option<Vec<String>>) -> Option<Globs> {
    patterns.as_ref().map(|patterns| Globs::new(patterns).unwrap_or_default())
}
