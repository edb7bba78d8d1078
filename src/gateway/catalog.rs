//! Catalogue: everything that all servers offer, under the names that clients see.
//!
//! Owns the snapshot and how it is built. Does not talk to servers. Invariant: a snapshot is never changed, only
//! replaced. Every listed item can be routed, and every item that cannot be exposed is named with the reason.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, PoisonError};

use crate::gateway::findings::{CatalogFinding, FindingTopic};
use crate::gateway::generation::ServerEntry;
use crate::gateway::names::{AssignedName, NameChange, NameRequest, NameRules, assign};
use crate::gateway::schemas::CombinedSchema;
use crate::gateway::templates::{LookupBudget, OPEN_TEMPLATES_MAX, TemplateIndex};
use crate::gateway::{expose, mcp_apps, schemas, uris};
use crate::json::{ByteString, JsonObject, RawJson};
use crate::model::{CacheHint, ItemKind, McpMethod};
use crate::policy::ItemRules;
use crate::telemetry::{CallMeter, MeterFactory, Metrics};
use crate::upstream::{Upstream, depth};

/// Cache time of a list whose servers give none, in milliseconds. Clients are notified of changes.
const LIST_TTL_MS: u64 = 60_000;
/// Maximum number of tools with meters of their own. Further ones share a meter, so that a server cannot fill the
/// metrics.
const METERS_MAX: usize = 5_000;

/// Route of one item to its server.
pub struct CatalogRoute {
    /// Server of the item.
    pub upstream: Arc<ServerEntry>,
    /// Server's own key: a name, a URI, a template.
    pub local: ByteString,
    /// JSON form of `local`, as calls carry it.
    pub local_raw: RawJson,
    /// Key that clients see through the endpoint over everything.
    pub exposed: ByteString,
    /// Definition from the server, repaired if need be.
    pub definition: Arc<JsonObject>,
    /// Listed form on the endpoint over everything.
    pub listed: RawJson,
    /// True if lists leave it out.
    pub hidden: bool,
    /// True if no list of its server has it, but a tool names it.
    pub implied: bool,
    /// Combining schema of a tool: the reason why model APIs refuse it, and its compatible form.
    pub(super) combined: Option<CombinedSchema>,
    /// Meter of its calls.
    pub meter: Arc<CallMeter>,
}

/// Item that cannot be exposed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExcludedItem {
    /// Server of the item.
    pub server: String,
    /// Kind and key, as far as it has one.
    pub item: String,
    /// Reason, for operators.
    pub reason: String,
}

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
    templates: TemplateIndex,
    /// Servers that list resources or templates, by name.
    resource_servers: BTreeSet<ByteString>,
    hints: HashMap<(ByteString, ItemKind), Option<CacheHint>>,
    lists: Mutex<HashMap<ListKey, RenderedList>>,
}

/// Key of a list: the endpoint, the principal's row in the policy, the kind, and whether it says what may become a
/// task.
type ListKey = (ByteString, u32, ItemKind, bool);

/// List as an endpoint shows it.
#[derive(Clone)]
pub struct RenderedList {
    /// Result of the list request.
    pub result: JsonObject,
    /// Cache time for clients.
    pub hint: CacheHint,
    /// Digest of the bytes, comparable within this process.
    pub digest: u64,
}

impl Snapshot {
    /// Builds a snapshot of what the servers offer. `servers` are sorted by name.
    pub fn build(servers: &[Arc<ServerEntry>], rules: &NameRules, meters: &MeterFactory) -> Self {
        let mut snapshot = Snapshot::default();
        let mut found = ItemKind::ALL.map(|kind| snapshot.select_items(kind, servers));
        snapshot.bound_open_templates(&mut found[ItemKind::Templates as usize]);
        let pages =
            mcp_apps::unlisted_app_pages(&found[ItemKind::Tools as usize], &found[ItemKind::Resources as usize]);
        found[ItemKind::Resources as usize].extend(pages);
        // Tools come last: some name resources by exposed URIs, which must be known by then.
        for kind in [ItemKind::Resources, ItemKind::Templates, ItemKind::Prompts, ItemKind::Tools] {
            let found = std::mem::take(&mut found[kind as usize]);
            let keys = exposed_keys(kind, &found, rules);
            snapshot.findings.extend(changed_names(kind, &found, &keys, rules));
            for (n, (taken, (exposed, _))) in found.into_iter().zip(keys).enumerate() {
                let mut route = taken.into_route(kind, ByteString::from(exposed), meters, n < METERS_MAX);
                if kind == ItemKind::Tools {
                    route.listed = mcp_apps::with_exposed_pages(route.listed, &route.upstream, &snapshot);
                }
                snapshot.insert(kind, route);
            }
        }
        snapshot.templates = TemplateIndex::new(snapshot.iter(ItemKind::Templates));
        snapshot
    }

    /// Selects the items of a kind that may be exposed, and notes the others.
    fn select_items<'a>(&mut self, kind: ItemKind, servers: &'a [Arc<ServerEntry>]) -> Vec<SelectedItem<'a>> {
        let mut found = Vec::new();
        for upstream in servers {
            let items = upstream.lists();
            let list = items.get(kind);
            self.hints.insert((server_name(upstream), kind), list.cache);
            for item in &list.items {
                match select_item(kind, upstream, item) {
                    Ok(Some(taken)) => found.push(taken),
                    Ok(None) => {}
                    Err(left_out) => self.excluded.push(left_out),
                }
            }
        }
        found
    }

    /// Excludes templates that begin with an expression where a server has many. Each of them costs every lookup a try.
    fn bound_open_templates(&mut self, found: &mut Vec<SelectedItem<'_>>) {
        let mut open: HashMap<&str, usize> = HashMap::new();
        let left_out = &mut self.excluded;
        found.retain(|taken| {
            let server = taken.upstream.settings.name.as_str();
            if !taken.local.starts_with('{') {
                return true;
            }
            let count = open.entry(server).or_default();
            *count += 1;
            if *count > OPEN_TEMPLATES_MAX {
                let item = format!("{} {}", ItemKind::Templates.member(), taken.local);
                let reason = format!("it begins with an expression, as {OPEN_TEMPLATES_MAX} others of its server do");
                left_out.push(ExcludedItem { server: server.to_owned(), item, reason });
            }
            *count <= OPEN_TEMPLATES_MAX
        });
    }

    fn insert(&mut self, kind: ItemKind, route: CatalogRoute) {
        // A page that only a tool names does not make its server one that lists resources.
        if matches!(kind, ItemKind::Resources | ItemKind::Templates) && !route.implied {
            self.resource_servers.insert(server_name(&route.upstream));
        }
        let route = Arc::new(route);
        self.local[kind as usize].insert((server_name(&route.upstream), route.local.clone()), route.clone());
        self.exposed[kind as usize].insert(route.exposed.clone(), route);
    }

    /// Finds the item with this exposed key.
    pub fn find_exposed(&self, kind: ItemKind, exposed: &ByteString) -> Option<&Arc<CatalogRoute>> {
        self.exposed[kind as usize].get(exposed)
    }

    /// Finds the item of one server by its own key.
    pub fn find_local(&self, kind: ItemKind, server: &ByteString, local: &ByteString) -> Option<&Arc<CatalogRoute>> {
        self.local[kind as usize].get(&(server.clone(), local.clone()))
    }

    /// Iterates over all items of a kind, in the order of their exposed keys.
    pub fn iter(&self, kind: ItemKind) -> impl Iterator<Item = &Arc<CatalogRoute>> {
        self.exposed[kind as usize].values()
    }

    /// Finds the template that a URI can come from. Returns `None` if the budget is spent.
    pub(super) fn find_template(&self, uri: &str, budget: &LookupBudget) -> Option<&Arc<CatalogRoute>> {
        self.templates.find(uri, budget)
    }

    /// Returns the servers that list resources or templates, by name.
    pub(super) fn resource_servers(&self) -> impl Iterator<Item = &ByteString> {
        self.resource_servers.iter()
    }

    /// Returns a list, rendered once for each endpoint and row of the policy.
    pub fn list(&self, key: ListKey, public: bool, visible: impl Fn(&CatalogRoute) -> Option<RawJson>) -> RenderedList {
        // Rendered without the lock: two callers may render the same list, which is harmless.
        if let Some(list) = self.lock_lists().get(&key) {
            return list.clone();
        }
        let kind = key.2;
        let mut hint = CacheHint { ttl_ms: LIST_TTL_MS, public };
        let mut items = Vec::new();
        for route in self.iter(kind).filter(|route| !route.hidden) {
            let Some(item) = visible(route) else { continue };
            items.push((route, item));
        }
        for server in items.iter().map(|(route, _)| server_name(&route.upstream)) {
            if let Some(Some(given)) = self.hints.get(&(server, kind)) {
                hint = CacheHint { ttl_ms: hint.ttl_ms.min(given.ttl_ms), public: hint.public && given.public };
            }
        }
        let array = RawJson::array(items.iter().map(|(_, item)| item));
        let digest = BuildHasherDefault::<DefaultHasher>::default().hash_one(array.bytes());
        let list = RenderedList { result: JsonObject::new().with(kind.member(), array).to_shared(), hint, digest };
        self.lock_lists().insert(key, list.clone());
        list
    }

    fn lock_lists(&self) -> std::sync::MutexGuard<'_, HashMap<ListKey, RenderedList>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the servers whose list of this kind differs between two snapshots.
    pub fn changed_servers(&self, before: &Snapshot, kind: ItemKind) -> Vec<ByteString> {
        let mut servers = Vec::new();
        let (now, then) = (&self.exposed[kind as usize], &before.exposed[kind as usize]);
        let differs = |a: &BTreeMap<ByteString, Arc<CatalogRoute>>,
                       b: &BTreeMap<ByteString, Arc<CatalogRoute>>,
                       servers: &mut Vec<ByteString>| {
            // "Servers MAY omit UI-only resources from […] `notifications/resources/list_changed`" (ext-apps,
            // 2026-01-26).
            for (key, route) in a.iter().filter(|(_, route)| !route.implied) {
                let other = b.get(key).filter(|other| !other.implied);
                let same = other.is_some_and(|other| other.listed == route.listed && other.hidden == route.hidden);
                let server = server_name(&route.upstream);
                if !same && !servers.contains(&server) {
                    servers.push(server);
                }
            }
        };
        differs(now, then, &mut servers);
        differs(then, now, &mut servers);
        servers
    }

    /// Records sizes in the metrics.
    pub fn record_metrics(&self, servers: &[Arc<ServerEntry>], metrics: &Metrics) {
        for upstream in servers {
            let name = &upstream.settings.name;
            for kind in ItemKind::ALL {
                let count = self.iter(kind).filter(|r| r.upstream.settings.name == *name && !r.implied).count();
                metrics.catalog_items.with_label_values(&[name, kind.member()]).set(gauge_value(count));
            }
            let tools = self.iter(ItemKind::Tools).filter(|r| r.upstream.settings.name == *name && !r.hidden);
            let bytes: usize = tools.map(|route| route.listed.bytes().len()).sum();
            metrics.catalog_bytes.with_label_values(&[name]).set(gauge_value(bytes));
            // A token has about four bytes.
            metrics.catalog_tokens.with_label_values(&[name]).set(gauge_value(bytes / 4));
            let left_out = self.excluded.iter().filter(|l| l.server == *name).count();
            metrics.catalog_left_out.with_label_values(&[name]).set(gauge_value(left_out));
            self.count_unmatched(Some(name), metrics);
        }
        self.count_unmatched(None, metrics);
    }
}

impl Snapshot {
    fn count_unmatched(&self, server: Option<&str>, metrics: &Metrics) {
        let of_server =
            |finding: &&CatalogFinding| finding.topic == FindingTopic::Filter && finding.server.as_deref() == server;
        let count = self.findings.iter().filter(of_server).count();
        metrics.filters_unmatched.with_label_values(&[server.unwrap_or_default()]).set(gauge_value(count));
    }

    /// Returns the findings about a server. `None` selects those about views and keys.
    pub fn findings_about(&self, server: Option<&str>, topic: FindingTopic) -> Vec<&str> {
        let told = self.findings.iter().filter(|f| f.topic == topic && f.server.as_deref() == server);
        told.map(|finding| finding.text.as_str()).collect()
    }
}

fn gauge_value(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(super) fn server_name(upstream: &Upstream) -> ByteString {
    upstream.name.clone()
}

// === building ===

/// Item that will be exposed, before it has its key.
pub(super) struct SelectedItem<'a> {
    pub(super) upstream: &'a Arc<ServerEntry>,
    pub(super) local: ByteString,
    /// Name before prefix and separator are added.
    pub(super) base_name: String,
    pub(super) definition: Arc<JsonObject>,
    pub(super) implied: bool,
}

fn rules_of(upstream: &ServerEntry, kind: ItemKind) -> &ItemRules {
    match kind {
        ItemKind::Tools => &upstream.settings.tools,
        ItemKind::Prompts => &upstream.settings.prompts,
        ItemKind::Resources | ItemKind::Templates => &upstream.settings.resources,
    }
}

/// Applies the config's rules and checks the item. Returns `None` if the config excludes it.
fn select_item<'a>(
    kind: ItemKind,
    upstream: &'a Arc<ServerEntry>,
    item: &Arc<JsonObject>,
) -> Result<Option<SelectedItem<'a>>, ExcludedItem> {
    let left_out = |reason: String| ExcludedItem {
        server: upstream.settings.name.clone(),
        item: format!(
            "{} {}",
            kind.member(),
            item.get_string(kind.item_key()).map(|t| t.to_string()).unwrap_or_default()
        ),
        reason,
    };
    // Clients parse a list as one document, with limited depth: one item must not cost them all the others.
    if depth(&item.bytes()) > upstream.settings.lists.depth {
        let (most, name) = (upstream.settings.lists.depth, &upstream.settings.name);
        return Err(left_out(format!("it is nested deeper than {most} levels (servers.{name}.max_depth)")));
    }
    let definition = expose::check_item(kind, item).map_err(left_out)?;
    if kind == ItemKind::Tools
        && let Some(problem) = upstream.tool_problem(&definition)
    {
        return Err(left_out(problem));
    }
    let Some(local) = definition.get_string(kind.item_key()) else { return Ok(None) };
    let rules = rules_of(upstream, kind);
    if !rules.allows_name(&local) {
        return Ok(None);
    }
    if matches!(kind, ItemKind::Resources | ItemKind::Templates) && !rules.allows_uri(&local) {
        let name = &upstream.settings.name;
        let reason = format!("it has dot segments, %2e, %2f or %5c, and servers.{name}.resources has patterns");
        return Err(left_out(reason));
    }
    let stem = rules.rename.get(local.as_str()).cloned().unwrap_or_else(|| local.to_string());
    Ok(Some(SelectedItem { upstream, local, base_name: stem, definition, implied: false }))
}

fn exposed_keys(kind: ItemKind, found: &[SelectedItem<'_>], rules: &NameRules) -> Vec<AssignedName> {
    match kind {
        ItemKind::Tools | ItemKind::Prompts => {
            let wanting = found.iter().map(|t| NameRequest {
                server: &t.upstream.settings.name,
                prefix: &t.upstream.settings.prefix,
                name: &t.base_name,
                local: &t.local,
            });
            assign(&wanting.collect::<Vec<_>>(), rules)
        }
        ItemKind::Resources | ItemKind::Templates => {
            // Servers are sorted, and the first owner of a URI keeps it unwrapped. Pages that only tools name come
            // behind all listed resources.
            let mut owners: HashMap<&str, &str> = HashMap::new();
            let key = |t: &SelectedItem<'_>| {
                let server = t.upstream.settings.name.as_str();
                (server.to_owned(), t.local.to_string())
            };
            let mut keys = Vec::with_capacity(found.len());
            for taken in found {
                let (server, uri) = key(taken);
                let owner = *owners.entry(taken.local.as_str()).or_insert(taken.upstream.settings.name.as_str());
                let is_plain = owner == server && !uris::looks_wrapped(&uri);
                keys.push((if is_plain { uri } else { uris::wrap(&server, &uri) }, None));
            }
            keys
        }
    }
}

/// Returns findings for names that differ from the servers' own, beyond the prefix and characters that no name has.
fn changed_names(
    kind: ItemKind,
    found: &[SelectedItem<'_>],
    keys: &[AssignedName],
    rules: &NameRules,
) -> Vec<CatalogFinding> {
    let change = |(taken, (exposed, change)): (&SelectedItem<'_>, &AssignedName)| {
        let server = taken.upstream.settings.name.as_str();
        let mut why = Vec::new();
        if matches!(kind, ItemKind::Tools | ItemKind::Prompts) && taken.base_name != taken.local.as_str() {
            why.push(format!("renamed by servers.{server}.{}.rename", kind.member()));
        }
        match change {
            Some(NameChange::Truncated) => why.push(format!("cut to {} bytes (names.max_length)", rules.max_length)),
            Some(NameChange::Taken(other)) => why.push(format!("server {other} has another one of that name")),
            None => {}
        }
        let text = format!("{} {} is exposed as {exposed}: {}", kind.member(), taken.local, why.join(", "));
        (!why.is_empty()).then(|| CatalogFinding { server: Some(server.to_owned()), topic: FindingTopic::Name, text })
    };
    found.iter().zip(keys).filter_map(change).collect()
}

impl SelectedItem<'_> {
    fn into_route(self, kind: ItemKind, exposed: ByteString, meters: &MeterFactory, own_meter: bool) -> CatalogRoute {
        let rules = rules_of(self.upstream, kind);
        let listed = expose::render_item(kind, &self.definition, &exposed, rules.describe.get(self.local.as_str()));
        let method = match kind {
            ItemKind::Tools => McpMethod::CallTool,
            ItemKind::Prompts => McpMethod::GetPrompt,
            ItemKind::Resources | ItemKind::Templates => McpMethod::ReadResource,
        };
        // Tools beyond the limit share one series.
        let tool = if kind == ItemKind::Tools { if own_meter { exposed.as_str() } else { "_OTHER" } } else { "" };
        CatalogRoute {
            meter: Arc::new(meters.meter(method.name(), &self.upstream.settings.name, tool)),
            upstream: self.upstream.clone(),
            hidden: self.implied || rules.hide.matches(&self.local),
            implied: self.implied,
            local_raw: RawJson::string(&self.local),
            local: self.local,
            exposed,
            combined: if kind == ItemKind::Tools { schemas::inspect_schema(&self.definition) } else { None },
            definition: self.definition,
            listed,
        }
    }
}

/// Catalogue parts for tests: servers that list items, without a connection.
#[cfg(test)]
pub(in crate::gateway) mod testing {
    use super::*;
    use crate::link::reaper::Reaper;
    use crate::upstream::{ConnectTarget, ItemList, ServerLists, ServerSettings, UpstreamContext};

    /// Creates a server that lists these items of a kind.
    pub(in crate::gateway) fn server_entry(
        name: &str,
        kind: ItemKind,
        items: impl Iterator<Item = JsonObject>,
    ) -> Arc<ServerEntry> {
        let connect = ConnectTarget::Stdio { command: "none".to_owned(), args: Vec::new(), env: Vec::new(), cwd: None };
        let shared = Arc::new(UpstreamContext::new(Arc::new(Metrics::new()), Reaper::disabled()));
        let upstream = Upstream::new(ServerSettings::new(name, connect), shared, Arc::new(|_, _| {}));
        let mut lists = ServerLists::default();
        lists.set(kind, ItemList { items: items.map(Arc::new).collect(), ..ItemList::default() });
        upstream.serve_lists(lists);
        Arc::new(ServerEntry { settings: upstream.settings.clone(), upstream })
    }

    /// Builds the catalogue of these servers.
    pub(in crate::gateway) fn snapshot(members: &[Arc<ServerEntry>], rules: &NameRules) -> Snapshot {
        Snapshot::build(members, rules, &MeterFactory(Arc::new(Metrics::new())))
    }
}
