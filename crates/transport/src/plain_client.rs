//! HTTP client of one server without TLS.
//!
//! Owns the route to the server: TCP, a forwarding proxy, a Unix socket or memory. Does not read
//! responses. Invariant: every connection of its pool leads to the same server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, Uri};
use moongate_http1::{ClientPool, EncodedRequest, HttpIo, PoolLimits, RequestError};
use tower::ServiceExt;

use crate::connect_hints::unreachable;
use crate::connect_timeout::ConnectTimeout;
use crate::http_error::connection_error;
use crate::proxy::ProxyAddress;
use crate::response_body::ResponseBody;
use crate::tunnel::ProxyConnector;
use crate::unix_connector::connect_unix;
use crate::{LinkError, PipeDialer};

/// Client of one server.
pub(super) struct PlainClient {
    connector: PlainConnector,
    target: Uri,
    pool: Arc<ClientPool>,
}

/// Opener of connections.
pub(super) enum PlainConnector {
    Tcp(ConnectTimeout<ProxyConnector>),
    /// To the Unix socket at this path, within this time.
    Unix(PathBuf, Duration),
    /// To a server in memory.
    Memory(PipeDialer),
}

impl PlainClient {
    pub(super) fn new(connector: PlainConnector, target: Uri, limits: PoolLimits) -> Arc<Self> {
        Arc::new(PlainClient {
            connector,
            target,
            pool: ClientPool::new(limits),
        })
    }

    /// Sends a request, over an idle connection if there is one.
    pub(super) async fn request(
        &self,
        request: Box<EncodedRequest>,
    ) -> Result<Response<ResponseBody>, LinkError> {
        match self.pool.request(request, || self.connect()).await {
            Ok(response) => Ok(response.map(ResponseBody::Plain)),
            Err(RequestError::Connect(error)) => Err(error),
            Err(RequestError::Broken(error)) => {
                Err(connection_error(&error, "the connection broke"))
            }
        }
    }

    /// Returns the proxy that forwards requests to the server.
    pub(super) fn forward_proxy(&self) -> Option<&ProxyAddress> {
        match &self.connector {
            PlainConnector::Tcp(tcp) => tcp.inner().forward_proxy(),
            PlainConnector::Unix(..) | PlainConnector::Memory(_) => None,
        }
    }

    async fn connect(&self) -> Result<HttpIo, LinkError> {
        Ok(match &self.connector {
            PlainConnector::Tcp(tcp) => {
                let connected = tcp.clone().oneshot(self.target.clone()).await;
                HttpIo::Tcp(
                    connected
                        .map_err(|e| unreachable(&*e, self.target.host()))?
                        .into_inner(),
                )
            }
            PlainConnector::Unix(path, limit) => HttpIo::Unix(connect_unix(path, *limit).await?),
            PlainConnector::Memory(dial) => HttpIo::from(dial()?),
        })
    }
}
