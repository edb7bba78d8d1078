//! Restarts that nobody notices: complaints 1, 28, 33, 35.

use std::time::Duration;

use moongate_mock::{MockHandle, MockScript};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{
    ERAS, Era, EventStream, Gateway, HttpClient, McpClient, Setup, holds, legacy, mock_at, modern,
    only, serve, until, within,
};

const WATCHED: &str = "mock://watched";

/// Stops a gateway and starts it again.
async fn again(setup: &Setup, gateway: Gateway) -> Gateway {
    gateway.app.stop().await;
    setup.life().await
}

/// What a client sees of its session on POST, GET and DELETE, in this order.
async fn everywhere(client: &McpClient) -> Vec<u16> {
    let mut statuses = Vec::new();
    statuses.push(client.request_as(1, "ping", json!({})).await.status);
    statuses.push(client.raw("GET", &[], "").await.status().as_u16());
    statuses.push(client.raw("DELETE", &[], "").await.status().as_u16());
    statuses
}

/// Opens the session's stream behind an event.
async fn behind(client: &McpClient, id: &str) -> EventStream {
    let response = client
        .raw("GET", &[("last-event-id", id.to_owned())], "")
        .await;
    assert_eq!(response.status(), 200, "{id}");
    EventStream::new(response)
}

#[tokio::test]
async fn a_session_goes_on_after_a_restart() {
    let mock = serve(legacy()).await;
    let setup = Setup::new().lasting().http("a", &mock.url);
    let gateway = setup.life().await;
    gateway.ready(&["a"]).await;
    let mut client = gateway.client(Era::Legacy).await;
    assert_eq!(client.raw("DELETE", &[], "").await.status(), 204);
    client.initialize_with(json!({"elicitation": {}})).await;
    client
        .request("logging/setLevel", json!({"level": "error"}))
        .await
        .result();
    client
        .request("resources/subscribe", json!({"uri": WATCHED}))
        .await
        .result();
    let gateway = again(&setup, gateway).await;
    assert_eq!(gateway.app.metrics.clients.sessions.get(), 1);
    // The same session at the same address: a call, its stream, its subscription, its level.
    assert_eq!(
        client.call("a__echo", json!({"n": 1})).await.text(),
        "{\"n\":1}"
    );
    assert_eq!(gateway.app.metrics.clients.sessions_restored.get(), 1);
    let mut stream = client.listen().await;
    for owed in [
        "resources/updated",
        "tools/list_changed",
        "prompts/list_changed",
        "resources/list_changed",
    ] {
        stream.notification(&format!("notifications/{owed}")).await;
    }
    holds("the server is subscribed to again", || {
        mock.notify_resource(WATCHED) > 0
    })
    .await;
    let updated = stream.notification("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], WATCHED);
    gateway.ready(&["a"]).await;
    mock.change_tools_and_notify(&["elicit", "log"].map(crate::harness::tool));
    stream
        .notification("notifications/tools/list_changed")
        .await;
    drop(stream);
    // What it declared still counts: it can be asked.
    let mut call = EventStream::new(
        client
            .start(77, "tools/call", json!({"name": "a__elicit"}))
            .await,
    );
    let asked = call.notification("elicitation/create").await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"],
        "result": {"action": "accept", "content": {"name": "Ada"}}});
    assert_eq!(client.post(answer.to_string()).await.status, 202);
    assert!(
        call.message().await.unwrap()["result"]
            .to_string()
            .contains("Ada")
    );
    let log = json!({"level": "warning", "text": "too little"});
    let logged = client
        .request("tools/call", json!({"name": "a__log", "arguments": log}))
        .await;
    assert_eq!(logged.messages().len(), 1, "below its level: {logged:?}");
    // It ends as any other, and stays ended.
    assert_eq!(everywhere(&client).await, [200, 200, 204]);
    let gateway = again(&setup, gateway).await;
    assert_eq!(everywhere(&client).await, [404, 404, 404]);
    gateway.app.stop().await;
}

#[tokio::test]
async fn a_restored_session_answers_its_own_key_and_endpoint_only() {
    let keys = ["key-number-1-0123456789", "key-number-2-0123456789"];
    let setup = Setup::new()
        .lasting()
        .with("views.view", "")
        .with(
            "auth.keys.1",
            &format!("name = \"one\"\nkey = {:?}", keys[0]),
        )
        .with(
            "auth.keys.2",
            &format!("name = \"two\"\nkey = {:?}", keys[1]),
        );
    let gateway = setup.life().await;
    let owner = McpClient::with_key(&gateway.url("/mcp"), Era::Legacy, Some(keys[0])).await;
    let gateway = again(&setup, gateway).await;
    let thief = McpClient {
        key: Some(keys[1].to_owned()),
        ..owner.clone()
    };
    assert_eq!(everywhere(&thief).await, [404, 404, 404]);
    let elsewhere = McpClient {
        url: gateway.url("/mcp/view"),
        ..owner.clone()
    };
    assert_eq!(elsewhere.request_as(1, "ping", json!({})).await.status, 404);
    assert_eq!(owner.request("ping", json!({})).await.status, 200);
    gateway.app.stop().await;
    // The key is exchanged, under the same name: whoever has the new one is somebody else.
    let setup = setup.with(
        "auth.keys.1",
        "name = \"one\"\nkey = \"key-number-3-0123456789\"",
    );
    let gateway = setup.life().await;
    assert_eq!(gateway.app.metrics.clients.sessions.get(), 0);
    let mut renewed = McpClient {
        key: Some("key-number-3-0123456789".to_owned()),
        ..owner
    };
    let gone = renewed.request_as(1, "ping", json!({})).await;
    assert_eq!(gone.status, 404);
    assert_eq!(gone.error()["code"], -32600);
    renewed.initialize().await;
    assert_eq!(renewed.request("ping", json!({})).await.status, 200);
    gateway.app.stop().await;
}

#[tokio::test]
async fn a_stream_can_be_resumed_after_a_restart() {
    let setup = Setup::new().lasting();
    let gateway = setup.life().await;
    let client = gateway.client(Era::Legacy).await;
    let mut stream = client.listen().await;
    let first = stream.next().await.unwrap();
    let id = first
        .lines()
        .find_map(|line| line.strip_prefix("id: "))
        .unwrap()
        .to_owned();
    let gateway = again(&setup, gateway).await;
    // The last word is when to come back, and no event.
    let mut last = String::new();
    while let Some(event) = stream.next().await {
        last = event;
    }
    assert_eq!(last, "retry: 1000");
    // It comes back with the last id that it has, and again whenever it has to.
    let mut seen = vec![id.clone()];
    for _ in 0..2 {
        let mut stream = behind(&client, seen.last().unwrap()).await;
        let event = stream.next().await.unwrap();
        seen.extend(
            event
                .lines()
                .find_map(|line| line.strip_prefix("id: "))
                .map(str::to_owned),
        );
    }
    assert!(seen.len() > 1 && seen[1] != id, "{seen:?}");
    // What never was is refused still.
    let reply = client
        .raw("GET", &[("last-event-id", format!("0-{}", u64::MAX))], "")
        .await;
    assert_eq!(reply.status(), 400);
    gateway.app.stop().await;
}

#[tokio::test]
async fn an_answer_that_died_with_the_gateway_is_one_clear_error() {
    let mock = serve(legacy()).await;
    let setup = Setup::new()
        .lasting()
        .http("a", &mock.url)
        .with("gateway", "drain = \"100ms\"\nkeep_alive = \"50ms\"");
    let gateway = setup.life().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Legacy).await;
    let mut call = EventStream::new(
        client
            .start(9, "tools/call", json!({"name": "a__hang"}))
            .await,
    );
    let first = call.next().await.unwrap();
    let id = first
        .lines()
        .find_map(|line| line.strip_prefix("id: "))
        .unwrap()
        .to_owned();
    let gateway = again(&setup, gateway).await;
    let error = behind(&client, &id).await.message().await.unwrap();
    assert_eq!(error["id"], 9, "{error}");
    assert_eq!(error["error"]["code"], -32603, "{error}");
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("restarted"),
        "{error}"
    );
    // Said once; then there is nothing left to wait for.
    behind(&client, &id).await.next().await.unwrap();
    assert_eq!(client.call("a__echo", json!({})).await.text(), "{}");
    gateway.app.stop().await;
}

#[tokio::test]
async fn the_state_of_a_stateless_client_survives_a_restart() {
    let able =
        || json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}});
    let script = |script: MockScript| MockScript {
        state_key: Some("the-same".to_owned()),
        ..script
    };
    let forgets = serve(script(modern())).await;
    let waits = serve(legacy()).await;
    let setup = Setup::new()
        .lasting()
        .http("forgets", &forgets.url)
        .http("waits", &waits.url);
    let gateway = setup.life().await;
    gateway.ready(&["forgets", "waits"]).await;
    let client = gateway.client(Era::Modern).await;
    let mut asked = Vec::new();
    for server in ["forgets", "waits"] {
        let params = json!({"name": format!("{server}__elicit"), "arguments": {}, "_meta": able()});
        let result = client.request("tools/call", params).await.result();
        assert_eq!(result["resultType"], "input_required", "{result}");
        asked.push(result);
    }
    let gateway = again(&setup, gateway).await;
    let retry = async |server: &str, asked: &Value| {
        let key = asked["inputRequests"]
            .as_object()
            .unwrap()
            .keys()
            .next()
            .unwrap();
        let mut params =
            json!({"name": format!("{server}__elicit"), "arguments": {}, "_meta": able()});
        params["inputResponses"] = json!({ key: {"action": "accept", "content": {"name": "Ada"}} });
        params["requestState"] = asked["requestState"].clone();
        client.request("tools/call", params).await
    };
    assert!(retry("forgets", &asked[0]).await.text().contains("Ada"));
    let error = retry("waits", &asked[1]).await.error();
    assert_eq!(error["code"], -32602);
    assert!(
        error["message"].as_str().unwrap().contains("restart"),
        "{error}"
    );
    gateway.app.stop().await;
}

/// A client whose session at the server, which counts its calls, is its own; it has made one.
async fn with_a_session_of_its_own() -> (MockHandle, Setup, Gateway, McpClient) {
    let mock = serve(legacy()).await;
    let setup = Setup::new()
        .lasting()
        .http("a", &mock.url)
        .with("servers.a", "share = \"session\"");
    let gateway = setup.life().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Legacy).await;
    assert_eq!(client.call("a__counter", json!({})).await.text(), "1");
    (mock, setup, gateway, client)
}

#[tokio::test]
async fn a_dedicated_upstream_session_goes_on_after_a_restart() {
    let (mock, setup, gateway, client) = with_a_session_of_its_own().await;
    let file = std::fs::read(
        setup
            .path("state")
            .join(format!("state-{}.redb", port(&gateway))),
    )
    .unwrap();
    let gateway = again(&setup, gateway).await;
    assert_eq!(
        client.call("a__counter", json!({})).await.text(),
        "2",
        "the server's session is the same"
    );
    // Whoever reads the file finds neither the client's session nor the server's.
    let me = client.call("a__whoami", json!({})).await.text();
    let at_server = serde_json::from_str::<Value>(&me).unwrap()["session"]
        .as_str()
        .unwrap()
        .to_owned();
    for secret in [client.session.as_ref().unwrap(), &at_server] {
        assert!(!secret.is_empty() && memchr::memmem::find(&file, secret.as_bytes()).is_none());
    }
    // A server that has forgotten it meanwhile costs nothing but its state.
    gateway.app.stop().await;
    mock.drop_sessions();
    let gateway = setup.life().await;
    assert_eq!(client.call("a__counter", json!({})).await.text(), "1");
    gateway.app.stop().await;
}

#[tokio::test]
async fn a_dedicated_upstream_session_that_its_server_forgot_is_replaced_after_a_restart() {
    let (mock, setup, gateway, client) = with_a_session_of_its_own().await;
    mock.drop_sessions();
    assert_eq!(
        client.call("a__counter", json!({})).await.text(),
        "1",
        "the server knows nothing of it"
    );
    let opened = mock.counters().of("initialize");
    let gateway = again(&setup, gateway).await;
    assert_eq!(
        client.call("a__counter", json!({})).await.text(),
        "2",
        "the session in its place is the same"
    );
    // The shared one alone was opened again.
    assert_eq!(mock.counters().of("initialize"), opened + 1);
    assert_eq!(client.raw("DELETE", &[], "").await.status(), 204);
    let gateway = again(&setup, gateway).await;
    gateway.ready(&["a"]).await;
    gateway.app.stop().await;
}

fn port(gateway: &Gateway) -> u16 {
    gateway.app.addresses[0].port()
}

#[tokio::test]
async fn a_new_process_gets_the_sessions_as_soon_as_the_old_one_drains() {
    let mock = serve(legacy()).await;
    // Two at once, as when one takes over from the other.
    let state = tempfile::tempdir().unwrap();
    let setup = || {
        let setup = Setup::new()
            .http("a", &mock.url)
            .keeping(state.path().join("state.redb"));
        setup.with("gateway", "drain = \"10s\"")
    };
    let first = setup();
    let second = setup();
    let old = first.life().await;
    old.ready(&["a"]).await;
    let mut client = old.client(Era::Legacy).await;
    let new = second.life().await;
    new.ready(&["a"]).await;
    assert_eq!(
        new.client(Era::Legacy)
            .await
            .request("ping", json!({}))
            .await
            .status,
        200,
        "it serves at once"
    );
    let slow = client.clone();
    let sleep = json!({"name": "a__sleep", "arguments": {"ms": 1000}});
    let slow = tokio::spawn(async move { slow.request_as(5, "tools/call", sleep).await.text() });
    holds("the call is there", || {
        mock.counters().of("tools/call") == 1
    })
    .await;
    let stopping = tokio::spawn(old.app.stop());
    client.url = new.url("/mcp");
    client.http = HttpClient::new();
    assert_eq!(client.call("a__echo", json!({})).await.text(), "{}");
    assert_eq!(
        within("the old call ends", slow).await.unwrap(),
        "slept 1000 ms"
    );
    within("the old one ends", stopping).await.unwrap();
    new.app.stop().await;
}

#[tokio::test]
async fn a_program_is_started_in_the_era_of_its_clients() {
    let setup = Setup::new()
        .lasting()
        .stdio("a", &only(MockScript::standard(), &["echo"]));
    let gateway = setup.life().await;
    gateway.ready(&["a"]).await;
    assert_eq!(
        gateway.status("a").await["revision"],
        "2026-07-28",
        "nobody called yet"
    );
    gateway
        .client(Era::Legacy)
        .await
        .call("a__echo", json!({}))
        .await
        .text();
    let taken_over =
        || async { (gateway.status("a").await["revision"] == "2025-11-25").then_some(()) };
    until("the process of that era has taken over", taken_over).await;
    // What it listed is kept once it has listed everything.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let probes = |gateway: &Gateway| gateway.record("a").matches("server/discover").count();
    let before = probes(&gateway);
    let gateway = again(&setup, gateway).await;
    gateway.ready(&["a"]).await;
    assert_eq!(gateway.status("a").await["revision"], "2025-11-25");
    assert_eq!(probes(&gateway), before);
    gateway.app.stop().await;
}

#[tokio::test]
async fn lists_are_there_before_their_servers() {
    let mut mock = Some(serve(only(legacy(), &["echo", "other"])).await);
    let address = mock.as_ref().unwrap().addr.unwrap();
    let url = mock.as_ref().unwrap().url.clone();
    let setup = Setup::new().lasting().http("a", &url).http("b", &url);
    let gateway = setup.life().await;
    gateway.ready(&["a", "b"]).await;
    let client = gateway.client(Era::Legacy).await;
    gateway.app.stop().await;
    drop(mock.take());
    let setup = setup.with(
        "servers.b",
        &format!("url = {:?}", url.replace("/mcp", "/other")),
    );
    let gateway = setup.life().await;
    for era in ERAS {
        let tools = gateway.client(era).await.tools().await;
        assert_eq!(
            tools,
            ["a__echo", "a__other"],
            "{era:?}: and nothing of b, which is another server now"
        );
    }
    assert_eq!(gateway.status("a").await["stale"], true);
    assert_eq!(
        gateway
            .metric("moongate_catalog_stale{mcp_server=\"a\"}")
            .await,
        Some(1.0)
    );
    assert_eq!(
        gateway
            .client(Era::Modern)
            .await
            .request("tools/list", json!({}))
            .await
            .result()["ttlMs"],
        0
    );
    // A call waits for the server, within its limit.
    let waiting = client.clone();
    let call = tokio::spawn(async move { waiting.call("a__echo", json!({"n": 1})).await.text() });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mock = mock_at(only(legacy(), &["echo", "other"]), address).await;
    assert_eq!(within("the call ends", call).await.unwrap(), "{\"n\":1}");
    gateway.ready(&["a"]).await;
    assert_eq!(gateway.status("a").await["stale"], false);
    assert_eq!(
        gateway
            .metric("moongate_catalog_stale{mcp_server=\"a\"}")
            .await,
        Some(0.0)
    );
    drop(mock);
    gateway.app.stop().await;
}

#[tokio::test]
async fn a_list_is_the_same_before_and_after() {
    let mock = serve(legacy()).await;
    let setup = Setup::new()
        .lasting()
        .http("a", &mock.url)
        .http("b", &mock.url);
    let gateway = setup.life().await;
    gateway.ready(&["a", "b"]).await;
    let client = gateway.client(Era::Legacy).await;
    let list = async || client.request_as(1, "tools/list", json!({})).await.body;
    let before = list().await;
    let gateway = again(&setup, gateway).await;
    assert_eq!(list().await, before, "from an earlier run");
    gateway.ready(&["a", "b"]).await;
    assert_eq!(list().await, before, "confirmed");
    gateway.app.stop().await;
}

#[tokio::test]
async fn a_state_that_cannot_be_kept_is_a_warning_or_the_reason_not_to_start() {
    let setup = Setup::new();
    std::fs::write(setup.path("file"), "").unwrap();
    let setup = {
        let dir = format!("state_dir = {:?}", setup.path("file").join("state"));
        setup.lasting().with("gateway", &dir)
    };
    let mut process = setup.program().await;
    let client = McpClient::open(&process.mcp(), Era::Legacy).await;
    assert_eq!(client.request("ping", json!({})).await.status, 200);
    assert_eq!(
        process.log().matches("state not kept").count(),
        1,
        "{}",
        process.log()
    );
    process.signal(Signal::TERM);
    assert_eq!(process.ended().await.code(), Some(0));
    let setup = setup.with("gateway", "state = \"embedded\"");
    let plan = setup.load().unwrap().plan;
    let Err(error) = moongate::app::GatewayApp::start(plan, None).await else {
        panic!("it started")
    };
    let error = format!("{error:#}");
    assert!(
        error.contains("gateway.state_dir") && error.contains("file/state"),
        "{error}"
    );
}
