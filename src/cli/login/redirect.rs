//! Address that a login's answer is sent to, and the receiver there.
//!
//! Owns the choice between a running gateway and a listener of this process. Does not answer
//! (`answer_listener.rs`). Invariant: if a gateway with this config would have an address, that
//! address is used.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::Context;
use moongate_config::Plan;
use url::{Host, Url};

use super::answer_listener::AnswerSocket;
use crate::app::logins::{PortListener, redirect_base};

/// Address for answers.
pub(super) struct RedirectPlace {
    /// Address without the path.
    pub(super) base: Url,
    /// Socket at that address, if this process receives the answer.
    pub(super) socket: Option<AnswerSocket>,
    /// Socket address at which this process may receive the answer later, once nobody else is
    /// listening there.
    pub(super) address: Option<SocketAddr>,
    /// Address of a program that would get the answer but is not known to be a gateway.
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
                address: None,
                stranger: None,
            });
        };
        let socket = AnswerSocket::bind(address).await.ok();
        let is_known = socket.is_some()
            || match PortListener::find(address).await {
                // Each of them accepts the answers of all logins in its state folder.
                PortListener::Gateway | PortListener::LoginCommand => true,
                PortListener::Stranger => false,
            };
        Ok(RedirectPlace {
            base,
            socket,
            address: Some(address),
            stranger: (!is_known).then_some(address),
        })
    }

    /// Chooses a free port, for a config without an address that browsers can reach.
    // The address may change from login to login, because each login registers its own client with
    // its own address. A client that somebody registered by hand needs `gateway.listen` with a
    // port, unless its authorization server follows RFC 8252, section 7.3: "MUST allow any port to
    // be specified at the time of the request for loopback IP redirect URIs".
    async fn at_any_port() -> anyhow::Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let bound = AnswerSocket::bind(any).await;
        let socket = bound.context("cannot listen on any port of this machine")?;
        let base = Url::parse(&format!("http://{}/", socket.address()))?;
        Ok(RedirectPlace {
            base,
            socket: Some(socket),
            address: None,
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

#[cfg(test)]
mod tests {
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
    async fn without_an_address_any_port_is_taken() {
        let place = RedirectPlace::at_any_port().await.unwrap();
        let socket = place.socket.unwrap();
        let expected = format!("http://{}/", socket.address());
        assert_eq!(place.base.as_str(), expected);
        assert_eq!(place.stranger, None);
    }
}
