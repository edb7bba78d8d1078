//! The gateway: an MCP server made of MCP servers.
//!
//! Owns the servers, the catalogue and the endpoints over them. Cannot tell whether its client or a server keeps
//! sessions. Invariant: every answer to a list comes from memory, and every call goes to exactly one server.

mod mcp_apps;
mod catalog;
mod reconfigure;
mod unmatched_rules;
mod findings;
mod generation;
mod task_handles;
mod events;
mod in_flight;
mod rewrite_links;
mod subscription;
mod expose;
mod names;
mod resolve_uri;
mod preview;
mod schemas;
mod tasks;
mod endpoint_union;
mod templates;
mod unlisted_calls;
mod uris;
mod endpoint;
mod call_watch;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::json::ByteString;
use crate::model::{ItemKind, McpMethod, Notification, Principal, TaskMethod};
use crate::policy::{AccessTable, GlobList};
use crate::store::{StateStore, StoreTable, StoredRows};
use crate::telemetry::{CallLog, CallLogSwitch, CallMeter, MeterFactory, Metrics, logs};
use crate::upstream::{
    ConnectionOwner, EventSink, ServerSettings, Upstream, UpstreamContext, UpstreamEvent, UpstreamState,
};

pub use catalog::{ExcludedItem, Snapshot};
pub use endpoint::Endpoint;
pub use findings::{CatalogFinding, FindingTopic};
pub use generation::ServerEntry;
pub use names::NameRules;
pub use preview::{PrincipalChange, ToolAccessChange};
pub use reconfigure::{ReplacementStatus, RestartOutcome};
pub use schemas::SchemaStyle;

use events::{EventBus, GatewayEvent};
use generation::{CurrentGeneration, Generation};
use rewrite_links::LearnedUris;

/// Pure functions on which much depends, for `fuzz/`.
#[doc(hidden)]
pub mod pure {
    pub use super::names::{AssignedName, NameChange, NameRequest, assign};
    pub use super::templates::matches;
    pub use super::uris::{looks_wrapped, unwrap, wrap};
}

/// Items that are logged as left out, of one snapshot; the status shows them all.
const EXCLUDED_LOGGED_MAX: usize = 20;
/// Changes that come within this time make one new snapshot.
const REBUILD_DELAY: Duration = Duration::from_millis(20);

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
    pub call_log: CallLog,
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
    pub tools: GlobList,
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
    current: ArcSwap<CurrentGeneration>,
    /// Held while a catalogue is built and put in place.
    change_lock: Mutex<()>,
    replacements: reconfigure::PendingReplacements,
    shared: Arc<UpstreamContext>,
    sink: EventSink,
    /// Whether log messages that belong to no call are passed on.
    shares_logs: Arc<AtomicBool>,
    events: Arc<EventBus>,
    /// Changes of lists of single clients' connections, to be told with the next catalogue.
    pending_list_changes: PendingListChanges,
    learned_uris: LearnedUris,
    in_flight: in_flight::InFlightCalls,
    meters: MeterFactory,
    metrics: Arc<Metrics>,
    /// What calls without an item of the catalogue are measured by.
    method_meters: HashMap<&'static str, Arc<CallMeter>>,
    catalog_dirty: Arc<Notify>,
    drain_ms: AtomicU64,
    call_log: CallLogSwitch,
    uri_max: AtomicUsize,
    /// No server is started any more.
    stopped: AtomicBool,
}

/// The server, whose connection it was, and what changed.
type PendingListChanges = Arc<Mutex<Vec<(ByteString, ConnectionOwner, ItemKind)>>>;

/// Everything that clients can connect to.
pub struct EndpointDirectory {
    gateway: Arc<Gateway>,
}

impl Gateway {
    /// Builds everything; nothing is connected before [`Gateway::start`].
    pub fn new(settings: GatewaySettings, shared: Arc<UpstreamContext>) -> Arc<Self> {
        let metrics = shared.metrics.clone();
        let (meters, drain_ms) = (MeterFactory(metrics.clone()), settings.drain_ms());
        let (hub, dirty) = (Arc::new(EventBus::default()), Arc::new(Notify::new()));
        let shares_logs = Arc::new(AtomicBool::new(settings.access.principal_count() <= 1));
        let owed = PendingListChanges::default();
        let sink = event_sink(hub.clone(), dirty.clone(), metrics.clone(), shares_logs.clone(), owed.clone());
        let member = |settings: ServerSettings| {
            let upstream = Upstream::new(settings, shared.clone(), sink.clone());
            Arc::new(ServerEntry { settings: upstream.settings.clone(), upstream })
        };
        let calls = CallLogSwitch::new(settings.call_log);
        let servers = settings.servers.into_iter().map(member).collect();
        let generation = Arc::new(Generation {
            disabled: settings.disabled,
            schema: settings.schema,
            ..Generation::new(servers, settings.names, settings.access, settings.views)
        });
        let gateway = Arc::new(Gateway {
            current: ArcSwap::from_pointee(CurrentGeneration::without_endpoints(generation.clone())),
            change_lock: Mutex::default(),
            replacements: reconfigure::PendingReplacements::default(),
            learned_uris: LearnedUris::default(),
            in_flight: in_flight::InFlightCalls::new(generation.access.clone()),
            method_meters: build_method_meters(&meters),
            shares_logs,
            shared,
            sink,
            events: hub,
            pending_list_changes: owed,
            meters,
            metrics,
            catalog_dirty: dirty,
            drain_ms: AtomicU64::new(drain_ms),
            call_log: calls,
            uri_max: AtomicUsize::new(settings.uri_max),
            stopped: AtomicBool::new(false),
        });
        gateway.report_disabled(&generation);
        gateway.current.store(Arc::new(CurrentGeneration::new(&gateway, generation)));
        gateway
    }

    /// Starts to connect every server, all at once, and to keep the catalogue.
    pub fn start(self: &Arc<Self>) {
        for member in self.servers() {
            tokio::spawn(member.upstream.clone().run());
        }
        tokio::spawn(self.clone().maintain_catalog());
    }

    /// Waits until every server is connected or has failed once, and is in the catalogue as it is then.
    pub async fn until_settled(&self) {
        let servers = self.servers();
        let settled = servers.iter().map(|member| async {
            let mut status = member.watch();
            // It cannot end before the server does.
            let _ = status.wait_for(|status| status.state != UpstreamState::Starting).await;
        });
        futures_util::future::join_all(settled).await;
        self.rebuild();
    }

    /// Serves what an earlier run knew of the servers, until they say it themselves. What is not of use any more is
    /// removed: of servers that are not configured, that were configured otherwise, or older than `longest`.
    pub fn restore(&self, rows: StoredRows, longest: Duration, store: &StateStore) {
        let (mut restored, servers) = (0, self.servers());
        for (name, row) in rows {
            let member = servers.iter().find(|member| member.name.as_bytes() == &name[..]);
            if member.is_some_and(|member| member.restore(&row, longest)) {
                restored += 1;
            } else if !member.is_some_and(|member| member.is_misconfigured()) {
                store.remove(StoreTable::Catalog, name);
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
        self.catalog_dirty.notify_one();
        let candidates = self.replacements.take_all();
        let servers = self.servers();
        // The endpoints hold the gateway, and it them.
        self.current.store(Arc::new(CurrentGeneration::without_endpoints(self.generation())));
        let upstreams = servers.iter().map(|member| &member.upstream).chain(&candidates);
        futures_util::future::join_all(upstreams.map(|upstream| upstream.stop())).await;
    }

    /// Everything that clients can connect to.
    pub fn endpoints(self: &Arc<Self>) -> EndpointDirectory {
        EndpointDirectory { gateway: self.clone() }
    }

    /// The servers, sorted by name.
    pub fn servers(&self) -> Vec<Arc<ServerEntry>> {
        self.current.load().generation.servers.clone()
    }

    /// Whether some server has a connection for this session alone.
    pub fn has_dedicated_connection(&self, session: &ByteString) -> bool {
        self.current.load().generation.servers.iter().any(|member| member.has_dedicated(session))
    }

    /// The servers that the config switches off.
    pub fn disabled(&self) -> Vec<String> {
        self.current.load().generation.disabled.clone()
    }

    fn report_disabled(&self, generation: &Generation) {
        for name in &generation.disabled {
            self.metrics.server_up.with_label_values(&[name, UpstreamState::Disabled.name()]).set(1);
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
    fn endpoint(&self, name: &str, principal: &Principal) -> Option<Arc<Endpoint>> {
        let current = self.current.load();
        current.endpoint(name, principal).filter(|(_, allowed)| *allowed).map(|(view, _)| view.clone())
    }

    /// Replaces the snapshot when servers changed, and tells of what differs.
    async fn maintain_catalog(self: Arc<Self>) {
        loop {
            self.catalog_dirty.notified().await;
            tokio::time::sleep(REBUILD_DELAY).await;
            if self.stopped.load(Ordering::Acquire) {
                return;
            }
            self.rebuild();
        }
    }

    pub(in crate::gateway) fn rebuild(&self) {
        let _held = self.change_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.generation();
        let fresh = Arc::new(self.build(&generation));
        let before = generation.snapshot.swap(fresh.clone());
        self.log_excluded(&before, &fresh);
        // First: who hears of its own change finds those of everybody's lists, too, and needs no second word.
        for (server, owner, kind) in
            std::mem::take(&mut *self.pending_list_changes.lock().unwrap_or_else(PoisonError::into_inner))
        {
            self.events.publish(GatewayEvent::FromDedicatedConnection(
                server,
                owner,
                Box::new(Notification::ListChanged(kind)),
            ));
        }
        for kind in ItemKind::ALL {
            for server in fresh.changed_servers(&before, kind) {
                self.events.publish(GatewayEvent::ListChanged(server, kind));
            }
        }
    }

    fn build(&self, generation: &Generation) -> Snapshot {
        let mut fresh = Snapshot::build(&generation.servers, &generation.names, &self.meters);
        fresh.findings.extend(schemas::refused_tools(generation, &fresh));
        fresh.findings.extend(unmatched_rules::unmatched(generation, &fresh));
        fresh.record_metrics(&generation.servers, &self.metrics);
        fresh
    }

    fn log_excluded(&self, before: &Snapshot, fresh: &Snapshot) {
        let known: HashSet<&ExcludedItem> = before.excluded.iter().collect();
        for left_out in fresh.excluded.iter().filter(|l| !known.contains(l)).take(EXCLUDED_LOGGED_MAX) {
            let (item, reason) = (logs::one_line(&left_out.item), logs::one_line(&left_out.reason));
            tracing::warn!(server = left_out.server, "left out: {item}: {reason}");
        }
        findings::log_new_findings(&before.findings, &fresh.findings);
    }
}

impl EndpointDirectory {
    /// Calls that are being served: of everybody, and of this principal.
    pub fn in_flight(&self, principal: &Principal) -> (usize, usize) {
        let all = usize::try_from(self.gateway.metrics.inflight.get()).unwrap_or(0);
        (all, self.gateway.in_flight.count_of(principal.id))
    }

    /// Waits until the principal may use nothing any more: its key was removed.
    pub fn until_revoked(&self, principal: &Principal) -> impl Future<Output = ()> + Send + use<> {
        self.gateway.in_flight.until_revoked(principal.id)
    }

    /// The endpoint of this name (empty: the one over everything), if there is one and the principal may use it.
    pub fn find_endpoint(&self, name: &str, principal: &Principal) -> Option<Arc<Endpoint>> {
        let current = self.gateway.current.load();
        let (view, allowed) = current.endpoint(name, principal)?;
        if !allowed {
            self.gateway.metrics.policy_denied.with_label_values(&["endpoint"]).inc();
            return None;
        }
        Some(view.clone())
    }

    /// Whether there is such an endpoint and the principal may use it.
    pub fn allows(&self, name: &str, principal: &Principal) -> bool {
        self.gateway.endpoint(name, principal).is_some()
    }
}

/// What servers tell. A log message that belongs to no call may be about anybody's: where several principals share the
/// connection that it came on, it is passed on only if there is one principal.
fn event_sink(
    hub: Arc<EventBus>,
    dirty: Arc<Notify>,
    metrics: Arc<Metrics>,
    shares_logs: Arc<AtomicBool>,
    owed: PendingListChanges,
) -> EventSink {
    Arc::new(move |server, news| match news {
        UpstreamEvent::ToOwner(owner, notice) => match *notice {
            Notification::ListChanged(kind) => {
                owed.lock().unwrap_or_else(PoisonError::into_inner).push((ByteString::from(server), owner, kind));
                dirty.notify_one();
            }
            Notification::Log(..) if owner.spans_principals() && !shares_logs.load(Ordering::Relaxed) => {
                metrics.dropped.with_label_values(&["log"]).inc();
            }
            other => {
                hub.publish(GatewayEvent::FromDedicatedConnection(ByteString::from(server), owner, Box::new(other)))
            }
        },
        UpstreamEvent::ListsChanged => dirty.notify_one(),
        UpstreamEvent::ResourceUpdated(uri, params) => {
            hub.publish(GatewayEvent::ResourceUpdated(ByteString::from(server), uri, params))
        }
        UpstreamEvent::ElicitationCompleted(id, params) => {
            hub.publish(GatewayEvent::ElicitationCompleted(ByteString::from(server), id, params))
        }
        UpstreamEvent::Task(task) => hub.publish(GatewayEvent::TaskChanged(ByteString::from(server), task)),
        UpstreamEvent::Logged(level, params) if shares_logs.load(Ordering::Relaxed) => {
            hub.publish(GatewayEvent::LogMessage(ByteString::from(server), level, params))
        }
        UpstreamEvent::Logged(..) => metrics.dropped.with_label_values(&["log"]).inc(),
    })
}

/// A meter for each method.
fn build_method_meters(meters: &MeterFactory) -> HashMap<&'static str, Arc<CallMeter>> {
    let methods = ["tools/call", "resources/read", "prompts/get", "completion/complete", "_OTHER"];
    let tasks = TaskMethod::ALL.map(TaskMethod::name);
    let lists = ItemKind::ALL.map(ItemKind::list_method);
    let all = methods.into_iter().chain(lists).chain(tasks);
    all.map(|method| (method, Arc::new(meters.meter(method, "", "")))).collect()
}

/// The meter of a method's calls that lead to no item.
fn method_label(method: &McpMethod) -> &str {
    method.label()
}
