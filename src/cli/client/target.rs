//! Which server a verb talks to.
//!
//! Owns the flags that choose it. Does not connect (`connect`). Invariant: what is chosen by flags is not changed by
//! the environment, except for the key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use http::{HeaderName, HeaderValue, header};
use url::{Host, Url};

use crate::cli::admin::{AdminArgs, AdminClient};
use crate::cli::check;
use crate::cli::locate::{self, LocatedGateway};
use crate::config::{self, ConfigProblems, LoadOptions, LoadedConfig, ProblemOrigin};
use crate::front::UNIX;
use crate::link::LinkError;
use crate::link::pinned::tls_config_for;
use crate::link::proxy::ProxyChoice;
use crate::link::reaper::Reaper;
use crate::revision::{ConnectError, SUPPORTED};
use crate::upstream::{ConnectTarget, HttpTransport, NetworkSettings, ServerSettings};

use super::output::{VerbFailure, print_message};

/// What stands under the help of each verb.
pub(super) const HELP: &str = "\
It talks to a running gateway (--url), to one server of the config without the gateway's rules (--server), \
or to a command that it starts (after --):
  moongate tools
  moongate call github__get_issue owner=moon repo=gate number=7
  moongate tools --server github
  moongate call add '{\"a\": 1, \"b\": 2}' -- npx -y some-mcp-server

Exit codes: 0 fine, 1 failed (also: the tool says so), 2 bad usage or config.";

/// The longest answer that is taken: nobody else has to share the memory.
const MAX_MESSAGE: usize = 256 * 1024 * 1024;

/// Which server to talk to.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Server")]
pub(super) struct TargetArgs {
    /// The MCP endpoint of a running gateway, or of any other server; unix:PATH for one that listens on a Unix socket
    ///
    /// Without it the config says where the gateway listens.
    #[arg(long, value_name = "URL", conflicts_with_all = ["server", "command"])]
    url: Option<String>,
    /// The key for the URL, sent as `Authorization: Bearer KEY`; safer in the environment than on the command line
    #[arg(long, value_name = "KEY", env = "MOONGATE_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Talk to this server of the config, directly
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    server: Option<String>,
    /// The config that has the server, or says where the gateway is; repeat it to lay later files over earlier ones
    #[arg(long, short = 'c', value_name = "PATH", env = "MOONGATE_CONFIG")]
    config: Vec<PathBuf>,
    /// Longest time to wait for the server, and for each answer [default: 60s, or what the config says]
    #[arg(long, value_name = "TIME", value_parser = config::duration)]
    timeout: Option<Duration>,
    /// Speak this revision of the protocol, instead of the newest that the server knows
    #[arg(long, value_name = "DATE", value_parser = PossibleValuesParser::new(SUPPORTED))]
    protocol: Option<String>,
    /// Show what the server writes to its stderr, and what happens on the connection
    #[arg(long, short = 'v')]
    pub(super) verbose: bool,
    /// Talk to this command over its stdin and stdout
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What was chosen.
pub(super) struct VerbTarget {
    /// How to reach it.
    pub(super) settings: ServerSettings,
    chosen: TargetChoice,
    /// Where the config says that the gateway is, if that was asked.
    located: Option<LocatedGateway>,
    /// The config that says where the gateway is.
    config: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TargetChoice {
    Url,
    Server,
    Command,
}

impl TargetArgs {
    /// What the flags choose.
    pub(super) fn target(&self) -> Result<VerbTarget, VerbFailure> {
        let mut located = None;
        let (mut settings, chosen) = match (&self.server, self.command.split_first()) {
            (Some(name), _) => (self.configured(name)?, TargetChoice::Server),
            (None, Some((command, args))) => (child_process(command, args), TargetChoice::Command),
            (None, None) => {
                let url = match &self.url {
                    Some(url) => url.clone(),
                    None => url_of(located.insert(locate::endpoint(&self.config).map_err(VerbFailure::Usage)?)),
                };
                (remote(&url, self.key.as_deref()).map_err(VerbFailure::Usage)?, TargetChoice::Url)
            }
        };
        if chosen != TargetChoice::Server {
            settings.max_message = MAX_MESSAGE;
        }
        if self.protocol.is_some() {
            settings.protocol.clone_from(&self.protocol);
        }
        if let Some(time) = self.timeout {
            settings.timeout = time;
            settings.start_timeout = time;
            settings.list_timeout = time;
            settings.connect_timeout = settings.connect_timeout.min(time);
        }
        Ok(VerbTarget { settings, chosen, located, config: self.config.clone() })
    }

    fn configured(&self, name: &str) -> Result<ServerSettings, VerbFailure> {
        let env = check::environment();
        let mut paths = self.config.clone();
        if paths.is_empty() {
            paths.extend(config::search(Path::new("."), &env));
        }
        let only = vec![name.to_owned()];
        let options = LoadOptions { paths, env, only, revisions: &SUPPORTED, ..LoadOptions::default() };
        let tolerance = config::ErrorTolerance::PerServer;
        let mut loaded = config::load(&LoadOptions { tolerance, ..options }).map_err(|mut problems| {
            // What is a flag of the gateway there has another name here.
            for problem in problems.errors.iter_mut().filter(|p| matches!(p.origin, ProblemOrigin::Flag(_))) {
                problem.origin = ProblemOrigin::Flag("--server".to_owned());
            }
            VerbFailure::Config(problems)
        })?;
        loaded.failed.retain(|problem| problem.server.as_deref() == Some(name));
        if !loaded.failed.is_empty() {
            let LoadedConfig { failed: errors, warnings, files, .. } = loaded;
            return Err(VerbFailure::Config(ConfigProblems { errors, warnings, files }));
        }
        let server = loaded.plan.servers.into_iter().find(|server| server.name == name);
        server.ok_or_else(|| VerbFailure::Usage(format!("the server {name:?} is disabled, or not in the config")))
    }
}

/// The URL of the endpoint over everything.
fn url_of(located: &LocatedGateway) -> String {
    match (&located.place, &located.certificate) {
        (place, _) if place.starts_with(UNIX) => place.clone(),
        (place, Some(_)) => format!("https://{place}/mcp"),
        (place, None) => format!("http://{place}/mcp"),
    }
}

/// A running gateway, or any other server, by its URL; fails with what is wrong with the flags.
pub(in crate::cli) fn remote(url: &str, key: Option<&str>) -> Result<ServerSettings, String> {
    let bad = |what: String| format!("--url {url:?} {what}");
    if let Some(place) = url.strip_prefix(UNIX) {
        return over_unix_socket(place, key).map_err(bad);
    }
    let url = Url::parse(url).map_err(|e| match e {
        url::ParseError::RelativeUrlWithoutBase => {
            bad("is not a URL: it has no beginning; write http://HOST:PORT/mcp".to_owned())
        }
        e => bad(format!("is not a URL: {e}")),
    })?;
    let transport = match url.scheme() {
        "http" | "https" => HttpTransport::Auto,
        "ws" | "wss" => HttpTransport::WebSocket,
        _ => return Err(bad("does not start with http://, https://, ws://, wss:// or unix:".to_owned())),
    };
    let headers = credentials(key)?;
    if !headers.is_empty() && matches!(url.scheme(), "http" | "ws") && !is_loopback(&url) {
        print_message("warning: the key goes over the network unencrypted; use https if anybody else can listen there");
    }
    let name = url.authority().rsplit('@').next().unwrap_or_default().to_owned();
    let (forward_headers, network) = (Vec::new(), past_proxies());
    let connect = ConnectTarget::Http { url, socket: None, transport, headers, forward_headers, network };
    Ok(ServerSettings::new(name, connect))
}

/// A gateway that listens on a Unix socket: `PATH`, or `PATH:/mcp/NAME` for another endpoint than `/mcp`.
fn over_unix_socket(place: &str, key: Option<&str>) -> Result<ServerSettings, String> {
    let (path, endpoint) = match place.rsplit_once(":/") {
        Some((path, endpoint)) => (path, format!("/{endpoint}")),
        None => (place, "/mcp".to_owned()),
    };
    if path.is_empty() {
        return Err("names no socket; write unix:PATH, or unix:PATH:/mcp/NAME".to_owned());
    }
    let url = Url::parse(&format!("http://localhost{endpoint}")).map_err(|e| format!("names no endpoint: {e}"))?;
    let (socket, transport) = (Some(PathBuf::from(path)), HttpTransport::Auto);
    let (headers, forward_headers, network) = (credentials(key)?, Vec::new(), past_proxies());
    let connect = ConnectTarget::Http { url, socket, transport, headers, forward_headers, network };
    Ok(ServerSettings::new(path.to_owned(), connect))
}

/// A gateway is nothing that a proxy of the environment stands before: that is for what the gateway itself reaches.
fn past_proxies() -> NetworkSettings {
    NetworkSettings { proxy: ProxyChoice::Direct, ca: None }
}

/// The header that shows a key, if there is one.
fn credentials(key: Option<&str>) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let Some(key) = key.map(str::trim).filter(|key| !key.is_empty()) else { return Ok(Vec::new()) };
    let value = HeaderValue::from_str(&format!("Bearer {key}"));
    let mut value = value.map_err(|_| "the key has characters that no key has".to_owned())?;
    value.set_sensitive(true);
    Ok(vec![(header::AUTHORIZATION, value)])
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

fn child_process(command: &str, args: &[String]) -> ServerSettings {
    let name = Path::new(command).file_name().map_or(command.into(), |name| name.to_string_lossy()).into_owned();
    // It is the user's own command, which the user's shell would have started with all of this.
    let env = check::environment().into_iter().filter(|(name, _)| name != "MOONGATE_KEY").collect();
    ServerSettings::new(name, ConnectTarget::Stdio { command: command.to_owned(), args: args.to_vec(), env, cwd: None })
}

impl VerbTarget {
    /// What it is called in messages.
    pub(super) fn name(&self) -> &str {
        &self.settings.name
    }

    /// The admin listener of the gateway that it is, if it may be one on this machine.
    pub(super) fn admin(&self) -> Option<AdminClient> {
        let here = match &self.settings.connect {
            ConnectTarget::Http { socket: Some(_), .. } => true,
            ConnectTarget::Http { url, .. } => is_loopback(url),
            ConnectTarget::Stdio { .. } | ConnectTarget::Socket(_) | ConnectTarget::Misconfigured { .. } => false,
        };
        let admin_key = std::env::var("MOONGATE_ADMIN_KEY").ok();
        let args = AdminArgs { admin: None, admin_key };
        args.client(&self.config).ok().filter(|_| here && self.chosen == TargetChoice::Url)
    }

    /// Whether limits were set by flags, or are the client's own: then the config has no say.
    pub(super) fn is_ad_hoc(&self) -> bool {
        self.chosen != TargetChoice::Server
    }

    /// The certificate that the gateway of the config shows is the one to trust, whoever signed it.
    pub(super) fn tls(&self) -> Option<Arc<rustls::ClientConfig>> {
        tls_config_for(self.located.as_ref()?.certificate.as_deref()?)
    }

    /// Only a child needs a guard; without one it still ends when we do in an orderly way.
    pub(super) fn guard(&self) -> Reaper {
        let program = std::env::current_exe().ok();
        let child = matches!(self.settings.connect, ConnectTarget::Stdio { .. });
        let guard = program.filter(|_| child).and_then(|program| Reaper::start(&program).ok());
        guard.unwrap_or_else(Reaper::disabled)
    }

    /// Why the connection could not be opened, and what may help.
    pub(super) fn failure(&self, error: &ConnectError) -> VerbFailure {
        let name = self.name();
        let limit = self.settings.start_timeout;
        match (error, self.chosen) {
            (ConnectError::Link(LinkError::Timeout(_)), TargetChoice::Url | TargetChoice::Command) => {
                VerbFailure::Failed(format!("{name} did not answer within {limit:?} (--timeout)"))
            }
            (ConnectError::Link(LinkError::Status { status: status @ (401 | 403), .. }), TargetChoice::Url) => {
                let message = format!("{name} refused: HTTP status {status}: the key is missing or wrong");
                VerbFailure::Failed(message).with_hint("give one with MOONGATE_KEY or --key".to_owned())
            }
            (ConnectError::Link(LinkError::Status { status: 404, .. }), TargetChoice::Url) => {
                let message = format!("{name} has nothing there: HTTP status 404");
                VerbFailure::Failed(message)
                    .with_hint("is the path right? A gateway serves /mcp and /mcp/NAME".to_owned())
            }
            (ConnectError::Link(LinkError::Unreachable(_)), TargetChoice::Url) => {
                let hint = match &self.located {
                    Some(located) => located.advice(),
                    None => "is the gateway running? `moongate serve` starts it; --url says where its endpoint is, and --admin \
                             where its admin listener is"
                        .to_owned(),
                };
                VerbFailure::Failed(format!("{name}: {error}")).with_hint(hint)
            }
            _ => VerbFailure::Failed(format!("{name}: {error}")),
        }
    }
}
