//! Counters of a server: what it offers, what its tools cost a model, and how it is used.
//!
//! Owns the sums per server. Does not describe items (`server_items.rs`). Invariant: hidden tools
//! cost nothing, because no list that a model reads contains them.

use std::collections::HashMap;
use std::sync::Arc;

use moongate_api::{CallCounts, LastError, ServerCounters};
use moongate_gateway::{CatalogRoute, RunningServer, Snapshot, estimate_tokens};
use moongate_jsonrpc::json::JsonObject;
use moongate_model::ItemKind;
use moongate_telemetry::CallTotals;

/// Calls of a server's items, and the cost of its listed tools.
#[derive(Clone, Default)]
pub(super) struct ServerUse {
    calls: CallTotals,
    /// Number of listed tools.
    listed: usize,
    /// Bytes of their definitions.
    bytes: usize,
}

/// Sums up the use of each server, in one pass over the catalogue.
pub(super) fn use_by_server(snapshot: &Snapshot) -> HashMap<&str, ServerUse> {
    let mut all: HashMap<&str, ServerUse> = HashMap::new();
    for kind in [ItemKind::Tools, ItemKind::Prompts] {
        for route in snapshot.iter(kind) {
            let server = all.entry(&route.upstream.settings.name).or_default();
            server.calls.add(&route.meter.totals());
            if kind == ItemKind::Tools && !route.hidden {
                server.listed += 1;
                server.bytes += route.form.listed.bytes().len();
            }
        }
    }
    all
}

/// Counts what a server offers, what that costs a model, and how it is used.
pub(super) fn count_use(
    server: &RunningServer,
    used: Option<&ServerUse>,
    snapshot: &Snapshot,
    last_error: Option<LastError>,
) -> ServerCounters {
    let ServerUse {
        calls: totals,
        listed,
        bytes,
    } = used.cloned().unwrap_or_default();
    let lists = server.lists();
    let offered = |kind: ItemKind| lists.get(kind).items.len() as u64;
    let all = lists
        .get(ItemKind::Tools)
        .items
        .iter()
        .map(|tool| listed_bytes(tool, find_route(snapshot, server, tool)))
        .sum();
    ServerCounters {
        connections: server.dedicated_count() as u64,
        waiting: server.queue_len() as u64,
        inflight: server.inflight() as u64,
        last_error,
        tools: offered(ItemKind::Tools),
        resources: offered(ItemKind::Resources),
        prompts: offered(ItemKind::Prompts),
        tools_on: listed as u64,
        tokens: estimate_tokens(bytes),
        tokens_all: estimate_tokens(all),
        calls: CallCounts {
            ok: totals.ok,
            tool_error: totals.tool_errors,
            error: totals.errors,
        },
        p50_ms: quantile_ms(&totals, 0.5),
        p95_ms: quantile_ms(&totals, 0.95),
    }
}

/// Finds the route of a server's tool. `None` for one that the gateway does not expose.
pub(super) fn find_route<'a>(
    snapshot: &'a Snapshot,
    server: &RunningServer,
    tool: &JsonObject,
) -> Option<&'a Arc<CatalogRoute>> {
    let local = tool.get_string(ItemKind::Tools.item_key())?;
    snapshot.find_local(ItemKind::Tools, &server.name, &local)
}

/// Returns the time in milliseconds that this part of the calls stays below.
pub(super) fn quantile_ms(totals: &CallTotals, part: f64) -> Option<f64> {
    totals
        .quantile(part)
        .map(|seconds| (seconds * 1e4).round() / 10.0)
}

/// Returns the size of an item as lists show it. One in no list counts as its server wrote it.
pub(super) fn listed_bytes(item: &JsonObject, route: Option<&Arc<CatalogRoute>>) -> usize {
    route.map_or_else(
        || item.bytes().len(),
        |route| route.form.listed.bytes().len(),
    )
}
