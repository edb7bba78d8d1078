//! State of one mock server, shared by its transports and calls.
//!
//! Owns the live contents, faults, sessions and listeners. Does not own a connection. Invariant: everything it holds
//! for a client is bounded, and ends with the session or the listener.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::{
    contents::{ListItem, MockContents},
    fault::{ArmedFaults, FaultAction},
    http_sse::HttpSseSessions,
    record::{RequestRecord, lock},
    revision::Revision,
    script::MockScript,
    seal::RequestStateSeal,
    session::MockSession,
    tasks::TaskTable,
    wire,
};

/// Limit of sessions. Above it, a new session evicts another one.
const SESSIONS_MAX: usize = 16_384;
/// Limit of listeners. Above it, new ones are refused.
// Refused and not evicted: a listener that vanished unseen would look like a lost notification.
const LISTENERS_MAX: usize = 16_384;

/// Time limit for a client's roots.
const ROOTS_TIMEOUT: Duration = Duration::from_secs(60);

/// Frame that a call or a listener sends to its transport.
#[derive(Debug)]
pub(super) enum OutgoingFrame {
    /// Message before the response.
    Message(String),
    /// Bytes that are no message, written unchanged where the transport allows it.
    Raw(Vec<u8>),
    /// End of a request.
    Final(RequestEnd),
}

/// End of a request, as the transport carries it out.
#[derive(Debug)]
pub(super) enum RequestEnd {
    /// Response, under the HTTP status that the revision asks for.
    Answer { text: String, status: u16, twice: bool, content_type: Option<String> },
    /// HTTP response that is not JSON-RPC.
    Http { status: u16, headers: Vec<(String, String)>, body: String },
    /// Silence: the request gets no response.
    Nothing,
    /// End of the connection. A process also exits with this code, if there is one.
    Broken { reset: bool, exit: Option<i32> },
}

/// Change that listeners may have asked for.
#[derive(Debug, Clone)]
pub(super) enum ChangeNotice {
    /// Changed list: `tools`, `prompts` or `resources`.
    List(&'static str),
    /// Changed resource.
    Resource(String),
}

/// Receiver of change notifications.
pub(super) enum ListenTarget {
    /// Legacy session, on its pipe or GET stream.
    Session(Arc<MockSession>),
    /// Modern `subscriptions/listen`, with its request id and the filter it asked for.
    Subscription { id: String, filter: Value },
}

struct ListenEntry {
    number: u64,
    target: ListenTarget,
    out: mpsc::Sender<OutgoingFrame>,
}

pub(super) struct MockServer {
    pub(super) script: MockScript,
    pub(super) record: RequestRecord,
    pub(super) seal: RequestStateSeal,
    /// Program to start as a grandchild. `None` inside another program.
    pub(super) program: Option<PathBuf>,
    pub(super) contents: Mutex<MockContents>,
    pub(super) faults: Mutex<ArmedFaults>,
    pub(super) sessions: OpenSessions,
    pub(super) tasks: TaskTable,
    pub(super) stop: watch::Sender<bool>,
    listeners: Mutex<Vec<ListenEntry>>,
    numbers: AtomicU64,
    pub(super) counter: AtomicU64,
}

/// Sessions and connections that clients have open.
#[derive(Default)]
pub(super) struct OpenSessions {
    by_id: Mutex<HashMap<String, Arc<MockSession>>>,
    pub(super) http_sse: HttpSseSessions,
    pipes: AtomicUsize,
}

impl OpenSessions {
    fn add(&self, session: &Arc<MockSession>) {
        let mut all = lock(&self.by_id);
        if all.len() >= SESSIONS_MAX {
            // A fake may forget any session: the map has no order, and no test opens this many.
            let any = all.keys().next().cloned().unwrap_or_default();
            all.remove(&any);
        }
        all.insert(session.id.clone(), session.clone());
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<MockSession>> {
        lock(&self.by_id).get(id).cloned()
    }

    /// Ids of the sessions, without those of pipes.
    pub(super) fn ids(&self) -> Vec<String> {
        lock(&self.by_id).keys().cloned().collect()
    }

    /// Forgets the sessions that match. Returns their number.
    fn remove(&self, matches: impl Fn(&MockSession) -> bool) -> usize {
        let mut all = lock(&self.by_id);
        let before = all.len();
        all.retain(|_, session| !matches(session));
        before - all.len()
    }

    /// Number of sessions, of streams of HTTP+SSE and of pipes.
    pub(super) fn count(&self) -> usize {
        lock(&self.by_id).len() + self.http_sse.len() + self.pipes.load(Ordering::Relaxed)
    }
}

impl MockServer {
    pub(super) fn new(script: MockScript, record: RequestRecord, program: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            contents: Mutex::new(MockContents::of(&script)),
            faults: Mutex::new(ArmedFaults::new(&script.faults)),
            seal: RequestStateSeal::new(script.state_key.as_deref()),
            sessions: OpenSessions::default(),
            tasks: TaskTable::default(),
            stop: watch::Sender::new(false),
            listeners: Mutex::default(),
            numbers: AtomicU64::new(1),
            counter: AtomicU64::new(0),
            script,
            record,
            program,
        })
    }

    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Newest legacy revision that the server speaks.
    pub(super) fn legacy(&self) -> Option<Revision> {
        self.script.revisions.iter().copied().filter(|r| !r.is_modern()).max()
    }

    pub(super) fn speaks(&self, revision: Revision) -> bool {
        self.script.revisions.contains(&revision)
    }

    pub(super) fn modern(&self) -> bool {
        self.script.revisions.iter().any(|r| r.is_modern())
    }

    /// Dates of its revisions, newest first.
    pub(super) fn supported(&self) -> Value {
        let mut all = self.script.revisions.clone();
        all.sort_unstable_by(|a, b| b.cmp(a));
        json!(all.iter().map(|r| r.date()).collect::<Vec<_>>())
    }

    pub(super) fn strike(&self, method: &str, tool: Option<&str>) -> Vec<FaultAction> {
        lock(&self.faults).strike(method, tool)
    }

    pub(super) fn add_session(&self, session: &Arc<MockSession>) {
        self.sessions.add(session);
        self.record.count(|c| c.sessions += 1);
    }

    /// Forgets one session, or all of them. Their streams end.
    pub(super) fn drop_sessions(&self, id: Option<&str>) -> usize {
        let is_dropped = |s: &MockSession| id.is_none_or(|id| s.id == id);
        let dropped = self.sessions.remove(is_dropped);
        // Dropping a listener's sender ends the stream that reads from it.
        lock(&self.listeners).retain(|l| !matches!(&l.target, ListenTarget::Session(s) if is_dropped(s)));
        dropped
    }

    /// Registers a listener until the returned guard drops. `None` above the limit. `first` is sent before any
    /// notification.
    pub(super) fn listen(
        self: &Arc<Self>,
        target: ListenTarget,
        out: mpsc::Sender<OutgoingFrame>,
        first: Option<String>,
    ) -> Option<ListenGuard> {
        let mut all = lock(&self.listeners);
        if all.len() >= LISTENERS_MAX {
            return None;
        }
        // Still under the lock: the acknowledgement must leave before any notification.
        if let Some(first) = first {
            out.try_send(OutgoingFrame::Message(first)).ok()?;
        }
        let number = self.next_number();
        all.push(ListenEntry { number, target, out });
        Some(ListenGuard { server: self.clone(), number })
    }

    pub(super) fn listeners(&self) -> usize {
        lock(&self.listeners).len()
    }

    /// Sends a notification to every listener that asked for it. A legacy session gets it once, on its newest stream.
    pub(super) fn publish(&self, notice: &ChangeNotice) -> usize {
        let all = lock(&self.listeners);
        let mut notified = HashMap::new();
        let mut delivered = 0;
        // Newest first. Streamable HTTP: "The server MUST send each of its JSON-RPC messages on only one of the
        // connected streams" (2025-11-25, basic/transports).
        for listener in all.iter().rev() {
            let message = match &listener.target {
                ListenTarget::Session(session) if session.is_subscribed_to(notice) => {
                    if notified.insert(session.id.clone(), ()).is_some() {
                        continue;
                    }
                    encode_notice(notice, None)
                }
                ListenTarget::Subscription { id, filter } if is_subscribed(filter, notice) => {
                    encode_notice(notice, Some(id))
                }
                _ => continue,
            };
            // A listener that does not read loses notifications. The server does not wait for it.
            delivered += usize::from(listener.out.try_send(OutgoingFrame::Message(message)).is_ok());
        }
        delivered
    }

    /// Sends a message to a session on its newest stream, outside of any call.
    pub(super) fn send_to_session(&self, session: &str, message: String) -> bool {
        let all = lock(&self.listeners);
        let newest = all.iter().rev().find(|l| matches!(&l.target, ListenTarget::Session(s) if s.id == session));
        newest.is_some_and(|l| l.out.try_send(OutgoingFrame::Message(message)).is_ok())
    }

    /// Asks for the client's roots, if the script says so and the client has some. A refusal changes nothing.
    pub(super) fn ask_roots(self: &Arc<Self>, session: &Arc<MockSession>) {
        if !self.script.follow_roots || !session.capabilities["roots"].is_object() {
            return;
        }
        let (server, session) = (self.clone(), session.clone());
        tokio::spawn(async move {
            let id = format!("\"roots-{}\"", server.next_number());
            let Some(reply) = session.expect_response(&id) else { return };
            // The client may open its stream just now.
            for _ in 0..500 {
                if server.send_to_session(&session.id, wire::request(&id, "roots/list", &json!({}))) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            if let Ok(Ok(Ok(answer))) = tokio::time::timeout(ROOTS_TIMEOUT, reply).await {
                *lock(&session.roots) = Some(answer["roots"].clone());
            }
        });
    }

    /// Adds a tool or a prompt with a new name, and notifies the listeners.
    pub(super) fn change(&self, list: &'static str) -> String {
        let mut contents = lock(&self.contents);
        let items = if list == "prompts" { &mut contents.prompts } else { &mut contents.tools };
        let n = 1 + items.iter().filter(|item| item.key.starts_with("changed_")).count();
        let name = format!("changed_{n}");
        let new = if list == "prompts" { ListItem::prompt } else { ListItem::tool };
        items.push(new(&name, "Added by a change."));
        // Released before the notice: a listener may list the contents at once.
        drop(contents);
        // One that announces no changes sends none.
        let announces = |capabilities: &Value| capabilities[list]["listChanged"] == true;
        if self.script.capabilities.as_ref().is_none_or(announces) {
            self.publish(&ChangeNotice::List(list));
        }
        name
    }
}

/// Open pipe connection, counted until it drops.
pub(super) struct PipeConnection(Arc<MockServer>);

impl PipeConnection {
    pub(super) fn open(server: &Arc<MockServer>) -> Self {
        server.record.count(|c| c.connections += 1);
        server.sessions.pipes.fetch_add(1, Ordering::Relaxed);
        PipeConnection(server.clone())
    }
}

impl Drop for PipeConnection {
    fn drop(&mut self) {
        self.0.sessions.pipes.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Registration of a listener, which ends when it drops.
pub(super) struct ListenGuard {
    server: Arc<MockServer>,
    number: u64,
}

impl Drop for ListenGuard {
    fn drop(&mut self) {
        lock(&self.server.listeners).retain(|l| l.number != self.number);
    }
}

fn is_subscribed(filter: &Value, notice: &ChangeNotice) -> bool {
    match notice {
        ChangeNotice::List(what) => filter[format!("{what}ListChanged")] == true,
        ChangeNotice::Resource(uri) => {
            filter["resourceSubscriptions"].as_array().is_some_and(|all| all.iter().any(|u| u == uri.as_str()))
        }
    }
}

fn encode_notice(notice: &ChangeNotice, subscription: Option<&str>) -> String {
    let mut params = json!({});
    if let Some(id) = subscription {
        let id: Value = serde_json::from_str(id).unwrap_or_default();
        params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
    }
    match notice {
        ChangeNotice::List(what) => wire::notification(&format!("notifications/{what}/list_changed"), &params),
        ChangeNotice::Resource(uri) => {
            params["uri"] = json!(uri);
            wire::notification("notifications/resources/updated", &params)
        }
    }
}
