//! What HTTP/1 goes over: a connection of TCP or of a Unix socket, or a pipe in memory where servers are in a world
//! without sockets.
//!
//! Owns the difference. Does not know HTTP. Invariant: asking whether anything came takes nothing from
//! who reads next, unless something did, which ends an idle connection anyway.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::link::{MemoryPipe, PipeReader, PipeWriter};

/// What is below a connection.
pub(in crate::link) enum HttpIo {
    Tcp(TcpStream),
    Unix(UnixStream),
    Memory(Box<MemoryIo>),
}

/// A pipe in memory.
pub(in crate::link) struct MemoryIo {
    reader: Mutex<WatchedReader>,
    writer: PipeWriter,
}

struct WatchedReader {
    reader: PipeReader,
    /// Whether something came, or the end, when nothing was asked for.
    unexpected_data: bool,
}

impl From<MemoryPipe> for HttpIo {
    fn from((reader, writer): MemoryPipe) -> Self {
        HttpIo::Memory(Box::new(MemoryIo {
            reader: Mutex::new(WatchedReader { reader, unexpected_data: false }),
            writer,
        }))
    }
}

impl HttpIo {
    /// Whether nothing came, nor the end, as far as the runtime was told. What came is lost: nobody asked for it.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            HttpIo::Tcp(stream) => would_block(stream.try_read(&mut [0])),
            HttpIo::Unix(stream) => would_block(stream.try_read(&mut [0])),
            HttpIo::Memory(memory) => {
                let mut watched = memory.reader.lock().unwrap_or_else(PoisonError::into_inner);
                let mut byte = [0];
                let mut cx = Context::from_waker(Waker::noop());
                // Nobody else waits for an idle connection, whose waker this would replace.
                let came = Pin::new(&mut watched.reader).poll_read(&mut cx, &mut ReadBuf::new(&mut byte)).is_ready();
                watched.unexpected_data |= came;
                !watched.unexpected_data
            }
        }
    }

    /// The same as the kernel knows it, without taking anything.
    pub(super) fn peek_is_idle(&self) -> bool {
        let (mut space, flags) = ([0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        let peeked = match self {
            HttpIo::Tcp(stream) => rustix::net::recv(stream, &mut space[..], flags).map(drop),
            HttpIo::Unix(stream) => rustix::net::recv(stream, &mut space[..], flags).map(drop),
            HttpIo::Memory(_) => return self.is_idle(),
        };
        matches!(peeked, Err(rustix::io::Errno::WOULDBLOCK))
    }

    /// Waits until there is something to read, where that can be told without reading.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            HttpIo::Tcp(stream) => stream.poll_read_ready(cx),
            HttpIo::Unix(stream) => stream.poll_read_ready(cx),
            HttpIo::Memory(_) => Poll::Ready(Ok(())),
        }
    }
}

fn would_block(read: io::Result<usize>) -> bool {
    matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl AsyncRead for HttpIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            HttpIo::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            HttpIo::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            HttpIo::Memory(memory) => {
                let watched = memory.reader.get_mut().unwrap_or_else(PoisonError::into_inner);
                Pin::new(&mut watched.reader).poll_read(cx, buf)
            }
        }
    }
}

impl AsyncWrite for HttpIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            HttpIo::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            HttpIo::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            HttpIo::Memory(memory) => Pin::new(&mut memory.writer).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            HttpIo::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            HttpIo::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            HttpIo::Memory(memory) => Pin::new(&mut memory.writer).poll_write_vectored(cx, bufs),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            HttpIo::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            HttpIo::Unix(stream) => Pin::new(stream).poll_flush(cx),
            HttpIo::Memory(memory) => Pin::new(&mut memory.writer).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            HttpIo::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            HttpIo::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            HttpIo::Memory(memory) => Pin::new(&mut memory.writer).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            HttpIo::Tcp(_) | HttpIo::Unix(_) => true,
            HttpIo::Memory(memory) => memory.writer.is_write_vectored(),
        }
    }
}
