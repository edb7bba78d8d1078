//! Handle of a mock server: starts it inside a test, inspects it, changes it while it runs.
//!
//! Owns the listeners' life. Does not own what is served. Invariant: a dropped handle stops its
//! server.

use std::{fs::File, io, net::SocketAddr, path::PathBuf, sync::Arc};

use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::{
    bearer::TokenCheck,
    change_notice::ChangeNotice,
    contents::ListItem,
    fault::{ArmedFaults, FaultRule},
    http, pipe,
    record::{RecordCounters, RecordedRequest, RequestRecord},
    script::MockScript,
    server::{MockServer, PipeConnection},
    wire, ws,
};

/// Mock server that runs until its handle drops.
pub struct MockHandle {
    /// URL of the endpoint, or the address for transports other than HTTP.
    pub url: String,
    /// Listening address. `None` for a Unix socket.
    pub addr: Option<SocketAddr>,
    server: Arc<MockServer>,
    accepting: JoinHandle<()>,
}

/// Serves Streamable HTTP on `addr` at the path `/mcp`. With port 0 the system picks one.
///
/// # Errors
/// Fails when it cannot listen there.
pub async fn serve_http(script: MockScript, addr: SocketAddr) -> io::Result<MockHandle> {
    serve_http_recording(script, addr, None, None).await
}

/// Serves Streamable HTTP like [`serve_http`], for a separate process. Adds a file for what it
/// receives, and a program for grandchildren.
///
/// # Errors
/// Fails when it cannot listen there.
pub async fn serve_http_recording(
    script: MockScript,
    addr: SocketAddr,
    record: Option<File>,
    program: Option<PathBuf>,
) -> io::Result<MockHandle> {
    let listener = TcpListener::bind(addr).await?;
    // Asked of the listener: with port 0 only the system knows it.
    let addr = listener.local_addr()?;
    let server = MockServer::new(script, RequestRecord::to_file(record), program);
    let accepting = tokio::spawn(http::serve(server.clone(), listener));
    Ok(MockHandle {
        url: format!("http://{addr}{}", http::PATH),
        addr: Some(addr),
        server,
        accepting,
    })
}

/// Serves lines of JSON-RPC on TCP. Each connection is a separate client.
///
/// # Errors
/// Fails when it cannot listen there.
pub async fn serve_tcp(
    script: MockScript,
    addr: SocketAddr,
    record: Option<File>,
) -> io::Result<MockHandle> {
    accept_tcp(script, addr, record, lines, |addr| addr.to_string()).await
}

/// Serves WebSocket on `addr` at the path `/mcp`, JSON-RPC in text frames. Each connection is a
/// separate client.
///
/// # Errors
/// Fails when it cannot listen there.
pub async fn serve_ws(
    script: MockScript,
    addr: SocketAddr,
    record: Option<File>,
) -> io::Result<MockHandle> {
    accept_tcp(script, addr, record, start_websocket, |addr| {
        format!("ws://{addr}{}", http::PATH)
    })
    .await
}

fn start_websocket(server: &Arc<MockServer>, stream: TcpStream) {
    let open = PipeConnection::open(server);
    let server = server.clone();
    tokio::spawn(async move {
        ws::connection(server, stream).await;
        drop(open);
    });
}

/// Accepts TCP connections, and calls `begin` with each.
async fn accept_tcp(
    script: MockScript,
    addr: SocketAddr,
    record: Option<File>,
    begin: impl Fn(&Arc<MockServer>, TcpStream) + Send + 'static,
    url: impl Fn(SocketAddr) -> String,
) -> io::Result<MockHandle> {
    let listener = TcpListener::bind(addr).await?;
    let addr = listener.local_addr()?;
    let server = MockServer::new(script, RequestRecord::to_file(record), None);
    let shared = server.clone();
    let accepting = tokio::spawn(async move {
        let mut stop = shared.stop.subscribe();
        loop {
            tokio::select! {
                accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                    // Most messages are small. Nagle's delay would be measured as the gateway's.
                    let _ = stream.set_nodelay(true);
                    begin(&shared, stream);
                },
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    });
    Ok(MockHandle {
        url: url(addr),
        addr: Some(addr),
        server,
        accepting,
    })
}

/// Serves lines of JSON-RPC on a Unix socket at `path`, which must not exist.
///
/// # Errors
/// Fails when it cannot listen there.
#[cfg(unix)]
pub async fn serve_unix(
    script: MockScript,
    path: PathBuf,
    record: Option<File>,
) -> io::Result<MockHandle> {
    let listener = tokio::net::UnixListener::bind(&path)?;
    let server = MockServer::new(script, RequestRecord::to_file(record), None);
    let shared = server.clone();
    let url = path.display().to_string();
    let accepting = tokio::spawn(async move {
        let mut stop = shared.stop.subscribe();
        loop {
            tokio::select! {
                accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                    lines(&shared, stream) },
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        // A socket file that stays would make the next bind fail.
        let _ = std::fs::remove_file(path);
    });
    Ok(MockHandle {
        url,
        addr: None,
        server,
        accepting,
    })
}

fn lines<S: AsyncRead + AsyncWrite + Send + 'static>(server: &Arc<MockServer>, stream: S) {
    let open = PipeConnection::open(server);
    let server = server.clone();
    let (reader, writer) = tokio::io::split(stream);
    tokio::spawn(async move {
        // A connection ends when its client wants, or by a fault of the script.
        let _ = pipe::serve(server, BufReader::new(reader), writer).await;
        drop(open);
    });
}

impl MockHandle {
    /// Counters so far.
    #[must_use]
    pub fn counters(&self) -> RecordCounters {
        self.server.record.counters()
    }

    /// Last requests, oldest first (at most 64), with all headers and the body.
    #[must_use]
    pub fn recorded_requests(&self) -> Vec<RecordedRequest> {
        self.server.record.requests()
    }

    /// Last request whose body names this method.
    #[must_use]
    pub fn last_request(&self, method: &str) -> Option<RecordedRequest> {
        self.recorded_requests().into_iter().rev().find(|request| {
            serde_json::from_str::<Value>(&request.body).is_ok_and(|v| v["method"] == method)
        })
    }

    /// Clears the counters and the recorded requests.
    pub fn reset_record(&self) {
        self.server.record.clear();
    }

    /// Replaces its tools (objects, or strings of JSON sent as written). Notifies no listener.
    pub fn set_tools(&self, tools: &[Value]) {
        self.server.contents.lock().tools = tools
            .iter()
            .map(|t| ListItem::from_script("name", t))
            .collect();
    }

    /// Replaces its tools and notifies the listeners. Returns how many it notified.
    pub fn change_tools_and_notify(&self, tools: &[Value]) -> usize {
        self.set_tools(tools);
        self.notify_list("tools")
    }

    /// Replaces its resources. Notifies no listener.
    pub fn set_resources(&self, resources: &[Value]) {
        self.server.contents.lock().resources = resources
            .iter()
            .map(|r| ListItem::from_script("uri", r))
            .collect();
    }

    /// Replaces its prompts. Notifies no listener.
    pub fn set_prompts(&self, prompts: &[Value]) {
        self.server.contents.lock().prompts = prompts
            .iter()
            .map(|p| ListItem::from_script("name", p))
            .collect();
    }

    /// Notifies that `tools`, `prompts` or `resources` changed. Returns how many listeners got it.
    pub fn notify_list(&self, list: &str) -> usize {
        let known = ["tools", "prompts", "resources"]
            .into_iter()
            .find(|known| *known == list);
        // An unknown list notifies nobody, so a test with a typing error fails at its count.
        known.map_or(0, |list| {
            self.server.listeners.publish(&ChangeNotice::List(list))
        })
    }

    /// Notifies that a resource changed. Returns how many subscribers got it.
    pub fn notify_resource(&self, uri: &str) -> usize {
        self.server
            .listeners
            .publish(&ChangeNotice::Resource(uri.to_owned()))
    }

    /// Sends a request to every legacy session that listens, outside of any call. Returns how many
    /// got it.
    pub fn request_sessions(&self, method: &str, params: &Value) -> usize {
        let sessions = self.server.sessions.ids();
        let reached = sessions.iter().filter(|id| {
            let request = wire::request(
                &format!("\"own-{}\"", self.server.next_number()),
                method,
                params,
            );
            self.server.listeners.send_to_session(id, request)
        });
        reached.count()
    }

    /// Sends a text as a message to every legacy session that listens, valid or not. Returns how
    /// many got it.
    pub fn send_to_sessions(&self, text: &str) -> usize {
        let sessions = self.server.sessions.ids();
        sessions
            .iter()
            .filter(|id| self.server.listeners.send_to_session(id, text.to_owned()))
            .count()
    }

    /// Streams and pipes that would get a notification now. Wait for one before you change
    /// anything.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.server.listeners.len()
    }

    /// Legacy sessions open over HTTP and streams of HTTP+SSE. Over sockets, the connections.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.server.sessions.count()
    }

    /// Forgets every session, as a restart would. Returns how many there were.
    pub fn drop_sessions(&self) -> usize {
        self.server.drop_sessions(None)
    }

    /// Demands a bearer token that `is_good` takes, whatever the script says. All other requests
    /// get a 401 with this challenge.
    pub fn demand_bearer(
        &self,
        challenge: impl Into<String>,
        is_good: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) {
        let is_good: TokenCheck = Arc::new(is_good);
        self.server.bearers.set(is_good, challenge.into());
    }

    /// Replaces all faults by this one.
    pub fn set_fault(&self, fault: FaultRule) {
        *self.server.faults.lock() = ArmedFaults::new(&[fault]);
    }

    /// Adds a fault.
    pub fn add_fault(&self, fault: FaultRule) {
        self.server.faults.lock().add(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.server.faults.lock().clear();
    }

    /// Stops the server and waits until the port is free. Modern subscriptions get a proper end.
    pub async fn stop(mut self) {
        self.server.stop.send_replace(true);
        // The accept loop ends by itself. A panic in it has been printed.
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for MockHandle {
    fn drop(&mut self) {
        self.server.stop.send_replace(true);
    }
}
