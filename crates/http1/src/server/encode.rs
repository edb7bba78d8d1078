//! Response writer of the fast path. Owns the encoding of a response and how much of it was sent.
//!
//! Does not decide what is answered. Invariant: a stream is polled for more only when there is room
//! for it.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::Stream;
use http::{Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::server::connection::{ClientGone, Persistence, ServerConnection};

/// Body of a response to send.
pub enum SendBody {
    /// Buffers that are sent one after another, with their length.
    Whole(VecDeque<Bytes>),
    /// Chunks that are still to come.
    Chunks(Chunks),
}

/// Stream of chunks that ends with the response.
type Chunks = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// Maximum size of a part that is copied into one buffer instead of sent as it lies, in bytes.
const COALESCED_MAX: usize = 4096;
/// Bytes that are taken from a stream before the rest must wait.
const QUEUED_MAX: usize = 16 * 1024;
/// Maximum number of parts in one vectored write.
const WRITE_SLICES: usize = 8;

/// Writes a response.
pub(super) async fn write_response<S, T>(
    connection: &mut ServerConnection<S, T>,
    response: Response<SendBody>,
    persistence: Persistence,
    date: &str,
) -> Result<(), ClientGone>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (head, body) = response.into_parts();
    // RFC 9112, section 6.3: a 204 or 304 response has no body, so it needs no length.
    let bare = head.status == StatusCode::NO_CONTENT || head.status == StatusCode::NOT_MODIFIED;
    let mut text = Vec::with_capacity(512);
    put(
        &mut text,
        &[
            "HTTP/1.1 ",
            head.status.as_str(),
            " ",
            head.status.canonical_reason().unwrap_or(""),
            "\r\ndate: ",
            date,
            "\r\n",
        ],
    );
    if persistence == Persistence::Close {
        put(&mut text, &["connection: close\r\n"]);
    }
    match &body {
        SendBody::Whole(_) if bare => {}
        SendBody::Whole(parts) => {
            let length: usize = parts.iter().map(Bytes::len).sum();
            put(
                &mut text,
                &[
                    "content-length: ",
                    itoa::Buffer::new().format(length),
                    "\r\n",
                ],
            );
        }
        SendBody::Chunks(_) => put(&mut text, &["transfer-encoding: chunked\r\n"]),
    }
    for (name, value) in &head.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n");
    let mut out = match body {
        SendBody::Whole(parts) => ResponseWriter::whole(text, parts),
        SendBody::Chunks(chunks) => {
            let queue = SendQueue {
                queued: text.len(),
                parts: VecDeque::from([text.into()]),
            };
            ResponseWriter {
                queue,
                chunks: Some(chunks),
                is_flushed: false,
            }
        }
    };
    std::future::poll_fn(|cx| out.poll(connection, cx)).await
}

fn put(text: &mut Vec<u8>, parts: &[&str]) {
    parts
        .iter()
        .for_each(|part| text.extend_from_slice(part.as_bytes()));
}

/// Response that is being sent.
struct ResponseWriter {
    queue: SendQueue,
    /// Stream of the chunks still to come.
    chunks: Option<Chunks>,
    is_flushed: bool,
}

impl ResponseWriter {
    fn whole(mut head: Vec<u8>, mut parts: VecDeque<Bytes>) -> Self {
        let queued = head.len() + parts.iter().map(Bytes::len).sum::<usize>();
        if queued <= COALESCED_MAX {
            parts
                .drain(..)
                .for_each(|part| head.extend_from_slice(&part));
        }
        parts.push_front(head.into());
        ResponseWriter {
            queue: SendQueue { parts, queued },
            chunks: None,
            is_flushed: false,
        }
    }

    fn poll<S, T>(
        &mut self,
        connection: &mut ServerConnection<S, T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ClientGone>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        loop {
            while self.queue.queued < QUEUED_MAX
                && let Some(chunks) = &mut self.chunks
                && let Poll::Ready(chunk) = chunks.as_mut().poll_next(cx)
            {
                self.queue.chunk(chunk.as_ref());
                if chunk.is_none() {
                    self.chunks = None;
                }
            }
            // Flushed after each burst: TLS may hold records in its buffer until then.
            let polled = if self.queue.queued > 0 {
                self.is_flushed = false;
                self.queue.poll_send(Pin::new(&mut connection.stream), cx)
            } else if !self.is_flushed {
                Pin::new(&mut connection.stream)
                    .poll_flush(cx)
                    .map_ok(|()| self.is_flushed = true)
            } else if self.chunks.is_none() {
                return Poll::Ready(Ok(()));
            } else {
                Poll::Pending
            };
            match polled {
                Poll::Ready(sent) => sent?,
                // A client that stalls, or waits for the next chunk, may disconnect meanwhile.
                Poll::Pending => return connection.poll_client_gone(cx).map(|()| Err(ClientGone)),
            }
        }
    }
}

/// Queue of bytes in the order of sending.
struct SendQueue {
    parts: VecDeque<Bytes>,
    queued: usize,
}

impl SendQueue {
    /// Adds a chunk of a body, or its end (RFC 9112, section 7.1).
    fn chunk(&mut self, chunk: Option<&Bytes>) {
        match chunk {
            None => self.push(Bytes::from_static(b"0\r\n\r\n")),
            // An empty chunk would end the body.
            Some(chunk) if chunk.is_empty() => {}
            Some(chunk) if chunk.len() <= COALESCED_MAX => {
                let mut whole = Vec::with_capacity(chunk.len() + 12);
                // Writing to a vector does not fail.
                let _ = write!(whole, "{:x}\r\n", chunk.len());
                whole.extend_from_slice(chunk);
                whole.extend_from_slice(b"\r\n");
                self.push(whole.into());
            }
            Some(chunk) => {
                self.push(format!("{:x}\r\n", chunk.len()).into());
                self.push(chunk.clone());
                self.push(Bytes::from_static(b"\r\n"));
            }
        }
    }

    fn push(&mut self, part: Bytes) {
        self.queued += part.len();
        self.parts.push_back(part);
    }

    fn poll_send<W: AsyncWrite>(
        &mut self,
        stream: Pin<&mut W>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.parts.retain(|part| !part.is_empty());
        let sent = match self.parts.len() {
            1 => ready!(stream.poll_write(cx, &self.parts[0]))?,
            _ => {
                let mut slices = [IoSlice::new(&[]); WRITE_SLICES];
                for (slice, part) in slices.iter_mut().zip(&self.parts) {
                    *slice = IoSlice::new(part);
                }
                ready!(
                    stream.poll_write_vectored(cx, &slices[..self.parts.len().min(WRITE_SLICES)])
                )?
            }
        };
        // Zero bytes written to a stream that is ready means that it takes no more.
        if sent == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.queued -= sent;
        let mut left = sent;
        while left > 0
            && let Some(first) = self.parts.front_mut()
        {
            let here = left.min(first.len());
            first.advance(here);
            left -= here;
            if first.is_empty() {
                self.parts.pop_front();
            }
        }
        Poll::Ready(Ok(()))
    }
}
