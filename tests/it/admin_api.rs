//! The admin API: calls, sessions, items and events, as a page or a program sees them.

use serde_json::{Value, json};

use crate::harness::{
    Era, EventStream, Gateway, HttpClient, HttpReply, Setup, legacy, only, serve, until,
};
use moongate_testing::HttpEndpoint;
use moongate_testing::messages::initialize;

async fn send(gateway: &Gateway, method: &str, path: &str) -> HttpReply {
    let url = format!("http://{}{path}", gateway.app.admin.unwrap());
    HttpClient::new().send(method, &url, &[], "").await
}

async fn calls(gateway: &Gateway, query: &str) -> Vec<Value> {
    gateway.admin(&format!("/api/v1/calls{query}")).await.json()["calls"]
        .as_array()
        .unwrap()
        .clone()
}

/// Opens the event stream of the admin listener.
async fn watch(gateway: &Gateway) -> EventStream {
    let url = format!("http://{}/api/v1/events", gateway.app.admin.unwrap());
    EventStream::new(HttpClient::new().open("GET", &url, &[], "").await)
}

/// Reads events up to the first of a kind that fits, and returns its data.
async fn event(stream: &mut EventStream, kind: &str, fits: impl Fn(&Value) -> bool) -> Value {
    loop {
        let text = stream.next().await.unwrap();
        let member = |name: &str| {
            text.lines()
                .find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
        };
        if member("event:").is_some_and(|found| found == kind) {
            let data: Value = serde_json::from_str(&member("data:").unwrap()).unwrap();
            if fits(&data) {
                return data;
            }
        }
    }
}

#[tokio::test]
async fn recent_calls_have_names_and_sizes_and_no_values() {
    let server = serve(only(legacy(), &["echo", "fail"])).await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    for era in [Era::Legacy, Era::Modern] {
        let client = gateway.client(era).await;
        client
            .call("a__echo", json!({"text": "s3cr3t-argument"}))
            .await
            .result();
        client.call("a__fail", json!({})).await.failure();
        client.call("a__nothing", json!({})).await.error();
    }
    let all = calls(&gateway, "").await;
    assert_eq!(all.len(), 6);
    let newest: Vec<_> = all
        .iter()
        .map(|call| {
            (
                call["name"].as_str().unwrap(),
                call["state"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        newest[..3],
        [
            ("a__nothing", "error"),
            ("a__fail", "tool_error"),
            ("a__echo", "ok")
        ]
    );
    let echo = &all[2];
    assert_eq!(echo["server"], "a");
    assert_eq!(echo["endpoint"], "/mcp");
    assert_eq!(echo["method"], "tools/call");
    assert_eq!(echo["from"], "2026-07-28");
    assert_eq!(echo["to"], "2025-11-25");
    assert!(
        echo["bytes_in"].as_u64() > Some(10)
            && echo["bytes_out"].as_u64() > Some(10)
            && echo["own_ms"].is_number()
    );
    assert!(echo["client"]["name"].is_string(), "{echo}");
    assert!(echo["wait_ms"].is_number(), "{echo}");
    assert_eq!(echo["retries"], 0, "{echo}");
    assert_eq!(all[0]["error"]["type"], "unknown_name");
    assert!(!Value::Array(all.clone()).to_string().contains("s3cr3t"));
    assert_eq!(calls(&gateway, "?server=a&state=ok&limit=1").await.len(), 1);
    assert_eq!(gateway.admin("/api/v1/calls?limit=x").await.status, 400);
    let status = gateway.status("a").await;
    assert_eq!(
        status["calls"],
        json!({"ok": 2, "tool_error": 2, "error": 0})
    );
    assert!(
        status["p95_ms"].is_number() && status["tools_on"] == 2,
        "{status}"
    );
}

#[tokio::test]
async fn a_recent_call_says_how_long_it_waited_for_its_turn() {
    let server = serve(only(legacy(), &["sleep"])).await;
    let setup = Setup::new().with(
        "servers.a",
        &format!("url = {:?}\nmax_concurrency = 1", server.url),
    );
    let gateway = setup.start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    let sleep = || async { client.call("a__sleep", json!({ "ms": 300 })).await.result() };
    tokio::join!(sleep(), sleep());
    let all = calls(&gateway, "").await;
    let mut waits: Vec<f64> = all
        .iter()
        .map(|call| call["wait_ms"].as_f64().unwrap())
        .collect();
    waits.sort_by(f64::total_cmp);
    // The second one had its turn when the first was done.
    assert!(waits.len() == 2 && waits[1] > waits[0], "{all:?}");
    for call in &all {
        assert!(call["wait_ms"].as_f64() <= call["ms"].as_f64(), "{call}");
    }
}

#[tokio::test]
async fn an_operator_cancels_a_running_call() {
    let server = serve(only(legacy(), &["sleep"])).await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    let call = async { client.call("a__sleep", json!({"ms": 60_000})).await };
    let cancel = async {
        let running = until("a running call", async || {
            calls(&gateway, "?state=running").await.into_iter().next()
        })
        .await;
        assert_eq!(gateway.status("a").await["inflight"], 1);
        let path = format!("/api/v1/calls/{}/cancel", running["id"].as_str().unwrap());
        assert_eq!(send(&gateway, "POST", &path).await.status, 200);
        path
    };
    let (reply, path) = tokio::join!(call, cancel);
    assert!(
        reply
            .text_body()
            .contains("An operator cancelled this call"),
        "{}",
        reply.text_body()
    );
    assert_eq!(calls(&gateway, "?state=cancelled").await.len(), 1);
    assert_eq!(
        send(&gateway, "POST", &path).await.status,
        404,
        "it has ended"
    );
    assert_eq!(
        send(&gateway, "POST", "/api/v1/calls/c-x/cancel")
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn sessions_are_listed_without_their_ids_and_can_be_ended() {
    let server = serve(only(legacy(), &["echo"])).await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Legacy).await;
    client.call("a__echo", json!({"text": "x"})).await.result();
    let listed = gateway.admin("/api/v1/sessions").await;
    let session = &listed.json()["sessions"][0];
    let secret = client
        .headers()
        .into_iter()
        .find(|(name, _)| *name == "mcp-session-id")
        .unwrap()
        .1;
    assert!(!listed.text_body().contains(&secret));
    assert_eq!(session["revision"], "2025-11-25");
    assert_eq!(session["endpoint"], "/mcp");
    assert!(session["client"]["name"].is_string(), "{session}");
    let path = format!("/api/v1/sessions/{}", session["id"].as_str().unwrap());
    assert_eq!(send(&gateway, "DELETE", &path).await.status, 200);
    assert_eq!(send(&gateway, "DELETE", &path).await.status, 404);
    assert_eq!(
        client.call("a__echo", json!({"text": "x"})).await.status,
        404,
        "the session has ended"
    );
}

#[tokio::test]
async fn items_of_a_server_have_their_state_cost_and_schema() {
    let server = serve(only(legacy(), &["echo", "fail", "sleep"])).await;
    let table = format!(
        "url = {:?}\ntools = {{ deny = [\"fail\"], hide = [\"sleep\"] }}",
        server.url
    );
    let gateway = Setup::new().with("servers.a", &table).start().await;
    gateway.ready(&["a"]).await;
    let items = gateway.admin("/api/v1/servers/a/items").await.json();
    let tool = |name: &str| {
        items["tools"]
            .as_array()
            .unwrap()
            .iter()
            .find(|tool| tool["name"] == name)
            .unwrap()
    };
    assert_eq!(tool("echo")["state"], "on");
    assert_eq!(tool("echo")["exposed"], "a__echo");
    assert_eq!(tool("fail")["state"], "off");
    assert_eq!(tool("sleep")["state"], "hidden");
    assert!(
        tool("echo")["tokens"].as_u64() > Some(5)
            && tool("echo")["input_schema"]["type"] == "object"
    );
    let unknown = gateway.admin("/api/v1/servers/b/items").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.text_body().contains("the enabled servers are a"));
    let refreshed = send(&gateway, "POST", "/api/v1/servers/a/refresh").await;
    assert_eq!(refreshed.status, 200);
    assert_eq!(refreshed.json()["tools"], 3);
}

#[tokio::test]
async fn a_watcher_sees_calls_servers_and_sessions_as_they_change() {
    let server = serve(only(legacy(), &["echo"])).await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let mut stream = watch(&gateway).await;
    let first = event(&mut stream, "snapshot", |_| true).await;
    assert_eq!(first["servers"][0]["name"], "a");
    assert_eq!(first["calls"], json!([]));
    assert_eq!(gateway.metric("moongate_admin_streams").await, Some(1.0));
    let client = gateway.client(Era::Legacy).await;
    client.call("a__echo", json!({"text": "x"})).await.result();
    let call = event(&mut stream, "call", |call| call["state"] == "ok").await;
    assert_eq!(call["name"], "a__echo");
    drop(server);
    client.call("a__echo", json!({"text": "x"})).await;
    event(&mut stream, "server", |server| {
        server["name"] == "a" && server["state"] != "ready"
    })
    .await;
    drop(stream);
    until("no watcher", async || {
        (gateway.metric("moongate_admin_streams").await == Some(0.0)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn many_calls_are_counted_for_a_watcher() {
    let server = serve(only(legacy(), &["echo"])).await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let mut stream = watch(&gateway).await;
    event(&mut stream, "snapshot", |_| true).await;
    let client = gateway.client(Era::Modern).await;
    let is_enough = tokio_util::sync::CancellationToken::new();
    let load = async {
        let mut calls = 0;
        while !is_enough.is_cancelled() {
            let burst = (0..50).map(|_| client.call("a__echo", json!({"text": "x"})));
            futures_util::future::join_all(burst).await;
            calls += 50;
        }
        calls
    };
    let watched = async {
        let counted = event(&mut stream, "calls", |_| true).await;
        is_enough.cancel();
        counted["started"].as_u64().unwrap()
    };
    let (calls, started) = tokio::join!(load, watched);
    assert!(started > 0 && started <= calls, "{started} of {calls}");
    let counted = event(&mut stream, "server", |server| {
        server["calls"]["ok"] == calls
    })
    .await;
    assert_eq!(counted["name"], "a");
    assert_eq!(counted["state"], "ready");
    drop(server);
    client.call("a__echo", json!({"text": "x"})).await;
    event(&mut stream, "server", |server| {
        server["name"] == "a" && server["state"] != "ready"
    })
    .await;
}

#[tokio::test]
async fn event_streams_are_bounded_and_end_when_keys_of_operators_change() {
    const KEY: &str = "admin-key-number-1-0123456789";
    let mut gateway = Setup::new().with("admin", "streams = 1").start().await;
    let mut stream = watch(&gateway).await;
    event(&mut stream, "snapshot", |_| true).await;
    let refused = gateway.admin("/api/v1/events").await;
    assert_eq!(refused.status, 503);
    assert!(refused.text_body().contains("admin.streams"));
    gateway
        .change(|setup| setup.with("admin.keys.1", &format!("name = \"me\"\nkey = {KEY:?}")))
        .await;
    while stream.next().await.is_some() {}
    assert_eq!(gateway.admin("/api/v1/events").await.status, 401);
}

#[tokio::test]
async fn a_client_gets_its_steps_and_is_seen_once_it_connects() {
    let server = serve(only(legacy(), &["echo"])).await;
    let mut gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let kinds = |reply: &Value| -> Vec<String> {
        reply["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    let cursor = gateway
        .admin("/api/v1/connect?client=cursor&endpoint=/mcp/a")
        .await
        .json();
    assert_eq!(kinds(&cursor)[..2], ["link", "file"], "{cursor}");
    assert!(
        cursor["url"].as_str().unwrap().ends_with("/mcp/a"),
        "{cursor}"
    );
    let text = |reply: &Value| reply["steps"].to_string();
    assert!(
        text(&cursor).contains("~/.cursor/mcp.json") && !text(&cursor).contains("Authorization"),
        "{cursor}"
    );
    for missing in ["client=cursr", "client=cursor&endpoint=gone"] {
        assert_eq!(
            gateway
                .admin(&format!("/api/v1/connect?{missing}"))
                .await
                .status,
            404,
            "{missing}"
        );
    }
    let unnamed = gateway.admin("/api/v1/connect").await;
    assert_eq!(unnamed.status, 400);
    assert!(unnamed.text_body().contains("`client` is missing"));
    let present = async |gateway: &Gateway, id: &str| {
        let reply = gateway.admin("/api/v1/clients").await.json();
        let all = reply["clients"].as_array().unwrap();
        all.iter().find(|client| client["id"] == id).unwrap()["present"].clone()
    };
    assert_eq!(present(&gateway, "cursor").await, Value::Null);
    let _session = HttpEndpoint::open_session(
        &gateway.url("/mcp"),
        &initialize(1, "2025-06-18", "cursor-vscode", &json!({})),
    )
    .await;
    assert_eq!(present(&gateway, "cursor").await["name"], "cursor-vscode");
    assert_eq!(present(&gateway, "vscode").await, Value::Null);
    gateway
        .change(|setup| {
            setup.with(
                "auth.keys.1",
                "name = \"laptop\"\nkey = \"client-key-number-1-0123456789\"",
            )
        })
        .await;
    let keyed = gateway.admin("/api/v1/connect?client=cursor").await.json();
    assert!(
        text(&keyed).contains("${env:MOONGATE_KEY}") && !text(&keyed).contains("client-key"),
        "{keyed}"
    );
}

#[tokio::test]
async fn each_route_of_the_description_is_there() {
    let gateway = Setup::new().start().await;
    let description = gateway.admin("/api/v1/openapi.json").await.json();
    for (path, operations) in description["paths"].as_object().unwrap() {
        for method in operations
            .as_object()
            .unwrap()
            .keys()
            .filter(|_| path != "/api/v1/events")
        {
            let path = path.replace("{name}", "none").replace("{id}", "none");
            let reply = send(&gateway, &method.to_uppercase(), &path).await;
            let missing =
                reply.status == 404 && reply.text_body().contains("There is nothing here");
            assert!(
                !missing && reply.status != 405,
                "{method} {path}: {}",
                reply.status
            );
        }
    }
}

#[tokio::test]
async fn a_query_parameter_that_no_route_declares_is_refused() {
    let gateway = Setup::new().start().await;
    let description = gateway.admin("/api/v1/openapi.json").await.json();
    let mut checked = 0;
    for (path, operations) in description["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().unwrap();
            let declared: Vec<&str> = parameters
                .iter()
                .filter(|parameter| parameter["in"] == "query")
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            if declared.is_empty() {
                continue;
            }
            let path = path.replace("{name}", "none");
            let reply = send(
                &gateway,
                &method.to_uppercase(),
                &format!("{path}?outcome=ok"),
            )
            .await;
            let text = reply.text_body();
            assert_eq!(reply.status, 400, "{method} {path}: {text}");
            assert_eq!(
                reply.json()["error"],
                "bad_query",
                "{method} {path}: {text}"
            );
            assert!(
                text.contains("outcome") && declared.iter().all(|name| text.contains(name)),
                "{text}"
            );
            checked += 1;
        }
    }
    assert_eq!(checked, 6);
}

#[tokio::test]
async fn operators_find_what_a_model_would() {
    let server = serve(only(legacy(), &["read_file", "send_mail"])).await;
    let setup = Setup::new()
        .http("a", &server.url)
        .with("views.v", "tools = [\"*\", \"!*mail\"]");
    let gateway = setup.start().await;
    gateway.ready(&["a"]).await;
    let search = async |query: &str| gateway.admin(&format!("/api/v1/search?{query}")).await;
    let found = search("q=send+mail").await.json();
    assert_eq!(found["endpoint"], "/mcp", "{found}");
    assert_eq!(found["total"], 2, "{found}");
    let tool = &found["tools"][0];
    assert_eq!(tool["name"], "a__send_mail", "{found}");
    assert_eq!(tool["server"], "a", "{found}");
    assert_eq!(tool["matched_words"], json!(["send", "mail"]), "{found}");
    assert!(
        tool["score"].as_f64() > Some(0.5) && tool["signature"] == "a__send_mail()",
        "{found}"
    );
    let viewed = search("q=send+mail&endpoint=/mcp/v").await.json();
    assert_eq!(viewed["endpoint"], "/mcp/v");
    assert_eq!(viewed["total"], 1);
    assert_eq!(viewed["tools"], json!([]));
    let own = search("q=read&endpoint=a&limit=1").await.json();
    assert_eq!(own["tools"][0]["signature"], "read_file()", "{own}");
    for (query, status) in [
        ("q=", 400),
        ("q=a&limit=0", 400),
        ("q=a&limit=x", 400),
        ("q=a&endpoint=b", 404),
    ] {
        assert_eq!(search(query).await.status, status, "{query}");
    }
}
