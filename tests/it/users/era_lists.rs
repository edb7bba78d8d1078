//! Lists of servers that speak both eras and show different things in each.

use moongate_mock::{ContentPreset, EraRule, MockScript};
use serde_json::{Value, json};

use crate::harness::{Era, McpClient, Setup, holds, legacy, serve, tool, until, within};

const CHANGED: &str = "notifications/tools/list_changed";

/// A server whose tools differ in both eras: one by its output, and two that only one era has.
fn differing() -> MockScript {
    let rows = json!({"name": "rows", "inputSchema": {"type": "object"},
        "outputSchema": {"type": "array"}});
    let eras = [
        ("rows", EraRule::Wrapped),
        ("old", EraRule::Legacy),
        ("new", EraRule::Modern),
    ];
    MockScript {
        preset: ContentPreset::Empty,
        tools: vec![rows, tool("same"), tool("old"), tool("new")],
        answers: [(
            "rows".to_owned(),
            json!({"content": [], "structuredContent": [1]}),
        )]
        .into(),
        eras: eras.map(|(name, rule)| (name.to_owned(), rule)).into(),
        ..MockScript::standard()
    }
}

/// Returns the tools of a client with the types of their output.
async fn outputs(client: &McpClient) -> Vec<(String, Value)> {
    let listed = client.request("tools/list", json!({})).await.result();
    let tool = |tool: &Value| {
        (
            tool["name"].as_str().unwrap().to_owned(),
            tool["outputSchema"]["type"].clone(),
        )
    };
    let tools = listed["tools"].as_array().unwrap().iter().map(tool);
    tools
        .filter(|(name, _)| !name.starts_with("aside__"))
        .collect()
}

fn expected(tools: &[(&str, Value)]) -> Vec<(String, Value)> {
    tools
        .iter()
        .map(|(name, output)| ((*name).to_owned(), output.clone()))
        .collect()
}

fn legacy_face() -> Vec<(String, Value)> {
    expected(&[
        ("a__old", Value::Null),
        ("a__rows", json!("object")),
        ("a__same", Value::Null),
    ])
}

fn modern_face() -> Vec<(String, Value)> {
    expected(&[
        ("a__new", Value::Null),
        ("a__rows", json!("array")),
        ("a__same", Value::Null),
    ])
}

/// Returns the names that a client lists.
async fn names(client: &McpClient) -> Vec<String> {
    outputs(client)
        .await
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}

async fn lists(client: &McpClient, face: &[(String, Value)]) {
    until("its list is that of its era", || async {
        (outputs(client).await == face).then_some(())
    })
    .await;
}

#[tokio::test]
async fn each_era_has_the_list_of_its_own_face() {
    let mock = serve(differing()).await;
    let aside = serve(legacy()).await;
    for setup in [
        Setup::new().stdio("a", &differing()),
        Setup::new().http("a", &mock.url),
    ] {
        let gateway = setup.http("aside", &aside.url).start().await;
        gateway.ready(&["a", "aside"]).await;
        let old = gateway.client(Era::Legacy).await;
        let new = gateway.client(Era::Modern).await;
        assert_eq!(outputs(&new).await, modern_face());
        assert_eq!(
            new.call("a__rows", json!({})).await.result()["structuredContent"],
            json!([1])
        );
        // Nobody has used the other face, so it does not run for its list.
        assert_eq!(names(&old).await, ["a__new", "a__rows", "a__same"]);
        assert!(!gateway.record("a").contains(r#""initialize""#));
        let mut heard = old.listen().await;
        let mut silence = new.listen().await;
        assert_eq!(old.call("a__same", json!({})).await.text(), "{}");
        within("it is told", heard.notification(CHANGED)).await;
        assert_eq!(outputs(&old).await, legacy_face());
        assert_eq!(
            old.call("a__rows", json!({})).await.result()["structuredContent"],
            json!({"result": [1]})
        );
        assert_eq!(old.call("a__old", json!({})).await.text(), "{}");
        assert_eq!(outputs(&new).await, modern_face());
        // The modern client hears of what changes for it, and of nothing else.
        holds("the gateway listens", || aside.listeners() > 0).await;
        aside.set_prompts(&[json!({"name": format!("of-{}", gateway.base)})]);
        aside.notify_list("prompts");
        loop {
            let message = silence.message().await.unwrap();
            assert_ne!(message["method"], CHANGED);
            if message["method"] == "notifications/prompts/list_changed" {
                break;
            }
        }
    }
}

#[tokio::test]
async fn the_list_of_a_face_that_was_replaced_stays_and_follows_the_other() {
    let mock = serve(differing()).await;
    let gateway = Setup::new()
        .stdio("a", &differing())
        .http("web", &mock.url)
        .start()
        .await;
    gateway.ready(&["a", "web"]).await;
    let old = gateway.client(Era::Legacy).await;
    old.call("a__same", json!({})).await.text();
    let new = gateway.client(Era::Modern).await;
    let face = McpClient::open(&gateway.url("/mcp/a"), Era::Legacy).await;
    let own = expected(&[
        ("old", Value::Null),
        ("rows", json!("object")),
        ("same", Value::Null),
    ]);
    lists(&face, &own).await;
    // One process runs, that of the legacy client. The other one listed its tools before it ended.
    until("one process runs", || async {
        (gateway.status("a").await["shared"]
            .as_array()
            .unwrap()
            .len()
            == 1)
            .then_some(())
    })
    .await;
    let listed = outputs(&new).await;
    let of_a: Vec<_> = listed
        .into_iter()
        .filter(|(name, _)| name.starts_with("a__"))
        .collect();
    assert_eq!(of_a, modern_face());
}

#[tokio::test]
async fn lists_of_both_eras_outlive_a_restart() {
    let setup = Setup::new()
        .lasting()
        .stdio("a", &differing())
        .with("servers.a", "start = \"lazy\"");
    let gateway = setup.life().await;
    gateway.ready(&["a"]).await;
    for era in [Era::Modern, Era::Legacy] {
        gateway
            .client(era)
            .await
            .call("a__same", json!({}))
            .await
            .text();
    }
    lists(&gateway.client(Era::Legacy).await, &legacy_face()).await;
    gateway.app.stop().await;
    let gateway = setup.life().await;
    let old = gateway.client(Era::Legacy).await;
    let new = gateway.client(Era::Modern).await;
    assert_eq!(outputs(&old).await, legacy_face());
    assert_eq!(outputs(&new).await, modern_face());
    gateway.app.stop().await;
}

#[tokio::test]
async fn search_describes_tools_as_the_era_of_its_client_has_them() {
    let mock = serve(differing()).await;
    let setup = Setup::new()
        .http("a", &mock.url)
        .with("gateway", "discovery = \"search\"");
    let gateway = setup.start().await;
    gateway.ready(&["a"]).await;
    let old = gateway.client(Era::Legacy).await;
    let new = gateway.client(Era::Modern).await;
    old.call("call_tool", json!({"name": "a__same"}))
        .await
        .text();
    let describe = async |client: &McpClient, name: &str| {
        client
            .call("describe_tool", json!({"names": [name]}))
            .await
            .result()
            .to_string()
    };
    until("its own face is known", || async {
        describe(&old, "a__old")
            .await
            .contains("inputSchema")
            .then_some(())
    })
    .await;
    assert!(describe(&new, "a__old").await.contains("Unknown tool"));
    assert!(
        describe(&old, "a__rows")
            .await
            .contains(r#"\"required\":[\"result\"]"#)
    );
    assert!(!describe(&new, "a__rows").await.contains("required"));
}

#[tokio::test]
async fn legacy_clients_of_a_server_without_sessions_get_its_legacy_list() {
    let mut script = differing();
    script.http.session = false;
    let mock = serve(script).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let old = gateway.client(Era::Legacy).await;
    let new = gateway.client(Era::Modern).await;
    // Their calls go to it in the modern era, where it may ask. So a tool that only its legacy face
    // has is not listed.
    assert_eq!(
        old.call("a__rows", json!({})).await.result()["structuredContent"],
        json!({"result": [1]})
    );
    lists(
        &old,
        &expected(&[("a__rows", json!("object")), ("a__same", Value::Null)]),
    )
    .await;
    assert_eq!(
        old.call("a__rows", json!({})).await.result()["structuredContent"],
        json!({"result": [1]})
    );
    assert_eq!(outputs(&new).await, modern_face());
    assert_eq!(
        new.call("a__rows", json!({})).await.result()["structuredContent"],
        json!([1])
    );
}
