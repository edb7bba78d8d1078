//! What scripts and presets say, and what comes of it.

use std::path::Path;

use moongate_mock::{CursorMode, FaultAction, FaultRule, GeneratedTools, MockScript};
use serde_json::{Value, json};

use crate::mock::fixtures::{
    answer, call, content, http, read_events, request, session, start_legacy,
};

#[test]
fn examples_load() {
    for file in
        std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("config/mock")).unwrap()
    {
        MockScript::load(&file.unwrap().path()).unwrap();
    }
    for file in ["tasks.toml", "tasks-2025-11-25.toml"] {
        let script = MockScript::load(
            &Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/conformance")
                .join(file),
        )
        .unwrap();
        assert!(
            script
                .tasks
                .keys()
                .all(|name| script.behave.contains_key(name)),
            "{file}"
        );
    }
    assert!(
        MockScript::parse("colour = 'red'")
            .unwrap_err()
            .to_string()
            .contains("colour")
    );
    assert!(MockScript::parse("revisions = []").is_err());
    let typo = "[[faults]]\non = 'tools/list'\ndo = 'delay'\nms = 5\nafer = 1";
    assert!(
        MockScript::parse(typo)
            .unwrap_err()
            .to_string()
            .contains("afer")
    );
    let whole =
        MockScript::standard().with_fault(FaultRule::on("*", FaultAction::Hang).after(2).times(1));
    MockScript::parse(&serde_json::to_string(&whole).unwrap()).unwrap();
}

#[tokio::test]
async fn lists_go_where_the_script_says() {
    let mut script = MockScript::standard();
    script.preset = moongate_mock::ContentPreset::Empty;
    script.generate = vec![GeneratedTools {
        count: 5,
        name: "t.{n}".into(),
        depth: 50,
        describe: 10,
    }];
    script.tools = vec![json!(r#"{"name": null,"n":1.0}"#)];
    script.list.page_size = 4;
    let mut pipe = start_legacy("2025-06-18", &script).await;
    let first = pipe.ask(&request(1, "tools/list", json!({}))).await;
    assert_eq!(first["result"]["tools"].as_array().unwrap().len(), 4);
    let cursor = json!({"cursor": first["result"]["nextCursor"]});
    pipe.send(&request(2, "tools/list", cursor.clone())).await;
    let second = pipe.line().await.unwrap();
    assert!(
        second.contains(r#"{"name": null,"n":1.0}"#) && !second.contains("nextCursor"),
        "{second}"
    );
    assert_eq!(
        pipe.ask(&request(3, "tools/list", json!({"cursor": "no"})))
            .await["error"]["code"],
        -32602
    );
    for (kind, next) in [
        (CursorMode::Loop, "page-0"),
        (CursorMode::Endless, "page-2"),
    ] {
        script.list.cursor = kind;
        let mut pipe = start_legacy("2025-06-18", &script).await;
        assert_eq!(
            pipe.ask(&request(2, "tools/list", cursor.clone())).await["result"]["nextCursor"],
            next
        );
    }
}

#[tokio::test]
async fn the_demonstration_is_friendly() {
    let server = http(MockScript::demo()).await;
    let web = session(&server.url, "2025-11-25").await;
    let mut events = read_events(web.post(&call(1, "ask_name", json!({}))).await);
    let ask = events.message().await.unwrap();
    let name = json!({"action": "accept", "content": {"name": "Ada"}});
    web.post(&json!({"jsonrpc": "2.0", "id": ask["id"], "result": name}).to_string())
        .await;
    assert_eq!(content(&events.message().await.unwrap()), "Hello, Ada.");
    assert!(content(&answer(web.post(&call(2, "now", json!({}))).await).await).ends_with('Z'));
}

#[tokio::test]
async fn the_rest_of_the_contents() {
    let server = http(MockScript::standard()).await;
    let web = session(&server.url, "2025-11-25").await;
    let get = |id, method: &str, params: Value| request(id, method, params);
    let blob = answer(
        web.post(&get(
            1,
            "resources/read",
            json!({"uri": "mock://static/blob"}),
        ))
        .await,
    )
    .await;
    assert_eq!(
        blob["result"]["contents"][0]["blob"]
            .as_str()
            .unwrap()
            .len(),
        344
    );
    let item = answer(
        web.post(&get(2, "resources/read", json!({"uri": "mock://item/7"})))
            .await,
    )
    .await;
    assert_eq!(item["result"]["contents"][0]["text"], "item 7");
    let greet = json!({"name": "greet", "arguments": {"name": "Ada"}});
    let prompt = answer(web.post(&get(3, "prompts/get", greet)).await).await;
    assert_eq!(
        prompt["result"]["messages"][0]["content"]["text"],
        "Please greet Ada warmly."
    );
    let missing = answer(
        web.post(&get(4, "prompts/get", json!({"name": "greet"})))
            .await,
    )
    .await;
    assert_eq!(missing["error"]["code"], -32602);
    let typed = json!({"ref": {"type": "ref/prompt", "name": "greet"},
        "argument": {"name": "name", "value": "a"}});
    let completed = answer(web.post(&get(5, "completion/complete", typed)).await).await;
    assert_eq!(
        completed["result"]["completion"]["values"],
        json!(["Ada", "Alan"])
    );
    let me = answer(
        web.send("POST", &call(6, "whoami", json!({})), &[("x-tenant", "t1")])
            .await
            .unwrap(),
    )
    .await;
    assert_eq!(
        me["result"]["structuredContent"]["headers"]["x-tenant"],
        "t1"
    );
    let link = answer(web.post(&call(7, "link", json!({}))).await).await;
    assert_eq!(link["result"]["content"][0]["type"], "resource_link");
    for n in ["1", "2"] {
        assert_eq!(
            content(&answer(web.post(&call(8, "counter", json!({}))).await).await),
            n
        );
    }
    let other = session(&server.url, "2025-11-25").await;
    assert_eq!(
        content(&answer(other.post(&call(8, "counter", json!({}))).await).await),
        "1"
    );
}
