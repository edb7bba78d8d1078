//! The processes of a run, and for each row the targets that take turns.

use crate::args::Args;
use crate::cases::{Ask, Case, Wire};
use crate::gateway::{Gateway, Server};
use crate::http::Connection;
use crate::process::Process;
use crate::target::{Op, Target};
use crate::wire::Era;
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(15);

/// One of our servers.
pub(crate) struct Running {
    process: Process,
    address: SocketAddr,
}

impl Running {
    pub(crate) async fn start(role: &str, args: &[String]) -> Result<Self> {
        let mut process = Process::role(role, role, args)?;
        let address = process.address(PATIENCE).await?;
        Ok(Self { process, address })
    }

    pub(crate) async fn upstream(era: Era, tools: usize, port: u16) -> Result<Self> {
        Self::start("upstream", &[era.name().to_owned(), tools.to_string(), port.to_string()]).await
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid
    }
}

/// One column of a row: a name, how to call, and the process whose time counts.
pub(crate) struct Lane {
    pub(crate) name: String,
    pub(crate) target: Target,
    pub(crate) pid: Option<u32>,
}

/// Everything that runs during the measurements.
pub(crate) struct Stage {
    pub(crate) legacy: Running,
    pub(crate) modern: Running,
    many: Running,
    legacy_ceiling: Running,
    modern_ceiling: Running,
    /// A second ceiling for the legacy upstream and one for the modern.
    controls: Option<[Running; 2]>,
    pub(crate) gateway: Option<Gateway>,
    /// Why there is no gateway.
    pub(crate) missing: Option<String>,
    fixed: Option<(Running, TempDir)>,
}

impl Stage {
    pub(crate) async fn start(args: &Args) -> Result<Self> {
        let base = args.upstream_port;
        let legacy = Running::upstream(Era::Legacy, 10, base).await?;
        let modern = Running::upstream(Era::Modern, 10, if base == 0 { 0 } else { base + 1 }).await?;
        let many = Running::upstream(Era::Legacy, 1000, 0).await?;
        let legacy_ceiling = Running::start("ceiling", &[legacy.address.to_string()]).await?;
        let modern_ceiling = Running::start("ceiling", &[modern.address.to_string()]).await?;
        let controls = match args.control {
            true => Some([
                Running::start("ceiling", &[legacy.address.to_string()]).await?,
                Running::start("ceiling", &[modern.address.to_string()]).await?,
            ]),
            false => None,
        };
        let mut stage = Self {
            legacy,
            modern,
            many,
            legacy_ceiling,
            modern_ceiling,
            controls,
            gateway: None,
            missing: None,
            fixed: None,
        };
        if args.no_gateway {
            stage.missing = Some("left out with --no-gateway".to_owned());
        } else {
            match stage.start_gateway(args).await {
                Ok(gateway) => stage.gateway = Some(gateway),
                Err(error) => stage.missing = Some(format!("{error:#}")),
            }
        }
        Ok(stage)
    }

    async fn start_gateway(&self, args: &Args) -> Result<Gateway> {
        let servers = [
            ("legacy".to_owned(), Server::Url(self.legacy.address)),
            ("modern".to_owned(), Server::Url(self.modern.address)),
            ("many".to_owned(), Server::Url(self.many.address)),
            ("stdio".to_owned(), Server::role(&["stdio", "legacy", "10"])?),
        ];
        let gateway = Gateway::start(&args.bin, &[], &servers).await?;
        for (name, _) in &servers {
            gateway.ready(&gateway.call(Era::Legacy, name, "echo64"), PATIENCE).await?;
        }
        Ok(gateway)
    }

    pub(crate) fn ceiling_pid(&self) -> u32 {
        self.legacy_ceiling.pid()
    }

    /// The targets of a row.
    pub(crate) async fn lanes(&mut self, case: &Case, args: &Args) -> Result<Vec<Lane>> {
        let mut lanes = Vec::new();
        if let Some(gateway) = &self.gateway {
            let target = match case.ask {
                Ask::Call(tool) => gateway.call(case.client, case.server_name(), tool),
                Ask::List(tools) => gateway.list(case.client, case.server_name(), tools),
            };
            lanes.push(Lane { name: "gateway".to_owned(), target, pid: Some(gateway.process.pid) });
        }
        match case.ask {
            Ask::List(_) => lanes.push(self.fixed_lane(case).await?),
            Ask::Call(tool) => {
                let (ceiling, server) = match case.server {
                    Era::Legacy => (&self.legacy_ceiling, &self.legacy),
                    Era::Modern => (&self.modern_ceiling, &self.modern),
                };
                let target = plain(ceiling.address, case);
                lanes.push(Lane { name: "ceiling".to_owned(), target, pid: Some(ceiling.pid()) });
                lanes.push(Lane { name: "direct".to_owned(), target: plain(server.address, case), pid: None });
                if let Some([legacy, modern]) = &self.controls {
                    let control = if case.server == Era::Legacy { legacy } else { modern };
                    let target = plain(control.address, case);
                    lanes.push(Lane { name: "control".to_owned(), target, pid: Some(control.pid()) });
                }
                let fits = |peer: &&crate::peer::Peer| {
                    (peer.client, peer.server, Wire::Http) == (case.client, case.server, case.wire)
                };
                for peer in args.peers.iter().filter(fits) {
                    lanes.push(Lane { name: peer.name.clone(), target: peer.call(tool), pid: peer.pid() });
                }
            }
        }
        Ok(lanes)
    }

    /// A server that answers with the gateway's own list; without a gateway, with the upstream's.
    async fn fixed_lane(&mut self, case: &Case) -> Result<Lane> {
        let Ask::List(tools) = case.ask else { anyhow::bail!("not a list") };
        let server = if tools == 1000 { &self.many } else { &self.legacy };
        let source = match &self.gateway {
            Some(gateway) => gateway.list(case.client, case.server_name(), tools),
            None => plain(server.address, case),
        };
        let (body, kind) = fetch(&source).await.context("cannot fetch a list for the fixed body")?;
        let files = tempfile::tempdir()?;
        let file = files.path().join("body");
        std::fs::write(&file, body)?;
        let running = Running::start("static", &[file.display().to_string(), kind.to_owned()]).await?;
        let target = Target { fixed: true, address: running.address, era: source.era, ..plain(server.address, case) };
        let lane = Lane { name: "static".to_owned(), target, pid: Some(running.pid()) };
        self.fixed = Some((running, files));
        Ok(lane)
    }
}

/// How to call without a gateway: in the server's own era.
fn plain(address: SocketAddr, case: &Case) -> Target {
    let op = match case.ask {
        Ask::Call(tool) => Op::Call { tool, exposed: tool.to_owned() },
        Ask::List(tools) => Op::List { tools },
    };
    Target { address, path: "/mcp".to_owned(), era: case.server, op, key: None, fixed: false }
}

/// The bytes of one answer, and their content type.
async fn fetch(target: &Target) -> Result<(Vec<u8>, &'static str)> {
    let mut connection = Connection::open(target.address).await?;
    let mut session = None;
    if target.era == Era::Legacy {
        session = connection.exchange(&target.initialize()).await?.session;
        connection.exchange(&target.initialized(session.as_deref())).await?;
    }
    let head = connection.exchange(&target.template(session.as_deref()).bytes).await?;
    Ok((connection.body, if head.sse { "text/event-stream" } else { "application/json" }))
}
