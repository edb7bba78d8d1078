//! Addresses of a listener and of its clients. Owns the form of the first in a config and in logs.
//!
//! Does not bind sockets (`socket.rs`). Invariant: an address is displayed in the form that a
//! config accepts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// Address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// TCP address of this machine.
    Tcp(SocketAddr),
    /// TCP address on loopback for clients that write a message a line.
    TcpLines(SocketAddr),
    /// Path of a Unix socket.
    Unix(PathBuf),
    /// Sockets that the service manager opened: those of this name, or all that no other listener
    /// takes.
    Inherited(Option<String>),
}

/// Client address of a connection. Routes read it as an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// Prefix of a Unix socket's path.
pub const UNIX: &str = "unix:";
/// Prefix of an address for clients that write a message a line.
pub const TCP_LINES: &str = "tcp:";
/// Name of a socket that the service manager opened.
pub const INHERITED: &str = "systemd";

impl ListenAddress {
    /// Returns the address and port, if known.
    pub fn socket(&self) -> Option<SocketAddr> {
        match self {
            ListenAddress::Tcp(address) | ListenAddress::TcpLines(address) => Some(*address),
            ListenAddress::Unix(_) | ListenAddress::Inherited(_) => None,
        }
    }

    /// Returns the TCP addresses at which clients of this machine reach it, the surest one first.
    /// None where the system chooses the port.
    pub fn local_addresses(&self) -> Vec<SocketAddr> {
        let ListenAddress::Tcp(address) = self else {
            return Vec::new();
        };
        if address.port() == 0 {
            return Vec::new();
        }
        if !address.ip().is_unspecified() {
            return vec![*address];
        }
        // A listener on every address is reached over loopback, and usually over both forms of it.
        let mut loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        if address.is_ipv6() {
            loopback.reverse();
        }
        loopback
            .map(|ip| SocketAddr::new(ip, address.port()))
            .to_vec()
    }

    /// True if other machines may reach it, as far as that is known.
    pub fn is_open(&self) -> bool {
        matches!(self, ListenAddress::Tcp(address) if !address.ip().to_canonical().is_loopback())
    }

    /// Returns true if only the gateway's own user may connect. `socket_mode` is the mode of its
    /// Unix sockets.
    pub fn is_private(&self, socket_mode: u32) -> bool {
        match self {
            ListenAddress::Unix(_) => socket_mode & 0o077 == 0,
            // Of a socket that the service manager opened, the mode is unknown.
            ListenAddress::Inherited(_) | ListenAddress::Tcp(_) | ListenAddress::TcpLines(_) => {
                false
            }
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => address.fmt(f),
            ListenAddress::TcpLines(address) => write!(f, "{TCP_LINES}{address}"),
            ListenAddress::Unix(path) => write!(f, "{UNIX}{}", path.display()),
            ListenAddress::Inherited(None) => f.write_str(INHERITED),
            ListenAddress::Inherited(Some(name)) => write!(f, "{INHERITED}:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_listener_on_every_address_is_reached_over_loopback() {
        for (listen, expected) in [
            ("127.0.0.1:80", &["127.0.0.1:80"][..]),
            ("192.0.2.1:80", &["192.0.2.1:80"]),
            ("0.0.0.0:80", &["127.0.0.1:80", "[::1]:80"]),
            ("[::]:80", &["[::1]:80", "127.0.0.1:80"]),
            ("127.0.0.1:0", &[]),
        ] {
            let found = ListenAddress::Tcp(listen.parse().unwrap()).local_addresses();
            let found: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
            assert_eq!(found, expected, "{listen}");
        }
        assert!(
            ListenAddress::Unix("/run/a.sock".into())
                .local_addresses()
                .is_empty()
        );
    }
}
