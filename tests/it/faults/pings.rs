//! WebSocket servers that ping without end. Owns a server of raw frames: no library would write so
//! much unread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Era, Setup, holds, modern, serve};

/// Bytes of a block of pings, each with the largest payload.
const BLOCK: usize = 127 * 100;

/// A server that pings from the handshake on, and reads what comes back, or nothing. Counts the
/// bytes of its pings.
async fn pinging(reads: bool) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/mcp", listener.local_addr().unwrap());
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let count = count.clone();
            // How a connection ends is the gateway's business.
            tokio::spawn(async move { drop(ping(stream, reads, &count).await) });
        }
    });
    (url, taken)
}

async fn ping(stream: TcpStream, reads: bool, count: &AtomicUsize) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut key = String::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("sec-websocket-key:") {
            // The value itself has capitals.
            key = line[line.len() - value.len()..].trim().to_owned();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    // RFC 6455, section 4.2.2.
    let accept = digest(
        &SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11").as_bytes(),
    );
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\nSec-WebSocket-Protocol: mcp\r\n\r\n",
        STANDARD.encode(accept)
    );
    writer.write_all(head.as_bytes()).await?;
    let reading = async {
        let mut pongs = vec![0; 64 * 1024];
        while reads && reader.read(&mut pongs).await.is_ok_and(|read| read > 0) {}
        std::future::pending::<()>().await;
    };
    // 0x89 is the head of a ping that is one frame.
    let block = [&[0x89, 125][..], &[b'x'; 125]]
        .concat()
        .repeat(BLOCK / 127);
    let writing = async {
        while writer.write_all(&block).await.is_ok() {
            count.fetch_add(BLOCK, Ordering::Relaxed);
        }
    };
    tokio::select! { () = reading => {}, () = writing => {} }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pings_without_end_are_read_no_faster_than_their_pongs() {
    for reads in [false, true] {
        let (url, taken) = pinging(reads).await;
        let mock = serve(modern()).await;
        let gateway = Setup::new()
            .http("good", &mock.url)
            .http("bad", &url)
            .start()
            .await;
        gateway.ready(&["good"]).await;
        holds("it pings", || taken.load(Ordering::Relaxed) > 10 * BLOCK).await;
        // What the system holds between the two is taken first.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = taken.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let client = gateway.client(Era::Legacy).await;
        for n in 0..20 {
            assert_eq!(
                client
                    .call("good__add", json!({"a": n, "b": 2}))
                    .await
                    .text(),
                (n + 2).to_string()
            );
        }
        let bytes = taken.load(Ordering::Relaxed) - before;
        // A thousand pings a second, and what the system's buffers grow by.
        assert!(
            bytes < 8 << 20,
            "reads: {reads}: {bytes} bytes of pings were taken in a second"
        );
    }
}
