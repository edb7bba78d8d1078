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

use crate::front::Front;
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
        let client = PipeClient::new(self.server, self.principal.clone(), self.scope, state, out.clone());
        let mut client = Guarded { client, front: &self.front, principal: &self.principal };
        let read = tokio::select! {
            ended = read_lines(reader, &mut client) => Some(ended),
            () = draining.cancelled() => None,
            () = out.closed() => Some(Ended::Unread),
        };
        let client = client.client;
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

/// A client behind the gate that clients over HTTP have to pass.
struct Guarded<'a> {
    client: PipeClient,
    front: &'a Front,
    principal: &'a Principal,
}

async fn read_lines<R: AsyncRead + Unpin>(mut reader: R, client: &mut Guarded<'_>) -> Ended {
    let limit = client.front.limits.body;
    let mut buffer = BytesMut::with_capacity(16 * 1024);
    let mut scanned = 0;
    // Inside a line that is too long: all of it is thrown away, but for the id of the request that it was.
    let mut skipping: Option<(IdScan, Option<u64>)> = None;
    loop {
        while let Some(at) = memchr::memchr(b'\n', &buffer[scanned..]) {
            let line = buffer.split_to(scanned + at + 1).freeze();
            scanned = 0;
            let taken = match skipping.take() {
                Some((mut scan, id)) => client.too_long(id.or(scan.feed(&line)), limit).await,
                None if line.len() > limit => client.too_long(IdScan::default().feed(&line), limit).await,
                None => client.take(&line).await,
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
                if end.is_ok() && skipping.is_none() && client.take(&rest).await.is_err() {
                    return Ended::Unread;
                }
                return Ended::Input;
            }
        }
    }
}

impl Guarded<'_> {
    async fn take(&mut self, line: &Bytes) -> Result<(), crate::revision::Gone> {
        let mut text = line.trim_ascii();
        text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        if text.is_empty() {
            return Ok(());
        }
        let payload = Payload::of_client(&line.slice_ref(text), self.front.limits.batch);
        let starts = payload.as_ref().map_or(0, Payload::requests);
        if starts > 0
            && let Err(closed) = self.front.gate.pass(self.principal, starts, &self.front.endpoints)
        {
            let ids = payload.iter().flat_map(Payload::ids);
            let error = closed.count(&self.front.state.metrics);
            // Of a batch each has its answer: whoever waits for one does so by its id.
            for id in ids {
                self.client.refuse(Some(id), &error).await?;
            }
            return Ok(());
        }
        self.client.take(payload).await
    }

    async fn too_long(&self, id: Option<u64>, limit: usize) -> Result<(), crate::revision::Gone> {
        let error = Error::new(Reason::TooLarge, format!("The message is larger than {limit} bytes (limits.body)"));
        self.client.count_too_large();
        self.client.refuse(id.map(Id::number).as_ref(), &error).await
    }
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
