//! What a client learns of tasks without asking for each: lists, and notifications of their states.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::pairs::cell::MatrixCell;
use crate::pairs::tasks::{OLD, answered, create};

pub(crate) async fn tasks_are_listed(cell: Arc<MatrixCell>) {
    if cell.client != OLD {
        return;
    }
    let client = cell.tasking().await;
    if cell.server != OLD {
        assert_eq!(
            client.exchange("tasks/list", json!({})).await.code(),
            -32601
        );
        return;
    }
    let mut made = Vec::new();
    for tool in ["main__job", "main__job", "main__job", "own__job"] {
        let task = create(&cell, &client, tool, json!({"ms": 1})).await;
        made.push(task["taskId"].as_str().unwrap().to_owned());
    }
    let mut listed = Vec::new();
    let mut cursor = Value::Null;
    for _ in 0..100 {
        let params = if cursor.is_null() {
            json!({})
        } else {
            json!({"cursor": cursor})
        };
        let answer = client.exchange("tasks/list", params).await;
        let tasks = answer.result()["tasks"].as_array().unwrap();
        listed.extend(
            tasks
                .iter()
                .map(|task| task["taskId"].as_str().unwrap().to_owned()),
        );
        cursor = answer.result()["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert!(cursor.is_null(), "the list does not end");
    for id in made {
        assert_eq!(
            listed.iter().filter(|other| **other == id).count(),
            1,
            "{id} in {listed:?}"
        );
    }
    for cursor in ["", "nope", "nobody:", "main:nope", "aside:"] {
        assert_eq!(
            client
                .exchange("tasks/list", json!({"cursor": cursor}))
                .await
                .code(),
            -32602,
            "{cursor:?}"
        );
    }
}

pub(crate) async fn states_of_tasks_are_told(cell: Arc<MatrixCell>) {
    if !cell.modern_client() {
        return;
    }
    let client = cell.tasking().await;
    let id = if cell.server_has_tasks() {
        let task = create(&cell, &client, "main__job_asks", json!({})).await;
        task["taskId"].as_str().unwrap().to_owned()
    } else {
        "main:nope".to_owned()
    };
    let filter = json!({"notifications": {"taskIds": [id, "nobody:nope"]}});
    let mut stream = client
        .prepare("subscriptions/listen")
        .id("\"s\"")
        .params(&filter)
        .open()
        .await;
    let first = stream
        .until("notifications/subscriptions/acknowledged")
        .await;
    if !cell.server_has_tasks() {
        assert!(
            first.value["params"]["notifications"]
                .get("taskIds")
                .is_none(),
            "{}",
            first.raw
        );
        return;
    }
    assert_eq!(
        first.value["params"]["notifications"]["taskIds"],
        json!([id])
    );
    let (asked, _) = answered(&cell, &client, &id, 1).await;
    assert_eq!(asked.len(), 1);
    loop {
        let told = stream.until("notifications/tasks").await;
        let task = &told.value["params"];
        assert_eq!(task["taskId"], id, "{}", told.raw);
        assert_eq!(task["_meta"]["io.modelcontextprotocol/subscriptionId"], "s");
        if task["status"] == "completed" {
            assert!(
                task["result"]["content"][0]["text"]
                    .as_str()
                    .unwrap()
                    .contains("Ada"),
                "{}",
                told.raw
            );
            return;
        }
        assert!(task.get("result").is_none(), "{}", told.raw);
    }
}

pub(crate) async fn what_servers_tell_of_tasks(cell: Arc<MatrixCell>) {
    if cell.client != OLD || cell.server != OLD {
        return;
    }
    crate::pairs::changes::listened_to(&cell).await;
    let one = cell.tasking().await;
    let two = cell.tasking().await;
    let mut first = one.open_server_stream().await;
    let mut second = two.open_server_stream().await;
    for (client, stream) in [(&one, &mut first), (&two, &mut second)] {
        let task = create(&cell, client, "main__job", json!({"ms": 200})).await;
        // Of the other client's task nothing came before.
        let told = stream.until("notifications/tasks/status").await;
        let told = &told.value["params"];
        assert_eq!(told["taskId"], task["taskId"]);
        assert_eq!(told["status"], "completed");
        assert_eq!(told["ttl"], 60_000);
        assert_eq!(told["pollInterval"], 50);
    }
}
