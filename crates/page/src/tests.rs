//! Views as HTML: hostile texts, states, links, and nothing inline.

mod login;
mod tools;

use maud::Markup;
use moongate_api::{
    CallRow, FoundTools, ServerCost, ServerItem, ServerItems, ServerStatus, ServerTools, ToolCost,
    ToolOwner,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::calls::CallsView;
use super::context::{self, ContextView, OwnedCost, SearchCost};
use super::endpoint_choice::{EndpointChoice, EndpointName};
use super::server_tabs::OpenServer;
use super::servers::ServersView;
use super::sessions::SessionsView;
use super::sign_in;
use super::tools::{ToolRows, ToolsView, open_tool};
use super::view_query::ViewQuery;

/// Text of a server that tries to be markup, and to hide what it is.
const HOSTILE: &str =
    "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u{202e}txt\u{200b}\u{1b}[31m";

fn server(name: &str, state: &str) -> Value {
    json!({
        "name": name, "state": state, "reason": "why it is so", "since_seconds": 4,
        "next_attempt_seconds": null,
        "replacement": null, "revision": "2025-11-25", "transport": "http",
        "target": "https://api.example.com/mcp",
        "tools": 3, "tools_on": 2, "tokens": 610, "resources": 0, "prompts": 0, "waiting": 0,
        "title": null,
        "calls": { "ok": 5, "tool_error": 1, "error": 0 }, "p95_ms": 212.0, "left_out": [],
        "stderr": [], "enabled": true,
        "server": { "name": null, "version": null }, "stale": false, "prefix": "p",
        "name_prefix": "p__",
    })
}

fn hostile_items() -> Value {
    let schema = json!({ "type": "object",
        "properties": { HOSTILE: { "type": "string", "description": HOSTILE } } });
    let tool = json!({
        "name": HOSTILE, "title": HOSTILE, "description": HOSTILE, "exposed": HOSTILE,
        "state": "left_out", "reason": HOSTILE,
        "tokens": 12, "calls": 1, "errors": 1, "p95_ms": 1.0,
        "annotations": { "destructiveHint": true }, "input_schema": schema,
    });
    let other = json!({ "name": HOSTILE, "title": HOSTILE, "description": HOSTILE,
        "arguments": [HOSTILE], "tokens": 1 });
    json!({ "tools": [tool], "resources": [other], "templates": [], "prompts": [other] })
}

/// Reads what the API would write.
fn typed<T: DeserializeOwned>(value: &Value) -> T {
    T::deserialize(value).unwrap()
}

fn servers_page(servers: &[Value], query: &str, open: Option<(&str, Value)>) -> String {
    let servers: Vec<ServerStatus> = servers.iter().map(typed).collect();
    let query = ViewQuery::parse(query);
    let open = open.map(|(name, items)| {
        let items: Option<ServerItems> = (!items.is_null()).then(|| typed(&items));
        (
            name,
            OpenServer {
                items,
                ..OpenServer::default()
            },
        )
    });
    ServersView {
        servers: &servers,
        query: &query,
        open,
        may_act: true,
        is_demo: false,
    }
    .page()
    .into_string()
}

fn calls_page(calls: &[Value], query: &str, may_act: bool) -> String {
    let calls: Vec<CallRow> = calls.iter().map(typed).collect();
    CallsView {
        calls: &calls,
        query: &ViewQuery::parse(query),
        may_act,
        try_path: None,
    }
    .page()
    .into_string()
}

fn call(id: &str, state: &str) -> Value {
    json!({
        "id": id, "at": "2026-11-23T14:02:11.204Z", "state": state, "ms": 212.4, "own_ms": 0.3,
        "wait_ms": 12.1, "retries": 2, "server": "github",
        "method": "tools/call", "name": "github__create_issue", "principal": "laptop",
        "endpoint": "/mcp",
        "client": { "name": "cursor", "version": "2.4" }, "from": "2025-11-25", "to": "2026-07-28",
        "bytes_in": 412,
        "bytes_out": 2140, "error": null,
    })
}

fn assert_harmless(html: &str) {
    for bad in ["<script>alert", "<img", "\u{202e}", "\u{200b}", "\u{1b}"] {
        assert!(!html.contains(bad), "{bad:?} in {html}");
    }
    assert!(
        html.contains("&lt;script&gt;") && html.contains("⟨U+202E⟩"),
        "the text is shown: {html}"
    );
    assert_nothing_inline(html);
}

fn assert_nothing_inline(html: &str) {
    // Only the parts between < and > are markup.
    for tag in html
        .split('<')
        .skip(1)
        .filter_map(|rest| rest.split('>').next())
    {
        let outside: String = tag.split('"').step_by(2).collect();
        assert!(
            !outside.contains(" on") && !outside.contains(" style="),
            "{tag}"
        );
        assert!(!tag.contains("javascript:"), "{tag}");
    }
}

#[test]
fn the_empty_log_of_a_program_is_its_own() {
    for (transport, words) in [
        ("stdio", "written nothing to stderr"),
        ("http", "Only servers that run as programs"),
    ] {
        let mut server = server("a", "ready");
        server["transport"] = transport.into();
        let html = servers_page(&[server], "tab=log", Some(("a", json!({ "tools": [] }))));
        assert!(html.contains(words), "{transport}: {html}");
        assert_eq!(
            html.contains("run as programs"),
            transport == "http",
            "{html}"
        );
    }
}

#[test]
fn hostile_texts_are_text_in_every_view() {
    let mut hostile = server("a", "failed");
    for member in ["reason", "title", "target", "name_prefix"] {
        hostile[member] = HOSTILE.into();
    }
    for member in ["stderr", "left_out", "mended", "unmatched_filters"] {
        hostile[member] = json!([HOSTILE]);
    }
    for tab in ["tools", "resources", "prompts", "log"] {
        assert_harmless(&servers_page(
            &[hostile.clone()],
            &format!("tab={tab}"),
            Some(("a", hostile_items())),
        ));
    }
    let mut call = call("c-1", "error");
    (call["name"], call["client"]["name"], call["error"]) = (
        HOSTILE.into(),
        HOSTILE.into(),
        json!({ "message": HOSTILE }),
    );
    call["state"] = "running".into();
    assert_harmless(&calls_page(&[call], "open=c-1", true));
    let session = json!({ "id": "s-1", "client": { "name": HOSTILE }, "principal": HOSTILE,
        "endpoint": "/mcp" });
    let sessions = [typed(&session)];
    let stateless = [typed(&session)];
    let view = SessionsView {
        sessions: &sessions,
        stateless: &stateless,
        may_act: true,
    };
    assert_harmless(&view.page().into_string());
    let mut tool = hostile_items()["tools"][0].clone();
    tool["state"] = "on".into();
    let owner = typed::<ServerStatus>(&hostile).owner();
    assert_harmless(&context_page(vec![owned_cost(owner, vec![typed(&tool)])]));
    let query = ViewQuery::default()
        .with("open", Some(&format!("a/{HOSTILE}")))
        .link("");
    let mut editable = server_tools("a", vec![typed(&tool)]);
    editable.owner.title = Some(HOSTILE.to_owned());
    editable.owner.source.editable = true;
    assert_harmless(&tools_page(ToolRows::All(vec![editable]), ""));
    let found = FoundTools {
        listed: vec![(named("a"), typed(&tool))],
        total: 1,
        unlisted: vec![(named("b"), typed(&tool))],
    };
    assert_harmless(&tools_page(
        ToolRows::Found(found),
        query.trim_start_matches('?'),
    ));
}

/// Sums up listed tools, as the API does.
fn owned_cost(owner: ToolOwner, mut tools: Vec<ToolCost>) -> OwnedCost {
    tools.sort_by_key(|tool| std::cmp::Reverse(tool.tokens));
    let tokens = tools.iter().map(|tool| tool.tokens).sum();
    let calls = tools.iter().map(|tool| tool.calls).sum();
    let ToolOwner { name, title, .. } = owner.clone();
    OwnedCost {
        owner,
        cost: ServerCost {
            name,
            title,
            tokens,
            calls,
            tools,
        },
    }
}

/// Chooses among these endpoints. The first one is there.
pub(super) fn endpoint_choice(names: &[&str], name: &str) -> EndpointChoice {
    EndpointChoice {
        all: names.iter().map(|name| endpoint_name(name)).collect(),
        chosen: endpoint_name(name),
        is_there: names[0] == name,
    }
}

fn endpoint_name(name: &str) -> EndpointName {
    EndpointName {
        name: name.to_owned(),
        path: if name.is_empty() {
            "/mcp".to_owned()
        } else {
            format!("/mcp/{name}")
        },
    }
}

fn server_tools(server: &str, tools: Vec<ServerItem>) -> ServerTools {
    ServerTools {
        owner: named(server),
        tools,
    }
}

fn named(server: &str) -> ToolOwner {
    typed(&json!({ "name": server,
            "source": { "file": "/etc/moongate.toml", "line": 12, "editable": true,
                "why_not": null } }))
}

fn tools_page(rows: ToolRows, query: &str) -> String {
    let query = ViewQuery::parse(query);
    let endpoint = endpoint_choice(&["", "coding"], "");
    let open = open_tool(&query).map(|_| typed(&hostile_items()["tools"][0]));
    let url = "http://127.0.0.1:8080/mcp".to_owned();
    ToolsView {
        endpoint: &endpoint,
        url,
        rows,
        query: &query,
        open,
        may_act: true,
        model_answer: None,
    }
    .page()
    .into_string()
}

fn context_page(costs: Vec<OwnedCost>) -> String {
    let query = ViewQuery::default();
    let endpoint = endpoint_choice(&["", "coding"], "");
    let search = Some(SearchCost {
        is_listed: false,
        tools: 4,
        tokens: 447,
    });
    context::page(&ContextView {
        costs,
        endpoint: &endpoint,
        search,
        query: &query,
        may_act: true,
    })
    .into_string()
}

fn tool(name: &str, state: &str) -> Value {
    json!({ "name": name, "exposed": name, "description": "Does.", "state": state, "tokens": 20,
        "calls": 3, "errors": 1, "p95_ms": 190.0 })
}

#[test]
fn each_state_has_a_shape_and_a_text() {
    let texts = [
        ("ready", "Ready."),
        ("starting", "Starting, 4 s"),
        ("degraded", "Degraded"),
        ("backing_off", "Not connected"),
        ("needs_login", "Sign-in needed"),
        ("failed", "Failed"),
        ("stopped", "Starts on the first call"),
        ("disabled", "Off"),
    ];
    for (state, text) in texts {
        let html = servers_page(&[server("a", state)], "", None);
        assert!(
            html.contains(text) && html.contains("<svg class=\"dot "),
            "{state}: {html}"
        );
        assert_eq!(
            html.contains("Retry now"),
            matches!(state, "failed" | "backing_off"),
            "{state}"
        );
    }
    let mut waiting = server("a", "backing_off");
    (waiting["next_attempt_seconds"], waiting["replacement"]) =
        (json!(251.2), json!({ "state": "starting" }));
    let html = servers_page(&[waiting], "", None);
    assert!(
        html.contains("tries again in 4 m 12 s") && html.contains("the old one is still in use"),
        "{html}"
    );
}

#[test]
fn filters_and_open_cards_stand_in_the_url() {
    let servers = [
        server("a", "ready"),
        server("b", "failed"),
        server("c", "disabled"),
    ];
    let html = servers_page(&servers, "state=attention", None);
    assert!(html.contains("server-b") && !html.contains("server-a") && !html.contains("server-c"));
    assert!(
        html.contains("href=\"/?state=off\"")
            && html.contains("data-part=\"/parts/servers?state=attention\"")
    );
    let html = servers_page(&servers, "tab=log", Some(("a", json!({ "tools": [] }))));
    assert!(
        html.contains("data-part=\"/parts/server/a?tab=log&amp;open=a\"")
            && html.contains("aria-expanded=\"true\"")
    );
    assert!(html.contains("run as programs") && html.contains("/api/v1/servers/a/refresh"));
    let html = servers_page(&servers, "", Some(("<b>", Value::Null)));
    assert!(
        html.contains("There is no server “&lt;b&gt;”") && html.contains("server-a"),
        "{html}"
    );
    assert!(servers_page(&servers, "state=idle", None).contains("No server is in this state"));
    assert!(servers_page(&[], "", None).contains("Nothing is connected yet"));
}

#[test]
fn calls_are_filtered_and_only_running_ones_can_be_stopped() {
    let calls = [call("c-2", "running"), call("c-1", "ok")];
    let all = calls_page(&calls, "", true);
    assert!(all.contains("/api/v1/calls/c-2/cancel") && !all.contains("/api/v1/calls/c-1/cancel"));
    assert!(
        all.contains("412 B → 2.1 kB")
            && all.contains("14:02:11.204")
            && all.contains("data-ticks")
    );
    assert!(
        !calls_page(&calls, "", false).contains("/cancel"),
        "a viewer does not act"
    );
    let one = calls_page(&calls, "state=ok&open=c-1", true);
    assert!(one.contains("id=\"c-1-detail\"") && !one.contains("id=\"c-2\""));
    for fact in [
        "<dt>Waiting</dt><dd>12 ms",
        "<dt>At the server</dt><dd>200 ms",
        "<dt>Retries</dt><dd>2",
    ] {
        assert!(one.contains(fact), "{fact} in {one}");
    }
    let mut failed = call("c-3", "error");
    for (kind, message, shown) in [
        ("-32021", "server error -32021", "<dd>server error -32021<"),
        ("timeout", "no answer", "<dd>timeout: no answer<"),
        ("timeout", "", "<dd>timeout<"),
    ] {
        failed["error"] = json!({ "type": kind, "message": message });
        let html = calls_page(&[failed.clone()], "open=c-3", true);
        assert!(html.contains(shown), "{shown} in {html}");
    }
    assert!(calls_page(&calls, "client=other", true).contains("No recent calls match"));
    let many: Vec<Value> = (0..80).map(|n| call(&format!("c-{n}"), "ok")).collect();
    assert_eq!(calls_page(&many, "", true).matches("<tr id=").count(), 40);
    assert_eq!(
        calls_page(&many, "rows=all", true)
            .matches("<tr id=")
            .count(),
        80
    );
}

#[test]
fn context_sorts_by_cost_and_warns() {
    let mut large = server("large", "ready");
    large["tokens"] = json!(12_900);
    let mut tools = vec![
        json!({ "name": "cheap", "state": "on", "tokens": 10, "calls": 0 }),
        json!({ "name": "dear", "state": "on", "tokens": 12_900, "calls": 3 }),
    ];
    tools
        .extend((0..128).map(
            |n| json!({ "name": format!("more{n}"), "state": "on", "tokens": 1, "calls": 1 }),
        ));
    large["source"] = json!(named("large").source);
    let small = server("small", "ready");
    let html = context_page(vec![
        owned_cost(
            typed::<ServerStatus>(&large).owner(),
            tools.iter().map(typed).collect(),
        ),
        owned_cost(typed::<ServerStatus>(&small).owner(), Vec::new()),
    ]);
    assert!(
        html.find("large") < html.find("small")
            && html.find("<code>dear") < html.find("<code>cheap")
    );
    assert!(
        html.contains("{&quot;tools&quot;:{&quot;off&quot;:[&quot;cheap&quot;]}}")
            && html.contains("Switch off 1 tool of large"),
        "{html}"
    );
    assert!(
        html.contains("<b>≈ 450</b>") && html.contains("VS Code's limit"),
        "{html}"
    );
    assert!(
        html.contains("128 tools")
            && html.contains("10,000 tokens")
            && html.contains("1 tool not called"),
        "{html}"
    );
    assert_nothing_inline(&html);
}

#[test]
fn empty_views_say_so() {
    assert!(
        SessionsView {
            sessions: &[],
            stateless: &[],
            may_act: true
        }
        .page()
        .into_string()
        .contains("No client has a session")
    );
    assert!(calls_page(&[], "", true).contains("No calls yet"));
    let page: Markup = sign_in::sign_in_page();
    let html = page.into_string();
    assert!(
        html.contains("moongate status") && html.starts_with("<!DOCTYPE html><html lang=\"en\"")
    );
    assert_nothing_inline(&html);
}
