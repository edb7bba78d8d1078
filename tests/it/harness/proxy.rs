//! A forward proxy on loopback: tunnels by CONNECT, requests in absolute form, and credentials
//! where it wants some.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Answer of a proxy to everything that it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is done.
    Serve,
    /// It is refused with this status.
    Refuse(u16),
    /// It never comes.
    Stall,
    /// Headers without end.
    Flood,
}

/// A proxy that runs until it is dropped.
pub(crate) struct ForwardProxy {
    /// Its address.
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    _accepting: JoinSet<()>,
}

impl ForwardProxy {
    /// Listens, and leads every name to where `hosts` says; who does not show `credentials` gets a
    /// 407.
    pub(crate) async fn start(
        hosts: &[(&str, SocketAddr)],
        credentials: Option<&str>,
        verdict: Verdict,
    ) -> Self {
        let listener = TcpListener::bind(super::loopback()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let wanted = credentials
            .map(|text| format!("proxy-authorization: Basic {text}").to_ascii_lowercase());
        let hosts: Vec<(String, SocketAddr)> = hosts
            .iter()
            .map(|(name, to)| ((*name).to_owned(), *to))
            .collect();
        let seen = heads.clone();
        let hosts = Arc::new(hosts);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let seen = seen.clone();
                let hosts = hosts.clone();
                let wanted = wanted.clone();
                connections.spawn(async move {
                    let _ = carry(client, &seen, &hosts, wanted.as_deref(), verdict).await;
                });
            }
        });
        ForwardProxy {
            address,
            heads,
            _accepting: accepting,
        }
    }

    /// Heads of all requests so far, as they came.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// Number of requests that begin like this.
    pub(crate) fn count(&self, start: &str) -> usize {
        self.heads()
            .iter()
            .filter(|head| head.starts_with(start))
            .count()
    }
}

/// Carries one request. Each has a connection of its own, so that each is seen.
async fn carry(
    mut client: TcpStream,
    seen: &Mutex<Vec<String>>,
    hosts: &[(String, SocketAddr)],
    wanted: Option<&str>,
    verdict: Verdict,
) -> std::io::Result<()> {
    let mut read = Vec::new();
    let mut head = None;
    while head.is_none() {
        if client.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
        head = memchr::memmem::find(&read, b"\r\n\r\n").map(|end| end + 4);
    }
    let rest = read.split_off(head.unwrap_or_default());
    let head = String::from_utf8_lossy(&read).into_owned();
    seen.lock().unwrap().push(head.clone());
    let status = match verdict {
        Verdict::Stall => return std::future::pending().await,
        Verdict::Flood => loop {
            client
                .write_all(b"HTTP/1.1 200 OK\r\nx-more: and more\r\n")
                .await?;
            client
                .write_all("x-more: and more\r\n".repeat(1000).as_bytes())
                .await?;
        },
        Verdict::Refuse(status) => Some(status),
        Verdict::Serve if wanted.is_some_and(|line| !head.to_ascii_lowercase().contains(line)) => {
            Some(407)
        }
        Verdict::Serve => None,
    };
    let refuse = |status: u16| {
        format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    };
    let mut words = head.split(' ');
    let method = words.next().unwrap_or_default();
    let target = words.next().unwrap_or_default();
    let place = target.strip_prefix("http://").unwrap_or(target);
    let (host, path) = place
        .find('/')
        .map_or((place, "/"), |at| place.split_at(at));
    let known = hosts
        .iter()
        .find(|(name, _)| name == host)
        .map(|(_, to)| *to);
    let Some(to) = known.filter(|_| status.is_none()) else {
        return client
            .write_all(refuse(status.unwrap_or(502)).as_bytes())
            .await;
    };
    let mut server = TcpStream::connect(to).await?;
    if method == "CONNECT" {
        client
            .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            .await?;
    } else {
        let (_, headers) = head.split_once("\r\n").unwrap();
        let own = |line: &&str| !line.to_ascii_lowercase().starts_with("proxy-");
        let headers: Vec<&str> = headers.split("\r\n").filter(own).collect();
        let first = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        server
            .write_all((first + &headers.join("\r\n")).as_bytes())
            .await?;
    }
    server.write_all(&rest).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
