//! The gateway under test: its configuration, and starting it.

use super::cases::{AskedFor, BenchCase};
use super::load::ConnectionFleet;
use super::process::Process;
use super::servers::patience;
use super::target::{LoadTarget, RepeatedRequest};
use super::wire::ProtocolEra;
use anyhow::{Context, Result, bail};
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// The key that the load generator sends, and what the configuration says of it.
pub(crate) const KEY: &str = "mg_bench_0123456789abcdef0123456789abcdef";
const KEY_HASH: &str = "c035ad33da83bd5cf1cd39b292565a6763b4800300faaeb30b166aa1ad27a058";

/// One server in the gateway's configuration.
#[derive(Clone)]
pub(crate) enum BenchServer {
    Url(SocketAddr),
    Command(PathBuf, Vec<String>),
}

impl BenchServer {
    /// One of our own roles over stdio.
    pub(crate) fn role(args: &[&str]) -> Result<Self> {
        let args = ["--role"]
            .iter()
            .chain(args)
            .map(|arg| (*arg).to_owned())
            .collect();
        Ok(Self::Command(std::env::current_exe()?, args))
    }
}

/// A running gateway, with its files.
pub(crate) struct BenchGateway {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    _files: TempDir,
}

/// The configuration: keys and metrics on, all else as it comes.
pub(crate) fn config(
    listen: &str,
    state: &Path,
    servers: &[(String, BenchServer)],
) -> Result<String> {
    let mut out = String::new();
    writeln!(
        out,
        "[gateway]\nlisten = \"{listen}\"\nadmin = \"127.0.0.1:0\"\nstate_dir = {state:?}\nstate \
         = \"embedded\"\n"
    )?;
    writeln!(
        out,
        "[[auth.keys]]\nname = \"bench\"\nhash = \"sha256:{KEY_HASH}\"\n"
    )?;
    for (name, server) in servers {
        writeln!(out, "[servers.{name}]")?;
        match server {
            BenchServer::Url(address) => writeln!(out, "url = \"http://{address}/mcp\"\n")?,
            BenchServer::Command(program, args) => {
                writeln!(out, "command = {program:?}\nargs = {args:?}\n")?
            }
        }
    }
    Ok(out)
}

/// Writes the configuration into a new directory.
pub(crate) fn files(listen: &str, servers: &[(String, BenchServer)]) -> Result<(TempDir, PathBuf)> {
    let files = tempfile::tempdir()?;
    let path = files.path().join("moongate.toml");
    std::fs::write(&path, config(listen, files.path(), servers)?)?;
    Ok((files, path))
}

/// `serve --config FILE`, as arguments.
pub(crate) fn arguments(config: &Path) -> Vec<String> {
    vec![
        "serve".to_owned(),
        "--config".to_owned(),
        config.display().to_string(),
    ]
}

impl BenchGateway {
    /// Starts it, under `wrapper` if there is one, and waits until it listens.
    pub(crate) async fn start(
        binary: &Path,
        wrapper: &[String],
        servers: &[(String, BenchServer)],
    ) -> Result<Self> {
        Self::start_with(binary, wrapper, servers, "").await
    }

    /// The same with more lines of configuration.
    pub(crate) async fn start_with(
        binary: &Path,
        wrapper: &[String],
        servers: &[(String, BenchServer)],
        more: &str,
    ) -> Result<Self> {
        if !binary.is_file() {
            bail!(
                "there is no gateway at {}: build it, or name another with --bin or MOONGATE_BIN",
                binary.display()
            );
        }
        let (files, config) = files("127.0.0.1:0", servers)?;
        let text = std::fs::read_to_string(&config)?;
        std::fs::write(&config, format!("{text}{more}"))?;
        let mut words = wrapper.to_vec();
        words.push(binary.display().to_string());
        words.extend(arguments(&config));
        let program = words.remove(0);
        let mut process = Process::program("the gateway", Path::new(&program), &words)?;
        let address = process.address(patience(wrapper)).await?;
        Ok(Self {
            process,
            address,
            _files: files,
        })
    }

    /// The way that a row's requests take.
    pub(crate) fn target(&self, case: &BenchCase) -> LoadTarget {
        match case.ask {
            AskedFor::Call(tool) => self.call(case.client, case.server_name(), tool),
            AskedFor::List(tools) => self.list(case.client, case.server_name(), tools),
        }
    }

    /// A way to call a tool of one of its servers.
    pub(crate) fn call(&self, era: ProtocolEra, server: &str, tool: &'static str) -> LoadTarget {
        let op = RepeatedRequest::Call {
            tool,
            exposed: format!("{server}__{tool}"),
        };
        LoadTarget {
            address: self.address,
            path: "/mcp".to_owned(),
            era,
            op,
            key: Some(KEY),
            fixed: false,
        }
    }

    /// A way to list the tools of one of its servers.
    fn list(&self, era: ProtocolEra, server: &str, tools: usize) -> LoadTarget {
        let path = format!("/mcp/{server}");
        LoadTarget {
            address: self.address,
            path,
            era,
            op: RepeatedRequest::List { tools },
            key: Some(KEY),
            fixed: false,
        }
    }

    /// Waits until a call through it works.
    pub(crate) async fn ready(&self, target: &LoadTarget, patience: Duration) -> Result<()> {
        let end = Instant::now() + patience;
        loop {
            match ConnectionFleet::open(target, 1).await {
                Ok(fleet) => {
                    fleet.close().await;
                    return Ok(());
                }
                Err(error) if Instant::now() > end => {
                    let tail = self.process.tail();
                    return Err(error)
                        .with_context(|| format!("the gateway is not ready; it said:\n{tail}"));
                }
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }
}
