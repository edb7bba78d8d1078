//! Pages of MCP apps, which tools name and often no list has.
//!
//! Owns which pages become routes, and the tool's definition where its page has another URI. Does
//! not read pages. Invariant: a tool is never shown with the page of another server.

use std::collections::HashSet;
use std::sync::Arc;

use crate::catalog::Snapshot;
use crate::running_server::{RunningServer, server_name};
use crate::selected_item::{ListedDefinition, SelectedItem};
use crate::uris;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::ItemKind;
use moongate_protocol::LegacyForm;

/// Returns the pages that tools name and the lists of resources do not, for routes behind those of
/// `listed`. "Servers MAY omit UI-only resources from `resources/list`" (ext-apps, 2026-01-26,
/// Resource Discovery). Each tool has at most three. A page that the config excludes has no route
/// either.
pub(super) fn unlisted_app_pages<'a>(
    tools: &[SelectedItem<'a>],
    listed: &[SelectedItem<'a>],
) -> Vec<SelectedItem<'a>> {
    let mut known: HashSet<(&str, ByteString)> = listed
        .iter()
        .map(|t| (&*t.upstream.name, t.local.clone()))
        .collect();
    let mut pages = Vec::new();
    for tool in tools {
        let other = tool
            .other
            .as_ref()
            .and_then(|other| other.definition.as_ref());
        let named = [Some(&tool.definition), other].into_iter().flatten();
        for uri in named.flat_map(|definition| moongate_protocol::app_pages(&definition.item)) {
            let exists = tool
                .upstream
                .settings
                .presentation
                .resources
                .allows_uri(&uri);
            if exists && known.insert((&tool.upstream.name, uri.clone())) {
                pages.push(page(tool.upstream, uri));
            }
        }
    }
    pages
}

fn page<'a>(upstream: &'a Arc<RunningServer>, uri: ByteString) -> SelectedItem<'a> {
    // Implied items are hidden, so clients never see this definition.
    let definition = JsonObject::new()
        .with("uri", RawJson::string(&uri))
        .with("name", RawJson::string(&uri));
    let definition = ListedDefinition {
        item: Arc::new(definition),
        legacy: LegacyForm::Same,
        era: None,
    };
    let base_name = uri.to_string();
    let mends = Vec::new();
    SelectedItem {
        upstream,
        base_name,
        local: uri,
        definition,
        mends,
        other: None,
        implied: true,
    }
}

/// Returns the tool as it is listed through the endpoint over everything. Without a change, the
/// bytes are the same. `snapshot` has the resources already.
pub(super) fn with_exposed_pages(
    listed: RawJson,
    upstream: &RunningServer,
    snapshot: &Snapshot,
) -> RawJson {
    let server = server_name(upstream);
    moongate_protocol::with_app_pages(&listed, |uri| exposed_page(snapshot, &server, uri))
        .unwrap_or(listed)
}

/// Returns the exposed URI of a tool's page, if it differs.
fn exposed_page(snapshot: &Snapshot, server: &ByteString, uri: &ByteString) -> Option<ByteString> {
    match snapshot.find_local(ItemKind::Resources, server, uri) {
        Some(route) => (route.exposed != *uri).then(|| route.exposed.clone()),
        // Its page may not be read here, and another server's page of the same URI is not its own.
        None => snapshot
            .find_exposed(ItemKind::Resources, uri)
            .map(|_| ByteString::from(uris::wrap(server, uri))),
    }
}
