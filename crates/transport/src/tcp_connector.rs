//! TCP connectors to servers.
//!
//! Owns the options of their sockets, and which addresses they dial. Does not know proxies or TLS.
//! Invariant: no connection to a server or a proxy is opened elsewhere.

use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use crate::address_guard::AddressGuard;
use crate::address_resolver::AddressResolver;
use crate::metadata_address::MetadataAccess;
use crate::own_listeners::OwnListeners;

/// TCP keepalive: idle time before the first probe, time between probes, and their number.
pub(super) const KEEPALIVE: (Duration, Duration, u32) =
    (Duration::from_secs(30), Duration::from_secs(10), 3);

/// Longest time that sent data may stay unacknowledged.
#[cfg(target_os = "linux")]
// tcp(7): the time that "transmitted data may remain unacknowledged" before the connection is
// closed.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(60);

/// TCP connector for any scheme. It resolves the name and tries each address that its server may be
/// at.
#[derive(Clone)]
pub(super) struct TcpConnector {
    tcp: HttpConnector<AddressResolver>,
    guard: AddressGuard,
    own: OwnListeners,
}

impl TcpConnector {
    pub(super) fn new(connect_timeout: Duration, metadata: MetadataAccess) -> Self {
        let guard = AddressGuard::Server(metadata);
        TcpConnector::guarded(connect_timeout, guard, OwnListeners::default())
    }

    /// Creates a connector to addresses that this guard permits, except to these listeners.
    pub(super) fn guarded(
        connect_timeout: Duration,
        guard: AddressGuard,
        own: OwnListeners,
    ) -> Self {
        let resolver = AddressResolver::new(guard).except(own.clone());
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        // The URI may have the scheme `https`; TLS is a layer above this connector.
        tcp.enforce_http(false);
        // Requests are small and wait for their response: Nagle's algorithm would only delay them.
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE.0));
        tcp.set_keepalive_interval(Some(KEEPALIVE.1));
        tcp.set_keepalive_retries(Some(KEEPALIVE.2));
        tcp.set_connect_timeout(Some(connect_timeout));
        TcpConnector { tcp, guard, own }
    }

    /// Creates a connector for long connections. A peer that vanished is detected within about a
    /// minute, whether data was sent to it or not.
    pub(super) fn with_keepalive(connect_timeout: Duration, metadata: MetadataAccess) -> Self {
        TcpConnector::new(connect_timeout, metadata).limit_unacknowledged()
    }

    /// Returns the rule for the addresses that it dials.
    pub(super) fn guard(&self) -> AddressGuard {
        self.guard
    }

    /// Limits the time of data in flight, which keepalive does not probe. Only Linux has the
    /// option.
    fn limit_unacknowledged(self) -> Self {
        #[cfg(target_os = "linux")]
        let this = {
            let mut this = self;
            this.tcp.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
            this
        };
        #[cfg(not(target_os = "linux"))]
        let this = self;
        this
    }
}

impl Service<Uri> for TcpConnector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        // The resolver sees names only.
        let host = uri.host().unwrap_or_default();
        let permitted = self.guard.check_host(host);
        match permitted.and_then(|()| self.own.check_host(host)) {
            Ok(()) => self
                .tcp
                .call(uri)
                .map(|connected| connected.map_err(Into::into))
                .boxed(),
            Err(refused) => std::future::ready(Err(refused.into())).boxed(),
        }
    }
}
