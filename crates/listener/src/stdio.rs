//! MCP over a pipe for one client: a message a line, in and out. Owns reading, writing, their
//! bounds and the shutdown.
//!
//! Does not decode messages (`moongate-protocol`). Invariant: only messages are written, and the
//! end of the input ends everything.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::address::PeerAddress;
use crate::listener_state::{ListenerState, SharedListenerState};
use crate::serve_request::memory_holder;
use moongate_access::auth::ProvenIdentity;
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::{RequestId, RpcPayload};
use moongate_model::{Error, McpErrorKind, McpServer, Principal};
use moongate_protocol::{ClientDisconnected, StdioClient};
use moongate_telemetry::{Limit, MemoryHolder, SMALL_MESSAGE};
use moongate_transport::PartialIdScanner;

/// Maximum number of lines that wait for the client to read them. Further senders wait too.
const QUEUED_LINES_MAX: usize = 64;
/// Time that calls may take after the client closed its end. "Servers SHOULD exit promptly when
/// their standard input is closed" (2026-07-28/basic/transports/stdio.mdx, Shutdown). A script that
/// pipes requests in still gets its answers.
const EOF_GRACE: Duration = Duration::from_secs(2);
/// Time for the client to read the last lines at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit of the bytes that one read takes.
const READ_MAX: usize = 64 * 1024;
/// Maximum size of the write buffer that is reused, in bytes.
const WRITE_BUFFER_MAX: usize = 256 * 1024;

/// Client on a pipe, with its principal and its endpoint.
pub struct StdioConnection {
    pub(super) state: Arc<ListenerState>,
    pub(super) principal: Arc<Principal>,
    /// Cancelled when the client's login ends.
    pub(super) login: CancellationToken,
    pub(super) endpoint: Arc<dyn McpServer>,
    pub(super) scope: ByteString,
    pub(super) drain: Duration,
    pub(super) network: Option<NetworkClient>,
}

/// Settings of a client that connected over the network, rather than one that started this process.
pub(super) struct NetworkClient {
    /// State that is replaced at a reload.
    state: SharedListenerState,
    /// Maximum time for a message to become complete.
    read_timeout: Duration,
    peer: Option<PeerAddress>,
}

/// Refusal of a client on a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdioRefused {
    /// Credentials are wrong.
    Credentials,
    /// Endpoint does not exist, or not for this principal.
    Endpoint,
}

impl ListenerState {
    /// Opens an endpoint for a client on a pipe. An empty name is the endpoint of all servers.
    /// `drain` is the time that its calls may take when the gateway stops.
    pub fn open_stdio(
        self: &Arc<Self>,
        endpoint: &str,
        credentials: &http::HeaderMap,
        drain: Duration,
    ) -> Result<StdioConnection, StdioRefused> {
        let identity = self
            .auth
            .authenticate(credentials, endpoint, None)
            .map_err(|_| StdioRefused::Credentials)?;
        let ProvenIdentity {
            principal, login, ..
        } = identity;
        let scope = ByteString::from(endpoint);
        let endpoint = self
            .endpoints
            .find_endpoint(endpoint, &principal)
            .ok_or(StdioRefused::Endpoint)?;
        let login = login.unwrap_or_default();
        Ok(StdioConnection {
            state: self.clone(),
            principal,
            login,
            endpoint,
            scope,
            drain,
            network: None,
        })
    }
}

impl StdioConnection {
    /// Follows config reloads between messages, and limits the wait for the rest of one.
    pub(super) fn for_network_client(
        self,
        shared_state: SharedListenerState,
        read_timeout: Duration,
        peer: Option<PeerAddress>,
    ) -> Self {
        StdioConnection {
            network: Some(NetworkClient {
                state: shared_state,
                read_timeout,
                peer,
            }),
            ..self
        }
    }

    /// Serves until the input ends, the client stops reading, or the gateway drains.
    pub async fn serve<R, W>(self, reader: R, writer: W)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let StdioConnection {
            state: listener_state,
            principal,
            login,
            endpoint,
            scope,
            drain,
            network,
        } = self;
        // The bound makes a client that does not read slow down its own calls.
        let (out, lines) = mpsc::channel(QUEUED_LINES_MAX);
        let finished = CancellationToken::new();
        let mut writing = tokio::spawn(write_lines(writer, lines, finished.clone()));
        let state = listener_state.downstream.clone();
        let draining = state.draining.clone();
        let revoked = listener_state.endpoints.until_revoked(&principal);
        let holder = memory_holder(
            &principal,
            network.as_ref().and_then(|network| network.peer),
        );
        let sender = (principal.clone(), holder.clone());
        let client = StdioClient::new(endpoint, sender, scope.clone(), state, out.clone());
        let mut client = LineClient {
            stdio: client,
            state: listener_state,
            principal,
            scope,
            network,
            holder,
        };
        let read = tokio::select! {
            ended = read_lines(reader, &mut client) => Some(ended),
            () = draining.cancelled() => None,
            () = out.closed() => Some(ReadEnd::Unread),
            () = revoked => Some(ReadEnd::Revoked),
            () = login.cancelled() => Some(ReadEnd::Revoked),
        };
        let client = client.stdio;
        let grace = match read {
            Some(ReadEnd::Unread | ReadEnd::Revoked | ReadEnd::TimedOut) => Duration::ZERO,
            Some(ReadEnd::Input) => {
                // Subscriptions never end by themselves, so they would use up the whole grace
                // period.
                client.close_subscriptions();
                drain.min(EOF_GRACE)
            }
            None => drain,
        };
        tokio::select! {
            _ = tokio::time::timeout(grace, client.wait_idle()) => {}
            () = out.closed() => {}
        }
        // Dropped before the writer finishes: no further message can enter the queue.
        drop(client);
        finished.cancel();
        if tokio::time::timeout(FLUSH_TIMEOUT, &mut writing)
            .await
            .is_err()
        {
            tracing::warn!("client did not read the last responses");
            writing.abort();
        }
    }
}

/// Cause of the end of reading.
enum ReadEnd {
    /// Client closed its end.
    Input,
    /// Client stopped reading.
    Unread,
    /// Client's key was removed.
    Revoked,
    /// Message did not become complete in time.
    TimedOut,
}

/// Client on a pipe, with what each of its lines passes before it is served.
struct LineClient {
    stdio: StdioClient,
    state: Arc<ListenerState>,
    principal: Arc<Principal>,
    scope: ByteString,
    network: Option<NetworkClient>,
    /// Holder of the memory of its messages.
    holder: MemoryHolder,
}

async fn read_lines<R: AsyncRead + Unpin>(mut reader: R, client: &mut LineClient) -> ReadEnd {
    let limit = client.state.limits.body;
    let mut begun = None;
    let mut reservation = client.state.admission.reserve(client.holder.clone());
    let mut buffer = BytesMut::with_capacity(16 * 1024);
    let mut scanned = 0;
    // Inside a line that is dropped, except the id of its request, which the error names.
    let mut skipping: Option<(PartialIdScanner, Error)> = None;
    loop {
        while let Some(newline) = memchr::memchr(b'\n', &buffer[scanned..]) {
            let line = reservation
                .take()
                .attach(buffer.split_to(scanned + newline + 1).freeze());
            if line.len() > SMALL_MESSAGE {
                // The line has the memory of the buffer, and small lines must not keep it.
                buffer = BytesMut::from(&buffer[..]);
            }
            scanned = 0;
            begun = None;
            let served = match skipping.take() {
                Some((mut scan, error)) => client.refuse(scan.feed(&line), &error).await,
                None if line.len() > limit => {
                    client
                        .refuse(
                            PartialIdScanner::default().feed(&line),
                            &client.too_long(limit),
                        )
                        .await
                }
                None => client.serve_line(&line).await,
            };
            if served.is_err() {
                return ReadEnd::Unread;
            }
        }
        scanned = buffer.len();
        if skipping.is_none() {
            let refused = if scanned > limit {
                Some(client.too_long(limit))
            } else {
                reservation
                    .cover(scanned)
                    .err()
                    .map(|exhausted| Error::new(McpErrorKind::Overloaded, exhausted.to_string()))
            };
            skipping = refused.map(|error| (PartialIdScanner::default(), error));
        }
        if let Some((scan, _)) = &mut skipping {
            scan.feed(&buffer);
            // Not only cleared: what the line took has to be free for others.
            buffer = BytesMut::with_capacity(16 * 1024);
            drop(reservation.take());
            scanned = 0;
        }
        let is_inside = !buffer.is_empty() || skipping.is_some();
        // From the first byte of a message: a client that is idle between messages may take any
        // time.
        begun = is_inside.then(|| begun.unwrap_or_else(Instant::now));
        buffer.reserve(8 * 1024);
        let mut room = (&mut buffer).limit(READ_MAX);
        let Some(read) = client.in_time(begun, reader.read_buf(&mut room)).await else {
            return ReadEnd::TimedOut;
        };
        match read {
            Ok(n) if n > 0 => {}
            // The last line needs no newline.
            end => {
                let rest = buffer.freeze();
                if end.is_ok() && skipping.is_none() && client.serve_line(&rest).await.is_err() {
                    return ReadEnd::Unread;
                }
                return ReadEnd::Input;
            }
        }
    }
}

impl LineClient {
    /// Waits for more of a message within the time that it has left.
    async fn in_time<T>(
        &self,
        begun: Option<Instant>,
        reading: impl Future<Output = T>,
    ) -> Option<T> {
        let (Some(network), Some(begun)) = (&self.network, begun) else {
            return Some(reading.await);
        };
        let until = begun + network.read_timeout;
        // A client that sends a byte now and then must not get a new time limit for each.
        let read = match Instant::now() < until {
            true => tokio::time::timeout_at(until, reading).await.ok(),
            false => None,
        };
        if read.is_none() {
            self.state
                .downstream
                .metrics
                .calls
                .refused
                .inc(Limit::ReadTimeout);
        }
        read
    }

    /// Continues with the current config, if the client's key still means the same principal.
    fn confirm_identity(&mut self) -> Result<(), ClientDisconnected> {
        let Some(network) = &self.network else {
            self.follow_servers();
            return Ok(());
        };
        let now = network.state.load();
        if Arc::ptr_eq(&now, &self.state) {
            self.follow_servers();
            return Ok(());
        }
        let identity = now
            .auth
            .authenticate(&http::HeaderMap::new(), &self.scope, None)
            .map_err(|_| ClientDisconnected)?;
        let principal = identity.principal;
        let endpoint = now
            .endpoints
            .find_endpoint(&self.scope, &principal)
            .ok_or(ClientDisconnected)?;
        // The session and its calls belong to the old principal. The client has to connect again.
        if principal.id != self.principal.id {
            return Err(ClientDisconnected);
        }
        self.stdio.replace_endpoint(endpoint);
        self.state = now.clone();
        Ok(())
    }

    /// Continues with the servers of now: a login replaces a server without a new config.
    fn follow_servers(&mut self) {
        let endpoints = &self.state.endpoints;
        if let Some(endpoint) = endpoints.find_endpoint(&self.scope, &self.principal) {
            self.stdio.replace_endpoint(endpoint);
        }
    }

    /// Serves one line, by the steps of `serve_request`. The client was authenticated when its pipe
    /// was opened, and each config that came since confirms it.
    async fn serve_line(&mut self, line: &Bytes) -> Result<(), ClientDisconnected> {
        let mut text = line.trim_ascii();
        // Some Windows programs start their output with a byte order mark.
        text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        if text.is_empty() {
            return Ok(());
        }
        self.confirm_identity()?;
        let payload = RpcPayload::parse_from_client(&line.slice_ref(text), self.state.limits.batch);
        let (payload, rejection) = match self.state.admit(&self.principal, payload) {
            Ok(admitted) => return self.stdio.handle_line(admitted).await,
            Err(refused) => *refused,
        };
        let error = rejection.record(&self.state.downstream.metrics);
        // Each request of a batch gets its own error: callers wait for their id.
        for id in payload.iter().flat_map(RpcPayload::request_ids) {
            self.stdio.send_error(Some(id), &error).await?;
        }
        Ok(())
    }

    /// Counts a message over the limit, and returns its error.
    fn too_long(&self, limit: usize) -> Error {
        self.stdio.count_too_large();
        Error::new(
            McpErrorKind::TooLarge,
            format!("The message is larger than {limit} bytes (limits.body)"),
        )
    }

    async fn refuse(&self, id: Option<u64>, error: &Error) -> Result<(), ClientDisconnected> {
        self.stdio
            .send_error(id.map(RequestId::number).as_ref(), error)
            .await
    }
}

/// Writes until it is cancelled, and then what is left.
async fn write_lines<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut lines: mpsc::Receiver<Bytes>,
    finished: CancellationToken,
) {
    let mut waiting = Vec::new();
    let mut buffer = BytesMut::new();
    let mut closed = false;
    loop {
        let ending = tokio::select! {
            // `biased`: queued lines are taken before the end is noticed.
            biased;
            n = lines.recv_many(&mut waiting, QUEUED_LINES_MAX) => n == 0,
            () = finished.cancelled(), if !closed => {
                // Calls that still hold a sender have no client any more.
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
            tracing::debug!("client closed its end of the pipe: {e}");
            return;
        }
        if ending {
            return;
        }
        buffer.clear();
        // One large message must not hold memory for ever.
        if buffer.capacity() > WRITE_BUFFER_MAX {
            buffer = BytesMut::new();
        }
    }
}
