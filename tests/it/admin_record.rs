//! Recorded answers of the admin API, one for each route, with the page's views.
//!
//! Times, ids and addresses are masked. `INSTA_UPDATE=always` writes the files in `tests/recorded`
//! again. A changed file is a change for programs that read the API, or for people who read the
//! page.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{
    EditedGateway, Era, HttpClient, HttpReply, McpClient, Setup, legacy, only, serve,
};

/// Patterns of what differs from run to run, each with its replacement.
const MASKS: [(&str, &str); 16] = [
    (r"\(PATH=[^)]*\)", "(PATH=...)"),
    (r"\b127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"\b\d\d:\d\d:\d\d\.\d{3}\b", "TIME"),
    (r"/tmp/\.tmp\w+", "DIR"),
    (r"(/[\w.-]+)+/debug/moongate\b", "MOONGATE"),
    (r"\bconfig=eyJ[\w=%+/-]+", "config=CONFIG"),
    (r"\b[0-9a-f]{32,64}\b", "DIGEST"),
    (r#"("(?:id|ticket|hash|etag)": ?)"[^"]+""#, "$1\"ID\""),
    (
        r#"("(?:pid|since_seconds|idle_seconds|seconds_ago|next_attempt_seconds|line)": ?)[\d.]+"#,
        "$1\"NUMBER\"",
    ),
    (r#"("(?:\w+_)?ms": ?)[\d.]+"#, "$1\"NUMBER\""),
    (r"\bc-\d+\b", "CALL"),
    (r"\bmg_[\w-]{20,}", "KEY"),
    (
        r#"(nonce|integrity|data-etag|data-line)="[^"]*""#,
        "$1=\"MASKED\"",
    ),
    (r"\b(\d+ m( \d+ s)?|\d+(\.\d+)? ?(ms|s|min))\b", "DURATION"),
    (r"\b(session-[\w-]+|s-[0-9a-f]{12})", "SESSION"),
];

/// Gateway with a server that is ready, one that is off and one that cannot be reached.
async fn gateway() -> (moongate_mock::MockHandle, EditedGateway) {
    let server = serve(only(legacy(), &["echo", "fail"])).await;
    let setup = Setup::new()
        .with(
            "servers.a",
            &format!("url = {:?}\ntitle = \"First\"", server.url),
        )
        .with(
            "servers.off",
            "url = \"http://127.0.0.1:9/mcp\"\nenabled = false",
        )
        .with("servers.down", "command = \"no-program-has-this-name\"")
        .with(
            "servers.a.tools",
            "rename = { fail = \"breaks\" }\ndeny = [\"nothing\"]",
        )
        .with("views.few", "servers = [\"a\"]\ntools = [\"*echo\"]");
    let edited = EditedGateway::start(setup).await;
    edited.ready("a").await;
    edited.state("down", "failed").await;
    (server, edited)
}

/// Compares an answer with its file.
fn record(name: &str, reply: &HttpReply) {
    let text = reply.text_body();
    let body = match serde_json::from_str::<Value>(&text) {
        // The order of members says nothing.
        Ok(mut value) => {
            value.sort_all_objects();
            serde_json::to_string_pretty(&value).unwrap()
        }
        // One tag a line, so that a difference shows.
        Err(_) => text.replace("><", ">\n<"),
    };
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../recorded");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    MASKS
        .iter()
        .for_each(|(pattern, mask)| settings.add_filter(pattern, *mask));
    settings.bind(|| insta::assert_snapshot!(name, format!("{}\n{body}", reply.status)));
}

/// Request of a route: its method and path as described, its path, and its body.
type RouteRequest = (&'static str, &'static str, &'static str, Value);

/// Requests that only look.
fn read_requests() -> Vec<RouteRequest> {
    let get = |described, path| ("get", described, path, Value::Null);
    vec![
        get("/api/v1/openapi.json", "/openapi.json"),
        get("/api/v1/me", "/me"),
        get("/api/v1/status", "/status"),
        get("/api/v1/servers/{name}", "/servers/a"),
        get("/api/v1/servers/{name}/items", "/servers/a/items"),
        get("/api/v1/search", "/search?q=echo&limit=2"),
        get("/api/v1/calls", "/calls"),
        get("/api/v1/sessions", "/sessions"),
        get("/api/v1/clients", "/clients"),
        get("/api/v1/connect", "/connect?client=cursor"),
        get("/api/v1/config", "/config"),
        get("/api/v1/keys", "/keys"),
        get(
            "/api/v1/explain",
            "/explain?principal=anybody&tool=a__breaks",
        ),
        get("/api/v1/popular", "/popular"),
        get("/api/v1/context", "/context"),
        get("/api/v1/doctor", "/doctor"),
        get("/api/v1/plan", "/plan"),
        get("/api/v1/people", "/people"),
    ]
}

/// Requests that change something, in an order in which each can.
fn write_requests() -> Vec<RouteRequest> {
    [
        config_requests(),
        call_requests(),
        sign_in_requests(),
        key_requests(),
        vec![("delete", "/api/v1/people/{who}", "/people/ann", Value::Null)],
    ]
    .concat()
}

/// Requests that change the config and its servers.
fn config_requests() -> Vec<RouteRequest> {
    vec![
        (
            "post",
            "/api/v1/servers/preview",
            "/servers/preview",
            json!({"text": "https://mcp.example/mcp"}),
        ),
        // Off, since it would be seen in one state or another.
        (
            "post",
            "/api/v1/servers",
            "/servers",
            json!({"servers": {"new": {"url": "http://127.0.0.1:9/mcp", "enabled": false}}}),
        ),
        (
            "patch",
            "/api/v1/servers/{name}",
            "/servers/a",
            json!({"tools": {"off": ["fail"]}}),
        ),
        (
            "delete",
            "/api/v1/servers/{name}",
            "/servers/new",
            Value::Null,
        ),
        ("post", "/api/v1/config/undo", "/config/undo", json!({})),
        ("post", "/api/v1/reload", "/reload", Value::Null),
        (
            "post",
            "/api/v1/servers/{name}/restart",
            "/servers/a/restart",
            Value::Null,
        ),
        (
            "post",
            "/api/v1/servers/{name}/refresh",
            "/servers/a/refresh",
            Value::Null,
        ),
        (
            "post",
            "/api/v1/servers/{name}/login",
            "/servers/a/login",
            json!({"confirmed": true}),
        ),
        (
            "post",
            "/api/v1/servers/{name}/logout",
            "/servers/a/logout",
            Value::Null,
        ),
    ]
}

/// Requests that make or end calls and sessions of clients.
fn call_requests() -> Vec<RouteRequest> {
    vec![
        (
            "post",
            "/api/v1/try",
            "/try",
            json!({"server": "a", "tool": "echo", "arguments": {"text": "x"}}),
        ),
        (
            "post",
            "/api/v1/try/{id}/answer",
            "/try/none/answer",
            json!({"ask": "1", "action": "cancel"}),
        ),
        ("delete", "/api/v1/try/{id}", "/try/none", Value::Null),
        (
            "post",
            "/api/v1/calls/{id}/cancel",
            "/calls/c-0/cancel",
            Value::Null,
        ),
        (
            "delete",
            "/api/v1/sessions/{id}",
            "/sessions/none",
            Value::Null,
        ),
    ]
}

/// Requests about the operator's own session.
fn sign_in_requests() -> Vec<RouteRequest> {
    vec![
        (
            "post",
            "/api/v1/signin",
            "/signin",
            json!({"key": "no-key-of-this-gateway"}),
        ),
        ("post", "/api/v1/signout", "/signout", Value::Null),
        ("post", "/api/v1/tickets", "/tickets", Value::Null),
    ]
}

/// Requests that make a key and remove it.
fn key_requests() -> Vec<RouteRequest> {
    vec![
        (
            "post",
            "/api/v1/keys",
            "/keys",
            json!({"name": "k", "views": ["few"]}),
        ),
        ("delete", "/api/v1/keys/{name}", "/keys/k", Value::Null),
    ]
}

/// Returns the name of the file of a route.
fn file_name(method: &str, described: &str) -> String {
    let path = described
        .trim_start_matches("/api/v1/")
        .replace(['/', '.'], "-")
        .replace(['{', '}'], "");
    format!("{method}-{path}")
}

/// Calls a tool, one that fails and one that is unknown, of a client with a session.
async fn call_tools(edited: &EditedGateway) -> McpClient {
    let mut client = McpClient::open(&edited.gateway.mcp(), Era::Legacy).await;
    client.initialize_with(json!({})).await;
    client
        .call("a__echo", json!({"text": "hello"}))
        .await
        .result();
    client.call("a__breaks", json!({})).await.failure();
    client.call("a__nothing", json!({})).await.error();
    client
}

#[tokio::test]
async fn each_route_answers_as_recorded() {
    let (_server, edited) = gateway().await;
    let _client = call_tools(&edited).await;
    let described = edited.get("/openapi.json").await;
    let mut routes: BTreeSet<(String, String)> = BTreeSet::new();
    for (path, operations) in described["paths"].as_object().unwrap() {
        routes.extend(
            operations
                .as_object()
                .unwrap()
                .keys()
                .map(|method| (method.clone(), path.clone())),
        );
    }
    // An event stream has no end; `snapshot` is compared with the others' parts in `admin_api`.
    routes.remove(&("get".to_owned(), "/api/v1/events".to_owned()));
    for (method, described, path, body) in read_requests().into_iter().chain(write_requests()) {
        let reply = match body {
            Value::Null => {
                edited
                    .send(&method.to_uppercase(), path, &[], &json!({}))
                    .await
            }
            body => edited.send(&method.to_uppercase(), path, &[], &body).await,
        };
        record(&file_name(method, described), &reply);
        assert!(
            routes.remove(&(method.to_owned(), described.to_owned())),
            "{method} {described} is not described"
        );
    }
    assert!(routes.is_empty(), "no request here uses {routes:?}");
}

#[tokio::test]
async fn each_view_of_the_page_is_drawn_as_recorded() {
    let (_server, edited) = gateway().await;
    let _client = call_tools(&edited).await;
    let base = edited.gateway.admin_url().await;
    for (name, path) in [
        ("servers", "/"),
        ("server", "/servers/a"),
        ("server-down", "/servers/down"),
        ("server-off", "/servers/off"),
        ("calls", "/calls"),
        ("sessions", "/sessions"),
        ("context", "/context"),
        ("tools", "/tools"),
        ("connect", "/connect"),
        ("connect-client", "/connect?client=cursor"),
        ("add", "/add"),
        ("explain", "/explain?principal=anybody&tool=a__breaks"),
        ("keys", "/keys"),
        ("try", "/try/a/echo"),
        ("signin", "/signin"),
    ] {
        record(
            &format!("page-{name}"),
            &HttpClient::new().get(&format!("{base}{path}")).await,
        );
    }
}
