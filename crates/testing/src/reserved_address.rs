//! Loopback addresses that no other test can take.
//!
//! Owns the sockets that hold the ports. Does not listen. Invariant: while a [`ReservedAddress`]
//! lives, the system gives its port to nobody who asks for any free one.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

/// A loopback address that refuses connections until somebody binds exactly this one.
///
/// A port that is bound, read and closed again is free for every other test meanwhile. This socket
/// stays bound and never listens; `SO_REUSEADDR` lets a program of the test bind the same port next
/// to it.
pub struct ReservedAddress {
    _socket: TcpSocket,
    address: SocketAddr,
}

impl ReservedAddress {
    /// Reserves a port that the system chooses.
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = socket.local_addr().unwrap();
        ReservedAddress {
            _socket: socket,
            address,
        }
    }

    /// Address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Port alone.
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Default for ReservedAddress {
    fn default() -> Self {
        ReservedAddress::new()
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::ReservedAddress;

    #[tokio::test]
    async fn it_refuses_until_it_is_bound() {
        let reserved = ReservedAddress::new();
        let refused = TcpStream::connect(reserved.address()).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        let listener = TcpListener::bind(reserved.address()).await.unwrap();
        let (accepted, connected) =
            tokio::join!(listener.accept(), TcpStream::connect(reserved.address()));
        accepted.unwrap();
        connected.unwrap();
    }

    #[tokio::test]
    async fn nobody_else_gets_its_port() {
        let reserved: Vec<_> = (0..200).map(|_| ReservedAddress::new()).collect();
        for _ in 0..2000 {
            let other = TcpListener::bind("127.0.0.1:0")
                .await
                .unwrap()
                .local_addr()
                .unwrap();
            assert!(reserved.iter().all(|one| one.address() != other));
        }
    }
}
