//! HTTP server that answers from a table.
//!
//! Owns the table and a record of requests. Does not know what is asked. Invariant: a path without
//! an answer is 404.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

/// Request that a server got.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    /// Method and target, such as `GET /mcp`.
    pub(crate) line: String,
    /// Headers, with names in lower case.
    pub(crate) headers: HashMap<String, String>,
    /// Body.
    pub(crate) body: String,
}

#[derive(Default)]
struct ServerTable {
    /// Complete answers for each path. The last one stays.
    answers: HashMap<String, VecDeque<String>>,
    requests: Vec<ReceivedRequest>,
}

/// HTTP server on loopback. It ends with its runtime.
pub(crate) struct FakeServer {
    address: SocketAddr,
    table: Arc<Mutex<ServerTable>>,
}

impl FakeServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let table = Arc::new(Mutex::new(ServerTable::default()));
        let shared = table.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        FakeServer { address, table }
    }

    /// Origin, without a slash at its end.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("{}{path}", self.origin())).unwrap()
    }

    /// Sets the answer of a path.
    pub(crate) fn answer(&self, path: &str, status: u16, body: &str) {
        self.answer_in_turn(path, &[(status, body)]);
    }

    /// Sets the answers of a path, one for each request.
    pub(crate) fn answer_in_turn(&self, path: &str, answers: &[(u16, &str)]) {
        let whole = |(status, body): &(u16, &str)| {
            format!(
                "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\nlocation: {}/elsewhere\r\nconnection: close\r\n\r\n{body}",
                body.len(),
                self.origin()
            )
        };
        let answers = answers.iter().map(whole).collect();
        self.table.lock().answers.insert(path.to_owned(), answers);
    }

    /// Makes a path 404 again.
    pub(crate) fn forget(&self, path: &str) {
        self.table.lock().answers.remove(path);
    }

    /// Requests, in order.
    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.table.lock().requests.clone()
    }

    /// Methods and targets of the requests, in order.
    pub(crate) fn lines(&self) -> Vec<String> {
        let requests = self.requests();
        requests.into_iter().map(|request| request.line).collect()
    }

    /// Requests with this method and target.
    pub(crate) fn requests_for(&self, line: &str) -> Vec<ReceivedRequest> {
        let mut requests = self.requests();
        requests.retain(|request| request.line == line);
        requests
    }
}

async fn serve(mut stream: TcpStream, table: Arc<Mutex<ServerTable>>) {
    let Some(request) = read_request(&mut stream).await else {
        return;
    };
    let answer = {
        let mut table = table.lock();
        let path = request.line.split(' ').nth(1).unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default().to_owned();
        table.requests.push(request);
        match table.answers.get_mut(&path) {
            Some(answers) if answers.len() > 1 => answers.pop_front(),
            Some(answers) => answers.front().cloned(),
            None => None,
        }
    };
    let missing = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let answer = answer.unwrap_or_else(|| missing.to_owned());
    // A client that had enough closes the connection.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn read_request(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut received = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&received).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let mut lines = head.lines();
            let line = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
            let headers: HashMap<String, String> = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            let length = headers.get("content-length");
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return Some(ReceivedRequest {
                    line,
                    headers,
                    body: body.to_owned(),
                });
            }
        }
        if stream.read_buf(&mut received).await.ok()? == 0 {
            return None;
        }
    }
}
