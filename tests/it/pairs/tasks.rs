//! Tasks: both spellings, across, and for clients and servers that have none.

use std::sync::Arc;
use std::time::Duration;

use moongate_testing::messages::MODERN;
use moongate_testing::wait::LONG;
use moongate_testing::{McpClient, RpcAnswer};
use serde_json::{Value, json};

use crate::pairs::cell::MatrixCell;

pub(super) const EXTENSION: &str = "io.modelcontextprotocol/tasks";
pub(super) const RELATED: &str = "io.modelcontextprotocol/related-task";
/// The one revision with sessions that has tasks.
pub(super) const OLD: &str = "2025-11-25";

impl MatrixCell {
    pub(super) fn client_has_tasks(&self) -> bool {
        self.client >= OLD
    }

    pub(super) fn server_has_tasks(&self) -> bool {
        self.server >= OLD
    }

    fn both(&self) -> bool {
        self.client_has_tasks() && self.server_has_tasks()
    }

    /// A client that takes tasks, and can be asked whatever its revision knows.
    pub(super) async fn tasking(&self) -> McpClient {
        self.tasking_at(&self.rig.url).await
    }

    async fn tasking_at(&self, url: &str) -> McpClient {
        let mut capabilities = self.everything();
        if self.modern_client() {
            capabilities["extensions"] = json!({EXTENSION: {}});
        }
        McpClient::connect(self.client, url, capabilities).await
    }
}

/// Calls a tool as a task; gives what was made.
pub(super) async fn create(
    cell: &MatrixCell,
    client: &McpClient,
    tool: &str,
    arguments: Value,
) -> Value {
    let mut params = json!({"name": tool, "arguments": arguments});
    if !cell.modern_client() {
        params["task"] = json!({"ttl": 60_000});
    }
    let answer = client.exchange("tools/call", params).await;
    let result = answer.result();
    if cell.modern_client() {
        assert_eq!(result["resultType"], "task", "{answer:?}");
        for absent in [
            "task",
            "content",
            "inputRequests",
            "result",
            "ttl",
            "pollInterval",
        ] {
            assert!(result.get(absent).is_none(), "{absent}: {answer:?}");
        }
        assert_eq!(result["ttlMs"], 600_000, "{answer:?}");
        assert_eq!(result["pollIntervalMs"], 50, "{answer:?}");
        return result.clone();
    }
    let task = &result["task"];
    // A server without sessions hears of no wish.
    let ttl = if cell.modern_server() {
        600_000
    } else {
        60_000
    };
    assert_eq!(task["ttl"], json!(ttl), "{answer:?}");
    assert_eq!(task["pollInterval"], 50, "{answer:?}");
    for absent in ["ttlMs", "pollIntervalMs", "inputRequests", "result"] {
        assert!(task.get(absent).is_none(), "{absent}: {answer:?}");
    }
    assert!(
        result.get("taskId").is_none() && result.get("resultType").is_none(),
        "{answer:?}"
    );
    task.clone()
}

pub(super) async fn about(client: &McpClient, method: &str, id: &str) -> RpcAnswer {
    client.exchange(method, json!({"taskId": id})).await
}

/// Looks at a task until it has one of these statuses.
pub(super) async fn until_status(client: &McpClient, id: &str, wanted: &[&str]) -> Value {
    let looking = async {
        loop {
            let answer = about(client, "tasks/get", id).await;
            let task = answer.result().clone();
            assert_eq!(task["taskId"], id, "{answer:?}");
            assert!(
                task["createdAt"].is_string() && task["lastUpdatedAt"].is_string(),
                "{answer:?}"
            );
            if wanted.contains(&task["status"].as_str().unwrap()) {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, looking)
        .await
        .unwrap_or_else(|_| panic!("{id} never was one of {wanted:?}"))
}

/// What the task came to, as its call would have.
pub(super) async fn end(cell: &MatrixCell, client: &McpClient, id: &str) -> Value {
    if cell.modern_client() {
        let task = until_status(client, id, &["completed", "failed", "cancelled"]).await;
        assert_eq!(task["resultType"], "complete");
        assert!(task["result"]["_meta"][RELATED].is_null(), "{task}");
        return json!({"result": task["result"], "error": task["error"]});
    }
    let answer = about(client, "tasks/result", id).await;
    let end = answer.end().value.clone();
    if end["result"].is_object() {
        assert_eq!(end["result"]["_meta"][RELATED]["taskId"], id, "{answer:?}");
    }
    end
}

pub(crate) async fn a_task_from_its_call_to_its_end(cell: Arc<MatrixCell>) {
    let client = cell.tasking().await;
    if !cell.both() {
        // Neither side is troubled with what the other does not know.
        let params = json!({"name": "main__job", "arguments": {"ms": 1}, "task": {"ttl": 1}});
        let answer = client.exchange("tools/call", params).await;
        assert_eq!(answer.text(), "slept 1 ms");
        assert!(
            !cell
                .rig
                .main
                .calls("job")
                .pop()
                .unwrap()
                .contains("\"task\"")
        );
        return;
    }
    let task = create(&cell, &client, "main__job", json!({"ms": 30})).await;
    assert_eq!(task["status"], "working");
    let id = task["taskId"].as_str().unwrap();
    assert!(id.starts_with("main:"), "{id} does not say whose it is");
    let end = end(&cell, &client, id).await;
    assert_eq!(end["result"]["content"][0]["text"], "slept 30 ms");
    until_status(&client, id, &["completed"]).await;
    // The server's name for it never had ours around it.
    for line in cell.rig.main.received() {
        assert!(!line.contains("\"main:"), "{line}");
    }
}

pub(crate) async fn tools_say_what_may_be_a_task(cell: Arc<MatrixCell>) {
    let answer = cell.client().await.exchange("tools/list", json!({})).await;
    let tools = answer.result()["tools"].as_array().unwrap();
    let of = |name: &str| &tools.iter().find(|tool| tool["name"] == name).unwrap()["execution"]["taskSupport"];
    let want = match (cell.server, cell.client) {
        (OLD, _) | (MODERN, OLD) => json!("optional"),
        _ => Value::Null,
    };
    assert_eq!(*of("main__job"), want);
    assert_eq!(
        *of("main__must"),
        if cell.server == OLD {
            json!("required")
        } else {
            want
        }
    );
    // This server has no tasks.
    assert!(of("aside__echo").is_null());
}

pub(crate) async fn tasks_are_announced(cell: Arc<MatrixCell>) {
    if cell.modern_client() {
        let answer = cell
            .client()
            .await
            .exchange("server/discover", json!({}))
            .await;
        let capabilities = &answer.result()["capabilities"];
        assert_eq!(
            capabilities["extensions"][EXTENSION].is_object(),
            cell.server_has_tasks(),
            "{answer:?}"
        );
        assert!(capabilities.get("tasks").is_none());
        return;
    }
    let client = McpClient::new(cell.client, &cell.rig.url, json!({}));
    let answer = client.negotiate(cell.client).await;
    let capabilities = &answer.result()["capabilities"];
    assert!(
        capabilities["extensions"].get(EXTENSION).is_none(),
        "{answer:?}"
    );
    if !cell.both() {
        assert!(capabilities.get("tasks").is_none(), "{answer:?}");
        return;
    }
    assert!(
        capabilities["tasks"]["requests"]["tools"]["call"].is_object(),
        "{answer:?}"
    );
    assert!(capabilities["tasks"]["cancel"].is_object());
    // What no server of the later revision can list is not listed.
    assert_eq!(
        capabilities["tasks"]["list"].is_object(),
        cell.server == OLD
    );
}

/// Answers the questions of a task; gives what it was asked and came to.
pub(super) async fn answered(
    cell: &MatrixCell,
    client: &McpClient,
    id: &str,
    questions: usize,
) -> (Vec<Value>, Value) {
    let accept = || json!({"action": "accept", "content": {"name": "Ada"}});
    let mut asked = Vec::new();
    if cell.modern_client() {
        while asked.len() < questions {
            let task = until_status(client, id, &["input_required"]).await;
            let requests = task["inputRequests"].as_object().unwrap().clone();
            assert!(!requests.is_empty(), "{task}");
            // Whom nobody asked is not heard, and the others still are.
            let stranger = json!({"taskId": id, "inputResponses": {"nobody": accept()}});
            assert!(
                client
                    .exchange("tasks/update", stranger)
                    .await
                    .result()
                    .get("taskId")
                    .is_none()
            );
            for (key, request) in requests {
                let params = json!({"taskId": id, "inputResponses": {key: accept()}});
                assert_eq!(
                    client.exchange("tasks/update", params).await.result()["resultType"],
                    "complete"
                );
                asked.push(request);
            }
        }
        return (asked, end(cell, client, id).await);
    }
    let params = json!({"taskId": id});
    let (answer, asked) = client
        .prepare("tasks/result")
        .params(&params)
        .answering(|_, _| accept())
        .await;
    for one in &asked {
        assert_eq!(one["params"]["_meta"][RELATED]["taskId"], id, "{one}");
    }
    (asked, answer.end().value.clone())
}

pub(crate) async fn what_a_task_asks(cell: Arc<MatrixCell>) {
    if !cell.both() {
        return;
    }
    let client = cell.tasking().await;
    for tool in ["main__job_asks", "main__job_eager"] {
        let task = create(&cell, &client, tool, json!({"message": "Wör?"})).await;
        let id = task["taskId"].as_str().unwrap();
        let (asked, end) = answered(&cell, &client, id, 1).await;
        assert_eq!(asked.len(), 1, "{tool}: {asked:?}");
        assert_eq!(asked[0]["method"], "elicitation/create");
        assert_eq!(asked[0]["params"]["message"], "Wör?");
        let text = end["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{tool}: {end}"));
        assert_eq!(
            serde_json::from_str::<Value>(text).unwrap()["content"]["name"],
            "Ada"
        );
    }
    let task = create(&cell, &client, "main__job_asks_twice", json!({})).await;
    let (asked, end) = answered(&cell, &client, task["taskId"].as_str().unwrap(), 2).await;
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(
        end["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("second"),
        "{end}"
    );
}

pub(crate) async fn how_tasks_fail(cell: Arc<MatrixCell>) {
    if !cell.both() {
        return;
    }
    let client = cell.tasking().await;
    let task = create(&cell, &client, "main__job_fails", json!({"text": "no"})).await;
    let id = task["taskId"].as_str().unwrap();
    let outcome = end(&cell, &client, id).await;
    assert_eq!(outcome["result"]["isError"], json!(true));
    assert_eq!(outcome["result"]["content"][0]["text"], "no");
    // The later spelling keeps this word for errors of the protocol.
    let word = if cell.modern_client() {
        "completed"
    } else {
        "failed"
    };
    until_status(&client, id, &[word]).await;
    let task = create(
        &cell,
        &client,
        "main__job_errors",
        json!({"code": -32050, "message": "no"}),
    )
    .await;
    let id = task["taskId"].as_str().unwrap();
    let outcome = end(&cell, &client, id).await;
    assert_eq!(outcome["error"]["code"], -32050);
    assert_eq!(outcome["error"]["message"], "no");
    assert!(outcome["result"].is_null());
    until_status(&client, id, &["failed"]).await;
    for retired in [-32002, -32042] {
        let task = create(
            &cell,
            &client,
            "main__job_errors",
            json!({"code": retired, "message": "no"}),
        )
        .await;
        let outcome = end(&cell, &client, task["taskId"].as_str().unwrap()).await;
        let is_translated = cell.modern_client() && !cell.modern_server();
        assert_eq!(
            outcome["error"]["code"],
            if is_translated { -32602 } else { retired }
        );
    }
}

pub(crate) async fn tasks_are_cancelled(cell: Arc<MatrixCell>) {
    if !cell.both() {
        return;
    }
    let client = cell.tasking().await;
    let task = create(&cell, &client, "main__job", json!({"ms": 600_000})).await;
    let id = task["taskId"].as_str().unwrap();
    let first = about(&client, "tasks/cancel", id).await;
    if cell.modern_client() {
        assert_eq!(first.result()["resultType"], "complete");
        for absent in ["taskId", "status"] {
            assert!(first.result().get(absent).is_none(), "{first:?}");
        }
    } else {
        assert_eq!(first.result()["status"], "cancelled");
        assert_eq!(first.result()["taskId"], json!(id));
    }
    until_status(&client, id, &["cancelled"]).await;
    let again = about(&client, "tasks/cancel", id).await;
    if cell.modern_client() {
        again.result();
    } else {
        assert_eq!(again.code(), -32602, "{again:?}");
        assert!(about(&client, "tasks/result", id).await.error()["message"].is_string());
    }
}

pub(crate) async fn handles_lead_nowhere_else(cell: Arc<MatrixCell>) {
    if !cell.client_has_tasks() {
        let answer = about(&cell.client().await, "tasks/get", "main:x").await;
        assert_eq!(answer.code(), -32601);
        return;
    }
    let client = cell.tasking().await;
    let mut wrong: Vec<String> = [
        "",
        "nope",
        ":",
        "main:",
        "main:nope",
        "aside:nope",
        "nobody:nope",
    ]
    .map(str::to_owned)
    .to_vec();
    if cell.server_has_tasks() {
        let task = create(&cell, &client, "main__job", json!({"ms": 1})).await;
        wrong.push(task["taskId"].as_str().unwrap().replace("main:", "own:"));
        wrong.push(task["taskId"].as_str().unwrap().replace("main:", ""));
    }
    let last = if cell.modern_client() {
        "tasks/update"
    } else {
        "tasks/result"
    };
    for id in wrong {
        for method in ["tasks/get", "tasks/cancel", last] {
            let answer = client
                .exchange(method, json!({"taskId": id, "inputResponses": {}}))
                .await;
            assert_eq!(answer.code(), -32602, "{method} {id:?}: {answer:?}");
            assert_eq!(answer.status, 200, "{method} {id:?}: {answer:?}");
        }
    }
    assert_eq!(
        client
            .exchange("tasks/get", json!({"taskId": 7}))
            .await
            .code(),
        -32602
    );
    let other = if cell.modern_client() {
        ["tasks/result", "tasks/list"]
    } else {
        ["tasks/update", "tasks/nope"]
    };
    for method in other {
        assert_eq!(
            about(&client, method, "main:x").await.code(),
            -32601,
            "{method}"
        );
    }
}

pub(crate) async fn tasks_on_an_endpoint_of_its_own(cell: Arc<MatrixCell>) {
    if !cell.both() {
        return;
    }
    let client = cell.tasking_at(&format!("{}/main", cell.rig.url)).await;
    let task = create(&cell, &client, "job_link", json!({})).await;
    let id = task["taskId"].as_str().unwrap();
    assert!(!id.contains(':'), "{id} is not the server's own");
    let outcome = end(&cell, &client, id).await;
    assert_eq!(outcome["result"]["content"][0]["uri"], "mock://static/text");
    // Over everything, the links of a task's result lead back to its server.
    let client = cell.tasking().await;
    let task = create(&cell, &client, "main__job_link", json!({})).await;
    let outcome = end(&cell, &client, task["taskId"].as_str().unwrap()).await;
    assert_eq!(
        outcome["result"]["content"][0]["uri"],
        "moongate:main:mock://static/text"
    );
}
