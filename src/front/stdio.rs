//! One client on a pipe: lines in, lines out.
//!
//! Owns reading, writing, their bounds and the end. Does not read messages (`revision`). Invariant: nothing but
//! messages goes out, and the end of the input is the end of everything.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::front::{ServerState, SharedServerState};
use crate::json::ByteString;
use crate::jsonrpc::{RequestId, RpcPayload};
use crate::link::PartialIdScanner;
use crate::model::{Error, McpErrorKind, Principal, Server};
use crate::revision::StdioClient;

/// Lines that wait for the client to read them; whoever has more to say waits with it.
const QUEUED_LINES_MAX: usize = 64;
/// How long calls may go on after the client closed its end: "Servers SHOULD exit promptly when their standard input
/// is closed" (2026-07-28/basic/transports/stdio.mdx, Shutdown), but what a script pipes in is answered.
const EOF_GRACE: Duration = Duration::from_secs(2);
/// How long the client gets at the end to read what was said.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// What is kept of the buffer for writing, in bytes.
const WRITE_BUFFER_MAX: usize = 256 * 1024;

/// A client on a pipe, and what it may use.
pub struct StdioServer {
    pub(super) state: Arc<ServerState>,
    pub(super) principal: Arc<Principal>,
    pub(super) server: Arc<dyn Server>,
    pub(super) scope: ByteString,
    pub(super) drain: Duration,
    pub(super) network: Option<NetworkClient>,
}

/// What holds for a client that connected, beside one that runs us.
pub(super) struct NetworkClient {
    /// What answers clients now.
    state: SharedServerState,
    /// Longest time for a message to become whole.
    read_timeout: Duration,
}

impl StdioServer {
    /// Follows the gateway's config from one message to the next, and does not wait for ever for the rest of one.
    pub(super) fn for_network_client(self, fronts: SharedServerState, read_timeout: Duration) -> Self {
        StdioServer { network: Some(NetworkClient { state: fronts, read_timeout }), ..self }
    }

    /// Serves until the input ends, the client does not read any more, or the gateway drains.
    pub async fn serve<R, W>(self, reader: R, writer: W)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let StdioServer { state: front, principal, server, scope, drain, network } = self;
        let (out, lines) = mpsc::channel(QUEUED_LINES_MAX);
        let over = CancellationToken::new();
        let mut writing = tokio::spawn(write_lines(writer, lines, over.clone()));
        let state = front.downstream.clone();
        let (draining, revoked) = (state.draining.clone(), front.endpoints.until_revoked(&principal));
        let client = StdioClient::new(server, principal.clone(), scope.clone(), state, out.clone());
        let mut client = AdmittedClient { client, state: front, principal, scope, network };
        let read = tokio::select! {
            ended = read_lines(reader, &mut client) => Some(ended),
            () = draining.cancelled() => None,
            () = out.closed() => Some(ReadEnd::Unread),
            () = revoked => Some(ReadEnd::Revoked),
        };
        let client = client.client;
        let grace = match read {
            Some(ReadEnd::Unread | ReadEnd::Revoked | ReadEnd::TimedOut) => Duration::ZERO,
            Some(ReadEnd::Input) => {
                client.close_subscriptions();
                drain.min(EOF_GRACE)
            }
            None => drain,
        };
        tokio::select! {
            _ = tokio::time::timeout(grace, client.wait_idle()) => {}
            () = out.closed() => {}
        }
        drop(client);
        over.cancel();
        if tokio::time::timeout(FLUSH_TIMEOUT, &mut writing).await.is_err() {
            tracing::warn!("the client did not read the last answers");
            writing.abort();
        }
    }
}

/// Why reading ended.
enum ReadEnd {
    /// The client closed its end.
    Input,
    /// It does not read.
    Unread,
    /// Its key was removed.
    Revoked,
    /// A message did not become whole in time.
    TimedOut,
}

/// A client behind the gate that clients over HTTP have to pass.
struct AdmittedClient {
    client: StdioClient,
    state: Arc<ServerState>,
    principal: Arc<Principal>,
    scope: ByteString,
    network: Option<NetworkClient>,
}

async fn read_lines<R: AsyncRead + Unpin>(mut reader: R, client: &mut AdmittedClient) -> ReadEnd {
    let limit = client.state.limits.body;
    let mut begun = None;
    let mut buffer = BytesMut::with_capacity(16 * 1024);
    let mut scanned = 0;
    // Inside a line that is too long: all of it is thrown away, but for the id of the request that it was.
    let mut skipping: Option<(PartialIdScanner, Option<u64>)> = None;
    loop {
        while let Some(at) = memchr::memchr(b'\n', &buffer[scanned..]) {
            let line = buffer.split_to(scanned + at + 1).freeze();
            (scanned, begun) = (0, None);
            let taken = match skipping.take() {
                Some((mut scan, id)) => client.too_long(id.or(scan.feed(&line)), limit).await,
                None if line.len() > limit => client.too_long(PartialIdScanner::default().feed(&line), limit).await,
                None => client.handle_line(&line).await,
            };
            if taken.is_err() {
                return ReadEnd::Unread;
            }
        }
        scanned = buffer.len();
        if scanned > limit && skipping.is_none() {
            skipping = Some((PartialIdScanner::default(), None));
        }
        if let Some((scan, id)) = &mut skipping {
            *id = id.or(scan.feed(&buffer));
            buffer.clear();
            scanned = 0;
        }
        let is_inside = !buffer.is_empty() || skipping.is_some();
        begun = is_inside.then(|| begun.unwrap_or_else(Instant::now));
        buffer.reserve(8 * 1024);
        let Some(read) = client.in_time(begun, reader.read_buf(&mut buffer)).await else { return ReadEnd::TimedOut };
        match read {
            Ok(n) if n > 0 => {}
            // The last line needs no end.
            end => {
                let rest = buffer.freeze();
                if end.is_ok() && skipping.is_none() && client.handle_line(&rest).await.is_err() {
                    return ReadEnd::Unread;
                }
                return ReadEnd::Input;
            }
        }
    }
}

impl AdmittedClient {
    /// Waits for more of a message for as long as that has left.
    async fn in_time<T>(&self, begun: Option<Instant>, reading: impl Future<Output = T>) -> Option<T> {
        let (Some(network), Some(begun)) = (&self.network, begun) else { return Some(reading.await) };
        let until = begun + network.read_timeout;
        // Who sends a byte now and then is never waited for.
        let read = match Instant::now() < until {
            true => tokio::time::timeout_at(until, reading).await.ok(),
            false => None,
        };
        if read.is_none() {
            self.state.downstream.metrics.refused.with_label_values(&["read_timeout"]).inc();
        }
        read
    }

    /// Goes on with the config as it is now, where the client is still who it was.
    fn apply_reload(&mut self) -> Result<(), crate::revision::ClientDisconnected> {
        let Some(network) = &self.network else { return Ok(()) };
        let now = network.state.load();
        if Arc::ptr_eq(&now, &self.state) {
            return Ok(());
        }
        let principal =
            now.keys.authenticate(&http::HeaderMap::new()).map_err(|_| crate::revision::ClientDisconnected)?;
        let server = now.endpoints.find_endpoint(&self.scope, &principal).ok_or(crate::revision::ClientDisconnected)?;
        if principal.id != self.principal.id {
            return Err(crate::revision::ClientDisconnected);
        }
        self.client.replace_server(server);
        self.state = now.clone();
        Ok(())
    }

    async fn handle_line(&mut self, line: &Bytes) -> Result<(), crate::revision::ClientDisconnected> {
        let mut text = line.trim_ascii();
        text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        if text.is_empty() {
            return Ok(());
        }
        self.apply_reload()?;
        let payload = RpcPayload::parse_from_client(&line.slice_ref(text), self.state.limits.batch);
        let starts = payload.as_ref().map_or(0, RpcPayload::request_count);
        if starts > 0
            && let Err(closed) = self.state.admission.admit(&self.principal, starts, &self.state.endpoints)
        {
            let ids = payload.iter().flat_map(RpcPayload::request_ids);
            let error = closed.record(&self.state.downstream.metrics);
            // Of a batch each has its answer: whoever waits for one does so by its id.
            for id in ids {
                self.client.send_error(Some(id), &error).await?;
            }
            return Ok(());
        }
        self.client.handle_line(payload).await
    }

    async fn too_long(&self, id: Option<u64>, limit: usize) -> Result<(), crate::revision::ClientDisconnected> {
        let error =
            Error::new(McpErrorKind::TooLarge, format!("The message is larger than {limit} bytes (limits.body)"));
        self.client.count_too_large();
        self.client.send_error(id.map(RequestId::number).as_ref(), &error).await
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
            n = lines.recv_many(&mut waiting, QUEUED_LINES_MAX) => n == 0,
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
