//! `moongate mock`: a scriptable MCP server on any transport. Owns its flags and its exit code.
//!
//! Does not own the server (`mock`). Invariant: over stdio only the script writes to stdout.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use moongate_platform::signals::TerminationSignals;

use crate::cli::process::print_message;
use moongate_mock::{MockHandle, MockScript, Revision};

/// Runs a scriptable MCP server: tools, behaviour and faults from a file.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("transport")))]
pub struct MockArgs {
    /// The script, in TOML or JSON; without it, a tool for every feature of the protocol
    pub file: Option<PathBuf>,
    /// Serve the small demo instead
    #[arg(long, conflicts_with = "file")]
    pub demo: bool,
    /// Serve stdin and stdout (the default)
    #[arg(long, group = "transport")]
    pub stdio: bool,
    /// Serve Streamable HTTP on this address, at /mcp (port 0: the system picks)
    #[arg(long, value_name = "ADDR", group = "transport")]
    pub http: Option<SocketAddr>,
    /// Serve JSON-RPC lines on this TCP address
    #[arg(long, value_name = "ADDR", group = "transport")]
    pub tcp: Option<SocketAddr>,
    /// Serve WebSocket on this address, at /mcp: JSON-RPC in text frames, subprotocol `mcp`
    #[arg(long, value_name = "ADDR", group = "transport")]
    pub ws: Option<SocketAddr>,
    /// Serve JSON-RPC lines on this Unix socket
    #[cfg(unix)]
    #[arg(long, value_name = "PATH", group = "transport")]
    pub unix: Option<PathBuf>,
    /// Speak this revision only (repeatable), whatever the script says
    #[arg(long, value_name = "DATE", value_parser = revision)]
    pub revision: Vec<Revision>,
    /// Append each line or body received to this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Do nothing, stubbornly (what the mock starts as a grandchild)
    #[arg(long, hide = true)]
    pub idle: bool,
}

fn revision(date: &str) -> Result<Revision, String> {
    let known = Revision::ALL.map(Revision::date).join(", ");
    Revision::of(date).ok_or_else(|| format!("not a revision; known revisions: {known}"))
}

/// Runs the command and returns the exit code. The caller must exit with it: a blocking read of
/// stdin cannot be cancelled.
///
/// # Errors
/// When the address cannot be listened on, or the record cannot be written.
pub async fn run(args: MockArgs) -> anyhow::Result<i32> {
    // Tests of process groups need a grandchild that does nothing and outlives its parent.
    if args.idle {
        moongate_mock::idle().await;
        return Ok(0);
    }
    let mut script = match &args.file {
        Some(path) => match MockScript::load(path) {
            Ok(script) => script,
            Err(e) => {
                print_message(&format!("error: {e:#}"));
                return Ok(2);
            }
        },
        None if args.demo => MockScript::demo(),
        None => MockScript::standard(),
    };
    if !args.revision.is_empty() {
        // The flag wins: one script serves tests of several revisions.
        script.revisions.clone_from(&args.revision);
    }
    let record = match &args.record {
        // Appended: several runs of a test may share one record.
        Some(path) => Some(OpenOptions::new().create(true).append(true).open(path)?),
        None => None,
    };
    let program = std::env::current_exe().ok();
    if let Some(addr) = args.http {
        return listen(moongate_mock::serve_http_recording(script, addr, record, program).await?)
            .await;
    }
    if let Some(addr) = args.tcp {
        return listen(moongate_mock::serve_tcp(script, addr, record).await?).await;
    }
    if let Some(addr) = args.ws {
        return listen(moongate_mock::serve_ws(script, addr, record).await?).await;
    }
    #[cfg(unix)]
    if let Some(path) = args.unix {
        return listen(moongate_mock::serve_unix(script, path, record).await?).await;
    }
    moongate_mock::serve_stdio(script, record, program).await
}

async fn listen(handle: MockHandle) -> anyhow::Result<i32> {
    print_message(&format!("listening on {}", handle.url));
    TerminationSignals::listen()?.recv().await;
    handle.stop().await;
    Ok(0)
}
