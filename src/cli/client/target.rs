//! Target of a verb. Owns the flags that choose it.
//!
//! Does not connect (`verb_client.rs`). Invariant: the environment does not change what flags
//! choose, except for the key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use http::{HeaderName, HeaderValue, header};
use url::{Host, Url};

use super::output::{VerbFailure, print_message};
use crate::app::configured_servers::self_addresses;
use crate::app::logins::logins_of;
use crate::cli::admin_client::{AdminArgs, AdminClient};
use crate::cli::locate::{self, LocatedGateway};
use crate::cli::process::{self, CONFIG_VARIABLE};
use moongate_clients::KEY_VARIABLE;
use moongate_config::{ConfigProblems, LoadOptions, LoadedConfig, Plan, ProblemOrigin};
use moongate_listener::UNIX;
use moongate_model::login_sentence;
use moongate_oauth::{LoginDirectory, ServerAuth};
use moongate_protocol::{ConnectError, SUPPORTED};
use moongate_transport::LinkError;
use moongate_transport::credential_source::CredentialDirectory;
use moongate_transport::pinned::tls_config_for;
use moongate_transport::proxy::ProxyChoice;
use moongate_transport::reaper::Reaper;
use moongate_upstream::{ConnectTarget, HttpTransport, NetworkSettings, ServerSettings};

/// Text below the help of each verb.
pub(super) const HELP: &str = "\
The command talks to a running gateway (--url), to one server of the config without the gateway's \
rules
(--server), or to a program that it starts (after --):
  moongate tools
  moongate call github__get_issue owner=moon repo=admission number=7
  moongate tools --server github
  moongate call add '{\"a\": 1, \"b\": 2}' -- npx -y some-mcp-server

Exit codes: 0 success, 1 failure (or the tool reports an error), 2 bad usage or config.";

/// Maximum size of a response, in bytes. Large, since this process serves a single user.
const MAX_MESSAGE: usize = 256 * 1024 * 1024;

/// Which server to talk to.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Server")]
pub(super) struct TargetArgs {
    /// The MCP endpoint of a running gateway, or of any other server; unix:PATH for one that
    /// listens on a Unix socket
    ///
    /// Without this flag, the address comes from the config.
    #[arg(long, value_name = "URL", conflicts_with_all = ["server", "command"])]
    url: Option<String>,
    /// The key for the URL, sent as `Authorization: Bearer KEY`; safer in the environment than on
    /// the command line
    #[arg(long, value_name = "KEY", env = KEY_VARIABLE, hide_env_values = true)]
    key: Option<String>,
    /// Talk directly to this server from the config
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    server: Option<String>,
    /// The config with the server or the gateway's address; repeat the flag to let later files
    /// override earlier ones
    #[arg(long, short, value_name = "PATH", env = CONFIG_VARIABLE)]
    config: Vec<PathBuf>,
    /// Longest time to wait for the server, and for each answer [default: 60s, or the config's
    /// setting]
    #[arg(long, value_name = "TIME", value_parser = moongate_config::duration)]
    timeout: Option<Duration>,
    /// Speak this protocol revision instead of the newest one that the server knows
    #[arg(long, value_name = "DATE", value_parser = PossibleValuesParser::new(SUPPORTED))]
    protocol: Option<String>,
    /// Show what the server writes to its stderr, and what happens on the connection
    #[arg(long, short = 'v')]
    pub(super) verbose: bool,
    /// Talk to this command over its stdin and stdout
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Advice for those who know the address.
const FLAG: &str = "give its endpoint with --url";

/// Server that the flags chose.
pub(super) struct VerbTarget {
    /// Settings of the connection.
    pub(super) settings: ServerSettings,
    chosen: TargetChoice,
    /// Logins of a server that the config has.
    logins: Option<Arc<LoginDirectory>>,
    /// Address of the gateway in the config, if it was looked up.
    located: Option<LocatedGateway>,
    /// Config that names the gateway's address.
    config: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TargetChoice {
    Url,
    Server,
    Command,
}

impl TargetArgs {
    /// Returns the target that the flags choose.
    pub(super) fn target(&self) -> Result<VerbTarget, VerbFailure> {
        let mut located = None;
        let mut logins = None;
        let (mut settings, chosen) = match (&self.server, self.command.split_first()) {
            (Some(name), _) => {
                let plan = self.plan_with(name)?;
                let settings = configured(&plan, name)?;
                logins = logins_for(&plan, &settings)?;
                (settings, TargetChoice::Server)
            }
            (None, Some((command, args))) => (child_process(command, args), TargetChoice::Command),
            (None, None) => {
                let url = match &self.url {
                    Some(url) => url.clone(),
                    None => {
                        let found = locate::endpoint(&self.config)
                            .map_err(|error| VerbFailure::Usage(format!("{error}; {FLAG}")))?;
                        located.insert(found).url("/mcp")
                    }
                };
                (
                    remote(&url, self.key.as_deref()).map_err(VerbFailure::Usage)?,
                    TargetChoice::Url,
                )
            }
        };
        // A server of the config keeps the limits that the gateway would apply.
        if chosen != TargetChoice::Server {
            settings.options.max_message.0 = MAX_MESSAGE;
        }
        if self.protocol.is_some() {
            settings.protocol.clone_from(&self.protocol);
        }
        if let Some(time) = self.timeout {
            settings.live.timeout.0 = time;
            settings.live.start_timeout.0 = time;
            settings.live.list_timeout.0 = time;
            // Connecting must not take longer than the whole call may.
            settings.live.connect_timeout.0 = settings.live.connect_timeout.0.min(time);
        }
        Ok(VerbTarget {
            settings,
            chosen,
            logins,
            located,
            config: self.config.clone(),
        })
    }

    /// Loads the config, as far as this server needs it.
    fn plan_with(&self, name: &str) -> Result<Plan, VerbFailure> {
        let env = process::environment();
        let paths = process::config_paths(&self.config, &env);
        let only = vec![name.to_owned()];
        let options = LoadOptions {
            paths,
            env,
            only,
            revisions: &SUPPORTED,
            ..LoadOptions::default()
        };
        let tolerance = moongate_config::ErrorTolerance::PerServer;
        let mut loaded = moongate_config::load(&LoadOptions {
            tolerance,
            ..options
        })
        .map_err(|mut problems| {
            // The gateway's flag `--only` is called `--server` here.
            for problem in problems
                .errors
                .iter_mut()
                .filter(|p| matches!(p.origin, ProblemOrigin::Flag(_)))
            {
                problem.origin = ProblemOrigin::Flag("--server".to_owned());
            }
            VerbFailure::Config(problems)
        })?;
        loaded
            .failed
            .retain(|problem| problem.server.as_deref() == Some(name));
        if !loaded.failed.is_empty() {
            let LoadedConfig {
                failed: errors,
                warnings,
                files,
                ..
            } = loaded;
            return Err(VerbFailure::Config(ConfigProblems {
                errors,
                warnings,
                files,
            }));
        }
        Ok(loaded.plan)
    }
}

/// Returns the settings of a server of the config.
fn configured(plan: &Plan, name: &str) -> Result<ServerSettings, VerbFailure> {
    let server = plan.servers.iter().find(|server| server.name == name);
    server.cloned().ok_or_else(|| {
        VerbFailure::Usage(format!(
            "the server {name:?} is disabled, or not in the config"
        ))
    })
}

/// Returns the logins that a server of the config may have. Other servers than those with a URL
/// have none, so that their files need not be readable.
fn logins_for(
    plan: &Plan,
    settings: &ServerSettings,
) -> Result<Option<Arc<LoginDirectory>>, VerbFailure> {
    if !matches!(settings.connect, ConnectTarget::Http { .. }) {
        return Ok(None);
    }
    let logins = logins_of(plan).map_err(|error| VerbFailure::Failed(format!("{error:#}")))?;
    Ok(Some(logins))
}

/// Returns the settings for a gateway, or any other server, at a URL. Fails with the problem of the
/// flags.
pub(in crate::cli) fn remote(flag: &str, key: Option<&str>) -> Result<ServerSettings, String> {
    // Before the address: a bad key is not the URL's fault.
    let headers = credentials(key)?;
    if let Some(socket) = flag.strip_prefix(UNIX) {
        return over_unix_socket(socket, headers).map_err(|what| bad_url(flag, &what));
    }
    let url = Url::parse(flag).map_err(|e| match e {
        url::ParseError::RelativeUrlWithoutBase => bad_url(
            flag,
            "is not a URL: it has no scheme; write http://HOST:PORT/mcp",
        ),
        e => bad_url(flag, &format!("is not a URL: {e}")),
    })?;
    let transport = match url.scheme() {
        "http" | "https" => HttpTransport::Auto,
        "ws" | "wss" => HttpTransport::WebSocket,
        _ => {
            return Err(bad_url(
                flag,
                "does not start with http://, https://, ws://, wss:// or unix:",
            ));
        }
    };
    if !headers.is_empty() && matches!(url.scheme(), "http" | "ws") && !is_loopback(&url) {
        print_message(
            "warning: the key goes over the network unencrypted; use https if anybody else can \
             listen there",
        );
    }
    // A URL may contain a user and a password, which do not belong into messages.
    let name = url
        .authority()
        .rsplit('@')
        .next()
        .unwrap_or_default()
        .to_owned();
    let forward_headers = Vec::new();
    let network = past_proxies();
    let connect = ConnectTarget::Http {
        url,
        socket: None,
        transport,
        headers,
        forward_headers,
        auth: ServerAuth::default(),
        network,
    };
    Ok(ServerSettings::new(name, connect))
}

fn bad_url(flag: &str, what: &str) -> String {
    format!("--url {flag:?} {what}")
}

/// Returns the settings for a Unix socket: `PATH`, or `PATH:/mcp/NAME` for another endpoint than
/// `/mcp`.
fn over_unix_socket(
    location: &str,
    headers: Vec<(HeaderName, HeaderValue)>,
) -> Result<ServerSettings, String> {
    let (path, endpoint) = match location.rsplit_once(":/") {
        Some((path, endpoint)) => (path, format!("/{endpoint}")),
        None => (location, "/mcp".to_owned()),
    };
    if path.is_empty() {
        return Err("names no socket; write unix:PATH, or unix:PATH:/mcp/NAME".to_owned());
    }
    // A URL is needed for the Host header. The connection itself goes to the socket.
    let url = Url::parse(&format!("http://localhost{endpoint}"))
        .map_err(|e| format!("names no endpoint: {e}"))?;
    let socket = Some(PathBuf::from(path));
    let transport = HttpTransport::Auto;
    let forward_headers = Vec::new();
    let network = past_proxies();
    let connect = ConnectTarget::Http {
        url,
        socket,
        transport,
        headers,
        forward_headers,
        auth: ServerAuth::default(),
        network,
    };
    Ok(ServerSettings::new(path.to_owned(), connect))
}

/// Network settings without the environment's proxy. That proxy is for servers that the gateway
/// itself connects to.
fn past_proxies() -> NetworkSettings {
    NetworkSettings {
        proxy: ProxyChoice::Direct,
        ca: None,
    }
}

/// Returns the header with the key, if there is one.
fn credentials(key: Option<&str>) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let Some(key) = key.map(str::trim).filter(|key| !key.is_empty()) else {
        return Ok(Vec::new());
    };
    let value = HeaderValue::from_str(&format!("Bearer {key}"));
    let mut value =
        value.map_err(|_| "the key has characters that a key cannot contain".to_owned())?;
    // Marked sensitive, so that debug output of headers hides it.
    value.set_sensitive(true);
    Ok(vec![(header::AUTHORIZATION, value)])
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        // RFC 6761, section 6.3: names under `localhost` resolve to loopback addresses.
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

pub(super) fn child_process(command: &str, args: &[String]) -> ServerSettings {
    let name = Path::new(command)
        .file_name()
        .map_or(command.into(), |name| name.to_string_lossy())
        .into_owned();
    // The command is the user's own. A shell would have started it with this environment.
    let env = process::environment()
        .into_iter()
        .filter(|(name, _)| name != KEY_VARIABLE)
        .collect();
    ServerSettings::new(
        name,
        ConnectTarget::Stdio {
            command: command.to_owned(),
            args: args.to_vec(),
            env,
            cwd: None,
        },
    )
}

impl VerbTarget {
    /// Returns the target's name for messages.
    pub(super) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Returns a client for the target's admin listener, if the target may be a gateway on this
    /// machine.
    pub(super) fn admin(&self) -> Option<AdminClient> {
        let here = match &self.settings.connect {
            ConnectTarget::Http {
                socket: Some(_), ..
            } => true,
            ConnectTarget::Http { url, .. } => is_loopback(url),
            ConnectTarget::Stdio { .. }
            | ConnectTarget::Socket(_)
            | ConnectTarget::Misconfigured { .. } => false,
        };
        // The local config describes a gateway of this machine only.
        AdminArgs::of_environment()
            .client(&self.config)
            .ok()
            .filter(|_| here && self.chosen == TargetChoice::Url)
    }

    /// Returns a client for the admin listener of the gateway that was chosen, and the server or
    /// view that its endpoint is for. `None` if the config is not known to be that gateway's.
    pub(super) fn own_admin(&self) -> Option<(AdminClient, Option<String>)> {
        let ConnectTarget::Http { url, .. } = &self.settings.connect else {
            return None;
        };
        // Another gateway on this machine may have servers of the same names.
        let is_own = self.located.is_some()
            || self_addresses(&process::load_options(&self.config)).has_url(url.as_str());
        let only = url
            .path()
            .trim_matches('/')
            .split_once('/')
            .map(|(_, name)| name.to_owned());
        self.admin().filter(|_| is_own).map(|admin| (admin, only))
    }

    /// Returns the credentials towards the target, besides headers of the config.
    pub(super) fn credentials(&self) -> Option<Arc<dyn CredentialDirectory>> {
        let logins = self.logins.clone();
        logins.map(|logins| logins as Arc<dyn CredentialDirectory>)
    }

    /// Returns the logins that the target may use.
    pub(super) fn logins(&self) -> Option<Arc<LoginDirectory>> {
        self.logins.clone()
    }

    /// True if limits come from flags or are the client's own, so that the config has no say.
    pub(super) fn is_ad_hoc(&self) -> bool {
        self.chosen != TargetChoice::Server
    }

    /// Returns true if no gateway is between the command and its server.
    pub(super) fn is_direct(&self) -> bool {
        self.chosen != TargetChoice::Url
    }

    /// Returns TLS settings that trust the certificate of the config's gateway, whoever signed it.
    pub(super) fn tls(&self) -> Option<Arc<rustls::ClientConfig>> {
        tls_config_for(self.located.as_ref()?.certificate.as_deref()?)
    }

    /// Returns the reaper for a child. Without one, a child still ends at an orderly exit.
    pub(super) fn guard(&self) -> Reaper {
        let program = std::env::current_exe().ok();
        let child = matches!(self.settings.connect, ConnectTarget::Stdio { .. });
        let guard = program
            .filter(|_| child)
            .and_then(|program| Reaper::start(&program).ok());
        guard.unwrap_or_else(Reaper::disabled)
    }

    /// Explains a failed connection, with advice.
    pub(super) fn failure(&self, error: &ConnectError) -> VerbFailure {
        let name = self.name();
        let limit = self.settings.live.start_timeout.0;
        match (error, self.chosen) {
            (
                ConnectError::Link(LinkError::Timeout(_)),
                TargetChoice::Url | TargetChoice::Command,
            ) => VerbFailure::Failed(format!(
                "{name} did not answer within {limit:?} (--timeout)"
            )),
            (
                ConnectError::Link(LinkError::Status {
                    status: status @ (401 | 403),
                    ..
                }),
                TargetChoice::Url,
            ) => {
                let message =
                    format!("{name} refused: HTTP status {status}: the key is missing or wrong");
                VerbFailure::Failed(message)
                    .with_hint("give one with MOONGATE_KEY or --key".to_owned())
            }
            (ConnectError::Link(LinkError::Status { status: 404, .. }), TargetChoice::Url) => {
                let message = format!("{name} has nothing at this path: HTTP status 404");
                VerbFailure::Failed(message)
                    .with_hint("is the path right? A gateway serves /mcp and /mcp/NAME".to_owned())
            }
            (ConnectError::Link(LinkError::Unreachable(_)), TargetChoice::Url) => {
                let hint = match &self.located {
                    Some(located) => format!("{}; {FLAG}", located.advice()),
                    None => "is the gateway running? If not, start it with `moongate`".to_owned(),
                };
                VerbFailure::Failed(format!("{name}: {error}")).with_hint(hint)
            }
            (error, TargetChoice::Server) if self.settings.needs_login(error) => {
                VerbFailure::Failed(login_sentence(&self.settings.name))
            }
            _ => VerbFailure::Failed(format!("{name}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_key_is_not_the_url_s_fault() {
        for url in ["unix:/run/m.sock", "http://127.0.0.1:8080/mcp"] {
            let error = remote(url, Some("a\nb")).err().unwrap_or_default();
            assert!(
                error.starts_with("the key has characters"),
                "{url}: {error}"
            );
            assert!(remote(url, Some("mg_key")).is_ok(), "{url}");
        }
        let error = remote("unix:", None).err().unwrap_or_default();
        assert!(
            error.starts_with("--url \"unix:\" names no socket"),
            "{error}"
        );
    }
}
