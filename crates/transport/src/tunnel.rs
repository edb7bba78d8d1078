//! TCP connections to a server: direct, to a forwarding proxy, or through a proxy's tunnel.
//!
//! Owns CONNECT. Does not choose the proxy (`proxy`) and does not know TLS. Invariant: a proxy
//! learns only the server's host and port, and its own credentials. Its response is read only to
//! the end of the head.

use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use crate::proxy::{ProxyAddress, ProxyError};
use crate::tcp_connector::TcpConnector;

/// Limit of the head of a proxy's response, in bytes.
const HEAD_MAX: usize = 8192;
/// Limit of headers in a proxy's response.
const HEADERS_MAX: usize = 100;

/// TCP connector that can go through a proxy.
#[derive(Clone)]
pub(super) struct ProxyConnector {
    tcp: TcpConnector,
    route: ProxyRoute,
}

/// Use of a proxy.
#[derive(Clone)]
enum ProxyRoute {
    Direct,
    /// To the proxy, which gets requests in absolute form.
    Forward(ProxyAddress),
    /// To the server, by CONNECT.
    Tunnel(ProxyAddress),
}

impl ProxyConnector {
    /// Creates a connector to the proxy if there is one, instead of the server.
    pub(super) fn forwarding(tcp: TcpConnector, proxy: Option<ProxyAddress>) -> Self {
        ProxyConnector {
            tcp,
            route: proxy.map_or(ProxyRoute::Direct, ProxyRoute::Forward),
        }
    }

    /// Creates a connector to the server, through the proxy if there is one.
    pub(super) fn tunneling(tcp: TcpConnector, proxy: Option<ProxyAddress>) -> Self {
        ProxyConnector {
            tcp,
            route: proxy.map_or(ProxyRoute::Direct, ProxyRoute::Tunnel),
        }
    }

    /// Returns the proxy that gets requests instead of the server.
    pub(super) fn forward_proxy(&self) -> Option<&ProxyAddress> {
        match &self.route {
            ProxyRoute::Forward(proxy) => Some(proxy),
            ProxyRoute::Direct | ProxyRoute::Tunnel(_) => None,
        }
    }

    /// Connects to the proxy itself.
    fn reach(
        &mut self,
        proxy: &ProxyAddress,
    ) -> BoxFuture<'static, Result<TokioIo<TcpStream>, BoxError>> {
        let connecting = proxy.uri().map(|uri| self.tcp.call(uri));
        let proxy = proxy.clone();
        async move {
            let unreachable =
                |error: BoxError| BoxError::from(proxy.error("cannot be reached", Some(error)));
            connecting
                .map_err(|error| unreachable(error.into()))?
                .await
                .map_err(unreachable)
        }
        .boxed()
    }
}

impl Service<Uri> for ProxyConnector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        // Also on the way through a proxy, which resolves the name for itself.
        if let Err(refused) = self.tcp.guard().check_host(uri.host().unwrap_or_default()) {
            return std::future::ready(Err(refused.into())).boxed();
        }
        match self.route.clone() {
            ProxyRoute::Direct => self.tcp.call(uri),
            ProxyRoute::Forward(proxy) => self.reach(&proxy),
            ProxyRoute::Tunnel(proxy) => {
                let connecting = self.reach(&proxy);
                async move {
                    let mut stream = connecting.await?.into_inner();
                    open_tunnel(&mut stream, &proxy, &authority(&uri)).await?;
                    Ok(TokioIo::new(stream))
                }
                .boxed()
            }
        }
    }
}

/// Returns the host and port of a server.
fn authority(uri: &Uri) -> String {
    // CONNECT names a port in any case: RFC 9110, section 9.3.6, has "There is no default port".
    let usual = if uri.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    format!(
        "{}:{}",
        uri.host().unwrap_or_default(),
        uri.port_u16().unwrap_or(usual)
    )
}

/// Asks a proxy for a tunnel to a server. RFC 9110, section 9.3.6: "Any 2xx (Successful) response
/// indicates that the sender (and all inbound proxies) will switch to tunnel mode".
async fn open_tunnel<S>(stream: &mut S, proxy: &ProxyAddress, to: &str) -> Result<(), ProxyError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let agent = concat!("moongate/", env!("CARGO_PKG_VERSION"));
    let mut head =
        format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\nUser-Agent: {agent}\r\n").into_bytes();
    if let Some(value) = proxy.authorization() {
        for part in [&b"Proxy-Authorization: "[..], value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    // The head ends here. CONNECT has no body.
    head.extend_from_slice(b"\r\n");
    stream
        .write_all(&head)
        .await
        .map_err(|error| connection_broke(proxy, error))?;
    // Nothing is read before the proxy has the whole request.
    stream
        .flush()
        .await
        .map_err(|error| connection_broke(proxy, error))?;
    let mut answer = Vec::with_capacity(1024);
    loop {
        // Never reads past the limit, whatever the proxy sends.
        let room = HEAD_MAX - answer.len();
        if room == 0 {
            return Err(proxy.error(
                format!("answered CONNECT with more than {HEAD_MAX} bytes of headers"),
                None,
            ));
        }
        let read = (&mut *stream)
            .take(room as u64)
            .read_buf(&mut answer)
            .await
            .map_err(|error| connection_broke(proxy, error))?;
        if read == 0 {
            return Err(proxy.error("closed the connection without an answer to CONNECT", None));
        }
        while let Some((status, length)) =
            parse_head(&answer).map_err(|what| proxy.error(what, None))?
        {
            match status {
                // Interim responses decide nothing.
                100..=199 => drop(answer.drain(..length)),
                // Both TLS and HTTP clients speak first, so the server cannot have sent anything
                // yet.
                200..=299 if answer.len() > length => {
                    return Err(proxy.error("answered CONNECT with more than headers", None));
                }
                200..=299 => return Ok(()),
                status => return Err(proxy.error(refusal(status, proxy, to), None)),
            }
        }
    }
}

fn connection_broke(proxy: &ProxyAddress, error: std::io::Error) -> ProxyError {
    proxy.error("broke the connection", Some(error.into()))
}

/// Returns the status and length of a head once it is complete.
fn parse_head(bytes: &[u8]) -> Result<Option<(u16, usize)>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => {
            Ok(Some((response.code.unwrap_or_default(), length)))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => Err(format!(
            "answered CONNECT with more than {HEADERS_MAX} headers"
        )),
        Err(error) => Err(format!(
            "did not answer CONNECT with HTTP ({error}); is it an HTTP proxy?"
        )),
    }
}

/// Explains a refusal and names a remedy.
fn refusal(status: u16, proxy: &ProxyAddress, to: &str) -> String {
    match status {
        407 if proxy.authorization().is_some() => {
            format!("refused the credentials in its URL (status {status})")
        }
        407 => format!(
            "requires credentials (status {status}): write `USER:PASSWORD@` before its host, \
             percent-encoded"
        ),
        403 => format!(
            "does not allow connections to {to} (status {status}): change its rules, or bypass it \
             with NO_PROXY or `proxy = \"none\"`"
        ),
        status => format!("did not connect to {to} (status {status})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result of a proxy's response, and the request that the proxy got.
    async fn opened(url: &str, answer: &[u8]) -> (Result<(), String>, String) {
        let proxy = ProxyAddress::parse(url, "servers.a.proxy").unwrap();
        let (mut ours, mut theirs) = tokio::io::duplex(64 * 1024);
        theirs.write_all(answer).await.unwrap();
        theirs.shutdown().await.unwrap();
        let opened = open_tunnel(&mut ours, &proxy, "mcp.test:443")
            .await
            .map_err(|error| error.to_string());
        drop(ours);
        let mut asked = String::new();
        theirs.read_to_string(&mut asked).await.unwrap();
        (opened, asked)
    }

    #[tokio::test]
    async fn a_tunnel_is_asked_for_with_the_proxys_own_credentials() {
        let (opened, asked) = opened(
            "http://user:p%40ss@proxy.test:3128",
            b"HTTP/1.1 200 Fine\r\nVia: x\r\n\r\n",
        )
        .await;
        assert_eq!(opened, Ok(()));
        let lines = [
            "CONNECT mcp.test:443 HTTP/1.1",
            "Host: mcp.test:443",
            concat!("User-Agent: moongate/", env!("CARGO_PKG_VERSION")),
            "Proxy-Authorization: Basic dXNlcjpwQHNz",
        ];
        assert_eq!(asked, lines.join("\r\n") + "\r\n\r\n");
    }

    #[tokio::test]
    async fn a_refused_connect_is_explained() {
        let many = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(HEAD_MAX));
        let lines = format!(
            "HTTP/1.1 200 OK\r\n{}\r\n",
            "x: y\r\n".repeat(HEADERS_MAX + 1)
        );
        for (answer, words) in [
            (
                &b"HTTP/1.1 407 No\r\n\r\n"[..],
                "requires credentials (status 407)",
            ),
            (
                b"HTTP/1.1 403 No\r\n\r\n",
                "does not allow connections to mcp.test:443 (status 403)",
            ),
            (
                b"HTTP/1.1 502 No\r\n\r\n",
                "did not connect to mcp.test:443 (status 502)",
            ),
            (
                b"HTTP/1.1 302 No\r\nLocation: http://elsewhere.test/\r\n\r\n",
                "(status 302)",
            ),
            (b"HTTP/1.1 200 OK\r\n\r\nSSH-2.0", "more than headers"),
            (b"HTTP/1.1 200 OK\r\n", "closed the connection"),
            (b"", "closed the connection"),
            (b"SSH-2.0-OpenSSH\r\n", "is it an HTTP proxy?"),
            (many.as_bytes(), "more than 8192 bytes"),
            (lines.as_bytes(), "more than 100 headers"),
        ] {
            let (opened, asked) = opened("http://proxy.test:3128", answer).await;
            let received = opened.unwrap_err();
            assert!(
                received.starts_with("the proxy proxy.test:3128 (from servers.a.proxy) "),
                "{received}"
            );
            assert!(received.contains(words), "{received}");
            assert!(!asked.contains("Authorization"), "{asked}");
        }
    }

    #[tokio::test]
    async fn interim_answers_and_every_2xx_are_taken() {
        let (opened, _) = opened(
            "proxy.test",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 204 Fine\r\n\r\n",
        )
        .await;
        assert_eq!(opened, Ok(()));
    }

    #[test]
    fn a_server_is_named_with_its_port() {
        for (uri, named) in [
            ("https://mcp.test/mcp", "mcp.test:443"),
            ("http://mcp.test/", "mcp.test:80"),
            ("https://[::1]:8443/", "[::1]:8443"),
        ] {
            assert_eq!(authority(&Uri::from_static(uri)), named);
        }
    }
}
