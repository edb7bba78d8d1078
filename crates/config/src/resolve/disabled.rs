//! Disabled servers of a config, as far as people see them.
//!
//! Owns the reading of their entries. Does not report problems (`server.rs` does, of a server that
//! runs). Invariant: no reference of an entry is replaced and no file is read, so nothing of it can
//! hold a secret of the environment.

use moongate_gateway::DisabledServer;
use moongate_oauth::ServerAuth;
use moongate_transport::socket::SocketAddress;
use moongate_upstream::{ConnectTarget, HttpTransport, NetworkSettings};

use super::server::is_icon;
use crate::choices::{ServerKind, Transport};
use crate::file::ConfigFile;
use crate::server_keys::Server;

/// Describes the servers that are disabled by themselves or by the defaults.
pub(super) fn disabled_servers(file: &ConfigFile) -> Vec<DisabledServer> {
    let disabled = file
        .servers
        .iter()
        .filter(|(_, server)| !server.options.enabled);
    disabled
        .map(|(name, server)| DisabledServer {
            name: name.clone(),
            title: server.title.as_deref().map(without_escapes),
            icon: server
                .icon
                .as_deref()
                .map(str::trim)
                .filter(|icon| is_icon(icon))
                .map(without_escapes),
            prefix: server
                .options
                .prefix
                .clone()
                .unwrap_or_else(|| name.clone()),
            target: target(server),
        })
        .collect()
}

/// Reads the address of a server. `None` if its entry names no address, several or a wrong one.
fn target(server: &Server) -> Option<ConnectTarget> {
    match (&server.url, &server.command, &server.tcp, &server.unix) {
        (Some(url), None, None, None) => {
            let url = url::Url::parse(&without_escapes(url)).ok()?;
            let transport = match (server.transport, server.kind, url.scheme()) {
                (_, _, "ws" | "wss") => HttpTransport::WebSocket,
                (Some(Transport::Sse), ..) | (None, Some(ServerKind::Sse), _) => HttpTransport::Sse,
                _ => HttpTransport::Auto,
            };
            let headers = Vec::new();
            let forward_headers = Vec::new();
            let network = NetworkSettings::default();
            Some(ConnectTarget::Http {
                url,
                socket: None,
                transport,
                headers,
                forward_headers,
                auth: ServerAuth::default(),
                network,
            })
        }
        (None, Some(command), None, None) => Some(ConnectTarget::Stdio {
            command: without_escapes(command),
            args: server
                .args
                .iter()
                .flatten()
                .map(|arg| without_escapes(arg))
                .collect(),
            env: Vec::new(),
            cwd: None,
        }),
        (None, None, Some(address), None) => Some(ConnectTarget::Socket(SocketAddress::Tcp(
            without_escapes(address),
        ))),
        (None, None, None, Some(path)) => Some(ConnectTarget::Socket(SocketAddress::Unix(
            without_escapes(path).into(),
        ))),
        _ => None,
    }
}

/// Replaces the doubled dollar signs of a text whose references stay.
fn without_escapes(text: &str) -> String {
    text.replace("$$", "$")
}
