//! Byte streams below HTTP/1: TCP, Unix sockets, or memory in simulations without sockets.
//!
//! Owns the difference between them. Does not know HTTP. Invariant: a check for data takes nothing
//! from the next reader, unless there is unexpected data, which makes an idle connection unusable
//! anyway.

use parking_lot::Mutex;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use moongate_platform::unix_socket::UnixStream;
use moongate_platform::{tcp_socket, unix_socket};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Reading end of a pipe in memory.
type PipeReader = Box<dyn AsyncRead + Send + Unpin>;
/// Writing end of a pipe in memory.
type PipeWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// Byte stream below a connection.
pub enum HttpIo {
    /// TCP connection.
    Tcp(TcpStream),
    /// Connection to a Unix socket.
    Unix(UnixStream),
    /// Pipe in memory.
    Memory(Box<MemoryIo>),
}

/// Pipe in memory.
pub struct MemoryIo {
    reader: Mutex<WatchedReader>,
    writer: PipeWriter,
}

struct WatchedReader {
    reader: PipeReader,
    /// True if data or the end came while no response was expected.
    unexpected_data: bool,
}

impl From<(PipeReader, PipeWriter)> for HttpIo {
    fn from((reader, writer): (PipeReader, PipeWriter)) -> Self {
        HttpIo::Memory(Box::new(MemoryIo {
            reader: Mutex::new(WatchedReader {
                reader,
                unexpected_data: false,
            }),
            writer,
        }))
    }
}

impl HttpIo {
    /// True if the runtime reported no data and no end. Any data is lost: no response is expected.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            // A read and no peek: while the runtime knows of no data, this costs no system call.
            HttpIo::Tcp(stream) => would_block(stream.try_read(&mut [0])),
            HttpIo::Unix(stream) => would_block(stream.try_read(&mut [0])),
            HttpIo::Memory(memory) => {
                let mut watched = memory.reader.lock();
                let mut byte = [0];
                let mut cx = Context::from_waker(Waker::noop());
                // No other task polls an idle connection, so no waker is replaced.
                let has_data = Pin::new(&mut watched.reader)
                    .poll_read(&mut cx, &mut ReadBuf::new(&mut byte))
                    .is_ready();
                // Remembered: the byte is consumed, and a second check would miss it.
                watched.unexpected_data |= has_data;
                !watched.unexpected_data
            }
        }
    }

    /// Asks the kernel for data or the end, without consuming any.
    pub(super) fn peek_is_idle(&self) -> bool {
        // One system call. The runtime learns of a closed connection only when it polls its events.
        match self {
            HttpIo::Tcp(stream) => tcp_socket::peek_is_idle(stream),
            HttpIo::Unix(stream) => unix_socket::peek_is_idle(stream),
            HttpIo::Memory(_) => self.is_idle(),
        }
    }

    /// Waits until the stream is readable, if that can be seen without reading.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            HttpIo::Tcp(stream) => stream.poll_read_ready(cx),
            HttpIo::Unix(stream) => stream.poll_read_ready(cx),
            // The reader finds out by reading, so the caller continues as if there were data.
            HttpIo::Memory(_) => Poll::Ready(Ok(())),
        }
    }
}

fn would_block(read: io::Result<usize>) -> bool {
    matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl AsyncRead for HttpIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            HttpIo::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            HttpIo::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            HttpIo::Memory(memory) => {
                let watched = memory.reader.get_mut();
                Pin::new(&mut watched.reader).poll_read(cx, buf)
            }
        }
    }
}

impl AsyncWrite for HttpIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
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
            // Head and body then leave in one system call, and a small request in one packet.
            HttpIo::Tcp(_) | HttpIo::Unix(_) => true,
            HttpIo::Memory(memory) => memory.writer.is_write_vectored(),
        }
    }
}
