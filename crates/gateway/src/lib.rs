//! Gateway: an MCP server made of MCP servers.
//!
//! Owns the servers, the catalogue and the endpoints over them. Does not know whether its client or
//! a server keeps sessions. Invariant: every list of items comes from memory, and every other call
//! goes to one server at most.

mod build_catalog;
mod call_route;
mod call_watch;
mod catalog;
mod catalog_route;
mod current_generation;
mod decision;
mod endpoint;
mod endpoint_context;
mod endpoint_coverage;
mod endpoint_lists;
mod endpoint_scope;
mod endpoint_server;
mod event_sink;
mod events;
mod explain;
mod explained_caller;
mod explained_item;
mod explained_rules;
mod expose;
mod extensions;
mod findings;
mod generation;
mod in_flight;
mod mcp_apps;
mod names;
mod output_fit;
mod pending_replacements;
mod permitted;
mod preview;
mod recent_calls;
mod reconfigure;
mod resolve_call;
mod resolve_uri;
mod rewrite_links;
mod running_server;
mod schema_findings;
mod schemas;
mod search_mode;
mod selected_item;
mod settings;
mod start_call;
mod subscription;
mod task_handles;
mod tasks;
mod templates;
#[cfg(test)]
mod testing;
mod translate_event;
mod unlisted_calls;
mod unmatched_rules;
mod uris;
mod visible_servers;

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::current_generation::CurrentGeneration;
use crate::endpoint::EndpointHost;
use crate::endpoint_context::{EndpointContext, build_method_meters};
use crate::endpoint_scope::EndpointScope;
use crate::event_sink::GatewaySink;
use crate::events::{EventBus, GatewayEvent};
use crate::generation::Generation;
use crate::in_flight::InFlightCalls;
use crate::output_fit::TaskOutputs;
use crate::pending_replacements::PendingReplacements;
use crate::rewrite_links::LearnedUris;
use crate::search_mode::item_index::ItemIndexes;
use moongate_access::auth::PrincipalTable;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{ItemKind, Notification, Principal, UpstreamState};
use moongate_session::store::{StateStore, StoreTable, StoredRows};
use moongate_telemetry::{CallLogSwitch, DeniedRule, MeterFactory, ServerStateName, logs};
use moongate_upstream::{Audience, EventSink, Upstream, UpstreamEvent, UpstreamRuntime};

pub use catalog::{Snapshot, estimate_tokens};
pub use catalog_route::{CatalogRoute, ItemForm};
pub use endpoint::Endpoint;
pub use endpoint_coverage::EndpointCoverage;
pub use explained_caller::{NamedThing, UnclearName};
pub use explained_rules::remedy;
pub use findings::{CatalogFinding, FindingTopic};
pub use names::NameRules;
pub use recent_calls::{CallFacts, CallResult, RecentCall, RecentCalls};
pub use reconfigure::{ReplacementStatus, RestartOutcome};
pub use running_server::RunningServer;
pub use schemas::SchemaStyle;
pub use search_mode::operator_search::{FoundTool, FoundTools, SearchModeList};
pub use selected_item::ExcludedItem;
pub use settings::{DisabledServer, GatewaySettings, SearchRules, ViewRules};

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

/// Servers, catalogue and events behind the endpoints.
pub struct Gateway {
    context: Arc<EndpointContext>,
    current: ArcSwap<CurrentGeneration>,
    /// Held while a catalogue is built and published.
    change_lock: Mutex<()>,
    replacements: PendingReplacements,
    sink: Arc<GatewaySink>,
    meters: MeterFactory,
    drain_ms: AtomicU64,
    /// True once no server may be started any more.
    stopped: AtomicBool,
}

/// Directory of the endpoints that clients can connect to.
pub struct EndpointDirectory {
    gateway: Arc<Gateway>,
}

impl Gateway {
    /// Builds the gateway for these principals. Connects nothing before [`Gateway::start`].
    pub fn new(
        settings: GatewaySettings,
        principals: Arc<PrincipalTable>,
        shared: Arc<UpstreamRuntime>,
    ) -> Arc<Self> {
        let metrics = shared.metrics.clone();
        let meters = MeterFactory::new(metrics.clone());
        let drain_ms = settings.drain_ms();
        let events = Arc::new(EventBus::default());
        let sink = GatewaySink::new(events.clone(), metrics.clone(), principals.clone());
        let calls = CallLogSwitch::new(settings.call_log);
        let servers = settings.servers.into_iter().map(|settings| {
            let upstream = Upstream::new(settings, shared.clone(), sink.clone());
            Arc::new(RunningServer {
                settings: upstream.settings.clone(),
                upstream,
            })
        });
        let generation = Arc::new(Generation {
            disabled: settings.disabled,
            schema: settings.schema,
            search: settings.search,
            ..Generation::new(
                servers.collect(),
                settings.names,
                settings.access,
                settings.views,
            )
        });
        let context = Arc::new(EndpointContext {
            upstreams: shared,
            events,
            learned_uris: LearnedUris::default(),
            task_outputs: TaskOutputs::default(),
            in_flight: InFlightCalls::new(principals.clone()),
            principals,
            method_meters: build_method_meters(&meters),
            metrics,
            call_log: calls,
            recent_calls: RecentCalls::new(settings.recent_calls),
            item_indexes: ItemIndexes::default(),
            uri_max: AtomicUsize::new(settings.uri_max),
        });
        let gateway = Arc::new(Gateway {
            context,
            current: ArcSwap::from_pointee(CurrentGeneration::without_endpoints(
                generation.clone(),
            )),
            change_lock: Mutex::default(),
            replacements: PendingReplacements::default(),
            sink,
            meters,
            drain_ms: AtomicU64::new(drain_ms),
            stopped: AtomicBool::new(false),
        });
        gateway.report_disabled(&generation);
        gateway.current.store(Arc::new(CurrentGeneration::new(
            &gateway.host(),
            generation,
        )));
        gateway
    }

    /// Starts to connect every server at once, and to maintain the catalogue.
    pub fn start(self: &Arc<Self>) {
        for entry in self.servers() {
            // A task for each, so that a slow server delays no other.
            tokio::spawn(entry.upstream.clone().run());
        }
        tokio::spawn(self.clone().maintain_catalog());
    }

    /// Waits until every server is connected or has failed once, and is in the catalogue.
    pub async fn until_settled(&self) {
        let servers = self.servers();
        let settled = servers.iter().map(|entry| async {
            let mut status = entry.watch();
            // It cannot end before the server does.
            let _ = status
                .wait_for(|status| status.state != UpstreamState::Starting)
                .await;
        });
        futures_util::future::join_all(settled).await;
        self.rebuild_catalog();
    }

    /// Waits like [`Gateway::until_settled`], but not for servers that were slow at the last start.
    pub async fn until_mostly_settled(&self) {
        let servers = self.servers();
        let settled = servers.iter().map(|entry| async {
            let mut status = entry.watch();
            // It cannot end before the server does.
            let _ = status
                .wait_for(|status| status.state != UpstreamState::Starting || status.was_slow)
                .await;
        });
        futures_util::future::join_all(settled).await;
        self.rebuild_catalog();
    }

    /// Restores which servers were slow at the last start.
    pub fn restore_slow_starts(&self, rows: StoredRows, store: &StateStore) {
        let servers = self.servers();
        for (name, row) in rows {
            let entry = servers
                .iter()
                .find(|entry| entry.name.as_bytes() == &name[..]);
            if !entry
                .is_some_and(|entry| entry.restore_slow_start(&row) || entry.is_misconfigured())
            {
                store.remove(StoreTable::SlowStarts, name);
            }
        }
    }

    /// Restores the lists of the previous process, until the servers list themselves. Removes rows
    /// of servers that are not configured or changed, and rows older than `longest`.
    pub fn restore(&self, rows: StoredRows, longest: Duration, store: &StateStore) {
        let mut restored = 0;
        let servers = self.servers();
        for (name, row) in rows {
            // A misconfigured server keeps its row, since its config may be repaired.
            let entry = servers
                .iter()
                .find(|entry| entry.name.as_bytes() == &name[..]);
            if entry.is_some_and(|entry| entry.restore(&row, longest)) {
                restored += 1;
            } else if !entry.is_some_and(|entry| entry.is_misconfigured()) {
                store.remove(StoreTable::Catalog, name);
            }
        }
        if restored > 0 {
            self.rebuild_catalog();
        }
    }

    /// Stops every server at once, and waits for their ends.
    pub async fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // The task that maintains the catalogue ends, and releases the gateway.
        self.sink.lists_changed();
        let candidates = self.replacements.take_all();
        let servers = self.servers();
        // The endpoints hold the gateway, and the gateway holds them: this breaks the cycle.
        self.current
            .store(Arc::new(CurrentGeneration::without_endpoints(
                self.generation(),
            )));
        let upstreams = servers
            .iter()
            .map(|entry| &entry.upstream)
            .chain(&candidates);
        futures_util::future::join_all(upstreams.map(|upstream| upstream.stop())).await;
    }

    /// Returns the directory of endpoints.
    pub fn endpoints(self: &Arc<Self>) -> EndpointDirectory {
        EndpointDirectory {
            gateway: self.clone(),
        }
    }

    /// Returns the servers, sorted by name.
    pub fn servers(&self) -> Vec<Arc<RunningServer>> {
        self.current.load().generation.servers.clone()
    }

    /// Returns true if some server has a dedicated connection for this session.
    pub fn has_dedicated_connection(&self, session: &ByteString) -> bool {
        self.current
            .load()
            .generation
            .servers
            .iter()
            .any(|entry| entry.has_dedicated(session))
    }

    /// Returns the recent calls of all clients.
    pub fn recent_calls(&self) -> &RecentCalls {
        &self.context.recent_calls
    }

    /// Returns the servers that the config disables.
    pub fn disabled(&self) -> Vec<DisabledServer> {
        self.current.load().generation.disabled.clone()
    }

    fn report_disabled(&self, generation: &Generation) {
        for DisabledServer { name, .. } in &generation.disabled {
            self.context
                .metrics
                .servers
                .up
                .series((name, ServerStateName(UpstreamState::Disabled.name())))
                .set(1);
        }
    }

    /// Returns the current catalogue.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load().generation.snapshot.load_full()
    }

    /// Returns the exposed name that a tool of a server would have if it were switched on, without
    /// other tools.
    pub fn expected_name(&self, server: &RunningServer, local: &ByteString) -> ByteString {
        self.generation().expected_name(server, local)
    }

    /// Returns what the exposed names of a prefix start with: the prefix and the separator.
    pub fn name_beginning(&self, prefix: &str) -> Option<String> {
        self.generation().names.beginning(prefix)
    }

    fn generation(&self) -> Arc<Generation> {
        self.current.load().generation.clone()
    }

    /// Returns an endpoint over one server, for operators. Returns `None` for a server that is off
    /// or unknown.
    pub fn operator_endpoint(self: &Arc<Self>, server: &str) -> Option<Endpoint> {
        let generation = self.generation();
        let scope = EndpointScope::Server(generation.find_server(server)?.clone());
        Some(Endpoint::new(
            self.host(),
            generation,
            scope,
            ByteString::from(server),
        ))
    }

    /// Returns the gateway as its endpoints see it.
    fn host(self: &Arc<Self>) -> Arc<dyn EndpointHost> {
        self.clone()
    }

    /// Returns the current endpoint, if there still is one and the principal may use it.
    fn find_allowed(&self, name: &str, principal: &Principal) -> Option<Arc<Endpoint>> {
        let current = self.current.load();
        current
            .endpoint(name, principal)
            .filter(|(_, allowed)| *allowed)
            .map(|(endpoint, _)| endpoint.clone())
    }

    /// Replaces the snapshot when servers changed, and publishes the differences.
    async fn maintain_catalog(self: Arc<Self>) {
        loop {
            self.sink.until_catalog_dirty().await;
            // Servers often change several lists at once: one snapshot takes them all.
            tokio::time::sleep(REBUILD_DELAY).await;
            if self.stopped.load(Ordering::Acquire) {
                return;
            }
            self.rebuild_catalog();
        }
    }

    fn rebuild_catalog(&self) {
        // Without it, of two builds at once the older could be published last.
        let _held = self.change_lock.lock();
        let generation = self.generation();
        // Read first: what is signalled during the build waits for the next one.
        let signalled = self.sink.signalled_changes();
        let snapshot = Arc::new(self.build(&generation));
        // Swapped before the events: a client that lists at once must get the new list.
        let before = generation.snapshot.swap(snapshot.clone());
        self.sink.mark_built(signalled);
        self.log_excluded(&before, &snapshot);
        // Published first: a subscriber that gets its own change then compares all lists, and needs
        // no second event.
        for event in self.sink.take_list_changes() {
            self.context.events.publish(GatewayEvent::FromServer(event));
        }
        for kind in ItemKind::ALL {
            let notification = Notification::ListChanged(kind);
            for server in snapshot.changed_servers(&before, kind) {
                let audience = Audience::Everyone;
                let notification = notification.clone();
                let event = UpstreamEvent {
                    server,
                    audience,
                    notification,
                };
                self.context.events.publish(GatewayEvent::FromServer(event));
            }
        }
    }

    fn build(&self, generation: &Generation) -> Snapshot {
        let mut snapshot = Snapshot::build(&generation.servers, &generation.names, &self.meters);
        snapshot
            .findings
            .extend(schema_findings::refused_tools(generation, &snapshot));
        snapshot
            .findings
            .extend(unmatched_rules::find_unmatched(generation, &snapshot));
        snapshot.record_metrics(&generation.servers, &self.context.metrics);
        snapshot
    }

    fn log_excluded(&self, before: &Snapshot, snapshot: &Snapshot) {
        let known: HashSet<&ExcludedItem> = before.excluded.iter().collect();
        for left_out in snapshot
            .excluded
            .iter()
            .filter(|l| !known.contains(l))
            .take(EXCLUDED_LOGGED_MAX)
        {
            let item = logs::one_line(&left_out.item);
            let reason = logs::one_line(&left_out.reason);
            tracing::warn!(server = left_out.server, "left out: {item}: {reason}");
        }
        findings::log_new_findings(&before.findings, &snapshot.findings);
    }
}

impl EndpointHost for Gateway {
    fn context(&self) -> &Arc<EndpointContext> {
        &self.context
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Gateway::snapshot(self)
    }

    fn endpoint(&self, name: &str, principal: &Principal) -> Option<Arc<Endpoint>> {
        self.find_allowed(name, principal)
    }

    fn rebuild(&self) {
        self.rebuild_catalog();
    }
}

impl EndpointDirectory {
    /// Counts the calls that are being served: of all principals, and of this one.
    pub fn in_flight(&self, principal: &Principal) -> (usize, usize) {
        let all = usize::try_from(self.gateway.context.metrics.calls.inflight.get()).unwrap_or(0);
        (all, self.gateway.context.in_flight.count_of(principal))
    }

    /// Waits until the principal may use nothing any more, because its key was removed.
    pub fn until_revoked(&self, principal: &Principal) -> impl Future<Output = ()> + Send + use<> {
        self.gateway.context.in_flight.until_revoked(principal)
    }

    /// Finds an endpoint by name, if the principal may use it. The empty name is the endpoint over
    /// everything.
    pub fn find_endpoint(&self, name: &str, principal: &Principal) -> Option<Arc<Endpoint>> {
        let current = self.gateway.current.load();
        let (endpoint, allowed) = current.endpoint(name, principal)?;
        if !allowed {
            self.gateway
                .context
                .metrics
                .access
                .policy_denied
                .inc(DeniedRule("endpoint"));
            return None;
        }
        Some(endpoint.clone())
    }

    /// Returns true if there is such an endpoint and the principal may use it.
    pub fn allows(&self, name: &str, principal: &Principal) -> bool {
        self.gateway.find_allowed(name, principal).is_some()
    }
}
