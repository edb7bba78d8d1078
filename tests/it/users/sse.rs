//! Clients of HTTP+SSE, the HTTP transport of 2024-11-05.

use moongate_mock::{MockHandle, MockScript};
use serde_json::{Value, json};

use crate::harness::{
    EventStream, Gateway, HttpClient, Setup, body_of, holds, legacy, modern, serve,
};

const JSON: (&str, &str) = ("content-type", "application/json");

struct SseClient {
    stream: EventStream,
    to: String,
    http: HttpClient,
    key: Option<String>,
}

impl SseClient {
    async fn connect(gateway: &Gateway, path: &str, key: Option<&str>) -> SseClient {
        let http = HttpClient::new();
        let key = key.map(|key| format!("Bearer {key}"));
        let mut headers = vec![("accept", "text/event-stream")];
        headers.extend(key.as_deref().map(|key| ("authorization", key)));
        let response = http.open("GET", &gateway.url(path), &headers, "").await;
        assert_eq!(response.status(), 200);
        let mut stream = EventStream::new(response);
        let first = stream.next().await.unwrap();
        let to = first
            .strip_prefix(&format!("event: endpoint\ndata: {path}?sessionId="))
            .unwrap_or_else(|| panic!("{first}"));
        assert!(
            to.len() >= 40
                && to
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)),
            "{first}"
        );
        let to = gateway.url(&format!("{path}?sessionId={to}"));
        SseClient {
            stream,
            to,
            http,
            key,
        }
    }

    /// Connects, and opens the session.
    async fn open(gateway: &Gateway, path: &str, capabilities: Value) -> SseClient {
        let mut sse = SseClient::connect(gateway, path, None).await;
        let params = json!({"protocolVersion": "2024-11-05", "capabilities": capabilities,
            "clientInfo": {"name": "t", "version": "1"}});
        assert_eq!(sse.post(&body_of(0, "initialize", params)).await, 202);
        let answer = sse.stream.message().await.unwrap();
        assert_eq!(answer["id"], 0);
        assert_eq!(answer["result"]["protocolVersion"], "2024-11-05");
        assert_eq!(
            sse.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
                .await,
            202
        );
        sse
    }

    async fn post(&self, body: &str) -> u16 {
        self.post_to(&self.to, self.key.as_deref(), body).await
    }

    async fn post_to(&self, url: &str, authorization: Option<&str>, body: &str) -> u16 {
        let mut headers = vec![JSON];
        headers.extend(authorization.map(|value| ("authorization", value)));
        self.http
            .send("POST", url, &headers, body.to_owned())
            .await
            .status
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        assert_eq!(self.post(&body_of("x", method, params)).await, 202);
        loop {
            let message = self.stream.message().await.expect("the stream ended");
            if message["id"] == "x" && message["method"].is_null() {
                return message;
            }
        }
    }
}

async fn rig(script: MockScript, setup: Setup) -> (MockHandle, Gateway) {
    let mock = serve(script).await;
    let gateway = setup.http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    (mock, gateway)
}

#[tokio::test]
async fn every_endpoint_has_an_http_sse_path() {
    for script in [legacy(), modern()] {
        let (_mock, gateway) = rig(script, Setup::new()).await;
        for (path, tool) in [("/sse", "a__add"), ("/sse/a", "add"), ("/sse/", "a__add")] {
            let mut client = SseClient::open(&gateway, path, json!({})).await;
            let answer = client
                .ask(
                    "tools/call",
                    json!({"name": tool, "arguments": {"a": 1, "b": 2}}),
                )
                .await;
            assert_eq!(
                answer["result"]["content"][0]["text"], "3",
                "{path}: {answer}"
            );
        }
        let none = HttpClient::new().get(&gateway.url("/sse/nope")).await;
        assert_eq!(none.status, 404);
    }
}

/// Checks a question, its answer by POST, and the end of its call.
async fn assert_question_is_answered(client: &mut SseClient) {
    assert_eq!(
        client
            .post(&body_of(
                5,
                "tools/call",
                json!({"name": "a__elicit", "arguments": {}})
            ))
            .await,
        202
    );
    let ask = client.stream.notification("elicitation/create").await;
    let accept = json!({"jsonrpc": "2.0", "id": ask["id"],
        "result": {"action": "accept", "content": {"name": "Ada"}}});
    assert_eq!(client.post(&accept.to_string()).await, 202);
    let end = client.stream.message().await.unwrap();
    assert!(
        end["id"] == 5 && end["result"].to_string().contains("Ada"),
        "{end}"
    );
}

async fn assert_call_is_cancelled(client: &SseClient, mock: &MockHandle) {
    assert_eq!(
        client
            .post(&body_of(
                7,
                "tools/call",
                json!({"name": "a__hang", "arguments": {}})
            ))
            .await,
        202
    );
    holds("the server has the call", || {
        mock.recorded_requests()
            .iter()
            .any(|seen| seen.body.contains("\"hang\""))
    })
    .await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    assert_eq!(client.post(&cancel.to_string()).await, 202);
    holds("the server is told", || {
        mock.counters().cancelled.len() == 1
    })
    .await;
}

#[tokio::test]
async fn http_sse_delivers_everything_on_one_stream() {
    let (mock, gateway) = rig(legacy(), Setup::new()).await;
    let mut client = SseClient::open(&gateway, "/sse", json!({"elicitation": {}})).await;
    assert_question_is_answered(&mut client).await;
    let params =
        json!({"name": "a__progress", "arguments": {"steps": 2}, "_meta": {"progressToken": "t"}});
    assert_eq!(client.post(&body_of(6, "tools/call", params)).await, 202);
    for n in 1..=2 {
        assert_eq!(
            client.stream.notification("notifications/progress").await["params"]["progress"],
            n
        );
    }
    assert_eq!(client.stream.message().await.unwrap()["id"], 6);
    assert_eq!(
        client
            .ask("resources/subscribe", json!({"uri": "mock://watched"}))
            .await["result"],
        json!({})
    );
    holds("the server is subscribed to", || {
        mock.notify_resource("mock://watched") > 0
    })
    .await;
    client
        .stream
        .notification("notifications/resources/updated")
        .await;
    assert_eq!(
        client
            .ask("resources/unsubscribe", json!({"uri": "mock://watched"}))
            .await["result"],
        json!({})
    );
    client
        .ask("tools/call", json!({"name": "a__change", "arguments": {}}))
        .await;
    client
        .stream
        .notification("notifications/tools/list_changed")
        .await;
    assert_call_is_cancelled(&client, &mock).await;
    let batch =
        r#"[{"jsonrpc":"2.0","id":8,"method":"ping"},{"jsonrpc":"2.0","id":9,"method":"nope"}]"#;
    assert_eq!(client.post(batch).await, 202);
    let answers = client.stream.message().await.unwrap();
    assert_eq!(answers[0]["result"], json!({}), "{answers}");
    assert_eq!(answers[1]["error"]["code"], -32601, "{answers}");
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn the_session_ends_with_its_stream() {
    let (mock, gateway) = rig(legacy(), Setup::new()).await;
    let client = SseClient::open(&gateway, "/sse", json!({})).await;
    assert_eq!(
        client
            .post(&body_of(
                7,
                "tools/call",
                json!({"name": "a__hang", "arguments": {}})
            ))
            .await,
        202
    );
    holds("the server has the call", || {
        mock.counters().of("tools/call") == 1
    })
    .await;
    let SseClient {
        stream, to, http, ..
    } = client;
    drop(stream);
    holds("its calls are cancelled", || {
        mock.counters().cancelled.len() == 1
    })
    .await;
    holds("it is gone", || {
        gateway.app.metrics.clients.sessions.get() == 0
            && gateway.app.metrics.clients.streams.get() == 0
    })
    .await;
    assert_eq!(
        http.send("POST", &to, &[JSON], body_of(1, "ping", json!({})))
            .await
            .status,
        404
    );
}

/// A gateway that takes two keys, and the keys.
async fn rig_with_keys() -> (MockHandle, Gateway, [String; 2]) {
    let setup = Setup::new()
        .with("auth.keys.1", "name = \"one\"\nkey = \"${file:one}\"")
        .with("auth.keys.2", "name = \"two\"\nkey = \"${file:two}\"");
    let keys = ["1".repeat(32), "2".repeat(32)];
    std::fs::write(setup.path("one"), &keys[0]).unwrap();
    std::fs::write(setup.path("two"), &keys[1]).unwrap();
    let (mock, gateway) = rig(legacy(), setup).await;
    (mock, gateway, keys)
}

fn initialize() -> String {
    body_of(
        0,
        "initialize",
        json!({"protocolVersion": "2024-11-05", "capabilities": {}}),
    )
}

#[tokio::test]
async fn only_its_own_principal_on_its_own_endpoint_may_post() {
    let (_mock, gateway, [one, two]) = rig_with_keys().await;
    assert_eq!(
        HttpClient::new().get(&gateway.url("/sse")).await.status,
        401
    );
    let mut owner = SseClient::connect(&gateway, "/sse", Some(&one)).await;
    let mine = format!("Bearer {one}");
    let other = format!("Bearer {two}");
    let post = async |url: &str, key: Option<&str>| owner.post_to(url, key, &initialize()).await;
    assert_eq!(post(&owner.to, None).await, 401);
    assert_eq!(
        post(&owner.to, Some(&other)).await,
        404,
        "it looks as if there were none"
    );
    assert_eq!(
        post(&owner.to.replace("/sse?", "/sse/a?"), Some(&mine)).await,
        404,
        "a session belongs to its endpoint"
    );
    assert_eq!(
        post(&owner.to.replace("sessionId=", "sessionId=x"), Some(&mine)).await,
        404
    );
    assert_eq!(
        post(&gateway.url("/sse"), Some(&mine)).await,
        405,
        "a client of Streamable HTTP is told to begin with a GET"
    );
    assert_no_session_of_the_other_transport(&gateway, &owner, &mine).await;
    assert_opens_with_initialize(&mut owner, &mine).await;
}

/// Checks that the session is none of Streamable HTTP, or the other way round.
async fn assert_no_session_of_the_other_transport(
    gateway: &Gateway,
    owner: &SseClient,
    mine: &str,
) {
    let id = owner.to.split('=').nth(1).unwrap().to_owned();
    let ping = body_of(1, "ping", json!({}));
    let headers = [
        JSON,
        ("authorization", mine),
        ("mcp-session-id", id.as_str()),
    ];
    assert_eq!(
        owner
            .http
            .send("POST", &gateway.url("/mcp"), &headers, ping)
            .await
            .status,
        404
    );
    let opened = owner
        .http
        .send(
            "POST",
            &gateway.url("/mcp"),
            &[JSON, ("authorization", mine)],
            initialize(),
        )
        .await;
    let id = opened.header("mcp-session-id").to_owned();
    let url = gateway.url(&format!("/sse?sessionId={id}"));
    assert_eq!(owner.post_to(&url, Some(mine), &initialize()).await, 404);
}

/// Checks that before `initialize` there is nothing to be had, and that a body of the wrong type,
/// or without a message, is refused.
async fn assert_opens_with_initialize(owner: &mut SseClient, mine: &str) {
    assert_eq!(
        owner.ask("tools/list", json!({})).await["error"]["code"],
        -32600
    );
    assert_eq!(owner.post("{").await, 400);
    let plain = [("content-type", "text/plain"), ("authorization", mine)];
    let ping = body_of(1, "ping", json!({}));
    assert_eq!(
        owner
            .http
            .send("POST", &owner.to, &plain, ping)
            .await
            .status,
        400
    );
    assert_eq!(owner.post(&initialize()).await, 202);
    assert_eq!(
        owner.stream.message().await.unwrap()["result"]["protocolVersion"],
        "2024-11-05"
    );
    assert!(owner.ask("tools/list", json!({})).await["result"]["tools"].is_array());
}

#[tokio::test]
async fn streams_have_a_limit() {
    let (_mock, gateway) = rig(legacy(), Setup::new().with("limits", "streams = 2")).await;
    let _held = [
        SseClient::open(&gateway, "/sse", json!({})).await,
        SseClient::open(&gateway, "/sse", json!({})).await,
    ];
    let refused = HttpClient::new().get(&gateway.url("/sse")).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.error()["code"], -32603);
    assert_eq!(
        gateway
            .metric("moongate_refused_total{limit=\"streams\"}")
            .await,
        Some(1.0)
    );
}

#[tokio::test]
async fn a_call_may_finish_while_the_gateway_drains() {
    let (mock, gateway) = rig(legacy(), Setup::new().with("gateway", "drain = \"10s\"")).await;
    let mut client = SseClient::open(&gateway, "/sse", json!({})).await;
    let mut idle = SseClient::open(&gateway, "/sse", json!({})).await;
    assert_eq!(
        client
            .post(&body_of(
                7,
                "tools/call",
                json!({"name": "a__sleep", "arguments": {"ms": 500}})
            ))
            .await,
        202
    );
    holds("the server has the call", || {
        mock.counters().of("tools/call") == 1
    })
    .await;
    let stopping = tokio::spawn(gateway.app.stop());
    assert!(
        idle.stream.message().await.is_none(),
        "nothing is waited for"
    );
    assert_eq!(
        client.stream.message().await.unwrap()["result"]["content"][0]["text"],
        "slept 500 ms"
    );
    assert!(client.stream.message().await.is_none());
    stopping.await.unwrap();
}
