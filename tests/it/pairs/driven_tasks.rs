//! Tasks of which only one side knows: the gateway drives them for a client that declares none, and
//! makes one where a server answers at once.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::pairs::cell::MatrixCell;
use crate::pairs::tasks::{EXTENSION, OLD, RELATED, about, end, until_status};

pub(crate) async fn who_declares_no_tasks_gets_none(cell: Arc<MatrixCell>) {
    let client = cell.able().await;
    // What may be a task is not one for this client.
    assert_eq!(
        client
            .exchange_tool("main__job", json!({"ms": 1}))
            .await
            .text(),
        "slept 1 ms"
    );
    if !cell.modern_client() {
        return;
    }
    for (method, params) in [
        ("tasks/get", json!({"taskId": "main:x"})),
        (
            "tasks/update",
            json!({"taskId": "main:x", "inputResponses": {}}),
        ),
        ("tasks/cancel", json!({"taskId": "main:x"})),
        (
            "subscriptions/listen",
            json!({"notifications": {"taskIds": ["main:x"]}}),
        ),
    ] {
        let answer = client.exchange(method, params).await;
        assert_eq!(answer.code(), -32021, "{method}");
        assert_eq!(answer.status, 400, "{method}");
        assert!(
            answer.error()["data"]["requiredCapabilities"]["extensions"][EXTENSION].is_object(),
            "{answer:?}"
        );
    }
}

pub(crate) async fn what_must_be_a_task_is_driven(cell: Arc<MatrixCell>) {
    let client = cell.able().await;
    let arguments = json!({"steps": 10, "ms": 50});
    let ask = client
        .prepare("tools/call")
        .params(&json!({"name": "main__must", "arguments": arguments}));
    let answer = ask.meta(r#""progressToken":"mine""#).send().await;
    if cell.modern_client() && cell.modern_server() {
        // The server's own words, which this client has words for too.
        assert_eq!(answer.code(), -32021, "{answer:?}");
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(
            answer.error()["data"]["requiredCapabilities"]["extensions"][EXTENSION].is_object()
        );
        return;
    }
    assert_eq!(answer.text(), "10 steps", "{answer:?}");
    // SEP-2663, Task Status Notifications: progress is "not supported on tasks in general".
    let progress = answer.of("notifications/progress");
    assert_eq!(progress.is_empty(), cell.modern_server(), "{answer:?}");
    assert!(
        progress
            .iter()
            .all(|p| p.value["params"]["progressToken"] == "mine"),
        "{answer:?}"
    );
}

pub(crate) async fn a_driven_task_asks(cell: Arc<MatrixCell>) {
    if !cell.server_has_tasks() || (cell.modern_client() && cell.modern_server()) {
        return;
    }
    let client = cell.able().await;
    let accept = |_: &str, _: &Value| json!({"action": "accept", "content": {"name": "Ada"}});
    let params = json!({"name": "main__must_ask", "arguments": {}});
    let (answer, asked) = client
        .prepare("tools/call")
        .params(&params)
        .answering(accept)
        .await;
    // A client that knows of no elicitation is asked for none.
    assert_eq!(asked.len(), 1, "{answer:?}");
    assert!(asked[0]["params"]["_meta"][RELATED].is_null(), "{asked:?}");
    assert!(answer.text().contains("Ada"), "{answer:?}");
    assert!(answer.result()["_meta"][RELATED].is_null(), "{answer:?}");
}

pub(crate) async fn a_call_that_is_no_task(cell: Arc<MatrixCell>) {
    if cell.client != OLD || !cell.server_has_tasks() {
        return;
    }
    let client = cell.tasking().await;
    let params = json!({"name": "main__add", "arguments": {"a": 1, "b": 2}, "task": {}});
    let answer = client.exchange("tools/call", params).await;
    if !cell.modern_server() {
        // The server's own refusal.
        assert_eq!(answer.code(), -32601, "{answer:?}");
        return;
    }
    // The server decided to answer at once; the client still gets what it was promised.
    let task = &answer.result()["task"];
    assert_eq!(task["status"], "working");
    let id = task["taskId"].as_str().unwrap();
    until_status(&client, id, &["completed"]).await;
    let end = end(&cell, &client, id).await;
    assert_eq!(end["result"]["content"][0]["text"], "3");
    assert_eq!(about(&client, "tasks/cancel", id).await.code(), -32602);
    // A tool of a server that has no tasks at all.
    let params = json!({"name": "aside__echo", "arguments": {}, "task": {}});
    assert_eq!(client.exchange("tools/call", params).await.code(), -32601);
}
