//! Questions of servers outside of the usual order: taken back, answered late, asked first.

use moongate_mock::{FlowStep, MockScript, ScriptedFlow};
use moongate_testing::messages;
use serde_json::{Value, json};

use crate::fronts::pipe::StdioProcess;
use crate::harness::{
    Era, EventStream, Gateway, McpClient, Setup, holds, legacy, only, serve, within,
};

/// A server whose tool `ask` asks for a name in a flow.
fn asking(details: Value) -> MockScript {
    let mut request = json!({"method": "elicitation/create",
        "params": {"message": "What is your name?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}});
    request
        .as_object_mut()
        .unwrap()
        .extend(details.as_object().unwrap().clone());
    let step: FlowStep = serde_json::from_value(json!({"ask": {"name": request}})).unwrap();
    let result = json!({"content": [{"type": "text", "text": "it went on"}]});
    let mut script = only(legacy(), &["ask", "echo"]);
    script.flows.insert(
        "ask".into(),
        ScriptedFlow {
            state: true,
            steps: vec![step],
            result,
        },
    );
    script
}

async fn session(gateway: &Gateway) -> McpClient {
    let mut client = gateway.client(Era::Legacy).await;
    client.initialize_with(json!({"elicitation": {}})).await;
    client
}

fn call_of_ask() -> Value {
    json!({"name": "a__ask", "arguments": {}})
}

/// The messages of one call, up to its response.
async fn messages_of(stream: &mut EventStream) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        let message = within("the next message", stream.message())
            .await
            .expect("a response");
        let is_last = message["result"].is_object();
        all.push(message);
        if is_last {
            return all;
        }
    }
}

/// Checks that a question was asked and taken back under the same id, before the call went on.
fn assert_taken_back(messages: &[Value], about: &str) {
    let [asked, taken_back, answered] = messages else {
        panic!("{about}: {messages:?}")
    };
    assert_eq!(asked["method"], "elicitation/create", "{about}");
    assert_eq!(taken_back["method"], "notifications/cancelled", "{about}");
    assert_eq!(
        taken_back["params"]["requestId"], asked["id"],
        "{about}: {taken_back}"
    );
    assert_eq!(
        taken_back["params"]["reason"], "no longer needed",
        "{about}"
    );
    assert_eq!(
        answered["result"]["content"][0]["text"], "it went on",
        "{about}"
    );
}

#[tokio::test]
async fn a_question_that_a_server_takes_back_is_taken_back_at_its_client() {
    let script = asking(json!({"withdraw_ms": 100}));
    let mut on_get = script.clone();
    on_get.http.ask_on_get = true;
    // Of two streams, either may be read first.
    on_get
        .flows
        .get_mut("ask")
        .unwrap()
        .steps
        .push(FlowStep::WaitMs(200));
    let http = serve(script.clone()).await;
    let get = serve(on_get).await;
    let tcp = moongate_mock::serve_tcp(script.clone(), crate::harness::loopback(), None)
        .await
        .unwrap();
    for share in ["auto", "session"] {
        for transport in ["stdio", "http", "get", "tcp"] {
            let setup = match transport {
                "http" => Setup::new().http("a", &http.url),
                "get" => Setup::new().http("a", &get.url),
                "tcp" => Setup::new().with(
                    "servers.a",
                    &format!("tcp = {:?}", tcp.url.trim_start_matches("tcp://")),
                ),
                _ => Setup::new().stdio("a", &script),
            };
            let gateway = setup
                .with("servers.a", &format!("share = {share:?}"))
                .start()
                .await;
            gateway.ready(&["a"]).await;
            let client = session(&gateway).await;
            let mut stream = EventStream::of(client.start(7, "tools/call", call_of_ask()).await);
            assert_taken_back(
                &messages_of(&mut stream).await,
                &format!("{transport}, {share}"),
            );
            // A client on a pipe hears it there.
            let mut pipe = StdioProcess::launch(&["--url", &gateway.url("/mcp")], &[]);
            pipe.initialize("2025-11-25", json!({"elicitation": {}}))
                .await;
            pipe.ask(7, "tools/call", call_of_ask()).await;
            pipe.result(7).await;
            let kept = pipe.kept();
            let of = |method: &str| {
                kept.iter()
                    .find(|message| message["method"] == method)
                    .cloned()
            };
            let asked = of("elicitation/create");
            let cancelled = of("notifications/cancelled");
            let (Some(asked), Some(cancelled)) = (asked, cancelled) else {
                panic!("{transport}, {share}: {kept:?}")
            };
            assert_eq!(
                cancelled["params"]["requestId"], asked["id"],
                "{transport}, {share}"
            );
            gateway.app.stop().await;
        }
    }
}

#[tokio::test]
async fn an_answer_is_good_after_the_end_of_its_call() {
    let script = asking(json!({"later": true}));
    let mock = serve(script.clone()).await;
    for setup in [
        Setup::new().http("a", &mock.url),
        Setup::new().stdio("a", &script),
    ] {
        let gateway = setup.start().await;
        gateway.ready(&["a"]).await;
        let client = session(&gateway).await;
        let mut stream = EventStream::of(client.start(7, "tools/call", call_of_ask()).await);
        let messages = messages_of(&mut stream).await;
        assert_eq!(messages[0]["method"], "elicitation/create", "{messages:?}");
        let answer = json!({"jsonrpc": "2.0", "id": messages[0]["id"],
            "result": {"action": "accept", "content": {"name": "Ada Late"}}});
        assert_eq!(client.post(answer.to_string()).await.status, 202);
        holds("the server has the answer", || {
            gateway.record("a").contains("Ada Late")
                || mock
                    .recorded_requests()
                    .iter()
                    .any(|request| request.body.contains("Ada Late"))
        })
        .await;
        mock.reset_record();
        gateway.app.stop().await;
    }
}

/// Calls `elicit` and answers its question, wherever it is.
async fn answered(client: &McpClient) -> Value {
    let params = json!({"name": "a__elicit", "arguments": {}});
    let mut stream = EventStream::of(client.start(7, "tools/call", params).await);
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

#[tokio::test]
async fn the_first_questions_of_a_program_are_asked_whoever_else_calls_it() {
    for _ in 0..5 {
        let gateway = Setup::new().stdio("a", &legacy()).start().await;
        gateway.ready(&["a"]).await;
        let clients = [
            session(&gateway).await,
            session(&gateway).await,
            session(&gateway).await,
        ];
        let all = futures_util::future::join_all(clients.iter().map(answered)).await;
        assert!(
            all.iter().all(|answer| answer.to_string().contains("Ada")),
            "{all:?}"
        );
        gateway.app.stop().await;
    }
}

#[tokio::test]
async fn a_session_with_state_waits_for_a_long_call_rather_than_lose_its_first_question() {
    let gateway = Setup::new().stdio("a", &legacy()).start().await;
    gateway.ready(&["a"]).await;
    let [long, asking] = [session(&gateway).await, session(&gateway).await];
    for client in [&long, &asking] {
        assert_eq!(
            client.call("a__add", json!({"a": 1, "b": 1})).await.text(),
            "2"
        );
    }
    let long_call = long.call("a__sleep", json!({"ms": 1500}));
    let question = async {
        holds("the long call is open", || {
            gateway.record("a").contains("sleep")
        })
        .await;
        answered(&asking).await
    };
    let (slept, answer) = tokio::join!(long_call, question);
    assert!(answer.to_string().contains("Ada"), "{answer}");
    assert!(!slept.text().is_empty(), "the long call ran");
    assert_eq!(
        gateway.record("a").matches("\"initialize\"").count(),
        1,
        "nobody left the program"
    );
}

#[tokio::test]
async fn sessions_that_call_tools_which_do_not_ask_stay_on_one_program() {
    let gateway = Setup::new().stdio("a", &legacy()).start().await;
    gateway.ready(&["a"]).await;
    let clients = [
        session(&gateway).await,
        session(&gateway).await,
        session(&gateway).await,
    ];
    for _ in 0..20 {
        let calls = clients
            .iter()
            .map(|client| client.call("a__add", json!({"a": 1, "b": 1})));
        assert!(
            futures_util::future::join_all(calls)
                .await
                .iter()
                .all(|reply| reply.text() == "2")
        );
    }
    assert_eq!(gateway.record("a").matches("\"initialize\"").count(), 1);
}

#[tokio::test]
async fn a_first_question_is_asked_after_another_client_gave_up_its_call() {
    let gateway = Setup::new().stdio("a", &legacy()).start().await;
    gateway.ready(&["a"]).await;
    let [leaving, asking] = [session(&gateway).await, session(&gateway).await];
    let params = json!({"name": "a__hang", "arguments": {}});
    let _stream = leaving.start(9, "tools/call", params).await;
    holds("the call is open", || gateway.record("a").contains("hang")).await;
    let cancelled = json!({"requestId": 9, "reason": "enough"});
    let cancelled = messages::notification("notifications/cancelled", cancelled);
    assert_eq!(leaving.post(cancelled).await.status, 202);
    holds("the server hears of it", || {
        gateway.record("a").contains("notifications/cancelled")
    })
    .await;
    // The server may have read it or not: a request that it sends now names no call.
    let answer = answered(&asking).await;
    assert!(answer.to_string().contains("Ada"), "{answer}");
}

#[tokio::test]
async fn a_first_question_waits_for_calls_that_cannot_ask() {
    for (about, capabilities) in [
        ("a tool that ran before", json!({"elicitation": {}})),
        ("a client that cannot be asked", json!({})),
    ] {
        let gateway = Setup::new().stdio("a", &legacy()).start().await;
        gateway.ready(&["a"]).await;
        let mut other = gateway.client(Era::Legacy).await;
        other.initialize_with(capabilities).await;
        other.call("a__sleep", json!({"ms": 1})).await;
        let asking = session(&gateway).await;
        let long_call = other.call("a__sleep", json!({"ms": 1503}));
        let question = async {
            holds("the long call is open", || {
                gateway.record("a").contains("1503")
            })
            .await;
            answered(&asking).await
        };
        let (slept, answer) = tokio::join!(long_call, question);
        assert!(answer.to_string().contains("Ada"), "{about}: {answer}");
        assert!(!slept.text().is_empty(), "{about}: the long call ran");
        let programs = gateway.record("a").matches("\"initialize\"").count();
        assert_eq!(programs, 2, "{about}: a new session leaves after 0.3 s");
        gateway.app.stop().await;
    }
}
