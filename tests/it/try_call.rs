//! Calls that an operator makes through the admin API.

use moongate_mock::MockScript;
use serde_json::{Value, json};

use crate::harness::{
    Era, EventStream, Gateway, HttpClient, Setup, legacy, modern, only, serve, until,
};

const JSON: (&str, &str) = ("content-type", "application/json");

fn url(gateway: &Gateway, path: &str) -> String {
    format!("http://{}/api/v1/try{path}", gateway.app.admin.unwrap())
}

/// Starts a call, and returns its id and its events.
async fn start(gateway: &Gateway, tool: &str, arguments: &str) -> (String, EventStream) {
    let body = format!(r#"{{"server":"a","tool":"{tool}","arguments":{arguments}}}"#);
    let reply = HttpClient::new()
        .open("POST", &url(gateway, ""), &[JSON], body)
        .await;
    let mut events = EventStream::new(reply);
    let (kind, started) = next(&mut events).await;
    assert_eq!(kind, "started");
    (started["id"].as_str().unwrap().to_owned(), events)
}

/// Reads the next event: its kind and its data.
async fn next(events: &mut EventStream) -> (String, Value) {
    loop {
        let text = events.next().await.expect("the stream goes on");
        let member = |name: &str| {
            text.lines()
                .find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
        };
        if let Some(kind) = member("event:") {
            return (
                kind,
                serde_json::from_str(&member("data:").unwrap()).unwrap(),
            );
        }
    }
}

async fn send(gateway: &Gateway, method: &str, path: &str, body: &str) -> u16 {
    HttpClient::new()
        .send(method, &url(gateway, path), &[JSON], body.to_owned())
        .await
        .status
}

#[tokio::test]
async fn a_try_takes_the_path_of_a_call_and_keeps_the_bytes() {
    for script in [legacy(), modern()] {
        let server = serve(only(script, &["echo", "fail"])).await;
        let table = format!("url = {:?}\ntools = {{ deny = [\"fail\"] }}", server.url);
        let key = "name = \"ci\"\nkey = \"client-key-number-1-0123456789\"\ntools = [\"none*\"]";
        let gateway = Setup::new()
            .with("servers.a", &table)
            .with("auth.keys.1", key)
            .start()
            .await;
        gateway.ready(&["a"]).await;
        let (_, mut events) = start(
            &gateway,
            "echo",
            r#"{"n": 1.0, "big": 12345678901234567890123}"#,
        )
        .await;
        let (kind, done) = next(&mut events).await;
        assert_eq!(kind, "done");
        assert_eq!(done["outcome"], "ok");
        let result = done["result"].as_str().unwrap();
        assert!(
            result.contains("1.0") && result.contains("12345678901234567890123"),
            "{result}"
        );
        assert_eq!(done["bytes"], result.len());
        assert!(
            done["ms"].is_number() && done["own_ms"].is_number(),
            "{done}"
        );
        assert!(
            events.next().await.is_none(),
            "the stream ends with the call"
        );
        let (_, mut events) = start(&gateway, "fail", "{}").await;
        let (_, done) = next(&mut events).await;
        assert_eq!(done["outcome"], "error", "rules of the config hold: {done}");
        let calls = gateway.admin("/api/v1/calls").await.json();
        let newest: Vec<_> = calls["calls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|call| &call["principal"])
            .collect();
        assert_eq!(newest, ["admin", "admin"]);
        assert_eq!(calls["calls"][1]["endpoint"], "/mcp/a");
        assert_eq!(gateway.status("a").await["calls"]["ok"], 1);
    }
}

#[tokio::test]
async fn progress_logs_and_questions_reach_the_operator() {
    for script in [legacy(), modern()] {
        let server = serve(only(script, &["progress", "log", "elicit", "sample"])).await;
        let gateway = Setup::new().http("a", &server.url).start().await;
        gateway.ready(&["a"]).await;
        let (_, mut events) = start(&gateway, "progress", r#"{"steps":2}"#).await;
        let (kind, progress) = next(&mut events).await;
        assert_eq!(kind, "progress");
        assert_eq!(progress["progress"], 1);
        assert_eq!(next(&mut events).await.0, "progress");
        assert_eq!(next(&mut events).await.0, "done");
        let (_, mut events) = start(&gateway, "log", r#"{"text":"hello"}"#).await;
        let (kind, log) = next(&mut events).await;
        assert_eq!(kind, "log");
        assert_eq!(log["data"], "hello");
        let (id, mut events) = start(&gateway, "elicit", "{}").await;
        let (kind, ask) = next(&mut events).await;
        assert_eq!(kind, "ask");
        assert_eq!(ask["kind"], "form");
        assert_eq!(
            ask["params"]["requestedSchema"]["required"],
            json!(["name"])
        );
        let answer = json!({ "ask": ask["ask"], "action": "accept", "content": { "name": "Ada" } })
            .to_string();
        assert_eq!(
            send(&gateway, "POST", &format!("/{id}/answer"), "{}").await,
            400
        );
        assert_eq!(send(&gateway, "POST", "/t-99/answer", &answer).await, 404);
        assert_eq!(
            send(&gateway, "POST", &format!("/{id}/answer"), &answer).await,
            200
        );
        let (_, done) = next(&mut events).await;
        assert!(done["result"].as_str().unwrap().contains("Ada"), "{done}");
        assert_eq!(
            send(&gateway, "POST", &format!("/{id}/answer"), &answer).await,
            404,
            "it was answered"
        );
        let (_, mut events) = start(&gateway, "sample", "{}").await;
        let mut last = next(&mut events).await;
        let mut told = false;
        while last.0 != "done" {
            told |= last.1["data"]
                .as_str()
                .is_some_and(|text| text.contains("not supported here"));
            last = next(&mut events).await;
        }
        told |= last.1["error"]
            .as_str()
            .is_some_and(|text| text.contains("not supported here"));
        assert!(
            told && last.1["outcome"] != "ok",
            "nobody answers for a model: {}",
            last.1
        );
    }
}

#[tokio::test]
async fn a_try_of_a_tool_that_can_ask_only_in_the_legacy_era_asks_from_the_second_on() {
    let text =
        "elicitation via server-initiated requests is unavailable on 2026-07-28 connections.";
    let failure = json!({"content": [{"type": "text", "text": text}], "isError": true});
    let behave = [("ask".to_owned(), "ask_name".to_owned())].into();
    let modern_answers = [("ask".to_owned(), failure)].into();
    let server = serve(MockScript {
        behave,
        modern_answers,
        ..only(MockScript::standard(), &["ask"])
    })
    .await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let (_, mut events) = start(&gateway, "ask", "{}").await;
    let (_, done) = next(&mut events).await;
    assert!(
        done["result"]
            .as_str()
            .is_some_and(|result| result.contains("Call it again")),
        "{done}"
    );
    let (id, mut events) = start(&gateway, "ask", "{}").await;
    let (kind, ask) = next(&mut events).await;
    assert_eq!(kind, "ask", "{ask}");
    let answer =
        json!({ "ask": ask["ask"], "action": "accept", "content": { "name": "Ada" } }).to_string();
    assert_eq!(
        send(&gateway, "POST", &format!("/{id}/answer"), &answer).await,
        200
    );
    let (_, done) = next(&mut events).await;
    assert!(
        done["result"]
            .as_str()
            .is_some_and(|result| result.contains("Hello, Ada.")),
        "{done}"
    );
}

#[tokio::test]
async fn a_try_is_stopped_by_order_or_by_leaving_and_four_run_at_once() {
    let server = serve(only(legacy(), &["sleep"])).await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let mut running = Vec::new();
    for _ in 0..4 {
        running.push(start(&gateway, "sleep", r#"{"ms":60000}"#).await);
    }
    let body = r#"{"server":"a","tool":"sleep"}"#;
    assert_eq!(send(&gateway, "POST", "", body).await, 503);
    let (id, mut events) = running.pop().unwrap();
    assert_eq!(send(&gateway, "DELETE", &format!("/{id}"), "").await, 200);
    let (_, done) = next(&mut events).await;
    assert_eq!(done["outcome"], "cancelled", "{done}");
    drop(running);
    until("all calls are cancelled", async || {
        let calls = gateway.admin("/api/v1/calls?state=cancelled").await.json();
        (calls["calls"].as_array().unwrap().len() == 4).then_some(())
    })
    .await;
    assert_eq!(send(&gateway, "DELETE", &format!("/{id}"), "").await, 404);
}

#[tokio::test]
async fn a_try_is_guarded_like_every_action() {
    let server = serve(only(legacy(), &["echo"])).await;
    let mut gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let body = r#"{"server":"a","tool":"echo","arguments":{}}"#;
    let with = async |headers: &[(&str, &str)]| {
        HttpClient::new()
            .send("POST", &url(&gateway, ""), headers, body)
            .await
            .status
    };
    assert_eq!(with(&[]).await, 415);
    assert_eq!(with(&[("content-type", "text/plain")]).await, 415);
    assert_eq!(with(&[JSON, ("sec-fetch-site", "same-site")]).await, 403);
    assert_eq!(with(&[JSON, ("x-forwarded-for", "192.0.2.1")]).await, 403);
    for (wrong, status) in [
        ("[]", 400),
        (r#"{"server":"a"}"#, 400),
        (r#"{"server":"b","tool":"x"}"#, 404),
    ] {
        assert_eq!(send(&gateway, "POST", "", wrong).await, status, "{wrong}");
    }
    let long = format!(r#"{{"server":"a","tool":"{}"}}"#, "x".repeat(1 << 20));
    assert_eq!(send(&gateway, "POST", "", &long).await, 413);
    let key = "name = \"me\"\nkey = \"admin-key-number-1-0123456789\"\nrole = \"view\"";
    gateway
        .change(|setup| setup.with("admin.keys.1", key))
        .await;
    assert_eq!(send(&gateway, "POST", "", body).await, 401);
    let bearer = ("authorization", "Bearer admin-key-number-1-0123456789");
    let viewer = HttpClient::new()
        .send("POST", &url(&gateway, ""), &[JSON, bearer], body)
        .await;
    assert_eq!(viewer.status, 403);
    let client = gateway.client(Era::Modern).await;
    assert!(
        client.call("a__echo", json!({})).await.status == 200,
        "clients are served as before"
    );
}

const OPERATOR: &str = "admin-key-number-1-0123456789";

/// Starts a call with these headers, and returns its events after the first.
async fn start_with(
    gateway: &Gateway,
    headers: &[(&str, &str)],
    tool: &str,
    arguments: &str,
) -> EventStream {
    let body = format!(r#"{{"server":"a","tool":"{tool}","arguments":{arguments}}}"#);
    let headers = [&[JSON], headers].concat();
    let mut events = EventStream::new(
        HttpClient::new()
            .open("POST", &url(gateway, ""), &headers, body)
            .await,
    );
    assert_eq!(next(&mut events).await.0, "started");
    events
}

/// Reads up to the end, and returns that.
async fn end(events: &mut EventStream) -> Value {
    loop {
        let (kind, data) = next(events).await;
        if kind == "done" {
            return data;
        }
    }
}

fn with_operator(setup: Setup) -> Setup {
    setup.with(
        "admin.keys.1",
        &format!("name = \"me\"\nkey = {OPERATOR:?}\nrole = \"operate\""),
    )
}

/// Waits for the server, on a listener that asks for a key.
async fn ready(gateway: &Gateway) {
    let url = format!("http://{}/api/v1/servers/a", gateway.app.admin.unwrap());
    let bearer = format!("Bearer {OPERATOR}");
    until("the server is ready", async || {
        let status = HttpClient::new()
            .send("GET", &url, &[("authorization", &bearer)], "")
            .await
            .json();
        (status["tools_on"].as_u64() > Some(0)).then_some(())
    })
    .await;
}

async fn sign_in(gateway: &Gateway) -> String {
    let url = format!("http://{}/api/v1/signin", gateway.app.admin.unwrap());
    let body = json!({ "key": OPERATOR }).to_string();
    let reply = HttpClient::new().send("POST", &url, &[JSON], body).await;
    reply
        .header("set-cookie")
        .split(';')
        .next()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_try_ends_with_the_session_that_started_it() {
    let server = serve(only(legacy(), &["sleep"])).await;
    let gateway = with_operator(Setup::new().http("a", &server.url))
        .start()
        .await;
    ready(&gateway).await;
    let site = ("sec-fetch-site", "same-origin");
    let leaving = sign_in(&gateway).await;
    let staying = sign_in(&gateway).await;
    let arguments = r#"{"ms":600000}"#;
    let mut ended = start_with(&gateway, &[("cookie", &leaving), site], "sleep", arguments).await;
    let mut open = start_with(&gateway, &[("cookie", &staying), site], "sleep", arguments).await;
    let signout = format!("http://{}/api/v1/signout", gateway.app.admin.unwrap());
    assert_eq!(
        HttpClient::new()
            .send("POST", &signout, &[("cookie", &leaving), site], "")
            .await
            .status,
        200
    );
    let done = end(&mut ended).await;
    assert!(
        done["error"].as_str().unwrap().contains("session"),
        "{done}"
    );
    // The other session goes on, until its operator stops the call.
    let own = [("cookie", staying.as_str()), site];
    let stopped = HttpClient::new()
        .send("DELETE", &url(&gateway, "/t-2"), &own, "")
        .await;
    assert_eq!(stopped.status, 200);
    assert!(
        end(&mut open).await["error"]
            .as_str()
            .unwrap()
            .contains("stopped")
    );
}

#[tokio::test]
async fn a_server_that_never_stops_reporting_does_not_put_off_the_check_of_the_keys() {
    let server = serve(only(legacy(), &["progress"])).await;
    let table = format!("url = {:?}\ntimeout = \"10m\"", server.url);
    let mut gateway = with_operator(Setup::new().with("servers.a", &table))
        .start()
        .await;
    ready(&gateway).await;
    let bearer = format!("Bearer {OPERATOR}");
    // A report each millisecond, for much longer than the test.
    let mut events = start_with(
        &gateway,
        &[("authorization", &bearer)],
        "progress",
        r#"{"steps":10000000,"ms":1}"#,
    )
    .await;
    assert_eq!(next(&mut events).await.0, "progress");
    gateway
        .change(|setup| setup.with("admin.keys.1", "key = \"another-key-number-1-0123456789\""))
        .await;
    let done = end(&mut events).await;
    assert!(
        done["error"]
            .as_str()
            .unwrap()
            .contains("operator keys changed"),
        "{done}"
    );
}
