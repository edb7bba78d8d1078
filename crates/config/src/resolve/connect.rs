//! Ways to reach a server: a URL, a program, or a socket.
//!
//! Owns the settings of each way, and the conflicts between them. Does not connect, and leaves the
//! settings that every server has to `server`. Invariant: a server has exactly one way.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderName, HeaderValue};

use super::resolver::PlanResolver;
use crate::choices::{ServerKind, Transport};
use crate::problem::ProblemKind;
use crate::server_keys::Server;
use crate::tree::ConfigPath;
use moongate_transport::socket::SocketAddress;
use moongate_upstream::{ConnectTarget, HttpTransport, NetworkSettings};

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
/// Settings of a server with `url` alone.
pub(crate) const URL_ONLY: [&str; 6] = [
    "headers",
    "forward_headers",
    "auth",
    "transport",
    "proxy",
    "ca",
];
/// Settings of a server with `command` alone.
pub(crate) const PROGRAM_ONLY: [&str; 3] = ["args", "env", "cwd"];

/// Limit of the path of a Unix socket in bytes. On Linux the address has 108 with a zero at the
/// end, elsewhere a little less.
const SOCKET_PATH_MAX: usize = 103;

impl PlanResolver<'_> {
    /// Resolves how the server is reached. It must have exactly one way.
    pub(super) fn connect(&mut self, server: &Server, path: &ConfigPath) -> Option<ConnectTarget> {
        // Written keys count, not valid ones: a `url` with a mistake is still the way that was
        // meant.
        let ways: Vec<&str> = CONNECT_KEYS
            .into_iter()
            .filter(|key| self.is_written(&path.key(key)))
            .collect();
        match ways[..] {
            [] => {
                let message = format!(
                    "`{path}` needs one of {}",
                    CONNECT_KEYS.map(|way| format!("`{way}`")).join(", ")
                );
                let fix = "add the `url` of its endpoint, the `command` that starts it, or the \
                           address of its socket";
                self.error_at_key(ProblemKind::Missing, path, message, fix);
            }
            [way] => self.reject_foreign_keys(way, server, path),
            [first, second, ..] => {
                let message = format!(
                    "`{path}` has both `{first}` and `{second}`, but a server can have \
                     only one of them"
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
                "remove it: the gateway does not start a server with `url`",
            ),
            "command" => (
                &URL_ONLY[..],
                "url",
                "remove it; a program gets its settings through `env` and `args`",
            ),
            _ => (
                &URL_ONLY[..],
                "url",
                "remove it: a socket carries only messages",
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
                "remove it: the gateway does not start this server",
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
                            "`{}` is only for a server with `{owner}`, but this one has `{way}`",
                            path.key(key)
                        )
                    }
                    _ => format!("`{}` is only for a server with `{owner}`", path.key(key)),
                };
                self.error_at_key(ProblemKind::Conflict, &path.key(key), message, fix);
            }
        }
        let Some(kind) = server.kind.filter(|kind| contradicts(*kind, way)) else {
            return;
        };
        let message = format!("`{path}` has type `{}` but sets `{way}`", kind.name());
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
                "is not an absolute path",
                "write the full path, such as \"/run/notes.sock\"; `${HOME}` is your home \
                 directory",
            ))
        } else if text.contains('\0') || text.len() > SOCKET_PATH_MAX {
            Some((
                "is too long for a socket path",
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
        let program = (command, server.args.is_some());
        let purpose = "name the program that starts the server";
        self.check_program(&path.key("command"), program, purpose);
        let env = server.env.clone().unwrap_or_default();
        self.check_variables(&path.key("env"), &env);
        Some(ConnectTarget::Stdio {
            command: command.to_owned(),
            args: server.args.clone().unwrap_or_default(),
            env: env.into_iter().collect(),
            cwd: server.cwd.as_ref().map(|folder| self.below_home(folder)),
        })
    }

    /// Reports a program that cannot be started as it is written. The second part of `program` is
    /// true if it has arguments. `purpose` is the fix for an empty name.
    pub(super) fn check_program(
        &mut self,
        key: &ConfigPath,
        (command, has_args): (&str, bool),
        purpose: &str,
    ) {
        if command.trim().is_empty() {
            self.error(
                ProblemKind::Value,
                key,
                format!("`{key}` is empty"),
                purpose,
            );
        } else if command.contains(char::is_whitespace) && !has_args && !command.contains('/') {
            let message = format!("`{key}` must be a program, not a shell command line");
            self.error(
                ProblemKind::Value,
                key,
                message,
                "move the arguments to `args`",
            );
        }
    }

    /// Reports variables that no program can get.
    pub(super) fn check_variables(&mut self, path: &ConfigPath, env: &BTreeMap<String, String>) {
        for (name, value) in env {
            let path = path.key(name);
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
                    let message = format!(
                        "the value of `{path}` contains characters not allowed in a header"
                    );
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
        let auth = self.server_auth(server, path);
        let url = self.url(&path.key("url"), url, &["https", "http", "wss", "ws"])?;
        let transport = self.transport(&url, server, path)?;
        let network = NetworkSettings::default();
        Some(ConnectTarget::Http {
            url,
            socket: None,
            transport,
            headers,
            forward_headers,
            auth,
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
                let message = format!("`{path}` has type `sse`, but its `transport` is `http`");
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
                    format!("`{key}` is `{word}`, but the `url` starts with `{scheme}://`");
                let fix = "remove it: the URL decides the protocol, and `ws://` and `wss://` mean \
                           WebSocket";
                self.error_at_key(ProblemKind::Conflict, &key, message, fix);
                None
            }
            _ if socket && self.is_written(&path.key("forward_headers")) => {
                let message = format!(
                    "`{}` is not supported for WebSockets",
                    path.key("forward_headers")
                );
                let fix = "remove it: a WebSocket sends headers only when it is opened, and \
                           clients share it";
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
            let message = format!("`{path}` is not a header name");
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
}

/// Returns true for a header that the transport itself sets.
pub(crate) fn is_reserved_header(name: &HeaderName) -> bool {
    RESERVED.contains(&name.as_str())
}

/// True if a server of this kind cannot have that address.
fn contradicts(kind: ServerKind, way: &str) -> bool {
    match way {
        "url" => kind == ServerKind::Stdio,
        "command" => kind != ServerKind::Stdio,
        _ => true,
    }
}
