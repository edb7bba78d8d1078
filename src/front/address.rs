//! Where a listener is: as it is written in a config, and for people.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address of this machine.
    Tcp(SocketAddr),
    /// An address of this machine for clients that write a message a line; on loopback.
    TcpLines(SocketAddr),
    /// A Unix socket, by its path.
    Unix(PathBuf),
    /// Sockets that the service manager opened: those of this name, or all that nothing else takes.
    Inherited(Option<String>),
}

/// What stands before the path of a Unix socket.
pub const UNIX: &str = "unix:";
/// What stands before the address of a listener for clients that write a message a line.
pub const TCP_LINES: &str = "tcp:";
/// What says that the service manager opened the socket.
pub const INHERITED: &str = "systemd";

impl ListenAddress {
    /// The address and port, where those are known.
    pub fn socket(&self) -> Option<SocketAddr> {
        match self {
            ListenAddress::Tcp(address) | ListenAddress::TcpLines(address) => Some(*address),
            ListenAddress::Unix(_) | ListenAddress::Inherited(_) => None,
        }
    }

    /// Whether other machines may reach it, as far as that is known.
    pub fn is_open(&self) -> bool {
        matches!(self, ListenAddress::Tcp(address) if !address.ip().to_canonical().is_loopback())
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
