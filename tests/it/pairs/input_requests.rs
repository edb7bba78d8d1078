//! What servers ask of clients: elicitation, sampling, roots.

use std::sync::Arc;

use moongate_testing::wait::holds;
use moongate_testing::{McpClient, RpcAnswer};
use serde_json::{Value, json};

use crate::pairs::cell::MatrixCell;

fn reply(method: &str, _: &Value) -> Value {
    match method {
        "elicitation/create" => {
            json!({"action": "accept", "content": {"name": "Ada", "x-unknown": 1}})
        }
        "sampling/createMessage" => {
            json!({"role": "assistant", "content": {"type": "text", "text": "Hello."},
                "model": "m"})
        }
        "roots/list" => json!({"roots": [{"uri": "file:///tmp/r", "name": "r"}]}),
        other => panic!("asked for {other}"),
    }
}

async fn ask(client: &McpClient, tool: &str, arguments: Value) -> (RpcAnswer, Vec<Value>) {
    let params = json!({"name": tool, "arguments": arguments});
    client
        .prepare("tools/call")
        .params(&params)
        .answering(reply)
        .await
}

/// The one answer to a call whose question cannot reach the client: an error, or a result that is
/// one.
fn refused(answer: &RpcAnswer) {
    let end = &answer.end().value;
    let text = end["error"]["message"]
        .as_str()
        .or(end["result"]["content"][0]["text"].as_str());
    let failed = end["error"].is_object() || end["result"]["isError"] == true;
    assert!(
        failed && text.is_some_and(|t| t.len() > 10),
        "no clear refusal: {answer:?}"
    );
}

/// Calls a tool that asks one question, and checks that it was asked and answered, or refused where
/// it must be.
async fn one_question(cell: &MatrixCell, tool: &str, method: &str, possible: bool) {
    let client = cell.able().await;
    let (answer, asked) = ask(&client, tool, json!({})).await;
    if !possible {
        assert!(asked.is_empty(), "{asked:?}");
        return refused(&answer);
    }
    assert_eq!(asked.len(), 1, "{answer:?}");
    assert_eq!(asked[0]["method"], method);
    let got: Value = serde_json::from_str(answer.text()).unwrap();
    assert_eq!(got, reply(method, &Value::Null), "{answer:?}");
    assert!(answer.result()["isError"].is_null());
}

pub(crate) async fn elicitation(cell: Arc<MatrixCell>) {
    let possible = cell.server_since("2025-06-18");
    one_question(&cell, "main__elicit", "elicitation/create", possible).await;
    if !possible {
        return;
    }
    // What the server asks arrives as it was asked.
    let (_, asked) = ask(
        &cell.able().await,
        "main__elicit",
        json!({"message": "Wör?"}),
    )
    .await;
    assert_eq!(asked[0]["params"]["message"], "Wör?");
    assert_eq!(
        asked[0]["params"]["requestedSchema"]["required"],
        json!(["name"])
    );
}

pub(crate) async fn elicitation_by_url(cell: Arc<MatrixCell>) {
    let known = cell.server_since("2025-11-25") && cell.client >= "2025-11-25";
    one_question(&cell, "main__elicit_url", "elicitation/create", known).await;
}

pub(crate) async fn a_page_that_is_done(cell: Arc<MatrixCell>) {
    if cell.client != "2025-11-25" || cell.server != "2025-11-25" {
        return;
    }
    for tool in ["main__elicit_url", "own__elicit_url"] {
        let client = cell.able().await;
        let other = cell.able().await;
        let mut stream = client.open_server_stream().await;
        let mut others = other.open_server_stream().await;
        let (_, asked) = ask(&client, tool, json!({})).await;
        let done = stream.until("notifications/elicitation/complete").await;
        assert_eq!(
            done.value["params"]["elicitationId"],
            asked[0]["params"]["elicitationId"]
        );
        // Nobody else hears of it: what comes next on the other's stream is what it asked for
        // itself.
        let (_, asked) = ask(&other, tool, json!({})).await;
        let done = others.until("notifications/elicitation/complete").await;
        assert_eq!(
            done.value["params"]["elicitationId"],
            asked[0]["params"]["elicitationId"]
        );
    }
}

pub(crate) async fn two_questions(cell: Arc<MatrixCell>) {
    if !cell.server_since("2025-06-18") {
        return;
    }
    let (answer, asked) = ask(&cell.able().await, "main__elicit_twice", json!({"x": 1.0})).await;
    let questions: Vec<&Value> = asked.iter().map(|one| &one["params"]["message"]).collect();
    assert_eq!(
        questions,
        ["What is your first name?", "What is your last name?"]
    );
    let got: Value = serde_json::from_str(answer.text()).unwrap();
    assert_eq!(got["second"]["content"]["name"], "Ada");
}

pub(crate) async fn sampling(cell: Arc<MatrixCell>) {
    one_question(&cell, "main__sample", "sampling/createMessage", true).await;
}

pub(crate) async fn roots(cell: Arc<MatrixCell>) {
    // A shared connection with sessions that has one client's roots is no longer everybody's
    // (`users/roots.rs`).
    one_question(&cell, "own__roots", "roots/list", true).await;
    if cell.modern_server() {
        one_question(&cell, "main__roots", "roots/list", true).await;
    }
}

pub(crate) async fn questions_outside_of_tools(cell: Arc<MatrixCell>) {
    let client = cell.able().await;
    let asks = [
        ("prompts/get", json!({"name": "main__interview"})),
        ("resources/read", json!({"uri": "mock://private"})),
    ];
    for (method, params) in asks {
        let (answer, asked) = client
            .prepare(method)
            .params(&params)
            .answering(reply)
            .await;
        if !cell.server_since("2025-06-18") {
            assert!(asked.is_empty());
            assert!(answer.error()["message"].as_str().unwrap().len() > 10);
            continue;
        }
        assert_eq!(asked.len(), 1, "{answer:?}");
        let text = &answer.result()["contents"][0]["text"];
        let text = text
            .as_str()
            .or(answer.result()["messages"][0]["content"]["text"].as_str());
        assert!(text.is_some_and(|t| t.contains("Ada")), "{answer:?}");
    }
}

pub(crate) async fn who_cannot_be_asked_is_not(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    for tool in ["main__elicit", "main__sample", "own__roots"] {
        let (answer, asked) = ask(&client, tool, json!({})).await;
        assert!(asked.is_empty(), "{tool}: {asked:?}");
        refused(&answer);
        if cell.modern_client() && cell.modern_server() {
            assert_eq!(answer.code(), -32021, "{tool}");
            assert_eq!(answer.status, 400, "{tool}");
            assert!(
                answer.error()["data"]["requiredCapabilities"].is_object(),
                "{answer:?}"
            );
        }
    }
}

pub(crate) async fn a_refused_question_is_not_left_open(cell: Arc<MatrixCell>) {
    if !cell.modern_client() || cell.modern_server() {
        return;
    }
    let main = &cell.rig.main;
    let settled = || {
        main.received()
            .iter()
            .filter(|line| line.contains("did not declare"))
            .count()
    };
    let before = settled();
    let client = cell.client().await;
    // A tool that can do without the input answers, as it does directly.
    let answer = client
        .exchange_tool("main__sample_or_default", json!({}))
        .await;
    assert_eq!(answer.text(), "nobody was asked");
    // One that cannot fails, and the error names what the client would have to declare.
    let answer = client.exchange_tool("main__sample", json!({})).await;
    assert_eq!(answer.code(), -32021, "{answer:?}");
    assert_eq!(answer.status, 400, "{answer:?}");
    assert_eq!(
        answer.error()["data"]["requiredCapabilities"],
        json!({"sampling": {}})
    );
    holds("the server is told that nobody answers", || {
        settled() > before + 1
    })
    .await;
    assert_eq!(
        client
            .exchange_tool("main__add", json!({"a": 1, "b": 1}))
            .await
            .text(),
        "2"
    );
}

pub(crate) async fn a_client_may_decline(cell: Arc<MatrixCell>) {
    if !cell.server_since("2025-06-18") {
        return;
    }
    let client = cell.able().await;
    let params = json!({"name": "main__elicit", "arguments": {}});
    let (answer, _) = client
        .prepare("tools/call")
        .params(&params)
        .answering(|_, _| json!({"action": "decline"}))
        .await;
    assert_eq!(
        serde_json::from_str::<Value>(answer.text()).unwrap(),
        json!({"action": "decline"})
    );
    if !cell.modern_client() {
        let fails = |_: &str, _: &Value| json!({"code": -1, "message": "the user is away"});
        let (answer, _) = client
            .prepare("tools/call")
            .params(&params)
            .answering(fails)
            .await;
        refused(&answer);
    }
}

pub(crate) async fn two_ask_at_once(cell: Arc<MatrixCell>) {
    // Each client tells its server's question from the other's by what it says. Those without
    // sessions that have one principal share a connection to a legacy server on a pipe, where
    // either may be asked in the other's place.
    let one_client = cell.modern_client() && !cell.modern_server() && !cell.transport.is_http();
    let talk = |name: &'static str| {
        let cell = cell.clone();
        tokio::spawn(async move {
            let client = cell.able().await;
            let params = json!({"name": "main__sample", "arguments": {"prompt": name}});
            let say = |_: &str, asked: &Value| {
                let prompt = asked["messages"][0]["content"]["text"].as_str().unwrap();
                assert!(
                    one_client || prompt == name,
                    "another client's question: {prompt}"
                );
                json!({"role": "assistant",
                    "content": {"type": "text", "text": format!("for {prompt}")}, "model": "m"})
            };
            client
                .prepare("tools/call")
                .params(&params)
                .answering(say)
                .await
                .0
        })
    };
    for (name, talking) in ["one", "two"].map(|name| (name, talk(name))) {
        let answer = talking.await.unwrap();
        // On a pipe a question names no call; but this server was seen to ask, and of two sessions
        // one leaves.
        assert!(
            answer.text().contains(&format!("for {name}")),
            "another client's answer, or none: {answer:?}"
        );
    }
}

pub(crate) async fn a_connection_for_each_session(cell: Arc<MatrixCell>) {
    let own = &cell.rig.own;
    let client = cell.able().await;
    let me: Value =
        serde_json::from_str(client.exchange_tool("own__whoami", json!({})).await.text()).unwrap();
    // A client without a session has a connection all the same, by who it is and what it can be
    // asked for.
    assert_eq!(me["client"], json!({"name": "pairs", "version": "1"}));
    assert_eq!(me["capabilities"], cell.everything());
    if cell.modern_client() || cell.modern_server() {
        return;
    }
    let shared: Value =
        serde_json::from_str(client.exchange_tool("main__whoami", json!({})).await.text()).unwrap();
    assert_eq!(shared["client"]["name"], "moongate");
    let told = || own.of("notifications/roots/list_changed").len();
    assert_eq!(
        client
            .notify("notifications/roots/list_changed", json!({}))
            .await,
        202
    );
    holds("the server hears that the roots changed", || told() == 1).await;
    assert!(
        cell.rig
            .main
            .of("notifications/roots/list_changed")
            .is_empty(),
        "they are not everybody's"
    );
    // Their counters are apart, and end with the session.
    let count = async |client: &McpClient| {
        client
            .exchange_tool("own__counter", json!({}))
            .await
            .text()
            .to_owned()
    };
    let other = cell.able().await;
    assert_eq!(
        [
            count(&client).await,
            count(&client).await,
            count(&other).await
        ],
        ["1", "2", "1"]
    );
    let Some(handle) = &own.handle else { return };
    let open = handle.sessions();
    assert_eq!(client.delete_session().await, 204);
    holds("the connection goes with the session", || {
        handle.sessions() < open
    })
    .await;
}
