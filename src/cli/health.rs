//! `moongate health`: is a running gateway ready?

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::cli::say;
use crate::front::UNIX;

/// Flags of `health`.
#[derive(Clone, Debug, clap::Args)]
pub struct HealthArgs {
    /// The admin listener of the gateway: an address, or `unix:PATH`
    #[arg(long, value_name = "ADDR", env = "MOONGATE_GATEWAY__ADMIN", default_value = "127.0.0.1:9090")]
    pub admin: String,
}

/// Asks `/readyz`. Exit code 0: ready; 1: not.
pub async fn run(args: HealthArgs) -> anyhow::Result<ExitCode> {
    let ready = tokio::time::timeout(Duration::from_secs(3), ask(&args.admin)).await;
    let ready = ready.context("no answer within 3 s")??;
    if !ready {
        say("not ready");
    }
    Ok(if ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn ask(admin: &str) -> anyhow::Result<bool> {
    // A listener on every address is asked on this machine.
    let address = admin.replacen("0.0.0.0", "127.0.0.1", 1).replacen("[::]", "[::1]", 1);
    let cannot = || format!("cannot connect to {address}");
    let answer = match address.strip_prefix(UNIX) {
        Some(path) => talk(UnixStream::connect(path).await.with_context(cannot)?, "localhost").await?,
        None => talk(TcpStream::connect(&address).await.with_context(cannot)?, &address).await?,
    };
    let status = answer.split(|b| *b == b' ').nth(1).unwrap_or_default();
    Ok(status == b"200")
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, host: &str) -> std::io::Result<Vec<u8>> {
    stream.write_all(format!("GET /readyz HTTP/1.0\r\nHost: {host}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer).await?;
    Ok(answer)
}
