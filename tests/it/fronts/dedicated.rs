//! What a server says on a connection that is one client's, behind `moongate stdio --url`, which
//! stands for that client.

use moongate_mock::MockScript;
use serde_json::{Value, json};

use crate::fronts::pipe::StdioProcess;
use crate::harness::{Gateway, Setup, legacy, modern};

/// What the client can be asked for: at a server that asks, it is then apart from others.
fn able() -> Value {
    json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}})
}

async fn gateway(script: &MockScript, share: &str) -> (Gateway, StdioProcess) {
    let gateway = Setup::new()
        .stdio("s", script)
        .with("servers.s", &format!("share = {share:?}"))
        .start()
        .await;
    gateway.ready(&["s"]).await;
    let pipe = StdioProcess::launch(&["--url", &gateway.url("/mcp")], &[]);
    (gateway, pipe)
}

/// Calls a tool until the client is told: the ways to a connection of its own are opened meanwhile.
async fn told(
    pipe: &mut StdioProcess,
    id: &mut i64,
    params: Value,
    is_modern: bool,
    wanted: impl Fn(&Value) -> bool,
) {
    for _ in 0..100 {
        *id += 1;
        match is_modern {
            true => pipe.ask_modern(*id, "tools/call", params.clone()).await,
            false => pipe.ask(*id, "tools/call", params.clone()).await,
        }
        pipe.result(*id).await;
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        // Whatever came meanwhile is kept while this is waited for.
        *id += 1;
        pipe.ask_modern(*id, "tools/list", json!({})).await;
        pipe.result(*id).await;
        if pipe.kept().iter().any(&wanted) {
            return;
        }
    }
    panic!("it never heard of it: {:?}\n{}", pipe.kept(), pipe.log());
}

/// Has the server ask the client, so that it is known to ask.
async fn asked(pipe: &mut StdioProcess) {
    let call = |extra: Value| {
        let mut params = json!({"name": "s__elicit", "arguments": {}, "_meta": able()});
        params
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        params
    };
    pipe.ask_modern(1, "tools/call", call(json!({}))).await;
    let asked = pipe.result(1).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let key = asked["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap()
        .clone();
    let answers = json!({key: {"action": "accept", "content": {"name": "Ada"}}});
    let retry = call(json!({"inputResponses": answers, "requestState": asked["requestState"]}));
    pipe.ask_modern(2, "tools/call", retry).await;
    assert!(
        pipe.result(2).await["content"][0]["text"]
            .to_string()
            .contains("Ada")
    );
}

#[tokio::test]
async fn notifications_on_a_dedicated_connection_reach_a_bridged_stateless_client() {
    for (script, share) in [
        (legacy(), "auto"),
        (legacy(), "session"),
        (modern(), "session"),
    ] {
        let (_gateway, mut pipe) = gateway(&script, share).await;
        asked(&mut pipe).await;
        let watched = "mock://watched";
        let wanted = json!({"toolsListChanged": true, "resourceSubscriptions": [watched]});
        pipe.ask_modern(
            7,
            "subscriptions/listen",
            json!({"notifications": wanted, "_meta": able()}),
        )
        .await;
        pipe.notification("notifications/subscriptions/acknowledged")
            .await;
        let mut id = 100;
        let call = |tool: &str, arguments: Value| json!({"name": tool, "arguments": arguments, "_meta": able()});
        let tagged =
            |m: &Value| m["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 7;
        let changed = |m: &Value| m["method"] == "notifications/tools/list_changed" && tagged(m);
        told(
            &mut pipe,
            &mut id,
            call("s__change", json!({})),
            true,
            changed,
        )
        .await;
        let updated = |m: &Value| {
            m["method"] == "notifications/resources/updated"
                && tagged(m)
                && m["params"]["uri"] == watched
        };
        told(
            &mut pipe,
            &mut id,
            call("s__touch", json!({"uri": watched})),
            true,
            updated,
        )
        .await;
        // What is about a call comes with the call.
        let mut params = call("s__progress", json!({"steps": 3}));
        params["_meta"]["progressToken"] = json!("p");
        pipe.ask_modern(8, "tools/call", params).await;
        for step in 1..=3 {
            let progress = pipe.until(|m| m["params"]["progressToken"] == "p").await;
            assert_eq!(progress["params"]["progress"], step, "{progress}");
        }
        pipe.result(8).await;
        let mut params = call("s__log", json!({"level": "error", "text": "said"}));
        params["_meta"]["io.modelcontextprotocol/logLevel"] = json!("info");
        pipe.ask_modern(9, "tools/call", params).await;
        let message = pipe.notification("notifications/message").await;
        assert_eq!(message["params"]["data"], "said");
        pipe.result(9).await;
        pipe.close();
        assert!(pipe.ended().await.0.success());
    }
}

#[tokio::test]
async fn notifications_on_a_dedicated_connection_reach_a_bridged_session() {
    for script in [legacy(), modern()] {
        let (_gateway, mut pipe) = gateway(&script, "session").await;
        pipe.initialize("2025-11-25", json!({})).await;
        let mut id = 100;
        let changed = |m: &Value| m["method"] == "notifications/tools/list_changed";
        told(
            &mut pipe,
            &mut id,
            json!({"name": "s__change", "arguments": {}}),
            false,
            changed,
        )
        .await;
        pipe.ask(5, "resources/subscribe", json!({"uri": "mock://watched"}))
            .await;
        pipe.result(5).await;
        let updated = |m: &Value| m["method"] == "notifications/resources/updated";
        let touch = json!({"name": "s__touch", "arguments": {"uri": "mock://watched"}});
        told(&mut pipe, &mut id, touch, false, updated).await;
        pipe.close();
        assert!(pipe.ended().await.0.success());
    }
}
