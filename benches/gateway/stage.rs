//! The processes of a run, and for each row the targets that take turns.

use crate::args::BenchArgs;
use crate::harness::cases::{AskedFor, BenchCase, ServerWire};
use crate::harness::gateway::BenchGateway;
use crate::harness::http::Connection;
use crate::harness::servers::{BenchUpstreams, ServerProcess, plain};
use crate::harness::target::LoadTarget;
use crate::harness::wire::ProtocolEra;
use anyhow::{Context, Result};
use tempfile::TempDir;

/// One column of a row: a name, how to call, and the process whose time counts.
pub(crate) struct TableColumn {
    pub(crate) name: String,
    pub(crate) target: LoadTarget,
    pub(crate) pid: Option<u32>,
}

/// Everything that runs during the measurements.
pub(crate) struct BenchStage {
    pub(crate) upstreams: BenchUpstreams,
    legacy_ceiling: ServerProcess,
    modern_ceiling: ServerProcess,
    /// A second ceiling for the legacy upstream and one for the modern.
    controls: Option<[ServerProcess; 2]>,
    pub(crate) gateway: Option<BenchGateway>,
    /// Why there is no gateway.
    pub(crate) missing: Option<String>,
    fixed: Option<(ServerProcess, TempDir)>,
}

impl BenchStage {
    pub(crate) async fn start(args: &BenchArgs) -> Result<Self> {
        let upstreams = BenchUpstreams::start(args.upstream_port).await?;
        let legacy = [upstreams.legacy.address().to_string()];
        let modern = [upstreams.modern.address().to_string()];
        let legacy_ceiling = ServerProcess::start("ceiling", &legacy).await?;
        let modern_ceiling = ServerProcess::start("ceiling", &modern).await?;
        let controls = match args.control {
            true => Some([
                ServerProcess::start("ceiling", &legacy).await?,
                ServerProcess::start("ceiling", &modern).await?,
            ]),
            false => None,
        };
        let mut stage = Self {
            upstreams,
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
            match stage.upstreams.gateway(&args.bin, &[]).await {
                Ok(gateway) => stage.gateway = Some(gateway),
                Err(error) => stage.missing = Some(format!("{error:#}")),
            }
        }
        Ok(stage)
    }

    pub(crate) fn ceiling_pid(&self) -> u32 {
        self.legacy_ceiling.pid()
    }

    /// The targets of a row.
    pub(crate) async fn lanes(
        &mut self,
        case: &BenchCase,
        args: &BenchArgs,
    ) -> Result<Vec<TableColumn>> {
        let mut lanes = Vec::new();
        if let Some(gateway) = &self.gateway {
            let target = gateway.target(case);
            lanes.push(TableColumn {
                name: "gateway".to_owned(),
                target,
                pid: Some(gateway.process.pid),
            });
        }
        match case.ask {
            AskedFor::List(_) => lanes.push(self.fixed_lane(case).await?),
            AskedFor::Call(tool) => {
                let ceiling = match case.server {
                    ProtocolEra::Legacy => &self.legacy_ceiling,
                    ProtocolEra::Modern => &self.modern_ceiling,
                };
                let target = plain(ceiling.address(), case);
                lanes.push(TableColumn {
                    name: "ceiling".to_owned(),
                    target,
                    pid: Some(ceiling.pid()),
                });
                let target = plain(self.upstreams.serving(case).address(), case);
                lanes.push(TableColumn {
                    name: "direct".to_owned(),
                    target,
                    pid: None,
                });
                if let Some([legacy, modern]) = &self.controls {
                    let control = if case.server == ProtocolEra::Legacy {
                        legacy
                    } else {
                        modern
                    };
                    let target = plain(control.address(), case);
                    lanes.push(TableColumn {
                        name: "control".to_owned(),
                        target,
                        pid: Some(control.pid()),
                    });
                }
                let fits = |peer: &&crate::peer::PeerGateway| {
                    (peer.client, peer.server, ServerWire::Http)
                        == (case.client, case.server, case.wire)
                };
                for peer in args.peers.iter().filter(fits) {
                    lanes.push(TableColumn {
                        name: peer.name.clone(),
                        target: peer.call(tool),
                        pid: peer.pid(),
                    });
                }
            }
        }
        Ok(lanes)
    }

    /// A server that answers with the gateway's own list; without a gateway, with the upstream's.
    async fn fixed_lane(&mut self, case: &BenchCase) -> Result<TableColumn> {
        let direct = plain(self.upstreams.serving(case).address(), case);
        let source = match &self.gateway {
            Some(gateway) => gateway.target(case),
            None => direct.clone(),
        };
        let (body, kind) = fetch(&source)
            .await
            .context("cannot fetch a list for the fixed body")?;
        let files = tempfile::tempdir()?;
        let file = files.path().join("body");
        std::fs::write(&file, body)?;
        let running =
            ServerProcess::start("static", &[file.display().to_string(), kind.to_owned()]).await?;
        let target = LoadTarget {
            fixed: true,
            address: running.address(),
            era: source.era,
            ..direct
        };
        let lane = TableColumn {
            name: "static".to_owned(),
            target,
            pid: Some(running.pid()),
        };
        self.fixed = Some((running, files));
        Ok(lane)
    }
}

/// The bytes of one answer, and their content type.
async fn fetch(target: &LoadTarget) -> Result<(Vec<u8>, &'static str)> {
    let mut connection = Connection::open(target.address).await?;
    let mut session = None;
    if target.era == ProtocolEra::Legacy {
        session = connection.exchange(&target.initialize()).await?.session;
        connection
            .exchange(&target.initialized(session.as_deref()))
            .await?;
    }
    let head = connection
        .exchange(&target.template(session.as_deref()).bytes)
        .await?;
    Ok((
        connection.body,
        if head.sse {
            "text/event-stream"
        } else {
            "application/json"
        },
    ))
}
