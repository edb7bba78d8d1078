//! HTTP client of one origin.
//!
//! Owns the choice of connections: our own without TLS, a general client's pool with TLS. Also owns
//! the parts that all requests to one endpoint share. Does not know messages. Invariant: every
//! request goes to the origin that the client was made for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, LOCATION,
    PROXY_AUTHORIZATION, USER_AGENT,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use moongate_http1::{PoolLimits, RequestTemplate};
use moongate_telemetry::MemoryShare;

use crate::connect_timeout::ConnectTimeout;
use crate::content_coding::decode_response;
use crate::cookie_jar::CookieJar;
use crate::credential_source::{AuthChallenge, CredentialSource};
use crate::http_error::unreachable_error;
use crate::http_settings::HttpSettings;
use crate::plain_client::{PlainClient, PlainConnector};
use crate::proxy::ProxyAddress;
use crate::read_body::drain_body;
use crate::response_body::ResponseBody;
use crate::sent_credential::SentCredential;
use crate::tcp_connector::{KEEPALIVE, TcpConnector};
use crate::tunnel::ProxyConnector;
use crate::{HeaderList, LinkError};

/// Limit of idle connections to one server.
const POOL_IDLE: usize = 64;
/// Longest time that a connection stays idle. Servers commonly close theirs after 60 to 75 s.
const POOL_IDLE_TIME: Duration = Duration::from_secs(50);
/// Limit of redirects that one request follows.
const REDIRECTS_MAX: usize = 5;

/// Client of one origin, with the cookies that it set.
#[derive(Clone)]
pub(super) struct HttpClient {
    pool: HttpPool,
    /// `None` where requests carry credentials of several clients: a cookie may represent one of
    /// them.
    cookies: Option<Arc<CookieJar>>,
    credentials: Option<Arc<dyn CredentialSource>>,
    /// Share of the gateway's memory that decoders take.
    memory: MemoryShare,
}

/// Connections to one origin.
#[derive(Clone)]
enum HttpPool {
    /// HTTP/1.1 without TLS.
    Plain(Arc<PlainClient>),
    /// HTTP/1.1 without TLS to a proxy that forwards each request.
    Forward(Arc<PlainClient>, Box<ProxyAddress>),
    /// TLS, with the HTTP version that ALPN selects.
    Tls(Box<TlsPool>),
}

type TlsPool = Client<ConnectTimeout<HttpsConnector<ProxyConnector>>, Full<Bytes>>;

impl HttpClient {
    /// Creates a client for the origin of a URL, through a Unix socket or a proxy if set. Connects
    /// nothing yet.
    ///
    /// Fails if the URL cannot be used.
    pub(super) fn for_origin(
        settings: &HttpSettings,
        tls: &Arc<rustls::ClientConfig>,
    ) -> Result<Self, LinkError> {
        let cookies = (!settings.forwards_credentials).then(Arc::default);
        let credentials = settings.credentials.clone();
        let memory = settings.memory.clone();
        Ok(HttpClient {
            pool: HttpPool::for_origin(settings, tls)?,
            cookies,
            credentials,
            memory,
        })
    }

    /// Returns an endpoint of this origin with its common headers. Fails if the host isn't a valid
    /// header value.
    pub(super) fn endpoint(
        &self,
        url: &url::Url,
        configured: HeaderList,
    ) -> Result<HttpEndpoint, LinkError> {
        let mut headers: HeaderMap = configured.into_iter().collect();
        // Some hosts refuse programs by their agent, so another one may be configured.
        let agent = HeaderValue::from_static(concat!("moongate/", env!("CARGO_PKG_VERSION")));
        headers.entry(USER_AGENT).or_insert(agent);
        // Compressed events would wait for one another. Some hosts compress anyway: see
        // `content_coding.rs`.
        headers
            .entry(ACCEPT_ENCODING)
            .or_insert(HeaderValue::from_static("identity"));
        self.endpoint_with(url.clone(), headers)
    }

    fn endpoint_with(&self, url: url::Url, headers: HeaderMap) -> Result<HttpEndpoint, LinkError> {
        let route = self.pool.route(&url, headers.clone())?;
        Ok(HttpEndpoint {
            route,
            origin: Arc::new(EndpointOrigin {
                client: self.clone(),
                url,
                headers,
            }),
        })
    }
}

impl HttpPool {
    fn for_origin(
        settings: &HttpSettings,
        tls: &Arc<rustls::ClientConfig>,
    ) -> Result<Self, LinkError> {
        let HttpSettings {
            url,
            socket,
            proxy,
            metadata,
            connect_timeout,
            dial,
            ..
        } = settings;
        // One pool for each server: its idle connections cannot crowd out those of others.
        let limits = PoolLimits {
            idle: POOL_IDLE,
            idle_time: POOL_IDLE_TIME,
        };
        if let Some(path) = socket {
            let connector = PlainConnector::Unix(path.to_owned(), *connect_timeout);
            return Ok(HttpPool::Plain(PlainClient::new(
                connector,
                to_uri(url)?,
                limits,
            )));
        }
        if let Some(dial) = dial {
            return Ok(HttpPool::Plain(PlainClient::new(
                PlainConnector::Memory(dial.clone()),
                to_uri(url)?,
                limits,
            )));
        }
        let tcp = TcpConnector::new(*connect_timeout, *metadata);
        let proxy = proxy.clone();
        if url.scheme() == "https" {
            return Ok(HttpPool::Tls(Box::new(over_tls(
                tcp,
                proxy,
                *connect_timeout,
                tls,
            ))));
        }
        let connector = ProxyConnector::forwarding(tcp, proxy.clone());
        let connector = PlainConnector::Tcp(
            ConnectTimeout::new(connector, *connect_timeout).with_proxy(proxy.as_ref()),
        );
        let plain = PlainClient::new(connector, to_uri(url)?, limits);
        Ok(match proxy {
            Some(proxy) => HttpPool::Forward(plain, Box::new(proxy)),
            None => HttpPool::Plain(plain),
        })
    }

    /// Returns the way to a URL of the origin.
    fn route(&self, url: &url::Url, mut headers: HeaderMap) -> Result<HttpRoute, LinkError> {
        let uri = to_uri(url)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        match self {
            HttpPool::Plain(pool) => {
                // A configured `Host` is kept: some servers behind a socket insist on a name.
                if !headers.contains_key(HOST) {
                    headers.insert(HOST, host(&uri)?);
                }
                Ok(HttpRoute::Plain(
                    pool.clone(),
                    Arc::new(RequestTemplate::new(path.to_owned(), &headers)),
                ))
            }
            // RFC 9112, section 3.2.2: "a client MUST send the target URI in absolute-form as the
            // request-target".
            HttpPool::Forward(pool, proxy) => {
                let host = host(&uri)?;
                let absolute = format!("http://{}{path}", host.to_str().unwrap_or_default());
                // The proxy routes by the absolute URI, so `Host` must agree with it.
                headers.insert(HOST, host);
                headers.extend(
                    proxy
                        .authorization()
                        .map(|value| (PROXY_AUTHORIZATION, value.clone())),
                );
                Ok(HttpRoute::Plain(
                    pool.clone(),
                    Arc::new(RequestTemplate::new(absolute, &headers)),
                ))
            }
            HttpPool::Tls(pool) => Ok(HttpRoute::Tls(pool.clone(), Box::new((uri, headers)))),
        }
    }
}

/// Destination of requests.
#[derive(Clone)]
pub(super) struct HttpEndpoint {
    route: HttpRoute,
    origin: Arc<EndpointOrigin>,
}

/// Parts of an endpoint that are needed for another one of the same origin.
struct EndpointOrigin {
    client: HttpClient,
    url: url::Url,
    headers: HeaderMap,
}

/// Way to an endpoint.
#[derive(Clone)]
enum HttpRoute {
    /// Over our own connections.
    Plain(Arc<PlainClient>, Arc<RequestTemplate>),
    /// Over a general client, with the common headers.
    Tls(Box<TlsPool>, Box<(Uri, HeaderMap)>),
}

/// Parts that differ between requests.
#[derive(Clone)]
pub(super) struct HttpRequest {
    pub(super) method: Method,
    pub(super) accept: &'static str,
    pub(super) headers: HeaderList,
    /// JSON; empty unless the method is POST.
    pub(super) body: Bytes,
    /// `Cookie` header of the request itself, once those of the connection were added: a redirect
    /// sends the request again, with other cookies perhaps.
    own_cookies: Option<Option<HeaderValue>>,
}

impl HttpRequest {
    /// Creates a POST with a message and the accepted media types.
    pub(super) fn post(accept: &'static str, headers: HeaderList, body: Bytes) -> Self {
        HttpRequest {
            method: Method::POST,
            accept,
            headers,
            body,
            own_cookies: None,
        }
    }

    /// Creates a request without a body.
    pub(super) fn bare(method: Method, accept: &'static str, headers: HeaderList) -> Self {
        HttpRequest {
            method,
            accept,
            headers,
            body: Bytes::new(),
            own_cookies: None,
        }
    }
}

impl HttpEndpoint {
    /// Returns the proxy that forwards these requests.
    pub(super) fn forward_proxy(&self) -> Option<&ProxyAddress> {
        match &self.route {
            HttpRoute::Plain(pool, _) => pool.forward_proxy(),
            HttpRoute::Tls(..) => None,
        }
    }

    /// Sends a request. Its own headers replace common headers of the same name. Redirects within
    /// the origin that keep the method are followed.
    pub(super) async fn request(
        &self,
        mut request: HttpRequest,
    ) -> Result<Response<ResponseBody>, LinkError> {
        let response = match &self.origin.client.credentials {
            None => self.send_and_follow(&mut request).await?,
            // Boxed: few connections have a source.
            Some(source) => Box::pin(self.send_with(&**source, &mut request)).await?,
        };
        decode_response(response, &self.origin.client.memory)
    }

    /// Sends a request, and follows its redirects.
    async fn send_and_follow(
        &self,
        request: &mut HttpRequest,
    ) -> Result<Response<ResponseBody>, LinkError> {
        let response = self.send(request).await?;
        match self.redirect_target(&response) {
            // Boxed: redirects are rare, and their future is large.
            Some(target) => Box::pin(self.follow(target, response, request)).await,
            None => Ok(response),
        }
    }

    /// Follows redirects. The last response is returned if there are too many.
    async fn follow(
        &self,
        target: url::Url,
        response: Response<ResponseBody>,
        request: &mut HttpRequest,
    ) -> Result<Response<ResponseBody>, LinkError> {
        let mut next = Some(target);
        let mut response = response;
        for _ in 0..REDIRECTS_MAX {
            let Some(target) = next.take() else { break };
            // Read, so that the connection can be reused.
            drain_body(response.into_body()).await;
            let endpoint = self
                .origin
                .client
                .endpoint_with(target, self.origin.headers.clone())?;
            response = endpoint.send(request).await?;
            next = endpoint.redirect_target(&response);
        }
        Ok(response)
    }

    /// Returns where a response redirects to, if that is within the origin and the method is kept.
    fn redirect_target(&self, response: &Response<ResponseBody>) -> Option<url::Url> {
        // The other statuses turn a POST into a GET, which isn't a message.
        if !matches!(
            response.status(),
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
        ) {
            return None;
        }
        let location = response.headers().get(LOCATION)?.to_str().ok()?;
        let mut target = self.origin.url.join(location).ok()?;
        target.set_fragment(None);
        // Credentials of the config go with the request, and only this origin may get them.
        let is_own = target.origin() == self.origin.url.origin() && target.origin().is_tuple();
        (is_own && target.username().is_empty() && target.password().is_none()).then_some(target)
    }

    /// Sends a request with the credential that its source has now, and follows its redirects. A
    /// refused credential is renewed once.
    async fn send_with(
        &self,
        source: &dyn CredentialSource,
        request: &mut HttpRequest,
    ) -> Result<Response<ResponseBody>, LinkError> {
        let sent = authorize(source, request).await?;
        let response = self.send_and_follow(request).await?;
        let Some(challenge) = AuthChallenge::of(response.status(), response.headers()) else {
            return Ok(with_sent(response, sent));
        };
        if !source.on_refusal(sent.as_ref(), &challenge).await {
            return Ok(with_sent(response, sent));
        }
        // It was refused, so it has not run. Read, so that the connection can be reused.
        drain_body(response.into_body()).await;
        let sent = authorize(source, request).await?;
        let response = self.send_and_follow(request).await?;
        Ok(with_sent(response, sent))
    }

    /// Sends a request once.
    async fn send(&self, request: &mut HttpRequest) -> Result<Response<ResponseBody>, LinkError> {
        self.add_cookies(request);
        let response = self.transmit(request).await?;
        if let Some(jar) = &self.origin.client.cookies {
            jar.store(response.headers(), self.origin.url.scheme() == "https");
        }
        Ok(response)
    }

    /// Adds the cookies that the server set to those that the request has.
    fn add_cookies(&self, request: &mut HttpRequest) {
        let Some(jar) = &self.origin.client.cookies else {
            return;
        };
        if let Some(own) = request.own_cookies.take() {
            request.headers.retain(|(name, _)| *name != COOKIE);
            request.headers.extend(own.map(|own| (COOKIE, own)));
        }
        let own = request
            .headers
            .iter()
            .find(|(name, _)| *name == COOKIE)
            .map(|(_, value)| value.clone());
        let configured = own.as_ref().or_else(|| self.origin.headers.get(COOKIE));
        if let Some(cookies) = jar.header(self.origin.url.path(), configured) {
            request.headers.retain(|(name, _)| *name != COOKIE);
            request.headers.push((COOKIE, cookies));
            request.own_cookies = Some(own);
        }
    }

    async fn transmit(&self, request: &HttpRequest) -> Result<Response<ResponseBody>, LinkError> {
        let HttpRequest {
            method,
            accept,
            headers,
            body,
            ..
        } = request;
        match &self.route {
            HttpRoute::Plain(pool, template) => {
                pool.request(template.request(method, accept, headers, body.clone()))
                    .await
            }
            HttpRoute::Tls(pool, common) => {
                let mut request = http::Request::new(Full::new(body.clone()));
                let is_post = *method == Method::POST;
                request.method_mut().clone_from(method);
                request.uri_mut().clone_from(&common.0);
                let map = request.headers_mut();
                map.clone_from(&common.1);
                map.insert(ACCEPT, HeaderValue::from_static(accept));
                if is_post {
                    map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                }
                // `extend` would append instead of replacing.
                for (name, value) in headers {
                    map.insert(name.clone(), value.clone());
                }
                // Boxed: the future is large, and TLS is not the hot path.
                let answer = Box::pin(pool.request(request)).await;
                Ok(answer
                    .map_err(|e| unreachable_error(&e, common.0.host()))?
                    .map(ResponseBody::Tls))
            }
        }
    }
}

/// Gives a request the credential of now. Returns it.
async fn authorize(
    source: &dyn CredentialSource,
    request: &mut HttpRequest,
) -> Result<Option<HeaderValue>, LinkError> {
    let authorization = source.authorization().await?;
    request.headers.retain(|(name, _)| *name != AUTHORIZATION);
    request
        .headers
        .extend(authorization.clone().map(|value| (AUTHORIZATION, value)));
    Ok(authorization)
}

/// Notes what was sent in a response that becomes an error, which must not quote it.
fn with_sent(
    mut response: Response<ResponseBody>,
    sent: Option<HeaderValue>,
) -> Response<ResponseBody> {
    if let Some(sent) = sent
        && !response.status().is_success()
    {
        response.extensions_mut().insert(SentCredential::new(sent));
    }
    response
}

fn invalid_uri(error: &http::uri::InvalidUri) -> LinkError {
    LinkError::Spawn(format!("the URL cannot be used: {error}"))
}

fn to_uri(url: &url::Url) -> Result<Uri, LinkError> {
    url.as_str().parse().map_err(|e| invalid_uri(&e))
}

fn over_tls(
    tcp: TcpConnector,
    proxy: Option<ProxyAddress>,
    connect_timeout: Duration,
    tls: &Arc<rustls::ClientConfig>,
) -> TlsPool {
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config((**tls).clone())
        .https_only()
        .enable_all_versions()
        .wrap_connector(ProxyConnector::tunneling(tcp, proxy.clone()));
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE_TIME)
        .pool_max_idle_per_host(POOL_IDLE)
        // All calls share one HTTP/2 connection. Without pings, one that hangs would be used for
        // ever.
        .http2_keep_alive_interval(KEEPALIVE.0)
        .http2_keep_alive_timeout(KEEPALIVE.1)
        .build(ConnectTimeout::new(connector, connect_timeout).with_proxy(proxy.as_ref()))
}

/// Returns the `Host` header: the host of the URL, with the port unless it is 80.
fn host(uri: &Uri) -> Result<HeaderValue, LinkError> {
    let name = uri.host().unwrap_or_default();
    let host = match uri.port_u16() {
        Some(port) if port != 80 => format!("{name}:{port}"),
        _ => name.to_owned(),
    };
    HeaderValue::try_from(host)
        .map_err(|_| LinkError::Spawn("the URL's host cannot be sent".to_owned()))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::PrivateKeyDer;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::metadata_address::MetadataAccess;
    use moongate_telemetry::{MemoryBudget, MemoryHolder, Metrics};

    /// Starts a server that agrees on HTTP/2 by ALPN and then stays silent.
    async fn silent() -> (u16, Arc<rustls::ClientConfig>, tokio::task::JoinHandle<()>) {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(["localhost".to_owned()])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(own.der().clone()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(provider.clone());
        let client = client
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut server = server
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], key)
            .unwrap();
        server.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let _held = TlsAcceptor::from(Arc::new(server))
                .accept(stream)
                .await
                .unwrap();
            // From here on only time is missing, not bytes.
            tokio::time::pause();
            std::future::pending().await
        });
        (port, Arc::new(client.with_no_client_auth()), serving)
    }

    #[tokio::test]
    async fn a_connection_of_http2_on_which_nobody_answers_is_given_up() {
        let (port, tls, serving) = silent().await;
        let url = url::Url::parse(&format!("https://localhost:{port}/mcp")).unwrap();
        let settings = HttpSettings {
            url: url.clone(),
            socket: None,
            proxy: None,
            metadata: MetadataAccess::Refused,
            headers: Vec::new(),
            credentials: None,
            forwards_credentials: false,
            connect_timeout: Duration::from_secs(10),
            max_message: 1024,
            memory: MemoryBudget::unlimited(&Metrics::new()).share(MemoryHolder::Local),
            on_garbage: Arc::new(|_| {}),
            on_mended: Arc::new(|| {}),
            was_reached: false,
            on_resume: Arc::new(|| {}),
            dial: None,
        };
        let way = HttpClient::for_origin(&settings, &tls).unwrap();
        let target = way.endpoint(&url, Vec::new()).unwrap();
        let request = HttpRequest::post("application/json", Vec::new(), Bytes::from_static(b"{}"));
        let error = target.request(request).await.err().unwrap().to_string();
        assert!(error.contains("keep-alive timed out"), "{error}");
        serving.abort();
    }
}
