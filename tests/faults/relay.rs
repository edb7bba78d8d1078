//! Somebody between the gateway and a server on TCP, who passes bytes on, or does not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

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
    pub(crate) async fn start(behind: SocketAddr, tls: Option<TlsAcceptor>, does: Does) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (does, accepted) = (watch::Sender::new(does), Arc::new(AtomicUsize::new(0)));
        let (now, count) = (does.subscribe(), accepted.clone());
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (mut now, tls) = (now.clone(), tls.clone());
                connections.spawn(async move {
                    let does = *now.borrow_and_update();
                    tokio::select! {
                        () = connection(client, behind, tls, does) => {}
                        // Whoever is connected then is cut off.
                        _ = now.changed() => {}
                    }
                });
            }
        });
        Relay { address, does, accepted, _accepting: accepting }
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

async fn connection(mut client: TcpStream, behind: SocketAddr, tls: Option<TlsAcceptor>, does: Does) {
    match (does, tls) {
        (Does::Close, _) => {}
        (Does::Stall, _) => std::future::pending().await,
        // How a connection ends is the gateway's business, or the server's.
        (Does::Pass, None) => drop(pass(&mut client, behind).await),
        (Does::Pass | Does::Pieces, Some(tls)) => {
            let Ok(mut client) = tls.accept(client).await else { return };
            drop(pass(&mut client, behind).await);
        }
        (Does::Pieces, None) => drop(pieces(client, behind).await),
    }
}

async fn pass<S: AsyncRead + AsyncWrite + Unpin>(client: &mut S, behind: SocketAddr) -> std::io::Result<()> {
    let mut server = TcpStream::connect(behind).await?;
    copy_bidirectional(client, &mut server).await?;
    Ok(())
}

async fn pieces(client: TcpStream, behind: SocketAddr) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let (mut server_reads, mut server_writes) = TcpStream::connect(behind).await?.into_split();
    let (mut reads, mut writes) = client.into_split();
    let there = async { tokio::io::copy(&mut reads, &mut server_writes).await.map(|_| ()) };
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
