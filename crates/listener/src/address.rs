//! Addresses of a listener and of its clients. Owns the form of the first in a config and in logs.
//!
//! Does not bind sockets (`socket.rs`). Invariant: an address is displayed in the form that a
//! config accepts.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
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
