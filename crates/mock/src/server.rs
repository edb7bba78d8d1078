//! State of one mock server, shared by its transports and calls.
//!
//! Owns the live contents, faults and sessions. Does not own a connection. Invariant: everything it
//! holds for a client is bounded, and ends with the session or the listener.

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
    bearer::BearerGate,
    change_notice::ChangeNotice,
    contents::{ListItem, MockContents},
    fault::{ArmedFaults, FaultAction},
    frame::OutgoingFrame,
    http_sse_sessions::HttpSseSessions,
    listeners::{ListenGuard, ListenTarget, ListenerTable},
    mock_task::TaskTable,
    record::RequestRecord,
    revision::Revision,
    script::MockScript,
    seal::RequestStateSeal,
    session::MockSession,
    wire,
};

/// Limit of sessions. Above it, a new session evicts another one.
const SESSIONS_MAX: usize = 16_384;
/// Time limit for a client's roots.
const ROOTS_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct MockServer {
    pub(super) script: MockScript,
    pub(super) record: RequestRecord,
    pub(super) seal: RequestStateSeal,
    /// Program to start as a grandchild. `None` inside another program.
    pub(super) program: Option<PathBuf>,
    pub(super) contents: Mutex<MockContents>,
    pub(super) faults: Mutex<ArmedFaults>,
    pub(super) bearers: BearerGate,
    pub(super) sessions: OpenSessions,
    pub(super) tasks: TaskTable,
    pub(super) stop: watch::Sender<bool>,
    pub(super) listeners: Arc<ListenerTable>,
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
        let mut all = self.by_id.lock();
        if all.len() >= SESSIONS_MAX {
            // A fake may forget any session: the map has no order, and no test opens this many.
            let any = all.keys().next().cloned().unwrap_or_default();
            all.remove(&any);
        }
        all.insert(session.id.clone(), session.clone());
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<MockSession>> {
        self.by_id.lock().get(id).cloned()
    }

    /// Ids of the sessions, without those of pipes.
    pub(super) fn ids(&self) -> Vec<String> {
        self.by_id.lock().keys().cloned().collect()
    }

    /// Forgets the sessions that match. Returns their number.
    fn remove(&self, matches: impl Fn(&MockSession) -> bool) -> usize {
        let mut all = self.by_id.lock();
        let before = all.len();
        all.retain(|_, session| !matches(session));
        before - all.len()
    }

    /// Number of sessions, of streams of HTTP+SSE and of pipes.
    pub(super) fn count(&self) -> usize {
        self.by_id.lock().len() + self.http_sse.len() + self.pipes.load(Ordering::Relaxed)
    }
}

impl MockServer {
    pub(super) fn new(
        script: MockScript,
        record: RequestRecord,
        program: Option<PathBuf>,
    ) -> Arc<Self> {
        Arc::new(Self {
            contents: Mutex::new(MockContents::of(&script)),
            faults: Mutex::new(ArmedFaults::new(&script.faults)),
            bearers: BearerGate::of(&script.http),
            seal: RequestStateSeal::new(script.state_key.as_deref()),
            sessions: OpenSessions::default(),
            tasks: TaskTable::default(),
            stop: watch::Sender::new(false),
            listeners: Arc::default(),
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
        self.script
            .revisions
            .iter()
            .copied()
            .filter(|r| !r.is_modern())
            .max()
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
        self.faults.lock().strike(method, tool)
    }

    pub(super) fn add_session(&self, session: &Arc<MockSession>) {
        self.sessions.add(session);
        self.record.count(|c| c.sessions += 1);
    }

    /// Forgets one session, or all of them. Their streams end.
    pub(super) fn drop_sessions(&self, id: Option<&str>) -> usize {
        let is_dropped = |s: &MockSession| id.is_none_or(|id| s.id == id);
        let dropped = self.sessions.remove(is_dropped);
        self.listeners.remove_sessions(is_dropped);
        dropped
    }

    /// Registers a listener until the returned guard drops. `None` above the limit. `first` is sent
    /// before any notification.
    pub(super) fn listen(
        &self,
        target: ListenTarget,
        out: mpsc::Sender<OutgoingFrame>,
        first: Option<String>,
    ) -> Option<ListenGuard> {
        self.listeners.add(self.next_number(), target, out, first)
    }

    /// Asks for the client's roots, if the script says so and the client has some. A refusal
    /// changes nothing.
    pub(super) fn ask_roots(self: &Arc<Self>, session: &Arc<MockSession>) {
        if !self.script.follow_roots || !session.capabilities["roots"].is_object() {
            return;
        }
        let server = self.clone();
        let session = session.clone();
        tokio::spawn(async move {
            let id = format!("\"roots-{}\"", server.next_number());
            let Some(reply) = session.expect_response(&id) else {
                return;
            };
            // The client may open its stream just now.
            for _ in 0..500 {
                if server
                    .listeners
                    .send_to_session(&session.id, wire::request(&id, "roots/list", &json!({})))
                {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            if let Ok(Ok(Ok(answer))) = tokio::time::timeout(ROOTS_TIMEOUT, reply).await {
                *session.roots.lock() = Some(answer["roots"].clone());
            }
        });
    }

    /// Adds a tool or a prompt with a new name, and notifies the listeners.
    pub(super) fn change(&self, list: &'static str) -> String {
        let mut contents = self.contents.lock();
        let items = if list == "prompts" {
            &mut contents.prompts
        } else {
            &mut contents.tools
        };
        let n = 1 + items
            .iter()
            .filter(|item| item.key.starts_with("changed_"))
            .count();
        let name = format!("changed_{n}");
        let new = if list == "prompts" {
            ListItem::prompt
        } else {
            ListItem::tool
        };
        items.push(new(&name, "Added by a change."));
        // Released before the notice: a listener may list the contents at once.
        drop(contents);
        // One that announces no changes sends none.
        let capabilities = self.script.capabilities.as_ref();
        if capabilities.is_none_or(|capabilities| capabilities[list]["listChanged"] == true) {
            self.listeners.publish(&ChangeNotice::List(list));
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
