//! Connections to one server over plain HTTP/1.1, each driven by the call that uses it.
//!
//! Owns the idle connections of one server. Does not know messages. Invariant: a connection carries
//! one request at a time and is reused only after its response was read to the end. A request is
//! repeated only if no byte was sent.
//!
//! A pool for many hosts with a task for each connection would cost more than the rest of the
//! gateway: three look-ups and some ten wakes for each call.

use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::Response;
use tokio::time::Instant;

use crate::client::connection::{ClientConnection, SendError};
use crate::client::encode::EncodedRequest;
use crate::client::http_io::HttpIo;
use crate::client::pooled_body::PooledBody;
use crate::error::ConnectionError;

/// Idle time after which the kernel is asked whether a connection is still open. Before that, the
/// state known to the runtime suffices and costs nothing.
const PEEK_AFTER: Duration = Duration::from_millis(5);

/// Idle connections of one server.
pub struct ClientPool {
    limits: PoolLimits,
    idle: Mutex<IdleConnections>,
}

/// Limits of idle connections: their number and their idle time.
#[derive(Clone, Copy)]
pub struct PoolLimits {
    /// Maximum number of idle connections.
    pub idle: usize,
    /// Maximum time that a connection stays idle.
    pub idle_time: Duration,
}

/// Reason for a failed request. `E` is the connector's error.
#[derive(Debug)]
pub enum RequestError<E> {
    /// No connection could be opened.
    Connect(E),
    /// The connection broke.
    Broken(ConnectionError),
}

#[derive(Default)]
struct IdleConnections {
    /// Idle connections with the time of their last use, the oldest first.
    connections: Vec<(Instant, Box<ClientConnection>)>,
    /// True while a task evicts idle connections.
    has_evictor: bool,
}

impl ClientPool {
    /// Creates an empty pool.
    pub fn new(limits: PoolLimits) -> Arc<Self> {
        Arc::new(ClientPool {
            limits,
            idle: Mutex::default(),
        })
    }

    /// Sends a request over an idle connection, or over a new one from `connect`.
    pub async fn request<F, E>(
        self: &Arc<Self>,
        mut request: Box<EncodedRequest>,
        connect: impl FnOnce() -> F,
    ) -> Result<Response<PooledBody>, RequestError<E>>
    where
        F: Future<Output = Result<HttpIo, E>>,
    {
        // The server may have closed an idle connection. Each round removes one, so the loop ends.
        while let Some(mut connection) = self.checkout() {
            match connection.exchange(request).await {
                Ok(response) => {
                    return Ok(response.map(|body| PooledBody::new(body, connection, self.clone())));
                }
                Err(SendError::NotSent(unsent, _)) => request = unsent,
                Err(SendError::Broken(error)) => return Err(RequestError::Broken(error)),
            }
        }
        // Boxed: connecting is rare, and its future is large.
        let io = Box::pin(connect()).await.map_err(RequestError::Connect)?;
        let mut connection = Box::new(ClientConnection::new(io));
        match connection.exchange(request).await {
            Ok(response) => {
                Ok(response.map(|body| PooledBody::new(body, connection, self.clone())))
            }
            Err(SendError::NotSent(_, error)) => {
                Err(RequestError::Broken(ConnectionError::Io(error)))
            }
            Err(SendError::Broken(error)) => Err(RequestError::Broken(error)),
        }
    }

    /// Takes the most recently used connection that is still open.
    fn checkout(&self) -> Option<Box<ClientConnection>> {
        loop {
            // Last in, first out: the rest of the pool grows old and is evicted.
            let (last_used, connection) = self.idle.lock().connections.pop()?;
            let idle = last_used.elapsed();
            if idle < self.limits.idle_time
                && connection.is_ready()
                && (idle < PEEK_AFTER || connection.peek_is_open())
            {
                return Some(connection);
            }
        }
    }

    /// Returns a connection to the pool after its response was read, if it can take another
    /// request.
    pub(super) fn checkin(self: &Arc<Self>, connection: Box<ClientConnection>) {
        if !connection.is_ready() {
            return;
        }
        let mut idle = self.idle.lock();
        // Over the limit the connection is closed by dropping it.
        if idle.connections.len() >= self.limits.idle {
            return;
        }
        idle.connections.push((Instant::now(), connection));
        if !std::mem::replace(&mut idle.has_evictor, true) {
            tokio::spawn(run_evictor(Arc::downgrade(self), self.limits.idle_time));
        }
    }

    /// Closes connections that are too old or that the server closed. False if none is left.
    fn evict_idle(&self) -> bool {
        let mut idle = self.idle.lock();
        idle.connections.retain(|(last_used, connection)| {
            last_used.elapsed() < self.limits.idle_time && connection.is_ready()
        });
        idle.has_evictor = !idle.connections.is_empty();
        idle.has_evictor
    }
}

// A weak reference, so that the task does not keep the pool alive.
async fn run_evictor(pool: Weak<ClientPool>, idle_time: Duration) {
    loop {
        tokio::time::sleep(idle_time).await;
        if !pool.upgrade().is_some_and(|pool| pool.evict_idle()) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::{Bytes, BytesMut};
    use http::{HeaderMap, Method};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc;

    use super::*;
    use crate::client::encode::RequestTemplate;

    const WHOLE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

    /// Server that gives each request on a connection the next of `answers`, and closes after the
    /// last.
    struct PoolTestServer {
        pool: Arc<ClientPool>,
        address: SocketAddr,
        opened: Arc<AtomicUsize>,
        /// Receives an item for each connection that the client closed.
        closed: mpsc::Receiver<()>,
    }

    async fn server(answers: &'static [&'static str], limits: PoolLimits) -> PoolTestServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
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
        PoolTestServer {
            pool: ClientPool::new(limits),
            address,
            opened,
            closed,
        }
    }

    const LIMITS: PoolLimits = PoolLimits {
        idle: 4,
        idle_time: Duration::from_secs(60),
    };

    fn request() -> Box<EncodedRequest> {
        RequestTemplate::new("/mcp".to_owned(), &HeaderMap::new()).request(
            &Method::GET,
            "*/*",
            &[],
            Bytes::new(),
        )
    }

    async fn read(answer: Result<Response<PooledBody>, RequestError<io::Error>>) -> BytesMut {
        let mut body = answer.unwrap().into_body();
        let mut all = BytesMut::new();
        while body.fill(&mut all).await.unwrap() {}
        all
    }

    impl PoolTestServer {
        async fn send(&self) -> Result<Response<PooledBody>, RequestError<io::Error>> {
            self.pool
                .request(request(), || async {
                    TcpStream::connect(self.address).await.map(HttpIo::Tcp)
                })
                .await
        }

        async fn ask(&self) -> BytesMut {
            read(self.send().await).await
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
            // Waits for the end of the connection. A request sent sooner may count as sent.
            let until_closed = async {
                while server
                    .pool
                    .idle
                    .lock()
                    .connections
                    .iter()
                    .any(|(_, connection)| connection.is_ready())
                {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), until_closed)
                .await
                .unwrap();
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_given_up_ends_its_connection() {
        let mut server = server(
            &["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", WHOLE],
            LIMITS,
        )
        .await;
        let answer = server.send().await.unwrap();
        drop(answer);
        server.closed.recv().await.unwrap();
        assert!(server.pool.idle.lock().connections.is_empty());
    }

    #[tokio::test]
    async fn a_request_that_was_sent_is_not_sent_again() {
        // The second request of the connection gets half a response.
        let server = server(&[WHOLE, "HTTP/1.1 200"], LIMITS).await;
        assert_eq!(server.ask().await, "ok");
        let broken = server.send().await;
        assert!(matches!(
            broken,
            Err(RequestError::Broken(ConnectionError::Closed(_)))
        ));
        assert_eq!(server.opened(), 1);
    }

    #[tokio::test]
    async fn idle_connections_are_few_and_end() {
        let limits = PoolLimits {
            idle: 2,
            idle_time: Duration::from_millis(200),
        };
        let mut server = server(&[WHOLE; 20], limits).await;
        let answers = futures_util::future::join_all((0..5).map(|_| server.send())).await;
        assert_eq!(server.opened(), 5);
        futures_util::future::join_all(answers.into_iter().map(read)).await;
        assert!(server.pool.idle.lock().connections.len() <= 2);
        // The three without a slot first, then the others, without any request.
        for _ in 0..5 {
            server.closed.recv().await.unwrap();
        }
        assert!(
            server.pool.idle.lock().connections.is_empty() && !server.pool.idle.lock().has_evictor
        );
    }
}
