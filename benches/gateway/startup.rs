//! How fast the gateway is there when half of its servers are not, and what it holds when idle.

use crate::args::BenchArgs;
use crate::harness::gateway::{BenchGateway, BenchServer, arguments, files};
use crate::harness::process::Process;
use crate::harness::servers::ServerProcess;
use crate::harness::wire::ProtocolEra;
use crate::stage::BenchStage;
use crate::usage::resident;
use anyhow::{Context, Result, ensure};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

/// What was found.
pub(crate) struct StartupFigures {
    /// Milliseconds from spawn to the first connection, of each try, sorted.
    pub(crate) listening: Vec<f64>,
    /// Milliseconds from start to the first call answered by a server that works.
    pub(crate) first_call: f64,
    /// Resident KiB with ten servers configured, after five seconds without a request.
    pub(crate) idle: Option<u64>,
}

/// Starts the gateway with five servers that work and five that hang, refuse or do not exist.
pub(crate) async fn measure(args: &BenchArgs, stage: &BenchStage) -> Result<StartupFigures> {
    ensure!(
        args.bin.is_file(),
        "there is no gateway at {}",
        args.bin.display()
    );
    let mute = ServerProcess::start("mute", &[]).await?;
    let servers = servers(stage, mute.address())?;
    let tries = if args.quick { 3 } else { 9 };
    let mut listening = Vec::new();
    for _ in 0..tries {
        listening.push(once(args, &servers).await?);
    }
    listening.sort_by(f64::total_cmp);
    let start = Instant::now();
    let gateway = BenchGateway::start(&args.bin, &[], &servers).await?;
    gateway
        .ready(
            &gateway.call(ProtocolEra::Legacy, "legacy1", "echo64"),
            PATIENCE,
        )
        .await?;
    let first_call = start.elapsed().as_secs_f64() * 1e3;
    sleep(Duration::from_secs(5)).await;
    let idle = resident(gateway.process.pid);
    gateway.process.stop(Duration::from_secs(5)).await;
    Ok(StartupFigures {
        listening,
        first_call,
        idle,
    })
}

fn servers(stage: &BenchStage, mute: SocketAddr) -> Result<Vec<(String, BenchServer)>> {
    let command = |program: &str| BenchServer::Command(PathBuf::from(program), Vec::new());
    let list = [
        (
            "legacy1",
            BenchServer::Url(stage.upstreams.legacy.address()),
        ),
        (
            "legacy2",
            BenchServer::Url(stage.upstreams.legacy.address()),
        ),
        (
            "modern1",
            BenchServer::Url(stage.upstreams.modern.address()),
        ),
        (
            "modern2",
            BenchServer::Url(stage.upstreams.modern.address()),
        ),
        ("stdio", BenchServer::role(&["stdio", "legacy", "10"])?),
        ("hangs", BenchServer::Url(mute)),
        ("refuses", BenchServer::Url(free_port()?)),
        ("silent", BenchServer::role(&["mute-stdio"])?),
        ("ends", command("/bin/false")),
        ("missing", command("/nonexistent/server")),
    ];
    Ok(list
        .map(|(name, server)| (name.to_owned(), server))
        .to_vec())
}

/// A port that nobody listens on: it was free a moment ago.
fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Milliseconds from spawn to the first connection.
async fn once(args: &BenchArgs, servers: &[(String, BenchServer)]) -> Result<f64> {
    let address = free_port()?;
    let (_files, config) = files(&address.to_string(), servers)?;
    let mut command = Command::new(&args.bin);
    command.args(arguments(&config));
    let start = Instant::now();
    let process = Process::start("the gateway", command)?;
    let up = timeout(PATIENCE, async {
        while !connects(address).await {
            sleep(Duration::from_millis(1)).await;
        }
    });
    let up = up
        .await
        .with_context(|| format!("it does not listen; it said:\n{}", process.tail()));
    let elapsed = start.elapsed().as_secs_f64() * 1e3;
    process.stop(Duration::from_secs(5)).await;
    up.map(|()| elapsed)
}

/// Whether someone listens; a connection to itself, which the kernel allows, is none.
async fn connects(address: SocketAddr) -> bool {
    let stream = TcpStream::connect(address).await;
    stream
        .and_then(|stream| stream.local_addr())
        .is_ok_and(|own| own != address)
}
