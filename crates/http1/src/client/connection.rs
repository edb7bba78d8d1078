//! Client side of one HTTP/1.1 connection to a server.
//!
//! Owns the socket, the sending of one request at a time and the reading of its response. Knows no
//! pool or messages. Invariant: the connection moves bytes only while it is polled, and holds no
//! buffer while it waits for input.
//!
//! A general client keeps a buffer for each direction and a channel to the task that drives it.
//! That costs some 18 KiB more for each waiting call, and 13,000 instructions more for each call.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use tokio::io::{AsyncRead, ReadBuf};

use crate::client::decode_body::BodyDecoder;
use crate::client::decode_head;
use crate::client::encode::EncodedRequest;
use crate::client::http_io::HttpIo;
use crate::error::{ConnectionError, ParseError};

/// Limit of one read, in bytes. The buffer is on the stack, only for the duration of the read.
pub(super) const READ_SIZE: usize = 16 * 1024;
/// Limit of interim responses (1xx) before the final one.
// Real servers send one or two: `100 Continue`, `103 Early Hints`.
const INTERIM_MAX: usize = 16;

/// Reason for a failed exchange.
pub(super) enum SendError {
    /// No byte of the request was sent, so a retry is safe.
    NotSent(Box<EncodedRequest>, io::Error),
    Broken(ConnectionError),
}

/// Client side of one connection.
pub(super) struct ClientConnection {
    pub(super) stream: HttpIo,
    /// Request that is not fully sent yet.
    request: Option<Box<EncodedRequest>>,
    /// Error that stopped the rest of the request.
    send_error: Option<io::Error>,
    /// True if the connection can carry another request, as far as is known.
    pub(super) keep_alive: bool,
}

impl ClientConnection {
    pub(super) fn new(stream: HttpIo) -> Self {
        ClientConnection {
            stream,
            request: None,
            send_error: None,
            keep_alive: true,
        }
    }

    /// Sends a request and waits for the head of its response. The body follows on this connection.
    pub(super) async fn exchange(
        &mut self,
        request: Box<EncodedRequest>,
    ) -> Result<Response<BodyDecoder>, SendError> {
        self.request = Some(request);
        let mut reading = HeadReader::default();
        std::future::poll_fn(|cx| {
            self.poll_send_rest(cx)
                .map_err(|(request, error)| SendError::NotSent(request, error))?;
            self.poll_head(cx, &mut reading).map_err(SendError::Broken)
        })
        .await
    }

    /// True if the last response was read to its end and no data came after it.
    pub(super) fn is_ready(&self) -> bool {
        // Reads only if the runtime reported data or the end. Either makes the connection unusable.
        self.keep_alive && self.request.is_none() && self.stream.is_idle()
    }

    /// Asks the kernel whether an idle connection is still open. The runtime may not have heard
    /// yet.
    pub(super) fn peek_is_open(&self) -> bool {
        self.stream.peek_is_idle()
    }

    /// Sends as much of the rest of the request as the connection accepts. A server may respond
    /// early and refuse the rest; that response counts. Fails if no byte was sent at all.
    pub(super) fn poll_send_rest(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<(), (Box<EncodedRequest>, io::Error)> {
        let Some(request) = &mut self.request else {
            return Ok(());
        };
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
                Ok(Ok(Some((answer, keep_alive)))) => {
                    // A failed send may have cleared the flag already.
                    self.keep_alive &= keep_alive;
                    return Poll::Ready(Ok(answer));
                }
                Ok(Err(error)) => error,
                Err(error) => ConnectionError::Io(error),
            };
            self.keep_alive = false;
            return Poll::Ready(Err(match (error, self.send_error.take()) {
                // The refusal of the request is the cause, and the end of the connection its
                // consequence.
                (ConnectionError::Io(_) | ConnectionError::Closed(_), Some(refused)) => {
                    ConnectionError::Io(refused)
                }
                (error, _) => error,
            }));
        }
    }

    /// Reads available bytes and passes them to `take`. An empty slice is the end.
    pub(super) fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Poll<io::Result<T>> {
        let mut space = [const { MaybeUninit::uninit() }; READ_SIZE];
        let mut buffer = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(take(buffer.filled())))
    }
}

/// Reader of one response head.
#[derive(Default)]
struct HeadReader {
    /// Bytes of an incomplete head; empty for a head that arrives in one piece.
    buffered: Vec<u8>,
    /// Length at which an incomplete head is parsed again, even without a visible end.
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

    /// Returns the response once its head is complete, and true if the connection outlives it.
    fn feed(&mut self, bytes: &[u8]) -> Result<Option<(Response<BodyDecoder>, bool)>, ParseError> {
        // Most heads arrive in one read and are parsed where they are, without a buffer.
        let mut buffered = std::mem::take(&mut self.buffered);
        let mut bytes = bytes;
        if !buffered.is_empty() {
            // The end of a head, LF LF or LF CR LF, may be split over two reads: two bytes are
            // looked at again.
            let seen = buffered.len().saturating_sub(2);
            buffered.extend_from_slice(bytes);
            // A parse from the start at every piece would make a head sent byte by byte quadratic.
            if buffered.len() < self.parse_at && !decode_head::may_end(&buffered[seen..]) {
                self.buffered = buffered;
                return Ok(None);
            }
            bytes = &buffered;
        }
        loop {
            let Some((head, length)) = decode_head::parse(bytes)? else {
                self.parse_at = (bytes.len() * 2).min(decode_head::HEAD_MAX + 1);
                self.buffered = bytes.to_vec();
                return Ok(None);
            };
            bytes = &bytes[length..];
            if !head.response.status().is_informational() {
                let (body, used) = BodyDecoder::new(head.framing, bytes)?;
                return Ok(Some((
                    head.response.map(|()| body),
                    head.keep_alive && used == bytes.len(),
                )));
            }
            // RFC 9110, section 15.2: a client must be able to parse any number of 1xx responses.
            // The limit bounds a server that sends nothing else.
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
    use crate::client::encode::RequestTemplate;

    /// Returns both ends of a connection.
    async fn pair() -> (ClientConnection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (server, _) = listener.accept().await.unwrap();
        server.set_nodelay(true).unwrap();
        (ClientConnection::new(HttpIo::Tcp(client)), server)
    }

    fn request(body: usize) -> Box<EncodedRequest> {
        let template = RequestTemplate::new("/mcp".to_owned(), &HeaderMap::new());
        template.request(&Method::POST, "*/*", &[], Bytes::from(vec![b'x'; body]))
    }

    fn failure_text(failure: SendError) -> String {
        match failure {
            SendError::NotSent(_, error) => format!("unsent: {error}"),
            SendError::Broken(broken) => broken.to_string(),
        }
    }

    /// Returns the status and text of a response, or the error.
    async fn answer(
        connection: &mut ClientConnection,
        request: Box<EncodedRequest>,
    ) -> Result<(u16, String), String> {
        let (head, mut body) = connection
            .exchange(request)
            .await
            .map_err(failure_text)?
            .into_parts();
        let mut text = BytesMut::new();
        while std::future::poll_fn(|cx| body.poll_fill(connection, cx, &mut text))
            .await
            .map_err(|e| e.to_string())?
        {}
        assert!(body.is_finished());
        Ok((
            head.status.as_u16(),
            String::from_utf8(text.to_vec()).unwrap(),
        ))
    }

    /// Waits until the connection shows the data or its end.
    async fn until(mut is: impl FnMut() -> bool) {
        let waiting = async {
            while !is() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting)
            .await
            .unwrap();
    }

    /// Runs a server that reads one request, writes `pieces` one after another, and closes if asked
    /// to.
    async fn meet(
        pieces: Vec<Vec<u8>>,
        close: bool,
    ) -> (Result<(u16, String), String>, ClientConnection, TcpStream) {
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
        for (text, expected, keep_alive) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
                (200, "ok"),
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: \
                 chunked\r\n\r\n1\r\no\r\n1;x\r\nk\r\n0\r\nA: b\r\n\r\n",
                (200, "ok"),
                true,
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n", (204, ""), true),
            (
                "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 1\r\n\r\n!",
                (404, "!"),
                false,
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nA: b\r\n\r\nHTTP/1.1 200 \
                 OK\r\nContent-Length: 1\r\n\r\n!",
                (200, "!"),
                true,
            ),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n!",
                (200, "!"),
                false,
            ),
        ] {
            let bytes = text.as_bytes();
            let cuts = (0..bytes.len()).map(|at| vec![bytes[..at].to_vec(), bytes[at..].to_vec()]);
            for pieces in cuts.chain([bytes.chunks(1).map(<[u8]>::to_vec).collect()]) {
                let pieces = pieces
                    .into_iter()
                    .filter(|piece| !piece.is_empty())
                    .collect();
                let (answered, connection, _server) = meet(pieces, false).await;
                assert_eq!(
                    answered,
                    Ok((expected.0, expected.1.to_owned())),
                    "{text:?}"
                );
                assert_eq!(connection.is_ready(), keep_alive, "{text:?}");
                let is_open = connection.is_ready() && connection.peek_is_open();
                assert_eq!(is_open, keep_alive, "{text:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_body_without_a_length_ends_with_its_connection() {
        let pieces = ["HTTP/1.1 200 OK\r\n\r\n", "o", "k"].map(|piece| piece.as_bytes().to_vec());
        let (answered, connection, _server) = meet(pieces.to_vec(), true).await;
        assert_eq!(answered, Ok((200, "ok".to_owned())));
        assert!(!connection.is_ready());
    }

    #[tokio::test]
    async fn answers_that_break_off_or_are_wrong_say_so_and_end_the_connection() {
        const WRONG: &str = "the answer cannot be read as HTTP/1.1: ";
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(INTERIM_MAX + 1);
        let long = format!(
            "HTTP/1.1 200 OK\r\nA: {}",
            "b".repeat(decode_head::HEAD_MAX)
        );
        for (text, why) in [
            (
                "",
                "the server closed the connection without an answer".to_owned(),
            ),
            (
                "HTTP/1.1 2",
                "the server closed the connection within the head of the answer".to_owned(),
            ),
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
                format!("{WRONG}a chunk size ends in a bare line feed"),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
                format!("{WRONG}it has both a Transfer-Encoding and a Content-Length"),
            ),
            (
                "220 mail.example.com ESMTP\r\n",
                format!("{WRONG}it does not start like an HTTP/1 response"),
            ),
            (
                &*interim,
                format!("{WRONG}more than 16 interim answers came before it"),
            ),
            (&*long, format!("{WRONG}its head is longer than 64 KiB")),
        ] {
            let (answered, connection, _server) = meet(vec![text.as_bytes().to_vec()], true).await;
            assert_eq!(answered, Err(why), "{text:.60}");
            assert!(!connection.is_ready());
        }
    }

    #[tokio::test]
    async fn an_unsolicited_response_ends_the_connection() {
        // With the response.
        let two = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".repeat(2);
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n!".to_vec();
        for text in [two, chunked] {
            let (answered, connection, _server) = meet(vec![text], false).await;
            assert_eq!(answered, Ok((200, String::new())));
            until(|| !connection.is_ready()).await;
        }
        // After the response.
        let whole = vec![b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()];
        let (_, connection, mut server) = meet(whole.clone(), false).await;
        assert!(connection.is_ready() && connection.peek_is_open());
        server.write_all(b"!").await.unwrap();
        until(|| !connection.peek_is_open()).await;
        until(|| !connection.is_ready()).await;
        // The end of the connection.
        let (_, connection, server) = meet(whole, false).await;
        drop(server);
        until(|| !connection.peek_is_open()).await;
        until(|| !connection.is_ready()).await;
    }

    #[tokio::test]
    async fn an_answer_may_come_before_the_request_was_read() {
        // More bytes than the buffers of both sides hold.
        let large = 32 << 20;
        let (mut connection, mut server) = pair().await;
        let serving = async {
            server
                .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
                .await
                .unwrap();
            let mut all = server.take(large as u64);
            assert!(
                tokio::io::copy(&mut all, &mut tokio::io::sink())
                    .await
                    .unwrap()
                    == large as u64
            );
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
            server
                .write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
                .await
                .unwrap();
            server
        };
        let (answered, _server) = tokio::join!(answer(&mut connection, request(32 << 20)), serving);
        assert_eq!(answered, Ok((413, "no".to_owned())));
        // The next request would be taken for the rest of this one.
        assert!(!connection.is_ready());
    }

    #[tokio::test]
    async fn a_request_that_cannot_be_sent_comes_back() {
        let (mut connection, server) = pair().await;
        // Unread bytes turn the close of the server into a reset.
        connection.stream.write_all(b"GET ").await.unwrap();
        server.readable().await.unwrap();
        drop(server);
        until(|| !connection.peek_is_open()).await;
        // The kernel reports the reset once.
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
            let mut body = connection
                .exchange(request(2))
                .await
                .ok()
                .unwrap()
                .into_body();
            assert_eq!(body.length(), Some(length as u64));
            let mut all = BytesMut::with_capacity(length);
            let start = all.as_ptr();
            while std::future::poll_fn(|cx| body.poll_fill(&mut connection, cx, &mut all))
                .await
                .unwrap()
            {}
            assert_eq!(all.len(), length);
            assert_eq!(all.as_ptr(), start);
            assert!(all.iter().all(|b| *b == b'y'));
        };
        tokio::join!(reading, serving);
        assert!(connection.is_ready());
    }
}
