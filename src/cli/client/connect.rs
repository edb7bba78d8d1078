//! Which server a verb talks to, and the connection to it.
//!
//! Owns opening and closing. Invariant: on every way out, a signal included, the child that was started has ended.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http::{HeaderValue, header};
use url::Url;

use crate::cli::check;
use crate::cli::serve::signals;
use crate::config::{self, LoadOptions, Origin};
use crate::json::Object;
use crate::link::LinkError;
use crate::link::guard::Guard;
use crate::model::{Call, Caller, Error, Kind, Outcome, Reason};
use crate::revision::{self, ConnectError, SUPPORTED};
use crate::telemetry::{Metrics, logs};
use crate::upstream::{self, Active, Connect, For, ServerSettings, Shared};

use super::ask::Asker;
use super::output::Failure;
use super::running;

/// What stands under the help of each verb.
pub(super) const HELP: &str = "\
It talks to a running gateway (--url), to one server of the config without the gateway's rules (--server), \
or to a command that it starts (after --):
  moongate tools
  moongate call github__get_issue owner=moon repo=gate number=7
  moongate tools --server github
  moongate call add '{\"a\": 1, \"b\": 2}' -- npx -y some-mcp-server

Exit codes: 0 fine, 1 failed (also: the tool says so), 2 bad usage or config.";

/// How long taking leave may take.
const LEAVE: Duration = Duration::from_secs(2);
/// The longest answer that is taken: nobody else has to share the memory.
const MAX_MESSAGE: usize = 256 * 1024 * 1024;

/// Which server to talk to.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Server")]
pub(super) struct TargetArgs {
    /// The MCP endpoint of a running gateway, or of any other server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080/mcp", conflicts_with_all = ["server", "command"])]
    url: String,
    /// The key for the URL, sent as `Authorization: Bearer KEY`; safer in the environment than on the command line
    #[arg(long, value_name = "KEY", env = "MOONGATE_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Talk to this server of the config, directly
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    server: Option<String>,
    /// The config that has the server; repeat it to lay later files over earlier ones
    #[arg(long, short = 'c', value_name = "PATH", env = "MOONGATE_CONFIG")]
    config: Vec<PathBuf>,
    /// Longest time to wait for the server, and for each answer [default: 60s, or what the config says]
    #[arg(long, value_name = "TIME", value_parser = config::duration)]
    timeout: Option<Duration>,
    /// Show what the server writes to its stderr, and what happens on the connection
    #[arg(long, short = 'v')]
    verbose: bool,
    /// Talk to this command over its stdin and stdout
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What was chosen.
pub(super) struct Target {
    settings: ServerSettings,
    chosen: Chosen,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Chosen {
    Url,
    Server,
    Command,
}

/// An open connection, and who uses it.
pub(super) struct Client {
    pub(super) target: Target,
    pub(super) asker: Asker,
    pub(super) caller: Arc<Caller>,
    active: Active,
}

/// Opens the connection, does the work and closes it; a signal ends the work.
pub(super) async fn with<T>(
    args: &TargetArgs,
    work: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let target = args.target()?;
    logs::start(if args.verbose { "info,moongate=debug" } else { "error" }, false);
    let mut stop = signals().map_err(|e| Failure::Failed(format!("{e:#}")))?;
    let shared = Shared::new(Arc::new(Metrics::new()), target.guard());
    let asker = Asker::new();
    let whom = For { capabilities: asker.capabilities(), info: revision::implementation(), era: None };
    let opened = tokio::select! {
        opened = upstream::open(&target.settings, &shared, whom) => opened,
        () = stop.recv() => {
            // The link is gone with the future that owned it; only the guard still knows the child.
            let _ = tokio::task::spawn_blocking(move || shared.guard.stop()).await;
            return Err(Failure::Interrupted);
        }
    };
    let active = opened.map_err(|error| target.failure(&error))?;
    let client = Client { caller: asker.caller(), target, asker, active };
    let end = tokio::select! {
        end = work(&client) => end,
        () = stop.recv() => Err(Failure::Interrupted),
    };
    close(client).await;
    end
}

/// Closes the connection and waits for that.
async fn close(client: Client) {
    let link = client.active.link.clone();
    drop(client);
    // Whoever still holds the link takes leave of the server: a session is ended aside, once nobody uses it.
    let left = async {
        while Arc::strong_count(&link) > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let _ = tokio::time::timeout(LEAVE, left).await;
    link.close(Vec::new()).await;
}

impl TargetArgs {
    fn target(&self) -> Result<Target, Failure> {
        // A variable may be there for other commands; a flag was meant.
        let config_flag = !self.config.is_empty() && std::env::var_os("MOONGATE_CONFIG").is_none();
        if config_flag && self.server.is_none() {
            return Err(Failure::Usage("--config is of use only with --server NAME".to_owned()));
        }
        let (mut settings, chosen) = match (&self.server, self.command.split_first()) {
            (Some(name), _) => (self.configured(name)?, Chosen::Server),
            (None, Some((command, args))) => (started(command, args), Chosen::Command),
            (None, None) => (self.remote()?, Chosen::Url),
        };
        if chosen != Chosen::Server {
            settings.max_message = MAX_MESSAGE;
        }
        if let Some(time) = self.timeout {
            settings.timeout = time;
            settings.start_timeout = time;
            settings.list_timeout = time;
            settings.connect_timeout = settings.connect_timeout.min(time);
        }
        Ok(Target { settings, chosen })
    }

    fn remote(&self) -> Result<ServerSettings, Failure> {
        let bad = |what: String| Failure::Usage(format!("--url {:?} {what}", self.url));
        let url = Url::parse(&self.url).map_err(|e| bad(format!("is not a URL: {e}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad("does not start with http:// or https://".to_owned()));
        }
        let mut headers = Vec::new();
        if let Some(key) = self.key.as_deref().map(str::trim).filter(|key| !key.is_empty()) {
            let value = HeaderValue::from_str(&format!("Bearer {key}"));
            let mut value = value.map_err(|_| Failure::Usage("the key has characters that no key has".to_owned()))?;
            value.set_sensitive(true);
            headers.push((header::AUTHORIZATION, value));
        }
        let name = url.authority().rsplit('@').next().unwrap_or_default().to_owned();
        Ok(ServerSettings::new(name, Connect::Http { url, headers, forward_headers: Vec::new() }))
    }

    fn configured(&self, name: &str) -> Result<ServerSettings, Failure> {
        let env = check::environment();
        let mut paths = self.config.clone();
        if paths.is_empty() {
            paths.extend(config::search(Path::new("."), &env));
        }
        let only = vec![name.to_owned()];
        let options = LoadOptions { paths, env, only, revisions: &SUPPORTED, ..LoadOptions::default() };
        let loaded = config::load(&options).map_err(|mut problems| {
            // What is a flag of the gateway there has another name here.
            for problem in problems.errors.iter_mut().filter(|p| matches!(p.origin, Origin::Flag(_))) {
                problem.origin = Origin::Flag("--server".to_owned());
            }
            Failure::Config(problems)
        })?;
        let server = loaded.plan.servers.into_iter().find(|server| server.name == name);
        server.ok_or_else(|| Failure::Usage(format!("the server {name:?} is disabled, or not in the config")))
    }
}

fn started(command: &str, args: &[String]) -> ServerSettings {
    let name = Path::new(command).file_name().map_or(command.into(), |name| name.to_string_lossy()).into_owned();
    // It is the user's own command, which the user's shell would have started with all of this.
    let env = check::environment().into_iter().filter(|(name, _)| name != "MOONGATE_KEY").collect();
    ServerSettings::new(name, Connect::Stdio { command: command.to_owned(), args: args.to_vec(), env, cwd: None })
}

impl Target {
    /// What it is called in messages.
    pub(super) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Only a child needs a guard; without one it still ends when we do in an orderly way.
    fn guard(&self) -> Guard {
        let program = std::env::current_exe().ok();
        let child = matches!(self.settings.connect, Connect::Stdio { .. });
        let guard = program.filter(|_| child).and_then(|program| Guard::start(&program).ok());
        guard.unwrap_or_else(Guard::none)
    }

    /// Why the connection could not be opened, and what may help.
    fn failure(&self, error: &ConnectError) -> Failure {
        let name = self.name();
        let limit = self.settings.start_timeout;
        match (error, self.chosen) {
            (ConnectError::Link(LinkError::Timeout(_)), Chosen::Url | Chosen::Command) => {
                Failure::Failed(format!("{name} did not answer within {limit:?} (--timeout)"))
            }
            (ConnectError::Link(LinkError::Status { status: status @ (401 | 403), .. }), Chosen::Url) => {
                let message = format!("{name} refused: HTTP status {status}: the key is missing or wrong");
                Failure::Failed(message).with_hint("give one with MOONGATE_KEY or --key".to_owned())
            }
            (ConnectError::Link(LinkError::Status { status: 404, .. }), Chosen::Url) => {
                let message = format!("{name} has nothing there: HTTP status 404");
                Failure::Failed(message).with_hint("is the path right? A gateway serves /mcp and /mcp/NAME".to_owned())
            }
            (ConnectError::Link(LinkError::Unreachable(_)), Chosen::Url) => {
                let hint = "is the gateway running? `moongate serve` starts it; --url says where it is";
                Failure::Failed(format!("{name}: {error}")).with_hint(hint.to_owned())
            }
            _ => Failure::Failed(format!("{name}: {error}")),
        }
    }
}

impl Client {
    /// Everything of one kind; nothing where the server has no such list.
    pub(super) async fn list(&self, kind: Kind) -> Result<Vec<Arc<Object>>, Failure> {
        let features = self.active.server.describe(&self.caller).features;
        if !upstream::offers(&features, kind) {
            return Ok(Vec::new());
        }
        let limit = self.target.settings.list_timeout;
        let listed = tokio::time::timeout(limit, upstream::list_all(&*self.active.server, kind)).await;
        let late = |_| Failure::Failed(format!("{} took longer than {limit:?}", kind.list_method()));
        Ok(listed.map_err(late)?.map_err(|error| self.failure(&error))?.items)
    }

    /// How to use the server, in its own words.
    pub(super) fn instructions(&self) -> Option<String> {
        self.active.server.describe(&self.caller).instructions
    }

    /// Makes a call and sees it through.
    pub(super) async fn finish(&self, call: Call) -> Result<Outcome, Failure> {
        let exchange = self.active.server.call(&self.caller, Call { progress: true, ..call });
        running::finish(exchange, self.target.name(), &self.asker).await.map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &Error) -> Failure {
        if error.reason == Reason::ServerTimeout && self.target.chosen != Chosen::Server {
            let (name, limit) = (self.target.name(), self.target.settings.timeout);
            return Failure::Failed(format!("{name} did not answer within {limit:?} (--timeout)"));
        }
        Failure::of(error).with_hint(missing(error))
    }
}

/// What to say of a server that needs what only some clients can do.
fn missing(error: &Error) -> Option<String> {
    let required = error.data.as_ref()?.as_object()?.object("requiredCapabilities")?;
    let names: Vec<&str> = required.iter().map(|(name, _)| name.as_str()).collect();
    Some(match names.as_slice() {
        ["elicitation"] => "it wants to ask the user, which needs a terminal as stdin".to_owned(),
        names => format!("it needs {}, which the command line does not have", names.join(" and ")),
    })
}
