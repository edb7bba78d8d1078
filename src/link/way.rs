//! The way to one HTTP origin.
//!
//! Owns the choice between our own connections, where there is no TLS, and a client's pool, where there is. Does not
//! know messages. Invariant: whatever goes this way goes to the origin that it was made for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::link::http::unreachable_error;
use crate::link::plain::{Answer, Limits, Plain};
use crate::link::{Headers, LinkError};

/// Idle connections kept for each server.
const POOL_IDLE: usize = 64;
/// How long an idle connection is kept; servers commonly close theirs after 60 to 75 s.
const POOL_IDLE_TIME: Duration = Duration::from_secs(50);

/// The way to a server.
#[derive(Clone)]
pub(super) enum Way {
    /// HTTP/1.1 without TLS.
    Plain(Arc<Plain>),
    /// TLS, and whichever version of HTTP is agreed on.
    Tls(Box<TlsPool>),
}

type TlsPool = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

impl Way {
    /// The way to the origin of a URL; nothing is connected yet.
    ///
    /// Fails where the URL cannot be used.
    pub(super) fn to(
        url: &url::Url,
        connect_timeout: Duration,
        tls: &Arc<rustls::ClientConfig>,
    ) -> Result<Self, LinkError> {
        let tcp = tcp(connect_timeout);
        if url.scheme() == "https" {
            return Ok(Way::Tls(Box::new(over_tls(tcp, tls))));
        }
        let limits = Limits { idle: POOL_IDLE, idle_time: POOL_IDLE_TIME };
        Ok(Way::Plain(Plain::new(tcp, whole(url)?, limits)))
    }

    /// What a request to a URL of this origin names.
    pub(super) fn target(&self, url: &url::Url) -> Result<Uri, LinkError> {
        let uri = whole(url)?;
        match self {
            Way::Plain(_) => uri.path_and_query().map_or("/", |path| path.as_str()).parse().map_err(|e| unusable(&e)),
            Way::Tls(_) => Ok(uri),
        }
    }

    /// The headers of every request: our name, the configured ones, and the host where the way does not add it.
    pub(super) fn headers(&self, url: &url::Url, configured: Headers) -> Result<HeaderMap, LinkError> {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("moongate/", env!("CARGO_PKG_VERSION"))));
        headers.extend(configured);
        if matches!(self, Way::Plain(_)) && !headers.contains_key(HOST) {
            headers.insert(HOST, host(&whole(url)?)?);
        }
        Ok(headers)
    }

    /// Sends a request.
    pub(super) async fn request(&self, request: Request<Full<Bytes>>) -> Result<Response<Answer>, LinkError> {
        match self {
            Way::Plain(pool) => pool.request(request).await,
            Way::Tls(pool) => {
                let uri = request.uri().clone();
                let answer = pool.request(request).await.map_err(|e| unreachable_error(&e, uri.host()))?;
                Ok(answer.map(Answer::from))
            }
        }
    }
}

/// Connects over TCP, whatever the scheme: by name, to each address that it has.
pub(super) fn tcp(connect_timeout: Duration) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    tcp.set_connect_timeout(Some(connect_timeout));
    tcp
}

fn unusable(error: &http::uri::InvalidUri) -> LinkError {
    LinkError::Unstartable(format!("the URL cannot be used: {error}"))
}

fn whole(url: &url::Url) -> Result<Uri, LinkError> {
    url.as_str().parse().map_err(|e| unusable(&e))
}

fn over_tls(tcp: HttpConnector, tls: &Arc<rustls::ClientConfig>) -> TlsPool {
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config((**tls).clone())
        .https_only()
        .enable_all_versions()
        .wrap_connector(tcp);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE_TIME)
        .pool_max_idle_per_host(POOL_IDLE)
        .build(connector)
}

/// The `Host` of requests: the URL's host, with the port unless it is the usual one.
fn host(uri: &Uri) -> Result<HeaderValue, LinkError> {
    let name = uri.host().unwrap_or_default();
    let host = match uri.port_u16() {
        Some(port) if port != 80 => format!("{name}:{port}"),
        _ => name.to_owned(),
    };
    HeaderValue::try_from(host).map_err(|_| LinkError::Unstartable("the URL's host cannot be sent".to_owned()))
}
