//! The connections to a server over plain HTTP/1.1, each driven by the call that uses it.
//!
//! Owns the idle connections of one server. Does not know messages. A pool that serves many hosts, and a task for each
//! connection, would cost more than all that the gateway does itself: three look-ups and some ten wakes for each call.
//! Invariant: a connection carries one request at a time, is kept only after its answer was read to the end, and a
//! request goes out a second time only if none of it was sent.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::{Response, Uri};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::link::connect_hints::unreachable;
use crate::link::http_client::ConnectTimeout;
use crate::link::http1::{ConnectionError, EncodedRequest, HttpConnection, HttpIo, SendError};
use crate::link::proxy::ProxyAddress;
use crate::link::response_body::ResponseBody;
use crate::link::socket::unix;
use crate::link::tunnel::ProxyConnector;
use crate::link::{LinkError, PipeDialer};

/// How long a connection may lie idle before the kernel is asked whether it still stands. Until then the runtime's word
/// will do, which costs nothing.
const PEEK_AFTER: Duration = Duration::from_millis(5);

/// The connections of one server that nobody uses at the moment.
pub(super) struct PlainPool {
    connector: PoolConnector,
    target: Uri,
    limits: PoolLimits,
    idle: Mutex<IdleConnections>,
}

/// How a connection is made.
pub(super) enum PoolConnector {
    Tcp(ConnectTimeout<ProxyConnector>),
    /// To the socket at this path, within this time.
    Unix(PathBuf, Duration),
    /// To a server in memory.
    Memory(PipeDialer),
}

/// How many idle connections are kept, and for how long.
#[derive(Clone, Copy)]
pub(super) struct PoolLimits {
    pub(super) idle: usize,
    pub(super) idle_time: Duration,
}

#[derive(Default)]
struct IdleConnections {
    /// The longest unused one first.
    connections: Vec<(Instant, Box<HttpConnection>)>,
    /// Whether a task ends those that are not used any more.
    has_evictor: bool,
}

impl PlainPool {
    pub(super) fn new(connector: PoolConnector, target: Uri, limits: PoolLimits) -> Arc<Self> {
        Arc::new(PlainPool { connector, target, limits, idle: Mutex::default() })
    }

    /// Sends a request; over a connection that was kept, if there is one.
    pub(super) async fn request(
        self: &Arc<Self>,
        mut request: Box<EncodedRequest>,
    ) -> Result<Response<ResponseBody>, LinkError> {
        loop {
            let (mut connection, is_kept) = match self.checkout() {
                Some(connection) => (connection, true),
                // Aside, since it is rare and its future large.
                None => (Box::pin(self.connect()).await?, false),
            };
            let broken = match connection.exchange(request).await {
                Ok(response) => return Ok(response.map(|body| ResponseBody::new(body, connection, self.clone()))),
                // The server closed it while it was idle, and each round takes one out.
                Err(SendError::NotSent(unsent, _)) if is_kept => {
                    request = unsent;
                    continue;
                }
                Err(SendError::NotSent(_, error)) => ConnectionError::Io(error),
                Err(SendError::Broken(broken)) => broken,
            };
            return Err(broken.into_link_error("the connection broke"));
        }
    }

    /// The proxy that passes requests on, in place of the server.
    pub(super) fn forward_proxy(&self) -> Option<&ProxyAddress> {
        match &self.connector {
            PoolConnector::Tcp(tcp) => tcp.inner().forward_proxy(),
            PoolConnector::Unix(..) | PoolConnector::Memory(_) => None,
        }
    }

    async fn connect(&self) -> Result<Box<HttpConnection>, LinkError> {
        let wire = match &self.connector {
            PoolConnector::Tcp(tcp) => {
                let connected = tcp.clone().oneshot(self.target.clone()).await;
                HttpIo::Tcp(connected.map_err(|e| unreachable(&*e, self.target.host()))?.into_inner())
            }
            PoolConnector::Unix(path, limit) => HttpIo::Unix(unix(path, *limit).await?),
            PoolConnector::Memory(dial) => HttpIo::from(dial()?),
        };
        Ok(Box::new(HttpConnection::new(wire)))
    }

    /// The connection used last, if it still stands.
    fn checkout(&self) -> Option<Box<HttpConnection>> {
        loop {
            let (since, connection) = self.lock().connections.pop()?;
            let idle = since.elapsed();
            let is_sure = |connection: &HttpConnection| idle < PEEK_AFTER || connection.peek_is_open();
            if idle < self.limits.idle_time && connection.is_ready() && is_sure(&connection) {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose answer was read, if it can take another request.
    pub(super) fn checkin(self: &Arc<Self>, connection: Box<HttpConnection>) {
        if !connection.is_ready() {
            return;
        }
        let mut idle = self.lock();
        if idle.connections.len() >= self.limits.idle {
            return;
        }
        idle.connections.push((Instant::now(), connection));
        if !std::mem::replace(&mut idle.has_evictor, true) {
            tokio::spawn(run_evictor(Arc::downgrade(self), self.limits.idle_time));
        }
    }

    /// Ends the connections that were not used for too long, or that the server ended. False: none is left.
    fn evict_idle(&self) -> bool {
        let mut idle = self.lock();
        let stands = |(since, connection): &(Instant, Box<HttpConnection>)| {
            since.elapsed() < self.limits.idle_time && connection.is_ready()
        };
        idle.connections.retain(stands);
        idle.has_evictor = !idle.connections.is_empty();
        idle.has_evictor
    }

    fn lock(&self) -> MutexGuard<'_, IdleConnections> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn run_evictor(pool: Weak<PlainPool>, idle_time: Duration) {
    loop {
        tokio::time::sleep(idle_time).await;
        if !pool.upgrade().is_some_and(|pool| pool.evict_idle()) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::{Bytes, BytesMut};
    use http::{HeaderMap, Method};
    use hyper_util::client::legacy::connect::HttpConnector;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;
    use crate::link::http1::RequestTemplate;

    const WHOLE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

    /// A server that gives each request of a connection the next of `answers`, and closes when there are no more.
    struct PoolTestServer {
        pool: Arc<PlainPool>,
        opened: Arc<AtomicUsize>,
        /// Something for each connection that the client closed.
        closed: mpsc::Receiver<()>,
    }

    async fn server(answers: &'static [&'static str], limits: PoolLimits) -> PoolTestServer {
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
        let tcp = HttpConnector::new();
        PoolTestServer {
            pool: PlainPool::new(
                PoolConnector::Tcp(ConnectTimeout::new(ProxyConnector::forwarding(tcp, None), Duration::from_secs(10))),
                target,
                limits,
            ),
            opened,
            closed,
        }
    }

    const LIMITS: PoolLimits = PoolLimits { idle: 4, idle_time: Duration::from_secs(60) };

    fn request() -> Box<EncodedRequest> {
        RequestTemplate::new("/mcp".to_owned(), &HeaderMap::new()).request(&Method::GET, "*/*", &[], Bytes::new())
    }

    async fn read(answer: Result<Response<ResponseBody>, LinkError>) -> BytesMut {
        let (mut body, mut all) = (answer.unwrap().into_body(), BytesMut::new());
        while body.fill(&mut all).await.unwrap() {}
        all
    }

    impl PoolTestServer {
        async fn ask(&self) -> BytesMut {
            read(self.pool.request(request()).await).await
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
                while server.pool.lock().connections.iter().any(|(_, connection)| connection.is_ready()) {
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
        assert!(matches!(broken, Err(LinkError::Closed(_))));
        assert_eq!(server.opened(), 1);
    }

    #[tokio::test]
    async fn idle_connections_are_few_and_end() {
        let limits = PoolLimits { idle: 2, idle_time: Duration::from_millis(200) };
        let mut server = server(&[WHOLE; 20], limits).await;
        let answers = futures_util::future::join_all((0..5).map(|_| server.pool.request(request()))).await;
        assert_eq!(server.opened(), 5);
        futures_util::future::join_all(answers.into_iter().map(read)).await;
        assert!(server.pool.lock().connections.len() <= 2);
        // The three that had no place, and then, without any request, the others.
        for _ in 0..5 {
            server.closed.recv().await.unwrap();
        }
        assert!(server.pool.lock().connections.is_empty() && !server.pool.lock().has_evictor);
    }
}
