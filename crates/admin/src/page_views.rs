//! Views of the page, each with what the gateway says about it.
//!
//! Owns what each view reads. Does not answer requests (`page_routes.rs`) or render
//! (`moongate_page`). Invariant: a fragment reads what the whole page reads.

use std::time::Duration;

use maud::Markup;

use crate::admin_state::AdminState;
use crate::calls::call_row;
use crate::connect::{find_client, find_steps, list_clients, too_long_names, usable_keys};
use crate::endpoint_cost::server_cost;
use crate::endpoint_path::endpoint_path;
use crate::keys::list_keys;
use crate::page_viewer::PageViewer;
use crate::popular::list_popular;
use crate::server_details::effective_settings;
use crate::server_items::{describe_tool, find_items};
use crate::sessions::{session_rows, stateless_clients};
use crate::status::server_statuses;
use crate::tool_catalog::{find_tools, tools_by_server, with_exposed_name};
use moongate_api::{CallRow, ServerStatus, ToolExplanation};
use moongate_config::SettingLocations;
use moongate_gateway::EndpointCoverage;
use moongate_jsonrpc::json::ByteString;
use moongate_model::ItemKind;
use moongate_page::add::AddView;
use moongate_page::calls::CallsView;
use moongate_page::connect::{ChosenClient, ConnectView};
use moongate_page::context::{ContextView, OwnedCost, SearchCost};
use moongate_page::endpoint_choice::{EndpointChoice, EndpointName};
use moongate_page::explain::{ExplainView, ShownAnswer, ShownRule};
use moongate_page::keys::{self, KeylessAccess, KeysView};
use moongate_page::people::PeopleView;
use moongate_page::server_tabs::OpenServer;
use moongate_page::servers::ServersView;
use moongate_page::sessions::SessionsView;
use moongate_page::tools::{self, ToolRows, ToolsView};
use moongate_page::try_it::{RepeatedCall, TriedTool};
use moongate_page::view_query::segment;

/// Time for reading the files of the config.
const ENTRY_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads the endpoint that a URL chooses, with what it covers.
fn chosen_endpoint(viewer: &PageViewer) -> (EndpointChoice, Option<EndpointCoverage>) {
    let gateway = &viewer.admin.gateway;
    let name = viewer.query.get("endpoint").unwrap_or_default();
    let coverage = gateway.endpoint_coverage(name);
    let all = gateway
        .endpoint_names()
        .into_iter()
        .map(named_endpoint)
        .collect();
    (
        EndpointChoice {
            all,
            chosen: named_endpoint(name.to_owned()),
            is_there: coverage.is_some(),
        },
        coverage,
    )
}

fn named_endpoint(name: String) -> EndpointName {
    EndpointName {
        path: endpoint_path(&name),
        name,
    }
}

/// Renders the ways to add a server.
pub(super) async fn add_view(viewer: &PageViewer) -> Markup {
    let config = viewer.admin.reloader.config();
    let popular = list_popular(&viewer.admin).await;
    let files = config.places.files();
    let why_not = match config.edits.edit {
        false => Some("admin.edit is false".to_owned()),
        true => files.last().and_then(|file| file.why_not.clone()),
    };
    AddView {
        query: &viewer.query,
        popular: &popular.servers,
        allow_commands: config.edits.allow_commands,
        may_act: viewer.may_act,
        why_not,
    }
    .page()
}

/// Renders the keys.
pub(super) fn keys_view(
    viewer: &PageViewer,
    render: impl FnOnce(&KeysView<'_>) -> Markup,
) -> Markup {
    let admin = &viewer.admin;
    let endpoints = admin
        .gateway
        .endpoint_names()
        .into_iter()
        .filter(|name| !name.is_empty())
        .collect();
    let status = admin.reloader.config();
    let without_keys = match (status.admits_people, status.keys_required) {
        (true, _) => KeylessAccess::People,
        (false, true) => KeylessAccess::Nobody,
        (false, false) => KeylessAccess::Everybody,
    };
    render(&KeysView {
        keys: &list_keys(admin),
        may_act: viewer.may_act,
        may_edit: status.edits.edit,
        without_keys,
        endpoints,
    })
}

/// Reads what the open card of a fragment shows.
pub(super) async fn open_card(viewer: &PageViewer) -> Option<(&str, OpenServer)> {
    let name = viewer.query.get("open")?;
    Some((name, open_server(viewer, name).await))
}

/// Reads what the card of a server shows when it is open.
pub(super) async fn open_server(viewer: &PageViewer, name: &str) -> OpenServer {
    let admin = &viewer.admin;
    let path = admin
        .reloader
        .config()
        .places
        .server(name)
        .map(|(file, _)| file.path.clone());
    let read = path.map(|path| {
        let name = name.to_owned();
        tokio::task::spawn_blocking(move || moongate_config::edit::shown_entry(&path, &name))
    });
    let entry = match read {
        // A network file system may stall. Then the card is shown without the entry.
        Some(read) => tokio::time::timeout(ENTRY_TIMEOUT, read)
            .await
            .ok()
            .and_then(Result::ok)
            .flatten(),
        None => None,
    };
    OpenServer {
        items: find_items(admin, name),
        entry,
        effective: effective_settings(admin, name),
    }
}

/// Renders the servers, with an open one.
pub(super) fn servers_view(
    viewer: &PageViewer,
    open: Option<(&str, OpenServer)>,
    render: impl FnOnce(&ServersView<'_>) -> Markup,
) -> Markup {
    let servers = server_statuses(&viewer.admin);
    let is_demo =
        matches!(&servers[..], [only] if only.name() == "demo" && only.source.file.is_none());
    // The path says which card is open, not the links to other states.
    let query = viewer.query.with("open", None);
    render(&ServersView {
        servers: &servers,
        query: &query,
        open,
        may_act: viewer.may_act,
        is_demo,
    })
}

/// Renders the sessions, and the clients without one.
pub(super) fn sessions_view(
    viewer: &PageViewer,
    render: impl FnOnce(&SessionsView<'_>) -> Markup,
) -> Markup {
    render(&SessionsView {
        sessions: &session_rows(&viewer.admin),
        stateless: &stateless_clients(&viewer.admin),
        may_act: viewer.may_act,
    })
}

/// Renders the logins of people.
pub(super) fn people_view(
    viewer: &PageViewer,
    render: impl FnOnce(&PeopleView<'_>) -> Markup,
) -> Markup {
    render(&PeopleView {
        people: viewer.admin.people.people().as_ref(),
        may_act: viewer.may_act,
    })
}

/// Renders the recent calls.
pub(super) fn calls_view(
    viewer: &PageViewer,
    render: impl FnOnce(&CallsView<'_>) -> Markup,
) -> Markup {
    let calls = viewer.admin.gateway.recent_calls().changed_since(0);
    let calls: Vec<CallRow> = calls.iter().map(call_row).collect();
    let open = viewer
        .query
        .get("open")
        .and_then(|id| calls.iter().find(|call| call.id == id));
    let try_path = open
        .filter(|call| call.method == "tools/call")
        .and_then(|call| try_path(&viewer.admin, call));
    render(&CallsView {
        calls: &calls,
        query: &viewer.query,
        may_act: viewer.may_act,
        try_path,
    })
}

/// Returns the path that tries the tool of a call, if its server still has it.
fn try_path(admin: &AdminState, call: &CallRow) -> Option<String> {
    let snapshot = admin.gateway.snapshot();
    let route = snapshot.iter(ItemKind::Tools).find(|route| {
        let is_named = call.name == route.exposed.as_str() || call.name == route.local.as_str();
        is_named && call.server == route.upstream.settings.name
    })?;
    Some(format!(
        "/try/{}/{}",
        segment(&route.upstream.settings.name),
        segment(&route.local)
    ))
}

/// Renders the cost of an endpoint.
pub(super) fn context_view(
    viewer: &PageViewer,
    render: impl FnOnce(&ContextView<'_>) -> Markup,
) -> Markup {
    let servers = server_statuses(&viewer.admin);
    let (endpoint, coverage) = chosen_endpoint(viewer);
    let tools = coverage
        .map(|coverage| tools_by_server(&viewer.admin, &coverage))
        .unwrap_or_default();
    let costs = tools.into_iter().map(|tools| {
        let server = servers
            .iter()
            .find(|server| server.name() == tools.owner.name);
        let owner = server.map_or(tools.owner, ServerStatus::owner);
        OwnedCost {
            cost: server_cost(&owner, tools.tools),
            owner,
        }
    });
    let mut costs: Vec<OwnedCost> = costs.collect();
    costs.sort_by_key(|owned| std::cmp::Reverse(owned.cost.tokens));
    let search = viewer.admin.gateway.search_mode_list(endpoint.name());
    let search = search.map(|list| SearchCost {
        is_listed: list.is_listed,
        tools: list.tools,
        tokens: list.tokens(),
    });
    let may_act = viewer.may_act;
    render(&ContextView {
        costs,
        endpoint: &endpoint,
        search,
        query: &viewer.query,
        may_act,
    })
}

/// Renders the clients, with a chosen one.
pub(super) fn connect_view(
    viewer: &PageViewer,
    render: impl FnOnce(&ConnectView<'_>) -> Markup,
) -> Markup {
    let admin = &*viewer.admin;
    let query = &viewer.query;
    let (endpoint, _) = chosen_endpoint(viewer);
    let url = admin.url_of_endpoint(endpoint.name());
    let client = query.get("client").and_then(|id| find_client(admin, id));
    let key_name = client
        .as_ref()
        .map(|client| keys::unused_name(&list_keys(admin), &client.id));
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

/// Returns what `search_tools` would answer, if the URL asks for it.
pub(super) async fn model_answer(viewer: &PageViewer) -> Option<String> {
    let query = &viewer.query;
    let gateway = &viewer.admin.gateway;
    let words = query.get("q").filter(|_| query.get("model").is_some())?;
    gateway
        .search_text(query.get("endpoint").unwrap_or_default(), words)
        .await?
        .ok()
}

/// Renders which rules decide about a call.
pub(super) async fn explain_view(viewer: &PageViewer) -> Markup {
    let admin = &viewer.admin;
    let query = &viewer.query;
    let auth = admin.listener_state.load().auth.clone();
    let principals = admin.gateway.explainable_names(&auth);
    let first = principals.first().map(String::as_str).unwrap_or_default();
    let principal = query.get("principal").unwrap_or(first).to_owned();
    let (endpoint, _) = chosen_endpoint(viewer);
    let asked = query.get("tool").map(|tool| {
        admin
            .gateway
            .explain_tool(&auth, &principal, endpoint.name(), tool)
    });
    let (asked, problem) = match asked {
        Some(Ok(explanation)) => (Some(explanation), None),
        Some(Err(unclear)) => (None, Some(format!("There is {unclear}."))),
        None => (None, None),
    };
    let editor = admin.editor.clone();
    let read = tokio::task::spawn_blocking(move || editor.setting_places());
    // The decision is right without locations, too.
    let places = tokio::time::timeout(ENTRY_TIMEOUT, read)
        .await
        .ok()
        .and_then(Result::ok)
        .flatten();
    let answer = asked.map(|explanation| shown_answer(explanation, places.as_ref()));
    ExplainView {
        query,
        endpoint: &endpoint,
        principals,
        principal,
        answer,
        problem,
    }
    .page()
}

/// Adds the locations of the rules, and the way to change the decision.
fn shown_answer(explanation: ToolExplanation, places: Option<&SettingLocations>) -> ShownAnswer {
    let explanation = explanation.map_rules(|rule| {
        let found = places.and_then(|places| places.find(&rule.key));
        let found = found.and_then(|found| Some((found.key, found.origin.location()?)));
        let (key, location) = found.map_or_else(
            || (rule.key.join("."), None),
            |(key, location)| (key, Some(location)),
        );
        ShownRule {
            rule,
            key,
            location,
        }
    });
    let tool = explanation
        .local_name
        .as_deref()
        .unwrap_or(&explanation.tool);
    let remedy = explanation
        .rules
        .iter()
        .find(|shown| shown.rule.decides)
        .map(|shown| {
            let location = shown
                .location
                .as_ref()
                .map(|location| format!("{} ({location})", shown.key));
            moongate_gateway::remedy(
                &shown.rule,
                tool,
                &location.unwrap_or_else(|| shown.key.clone()),
            )
        });
    ShownAnswer {
        explanation,
        remedy,
    }
}

/// Renders the tools of an endpoint.
pub(super) fn tools_view(
    viewer: &PageViewer,
    model_answer: Option<String>,
    render: impl FnOnce(&ToolsView<'_>) -> Markup,
) -> Markup {
    let admin = &*viewer.admin;
    let query = &viewer.query;
    let (endpoint, coverage) = chosen_endpoint(viewer);
    let rows = match (&coverage, query.get("q")) {
        (Some(coverage), Some(text)) => {
            ToolRows::Found(find_tools(admin, coverage, text, tools::shown_rows(query)))
        }
        (Some(coverage), None) => ToolRows::All(tools_by_server(admin, coverage)),
        (None, _) => ToolRows::All(Vec::new()),
    };
    let open = tools::open_tool(query).and_then(|(server, tool)| {
        Some(with_exposed_name(
            coverage.as_ref()?,
            describe_tool(admin, server, tool)?,
        ))
    });
    let url = admin.url_of_endpoint(endpoint.name());
    render(&ToolsView {
        url,
        endpoint: &endpoint,
        rows,
        query,
        open,
        may_act: viewer.may_act,
        model_answer,
    })
}

/// Finds the tool that a page tries.
pub(super) fn find_tried(admin: &AdminState, server: &str, tool: &str) -> Option<TriedTool> {
    let servers = admin.gateway.servers();
    let entry = servers.iter().find(|entry| entry.settings.name == server)?;
    let lists = entry.lists();
    let listed = &lists.get(ItemKind::Tools).items;
    // From the server's list: the catalogue lacks tools that are off, and people may view those.
    let definition = listed
        .iter()
        .find(|item| ItemKind::Tools.key_of(item).as_deref() == Some(tool))?
        .clone();
    let snapshot = admin.gateway.snapshot();
    let route = snapshot.find_local(
        ItemKind::Tools,
        &ByteString::from(server),
        &ByteString::from(tool),
    );
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
    let timeout = entry.settings.live.timeout.0;
    Some(TriedTool {
        server: server.to_owned(),
        tool: tool.to_owned(),
        definition,
        repeat,
        timeout,
    })
}
