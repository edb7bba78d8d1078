//! Gateway: an MCP server made of MCP servers.
//!
//! Owns the servers, the catalogue and the endpoints over them. Does not know whether its client or a server keeps
//! sessions. Invariant: every list of items comes from memory, and every other call goes to one server at most.

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

/// Maximum number of excluded items logged for one snapshot. The status shows them all.
const EXCLUDED_LOGGED_MAX: usize = 20;
/// Time within which changes make one new snapshot.
const REBUILD_DELAY: Duration = Duration::from_millis(20);

/// Settings of the gateway.
pub struct GatewaySettings {
    /// Rules of exposed names.
    pub names: NameRules,
    /// Settings of each server.
    pub servers: Vec<ServerSettings>,
    /// Names of servers that the config disables.
    pub disabled: Vec<String>,
    /// Named subsets.
    pub views: Vec<ViewRules>,
    /// Access of each principal.
    pub access: AccessTable,
    /// Time that the calls of a removed server may still take.
    pub drain: Duration,
    /// Calls that are recorded.
    pub call_log: CallLog,
    /// Longest URI that is looked up, in bytes.
    pub uri_max: usize,
    /// Style of tools' input schemas, unless a view has its own.
    pub schema: SchemaStyle,
}

/// Named subset of servers and tools.
#[derive(Clone, Debug)]
pub struct ViewRules {
    /// Name in the path.
    pub name: String,
    /// Servers of the view. `None`: all.
    pub servers: Option<Vec<String>>,
    /// Tools, by exposed name.
    pub tools: GlobList,
    /// Style of tools' input schemas. `None`: the general one.
    pub schema: Option<SchemaStyle>,
}

impl ViewRules {
    fn includes(&self, server: &str) -> bool {
        self.servers.as_ref().is_none_or(|names| names.iter().any(|name| name == server))
    }
}

/// Servers, catalogue and events behind the endpoints.
pub struct Gateway {
    current: ArcSwap<CurrentGeneration>,
    /// Held while a catalogue is built and published.
    change_lock: Mutex<()>,
    replacements: reconfigure::PendingReplacements,
    shared: Arc<UpstreamContext>,
    sink: EventSink,
    /// True if log messages that belong to no call are forwarded.
    shares_logs: Arc<AtomicBool>,
    events: Arc<EventBus>,
    /// List changes on single clients' connections, published with the next catalogue.
    pending_list_changes: PendingListChanges,
    learned_uris: LearnedUris,
    in_flight: in_flight::InFlightCalls,
    meters: MeterFactory,
    metrics: Arc<Metrics>,
    /// Meters of calls without an item of the catalogue.
    method_meters: HashMap<&'static str, Arc<CallMeter>>,
    catalog_dirty: Arc<Notify>,
    drain_ms: AtomicU64,
    call_log: CallLogSwitch,
    uri_max: AtomicUsize,
    /// True once no server may be started any more.
    stopped: AtomicBool,
}

/// Server, owner of the connection, and the list that changed.
type PendingListChanges = Arc<Mutex<Vec<(ByteString, ConnectionOwner, ItemKind)>>>;

/// Directory of the endpoints that clients can connect to.
pub struct EndpointDirectory {
    gateway: Arc<Gateway>,
}

impl Gateway {
    /// Builds the gateway. Connects nothing before [`Gateway::start`].
    pub fn new(settings: GatewaySettings, shared: Arc<UpstreamContext>) -> Arc<Self> {
        let metrics = shared.metrics.clone();
        let (meters, drain_ms) = (MeterFactory(metrics.clone()), settings.drain_ms());
        let (hub, dirty) = (Arc::new(EventBus::default()), Arc::new(Notify::new()));
        // A lone principal may see every message, since each can only be about its own calls.
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

    /// Starts to connect every server at once, and to maintain the catalogue.
    pub fn start(self: &Arc<Self>) {
        for member in self.servers() {
            tokio::spawn(member.upstream.clone().run());
        }
        tokio::spawn(self.clone().maintain_catalog());
    }

    /// Waits until every server is connected or has failed once, and is in the catalogue.
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

    /// Restores the lists of the previous process, until the servers list themselves. Removes rows of servers that are
    /// not configured or changed, and rows older than `longest`.
    pub fn restore(&self, rows: StoredRows, longest: Duration, store: &StateStore) {
        let (mut restored, servers) = (0, self.servers());
        for (name, row) in rows {
            // A misconfigured server keeps its row, since its config may be repaired.
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

    /// Stops every server at once, and waits for their ends.
    pub async fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // The task that maintains the catalogue ends, and releases the gateway.
        self.catalog_dirty.notify_one();
        let candidates = self.replacements.take_all();
        let servers = self.servers();
        // The endpoints hold the gateway, and the gateway holds them: this breaks the cycle.
        self.current.store(Arc::new(CurrentGeneration::without_endpoints(self.generation())));
        let upstreams = servers.iter().map(|member| &member.upstream).chain(&candidates);
        futures_util::future::join_all(upstreams.map(|upstream| upstream.stop())).await;
    }

    /// Returns the directory of endpoints.
    pub fn endpoints(self: &Arc<Self>) -> EndpointDirectory {
        EndpointDirectory { gateway: self.clone() }
    }

    /// Returns the servers, sorted by name.
    pub fn servers(&self) -> Vec<Arc<ServerEntry>> {
        self.current.load().generation.servers.clone()
    }

    /// Returns true if some server has a dedicated connection for this session.
    pub fn has_dedicated_connection(&self, session: &ByteString) -> bool {
        self.current.load().generation.servers.iter().any(|member| member.has_dedicated(session))
    }

    /// Returns the servers that the config disables.
    pub fn disabled(&self) -> Vec<String> {
        self.current.load().generation.disabled.clone()
    }

    fn report_disabled(&self, generation: &Generation) {
        for name in &generation.disabled {
            self.metrics.server_up.with_label_values(&[name, UpstreamState::Disabled.name()]).set(1);
        }
    }

    /// Returns the current catalogue.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load().generation.snapshot.load_full()
    }

    fn generation(&self) -> Arc<Generation> {
        self.current.load().generation.clone()
    }

    /// Returns the current endpoint, if there still is one and the principal may use it.
    fn endpoint(&self, name: &str, principal: &Principal) -> Option<Arc<Endpoint>> {
        let current = self.current.load();
        current.endpoint(name, principal).filter(|(_, allowed)| *allowed).map(|(view, _)| view.clone())
    }

    /// Replaces the snapshot when servers changed, and publishes the differences.
    async fn maintain_catalog(self: Arc<Self>) {
        loop {
            self.catalog_dirty.notified().await;
            // Servers often change several lists at once: one snapshot takes them all.
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
        // Published first: a subscriber that gets its own change then compares all lists, and needs no second event.
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
    /// Counts the calls that are being served: of all principals, and of this one.
    pub fn in_flight(&self, principal: &Principal) -> (usize, usize) {
        let all = usize::try_from(self.gateway.metrics.inflight.get()).unwrap_or(0);
        (all, self.gateway.in_flight.count_of(principal.id))
    }

    /// Waits until the principal may use nothing any more, because its key was removed.
    pub fn until_revoked(&self, principal: &Principal) -> impl Future<Output = ()> + Send + use<> {
        self.gateway.in_flight.until_revoked(principal.id)
    }

    /// Finds an endpoint by name, if the principal may use it. The empty name is the endpoint over everything.
    pub fn find_endpoint(&self, name: &str, principal: &Principal) -> Option<Arc<Endpoint>> {
        let current = self.gateway.current.load();
        let (view, allowed) = current.endpoint(name, principal)?;
        if !allowed {
            self.gateway.metrics.policy_denied.with_label_values(&["endpoint"]).inc();
            return None;
        }
        Some(view.clone())
    }

    /// Returns true if there is such an endpoint and the principal may use it.
    pub fn allows(&self, name: &str, principal: &Principal) -> bool {
        self.gateway.endpoint(name, principal).is_some()
    }
}

/// Creates the sink for the events of servers. A log message that belongs to no call may be about any principal. Where
/// several share its connection, it is forwarded only if there is one principal.
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

/// Builds a meter for each method.
fn build_method_meters(meters: &MeterFactory) -> HashMap<&'static str, Arc<CallMeter>> {
    let methods = ["tools/call", "resources/read", "prompts/get", "completion/complete", "_OTHER"];
    let tasks = TaskMethod::ALL.map(TaskMethod::name);
    let lists = ItemKind::ALL.map(ItemKind::list_method);
    let all = methods.into_iter().chain(lists).chain(tasks);
    all.map(|method| (method, Arc::new(meters.meter(method, "", "")))).collect()
}

/// Returns the meter label for a method's calls without an item.
fn method_label(method: &McpMethod) -> &str {
    method.label()
}
