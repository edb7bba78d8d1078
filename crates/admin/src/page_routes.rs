//! Routes of the page: views, fragments and files.
//!
//! Owns the routes and the headers of files. Does not read what a view shows (`page_views.rs`),
//! frame it (`page_answer.rs`) or render it (`moongate_page`). Invariant: whatever shows data
//! passes the checks of the API.

use std::sync::Arc;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::{Path, State as Shared};
use axum::middleware;
use axum::response::Response;
use axum::routing::{get, post};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::admin_state::AdminState;
use crate::json_body::JsonBody;
use crate::operator_check::Operator;
use crate::page_answer::{notices, part, render_page, render_titled_page};
use crate::page_headers::add_headers;
use crate::page_viewer::PageViewer;
use crate::page_views::{
    add_view, calls_view, connect_view, context_view, explain_view, find_tried, keys_view,
    model_answer, open_card, open_server, people_view, servers_view, sessions_view, tools_view,
};
use crate::server_preview::preview_servers;
use crate::status::server_statuses;
use moongate_api::PreviewRequest;
use moongate_listener::json_response;
use moongate_page::assets::find_asset;
use moongate_page::{context, frame, preview, sign_in, try_it};

/// Builds the routes of the page.
pub(super) fn routes() -> Router<Arc<AdminState>> {
    Router::new()
        .merge(view_routes())
        .merge(part_routes())
        .route("/assets/{*path}", get(asset))
        .layer(middleware::map_response(add_headers))
}

/// Builds the routes of whole pages.
fn view_routes() -> Router<Arc<AdminState>> {
    Router::new()
        .route(
            "/",
            get(async |viewer: PageViewer| {
                render_page(
                    &viewer,
                    "Servers",
                    servers_view(&viewer, None, |view| view.page()),
                )
            }),
        )
        .route("/servers/{name}", get(server_page))
        .route(
            "/calls",
            get(async |viewer: PageViewer| {
                render_page(&viewer, "Calls", calls_view(&viewer, |view| view.page()))
            }),
        )
        .route(
            "/sessions",
            get(async |viewer: PageViewer| {
                render_page(
                    &viewer,
                    "Sessions",
                    sessions_view(&viewer, |view| view.page()),
                )
            }),
        )
        .route(
            "/people",
            get(async |viewer: PageViewer| {
                render_page(&viewer, "People", people_view(&viewer, |view| view.page()))
            }),
        )
        .route(
            "/context",
            get(async |viewer: PageViewer| {
                render_page(&viewer, "Context", context_view(&viewer, context::page))
            }),
        )
        .route("/tools", get(tools_page))
        .route(
            "/connect",
            get(async |viewer: PageViewer| {
                render_page(
                    &viewer,
                    "Connect",
                    connect_view(&viewer, |view| view.page()),
                )
            }),
        )
        .route("/add", get(add_page))
        .route("/explain", get(explain_page))
        .route(
            "/keys",
            get(async |viewer: PageViewer| {
                render_page(&viewer, "Keys", keys_view(&viewer, |view| view.page()))
            }),
        )
        .route("/try/{server}/{tool}", get(try_page))
        .route("/signin", get(signin_page))
}

/// Builds the routes of fragments, which replace parts of a page.
fn part_routes() -> Router<Arc<AdminState>> {
    Router::new()
        .route("/parts/preview", post(preview_part))
        .route(
            "/parts/keys",
            get(async |viewer: PageViewer| part(keys_view(&viewer, |view| view.lists()))),
        )
        .route("/parts/try/{id}/{ask}", get(question_part))
        .route("/parts/summary", get(summary_part))
        .route(
            "/parts/notices",
            get(async |viewer: PageViewer| part(notices(&viewer).draw())),
        )
        .route(
            "/parts/chips",
            get(async |viewer: PageViewer| part(servers_view(&viewer, None, |view| view.chips()))),
        )
        .route("/parts/servers", get(servers_part))
        .route("/parts/server/{name}", get(server_part))
        .route(
            "/parts/calls",
            get(async |viewer: PageViewer| part(calls_view(&viewer, |view| view.table()))),
        )
        .route(
            "/parts/sessions",
            get(async |viewer: PageViewer| part(sessions_view(&viewer, |view| view.lists()))),
        )
        .route(
            "/parts/people",
            get(async |viewer: PageViewer| part(people_view(&viewer, |view| view.list()))),
        )
        .route("/parts/tools", get(tools_part))
        .route("/parts/connect", get(connect_part))
        .route(
            "/parts/context",
            get(async |viewer: PageViewer| part(context_view(&viewer, context::table))),
        )
}

async fn add_page(viewer: PageViewer) -> Response {
    let view = add_view(&viewer).await;
    render_page(&viewer, "Add", view)
}

/// Renders the preview that the API makes.
async fn preview_part(
    Operator(admin): Operator,
    JsonBody(wanted): JsonBody<PreviewRequest>,
) -> Response {
    let allow_commands = admin.reloader.config().edits.allow_commands;
    match preview_servers(&admin, wanted).await {
        Ok(found) => part(preview::render(found, allow_commands)),
        Err(refused) => refused,
    }
}

/// Handles `GET /assets/{path}`.
async fn asset(Path(path): Path<String>, headers: HeaderMap) -> Response {
    let Some(asset) = find_asset(&path) else {
        return json_response(
            StatusCode::NOT_FOUND,
            "not_found",
            "The page has no such file",
        );
    };
    let tag = asset.tag();
    let known = headers
        .get(header::IF_NONE_MATCH)
        .and_then(|tags| tags.to_str().ok());
    let is_known = known.is_some_and(|tags| tags.split(',').any(|known| known.trim() == tag));
    let mut response = Response::new(AxumBody::from(if is_known {
        String::new()
    } else {
        asset.sent()
    }));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    // Asked for at each load: after an upgrade, old scripts must not run with new HTML.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

async fn server_page(viewer: PageViewer, Path(name): Path<String>) -> Response {
    let found = server_statuses(&viewer.admin)
        .iter()
        .any(|server| server.name() == name);
    let open = open_server(&viewer, &name).await;
    let page = servers_view(&viewer, Some((&name, open)), |view| view.page());
    let mut response = render_titled_page(&viewer, "Servers", &name, page);
    if !found {
        // The page is still whole: its list shows which servers there are.
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}

async fn signin_page(Shared(admin): Shared<Arc<AdminState>>) -> Response {
    let has_keys = !admin.access.load().keys.is_empty();
    part(if has_keys {
        sign_in::sign_in_page()
    } else {
        sign_in::no_keys_page()
    })
}

async fn summary_part(viewer: PageViewer) -> Response {
    part(frame::summary(&server_statuses(&viewer.admin)))
}

async fn servers_part(viewer: PageViewer) -> Response {
    let open = open_card(&viewer).await;
    part(servers_view(&viewer, open, |view| view.cards()))
}

async fn server_part(viewer: PageViewer, Path(name): Path<String>) -> Response {
    let servers = server_statuses(&viewer.admin);
    let Some(server) = servers.iter().find(|server| server.name() == name) else {
        return json_response(StatusCode::NOT_FOUND, "not_found", "This server is gone");
    };
    let open = open_card(&viewer).await;
    part(servers_view(&viewer, open, |view| view.card(server)))
}

async fn connect_part(viewer: PageViewer) -> Response {
    part(connect_view(&viewer, |view| {
        view.chosen
            .as_ref()
            .map(|chosen| view.presence(chosen))
            .unwrap_or_default()
    }))
}

async fn tools_page(viewer: PageViewer) -> Response {
    let answer = model_answer(&viewer).await;
    render_page(
        &viewer,
        "Tools",
        tools_view(&viewer, answer, |view| view.page()),
    )
}

async fn tools_part(viewer: PageViewer) -> Response {
    let answer = model_answer(&viewer).await;
    part(tools_view(&viewer, answer, |view| view.list()))
}

async fn explain_page(viewer: PageViewer) -> Response {
    let view = explain_view(&viewer).await;
    render_page(&viewer, "Tools", view)
}

/// Handles `GET /try/{server}/{tool}`.
async fn try_page(viewer: PageViewer, Path((server, tool)): Path<(String, String)>) -> Response {
    if let Some(tried) = find_tried(&viewer.admin, &server, &tool) {
        return render_titled_page(
            &viewer,
            "Tools",
            &format!("{server} / {tool}"),
            try_it::view(&tried, viewer.may_act),
        );
    }
    let mut response = render_page(&viewer, "Tools", try_it::missing(&server, &tool));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// Handles `GET /parts/try/{id}/{ask}`: the form of a server that asks.
async fn question_part(viewer: PageViewer, Path((id, ask)): Path<(String, String)>) -> Response {
    // What a server asks of an operator is for operators.
    match viewer
        .admin
        .operator_calls
        .find_ask(&id, &ask)
        .filter(|_| viewer.may_act)
    {
        Some(request) => part(try_it::question(&id, &ask, &request)),
        None => json_response(
            StatusCode::NOT_FOUND,
            "not_found",
            "The server no longer waits for this answer",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unchanged_file_is_not_sent_again() {
        let first = asset(Path("app.css".to_owned()), HeaderMap::new()).await;
        let tag = first.headers()[header::ETAG].clone();
        let again = asset(
            Path("app.css".to_owned()),
            HeaderMap::from_iter([(header::IF_NONE_MATCH, tag)]),
        )
        .await;
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(
            asset(Path("../mod.rs".to_owned()), HeaderMap::new())
                .await
                .status(),
            StatusCode::NOT_FOUND
        );
    }
}
