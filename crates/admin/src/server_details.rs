//! Details of a server for `/api/v1/status` and the open card: its names, target, restarts and
//! effective settings. Owns the description of a server.
//!
//! Does not report its state (`status.rs`). Invariant: only the program's name of a command line is
//! shown, and no query of a URL.

use std::path::Path;
use std::time::Duration;

use moongate_api::{EffectiveSettings, ServerIdentity, ServerVersion};
use moongate_gateway::{DisabledServer, RunningServer};
use moongate_model::PeerName;
use moongate_telemetry::secret_look::mask_secrets;
use moongate_telemetry::{Metrics, logs};
use moongate_transport::socket::SocketAddress;
use moongate_upstream::{ConnectTarget, transport_name};

use crate::admin_state::AdminState;

/// Programs that run the one that their first argument names.
const RUNNERS: [&str; 14] = [
    "npx", "bunx", "uvx", "uv", "pnpm", "yarn", "bun", "pipx", "node", "deno", "python", "python3",
    "docker", "podman",
];

/// Describes what a server is.
pub(super) fn describe_identity(
    server: &RunningServer,
    name_prefix: Option<String>,
) -> ServerIdentity {
    let settings = &server.settings;
    let said = server
        .description()
        .map(|description| PeerName::of(&description.info))
        .unwrap_or_default();
    ServerIdentity {
        name: settings.name.clone(),
        title: settings
            .presentation
            .title
            .clone()
            .or_else(|| said.title.as_deref().map(shown_text)),
        icon: settings.presentation.icon.clone(),
        prefix: settings.presentation.prefix.clone(),
        name_prefix,
        server: ServerVersion {
            name: said.name.as_deref().map(shown_text),
            version: said.version.as_deref().map(shown_text),
        },
        transport: Some(server.transport().to_owned()),
        target: Some(target(&settings.connect)).filter(|target| !target.is_empty()),
        start: Some(settings.options.start),
        share: Some(settings.options.share),
        enabled: true,
    }
}

/// Returns a text that a server says of itself, in one line and redacted.
fn shown_text(text: &str) -> String {
    logs::redact(&logs::one_line(text))
}

/// Counts the restarts of a server's program. A remote server reconnects, which is another metric.
pub(super) fn count_restarts(server: &RunningServer, metrics: &Metrics) -> u64 {
    let is_program = matches!(server.settings.connect, ConnectTarget::Stdio { .. });
    if is_program {
        metrics.servers.restarts.get(server.settings.name.as_str())
    } else {
        0
    }
}

/// Describes what a server is that is off.
pub(super) fn describe_disabled(
    server: &DisabledServer,
    name_prefix: Option<String>,
) -> ServerIdentity {
    ServerIdentity {
        name: server.name.clone(),
        title: server.title.clone(),
        icon: server.icon.clone(),
        prefix: server.prefix.clone(),
        name_prefix,
        transport: server
            .target
            .as_ref()
            .map(|target| transport_name(target, None).to_owned()),
        target: server
            .target
            .as_ref()
            .map(target)
            .filter(|target| !target.is_empty()),
        // Only a server that runs has these.
        server: ServerVersion::default(),
        start: None,
        share: None,
        enabled: false,
    }
}

/// Returns the values of a server's settings that hold now, as the config would write them. `None`
/// for a server that is off.
pub(super) fn effective_settings(admin: &AdminState, name: &str) -> Option<EffectiveSettings> {
    let servers = admin.gateway.servers();
    let settings = &servers
        .iter()
        .find(|server| server.settings.name == name)?
        .settings;
    Some(EffectiveSettings {
        prefix: settings.presentation.prefix.clone(),
        timeout: written_time(settings.live.timeout.0),
        share: settings.options.share,
        start: settings.options.start,
        idle_stop: written_time(settings.options.idle_stop.0),
    })
}

/// Writes a time as the config does.
fn written_time(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    }
}

/// Returns a short name of the server's target.
fn target(connect: &ConnectTarget) -> String {
    let short = match connect {
        ConnectTarget::Stdio { command, args, .. } => {
            let program = Path::new(command)
                .file_name()
                .map_or(command.into(), |name| name.to_string_lossy());
            // The other arguments may be secrets.
            let what = args
                .iter()
                .find(|arg| !arg.starts_with('-'))
                .filter(|_| RUNNERS.contains(&&*program));
            what.map_or_else(|| program.to_string(), |what| format!("{program} {what}"))
        }
        ConnectTarget::Misconfigured { .. } => String::new(),
        ConnectTarget::Socket(SocketAddress::Tcp(address)) => format!("tcp:{address}"),
        ConnectTarget::Socket(SocketAddress::Unix(path)) => format!("unix:{}", path.display()),
        ConnectTarget::Http {
            socket: Some(path), ..
        } => format!("unix:{}", path.display()),
        ConnectTarget::Http { url, .. } => {
            let mut url = url.clone();
            // Queries often carry API keys.
            url.set_query(None);
            url.set_fragment(None);
            url.to_string()
        }
    };
    logs::redact(&mask_secrets(&logs::one_line(&short), "***"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program_target(command: &str, args: &[&str]) -> String {
        target(&ConnectTarget::Stdio {
            command: command.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: Vec::new(),
            cwd: None,
        })
    }

    #[test]
    fn a_target_names_a_program_and_no_secret() {
        assert_eq!(
            program_target("npx", &["-y", "@scope/server@1.2", "--key", "s3cr3t"]),
            "npx @scope/server@1.2"
        );
        assert_eq!(
            program_target("/usr/bin/node", &["/x/y.js"]),
            "node /x/y.js"
        );
        assert_eq!(program_target("/opt/server", &["s3cr3t"]), "server");
        assert_eq!(program_target("uvx", &[]), "uvx");
    }
}
