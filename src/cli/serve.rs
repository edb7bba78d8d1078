//! `moongate serve`: runs the gateway until it is told to stop.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::App;
use crate::cli::{check, fail, runtime, say};
use crate::config::{self, LoadOptions, Loaded, Problems};
use crate::revision::SUPPORTED;
use crate::telemetry::logs;
use crate::upstream::{Connect, ServerSettings};

/// Flags of `serve`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ServeArgs {
    /// A config file; repeat it to lay later files over earlier ones
    #[arg(long = "config", short = 'c', value_name = "PATH", env = "MOONGATE_CONFIG")]
    pub config: Vec<PathBuf>,
    /// Listen here instead of where the config says (port 0: the system picks)
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// Serve only this server of the config (repeatable)
    #[arg(long, value_name = "SERVER")]
    pub only: Vec<String>,
}

/// Runs the gateway. Exit code 2: the config cannot be used; 1: something else failed.
pub fn run(args: &ServeArgs) -> ExitCode {
    let (loaded, demo) = match load(args) {
        Ok(loaded) => loaded,
        Err(problems) => return check::refuse(&problems),
    };
    logs::start(&loaded.plan.log.filter, loaded.plan.log.json);
    for warning in &loaded.warnings {
        say(warning.render("warning").trim_end());
    }
    match runtime().and_then(|runtime| runtime.block_on(serve(loaded, demo))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(&e),
    }
}

/// The config, or without any a demo server, so that the first run shows something that works.
pub(super) fn load(args: &ServeArgs) -> Result<(Loaded, bool), Problems> {
    let env = check::environment();
    let mut paths = args.config.clone();
    if paths.is_empty() {
        paths.extend(config::search(std::path::Path::new("."), &env));
    }
    let demo = paths.is_empty();
    let options =
        LoadOptions { paths, env, listen: args.listen.clone(), only: args.only.clone(), revisions: &SUPPORTED };
    let mut loaded = config::load(&options)?;
    let demo = demo && loaded.plan.servers.is_empty();
    if demo && let Ok(program) = std::env::current_exe() {
        loaded.plan.servers.push(demo_server(&program));
    }
    Ok((loaded, demo))
}

/// The mock with its friendly contents, as a child of ours: served in the way that any other server is.
fn demo_server(program: &std::path::Path) -> ServerSettings {
    let connect = Connect::Stdio {
        command: program.to_string_lossy().into_owned(),
        args: vec!["mock".to_owned(), "--demo".to_owned()],
        env: Vec::new(),
        cwd: None,
    };
    ServerSettings::new("demo", connect)
}

async fn serve(loaded: Loaded, demo: bool) -> anyhow::Result<()> {
    let mut stop = signals()?;
    let program = std::env::current_exe().ok();
    let servers = loaded.plan.servers.len();
    let public = loaded.plan.public_url.clone();
    let app = App::start(loaded.plan, program.as_deref()).await?;
    if demo {
        say("no config found: serving a built-in demo server");
    }
    for address in &app.addresses {
        let version = env!("CARGO_PKG_VERSION");
        let scheme = if app.is_secure() { "https" } else { "http" };
        say(&format!("moongate {version} listening on {scheme}://{address}/mcp ({servers} servers)"));
    }
    for socket in &app.sockets {
        say(&format!("listening on {socket}, at /mcp"));
    }
    if let Some(url) = public {
        say(&format!("clients connect to {}/mcp", url.as_str().trim_end_matches('/')));
    }
    if let Some(address) = app.admin {
        say(&format!("metrics and health on http://{address}"));
    }
    if let Some(socket) = &app.admin_socket {
        say(&format!("metrics and health on {socket}"));
    }
    // Where nobody asked to be told, this does nothing.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    stop.recv().await;
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    tracing::info!("stopping; a second signal ends it at once");
    tokio::select! {
        () = app.stop() => {}
        () = stop.recv() => {
            tracing::warn!("stopped at once");
            std::process::exit(0);
        }
    }
    Ok(())
}

/// SIGTERM and SIGINT.
pub(super) struct Signals(tokio::signal::unix::Signal, tokio::signal::unix::Signal);

/// Starts to receive them: from now on, neither ends the process by itself.
pub(super) fn signals() -> anyhow::Result<Signals> {
    let term = signal(SignalKind::terminate()).context("signals cannot be received")?;
    let interrupt = signal(SignalKind::interrupt()).context("signals cannot be received")?;
    Ok(Signals(term, interrupt))
}

impl Signals {
    /// Waits for the next one.
    pub(super) async fn recv(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}
