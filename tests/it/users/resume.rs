//! Clients that lose the connection of a stream and come back for the rest.

use moongate_mock::MockHandle;
use serde_json::{Value, json};

use crate::harness::{Era, EventStream, Gateway, McpClient, Setup, holds, legacy, serve, until};

async fn rig(limits: &str) -> (MockHandle, Gateway) {
    let mock = serve(legacy()).await;
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("limits", limits)
        .start()
        .await;
    gateway.ready(&["a"]).await;
    (mock, gateway)
}

fn field<'a>(event: &'a str, name: &str) -> Option<&'a str> {
    event
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// A call whose stream begins at once and goes on for a while.
async fn steps(client: &McpClient, count: u64, ms: u64) -> EventStream {
    let arguments = json!({"steps": count, "ms": ms});
    let params =
        json!({"name": "a__progress", "arguments": arguments, "_meta": {"progressToken": "t"}});
    EventStream::new(client.start(7, "tools/call", params).await)
}

async fn come_back(client: &McpClient, last: &str) -> EventStream {
    let response = client
        .raw("GET", &[("last-event-id", last.to_owned())], "")
        .await;
    assert_eq!(response.status(), 200);
    EventStream::new(response)
}

/// Every event until the end of the stream: ids and messages.
async fn rest(stream: &mut EventStream) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    while let Some(event) = stream.next().await {
        if let (Some(id), Some(data)) = (
            field(&event, "id"),
            field(&event, "data").filter(|d| !d.is_empty()),
        ) {
            all.push((id.to_owned(), serde_json::from_str(data).unwrap()));
        }
    }
    all
}

fn answers(all: &[(String, Value)]) -> usize {
    all.iter()
        .filter(|(_, message)| message["id"] == 7 && message["method"].is_null())
        .count()
}

#[tokio::test]
async fn a_response_waits_for_its_client_to_resume() {
    let (mock, gateway) = rig("").await;
    let client = gateway.client(Era::Legacy).await;
    for taken in 1..4 {
        mock.reset_record();
        let mut stream = steps(&client, 3, 30).await;
        // First an id without data, so that the client can come back whatever happens.
        let first = stream.next().await.unwrap();
        assert_eq!(field(&first, "data"), Some(""), "{first}");
        assert_eq!(field(&first, "retry"), Some("1000"), "{first}");
        let mut last = field(&first, "id").unwrap().to_owned();
        let mut heard = Vec::new();
        while heard.len() < taken {
            let event = stream.next().await.unwrap();
            last = field(&event, "id").unwrap().to_owned();
            heard.push(serde_json::from_str::<Value>(field(&event, "data").unwrap()).unwrap());
        }
        drop(stream);
        let more = rest(&mut come_back(&client, &last).await).await;
        let steps: Vec<&Value> = heard
            .iter()
            .chain(more.iter().map(|(_, m)| m))
            .map(|m| &m["params"]["progress"])
            .collect();
        assert_eq!(
            steps[..3],
            [&json!(1), &json!(2), &json!(3)],
            "after {taken}: {heard:?} {more:?}"
        );
        assert_eq!(steps.len(), 4, "after {taken}: each once: {more:?}");
        assert_eq!(answers(&more), 1, "after {taken}: each once: {more:?}");
        assert_eq!(mock.counters().of("tools/call"), 1);
        assert!(
            mock.counters().cancelled.is_empty(),
            "a client that lost its connection takes nothing back"
        );
        // Whoever lost it on the way back comes once more, and has it all again.
        assert_eq!(rest(&mut come_back(&client, &last).await).await, more);
        let end = more.last().unwrap().0.clone();
        assert_eq!(
            rest(&mut come_back(&client, &end).await).await,
            [],
            "nothing follows the end"
        );
    }
    assert_eq!(
        gateway
            .metric("moongate_resumed_total{outcome=\"resumed\"}")
            .await,
        Some(9.0)
    );
}

#[tokio::test]
async fn an_elicitation_waits_for_its_client_to_resume() {
    let (_mock, gateway) = rig("").await;
    let mut client = gateway.client(Era::Legacy).await;
    client.initialize_with(json!({"elicitation": {}})).await;
    let params = json!({"name": "a__elicit", "arguments": {}});
    let mut stream = EventStream::new(client.start(7, "tools/call", params).await);
    let first = stream.next().await.unwrap();
    drop(stream);
    let mut stream = come_back(&client, field(&first, "id").unwrap()).await;
    let ask = stream.notification("elicitation/create").await;
    let accept = json!({"jsonrpc": "2.0", "id": ask["id"],
        "result": {"action": "accept", "content": {"name": "Ada"}}});
    assert_eq!(client.post(accept.to_string()).await.status, 202);
    let answer = stream.message().await.unwrap();
    assert!(
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("Ada"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_stream_is_on_one_connection() {
    let (_mock, gateway) = rig("").await;
    let client = gateway.client(Era::Legacy).await;
    let mut first = steps(&client, 40, 20).await;
    let id = field(&first.next().await.unwrap(), "id")
        .unwrap()
        .to_owned();
    let mut second = come_back(&client, &id).await;
    let before = rest(&mut first).await;
    assert_eq!(answers(&before), 0, "the first connection ended");
    let all = rest(&mut second).await;
    assert_eq!(all.len(), 41);
    assert_eq!(answers(&all), 1);
}

#[tokio::test]
async fn a_client_disconnected_by_the_gateway_resumes() {
    let (_mock, gateway) = rig("stream_time = \"150ms\"").await;
    let client = gateway.client(Era::Legacy).await;
    let call = json!({"name": "a__sleep", "arguments": {"ms": 400}});
    let mut stream = EventStream::new(client.start(7, "tools/call", call).await);
    let first = stream.next().await.unwrap();
    assert_eq!(field(&first, "data"), Some(""));
    assert_eq!(field(&first, "retry"), Some("1000"));
    let mut all = rest(&mut stream).await;
    assert_eq!(all, [], "it ends before the answer");
    let last = field(&first, "id").unwrap().to_owned();
    while all.is_empty() {
        all = rest(&mut come_back(&client, &last).await).await;
    }
    assert!(answers(&all) == 1 && all.len() == 1, "{all:?}");
    // The session's own stream likewise, and what happens meanwhile is not missed.
    let mut own = client.listen().await;
    let first = own.next().await.unwrap();
    assert_eq!(field(&first, "data"), Some(""));
    assert_eq!(field(&first, "id"), Some("0-0"));
    assert_eq!(rest(&mut own).await, []);
    client.call("a__change", json!({})).await;
    let listed = || async {
        client
            .tools()
            .await
            .iter()
            .any(|name| name == "a__changed_1")
            .then_some(())
    };
    until("the change is in the catalogue", listed).await;
    let mut own = come_back(&client, "0-0").await;
    assert_eq!(
        own.notification("notifications/tools/list_changed").await["method"],
        "notifications/tools/list_changed"
    );
    // Who cannot know how to come back is not let go.
    let old = gateway.client_at("2025-06-18").await;
    let call = json!({"name": "a__sleep", "arguments": {"ms": 400}});
    assert_eq!(
        old.request_as(7, "tools/call", call).await.text(),
        "slept 400 ms"
    );
}

#[tokio::test]
async fn an_evicted_response_is_reported_as_lost() {
    let (_mock, gateway) = rig("replay = 2000").await;
    let client = gateway.client(Era::Legacy).await;
    let mut stream = steps(&client, 20, 20).await;
    let id = field(&stream.next().await.unwrap(), "id")
        .unwrap()
        .to_owned();
    drop(stream);
    // Other calls of the session take the room.
    let mut others = steps(&client, 60, 1).await;
    assert_eq!(answers(&rest(&mut others).await), 1);
    holds("the call is over", || {
        gateway.app.metrics.calls.inflight.get() == 0
    })
    .await;
    for _ in 0..2 {
        assert_eq!(answers(&rest(&mut steps(&client, 60, 1).await).await), 1);
    }
    let mut stream = come_back(&client, &id).await;
    let answer = stream.message().await.unwrap();
    assert_eq!(answer["id"], 7);
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("limits.replay"),
        "{answer}"
    );
    assert!(stream.message().await.is_none());
    assert!(gateway.metric("moongate_replay_bytes").await.unwrap() <= 2000.0);
    assert!(
        gateway
            .metric("moongate_replay_dropped_total")
            .await
            .unwrap()
            > 0.0
    );
}

#[tokio::test]
async fn a_response_expires_after_its_retention_time() {
    let (_mock, gateway) = rig("replay_time = \"200ms\"").await;
    let client = gateway.client(Era::Legacy).await;
    let mut stream = steps(&client, 2, 1).await;
    let id = field(&stream.next().await.unwrap(), "id")
        .unwrap()
        .to_owned();
    drop(stream);
    until("it is forgotten", || async {
        let answer = client
            .raw("GET", &[("last-event-id", id.clone())], "")
            .await;
        (answer.status() == 400).then_some(())
    })
    .await;
    assert_eq!(gateway.metric("moongate_replay_bytes").await, Some(0.0));
    assert_eq!(
        client.call("a__echo", json!({})).await.text(),
        "{}",
        "the session is as it was"
    );
}

#[tokio::test]
async fn only_its_own_principal_can_resume_a_stream() {
    let (_mock, gateway) = rig("").await;
    let owner = gateway.client(Era::Legacy).await;
    let other = gateway.client(Era::Legacy).await;
    let mut stream = steps(&owner, 2, 1).await;
    let id = field(&stream.next().await.unwrap(), "id")
        .unwrap()
        .to_owned();
    rest(&mut stream).await;
    // An id means something within its session only.
    for (client, last) in [
        (&other, id.as_str()),
        (&owner, "99-0"),
        (&owner, "0-5"),
        (&owner, "x"),
        (&owner, "1"),
        (&owner, ""),
    ] {
        let answer = client
            .raw("GET", &[("last-event-id", last.to_owned())], "")
            .await;
        assert_eq!(answer.status(), 400, "{last:?}");
    }
    assert_eq!(answers(&rest(&mut come_back(&owner, &id).await).await), 1);
}
