//! The gateway: an MCP server made of MCP servers.
//!
//! Owns the servers, the catalogue and the endpoints over them. Cannot tell whether its client or a server keeps
//! sessions. Invariant: every answer to a list comes from memory, and every call goes to exactly one server.

mod apps;
mod catalog;
mod handles;
mod hub;
mod inflight;
mod links;
mod merge;
mod names;
mod tasks;
mod uris;
mod view;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::json::Text;
use crate::model::{Kind, Method, Principal, TaskMethod};
use crate::policy::{AccessTable, Globs};
use crate::store::{Rows, Store, Table};
use crate::telemetry::{Meter, Meters, Metrics, logs};
use crate::upstream::{News, ServerSettings, Shared, Sink, State, Upstream};

pub use catalog::{LeftOut, Snapshot};
pub use names::NameRules;
pub use view::View;

/// Pure functions on which much depends, for `fuzz/`.
#[doc(hidden)]
pub mod pure {
    pub use super::names::{Wanting, assign};
    pub use super::uris::{looks_wrapped, matches, unwrap, wrap};
}

use hub::{Happened, Hub};
use links::Learned;

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
    /// Named subsets.
    pub views: Vec<ViewRules>,
    /// What each principal may do.
    pub access: AccessTable,
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
}

/// Everything behind the endpoints.
pub struct Gateway {
    servers: Vec<Arc<Upstream>>,
    names: NameRules,
    access: AccessTable,
    snapshot: ArcSwap<Snapshot>,
    hub: Arc<Hub>,
    learned: Learned,
    inflight: inflight::InFlight,
    meters: Meters,
    metrics: Arc<Metrics>,
    /// What calls without an item of the catalogue are measured by.
    unrouted: HashMap<&'static str, Arc<Meter>>,
    views: HashMap<String, view::Scope>,
    dirty: Arc<Notify>,
}

/// Everything that clients can connect to, made once.
pub struct Endpoints {
    gateway: Arc<Gateway>,
    views: HashMap<String, Arc<View>>,
}

impl Gateway {
    /// Builds everything; nothing is connected before [`Gateway::start`].
    pub fn new(settings: GatewaySettings, shared: Arc<Shared>) -> Arc<Self> {
        let metrics = shared.metrics.clone();
        let meters = Meters(metrics.clone());
        let (hub, dirty) = (Arc::new(Hub::default()), Arc::new(Notify::new()));
        let sink = sink(hub.clone(), dirty.clone(), metrics.clone(), settings.access.principals() <= 1);
        let mut servers: Vec<Arc<Upstream>> =
            settings.servers.into_iter().map(|server| Upstream::new(server, shared.clone(), sink.clone())).collect();
        servers.sort_by(|a, b| a.settings.name.cmp(&b.settings.name));
        let mut views: HashMap<String, view::Scope> =
            servers.iter().map(|s| (s.settings.name.clone(), view::Scope::Server(s.clone()))).collect();
        views.extend(settings.views.into_iter().map(|v| (v.name.clone(), view::Scope::View(Arc::new(v)))));
        views.insert(String::new(), view::Scope::All);
        Arc::new(Gateway {
            names: settings.names,
            access: settings.access,
            snapshot: ArcSwap::default(),
            learned: Learned::default(),
            inflight: inflight::InFlight::default(),
            unrouted: unrouted(&meters),
            servers,
            hub,
            meters,
            metrics,
            views,
            dirty,
        })
    }

    /// Starts to connect every server, all at once, and to keep the catalogue.
    pub fn start(self: &Arc<Self>) {
        for upstream in &self.servers {
            tokio::spawn(upstream.clone().run());
        }
        tokio::spawn(self.clone().keep_catalog());
    }

    /// Waits until every server is connected or has failed once, and is in the catalogue as it is then.
    pub async fn settled(&self) {
        let settled = self.servers.iter().map(|upstream| async {
            let mut status = upstream.watch();
            // It cannot end before the server does.
            let _ = status.wait_for(|status| status.state != State::Starting).await;
        });
        futures_util::future::join_all(settled).await;
        self.rebuild();
    }

    /// Serves what an earlier run knew of the servers, until they say it themselves. What is not of use any more is
    /// removed: of servers that are not configured, that were configured otherwise, or older than `longest`.
    pub fn restore(&self, rows: Rows, longest: Duration, store: &Store) {
        let mut restored = 0;
        for (name, row) in rows {
            let upstream = self.servers.iter().find(|upstream| upstream.name.as_bytes() == &name[..]);
            if upstream.is_some_and(|upstream| upstream.restore(&row, longest)) {
                restored += 1;
            } else {
                store.remove(Table::Catalog, name);
            }
        }
        if restored > 0 {
            self.rebuild();
        }
    }

    /// Stops every server, all at once, and waits for their ends.
    pub async fn stop(&self) {
        futures_util::future::join_all(self.servers.iter().map(|upstream| upstream.stop())).await;
    }

    /// Everything that clients can connect to.
    pub fn endpoints(self: &Arc<Self>) -> Endpoints {
        let view = |(name, scope): (&String, &view::Scope)| {
            (name.clone(), Arc::new(View::new(self.clone(), scope.clone(), Text::from(name.as_str()))))
        };
        Endpoints { gateway: self.clone(), views: self.views.iter().map(view).collect() }
    }

    /// The servers, sorted by name.
    pub fn servers(&self) -> &[Arc<Upstream>] {
        &self.servers
    }

    /// The catalogue as it is now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Replaces the snapshot when servers changed, and tells of what differs.
    async fn keep_catalog(self: Arc<Self>) {
        loop {
            self.dirty.notified().await;
            tokio::time::sleep(SETTLE).await;
            self.rebuild();
        }
    }

    fn rebuild(&self) {
        let fresh = Arc::new(Snapshot::build(&self.servers, &self.names, &self.meters));
        let before = self.snapshot.swap(fresh.clone());
        fresh.measure(&self.servers, &self.metrics);
        let known: HashSet<&LeftOut> = before.left_out.iter().collect();
        for left_out in fresh.left_out.iter().filter(|l| !known.contains(l)).take(LEFT_OUT_LOGGED) {
            let (item, reason) = (logs::one_line(&left_out.item), logs::one_line(&left_out.reason));
            tracing::warn!(server = left_out.server, "left out: {item}: {reason}");
        }
        for kind in Kind::ALL {
            for server in fresh.changed(&before, kind) {
                self.hub.publish(Happened::Changed(server, kind));
            }
        }
    }
}

impl Endpoints {
    /// Calls that are being served: of everybody, and of this principal.
    pub fn in_flight(&self, principal: &Principal) -> (usize, usize) {
        let all = usize::try_from(self.gateway.metrics.inflight.get()).unwrap_or(0);
        (all, self.gateway.inflight.of(principal.id))
    }

    /// The endpoint of this name (empty: the one over everything), if there is one and the principal may use it.
    pub fn find(&self, name: &str, principal: &Principal) -> Option<Arc<View>> {
        let view = self.views.get(name)?;
        if !self.gateway.access.endpoint(principal, name) {
            self.gateway.metrics.policy_denied.with_label_values(&["endpoint"]).inc();
            return None;
        }
        Some(view.clone())
    }
}

/// What servers tell. A log message that belongs to no call may be about anybody's: it is passed on only where there
/// is one principal.
fn sink(hub: Arc<Hub>, dirty: Arc<Notify>, metrics: Arc<Metrics>, shares_logs: bool) -> Sink {
    Arc::new(move |server, news| match news {
        News::Items => dirty.notify_one(),
        News::Updated(uri, params) => hub.publish(Happened::Updated(Text::from(server), uri, params)),
        News::Elicited(id, params) => hub.publish(Happened::Elicited(Text::from(server), id, params)),
        News::Task(task) => hub.publish(Happened::Task(Text::from(server), task)),
        News::Logged(level, params) if shares_logs => hub.publish(Happened::Logged(Text::from(server), level, params)),
        News::Logged(..) => metrics.dropped.with_label_values(&["log"]).inc(),
    })
}

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
