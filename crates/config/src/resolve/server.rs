//! Servers of a config.
//!
//! Owns the meaning of a server's settings, and what it takes from the defaults. Does not connect.
//! Invariant: a disabled server is checked only by its keys, so the variables and files that it
//! needs may be missing.

use std::path::PathBuf;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};

use super::network::NO_PROXY;
use super::resolver::PlanResolver;
use crate::choices::{ServerKind, Share as FileShare, Start as FileStart, Transport};
use crate::file::ConfigFile;
use crate::problem::ProblemKind;
use crate::server_keys::{ItemFilters, Server, ServerOptions};
use crate::server_names::{self, is_name_character};
use crate::suggest::alternatives;
use crate::supervision::Backoff;
use crate::tree::ConfigPath;
use moongate_access::policy::{GlobList, ItemRules};
use moongate_model::{ServerStart, SharingMode};
use moongate_transport::metadata_address::MetadataAccess;
use moongate_transport::proxy::ProxyAddress;
use moongate_transport::socket::SocketAddress;
use moongate_transport::websocket::WebSocketPing;
use moongate_upstream::{
    BackoffSettings, BreakerSettings, ConnectTarget, HttpTransport, ListLimits, NetworkSettings,
    PingSettings, ServerSettings,
};

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

/// Ways to reach a server. The lists below have the settings of one way each.
const CONNECT_KEYS: [&str; 4] = ["url", "command", "tcp", "unix"];
const URL_ONLY: [&str; 6] = [
    "headers",
    "forward_headers",
    "transport",
    "auth",
    "proxy",
    "ca",
];
const PROGRAM_ONLY: [&str; 3] = ["args", "env", "cwd"];

/// Limit of the path of a Unix socket in bytes. On Linux the address has 108 with a zero at the
/// end, elsewhere a little less.
const SOCKET_PATH_MAX: usize = 103;

/// Value of `protocol` for the newest era of the server, in spite of the client's.
const NEWEST: &str = "newest";
/// Limit of an icon in bytes. Each client gets it with the first response.
const ICON_MAX: usize = 32 * 1024;

impl PlanResolver<'_> {
    pub(super) fn servers(&mut self, file: &ConfigFile) -> Vec<ServerSettings> {
        let defaults = ConfigPath::of(&["defaults"]);
        // Separately, so that a mistake in the defaults is reported once, and even without a
        // server.
        self.server_options("", &defaults, &file.defaults, None);
        self.network(&defaults, &file.defaults, &ServerOptions::default());
        let mut servers = Vec::new();
        for (name, server) in &file.servers {
            let path = ConfigPath::of(&["servers", name]);
            self.server_name(name, &path);
            if self.tree.is_used(name, self.only) {
                if !file.auth.is_open() {
                    self.warn_of_forwarded_keys(server, &path);
                }
                servers.extend(self.server(name, server, &path, &file.defaults));
            }
        }
        servers
    }

    /// Warns of a header that clients authenticate with. It is dropped, whatever the config says.
    fn warn_of_forwarded_keys(&mut self, server: &Server, path: &ConfigPath) {
        let names = server
            .forward_headers
            .iter()
            .flatten()
            .map(|(from, _)| from);
        for from in names.filter(|from| from.eq_ignore_ascii_case(AUTHORIZATION.as_str())) {
            let path = path.key("forward_headers").key(from);
            let message =
                format!("`{path}` is never passed on: it holds the client's key for this gateway");
            self.warn(
                &path,
                message,
                "remove it; clients can send credentials of the server in another header",
            );
        }
    }

    fn server_name(&mut self, name: &str, path: &ConfigPath) {
        let Some(wrong) = server_names::name_problem(name) else {
            return;
        };
        let fix = match server_names::legal_name(name) {
            None => "give it a name of letters, digits, `-` and `_`".to_owned(),
            Some(legal) => format!("call it `{legal}`"),
        };
        self.error_at_key(
            ProblemKind::Value,
            path,
            format!("the name {name:?} {wrong}"),
            fix,
        );
    }

    fn server(
        &mut self,
        name: &str,
        server: &Server,
        path: &ConfigPath,
        defaults: &ServerOptions,
    ) -> Option<ServerSettings> {
        // Resolved without `?`: a problem of the connection must not hide those of other settings.
        let mut connect = self.connect(server, path);
        if let Some(ConnectTarget::Http { network, .. }) = &mut connect {
            *network = self.network(path, &server.options, defaults);
        }
        let common = self.server_options(name, path, &server.options, Some(defaults));
        // Only the server's own `idle_stop`: the built-in defaults always have one.
        if server.options.idle_stop.is_some() && common.start == ServerStart::Eager {
            let key = path.key("idle_stop");
            let fix = "write `start = \"lazy\"` beside it, or remove it";
            self.error_at_key(
                ProblemKind::Conflict,
                &key,
                format!("`{key}` is only for a server that is started on use"),
                fix,
            );
        }
        Some(ServerSettings {
            title: server.title.clone(),
            icon: self.icon(&path.key("icon"), server.icon.as_deref()),
            description: server.description.clone(),
            connect: connect?,
            metadata: match server.allow_metadata {
                Some(true) => MetadataAccess::Allowed,
                Some(false) | None => MetadataAccess::Refused,
            },
            ..common
        })
    }

    /// Checks an icon. 2025-11-25/basic/index.mdx, `icons`: "Ensure that the icon URI is either a
    /// HTTPS or `data:` URI."
    fn icon(&mut self, path: &ConfigPath, icon: Option<&str>) -> Option<String> {
        let icon = icon?.trim();
        if !is_icon(icon) {
            let message = format!(
                "`{path}`: {} is no icon that clients may show",
                self.quoted_value(path)
            );
            self.error(
                ProblemKind::Value,
                path,
                message,
                "write an https:// URL, or a small data:image/… one (at most 32 KiB)",
            );
            return None;
        }
        Some(icon.to_owned())
    }

    /// Resolves the settings that every server has. `connect` is a placeholder here.
    fn server_options(
        &mut self,
        name: &str,
        path: &ConfigPath,
        own: &ServerOptions,
        defaults: Option<&ServerOptions>,
    ) -> ServerSettings {
        // The built-in defaults have every key. One is absent only if the check removed a wrong
        // value.
        let all = own.with_defaults(defaults.unwrap_or(&ServerOptions::default()));
        self.prefix(path, own.prefix.as_deref());
        let protocol = self.protocol(path, own, all.protocol);
        let breaker = all.breaker.unwrap_or_default();
        let ping = all.ping.unwrap_or_default();
        let websocket_ping = all.websocket_ping.unwrap_or_default();
        ServerSettings {
            name: name.to_owned(),
            prefix: all.prefix.unwrap_or_else(|| name.to_owned()),
            title: None,
            icon: None,
            description: None,
            connect: ConnectTarget::Stdio {
                command: String::new(),
                args: Vec::new(),
                env: Vec::new(),
                cwd: None,
            },
            metadata: MetadataAccess::Refused,
            as_client: protocol.is_none(),
            is_gateway: false,
            first_era: None,
            protocol: protocol.filter(|protocol| protocol != NEWEST),
            tools: self.items(&path.key("tools"), own.tools.as_ref(), all.tools, true),
            resources: self.items(
                &path.key("resources"),
                own.resources.as_ref(),
                all.resources,
                false,
            ),
            prompts: self.items(
                &path.key("prompts"),
                own.prompts.as_ref(),
                all.prompts,
                true,
            ),
            share: match all.share {
                Some(FileShare::Session) => SharingMode::Session,
                Some(FileShare::Principal) => SharingMode::Principal,
                Some(FileShare::Auto) | None => SharingMode::Auto,
            },
            start: match all.start {
                Some(FileStart::Lazy) => ServerStart::Lazy,
                Some(FileStart::Eager) | None => ServerStart::Eager,
            },
            idle_stop: all.idle_stop.unwrap_or_default().0,
            max_connections: all.max_connections.unwrap_or_default(),
            backoff: self.backoff(path, all.backoff.unwrap_or_default()),
            attempts: all.retry.unwrap_or_default().attempts.unwrap_or_default(),
            breaker: BreakerSettings {
                failures: breaker.failures.unwrap_or_default(),
                open: breaker.open.unwrap_or_default().0,
            },
            ping: PingSettings {
                interval: ping.interval.unwrap_or_default().0,
                timeout: ping.timeout.unwrap_or_default().0,
                misses: ping.misses.unwrap_or_default(),
            },
            websocket_ping: WebSocketPing {
                interval: websocket_ping.interval.unwrap_or_default().0,
                timeout: websocket_ping.timeout.unwrap_or_default().0,
            },
            timeout: all.timeout.unwrap_or_default().0,
            // Set later: it is the gateway's setting.
            input_timeout: Duration::ZERO,
            connect_timeout: all.connect_timeout.unwrap_or_default().0,
            start_timeout: all.start_timeout.unwrap_or_default().0,
            list_timeout: all.list_timeout.unwrap_or_default().0,
            relist: all.relist.unwrap_or_default().0,
            max_message: all.max_message.unwrap_or_default().0,
            max_concurrency: all.max_concurrency.unwrap_or_default(),
            queue: all.queue.unwrap_or_default(),
            max_backlog: all.max_backlog.unwrap_or_default().0,
            max_notifications: all.max_notifications.unwrap_or_default().0,
            lists: ListLimits {
                items: all.max_items.unwrap_or_default(),
                pages: all.max_pages.unwrap_or_default(),
                bytes: all.max_list.unwrap_or_default().0,
                depth: all.max_depth.unwrap_or_default(),
            },
            max_subscriptions: all.max_subscriptions.unwrap_or_default(),
        }
    }

    fn backoff(&mut self, path: &ConfigPath, backoff: Backoff) -> BackoffSettings {
        let min = backoff.min.unwrap_or_default().0;
        let max = backoff.max.unwrap_or_default().0;
        if min > max && !max.is_zero() {
            let path = path.key("backoff");
            let message = format!("`{path}`: the first pause is longer than the longest");
            self.error_at_key(
                ProblemKind::Value,
                &path,
                message,
                "make `min` at most as long as `max`",
            );
        }
        BackoffSettings { min, max }
    }

    fn prefix(&mut self, path: &ConfigPath, prefix: Option<&str>) {
        let path = path.key("prefix");
        let Some(prefix) = prefix else { return };
        if !prefix.chars().all(is_name_character) || prefix.len() > 64 {
            let message = format!(
                "`{path}`: {} cannot stand before names of tools",
                self.quoted_value(&path)
            );
            self.error(
                ProblemKind::Value,
                &path,
                message,
                "use at most 64 letters, digits, `-` and `_`; \"\" for no prefix",
            );
        }
    }

    fn protocol(
        &mut self,
        path: &ConfigPath,
        own: &ServerOptions,
        text: Option<String>,
    ) -> Option<String> {
        let path = match own.protocol {
            Some(_) => path.key("protocol"),
            None => ConfigPath::of(&["defaults", "protocol"]),
        };
        let text = text?;
        // `client` is the former name of `auto`.
        if text == "auto" || text == "client" {
            return None;
        }
        if text != NEWEST && !self.revisions.contains(&text.as_str()) {
            let message = format!(
                "`{path}`: {} is not a revision that Moongate speaks",
                self.quoted_value(&path)
            );
            let words: Vec<&str> = ["auto", NEWEST]
                .into_iter()
                .chain(self.revisions.iter().copied())
                .collect();
            self.error(
                ProblemKind::Value,
                &path,
                message,
                format!("use {}", alternatives(&words)),
            );
        }
        Some(text)
    }

    /// Resolves how the server is reached. It must have exactly one way.
    fn connect(&mut self, server: &Server, path: &ConfigPath) -> Option<ConnectTarget> {
        // Written keys count, not valid ones: a `url` with a mistake is still the way that was
        // meant.
        let ways: Vec<&str> = CONNECT_KEYS
            .into_iter()
            .filter(|key| self.is_written(&path.key(key)))
            .collect();
        match ways[..] {
            [] => {
                let message = format!(
                    "`{path}` has neither {}",
                    CONNECT_KEYS.map(|way| format!("`{way}`")).join(" nor ")
                );
                let fix = "add the `url` of its endpoint, the `command` that starts it, or the \
                           address of its socket";
                self.error_at_key(ProblemKind::Missing, path, message, fix);
            }
            [way] => self.reject_foreign_keys(way, server, path),
            [first, second, ..] => {
                let message = format!(
                    "`{path}` has both `{first}` and `{second}`: a server has one way to be reached"
                );
                let fix = "keep one of the two, or make it two servers";
                self.error_at_key(ProblemKind::Conflict, &path.key(second), message, fix);
            }
        }
        match (&server.url, &server.command, &server.tcp, &server.unix) {
            (Some(url), None, None, None) => self.http(url, server, path),
            (None, Some(command), None, None) => self.program(command, server, path),
            (None, None, Some(address), None) => self.tcp(&path.key("tcp"), address),
            (None, None, None, Some(socket)) => self.unix(&path.key("unix"), socket),
            _ => None,
        }
    }

    /// Reports settings that belong to another way of reaching the server.
    fn reject_foreign_keys(&mut self, way: &str, server: &Server, path: &ConfigPath) {
        let (strange, owner, fix) = match way {
            "url" => (
                &PROGRAM_ONLY[..],
                "command",
                "remove it: a server with `url` is not started by the gateway",
            ),
            "command" => (
                &URL_ONLY[..],
                "url",
                "remove it; a program gets its settings through `env` and `args`",
            ),
            _ => (
                &URL_ONLY[..],
                "url",
                "remove it: nothing but messages goes over a socket",
            ),
        };
        let also = if matches!(way, "tcp" | "unix") {
            &PROGRAM_ONLY[..]
        } else {
            &[]
        };
        let also = also.iter().map(|key| {
            (
                key,
                "command",
                "remove it: who starts that server is not the gateway",
            )
        });
        let metadata = path.key("allow_metadata");
        if matches!(way, "command" | "unix") && self.is_written(&metadata) {
            let message = format!("`{metadata}` is only for a server with `url` or `tcp`");
            self.error_at_key(
                ProblemKind::Conflict,
                &metadata,
                message,
                "remove it: the gateway opens no connection",
            );
        }
        for (key, owner, fix) in strange.iter().map(|key| (key, owner, fix)).chain(also) {
            if self.is_written(&path.key(key)) {
                let message = match way {
                    "tcp" | "unix" => {
                        format!(
                            "`{}` is only for a server with `{owner}`, and this one has `{way}`",
                            path.key(key)
                        )
                    }
                    _ => format!("`{}` is only for a server with `{owner}`", path.key(key)),
                };
                self.error_at_key(ProblemKind::Conflict, &path.key(key), message, fix);
            }
        }
        let strange = |kind: &ServerKind| match way {
            "url" => *kind == ServerKind::Stdio,
            "command" => *kind != ServerKind::Stdio,
            _ => true,
        };
        let Some(kind) = server.kind.filter(strange) else {
            return;
        };
        let message = format!("`{path}` is of type `{}`, but has a `{way}`", kind.name());
        let fix = match way {
            "url" => "write `type = \"http\"`, or leave `type` out",
            "command" => "write `type = \"stdio\"`, or leave `type` out",
            _ => "leave `type` out",
        };
        self.error_at_key(ProblemKind::Conflict, &path.key("type"), message, fix);
    }

    fn tcp(&mut self, path: &ConfigPath, text: &str) -> Option<ConnectTarget> {
        // A host may be IPv6 in brackets, so the last colon separates the port.
        let parsed = text.trim().rsplit_once(':').and_then(|(host, port)| {
            let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
            Some((url::Host::parse(host).ok()?, port))
        });
        let Some((host, port)) = parsed else {
            let message = format!(
                "`{path}`: {} is not a host and a port",
                self.quoted_value(path)
            );
            let fix = "write both, such as \"ledger.internal:9000\" or \"127.0.0.1:9000\"; IPv6 \
                       as \"[::1]:9000\"";
            self.error(ProblemKind::Value, path, message, fix);
            return None;
        };
        Some(ConnectTarget::Socket(SocketAddress::Tcp(format!(
            "{host}:{port}"
        ))))
    }

    fn unix(&mut self, path: &ConfigPath, text: &str) -> Option<ConnectTarget> {
        if !self.has_unix_sockets(path, "use `tcp` or `url`") {
            return None;
        }
        let wrong = if !text.starts_with('/') {
            // A relative path would depend on the directory that the gateway was started in.
            Some((
                "is not a whole path",
                "write it from the root on, such as \"/run/notes.sock\"; `${HOME}` is your home",
            ))
        } else if text.contains('\0') || text.len() > SOCKET_PATH_MAX {
            Some((
                "is longer than the path of a socket can be",
                "use a path of at most 103 bytes",
            ))
        } else {
            None
        };
        if let Some((wrong, fix)) = wrong {
            let message = format!("`{path}`: {} {wrong}", self.quoted_value(path));
            self.error(ProblemKind::Value, path, message, fix);
            return None;
        }
        Some(ConnectTarget::Socket(SocketAddress::Unix(text.into())))
    }

    fn program(
        &mut self,
        command: &str,
        server: &Server,
        path: &ConfigPath,
    ) -> Option<ConnectTarget> {
        let key = path.key("command");
        if command.trim().is_empty() {
            self.error(
                ProblemKind::Value,
                &key,
                format!("`{key}` is empty"),
                "name the program that starts the server",
            );
        } else if command.contains(char::is_whitespace)
            && server.args.is_none()
            && !command.contains('/')
        {
            let message = format!("`{key}` is one program, not a line for a shell");
            self.error(
                ProblemKind::Value,
                &key,
                message,
                "put what follows the program's name into `args`",
            );
        }
        let env = server.env.clone().unwrap_or_default();
        for (name, value) in &env {
            let path = path.key("env").key(name);
            // An environment is a list of `NAME=value` strings that end with a zero byte.
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let message = format!("`{path}` cannot be an environment variable");
                self.error_at_key(
                    ProblemKind::Value,
                    &path,
                    message,
                    "use a name without `=`, and a value without zero bytes",
                );
            }
        }
        Some(ConnectTarget::Stdio {
            command: command.to_owned(),
            args: server.args.clone().unwrap_or_default(),
            env: env.into_iter().collect(),
            cwd: server.cwd.as_ref().map(|folder| self.below_home(folder)),
        })
    }

    /// Expands `~/`, which a shell would do.
    fn below_home(&self, folder: &str) -> PathBuf {
        let home = ["HOME", "USERPROFILE"]
            .iter()
            .find_map(|name| self.env.get(*name))
            .filter(|home| !home.is_empty());
        let rest = folder
            .strip_prefix('~')
            .filter(|rest| rest.is_empty() || rest.starts_with(['/', '\\']));
        match home.zip(rest) {
            Some((home, rest)) => PathBuf::from(format!("{home}{rest}")),
            None => PathBuf::from(folder),
        }
    }

    fn http(&mut self, url: &str, server: &Server, path: &ConfigPath) -> Option<ConnectTarget> {
        let mut headers = Vec::new();
        for (name, value) in server.headers.iter().flatten() {
            let path = path.key("headers").key(name);
            let name = self.header_name(&path, name);
            match HeaderValue::from_str(value) {
                Ok(mut value) => {
                    // Sensitive values stay out of debug output and out of HPACK's table.
                    value.set_sensitive(true);
                    headers.extend(name.map(|name| (name, value)));
                }
                Err(_) => {
                    let message =
                        format!("the value of `{path}` has characters that a header cannot have");
                    self.error(
                        ProblemKind::Value,
                        &path,
                        message,
                        "remove line breaks and control characters",
                    );
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
        let url = self.url(&path.key("url"), url, &["https", "http", "wss", "ws"])?;
        let transport = self.transport(&url, server, path)?;
        let network = NetworkSettings::default();
        Some(ConnectTarget::Http {
            url,
            socket: None,
            transport,
            headers,
            forward_headers,
            network,
        })
    }

    /// Resolves the transport at a URL. It must agree with the URL's scheme.
    fn transport(
        &mut self,
        url: &url::Url,
        server: &Server,
        path: &ConfigPath,
    ) -> Option<HttpTransport> {
        let said = match (server.transport, server.kind) {
            (Some(Transport::Http), Some(ServerKind::Sse)) => {
                let message = format!("`{path}` is of type `sse`, but its `transport` is `http`");
                self.error_at_key(
                    ProblemKind::Conflict,
                    &path.key("transport"),
                    message,
                    "remove one of the two",
                );
                return None;
            }
            (Some(Transport::Http), _) => Some((HttpTransport::Streamable, "transport", "http")),
            (Some(Transport::Sse), _) => Some((HttpTransport::Sse, "transport", "sse")),
            (Some(Transport::Ws), _) => Some((HttpTransport::WebSocket, "transport", "ws")),
            (_, Some(ServerKind::Sse)) => Some((HttpTransport::Sse, "type", "sse")),
            (_, Some(ServerKind::Ws)) => Some((HttpTransport::WebSocket, "type", "ws")),
            // Clients write `type = "http"` for both HTTP transports, and many of them try both.
            _ => None,
        };
        let socket = matches!(url.scheme(), "ws" | "wss");
        match said {
            Some((transport, key, word)) if socket != transport.is_websocket() => {
                let scheme = url.scheme();
                let key = path.key(key);
                let message =
                    format!("`{key}` is `{word}`, but the `url` begins with `{scheme}://`");
                let fix = "remove it: the URL says what is spoken there, `ws://` and `wss://` are \
                           WebSocket";
                self.error_at_key(ProblemKind::Conflict, &key, message, fix);
                None
            }
            _ if socket && self.is_written(&path.key("forward_headers")) => {
                let message = format!("`{}` is not for a WebSocket", path.key("forward_headers"));
                let fix = "remove it: a WebSocket has headers only when it is opened, and clients \
                           share it";
                self.error_at_key(
                    ProblemKind::Conflict,
                    &path.key("forward_headers"),
                    message,
                    fix,
                );
                None
            }
            Some((transport, ..)) => Some(transport),
            None if socket => Some(HttpTransport::WebSocket),
            None => Some(HttpTransport::Auto),
        }
    }

    fn header_name(&mut self, path: &ConfigPath, name: &str) -> Option<HeaderName> {
        let Ok(name) = HeaderName::try_from(name) else {
            let message = format!("`{path}` is not the name of a header");
            self.error_at_key(
                ProblemKind::Value,
                path,
                message,
                "use letters, digits and `-`, such as `X-Tenant`",
            );
            return None;
        };
        if is_reserved_header(&name) {
            let message = format!("`{path}`: `{name}` is set by the gateway itself");
            self.error_at_key(ProblemKind::Value, path, message, "remove it");
            return None;
        }
        Some(name)
    }

    /// Resolves rules for items. Only the server's own are checked here: those of the defaults were
    /// checked there.
    fn items(
        &mut self,
        path: &ConfigPath,
        own: Option<&ItemFilters>,
        all: Option<ItemFilters>,
        renames: bool,
    ) -> ItemRules {
        for (name, to) in own
            .and_then(|own| own.rename.as_ref())
            .into_iter()
            .flatten()
        {
            let path = path.key("rename").key(name);
            if !renames {
                let message = format!("`{path}`: resources cannot be renamed");
                self.error_at_key(
                    ProblemKind::Value,
                    &path,
                    message,
                    "remove it; resources keep their URIs",
                );
            } else if to.is_empty() || !to.chars().all(is_name_character) {
                let message = format!("`{path}`: {} cannot be a name", self.quoted_value(&path));
                self.error(
                    ProblemKind::Value,
                    &path,
                    message,
                    "use only letters, digits, `-` and `_`",
                );
            }
        }
        for (key, patterns) in own.into_iter().flat_map(ItemFilters::patterns) {
            self.patterns(&path.key(key), patterns);
        }
        let all = all.unwrap_or_default();
        let globs = |patterns: Option<Vec<String>>| {
            GlobList::new(&patterns.unwrap_or_default()).unwrap_or_default()
        };
        ItemRules {
            allow: globs(all.allow),
            deny: globs(all.deny),
            hide: globs(all.hide),
            rename: all.rename.unwrap_or_default(),
            describe: all.describe.unwrap_or_default(),
        }
    }

    /// Compiles patterns, and reports invalid ones.
    pub(super) fn patterns(
        &mut self,
        path: &ConfigPath,
        patterns: Option<&Vec<String>>,
    ) -> Option<GlobList> {
        let patterns = patterns?;
        for (i, pattern) in patterns.iter().enumerate() {
            let path = path.item(i);
            if GlobList::new(std::slice::from_ref(pattern)).is_err() {
                let message = format!("`{path}`: {} is not a pattern", self.quoted_value(&path));
                let fix = "close every `[` and \
                           `{`; `*` matches any characters, `?` one, and `\\` takes a meaning away";
                self.error(ProblemKind::Value, &path, message, fix);
            } else if pattern.is_empty() || pattern == "!" {
                let message = format!("`{path}` is an empty pattern");
                self.error(
                    ProblemKind::Value,
                    &path,
                    message,
                    "remove it; `*` matches everything",
                );
            }
        }
        Some(GlobList::new(patterns).unwrap_or_default())
    }
}

/// Returns true for a header that the transport itself sets.
pub(crate) fn is_reserved_header(name: &HeaderName) -> bool {
    RESERVED.contains(&name.as_str())
}

/// Returns true if the text of a server's key means something here.
pub(crate) fn is_text_usable(key: &str, text: &str) -> bool {
    match key {
        "icon" => is_icon(text.trim()),
        "prefix" => text.chars().all(is_name_character) && text.len() <= 64,
        "proxy" => text.trim() == NO_PROXY || ProxyAddress::parse(text, String::new()).is_ok(),
        _ => true,
    }
}

/// Returns true for an icon that clients may show.
pub(super) fn is_icon(icon: &str) -> bool {
    let lower = icon.to_ascii_lowercase();
    // Schemes are compared without case (RFC 3986, section 3.1).
    let is_page = lower.starts_with("https://") && url::Url::parse(icon).is_ok();
    // Other schemes, such as `javascript:`, could run code in a client.
    (is_page || lower.starts_with("data:image/")) && icon.len() <= ICON_MAX
}
