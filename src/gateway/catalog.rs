//! Everything that all servers offer, under the names that clients see.
//!
//! Owns the snapshot and how it is built. Does not talk to servers. Invariant: a snapshot is never changed, only
//! replaced; what it lists, it can route, and what it cannot expose is named with the reason.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, PoisonError};

use crate::gateway::findings::{Finding, Topic};
use crate::gateway::generation::Member;
use crate::gateway::names::{Assigned, NameChange, NameRules, Wanting, assign};
use crate::gateway::schemas::Combined;
use crate::gateway::templates::{LookupBudget, OPEN_TEMPLATES_MAX, TemplateIndex};
use crate::gateway::{apps, merge, schemas, uris};
use crate::json::{Object, Raw, Text};
use crate::model::{CacheHint, Kind, Method};
use crate::policy::ItemRules;
use crate::telemetry::{Meter, Meters, Metrics};
use crate::upstream::{Upstream, depth};

/// How long clients may keep a list whose servers say nothing about it, in milliseconds: they are told of changes.
const LIST_TTL_MS: u64 = 60_000;
/// Tools that have meters of their own; more share one, so that a server cannot fill the metrics.
const METERS_MAX: usize = 5_000;

/// One item and where it leads.
pub struct Route {
    /// Its server.
    pub upstream: Arc<Member>,
    /// The server's own key: a name, a URI, a template.
    pub local: Text,
    /// The same as JSON, as calls carry it.
    pub local_raw: Raw,
    /// The key that clients see through the endpoint over everything.
    pub exposed: Text,
    /// The definition, as the server gave it (repaired if need be).
    pub definition: Arc<Object>,
    /// What is listed through the endpoint over everything.
    pub listed: Raw,
    /// Whether lists leave it out.
    pub hidden: bool,
    /// Whether no list of its server has it: a tool names it.
    pub implied: bool,
    /// Of a tool: why model APIs refuse it, and its schema as they take it.
    pub(super) combined: Option<Combined>,
    /// What its calls are measured by.
    pub meter: Arc<Meter>,
}

/// An item that cannot be exposed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeftOut {
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
    exposed: [BTreeMap<Text, Arc<Route>>; 4],
    /// By kind, server and own key.
    local: [HashMap<(Text, Text), Arc<Route>>; 4],
    /// What could not be exposed.
    pub left_out: Vec<LeftOut>,
    /// What else its operator should hear of.
    pub findings: Vec<Finding>,
    templates: TemplateIndex,
    /// The servers that list resources or templates, by name.
    resource_servers: BTreeSet<Text>,
    hints: HashMap<(Text, Kind), Option<CacheHint>>,
    lists: Mutex<HashMap<ListKey, Listed>>,
}

/// Which list it is: the endpoint, the row of the policy, the kind, whether it says what may become a task.
type ListKey = (Text, u32, Kind, bool);

/// A list as an endpoint shows it.
#[derive(Clone)]
pub struct Listed {
    /// The result.
    pub result: Object,
    /// How long it may be kept.
    pub hint: CacheHint,
    /// The same for lists of the same bytes, in this process.
    pub digest: u64,
}

impl Snapshot {
    /// Merges what the servers offer. `servers` are sorted by name.
    pub fn build(servers: &[Arc<Member>], rules: &NameRules, meters: &Meters) -> Self {
        let mut snapshot = Snapshot::default();
        let mut found = Kind::ALL.map(|kind| snapshot.gather(kind, servers));
        snapshot.bound_open_templates(&mut found[Kind::Templates as usize]);
        let pages = apps::pages(&found[Kind::Tools as usize], &found[Kind::Resources as usize]);
        found[Kind::Resources as usize].extend(pages);
        // Tools come last: some name resources, by the URIs that those have got.
        for kind in [Kind::Resources, Kind::Templates, Kind::Prompts, Kind::Tools] {
            let found = std::mem::take(&mut found[kind as usize]);
            let keys = exposed_keys(kind, &found, rules);
            snapshot.findings.extend(changed_names(kind, &found, &keys, rules));
            for (n, (taken, (exposed, _))) in found.into_iter().zip(keys).enumerate() {
                let mut route = taken.route(kind, Text::from(exposed), meters, n < METERS_MAX);
                if kind == Kind::Tools {
                    route.listed = apps::with_pages(route.listed, &route.upstream, &snapshot);
                }
                snapshot.insert(kind, route);
            }
        }
        snapshot.templates = TemplateIndex::new(snapshot.iter(Kind::Templates));
        snapshot
    }

    /// What the servers list of a kind and may be exposed; the rest is noted.
    fn gather<'a>(&mut self, kind: Kind, servers: &'a [Arc<Member>]) -> Vec<Taken<'a>> {
        let mut found = Vec::new();
        for upstream in servers {
            let items = upstream.items();
            let list = items.get(kind);
            self.hints.insert((name_of(upstream), kind), list.cache);
            for item in &list.items {
                match take(kind, upstream, item) {
                    Ok(Some(taken)) => found.push(taken),
                    Ok(None) => {}
                    Err(left_out) => self.left_out.push(left_out),
                }
            }
        }
        found
    }

    /// Leaves out templates that begin with an expression where a server has many: each costs every lookup a try.
    fn bound_open_templates(&mut self, found: &mut Vec<Taken<'_>>) {
        let mut open: HashMap<&str, usize> = HashMap::new();
        let left_out = &mut self.left_out;
        found.retain(|taken| {
            let server = taken.upstream.settings.name.as_str();
            if !taken.local.starts_with('{') {
                return true;
            }
            let count = open.entry(server).or_default();
            *count += 1;
            if *count > OPEN_TEMPLATES_MAX {
                let item = format!("{} {}", Kind::Templates.member(), taken.local);
                let reason = format!("it begins with an expression, as {OPEN_TEMPLATES_MAX} others of its server do");
                left_out.push(LeftOut { server: server.to_owned(), item, reason });
            }
            *count <= OPEN_TEMPLATES_MAX
        });
    }

    fn insert(&mut self, kind: Kind, route: Route) {
        if matches!(kind, Kind::Resources | Kind::Templates) && !route.implied {
            self.resource_servers.insert(name_of(&route.upstream));
        }
        let route = Arc::new(route);
        self.local[kind as usize].insert((name_of(&route.upstream), route.local.clone()), route.clone());
        self.exposed[kind as usize].insert(route.exposed.clone(), route);
    }

    /// The item with this exposed key.
    pub fn find(&self, kind: Kind, exposed: &Text) -> Option<&Arc<Route>> {
        self.exposed[kind as usize].get(exposed)
    }

    /// The item of one server with this key of its own.
    pub fn find_local(&self, kind: Kind, server: &Text, local: &Text) -> Option<&Arc<Route>> {
        self.local[kind as usize].get(&(server.clone(), local.clone()))
    }

    /// All items of a kind, in the order of their exposed keys.
    pub fn iter(&self, kind: Kind) -> impl Iterator<Item = &Arc<Route>> {
        self.exposed[kind as usize].values()
    }

    /// The template that a URI can come from; none where the budget is spent.
    pub(super) fn find_template(&self, uri: &str, budget: &LookupBudget) -> Option<&Arc<Route>> {
        self.templates.find(uri, budget)
    }

    /// The servers that list resources or templates, by name.
    pub(super) fn resource_servers(&self) -> impl Iterator<Item = &Text> {
        self.resource_servers.iter()
    }

    /// A list, made once for each endpoint and row of the policy.
    pub fn list(&self, key: ListKey, public: bool, visible: impl Fn(&Route) -> Option<Raw>) -> Listed {
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
        for server in items.iter().map(|(route, _)| name_of(&route.upstream)) {
            if let Some(Some(given)) = self.hints.get(&(server, kind)) {
                hint = CacheHint { ttl_ms: hint.ttl_ms.min(given.ttl_ms), public: hint.public && given.public };
            }
        }
        let array = Raw::array(items.iter().map(|(_, item)| item));
        let digest = BuildHasherDefault::<DefaultHasher>::default().hash_one(array.bytes());
        let list = Listed { result: Object::new().with(kind.member(), array).sealed(), hint, digest };
        self.lock_lists().insert(key, list.clone());
        list
    }

    fn lock_lists(&self) -> std::sync::MutexGuard<'_, HashMap<ListKey, Listed>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The servers whose list of this kind differs between two snapshots.
    pub fn changed(&self, before: &Snapshot, kind: Kind) -> Vec<Text> {
        let mut servers = Vec::new();
        let (now, then) = (&self.exposed[kind as usize], &before.exposed[kind as usize]);
        let differs = |a: &BTreeMap<Text, Arc<Route>>, b: &BTreeMap<Text, Arc<Route>>, servers: &mut Vec<Text>| {
            // "Servers MAY omit UI-only resources from […] `notifications/resources/list_changed`" (ext-apps, 2026-01-26).
            for (key, route) in a.iter().filter(|(_, route)| !route.implied) {
                let other = b.get(key).filter(|other| !other.implied);
                let same = other.is_some_and(|other| other.listed == route.listed && other.hidden == route.hidden);
                let server = name_of(&route.upstream);
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
    pub fn measure(&self, servers: &[Arc<Member>], metrics: &Metrics) {
        for upstream in servers {
            let name = &upstream.settings.name;
            for kind in Kind::ALL {
                let count = self.iter(kind).filter(|r| r.upstream.settings.name == *name && !r.implied).count();
                metrics.catalog_items.with_label_values(&[name, kind.member()]).set(whole(count));
            }
            let tools = self.iter(Kind::Tools).filter(|r| r.upstream.settings.name == *name && !r.hidden);
            let bytes: usize = tools.map(|route| route.listed.bytes().len()).sum();
            metrics.catalog_bytes.with_label_values(&[name]).set(whole(bytes));
            metrics.catalog_tokens.with_label_values(&[name]).set(whole(bytes / 4));
            let left_out = self.left_out.iter().filter(|l| l.server == *name).count();
            metrics.catalog_left_out.with_label_values(&[name]).set(whole(left_out));
            self.count_unmatched(Some(name), metrics);
        }
        self.count_unmatched(None, metrics);
    }
}

impl Snapshot {
    fn count_unmatched(&self, server: Option<&str>, metrics: &Metrics) {
        let of_server = |finding: &&Finding| finding.topic == Topic::Filter && finding.server.as_deref() == server;
        let count = self.findings.iter().filter(of_server).count();
        metrics.filters_unmatched.with_label_values(&[server.unwrap_or_default()]).set(whole(count));
    }

    /// What its operator should hear of a server; `None`: of views and keys.
    pub fn told(&self, server: Option<&str>, topic: Topic) -> Vec<&str> {
        let told = self.findings.iter().filter(|f| f.topic == topic && f.server.as_deref() == server);
        told.map(|finding| finding.text.as_str()).collect()
    }
}

fn whole(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(super) fn name_of(upstream: &Upstream) -> Text {
    upstream.name.clone()
}

// === building ===

/// An item that will be exposed, before it has its key.
pub(super) struct Taken<'a> {
    pub(super) upstream: &'a Arc<Member>,
    pub(super) local: Text,
    /// What it is called before prefix and separator.
    pub(super) stem: String,
    pub(super) definition: Arc<Object>,
    pub(super) implied: bool,
}

fn rules_of(upstream: &Member, kind: Kind) -> &ItemRules {
    match kind {
        Kind::Tools => &upstream.settings.tools,
        Kind::Prompts => &upstream.settings.prompts,
        Kind::Resources | Kind::Templates => &upstream.settings.resources,
    }
}

/// Applies the config's rules and checks the item. `None`: the config says that it does not exist.
fn take<'a>(kind: Kind, upstream: &'a Arc<Member>, item: &Arc<Object>) -> Result<Option<Taken<'a>>, LeftOut> {
    let left_out = |reason: String| LeftOut {
        server: upstream.settings.name.clone(),
        item: format!("{} {}", kind.member(), item.text(kind.item_key()).map(|t| t.to_string()).unwrap_or_default()),
        reason,
    };
    // Clients read a list as one document, with parsers of limited depth: one item must not cost them all.
    if depth(&item.bytes()) > upstream.settings.lists.depth {
        let (most, name) = (upstream.settings.lists.depth, &upstream.settings.name);
        return Err(left_out(format!("it is nested deeper than {most} levels (servers.{name}.max_depth)")));
    }
    let definition = merge::check(kind, item).map_err(left_out)?;
    if kind == Kind::Tools
        && let Some(problem) = upstream.tool_problem(&definition)
    {
        return Err(left_out(problem));
    }
    let Some(local) = definition.text(kind.item_key()) else { return Ok(None) };
    let rules = rules_of(upstream, kind);
    if !rules.exists(&local) {
        return Ok(None);
    }
    if matches!(kind, Kind::Resources | Kind::Templates) && !rules.has_uri(&local) {
        let name = &upstream.settings.name;
        let reason = format!("it has dot segments, %2e, %2f or %5c, and servers.{name}.resources has patterns");
        return Err(left_out(reason));
    }
    let stem = rules.rename.get(local.as_str()).cloned().unwrap_or_else(|| local.to_string());
    Ok(Some(Taken { upstream, local, stem, definition, implied: false }))
}

fn exposed_keys(kind: Kind, found: &[Taken<'_>], rules: &NameRules) -> Vec<Assigned> {
    match kind {
        Kind::Tools | Kind::Prompts => {
            let wanting = found.iter().map(|t| Wanting {
                server: &t.upstream.settings.name,
                prefix: &t.upstream.settings.prefix,
                name: &t.stem,
                local: &t.local,
            });
            assign(&wanting.collect::<Vec<_>>(), rules)
        }
        Kind::Resources | Kind::Templates => {
            // Servers are sorted: the first that has a URI keeps it as it is. What only tools name comes behind all that
            // is listed.
            let mut owners: HashMap<&str, &str> = HashMap::new();
            let key = |t: &Taken<'_>| {
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
fn changed_names(kind: Kind, found: &[Taken<'_>], keys: &[Assigned], rules: &NameRules) -> Vec<Finding> {
    let change = |(taken, (exposed, change)): (&Taken<'_>, &Assigned)| {
        let server = taken.upstream.settings.name.as_str();
        let mut why = Vec::new();
        if matches!(kind, Kind::Tools | Kind::Prompts) && taken.stem != taken.local.as_str() {
            why.push(format!("renamed by servers.{server}.{}.rename", kind.member()));
        }
        match change {
            Some(NameChange::Cut) => why.push(format!("cut to {} bytes (names.max_length)", rules.max_length)),
            Some(NameChange::Taken(other)) => why.push(format!("server {other} has another one of that name")),
            None => {}
        }
        let text = format!("{} {} is exposed as {exposed}: {}", kind.member(), taken.local, why.join(", "));
        (!why.is_empty()).then(|| Finding { server: Some(server.to_owned()), topic: Topic::Name, text })
    };
    found.iter().zip(keys).filter_map(change).collect()
}

impl Taken<'_> {
    fn route(self, kind: Kind, exposed: Text, meters: &Meters, own_meter: bool) -> Route {
        let rules = rules_of(self.upstream, kind);
        let listed = merge::dress(kind, &self.definition, &exposed, rules.describe.get(self.local.as_str()));
        let method = match kind {
            Kind::Tools => Method::CallTool,
            Kind::Prompts => Method::GetPrompt,
            Kind::Resources | Kind::Templates => Method::ReadResource,
        };
        let tool = if kind == Kind::Tools { if own_meter { exposed.as_str() } else { "_OTHER" } } else { "" };
        Route {
            meter: Arc::new(meters.meter(method.name(), &self.upstream.settings.name, tool)),
            upstream: self.upstream.clone(),
            hidden: self.implied || rules.hide.matches(&self.local),
            implied: self.implied,
            local_raw: Raw::string(&self.local),
            local: self.local,
            exposed,
            combined: if kind == Kind::Tools { schemas::combined(&self.definition) } else { None },
            definition: self.definition,
            listed,
        }
    }
}

/// Servers that list something, without a connection.
#[cfg(test)]
pub(in crate::gateway) mod testing {
    use super::*;
    use crate::link::guard::Guard;
    use crate::upstream::{Connect, Items, List, ServerSettings, Shared};

    /// A server that lists these items of a kind.
    pub(in crate::gateway) fn member(name: &str, kind: Kind, items: impl Iterator<Item = Object>) -> Arc<Member> {
        let connect = Connect::Stdio { command: "none".to_owned(), args: Vec::new(), env: Vec::new(), cwd: None };
        let shared = Arc::new(Shared::new(Arc::new(Metrics::new()), Guard::none()));
        let upstream = Upstream::new(ServerSettings::new(name, connect), shared, Arc::new(|_, _| {}));
        let mut lists = Items::default();
        lists.set(kind, List { items: items.map(Arc::new).collect(), ..List::default() });
        upstream.serve_items(lists);
        Arc::new(Member { settings: upstream.settings.clone(), upstream })
    }

    /// The catalogue of these servers.
    pub(in crate::gateway) fn snapshot(members: &[Arc<Member>], rules: &NameRules) -> Snapshot {
        Snapshot::build(members, rules, &Meters(Arc::new(Metrics::new())))
    }
}
