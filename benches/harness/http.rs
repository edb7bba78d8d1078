//! A minimal HTTP/1.1 client on a raw socket: keep-alive, Content-Length and chunked answers,
//! nothing else.

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The largest head and the largest body it takes.
const MAX_HEAD: usize = 64 * 1024;
const MAX_BODY: usize = 64 * 1024 * 1024;

/// What an answer's head says.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) sse: bool,
    pub(crate) session: Option<String>,
    length: Option<usize>,
    chunked: bool,
    close: bool,
}

/// One connection; `body` holds the last answer's.
pub(crate) struct Connection {
    stream: TcpStream,
    /// What was read and not yet used: `buffer[used..]`.
    buffer: Vec<u8>,
    used: usize,
    pub(crate) body: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::with_capacity(32 * 1024),
            used: 0,
            body: Vec::with_capacity(32 * 1024),
        })
    }

    /// Sends one request, which is complete as it stands, and reads the whole answer.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<Head> {
        let head = self.begin(request).await?;
        self.rest(&head).await?;
        ensure!(
            !head.close,
            "the other side closes the connection after an answer"
        );
        Ok(head)
    }

    /// Reads the body that belongs to a head.
    pub(crate) async fn rest(&mut self, head: &Head) -> Result<()> {
        if head.chunked {
            while self.chunk().await? {}
        } else {
            let length = head.length.unwrap_or(0);
            ensure!(
                head.length.is_some() || matches!(head.status, 202 | 204),
                "an answer without a length"
            );
            self.take(length).await?;
        }
        Ok(())
    }

    /// Sends one request and reads the head of its answer.
    pub(crate) async fn begin(&mut self, request: &[u8]) -> Result<Head> {
        ensure!(
            self.used == self.buffer.len(),
            "more came than the last answer"
        );
        self.stream
            .write_all(request)
            .await
            .context("cannot send")?;
        self.buffer.clear();
        self.used = 0;
        self.body.clear();
        loop {
            if let Some(end) = memmem::find(&self.buffer, b"\r\n\r\n") {
                self.used = end + 4;
                return head(self.buffer.get(..end).unwrap_or_default());
            }
            ensure!(
                self.buffer.len() < MAX_HEAD,
                "the answer's head is too long"
            );
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<()> {
        let count = self
            .stream
            .read_buf(&mut self.buffer)
            .await
            .context("cannot receive")?;
        ensure!(
            count > 0,
            "the other side closed the connection in the middle of an answer"
        );
        Ok(())
    }

    /// Moves the next `length` bytes into the body.
    async fn take(&mut self, length: usize) -> Result<()> {
        ensure!(
            self.body.len() + length <= MAX_BODY,
            "the answer's body is too long"
        );
        while self.buffer.len() < self.used + length {
            self.fill().await?;
        }
        self.body.extend_from_slice(
            self.buffer
                .get(self.used..self.used + length)
                .unwrap_or_default(),
        );
        self.used += length;
        Ok(())
    }

    /// Moves the next chunk into the body; false: that was the last one.
    pub(crate) async fn chunk(&mut self) -> Result<bool> {
        let size = loop {
            let rest = self.buffer.get(self.used..).unwrap_or_default();
            if let Some(end) = memmem::find(rest, b"\r\n") {
                let line = std::str::from_utf8(rest.get(..end).unwrap_or_default())?;
                let size = line.split(';').next().unwrap_or_default().trim();
                let size = usize::from_str_radix(size, 16)
                    .with_context(|| format!("bad chunk size {line:?}"))?;
                self.used += end + 2;
                break size;
            }
            ensure!(rest.len() < MAX_HEAD, "a chunk's head is too long");
            self.fill().await?;
        };
        self.take(size).await?;
        while self.buffer.len() < self.used + 2 {
            self.fill().await?;
        }
        ensure!(
            self.buffer.get(self.used..self.used + 2) == Some(b"\r\n"),
            "a chunk, or trailers, not understood"
        );
        self.used += 2;
        Ok(size > 0)
    }
}

fn head(bytes: &[u8]) -> Result<Head> {
    let text = std::str::from_utf8(bytes).context("the answer's head is not text")?;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let Some(status) = first
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
    else {
        bail!("not an HTTP/1.1 answer: {first:?}");
    };
    let mut head = Head {
        status: status.parse()?,
        ..Head::default()
    };
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            head.length = Some(value.parse()?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            head.chunked = value.eq_ignore_ascii_case("chunked");
        } else if name.eq_ignore_ascii_case("content-type") {
            head.sse = value.starts_with("text/event-stream");
        } else if name.eq_ignore_ascii_case("mcp-session-id") {
            head.session = Some(value.to_owned());
        } else if name.eq_ignore_ascii_case("connection") {
            head.close = value.eq_ignore_ascii_case("close");
        }
    }
    Ok(head)
}
