//! Requests to the admin listener of a running gateway.
//!
//! Owns one small exchange over plain HTTP. Does not know where the listener is (`locate`). Invariant: what it reads is bounded, and it waits no longer than it is told.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::cli::locate::{self, LocatedGateway};
use crate::front::UNIX;

/// Longest time for a page that is there at once.
const PAGE_TIMEOUT: Duration = Duration::from_secs(3);
/// The largest answer.
const ANSWER_MAX: u64 = 64 * 1024 * 1024;

/// Which gateway to talk to, as operators do.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AdminArgs {
    /// The admin listener of the gateway: an address, or `unix:PATH`; default: where the config says
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// The key to send, one of `admin.keys`; better in the variable, since others can see a command line
    #[arg(long, value_name = "KEY", env = "MOONGATE_ADMIN_KEY", hide_env_values = true)]
    pub admin_key: Option<String>,
}

/// The same, with the config that says where the gateway is.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct GatewayArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// The config of the gateway; repeat it to lay later files over earlier ones
    #[arg(long = "config", short = 'c', value_name = "PATH", env = "MOONGATE_CONFIG")]
    config: Vec<PathBuf>,
}

/// The admin listener of one gateway.
pub(super) struct AdminClient {
    located: LocatedGateway,
    key: Option<String>,
}

impl GatewayArgs {
    /// The listener that the flags, or else the config, name.
    pub(super) fn client(&self) -> anyhow::Result<AdminClient> {
        self.admin.client(&self.config)
    }
}

impl AdminArgs {
    /// The listener that the flag, or else the config, names.
    pub(super) fn client(&self, config: &[PathBuf]) -> anyhow::Result<AdminClient> {
        let located = match &self.admin {
            Some(place) => {
                // A listener on every address is asked on this machine.
                let place = place.replacen("0.0.0.0", "127.0.0.1", 1).replacen("[::]", "[::1]", 1);
                LocatedGateway { place, certificate: None, origin: "what --admin says".to_owned() }
            }
            None => locate::admin(config).map_err(anyhow::Error::msg)?,
        };
        Ok(AdminClient { located, key: self.admin_key.clone() })
    }
}

/// An answer: its status and its body.
pub(super) struct AdminResponse {
    pub(super) status: u16,
    body: Vec<u8>,
}

impl AdminResponse {
    /// The body, which is JSON wherever the gateway is what answers.
    pub(super) fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_slice(&self.body).context("what answered is no Moongate: its answer is not JSON")
    }
}

impl AdminClient {
    /// The line of the request's head that shows the key.
    fn authorization(&self) -> anyhow::Result<String> {
        let Some(key) = self.key.as_deref().map(str::trim).filter(|key| !key.is_empty()) else {
            return Ok(String::new());
        };
        anyhow::ensure!(key.bytes().all(|b| b.is_ascii_graphic()), "the admin key has characters that no key has");
        Ok(format!("Authorization: Bearer {key}\r\n"))
    }

    /// The status and the body of a page that is there at once.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<(u16, Vec<u8>)> {
        let answer = self.send_request("GET", path, PAGE_TIMEOUT).await?;
        Ok((answer.status, answer.body))
    }

    /// Sends a request without a body and waits for the answer.
    pub(super) async fn send_request(
        &self,
        method: &str,
        path: &str,
        limit: Duration,
    ) -> anyhow::Result<AdminResponse> {
        let answer = tokio::time::timeout(limit, self.exchange(method, path)).await;
        answer.with_context(|| format!("no answer within {limit:?}"))?
    }

    async fn exchange(&self, method: &str, path: &str) -> anyhow::Result<AdminResponse> {
        let address = &self.located.place;
        let cannot = || format!("cannot connect: {}", self.located.advice());
        let authorization = self.authorization()?;
        let head = |host: &str| {
            format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\n{authorization}Content-Length: 0\r\n\r\n")
        };
        let mut answer = match address.strip_prefix(UNIX) {
            Some(path) => {
                exchange_bytes(UnixStream::connect(path).await.with_context(cannot)?, &head("localhost")).await?
            }
            None => exchange_bytes(TcpStream::connect(address).await.with_context(cannot)?, &head(address)).await?,
        };
        let status = answer.split(|b| *b == b' ').nth(1).and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
        let body = memchr::memmem::find(&answer, b"\r\n\r\n").map(|at| answer.split_off(at + 4));
        match (status, body) {
            (Some(status), Some(body)) => Ok(AdminResponse { status, body }),
            _ => bail!("what answered at {address} does not speak HTTP"),
        }
    }
}

async fn exchange_bytes<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, head: &str) -> std::io::Result<Vec<u8>> {
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer).await?;
    Ok(answer)
}
