//! TCP sockets. Owns the options that differ between systems.
//!
//! Does not accept or connect. Invariant: no other process can take over an address that is
//! listened on, unless `reuse_port` allows it.

use std::io;
use std::net::SocketAddr;

use rustix::net::RecvFlags;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Listens on an address, with room for `backlog` connections in the kernel's accept queue.
pub fn listen(address: SocketAddr, reuse_port: bool, backlog: u32) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // Without it, a restart would wait for connections of the previous process in TIME_WAIT.
    // Windows does not wait, and there the option lets another process take the address.
    if cfg!(unix) {
        socket.set_reuseaddr(true)?;
    }
    if reuse_port {
        set_reuse_port(&socket)?;
    }
    socket.bind(address)?;
    socket.listen(backlog)
}

#[cfg(unix)]
fn set_reuse_port(socket: &TcpSocket) -> io::Result<()> {
    socket.set_reuseport(true)
}

#[cfg(windows)]
fn set_reuse_port(_: &TcpSocket) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "SO_REUSEPORT is not available on Windows",
    ))
}

/// Flags for peeking at a socket's data. Windows has no flag for not waiting; sockets of the
/// runtime never wait.
#[cfg(unix)]
pub(crate) const PEEK: RecvFlags = RecvFlags::PEEK.union(RecvFlags::DONTWAIT);
#[cfg(windows)]
pub(crate) const PEEK: RecvFlags = RecvFlags::PEEK;

/// Asks the kernel, and not the runtime, whether a connection is open and has no data. Consumes
/// nothing.
pub fn peek_is_idle(stream: &TcpStream) -> bool {
    matches!(
        rustix::net::recv(stream, &mut [0; 1][..], PEEK),
        Err(rustix::io::Errno::WOULDBLOCK)
    )
}
