//! Address that the answer of a login is sent to, and who receives it there.
//!
//! Owns the choice between a running gateway and a listener of this process. Does not answer
//! (`answer_listener.rs`). Invariant: the address is the one that a gateway with this config has,
//! wherever there is one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use moongate_config::Plan;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::{Host, Url};

use super::answer_listener::AnswerSocket;
use crate::app::logins::redirect_base;

/// Time for a program at our port to say that it is a gateway.
const GREETING_TIMEOUT: Duration = Duration::from_secs(1);
/// Part of its response that is read, in bytes.
const GREETING_MAX: u64 = 4096;

/// Address for answers.
pub(super) struct RedirectPlace {
    /// Address without the path.
    pub(super) base: Url,
    /// Socket at that address, if this process receives the answer.
    pub(super) socket: Option<AnswerSocket>,
    /// Address of a program that would get the answer, and is not known to be a gateway.
    pub(super) stranger: Option<SocketAddr>,
}

impl RedirectPlace {
    /// Chooses the address for a plan.
    pub(super) async fn choose(plan: &Plan) -> anyhow::Result<Self> {
        let Some(base) = redirect_base(plan) else {
            return RedirectPlace::at_any_port().await;
        };
        let Some(address) = loopback_address(&base) else {
            return Ok(RedirectPlace {
                base,
                socket: None,
                stranger: None,
            });
        };
        let socket = AnswerSocket::bind(address).await.ok();
        let is_known = socket.is_some() || is_gateway(address).await;
        Ok(RedirectPlace {
            base,
            socket,
            stranger: (!is_known).then_some(address),
        })
    }

    /// Chooses a free port, where the config has no address that browsers reach.
    // The address may change from login to login, because each login registers its own client with
    // its own address. A client that somebody registered by hand needs `gateway.listen` with a
    // port, unless its authorization server follows RFC 8252, section 7.3: "MUST allow any port to
    // be specified at the time of the request for loopback IP redirect URIs".
    async fn at_any_port() -> anyhow::Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let bound = AnswerSocket::bind(any).await;
        let socket = bound.context("no port of this machine can be listened on")?;
        let base = Url::parse(&format!("http://{}/", socket.address()))?;
        Ok(RedirectPlace {
            base,
            socket: Some(socket),
            stranger: None,
        })
    }
}

/// Returns the loopback address that a URL leads to over plain HTTP. Answers at any other URL come
/// to a running gateway.
fn loopback_address(base: &Url) -> Option<SocketAddr> {
    let ip: IpAddr = match base.host()? {
        Host::Ipv4(ip) => ip.into(),
        Host::Ipv6(ip) => ip.into(),
        Host::Domain("localhost") => Ipv4Addr::LOCALHOST.into(),
        Host::Domain(_) => return None,
    };
    let port = base.port_or_known_default()?;
    let is_here = base.scheme() == "http" && ip.is_loopback();
    is_here.then(|| SocketAddr::new(ip, port))
}

/// Returns true if a gateway listens at an address. It need not be one with this config.
async fn is_gateway(address: SocketAddr) -> bool {
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET /livez HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        let mut start = stream.take(GREETING_MAX);
        start.read_to_end(&mut response).await?;
        std::io::Result::Ok(response)
    };
    let response = match timeout(GREETING_TIMEOUT, asking).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) | Err(_) => return false,
    };
    memchr::memmem::find(&response, br#""message":"alive""#).is_some()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn only_plain_loopback_is_listened_on() {
        for (url, expected) in [
            ("http://127.0.0.1:8080/", Some("127.0.0.1:8080")),
            ("http://localhost:8080/", Some("127.0.0.1:8080")),
            ("http://[::1]:81/tools", Some("[::1]:81")),
            ("http://127.0.0.1/", Some("127.0.0.1:80")),
            ("https://127.0.0.1:8080/", None),
            ("http://10.0.0.1:8080/", None),
            ("http://gate.example/", None),
            ("https://gate.example/tools", None),
        ] {
            let found = loopback_address(&Url::parse(url).unwrap());
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(found, expected, "{url}");
        }
    }

    #[tokio::test]
    async fn a_program_that_says_nothing_is_not_a_gateway() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap();
        tokio::time::pause();
        assert!(!is_gateway(address).await);
    }

    #[tokio::test]
    async fn without_an_address_any_port_is_taken() {
        let place = RedirectPlace::at_any_port().await.unwrap();
        let socket = place.socket.unwrap();
        let expected = format!("http://{}/", socket.address());
        assert_eq!(place.base.as_str(), expected);
        assert_eq!(place.stranger, None);
    }
}
