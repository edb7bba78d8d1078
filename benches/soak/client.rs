//! A client by hand, of any revision: every byte that it sends is its own, and every message that
//! it gets is kept.

use super::http::{Connection, Head};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;

/// What no wait here may last: whoever waits so long has lost its answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The stateless revision; all others have sessions.
pub(crate) const MODERN: &str = "2026-07-28";
/// The keys: one principal each.
pub(crate) const KEYS: [&str; 3] = [
    "soak-key-of-ada-1f0c3b5d",
    "soak-key-of-bob-7a9e2c44",
    "soak-key-of-eve-c05d8813",
];

/// One client, which is one principal's and uses one session if its revision has them.
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) key: usize,
    pub(crate) revision: &'static str,
    pub(crate) session: Option<String>,
    /// Small and dense, so that all clients use the same ids.
    next: u64,
    connection: Option<Connection>,
}

/// A request, ready to be sent.
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) bytes: Vec<u8>,
}

/// An event of a stream.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    /// Absent: the event has no data.
    pub(crate) message: Option<Value>,
}

/// A whole answer.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) streamed: bool,
    pub(crate) session: Option<String>,
    pub(crate) messages: Vec<Value>,
}

/// A stream that is being read, on a connection of its own.
pub(crate) struct Stream {
    connection: Connection,
    head: Head,
    read: usize,
    ended: bool,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, revision: &'static str, key: usize) -> Self {
        Self {
            address,
            key,
            revision,
            session: None,
            next: 0,
            connection: None,
        }
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.revision == MODERN
    }

    /// Opens a session, where there are such things.
    pub(crate) async fn open(&mut self) -> Result<()> {
        if self.is_modern() {
            return Ok(());
        }
        self.session = None;
        let id = self.id();
        let capabilities = json!({"elicitation": {}});
        let params = json!({"protocolVersion": self.revision, "capabilities": capabilities,
            "clientInfo": {"name": "soak", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params});
        let answer = self.exchange(&self.post("", &body.to_string())).await?;
        let result = answer
            .messages
            .first()
            .map(|message| &message["result"]["protocolVersion"]);
        ensure!(
            answer.status == 200 && result.is_some_and(|v| v == self.revision),
            "initialize: {answer:?}"
        );
        self.session = Some(answer.session.context("no session")?);
        let answer = self
            .exchange(&self.notification("notifications/initialized", &json!({})))
            .await?;
        ensure!(answer.status == 202, "initialized: {answer:?}");
        Ok(())
    }

    /// Ends the session; gives the status.
    pub(crate) async fn end(&mut self) -> Result<u16> {
        let Some(session) = self.session.take() else {
            return Ok(204);
        };
        let bytes = self.verb("DELETE", Some(&session), "");
        Ok(self.exchange(&bytes).await?.status)
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// A request under the next id; `fields` are its params, `name` what the header names.
    pub(crate) fn request(
        &mut self,
        method: &str,
        name: Option<&str>,
        mut params: Value,
    ) -> Request {
        let id = self.id();
        let mut headers = String::new();
        if self.is_modern() {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
            params["_meta"]["io.modelcontextprotocol/clientInfo"] =
                json!({"name": "soak", "version": "1"});
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
                json!({"elicitation": {"form": {}}});
            headers = format!("Mcp-Method: {method}\r\n");
            headers.extend(name.map(|name| format!("Mcp-Name: {name}\r\n")));
        }
        let body =
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        Request {
            id,
            bytes: self.post(&headers, &body),
        }
    }

    /// A call of a tool; `token`: it wants progress.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value, token: Option<&str>) -> Request {
        let mut params = json!({"name": tool, "arguments": arguments});
        if let Some(token) = token {
            params["_meta"] = json!({"progressToken": token});
        }
        self.request("tools/call", Some(tool), params)
    }

    pub(crate) fn notification(&self, method: &str, params: &Value) -> Vec<u8> {
        self.post(
            "",
            &json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string(),
        )
    }

    /// An answer to what a server asked.
    pub(crate) fn reply(&self, id: &Value, result: &Value) -> Vec<u8> {
        self.post(
            "",
            &json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string(),
        )
    }

    /// Sends a request and reads its whole answer.
    pub(crate) async fn exchange(&mut self, bytes: &[u8]) -> Result<Answer> {
        let answer = over(&mut self.connection, self.address, bytes).await;
        if answer.is_err() {
            self.connection = None;
        }
        answer
    }

    /// Sends a request on a connection of its own, and reads until its answer begins.
    pub(crate) async fn stream(&self, bytes: &[u8]) -> Result<Stream> {
        let begun = async {
            let mut connection = Connection::open(self.address).await?;
            let head = connection.begin(bytes).await?;
            Ok(Stream {
                connection,
                head,
                read: 0,
                ended: false,
            })
        };
        timeout(PATIENCE, begun).await.context("no answer begins")?
    }

    /// A GET for the session's own stream, or for the rest of another one.
    pub(crate) fn get(&self, last: Option<&str>) -> Vec<u8> {
        let last = last
            .map(|id| format!("Last-Event-ID: {id}\r\n"))
            .unwrap_or_default();
        self.verb(
            "GET",
            self.session.as_deref(),
            &format!("Accept: text/event-stream\r\n{last}"),
        )
    }

    pub(crate) fn verb(&self, verb: &str, session: Option<&str>, headers: &str) -> Vec<u8> {
        let session = session
            .map(|id| format!("Mcp-Session-Id: {id}\r\n"))
            .unwrap_or_default();
        let (address, key, revision) = (self.address, KEYS[self.key], self.revision);
        format!(
            "{verb} /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer \
                 {key}\r\nMCP-Protocol-Version: {revision}\r\n{session}{headers}\r\n"
        )
        .into_bytes()
    }

    pub(crate) fn post(&self, headers: &str, body: &str) -> Vec<u8> {
        let more = format!(
            "Content-Type: application/json\r\nAccept: application/json, \
             text/event-stream\r\n{headers}Content-Length: {}\r\n",
            body.len()
        );
        let mut bytes = self.verb("POST", self.session.as_deref(), &more);
        bytes.extend_from_slice(body.as_bytes());
        bytes
    }
}

async fn over(
    connection: &mut Option<Connection>,
    address: SocketAddr,
    bytes: &[u8],
) -> Result<Answer> {
    let exchanged = async {
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(Connection::open(address).await?),
        };
        let head = connection.exchange(bytes).await?;
        let messages = match head.sse {
            true => events(&connection.body)
                .0
                .into_iter()
                .filter_map(|event| event.message)
                .collect(),
            false if connection.body.is_empty() => Vec::new(),
            false => {
                let text = String::from_utf8_lossy(&connection.body);
                vec![
                    serde_json::from_slice(&connection.body)
                        .unwrap_or_else(|_| json!({"no JSON": text})),
                ]
            }
        };
        Ok(Answer {
            status: head.status,
            streamed: head.sse,
            session: head.session,
            messages,
        })
    };
    timeout(PATIENCE, exchanged)
        .await
        .context("no answer for a minute")?
}

impl Stream {
    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    /// Whether it is one, and not an answer in one piece.
    pub(crate) fn is_stream(&self) -> bool {
        self.head.sse
    }

    /// The whole body of an answer in one piece.
    pub(crate) async fn body(&mut self) -> Result<&[u8]> {
        timeout(PATIENCE, self.connection.rest(&self.head))
            .await
            .context("a body does not end")??;
        Ok(&self.connection.body)
    }

    /// The next events, as soon as there are some; nothing: the stream has ended.
    pub(crate) async fn next(&mut self) -> Result<Vec<Event>> {
        timeout(PATIENCE, self.more())
            .await
            .context("a stream is silent for a minute")?
    }

    /// The same without end of patience.
    pub(crate) async fn more(&mut self) -> Result<Vec<Event>> {
        if !self.head.sse {
            return Ok(Vec::new());
        }
        loop {
            let rest = self.connection.body.get(self.read..).unwrap_or_default();
            let (events, used) = events(rest);
            self.read += used;
            if !events.is_empty() || self.ended {
                return Ok(events);
            }
            self.ended = !self.connection.chunk().await?;
        }
    }
}

/// The complete events in these bytes, and how many bytes those are. The gateway ends its lines
/// with LF.
fn events(bytes: &[u8]) -> (Vec<Event>, usize) {
    let (mut events, mut used) = (Vec::new(), 0);
    while let Some(end) = memchr::memmem::find(bytes.get(used..).unwrap_or_default(), b"\n\n") {
        let text = String::from_utf8_lossy(bytes.get(used..used + end).unwrap_or_default());
        used += end + 2;
        let field = |name: &str| {
            let values = text
                .lines()
                .filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            values
                .map(str::trim_start)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let data = field("data").join("\n");
        let message = (!data.is_empty())
            .then(|| serde_json::from_str(&data).unwrap_or_else(|_| json!({"no JSON": data})));
        let id = field("id").pop();
        if id.is_some() || message.is_some() {
            events.push(Event { id, message });
        }
    }
    (events, used)
}
