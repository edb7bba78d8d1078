//! Sessions, of clients and of servers: complaints 1, 6, 11, 23.

use std::time::Duration;

use moongate_mock::{HttpRules, MockHandle, MockScript};
use serde_json::json;

use crate::harness::{
    Era, Gateway, HttpReply, McpClient, Setup, holds, legacy, only, serve, until,
};

/// What a client sees that uses a session on POST, GET and DELETE.
async fn everywhere(client: &McpClient) -> Vec<HttpReply> {
    let body = crate::harness::body_of(1, "tools/list", json!({}));
    let mut replies = Vec::new();
    for (verb, body) in [("POST", body.as_str()), ("GET", ""), ("DELETE", "")] {
        let headers = client.headers();
        let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
        replies.push(
            client
                .http
                .send(verb, &client.url, &headers, body.to_owned())
                .await,
        );
    }
    replies
}

#[tokio::test]
async fn after_a_restart_an_old_session_is_a_404_and_initialize_works() {
    let mock = serve(only(legacy(), &["echo"])).await;
    let first = Setup::new().http("a", &mock.url).start().await;
    let mut client = first.client(Era::Legacy).await;
    assert_eq!(client.request("ping", json!({})).await.status, 200);
    first.app.stop().await;
    let second = Setup::new().http("a", &mock.url).start().await;
    second.ready(&["a"]).await;
    client.url = second.url("/mcp");
    for reply in everywhere(&client).await {
        assert_eq!(reply.status, 404);
        assert!(reply.header("content-type").starts_with("application/json"));
        assert_eq!(reply.error()["code"], -32600);
        assert!(
            reply.error()["message"]
                .as_str()
                .unwrap()
                .contains("initialize")
        );
    }
    client.initialize().await;
    assert_eq!(client.call("a__echo", json!({})).await.text(), "{}");
}

async fn forgetful(status: u16) -> (MockHandle, Gateway, McpClient) {
    let mock = serve(MockScript {
        http: HttpRules {
            lost_session: status,
            ..HttpRules::default()
        },
        ..legacy()
    })
    .await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    holds("the gateway listens", || mock.listeners() > 0).await;
    let client = gateway.client(Era::Legacy).await;
    (mock, gateway, client)
}

#[tokio::test]
async fn a_session_lost_by_404_is_replaced_and_the_call_runs_once() {
    let (mock, _gateway, client) = forgetful(404).await;
    mock.drop_sessions();
    mock.reset_record();
    assert_eq!(client.call("a__counter", json!({})).await.text(), "1");
    assert_eq!(mock.counters().of("initialize"), 1);
}

#[tokio::test]
async fn a_session_lost_by_400_or_by_an_error_over_200_costs_one_call_at_most() {
    for status in [400, 200] {
        let (mock, _gateway, client) = forgetful(status).await;
        mock.drop_sessions();
        mock.reset_record();
        let first = client.call("a__counter", json!({})).await;
        assert_eq!(first.status, 200);
        let ran = mock
            .recorded_requests()
            .iter()
            .filter(|s| s.body.contains("tools/call"))
            .count();
        assert_eq!(ran, 1, "{status}: what may have run is not sent again");
        assert_eq!(
            client.call("a__counter", json!({})).await.text(),
            "1",
            "{status}: the next call succeeds"
        );
        assert_eq!(mock.counters().of("initialize"), 1, "{status}");
    }
}

#[tokio::test]
async fn idempotent_requests_are_retried_after_a_400() {
    let (mock, _gateway, client) = forgetful(400).await;
    mock.drop_sessions();
    let read = client
        .request("resources/read", json!({"uri": "mock://static/text"}))
        .await;
    assert!(read.result()["contents"].is_array());
}

#[tokio::test]
async fn many_calls_at_once_open_one_new_session() {
    for status in [404, 400, 200] {
        let (mock, _gateway, client) = forgetful(status).await;
        mock.drop_sessions();
        mock.reset_record();
        let calls = (0..20).map(|n| {
            let client = client.clone();
            async move { client.call("a__echo", json!({"n": n})).await }
        });
        let replies = futures_util::future::join_all(calls).await;
        assert_eq!(mock.counters().of("initialize"), 1, "{status}");
        if status == 404 {
            for (n, reply) in replies.iter().enumerate() {
                assert_eq!(reply.text(), format!("{{\"n\":{n}}}"));
            }
        }
        assert!(mock.counters().of("tools/call") <= 40, "{status}");
        assert_eq!(
            client.call("a__echo", json!({})).await.text(),
            "{}",
            "{status}"
        );
    }
}

#[tokio::test]
async fn late_errors_of_an_old_session_do_not_end_the_new_one() {
    let (mock, _gateway, client) = forgetful(200).await;
    mock.drop_sessions();
    mock.reset_record();
    // All fail on the same lost session, one after the other.
    for ms in [0, 50, 100, 150] {
        let delay = moongate_mock::FaultAction::Delay { ms };
        mock.add_fault(
            moongate_mock::FaultRule::on("tools/call", delay)
                .after(ms / 50)
                .times(1),
        );
    }
    let calls = (0..4).map(|_| client.call("a__echo", json!({})));
    futures_util::future::join_all(calls).await;
    assert_eq!(mock.counters().of("initialize"), 1);
}

#[tokio::test]
async fn subscriptions_survive_a_lost_session() {
    let (mock, _gateway, client) = forgetful(404).await;
    let mut stream = client.listen().await;
    client
        .request("resources/subscribe", json!({"uri": "mock://watched"}))
        .await
        .result();
    until("subscribed", || async {
        (mock.counters().of("resources/subscribe") == 1).then_some(())
    })
    .await;
    mock.drop_sessions();
    client.call("a__echo", json!({})).await.text();
    until("subscribed again", || async {
        (mock.counters().of("resources/subscribe") == 2).then_some(())
    })
    .await;
    holds("the gateway listens", || mock.listeners() > 0).await;
    until("told", || async {
        (mock.notify_resource("mock://watched") > 0).then_some(())
    })
    .await;
    let updated = stream.notification("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], "mock://watched");
}

fn sessions(gateway: &Gateway) -> i64 {
    gateway.app.metrics.clients.sessions.get()
}

#[tokio::test]
async fn idle_sessions_expire_and_free_everything() {
    let gateway = Setup::new()
        .with("limits", "session_idle = \"3s\"")
        .start()
        .await;
    let clients: Vec<McpClient> =
        futures_util::future::join_all((0..100).map(|_| gateway.client(Era::Legacy))).await;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    holds("they are idle for too long", || sessions(&gateway) == 0).await;
    assert_eq!(
        clients[0].request_as(1, "ping", json!({})).await.status,
        404
    );
    drop(clients);
    // The connections close with their clients; no task was left for a session.
    holds("their tasks end", || tasks() < 50).await;
}

#[tokio::test]
async fn a_session_in_use_is_not_idle() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new()
        .with("limits", "session_idle = \"1s\"")
        .http("a", &mock.url)
        .start()
        .await;
    gateway.ready(&["a"]).await;
    // A stream keeps one session, a long call the other.
    let listening = gateway.client(Era::Legacy).await;
    let calling = gateway.client(Era::Legacy).await;
    let _stream = listening.listen().await;
    let sleep = json!({"name": "a__sleep", "arguments": {"ms": 2500}});
    assert_eq!(
        calling.request_as(1, "tools/call", sleep).await.text(),
        "slept 2500 ms"
    );
    assert_eq!(
        calling.request_as(2, "ping", json!({})).await.status,
        200,
        "it was waiting for its call"
    );
    assert_eq!(
        listening.request_as(2, "ping", json!({})).await.status,
        200,
        "it was listening"
    );
}

#[tokio::test]
async fn delete_ends_a_session_its_stream_and_its_calls() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Legacy).await;
    let mut stream = client.listen().await;
    let caller = client.clone();
    let call = async move {
        caller
            .request_as(1, "tools/call", json!({"name": "a__hang"}))
            .await
            .status
    };
    let call = tokio::spawn(call);
    until("the server has the call", || async {
        (mock.counters().of("tools/call") == 1).then_some(())
    })
    .await;
    assert_eq!(client.raw("DELETE", &[], "").await.status(), 204);
    while stream.next().await.is_some() {}
    holds("the server was told", || {
        !mock.counters().cancelled.is_empty()
    })
    .await;
    crate::harness::within("the call ends", call).await.unwrap();
    assert_eq!(sessions(&gateway), 0);
    assert_eq!(client.request_as(1, "ping", json!({})).await.status, 404);
}

#[tokio::test]
async fn a_full_table_makes_room_among_the_same_keys_sessions_only() {
    let keys = ["key-number-1-0123456789", "key-number-2-0123456789"];
    let gateway = Setup::new()
        .with("limits", "sessions = 3")
        .with(
            "auth.keys.1",
            &format!("name = \"one\"\nkey = {:?}", keys[0]),
        )
        .with(
            "auth.keys.2",
            &format!("name = \"two\"\nkey = {:?}", keys[1]),
        )
        .start()
        .await;
    let open = |n: usize| {
        let url = gateway.url("/mcp");
        async move { McpClient::with_key(&url, Era::Legacy, Some(keys[n])).await }
    };
    let status = async |client: &McpClient| client.request_as(1, "ping", json!({})).await.status;
    let other = open(1).await;
    let first = open(0).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let second = open(0).await;
    let third = open(0).await;
    assert_eq!(sessions(&gateway), 3);
    assert_eq!(
        status(&first).await,
        404,
        "the longest unused one of the same key made room"
    );
    for client in [&other, &second, &third] {
        assert_eq!(status(client).await, 200);
    }
}

#[tokio::test]
async fn a_session_answers_its_own_key_only() {
    let keys = ["key-number-1-0123456789", "key-number-2-0123456789"];
    let gateway = Setup::new()
        .with("views.view", "")
        .with(
            "auth.keys.1",
            &format!("name = \"one\"\nkey = {:?}", keys[0]),
        )
        .with(
            "auth.keys.2",
            &format!("name = \"two\"\nkey = {:?}", keys[1]),
        )
        .start()
        .await;
    let url = gateway.url("/mcp");
    let owner = McpClient::with_key(&url, Era::Legacy, Some(keys[0])).await;
    let mut stream = owner.listen().await;
    let mut thief = McpClient::with_key(&url, Era::Legacy, Some(keys[1])).await;
    thief.session = owner.session.clone();
    let stolen = everywhere(&thief).await;
    thief.session = Some("a-session-that-never-was".to_owned());
    for (stolen, unknown) in stolen.iter().zip(everywhere(&thief).await) {
        assert_eq!(stolen.status, 404);
        assert_eq!(stolen.body, unknown.body);
    }
    // Neither the session nor its stream noticed.
    assert_eq!(owner.request("ping", json!({})).await.status, 200);
    assert!(
        stream.next().await.unwrap().starts_with("id: 0-0"),
        "its stream is its own still"
    );
    // Nor does it work on another endpoint; a slash makes none.
    for (path, status) in [("/mcp/", 200), ("/mcp/view", 404), ("/mcp/view/", 404)] {
        let elsewhere = McpClient {
            url: gateway.url(path),
            ..owner.clone()
        };
        assert_eq!(
            elsewhere.request_as(1, "ping", json!({})).await.status,
            status,
            "{path}"
        );
    }
    assert!(owner.session.unwrap().len() >= 22, "128 bits and more");
}

#[tokio::test]
async fn credentials_come_before_sessions() {
    let gateway = Setup::new()
        .with(
            "auth.keys.1",
            "name = \"one\"\nkey = \"key-number-1-0123456789\"",
        )
        .start()
        .await;
    let owner = McpClient::with_key(
        &gateway.url("/mcp"),
        Era::Legacy,
        Some("key-number-1-0123456789"),
    )
    .await;
    let session = owner.session.as_deref().unwrap();
    for session in [session, "unknown"] {
        let reply = owner
            .http
            .send("POST", &owner.url, &[("mcp-session-id", session)], "{}")
            .await;
        assert_eq!(reply.status, 401);
    }
}
