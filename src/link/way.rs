//! The way to one HTTP origin.
//!
//! Owns the choice between our own connections, where there is no TLS, and a client's pool, where there is; and what all
//! requests to one target have in common. Does not know messages. Invariant: whatever goes this way goes to the origin
//! that it was made for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Response, Uri};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::link::answer::Answer;
use crate::link::http::unreachable_error;
use crate::link::http1::Template;
use crate::link::plain::{Connector, Limits, Plain};
use crate::link::{Dial, Headers, LinkError};

/// Idle connections kept for each server.
const POOL_IDLE: usize = 64;
/// How long an idle connection is kept; servers commonly close theirs after 60 to 75 s.
const POOL_IDLE_TIME: Duration = Duration::from_secs(50);
/// A server that went away without a word is noticed after the first of these, and so many times the second.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

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
    /// The way to the origin of a URL; nothing is connected yet. `dial` opens connections in place of the network.
    ///
    /// Fails where the URL cannot be used.
    pub(super) fn to(
        url: &url::Url,
        connect_timeout: Duration,
        tls: &Arc<rustls::ClientConfig>,
        dial: Option<&Dial>,
    ) -> Result<Self, LinkError> {
        let limits = Limits { idle: POOL_IDLE, idle_time: POOL_IDLE_TIME };
        if let Some(dial) = dial {
            return Ok(Way::Plain(Plain::new(Connector::Memory(dial.clone()), whole(url)?, limits)));
        }
        let tcp = tcp(connect_timeout);
        if url.scheme() == "https" {
            return Ok(Way::Tls(Box::new(over_tls(tcp, tls))));
        }
        Ok(Way::Plain(Plain::new(Connector::Tcp(tcp), whole(url)?, limits)))
    }

    /// A URL of this origin, with the headers of each request to it beside our name: it fails where that cannot be sent.
    pub(super) fn target(&self, url: &url::Url, configured: Headers) -> Result<Target, LinkError> {
        let uri = whole(url)?;
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("moongate/", env!("CARGO_PKG_VERSION"))));
        headers.extend(configured);
        match self {
            Way::Plain(pool) => {
                if !headers.contains_key(HOST) {
                    headers.insert(HOST, host(&uri)?);
                }
                let path = uri.path_and_query().map_or("/", |path| path.as_str());
                Ok(Target::Plain(pool.clone(), Arc::new(Template::new(path.to_owned(), &headers))))
            }
            Way::Tls(pool) => Ok(Target::Tls(pool.clone(), Box::new((uri, headers)))),
        }
    }
}

/// Where requests go.
#[derive(Clone)]
pub(super) enum Target {
    /// Over our own connections.
    Plain(Arc<Plain>, Arc<Template>),
    /// Over a client's, with the headers of each request.
    Tls(Box<TlsPool>, Box<(Uri, HeaderMap)>),
}

/// What one request has of its own.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) accept: &'static str,
    pub(super) headers: Headers,
    /// JSON, with the method POST.
    pub(super) body: Bytes,
}

impl Request {
    /// A message, and what may come back for it.
    pub(super) fn post(accept: &'static str, headers: Headers, body: Bytes) -> Self {
        Request { method: Method::POST, accept, headers, body }
    }

    /// A request without a body.
    pub(super) fn bare(method: Method, accept: &'static str, headers: Headers) -> Self {
        Request { method, accept, headers, body: Bytes::new() }
    }
}

impl Target {
    /// Sends a request. A header of its own replaces one of the same name that all requests have.
    pub(super) async fn request(&self, request: Request) -> Result<Response<Answer>, LinkError> {
        let Request { method, accept, headers, body } = request;
        match self {
            Target::Plain(pool, template) => pool.request(template.request(&method, accept, &headers, body)).await,
            Target::Tls(pool, common) => {
                let mut request = http::Request::new(Full::new(body));
                let is_post = method == Method::POST;
                *request.method_mut() = method;
                request.uri_mut().clone_from(&common.0);
                let map = request.headers_mut();
                map.clone_from(&common.1);
                map.insert(ACCEPT, HeaderValue::from_static(accept));
                if is_post {
                    map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                }
                // Not `extend`: it would leave the others of that name.
                for (name, value) in headers {
                    map.insert(name, value);
                }
                // Aside: the future is large, and this is not the hot path.
                let answer = Box::pin(pool.request(request)).await;
                Ok(answer.map_err(|e| unreachable_error(&e, common.0.host()))?.map(Answer::from))
            }
        }
    }
}

/// Connects over TCP, whatever the scheme: by name, to each address that it has.
pub(super) fn tcp(connect_timeout: Duration) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE.0));
    tcp.set_keepalive_interval(Some(KEEPALIVE.1));
    tcp.set_keepalive_retries(Some(KEEPALIVE.2));
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
