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

use crate::link::{Pipe, PipeReader, PipeWriter};

/// What is below a connection.
pub(in crate::link) enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
    Memory(Box<Memory>),
}

/// A pipe in memory.
pub(in crate::link) struct Memory {
    reader: Mutex<Watched>,
    writer: PipeWriter,
}

struct Watched {
    reader: PipeReader,
    /// Whether something came, or the end, when nothing was asked for.
    disturbed: bool,
}

impl From<Pipe> for Wire {
    fn from((reader, writer): Pipe) -> Self {
        Wire::Memory(Box::new(Memory { reader: Mutex::new(Watched { reader, disturbed: false }), writer }))
    }
}

impl Wire {
    /// Whether nothing came, nor the end, as far as the runtime was told. What came is lost: nobody asked for it.
    pub(super) fn is_quiet(&self) -> bool {
        match self {
            Wire::Tcp(stream) => would_block(stream.try_read(&mut [0])),
            Wire::Unix(stream) => would_block(stream.try_read(&mut [0])),
            Wire::Memory(memory) => {
                let mut watched = memory.reader.lock().unwrap_or_else(PoisonError::into_inner);
                let mut byte = [0];
                let mut cx = Context::from_waker(Waker::noop());
                // Nobody else waits for an idle connection, whose waker this would replace.
                let came = Pin::new(&mut watched.reader).poll_read(&mut cx, &mut ReadBuf::new(&mut byte)).is_ready();
                watched.disturbed |= came;
                !watched.disturbed
            }
        }
    }

    /// The same as the kernel knows it, without taking anything.
    pub(super) fn is_quiet_for_sure(&self) -> bool {
        let (mut space, flags) = ([0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        let peeked = match self {
            Wire::Tcp(stream) => rustix::net::recv(stream, &mut space[..], flags).map(drop),
            Wire::Unix(stream) => rustix::net::recv(stream, &mut space[..], flags).map(drop),
            Wire::Memory(_) => return self.is_quiet(),
        };
        matches!(peeked, Err(rustix::io::Errno::WOULDBLOCK))
    }

    /// Waits until there is something to read, where that can be told without reading.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Wire::Tcp(stream) => stream.poll_read_ready(cx),
            Wire::Unix(stream) => stream.poll_read_ready(cx),
            Wire::Memory(_) => Poll::Ready(Ok(())),
        }
    }
}

fn would_block(read: io::Result<usize>) -> bool {
    matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Wire::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Wire::Memory(memory) => {
                let watched = memory.reader.get_mut().unwrap_or_else(PoisonError::into_inner);
                Pin::new(&mut watched.reader).poll_read(cx, buf)
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Wire::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Wire::Memory(memory) => Pin::new(&mut memory.writer).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Wire::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Wire::Memory(memory) => Pin::new(&mut memory.writer).poll_write_vectored(cx, bufs),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Memory(memory) => Pin::new(&mut memory.writer).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Memory(memory) => Pin::new(&mut memory.writer).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Wire::Tcp(_) | Wire::Unix(_) => true,
            Wire::Memory(memory) => memory.writer.is_write_vectored(),
        }
    }
}
