//! Asking the admin listener of a running gateway.
//!
//! Owns the request, its limits and what goes wrong with it. Invariant: it ends, and reads no more than it can hold.

use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::front::UNIX;

/// Longest time for an answer.
const TIME: Duration = Duration::from_secs(3);
/// Largest answer.
const BYTES: u64 = 64 << 20;

/// Where the admin listener is.
#[derive(Clone, Debug, clap::Args)]
pub struct AdminArgs {
    /// The admin listener of the gateway: an address, or `unix:PATH`
    #[arg(long, value_name = "ADDR", env = "MOONGATE_GATEWAY__ADMIN", default_value = "127.0.0.1:9090")]
    pub admin: String,
}

impl AdminArgs {
    /// The status and the body of a page.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<(u16, Vec<u8>)> {
        tokio::time::timeout(TIME, self.ask(path)).await.with_context(|| format!("no answer within {TIME:?}"))?
    }

    async fn ask(&self, path: &str) -> anyhow::Result<(u16, Vec<u8>)> {
        // A listener on every address is asked on this machine.
        let address = self.admin.replacen("0.0.0.0", "127.0.0.1", 1).replacen("[::]", "[::1]", 1);
        let cannot = || format!("cannot connect to {address}");
        let mut answer = match address.strip_prefix(UNIX) {
            Some(socket) => talk(UnixStream::connect(socket).await.with_context(cannot)?, "localhost", path).await?,
            None => talk(TcpStream::connect(&address).await.with_context(cannot)?, &address, path).await?,
        };
        let status = answer.split(|b| *b == b' ').nth(1).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let head = memchr::memmem::find(&answer, b"\r\n\r\n");
        let (Some(status), Some(head)) = (status, head) else {
            anyhow::bail!("what answers at {address} is no gateway")
        };
        Ok((status, answer.split_off(head + 4)))
    }
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, host: &str, path: &str) -> std::io::Result<Vec<u8>> {
    // Of this version, so that the body comes as it is and ends with the connection.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(BYTES).read_to_end(&mut answer).await?;
    Ok(answer)
}
