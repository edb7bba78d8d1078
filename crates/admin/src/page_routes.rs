//! Routes of the page: views, fragments and files.
//!
//! Owns the routes and their headers. Does not read what a view shows (`page_views.rs`) or render
//! (`moongate_page`). Invariant: whatever shows data passes the checks of the API.

use std::sync::Arc;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::{Path, Request, State as Shared};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::admin_state::AdminState;
use crate::json_body::JsonBody;
use crate::key_check::RefusalText;
use crate::operator_check::Operator;
use crate::page_answer::{notices, part, render_page, render_titled_page};
use crate::page_viewer::PageViewer;
use crate::page_views::{
    ENTRY_TIMEOUT, calls_view, chosen_endpoint, connect_view, context_view, find_tried, keys_view,
    model_answer, open_card, open_server, servers_view, shown_answer, tools_view,
};
use crate::popular::list_popular;
use crate::server_preview::preview_servers;
use crate::sessions::{session_rows, stateless_clients};
use crate::status::server_statuses;
use moongate_api::PreviewRequest;
use moongate_listener::json_response;
use moongate_page::add::AddView;
use moongate_page::assets::find_asset;
use moongate_page::explain::ExplainView;
use moongate_page::sessions::SessionsView;
use moongate_page::{context, differing_rows, frame, sign_in, try_it};

/// Headers of everything that belongs to the page.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (
        // The page shows texts of servers. If one were ever taken for markup, the browser would
        // still run nothing of it.
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src \
             'self' data:; media-src data:; \
             form-action 'self'; frame-ancestors 'none'; base-uri 'none'; \
             require-trusted-types-for 'script'; \
             trusted-types moongate",
        ),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    // URLs of views name servers and clients, which other sites must not learn.
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static("camera=(), microphone=(), geolocation=(), clipboard-read=()"),
    ),
];

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
        .route("/sessions", get(sessions_page))
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
        .route("/parts/sessions", get(sessions_part))
        .route("/parts/tools", get(tools_part))
        .route("/parts/connect", get(connect_part))
        .route(
            "/parts/context",
            get(async |viewer: PageViewer| part(context_view(&viewer, context::table))),
        )
}

async fn add_page(viewer: PageViewer) -> Response {
    let config = viewer.admin.reloader.config();
    let popular = list_popular(&viewer.admin).await;
    let files = config.places.files();
    let why_not = match config.edits.edit {
        false => Some("admin.edit is false".to_owned()),
        true => files.last().and_then(|file| file.why_not.clone()),
    };
    let view = AddView {
        query: &viewer.query,
        popular: &popular.servers,
        allow_commands: config.edits.allow_commands,
        may_act: viewer.may_act,
        why_not,
    };
    render_page(&viewer, "Add", view.page())
}

/// Renders the preview that the API makes.
async fn preview_part(
    Operator(admin): Operator,
    JsonBody(wanted): JsonBody<PreviewRequest>,
) -> Response {
    let allow_commands = admin.reloader.config().edits.allow_commands;
    match preview_servers(&admin, wanted).await {
        Ok(found) => part(differing_rows::preview(found, allow_commands)),
        Err(refused) => refused,
    }
}

/// Answers a browser that has no key with a page, if it asked for one.
pub(super) async fn explain_refusal(request: Request, next: Next) -> Response {
    let accept = request
        .headers()
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .unwrap_or_default();
    let wants_page = accept.contains("text/html") && !request.uri().path().starts_with("/api/");
    let response = next.run(request).await;
    let Some(refusal) = response
        .extensions()
        .get::<RefusalText>()
        .copied()
        .filter(|_| wants_page)
    else {
        return response;
    };
    let (mut parts, _) = response.into_parts();
    parts.headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    // The length was that of the JSON body.
    parts.headers.remove(header::CONTENT_LENGTH);
    let page = match refusal {
        RefusalText::SignIn => sign_in::sign_in_page(),
        RefusalText::Other(message) => sign_in::closed_page(message),
    };
    let body = AxumBody::from(page.into_string());
    add_headers(Response::from_parts(parts, body)).await
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

async fn add_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, value);
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

async fn sessions_page(viewer: PageViewer) -> Response {
    let sessions = session_rows(&viewer.admin);
    let stateless = stateless_clients(&viewer.admin);
    let view = SessionsView {
        sessions: &sessions,
        stateless: &stateless,
        may_act: viewer.may_act,
    };
    render_page(&viewer, "Sessions", view.page())
}

async fn sessions_part(viewer: PageViewer) -> Response {
    let sessions = session_rows(&viewer.admin);
    let stateless = stateless_clients(&viewer.admin);
    part(
        SessionsView {
            sessions: &sessions,
            stateless: &stateless,
            may_act: viewer.may_act,
        }
        .lists(),
    )
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
    let admin = &viewer.admin;
    let query = &viewer.query;
    let auth = admin.listener_state.load().auth.clone();
    let mut principals: Vec<String> = auth
        .principals()
        .all()
        .iter()
        .map(|principal| principal.name.clone())
        .collect();
    principals.sort();
    let first = principals.first().map(String::as_str).unwrap_or_default();
    let principal = query.get("principal").unwrap_or(first).to_owned();
    let (endpoint, _) = chosen_endpoint(&viewer);
    let asked = query.get("tool").and_then(|tool| {
        admin
            .gateway
            .explain_tool(&auth, &principal, endpoint.name(), tool)
            .ok()
    });
    let editor = admin.editor.clone();
    let read = tokio::task::spawn_blocking(move || editor.setting_places());
    // The decision is right without locations, too.
    let places = tokio::time::timeout(ENTRY_TIMEOUT, read)
        .await
        .ok()
        .and_then(Result::ok)
        .flatten();
    let answer = asked.map(|explanation| shown_answer(explanation, places.as_ref()));
    let view = ExplainView {
        query,
        endpoint: &endpoint,
        principals,
        principal,
        answer,
    };
    render_page(&viewer, "Tools", view.page())
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
