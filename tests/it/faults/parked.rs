//! Calls of stateless clients whose server waits for an answer: nobody comes back, the wrong one
//! does, the server goes.

use moongate_mock::{FaultAction, FaultRule, MockHandle, MockScript};
use moongate_telemetry::StateRefusal;
use serde_json::{Value, json};

use crate::harness::{Era, Gateway, HttpReply, McpClient, Setup, holds, legacy, modern, serve};

/// The capabilities of a client that can be asked for a name.
fn able() -> Value {
    json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}})
}

/// One server behind HTTP and the same as a child.
async fn both(gateway: &str) -> (MockHandle, Gateway) {
    let mock = serve(legacy()).await;
    let setup = Setup::new().with("gateway", gateway);
    let gateway = setup
        .http("web", &mock.url)
        .stdio("child", &legacy())
        .start()
        .await;
    gateway.ready(&["web", "child"]).await;
    (mock, gateway)
}

/// Calls a tool that asks for a name; gives its answer.
async fn ask(client: &McpClient, server: &str) -> Value {
    let params = json!({"name": format!("{server}__elicit"), "arguments": {}, "_meta": able()});
    let result = client.request("tools/call", params).await.result();
    assert_eq!(result["resultType"], "input_required", "{result}");
    result
}

/// Brings the name.
async fn retry(client: &McpClient, server: &str, asked: &Value) -> HttpReply {
    let mut params = json!({"name": format!("{server}__elicit"), "arguments": {}, "_meta": able()});
    let key = asked["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    params["inputResponses"] = json!({ key: {"action": "accept", "content": {"name": "Ada"}} });
    params["requestState"] = asked["requestState"].clone();
    client.request("tools/call", params).await
}

fn cancelled(server: &str, mock: &MockHandle, gateway: &Gateway) -> usize {
    match server {
        "web" => mock.counters().cancelled.len(),
        _ => gateway
            .record("child")
            .matches("\"notifications/cancelled\"")
            .count(),
    }
}

#[tokio::test]
async fn a_parked_call_whose_client_never_returns_is_cancelled() {
    let (mock, gateway) = both("ask_timeout = \"300ms\"").await;
    let client = gateway.client(Era::Modern).await;
    for server in ["web", "child"] {
        let asked = ask(&client, server).await;
        assert_eq!(gateway.app.metrics.inputs.parked.get(), 1);
        holds("the server hears that nobody comes", || {
            cancelled(server, &mock, &gateway) == 1
        })
        .await;
        assert_eq!(gateway.app.metrics.inputs.parked.get(), 0);
        holds("nothing is left of it", || {
            gateway.app.metrics.calls.inflight.get() == 0
        })
        .await;
        let error = retry(&client, server, &asked).await.error();
        assert_eq!(error["code"], -32602);
        assert!(
            error["message"].as_str().unwrap().contains("expired"),
            "{error}"
        );
        assert_eq!(
            client
                .call(&format!("{server}__echo"), json!({}))
                .await
                .text(),
            "{}"
        );
    }
    assert_eq!(gateway.app.metrics.inputs.parked_expired.get(), 2);
    assert_eq!(
        gateway
            .app
            .metrics
            .inputs
            .state_refused
            .get(StateRefusal("expired")),
        2
    );
}

#[tokio::test]
async fn an_elicitation_may_take_longer_than_a_call() {
    let (mock, gateway) = both("ask_timeout = \"1m\"").await;
    drop(gateway);
    let setup = Setup::new()
        .http("web", &mock.url)
        .stdio("child", &legacy());
    let setup = setup.with("defaults", "timeout = \"1s\"");
    let gateway = setup.start().await;
    gateway.ready(&["web", "child"]).await;
    let client = gateway.client(Era::Modern).await;
    for server in ["web", "child"] {
        let asked = ask(&client, server).await;
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        let answer = retry(&client, server, &asked).await;
        assert!(answer.text().contains("Ada"), "{answer:?}");
    }
}

#[tokio::test]
async fn request_state_belongs_to_its_principal() {
    let mock = serve(legacy()).await;
    let key = |n: u8| format!("key-number-{n}-0123456789");
    let lines = |n: u8| format!("name = \"k{n}\"\nkey = {:?}", key(n));
    let setup = Setup::new()
        .with("auth.keys.1", &lines(1))
        .with("auth.keys.2", &lines(2));
    let gateway = setup.http("web", &mock.url).start().await;
    gateway.ready(&["web"]).await;
    let url = gateway.url("/mcp");
    let one = McpClient::with_key(&url, Era::Modern, Some(&key(1))).await;
    let two = McpClient::with_key(&url, Era::Modern, Some(&key(2))).await;
    let asked = ask(&one, "web").await;
    let error = retry(&two, "web", &asked).await.error();
    assert_eq!(error["code"], -32602, "{error}");
    // The other one learns no more than from state that was never given out.
    let mut made_up = asked.clone();
    made_up["requestState"] = json!("AAAA");
    assert_eq!(
        retry(&two, "web", &made_up).await.error()["message"],
        error["message"]
    );
    assert_eq!(
        gateway
            .app
            .metrics
            .inputs
            .state_refused
            .get(StateRefusal("other_caller")),
        1
    );
    assert!(retry(&one, "web", &asked).await.text().contains("Ada"));
}

#[tokio::test]
async fn a_sealed_state_is_good_once() {
    for script in [legacy(), modern(), MockScript::standard()] {
        let mock = serve(script).await;
        let gateway = Setup::new().http("web", &mock.url).start().await;
        gateway.ready(&["web"]).await;
        let client = gateway.client(Era::Modern).await;
        let asked = ask(&client, "web").await;
        let other = gateway.client(Era::Modern).await;
        let at_once = tokio::join!(retry(&client, "web", &asked), retry(&other, "web", &asked));
        let passed = [at_once.0, at_once.1]
            .iter()
            .filter(|reply| reply.answer()["result"].is_object())
            .count();
        assert_eq!(passed, 1, "one of two that come at once");
        for _ in 0..3 {
            let error = retry(&client, "web", &asked).await.error();
            assert_eq!(error["code"], -32602, "{error}");
            assert!(
                error["message"].as_str().unwrap().contains("used before"),
                "{error}"
            );
        }
        // Another question has another state.
        let asked = ask(&client, "web").await;
        assert!(retry(&client, "web", &asked).await.text().contains("Ada"));
    }
}

#[tokio::test]
async fn a_state_whose_call_may_have_run_stays_used() {
    let status = |status| FaultAction::Status {
        status,
        headers: [].into(),
        body: String::new(),
        content_type: None,
    };
    let thrown = FaultAction::Error {
        code: -32603,
        message: "thrown after the effect".to_owned(),
    };
    for failure in [status(500), status(502), status(504), thrown] {
        // The first call asks, and the second one fails.
        let fault = FaultRule::on("tools/call:elicit", failure.clone()).after(1);
        let mock = serve(modern().with_fault(fault)).await;
        let gateway = Setup::new().http("web", &mock.url).start().await;
        gateway.ready(&["web"]).await;
        let client = gateway.client(Era::Modern).await;
        let asked = ask(&client, "web").await;
        let failed = retry(&client, "web", &asked).await.answer().to_string();
        assert!(
            failed.contains("HTTP status 50") || failed.contains("thrown"),
            "{failed}"
        );
        let error = retry(&client, "web", &asked).await.error();
        assert!(
            error["message"].as_str().unwrap().contains("used before"),
            "{failure:?}: {error}"
        );
    }
}

#[tokio::test]
async fn a_state_whose_call_was_not_sent_is_good_again() {
    let mock = serve(modern()).await;
    let address = mock
        .url
        .trim_start_matches("http://")
        .trim_end_matches("/mcp")
        .parse()
        .unwrap();
    let gateway = Setup::new().http("web", &mock.url).start().await;
    gateway.ready(&["web"]).await;
    let client = gateway.client(Era::Modern).await;
    let asked = ask(&client, "web").await;
    mock.stop().await;
    retry(&client, "web", &asked).await.failure();
    let script = MockScript {
        state_key: Some("the-same".to_owned()),
        ..modern()
    };
    let _mock = crate::harness::mock_at(script, address).await;
    // The server is another one by now, and refuses its state with its own words: the gateway's
    // seal still opens.
    let again = async || {
        let reply = retry(&client, "web", &asked).await;
        let text = reply.answer().to_string();
        assert!(!text.contains("used before"), "{text}");
        (!text.contains("not available")).then_some(())
    };
    crate::harness::until("the server is back", again).await;
}

#[tokio::test]
async fn a_parked_call_ends_with_its_servers_disconnect_reason() {
    let (_mock, gateway) = both("").await;
    let client = gateway.client(Era::Modern).await;
    let asked = ask(&client, "child").await;
    client.call("child__crash", json!({})).await.failure();
    let failure = retry(&client, "child", &asked).await.failure();
    assert!(failure.contains("child"), "{failure}");
    assert_eq!(gateway.app.metrics.inputs.parked.get(), 0);
    assert_eq!(client.call("child__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn parked_calls_hold_no_concurrency_permit() {
    let mock = serve(legacy()).await;
    let setup = Setup::new()
        .with("limits", "parked = 2")
        .http("web", &mock.url);
    let gateway = setup
        .with(
            "servers.web",
            "max_concurrency = 1\nqueue = 1\ntimeout = \"2s\"",
        )
        .start()
        .await;
    gateway.ready(&["web"]).await;
    let client = gateway.client(Era::Modern).await;
    let first = ask(&client, "web").await;
    let second = ask(&client, "web").await;
    // Both wait for their users, and the server's one slot is free.
    assert_eq!(client.call("web__echo", json!({})).await.text(), "{}");
    let third = ask(&client, "web").await;
    assert_eq!(gateway.app.metrics.inputs.parked.get(), 2);
    holds("the oldest made room", || {
        mock.counters().cancelled.len() == 1
    })
    .await;
    assert_eq!(retry(&client, "web", &first).await.error()["code"], -32602);
    assert!(retry(&client, "web", &second).await.text().contains("Ada"));
    assert!(retry(&client, "web", &third).await.text().contains("Ada"));
}

#[tokio::test]
async fn parked_calls_can_be_disabled() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new()
        .with("limits", "parked = 0")
        .http("web", &mock.url)
        .start()
        .await;
    gateway.ready(&["web"]).await;
    let client = gateway.client(Era::Modern).await;
    let params = json!({"name": "web__elicit", "arguments": {}, "_meta": able()});
    let error = client.request("tools/call", params).await.error();
    assert!(
        error["message"].as_str().unwrap().contains("limits.parked"),
        "{error}"
    );
    holds("the server hears of it", || {
        mock.counters().cancelled.len() == 1
    })
    .await;
}

#[tokio::test]
async fn a_bridged_elicitation_needs_no_more_messages_than_a_native_one() {
    let (mock, gateway) = both("").await;
    let client = gateway.client(Era::Modern).await;
    let before = mock.counters().of("tools/call");
    let lines = gateway.record("child").lines().count();
    for server in ["web", "child"] {
        let asked = ask(&client, server).await;
        assert!(retry(&client, server, &asked).await.text().contains("Ada"));
    }
    // Two requests of the client, each with its answer; towards the server one request, and one
    // answer to its own.
    assert_eq!(mock.counters().of("tools/call") - before, 1);
    assert_eq!(gateway.record("child").lines().count() - lines, 2);
}

#[tokio::test]
async fn a_shutdown_cancels_parked_calls() {
    let (mock, gateway) = both("drain = \"100ms\"").await;
    let client = gateway.client(Era::Modern).await;
    ask(&client, "web").await;
    gateway.app.stop().await;
    holds("the server hears of it", || {
        mock.counters().cancelled.len() == 1
    })
    .await;
}
