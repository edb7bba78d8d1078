//! Page of the admin listener: HTML that is rendered here, and made live by scripts of our own.
//!
//! Owns the routes of views, fragments and files, and their headers. Does not compute what it shows: views read the
//! objects of the API. Invariant: a fragment is rendered by the function that the whole page calls.

mod assets;
mod calls;
mod connect;
mod context;
mod endpoint_choice;
mod facts;
mod form;
mod icons;
mod server_tabs;
mod servers;
mod sessions;
mod shell;
mod sign_in;
mod switch;
#[cfg(test)]
mod tests;
mod text;
mod tool_row;
mod tools;
mod try_it;
mod view_query;
mod viewer;

use std::sync::Arc;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::{Path, Request, State as Shared};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use http::{HeaderName, HeaderValue, StatusCode, header};
use maud::Markup;
use serde_json::Value;

use crate::AdminState;
use crate::access::RefusalText;
use crate::connect::{client_signs, presence_json, steps_json, too_long_names};
use crate::items::{items_json, tool_json};
use crate::sessions::sessions_json;
use crate::status::servers_json;
use crate::tool_catalog::{find_tools, tools_by_server, with_exposed_name};
use calls::CallsView;
use connect::{ChosenClient, ConnectView};
use context::{ContextView, ServerCost};
use endpoint_choice::EndpointChoice;
use server_tabs::OpenServer;
use servers::ServersView;
use shell::{PageContent, document};
use tools::{ToolRows, ToolsView};
use viewer::PageViewer;

/// Headers of everything that belongs to the page.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (
        // The page shows texts of servers. If one were ever taken for markup, the browser would still run
        // nothing of it.
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
             form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; \
             trusted-types moongate",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    // URLs of views name servers and clients, which other sites must not learn.
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static("camera=(), microphone=(), geolocation=(), clipboard-read=()"),
    ),
];

/// Builds the routes of the page.
pub(super) fn routes() -> Router<Arc<AdminState>> {
    Router::new()
        .route(
            "/",
            get(async |viewer: PageViewer| whole(&viewer, "Servers", servers_view(&viewer, None, |view| view.page()))),
        )
        .route("/servers/{name}", get(server_page))
        .route(
            "/calls",
            get(async |viewer: PageViewer| whole(&viewer, "Calls", calls_view(&viewer, |view| view.page()))),
        )
        .route("/sessions", get(sessions_page))
        .route(
            "/context",
            get(async |viewer: PageViewer| whole(&viewer, "Context", context_view(&viewer, context::page))),
        )
        .route(
            "/tools",
            get(async |viewer: PageViewer| whole(&viewer, "Tools", tools_view(&viewer, |view| view.page()))),
        )
        .route(
            "/connect",
            get(async |viewer: PageViewer| whole(&viewer, "Connect", connect_view(&viewer, |view| view.page()))),
        )
        .route("/try/{server}/{tool}", get(try_it::page))
        .route("/parts/try/{id}/{ask}", get(try_it::ask_part))
        .route("/signin", get(signin_page))
        .route("/parts/summary", get(summary_part))
        .route("/parts/chips", get(async |viewer: PageViewer| part(servers_view(&viewer, None, |view| view.chips()))))
        .route("/parts/servers", get(servers_part))
        .route("/parts/server/{name}", get(server_part))
        .route("/parts/calls", get(async |viewer: PageViewer| part(calls_view(&viewer, |view| view.table()))))
        .route("/parts/sessions", get(sessions_part))
        .route("/parts/tools", get(async |viewer: PageViewer| part(tools_view(&viewer, |view| view.list()))))
        .route("/parts/connect", get(connect_part))
        .route("/parts/context", get(async |viewer: PageViewer| part(context_view(&viewer, context::table))))
        .route("/assets/{*path}", get(assets::asset))
        .layer(middleware::map_response(add_headers))
}

/// Answers a browser that has no key with a page, if it asked for one.
pub(super) async fn explain_refusal(request: Request, next: Next) -> Response {
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let wants_page = accept.contains("text/html") && !request.uri().path().starts_with("/api/");
    let response = next.run(request).await;
    let Some(refusal) = response.extensions().get::<RefusalText>().copied().filter(|_| wants_page) else {
        return response;
    };
    let (mut parts, _) = response.into_parts();
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    // The length was that of the JSON body.
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = AxumBody::from(sign_in::refusal_page(refusal).into_string());
    add_headers(Response::from_parts(parts, body)).await
}

async fn add_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, value);
    }
    response
}

async fn server_page(viewer: PageViewer, Path(name): Path<String>) -> Response {
    let found = servers_json(&viewer.admin).iter().any(|server| server["name"] == name.as_str());
    let mut response = whole(&viewer, "Servers", servers_view(&viewer, Some(&name), |view| view.page()));
    if !found {
        // The page is whole all the same: its list shows which servers there are.
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}

async fn signin_page(Shared(admin): Shared<Arc<AdminState>>) -> Response {
    let has_keys = !admin.access.load().keys.is_empty();
    part(if has_keys { sign_in::sign_in_page() } else { sign_in::no_keys_page() })
}

async fn sessions_page(viewer: PageViewer) -> Response {
    whole(&viewer, "Sessions", sessions::page(&sessions_json(&viewer.admin), viewer.may_act))
}

async fn sessions_part(viewer: PageViewer) -> Response {
    part(sessions::table(&sessions_json(&viewer.admin), viewer.may_act))
}

async fn summary_part(viewer: PageViewer) -> Response {
    part(shell::summary(&servers_json(&viewer.admin)))
}

async fn servers_part(viewer: PageViewer) -> Response {
    part(servers_view(&viewer, viewer.query.get("open"), |view| view.cards()))
}

async fn server_part(viewer: PageViewer, Path(name): Path<String>) -> Response {
    let servers = servers_json(&viewer.admin);
    let Some(server) = servers.iter().find(|server| server["name"] == name.as_str()) else {
        return moongate_server::json_response(StatusCode::NOT_FOUND, "not_found", "This server is gone");
    };
    part(servers_view(&viewer, viewer.query.get("open"), |view| view.card(server)))
}

fn servers_view(viewer: &PageViewer, open: Option<&str>, render: impl FnOnce(&ServersView<'_>) -> Markup) -> Markup {
    let servers = servers_json(&viewer.admin);
    let open = open.map(|name| (name, OpenServer(items_json(&viewer.admin, name).unwrap_or(Value::Null))));
    // Which card is open stands in the path, not in links to other states.
    let query = viewer.query.with("open", None);
    render(&ServersView { servers: &servers, query: &query, open, may_act: viewer.may_act })
}

fn calls_view(viewer: &PageViewer, render: impl FnOnce(&CallsView<'_>) -> Markup) -> Markup {
    let calls = viewer.admin.gateway.recent_calls().changed_since(0);
    let calls: Vec<Value> = calls.iter().map(crate::calls::call_json).collect();
    render(&CallsView { calls: &calls, query: &viewer.query, may_act: viewer.may_act })
}

fn context_view(viewer: &PageViewer, render: impl FnOnce(&mut ContextView<'_>) -> Markup) -> Markup {
    let servers = servers_json(&viewer.admin);
    let endpoint = EndpointChoice::read(&viewer.admin, &viewer.query);
    let tools = endpoint.coverage.as_ref().map(|coverage| tools_by_server(&viewer.admin, coverage)).unwrap_or_default();
    let costs = tools.into_iter().map(|tools| {
        let server = servers.iter().find(|server| server["name"] == tools.name());
        ServerCost::new(server.unwrap_or(&Value::Null), tools.tools)
    });
    render(&mut ContextView { costs: costs.collect(), endpoint: &endpoint, query: &viewer.query })
}

fn connect_view(viewer: &PageViewer, render: impl FnOnce(&ConnectView<'_>) -> Markup) -> Markup {
    let (admin, query) = (&*viewer.admin, &viewer.query);
    let endpoint = EndpointChoice::read(admin, query);
    let url = admin.url_of_endpoint(&endpoint.name);
    let profile = query.get("client").and_then(moongate_clients::client);
    let chosen = profile.map(|profile| ChosenClient {
        profile,
        steps: steps_json(admin, profile, &url),
        presence: presence_json(&client_signs(admin), profile),
        too_long: too_long_names(admin, profile, &endpoint.name),
    });
    render(&ConnectView { endpoint: &endpoint, url, chosen, query })
}

async fn connect_part(viewer: PageViewer) -> Response {
    part(connect_view(&viewer, |view| view.chosen.as_ref().map(|chosen| view.presence(chosen)).unwrap_or_default()))
}

fn tools_view(viewer: &PageViewer, render: impl FnOnce(&ToolsView<'_>) -> Markup) -> Markup {
    let (admin, query) = (&*viewer.admin, &viewer.query);
    let endpoint = EndpointChoice::read(admin, query);
    let rows = match (&endpoint.coverage, query.get("q")) {
        (Some(coverage), Some(text)) => ToolRows::Found(find_tools(admin, coverage, text, tools::shown_rows(query))),
        (Some(coverage), None) => ToolRows::All(tools_by_server(admin, coverage)),
        (None, _) => ToolRows::All(Vec::new()),
    };
    let open = tools::open_tool(query).and_then(|(server, tool)| {
        Some(with_exposed_name(endpoint.coverage.as_ref()?, tool_json(admin, server, tool)?))
    });
    let (url, may_act) = (admin.url_of_endpoint(&endpoint.name), viewer.may_act);
    render(&ToolsView { url, endpoint: &endpoint, rows, query, open, may_act })
}

fn whole(viewer: &PageViewer, view: &'static str, body: Markup) -> Response {
    part(document(viewer, &PageContent { view, body }))
}

fn part(markup: Markup) -> Response {
    let mut response = Response::new(AxumBody::from(markup.into_string()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
