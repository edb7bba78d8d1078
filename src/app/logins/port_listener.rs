//! Programs that listen on a gateway's address.
//!
//! Owns how they are recognized. Does not listen. Invariant: a program that says nothing within a
//! second is a stranger.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Body of the response of a waiting `moongate login` to `GET /livez`.
pub(crate) const LOGIN_GREETING: &str = r#"{"message":"moongate login waits"}"#;
/// Part of a gateway's response.
const GATEWAY_GREETING: &str = r#""message":"alive""#;
/// Time for a program to identify itself.
const GREETING_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of its response that is read, in bytes.
const GREETING_MAX: u64 = 4096;

/// Program that listens on an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortListener {
    /// Gateway, which may have another config.
    Gateway,
    /// `moongate login`, which waits for an answer.
    LoginCommand,
    /// Anything else.
    Stranger,
}

impl PortListener {
    /// Identifies the program at an address.
    pub(crate) async fn find(address: SocketAddr) -> Self {
        let response = match timeout(GREETING_TIMEOUT, ask(address)).await {
            Ok(Ok(response)) => response,
            Ok(Err(_)) | Err(_) => return PortListener::Stranger,
        };
        let has = |text: &str| memchr::memmem::find(&response, text.as_bytes()).is_some();
        if has(LOGIN_GREETING) {
            PortListener::LoginCommand
        } else if has(GATEWAY_GREETING) {
            PortListener::Gateway
        } else {
            PortListener::Stranger
        }
    }
}

async fn ask(address: SocketAddr) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /livez HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    let mut start = stream.take(GREETING_MAX);
    start.read_to_end(&mut response).await?;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_program_that_says_nothing_is_a_stranger() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap();
        tokio::time::pause();
        assert_eq!(PortListener::find(address).await, PortListener::Stranger);
    }
}
