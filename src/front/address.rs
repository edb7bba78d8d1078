//! Where a listener is: as it is written in a config, and for people.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address of this machine.
    Tcp(SocketAddr),
    /// A Unix socket, by its path.
    Unix(PathBuf),
    /// Sockets that the service manager opened: those of this name, or all that nothing else takes.
    Inherited(Option<String>),
}

/// What stands before the path of a Unix socket.
pub const UNIX: &str = "unix:";
/// What says that the service manager opened the socket.
pub const INHERITED: &str = "systemd";

impl ListenAddress {
    /// Whether other machines may reach it, as far as that is known.
    pub fn is_open(&self) -> bool {
        matches!(self, ListenAddress::Tcp(address) if !address.ip().to_canonical().is_loopback())
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => address.fmt(f),
            ListenAddress::Unix(path) => write!(f, "{UNIX}{}", path.display()),
            ListenAddress::Inherited(None) => f.write_str(INHERITED),
            ListenAddress::Inherited(Some(name)) => write!(f, "{INHERITED}:{name}"),
        }
    }
}
