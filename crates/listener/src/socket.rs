//! Listening sockets: opened here, or passed by the service manager. Owns binding and closing.
//!
//! Does not serve connections (`listener.rs`). Invariant: a closed socket leaves no connection
//! behind that the kernel had accepted.

use std::io;
use std::net::SocketAddr;

use moongate_platform::unix_socket::{SocketFile, UnixListener, UnixStream};
use moongate_platform::{tcp_socket, unix_socket};
use tokio::net::{TcpListener, TcpStream};

use crate::ListenAddress;

/// Maximum length of the kernel's accept queue.
// listen(2): Linux cuts it to `net.core.somaxconn`, 4096 by default.
const BACKLOG: u32 = 1024;

/// Options for opening sockets.
#[derive(Clone, Debug, PartialEq)]
pub struct SocketSettings {
    /// True if another process may listen on the same address, to take over.
    pub reuse_port: bool,
    /// File mode of a Unix socket.
    pub mode: u32,
}

/// Socket in the listening state.
pub(super) enum ListenSocket {
    Tcp(TcpListener),
    Unix(UnixListener, Option<SocketFile>),
}

/// Connection that was accepted.
pub(super) enum AcceptedStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AcceptedStream {
    /// Returns the client's address, if it has one.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self {
            AcceptedStream::Tcp(stream) => stream.peer_addr().ok(),
            // Clients of a Unix socket have no address that could distinguish them.
            AcceptedStream::Unix(_) => None,
        }
    }
}

impl ListenSocket {
    pub(super) async fn bind(
        address: &ListenAddress,
        settings: &SocketSettings,
    ) -> io::Result<Self> {
        match address {
            ListenAddress::Tcp(address) => tcp(*address, settings),
            // No key can be asked of a client here: a message has no field for one.
            ListenAddress::TcpLines(address) if !address.ip().to_canonical().is_loopback() => Err(
                io::Error::other("messages in lines can be served only on 127.0.0.1 and [::1]"),
            ),
            ListenAddress::TcpLines(address) => tcp(*address, settings),
            ListenAddress::Unix(path) => {
                let (unix, file) = unix_socket::listen(path, settings.mode).await?;
                Ok(ListenSocket::Unix(unix, Some(file)))
            }
            ListenAddress::Inherited(_) => {
                Err(io::Error::other("no socket was passed (LISTEN_FDS)"))
            }
        }
    }

    /// Returns the socket's address, if it has one.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            ListenSocket::Tcp(tcp) => tcp.local_addr().ok(),
            ListenSocket::Unix(..) => None,
        }
    }

    /// Returns the socket's name for logs.
    pub(super) fn name(&self) -> String {
        match self {
            ListenSocket::Tcp(tcp) => tcp
                .local_addr()
                .map_or_else(|_| "a TCP socket".to_owned(), |address| address.to_string()),
            ListenSocket::Unix(unix, _) => {
                let path = unix_socket::local_path(unix);
                path.map_or_else(
                    || "a Unix socket".to_owned(),
                    |path| ListenAddress::Unix(path).to_string(),
                )
            }
        }
    }

    pub(super) async fn accept(&self) -> io::Result<AcceptedStream> {
        match self {
            ListenSocket::Tcp(tcp) => tcp
                .accept()
                .await
                .map(|(stream, _)| AcceptedStream::Tcp(stream)),
            ListenSocket::Unix(unix, _) => unix
                .accept()
                .await
                .map(|(stream, _)| AcceptedStream::Unix(stream)),
        }
    }

    /// Closes the socket. Returns connections that were not accepted yet, which closing would
    /// reset.
    pub(super) fn close(self) -> Vec<AcceptedStream> {
        let mut waiting = Vec::new();
        match self {
            ListenSocket::Tcp(tcp) => {
                // The listener stays non-blocking, so `accept` fails once the queue is empty.
                let Ok(tcp) = tcp.into_std() else {
                    return waiting;
                };
                while let Ok((stream, _)) = tcp.accept() {
                    let stream = stream
                        .set_nonblocking(true)
                        .and_then(|()| TcpStream::from_std(stream));
                    waiting.extend(stream.map(AcceptedStream::Tcp));
                }
            }
            ListenSocket::Unix(unix, file) => {
                // The file goes with the listener, so that a new process finds its path free.
                waiting.extend(
                    unix_socket::close(unix, file)
                        .into_iter()
                        .map(AcceptedStream::Unix),
                );
            }
        }
        waiting
    }
}

fn tcp(address: SocketAddr, settings: &SocketSettings) -> io::Result<ListenSocket> {
    tcp_socket::listen(address, settings.reuse_port, BACKLOG).map(ListenSocket::Tcp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn queued_connections_are_accepted_before_close() {
        let address = ListenAddress::Tcp(([127, 0, 0, 1], 0).into());
        let settings = SocketSettings {
            reuse_port: cfg!(unix),
            mode: 0o600,
        };
        let Ok(ListenSocket::Tcp(tcp)) = ListenSocket::bind(&address, &settings).await else {
            panic!("it binds")
        };
        let address = tcp.local_addr().unwrap();
        let _clients = [
            TcpStream::connect(address).await.unwrap(),
            TcpStream::connect(address).await.unwrap(),
        ];
        assert_eq!(ListenSocket::Tcp(tcp).close().len(), 2);
        assert!(TcpStream::connect(address).await.is_err());
    }
}
