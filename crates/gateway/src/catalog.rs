//! Catalogue: everything that all servers offer, under the names that clients see.
//!
//! Owns the snapshot, its lists, and what differs between two of them. Does not build it
//! (`build_catalog.rs`). Invariant: a snapshot that serves is never changed, only replaced.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use crate::catalog_route::CatalogRoute;
use crate::findings::{CatalogFinding, FindingTopic};
use crate::running_server::{RunningServer, server_name};
use crate::selected_item::ExcludedItem;
use crate::templates::{LookupBudget, TemplateIndex};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{CacheHint, ItemKind, RoleId};
use moongate_protocol::Era;
use moongate_telemetry::{ItemKindName, Metrics};

/// Cache time of a list whose servers give none, in milliseconds. Clients are notified of changes.
// 2026-07-28/server/utilities/caching.mdx: "Servers MUST provide a `ttlMs` value that is `>= 0`."
const LIST_TTL_MS: u64 = 60_000;

/// Items of all servers at one moment.
#[derive(Default)]
pub struct Snapshot {
    /// Routes by kind and exposed key.
    exposed: [BTreeMap<ByteString, Arc<CatalogRoute>>; 4],
    /// Routes by kind, server and own key.
    local: [HashMap<(ByteString, ByteString), Arc<CatalogRoute>>; 4],
    /// Items that could not be exposed.
    pub excluded: Vec<ExcludedItem>,
    /// Other findings for the operator.
    pub findings: Vec<CatalogFinding>,
    pub(super) templates: TemplateIndex,
    /// Servers that list resources or templates, by name.
    resource_servers: BTreeSet<ByteString>,
    pub(super) hints: HashMap<(ByteString, ItemKind), Option<CacheHint>>,
    /// True for kinds with an item that differs between the eras. Lists of the others are rendered
    /// once for both.
    differs_by_era: [bool; 4],
    lists: Mutex<HashMap<ListKey, RenderedList>>,
    tool_counts: Mutex<HashMap<(ByteString, RoleId), Arc<ToolCounts>>>,
}

/// Numbers of tools that a role may use, by the names of the servers that it may know.
pub(super) type ToolCounts = HashMap<String, usize>;

/// Key of a list.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct ListKey {
    pub(super) endpoint: ByteString,
    pub(super) role: RoleId,
    pub(super) kind: ItemKind,
    /// True if it says what may become a task.
    pub(super) with_tasks: bool,
    /// Era of the clients.
    pub(super) era: Era,
}

/// List as an endpoint shows it.
#[derive(Clone)]
pub(super) struct RenderedList {
    /// Result of the list request.
    pub result: JsonObject,
    /// Cache time for clients.
    pub hint: CacheHint,
    /// Digest of the bytes, comparable within this process.
    pub digest: u64,
}

impl Snapshot {
    /// Inserts a route under both of its keys.
    pub(super) fn insert(&mut self, kind: ItemKind, route: CatalogRoute) {
        // A page that only a tool names does not make its server one that lists resources.
        if matches!(kind, ItemKind::Resources | ItemKind::Templates) && !route.implied {
            self.resource_servers.insert(server_name(&route.upstream));
        }
        self.differs_by_era[kind as usize] |= route.differs_by_era();
        let route = Arc::new(route);
        self.local[kind as usize].insert(
            (server_name(&route.upstream), route.local.clone()),
            route.clone(),
        );
        self.exposed[kind as usize].insert(route.exposed.clone(), route);
    }

    /// Finds the item with this exposed key.
    pub fn find_exposed(&self, kind: ItemKind, exposed: &ByteString) -> Option<&Arc<CatalogRoute>> {
        self.exposed[kind as usize].get(exposed)
    }

    /// Finds the item of one server by its own key.
    pub fn find_local(
        &self,
        kind: ItemKind,
        server: &ByteString,
        local: &ByteString,
    ) -> Option<&Arc<CatalogRoute>> {
        self.local[kind as usize].get(&(server.clone(), local.clone()))
    }

    /// Iterates over all items of a kind, in the order of their exposed keys.
    pub fn iter(&self, kind: ItemKind) -> impl Iterator<Item = &Arc<CatalogRoute>> {
        self.exposed[kind as usize].values()
    }
    /// Finds the template that a URI can come from. Returns `None` if the budget is spent.
    pub(super) fn find_template(
        &self,
        uri: &str,
        budget: &LookupBudget,
    ) -> Option<&Arc<CatalogRoute>> {
        self.templates.find(uri, budget)
    }

    /// Returns the servers that list resources or templates, by name.
    pub(super) fn resource_servers(&self) -> impl Iterator<Item = &ByteString> {
        self.resource_servers.iter()
    }

    /// Returns a list, rendered once for each endpoint and role. `first` are items of the gateway's
    /// own.
    pub(super) fn list(
        &self,
        mut key: ListKey,
        public: bool,
        first: impl FnOnce() -> Vec<RawJson>,
        visible: impl Fn(&CatalogRoute) -> Option<RawJson>,
    ) -> RenderedList {
        let kind = key.kind;
        if !self.differs_by_era[kind as usize] {
            key.era = Era::Modern;
        }
        // Rendered without the lock: two callers may render the same list, which is harmless.
        if let Some(list) = self.lock_lists().get(&key) {
            return list.clone();
        }
        let kind = key.kind;
        let mut hint = CacheHint {
            ttl_ms: LIST_TTL_MS,
            public,
        };
        let mut items = Vec::new();
        for route in self.iter(kind).filter(|route| !route.hidden) {
            let Some(item) = visible(route) else { continue };
            items.push((route, item));
        }
        for server in items.iter().map(|(route, _)| server_name(&route.upstream)) {
            if let Some(Some(given)) = self.hints.get(&(server, kind)) {
                hint = CacheHint {
                    ttl_ms: hint.ttl_ms.min(given.ttl_ms),
                    public: hint.public && given.public,
                };
            }
        }
        let array = RawJson::array(first().iter().chain(items.iter().map(|(_, item)| item)));
        // A hasher without a random key: each snapshot of the process must give the same digest for
        // the same bytes.
        let digest = BuildHasherDefault::<DefaultHasher>::default().hash_one(array.bytes());
        let list = RenderedList {
            result: JsonObject::new().with(kind.member(), array).to_shared(),
            hint,
            digest,
        };
        self.lock_lists().insert(key, list.clone());
        list
    }

    /// Returns the numbers of tools, counted once for each endpoint and role.
    pub(super) fn tool_counts(
        &self,
        key: (ByteString, RoleId),
        count: impl FnOnce() -> ToolCounts,
    ) -> Arc<ToolCounts> {
        if let Some(counts) = self.tool_counts.lock().get(&key) {
            return counts.clone();
        }
        // Counted without the lock, as lists are rendered.
        let counts = Arc::new(count());
        self.tool_counts.lock().insert(key, counts.clone());
        counts
    }

    fn lock_lists(&self) -> parking_lot::MutexGuard<'_, HashMap<ListKey, RenderedList>> {
        self.lists.lock()
    }

    /// Returns the servers whose list of this kind differs between two snapshots.
    pub fn changed_servers(&self, before: &Snapshot, kind: ItemKind) -> Vec<ByteString> {
        let mut servers = Vec::new();
        let now = &self.exposed[kind as usize];
        let then = &before.exposed[kind as usize];
        add_differing_servers(now, then, &mut servers);
        add_differing_servers(then, now, &mut servers);
        servers
    }

    /// Records sizes in the metrics.
    pub fn record_metrics(&self, servers: &[Arc<RunningServer>], metrics: &Metrics) {
        for upstream in servers {
            let name = &upstream.settings.name;
            for kind in ItemKind::ALL {
                let count = self
                    .iter(kind)
                    .filter(|r| r.upstream.settings.name == *name && !r.implied)
                    .count();
                metrics
                    .catalog
                    .items
                    .series((name, ItemKindName(kind.member())))
                    .set(gauge_value(count));
            }
            let tools = self
                .iter(ItemKind::Tools)
                .filter(|r| r.upstream.settings.name == *name && !r.hidden);
            let bytes: usize = tools.map(|route| route.form.listed.bytes().len()).sum();
            metrics.catalog.bytes.series(name).set(gauge_value(bytes));
            metrics
                .catalog
                .tokens
                .series(name)
                .set(gauge_value(estimate_tokens(bytes)));
            let left_out = self.excluded.iter().filter(|l| l.server == *name).count();
            metrics
                .catalog
                .left_out
                .series(name)
                .set(gauge_value(left_out));
            let mended = self.findings_about(Some(name), FindingTopic::Mended).len();
            metrics.catalog.mended.series(name).set(gauge_value(mended));
            self.count_unmatched(Some(name), metrics);
        }
        self.count_unmatched(None, metrics);
    }
}

impl Snapshot {
    fn count_unmatched(&self, server: Option<&str>, metrics: &Metrics) {
        let filter_findings = self
            .findings
            .iter()
            .filter(|f| f.topic == FindingTopic::Filter && f.server.as_deref() == server);
        let count = filter_findings.count();
        metrics
            .catalog
            .filters_unmatched
            .series(server.unwrap_or_default())
            .set(gauge_value(count));
    }

    /// Returns the findings about a server. `None` selects those about views and keys.
    pub fn findings_about(&self, server: Option<&str>, topic: FindingTopic) -> Vec<&str> {
        let matching = self
            .findings
            .iter()
            .filter(|f| f.topic == topic && f.server.as_deref() == server);
        matching.map(|finding| finding.text.as_str()).collect()
    }
}

/// Adds the servers of the routes that the other list lacks, or shows otherwise.
fn add_differing_servers(
    routes: &BTreeMap<ByteString, Arc<CatalogRoute>>,
    others: &BTreeMap<ByteString, Arc<CatalogRoute>>,
    servers: &mut Vec<ByteString>,
) {
    // "Servers MAY omit UI-only resources from […] `notifications/resources/list_changed`"
    // (ext-apps, 2026-01-26).
    for (key, route) in routes.iter().filter(|(_, route)| !route.implied) {
        let other = others.get(key).filter(|other| !other.implied);
        let same = other.is_some_and(|other| other.is_listed_like(route));
        let server = server_name(&route.upstream);
        if !same && !servers.contains(&server) {
            servers.push(server);
        }
    }
}

/// Estimates the tokens that definitions of this size cost a model.
// 4.25 bytes a token, over 527 public tool definitions and the encoding o200k_base.
pub fn estimate_tokens(bytes: usize) -> u64 {
    (bytes as u64 * 4 + 8) / 17
}

fn gauge_value(n: impl TryInto<i64>) -> i64 {
    n.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use moongate_model::{Caller, Principal};
    use moongate_testing as testing;

    #[tokio::test]
    async fn a_list_is_rendered_once_for_all_principals_of_a_role() {
        let gateway = crate::testing::gateway();
        let anonymous = testing::principal(Principal::ANONYMOUS);
        let endpoint = gateway.endpoints().find_endpoint("a", &anonymous).unwrap();
        let lists = (0..1000).map(|id| lists_after(&endpoint, id, 1));
        assert_eq!(lists.max(), Some(1));
        assert_eq!(lists_after(&endpoint, 0, 2), 2);
    }

    /// Returns the number of rendered lists once a principal of a role has listed the tools.
    fn lists_after(endpoint: &Endpoint, id: u32, role: u32) -> usize {
        let principal = Arc::new(Principal::new("p", id, [0; 16]));
        principal.set_role(RoleId(role));
        let caller = Caller {
            principal,
            ..(*testing::caller(id, None)).clone()
        };
        endpoint.rendered_list(&caller, ItemKind::Tools, false);
        endpoint.generation.snapshot.load().lock_lists().len()
    }
}
