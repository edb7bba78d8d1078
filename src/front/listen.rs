//! Accepting connections: bounded, timed, and drained at the end.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::front::Service;
use crate::selfwake::SelfWake;
use crate::telemetry::{CountGuard, Metrics};

/// Streams that one HTTP/2 connection may have.
const H2_STREAMS: u32 = 256;

/// Limits of a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenSettings {
    /// Connections at once; more wait to be accepted.
    pub connections: usize,
    /// Largest head of a request, in bytes.
    pub head: usize,
    /// Longest time to receive a request's head.
    pub read_timeout: Duration,
}

/// A bound listener.
pub struct Listener {
    tcp: TcpListener,
}

impl Listener {
    /// Binds the address.
    pub async fn bind(address: SocketAddr) -> std::io::Result<Self> {
        Ok(Listener { tcp: TcpListener::bind(address).await? })
    }

    /// The address that it was bound to.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
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
        let builder = builder(&settings);
        let slots = Arc::new(Semaphore::new(settings.connections));
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.tcp, &slots) => accepted,
                () = draining.cancelled() => break,
            };
            let Some((stream, slot)) = accepted else { continue };
            let connection = builder.serve_connection(TokioIo::new(stream), service.clone()).into_owned();
            let connection = graceful.watch(connection);
            let counted = CountGuard::new(&metrics.connections);
            tokio::spawn(async move {
                let _held = (slot, counted);
                // A request's body and its reader are in this one task, and wake each other.
                let (wake, mut connection) = (SelfWake::default(), pin!(connection));
                // A client that breaks off is no event: its requests were ended with it.
                let _ = poll_fn(|cx| wake.poll(cx, |cx| connection.as_mut().poll(cx))).await;
            });
        }
        drop(self.tcp);
        if tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
            tracing::warn!("requests were still open after gateway.drain = {drain:?}");
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
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_STREAMS)
        .max_header_list_size(u32::try_from(settings.head).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

async fn accept(tcp: &TcpListener, slots: &Arc<Semaphore>) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = slots.clone().acquire_owned().await.ok()?;
    match tcp.accept().await {
        Ok((stream, _)) => {
            let _ = stream.set_nodelay(true);
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
