//! Listening sockets: opened here, or passed by the service manager. Owns binding, the file of a Unix socket, and
//! closing.
//!
//! Does not serve connections (`listener.rs`). Invariant: the file of a Unix socket that another process listens on is
//! never removed. The file of ours is removed with its socket.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

use crate::front::ListenAddress;

/// Maximum length of the kernel's accept queue.
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
            AcceptedStream::Unix(_) => None,
        }
    }
}

impl ListenSocket {
    pub(super) async fn bind(address: &ListenAddress, settings: &SocketSettings) -> io::Result<Self> {
        match address {
            ListenAddress::Tcp(address) => tcp(*address, settings.reuse_port).map(ListenSocket::Tcp),
            // No key can be asked of a client here: a message has no place for one.
            ListenAddress::TcpLines(address) if !address.ip().to_canonical().is_loopback() => {
                Err(io::Error::other("only 127.0.0.1 and [::1] can be listened on for messages in lines"))
            }
            ListenAddress::TcpLines(address) => tcp(*address, settings.reuse_port).map(ListenSocket::Tcp),
            ListenAddress::Unix(path) => unix(path, settings.mode).await,
            ListenAddress::Inherited(_) => Err(io::Error::other("no socket was handed over (LISTEN_FDS)")),
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
            ListenSocket::Tcp(tcp) => {
                tcp.local_addr().map_or_else(|_| "a TCP socket".to_owned(), |address| address.to_string())
            }
            ListenSocket::Unix(unix, _) => {
                let path = unix.local_addr().ok().and_then(|address| Some(address.as_pathname()?.to_owned()));
                path.map_or_else(|| "a Unix socket".to_owned(), |path| ListenAddress::Unix(path).to_string())
            }
        }
    }

    pub(super) async fn accept(&self) -> io::Result<AcceptedStream> {
        match self {
            ListenSocket::Tcp(tcp) => tcp.accept().await.map(|(stream, _)| AcceptedStream::Tcp(stream)),
            ListenSocket::Unix(unix, _) => unix.accept().await.map(|(stream, _)| AcceptedStream::Unix(stream)),
        }
    }

    /// Closes the socket. Returns connections that were not accepted yet, which closing would reset.
    pub(super) fn close(self) -> Vec<AcceptedStream> {
        let mut waiting = Vec::new();
        match self {
            ListenSocket::Tcp(tcp) => {
                let Ok(tcp) = tcp.into_std() else { return waiting };
                while let Ok((stream, _)) = tcp.accept() {
                    let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                    waiting.extend(stream.map(AcceptedStream::Tcp));
                }
            }
            ListenSocket::Unix(unix, file) => {
                // The name goes first, so that no further client enters the queue.
                drop(file);
                let Ok(unix) = unix.into_std() else { return waiting };
                while let Ok((stream, _)) = unix.accept() {
                    let stream = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
                    waiting.extend(stream.map(AcceptedStream::Unix));
                }
            }
        }
        waiting
    }
}

fn tcp(address: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Without it, a restart would wait for connections of the previous process in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    if reuse_port {
        socket.set_reuseport(true)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

// === Unix sockets ===

/// File of our own Unix socket. Removed when this is dropped.
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file. Another process may own its name by now.
    file: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

async fn unix(path: &Path, mode: u32) -> io::Result<ListenSocket> {
    make_way(path).await?;
    // Set before binding: between bind and chmod anybody could connect. The umask is the whole process's. A file that
    // another thread creates meanwhile gets at most too strict a mode.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let unix = bound?;
    let file = SocketFile { path: path.to_owned(), file: identity(path)? };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(ListenSocket::Unix(unix, Some(file)))
}

/// Removes a socket file that an ended process left. Fails if another process listens, or if it is no socket.
async fn make_way(path: &Path) -> io::Result<()> {
    let there = match std::fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if !there.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    let taken = || io::Error::new(io::ErrorKind::AddrInUse, "another process listens there");
    match UnixStream::connect(path).await {
        Ok(_) => Err(taken()),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!("the socket of a process that is gone is replaced: {}", path.display());
            std::fs::remove_file(path)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        // The accept queue is full, so another process listens.
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(taken()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_living_socket_is_left_alone_and_a_dead_one_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let first = unix(&path, 0o600).await.ok().unwrap();
        assert_eq!(mode(), 0o600);
        let refused = unix(&path, 0o600).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists(), "it goes with its owner");
        // As after a kill -9: the file stays without a listener.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let second = unix(&path, 0o660).await.ok().unwrap();
        assert_eq!(mode(), 0o660);
        // The name belongs to another file by now.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        drop(second);
        assert!(path.exists());
        let refused = unix(&path, 0o600).await.err().unwrap();
        assert!(refused.to_string().contains("no socket"), "{refused}");
    }

    #[tokio::test]
    async fn queued_connections_are_accepted_before_close() {
        let address = ListenAddress::Tcp(([127, 0, 0, 1], 0).into());
        let settings = SocketSettings { reuse_port: true, mode: 0o600 };
        let Ok(ListenSocket::Tcp(tcp)) = ListenSocket::bind(&address, &settings).await else { panic!("it binds") };
        let address = tcp.local_addr().unwrap();
        let _clients = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
        assert_eq!(ListenSocket::Tcp(tcp).close().len(), 2);
        assert!(TcpStream::connect(address).await.is_err());
    }
}
