//! Unmatched rules: patterns and names in the config that match nothing, which are usually
//! misspelled.
//!
//! Owns when that is certain. Does not apply rules (`access`). Invariant: a rule is reported only
//! after every server that it could match was listed in full.

use std::collections::HashSet;

use crate::catalog::Snapshot;
use crate::endpoint_scope::EndpointScope;
use crate::findings::{CatalogFinding, FindingTopic};
use crate::generation::Generation;
use crate::running_server::RunningServer;
use crate::settings::ViewRules;
use moongate_access::policy::{GlobList, ItemRules, literal_beginning};
use moongate_jsonrpc::json::ByteString;
use moongate_model::ItemKind;
use moongate_search::nearest;
use moongate_upstream::ServerLists;

/// Maximum number of names among which a similar one is searched.
const COMPARED_MAX: usize = 1000;

/// Returns a finding for each rule that matches nothing, as far as that is certain now.
pub(super) fn find_unmatched(generation: &Generation, snapshot: &Snapshot) -> Vec<CatalogFinding> {
    let mut rules = UnmatchedToolRules {
        generation,
        listed: generation
            .servers
            .iter()
            .map(|entry| &**entry)
            .filter(|m| m.is_listed())
            .collect(),
        found: unmatched_of_servers(generation),
    };
    for view in views_by_name(generation) {
        let routes = snapshot.iter(ItemKind::Tools).filter(|route| {
            view.servers
                .as_ref()
                .is_none_or(|all| all.iter().any(|n| *n == *route.upstream.name))
        });
        let names: Vec<&str> = routes.map(|route| route.exposed.as_str()).collect();
        if let Some(search) = &view.search {
            let setting = format!("views.{}.always", view.name);
            rules.add_unmatched(&setting, &search.always, &names);
        }
        rules.add_unmatched(&format!("views.{}.tools", view.name), &view.tools, &names);
    }
    if let Some(search) = &generation.search {
        rules.add_unmatched("gateway.always", &search.always, &tool_names(snapshot));
    }
    for (source, globs) in generation.access.tool_globs() {
        let [table, list, name, key] = source.setting("tools");
        let setting = format!("{table}.{list} (name {name:?}) {key}");
        rules.add_unmatched(&setting, globs, &tool_names(snapshot));
    }
    rules.found
}

fn tool_names(snapshot: &Snapshot) -> Vec<&str> {
    snapshot
        .iter(ItemKind::Tools)
        .map(|route| route.exposed.as_str())
        .collect()
}

/// Findings for rules that name tools of any server.
struct UnmatchedToolRules<'a> {
    generation: &'a Generation,
    /// Servers that were listed in full.
    listed: Vec<&'a RunningServer>,
    found: Vec<CatalogFinding>,
}

impl UnmatchedToolRules<'_> {
    /// Adds a finding for each pattern that certainly matches none of these names.
    fn add_unmatched(&mut self, setting: &str, globs: &GlobList, names: &[&str]) {
        for pattern in globs.unmatched(names.iter().copied()) {
            if self.is_certain(pattern) {
                let names = names.iter().copied();
                self.found
                    .push(finding(None, setting, pattern, "no tool", names));
            }
        }
    }

    /// Returns true if no missing list can hold a tool that the pattern matches.
    fn is_certain(&self, pattern: &str) -> bool {
        let is_whole = self.listed.len() == self.generation.servers.len();
        // A pattern with a server's prefix in front can only match that server.
        is_whole
            || self.listed.iter().any(|entry| {
                let names = &self.generation.names;
                names
                    .beginning(&entry.settings.presentation.prefix)
                    .is_some_and(|beginning| literal_beginning(pattern).starts_with(&beginning))
            })
    }
}

fn views_by_name(generation: &Generation) -> Vec<&ViewRules> {
    let mut views: Vec<&ViewRules> = generation
        .scopes
        .values()
        .filter_map(|scope| match scope {
            EndpointScope::View(view) => Some(&**view),
            _ => None,
        })
        .collect();
    views.sort_by(|one, other| one.name.cmp(&other.name));
    views
}

/// Rule by its section, key and pattern. Servers get the same ones from `defaults`, which need not
/// match at each server.
type RuleKey = (&'static str, &'static str, String);

fn unmatched_of_servers(generation: &Generation) -> Vec<CatalogFinding> {
    let mut found = Vec::new();
    let mut of_use = HashSet::new();
    for entry in &generation.servers {
        let left = if entry.is_listed() {
            unmatched_of_server(entry)
        } else {
            Vec::new()
        };
        let rules = rules_of(entry)
            .into_iter()
            .flat_map(|(section, rules)| rule_keys(section, rules));
        // A rule that matches at one server is useful: `defaults` gives it to all of them.
        of_use.extend(rules.filter(|rule| !left.iter().any(|(other, _)| other == rule)));
        found.extend(left);
    }
    found
        .into_iter()
        .filter(|(rule, _)| !of_use.contains(rule))
        .map(|(_, finding)| finding)
        .collect()
}

fn rules_of(entry: &RunningServer) -> [(&'static str, &ItemRules); 3] {
    let settings = &entry.settings;
    [
        ("tools", &settings.presentation.tools),
        ("prompts", &settings.presentation.prompts),
        ("resources", &settings.presentation.resources),
    ]
}

/// Returns every pattern and name of a section.
fn rule_keys(section: &'static str, rules: &ItemRules) -> Vec<RuleKey> {
    let globs = [
        ("allow", &rules.allow),
        ("deny", &rules.deny),
        ("hide", &rules.hide),
    ];
    let names = [("rename", &rules.rename), ("describe", &rules.describe)];
    let globs = globs.into_iter().flat_map(|(key, globs)| {
        globs
            .patterns()
            .iter()
            .map(move |p| (section, key, p.clone()))
    });
    let names = names
        .into_iter()
        .flat_map(|(key, names)| names.keys().map(move |n| (section, key, n.clone())));
    globs.chain(names).collect()
}

/// Returns the rules of a server that match none of its items.
fn unmatched_of_server(entry: &RunningServer) -> Vec<(RuleKey, CatalogFinding)> {
    let mut found = Vec::new();
    let server = entry.settings.name.as_str();
    let items = entry.lists();
    let tools = item_keys(&items, ItemKind::Tools);
    let prompts = item_keys(&items, ItemKind::Prompts);
    let mut uris = item_keys(&items, ItemKind::Resources);
    let templates = item_keys(&items, ItemKind::Templates);
    // Rules may also mean pages that only tools name.
    uris.extend(
        items
            .get(ItemKind::Tools)
            .items
            .iter()
            .flat_map(|tool| moongate_protocol::app_pages(tool)),
    );
    uris.extend(templates.iter().cloned());
    for (section, rules) in rules_of(entry) {
        let (what, names) = match section {
            "tools" => ("no tool", &tools),
            "prompts" => ("no prompt", &prompts),
            _ => ("no resource or template", &uris),
        };
        let texts = || names.iter().map(ByteString::as_str);
        let mut report = |key: &'static str, pattern: &str| {
            let setting = format!("servers.{server}.{section}.{key}");
            let rule = (section, key, pattern.to_owned());
            found.push((
                rule,
                finding(Some(server), &setting, pattern, what, texts()),
            ));
        };
        for (key, globs) in [
            ("allow", &rules.allow),
            ("deny", &rules.deny),
            ("hide", &rules.hide),
        ] {
            let unmatched = globs.unmatched(texts()).into_iter();
            unmatched
                .filter(|pattern| {
                    section != "resources" || !may_match_template(&templates, pattern)
                })
                .for_each(|pattern| report(key, pattern));
        }
        let known: HashSet<&str> = texts().collect();
        for (key, names) in [("rename", &rules.rename), ("describe", &rules.describe)] {
            names
                .keys()
                .filter(|name| !known.contains(name.as_str()))
                .for_each(|name| report(key, name));
        }
    }
    found
}

fn item_keys(lists: &ServerLists, kind: ItemKind) -> Vec<ByteString> {
    lists
        .get(kind)
        .items
        .iter()
        .filter_map(|item| item.get_string(kind.item_key()))
        .collect()
}

/// Returns true if a pattern may match a resource in no list, which a template can still read.
fn may_match_template(templates: &[ByteString], pattern: &str) -> bool {
    let pattern = literal_beginning(pattern);
    templates.iter().any(|template| {
        let beginning = template.split('{').next().unwrap_or_default();
        beginning.starts_with(pattern) || pattern.starts_with(beginning)
    })
}

fn finding<'a>(
    server: Option<&str>,
    setting: &str,
    pattern: &str,
    what: &str,
    names: impl Iterator<Item = &'a str>,
) -> CatalogFinding {
    let names: Vec<&str> = names.take(COMPARED_MAX).collect();
    let hint = nearest(pattern.trim_start_matches('!'), &names);
    let hint = hint
        .map(|name| format!("; did you mean {name:?}?"))
        .unwrap_or_default();
    let text = format!("{setting}: {what} matches {pattern:?}{hint}");
    CatalogFinding {
        server: server.map(str::to_owned),
        topic: FindingTopic::Filter,
        text,
    }
}
