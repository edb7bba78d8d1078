//! Limits: what is over one is refused at once, says which one it was and when to come again, and
//! costs nobody else.

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{ERAS, Era, HttpReply, McpClient, Setup, holds, legacy, modern, serve, until};

pub(super) fn keys(setup: Setup) -> Setup {
    setup
        .with("auth.keys.0", "name = \"one\"\nkey = \"mg_one_0123456789\"")
        .with("auth.keys.1", "name = \"two\"\nkey = \"mg_two_0123456789\"")
}

/// A refusal as it must be: the status, when to come again, and a JSON-RPC error that names the
/// setting.
fn refused(reply: &HttpReply, status: u16, id: &Value, setting: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert!(
        reply
            .header("retry-after")
            .parse::<u64>()
            .is_ok_and(|seconds| seconds > 0),
        "{reply:?}"
    );
    assert_eq!(&reply.answer()["id"], id, "{reply:?}");
    let message = reply.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains(setting), "{message}");
}

#[tokio::test]
async fn each_key_has_its_own_rate_limit() {
    let setup = keys(Setup::new())
        .with("limits", "rate = \"5/h\"")
        .with("auth.keys.1", "rate = \"0\"");
    let gateway = setup.start().await;
    let one =
        McpClient::with_key(&gateway.url("/mcp"), Era::Modern, Some("mg_one_0123456789")).await;
    let two =
        McpClient::with_key(&gateway.url("/mcp"), Era::Modern, Some("mg_two_0123456789")).await;
    let first =
        McpClient::with_key(&gateway.url("/mcp"), Era::Legacy, Some("mg_one_0123456789")).await;
    // The handshake was one request of five; notifications are none.
    for _ in 0..4 {
        assert_eq!(one.request("tools/list", json!({})).await.status, 200);
    }
    for client in [&one, &first] {
        let reply = client.request_as("late", "tools/list", json!({})).await;
        refused(&reply, 429, &json!("late"), "limits.rate");
        assert!(reply.header("retry-after").parse::<u64>().unwrap() <= 3600 / 5);
    }
    for _ in 0..20 {
        assert_eq!(two.request("tools/list", json!({})).await.status, 200);
    }
    assert_eq!(
        gateway
            .metric("moongate_refused_total{limit=\"rate\"}")
            .await,
        Some(2.0)
    );
}

#[tokio::test]
async fn concurrent_calls_are_bounded_for_each_key_and_in_total() {
    for (limits, status, setting) in [
        ("calls_per_key = 2\ncalls = 3", 429, "limits.calls_per_key"),
        ("calls_per_key = 9\ncalls = 2", 503, "limits.calls"),
    ] {
        for era in ERAS {
            let mock = serve(modern()).await;
            let gateway = keys(Setup::new())
                .http("a", &mock.url)
                .with("limits", limits)
                .start()
                .await;
            gateway.ready(&["a"]).await;
            let one =
                McpClient::with_key(&gateway.url("/mcp"), era, Some("mg_one_0123456789")).await;
            let two =
                McpClient::with_key(&gateway.url("/mcp"), era, Some("mg_two_0123456789")).await;
            let hung: Vec<_> = (0..2)
                .map(|n| {
                    let one = one.clone();
                    tokio::spawn(async move {
                        one.start(n, "tools/call", json!({"name": "a__hang", "arguments": {}}))
                            .await
                    })
                })
                .collect();
            until("both hang", || async {
                gateway
                    .metric("moongate_inflight")
                    .await
                    .filter(|n| *n == 2.0)
            })
            .await;
            let add = json!({"name": "a__add", "arguments": {"a": 1, "b": 1}});
            refused(
                &one.request_as(7, "tools/call", add.clone()).await,
                status,
                &json!(7),
                setting,
            );
            let reply = two.request_as(8, "tools/call", add.clone()).await;
            if status == 429 {
                assert_eq!(reply.text(), "2", "another key has its own");
            } else {
                refused(&reply, status, &json!(8), setting);
            }
            for call in hung {
                call.abort();
            }
            if era == Era::Modern {
                // These are cancelled with their connections, and make room.
                until("there is room", || async {
                    gateway
                        .metric("moongate_inflight")
                        .await
                        .filter(|n| *n == 0.0)
                })
                .await;
                assert_eq!(one.request_as(9, "tools/call", add).await.text(), "2");
            }
        }
    }
}

#[tokio::test]
async fn streams_and_sessions_over_their_number_are_refused() {
    let mock = serve(legacy()).await;
    let setup = Setup::new()
        .http("a", &mock.url)
        .with("limits", "streams = 2\nsessions = 3");
    let gateway = setup.start().await;
    gateway.ready(&["a"]).await;
    let legacy = gateway.client(Era::Legacy).await;
    let modern = gateway.client(Era::Modern).await;
    let first = legacy.listen().await;
    let second = modern.listen().await;
    let all = json!({"notifications": {"toolsListChanged": true}});
    refused(
        &modern.request_as("s", "subscriptions/listen", all).await,
        503,
        &json!("s"),
        "limits.streams",
    );
    let other = gateway.client(Era::Legacy).await;
    let body = other.raw("GET", &[], "").await;
    assert_eq!(body.status().as_u16(), 503);
    assert_eq!(body.headers()["retry-after"].to_str().unwrap(), "1");
    // Calls go on without streams.
    assert_eq!(
        other.call("a__add", json!({"a": 1, "b": 2})).await.text(),
        "3"
    );
    drop((first, second));
    until("the streams are over", || async {
        gateway
            .metric("moongate_streams")
            .await
            .filter(|n| *n == 0.0)
    })
    .await;
    drop(other.listen().await);
}

#[tokio::test]
async fn abandoned_sessions_are_evicted_and_expire() {
    let gateway = Setup::new()
        .with("limits", "sessions = 50\nsession_idle = \"2s\"")
        .start()
        .await;
    let mut last = gateway.client(Era::Legacy).await;
    let kept = last.clone();
    let stream = kept.listen().await;
    for _ in 0..200 {
        last.initialize().await;
        assert!(gateway.app.metrics.clients.sessions.get() <= 50);
    }
    assert_eq!(last.request("ping", json!({})).await.status, 200);
    assert_eq!(
        kept.request("ping", json!({})).await.status,
        200,
        "one with an open stream is in use"
    );
    drop(stream);
    holds("all of them end", || {
        gateway.app.metrics.clients.sessions.get() == 0
    })
    .await;
    assert_eq!(last.request_as(1, "ping", json!({})).await.status, 404);
}

#[tokio::test]
async fn subscriptions_are_bounded_for_a_server_over_all_clients() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("servers.a", "max_subscriptions = 1")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let one = gateway.client(Era::Legacy).await;
    let uris: Vec<String> = one.request("resources/list", json!({})).await.result()["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| resource["uri"].as_str().unwrap().to_owned())
        .collect();
    let [first, second, ..] = &uris[..] else {
        panic!("{uris:?}")
    };
    one.request("resources/subscribe", json!({"uri": first}))
        .await
        .result();
    let two = gateway.client(Era::Legacy).await;
    let error = two
        .request("resources/subscribe", json!({"uri": second}))
        .await
        .error();
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("servers.a.max_subscriptions"),
        "{error}"
    );
    // The same resource costs the server nothing more.
    two.request("resources/subscribe", json!({"uri": first}))
        .await
        .result();
    let stream = gateway.client(Era::Modern).await;
    let asked = json!({"notifications": {"resourceSubscriptions": [first, second]}});
    let mut stream =
        crate::harness::EventStream::new(stream.start("l", "subscriptions/listen", asked).await);
    let agreed = stream
        .notification("notifications/subscriptions/acknowledged")
        .await;
    assert_eq!(
        agreed["params"]["notifications"]["resourceSubscriptions"],
        json!([first]),
        "{agreed}"
    );
    drop(stream);
    for client in [&one, &two] {
        client
            .request("resources/unsubscribe", json!({"uri": first}))
            .await
            .result();
    }
    until("there is room again", || async {
        two.request("resources/subscribe", json!({"uri": second}))
            .await
            .answer()["result"]
            .is_object()
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn lists_are_cut_and_too_deep_definitions_left_out() {
    let mut script = modern();
    script.generate =
        vec![serde_json::from_value(json!({"count": 30, "name": "many_{n}"})).unwrap()];
    script.generate.push(
        serde_json::from_value(json!({"count": 1, "name": "deep_{n}", "depth": 200})).unwrap(),
    );
    let mock = serve(script.clone()).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let tools = gateway.client(Era::Modern).await.tools().await;
    assert!(
        tools.contains(&"a__many_29".to_owned()) && !tools.contains(&"a__deep_0".to_owned()),
        "{tools:?}"
    );
    let reported = gateway.status("a").await["left_out"].to_string();
    assert!(
        reported.contains("deep_0") && reported.contains("servers.a.max_depth"),
        "{reported}"
    );
    script.generate.truncate(1);
    let mock = serve(script).await;
    for (limit, most) in [("max_items = 10", 10), ("max_list = \"2KiB\"", 25)] {
        let gateway = Setup::new()
            .http("a", &mock.url)
            .with("servers.a", limit)
            .start()
            .await;
        gateway.ready(&["a"]).await;
        let count = gateway.client(Era::Modern).await.tools().await.len();
        assert!((1..=most).contains(&count), "{limit}: {count}");
    }
}

/// Above nine tenths of the memory that it may use, nothing new is taken; what runs goes on, and so
/// does the process.
#[tokio::test]
async fn requests_are_shed_over_the_memory_limit() {
    // Everything is above nine tenths of so little.
    let gateway = Setup::new()
        .with("limits", "memory = \"1MiB\"")
        .spawn()
        .await;
    let http = crate::harness::HttpClient::new();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    until("memory is short", || async {
        let reply = http
            .send("POST", &gateway.mcp(), &headers, body.clone())
            .await;
        (reply.status == 503).then(|| refused(&reply, 503, &json!(1), "limits.memory"))
    })
    .await;
    // What is large is not even read, so that its id is not known; what ends something is taken.
    let address = gateway.base.strip_prefix("http://").unwrap();
    let mut large = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: \
         application/json\r\nContent-Length: 100000\r\n\r\n"
    );
    large.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains("limits.memory") {
        let read =
            crate::harness::within("an answer to the head alone", large.read_buf(&mut answer))
                .await
                .unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: "),
        "{answer}"
    );
    let answer =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
            .to_string();
    assert_eq!(
        http.send("POST", &gateway.mcp(), &headers, answer)
            .await
            .status,
        202,
        "it is read, though no session is named"
    );
    // What says how it is goes on.
    assert_eq!(
        http.get(&format!("{}/healthz", gateway.base)).await.status,
        200
    );
}

/// A client that does not read its stream holds up nobody, and what waits for it is bounded.
#[tokio::test]
async fn a_stalled_reader_delays_no_other_client() {
    let mut script = legacy();
    let steps = vec![json!({"log": ["error", "x".repeat(20_000)]}); 400];
    let result = json!({"content": [{"type": "text", "text": "said"}]});
    let flow = serde_json::from_value(json!({"steps": steps, "result": result})).unwrap();
    script.flows.insert("loud".to_owned(), flow);
    script
        .tools
        .push(json!({"name": "loud", "inputSchema": {"type": "object"}}));
    let mock = serve(script).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let stuck = gateway.client(Era::Legacy).await;
    let response = stuck
        .start(1, "tools/call", json!({"name": "a__loud", "arguments": {}}))
        .await;
    for era in ERAS {
        let other = gateway.client(era).await;
        for n in 0..20 {
            assert_eq!(
                other.call("a__add", json!({"a": n, "b": 1})).await.text(),
                (n + 1).to_string()
            );
        }
    }
    // Who reads after all gets the end.
    let body = crate::harness::within("the rest", response.into_body().collect())
        .await
        .unwrap()
        .to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("said"));
}
