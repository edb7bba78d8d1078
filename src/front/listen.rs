//! Accepting connections: bounded, timed, and drained at the end.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::front::socket::{Incoming, Socket};
use crate::front::write_timeout::WriteTimeout;
use crate::front::{Inherited, ListenAddress, Service, SocketSettings, Tls, short};
use crate::selfwake::SelfWake;
use crate::telemetry::{CountGuard, Metrics};

/// Streams that one HTTP/2 connection may have.
const H2_STREAMS: u32 = 256;
/// What of an answer waits for room in its stream, beside the answer itself.
const H2_SEND_BUFFER: usize = 64 * 1024;
/// Streams that a peer opened and reset, and that nobody has looked at yet; more end the connection (the default of the
/// library, which answers CVE-2023-44487).
const H2_RESETS: usize = 20;
/// Resets that a peer made us send by its errors; more end the connection (CVE-2025-8671).
const H2_ERRORS: usize = 256;
/// When the gateway drains, who is about to send gets this long: a request that crosses with the end of its connection is
/// lost without a word, and one that is answered can be told that the connection ends.
const LINGER: Duration = Duration::from_millis(250);

/// Limits of a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenSettings {
    /// Connections at once; more wait to be accepted.
    pub connections: usize,
    /// Largest head of a request, in bytes.
    pub head: usize,
    /// Longest time to receive a request's head.
    pub read_timeout: Duration,
    /// Longest time that a connection's writing may stand still.
    pub write_timeout: Duration,
}

/// A bound listener.
pub struct Listener {
    socket: Socket,
    /// Whether the socket stays when we go, and with it whoever waits there.
    stays: bool,
    tls: Option<Arc<Tls>>,
}

impl Listener {
    /// Binds the address, or takes what the service manager handed over for it. Must be called on the runtime.
    pub async fn open(
        address: &ListenAddress,
        settings: &SocketSettings,
        inherited: &mut Inherited,
    ) -> std::io::Result<Vec<Self>> {
        let ListenAddress::Inherited(name) = address else {
            return Ok(vec![Listener { socket: Socket::bind(address, settings).await?, stays: false, tls: None }]);
        };
        let taken = inherited.take(name.as_deref());
        if taken.is_empty() {
            return Err(std::io::Error::other("the service manager handed no such socket over (LISTEN_FDS)"));
        }
        Ok(taken.into_iter().map(|socket| Listener { socket, stays: true, tls: None }).collect())
    }

    /// Speaks TLS, where it has an address.
    pub fn with_tls(self, tls: Option<Arc<Tls>>) -> Self {
        let tls = tls.filter(|_| !self.is_local());
        Listener { tls, ..self }
    }

    /// The address that it was bound to, if it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.address()
    }

    /// Where it is, for people.
    pub fn name(&self) -> String {
        self.socket.name()
    }

    /// Whether only processes of this machine can connect, and no browser.
    pub fn is_local(&self) -> bool {
        matches!(self.socket, Socket::Unix(..))
    }

    /// Serves until `draining` is cancelled, then lets open requests end for at most `drain`.
    pub async fn serve(
        self,
        service: Service,
        settings: ListenSettings,
        metrics: Arc<Metrics>,
        draining: CancellationToken,
        drain: Duration,
    ) {
        let speaking = Arc::new(Speaking::new(&settings));
        let slots = Arc::new(Semaphore::new(settings.connections));
        let open = TaskTracker::new();
        let closing = Arc::new(AtomicBool::new(false));
        let service = service.closing(closing.clone());
        let start = |stream: Incoming, slot: Option<OwnedSemaphorePermit>| {
            let held = (slot, CountGuard::new(&metrics.connections));
            let (speaking, service, draining) = (speaking.clone(), service.for_peer(stream.peer()), draining.clone());
            let (tls, limit) = (self.tls.clone(), settings.read_timeout);
            open.spawn(async move {
                let _held = held;
                let connection = Connection { speaking, service, draining };
                connection.run(stream, tls, limit).await;
            });
        };
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.socket, &slots) => accepted,
                () = draining.cancelled() => break,
            };
            if let Some((stream, slot)) = accepted {
                start(stream, Some(slot));
            }
        }
        closing.store(true, Ordering::Relaxed);
        // Who is in line already was accepted by the kernel: a socket that is closed resets them, one that stays keeps
        // them for the next process.
        if !self.stays {
            for stream in self.socket.close() {
                start(stream, slots.clone().try_acquire_owned().ok());
            }
        }
        open.close();
        if tokio::time::timeout(drain, open.wait()).await.is_err() {
            tracing::warn!("requests were still open after gateway.drain = {drain:?}");
        }
    }
}

/// Serves a connection that no socket accepted, until it ends.
pub async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    service: Service,
    settings: &ListenSettings,
    draining: CancellationToken,
) {
    Connection { speaking: Arc::new(Speaking::new(settings)), service, draining }.converse(stream).await;
}

/// One connection.
struct Connection {
    speaking: Arc<Speaking>,
    service: Service,
    draining: CancellationToken,
}

impl Connection {
    async fn run(self, stream: Incoming, tls: Option<Arc<Tls>>, limit: Duration) {
        match (stream, tls) {
            (Incoming::Tcp(stream), Some(tls)) => {
                // Out of the way of accepting, and no longer than a request's head may take.
                if let Some(stream) = tls.accept(stream, limit).await {
                    self.converse(stream).await;
                }
            }
            (Incoming::Tcp(stream), None) => self.converse(stream).await,
            (Incoming::Unix(stream), _) => self.converse(stream).await,
        }
    }

    async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S) {
        let terms = short::Terms {
            service: &self.service,
            head: self.speaking.head,
            read_timeout: self.speaking.read_timeout,
            draining: &self.draining,
            linger: LINGER,
        };
        let stream = WriteTimeout::new(stream, self.speaking.write_timeout, self.service.counts_unread());
        let Some(rest) = short::converse(stream, terms).await else { return };
        let builder = if rest.is_h2() { &self.speaking.http2 } else { &self.speaking.http1 };
        let mut connection = pin!(builder.serve_connection(TokioIo::new(rest), self.service));
        let mut told = pin!(async {
            self.draining.cancelled().await;
            tokio::time::sleep(LINGER).await;
        });
        let mut is_told = false;
        // A request's body and its reader are in this one task, and wake each other.
        let wake = SelfWake::default();
        poll_fn(|cx| {
            wake.poll(cx, |cx| {
                // A client that breaks off is no event: its requests were ended with it.
                let mut polled = connection.as_mut().poll(cx).map(|_| ());
                if polled.is_pending() && !is_told && told.as_mut().poll(cx).is_ready() {
                    is_told = true;
                    connection.as_mut().graceful_shutdown();
                    polled = connection.as_mut().poll(cx).map(|_| ());
                }
                polled
            })
        })
        .await;
    }
}

/// How connections are served: their first bytes say in which version.
struct Speaking {
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
    head: usize,
    read_timeout: Duration,
    write_timeout: Duration,
}

impl Speaking {
    fn new(settings: &ListenSettings) -> Self {
        let (http1, http2) = (builder(settings).http1_only(), builder(settings).http2_only());
        let ListenSettings { head, read_timeout, write_timeout, .. } = *settings;
        Speaking { http1, http2, head, read_timeout, write_timeout }
    }
}

fn builder(settings: &ListenSettings) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.read_timeout)
        .max_buf_size(settings.head)
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_STREAMS)
        .max_send_buf_size(H2_SEND_BUFFER)
        .max_header_list_size(u32::try_from(settings.head).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(H2_RESETS)
        .max_local_error_reset_streams(H2_ERRORS)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

async fn accept(socket: &Socket, slots: &Arc<Semaphore>) -> Option<(Incoming, OwnedSemaphorePermit)> {
    let slot = slots.clone().acquire_owned().await.ok()?;
    match socket.accept().await {
        Ok(stream) => {
            if let Incoming::Tcp(stream) = &stream {
                let _ = stream.set_nodelay(true);
            }
            Some((stream, slot))
        }
        Err(e) => {
            // Out of descriptors, most likely: trying again at once would only burn the CPU.
            tracing::warn!("a connection could not be accepted: {e}");
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}
