//! What an operator is told of a catalogue: patterns that match nothing, names that change, schemas
//! that are refused.

use std::process::Stdio;

use moongate_mock::MockScript;
use serde_json::{Value, json};

use crate::harness::{
    ERAS, Era, Gateway, McpClient, Setup, holds, legacy, modern, only, record_of, serve, until,
};

/// The notes of one topic about a server.
async fn told(gateway: &Gateway, server: &str, topic: &str) -> Vec<String> {
    let status = gateway.status(server).await;
    let notes = status[topic]
        .as_array()
        .unwrap_or_else(|| panic!("{status}"));
    notes
        .iter()
        .map(|note| note.as_str().unwrap().to_owned())
        .collect()
}

async fn rules(url: &str) -> Setup {
    let rules = "tools = { allow = [\"*\"], deny = [\"delte_*\", \"write*\"], hide = [\"read\", \"hidden\"], \
                 rename = { raed = \"x\" }, describe = { read = \"y\", none = \"z\" } }\n\
                 prompts = { deny = [\"prompt\"] }\n\
                 resources = { deny = [\"x:a\", \"x:b\", \"y:a\"], hide = [\"z:1/*\", \"q:1\"] }";
    Setup::new().http("a", url).with("servers.a", rules)
}

fn offering(script: MockScript) -> MockScript {
    let resource = |uri: &str| json!({"uri": uri, "name": uri});
    let resources = vec![resource("x:a")];
    let templates = vec![json!({"uriTemplate": "z:{n}/{+rest}", "name": "z"})];
    MockScript {
        resources,
        templates,
        ..only(script, &["read", "write", "delete_all"])
    }
}

const UNMATCHED: [&str; 8] = [
    "servers.a.tools.deny: no tool matches \"delte_*\"",
    "servers.a.tools.hide: no tool matches \"hidden\"",
    "servers.a.tools.rename: no tool matches \"raed\"; did you mean \"read\"?",
    "servers.a.tools.describe: no tool matches \"none\"",
    "servers.a.prompts.deny: no prompt matches \"prompt\"",
    "servers.a.resources.deny: no resource or template matches \"x:b\"; did you mean \"x:a\"?",
    "servers.a.resources.deny: no resource or template matches \"y:a\"; did you mean \"x:a\"?",
    "servers.a.resources.hide: no resource or template matches \"q:1\"",
];

#[tokio::test]
async fn a_filter_that_matches_nothing_is_reported_once_its_server_is_listed() {
    for script in [legacy(), modern()] {
        let mock = serve(offering(script)).await;
        let gateway = rules(&mock.url)
            .await
            .http("b", "http://127.0.0.1:9/mcp")
            .with("servers.b", "tools = { deny = [\"anything\"] }")
            .with(
                "views.v",
                "servers = [\"a\", \"b\"]\ntools = \
                              [\"a__raed\", \"a__re*\", \"!b__other\", \"nothing\"]",
            )
            .with(
                "auth.keys.1",
                "name = \"k\"\nkey = \"key-of-k-0123456789\"\ntools = \
                 [\"a__delete_*\", \"!a__wirte\"]",
            )
            .start()
            .await;
        gateway.ready(&["a"]).await;
        let left = until("all of it is listed", || async {
            let left = told(&gateway, "a", "unmatched_filters").await;
            (!left.is_empty()).then_some(left)
        });
        assert_eq!(left.await, UNMATCHED);
        assert_eq!(
            told(&gateway, "b", "unmatched_filters").await,
            Vec::<String>::new(),
            "it was never listed"
        );
        let status = gateway.admin("/api/v1/status").await.json();
        let beside = json!([
            "views.v.tools: no tool matches \"a__raed\"; did you mean \"a__read\"?",
            "auth.keys (name \"k\") tools: no tool matches \"!a__wirte\""
        ]);
        assert_eq!(
            status["unmatched_filters"], beside,
            "others could match what b lists"
        );
        assert_eq!(
            gateway
                .metric("moongate_filters_unmatched{mcp_server=\"a\"}")
                .await,
            Some(8.0)
        );
        assert_eq!(
            gateway
                .metric("moongate_filters_unmatched{mcp_server=\"\"}")
                .await,
            Some(2.0)
        );
    }
}

#[tokio::test]
async fn a_shared_filter_need_not_match_at_every_server() {
    let a = serve(only(legacy(), &["one"])).await;
    let b = serve(only(modern(), &["two"])).await;
    let rules = "tools = { deny = [\"two\", \"three\"] }";
    let gateway = Setup::new()
        .http("a", &a.url)
        .http("b", &b.url)
        .with("defaults", rules)
        .start()
        .await;
    gateway.ready(&["a"]).await;
    gateway.state("b", "ready").await;
    for server in ["a", "b"] {
        let left = until("it is listed", || async {
            let left = told(&gateway, server, "unmatched_filters").await;
            (left.len() == 1).then_some(left)
        });
        assert_eq!(
            left.await,
            [format!(
                "servers.{server}.tools.deny: no tool matches \"three\""
            )]
        );
    }
}

/// Checks that a status says of each tool under which name it is exposed, and why.
fn assert_names_told(status: &Value, long: &str) {
    let names: Vec<&str> = status["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    let told = |parts: &[&str]| {
        names
            .iter()
            .any(|name| parts.iter().all(|part| name.contains(part)))
    };
    assert!(
        told(&[
            "tools search ",
            "renamed by servers.a.tools.rename",
            "server a has another item"
        ]),
        "{names:?}"
    );
    assert!(
        told(&[
            "tools x_y is exposed as a__x_y_",
            "server a has another item"
        ]),
        "{names:?}"
    );
    assert!(
        told(&[long, "cut to 45 bytes (names.max_length)"]),
        "{names:?}"
    );
}

#[tokio::test]
async fn renamed_tools_are_reported_in_status_and_log() {
    let long = "a_name_that_is_too_long_for_forty_five_characters";
    let mock = serve(only(
        legacy(),
        &["search", "find", "plain", "x.y", "x_y", long],
    ))
    .await;
    let config = "tools = { rename = { search = \"find\" }, deny = [\"delte_*\"] }";
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("servers.a", config)
        .spawn()
        .await;
    let status = until("it is listed", || async {
        let status = gateway.status("a").await;
        (status["state"] == "ready" && status["names"].as_array().is_some_and(|n| n.len() == 3))
            .then_some(status)
    });
    let status = status.await;
    assert_names_told(&status, long);
    let parts = [
        "name changed: tools search",
        "name changed: tools x_y",
        "filter matches nothing: servers.a.tools.deny",
    ];
    // The status can show a finding a moment before the log has it.
    holds("each is logged", || {
        parts.iter().all(|part| gateway.log().contains(part))
    })
    .await;
    let log = gateway.log();
    for part in parts {
        assert_eq!(log.matches(part).count(), 1, "{part}: {log}");
    }
    let admin = gateway.admin_url().await;
    let program = tokio::process::Command::new(env!("CARGO_BIN_EXE_moongate"))
        .args(["status", "--admin", admin.trim_start_matches("http://")])
        .stdin(Stdio::null())
        .output();
    let shown = String::from_utf8(program.await.unwrap().stdout).unwrap();
    assert!(
        shown.contains("a: name: tools search is exposed as"),
        "{shown}"
    );
    assert!(
        shown.contains("a: matches nothing: servers.a.tools.deny: no tool matches \"delte_*\""),
        "{shown}"
    );
}

#[tokio::test]
async fn check_connects_each_server_and_reports_mismatches() {
    let long = "a_name_that_is_too_long_for_forty_five_characters";
    let setup = Setup::new()
        .stdio("a", &only(legacy(), &["plain", long]))
        .with("servers.a", "tools = { deny = [\"plan\"] }")
        .with("views.v", "tools = [\"a__plan\"]");
    let check = async |setup: &Setup| {
        let config = setup.file();
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_moongate"));
        command
            .args(["check", "--connect", "--config", config.to_str().unwrap()])
            .stdin(Stdio::null());
        let ran = command.output().await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    };
    let (code, out, err) = check(&setup).await;
    assert_eq!(code, Some(0), "{out}{err}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines[0], "a: ready; 2 tools, 0 resources, 0 prompts",
        "{out}"
    );
    assert!(
        lines[1].starts_with(&format!("a: name: tools {long} is exposed as a__")),
        "{out}"
    );
    let left = [
        "a: matches nothing: servers.a.tools.deny: no tool matches \"plan\"; did you \
         mean \"plain\"?",
        "matches nothing: views.v.tools: no tool matches \"a__plan\"; did you mean \"a__plain\"?",
    ];
    assert_eq!(lines[2..], left, "{out}");
    assert!(
        record_of(setup.file().parent().unwrap(), "a").contains("tools/list"),
        "it was connected"
    );
    let setup = setup.http("b", "http://127.0.0.1:9/mcp");
    let (code, out, err) = check(&setup).await;
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(
        out.contains("\nb: backing_off; ") || out.contains("\nb: failed; "),
        "{out}"
    );
}

/// Tools as some servers define them.
fn combined() -> Vec<Value> {
    let tool = |name: &str, schema: Value| json!({"name": name, "inputSchema": schema});
    let all = json!({"type": "object", "properties": {"a": {}},
        "allOf": [{"properties": {"b": {}}, "required": ["b"]}]});
    let any = json!({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    let stays = json!({"type": "object", "oneOf": [{}, {}], "unevaluatedProperties": false});
    vec![
        tool("all", all),
        tool("any", any),
        crate::harness::tool("plain"),
        tool("stays", stays),
    ]
}

fn schemas_of(list: &Value) -> Vec<(String, Value)> {
    let tools = list["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|tool| {
            (
                tool["name"].as_str().unwrap().to_owned(),
                tool["inputSchema"].clone(),
            )
        })
        .collect()
}

async fn listed_schemas(gateway: &Gateway, path: &str, era: Era) -> Vec<(String, Value)> {
    let client = McpClient::open(&gateway.url(path), era).await;
    schemas_of(&client.request("tools/list", json!({})).await.result())
}

/// Checks what became of each of the combined schemas where they are to be compatible.
fn assert_compatible(other: &[(String, Value)], spelled: &[Value]) {
    assert_eq!(
        other[0].1,
        json!({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]})
    );
    assert!(
        other[1].1.get("anyOf").is_none() && other[1].1["if"]["anyOf"] == spelled[1]["anyOf"],
        "{other:?}"
    );
    assert_eq!(other[2].1, spelled[2]);
    assert_eq!(other[3].1, spelled[3]);
}

#[tokio::test]
async fn schemas_that_model_apis_refuse_are_named_and_listed_otherwise_where_wanted() {
    let mock = serve(MockScript {
        tools: combined(),
        ..only(modern(), &[])
    })
    .await;
    let spelled = combined()
        .iter()
        .map(|tool| tool["inputSchema"].clone())
        .collect::<Vec<_>>();
    let mut gateway = Setup::new()
        .http("a", &mock.url)
        .with("views.asis", "schema = \"as_is\"")
        .with("views.other", "schema = \"compatible\"")
        .with("views.plain", "")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let is_as_spelled =
        |schemas: &[(String, Value)]| schemas.iter().map(|(_, schema)| schema).eq(&spelled);
    for era in ERAS {
        for path in ["/mcp", "/mcp/a", "/mcp/asis", "/mcp/plain"] {
            assert!(
                is_as_spelled(&listed_schemas(&gateway, path, era).await),
                "{path}"
            );
        }
        let other = listed_schemas(&gateway, "/mcp/other", era).await;
        assert_compatible(&other, &spelled);
    }
    let notes = told(&gateway, "a", "schemas").await;
    let expected = [
        "a__all: allOf at the top of its inputSchema: changed at /mcp/other",
        "a__any: anyOf at the top of its inputSchema: changed at /mcp/other",
        "a__stays: oneOf at the top of its inputSchema: listed unchanged because it cannot be \
         rewritten",
    ];
    assert_eq!(notes, expected);
    gateway
        .change(|setup| setup.with("gateway", "schema = \"compatible\""))
        .await;
    for path in ["/mcp", "/mcp/a", "/mcp/plain", "/mcp/other"] {
        assert!(
            !is_as_spelled(&listed_schemas(&gateway, path, Era::Modern).await),
            "{path}"
        );
    }
    assert!(is_as_spelled(
        &listed_schemas(&gateway, "/mcp/asis", Era::Modern).await
    ));
    let called = gateway
        .client(Era::Modern)
        .await
        .call("a__any", json!({"a": 1}))
        .await
        .text();
    assert_eq!(called, "{\"a\":1}");
    gateway
        .change(|setup| {
            setup
                .with("gateway", "schema = \"as_is\"")
                .without("views.other")
        })
        .await;
    let notes = told(&gateway, "a", "schemas").await;
    assert!(
        notes[0].ends_with("listed unchanged; gateway.schema = \"compatible\" lists it without"),
        "{notes:?}"
    );
}
