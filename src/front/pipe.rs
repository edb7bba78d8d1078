//! One client on a pipe: lines in, lines out.
//!
//! Owns reading, writing, their bounds and the end. Does not read messages (`revision`). Invariant: nothing but
//! messages goes out, and the end of the input is the end of everything.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::front::{Front, RequestLimits};
use crate::json::Text;
use crate::jsonrpc::{Id, Payload};
use crate::link::IdScan;
use crate::model::{Error, Principal, Reason, Server};
use crate::revision::PipeClient;

/// Lines that wait for the client to read them; whoever has more to say waits with it.
const WAITING_MAX: usize = 64;
/// How long calls may go on after the client closed its end: "Servers SHOULD exit promptly when their standard input
/// is closed" (2026-07-28/basic/transports/stdio.mdx, Shutdown), but what a script pipes in is answered.
const GRACE: Duration = Duration::from_secs(2);
/// How long the client gets at the end to read what was said.
const FLUSH_TIME: Duration = Duration::from_secs(2);
/// What is kept of the buffer for writing, in bytes.
const WRITE_BUFFER_MAX: usize = 256 * 1024;

/// A client on a pipe, and what it may use.
pub struct PipeFront {
    pub(super) front: Arc<Front>,
    pub(super) principal: Arc<Principal>,
    pub(super) server: Arc<dyn Server>,
    pub(super) scope: Text,
    pub(super) drain: Duration,
}

impl PipeFront {
    /// Serves until the input ends, the client does not read any more, or the gateway drains.
    pub async fn serve<R, W>(self, reader: R, writer: W)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (out, lines) = mpsc::channel(WAITING_MAX);
        let over = CancellationToken::new();
        let writing = tokio::spawn(write_lines(writer, lines, over.clone()));
        let state = self.front.state.clone();
        let draining = state.draining.clone();
        let mut client = PipeClient::new(self.server, self.principal, self.scope, state, out.clone());
        let read = tokio::select! {
            ended = read_lines(reader, &self.front.limits, &mut client) => Some(ended),
            () = draining.cancelled() => None,
            () = out.closed() => Some(Ended::Unread),
        };
        let grace = match read {
            Some(Ended::Unread) => Duration::ZERO,
            Some(Ended::Input) => {
                client.end_listening();
                self.drain.min(GRACE)
            }
            None => self.drain,
        };
        tokio::select! {
            _ = tokio::time::timeout(grace, client.idle()) => {}
            () = out.closed() => {}
        }
        drop(client);
        over.cancel();
        if tokio::time::timeout(FLUSH_TIME, writing).await.is_err() {
            tracing::warn!("the client did not read the last answers");
        }
    }
}

/// Why reading ended.
enum Ended {
    /// The client closed its end.
    Input,
    /// It does not read.
    Unread,
}

async fn read_lines<R: AsyncRead + Unpin>(mut reader: R, limits: &RequestLimits, client: &mut PipeClient) -> Ended {
    let limit = limits.body;
    let mut buffer = BytesMut::with_capacity(16 * 1024);
    let mut scanned = 0;
    // Inside a line that is too long: all of it is thrown away, but for the id of the request that it was.
    let mut skipping: Option<(IdScan, Option<u64>)> = None;
    loop {
        while let Some(at) = memchr::memchr(b'\n', &buffer[scanned..]) {
            let line = buffer.split_to(scanned + at + 1).freeze();
            scanned = 0;
            let taken = match skipping.take() {
                Some((mut scan, id)) => too_long(client, id.or(scan.feed(&line)), limit).await,
                None if line.len() > limit => too_long(client, IdScan::default().feed(&line), limit).await,
                None => take(client, &line, limits.batch).await,
            };
            if taken.is_err() {
                return Ended::Unread;
            }
        }
        scanned = buffer.len();
        if scanned > limit && skipping.is_none() {
            skipping = Some((IdScan::default(), None));
        }
        if let Some((scan, id)) = &mut skipping {
            *id = id.or(scan.feed(&buffer));
            buffer.clear();
            scanned = 0;
        }
        buffer.reserve(8 * 1024);
        match reader.read_buf(&mut buffer).await {
            Ok(n) if n > 0 => {}
            // The last line needs no end.
            end => {
                let rest = buffer.freeze();
                if end.is_ok() && skipping.is_none() && take(client, &rest, limits.batch).await.is_err() {
                    return Ended::Unread;
                }
                return Ended::Input;
            }
        }
    }
}

async fn take(client: &mut PipeClient, line: &Bytes, batch: usize) -> Result<(), crate::revision::Gone> {
    let mut text = line.trim_ascii();
    text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    if text.is_empty() {
        return Ok(());
    }
    client.take(Payload::parse(&line.slice_ref(text), batch)).await
}

async fn too_long(client: &PipeClient, id: Option<u64>, limit: usize) -> Result<(), crate::revision::Gone> {
    let error = Error::new(Reason::TooLarge, format!("The message is larger than {limit} bytes (limits.body)"));
    client.count_too_large();
    client.refuse(id.map(Id::number).as_ref(), &error).await
}

/// Writes until it is told that it is over, and then what is left.
async fn write_lines<W: AsyncWrite + Unpin>(mut writer: W, mut lines: mpsc::Receiver<Bytes>, over: CancellationToken) {
    let mut waiting = Vec::new();
    let mut buffer = BytesMut::new();
    let mut closed = false;
    loop {
        let ending = tokio::select! {
            biased;
            n = lines.recv_many(&mut waiting, WAITING_MAX) => n == 0,
            () = over.cancelled(), if !closed => {
                // Whatever still holds a sender, such as a call that goes on, has nobody to tell.
                lines.close();
                closed = true;
                continue;
            }
        };
        for line in waiting.drain(..) {
            buffer.extend_from_slice(&line);
        }
        let written = async {
            writer.write_all(&buffer).await?;
            writer.flush().await
        };
        if let Err(e) = written.await {
            tracing::debug!("the client's end of the pipe is closed: {e}");
            return;
        }
        if ending {
            return;
        }
        buffer.clear();
        // One large message shall not be paid for ever after.
        if buffer.capacity() > WRITE_BUFFER_MAX {
            buffer = BytesMut::new();
        }
    }
}
