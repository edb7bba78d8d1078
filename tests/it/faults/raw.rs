//! A server whose answers to one tool are bytes of the test's, whatever HTTP says of them;
//! everything else is passed on to a mock.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What a call of `odd` is answered with.
#[derive(Clone)]
pub(crate) enum OddAnswer {
    /// These bytes, in which `{id}` is the call's id; then the connection is closed.
    Bytes(String),
    /// This head, and this text in gzip. `{id}` is the call's id in it.
    Gzip(String, String),
    /// These bytes, one at a time, with a pause after each.
    Slowly(String, Duration),
    /// These bytes, and then silence on an open connection.
    Stall(String),
}

/// An HTTP answer with this head and body.
pub(crate) fn answer(head: &str, body: &str) -> OddAnswer {
    OddAnswer::Bytes(format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}"))
}

/// Listens in front of the mock at `behind`, for as long as the test runs; gives the URL.
pub(crate) async fn serve(behind: SocketAddr, odd: OddAnswer) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let odd = Arc::new(odd);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let odd = odd.clone();
            // How a connection ends is the gateway's business.
            tokio::spawn(async move { drop(connection(stream, behind, &odd).await) });
        }
    });
    url
}

async fn connection(
    mut stream: TcpStream,
    behind: SocketAddr,
    odd: &OddAnswer,
) -> std::io::Result<()> {
    let Some((head, body)) = request(&mut stream).await? else {
        return Ok(());
    };
    let text = String::from_utf8_lossy(&body);
    if text.contains("\"tools/call\"") && text.contains("\"odd\"") {
        return strike(&mut stream, odd, &id_of(&text)).await;
    }
    let mut mock = TcpStream::connect(behind).await?;
    // The mock closes after its answer, which is how the end of that is known here.
    let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    mock.write_all(head.as_bytes()).await?;
    mock.write_all(&body).await?;
    tokio::io::copy_bidirectional(&mut mock, &mut stream).await?;
    Ok(())
}

async fn strike(stream: &mut TcpStream, odd: &OddAnswer, id: &str) -> std::io::Result<()> {
    match odd {
        OddAnswer::Bytes(text) => {
            stream
                .write_all(text.replace("{id}", id).as_bytes())
                .await?
        }
        OddAnswer::Gzip(head, text) => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(text.replace("{id}", id).as_bytes())?;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n{head}\r\n");
            stream
                .write_all(&[head.as_bytes(), &encoder.finish()?].concat())
                .await?;
        }
        OddAnswer::Slowly(text, pause) => {
            for byte in text.replace("{id}", id).bytes() {
                stream.write_all(&[byte]).await?;
                tokio::time::sleep(*pause).await;
            }
        }
        OddAnswer::Stall(text) => {
            stream
                .write_all(text.replace("{id}", id).as_bytes())
                .await?;
            // Until the gateway gives up.
            while stream.read(&mut [0; 64]).await? > 0 {}
        }
    }
    stream.shutdown().await
}

/// One request: its head, with the empty line, and its body.
async fn request(stream: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut read = Vec::new();
    let end = loop {
        if let Some(at) = memchr::memmem::find(&read, b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&read[..end]).into_owned();
    let mut body = read.split_off(end);
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().unwrap_or_default())
    });
    while body.len() < length.unwrap_or_default() {
        if stream.read_buf(&mut body).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some((head, body)))
}

fn id_of(text: &str) -> String {
    serde_json::from_str::<serde_json::Value>(text)
        .map(|message| message["id"].to_string())
        .unwrap_or_default()
}
