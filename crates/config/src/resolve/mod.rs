//! Resolver: the checked keys of a config become a plan.
//!
//! Owns the meaning of values, their ranges, and the conflicts between them. Submodules have the
//! servers, views, keys, listeners and state. Does not check types and unknown keys (`check`).
//! Invariant: without an error the plan can run as it is.

mod access;
mod admin;
mod auth;
mod broker;
mod client_credentials;
mod connect;
mod disabled;
mod egress;
mod listen;
mod log_levels;
mod login_roles;
mod network;
mod resolver;
mod server;
mod state;
mod system;
mod tokens;

pub(super) use connect::{PROGRAM_ONLY, URL_ONLY, is_reserved_header};
pub(super) use resolver::PlanResolver;
pub(super) use server::is_text_usable;
pub use state::usual_state_folder;

use super::choices::{Calls, LogFormat};
use super::file::{ConfigFile, NameSettings};
use super::limits::LimitSettings;
use super::plan::{LogSettings, Plan};
use super::problem::ProblemKind;
use super::server_names::is_name_character;
use super::source::ONLY_SPAN;
use super::tree::ConfigPath;
use moongate_access::auth::AuthSettings;
use moongate_listener::TrustedProxies;
use moongate_telemetry::{CallLog, MemoryLimit};
use moongate_upstream::ServerSettings;
use resolver::unknown_name_fix;

impl PlanResolver<'_> {
    /// Resolves the plan. It is valid only if no error was reported.
    pub(super) fn plan(mut self, file: &ConfigFile) -> Plan {
        let names = self.names(file);
        let admin = self.admin(&file.gateway.admin);
        let listen = self.listen(&file.gateway.listen, admin.as_ref(), &file.auth);
        let input_timeout = file.gateway.times.input_timeout.0;
        let (roles, matches) = self.roles(file);
        let keys = self.keys(file, &roles);
        let public_url = self.public_url(file);
        let tokens = self.tokens(file, public_url.as_ref());
        let broker = self.broker(file, public_url.as_ref());
        let sockets = self.sockets(&file.gateway);
        let state_folder = self.state_folder(&file.gateway);
        self.check_system(&file.gateway);
        let plan = Plan {
            public_url,
            allowed_hosts: self.hosts(&file.gateway.allowed_hosts),
            allowed_origins: self.origins(&file.gateway.allowed_origins),
            trusted_proxies: self.trusted_proxies(&file.gateway.trusted_proxies),
            times: file.gateway.times.clone(),
            state: self.state(&file.gateway, &listen, state_folder.as_deref()),
            login_folder: state::login_folder(&file.gateway, state_folder),
            secrets: self.secrets(&file.gateway),
            egress: self.egress(&file.egress),
            schema: file.gateway.schema.style(),
            discovery: self.gateway_discovery(&file.gateway),
            names,
            // `input_timeout` is one setting of the gateway, and each server's calls need it.
            servers: self
                .servers(file)
                .into_iter()
                .map(|server| ServerSettings {
                    input_timeout,
                    ..server
                })
                .collect(),
            disabled: disabled::disabled_servers(file),
            views: self.views(file),
            admin_access: self.admin_access(file, &keys, admin.as_ref(), &sockets),
            auth: AuthSettings {
                keys,
                required: file.auth.required,
                roles,
                matches,
                tokens,
                broker,
            },
            admin_edits: file.admin.edits,
            admin_limits: file.admin.limits.clone(),
            limits: self.limits(&file.limits),
            reload: file.gateway.reload.clone(),
            log: self.log(file),
            sockets,
            tls: self.tls(&file.gateway),
            listen,
            admin,
        };
        self.check_only_names();
        plan
    }

    fn public_url(&mut self, file: &ConfigFile) -> Option<url::Url> {
        let path = ConfigPath::of(&["gateway", "public_url"]);
        let url = self.url(&path, file.gateway.public_url.as_ref()?, &["https", "http"])?;
        if url.query().is_some() || url.fragment().is_some() {
            let message = "`gateway.public_url` has a query or a fragment";
            self.error(
                ProblemKind::Value,
                &path,
                message,
                "remove everything from `?` or `#` on",
            );
        }
        Some(url)
    }

    fn hosts(&mut self, hosts: &[String]) -> Vec<String> {
        let path = ConfigPath::of(&["gateway", "allowed_hosts"]);
        for (i, host) in hosts.iter().enumerate() {
            let name = host.strip_prefix("*.").unwrap_or(host);
            let is_plain = name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
            // An IPv6 address is in brackets, as in a URL.
            let six = name
                .strip_prefix('[')
                .and_then(|name| name.strip_suffix(']'));
            let six = six.is_some_and(|name| name.parse::<std::net::Ipv6Addr>().is_ok());
            if !six && (name.is_empty() || !is_plain) {
                let path = path.item(i);
                let message = format!("`{path}`: {} is not a host", self.quoted_value(&path));
                let fix = "write only the name, such as \"mcp.example.com\" or \"*.example.com\"; \
                           any port is allowed";
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
            let origin = url::Url::parse(text)
                .ok()
                .filter(|url| url.path() == "/" && url.query().is_none());
            // Browsers send the origin of an extension as it is written. `url` gives none for such
            // schemes.
            let origin = origin
                .map(|url| url.origin())
                .filter(url::Origin::is_tuple)
                .map(|it| it.ascii_serialization());
            let extension = text.split_once("://").is_some_and(|(scheme, host)| {
                scheme.ends_with("extension") && !host.is_empty() && !host.contains(['/', '?', '#'])
            });
            match origin {
                Some(origin) => out.push(origin),
                None if extension => out.push(text.clone()),
                None => {
                    let path = path.item(i);
                    let message =
                        format!("`{path}`: {} is not an origin", self.quoted_value(&path));
                    let fix = "write scheme, host and port, such as \"https://app.example.com\"; \
                               list each origin";
                    self.error(ProblemKind::Value, &path, message, fix);
                }
            }
        }
        out
    }

    fn trusted_proxies(&mut self, entries: &[String]) -> TrustedProxies {
        let path = ConfigPath::of(&["gateway", "trusted_proxies"]);
        let mut proxies = TrustedProxies::default();
        for (i, entry) in entries.iter().enumerate() {
            if proxies.add(entry) {
                continue;
            }
            let path = path.item(i);
            let message = format!(
                "`{path}`: {} is not an address or a block of proxies",
                self.quoted_value(&path)
            );
            let fix = "write an address without a port, a block such as \"10.0.0.0/8\", or \
                       \"unix\" for proxies at a Unix socket";
            self.error(ProblemKind::Value, &path, message, fix);
        }
        proxies
    }

    fn names(&mut self, file: &ConfigFile) -> NameSettings {
        let separator = &file.names.separator;
        // The separator becomes part of names, and model APIs accept few characters there.
        if !separator.chars().all(is_name_character) {
            let path = ConfigPath::of(&["names", "separator"]);
            let message = format!(
                "`{path}`: {} contains characters not allowed in tool names",
                self.quoted_value(&path)
            );
            self.error(
                ProblemKind::Value,
                &path,
                message,
                "use only letters, digits, `-` and `_`",
            );
        }
        file.names.clone()
    }

    /// Checks a limit of memory, which not every system knows. All others passed the check of the
    /// schema.
    fn limits(&mut self, limits: &LimitSettings) -> LimitSettings {
        if matches!(limits.memory_limit(), MemoryLimit::Bytes(_)) {
            self.check_memory_limit(&ConfigPath::of(&["limits", "memory"]));
        }
        limits.clone()
    }

    fn log(&mut self, file: &ConfigFile) -> LogSettings {
        let path = ConfigPath::of(&["telemetry", "log"]);
        let filter = file.telemetry.log.trim().to_owned();
        let fix = "write a level (off, error, warn, info, debug, trace), or a list such \
                   as \"info,moongate=debug\"";
        // Before the parser, which takes any lone word as the name of a module.
        if let Some(level) = log_levels::suggested_level(&filter) {
            let message = format!(
                "`{path}`: {} is not a valid log filter",
                self.quoted_value(&path)
            );
            self.error(
                ProblemKind::Value,
                &path,
                message,
                format!("did you mean `{level}`?"),
            );
        } else if !log_levels::has_level(&filter)
            || moongate_telemetry::logs::filter(&filter).is_err()
        {
            let message = format!(
                "`{path}`: {} is not a valid log filter",
                self.quoted_value(&path)
            );
            self.error(ProblemKind::Value, &path, message, fix);
        }
        let calls = match file.telemetry.calls {
            Calls::Off => CallLog::Off,
            Calls::Errors => CallLog::Errors,
            Calls::All => CallLog::All,
        };
        LogSettings {
            filter,
            json: file.telemetry.log_format == LogFormat::Json,
            calls,
        }
    }

    /// Checks that the servers of `--only` exist.
    fn check_only_names(&mut self) {
        let names = self.server_names();
        for name in self.only {
            if !names.contains(&name.as_str()) {
                let fix = unknown_name_fix(name, &names, "servers");
                // A flag isn't in the tree.
                let span = ONLY_SPAN;
                self.faults.error(
                    ProblemKind::Conflict,
                    span,
                    format!("there is no server {name:?}"),
                    fix,
                );
            }
        }
    }
}
