//! Building of the catalogue from what all servers list.
//!
//! Owns the exposed keys and the order of building. Does not talk to servers. Invariant: every
//! listed item can be routed, and every item that cannot be exposed is named with the reason.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::catalog::Snapshot;
use crate::findings::{CatalogFinding, FindingTopic};
use crate::names::{AssignedName, NameChange, NameRequest, NameRules, assign};
use crate::running_server::{RunningServer, server_name};
use crate::selected_item::{
    ExcludedItem, ListedDefinition, OtherDefinition, SelectedItem, select_item,
};
use crate::templates::{OPEN_TEMPLATES_MAX, TemplateIndex};
use crate::{mcp_apps, uris};
use moongate_jsonrpc::json::ByteString;
use moongate_model::ItemKind;
use moongate_protocol::{Era, LEGACY_ONLY, LegacyForm};
use moongate_telemetry::MeterFactory;
use moongate_upstream::ItemList;

/// Maximum number of tools with their own meters. Further ones share a meter, so that a server
/// cannot fill the metrics.
const METERS_MAX: usize = 5_000;

impl Snapshot {
    /// Builds a snapshot of what the servers offer. `servers` are sorted by name.
    pub fn build(servers: &[Arc<RunningServer>], rules: &NameRules, meters: &MeterFactory) -> Self {
        let mut snapshot = Snapshot::default();
        let mut found = ItemKind::ALL.map(|kind| snapshot.select_items(kind, servers));
        // Before the names are assigned, so that a template that is left out takes no URI from
        // another.
        snapshot.bound_open_templates(&mut found[ItemKind::Templates as usize]);
        let pages = mcp_apps::unlisted_app_pages(
            &found[ItemKind::Tools as usize],
            &found[ItemKind::Resources as usize],
        );
        found[ItemKind::Resources as usize].extend(pages);
        // Tools come last: some name resources by exposed URIs, which must be known by then.
        for kind in [
            ItemKind::Resources,
            ItemKind::Templates,
            ItemKind::Prompts,
            ItemKind::Tools,
        ] {
            let found = std::mem::take(&mut found[kind as usize]);
            let keys = exposed_keys(kind, &found, rules);
            snapshot
                .findings
                .extend(changed_names(kind, &found, &keys, rules));
            for (n, (taken, (exposed, _))) in found.into_iter().zip(keys).enumerate() {
                let mut route =
                    taken.into_route(kind, ByteString::from(exposed), meters, n < METERS_MAX);
                if kind == ItemKind::Tools {
                    let other = route.other.as_mut().and_then(|other| other.form.as_mut());
                    for form in [Some(&mut route.form), other].into_iter().flatten() {
                        form.listed = mcp_apps::with_exposed_pages(
                            form.listed.clone(),
                            &route.upstream,
                            &snapshot,
                        );
                    }
                }
                snapshot.insert(kind, route);
            }
        }
        snapshot.templates = TemplateIndex::new(snapshot.iter(ItemKind::Templates));
        snapshot
    }

    /// Selects the items of a kind that may be exposed, and notes the others.
    fn select_items<'a>(
        &mut self,
        kind: ItemKind,
        servers: &'a [Arc<RunningServer>],
    ) -> Vec<SelectedItem<'a>> {
        let mut found = Vec::new();
        for upstream in servers {
            let lists = upstream.era_lists();
            let shared = lists.shared().get(kind);
            let other = lists.other().get(kind);
            // Only modern lists have hints.
            let modern = if lists.era() == Era::Modern {
                shared
            } else {
                other
            };
            self.hints
                .insert((server_name(upstream), kind), modern.cache);
            let (mut of_shared, left_out) = select_list(kind, upstream, lists.era(), shared);
            if Arc::ptr_eq(shared, other) {
                self.excluded.extend(left_out);
                of_shared
                    .iter()
                    .for_each(|taken| self.note_mends(kind, taken, true, &mut HashSet::new()));
                // A server that lists one schema in both eras gives one form of its values, too.
                if lists.are_both_listed(kind) {
                    of_shared
                        .iter_mut()
                        .for_each(|taken| taken.definition.era = None);
                }
                found.extend(of_shared);
                continue;
            }
            let (of_other, more_left_out) = select_list(kind, upstream, lists.other_era(), other);
            // An item that is left out of both is named once.
            let known: HashSet<&ExcludedItem> = left_out.iter().collect();
            let more = more_left_out
                .iter()
                .filter(|item| !known.contains(item))
                .cloned()
                .collect::<Vec<_>>();
            self.excluded.extend(left_out);
            self.excluded.extend(more);
            let mut named = HashSet::new();
            for (era, items) in [(lists.era(), &of_shared), (lists.other_era(), &of_other)] {
                items
                    .iter()
                    .for_each(|taken| self.note_mends(kind, taken, era == Era::Legacy, &mut named));
            }
            found.extend(join_eras(
                (lists.era(), lists.are_both_listed(kind)),
                of_shared,
                of_other,
            ));
        }
        found
    }

    /// Notes what was mended in an item, and what legacy clients do not get if they get this list.
    /// What is `named` already is not named again: both faces of a server may list it alike.
    fn note_mends(
        &mut self,
        kind: ItemKind,
        taken: &SelectedItem<'_>,
        is_for_legacy: bool,
        named: &mut HashSet<String>,
    ) {
        let server = taken.upstream.settings.name.clone();
        let item = format!("{} {}", kind.member(), taken.local);
        let mut reasons = taken.mends.clone();
        match &taken.definition.legacy {
            _ if !is_for_legacy => {}
            LegacyForm::Same => {}
            LegacyForm::Mended(mend) => {
                reasons.push(format!("{} ({LEGACY_ONLY})", mend.reasons.join("; ")))
            }
            LegacyForm::LeftOut(reason) => {
                let reason = format!("{reason} ({LEGACY_ONLY})");
                self.excluded.push(ExcludedItem {
                    server: server.clone(),
                    item: item.clone(),
                    reason,
                });
            }
        }
        if !reasons.is_empty() {
            let text = format!("{item}: {}", reasons.join("; "));
            if named.insert(text.clone()) {
                self.findings.push(CatalogFinding {
                    server: Some(server),
                    topic: FindingTopic::Mended,
                    text,
                });
            }
        }
    }

    /// Excludes templates that start with an expression where a server has many. Each of them costs
    /// every lookup a try.
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
                let reason = format!(
                    "it starts with an expression, like {OPEN_TEMPLATES_MAX} other templates of \
                     its server"
                );
                left_out.push(ExcludedItem {
                    server: server.to_owned(),
                    item,
                    reason,
                });
            }
            *count <= OPEN_TEMPLATES_MAX
        });
    }
}

/// Selects the items of one list of a server. Also returns those that are left out.
fn select_list<'a>(
    kind: ItemKind,
    upstream: &'a Arc<RunningServer>,
    era: Era,
    list: &ItemList,
) -> (Vec<SelectedItem<'a>>, Vec<ExcludedItem>) {
    let mut found = Vec::new();
    let mut left_out: Vec<ExcludedItem> = list
        .refused
        .iter()
        .map(|refused| ExcludedItem {
            server: upstream.settings.name.clone(),
            item: format!("{} {}", kind.member(), refused.item),
            reason: refused.reason.clone(),
        })
        .collect();
    for item in &list.items {
        match select_item(kind, upstream, era, item) {
            Ok(Some(taken)) => {
                let definition = ListedDefinition {
                    era: list.era,
                    ..taken.definition.clone()
                };
                found.push(SelectedItem {
                    definition,
                    ..taken
                });
            }
            Ok(None) => {}
            Err(excluded) => left_out.push(excluded),
        }
    }
    (found, left_out)
}

/// Joins the items of both faces of a server: one item for each key, in the order of the shared
/// connection's list.
fn join_eras<'a>(
    (era, are_both_listed): (Era, bool),
    shared: Vec<SelectedItem<'a>>,
    other: Vec<SelectedItem<'a>>,
) -> impl Iterator<Item = SelectedItem<'a>> {
    let other_era = if era == Era::Modern {
        Era::Legacy
    } else {
        Era::Modern
    };
    let mut forms: HashMap<ByteString, ListedDefinition> = other
        .iter()
        .map(|item| (item.local.clone(), item.definition.clone()))
        .collect();
    let mut joined: Vec<SelectedItem<'a>> = Vec::with_capacity(shared.len());
    for item in shared {
        let definition = forms.remove(&item.local);
        let is_same = definition
            .as_ref()
            .is_some_and(|other| other.is_like(&item.definition));
        let other = (!is_same).then_some(OtherDefinition {
            era: other_era,
            definition,
        });
        let mut item = SelectedItem { other, ..item };
        if is_same && are_both_listed {
            item.definition.era = None;
        }
        joined.push(item);
    }
    let only_there = other
        .into_iter()
        .filter(move |item| forms.contains_key(&item.local));
    joined
        .into_iter()
        .chain(only_there.map(move |item| SelectedItem {
            other: Some(OtherDefinition {
                era,
                definition: None,
            }),
            ..item
        }))
}

fn exposed_keys(
    kind: ItemKind,
    found: &[SelectedItem<'_>],
    rules: &NameRules,
) -> Vec<AssignedName> {
    match kind {
        ItemKind::Tools | ItemKind::Prompts => {
            let wanting = found.iter().map(|t| NameRequest {
                server: &t.upstream.settings.name,
                prefix: &t.upstream.settings.presentation.prefix,
                name: &t.base_name,
                local: &t.local,
            });
            assign(&wanting.collect::<Vec<_>>(), rules)
        }
        ItemKind::Resources | ItemKind::Templates => {
            // Servers are sorted, and the first owner of a URI keeps it unwrapped. Pages that only
            // tools name come behind all listed resources.
            let mut owners: HashMap<&str, &str> = HashMap::new();
            let mut keys = Vec::with_capacity(found.len());
            for taken in found {
                let server = taken.upstream.settings.name.as_str();
                let uri = taken.local.as_str();
                let owner = *owners.entry(uri).or_insert(server);
                let is_plain = owner == server && !uris::looks_wrapped(uri);
                keys.push((
                    if is_plain {
                        uri.to_owned()
                    } else {
                        uris::wrap(server, uri)
                    },
                    None,
                ));
            }
            keys
        }
    }
}

/// Returns findings for names that differ from the servers' own, beyond the prefix and characters
/// that no name has.
fn changed_names(
    kind: ItemKind,
    found: &[SelectedItem<'_>],
    keys: &[AssignedName],
    rules: &NameRules,
) -> Vec<CatalogFinding> {
    found
        .iter()
        .zip(keys)
        .filter_map(|(item, assigned)| changed_name(kind, item, assigned, rules))
        .collect()
}

fn changed_name(
    kind: ItemKind,
    item: &SelectedItem<'_>,
    (exposed, change): &AssignedName,
    rules: &NameRules,
) -> Option<CatalogFinding> {
    let server = item.upstream.settings.name.as_str();
    let mut why = Vec::new();
    if matches!(kind, ItemKind::Tools | ItemKind::Prompts) && item.base_name != item.local.as_str()
    {
        why.push(format!(
            "renamed by servers.{server}.{}.rename",
            kind.member()
        ));
    }
    match change {
        Some(NameChange::Truncated) => why.push(format!(
            "cut to {} bytes (names.max_length)",
            rules.max_length
        )),
        Some(NameChange::Taken(other)) => {
            why.push(format!("server {other} has another item with that name"))
        }
        None => {}
    }
    let text = format!(
        "{} {} is exposed as {exposed}: {}",
        kind.member(),
        item.local,
        why.join(", ")
    );
    (!why.is_empty()).then(|| CatalogFinding {
        server: Some(server.to_owned()),
        topic: FindingTopic::Name,
        text,
    })
}
