//! `moongate stdio`: a gateway for one client that launches commands, alone or as a bridge to a
//! running one. Owns the plan that the flags describe.
//!
//! Does not read messages (`listener/stdio.rs`). Invariant: stdout carries messages and nothing
//! else. The end of stdin ends everything that was started.

use std::io::Cursor;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use tokio::io::{AsyncReadExt, Stdin};

use crate::app::GatewayApp;
use crate::cli::bridge_target::{BRIDGED, bridge_config, bridge_server};
use crate::cli::process::{self, CONFIG_VARIABLE, print_message, report_error, runtime};
use crate::cli::serve::{self, ServeArgs};
use crate::cli::signals::StopSignals;
use moongate_access::auth::{AuthSettings, KeyHash, KeySettings};
use moongate_access::policy::GlobList;
use moongate_clients::KEY_VARIABLE;
use moongate_config::{ConfigProblems, ErrorTolerance, Plan};
use moongate_listener::StdioRefused;
use moongate_model::SharingMode;
use moongate_protocol::Era;
use moongate_session::store::StoreSettings;
use moongate_telemetry::logs;
use moongate_upstream::ServerSettings;

/// Text below the help.
const HELP: &str = "\
In the configuration of a client that launches commands:
  {\"mcpServers\": {\"moongate\": {\"command\": \"moongate\", \"args\": [\"stdio\"]}}}
or, as a bridge to a running gateway (with the key from the environment):
  {\"mcpServers\": {\"moongate\": {\"command\": \"moongate\",
     \"args\": [\"stdio\", \"--url\", \"http://127.0.0.1:8080/mcp\"], \"env\": \
     {\"MOONGATE_KEY\": \"...\"}}}}

Exit codes: 0 the client disconnected or a signal arrived, 1 failure, 2 bad usage or config.";

/// Limits of a bridge. They only bound its memory: the gateway at its other end has its own.
const BRIDGE_MESSAGE_MAX: usize = 64 * 1024 * 1024;
const BRIDGE_CALLS: usize = 1000;

/// Longest first line of a client that is read before the bridge connects, in bytes.
const OPENING_MAX: usize = 64 * 1024;

/// Flags of `stdio`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct StdioArgs {
    /// Bridge to this MCP endpoint of a running gateway (http://... or unix:PATH)
    #[arg(long, value_name = "URL", conflicts_with_all = ["only", "listen", "endpoint"])]
    url: Option<String>,
    /// The key for the URL, or one of the config's keys; safer in the environment than on the
    /// command line
    #[arg(long, value_name = "KEY", env = KEY_VARIABLE, hide_env_values = true)]
    key: Option<String>,
    /// Time limit for a call to the bridged gateway
    #[arg(long, value_name = "TIME", value_parser = moongate_config::duration, default_value = "1h",
        requires = "url")]
    timeout: Duration,
    /// Serve only this view or server, as /mcp/NAME does
    #[arg(long, value_name = "NAME", default_value_t, hide_default_value = true)]
    endpoint: String,
    /// Longest time that the client waits for servers to connect; later ones are added once they
    /// are connected
    #[arg(long, value_name = "TIME", value_parser = moongate_config::duration,
        default_value = "8s")]
    wait: Duration,
    /// A config file; repeat the flag to let later files override earlier ones
    #[arg(long, short, value_name = "PATH", env = CONFIG_VARIABLE)]
    config: Vec<PathBuf>,
    /// Also listen on this address; by default there is no listener
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// Serve only this server of the config (repeatable)
    #[arg(long, value_name = "SERVER")]
    only: Vec<String>,
}

/// Plan to serve, with the client's credentials.
struct StdioPlan {
    plan: Plan,
    warnings: Vec<moongate_config::ConfigProblem>,
    failed: Vec<moongate_config::ConfigProblem>,
    endpoint: String,
    credentials: HeaderMap,
    /// True if the gateway leads to another one.
    is_bridge: bool,
}

/// Cause for which nothing can be served.
enum StdioUnusable {
    Usage(String),
    Config(ConfigProblems),
}

/// Serves stdin and stdout. Returns exit code 2 for unusable flags or config, 1 for any other
/// failure.
pub fn run(args: &StdioArgs) -> ExitCode {
    let built = match &args.url {
        Some(url) => from_url(args, url),
        None => from_config(args),
    };
    let built = match built {
        Ok(built) => built,
        Err(StdioUnusable::Config(problems)) => return process::report_unusable(&problems),
        Err(StdioUnusable::Usage(message)) => {
            print_message(&format!("error: {message}"));
            return ExitCode::from(2);
        }
    };
    logs::start(&built.plan.log.filter, built.plan.log.json);
    for warning in &built.warnings {
        print_message(warning.render("warning").trim_end());
    }
    serve::report_failed(&built.failed);
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(e) => return report_error(&e),
    };
    let end = runtime.block_on(serve(built, args.wait));
    // A blocking read of stdin cannot be cancelled: dropping the runtime would wait for the next
    // line.
    runtime.shutdown_background();
    match end {
        Ok(code) => code,
        Err(e) => report_error(&e),
    }
}

/// Builds the gateway of the config.
fn from_config(args: &StdioArgs) -> Result<StdioPlan, StdioUnusable> {
    let flags = ServeArgs {
        config: args.config.clone(),
        listen: args.listen.clone(),
        only: args.only.clone(),
    };
    let (loaded, _) =
        serve::load(&flags, ErrorTolerance::PerServer).map_err(StdioUnusable::Config)?;
    let moongate_config::LoadedConfig {
        mut plan,
        warnings,
        failed,
        ..
    } = loaded;
    // Without --listen the client's pipe is the only way in, whatever the config says.
    if args.listen.is_empty() {
        plan.listen.clear();
    }
    plan.admin = None;
    let mut credentials = HeaderMap::new();
    if !plan.auth.is_open() {
        let key = match args
            .key
            .as_deref()
            .map(str::trim)
            .filter(|key| !key.is_empty())
        {
            Some(key) => key.to_owned(),
            None => {
                // The user who starts the process can read its config. A separate random key lets
                // in this client only.
                let key: String = moongate_random::random_bytes::<32>()
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
                let name = "stdio".to_owned();
                let hash = KeyHash::of(&key);
                plan.auth.keys.push(KeySettings {
                    name,
                    hash,
                    role: None,
                    views: None,
                    tools: GlobList::all(),
                    rate: None,
                    expires: None,
                });
                key
            }
        };
        let value = HeaderValue::from_str(&format!("Bearer {key}"));
        let mut value = value.map_err(|_| {
            StdioUnusable::Usage("the key has characters that a key cannot contain".to_owned())
        })?;
        // Marked sensitive, so that debug output of headers hides it.
        value.set_sensitive(true);
        credentials.insert(header::AUTHORIZATION, value);
    }
    Ok(StdioPlan {
        plan,
        warnings,
        failed,
        endpoint: args.endpoint.clone(),
        credentials,
        is_bridge: false,
    })
}

/// Builds a gateway whose only server is another gateway, which applies its own rules.
fn from_url(args: &StdioArgs, url: &str) -> Result<StdioPlan, StdioUnusable> {
    // The variable may be set for other commands. Only the flag shows intent.
    if process::is_config_flag_given(&args.config) {
        return Err(StdioUnusable::Usage(
            "--config has no effect with --url: that gateway has its own".to_owned(),
        ));
    }
    let server = bridge_server(url, args.key.as_deref()).map_err(StdioUnusable::Usage)?;
    let loaded = bridge_config().map_err(StdioUnusable::Config)?;
    let mut plan = loaded.plan;
    // All state is the other gateway's: a file here would only be in the way of a gateway on this
    // machine.
    plan.state = StoreSettings::default();
    // A bridge has no rules itself: keys and views are the other gateway's.
    plan.auth = AuthSettings::default();
    plan.views.clear();
    plan.limits.body.0 = plan.limits.body.0.max(BRIDGE_MESSAGE_MAX);
    let mut server = ServerSettings {
        as_client: true,
        is_gateway: true,
        input_timeout: plan.times.input_timeout.0,
        ..server
    };
    server.presentation.prefix.clear();
    // The client gets its own session there, with its capabilities, roots and log level.
    server.options.share = SharingMode::Session;
    let max_message = &mut server.options.max_message.0;
    *max_message = BRIDGE_MESSAGE_MAX.max(*max_message);
    server.live.timeout.0 = args.timeout;
    server.live.max_concurrency = BRIDGE_CALLS;
    server.live.queue = BRIDGE_CALLS;
    plan.servers = vec![server];
    // The endpoint of that one server keeps names, URIs and task ids unchanged.
    let warnings = loaded.warnings;
    let failed = loaded.failed;
    let endpoint = BRIDGED.to_owned();
    let credentials = HeaderMap::new();
    Ok(StdioPlan {
        plan,
        warnings,
        failed,
        endpoint,
        credentials,
        is_bridge: true,
    })
}

/// Reads the client's first line, or what comes of it within `OPENING_MAX`.
async fn read_opening(input: &mut Stdin, opening: &mut Vec<u8>) {
    while !opening.contains(&b'\n') && opening.len() < OPENING_MAX {
        if !matches!(input.read_buf(opening).await, Ok(1..)) {
            return;
        }
    }
}

/// Returns true if the client's first line is the handshake of the legacy era.
fn opens_session(opening: &[u8]) -> bool {
    opening
        .split(|byte| *byte == b'\n')
        .next()
        .is_some_and(moongate_protocol::opens_session)
}

async fn serve(mut built: StdioPlan, wait: Duration) -> anyhow::Result<ExitCode> {
    let mut stop = StopSignals::listen()?;
    let mut input = tokio::io::stdin();
    let mut opening = Vec::new();
    if built.is_bridge {
        // The other gateway speaks both eras. In its client's own, nothing is lost in translation:
        // the list of tasks and their statuses exist in one era alone.
        tokio::select! {
            _ = tokio::time::timeout(wait, read_opening(&mut input, &mut opening)) => {}
            () = stop.recv() => return Ok(ExitCode::SUCCESS),
        }
        if opens_session(&opening) {
            for server in &mut built.plan.servers {
                server.first_era = Some(Era::Legacy);
            }
        }
    }
    tokio::spawn(moongate_platform::child_process::reap_orphans());
    let program = std::env::current_exe().ok();
    moongate_platform::open_files::raise_limit();
    let app = GatewayApp::start(built.plan, program.as_deref()).await?;
    for address in &app.addresses {
        print_message(&format!(
            "moongate {} also listening on http://{address}/mcp",
            env!("CARGO_PKG_VERSION")
        ));
    }
    let client = match app.pipe(&built.endpoint, &built.credentials) {
        Ok(client) => client,
        Err(why) => {
            app.stop().await;
            let endpoint = &built.endpoint;
            print_message(&match why {
                StdioRefused::Credentials => {
                    "error: the key (--key, MOONGATE_KEY) is not in the config".to_owned()
                }
                StdioRefused::Endpoint => {
                    format!(
                        "error: --endpoint: there is no view or server {endpoint:?} for this key"
                    )
                }
            });
            return Ok(ExitCode::from(2));
        }
    };
    let gateway = app.gateway.clone();
    let serving = async move {
        // Most clients list everything once, right after the handshake. A server that hung at the
        // last start is not waited for: it would cost the whole time at every start. After the time
        // the client is served anyway. Servers that come later change its lists.
        let _ = tokio::time::timeout(wait, gateway.until_mostly_settled()).await;
        client
            .serve(Cursor::new(opening).chain(input), tokio::io::stdout())
            .await;
    };
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        () = &mut serving => {}
        () = stop.recv() => {
            app.drain();
            tokio::select! {
                () = &mut serving => {}
                () = stop.recv() => std::process::exit(0),
            }
        }
    }
    tokio::select! {
        () = app.stop() => {}
        () = stop.recv() => std::process::exit(0),
    }
    Ok(ExitCode::SUCCESS)
}
