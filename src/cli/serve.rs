//! `moongate serve`: runs the gateway until a signal stops it. Owns the messages at start and the
//! signals.
//!
//! Does not build the gateway (`app`). Invariant: the service manager hears of readiness only once
//! all listeners are bound.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use moongate_platform::signals::ReloadSignals;
use moongate_platform::{child_process, open_files, service_manager};

use crate::app::{GatewayApp, ReloadSource};
use crate::cli::locate::local_address;
use crate::cli::process::{self, CONFIG_VARIABLE, print_message, report_error, runtime};
use crate::cli::running_record::RunningRecord;
use crate::cli::signals::StopSignals;
use moongate_config::{ConfigProblem, ConfigProblems, ErrorTolerance, LoadOptions, LoadedConfig};
use moongate_listener::ListenAddress;
use moongate_protocol::SUPPORTED;
use moongate_telemetry::logs;
use moongate_upstream::{ConnectTarget, ServerSettings};

/// Flags of `serve`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ServeArgs {
    /// A config file; repeat the flag to let later files override earlier ones
    #[arg(long, short, value_name = "PATH", env = CONFIG_VARIABLE)]
    pub config: Vec<PathBuf>,
    /// Listen on this address instead of the config's (port 0: the system picks)
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// Serve only this server of the config (repeatable)
    #[arg(long, value_name = "SERVER")]
    pub only: Vec<String>,
}

/// Runs the gateway. Returns exit code 2 for an unusable config, 1 for any other failure.
pub fn run(args: &ServeArgs) -> ExitCode {
    let (loaded, demo) = match load(args, ErrorTolerance::PerServer) {
        Ok(loaded) => loaded,
        Err(problems) => return process::report_unusable(&problems),
    };
    logs::start(&loaded.plan.log.filter, loaded.plan.log.json);
    // Before the first connection. Programs get back what this process was started with.
    open_files::raise_limit();
    for warning in &loaded.warnings {
        print_message(warning.render("warning").trim_end());
    }
    report_failed(&loaded.failed);
    let again = args.clone();
    let for_edits = args.clone();
    let source = ReloadSource {
        // At the start the gateway goes without a broken server. A reload keeps the config that
        // works.
        load: Box::new(move |failing| {
            let options = LoadOptions {
                failing,
                ..options(&again, ErrorTolerance::None)
            };
            load_with_demo(&options).map(|(loaded, _)| loaded)
        }),
        options: Box::new(move || options(&for_edits, ErrorTolerance::None)),
        files: loaded.files.clone(),
        places: loaded.locations.clone(),
    };
    match runtime().and_then(|runtime| runtime.block_on(serve(loaded, source, demo))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => report_error(&e),
    }
}

/// Loads the config. Without one, the plan has a demo server, so that the first run shows something
/// that works.
pub(super) fn load(
    args: &ServeArgs,
    tolerance: ErrorTolerance,
) -> Result<(LoadedConfig, bool), ConfigProblems> {
    load_with_demo(&options(args, tolerance))
}

fn load_with_demo(options: &LoadOptions<'_>) -> Result<(LoadedConfig, bool), ConfigProblems> {
    let demo = options.paths.is_empty();
    let mut loaded = moongate_config::load(options)?;
    // Servers may also come from the environment. Then there is nothing to demonstrate.
    let demo = demo && loaded.plan.servers.is_empty();
    if demo && let Ok(program) = std::env::current_exe() {
        loaded.plan.servers.push(demo_server(&program));
    }
    Ok((loaded, demo))
}

/// Returns the options that the config is read with.
fn options(args: &ServeArgs, tolerance: ErrorTolerance) -> LoadOptions<'static> {
    let env = process::environment();
    let paths = process::config_paths(&args.config, &env);
    let listen = args.listen.clone();
    let only = args.only.clone();
    LoadOptions {
        paths,
        env,
        listen,
        only,
        revisions: &SUPPORTED,
        tolerance,
        ..LoadOptions::default()
    }
}

/// Reports the problems of servers that the gateway starts without.
pub(super) fn report_failed(problems: &[ConfigProblem]) {
    for problem in problems {
        print_message(problem.render("error").trim_end());
    }
    let mut names: Vec<&str> = problems
        .iter()
        .filter_map(|problem| problem.server.as_deref())
        .collect();
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        print_message(&format!(
            "not started, until the config is corrected: {}",
            names.join(", ")
        ));
    }
}

/// Returns the settings of the demo server: the mock as a child, served like any other server.
fn demo_server(program: &std::path::Path) -> ServerSettings {
    let connect = ConnectTarget::Stdio {
        command: program.to_string_lossy().into_owned(),
        args: vec!["mock".to_owned(), "--demo".to_owned()],
        env: Vec::new(),
        cwd: None,
    };
    ServerSettings::new("demo", connect)
}

async fn serve(loaded: LoadedConfig, source: ReloadSource, demo: bool) -> anyhow::Result<()> {
    // Before the start: a signal while servers connect must stop the gateway in order.
    let mut stop = StopSignals::listen()?;
    // In a container without an init, this process gets the processes that servers leave behind.
    tokio::spawn(child_process::reap_orphans());
    let hangup = loaded
        .plan
        .reload
        .signal
        .then(ReloadSignals::listen)
        .transpose();
    let mut hangup = hangup.context("signals cannot be received")?;
    let program = std::env::current_exe().ok();
    let servers = loaded.plan.servers.len();
    let public = loaded.plan.public_url.clone();
    let has_admin_keys = !loaded.plan.admin_access.keys.is_empty();
    let state_folder = loaded
        .plan
        .state
        .file
        .as_deref()
        .and_then(Path::parent)
        .map(Path::to_owned);
    let files = loaded.sources;
    let app = GatewayApp::start_from(loaded.plan, Some(source), program.as_deref()).await?;
    if demo {
        print_message("no config found: serving a built-in demo server");
    }
    print_listeners(&app, servers);
    if let Some(url) = public {
        print_message(&format!(
            "clients connect to {}/mcp",
            url.as_str().trim_end_matches('/')
        ));
    }
    if let Some(address) = app.admin {
        print_message(&format!("metrics and health on http://{address}"));
        // The listener refuses it without a key. Elsewhere nobody is asked for one.
        let needs_key = !has_admin_keys && !address.ip().is_loopback();
        let rest = if needs_key {
            " as soon as there is an admin key: `moongate key new me --admin --write`"
        } else {
            ""
        };
        print_message(&format!("page on http://{address}{rest}"));
    }
    if let Some(socket) = &app.admin_socket {
        print_message(&format!("metrics and health on {socket}"));
    }
    let record = leave_record(&app, state_folder.as_deref(), &files);
    service_manager::notify_ready();
    reload_until_stopped(&app, &mut stop, hangup.as_mut()).await;
    service_manager::notify_stopping();
    stop_in_order(app, &mut stop).await;
    if let Some(folder) = state_folder {
        record.remove(&folder, &files);
    }
    Ok(())
}

/// Prints where clients connect, and to how many servers.
fn print_listeners(app: &GatewayApp, servers: usize) {
    for address in &app.addresses {
        let version = env!("CARGO_PKG_VERSION");
        let scheme = if app.is_secure() { "https" } else { "http" };
        let servers = if servers == 1 {
            "1 server".to_owned()
        } else {
            format!("{servers} servers")
        };
        print_message(&format!(
            "moongate {version} listening on {scheme}://{address}/mcp ({servers})"
        ));
    }
    for socket in &app.sockets {
        print_message(&format!("listening on {socket}, at /mcp"));
    }
    for address in &app.line_addresses {
        print_message(&format!("listening on tcp:{address}, one message per line"));
    }
}

/// Stops the gateway, at once after a second signal.
async fn stop_in_order(app: GatewayApp, stop: &mut StopSignals) {
    // After the manager was notified, which would otherwise take a long drain for a hang.
    tracing::info!("stopping; a second signal ends it at once");
    tokio::select! {
        () = app.stop() => {}
        () = stop.recv() => {
            tracing::warn!("stopped at once");
            std::process::exit(0);
        }
    }
}

/// Reloads at each SIGHUP until the gateway is to stop.
async fn reload_until_stopped(
    app: &GatewayApp,
    stop: &mut StopSignals,
    mut hangup: Option<&mut ReloadSignals>,
) {
    let terminal = std::io::stderr().is_terminal();
    loop {
        tokio::select! {
            () = stop.recv() => return,
            () = next_hangup(hangup.as_deref_mut()) => {
                // Its terminal was closed, which also sends SIGHUP. No reload was meant.
                if terminal && !std::io::stderr().is_terminal() {
                    return;
                }
                // SIGHUPs during a reload are merged into another one. A stop does not wait for the
                // reload.
                tokio::select! {
                    _ = app.reloader.reload(true) => {}
                    () = stop.recv() => return,
                }
            }
        }
    }
}

/// Leaves the address of the admin listener for commands that cannot read the config any more.
fn leave_record(app: &GatewayApp, folder: Option<&Path>, files: &[PathBuf]) -> RunningRecord {
    let address = app
        .admin
        .and_then(|address| local_address(&ListenAddress::Tcp(address)));
    let record = RunningRecord {
        admin: address.or_else(|| app.admin_socket.clone()),
    };
    if let Some(folder) = folder {
        record.keep(folder, files);
    }
    record
}

/// Waits for SIGHUP, or for ever where SIGHUP ends the process.
async fn next_hangup(signal: Option<&mut ReloadSignals>) {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}
