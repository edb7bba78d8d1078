//! Connections to a server over plain HTTP/1.1, each driven by the call that uses it.
//!
//! Owns the idle connections of one server and the connection under an answer. Does not know messages. A pool that
//! serves many hosts, and a task for each connection, would cost more than all that the gateway does itself: three
//! look-ups and some ten wakes for each call. Invariant: a connection carries one request at a time, is kept only
//! after its answer was read to the end, and a request goes out a second time only if none of it was sent.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::link::LinkError;
use crate::link::hints::unreachable;
use crate::link::http::chain;
use crate::selfwake::SelfWake;

/// The connections of one server that nobody uses at the moment.
pub(super) struct Plain {
    connector: HttpConnector,
    target: Uri,
    limits: Limits,
    idle: Mutex<Idle>,
}

/// How many idle connections are kept, and for how long.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) idle: usize,
    pub(super) idle_time: Duration,
}

#[derive(Default)]
struct Idle {
    /// The longest unused one first.
    connections: Vec<(Instant, Box<Connection>)>,
    /// Whether a task ends those that are not used any more.
    watched: bool,
}

/// One connection: what is sent on it, and what moves its bytes while it is polled.
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None`: it ended.
    driver: Option<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>,
    wake: SelfWake,
    home: Weak<Plain>,
}

impl Plain {
    pub(super) fn new(connector: HttpConnector, target: Uri, limits: Limits) -> Arc<Self> {
        Arc::new(Plain { connector, target, limits, idle: Mutex::default() })
    }

    /// Sends a request, whose URI is a path and which has its `Host`; over a connection that was kept, if there is one.
    pub(super) async fn request(
        self: &Arc<Self>,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Answer>, LinkError> {
        loop {
            let (mut connection, is_kept) = match self.take() {
                Some(connection) => (connection, true),
                None => (self.connect().await?, false),
            };
            let mut error = match connection.send(request).await {
                Ok(response) => {
                    return Ok(response.map(|body| Answer { body, connection: Some(connection) }));
                }
                Err(error) => error,
            };
            match error.take_message() {
                // The server closed it while it was idle: nothing was sent, and each round takes one out.
                Some(unsent) if is_kept => request = unsent,
                _ => return Err(LinkError::Gone(format!("the connection broke: {}", chain(&error.into_error())))),
            }
        }
    }

    async fn connect(self: &Arc<Self>) -> Result<Box<Connection>, LinkError> {
        let host = self.target.host();
        let connected = self.connector.clone().oneshot(self.target.clone()).await;
        let stream = connected.map_err(|e| unreachable(&e, host))?;
        let (sender, driver) = http1::handshake(stream).await.map_err(|e| unreachable(&e, host))?;
        let home = Arc::downgrade(self);
        Ok(Box::new(Connection { sender, driver: Some(driver), wake: SelfWake::default(), home }))
    }

    /// The connection used last, if it still stands.
    fn take(&self) -> Option<Box<Connection>> {
        loop {
            let (since, mut connection) = self.lock().connections.pop()?;
            if since.elapsed() < self.limits.idle_time && connection.is_ready() {
                return Some(connection);
            }
        }
    }

    fn keep(self: &Arc<Self>, connection: Box<Connection>) {
        connection.wake.detach();
        let mut idle = self.lock();
        if idle.connections.len() >= self.limits.idle {
            return;
        }
        idle.connections.push((Instant::now(), connection));
        if !std::mem::replace(&mut idle.watched, true) {
            tokio::spawn(watch(Arc::downgrade(self), self.limits.idle_time));
        }
    }

    /// Ends the connections that were not used for too long. False: none is left.
    fn sweep(&self) -> bool {
        let mut idle = self.lock();
        idle.connections.retain(|(since, _)| since.elapsed() < self.limits.idle_time);
        idle.watched = !idle.connections.is_empty();
        idle.watched
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn watch(pool: Weak<Plain>, idle_time: Duration) {
    loop {
        tokio::time::sleep(idle_time).await;
        if !pool.upgrade().is_some_and(|pool| pool.sweep()) {
            return;
        }
    }
}

impl Connection {
    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::client::conn::TrySendError<Request<Full<Bytes>>>> {
        let Connection { sender, driver, wake, .. } = self;
        let mut answer = pin!(sender.try_send_request(request));
        std::future::poll_fn(|cx| {
            wake.poll(cx, |cx| {
                drive(driver, cx);
                answer.as_mut().poll(cx)
            })
        })
        .await
    }

    /// Whether it can take a request: it was polled to where it waits for one, and was not closed.
    fn is_ready(&mut self) -> bool {
        drive(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// Moves bytes. What ended is dropped: that tells whoever waits for an answer.
fn drive(driver: &mut Option<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>, cx: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(cx).is_ready()) {
        *driver = None;
    }
}

/// The body of an answer, with the connection that it comes on where nobody else drives that.
pub(super) struct Answer {
    body: Incoming,
    connection: Option<Box<Connection>>,
}

impl From<Incoming> for Answer {
    fn from(body: Incoming) -> Self {
        Answer { body, connection: None }
    }
}

impl Answer {
    /// After the end of the body the connection can be used again.
    fn release(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if connection.is_ready()
            && let Some(home) = connection.home.upgrade()
        {
            home.keep(connection);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let answer = self.get_mut();
        let Answer { body, connection } = answer;
        let Some(driven) = connection else { return Pin::new(body).poll_frame(cx) };
        let Connection { driver, wake, .. } = &mut **driven;
        let frame = ready!(wake.poll(cx, |cx| {
            let frame = Pin::new(&mut *body).poll_frame(cx);
            if frame.is_ready() {
                return frame;
            }
            drive(driver, cx);
            Pin::new(&mut *body).poll_frame(cx)
        }));
        match frame {
            None => answer.release(),
            Some(Err(_)) => *connection = None,
            Some(Ok(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // Before its end, the connection is of no more use: closing it also tells the server.
        if self.body.is_end_stream() {
            self.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;

    const WHOLE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

    /// A server that gives each request of a connection the next of `answers`, and closes when there are no more.
    struct Server {
        pool: Arc<Plain>,
        opened: Arc<AtomicUsize>,
        /// Something for each connection that the client closed.
        closed: mpsc::Receiver<()>,
    }

    async fn server(answers: &'static [&'static str], limits: Limits) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
        let opened = Arc::new(AtomicUsize::new(0));
        let (gone, closed) = mpsc::channel(16);
        let count = opened.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let gone = gone.clone();
                tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    for answer in answers {
                        // A request without a body fits into one read.
                        if stream.read(&mut buffer).await.unwrap_or(0) == 0 {
                            let _ = gone.send(()).await;
                            return;
                        }
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        Server { pool: Plain::new(HttpConnector::new(), target, limits), opened, closed }
    }

    const LIMITS: Limits = Limits { idle: 4, idle_time: Duration::from_secs(60) };

    fn request() -> Request<Full<Bytes>> {
        Request::get("/mcp").header("host", "test").body(Full::default()).unwrap()
    }

    impl Server {
        async fn ask(&self) -> Bytes {
            self.pool.request(request()).await.unwrap().into_body().collect().await.unwrap().to_bytes()
        }

        fn opened(&self) -> usize {
            self.opened.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn a_connection_whose_answer_was_read_is_used_again() {
        let server = server(&[WHOLE; 20], LIMITS).await;
        for _ in 0..10 {
            assert_eq!(server.ask().await, "ok");
        }
        assert_eq!(server.opened(), 1);
    }

    #[tokio::test]
    async fn a_connection_that_the_server_closed_is_replaced() {
        let server = server(&[WHOLE], LIMITS).await;
        for n in 1..5 {
            assert_eq!(server.ask().await, "ok");
            assert_eq!(server.opened(), n);
            // Until the end of the connection is there: what is asked sooner may have been sent.
            let until_closed = async {
                while server.pool.lock().connections.iter_mut().any(|(_, connection)| connection.is_ready()) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), until_closed).await.unwrap();
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_given_up_ends_its_connection() {
        let mut server = server(&["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", WHOLE], LIMITS).await;
        let answer = server.pool.request(request()).await.unwrap();
        drop(answer);
        server.closed.recv().await.unwrap();
        assert!(server.pool.lock().connections.is_empty());
    }

    #[tokio::test]
    async fn a_request_that_was_sent_is_not_sent_again() {
        // The second request of the connection gets half an answer.
        let server = server(&[WHOLE, "HTTP/1.1 200"], LIMITS).await;
        assert_eq!(server.ask().await, "ok");
        let broken = server.pool.request(request()).await;
        assert!(matches!(broken, Err(LinkError::Gone(_))));
        assert_eq!(server.opened(), 1);
    }

    #[tokio::test]
    async fn idle_connections_are_few_and_end() {
        let limits = Limits { idle: 2, idle_time: Duration::from_millis(200) };
        let mut server = server(&[WHOLE; 20], limits).await;
        let answers = futures_util::future::join_all((0..5).map(|_| server.pool.request(request()))).await;
        assert_eq!(server.opened(), 5);
        let bodies = answers.into_iter().map(|answer| answer.unwrap().into_body().collect());
        futures_util::future::join_all(bodies).await;
        assert!(server.pool.lock().connections.len() <= 2);
        // The three that had no place, and then, without any request, the others.
        for _ in 0..5 {
            server.closed.recv().await.unwrap();
        }
        assert!(server.pool.lock().connections.is_empty() && !server.pool.lock().watched);
    }
}
