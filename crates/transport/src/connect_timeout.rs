//! Time limit of a connector.
//!
//! Owns the limit and the text of its error. Does not connect. Invariant: the limit covers name
//! resolution, the proxy and the TLS handshake together.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Uri;
use tower::{BoxError, Service};

use crate::proxy::ProxyAddress;

/// Connector with one time limit for everything. The HTTP connector does not count name resolution,
/// and the TLS connector not its handshake. A stalled server would hold each call until the
/// deadline of that call.
#[derive(Clone)]
pub(super) struct ConnectTimeout<C> {
    inner: C,
    limit: Duration,
    /// Suffix for errors that names the proxy.
    through: Arc<str>,
}

impl<C> ConnectTimeout<C> {
    pub(super) fn new(inner: C, limit: Duration) -> Self {
        ConnectTimeout {
            inner,
            limit,
            through: Arc::from(""),
        }
    }

    /// Returns the inner connector.
    pub(super) fn inner(&self) -> &C {
        &self.inner
    }

    /// Names a proxy in timeout errors.
    pub(super) fn with_proxy(self, proxy: Option<&ProxyAddress>) -> Self {
        let through = proxy.map_or(String::new(), |proxy| format!(" through {proxy}"));
        ConnectTimeout {
            through: through.into(),
            ..self
        }
    }
}

impl<C> Service<Uri> for ConnectTimeout<C>
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let limit = self.limit;
        let secure = uri.scheme_str() == Some("https");
        let connecting = self.inner.call(uri);
        let through = self.through.clone();
        Box::pin(async move {
            match tokio::time::timeout(limit, connecting).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => {
                    let what = if secure {
                        "connection and TLS handshake"
                    } else {
                        "connection"
                    };
                    Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!("no {what} within {limit:?}{through}"),
                    )
                    .into())
                }
            }
        })
    }
}
