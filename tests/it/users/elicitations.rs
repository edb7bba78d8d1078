//! Programs that ask their clients in the middle of calls: whose question it is, and where what
//! they keep stays.

use hyper::Response;
use hyper::body::Incoming;
use moongate_mock::{FaultAction, FaultRule, HttpRules, MockScript};
use serde_json::{Value, json};

use crate::harness::{
    Era, EventStream, Gateway, HttpReply, McpClient, Setup, holds, legacy, marked, serve, until,
    within,
};
use crate::users::children::mark;

/// What a stateless client says of itself with each request: it can be asked for a name.
fn able() -> Value {
    json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}})
}

/// A gateway with a key for each of two principals, and a client of each.
async fn with_two_keys(script: &MockScript) -> (Gateway, McpClient, McpClient) {
    let [one, two] =
        ["one", "two"].map(|name| (name, format!("{name}-key-0123456789abcdef0123456789")));
    let key = |(name, key): &(&str, String)| format!("name = {name:?}\nkey = {key:?}");
    let setup = Setup::new()
        .with("auth.keys.1", &key(&one))
        .with("auth.keys.2", &key(&two));
    let gateway = setup.stdio("a", script).start().await;
    gateway.ready(&["a"]).await;
    let url = gateway.url("/mcp");
    let one = McpClient::with_key(&url, Era::Modern, Some(&one.1)).await;
    let two = McpClient::with_key(&url, Era::Modern, Some(&two.1)).await;
    (gateway, one, two)
}

async fn call(client: &McpClient, tool: &str, arguments: Value) -> HttpReply {
    let mut params = json!({"name": format!("a__{tool}"), "arguments": arguments});
    if client.era() == Era::Modern {
        params["_meta"] = able();
    }
    client.request("tools/call", params).await
}

async fn count(client: &McpClient) -> String {
    call(client, "counter", json!({})).await.text()
}

/// Calls a tool that asks for a name; gives the question.
async fn asked(client: &McpClient, tool: &str, arguments: Value) -> Value {
    let reply = call(client, tool, arguments).await;
    let result = reply.result();
    assert_eq!(result["resultType"], "input_required", "{result}");
    result
}

/// Answers whatever is asked until the call is over.
async fn answered(client: &McpClient, tool: &str, arguments: Value) -> String {
    let mut result = asked(client, tool, arguments.clone()).await;
    for _ in 0..64 {
        let key = |asked: &Value| {
            asked
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        };
        let name = |message: &Value| json!({"action": "accept", "content": {"name": message}});
        let answers: Value = key(&result["inputRequests"])
            .into_iter()
            .map(|key| {
                (
                    key.clone(),
                    name(&result["inputRequests"][&key]["params"]["message"]),
                )
            })
            .collect::<serde_json::Map<_, _>>()
            .into();
        let mut params =
            json!({"name": format!("a__{tool}"), "arguments": arguments, "_meta": able()});
        params["inputResponses"] = answers;
        params["requestState"] = result["requestState"].clone();
        let reply = client.request("tools/call", params).await;
        if reply.result()["resultType"] != "input_required" {
            return reply.text();
        }
        result = reply.result();
    }
    panic!("it asks for ever");
}

/// A call that stays open, of a client that waits for it.
fn open(
    client: &McpClient,
    tool: &'static str,
    arguments: Value,
) -> tokio::task::JoinHandle<HttpReply> {
    let client = client.clone();
    tokio::spawn(async move { call(&client, tool, arguments).await })
}

async fn until_called(gateway: &Gateway, tool: &str) {
    holds("the server was called", || {
        gateway.record("a").contains(&format!("\"{tool}\""))
    })
    .await;
}

#[tokio::test]
async fn a_stateless_clients_program_keeps_its_memory_over_elicitations() {
    let (mark, env) = mark();
    let setup = Setup::new()
        .lasting()
        .stdio("a", &legacy())
        .with("servers.a", &env);
    for life in ["first", "second"] {
        let gateway = setup.life().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(Era::Modern).await;
        assert_eq!(count(&client).await, "1", "{life}");
        assert!(
            answered(&client, "elicit", json!({}))
                .await
                .contains("What is your name?")
        );
        assert_eq!(
            [count(&client).await, count(&client).await],
            ["2", "3"],
            "{life}: its state is lost"
        );
        assert_eq!(marked(&mark).len(), 1, "{life}");
        gateway.app.stop().await;
    }
}

#[tokio::test]
async fn concurrent_calls_start_no_more_programs_and_each_gets_its_elicitation() {
    let (mark, env) = mark();
    let gateway = Setup::new()
        .stdio("a", &legacy())
        .with("servers.a", &env)
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    answered(&client, "elicit", json!({})).await;
    let sleeping =
        futures_util::future::join_all((0..24).map(|_| call(&client, "sleep", json!({"ms": 200}))));
    assert!(
        sleeping
            .await
            .iter()
            .all(|reply| reply.text().contains("slept"))
    );
    assert_eq!(marked(&mark).len(), 1);
    let asking =
        (0..24).map(|n| answered(&client, "elicit", json!({"message": format!("Name {n}?")})));
    for (n, text) in futures_util::future::join_all(asking)
        .await
        .iter()
        .enumerate()
    {
        assert!(text.contains(&format!("Name {n}?")), "{text}");
    }
    assert_eq!(marked(&mark).len(), 1);
    assert_eq!(gateway.record("a").matches("\"initialize\"").count(), 1);
}

#[tokio::test]
async fn calls_of_another_principal_avoid_a_program_with_an_open_elicitation() {
    let (gateway, one, two) = with_two_keys(&legacy()).await;
    assert_eq!(count(&one).await, "1");
    answered(&one, "elicit", json!({})).await;
    let sleeping = open(&two, "sleep", json!({"ms": 60_000}));
    until_called(&gateway, "sleep").await;
    assert_eq!(count(&one).await, "2");
    answered(&one, "elicit", json!({})).await;
    assert_eq!(count(&one).await, "3");
    assert_eq!(
        [count(&two).await, count(&two).await],
        ["1", "2"],
        "it has a program of its own"
    );
    answered(&two, "elicit", json!({})).await;
    assert!(!sleeping.is_finished());
    sleeping.abort();
    assert_eq!([count(&one).await, count(&two).await], ["4", "3"]);
}

#[tokio::test]
async fn after_a_cancelled_call_the_next_elicitation_is_delivered() {
    let gateway = Setup::new().stdio("a", &legacy()).start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    for n in 1..=3 {
        let hanging = open(&client, "sleep", json!({"ms": 60_000}));
        holds("the server was called", || {
            gateway.record("a").matches("60000").count() == n
        })
        .await;
        hanging.abort();
        holds("it is cancelled", || {
            gateway
                .record("a")
                .matches("notifications/cancelled")
                .count()
                == n
        })
        .await;
        answered(&client, "elicit", json!({})).await;
    }
}

#[tokio::test]
async fn after_a_cancelled_call_over_http_sse_the_next_elicitation_is_delivered() {
    let http = HttpRules {
        streamable: false,
        ..HttpRules::default()
    };
    let mock = serve(MockScript { http, ..legacy() }).await;
    let gateway = Setup::new()
        .http("a", &mock.url.replace("/mcp", "/sse"))
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    let posted = |words: &str| {
        mock.recorded_requests()
            .iter()
            .filter(|s| s.http_method == "POST" && s.body.contains(words))
            .count()
    };
    for n in 1..=3 {
        let hanging = open(&client, "sleep", json!({"ms": 60_000}));
        holds("the server was called", || posted("60000") == n).await;
        hanging.abort();
        holds("it is cancelled", || posted("notifications/cancelled") == n).await;
        answered(&client, "elicit", json!({})).await;
    }
}

#[tokio::test]
async fn a_cancelled_calls_elicitation_reaches_no_other_client() {
    // It asks after it was cancelled.
    let mut script = legacy();
    script.stdio.ignore_cancelled = true;
    let delay = FaultAction::Delay { ms: 1500 };
    script.faults = vec![FaultRule {
        on: "tools/call:late".into(),
        after: 0,
        times: 0,
        act: delay,
    }];
    script
        .tools
        .push(json!({"name": "late", "inputSchema": {"type": "object"}}));
    script.behave.insert("late".into(), "elicit".into());
    let (gateway, one, two) = with_two_keys(&script).await;
    let late = open(&one, "late", json!({"message": "secret"}));
    until_called(&gateway, "late").await;
    late.abort();
    holds("it is cancelled", || {
        gateway.record("a").contains("notifications/cancelled")
    })
    .await;
    let reply = call(&two, "sleep", json!({"ms": 3000})).await;
    assert!(reply.text().contains("slept"), "{:?}", reply.json());
    let refused = gateway
        .metric("moongate_asks_total{kind=\"any\",outcome=\"unattributed\"}")
        .await;
    assert!(refused.is_some_and(|refused| refused >= 1.0), "{refused:?}");
}

/// Opens a call of a client with a session, and answers what it is asked.
async fn asked_in_session(client: &McpClient) -> Value {
    let params = json!({"name": "a__elicit", "arguments": {}});
    let response: Response<Incoming> = client.start(7, "tools/call", params).await;
    if response.headers()["content-type"] == "application/json" {
        return HttpReply::read(response).await.answer();
    }
    let mut stream = EventStream::new(response);
    loop {
        let message = within("it is asked or answered", stream.message())
            .await
            .unwrap();
        if message["method"] == "elicitation/create" {
            let answer = json!({"jsonrpc": "2.0", "id": message["id"],
                "result": {"action": "accept", "content": {"name": "Ada"}}});
            assert_eq!(client.post(answer.to_string()).await.status, 202);
        } else if message["id"] == 7 {
            return message;
        }
    }
}

async fn session(gateway: &Gateway) -> McpClient {
    let mut client = gateway.client(Era::Legacy).await;
    client.initialize_with(json!({"elicitation": {}})).await;
    client
}

#[tokio::test]
async fn a_server_that_asks_beside_its_calls_over_http_has_a_connection_for_each_client() {
    let mut script = legacy();
    script.http.ask_on_get = true;
    let server = serve(script).await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let first = session(&gateway).await;
    let second = session(&gateway).await;
    let sleeping = open(&first, "sleep", json!({"ms": 60_000}));
    holds("a call is open", || {
        gateway.app.metrics.calls.inflight.get() == 1
    })
    .await;
    // That it asks is new: the answer says what can be done.
    let refused = asked_in_session(&second).await.to_string();
    assert!(refused.contains("servers.a.share"), "{refused}");
    for _ in 0..3 {
        let both = tokio::join!(asked_in_session(&second), asked_in_session(&second));
        assert!(
            both.0.to_string().contains("Ada") && both.1.to_string().contains("Ada"),
            "{both:?}"
        );
    }
    answered(&gateway.client(Era::Modern).await, "elicit", json!({})).await;
    assert!(!sleeping.is_finished());
    sleeping.abort();
}

#[tokio::test]
async fn the_first_elicitation_after_a_start_is_delivered_though_another_call_is_open() {
    let setup = Setup::new()
        .lasting()
        .with("gateway", "drain = \"100ms\"")
        .stdio("a", &legacy());
    let gateway = setup.life().await;
    gateway.ready(&["a"]).await;
    let first = session(&gateway).await;
    let second = session(&gateway).await;
    let sleeping = open(&first, "sleep", json!({"ms": 60_000}));
    holds("a call is open", || {
        gateway.app.metrics.calls.inflight.get() == 1
    })
    .await;
    // That it asks is new.
    assert!(
        asked_in_session(&second).await.to_string().contains("Ada"),
        "the first question"
    );
    assert!(
        asked_in_session(&second).await.to_string().contains("Ada"),
        "now it is known"
    );
    sleeping.abort();
    gateway.app.stop().await;

    for era in [Era::Legacy, Era::Modern] {
        let gateway = setup.life().await;
        gateway.ready(&["a"]).await;
        let other = session(&gateway).await;
        let sleeping = open(&other, "sleep", json!({"ms": 60_000}));
        holds("a call is open", || {
            gateway.app.metrics.calls.inflight.get() == 1
        })
        .await;
        if era == Era::Legacy {
            let asker = session(&gateway).await;
            assert!(asked_in_session(&asker).await.to_string().contains("Ada"));
        } else {
            answered(&gateway.client(era).await, "elicit", json!({})).await;
        }
        assert!(!sleeping.is_finished());
        let one = session(&gateway).await;
        let two = session(&gateway).await;
        let both = tokio::join!(asked_in_session(&one), asked_in_session(&two));
        assert!(
            both.0.to_string().contains("Ada") && both.1.to_string().contains("Ada"),
            "{both:?}"
        );
        sleeping.abort();
        gateway.app.stop().await;
    }
}

#[tokio::test]
async fn tools_that_appear_on_a_dedicated_connection_are_listed_and_called() {
    // One that announces no changes is asked again while its client uses it.
    let silent = MockScript {
        capabilities: Some(json!({"tools": {}})),
        ..legacy()
    };
    for script in [legacy(), silent] {
        let (gateway, one, two) = with_two_keys(&script).await;
        answered(&one, "elicit", json!({})).await;
        assert_eq!(count(&one).await, "1");
        assert_eq!(call(&two, "change", json!({})).await.text(), "changed_1");
        until("the new tool is listed", || async {
            two.tools()
                .await
                .iter()
                .any(|tool| tool == "a__changed_1")
                .then_some(())
        })
        .await;
        assert_eq!(
            call(&two, "changed_1", json!({"x": 1})).await.text(),
            r#"{"x":1}"#
        );
        assert_eq!(gateway.record("a").matches("\"initialize\"").count(), 2);
    }
}
