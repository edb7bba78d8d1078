//! Somebody between the gateway and a server on TCP, with TLS towards the gateway or without, who
//! passes bytes on, or does not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// What comes is passed on.
    Pass,
    /// The same, and what the server says comes in pieces of some bytes, each a packet of its own.
    Pieces,
    /// It is accepted and closed.
    Close,
    /// It is accepted, and nothing happens on it: not even a handshake.
    Stall,
}

/// A relay that runs until it is dropped.
pub(crate) struct Relay {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    does: watch::Sender<Does>,
    accepted: Arc<AtomicUsize>,
    _accepting: JoinSet<()>,
}

impl Relay {
    /// Listens in front of `behind`.
    pub(crate) async fn plain(behind: SocketAddr, does: Does) -> Relay {
        Relay::start(behind, None, does).await
    }

    /// Ends TLS in front of `behind`, and passes on what it protected.
    pub(crate) async fn secure(behind: SocketAddr, tls: ServerConfig) -> Relay {
        Relay::start(behind, Some(TlsAcceptor::from(Arc::new(tls))), Does::Pass).await
    }

    async fn start(behind: SocketAddr, tls: Option<TlsAcceptor>, does: Does) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let does = watch::Sender::new(does);
        let accepted = Arc::new(AtomicUsize::new(0));
        let now = does.subscribe();
        let count = accepted.clone();
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let mut now = now.clone();
                let tls = tls.clone();
                connections.spawn(async move {
                    // A packet for each piece.
                    let _ = client.set_nodelay(true);
                    let does = *now.borrow_and_update();
                    tokio::select! {
                        () = connection(client, behind, tls, does) => {}
                        // Whoever is connected then is cut off.
                        _ = now.changed() => {}
                    }
                });
            }
        });
        Relay {
            address,
            does,
            accepted,
            _accepting: accepting,
        }
    }

    /// The endpoint of a server behind it, by the name that certificates have.
    pub(crate) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://localhost:{}/mcp", self.address.port())
    }

    /// Cuts off who is connected, and does something else with those that come.
    pub(crate) fn turn(&self, does: Does) {
        self.does.send_replace(does);
    }

    /// How many connections there were.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

async fn connection(client: TcpStream, behind: SocketAddr, tls: Option<TlsAcceptor>, does: Does) {
    match does {
        Does::Close => return,
        Does::Stall => return std::future::pending().await,
        Does::Pass | Does::Pieces => {}
    }
    // How a connection ends is the gateway's business, or the server's.
    let _ = match tls {
        None => pass(client, behind, does).await,
        // Who does not trust the certificate goes away in the middle of the handshake.
        Some(tls) => match tls.accept(client).await {
            Ok(client) => pass(client, behind, does).await,
            Err(refused) => Err(refused),
        },
    };
}

async fn pass<S: AsyncRead + AsyncWrite + Unpin>(
    mut client: S,
    behind: SocketAddr,
    does: Does,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(behind).await?;
    if does == Does::Pieces {
        return pieces(client, server).await;
    }
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

async fn pieces<S: AsyncRead + AsyncWrite>(client: S, server: TcpStream) -> std::io::Result<()> {
    let (mut server_reads, mut server_writes) = server.into_split();
    let (mut reads, mut writes) = tokio::io::split(client);
    let there = async {
        tokio::io::copy(&mut reads, &mut server_writes)
            .await
            .map(|_| ())
    };
    let back = async {
        let mut read = [0; 4096];
        // Lengths that fall on no boundary twice.
        let mut lengths = [1, 2, 3, 5, 7].into_iter().cycle();
        loop {
            let n = server_reads.read(&mut read).await?;
            if n == 0 {
                return Ok(());
            }
            let mut rest = &read[..n];
            while !rest.is_empty() {
                let (piece, more) = rest.split_at(rest.len().min(lengths.next().unwrap()));
                writes.write_all(piece).await?;
                writes.flush().await?;
                rest = more;
            }
        }
    };
    tokio::select! {
        ended = there => ended,
        ended = back => ended,
    }
}
