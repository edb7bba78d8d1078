//! The servers of a run, and how to reach them without a gateway.

use super::cases::{AskedFor, BenchCase};
use super::gateway::{BenchGateway, BenchServer};
use super::process::Process;
use super::target::{LoadTarget, RepeatedRequest};
use super::wire::ProtocolEra;
use anyhow::Result;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// How long a start may take: under a wrapper such as valgrind everything takes longer.
pub(crate) fn patience(wrapper: &[String]) -> Duration {
    Duration::from_secs(if wrapper.is_empty() { 15 } else { 90 })
}

/// One of our servers.
pub(crate) struct ServerProcess {
    process: Process,
    address: SocketAddr,
}

impl ServerProcess {
    pub(crate) async fn start(role: &str, args: &[String]) -> Result<Self> {
        Self::start_under(&[], role, args).await
    }

    /// Starts one of our roles under `wrapper`, the words of a command, if there are any.
    pub(crate) async fn start_under(
        wrapper: &[String],
        role: &str,
        args: &[String],
    ) -> Result<Self> {
        let own = [
            std::env::current_exe()?.display().to_string(),
            "--role".to_owned(),
            role.to_owned(),
        ];
        let mut words = [wrapper, &own, args].concat();
        let program = words.remove(0);
        let mut process = Process::program(role, Path::new(&program), &words)?;
        let address = process.address(patience(wrapper)).await?;
        Ok(Self { process, address })
    }

    pub(crate) async fn upstream(era: ProtocolEra, tools: usize, port: u16) -> Result<Self> {
        Self::start(
            "upstream",
            &[era.name().to_owned(), tools.to_string(), port.to_string()],
        )
        .await
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid
    }
}

/// The upstreams of all rows; the one over stdio is the gateway's own child.
pub(crate) struct BenchUpstreams {
    pub(crate) legacy: ServerProcess,
    pub(crate) modern: ServerProcess,
    /// A legacy one with 1,000 tools.
    pub(crate) many: ServerProcess,
}

impl BenchUpstreams {
    /// Starts them: the legacy one at `port`, the modern one a port above, or where the system
    /// picks if it is 0.
    pub(crate) async fn start(port: u16) -> Result<Self> {
        Ok(Self {
            legacy: ServerProcess::upstream(ProtocolEra::Legacy, 10, port).await?,
            modern: ServerProcess::upstream(
                ProtocolEra::Modern,
                10,
                if port == 0 { 0 } else { port + 1 },
            )
            .await?,
            many: ServerProcess::upstream(ProtocolEra::Legacy, 1000, 0).await?,
        })
    }

    /// Starts a gateway before them, under `wrapper` if there is one, and waits until each can be
    /// called.
    pub(crate) async fn gateway(&self, binary: &Path, wrapper: &[String]) -> Result<BenchGateway> {
        let servers = [
            ("legacy".to_owned(), BenchServer::Url(self.legacy.address)),
            ("modern".to_owned(), BenchServer::Url(self.modern.address)),
            ("many".to_owned(), BenchServer::Url(self.many.address)),
            (
                "stdio".to_owned(),
                BenchServer::role(&["stdio", "legacy", "10"])?,
            ),
        ];
        let gateway = BenchGateway::start(binary, wrapper, &servers).await?;
        for (name, _) in &servers {
            gateway
                .ready(
                    &gateway.call(ProtocolEra::Legacy, name, "echo64"),
                    patience(wrapper),
                )
                .await?;
        }
        Ok(gateway)
    }

    /// The upstream that answers a row over HTTP without a gateway.
    pub(crate) fn serving(&self, case: &BenchCase) -> &ServerProcess {
        match (case.ask, case.server) {
            (AskedFor::List(1000), _) => &self.many,
            (_, ProtocolEra::Legacy) => &self.legacy,
            (_, ProtocolEra::Modern) => &self.modern,
        }
    }
}

/// How to call without a gateway: in the server's own era.
pub(crate) fn plain(address: SocketAddr, case: &BenchCase) -> LoadTarget {
    let op = match case.ask {
        AskedFor::Call(tool) => RepeatedRequest::Call {
            tool,
            exposed: tool.to_owned(),
        },
        AskedFor::List(tools) => RepeatedRequest::List { tools },
    };
    LoadTarget {
        address,
        path: "/mcp".to_owned(),
        era: case.server,
        op,
        key: None,
        fixed: false,
    }
}
