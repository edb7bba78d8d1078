//! Popular servers, and those of them that the config has.
//!
//! Owns the route. Does not own the table (`moongate_config`). Invariant: nothing is fetched.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::actions::Viewer;
use crate::{AdminState, json};
use moongate_clients::import::{ImportState, read_text};
use moongate_config::{PopularServer, popular_servers};

/// Handles `GET /api/v1/popular`.
pub(super) async fn popular(Viewer(admin): Viewer) -> Response {
    json(StatusCode::OK, &json!({ "servers": popular_json(&admin).await }))
}

/// Lists the table, with what the config has of it.
pub(super) async fn popular_json(admin: &AdminState) -> Vec<Value> {
    let today = jiff::Zoned::now().date();
    let added = added_names(admin).await;
    let describe = |server: &PopularServer| {
        let mut described = server.to_json(today);
        described["added"] = added.contains(&server.name).into();
        described
    };
    popular_servers().iter().map(describe).collect()
}

/// Returns the popular servers that the config has, under whatever name.
async fn added_names(admin: &AdminState) -> Vec<String> {
    // Programs are told by their name alone: their arguments are the operator's.
    let remote = popular_servers().iter().filter_map(|server| Some((&server.name, server.url.as_ref()?)));
    let text: serde_json::Map<String, Value> =
        remote.map(|(name, url)| (name.clone(), json!({ "url": url }))).collect();
    let entries = read_text(&json!({ "servers": text }).to_string()).map(|read| read.servers).unwrap_or_default();
    let names: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
    // Renamed ones keep their place, so rows and names stay in one order.
    // A config that cannot be read now is told elsewhere, and hides no table.
    let rows = admin.control.plan_import(entries, String::new()).await.unwrap_or_default().rows;
    let known = rows.iter().zip(names).filter(|(row, _)| matches!(row.state, ImportState::Same { .. }));
    let status = admin.control.config();
    let programs = popular_servers().iter().filter(|server| server.url.is_none());
    let programs = programs.filter(|server| status.places.server(&server.name).is_some());
    known.map(|(_, name)| name).chain(programs.map(|server| server.name.clone())).collect()
}
