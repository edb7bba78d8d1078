//! Routes of the page: views, fragments and files.
//!
//! Owns the routes and their headers, and reads what each view shows. Does not render (`moongate_page`). Invariant: a
//! fragment reads what the whole page reads.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::{Path, Request, State as Shared};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use maud::Markup;

use crate::access::RefusalText;
use crate::admin_state::AdminState;
use crate::calls::{call_row, endpoint_path};
use crate::config_view::config_state;
use crate::connect::{find_client, find_steps, list_clients, too_long_names, usable_keys};
use crate::endpoint_cost::server_cost;
use crate::json_body::JsonBody;
use crate::keys::list_keys;
use crate::operator_check::Operator;
use crate::page_viewer::PageViewer;
use crate::popular::list_popular;
use crate::server_details::effective_settings;
use crate::server_items::{describe_tool, find_items};
use crate::server_preview::preview_servers;
use crate::sessions::{session_rows, stateless_clients};
use crate::status::server_statuses;
use crate::tool_catalog::{find_tools, tools_by_server, with_exposed_name};
use moongate_api::{CallRow, PreviewRequest, ServerStatus, ToolExplanation};
use moongate_config::SettingPlaces;
use moongate_gateway::{EndpointCoverage, FindingTopic};
use moongate_jsonrpc::json::ByteString;
use moongate_listener::json_response;
use moongate_model::ItemKind;
use moongate_page::add::AddView;
use moongate_page::assets::find_asset;
use moongate_page::banners::NoticeFacts;
use moongate_page::calls::CallsView;
use moongate_page::connect::{ChosenClient, ConnectView};
use moongate_page::context::{self, ContextView, OwnedCost, SearchCost};
use moongate_page::differing_rows;
use moongate_page::endpoint_choice::{EndpointChoice, EndpointName};
use moongate_page::explain::{ExplainView, ShownAnswer, ShownRule};
use moongate_page::keys::{self, KeysView};
use moongate_page::server_tabs::OpenServer;
use moongate_page::servers::ServersView;
use moongate_page::sessions::SessionsView;
use moongate_page::shell::{self, PageContent, PageFrame, document};
use moongate_page::sign_in;
use moongate_page::tools::{self, ToolRows, ToolsView};
use moongate_page::try_it::{self, RepeatedCall, TriedTool};
use moongate_page::view_query::segment;

/// Headers of everything that belongs to the page.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (
        // The page shows texts of servers. If one were ever taken for markup, the browser would still run
        // nothing of it.
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; media-src data:; \
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

/// Time for reading the files of the config.
const ENTRY_TIMEOUT: Duration = Duration::from_secs(2);

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
        .route("/tools", get(tools_page))
        .route(
            "/connect",
            get(async |viewer: PageViewer| whole(&viewer, "Connect", connect_view(&viewer, |view| view.page()))),
        )
        .route("/add", get(add_page))
        .route("/parts/preview", post(preview_part))
        .route("/explain", get(explain_page))
        .route("/keys", get(async |viewer: PageViewer| whole(&viewer, "Keys", keys_view(&viewer, |view| view.page()))))
        .route("/parts/keys", get(async |viewer: PageViewer| part(keys_view(&viewer, |view| view.lists()))))
        .route("/try/{server}/{tool}", get(try_page))
        .route("/parts/try/{id}/{ask}", get(question_part))
        .route("/signin", get(signin_page))
        .route("/parts/summary", get(summary_part))
        .route("/parts/notices", get(async |viewer: PageViewer| part(notices(&viewer).draw())))
        .route("/parts/chips", get(async |viewer: PageViewer| part(servers_view(&viewer, None, |view| view.chips()))))
        .route("/parts/servers", get(servers_part))
        .route("/parts/server/{name}", get(server_part))
        .route("/parts/calls", get(async |viewer: PageViewer| part(calls_view(&viewer, |view| view.table()))))
        .route("/parts/sessions", get(sessions_part))
        .route("/parts/tools", get(tools_part))
        .route("/parts/connect", get(connect_part))
        .route("/parts/context", get(async |viewer: PageViewer| part(context_view(&viewer, context::table))))
        .route("/assets/{*path}", get(asset))
        .layer(middleware::map_response(add_headers))
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
    whole(&viewer, "Add", view.page())
}

/// Renders the preview that the API makes.
async fn preview_part(Operator(admin): Operator, JsonBody(wanted): JsonBody<PreviewRequest>) -> Response {
    let allow_commands = admin.reloader.config().edits.allow_commands;
    match preview_servers(&admin, wanted).await {
        Ok(found) => part(differing_rows::preview(found, allow_commands)),
        Err(refused) => refused,
    }
}

/// Reads the facts of the notices.
fn notices(viewer: &PageViewer) -> NoticeFacts {
    let snapshot = viewer.admin.gateway.snapshot();
    let findings = snapshot.findings_about(None, FindingTopic::Filter);
    NoticeFacts {
        config: config_state(&viewer.admin.reloader.config()),
        findings: findings.into_iter().map(str::to_owned).collect(),
        may_act: viewer.may_act,
    }
}

/// Reads the endpoint that a URL chooses, with what it covers.
fn chosen_endpoint(viewer: &PageViewer) -> (EndpointChoice, Option<EndpointCoverage>) {
    let gateway = &viewer.admin.gateway;
    let name = viewer.query.get("endpoint").unwrap_or_default();
    let coverage = gateway.endpoint_coverage(name);
    let all = gateway.endpoint_names().into_iter().map(named_endpoint).collect();
    (EndpointChoice { all, chosen: named_endpoint(name.to_owned()), is_there: coverage.is_some() }, coverage)
}

fn named_endpoint(name: String) -> EndpointName {
    EndpointName { path: endpoint_path(&name), name }
}

fn keys_view(viewer: &PageViewer, render: impl FnOnce(&KeysView<'_>) -> Markup) -> Markup {
    let admin = &viewer.admin;
    let endpoints = admin.gateway.endpoint_names().into_iter().filter(|name| !name.is_empty()).collect();
    let status = admin.reloader.config();
    render(&KeysView {
        keys: &list_keys(admin),
        may_act: viewer.may_act,
        may_edit: status.edits.edit,
        is_required: status.keys_required,
        endpoints,
    })
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
        return json_response(StatusCode::NOT_FOUND, "not_found", "The page has no such file");
    };
    let tag = asset.tag();
    let known = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let is_known = known.is_some_and(|tags| tags.split(',').any(|known| known.trim() == tag));
    let mut response = Response::new(AxumBody::from(if is_known { String::new() } else { asset.sent() }));
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
    let found = server_statuses(&viewer.admin).iter().any(|server| server.name() == name);
    let open = open_server(&viewer, &name).await;
    let page = servers_view(&viewer, Some((&name, open)), |view| view.page());
    let mut response = whole_of(&viewer, "Servers", &name, page);
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
    let (sessions, stateless) = (session_rows(&viewer.admin), stateless_clients(&viewer.admin));
    let view = SessionsView { sessions: &sessions, stateless: &stateless, may_act: viewer.may_act };
    whole(&viewer, "Sessions", view.page())
}

async fn sessions_part(viewer: PageViewer) -> Response {
    let (sessions, stateless) = (session_rows(&viewer.admin), stateless_clients(&viewer.admin));
    part(SessionsView { sessions: &sessions, stateless: &stateless, may_act: viewer.may_act }.lists())
}

async fn summary_part(viewer: PageViewer) -> Response {
    part(shell::summary(&server_statuses(&viewer.admin)))
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

/// Reads what the open card of a fragment shows.
async fn open_card(viewer: &PageViewer) -> Option<(&str, OpenServer)> {
    let name = viewer.query.get("open")?;
    Some((name, open_server(viewer, name).await))
}

/// Reads what the card of a server shows when it is open.
async fn open_server(viewer: &PageViewer, name: &str) -> OpenServer {
    let admin = &viewer.admin;
    let path = admin.reloader.config().places.server(name).map(|(file, _)| file.path.clone());
    let read = path.map(|path| {
        let name = name.to_owned();
        tokio::task::spawn_blocking(move || moongate_config::edit::shown_entry(&path, &name))
    });
    let entry = match read {
        // A network file system may stall. Then the card is shown without the entry.
        Some(read) => tokio::time::timeout(ENTRY_TIMEOUT, read).await.ok().and_then(Result::ok).flatten(),
        None => None,
    };
    OpenServer { items: find_items(admin, name), entry, effective: effective_settings(admin, name) }
}

fn servers_view(
    viewer: &PageViewer,
    open: Option<(&str, OpenServer)>,
    render: impl FnOnce(&ServersView<'_>) -> Markup,
) -> Markup {
    let servers = server_statuses(&viewer.admin);
    let is_demo = matches!(&servers[..], [only] if only.name() == "demo" && only.source.file.is_none());
    // Which card is open stands in the path, not in links to other states.
    let query = viewer.query.with("open", None);
    render(&ServersView { servers: &servers, query: &query, open, may_act: viewer.may_act, is_demo })
}

fn calls_view(viewer: &PageViewer, render: impl FnOnce(&CallsView<'_>) -> Markup) -> Markup {
    let calls = viewer.admin.gateway.recent_calls().changed_since(0);
    let calls: Vec<CallRow> = calls.iter().map(call_row).collect();
    let open = viewer.query.get("open").and_then(|id| calls.iter().find(|call| call.id == id));
    let try_path = open.filter(|call| call.method == "tools/call").and_then(|call| try_path(&viewer.admin, call));
    render(&CallsView { calls: &calls, query: &viewer.query, may_act: viewer.may_act, try_path })
}

/// Returns the path that tries the tool of a call, if its server still has it.
fn try_path(admin: &AdminState, call: &CallRow) -> Option<String> {
    let snapshot = admin.gateway.snapshot();
    let route = snapshot.iter(ItemKind::Tools).find(|route| {
        let is_named = call.name == route.exposed.as_str() || call.name == route.local.as_str();
        is_named && call.server == route.upstream.settings.name
    })?;
    Some(format!("/try/{}/{}", segment(&route.upstream.settings.name), segment(&route.local)))
}

fn context_view(viewer: &PageViewer, render: impl FnOnce(&ContextView<'_>) -> Markup) -> Markup {
    let servers = server_statuses(&viewer.admin);
    let (endpoint, coverage) = chosen_endpoint(viewer);
    let tools = coverage.map(|coverage| tools_by_server(&viewer.admin, &coverage)).unwrap_or_default();
    let costs = tools.into_iter().map(|tools| {
        let server = servers.iter().find(|server| server.name() == tools.owner.name);
        let owner = server.map_or(tools.owner, ServerStatus::owner);
        OwnedCost { cost: server_cost(&owner, tools.tools), owner }
    });
    let mut costs: Vec<OwnedCost> = costs.collect();
    costs.sort_by_key(|owned| std::cmp::Reverse(owned.cost.tokens));
    let search = viewer.admin.gateway.search_mode_list(endpoint.name());
    let search = search.map(|list| SearchCost { is_listed: list.is_listed, tools: list.tools, tokens: list.tokens() });
    let may_act = viewer.may_act;
    render(&ContextView { costs, endpoint: &endpoint, search, query: &viewer.query, may_act })
}

fn connect_view(viewer: &PageViewer, render: impl FnOnce(&ConnectView<'_>) -> Markup) -> Markup {
    let (admin, query) = (&*viewer.admin, &viewer.query);
    let (endpoint, _) = chosen_endpoint(viewer);
    let url = admin.url_of_endpoint(endpoint.name());
    let client = query.get("client").and_then(|id| find_client(admin, id));
    let key_name = client.as_ref().map(|client| keys::unused_name(&list_keys(admin), &client.id));
    let chosen = client.map(|client| ChosenClient {
        steps: find_steps(admin, &client.id, &url),
        too_long: too_long_names(admin, &client, endpoint.name()),
        client,
    });
    render(&ConnectView {
        url,
        clients: list_clients(admin),
        chosen,
        query,
        key_name: key_name.unwrap_or_default(),
        may_make_key: viewer.may_act && admin.reloader.config().edits.edit,
        keys: usable_keys(admin, endpoint.name()),
        is_open: admin.listener_state.load().auth.is_open(),
        endpoint: &endpoint,
    })
}

async fn connect_part(viewer: PageViewer) -> Response {
    part(connect_view(&viewer, |view| view.chosen.as_ref().map(|chosen| view.presence(chosen)).unwrap_or_default()))
}

async fn tools_page(viewer: PageViewer) -> Response {
    let answer = model_answer(&viewer).await;
    whole(&viewer, "Tools", tools_view(&viewer, answer, |view| view.page()))
}

async fn tools_part(viewer: PageViewer) -> Response {
    let answer = model_answer(&viewer).await;
    part(tools_view(&viewer, answer, |view| view.list()))
}

/// Returns what `search_tools` would answer, if the URL asks for it.
async fn model_answer(viewer: &PageViewer) -> Option<String> {
    let (query, gateway) = (&viewer.query, &viewer.admin.gateway);
    let words = query.get("q").filter(|_| query.get("model").is_some())?;
    gateway.search_text(query.get("endpoint").unwrap_or_default(), words).await?.ok()
}

async fn explain_page(viewer: PageViewer) -> Response {
    let (admin, query) = (&viewer.admin, &viewer.query);
    let auth = admin.listener_state.load().auth.clone();
    let mut principals: Vec<String> = auth.principals().all().iter().map(|principal| principal.name.clone()).collect();
    principals.sort();
    let first = principals.first().map(String::as_str).unwrap_or_default();
    let principal = query.get("principal").unwrap_or(first).to_owned();
    let (endpoint, _) = chosen_endpoint(&viewer);
    let asked =
        query.get("tool").and_then(|tool| admin.gateway.explain_tool(&auth, &principal, endpoint.name(), tool).ok());
    let editor = admin.editor.clone();
    let read = tokio::task::spawn_blocking(move || editor.setting_places());
    // The decision is right without places, too.
    let places = tokio::time::timeout(ENTRY_TIMEOUT, read).await.ok().and_then(Result::ok).flatten();
    let answer = asked.map(|explanation| shown_answer(explanation, places.as_ref()));
    let view = ExplainView { query, endpoint: &endpoint, principals, principal, answer };
    whole(&viewer, "Tools", view.page())
}

/// Adds the places of the rules, and the way to change the decision.
fn shown_answer(explanation: ToolExplanation, places: Option<&SettingPlaces>) -> ShownAnswer {
    let explanation = explanation.map_rules(|rule| {
        let found = places.and_then(|places| places.find(&rule.key));
        let found = found.and_then(|found| Some((found.key, found.origin.place()?)));
        let (key, place) = found.map_or_else(|| (rule.key.join("."), None), |(key, place)| (key, Some(place)));
        ShownRule { rule, key, place }
    });
    let tool = explanation.local_name.as_deref().unwrap_or(&explanation.tool);
    let remedy = explanation.rules.iter().find(|shown| shown.rule.decides).map(|shown| {
        let place = shown.place.as_ref().map(|place| format!("{} ({place})", shown.key));
        moongate_gateway::remedy(&shown.rule, tool, &place.unwrap_or_else(|| shown.key.clone()))
    });
    ShownAnswer { explanation, remedy }
}

fn tools_view(
    viewer: &PageViewer,
    model_answer: Option<String>,
    render: impl FnOnce(&ToolsView<'_>) -> Markup,
) -> Markup {
    let (admin, query) = (&*viewer.admin, &viewer.query);
    let (endpoint, coverage) = chosen_endpoint(viewer);
    let rows = match (&coverage, query.get("q")) {
        (Some(coverage), Some(text)) => ToolRows::Found(find_tools(admin, coverage, text, tools::shown_rows(query))),
        (Some(coverage), None) => ToolRows::All(tools_by_server(admin, coverage)),
        (None, _) => ToolRows::All(Vec::new()),
    };
    let open = tools::open_tool(query)
        .and_then(|(server, tool)| Some(with_exposed_name(coverage.as_ref()?, describe_tool(admin, server, tool)?)));
    let url = admin.url_of_endpoint(endpoint.name());
    render(&ToolsView { url, endpoint: &endpoint, rows, query, open, may_act: viewer.may_act, model_answer })
}

/// Handles `GET /try/{server}/{tool}`.
async fn try_page(viewer: PageViewer, Path((server, tool)): Path<(String, String)>) -> Response {
    if let Some(tried) = find_tried(&viewer.admin, &server, &tool) {
        return whole_of(&viewer, "Tools", &format!("{server} / {tool}"), try_it::view(&tried, viewer.may_act));
    }
    let mut response = whole(&viewer, "Tools", try_it::missing(&server, &tool));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn find_tried(admin: &AdminState, server: &str, tool: &str) -> Option<TriedTool> {
    let servers = admin.gateway.servers();
    let entry = servers.iter().find(|entry| entry.settings.name == server)?;
    let lists = entry.lists();
    let listed = &lists.get(ItemKind::Tools).items;
    // From the list of the server: the catalogue lacks tools that are off, and people may look at those.
    let definition = listed.iter().find(|item| item.get_string("name").as_deref() == Some(tool))?.clone();
    let snapshot = admin.gateway.snapshot();
    let route = snapshot.find_local(ItemKind::Tools, &ByteString::from(server), &ByteString::from(tool));
    let repeat = route.map(|route| {
        let example = moongate_protocol::example_call(&route.exposed);
        RepeatedCall {
            exposed: route.exposed.to_string(),
            url: admin.endpoint_url.clone(),
            headers: example.headers,
            body_before: example.body_before,
            body_after: example.body_after,
        }
    });
    let timeout = entry.settings.timeout;
    Some(TriedTool { server: server.to_owned(), tool: tool.to_owned(), definition, repeat, timeout })
}

/// Handles `GET /parts/try/{id}/{ask}`: the form of a server that asks.
async fn question_part(viewer: PageViewer, Path((id, ask)): Path<(String, String)>) -> Response {
    // What a server asks of an operator is for operators.
    match viewer.admin.operator_calls.find_ask(&id, &ask).filter(|_| viewer.may_act) {
        Some(request) => part(try_it::question(&id, &ask, &request)),
        None => json_response(StatusCode::NOT_FOUND, "not_found", "The server waits for this answer no more"),
    }
}

fn whole(viewer: &PageViewer, view: &'static str, body: Markup) -> Response {
    part(document(&frame(viewer), &PageContent { view, title: None, body }))
}

/// Renders a page of one thing, whose name stands in the title.
fn whole_of(viewer: &PageViewer, view: &'static str, title: &str, body: Markup) -> Response {
    part(document(&frame(viewer), &PageContent { view, title: Some(title), body }))
}

/// Reads what the frame of a page shows.
fn frame(viewer: &PageViewer) -> PageFrame {
    let admin = &viewer.admin;
    let urls = admin.gateway.endpoint_names().iter().map(|name| admin.url_of_endpoint(name)).collect();
    PageFrame {
        urls: if admin.endpoint_url.is_empty() { Vec::new() } else { urls },
        servers: server_statuses(admin),
        notices: notices(viewer),
        may_act: viewer.may_act,
        is_signed_in: viewer.is_signed_in,
        sees_keys: viewer.sees_keys(),
    }
}

fn part(markup: Markup) -> Response {
    let mut response = Response::new(AxumBody::from(markup.into_string()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unchanged_file_is_not_sent_again() {
        let first = asset(Path("app.css".to_owned()), HeaderMap::new()).await;
        let tag = first.headers()[header::ETAG].clone();
        let again = asset(Path("app.css".to_owned()), HeaderMap::from_iter([(header::IF_NONE_MATCH, tag)])).await;
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(asset(Path("../mod.rs".to_owned()), HeaderMap::new()).await.status(), StatusCode::NOT_FOUND);
    }
}
