//! HTTP/1.1 of our own against hyper: for any bytes both read the same, or ours reads nothing.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use moongate_http1::{
    ClientPool, ConnectionError, HttpIo, NextRequest, PoolLimits, RequestError, RequestTemplate,
    ServerConnection,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum size of a request's head.
const HEAD_MAX: usize = 16 * 1024;
/// More polls than any input of the corpus needs.
const POLLS_MAX: usize = 100_000;

/// Peer whose bytes are known beforehand. It takes all that is written to it.
struct ScriptedPeer {
    bytes: Bytes,
    /// The largest piece that one read gives.
    piece: usize,
    /// True if the connection ends after the bytes. Otherwise it stays open without any more.
    ends: bool,
    /// Waker of a read before a request was written.
    reader: Option<Waker>,
    /// True once a request was written. No server answers sooner.
    is_asked: bool,
}

impl AsyncRead for ScriptedPeer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_asked {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if self.bytes.is_empty() && !self.ends {
            // Nothing will ever come, so nobody needs to be woken.
            return Poll::Pending;
        }
        let size = self.piece.min(self.bytes.len()).min(buffer.remaining());
        buffer.put_slice(&self.bytes.split_to(size));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ScriptedPeer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_asked = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Returns peers that send the input. Its first byte has the size of the pieces and the end of the
/// connection.
fn scripted(data: &[u8]) -> Option<impl Fn(bool) -> ScriptedPeer + use<>> {
    let (how, bytes) = data.split_first()?;
    let (bytes, ends) = (Bytes::copy_from_slice(bytes), how & 1 == 1);
    let piece = match usize::from(how >> 1) {
        0 => usize::MAX,
        piece => piece,
    };
    Some(move |is_asked| ScriptedPeer {
        bytes: bytes.clone(),
        piece,
        ends,
        reader: None,
        is_asked,
    })
}

#[derive(Default)]
struct WokenFlag(AtomicBool);

impl Wake for WokenFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Polls until nothing moves any more. All bytes are in memory, so only the future itself can wake
/// itself.
fn settle<F: Future>(future: F) -> Option<F::Output> {
    let woken = Arc::new(WokenFlag::default());
    let waker = Waker::from(woken.clone());
    let mut future = pin!(future);
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        if !woken.0.swap(false, Ordering::SeqCst) {
            return None;
        }
    }
    panic!("it never comes to rest");
}

/// Request as its handler sees it.
#[derive(Debug, PartialEq)]
struct SeenRequest {
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Bytes,
}

/// Adds the requests that hyper reads from a stream.
fn serve_with_hyper<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    seen: Vec<SeenRequest>,
) -> Vec<SeenRequest> {
    let all = Arc::new(Mutex::new(seen));
    let requests = all.clone();
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let requests = requests.clone();
        async move {
            let (head, body) = request.into_parts();
            // A truncated body isn't a request.
            if let Ok(body) = body.collect().await {
                let (target, body) = (head.uri.to_string(), body.to_bytes());
                let request = SeenRequest {
                    method: head.method,
                    target,
                    headers: head.headers,
                    body,
                };
                requests
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(request);
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    // Wrong requests end in an error, which has nothing to compare.
    let _ = settle(
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
    );
    std::mem::take(&mut all.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Requests on a connection: the fast path and hyper after it see what hyper alone would see.
pub fn requests(data: &[u8]) {
    let Some(peer) = scripted(data) else { return };
    // hyper does not serve what it read before the end of a connection, so only the open ones
    // compare.
    let peer = || ScriptedPeer {
        ends: false,
        ..peer(true)
    };
    let mut connection = ServerConnection::new(peer(), HEAD_MAX);
    let mut seen = Vec::new();
    let rest = loop {
        let next = settle(std::future::poll_fn(|cx| {
            connection.poll_next(cx, &mut |_| Some(()))
        }));
        match next {
            Some(NextRequest::Request(request)) => seen.push(SeenRequest {
                method: request.head.method,
                target: request.head.uri.to_string(),
                headers: request.head.headers,
                body: request.body,
            }),
            Some(NextRequest::Fallback) => break Some(connection.into_rewind()),
            Some(NextRequest::Closed) | None => break None,
        }
    };
    let served = seen.len();
    let seen = match rest {
        Some(rest) => serve_with_hyper(rest, seen),
        None => seen,
    };
    assert_eq!(
        seen,
        serve_with_hyper(peer(), Vec::new()),
        "{served} on the fast path"
    );
}

/// Answer as its caller sees it.
#[derive(Debug, PartialEq)]
struct SeenAnswer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl SeenAnswer {
    fn new(head: http::response::Parts, body: Bytes) -> Self {
        let mut headers = head.headers;
        // Ours leaves out what concerns only the connection, the framing or the moment.
        for name in [CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING] {
            headers.remove(name);
        }
        SeenAnswer {
            status: head.status.as_u16(),
            headers,
            body,
        }
    }
}

async fn read_with_ours(peer: ScriptedPeer) -> Result<SeenAnswer, ConnectionError> {
    // Without room for idle connections, no task watches over them.
    let pool = ClientPool::new(PoolLimits {
        idle: 0,
        idle_time: Duration::ZERO,
    });
    let request = RequestTemplate::new("/".to_owned(), &HeaderMap::new());
    let request = request.request(&Method::GET, "*/*", &[], Bytes::new());
    let connect = || async {
        let writer: Box<dyn AsyncWrite + Send + Unpin> = Box::new(tokio::io::sink());
        Ok::<_, Infallible>(HttpIo::from((
            Box::new(peer) as Box<dyn AsyncRead + Send + Unpin>,
            writer,
        )))
    };
    let response = pool
        .request(request, connect)
        .await
        .map_err(|error| match error {
            RequestError::Connect(never) => match never {},
            RequestError::Broken(error) => error,
        })?;
    let (head, mut body) = response.into_parts();
    let mut all = BytesMut::new();
    while body.fill(&mut all).await? {}
    assert!(body.is_finished());
    Ok(SeenAnswer::new(head, all.freeze()))
}

async fn read_with_hyper(peer: ScriptedPeer) -> Result<SeenAnswer, hyper::Error> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(peer)).await?;
    let reading = async {
        sender.ready().await?;
        let response = sender
            .send_request(Request::new(Empty::<Bytes>::new()))
            .await?;
        let (head, body) = response.into_parts();
        Ok(SeenAnswer::new(head, body.collect().await?.to_bytes()))
    };
    let (mut reading, mut connection, mut is_over) = (pin!(reading), pin!(connection), false);
    std::future::poll_fn(|cx| {
        // An error of the connection reaches the answer, too.
        is_over = is_over || connection.as_mut().poll(cx).is_ready();
        reading.as_mut().poll(cx)
    })
    .await
}

/// Answers on a connection: what ours reads, hyper reads the same. Ours may refuse more, and says
/// why.
pub fn answers(data: &[u8]) {
    let Some(peer) = scripted(data) else { return };
    let theirs = settle(read_with_hyper(peer(false)));
    match (settle(read_with_ours(peer(true))), theirs) {
        (Some(Ok(ours)), Some(Ok(theirs))) => assert_eq!(ours, theirs),
        (Some(Ok(ours)), theirs) => panic!("ours reads {ours:?}, and hyper {theirs:?}"),
        (Some(Err(ConnectionError::Parse(_))), _) => {}
        (Some(Err(ours)), Some(Ok(theirs))) => {
            panic!("hyper reads {theirs:?}, and ours has no reason: {ours}")
        }
        (None, Some(theirs)) => panic!("ours waits, and hyper has {theirs:?}"),
        (Some(Err(_)), _) | (None, None) => {}
    }
}
