//! Popular servers, and those of them that the config has.
//!
//! Owns the handler, and which of them the config has. Does not own the table (`moongate_config`).
//! Invariant: nothing is fetched.

use std::collections::BTreeMap;

use axum::response::Response;
use http::StatusCode;

use crate::admin_state::AdminState;
use crate::json_answer::json;
use crate::operator_check::Viewer;
use moongate_api::{ListedPopular, PopularList};
use moongate_clients::import::{ImportState, read_text};
use moongate_config::popular_servers;
use serde::Serialize;

/// Handles `GET /api/v1/popular`.
pub(super) async fn popular(Viewer(admin): Viewer) -> Response {
    json(StatusCode::OK, &list_popular(&admin).await)
}

/// Lists the table, with what the config has of it.
pub(super) async fn list_popular(admin: &AdminState) -> PopularList {
    let today = jiff::Zoned::now().date();
    let known = added_names(admin).await;
    let servers = popular_servers().iter().map(|server| ListedPopular {
        server: server.row(today),
        added: known.contains(&server.name),
    });
    PopularList {
        servers: servers.collect(),
    }
}

/// Text with servers, as a client's config has them.
#[derive(Serialize)]
struct RemoteServers<'a> {
    servers: BTreeMap<&'a str, RemoteServer<'a>>,
}

#[derive(Serialize)]
struct RemoteServer<'a> {
    url: &'a str,
}

/// Returns the popular servers that the config has, under whatever name.
async fn added_names(admin: &AdminState) -> Vec<String> {
    // Programs are matched by their name alone: their arguments are the operator's.
    let remote = popular_servers().iter().filter_map(|server| {
        let url = server.url.as_deref()?;
        Some((server.name.as_str(), RemoteServer { url }))
    });
    // Fails never: all keys are strings.
    let text = serde_json::to_string(&RemoteServers {
        servers: remote.collect(),
    })
    .unwrap_or_default();
    let entries = read_text(&text)
        .map(|read| read.servers)
        .unwrap_or_default();
    let names: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
    // Renamed ones keep their position, so rows and names stay in one order.
    // A config that cannot be read now is reported elsewhere, and hides no table.
    let rows = admin
        .editor
        .plan_import(entries, String::new())
        .await
        .unwrap_or_default()
        .rows;
    let known = rows
        .iter()
        .zip(names)
        .filter(|(row, _)| matches!(row.state, ImportState::Same { .. }));
    let status = admin.reloader.config();
    let programs = popular_servers()
        .iter()
        .filter(|server| server.url.is_none());
    let programs = programs.filter(|server| status.places.server(&server.name).is_some());
    known
        .map(|(_, name)| name)
        .chain(programs.map(|server| server.name.clone()))
        .collect()
}
