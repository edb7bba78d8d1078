//! Roots of clients: who gives them to which server, and what follows a change.

use moongate_mock::{MockScript, Revision};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::{Era, EventStream, Gateway, McpClient, Setup, legacy, only, serve, until};

/// A server that takes its directories from roots, and from its arguments for a client without any.
fn files() -> MockScript {
    MockScript {
        follow_roots: true,
        ..only(legacy(), &["directories", "roots", "counter"])
    }
}

/// A client with roots, which answers on its GET stream whatever it is asked there.
struct RootsClient {
    client: McpClient,
    answering: JoinHandle<()>,
}

impl Drop for RootsClient {
    fn drop(&mut self) {
        self.answering.abort();
    }
}

fn roots_of(name: &str) -> Value {
    json!({"roots": [{"uri": format!("file:///{name}")}]})
}

/// Answers the questions on a stream, with the name that stands there by then.
async fn answer_all(
    client: McpClient,
    mut stream: EventStream,
    name: std::sync::Arc<std::sync::Mutex<String>>,
) {
    while let Some(message) = stream.message().await {
        if message["method"] == "roots/list" {
            let answer = json!({"jsonrpc": "2.0", "id": message["id"],
                "result": roots_of(&name.lock().unwrap())});
            client.post(answer.to_string()).await;
        }
    }
}

type Name = std::sync::Arc<std::sync::Mutex<String>>;

async fn with_roots(gateway: &Gateway, name: &str) -> (RootsClient, Name) {
    let mut client = gateway.client(Era::Legacy).await;
    client
        .initialize_with(json!({"roots": {"listChanged": true}}))
        .await;
    let name = std::sync::Arc::new(std::sync::Mutex::new(name.to_owned()));
    let stream = client.listen().await;
    let answering = tokio::spawn(answer_all(client.clone(), stream, name.clone()));
    (RootsClient { client, answering }, name)
}

/// Calls a tool. Its own stream is read and answered, too.
async fn call(client: &RootsClient, tool: &str, name: &Name) -> String {
    let params = json!({"name": format!("a__{tool}"), "arguments": {}});
    let mut stream = EventStream::of(client.client.start(7, "tools/call", params).await);
    loop {
        let message = crate::harness::within("the call goes on", stream.message())
            .await
            .expect("a response");
        if message["method"] == "roots/list" {
            let answer = json!({"jsonrpc": "2.0", "id": message["id"],
                "result": roots_of(&name.lock().unwrap())});
            client.client.post(answer.to_string()).await;
        } else if message["id"] == 7 {
            return message["result"]["content"][0]["text"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
        }
    }
}

async fn without_roots(gateway: &Gateway) -> McpClient {
    let mut client = gateway.client(Era::Legacy).await;
    client.initialize_with(json!({})).await;
    client
}

/// The first client, another one, and one without roots, at a server that takes roots when it is
/// ready.
async fn each_has_its_own(gateway: &Gateway, about: &str) {
    let (one, name) = with_roots(gateway, "one").await;
    let (other, other_name) = with_roots(gateway, "other").await;
    let none = without_roots(gateway).await;
    assert!(
        call(&one, "directories", &name)
            .await
            .contains("file:///one"),
        "{about}: its first call"
    );
    assert!(
        call(&other, "directories", &other_name)
            .await
            .contains("file:///other"),
        "{about}: its first call"
    );
    assert_eq!(
        none.call("a__directories", json!({})).await.text(),
        "those of the arguments",
        "{about}"
    );
    *name.lock().unwrap() = "changed".to_owned();
    assert_eq!(one.client.post(changed()).await.status, 202);
    until(&format!("{about}: the change is followed"), || async {
        call(&one, "directories", &name)
            .await
            .contains("file:///changed")
            .then_some(())
    })
    .await;
    assert!(
        call(&other, "directories", &other_name)
            .await
            .contains("file:///other"),
        "{about}: another's change"
    );
    assert_eq!(
        none.call("a__directories", json!({})).await.text(),
        "those of the arguments",
        "{about}"
    );
}

fn changed() -> String {
    json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}).to_string()
}

#[tokio::test]
async fn a_server_that_looks_before_it_asks_gets_the_roots_of_each_session() {
    let both = files().speaking(&Revision::ALL);
    let mock = serve(files()).await;
    let both_http = serve(both.clone()).await;
    for share in ["auto", "session"] {
        for (about, setup) in [
            ("stdio", Setup::new().stdio("a", &files())),
            ("http", Setup::new().http("a", &mock.url)),
            ("stdio, both eras", Setup::new().stdio("a", &both)),
            ("http, both eras", Setup::new().http("a", &both_http.url)),
        ] {
            let gateway = setup
                .with("servers.a", &format!("share = {share:?}"))
                .start()
                .await;
            gateway.ready(&["a"]).await;
            each_has_its_own(&gateway, &format!("{about}, {share}")).await;
            // A client without roots may have had the connection replaced.
            let reason = gateway.state("a", "ready").await.to_string();
            assert!(
                reason.contains("it asks for its clients' roots"),
                "{about}, {share}: {reason}"
            );
            gateway.app.stop().await;
        }
    }
}

#[tokio::test]
async fn a_server_that_asks_for_roots_in_calls_gets_them_of_one_client_at_a_time() {
    let script = only(legacy(), &["roots", "counter"]);
    let mock = serve(script.clone()).await;
    for setup in [
        Setup::new().stdio("a", &script),
        Setup::new().http("a", &mock.url),
    ] {
        let gateway = setup.start().await;
        gateway.ready(&["a"]).await;
        let (one, name) = with_roots(&gateway, "one").await;
        let (other, other_name) = with_roots(&gateway, "other").await;
        for _ in 0..2 {
            assert!(call(&one, "roots", &name).await.contains("file:///one"));
            assert!(
                call(&other, "roots", &other_name)
                    .await
                    .contains("file:///other")
            );
        }
        // Where the first one's roots are, no other client calls: a server may keep what it got.
        let none = without_roots(&gateway).await;
        let counts = [
            call(&one, "counter", &name).await,
            none.call("a__counter", json!({})).await.text(),
        ];
        assert_eq!(counts, ["1", "1"]);
        gateway.app.stop().await;
    }
}

#[tokio::test]
async fn a_client_without_roots_calls_where_none_are_declared() {
    for start in ["eager", "lazy"] {
        let mock = serve(files()).await;
        let setup = Setup::new()
            .http("a", &mock.url)
            .with("servers.a", &format!("start = {start:?}"));
        let gateway = setup.start().await;
        // The first call of a lazy server is at once, when the server may not have asked yet.
        let none = without_roots(&gateway).await;
        until("the server is listed", || async {
            let listed = none.request("tools/list", json!({})).await.result();
            listed.to_string().contains("a__directories").then_some(())
        })
        .await;
        if start == "eager" {
            until("the server has asked", || async {
                gateway
                    .status("a")
                    .await
                    .to_string()
                    .contains("it asks for its clients' roots")
                    .then_some(())
            })
            .await;
        }
        assert_eq!(
            none.call("a__directories", json!({})).await.text(),
            "those of the arguments"
        );
        let requests = mock.recorded_requests();
        let called = requests
            .iter()
            .position(|request| request.body.contains("\"tools/call\""))
            .unwrap();
        let opened = requests[..called]
            .iter()
            .rev()
            .find(|request| request.body.contains("\"initialize\""))
            .unwrap();
        assert!(
            !opened.body.contains("\"roots\""),
            "{start}: {}",
            opened.body
        );
        // Clients with roots have connections that declare them.
        let (one, name) = with_roots(&gateway, "one").await;
        assert!(
            call(&one, "directories", &name)
                .await
                .contains("file:///one"),
            "{start}"
        );
        gateway.app.stop().await;
    }
}

#[tokio::test]
async fn what_a_server_logs_on_all_its_connections_reaches_a_client_once() {
    let mock = serve(files()).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let mut client = gateway.client(Era::Legacy).await;
    client
        .initialize_with(json!({"roots": {"listChanged": true}}))
        .await;
    let name = std::sync::Arc::new(std::sync::Mutex::new("one".to_owned()));
    let stream = client.listen().await;
    let answering = tokio::spawn(answer_all(client.clone(), stream, name.clone()));
    let one = RootsClient {
        client: client.clone(),
        answering,
    };
    assert!(
        call(&one, "directories", &name)
            .await
            .contains("file:///one")
    );
    one.answering.abort();
    let mut stream = client.listen().await;
    let log = |n: usize| {
        json!({"jsonrpc": "2.0", "method": "notifications/message",
        "params": {"level": "error", "data": n}})
        .to_string()
    };
    until("both connections have their streams", || async {
        (mock.listeners() >= 2).then_some(())
    })
    .await;
    assert!((1..=3).all(|n| mock.send_to_sessions(&log(n)) >= 2));
    let mut seen = Vec::new();
    while seen.last() != Some(&json!(3)) {
        let message = crate::harness::within(
            "a log message",
            stream.notification("notifications/message"),
        )
        .await;
        seen.push(message["params"]["data"].clone());
    }
    // The others have it from the shared connection.
    let more = stream.notification("notifications/message");
    if let Ok(again) = tokio::time::timeout(std::time::Duration::from_millis(300), more).await {
        seen.push(again["params"]["data"].clone());
    }
    assert_eq!(seen, [json!(1), json!(2), json!(3)]);
}

#[tokio::test]
async fn a_server_is_known_to_ask_for_roots_in_its_next_life() {
    let mock = serve(files()).await;
    let setup = Setup::new()
        .lasting()
        .with("gateway", "drain = \"100ms\"")
        .http("a", &mock.url);
    let is_declared = |body: &str| body.contains("\"initialize\"") && body.contains("\"roots\"");
    let declared = || {
        mock.recorded_requests()
            .iter()
            .filter(|request| is_declared(&request.body))
            .count()
    };
    for life in 0..2 {
        let gateway = setup.life().await;
        gateway.ready(&["a"]).await;
        let (one, name) = with_roots(&gateway, "one").await;
        assert!(
            call(&one, "directories", &name)
                .await
                .contains("file:///one")
        );
        // For all clients they are declared once, to find out whether the server asks for them.
        assert_eq!(declared(), if life == 0 { 2 } else { 1 });
        mock.reset_record();
        gateway.app.stop().await;
    }
}

#[tokio::test]
async fn every_request_on_a_sessions_connection_goes_to_its_client() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("servers.a", "share = \"session\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let mut client = gateway.client(Era::Legacy).await;
    client
        .initialize_with(json!({"elicitation": {}, "sampling": {}}))
        .await;
    let mut stream = client.listen().await;
    client.call("a__add", json!({"a": 1, "b": 1})).await;
    // No call is open.
    for method in ["elicitation/create", "sampling/createMessage"] {
        until("the server's stream is open", || async {
            (mock.request_sessions(method, &json!({"n": 1})) > 0).then_some(())
        })
        .await;
        let asked = crate::harness::within("the client is asked", stream.until(method))
            .await
            .value;
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"],
            "result": {"action": "decline", "of": method}});
        assert_eq!(client.post(answer.to_string()).await.status, 202);
        until("the server has the answer", || async {
            mock.recorded_requests()
                .iter()
                .any(|request| request.body.contains(&format!("\"of\":\"{method}\"")))
                .then_some(())
        })
        .await;
    }
}

/// A server whose tools look at what the client declared before they ask. One of them only reads.
fn looking() -> MockScript {
    let mut script = only(legacy(), &["look_first", "peek", "counter"]);
    script.tools[1]["annotations"] = json!({"readOnlyHint": true});
    script
        .behave
        .insert("peek".to_owned(), "look_first".to_owned());
    script
}

#[tokio::test]
async fn a_tool_that_looks_before_it_asks_sees_what_its_client_can_answer() {
    let mock = serve(looking()).await;
    for capability in ["roots", "elicitation", "sampling"] {
        for (about, setup) in [
            ("stdio", Setup::new().stdio("a", &looking())),
            ("http", Setup::new().http("a", &mock.url)),
            (
                "stdio, lazy",
                Setup::new()
                    .stdio("a", &looking())
                    .with("servers.a", "start = \"lazy\""),
            ),
        ] {
            let about = format!("{about}, {capability}");
            let gateway = setup.start().await;
            let argument = json!({"capability": capability});
            let none = without_roots(&gateway).await;
            until("the tools are listed", || async {
                none.request("tools/list", json!({}))
                    .await
                    .result()
                    .to_string()
                    .contains("a__peek")
                    .then_some(())
            })
            .await;
            // A call that only reads is repeated where the server knows what the client can answer.
            assert_eq!(
                none.call("a__peek", argument.clone()).await.text(),
                "nobody was asked",
                "{about}"
            );
            let other = without_roots(&gateway).await;
            let answer = other.call("a__look_first", argument.clone()).await.result();
            assert_eq!(answer["isError"], true, "{about}: {answer}");
            assert!(
                answer["content"][1]["text"]
                    .as_str()
                    .unwrap()
                    .contains("Call it again"),
                "{about}: {answer}"
            );
            // Now the server knows what each client can answer, from its first call on.
            for client in [&other, &without_roots(&gateway).await] {
                assert_eq!(
                    client.call("a__look_first", argument.clone()).await.text(),
                    "nobody was asked",
                    "{about}"
                );
            }
            gateway.app.stop().await;
        }
    }
}

#[tokio::test]
async fn what_one_client_was_asked_for_is_known_of_the_tool() {
    let mock = serve(looking()).await;
    for setup in [
        Setup::new().stdio("a", &looking()),
        Setup::new().http("a", &mock.url),
    ] {
        let gateway = setup.start().await;
        gateway.ready(&["a"]).await;
        let (one, name) = with_roots(&gateway, "one").await;
        assert!(
            call(&one, "look_first", &name)
                .await
                .contains("file:///one")
        );
        let none = without_roots(&gateway).await;
        assert_eq!(
            none.call("a__look_first", json!({})).await.text(),
            "nobody was asked"
        );
        assert!(
            call(&one, "look_first", &name)
                .await
                .contains("file:///one")
        );
        gateway.app.stop().await;
    }
}

#[tokio::test]
async fn what_a_tool_asks_for_is_known_in_the_next_life() {
    let mock = serve(looking()).await;
    for (about, setup) in [
        ("stdio", Setup::new().stdio("a", &looking())),
        ("http", Setup::new().http("a", &mock.url)),
    ] {
        let setup = setup.lasting().with("gateway", "drain = \"100ms\"");
        let argument = json!({"capability": "elicitation"});
        for life in 0..2 {
            let gateway = setup.life().await;
            gateway.ready(&["a"]).await;
            let none = without_roots(&gateway).await;
            if life == 0 {
                let answer = none.call("a__look_first", argument.clone()).await.result();
                assert_eq!(answer["isError"], true, "{about}: {answer}");
            }
            // From then on, the server knows what each client can answer.
            assert_eq!(
                none.call("a__look_first", argument.clone()).await.text(),
                "nobody was asked",
                "{about}, life {life}"
            );
            gateway.app.stop().await;
        }
    }
}
