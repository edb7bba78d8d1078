//! The processes of a run, and for each row the targets that take turns.

use crate::args::BenchArgs;
use crate::harness::cases::{AskedFor, BenchCase, ServerWire};
use crate::harness::gateway::{BenchGateway, BenchServer};
use crate::harness::http::Connection;
use crate::harness::process::Process;
use crate::harness::target::{LoadTarget, RepeatedRequest};
use crate::harness::wire::ProtocolEra;
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(15);

/// One of our servers.
pub(crate) struct RunningServer {
    process: Process,
    address: SocketAddr,
}

impl RunningServer {
    pub(crate) async fn start(role: &str, args: &[String]) -> Result<Self> {
        let mut process = Process::role(role, role, args)?;
        let address = process.address(PATIENCE).await?;
        Ok(Self { process, address })
    }

    pub(crate) async fn upstream(era: ProtocolEra, tools: usize, port: u16) -> Result<Self> {
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
pub(crate) struct TableColumn {
    pub(crate) name: String,
    pub(crate) target: LoadTarget,
    pub(crate) pid: Option<u32>,
}

/// Everything that runs during the measurements.
pub(crate) struct BenchStage {
    pub(crate) legacy: RunningServer,
    pub(crate) modern: RunningServer,
    many: RunningServer,
    legacy_ceiling: RunningServer,
    modern_ceiling: RunningServer,
    /// A second ceiling for the legacy upstream and one for the modern.
    controls: Option<[RunningServer; 2]>,
    pub(crate) gateway: Option<BenchGateway>,
    /// Why there is no gateway.
    pub(crate) missing: Option<String>,
    fixed: Option<(RunningServer, TempDir)>,
}

impl BenchStage {
    pub(crate) async fn start(args: &BenchArgs) -> Result<Self> {
        let base = args.upstream_port;
        let legacy = RunningServer::upstream(ProtocolEra::Legacy, 10, base).await?;
        let modern = RunningServer::upstream(ProtocolEra::Modern, 10, if base == 0 { 0 } else { base + 1 }).await?;
        let many = RunningServer::upstream(ProtocolEra::Legacy, 1000, 0).await?;
        let legacy_ceiling = RunningServer::start("ceiling", &[legacy.address.to_string()]).await?;
        let modern_ceiling = RunningServer::start("ceiling", &[modern.address.to_string()]).await?;
        let controls = match args.control {
            true => Some([
                RunningServer::start("ceiling", &[legacy.address.to_string()]).await?,
                RunningServer::start("ceiling", &[modern.address.to_string()]).await?,
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

    async fn start_gateway(&self, args: &BenchArgs) -> Result<BenchGateway> {
        let servers = [
            ("legacy".to_owned(), BenchServer::Url(self.legacy.address)),
            ("modern".to_owned(), BenchServer::Url(self.modern.address)),
            ("many".to_owned(), BenchServer::Url(self.many.address)),
            ("stdio".to_owned(), BenchServer::role(&["stdio", "legacy", "10"])?),
        ];
        let gateway = BenchGateway::start(&args.bin, &[], &servers).await?;
        for (name, _) in &servers {
            gateway.ready(&gateway.call(ProtocolEra::Legacy, name, "echo64"), PATIENCE).await?;
        }
        Ok(gateway)
    }

    pub(crate) fn ceiling_pid(&self) -> u32 {
        self.legacy_ceiling.pid()
    }

    /// The targets of a row.
    pub(crate) async fn lanes(&mut self, case: &BenchCase, args: &BenchArgs) -> Result<Vec<TableColumn>> {
        let mut lanes = Vec::new();
        if let Some(gateway) = &self.gateway {
            let target = match case.ask {
                AskedFor::Call(tool) => gateway.call(case.client, case.server_name(), tool),
                AskedFor::List(tools) => gateway.list(case.client, case.server_name(), tools),
            };
            lanes.push(TableColumn { name: "gateway".to_owned(), target, pid: Some(gateway.process.pid) });
        }
        match case.ask {
            AskedFor::List(_) => lanes.push(self.fixed_lane(case).await?),
            AskedFor::Call(tool) => {
                let (ceiling, server) = match case.server {
                    ProtocolEra::Legacy => (&self.legacy_ceiling, &self.legacy),
                    ProtocolEra::Modern => (&self.modern_ceiling, &self.modern),
                };
                let target = plain(ceiling.address, case);
                lanes.push(TableColumn { name: "ceiling".to_owned(), target, pid: Some(ceiling.pid()) });
                lanes.push(TableColumn { name: "direct".to_owned(), target: plain(server.address, case), pid: None });
                if let Some([legacy, modern]) = &self.controls {
                    let control = if case.server == ProtocolEra::Legacy { legacy } else { modern };
                    let target = plain(control.address, case);
                    lanes.push(TableColumn { name: "control".to_owned(), target, pid: Some(control.pid()) });
                }
                let fits = |peer: &&crate::peer::PeerGateway| {
                    (peer.client, peer.server, ServerWire::Http) == (case.client, case.server, case.wire)
                };
                for peer in args.peers.iter().filter(fits) {
                    lanes.push(TableColumn { name: peer.name.clone(), target: peer.call(tool), pid: peer.pid() });
                }
            }
        }
        Ok(lanes)
    }

    /// A server that answers with the gateway's own list; without a gateway, with the upstream's.
    async fn fixed_lane(&mut self, case: &BenchCase) -> Result<TableColumn> {
        let AskedFor::List(tools) = case.ask else { anyhow::bail!("not a list") };
        let server = if tools == 1000 { &self.many } else { &self.legacy };
        let source = match &self.gateway {
            Some(gateway) => gateway.list(case.client, case.server_name(), tools),
            None => plain(server.address, case),
        };
        let (body, kind) = fetch(&source).await.context("cannot fetch a list for the fixed body")?;
        let files = tempfile::tempdir()?;
        let file = files.path().join("body");
        std::fs::write(&file, body)?;
        let running = RunningServer::start("static", &[file.display().to_string(), kind.to_owned()]).await?;
        let target =
            LoadTarget { fixed: true, address: running.address, era: source.era, ..plain(server.address, case) };
        let lane = TableColumn { name: "static".to_owned(), target, pid: Some(running.pid()) };
        self.fixed = Some((running, files));
        Ok(lane)
    }
}

/// How to call without a gateway: in the server's own era.
fn plain(address: SocketAddr, case: &BenchCase) -> LoadTarget {
    let op = match case.ask {
        AskedFor::Call(tool) => RepeatedRequest::Call { tool, exposed: tool.to_owned() },
        AskedFor::List(tools) => RepeatedRequest::List { tools },
    };
    LoadTarget { address, path: "/mcp".to_owned(), era: case.server, op, key: None, fixed: false }
}

/// The bytes of one answer, and their content type.
async fn fetch(target: &LoadTarget) -> Result<(Vec<u8>, &'static str)> {
    let mut connection = Connection::open(target.address).await?;
    let mut session = None;
    if target.era == ProtocolEra::Legacy {
        session = connection.exchange(&target.initialize()).await?.session;
        connection.exchange(&target.initialized(session.as_deref())).await?;
    }
    let head = connection.exchange(&target.template(session.as_deref()).bytes).await?;
    Ok((connection.body, if head.sse { "text/event-stream" } else { "application/json" }))
}
