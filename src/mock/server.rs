//! A mock server: what its transports and calls share.
//!
//! Owns the live contents, faults, sessions and listeners. Does not own a connection. Invariant: whatever it holds
//! for a client is bounded and goes when the session or the listener goes.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::{
    contents::{Contents, Item},
    fault::{Act, Armed},
    pair::Pairs,
    record::{Record, lock},
    revision::Revision,
    script::Script,
    seal::Seal,
    session::Session,
    tasks::Tasks,
    wire,
};

/// Sessions at once; any other is forgotten for a new one.
const SESSIONS: usize = 16_384;
/// Listeners at once; more are refused.
const LISTENERS: usize = 16_384;

/// What a call or a listener sends to its transport.
#[derive(Debug)]
pub(super) enum Frame {
    /// A message before the answer.
    Message(String),
    /// Something that is not a message, written as it is where the transport allows.
    Raw(Vec<u8>),
    /// The end of a request.
    Final(Final),
}

/// How a request ends.
#[derive(Debug)]
pub(super) enum Final {
    /// With a response, under the HTTP status that the revision asks for.
    Answer { text: String, status: u16, twice: bool, content_type: Option<String> },
    /// With an HTTP response that is not JSON-RPC.
    Http { status: u16, headers: Vec<(String, String)>, body: String },
    /// With nothing.
    Nothing,
    /// With the end of the connection; and of the process, with this code, where there is one.
    Broken { reset: bool, exit: Option<i32> },
}

/// Something that listeners may want to know.
#[derive(Debug, Clone)]
pub(super) enum Notice {
    /// A list changed: `tools`, `prompts` or `resources`.
    List(&'static str),
    /// A resource changed.
    Resource(String),
}

/// Who hears notices.
pub(super) enum Ear {
    /// A legacy session: its pipe or GET stream.
    Session(Arc<Session>),
    /// A modern `subscriptions/listen`, by its id and what it asked for.
    Subscription { id: String, filter: Value },
}

struct Listener {
    number: u64,
    ear: Ear,
    out: mpsc::Sender<Frame>,
}

pub(super) struct Server {
    pub(super) script: Script,
    pub(super) record: Record,
    pub(super) seal: Seal,
    /// The program to start as a grandchild; none inside another program.
    pub(super) program: Option<PathBuf>,
    pub(super) contents: Mutex<Contents>,
    pub(super) faults: Mutex<Armed>,
    pub(super) sessions: Mutex<HashMap<String, Arc<Session>>>,
    pub(super) pairs: Pairs,
    pub(super) tasks: Tasks,
    pub(super) stop: watch::Sender<bool>,
    listeners: Mutex<Vec<Listener>>,
    numbers: AtomicU64,
    pub(super) counter: AtomicU64,
    pipes: AtomicUsize,
}

impl Server {
    pub(super) fn new(script: Script, record: Record, program: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            contents: Mutex::new(Contents::of(&script)),
            faults: Mutex::new(Armed::new(&script.faults)),
            seal: Seal::new(script.state_key.as_deref()),
            sessions: Mutex::default(),
            pairs: Pairs::default(),
            tasks: Tasks::default(),
            stop: watch::Sender::new(false),
            listeners: Mutex::default(),
            numbers: AtomicU64::new(1),
            counter: AtomicU64::new(0),
            pipes: AtomicUsize::new(0),
            script,
            record,
            program,
        })
    }

    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The newest legacy revision it speaks.
    pub(super) fn legacy(&self) -> Option<Revision> {
        self.script.revisions.iter().copied().filter(|r| !r.is_modern()).max()
    }

    pub(super) fn speaks(&self, revision: Revision) -> bool {
        self.script.revisions.contains(&revision)
    }

    pub(super) fn modern(&self) -> bool {
        self.script.revisions.iter().any(|r| r.is_modern())
    }

    /// The dates of its revisions, newest first.
    pub(super) fn supported(&self) -> Value {
        let mut all = self.script.revisions.clone();
        all.sort_unstable_by(|a, b| b.cmp(a));
        json!(all.iter().map(|r| r.date()).collect::<Vec<_>>())
    }

    pub(super) fn strike(&self, method: &str, tool: Option<&str>) -> Vec<Act> {
        lock(&self.faults).strike(method, tool)
    }

    pub(super) fn add_session(&self, session: &Arc<Session>) {
        let mut all = lock(&self.sessions);
        if all.len() >= SESSIONS {
            let any = all.keys().next().cloned().unwrap_or_default();
            all.remove(&any);
        }
        all.insert(session.id.clone(), session.clone());
        drop(all);
        self.record.count(|c| c.sessions += 1);
    }

    pub(super) fn session(&self, id: &str) -> Option<Arc<Session>> {
        lock(&self.sessions).get(id).cloned()
    }

    /// Forgets one session, or all; their streams end.
    pub(super) fn drop_sessions(&self, id: Option<&str>) -> usize {
        let goes = |s: &Session| id.is_none_or(|id| s.id == id);
        let mut all = lock(&self.sessions);
        let before = all.len();
        all.retain(|_, s| !goes(s));
        let gone = before - all.len();
        drop(all);
        lock(&self.listeners).retain(|l| !matches!(&l.ear, Ear::Session(s) if goes(s)));
        gone
    }

    /// Registers a listener until the returned guard goes; none when there are too many. `first` comes before any
    /// notice.
    pub(super) fn listen(
        self: &Arc<Self>,
        ear: Ear,
        out: mpsc::Sender<Frame>,
        first: Option<String>,
    ) -> Option<Listening> {
        let mut all = lock(&self.listeners);
        if all.len() >= LISTENERS {
            return None;
        }
        if let Some(first) = first {
            out.try_send(Frame::Message(first)).ok()?;
        }
        let number = self.next_number();
        all.push(Listener { number, ear, out });
        Some(Listening { server: self.clone(), number })
    }

    pub(super) fn pipes(&self) -> usize {
        self.pipes.load(Ordering::Relaxed)
    }

    pub(super) fn listeners(&self) -> usize {
        lock(&self.listeners).len()
    }

    /// Tells whoever asked for it. A legacy session hears it once, on its newest stream.
    pub(super) fn publish(&self, notice: &Notice) -> usize {
        let all = lock(&self.listeners);
        let mut heard = HashMap::new();
        let mut told = 0;
        for listener in all.iter().rev() {
            let message = match &listener.ear {
                Ear::Session(session) if session.wants(notice) => {
                    if heard.insert(session.id.clone(), ()).is_some() {
                        continue;
                    }
                    spelled(notice, None)
                }
                Ear::Subscription { id, filter } if asked(filter, notice) => spelled(notice, Some(id)),
                _ => continue,
            };
            // A listener that does not read loses notices, not the server.
            told += usize::from(listener.out.try_send(Frame::Message(message)).is_ok());
        }
        told
    }

    /// Sends a message to a session outside of any call: on its newest stream.
    pub(super) fn tell(&self, session: &str, message: String) -> bool {
        let all = lock(&self.listeners);
        let newest = all.iter().rev().find(|l| matches!(&l.ear, Ear::Session(s) if s.id == session));
        newest.is_some_and(|l| l.out.try_send(Frame::Message(message)).is_ok())
    }

    /// Adds a tool or a prompt that nobody has seen, and says so.
    pub(super) fn change(&self, list: &'static str) -> String {
        let mut contents = lock(&self.contents);
        let items = if list == "prompts" { &mut contents.prompts } else { &mut contents.tools };
        let n = 1 + items.iter().filter(|item| item.key.starts_with("changed_")).count();
        let name = format!("changed_{n}");
        let new = if list == "prompts" { Item::prompt } else { Item::tool };
        items.push(new(&name, "Added by a change."));
        drop(contents);
        self.publish(&Notice::List(list));
        name
    }
}

/// An open connection that is a pipe; it counts until it goes.
pub(super) struct Connection(Arc<Server>);

impl Connection {
    pub(super) fn begun(server: &Arc<Server>) -> Self {
        server.record.count(|c| c.connections += 1);
        server.pipes.fetch_add(1, Ordering::Relaxed);
        Connection(server.clone())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.pipes.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Ends a listener when it goes.
pub(super) struct Listening {
    server: Arc<Server>,
    number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        lock(&self.server.listeners).retain(|l| l.number != self.number);
    }
}

fn asked(filter: &Value, notice: &Notice) -> bool {
    match notice {
        Notice::List(what) => filter[format!("{what}ListChanged")] == true,
        Notice::Resource(uri) => {
            filter["resourceSubscriptions"].as_array().is_some_and(|all| all.iter().any(|u| u == uri.as_str()))
        }
    }
}

fn spelled(notice: &Notice, subscription: Option<&str>) -> String {
    let mut params = json!({});
    if let Some(id) = subscription {
        let id: Value = serde_json::from_str(id).unwrap_or_default();
        params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
    }
    match notice {
        Notice::List(what) => wire::notification(&format!("notifications/{what}/list_changed"), &params),
        Notice::Resource(uri) => {
            params["uri"] = json!(uri);
            wire::notification("notifications/resources/updated", &params)
        }
    }
}
