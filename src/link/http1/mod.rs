//! One HTTP/1.1 connection to a server, as its client.
//!
//! Owns the socket, the sending of one request at a time and the reading of its answer. Does not know a pool or
//! messages. Invariant: it moves bytes only while it is polled, and holds no buffer while it waits for some.
//!
//! A general client keeps a buffer for each direction and a channel to the task that drives it: some 18 KiB more for each
//! call that waits, and 13,000 instructions more for each call.

mod body;
mod chunked;
mod head;
mod request;
mod http_io;

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use tokio::io::{AsyncRead, ReadBuf};

pub(super) use body::BodyDecoder;
pub(super) use http_io::HttpIo;
pub(super) use request::{EncodedRequest, RequestTemplate};

use crate::link::LinkError;
use crate::link::streamable_http::chain;

/// What is read at once, at most. It is on the stack, and only for the moment of the reading.
const READ_SIZE: usize = 16 * 1024;
/// Heads of interim answers (1xx) before the one that counts.
const INTERIM_MAX: usize = 16;

/// What an answer has that no answer may have.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub(super) struct ParseError(&'static str);

/// Why an answer did not come, or not to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server closed the connection in the middle.
    #[error("the server closed the connection {0}")]
    Closed(&'static str),
    /// What came is not HTTP/1.1, or could be read in two ways.
    #[error("the answer cannot be read as HTTP/1.1: {0}")]
    Parse(#[from] ParseError),
}

impl ConnectionError {
    /// The same for a link; `what` broke.
    pub(super) fn into_link_error(self, what: &str) -> LinkError {
        match &self {
            ConnectionError::Parse(_) => LinkError::Protocol(self.to_string()),
            ConnectionError::Closed(_) => LinkError::Closed(format!("{what}: {self}")),
            ConnectionError::Io(error) => LinkError::Closed(format!("{what}: {}", chain(error))),
        }
    }
}

/// Why an exchange failed.
pub(super) enum SendError {
    /// Nothing of the request was sent.
    NotSent(Box<EncodedRequest>, io::Error),
    Broken(ConnectionError),
}

/// A connection.
pub(super) struct HttpConnection {
    stream: HttpIo,
    /// The request, while some of it is still to be sent.
    request: Option<Box<EncodedRequest>>,
    /// Why the rest of the request cannot be sent.
    send_error: Option<io::Error>,
    /// Whether it may carry another request, as far as is known.
    keep_alive: bool,
}

impl HttpConnection {
    pub(super) fn new(stream: HttpIo) -> Self {
        HttpConnection { stream, request: None, send_error: None, keep_alive: true }
    }

    /// Sends a request, and waits for the head of its answer. The body comes on this connection as well.
    pub(super) async fn exchange(&mut self, request: Box<EncodedRequest>) -> Result<Response<BodyDecoder>, SendError> {
        self.request = Some(request);
        let mut reading = HeadReader::default();
        std::future::poll_fn(|cx| {
            self.poll_send_rest(cx).map_err(|(request, error)| SendError::NotSent(request, error))?;
            self.poll_head(cx, &mut reading).map_err(SendError::Broken)
        })
        .await
    }

    /// Whether it can take another request: the last answer was read to its end, and nothing came after that.
    pub(super) fn is_ready(&self) -> bool {
        // Reads only where the runtime was told that there is something, be it the end; what it is ends the connection.
        self.keep_alive && self.request.is_none() && self.stream.is_idle()
    }

    /// The same from the kernel, for a connection that lay idle: the runtime may not have been told yet.
    pub(super) fn peek_is_open(&self) -> bool {
        self.stream.peek_is_idle()
    }

    /// Sends what is left of the request, as far as the connection takes it. A server may refuse the rest, and have
    /// answered before: then that counts. Fails where it took nothing at all.
    fn poll_send_rest(&mut self, cx: &mut Context<'_>) -> Result<(), (Box<EncodedRequest>, io::Error)> {
        let Some(request) = &mut self.request else { return Ok(()) };
        match request.poll_send(Pin::new(&mut self.stream), cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(())) => {
                self.request = None;
                Ok(())
            }
            Poll::Ready(Err(error)) => {
                self.keep_alive = false;
                match self.request.take() {
                    Some(unsent) if unsent.is_unsent() => Err((unsent, error)),
                    _ => {
                        self.send_error = Some(error);
                        Ok(())
                    }
                }
            }
        }
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        reading: &mut HeadReader,
    ) -> Poll<Result<Response<BodyDecoder>, ConnectionError>> {
        loop {
            let read = ready!(self.poll_read(cx, |bytes| match bytes {
                [] => Err(reading.unexpected_end()),
                bytes => reading.feed(bytes).map_err(ConnectionError::from),
            }));
            let error = match read {
                Ok(Ok(None)) => continue,
                Ok(Ok(Some((answer, is_kept)))) => {
                    self.keep_alive &= is_kept;
                    return Poll::Ready(Ok(answer));
                }
                Ok(Err(error)) => error,
                Err(error) => ConnectionError::Io(error),
            };
            self.keep_alive = false;
            return Poll::Ready(Err(match (error, self.send_error.take()) {
                // That the server took no more of the request comes first.
                (ConnectionError::Io(_) | ConnectionError::Closed(_), Some(refused)) => ConnectionError::Io(refused),
                (error, _) => error,
            }));
        }
    }

    /// Reads what is there, nothing being the end, and gives it to `take`.
    fn poll_read<T>(&mut self, cx: &mut Context<'_>, take: impl FnOnce(&[u8]) -> T) -> Poll<io::Result<T>> {
        let mut space = [const { MaybeUninit::uninit() }; READ_SIZE];
        let mut buffer = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(take(buffer.filled())))
    }
}

/// A head that is being read.
#[derive(Default)]
struct HeadReader {
    /// What came of it; nothing where it comes in one piece.
    buffered: Vec<u8>,
    /// How much of it must be there before it is looked at again, if its end does not show.
    parse_at: usize,
    interim: usize,
}

impl HeadReader {
    fn unexpected_end(&self) -> ConnectionError {
        ConnectionError::Closed(if self.buffered.is_empty() {
            "without an answer"
        } else {
            "within the head of the answer"
        })
    }

    /// The answer, once its head is there, and whether the connection outlives it.
    fn feed(&mut self, bytes: &[u8]) -> Result<Option<(Response<BodyDecoder>, bool)>, ParseError> {
        let mut held = std::mem::take(&mut self.buffered);
        let mut bytes = bytes;
        if !held.is_empty() {
            let seen = held.len().saturating_sub(2);
            held.extend_from_slice(bytes);
            // Looked at from its start with every piece, one that comes byte by byte would cost its length squared.
            if held.len() < self.parse_at && !head::may_end(&held[seen..]) {
                self.buffered = held;
                return Ok(None);
            }
            bytes = &held;
        }
        loop {
            let Some((head, length)) = head::parse(bytes)? else {
                self.parse_at = (bytes.len() * 2).min(head::HEAD_MAX + 1);
                self.buffered = bytes.to_vec();
                return Ok(None);
            };
            bytes = &bytes[length..];
            if !head.response.status().is_informational() {
                let (body, used) = BodyDecoder::new(head.framing, bytes)?;
                return Ok(Some((head.response.map(|()| body), head.keep_alive && used == bytes.len())));
            }
            self.interim += 1;
            if self.interim > INTERIM_MAX {
                return Err(ParseError("more than 16 interim answers came before it"));
            }
            if bytes.is_empty() {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::{Bytes, BytesMut};
    use http::{HeaderMap, Method};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Both ends of a connection.
    async fn pair() -> (HttpConnection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        server.set_nodelay(true).unwrap();
        (HttpConnection::new(HttpIo::Tcp(client)), server)
    }

    fn request(body: usize) -> Box<EncodedRequest> {
        let template = RequestTemplate::new("/mcp".to_owned(), &HeaderMap::new());
        template.request(&Method::POST, "*/*", &[], Bytes::from(vec![b'x'; body]))
    }

    /// The status and the text of an answer; otherwise what broke.
    async fn answer(connection: &mut HttpConnection, request: Box<EncodedRequest>) -> Result<(u16, String), String> {
        let failed = |failure| match failure {
            SendError::NotSent(_, error) => format!("unsent: {error}"),
            SendError::Broken(broken) => broken.to_string(),
        };
        let (head, mut body) = connection.exchange(request).await.map_err(failed)?.into_parts();
        let mut text = BytesMut::new();
        while std::future::poll_fn(|cx| body.poll_fill(connection, cx, &mut text)).await.map_err(|e| e.to_string())? {}
        assert!(body.is_finished());
        Ok((head.status.as_u16(), String::from_utf8(text.to_vec()).unwrap()))
    }

    /// Waits until the connection shows what came, or that it ended.
    async fn until(mut is: impl FnMut() -> bool) {
        let waiting = async {
            while !is() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap();
    }

    /// A server that reads one request, writes `pieces`, each after the last was taken, and closes if it is to.
    async fn meet(pieces: Vec<Vec<u8>>, close: bool) -> (Result<(u16, String), String>, HttpConnection, TcpStream) {
        let (mut connection, mut server) = pair().await;
        let serving = async move {
            let _ = server.read(&mut [0; 4096]).await.unwrap();
            for piece in pieces {
                server.write_all(&piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            if close {
                server.shutdown().await.unwrap();
            }
            server
        };
        let (answered, server) = tokio::join!(answer(&mut connection, request(2)), serving);
        (answered, connection, server)
    }

    #[tokio::test]
    async fn answers_are_read_however_they_are_cut() {
        for (text, expected, is_kept) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", (200, "ok"), true),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;x\r\nk\r\n0\r\nA: b\r\n\r\n",
                (200, "ok"),
                true,
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n", (204, ""), true),
            ("HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 1\r\n\r\n!", (404, "!"), false),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!",
                (200, "!"),
                true,
            ),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n!", (200, "!"), false),
        ] {
            let bytes = text.as_bytes();
            let cuts = (0..bytes.len()).map(|at| vec![bytes[..at].to_vec(), bytes[at..].to_vec()]);
            for pieces in cuts.chain([bytes.chunks(1).map(<[u8]>::to_vec).collect()]) {
                let pieces = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
                let (answered, connection, _server) = meet(pieces, false).await;
                assert_eq!(answered, Ok((expected.0, expected.1.to_owned())), "{text:?}");
                assert_eq!(
                    (connection.is_ready(), connection.is_ready() && connection.peek_is_open()),
                    (is_kept, is_kept),
                    "{text:?}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_body_without_a_length_ends_with_its_connection() {
        let pieces = ["HTTP/1.1 200 OK\r\n\r\n", "o", "k"].map(|piece| piece.as_bytes().to_vec());
        let (answered, connection, _server) = meet(pieces.to_vec(), true).await;
        assert_eq!((answered, connection.is_ready()), (Ok((200, "ok".to_owned())), false));
    }

    #[tokio::test]
    async fn answers_that_break_off_or_are_wrong_say_so_and_end_the_connection() {
        const WRONG: &str = "the answer cannot be read as HTTP/1.1: ";
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(INTERIM_MAX + 1);
        let long = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(head::HEAD_MAX));
        for (text, why) in [
            ("", "the server closed the connection without an answer".to_owned()),
            ("HTTP/1.1 2", "the server closed the connection within the head of the answer".to_owned()),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
                "the server closed the connection within an answer".to_owned(),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
                "the server closed the connection within an answer".to_owned(),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\r\n",
                format!("{WRONG}the size of a chunk ends in a line feed alone"),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
                format!("{WRONG}it has both a Transfer-Encoding and a Content-Length"),
            ),
            ("220 mail.example.com ESMTP\r\n", format!("{WRONG}it does not begin as an answer of HTTP/1")),
            (&*interim, format!("{WRONG}more than 16 interim answers came before it")),
            (&*long, format!("{WRONG}its head is longer than 64 KiB")),
        ] {
            let (answered, connection, _server) = meet(vec![text.as_bytes().to_vec()], true).await;
            assert_eq!(answered, Err(why), "{text:.60}");
            assert!(!connection.is_ready());
        }
    }

    #[tokio::test]
    async fn what_nobody_asked_for_ends_the_connection() {
        // Along with the answer.
        let two = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".repeat(2);
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n!".to_vec();
        for text in [two, chunked] {
            let (answered, connection, _server) = meet(vec![text], false).await;
            assert_eq!(answered, Ok((200, String::new())));
            until(|| !connection.is_ready()).await;
        }
        // Later.
        let whole = || vec![b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()];
        let (_, connection, mut server) = meet(whole(), false).await;
        assert!(connection.is_ready() && connection.peek_is_open());
        server.write_all(b"!").await.unwrap();
        until(|| !connection.peek_is_open()).await;
        until(|| !connection.is_ready()).await;
        // Or the end.
        let (_, connection, server) = meet(whole(), false).await;
        drop(server);
        until(|| !connection.peek_is_open()).await;
        until(|| !connection.is_ready()).await;
    }

    #[tokio::test]
    async fn an_answer_may_come_before_the_request_was_read() {
        // More than the buffers of both sides take.
        let large = 32 << 20;
        let (mut connection, mut server) = pair().await;
        let serving = async {
            server.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n").await.unwrap();
            let mut all = server.take(large as u64);
            assert!(tokio::io::copy(&mut all, &mut tokio::io::sink()).await.unwrap() == large as u64);
            let mut server = all.into_inner();
            server.write_all(b"1\r\n!\r\n0\r\n\r\n").await.unwrap();
            server
        };
        let (answered, _server) = tokio::join!(answer(&mut connection, request(large)), serving);
        assert_eq!(answered, Ok((200, "ok!".to_owned())));
    }

    #[tokio::test]
    async fn a_refusal_counts_though_the_rest_of_the_request_was_not_taken() {
        let (mut connection, mut server) = pair().await;
        let serving = async {
            server.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await.unwrap();
            server
        };
        let (answered, _server) = tokio::join!(answer(&mut connection, request(32 << 20)), serving);
        assert_eq!(answered, Ok((413, "no".to_owned())));
        // The rest of the request would be taken for the next one.
        assert!(!connection.is_ready());
    }

    #[tokio::test]
    async fn a_request_that_cannot_be_sent_comes_back() {
        let (mut connection, server) = pair().await;
        // With what it did not read, the server's end is a reset.
        connection.stream.write_all(b"GET ").await.unwrap();
        server.readable().await.unwrap();
        drop(server);
        until(|| !connection.peek_is_open()).await;
        // The kernel tells of the reset once.
        let _ = connection.stream.read(&mut [0]).await;
        let failed = connection.exchange(request(2)).await;
        assert!(matches!(failed, Err(SendError::NotSent(request, _)) if request.is_unsent()));
        assert!(!connection.is_ready());
    }

    #[tokio::test]
    async fn a_large_body_is_read_into_the_buffer_that_was_made_for_it() {
        let length = 3 << 20;
        let (mut connection, mut server) = pair().await;
        let serving = async {
            let _ = server.read(&mut [0; 4096]).await.unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            server.write_all(head.as_bytes()).await.unwrap();
            server.write_all(&vec![b'y'; length]).await.unwrap();
        };
        let reading = async {
            let mut body = connection.exchange(request(2)).await.ok().unwrap().into_body();
            assert_eq!(body.length(), Some(length as u64));
            let mut all = BytesMut::with_capacity(length);
            let start = all.as_ptr();
            while std::future::poll_fn(|cx| body.poll_fill(&mut connection, cx, &mut all)).await.unwrap() {}
            assert_eq!((all.len(), all.as_ptr()), (length, start));
            assert!(all.iter().all(|b| *b == b'y'));
        };
        tokio::join!(reading, serving);
        assert!(connection.is_ready());
    }
}
