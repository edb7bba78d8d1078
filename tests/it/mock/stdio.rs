//! Over stdin and stdout, at every revision.

use std::time::Duration;

use moongate_mock::{MockScript, Revision};
use serde_json::json;
use tokio::time::timeout;

use crate::mock::fixtures::{
    LONG, ODD, call, content, initialize, modern, request, start, start_legacy,
};

#[tokio::test]
async fn every_legacy_revision_over_stdio() {
    for revision in Revision::LEGACY {
        let mut pipe = start_legacy(
            revision.date(),
            &MockScript::standard().speaking(&[revision]),
        )
        .await;
        let tools = pipe.ask(&request(1, "tools/list", json!({}))).await;
        let echo = &tools["result"]["tools"][0];
        assert_eq!(echo["name"], "echo");
        assert_eq!(echo["title"].is_string(), revision >= Revision::V2025_06_18);
        assert_eq!(
            echo["annotations"].is_object(),
            revision >= Revision::V2025_03_26
        );
        pipe.send(&format!(
            r#"{{"jsonrpc":"2.0","id":"é","method":"tools/call","params":{{"name":"echo","arguments":{ODD}}}}}"#
        ))
        .await;
        let line = pipe.line().await.unwrap();
        assert!(line.starts_with(r#"{"jsonrpc":"2.0","id":"é","#), "{line}");
        let structured = format!(r#""structuredContent":{ODD}"#);
        assert_eq!(
            line.contains(&structured),
            revision >= Revision::V2025_06_18,
            "{line}"
        );
        assert_eq!(content(&serde_json::from_str(&line).unwrap()), ODD);
        let gone = pipe.ask(&request(3, "server/discover", json!({}))).await;
        assert_eq!(gone["error"]["code"], -32601);
        let missing = pipe
            .ask(&request(4, "resources/read", json!({"uri": "mock://no"})))
            .await;
        assert_eq!(missing["error"]["code"], -32002);
        drop(pipe.lines.input);
        assert!(
            timeout(LONG, pipe.child.wait())
                .await
                .unwrap()
                .unwrap()
                .success()
        );
    }
}

#[tokio::test]
async fn a_probe_finds_a_legacy_server() {
    let mut pipe = start(&MockScript::standard().speaking(&[Revision::V2025_06_18]));
    let probe = pipe
        .ask(&modern(1, "server/discover", json!({}), json!({})))
        .await;
    assert_eq!(probe["error"]["code"], -32601);
    let early = pipe.ask(&request(2, "tools/list", json!({}))).await;
    assert_eq!(early["error"]["code"], -32600);
    let opened = pipe.ask(&initialize("2025-11-25")).await;
    assert_eq!(opened["result"]["protocolVersion"], "2025-06-18");
}

#[tokio::test]
async fn modern_over_stdio() {
    let mut pipe = start(&MockScript::standard().speaking(&[Revision::V2026_07_28]));
    let found = pipe
        .ask(&modern(1, "server/discover", json!({}), json!({})))
        .await;
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(found["result"]["resultType"], "complete");
    let refused = pipe.ask(&initialize("2025-11-25")).await;
    assert_eq!(refused["error"]["code"], -32602);
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("2026-07-28")
    );
    let other = r#"{"io.modelcontextprotocol/protocolVersion": "1900-01-01"}"#;
    let refused = pipe
        .ask(&modern(
            2,
            "tools/list",
            json!({}),
            serde_json::from_str(other).unwrap(),
        ))
        .await;
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(
        refused["error"]["data"],
        json!({"supported": ["2026-07-28"], "requested": "1900-01-01"})
    );
    let tools = pipe
        .ask(&modern(3, "tools/list", json!({}), json!({})))
        .await;
    assert_eq!(tools["result"]["cacheScope"], "public");
    let unknown = pipe.ask(&modern(4, "ping", json!({}), json!({}))).await;
    assert_eq!(unknown["error"]["code"], -32601);
}

#[tokio::test]
async fn subscriptions_over_stdio_end_by_cancellation() {
    let mut pipe = start(&MockScript::standard());
    let filter = json!({"notifications": {"toolsListChanged": true,
        "resourceSubscriptions": ["mock://watched"]}});
    let first = pipe
        .ask(&modern(
            7,
            "subscriptions/listen",
            filter.clone(),
            json!({}),
        ))
        .await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], filter["notifications"]);
    let id = "io.modelcontextprotocol/subscriptionId";
    let named = |tool: &str| json!({"name": tool, "arguments": {}});
    pipe.send(&modern(8, "tools/call", named("change"), json!({})))
        .await;
    let notice = pipe.receive().await;
    assert_eq!(notice["method"], "notifications/tools/list_changed");
    assert_eq!(notice["params"]["_meta"][id], 7);
    assert_eq!(content(&pipe.receive().await), "changed_1");
    pipe.send(&modern(9, "tools/call", named("touch"), json!({})))
        .await;
    assert_eq!(pipe.receive().await["params"]["uri"], "mock://watched");
    assert_eq!(content(&pipe.receive().await), "told 1");
    pipe.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#)
        .await;
    // The cancelled task is dropped when it is next looked at: until then it may still hear.
    loop {
        pipe.send(&modern(10, "tools/call", named("touch"), json!({})))
            .await;
        let next = pipe.receive().await;
        if next.get("method").is_none() && content(&next) == "told 0" {
            break;
        }
    }
}

#[tokio::test]
async fn a_process_that_ignores_sigterm() {
    use rustix::process::{Pid, Signal, kill_process, test_kill_process};
    let mut script = MockScript::standard();
    (script.stdio.ignore_sigterm, script.stdio.ignore_eof) = (true, true);
    let mut pipe = start_legacy("2025-11-25", &script).await;
    let child = Pid::from_raw(i32::try_from(pipe.child.id().unwrap()).unwrap()).unwrap();
    kill_process(child, Signal::TERM).unwrap();
    let grandchild = pipe.ask(&call(1, "grandchild", json!({}))).await;
    let grandchild = Pid::from_raw(content(&grandchild).parse().unwrap()).unwrap();
    drop(pipe.lines.input);
    assert!(
        timeout(Duration::from_secs(1), pipe.child.wait())
            .await
            .is_err()
    );
    pipe.child.kill().await.unwrap();
    test_kill_process(grandchild).unwrap();
    kill_process(grandchild, Signal::KILL).unwrap();
}
