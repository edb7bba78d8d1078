//! Catalogue parts for tests: servers that list items, without a connection.
//!
//! Owns no state. Does not test anything itself. Invariant: none of its servers is ever connected.

use std::sync::Arc;

use crate::catalog::Snapshot;
use crate::names::NameRules;
use crate::server_entry::ServerEntry;
use moongate_jsonrpc::json::JsonObject;
use moongate_model::ItemKind;
use moongate_telemetry::{MeterFactory, Metrics};
use moongate_transport::reaper::Reaper;
use moongate_upstream::{ConnectTarget, ItemList, NoSink, ServerLists, ServerSettings, Upstream, UpstreamContext};

/// Creates a server that lists these items of a kind.
pub(crate) fn server_entry(name: &str, kind: ItemKind, items: impl Iterator<Item = JsonObject>) -> Arc<ServerEntry> {
    let connect = ConnectTarget::Stdio { command: "none".to_owned(), args: Vec::new(), env: Vec::new(), cwd: None };
    let shared = Arc::new(UpstreamContext::new(Arc::new(Metrics::new()), Reaper::disabled()));
    let upstream = Upstream::new(ServerSettings::new(name, connect), shared, Arc::new(NoSink));
    let mut lists = ServerLists::default();
    lists.set(kind, ItemList { items: items.map(Arc::new).collect(), ..ItemList::default() });
    upstream.serve_lists(lists);
    Arc::new(ServerEntry { settings: upstream.settings.clone(), upstream })
}

/// Builds the catalogue of these servers.
pub(crate) fn snapshot(members: &[Arc<ServerEntry>], rules: &NameRules) -> Snapshot {
    Snapshot::build(members, rules, &MeterFactory(Arc::new(Metrics::new())))
}
