//! Listener for a login's answer, used if no gateway is listening.
//!
//! Owns its connections and their bounds. Does not check answers. Invariant: it answers only GET,
//! for redirect addresses and its greeting on loopback, and ends with the login.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::start_page::StartPage;
use crate::app::logins::{CallbackPage, LOGIN_GREETING};

/// Maximum size of a request head, in bytes. Browsers send the cookies of all programs on this
/// host.
const HEAD_MAX: usize = 64 * 1024;
/// Size of the buffer for discarded bytes.
const DRAIN_BUFFER: usize = 4 * 1024;
/// Time for the head of a request, and for writing the page.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of open connections. Browsers open a few in advance, but use one.
const CONNECTIONS_MAX: usize = 8;
/// Pause after a connection could not be accepted, for lack of file descriptors, for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Response for any other path.
const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Socket that is bound but does not answer yet.
pub(super) struct AnswerSocket {
    listener: TcpListener,
    address: SocketAddr,
}

/// Listener for a login's answer. Dropping it frees its port.
pub(super) struct AnswerListener {
    answers: mpsc::Receiver<BrowserAnswer>,
    _accepting: AbortOnDropHandle<()>,
}

/// Answer from a browser, which is waiting for its page.
pub(super) struct BrowserAnswer {
    target: AnswerTarget,
    reply: oneshot::Sender<PageReply>,
}

/// Address of an answer, as in its request.
struct AnswerTarget {
    path: String,
    query: String,
}

/// Addresses that the listener answers at.
struct ListenerPages {
    /// Path of the answer.
    callback: String,
    /// Page that leads to the login.
    start: Option<StartPage>,
}

impl ListenerPages {
    /// Responds to a request that carries no answer.
    fn respond(&self, target: Option<&AnswerTarget>) -> String {
        let Some(AnswerTarget { path, .. }) = target else {
            return NOT_FOUND.to_owned();
        };
        if path == "/livez" {
            return greeting();
        }
        let started = self.start.as_ref().and_then(|start| start.respond(path));
        started.unwrap_or_else(|| NOT_FOUND.to_owned())
    }
}

/// Head of a request that cannot be used.
enum HeadFault {
    TooLong,
    /// It is too long.
    Broken,
}

/// Page for a browser.
struct PageReply {
    response: String,
    /// Dropped once the browser has the page.
    sent: oneshot::Sender<()>,
}

impl AnswerSocket {
    /// Binds an address. Fails if it is in use.
    pub(super) async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(AnswerSocket { listener, address })
    }

    /// Returns the address that was bound.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts to answer at this path, and at those of other authorization servers next to it, whose
    /// logins another process may wait for.
    pub(super) fn serve(self, path: &str, start: Option<StartPage>) -> AnswerListener {
        let (sender, answers) = mpsc::channel(CONNECTIONS_MAX);
        let pages = Arc::new(ListenerPages {
            callback: path.to_owned(),
            start,
        });
        let accepting = tokio::spawn(accept_all(self.listener, pages, sender));
        AnswerListener {
            answers,
            _accepting: AbortOnDropHandle::new(accepting),
        }
    }
}

impl AnswerListener {
    /// Waits for the next answer. Nothing is lost if the wait is dropped.
    pub(super) async fn next(&mut self) -> BrowserAnswer {
        match self.answers.recv().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

impl BrowserAnswer {
    /// Path of the address that the browser was sent to.
    pub(super) fn path(&self) -> &str {
        &self.target.path
    }

    /// Query of that address.
    pub(super) fn query(&self) -> &str {
        &self.target.query
    }

    /// Sends the page, and waits until the browser has it or has gone.
    pub(super) async fn reply(self, page: &CallbackPage) {
        let (sent, is_sent) = oneshot::channel();
        let response = page_response("200 OK", page);
        if self.reply.send(PageReply { response, sent }).is_ok() {
            let _ = is_sent.await;
        }
    }
}

fn page_response(status: &str, page: &CallbackPage) -> String {
    let html = page.html();
    let mut response = format!("HTTP/1.1 {status}\r\n");
    for (name, value) in CallbackPage::headers() {
        let value = value.to_str().unwrap_or_default();
        response += &format!("{name}: {value}\r\n");
    }
    response += &format!(
        "content-length: {}\r\nconnection: close\r\n\r\n",
        html.len()
    );
    response + &html
}

async fn accept_all(
    listener: TcpListener,
    pages: Arc<ListenerPages>,
    answers: mpsc::Sender<BrowserAnswer>,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    // The semaphore is never closed.
    while let Ok(slot) = slots.clone().acquire_owned().await {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let pages = pages.clone();
        let answers = answers.clone();
        connections.spawn(async move {
            serve_browser(stream, &pages, &answers).await;
            drop(slot);
        });
    }
}

/// Serves one request. A browser that disconnects may come again.
async fn serve_browser(
    mut stream: TcpStream,
    pages: &ListenerPages,
    answers: &mpsc::Sender<BrowserAnswer>,
) {
    let head = match timeout(TRANSFER_TIMEOUT, read_head(&mut stream)).await {
        Ok(Ok(head)) => head,
        Ok(Err(HeadFault::TooLong)) => {
            let _ = timeout(TRANSFER_TIMEOUT, refuse_long_head(&mut stream)).await;
            return;
        }
        Ok(Err(HeadFault::Broken)) | Err(_) => return,
    };
    let target = match request_target(&head) {
        Some(target) if is_callback(&target.path, &pages.callback) => target,
        other => {
            let response = pages.respond(other.as_ref());
            let _ = timeout(TRANSFER_TIMEOUT, stream.write_all(response.as_bytes())).await;
            return;
        }
    };
    let (reply, page) = oneshot::channel();
    if answers.send(BrowserAnswer { target, reply }).await.is_err() {
        return;
    }
    let Ok(PageReply { response, sent }) = page.await else {
        return;
    };
    let writing = async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await
    };
    let _ = timeout(TRANSFER_TIMEOUT, writing).await;
    drop(sent);
}

/// Reads the head of a request.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, HeadFault> {
    let mut head = Vec::new();
    loop {
        let read = stream.read_buf(&mut head).await;
        if !matches!(read, Ok(1..)) {
            return Err(HeadFault::Broken);
        }
        if head.len() > HEAD_MAX {
            return Err(HeadFault::TooLong);
        }
        if memchr::memmem::find(&head, b"\r\n\r\n").is_some() {
            return Ok(head);
        }
    }
}

/// Sends the page that explains what to do with the address, and waits until the browser closes the
/// connection.
async fn refuse_long_head(stream: &mut TcpStream) -> io::Result<()> {
    let status = "431 Request Header Fields Too Large";
    let response = page_response(status, &CallbackPage::too_long());
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing with bytes unread would reset the connection, and the page might not arrive.
    let mut rest = [0; DRAIN_BUFFER];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Response that identifies this listener. Not a 200, so that a check for a gateway finds none.
fn greeting() -> String {
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{LOGIN_GREETING}",
        LOGIN_GREETING.len()
    )
}

/// True for a redirect address: this one, or that of another authorization server.
fn is_callback(path: &str, own: &str) -> bool {
    match (path.rsplit_once('/'), own.rsplit_once('/')) {
        (Some((folder, issuer)), Some((own_folder, _))) => {
            folder == own_folder && !issuer.is_empty()
        }
        _ => false,
    }
}

/// Returns the target of a GET request.
fn request_target(head: &[u8]) -> Option<AnswerTarget> {
    let end = memchr::memchr(b'\r', head)?;
    let line = std::str::from_utf8(&head[..end]).ok()?;
    let target = line.strip_prefix("GET ")?;
    let (target, version) = target.split_once(' ')?;
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return None;
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Some(AnswerTarget {
        path: path.to_owned(),
        query: query.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use moongate_oauth::LoginError;

    use super::*;
    use crate::app::logins::PortListener;

    const PATH: &str = "/oauth/callback/abcdefghij";

    async fn listener() -> (AnswerListener, SocketAddr) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = AnswerSocket::bind(any).await.unwrap();
        let address = socket.address();
        (socket.serve(PATH, None), address)
    }

    async fn request(address: SocketAddr, text: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn an_answer_gets_its_page() {
        let (mut listener, address) = listener().await;
        let browser = tokio::spawn(async move {
            let text = format!("GET {PATH}?code=a&state=b HTTP/1.1\r\nHost: x\r\n\r\n");
            request(address, &text).await
        });
        let answer = listener.next().await;
        assert_eq!(answer.query(), "code=a&state=b");
        let page = CallbackPage::of(&Err(LoginError::UnknownState));
        answer.reply(&page).await;
        drop(listener);
        let response = browser.await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(response.ends_with(&page.html()), "{response}");
        for header in [
            "cache-control: no-store\r\n",
            "referrer-policy: no-referrer\r\n",
            "content-type: text/html; charset=utf-8\r\n",
        ] {
            assert!(response.contains(header), "{header}: {response}");
        }
    }

    #[tokio::test]
    async fn any_other_request_is_not_found() {
        let (_listener, address) = listener().await;
        for line in [
            format!("POST {PATH}?code=a HTTP/1.1"),
            format!("HEAD {PATH}?code=a HTTP/1.1"),
            format!("GET {PATH}/?code=a HTTP/1.1"),
            "GET /oauth/other/abcdefghij?code=a HTTP/1.1".to_owned(),
            "GET /oauth/callback/?code=a HTTP/1.1".to_owned(),
            "GET / HTTP/1.1".to_owned(),
            "GET /favicon.ico HTTP/1.1".to_owned(),
            format!("GET http://127.0.0.1{PATH} HTTP/1.1"),
            format!("GET {PATH} HTTP/2.0"),
            "garbage".to_owned(),
        ] {
            let response = request(address, &format!("{line}\r\nHost: x\r\n\r\n")).await;
            assert!(response.starts_with("HTTP/1.1 404 "), "{line}: {response}");
        }
    }

    #[tokio::test]
    async fn another_command_knows_the_listener_and_gets_its_answers() {
        let (mut listener, address) = listener().await;
        let found = PortListener::find(address).await;
        assert_eq!(found, PortListener::LoginCommand);
        let browser = tokio::spawn(async move {
            let text = "GET /oauth/callback/other?code=a HTTP/1.1\r\nHost: x\r\n\r\n";
            request(address, text).await
        });
        let answer = listener.next().await;
        assert_eq!(answer.path(), "/oauth/callback/other");
        let page = CallbackPage::of(&Err(LoginError::UnknownState));
        answer.reply(&page).await;
        assert!(browser.await.unwrap().ends_with(&page.html()));
    }

    #[tokio::test]
    async fn the_start_page_leads_to_the_login() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = AnswerSocket::bind(any).await.unwrap();
        let address = socket.address();
        let start = StartPage::new("https://auth.example/?state=abc".parse().unwrap());
        let page = start.address(address);
        let _listener = socket.serve(PATH, Some(start));
        let path = page.split_once(&address.to_string()).unwrap().1;
        let text = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        let response = request(address, &text).await;
        assert!(response.starts_with("HTTP/1.1 303 "), "{response}");
        assert!(
            response.contains("https://auth.example/?state=abc"),
            "{response}"
        );
    }

    #[tokio::test]
    async fn silent_connections_and_long_heads_keep_no_answer_out() {
        let (mut listener, address) = listener().await;
        let silent = TcpStream::connect(address).await.unwrap();
        let long = format!("GET {PATH}?code={} HTTP/1.1\r\n", "x".repeat(HEAD_MAX));
        let refused = request(address, &long).await;
        assert!(refused.starts_with("HTTP/1.1 431 "), "{refused}");
        assert!(refused.contains("Paste the address"), "{refused}");
        let cookies = format!("Cookie: a={}", "x".repeat(20_000));
        let text = format!("GET {PATH} HTTP/1.1\r\n{cookies}\r\n\r\n");
        let browser = tokio::spawn(async move { request(address, &text).await });
        let answer = listener.next().await;
        assert_eq!(answer.query(), "");
        answer
            .reply(&CallbackPage::of(&Err(LoginError::NotAnAnswer)))
            .await;
        assert!(browser.await.unwrap().contains("The login failed"));
        drop(silent);
    }

    #[tokio::test]
    async fn the_port_is_free_after_the_login() {
        let (listener, address) = listener().await;
        assert!(AnswerSocket::bind(address).await.is_err());
        drop(listener);
        // The task that holds the socket ends at its next turn.
        for _ in 0..100 {
            if AnswerSocket::bind(address).await.is_ok() {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("the port is still in use");
    }
}
