//! Everything that all servers offer, under the names that clients see.
//!
//! Owns the snapshot and how it is built. Does not talk to servers. Invariant: a snapshot is never changed, only
//! replaced; what it lists, it can route, and what it cannot expose is named with the reason.

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

/// How long clients may keep a list whose servers say nothing about it, in milliseconds: they are told of changes.
const LIST_TTL_MS: u64 = 60_000;
/// Tools that have meters of their own; more share one, so that a server cannot fill the metrics.
const METERS_MAX: usize = 5_000;

/// One item and where it leads.
pub struct CatalogRoute {
    /// Its server.
    pub upstream: Arc<ServerEntry>,
    /// The server's own key: a name, a URI, a template.
    pub local: ByteString,
    /// The same as JSON, as calls carry it.
    pub local_raw: RawJson,
    /// The key that clients see through the endpoint over everything.
    pub exposed: ByteString,
    /// The definition, as the server gave it (repaired if need be).
    pub definition: Arc<JsonObject>,
    /// What is listed through the endpoint over everything.
    pub listed: RawJson,
    /// Whether lists leave it out.
    pub hidden: bool,
    /// Whether no list of its server has it: a tool names it.
    pub implied: bool,
    /// Of a tool: why model APIs refuse it, and its schema as they take it.
    pub(super) combined: Option<CombinedSchema>,
    /// What its calls are measured by.
    pub meter: Arc<CallMeter>,
}

/// An item that cannot be exposed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExcludedItem {
    /// Its server.
    pub server: String,
    /// Its kind and key, as far as it has one.
    pub item: String,
    /// Why.
    pub reason: String,
}

/// All servers' items at one moment.
#[derive(Default)]
pub struct Snapshot {
    /// By kind and exposed key.
    exposed: [BTreeMap<ByteString, Arc<CatalogRoute>>; 4],
    /// By kind, server and own key.
    local: [HashMap<(ByteString, ByteString), Arc<CatalogRoute>>; 4],
    /// What could not be exposed.
    pub excluded: Vec<ExcludedItem>,
    /// What else its operator should hear of.
    pub findings: Vec<CatalogFinding>,
    templates: TemplateIndex,
    /// The servers that list resources or templates, by name.
    resource_servers: BTreeSet<ByteString>,
    hints: HashMap<(ByteString, ItemKind), Option<CacheHint>>,
    lists: Mutex<HashMap<ListKey, RenderedList>>,
}

/// Which list it is: the endpoint, the row of the policy, the kind, whether it says what may become a task.
type ListKey = (ByteString, u32, ItemKind, bool);

/// A list as an endpoint shows it.
#[derive(Clone)]
pub struct RenderedList {
    /// The result.
    pub result: JsonObject,
    /// How long it may be kept.
    pub hint: CacheHint,
    /// The same for lists of the same bytes, in this process.
    pub digest: u64,
}

impl Snapshot {
    /// Merges what the servers offer. `servers` are sorted by name.
    pub fn build(servers: &[Arc<ServerEntry>], rules: &NameRules, meters: &MeterFactory) -> Self {
        let mut snapshot = Snapshot::default();
        let mut found = ItemKind::ALL.map(|kind| snapshot.select_items(kind, servers));
        snapshot.bound_open_templates(&mut found[ItemKind::Templates as usize]);
        let pages =
            mcp_apps::unlisted_app_pages(&found[ItemKind::Tools as usize], &found[ItemKind::Resources as usize]);
        found[ItemKind::Resources as usize].extend(pages);
        // Tools come last: some name resources, by the URIs that those have got.
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

    /// What the servers list of a kind and may be exposed; the rest is noted.
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

    /// Leaves out templates that begin with an expression where a server has many: each costs every lookup a try.
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
        if matches!(kind, ItemKind::Resources | ItemKind::Templates) && !route.implied {
            self.resource_servers.insert(server_name(&route.upstream));
        }
        let route = Arc::new(route);
        self.local[kind as usize].insert((server_name(&route.upstream), route.local.clone()), route.clone());
        self.exposed[kind as usize].insert(route.exposed.clone(), route);
    }

    /// The item with this exposed key.
    pub fn find_exposed(&self, kind: ItemKind, exposed: &ByteString) -> Option<&Arc<CatalogRoute>> {
        self.exposed[kind as usize].get(exposed)
    }

    /// The item of one server with this key of its own.
    pub fn find_local(&self, kind: ItemKind, server: &ByteString, local: &ByteString) -> Option<&Arc<CatalogRoute>> {
        self.local[kind as usize].get(&(server.clone(), local.clone()))
    }

    /// All items of a kind, in the order of their exposed keys.
    pub fn iter(&self, kind: ItemKind) -> impl Iterator<Item = &Arc<CatalogRoute>> {
        self.exposed[kind as usize].values()
    }

    /// The template that a URI can come from; none where the budget is spent.
    pub(super) fn find_template(&self, uri: &str, budget: &LookupBudget) -> Option<&Arc<CatalogRoute>> {
        self.templates.find(uri, budget)
    }

    /// The servers that list resources or templates, by name.
    pub(super) fn resource_servers(&self) -> impl Iterator<Item = &ByteString> {
        self.resource_servers.iter()
    }

    /// A list, made once for each endpoint and row of the policy.
    pub fn list(&self, key: ListKey, public: bool, visible: impl Fn(&CatalogRoute) -> Option<RawJson>) -> RenderedList {
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

    /// The servers whose list of this kind differs between two snapshots.
    pub fn changed_servers(&self, before: &Snapshot, kind: ItemKind) -> Vec<ByteString> {
        let mut servers = Vec::new();
        let (now, then) = (&self.exposed[kind as usize], &before.exposed[kind as usize]);
        let differs = |a: &BTreeMap<ByteString, Arc<CatalogRoute>>,
                       b: &BTreeMap<ByteString, Arc<CatalogRoute>>,
                       servers: &mut Vec<ByteString>| {
            // "Servers MAY omit UI-only resources from […] `notifications/resources/list_changed`" (ext-apps, 2026-01-26).
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

    /// Puts sizes into the metrics.
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

    /// What its operator should hear of a server; `None`: of views and keys.
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

/// An item that will be exposed, before it has its key.
pub(super) struct SelectedItem<'a> {
    pub(super) upstream: &'a Arc<ServerEntry>,
    pub(super) local: ByteString,
    /// What it is called before prefix and separator.
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

/// Applies the config's rules and checks the item. `None`: the config says that it does not exist.
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
    // Clients read a list as one document, with parsers of limited depth: one item must not cost them all.
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
            // Servers are sorted: the first that has a URI keeps it as it is. What only tools name comes behind all that
            // is listed.
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

/// The names that are not what their servers call them, beside the prefix and characters that no name has.
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

/// Servers that list something, without a connection.
#[cfg(test)]
pub(in crate::gateway) mod testing {
    use super::*;
    use crate::link::reaper::Reaper;
    use crate::upstream::{ConnectTarget, ItemList, ServerLists, ServerSettings, UpstreamContext};

    /// A server that lists these items of a kind.
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

    /// The catalogue of these servers.
    pub(in crate::gateway) fn snapshot(members: &[Arc<ServerEntry>], rules: &NameRules) -> Snapshot {
        Snapshot::build(members, rules, &MeterFactory(Arc::new(Metrics::new())))
    }
}
