//! Requests to the admin listener of a running gateway. Owns one exchange over plain HTTP.
//!
//! Does not know where the listener is (`locate.rs`). Invariant: reads are bounded in size, and
//! waits in time.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use moongate_api::ApiError;
use moongate_platform::unix_socket::UnixStream;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cli::locate::{self, LocatedGateway};
use crate::cli::process::{CONFIG_VARIABLE, UnusableConfig, load_options};
use moongate_config::LoadOptions;
use moongate_listener::{ListenAddress, UNIX};

/// Time limit for a page that needs no work.
const PAGE_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size of a response, in bytes.
const ANSWER_MAX: u64 = 64 * 1024 * 1024;

/// Which gateway to talk to, as operators do.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AdminArgs {
    /// The gateway's admin listener: an address or `unix:PATH`; default: the one in the config
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// The key to send, one of `admin.keys`; prefer the variable, because other users can see
    /// command lines
    #[arg(
        long,
        value_name = "KEY",
        env = "MOONGATE_ADMIN_KEY",
        hide_env_values = true
    )]
    pub admin_key: Option<String>,
}

/// Advice for those who know the address.
const FLAG: &str = "give the address of its admin listener with --admin";

impl AdminArgs {
    /// Returns the flags of a command that has none itself: only the variable can carry a key.
    pub(super) fn of_environment() -> Self {
        AdminArgs {
            admin: None,
            admin_key: std::env::var("MOONGATE_ADMIN_KEY").ok(),
        }
    }
}

/// The same, with the config that says where the gateway is.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct GatewayArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// The gateway's config; repeat the flag to let later files override earlier ones
    #[arg(long, short, value_name = "PATH", env = CONFIG_VARIABLE)]
    config: Vec<PathBuf>,
}

/// Client of one gateway's admin listener.
pub(super) struct AdminClient {
    located: LocatedGateway,
    key: Option<String>,
}

impl GatewayArgs {
    /// Returns a client for the listener that the flags, or else the config, name.
    pub(super) fn client(&self) -> anyhow::Result<AdminClient> {
        self.admin.client(&self.config)
    }

    /// Creates the flags from their values.
    pub(super) fn of(admin: Option<String>, config: Vec<PathBuf>) -> Self {
        // As `clap` reads it, for a command line that is not complete.
        let admin_key = std::env::var("MOONGATE_ADMIN_KEY").ok();
        GatewayArgs {
            admin: AdminArgs { admin, admin_key },
            config,
        }
    }

    /// Returns the options to load the gateway's config.
    pub(super) fn load_options(&self) -> LoadOptions<'static> {
        load_options(&self.config)
    }

    /// True if a flag says where the gateway is.
    pub(super) fn names_gateway(&self) -> bool {
        self.admin.admin.is_some()
    }
}

impl AdminArgs {
    /// Returns a client for the listener that the flag, or else the config, names.
    pub(super) fn client(&self, config: &[PathBuf]) -> anyhow::Result<AdminClient> {
        let located = match &self.admin {
            Some(address) => LocatedGateway {
                address: reachable_address(address),
                certificate: None,
                origin: "what --admin says".to_owned(),
            },
            None => {
                locate::admin(config).map_err(|error| UnusableConfig(format!("{error}; {FLAG}")))?
            }
        };
        Ok(AdminClient {
            located,
            key: self.admin_key.clone(),
        })
    }
}

/// Returns the address to connect to where a flag has one to listen on.
fn reachable_address(text: &str) -> String {
    // A name such as `localhost:9090` is one to connect to already.
    let listen = text.parse::<SocketAddr>().map(ListenAddress::Tcp).ok();
    listen
        .as_ref()
        .and_then(locate::local_address)
        .unwrap_or_else(|| text.to_owned())
}

/// Response of the admin listener.
pub(super) struct AdminResponse {
    pub(super) status: u16,
    body: Vec<u8>,
}

impl AdminResponse {
    /// True if a gateway is there and does not answer whoever asks: without a key, with a wrong
    /// one, or after too many wrong ones.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self.status, 401 | 403 | 429)
    }

    /// Parses the body. Only a gateway of this API answers so.
    pub(super) fn read<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        serde_json::from_slice(&self.body)
            .context("the answer is not from Moongate: it is not JSON")
    }

    /// Reads the error of a response. Whatever listens there may not be a gateway, and then the
    /// error is empty.
    pub(super) fn error(&self) -> ApiError {
        read_error(&self.body)
    }
}

/// Reads the error in a body. Whatever wrote it may not be a gateway, and then the error is empty.
pub(super) fn read_error(body: &[u8]) -> ApiError {
    serde_json::from_slice(body).unwrap_or_default()
}

impl AdminClient {
    /// Returns the address of the page. `None` for a Unix socket.
    pub(super) fn page_url(&self) -> Option<String> {
        let address = &self.located.address;
        (!address.starts_with(UNIX)).then(|| format!("http://{address}/"))
    }

    /// Returns the header line with the key.
    fn authorization(&self) -> anyhow::Result<String> {
        let Some(key) = self
            .key
            .as_deref()
            .map(str::trim)
            .filter(|key| !key.is_empty())
        else {
            return Ok(String::new());
        };
        // A line break in the key would start another header.
        anyhow::ensure!(
            key.bytes().all(|b| b.is_ascii_graphic()),
            "the admin key has characters that a key cannot contain"
        );
        Ok(format!("Authorization: Bearer {key}\r\n"))
    }

    /// Requests a page that needs no work. Returns its status and body.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<(u16, Vec<u8>)> {
        let answer = self.request_page(path).await?;
        Ok((answer.status, answer.body))
    }

    /// Requests a page that needs no work.
    pub(super) async fn request_page(&self, path: &str) -> anyhow::Result<AdminResponse> {
        self.send_request("GET", path, PAGE_TIMEOUT).await
    }

    /// Sends a request without a body and waits for the response.
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
        let address = self.located.address.as_str();
        let socket = address.strip_prefix(UNIX);
        let host = if socket.is_some() {
            "localhost"
        } else {
            address
        };
        let authorization = self.authorization()?;
        // HTTP/1.0: the response is never chunked, and the server closes the connection at its end.
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: {host}\r\n{authorization}Content-Length: 0\r\n\r\n"
        );
        let mut answer = match socket {
            Some(path) => {
                let stream = UnixStream::connect(path).await;
                exchange_bytes(stream.with_context(|| self.cannot_connect())?, &head).await?
            }
            None => {
                let stream = TcpStream::connect(address).await;
                exchange_bytes(stream.with_context(|| self.cannot_connect())?, &head).await?
            }
        };
        let status = answer
            .split(|b| *b == b' ')
            .nth(1)
            .and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
        let body = memchr::memmem::find(&answer, b"\r\n\r\n").map(|at| answer.split_off(at + 4));
        match (status, body) {
            (Some(status), Some(body)) => Ok(AdminResponse { status, body }),
            _ => bail!("what answered at {address} does not speak HTTP"),
        }
    }

    fn cannot_connect(&self) -> String {
        format!("cannot connect: {}; {FLAG}", self.located.advice())
    }
}

async fn exchange_bytes<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    head: &str,
) -> std::io::Result<Vec<u8>> {
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    // Bounded: whatever listens at that address need not be a gateway.
    stream.take(ANSWER_MAX).read_to_end(&mut answer).await?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_address_of_all_interfaces_is_replaced() {
        for (flag, reached) in [
            ("10.0.0.0:9000", "10.0.0.0:9000"),
            ("0.0.0.0:9090", "127.0.0.1:9090"),
            ("[::]:9090", "[::1]:9090"),
            ("[2001:db8::]:9090", "[2001:db8::]:9090"),
            ("localhost:9090", "localhost:9090"),
            ("unix:/run/0.0.0.0", "unix:/run/0.0.0.0"),
        ] {
            assert_eq!(reachable_address(flag), reached);
        }
    }
}
