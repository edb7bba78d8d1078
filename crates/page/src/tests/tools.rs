//! Tools as HTML: their rows, what a search found, and their switches.

use moongate_api::FoundTools;
use serde_json::{Value, json};

use super::{
    assert_nothing_inline, endpoint_choice, named, server, server_tools, servers_page, tool,
    tools_page, typed,
};
use crate::tools::{ToolRows, ToolsView};
use crate::view_query::ViewQuery;

#[test]
fn tools_stand_by_server_and_many_are_closed() {
    let few = ToolRows::All(vec![server_tools(
        "a",
        vec![typed(&tool("one", "on")), typed(&tool("two", "off"))],
    )]);
    let html = tools_page(few, "endpoint=&open=a%2Fone");
    assert!(
        html.contains("id=\"row-a-one\"") && html.contains("id=\"row-a-two\""),
        "{html}"
    );
    assert!(
        html.contains(" lists 1 tool from 1 server")
            && html.contains("3 calls<span class=\"red\">, 1 failed"),
        "{html}"
    );
    assert!(
        html.contains("Input schema")
            && html.contains("data-copy")
            && html.contains("aria-expanded=\"true\"")
    );
    assert!(
        html.contains("value=\"coding\"") && html.contains("/mcp/coding"),
        "other endpoints can be chosen: {html}"
    );
    assert_eq!(
        tools_page(many_tools(), "")
            .matches("class=\"toolrow\"")
            .count(),
        0
    );
    assert_eq!(
        tools_page(many_tools(), "server=b")
            .matches("id=\"row-b-")
            .count(),
        150
    );
    assert_nothing_inline(&tools_page(many_tools(), "server=b"));
}

fn many_tools() -> ToolRows {
    let servers = ["a", "b"].map(|server| {
        let tools = (0..150).map(|n| typed(&tool(&format!("{server}{n}"), "on")));
        server_tools(server, tools.collect())
    });
    ToolRows::All(servers.into())
}

#[test]
fn found_tools_keep_their_order_and_say_how_many_there_are() {
    let listed = ["zebra", "ant"]
        .map(|name| (named("a"), typed(&tool(name, "on"))))
        .to_vec();
    let unlisted = vec![(named("b"), typed(&tool("bee", "off")))];
    let html = tools_page(
        ToolRows::Found(FoundTools {
            listed,
            total: 70,
            unlisted,
        }),
        "q=x",
    );
    assert!(
        html.find("zebra") < html.find(">ant<")
            && html.find(">ant<") < html.find("Not listed for clients"),
        "{html}"
    );
    assert!(
        html.contains("70 tools match") && html.contains("rows=all"),
        "{html}"
    );
    let none = FoundTools {
        listed: Vec::new(),
        total: 0,
        unlisted: Vec::new(),
    };
    assert!(tools_page(ToolRows::Found(none), "q=x").contains("No listed tool matches"));
    let endpoint = endpoint_choice(&[""], "gone");
    let rows = ToolRows::All(Vec::new());
    let view = ToolsView {
        endpoint: &endpoint,
        url: String::new(),
        rows,
        query: &ViewQuery::default(),
        open: None,
        may_act: true,
        model_answer: None,
    };
    assert!(view.page().into_string().contains("There is no endpoint"));
}

#[test]
fn switches_follow_the_rule_that_decides() {
    let mut on = tool("one", "on");
    on["rule"] = Value::Null;
    let mut off = tool("two", "off");
    off["rule"] = deny_rule("two", true);
    let mut locked = tool("delete_all", "off");
    locked["rule"] = deny_rule("delete_*", false);
    let items = json!({ "tools": [on, off, locked], "resources": [], "prompts": [] });
    let mut editable = server("a", "ready");
    editable["source"] = json!(named("a").source);
    let html = servers_page(&[editable.clone()], "", Some(("a", items.clone())));
    assert_eq!(
        html.matches("role=\"switch\"").count(),
        3,
        "server, one and two: {html}"
    );
    assert!(
        html.contains("{&quot;enabled&quot;:false}")
            && html.contains("{&quot;tools&quot;:{&quot;on&quot;:[&quot;two&quot;]}}")
    );
    assert!(
        html.contains("off by <code>delete_*</code> in tools.deny")
            && html.contains("moongate.toml:14"),
        "{html}"
    );
    assert!(
        html.contains("Add an exception")
            && html.contains("All off")
            && html.contains("Remove a? Its entry is deleted from moongate.toml")
    );
    editable["source"] = json!({ "editable": false, "why_not": "admin.edit is false" });
    let html = servers_page(&[editable], "", Some(("a", items)));
    assert!(
        !html.contains("role=\"switch\"")
            && !html.contains("Remove a?")
            && html.contains("admin.edit is false"),
        "{html}"
    );
}

fn deny_rule(pattern: &str, exact: bool) -> Value {
    json!({ "list": "deny", "pattern": pattern, "exact": exact,
        "file": "/etc/moongate.toml", "line": 14 })
}
