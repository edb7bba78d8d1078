//! Stand-ins where there are no Unix sockets. None can ever be made, and every attempt says so.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};

/// Content of types that have no values. Hidden in structs, so that other crates write their
/// matches as on Unix.
#[derive(Clone, Copy, Debug)]
enum Impossible {}

/// Listening Unix socket, which does not exist here.
#[derive(Debug)]
pub struct UnixListener(Impossible);

/// Connection to a Unix socket, which does not exist here.
#[derive(Debug)]
pub struct UnixStream(Impossible);

/// File of a Unix socket, which does not exist here.
#[derive(Debug)]
pub struct SocketFile(Impossible);

fn unsupported<T>() -> io::Result<T> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "Unix sockets are not available on Windows; use an address",
    ))
}

/// Fails.
pub async fn listen(_: &Path, _: u32) -> io::Result<(UnixListener, SocketFile)> {
    unsupported()
}

/// Returns the path of a socket.
pub fn local_path(listener: &UnixListener) -> Option<PathBuf> {
    match listener.0 {}
}

/// Closes a socket.
pub fn close(listener: UnixListener, _: Option<SocketFile>) -> Vec<UnixStream> {
    match listener.0 {}
}

/// Asks the kernel whether a connection is open and has no data.
pub fn peek_is_idle(stream: &UnixStream) -> bool {
    match stream.0 {}
}

impl UnixListener {
    /// Waits for the next connection.
    pub async fn accept(&self) -> io::Result<(UnixStream, ())> {
        match self.0 {}
    }
}

impl UnixStream {
    /// Fails.
    pub async fn connect(_: impl AsRef<Path>) -> io::Result<UnixStream> {
        unsupported()
    }

    /// Reads what is there.
    pub fn try_read(&self, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }

    /// Waits until something can be read.
    pub fn poll_read_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    /// Splits the stream into its two directions.
    pub fn into_split(self) -> (UnixStream, UnixStream) {
        match self.0 {}
    }

    /// Waits until the stream is ready.
    pub async fn ready(&self, _: Interest) -> io::Result<Ready> {
        match self.0 {}
    }
}

impl AsyncRead for UnixStream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

impl AsyncWrite for UnixStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}
