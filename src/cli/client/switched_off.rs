//! Tools that the gateway's config switches off, for the section of a system prompt. Owns the
//! requests to the admin listener.
//!
//! Does not write the section (`system_prompt.rs`). Invariant: without an answer from the gateway's
//! own admin listener, nothing is claimed, and no server is named of which the caller sees nothing.

use std::sync::Arc;
use std::time::Duration;

use moongate_api::{GatewayStatus, ItemState, ServerItems};
use moongate_jsonrpc::json::JsonObject;
use moongate_model::ItemKind;

use crate::cli::admin_client::AdminClient;

/// Time for all answers together. The section is also printed without them.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Tools of one server that are switched off, by the server's own names.
pub(super) struct SwitchedOffTools {
    pub(super) server: String,
    pub(super) tools: Vec<String>,
}

/// Looks for switched-off tools. `only` is the server that the endpoint is for, and `listed` is
/// what the caller sees.
pub(super) async fn find(
    admin: &AdminClient,
    only: Option<&str>,
    listed: &[Arc<JsonObject>],
) -> Vec<SwitchedOffTools> {
    let names: Vec<String> = listed
        .iter()
        .filter_map(|tool| ItemKind::Tools.key_of(tool))
        .map(|name| name.to_string())
        .collect();
    tokio::time::timeout(TIMEOUT, ask(admin, only, &names))
        .await
        .ok()
        .flatten()
        .unwrap_or_default()
}

async fn ask(
    admin: &AdminClient,
    only: Option<&str>,
    listed: &[String],
) -> Option<Vec<SwitchedOffTools>> {
    let (_, body) = admin.get("/api/v1/status").await.ok()?;
    let status: GatewayStatus = serde_json::from_slice(&body).ok()?;
    let mut found = Vec::new();
    for server in status.servers {
        let name = server.identity.name;
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let (_, body) = admin
            .get(&format!("/api/v1/servers/{name}/items"))
            .await
            .ok()?;
        // A server that is off has none, and the others still have theirs.
        let Ok(items) = serde_json::from_slice::<ServerItems>(&body) else {
            continue;
        };
        // A key or a view may hide a whole server, and then its tools do not concern this caller.
        let mut on = items
            .tools
            .iter()
            .filter(|tool| tool.state == ItemState::On);
        let is_seen = on.any(|tool| {
            let shown = match only {
                Some(_) => Some(&tool.name),
                None => tool.exposed.as_ref(),
            };
            shown.is_some_and(|shown| listed.contains(shown))
        });
        if !is_seen {
            continue;
        }
        let off = items
            .tools
            .into_iter()
            .filter(|tool| tool.state == ItemState::Off);
        let tools: Vec<String> = off.map(|tool| tool.name).collect();
        if !tools.is_empty() {
            found.push(SwitchedOffTools {
                server: name,
                tools,
            });
        }
    }
    Some(found)
}
