//! Accept loop of a listener. Owns the bounds and timeouts of connections, and their drain at
//! shutdown.
//!
//! Does not route requests (`service.rs`) or parse them (`fast_path`, hyper). Invariant: while it
//! accepts, it serves no connection without a slot of the connection limit.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accept_failures::AcceptFailures;
use crate::connection_limit::{ConnectionSlot, HeldSlot, IdleTimeout, LeaveTimeout};
use crate::received_bytes::CountedReads;
use crate::socket::{AcceptedStream, ListenSocket};
use crate::tcp_lines::LineListener;
use crate::write_timeout::WriteTimeout;
use crate::{
    ConnectionLimit, ConnectionService, InheritedSockets, ListenAddress, ListenerTls,
    SharedListenerState, SocketSettings, fast_path,
};

/// Maximum number of concurrent streams of one HTTP/2 connection.
// RFC 9113, section 6.5.2: "It is RECOMMENDED that this value be no smaller than 100, so as to not
// unnecessarily limit parallelism."
const H2_STREAMS: u32 = 256;
/// Bytes of a response that may wait for window in its stream.
const H2_SEND_BUFFER: usize = 64 * 1024;
/// Bytes that an HTTP/2 connection may send before a handler takes them, in all its streams. No
/// reservation counts them.
const H2_WINDOW: u32 = 256 * 1024;
/// Maximum number of streams that a peer opened and reset before they were accepted. More end the
/// connection. This is the library's default, its answer to CVE-2023-44487.
const H2_RESETS: usize = 20;
/// Maximum number of resets that a peer's errors make us send. More end the connection
/// (CVE-2025-8671).
const H2_ERRORS: usize = 256;
/// Time for line clients to read the last messages, beyond the drain.
const LAST_LINES_GRACE: Duration = Duration::from_secs(3);
/// Time for clients that are about to send when the gateway drains. A request that crosses the end
/// of its connection is lost silently. An answered request learns that the connection ends.
const DRAIN_GRACE: Duration = Duration::from_millis(250);

/// Limits of one listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenSettings {
    /// Maximum size of a request head, in bytes.
    pub head: usize,
    /// Maximum time to receive a request head.
    pub read_timeout: Duration,
    /// Maximum time that writing to a connection may stall.
    pub write_timeout: Duration,
}

/// Bound listener.
pub struct BoundListener {
    socket: ListenSocket,
    /// True if the socket outlives this process, with the connections that wait in its queue.
    outlives_process: bool,
    tls: Option<Arc<ListenerTls>>,
}

impl BoundListener {
    /// Binds the address, or takes the socket that the service manager passed for it. Must be
    /// called on the runtime.
    pub async fn open(
        address: &ListenAddress,
        settings: &SocketSettings,
        inherited: &mut InheritedSockets,
    ) -> std::io::Result<Vec<Self>> {
        let ListenAddress::Inherited(name) = address else {
            return Ok(vec![BoundListener {
                socket: ListenSocket::bind(address, settings).await?,
                outlives_process: false,
                tls: None,
            }]);
        };
        let taken = inherited.take(name.as_deref());
        if taken.is_empty() {
            return Err(std::io::Error::other(
                "the service manager passed no such socket (LISTEN_FDS)",
            ));
        }
        Ok(taken
            .into_iter()
            .map(|socket| BoundListener {
                socket,
                outlives_process: true,
                tls: None,
            })
            .collect())
    }

    /// Enables TLS. A Unix socket stays without.
    pub fn with_tls(self, tls: Option<Arc<ListenerTls>>) -> Self {
        let tls = tls.filter(|_| !self.is_local());
        BoundListener { tls, ..self }
    }

    /// Returns the bound address, if the socket has one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.address()
    }

    /// Returns the listener's name for logs.
    pub fn name(&self) -> String {
        self.socket.name()
    }

    /// True if only processes of this machine can connect, and no browser.
    pub fn is_local(&self) -> bool {
        matches!(self.socket, ListenSocket::Unix(..))
    }

    /// Serves line clients until `draining` is cancelled, and then until they have ended.
    pub async fn serve_lines(
        self,
        shared_state: SharedListenerState,
        settings: ListenSettings,
        limit: Arc<ConnectionLimit>,
        draining: CancellationToken,
        drain: Duration,
    ) {
        let lines = Arc::new(LineListener {
            state: shared_state,
            settings,
            drain,
        });
        // Clients get time to read the last messages, after the time for their calls.
        let closing = AtomicBool::new(false);
        let drain = drain.saturating_add(LAST_LINES_GRACE);
        accept_all(
            (self.socket, self.outlives_process),
            &limit,
            &draining,
            drain,
            &closing,
            |stream, slot| {
                let lines = lines.clone();
                async move {
                    if let AcceptedStream::Tcp(stream) = stream {
                        lines.serve_connection(stream, slot).await;
                    }
                }
            },
        )
        .await;
    }

    /// Serves until `draining` is cancelled, then lets open requests finish for at most `drain`.
    pub async fn serve(
        self,
        service: ConnectionService,
        settings: ListenSettings,
        limit: Arc<ConnectionLimit>,
        draining: CancellationToken,
        drain: Duration,
    ) {
        let config = Arc::new(HttpConfig::new(&settings));
        let closing = Arc::new(AtomicBool::new(false));
        let service = service
            .closing_when(closing.clone())
            .with_head_max(settings.head);
        let BoundListener {
            socket,
            outlives_process,
            tls,
            ..
        } = self;
        accept_all(
            (socket, outlives_process),
            &limit,
            &draining,
            drain,
            &closing,
            |stream, slot| {
                let connection = ClientConnection {
                    http: config.clone(),
                    service: service.for_peer(stream.peer()),
                    draining: draining.clone(),
                    slot,
                };
                connection.run(stream, tls.clone(), settings.read_timeout)
            },
        )
        .await;
    }
}

/// Accepts and starts connections until `draining` is cancelled. Then closes the socket and waits
/// for the connections for at most `drain`.
async fn accept_all<C: Future<Output = ()> + Send + 'static>(
    (socket, outlives_process): (ListenSocket, bool),
    limit: &Arc<ConnectionLimit>,
    draining: &CancellationToken,
    drain: Duration,
    closing: &AtomicBool,
    connection: impl Fn(AcceptedStream, Arc<ConnectionSlot>) -> C,
) {
    let open = TaskTracker::new();
    let failures = AcceptFailures::new(limit.clone());
    loop {
        let accepted = tokio::select! {
            accepted = accept(&socket, &failures) => accepted,
            () = draining.cancelled() => break,
        };
        let Some(stream) = accepted else { continue };
        // Only after a connection was accepted: none is evicted before another needs its slot.
        let held = tokio::select! {
            held = limit.acquire() => held,
            () = draining.cancelled() => limit.acquire_or_exceed(),
        };
        spawn_connection(&open, connection(stream, held.slot()), held);
    }
    // Set before the queue is emptied: its responses announce the end of their connection.
    closing.store(true, Ordering::Relaxed);
    // The kernel has accepted the connections in the queue already. Closing the socket would reset
    // them. A socket that stays keeps them for the next process.
    if !outlives_process {
        for stream in socket.close() {
            let held = limit.acquire_or_exceed();
            spawn_connection(&open, connection(stream, held.slot()), held);
        }
    }
    open.close();
    if tokio::time::timeout(drain, open.wait()).await.is_err() {
        tracing::warn!("requests still open after gateway.drain = {drain:?}");
    }
}

/// Runs a connection as a task, which holds its slot.
fn spawn_connection(
    open: &TaskTracker,
    connection: impl Future<Output = ()> + Send + 'static,
    held: HeldSlot,
) {
    let slot = held.slot();
    open.spawn(async move {
        slot.run(connection).await;
        drop(held);
    });
}

/// Serves a connection that no socket accepted, until it ends.
pub async fn serve_connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    service: ConnectionService,
    settings: &ListenSettings,
    draining: CancellationToken,
) {
    let config = Arc::new(HttpConfig::new(settings));
    let slot = Arc::new(ConnectionSlot::new());
    let service = service.with_head_max(settings.head);
    let connection = ClientConnection {
        http: config,
        service,
        draining,
        slot: slot.clone(),
    };
    slot.run(connection.serve_connection(stream)).await;
}

/// Accepted connection and its settings.
struct ClientConnection {
    http: Arc<HttpConfig>,
    service: ConnectionService,
    draining: CancellationToken,
    slot: Arc<ConnectionSlot>,
}

impl ClientConnection {
    async fn run(self, stream: AcceptedStream, tls: Option<Arc<ListenerTls>>, limit: Duration) {
        match (stream, tls) {
            (AcceptedStream::Tcp(stream), Some(tls)) => {
                // Not in the accept loop: a handshake waits for its client, at most as long as for
                // a request's head.
                if let Some(stream) = tls.accept(stream, limit).await {
                    self.serve_connection(stream).await;
                }
            }
            (AcceptedStream::Tcp(stream), None) => self.serve_connection(stream).await,
            (AcceptedStream::Unix(stream), _) => self.serve_connection(stream).await,
        }
    }

    async fn serve_connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S) {
        let context = fast_path::FastPathContext {
            service: &self.service,
            head: self.http.head,
            read_timeout: self.http.read_timeout,
            draining: &self.draining,
            drain_grace: DRAIN_GRACE,
            slot: &self.slot,
        };
        // Below both HTTP servers, so that neither needs its own limit for writes.
        let stalls = (self.service.stalled_writes(), self.slot.answer.clone());
        let stream = WriteTimeout::new(
            stream,
            self.http.write_timeout,
            stalls,
            self.service.count_stalled(),
        );
        let Some(rest) = fast_path::serve(stream, context).await else {
            return;
        };
        let is_h2 = rest.is_h2();
        let builder = if is_h2 {
            &self.http.http2
        } else {
            &self.http.http1
        };
        let service = self.service.in_slot(self.slot.clone());
        let mut connection = pin!(builder.serve_connection(
            TokioIo::new(CountedReads::new(rest, self.slot.clone())),
            service
        ));
        let mut drain_signal = pin!(async {
            self.draining.cancelled().await;
            tokio::time::sleep(DRAIN_GRACE).await;
        });
        // hyper closes idle HTTP/1 connections itself. HTTP/2 pings would keep a connection open
        // for ever.
        let mut idle = is_h2.then(|| IdleTimeout::new(self.slot.clone(), self.http.read_timeout));
        let mut ending = None;
        poll_fn(|cx| {
            // A client that disconnects isn't an event: its requests ended with it.
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if ending.is_none() {
                let is_idle = idle.as_mut().is_some_and(|idle| idle.poll(cx).is_ready())
                    || self.slot.must_leave();
                if !is_idle && drain_signal.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                ending = Some(is_idle.then(|| LeaveTimeout::new(&self.slot)));
                // The shutdown has to be polled to take effect: it may close an idle connection at
                // once.
                connection.as_mut().graceful_shutdown();
                if connection.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
            }
            match &mut ending {
                Some(Some(leave_timeout)) => leave_timeout.poll(cx),
                _ => Poll::Pending,
            }
        })
        .await;
    }
}

/// HTTP settings of connections. Their first bytes select the version.
struct HttpConfig {
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
    head: usize,
    read_timeout: Duration,
    write_timeout: Duration,
}

impl HttpConfig {
    fn new(settings: &ListenSettings) -> Self {
        let http1 = builder(settings).http1_only();
        let http2 = builder(settings).http2_only();
        let ListenSettings {
            head,
            read_timeout,
            write_timeout,
            ..
        } = *settings;
        HttpConfig {
            http1,
            http2,
            head,
            read_timeout,
            write_timeout,
        }
    }
}

fn builder(settings: &ListenSettings) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.read_timeout)
        .max_buf_size(settings.head)
        // A client that closes its sending half has disconnected: its calls are cancelled.
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_STREAMS)
        // Bounds what a stream buffers for a client that gives it no window.
        .max_send_buf_size(H2_SEND_BUFFER)
        .initial_connection_window_size(H2_WINDOW)
        .initial_stream_window_size(H2_WINDOW)
        .max_header_list_size(u32::try_from(settings.head).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(H2_RESETS)
        .max_local_error_reset_streams(H2_ERRORS)
        // Finds peers that vanished without a FIN: an idle TCP connection reports nothing.
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

async fn accept(socket: &ListenSocket, failures: &AcceptFailures) -> Option<AcceptedStream> {
    match socket.accept().await {
        Ok(stream) => {
            if let AcceptedStream::Tcp(stream) = &stream {
                // Responses are written whole, so Nagle's algorithm would only delay them.
                let _ = stream.set_nodelay(true);
            }
            Some(stream)
        }
        Err(error) => {
            failures.handle(&error).await;
            None
        }
    }
}
