//! Questions to the client, in both eras.

use std::path::Path;

use moongate_mock::{MockScript, Revision};
use moongate_testing::HttpEndpoint;
use serde_json::{Value, json};

use crate::mock::fixtures::{answer, call, content, http, modern, start_legacy};

#[tokio::test]
async fn input_requests_over_stdio() {
    let mut pipe = start_legacy("2025-06-18", &MockScript::standard()).await;
    let ask = pipe
        .ask(&call(1, "elicit", json!({"message": "Who?"})))
        .await;
    assert_eq!(ask["method"], "elicitation/create");
    assert_eq!(ask["params"]["message"], "Who?");
    assert!(ask["params"].get("mode").is_none());
    let reply = json!({"action": "accept", "content": {"name": "Ada"}});
    let answer = pipe
        .ask(&json!({"jsonrpc": "2.0", "id": ask["id"], "result": reply}).to_string())
        .await;
    assert_eq!(answer["id"], 1);
    assert_eq!(answer["result"]["structuredContent"], reply);
    let ask = pipe.ask(&call(2, "roots", json!({}))).await;
    assert_eq!(ask["method"], "roots/list");
    let error =
        json!({"jsonrpc": "2.0", "id": ask["id"], "error": {"code": -32601, "message": "no"}});
    assert_eq!(
        pipe.ask(&error.to_string()).await["result"]["isError"],
        true
    );
    let url = pipe.ask(&call(3, "elicit_url", json!({}))).await;
    assert_eq!(url["result"]["isError"], true);
}

#[tokio::test]
async fn a_modern_input_request_is_a_result() {
    let server = http(MockScript::standard().speaking(&[Revision::V2026_07_28])).await;
    let web = HttpEndpoint::new(&server.url);
    let params = json!({"name": "elicit_twice", "arguments": {}});
    let first = answer(
        web.post_modern(&modern(1, "tools/call", params.clone(), json!({})))
            .await,
    )
    .await;
    assert_eq!(first["result"]["resultType"], "input_required");
    assert_eq!(
        first["result"]["inputRequests"]["first"]["params"]["mode"],
        "form"
    );
    let retry = |id, result: &Value, key: &str| {
        let mut params = params.clone();
        params["requestState"] = result["requestState"].clone();
        params["inputResponses"] = json!({ key: {"action": "accept", "content": {"name": key}} });
        modern(id, "tools/call", params, json!({}))
    };
    let second = answer(web.post_modern(&retry(2, &first["result"], "first")).await).await;
    assert!(
        second["result"]["inputRequests"]["second"].is_object(),
        "{second}"
    );
    let done = answer(
        web.post_modern(&retry(3, &second["result"], "second"))
            .await,
    )
    .await;
    assert_eq!(done["result"]["resultType"], "complete");
    assert_eq!(
        done["result"]["structuredContent"]["first"]["content"]["name"],
        "first"
    );

    let mut forged = first["result"].clone();
    forged["requestState"] = json!(format!("x{}", forged["requestState"].as_str().unwrap()));
    let refused = answer(web.post_modern(&retry(4, &forged, "first")).await).await;
    assert_eq!(refused["error"]["code"], -32602);
    let able = json!({"io.modelcontextprotocol/clientCapabilities": {}});
    let response = web
        .post_modern(&modern(5, "tools/call", params.clone(), able))
        .await;
    assert_eq!(response.status(), 400);
    let refused = answer(response).await;
    assert_eq!(refused["error"]["code"], -32021);
    assert!(refused["error"]["data"]["requiredCapabilities"]["elicitation"].is_object());
}

fn flows() -> MockScript {
    MockScript::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("config/mock/flows.toml")).unwrap()
}

#[tokio::test]
async fn a_legacy_flow_requests_input_within_the_call() {
    let mut pipe = start_legacy("2025-11-25", &flows()).await;
    pipe.send(&call(1, "book", json!({"place": "Luna"}))).await;
    assert_eq!(
        pipe.receive().await["params"]["data"],
        "looking for a table"
    );
    // Both are on their way before either is answered.
    let name = pipe.receive().await;
    let wish = pipe.receive().await;
    assert_eq!(name["method"], "elicitation/create");
    assert_eq!(wish["method"], "sampling/createMessage");
    let reply = |ask: &Value, result: Value| {
        json!({"jsonrpc": "2.0", "id": ask["id"], "result": result}).to_string()
    };
    let wished =
        json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "a view"}});
    pipe.send(&reply(&wish, wished)).await;
    let form = |content: Value| json!({"action": "accept", "content": content});
    let sure = pipe.ask(&reply(&name, form(json!({"name": "Ada"})))).await;
    assert_eq!(sure["params"]["message"], "Sure?");
    pipe.send(&reply(&sure, form(json!({"sure": true})))).await;
    assert_eq!(
        pipe.receive().await["method"],
        "notifications/tools/list_changed"
    );
    assert_eq!(content(&pipe.receive().await), "Luna: Ada, true");
    // Text that does not answer the question isn't an answer.
    pipe.send(&call(2, "book", json!({"place": "Luna"}))).await;
    let (_, name, wish) = (
        pipe.receive().await,
        pipe.receive().await,
        pipe.receive().await,
    );
    pipe.send(&reply(&name, form(json!({"name": 5})))).await;
    let refused = pipe.ask(&reply(&wish, json!({}))).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
}

#[tokio::test]
async fn a_modern_flow_requests_input_with_its_result() {
    let server = http(flows().speaking(&[Revision::V2026_07_28])).await;
    let web = HttpEndpoint::new(&server.url);
    let forms = json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}});
    let book = |id, state: &Value, responses: Value| {
        let mut params = json!({"name": "book", "arguments": {"place": "Luna"}});
        if !responses.is_null() {
            params["inputResponses"] = responses;
        }
        if !state.is_null() {
            params["requestState"] = state.clone();
        }
        modern(id, "tools/call", params, forms.clone())
    };
    let ask = async |text: String| answer(web.post_modern(&text).await).await;
    let first = ask(book(1, &Value::Null, Value::Null)).await["result"].clone();
    let keys: Vec<_> = first["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    assert_eq!(
        keys,
        ["name"],
        "what this client cannot answer is not asked"
    );
    let name = json!({"name": {"action": "accept", "content": {"name": "Ada"}}, "unheard-of": 1});
    let second = ask(book(2, &first["requestState"], name.clone())).await["result"].clone();
    assert_eq!(
        second["inputRequests"]["sure"]["params"]["message"],
        "Sure?"
    );
    let sure = json!({"sure": {"action": "accept", "content": {"sure": true}}});
    let done = ask(book(3, &second["requestState"], sure)).await;
    assert_eq!(content(&done), "Luna: Ada, true");
    let again = ask(book(4, &Value::Null, name)).await;
    assert!(
        again["result"]["inputRequests"]["name"].is_object(),
        "answers without the state count for nothing: {again}"
    );
    let refused = ask(book(5, &first["requestState"], json!({"name": 5}))).await;
    assert_eq!(refused["error"]["code"], -32602);
    let forged = json!(format!("{}x", first["requestState"].as_str().unwrap()));
    assert_eq!(
        ask(book(6, &forged, json!({}))).await["error"]["code"],
        -32602
    );
    let read = modern(
        7,
        "resources/read",
        json!({"uri": "table://Luna/7"}),
        json!({}),
    );
    assert_eq!(
        ask(read).await["result"]["contents"][0]["text"],
        "table 7 at Luna"
    );
    let missing = modern(
        8,
        "resources/read",
        json!({"uri": "table://Luna"}),
        json!({}),
    );
    assert_eq!(ask(missing).await["error"]["code"], -32602);
}
