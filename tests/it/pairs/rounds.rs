//! Rounds of a stateless client: what it may bring back, and what it may not.

use std::sync::Arc;

use moongate_testing::{McpClient, RpcAnswer};
use serde_json::{Value, json};

use crate::pairs::cell::MatrixCell;

/// One question that waits for its answer.
struct WaitingInput {
    key: String,
    /// Absent where a server gave none.
    state: Option<String>,
}

fn open(answer: &RpcAnswer) -> WaitingInput {
    let result = answer.result();
    assert_eq!(result["resultType"], "input_required", "{answer:?}");
    let keys: Vec<&String> = result["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    assert_eq!(keys.len(), 1, "{answer:?}");
    WaitingInput {
        key: keys[0].clone(),
        state: result["requestState"].as_str().map(str::to_owned),
    }
}

fn name(text: &str) -> Value {
    json!({"action": "accept", "content": {"name": text}})
}

/// A retry of the tool with answers and state.
async fn retry(
    client: &McpClient,
    tool: &str,
    arguments: Value,
    answers: Value,
    state: Option<&str>,
) -> RpcAnswer {
    let mut params = json!({"name": tool, "arguments": arguments, "inputResponses": answers});
    if let Some(state) = state {
        params["requestState"] = json!(state);
    }
    client.exchange("tools/call", params).await
}

fn is_refused(answer: &RpcAnswer) {
    assert_eq!(answer.code(), -32602, "{answer:?}");
    assert_eq!(answer.status, 200, "{answer:?}");
    let message = answer.error()["message"].as_str().unwrap();
    assert!(
        message.contains("requestState") && message.contains("call again without it"),
        "{message}"
    );
}

/// Whether a stateless client can be asked for its user's name here.
fn applies(cell: &MatrixCell) -> bool {
    cell.modern_client() && cell.server_since("2025-06-18")
}

/// Checks that a state is refused with other arguments, another tool, another method and at another
/// endpoint.
async fn assert_bound_to_its_request(
    cell: &MatrixCell,
    client: &McpClient,
    state: &str,
    arguments: &Value,
    answers: &Value,
) {
    is_refused(
        &retry(
            client,
            "main__elicit",
            json!({"message": "You?"}),
            answers.clone(),
            Some(state),
        )
        .await,
    );
    is_refused(
        &retry(
            client,
            "main__elicit_twice",
            arguments.clone(),
            answers.clone(),
            Some(state),
        )
        .await,
    );
    let prompt =
        json!({"name": "main__interview", "inputResponses": answers, "requestState": state});
    is_refused(&client.exchange("prompts/get", prompt).await);
    let elsewhere = McpClient::connect(
        cell.client,
        &format!("{}/main", cell.rig.url),
        cell.everything(),
    )
    .await;
    is_refused(
        &retry(
            &elsewhere,
            "elicit",
            arguments.clone(),
            answers.clone(),
            Some(state),
        )
        .await,
    );
}

pub(crate) async fn state_is_good_for_its_own_request_only(cell: Arc<MatrixCell>) {
    if !applies(&cell) {
        return;
    }
    let client = cell.able().await;
    let arguments = || json!({"message": "Who?", "deep": {"b": [1.0, "é"], "a": null}});
    let asked = open(&client.exchange_tool("main__elicit", arguments()).await);
    let Some(state) = asked.state.as_deref() else {
        panic!("the state is missing")
    };
    let answers = || json!({ &asked.key: name("Ada") });
    let before = cell.rig.main.received().len();
    // Any other character, anywhere; cut off; another's; none at all.
    let middle = state.len() / 2;
    let flipped = if state.as_bytes()[middle] == b'A' {
        "B"
    } else {
        "A"
    };
    let changed = format!("{}{flipped}{}", &state[..middle], &state[middle + 1..]);
    for wrong in [changed.as_str(), &state[..middle], "", "mine", "AAAA"] {
        is_refused(&retry(&client, "main__elicit", arguments(), answers(), Some(wrong)).await);
    }
    let mut not_text =
        json!({"name": "main__elicit", "arguments": arguments(), "inputResponses": answers()});
    not_text["requestState"] = json!({"a": 1});
    is_refused(&client.exchange("tools/call", not_text).await);
    assert_bound_to_its_request(&cell, &client, state, &arguments(), &answers()).await;
    assert_eq!(
        cell.rig.main.received().len(),
        before,
        "nothing of it reached the server"
    );
    // None of that used the state up; and the same arguments may be spelled in another way, if
    // their server does not mind.
    let spelled = format!(
        r#""name":"main__elicit","arguments":{{ "deep":{{"a":null, "b":[1.0,"\u00e9"]}}, "message":"\u0057ho?" }},"inputResponses":{},"requestState":{}"#,
        answers(),
        json!(state)
    );
    let answer = match cell.modern_server() {
        true => retry(&client, "main__elicit", arguments(), answers(), Some(state)).await,
        false => client.prepare("tools/call").members(&spelled).send().await,
    };
    let got: Value = serde_json::from_str(answer.text()).unwrap();
    assert_eq!(got, name("Ada"), "{answer:?}");
    // Once means once, also where the server keeps no state and would take its own again.
    let before = cell.rig.main.received().len();
    is_refused(&retry(&client, "main__elicit", arguments(), answers(), Some(state)).await);
    assert_eq!(
        cell.rig.main.received().len(),
        before,
        "nothing of it reached the server"
    );
}

pub(crate) async fn what_is_missing_is_asked_again(cell: Arc<MatrixCell>) {
    if !applies(&cell) {
        return;
    }
    let client = cell.able().await;
    let first = open(&client.exchange_tool("main__elicit", json!({})).await);
    // Nothing, and something that nobody asked for.
    let other = json!({"unknown": name("Eve")});
    let again = open(
        &retry(
            &client,
            "main__elicit",
            json!({}),
            other,
            first.state.as_deref(),
        )
        .await,
    );
    let answers = json!({ &again.key: name("Ada"), "unknown": {"x": 1} });
    let answer = retry(
        &client,
        "main__elicit",
        json!({}),
        answers,
        again.state.as_deref(),
    )
    .await;
    assert_eq!(
        serde_json::from_str::<Value>(answer.text()).unwrap(),
        name("Ada"),
        "{answer:?}"
    );
}

pub(crate) async fn what_is_no_answer_is_refused(cell: Arc<MatrixCell>) {
    // A stateless server judges its answers itself.
    if !applies(&cell) || cell.modern_server() {
        return;
    }
    let client = cell.able().await;
    let first = open(&client.exchange_tool("main__elicit", json!({})).await);
    let wrong = [
        json!([]),
        json!({ &first.key: [] }),
        json!({ &first.key: {"action": "perhaps"} }),
        json!({ &first.key: 1 }),
    ];
    for answers in wrong {
        let answer = retry(
            &client,
            "main__elicit",
            json!({}),
            answers,
            first.state.as_deref(),
        )
        .await;
        assert_eq!(answer.code(), -32602, "{answer:?}");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(
            answer.error()["message"]
                .as_str()
                .unwrap()
                .contains("inputResponses"),
            "{answer:?}"
        );
    }
    let answers = json!({ &first.key: name("Ada") });
    let answer = retry(
        &client,
        "main__elicit",
        json!({}),
        answers,
        first.state.as_deref(),
    )
    .await;
    assert_eq!(
        serde_json::from_str::<Value>(answer.text()).unwrap(),
        name("Ada"),
        "{answer:?}"
    );
}

pub(crate) async fn questions_at_once_are_one_round(cell: Arc<MatrixCell>) {
    if !applies(&cell) || cell.modern_server() {
        return;
    }
    let client = cell.able().await;
    let answer = client.exchange_tool("main__ask_mixed", json!({})).await;
    let asked = answer.result()["inputRequests"]
        .as_object()
        .unwrap_or_else(|| panic!("{answer:?}"))
        .clone();
    let methods: Vec<&str> = asked
        .values()
        .map(|one| one["method"].as_str().unwrap())
        .collect();
    assert_eq!(
        methods,
        ["elicitation/create", "sampling/createMessage"],
        "{answer:?}"
    );
    let keys: Vec<&String> = asked.keys().collect();
    // One answer in each round; the other question is asked again alone.
    let half = json!({
        keys[1]: {"role": "assistant", "content": {"type": "text", "text": "Hi."}, "model": "m"} });
    let state = answer.result()["requestState"].as_str();
    let rest = open(&retry(&client, "main__ask_mixed", json!({}), half, state).await);
    assert_eq!(&rest.key, keys[0]);
    let answers = json!({ &rest.key: name("Ada") });
    let answer = retry(
        &client,
        "main__ask_mixed",
        json!({}),
        answers,
        rest.state.as_deref(),
    )
    .await;
    let got: Value = serde_json::from_str(answer.text()).unwrap();
    assert_eq!(got["name"], name("Ada"), "{answer:?}");
    assert_eq!(got["sample"]["content"]["text"], "Hi.");
}

pub(crate) async fn a_page_that_is_demanded(cell: Arc<MatrixCell>) {
    // 2025-11-25/client/elicitation.mdx, URL Elicitation Required Error.
    if cell.server != "2025-11-25" {
        return;
    }
    let client = cell.able().await;
    let answer = client.exchange_tool("main__needs_page", json!({})).await;
    if !cell.modern_client() {
        assert_eq!(answer.code(), -32042, "{answer:?}");
        assert_eq!(answer.error()["data"]["elicitations"][0]["mode"], "url");
        return;
    }
    let result = answer.result();
    assert_eq!(result["resultType"], "input_required", "{answer:?}");
    let request = &result["inputRequests"]["input-1"];
    assert_eq!(request["method"], "elicitation/create");
    assert_eq!(request["params"]["mode"], "url");
    // This revision has no such member, and no notification that would name it.
    assert!(request["params"]["elicitationId"].is_null(), "{answer:?}");
    let accepted = json!({"input-1": {"action": "accept"}});
    let answer = retry(
        &client,
        "main__needs_page",
        json!({"done": true}),
        accepted,
        result["requestState"].as_str(),
    )
    .await;
    assert_eq!(answer.text(), "the page was read");
    let unable = cell
        .client()
        .await
        .exchange_tool("main__needs_page", json!({}))
        .await;
    assert_eq!(unable.code(), -32021, "{unable:?}");
    assert_eq!(unable.status, 400, "{unable:?}");
    assert_eq!(
        unable.error()["data"]["requiredCapabilities"],
        json!({"elicitation": {"url": {}}})
    );
}

pub(crate) async fn sampling_with_tools(cell: Arc<MatrixCell>) {
    // Tools in sampling came with 2025-11-25.
    if !cell.server_since("2025-11-25") || cell.client < "2025-11-25" {
        return;
    }
    let reply = |_: &str, asked: &Value| {
        assert_eq!(asked["tools"][0]["name"], "look");
        assert_eq!(asked["includeContext"], "thisServer");
        json!({"role": "assistant",
            "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {}}], "model": "m",
            "stopReason": "toolUse"})
    };
    let params = json!({"name": "main__sample_tools", "arguments": {}});
    let client = cell.able().await;
    let (answer, asked) = client
        .prepare("tools/call")
        .params(&params)
        .answering(reply)
        .await;
    assert_eq!(asked.len(), 1, "{answer:?}");
    let got: Value = serde_json::from_str(answer.text()).unwrap();
    assert_eq!(got["stopReason"], "toolUse");
    // Who can sample, but not with tools, is not asked.
    let plain = McpClient::connect(cell.client, &cell.rig.url, json!({"sampling": {}})).await;
    let never = |_: &str, _: &Value| panic!("asked for what the client did not declare");
    let (answer, _) = plain
        .prepare("tools/call")
        .params(&params)
        .answering(never)
        .await;
    let text = answer.end().raw.clone();
    assert!(
        text.contains("sampling") && text.contains("tools"),
        "{answer:?}"
    );
}
