//! Servers behind a TCP or Unix socket: newline-delimited JSON-RPC, as over standard streams.
//!
//! Owns connecting and the reasons of its failures. Does not read messages (`rpc_pipe`) or
//! reconnect (the link's owner). Invariant: a peer that vanished is detected even on a silent
//! connection.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Uri;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tower::ServiceExt;

use crate::connect_hints::unreachable;
use crate::metadata_address::MetadataAccess;
use crate::pipe_link::PipeLink;
use crate::rpc_pipe::{OnGarbage, RpcPipe, RpcPipeSettings};
use crate::tcp_connector::TcpConnector;
use crate::unix_connector::{connect_timed_out, connect_unix};
use crate::{ByteBudget, CorrelateFn, LinkError};

/// Longest wait for the server to close its side after ours is closed.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Address of a server's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketAddress {
    /// Host by name or address (IPv6 in brackets) and port: `host:port`.
    Tcp(String),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

/// Settings of a connection to one server.
pub struct SocketSettings {
    /// Address of the server.
    pub address: SocketAddress,
    /// Right to be where clouds keep credentials.
    pub metadata: MetadataAccess,
    /// Longest time to connect.
    pub connect_timeout: Duration,
    /// Limit of one line, in bytes.
    pub max_message: usize,
    /// Byte budget of unread messages. Unwritten messages may take as many bytes again.
    pub backlog: Arc<ByteBudget>,
    /// Finds the open call that a message belongs to.
    pub correlate: CorrelateFn,
    /// Called for lines that aren't messages.
    pub on_garbage: OnGarbage,
}

/// Connection to a server.
pub struct SocketLink {
    pipe: RpcPipe,
}

impl SocketLink {
    /// Connects to the server.
    pub async fn open(settings: SocketSettings) -> Result<Self, LinkError> {
        let limit = settings.connect_timeout;
        match settings.address.clone() {
            SocketAddress::Tcp(address) => {
                // The connector's own limit leaves out the time to resolve the name.
                let stream = timeout(limit, tcp(&address, limit, settings.metadata))
                    .await
                    .map_err(|_| connect_timed_out(limit))??;
                let (reader, writer) = stream.into_split();
                Ok(SocketLink::start(reader, writer, settings))
            }
            SocketAddress::Unix(path) => {
                let stream = connect_unix(&path, limit).await?;
                let (reader, writer) = stream.into_split();
                Ok(SocketLink::start(reader, writer, settings))
            }
        }
    }

    fn start<R, W>(reader: R, writer: W, settings: SocketSettings) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let settings = RpcPipeSettings {
            max_message: settings.max_message,
            backlog: settings.backlog,
            correlate: settings.correlate,
            on_garbage: settings.on_garbage,
            closed: "the server closed the connection",
            explain: None,
        };
        SocketLink {
            pipe: RpcPipe::start(reader, writer, settings),
        }
    }
}

async fn tcp(
    address: &str,
    limit: Duration,
    metadata: MetadataAccess,
) -> Result<tokio::net::TcpStream, LinkError> {
    // The scheme is only there for the parser, which reads no host without one.
    let uri = format!("tcp://{address}").parse::<Uri>();
    let uri =
        uri.map_err(|e| LinkError::Spawn(format!("the address {address} cannot be used: {e}")))?;
    let connected = TcpConnector::with_keepalive(limit, metadata)
        .oneshot(uri.clone())
        .await;
    let stream = connected.map_err(|e| unreachable(&*e, uri.host()))?;
    Ok(stream.into_inner())
}

impl PipeLink for SocketLink {
    fn pipe(&self) -> &RpcPipe {
        &self.pipe
    }

    fn close_pipe(&self) -> BoxFuture<'_, ()> {
        self.pipe.close_within(CLOSE_TIME).boxed()
    }
}

impl Drop for SocketLink {
    fn drop(&mut self) {
        // The reading task holds the socket, so it would stay open without this.
        self.pipe.stop();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;

    use super::*;
    use crate::{Link as _, OutgoingMessage};

    fn settings(address: SocketAddress) -> SocketSettings {
        SocketSettings {
            address,
            metadata: MetadataAccess::Refused,
            connect_timeout: Duration::from_secs(20),
            max_message: 1024,
            backlog: ByteBudget::new(64 * 1024, "a", &moongate_telemetry::Metrics::new()),
            correlate: Arc::new(|_, _| crate::MessageRoute::Events),
            on_garbage: Arc::new(|_| {}),
        }
    }

    async fn refused(address: SocketAddress) -> String {
        match SocketLink::open(settings(address)).await {
            Err(LinkError::Unreachable(reason)) => reason,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("connected"),
        }
    }

    #[tokio::test]
    async fn names_and_addresses_of_both_families_are_connected_to() {
        for (bound, name) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("127.0.0.1:0", "localhost"),
            ("[::1]:0", "[::1]"),
        ] {
            // A machine without IPv6 has no such address to test.
            let Ok(listener) = TcpListener::bind(bound).await else {
                continue;
            };
            let address = format!("{name}:{}", listener.local_addr().unwrap().port());
            let link = SocketLink::open(settings(SocketAddress::Tcp(address)))
                .await
                .unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            let body = bytes::Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"method\":\"x\"}");
            link.send(OutgoingMessage {
                body,
                id: None,
                headers: Vec::new(),
            })
            .await
            .unwrap();
            let mut line = String::new();
            BufReader::new(&mut server)
                .read_line(&mut line)
                .await
                .unwrap();
            assert_eq!(line, "{\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n", "{name}");
            drop(server);
            assert_eq!(
                link.closed().await.to_string(),
                "the server closed the connection"
            );
        }
    }

    #[tokio::test]
    async fn a_link_that_is_closed_lets_go_of_its_server() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = SocketAddress::Tcp(listener.local_addr().unwrap().to_string());
        for close in [true, false] {
            let link = SocketLink::open(settings(address.clone())).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            // The server does not close its side and keeps sending.
            server
                .write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n")
                .await
                .unwrap();
            if close {
                link.close(Vec::new()).await;
                assert_eq!(link.closed().await.to_string(), "the link was closed");
            }
            drop(link);
            let mut rest = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut server, &mut rest)
                .await
                .unwrap();
            assert!(rest.is_empty());
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn why_a_unix_socket_cannot_be_connected_to_is_said() {
        use std::io;

        use crate::unix_connector::unix_connect_error;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let missing = refused(SocketAddress::Unix(path.clone())).await;
        assert!(
            missing.contains("there is no socket at") && missing.contains("is the server running?"),
            "{missing}"
        );
        drop(tokio::net::UnixListener::bind(&path).unwrap());
        let left = refused(SocketAddress::Unix(path.clone())).await;
        assert!(left.contains("nothing listens at"), "{left}");
        // Root may open everything.
        let denied = unix_connect_error(&path, &io::ErrorKind::PermissionDenied.into()).to_string();
        assert!(
            denied.contains("may not open") && denied.contains("socket"),
            "{denied}"
        );
        let full = unix_connect_error(&path, &io::ErrorKind::WouldBlock.into()).to_string();
        assert!(full.contains("waiting to be accepted"), "{full}");
    }

    #[tokio::test]
    async fn a_refused_connection_is_explained() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let reason = refused(SocketAddress::Tcp(address)).await;
        assert!(
            reason.starts_with("cannot connect to 127.0.0.1: ") && reason.contains("refused"),
            "{reason}"
        );
        let reason = refused(SocketAddress::Tcp("no-such-host.invalid:1".to_owned())).await;
        assert!(reason.contains("dns error"), "{reason}");
    }
}
