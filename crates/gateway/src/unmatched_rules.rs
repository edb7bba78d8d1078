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

/// Maximum number of names among which a similar one is searched.
const COMPARED_MAX: usize = 1000;

/// Returns a finding for each rule that matches nothing, as far as that is certain now.
pub(super) fn unmatched(generation: &Generation, snapshot: &Snapshot) -> Vec<CatalogFinding> {
    let mut found = of_servers(generation);
    let listed: Vec<&RunningServer> = generation
        .servers
        .iter()
        .map(|entry| &**entry)
        .filter(|m| m.is_listed())
        .collect();
    // A missing list may hold the item that a pattern matches.
    let whole = listed.len() == generation.servers.len();
    let exposed = || {
        snapshot
            .iter(ItemKind::Tools)
            .map(|route| (route.upstream.name.as_str(), route.exposed.as_str()))
    };
    // A pattern with a server's prefix in front can only match that server.
    let is_certain = |pattern: &str| {
        let is_of = |entry: &&RunningServer| {
            let beginning = generation
                .names
                .beginning(&entry.settings.presentation.prefix);
            beginning.is_some_and(|beginning| literal_beginning(pattern).starts_with(&beginning))
        };
        whole || listed.iter().any(is_of)
    };
    let mut of_tools = |setting: String, globs: &GlobList, names: Vec<&str>| {
        for pattern in globs
            .unmatched(names.iter().copied())
            .into_iter()
            .filter(|pattern| is_certain(pattern))
        {
            found.push(finding(
                None,
                &setting,
                pattern,
                "no tool",
                names.iter().copied(),
            ));
        }
    };
    for view in views_by_name(generation) {
        let names = exposed().filter(|(server, _)| {
            view.servers
                .as_ref()
                .is_none_or(|all| all.iter().any(|n| n == server))
        });
        let names: Vec<&str> = names.map(|(_, name)| name).collect();
        if let Some(search) = &view.search {
            of_tools(
                format!("views.{}.always", view.name),
                &search.always,
                names.clone(),
            );
        }
        of_tools(format!("views.{}.tools", view.name), &view.tools, names);
    }
    if let Some(search) = &generation.search {
        of_tools(
            "gateway.always".to_owned(),
            &search.always,
            exposed().map(|(_, name)| name).collect(),
        );
    }
    for (name, globs) in generation.access.tool_globs() {
        of_tools(
            format!("auth.keys (name {name:?}) tools"),
            globs,
            exposed().map(|(_, name)| name).collect(),
        );
    }
    found
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

fn of_servers(generation: &Generation) -> Vec<CatalogFinding> {
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
        // A rule that matches at one server is of use: `defaults` gives it to all of them.
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
    let keys = |kind: ItemKind| {
        items
            .get(kind)
            .items
            .iter()
            .filter_map(move |item| item.get_string(kind.item_key()))
            .collect()
    };
    let (tools, prompts): (Vec<ByteString>, Vec<ByteString>) =
        (keys(ItemKind::Tools), keys(ItemKind::Prompts));
    let (mut uris, templates): (Vec<ByteString>, Vec<ByteString>) =
        (keys(ItemKind::Resources), keys(ItemKind::Templates));
    // Rules may also mean pages that only tools name.
    uris.extend(
        items
            .get(ItemKind::Tools)
            .items
            .iter()
            .flat_map(|tool| moongate_protocol::app_pages(tool)),
    );
    uris.extend(templates.iter().cloned());
    // A resource in no list may still be read, by a template.
    let may_be_read = |pattern: &str| {
        let pattern = literal_beginning(pattern);
        let begins =
            |template: &ByteString| template.split('{').next().unwrap_or_default().to_owned();
        templates
            .iter()
            .map(begins)
            .any(|begin| begin.starts_with(pattern) || pattern.starts_with(&begin))
    };
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
                .filter(|pattern| section != "resources" || !may_be_read(pattern))
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
