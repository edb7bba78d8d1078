//! Fetches of URLs that others name, such as a server, a token or a client.
//!
//! Owns the rules for them: https, public addresses, no redirects, few bytes, little time. Does not
//! know what is fetched. Invariant: an error never quotes a byte of a response, and the dialled
//! address is the one that was checked, and never this gateway.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::address_guard::{AddressGuard, GuardError};
use crate::metadata_address::MetadataAccess;
use crate::own_listeners::OwnListeners;
use crate::proxy::ProxyEnvironment;
use crate::tcp_connector::TcpConnector;
use crate::trust;
use crate::tunnel::ProxyConnector;

/// Longest time of a fetch, from the lookup of the name to the end of the body, unless the caller
/// gives another one.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a body, in bytes.
const BODY_MAX: usize = 64 * 1024;

type GuardedClient = Client<HttpsConnector<ProxyConnector>, Full<Bytes>>;

/// Rules for what may be fetched besides https URLs at public addresses.
#[derive(Clone, Debug, Default)]
pub struct FetchRules {
    /// Origins that may be private, and need no TLS.
    pub origins: Vec<url::Origin>,
    /// Hosts that may be private at any port, and need no TLS: `egress.allow`.
    pub hosts: Vec<String>,
    /// Listeners of this gateway. They are never fetched, whatever else is allowed.
    pub own: Vec<SocketAddr>,
}

/// Fetcher of URLs that others name.
pub struct Fetcher {
    tls: OnceLock<Arc<rustls::ClientConfig>>,
    rules: FetchRules,
    proxies: OnceLock<ProxyEnvironment>,
    body_max: usize,
}

/// Failure of a fetch. Says only what the operator may know: the host, and the kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} {kind}")]
pub struct FetchError {
    /// Host of the URL.
    pub host: String,
    /// Kind of failure.
    pub kind: FetchFailure,
}

/// Kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchFailure {
    /// The URL cannot be fetched: it is not https, or has credentials.
    #[error("is not at an https URL without credentials")]
    Url,
    /// The host has no public address.
    #[error("is not at a public address")]
    Private,
    /// The host is the metadata service of a cloud. No setting allows a fetch there.
    #[error("is a cloud metadata address, which is never fetched")]
    Metadata,
    /// The host is this gateway.
    #[error("is an address of this gateway")]
    Own,
    /// The host cannot be reached, or closed the connection.
    #[error("cannot be reached")]
    Unreachable,
    /// The response redirects.
    #[error("redirects, and redirects are not followed")]
    Redirect,
    /// The body is too large.
    #[error("sends too much data")]
    TooLarge,
    /// The time is up.
    #[error("takes too long")]
    Timeout,
}

impl Fetcher {
    /// Creates a fetcher that trusts these certificates.
    pub fn new(tls: Arc<rustls::ClientConfig>, rules: &FetchRules) -> Self {
        Fetcher {
            tls: OnceLock::from(tls),
            ..Fetcher::with_system_roots(rules)
        }
    }

    /// Creates a fetcher that trusts the system's certificates. They are read at the first fetch,
    /// because that takes a while and most processes never fetch.
    pub fn with_system_roots(rules: &FetchRules) -> Self {
        let hosts = rules.hosts.iter().map(|host| normal_host(host)).collect();
        Fetcher {
            tls: OnceLock::new(),
            rules: FetchRules {
                hosts,
                ..rules.clone()
            },
            proxies: OnceLock::new(),
            body_max: BODY_MAX,
        }
    }

    /// Returns a fetcher that accepts larger or smaller bodies.
    #[must_use]
    pub fn with_body_max(self, body_max: usize) -> Self {
        Fetcher { body_max, ..self }
    }

    /// Sends a request to a URL. Returns the response with its whole body, whatever its status,
    /// unless it redirects.
    pub async fn fetch(
        &self,
        url: &url::Url,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, FetchError> {
        self.fetch_timed((None, TIMEOUT), url, request).await
    }

    /// Sends a request as `fetch` does, but the origin of `extra` may be private, too. `extra` is
    /// the URL of a configured server, and `url` is the one that this server named.
    pub async fn fetch_at(
        &self,
        extra: &url::Url,
        url: &url::Url,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, FetchError> {
        self.fetch_timed((Some(extra), TIMEOUT), url, request).await
    }

    /// Sends a request as `fetch_at` does, and waits for the response for up to `timeout`. For
    /// requests that cannot be repeated, such as one that uses up a code, because an abandoned
    /// response is lost. Connecting takes no longer than for other requests.
    pub async fn fetch_within(
        &self,
        timeout: Duration,
        extra: &url::Url,
        url: &url::Url,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, FetchError> {
        self.fetch_timed((Some(extra), timeout), url, request).await
    }

    async fn fetch_timed(
        &self,
        (extra, timeout): (Option<&url::Url>, Duration),
        url: &url::Url,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, FetchError> {
        let fetching = self.fetch_whole(extra, url, request);
        let fetched = match tokio::time::timeout(timeout, fetching).await {
            Ok(fetched) => fetched,
            Err(_) => Err(FetchFailure::Timeout),
        };
        fetched.map_err(|kind| FetchError {
            host: url.host_str().unwrap_or_default().to_owned(),
            kind,
        })
    }

    async fn fetch_whole(
        &self,
        extra: Option<&url::Url>,
        url: &url::Url,
        mut request: Request<Bytes>,
    ) -> Result<Response<Bytes>, FetchFailure> {
        let client = self.client_for(extra, url)?;
        *request.uri_mut() = url.as_str().parse().map_err(|_| FetchFailure::Url)?;
        let agent = HeaderValue::from_static(concat!("moongate/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().entry(USER_AGENT).or_insert(agent);
        let response = client
            .request(request.map(Full::new))
            .await
            .map_err(|error| failure_of(&error))?;
        if response.status().is_redirection() {
            return Err(FetchFailure::Redirect);
        }
        let (head, body) = response.into_parts();
        let body = Limited::new(body, self.body_max)
            .collect()
            .await
            .map_err(|error| match error.is::<LengthLimitError>() {
                true => FetchFailure::TooLarge,
                false => FetchFailure::Unreachable,
            })?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }

    /// Creates a client for one fetch. Its connection is not kept, since the next URL may be on
    /// another host.
    fn client_for(
        &self,
        extra: Option<&url::Url>,
        url: &url::Url,
    ) -> Result<GuardedClient, FetchFailure> {
        let is_allowed = self.allows(extra, url);
        let is_web = url.scheme() == "https" || is_allowed && url.scheme() == "http";
        if !is_web || !url.username().is_empty() || url.password().is_some() {
            return Err(FetchFailure::Url);
        }
        // What the config names is checked as a server is.
        let guard = if is_allowed {
            AddressGuard::Server(MetadataAccess::Refused)
        } else {
            AddressGuard::Public
        };
        let port = url.port_or_known_default().unwrap_or_default();
        let own = OwnListeners::at_port(&self.rules.own, port);
        let proxy = self.proxies.get_or_init(ProxyEnvironment::read).choose(url);
        let tcp = if proxy.is_some() {
            // The proxy looks the name up, so only the name can be checked here. The proxy itself
            // is the operator's, and may be private.
            let host = url.host_str().unwrap_or_default();
            let permitted = guard.check_host(host).and_then(|()| own.check_host(host));
            permitted.map_err(|refused| failure_of_guard(&refused))?;
            TcpConnector::new(TIMEOUT, MetadataAccess::Refused)
        } else {
            TcpConnector::guarded(TIMEOUT, guard, own)
        };
        let tls = self
            .tls
            .get_or_init(|| trust::client_config(trust::system_roots()));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls.as_ref().clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(ProxyConnector::tunneling(tcp, proxy));
        Ok(Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(connector))
    }

    /// Returns true for a URL that may be private, and needs no TLS.
    fn allows(&self, extra: Option<&url::Url>, url: &url::Url) -> bool {
        let origin = url.origin();
        let host = url.host_str().map(normal_host);
        extra.is_some_and(|extra| extra.origin() == origin)
            || self.rules.origins.contains(&origin)
            || host.is_some_and(|host| self.rules.hosts.contains(&host))
    }
}

/// Writes a host in the form in which hosts are compared.
fn normal_host(host: &str) -> String {
    let host = host.trim_matches(['[', ']']).trim_end_matches('.');
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => host.to_ascii_lowercase(),
    }
}

/// Checks whether a guard refused the address.
fn failure_of(error: &hyper_util::client::legacy::Error) -> FetchFailure {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<GuardError>() {
            return failure_of_guard(refused);
        }
        cause = error.source();
    }
    FetchFailure::Unreachable
}

fn failure_of_guard(refused: &GuardError) -> FetchFailure {
    match refused {
        GuardError::Own(_) => FetchFailure::Own,
        GuardError::Metadata(_) | GuardError::FetchedMetadata(_) => FetchFailure::Metadata,
        GuardError::Private(_) => FetchFailure::Private,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::trust::tls_without_roots;

    /// Server that answers each connection with these bytes. Returns its address and the number of
    /// connections.
    async fn server(response: String) -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(response.as_bytes()).await;
                if response.is_empty() {
                    std::future::pending::<()>().await;
                }
            }
        });
        (address, connections)
    }

    fn url(text: &str) -> url::Url {
        url::Url::parse(text).unwrap()
    }

    /// Fetcher for which the origin of this URL may be private.
    fn allowing(text: &str) -> Fetcher {
        let rules = FetchRules {
            origins: vec![url(text).origin()],
            ..FetchRules::default()
        };
        Fetcher::new(tls_without_roots(), &rules)
    }

    async fn fetch(fetcher: &Fetcher, text: &str) -> Result<(u16, Bytes), FetchError> {
        let fetched = fetcher.fetch(&url(text), Request::new(Bytes::new())).await;
        fetched.map(|response| (response.status().as_u16(), response.into_body()))
    }

    fn with_length(status: &str, body: &str) -> String {
        format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    #[tokio::test]
    async fn a_private_address_is_reached_only_at_an_allowed_scheme_host_and_port() {
        let (address, connections) = server(with_length("404 Not Found", "secret")).await;
        let port = address.port();
        let own = format!("http://127.0.0.1:{port}/mcp");
        let fetcher = allowing(&own);
        let found = fetch(&fetcher, &format!("http://127.0.0.1:{port}/.well-known/x"))
            .await
            .unwrap();
        assert_eq!(found, (404, Bytes::from_static(b"secret")));
        for (text, kind) in [
            (format!("https://127.0.0.1:{port}/"), FetchFailure::Private),
            (format!("https://localhost:{port}/"), FetchFailure::Private),
            (format!("http://localhost:{port}/"), FetchFailure::Url),
            (
                format!("https://[::ffff:127.0.0.1]:{port}/"),
                FetchFailure::Private,
            ),
            (format!("http://u:p@127.0.0.1:{port}/"), FetchFailure::Url),
            (
                "https://169.254.169.254/latest".to_owned(),
                FetchFailure::Metadata,
            ),
            (
                "https://metadata.google.internal/".to_owned(),
                FetchFailure::Metadata,
            ),
            ("javascript:alert(1)".to_owned(), FetchFailure::Url),
            ("file:///etc/passwd".to_owned(), FetchFailure::Url),
        ] {
            assert_eq!(
                fetch(&fetcher, &text).await.map_err(|error| error.kind),
                Err(kind),
                "{text}"
            );
        }
        assert_eq!(connections.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn an_allowed_host_is_reached_at_any_port_without_tls() {
        let (address, _) = server(with_length("200 OK", "here")).await;
        let rules = FetchRules {
            hosts: vec!["LOCALHOST.".to_owned()],
            ..FetchRules::default()
        };
        let fetcher = Fetcher::new(tls_without_roots(), &rules);
        let port = address.port();
        let found = fetch(&fetcher, &format!("http://localhost:{port}/")).await;
        assert_eq!(found, Ok((200, Bytes::from_static(b"here"))));
        for (text, kind) in [
            (format!("http://a.localhost:{port}/"), FetchFailure::Url),
            (
                format!("https://a.localhost:{port}/"),
                FetchFailure::Private,
            ),
            (format!("https://127.0.0.1:{port}/"), FetchFailure::Private),
        ] {
            let failed = fetch(&fetcher, &text).await.unwrap_err();
            assert_eq!(failed.kind, kind, "{text}");
        }
    }

    #[test]
    fn hosts_are_compared_without_case_brackets_or_a_last_dot() {
        assert_eq!(normal_host("Auth.Example.COM."), "auth.example.com");
        assert_eq!(normal_host("[0:0::1]"), normal_host("::1"));
    }

    #[tokio::test]
    async fn the_origin_of_the_server_is_allowed_for_one_fetch() {
        let (address, connections) = server(with_length("200 OK", "here")).await;
        let fetcher = Fetcher::new(tls_without_roots(), &FetchRules::default());
        let own = url(&format!("http://{address}/mcp"));
        let metadata = url(&format!("http://{address}/.well-known/x"));
        let request = || Request::new(Bytes::new());
        let found = fetcher.fetch_at(&own, &metadata, request()).await.unwrap();
        assert_eq!(found.into_body(), "here");
        let failed = fetcher.fetch(&metadata, request()).await.unwrap_err();
        assert_eq!(failed.kind, FetchFailure::Url);
        let other = url("http://127.0.0.1:1/");
        let failed = fetcher.fetch_at(&own, &other, request()).await.unwrap_err();
        assert_eq!(failed.kind, FetchFailure::Url);
        assert_eq!(connections.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_listener_of_this_gateway_is_never_dialled() {
        let (address, connections) = server(with_length("200 OK", "here")).await;
        let port = address.port();
        let everywhere = SocketAddr::from(([0, 0, 0, 0], port));
        for listener in [address, everywhere] {
            let rules = FetchRules {
                origins: vec![url(&format!("http://{address}/")).origin()],
                hosts: vec!["localhost".to_owned(), "0.0.0.0".to_owned()],
                own: vec![listener],
            };
            let fetcher = Fetcher::new(tls_without_roots(), &rules);
            for host in ["127.0.0.1", "0.0.0.0"] {
                let failed = fetch(&fetcher, &format!("http://{host}:{port}/")).await;
                assert_eq!(failed.unwrap_err().kind, FetchFailure::Own, "{host}");
            }
            // A name may have another address, where nobody listens.
            assert!(
                fetch(&fetcher, &format!("http://localhost:{port}/"))
                    .await
                    .is_err()
            );
        }
        assert_eq!(connections.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_name_is_checked_by_the_address_that_it_stands_for() {
        // `localhost` is looked up as any name is, once it is not known by its letters.
        let mut resolver = crate::address_resolver::AddressResolver::new(AddressGuard::Public);
        let found = tower::Service::call(&mut resolver, "localhost".parse().unwrap()).await;
        assert!(
            found
                .unwrap_err()
                .to_string()
                .contains("is not a public address")
        );
    }

    #[tokio::test]
    async fn no_redirect_is_followed_and_no_body_is_too_large() {
        let redirect =
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
                .to_owned();
        let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(BODY_MAX + 1));
        for (response, kind) in [
            (redirect, FetchFailure::Redirect),
            (
                with_length("200 OK", &"x".repeat(BODY_MAX + 1)),
                FetchFailure::TooLarge,
            ),
            (endless, FetchFailure::TooLarge),
            (
                "nothing of HTTP\r\n\r\n".to_owned(),
                FetchFailure::Unreachable,
            ),
        ] {
            let (address, _) = server(response).await;
            let own = format!("http://{address}/");
            let error = fetch(&allowing(&own), &own).await.unwrap_err();
            assert_eq!(
                error,
                FetchError {
                    host: "127.0.0.1".to_owned(),
                    kind
                }
            );
            assert!(!error.to_string().contains("nothing"), "{error}");
        }
        let (address, _) = server(with_length("200 OK", &"x".repeat(BODY_MAX))).await;
        let own = format!("http://{address}/");
        let fetched = fetch(&allowing(&own), &own).await.unwrap();
        assert_eq!(fetched.1.len(), BODY_MAX);
    }

    #[tokio::test]
    async fn a_host_that_does_not_answer_costs_five_seconds() {
        let (address, _) = server(String::new()).await;
        let own = format!("http://{address}/");
        let fetcher = allowing(&own);
        let begun = tokio::time::Instant::now();
        let error = fetch(&fetcher, &own).await.unwrap_err();
        assert_eq!(error.kind, FetchFailure::Timeout);
        assert_eq!(begun.elapsed().as_secs(), 5);
        let limit = Duration::from_secs(1);
        let own = url(&own);
        let begun = tokio::time::Instant::now();
        let fetching = fetcher.fetch_within(limit, &own, &own, Request::new(Bytes::new()));
        assert_eq!(fetching.await.unwrap_err().kind, FetchFailure::Timeout);
        assert_eq!(begun.elapsed().as_secs(), 1);
    }
}
