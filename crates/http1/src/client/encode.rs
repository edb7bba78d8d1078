//! Requests encoded as bytes.
//!
//! Owns the encoding of request heads and the count of sent bytes. Does not know what headers mean.
//! Invariant: a header of the request replaces one of the template, and `Content-Length` is the
//! length of the body.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio::io::AsyncWrite;

/// Common part of all requests to one endpoint, encoded once.
pub struct RequestTemplate {
    path: String,
    /// Headers with their encoded lines.
    lines: Vec<(HeaderName, Vec<u8>)>,
}

impl RequestTemplate {
    /// Encodes the headers that all requests share.
    pub fn new(path: String, headers: &HeaderMap) -> Self {
        let lines = headers.iter().map(|(name, value)| {
            let mut line = Vec::new();
            put(&mut line, name, value);
            (name.clone(), line)
        });
        RequestTemplate {
            path,
            lines: lines.collect(),
        }
    }

    /// Encodes a request, with a JSON body if the method is POST. The last of several headers of
    /// one name counts.
    pub fn request(
        &self,
        method: &Method,
        accept: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Box<EncodedRequest> {
        // Sized up front, so that the head is allocated once.
        let request_length: usize = headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + 4)
            .sum();
        let common: usize = self.lines.iter().map(|(_, line)| line.len()).sum();
        let mut head =
            Vec::with_capacity(self.path.len() + common + request_length + accept.len() + 112);
        for part in [method.as_str(), " ", &self.path, " HTTP/1.1\r\n"] {
            head.extend_from_slice(part.as_bytes());
        }
        for (name, line) in &self.lines {
            // A header of the request replaces the common one.
            if headers.iter().all(|(other, _)| other != name) {
                head.extend_from_slice(line);
            }
        }
        for (n, (name, value)) in headers.iter().enumerate() {
            if headers[n + 1..].iter().all(|(other, _)| other != name) {
                put(&mut head, name, value);
            }
        }
        for part in ["accept: ", accept, "\r\n"] {
            head.extend_from_slice(part.as_bytes());
        }
        // RFC 9110, section 8.6: "A user agent SHOULD send Content-Length in a request when the
        // method defines a meaning for enclosed content".
        if *method == Method::POST {
            head.extend_from_slice(b"content-type: application/json\r\ncontent-length: ");
            head.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        Box::new(EncodedRequest {
            head,
            body,
            sent: 0,
        })
    }
}

fn put(head: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
        head.extend_from_slice(part);
    }
}

/// Encoded request and its progress.
pub struct EncodedRequest {
    head: Vec<u8>,
    body: Bytes,
    sent: usize,
}

impl EncodedRequest {
    pub(super) fn is_unsent(&self) -> bool {
        self.sent == 0
    }

    /// Sends the rest of the request.
    pub(super) fn poll_send(
        &mut self,
        mut stream: Pin<&mut impl AsyncWrite>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.sent < self.head.len() + self.body.len() {
            let head = &self.head[self.sent.min(self.head.len())..];
            let body = &self.body[self.sent.saturating_sub(self.head.len())..];
            let written = match (head, body) {
                (head, []) => stream.as_mut().poll_write(cx, head),
                ([], body) => stream.as_mut().poll_write(cx, body),
                (head, body) => stream
                    .as_mut()
                    .poll_write_vectored(cx, &[IoSlice::new(head), IoSlice::new(body)]),
            };
            match ready!(written)? {
                // A stream that accepts no bytes without an error would loop forever.
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.sent += written,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use http::header::{AUTHORIZATION, HOST};

    use super::*;

    fn template() -> RequestTemplate {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("a:80"));
        headers.insert(AUTHORIZATION, HeaderValue::from_static("one"));
        headers.append("x-two", HeaderValue::from_static("1"));
        headers.append("x-two", HeaderValue::from_static("2"));
        RequestTemplate::new("/mcp?a=b".to_owned(), &headers)
    }

    fn head(request: &EncodedRequest) -> &str {
        std::str::from_utf8(&request.head).unwrap()
    }

    #[test]
    fn a_request_is_encoded() {
        let request = template().request(
            &Method::POST,
            "application/json",
            &[],
            Bytes::from_static(b"{}"),
        );
        let common =
            "/mcp?a=b HTTP/1.1\r\nhost: a:80\r\nauthorization: one\r\nx-two: 1\r\nx-two: 2\r\n";
        assert_eq!(
            head(&request),
            format!(
                "POST {common}accept: application/json\r\ncontent-type: \
                 application/json\r\ncontent-length: 2\r\n\r\n"
            )
        );
        let request = template().request(&Method::GET, "*/*", &[], Bytes::new());
        assert_eq!(head(&request), format!("GET {common}accept: */*\r\n\r\n"));
        let request = template().request(&Method::POST, "*/*", &[], Bytes::new());
        assert!(
            head(&request).ends_with("content-length: 0\r\n\r\n"),
            "{}",
            head(&request)
        );
    }

    fn authorization(text: &'static str) -> (HeaderName, HeaderValue) {
        (AUTHORIZATION, HeaderValue::from_static(text))
    }

    #[test]
    fn the_last_of_the_headers_with_one_name_counts() {
        let other = (
            HeaderName::from_static("x-two"),
            HeaderValue::from_static("3"),
        );
        let request = template().request(
            &Method::GET,
            "*/*",
            &[authorization("two"), other, authorization("three")],
            Bytes::new(),
        );
        assert_eq!(
            head(&request),
            "GET /mcp?a=b HTTP/1.1\r\nhost: a:80\r\nx-two: 3\r\nauthorization: three\r\naccept: \
             */*\r\n\r\n"
        );
    }

    /// Writer that accepts this many bytes at a time.
    struct SlowWriter(Vec<u8>, usize);

    impl AsyncWrite for SlowWriter {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.1);
            self.0.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all = slices.iter().flat_map(|slice| slice.iter().copied());
            let before = self.0.len();
            let limit = self.1;
            self.0.extend(all.take(limit));
            Poll::Ready(Ok(self.0.len() - before))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_request_is_sent_however_little_is_taken_at_a_time() {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let body = Bytes::from_static(b"{\"a\":1}");
        let whole = [
            template()
                .request(&Method::POST, "*/*", &[], body.clone())
                .head,
            body.to_vec(),
        ]
        .concat();
        for step in 1..=whole.len() {
            let mut stream = SlowWriter(Vec::new(), step);
            let mut request = template().request(&Method::POST, "*/*", &[], body.clone());
            assert!(request.is_unsent());
            assert!(request.poll_send(Pin::new(&mut stream), &mut cx).is_ready());
            assert_eq!(stream.0, whole, "{step} at a time");
            assert!(!request.is_unsent());
        }
        let mut request = template().request(&Method::GET, "*/*", &[], Bytes::new());
        let failed = request.poll_send(Pin::new(&mut SlowWriter(Vec::new(), 0)), &mut cx);
        assert!(matches!(failed, Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::WriteZero));
    }
}
