//! The gateway: an MCP server made of MCP servers.
//!
//! Owns the servers, the catalogue and the endpoints over them. Cannot tell whether its client or a server keeps
//! sessions. Invariant: every answer to a list comes from memory, and every call goes to exactly one server.

mod apps;
mod catalog;
mod change;
mod filters;
mod findings;
mod generation;
mod handles;
mod hub;
mod inflight;
mod links;
mod listening;
mod merge;
mod names;
mod places;
mod preview;
mod schemas;
mod tasks;
mod union;
mod templates;
mod unknown;
mod uris;
mod view;
mod watched;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::json::Text;
use crate::model::{Kind, Method, Notice, Principal, TaskMethod};
use crate::policy::{AccessTable, Globs};
use crate::store::{Rows, Store, Table};
use crate::telemetry::{CallLog, CallLogSwitch, Meter, Meters, Metrics, logs};
use crate::upstream::{News, Owner, ServerSettings, Shared, Sink, State, Upstream};

pub use catalog::{LeftOut, Snapshot};
pub use change::{Pending, Restarted};
pub use findings::{Finding, Topic};
pub use generation::Member;
pub use names::NameRules;
pub use preview::{Gains, Who};
pub use schemas::SchemaStyle;
pub use view::View;

use generation::{Current, Generation};
use hub::{Happened, Hub};
use links::Learned;

/// Pure functions on which much depends, for `fuzz/`.
#[doc(hidden)]
pub mod pure {
    pub use super::names::{Assigned, NameChange, Wanting, assign};
    pub use super::templates::matches;
    pub use super::uris::{looks_wrapped, unwrap, wrap};
}

/// Items that are logged as left out, of one snapshot; the status shows them all.
const LEFT_OUT_LOGGED: usize = 20;
/// Changes that come within this time make one new snapshot.
const SETTLE: Duration = Duration::from_millis(20);

/// What the gateway is made of.
pub struct GatewaySettings {
    /// How names are exposed.
    pub names: NameRules,
    /// The servers.
    pub servers: Vec<ServerSettings>,
    /// Names of servers that the config switches off.
    pub disabled: Vec<String>,
    /// Named subsets.
    pub views: Vec<ViewRules>,
    /// What each principal may do.
    pub access: AccessTable,
    /// How long the calls of a server that goes may go on.
    pub drain: Duration,
    /// Calls that are recorded.
    pub calls: CallLog,
    /// Longest URI that is looked up, in bytes.
    pub uri_max: usize,
    /// How tools' input schemas are listed, but for views that say it themselves.
    pub schema: SchemaStyle,
}

/// A named subset of servers and tools.
#[derive(Clone, Debug)]
pub struct ViewRules {
    /// The name in the path.
    pub name: String,
    /// The servers; `None`: all.
    pub servers: Option<Vec<String>>,
    /// The tools, by exposed name.
    pub tools: Globs,
    /// How tools' input schemas are listed; `None`: as everywhere.
    pub schema: Option<SchemaStyle>,
}

impl ViewRules {
    fn includes(&self, server: &str) -> bool {
        self.servers.as_ref().is_none_or(|names| names.iter().any(|name| name == server))
    }
}

/// Everything behind the endpoints.
pub struct Gateway {
    current: ArcSwap<Current>,
    /// Held while a catalogue is built and put in place.
    changing: Mutex<()>,
    candidates: change::Candidates,
    shared: Arc<Shared>,
    sink: Sink,
    /// Whether log messages that belong to no call are passed on.
    shares_logs: Arc<AtomicBool>,
    hub: Arc<Hub>,
    /// Changes of lists of single clients' connections, to be told with the next catalogue.
    owed: Owed,
    learned: Learned,
    inflight: inflight::InFlight,
    meters: Meters,
    metrics: Arc<Metrics>,
    /// What calls without an item of the catalogue are measured by.
    unrouted: HashMap<&'static str, Arc<Meter>>,
    dirty: Arc<Notify>,
    drain_ms: AtomicU64,
    calls: CallLogSwitch,
    uri_max: AtomicUsize,
    /// No server is started any more.
    stopped: AtomicBool,
}

/// The server, whose connection it was, and what changed.
type Owed = Arc<Mutex<Vec<(Text, Owner, Kind)>>>;

/// Everything that clients can connect to.
pub struct Endpoints {
    gateway: Arc<Gateway>,
}

impl Gateway {
    /// Builds everything; nothing is connected before [`Gateway::start`].
    pub fn new(settings: GatewaySettings, shared: Arc<Shared>) -> Arc<Self> {
        let metrics = shared.metrics.clone();
        let (meters, drain_ms) = (Meters(metrics.clone()), settings.drain_ms());
        let (hub, dirty) = (Arc::new(Hub::default()), Arc::new(Notify::new()));
        let shares_logs = Arc::new(AtomicBool::new(settings.access.principals() <= 1));
        let owed = Owed::default();
        let sink = sink(hub.clone(), dirty.clone(), metrics.clone(), shares_logs.clone(), owed.clone());
        let member = |settings: ServerSettings| {
            let upstream = Upstream::new(settings, shared.clone(), sink.clone());
            Arc::new(Member { settings: upstream.settings.clone(), upstream })
        };
        let calls = CallLogSwitch::new(settings.calls);
        let servers = settings.servers.into_iter().map(member).collect();
        let generation = Arc::new(Generation {
            disabled: settings.disabled,
            schema: settings.schema,
            ..Generation::new(servers, settings.names, settings.access, settings.views)
        });
        let gateway = Arc::new(Gateway {
            current: ArcSwap::from_pointee(Current::closed(generation.clone())),
            changing: Mutex::default(),
            candidates: change::Candidates::default(),
            learned: Learned::default(),
            inflight: inflight::InFlight::new(generation.access.clone()),
            unrouted: unrouted(&meters),
            shares_logs,
            shared,
            sink,
            hub,
            owed,
            meters,
            metrics,
            dirty,
            drain_ms: AtomicU64::new(drain_ms),
            calls,
            uri_max: AtomicUsize::new(settings.uri_max),
            stopped: AtomicBool::new(false),
        });
        gateway.show_disabled(&generation);
        gateway.current.store(Arc::new(Current::new(&gateway, generation)));
        gateway
    }

    /// Starts to connect every server, all at once, and to keep the catalogue.
    pub fn start(self: &Arc<Self>) {
        for member in self.servers() {
            tokio::spawn(member.upstream.clone().run());
        }
        tokio::spawn(self.clone().keep_catalog());
    }

    /// Waits until every server is connected or has failed once, and is in the catalogue as it is then.
    pub async fn settled(&self) {
        let servers = self.servers();
        let settled = servers.iter().map(|member| async {
            let mut status = member.watch();
            // It cannot end before the server does.
            let _ = status.wait_for(|status| status.state != State::Starting).await;
        });
        futures_util::future::join_all(settled).await;
        self.rebuild();
    }

    /// Serves what an earlier run knew of the servers, until they say it themselves. What is not of use any more is
    /// removed: of servers that are not configured, that were configured otherwise, or older than `longest`.
    pub fn restore(&self, rows: Rows, longest: Duration, store: &Store) {
        let (mut restored, servers) = (0, self.servers());
        for (name, row) in rows {
            let member = servers.iter().find(|member| member.name.as_bytes() == &name[..]);
            if member.is_some_and(|member| member.restore(&row, longest)) {
                restored += 1;
            } else if !member.is_some_and(|member| member.is_misconfigured()) {
                store.remove(Table::Catalog, name);
            }
        }
        if restored > 0 {
            self.rebuild();
        }
    }

    /// Stops every server, all at once, and waits for their ends.
    pub async fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // Who keeps the catalogue ends, and lets go of the gateway.
        self.dirty.notify_one();
        let candidates = self.candidates.give_up_all();
        let servers = self.servers();
        // The endpoints hold the gateway, and it them.
        self.current.store(Arc::new(Current::closed(self.generation())));
        let upstreams = servers.iter().map(|member| &member.upstream).chain(&candidates);
        futures_util::future::join_all(upstreams.map(|upstream| upstream.stop())).await;
    }

    /// Everything that clients can connect to.
    pub fn endpoints(self: &Arc<Self>) -> Endpoints {
        Endpoints { gateway: self.clone() }
    }

    /// The servers, sorted by name.
    pub fn servers(&self) -> Vec<Arc<Member>> {
        self.current.load().generation.servers.clone()
    }

    /// Whether some server has a connection for this session alone.
    pub fn serves_alone(&self, session: &Text) -> bool {
        self.current.load().generation.servers.iter().any(|member| member.serves_alone(session))
    }

    /// The servers that the config switches off.
    pub fn disabled(&self) -> Vec<String> {
        self.current.load().generation.disabled.clone()
    }

    fn show_disabled(&self, generation: &Generation) {
        for name in &generation.disabled {
            self.metrics.server_up.with_label_values(&[name, State::Disabled.name()]).set(1);
        }
    }

    /// The catalogue as it is now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load().generation.snapshot.load_full()
    }

    fn generation(&self) -> Arc<Generation> {
        self.current.load().generation.clone()
    }

    /// The endpoint as it is now, if there still is one and the principal may use it.
    fn view(&self, name: &str, principal: &Principal) -> Option<Arc<View>> {
        let current = self.current.load();
        current.view(name, principal).filter(|(_, allowed)| *allowed).map(|(view, _)| view.clone())
    }

    /// Replaces the snapshot when servers changed, and tells of what differs.
    async fn keep_catalog(self: Arc<Self>) {
        loop {
            self.dirty.notified().await;
            tokio::time::sleep(SETTLE).await;
            if self.stopped.load(Ordering::Acquire) {
                return;
            }
            self.rebuild();
        }
    }

    pub(in crate::gateway) fn rebuild(&self) {
        let _held = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.generation();
        let fresh = Arc::new(self.build(&generation));
        let before = generation.snapshot.swap(fresh.clone());
        self.note_left_out(&before, &fresh);
        // First: who hears of its own change finds those of everybody's lists, too, and needs no second word.
        for (server, owner, kind) in std::mem::take(&mut *self.owed.lock().unwrap_or_else(PoisonError::into_inner)) {
            self.hub.publish(Happened::Own(server, owner, Box::new(Notice::Changed(kind))));
        }
        for kind in Kind::ALL {
            for server in fresh.changed(&before, kind) {
                self.hub.publish(Happened::Changed(server, kind));
            }
        }
    }

    fn build(&self, generation: &Generation) -> Snapshot {
        let mut fresh = Snapshot::build(&generation.servers, &generation.names, &self.meters);
        fresh.findings.extend(schemas::refused(generation, &fresh));
        fresh.findings.extend(filters::unmatched(generation, &fresh));
        fresh.measure(&generation.servers, &self.metrics);
        fresh
    }

    fn note_left_out(&self, before: &Snapshot, fresh: &Snapshot) {
        let known: HashSet<&LeftOut> = before.left_out.iter().collect();
        for left_out in fresh.left_out.iter().filter(|l| !known.contains(l)).take(LEFT_OUT_LOGGED) {
            let (item, reason) = (logs::one_line(&left_out.item), logs::one_line(&left_out.reason));
            tracing::warn!(server = left_out.server, "left out: {item}: {reason}");
        }
        findings::log(&before.findings, &fresh.findings);
    }
}

impl Endpoints {
    /// Calls that are being served: of everybody, and of this principal.
    pub fn in_flight(&self, principal: &Principal) -> (usize, usize) {
        let all = usize::try_from(self.gateway.metrics.inflight.get()).unwrap_or(0);
        (all, self.gateway.inflight.of(principal.id))
    }

    /// Waits until the principal may use nothing any more: its key was removed.
    pub fn revoked(&self, principal: &Principal) -> impl Future<Output = ()> + Send + use<> {
        self.gateway.inflight.revoked(principal.id)
    }

    /// The endpoint of this name (empty: the one over everything), if there is one and the principal may use it.
    pub fn find(&self, name: &str, principal: &Principal) -> Option<Arc<View>> {
        let current = self.gateway.current.load();
        let (view, allowed) = current.view(name, principal)?;
        if !allowed {
            self.gateway.metrics.policy_denied.with_label_values(&["endpoint"]).inc();
            return None;
        }
        Some(view.clone())
    }

    /// Whether there is such an endpoint and the principal may use it.
    pub fn allows(&self, name: &str, principal: &Principal) -> bool {
        self.gateway.view(name, principal).is_some()
    }
}

/// What servers tell. A log message that belongs to no call may be about anybody's: where several principals share the
/// connection that it came on, it is passed on only if there is one principal.
fn sink(hub: Arc<Hub>, dirty: Arc<Notify>, metrics: Arc<Metrics>, shares_logs: Arc<AtomicBool>, owed: Owed) -> Sink {
    Arc::new(move |server, news| match news {
        News::Own(owner, notice) => match *notice {
            Notice::Changed(kind) => {
                owed.lock().unwrap_or_else(PoisonError::into_inner).push((Text::from(server), owner, kind));
                dirty.notify_one();
            }
            Notice::Log(..) if owner.is_of_several() && !shares_logs.load(Ordering::Relaxed) => {
                metrics.dropped.with_label_values(&["log"]).inc();
            }
            other => hub.publish(Happened::Own(Text::from(server), owner, Box::new(other))),
        },
        News::Items => dirty.notify_one(),
        News::Updated(uri, params) => hub.publish(Happened::Updated(Text::from(server), uri, params)),
        News::Elicited(id, params) => hub.publish(Happened::Elicited(Text::from(server), id, params)),
        News::Task(task) => hub.publish(Happened::Task(Text::from(server), task)),
        News::Logged(level, params) if shares_logs.load(Ordering::Relaxed) => {
            hub.publish(Happened::Logged(Text::from(server), level, params))
        }
        News::Logged(..) => metrics.dropped.with_label_values(&["log"]).inc(),
    })
}

/// A meter for each method.
fn unrouted(meters: &Meters) -> HashMap<&'static str, Arc<Meter>> {
    let methods = ["tools/call", "resources/read", "prompts/get", "completion/complete", "_OTHER"];
    let tasks = TaskMethod::ALL.map(TaskMethod::name);
    let lists = Kind::ALL.map(Kind::list_method);
    let all = methods.into_iter().chain(lists).chain(tasks);
    all.map(|method| (method, Arc::new(meters.meter(method, "", "")))).collect()
}

/// The meter of a method's calls that lead to no item.
fn unrouted_label(method: &Method) -> &str {
    method.label()
}
