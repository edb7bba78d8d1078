//! Tasks whose server goes, whose client goes, and handles in the wrong hands.

use moongate_mock::{FaultAction, FaultRule, MockScript, TaskRule};
use moongate_telemetry::TaskRetention;
use serde_json::{Value, json};

use crate::harness::{
    Era, Gateway, HttpClient, HttpReply, McpClient, Setup, holds, legacy, mock_at, modern, serve,
    until, within,
};

const KEYS: [&str; 2] = ["key-number-1-0123456789", "key-number-2-0123456789"];

/// A server whose tools `job` (optional) and `must` (required) wait, and `asks` asks.
fn tasking(mut script: MockScript) -> MockScript {
    let rule = TaskRule::default();
    let required = TaskRule {
        required: true,
        ..rule.clone()
    };
    for (name, behaves, rule) in [
        ("job", "sleep", &rule),
        ("must", "sleep", &required),
        ("asks", "elicit", &rule),
    ] {
        let support = if rule.required {
            "required"
        } else {
            "optional"
        };
        let execution = json!({"taskSupport": support});
        script
            .tools
            .push(json!({"name": name, "inputSchema": {"type": "object"}, "execution": execution}));
        script.behave.insert(name.into(), behaves.into());
        script.tasks.insert(name.into(), rule.clone());
    }
    script
}

fn declared() -> Value {
    let capabilities =
        json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    json!({"io.modelcontextprotocol/clientCapabilities": capabilities})
}

/// Calls a tool as a task; gives its handle.
async fn create(client: &McpClient, tool: &str, arguments: Value) -> String {
    let mut params = json!({"name": tool, "arguments": arguments});
    match client.era() {
        Era::Modern => params["_meta"] = declared(),
        Era::Legacy => params["task"] = json!({}),
    }
    let result = client.request("tools/call", params).await.result();
    let id = result["taskId"]
        .as_str()
        .or(result["task"]["taskId"].as_str());
    id.unwrap_or_else(|| panic!("no task: {result}")).to_owned()
}

async fn about(client: &McpClient, method: &str, id: &str) -> HttpReply {
    let mut params = json!({"taskId": id});
    if client.era() == Era::Modern {
        params["_meta"] = declared();
    }
    client.request(method, params).await
}

async fn code(client: &McpClient, method: &str, id: &str) -> i64 {
    about(client, method, id).await.error()["code"]
        .as_i64()
        .unwrap()
}

#[tokio::test]
async fn a_server_that_dies_takes_its_tasks_along_and_nothing_else() {
    for script in [legacy(), modern()] {
        let gateway = Setup::new()
            .stdio("a", &tasking(script.clone()))
            .stdio("b", &tasking(script))
            .start()
            .await;
        gateway.ready(&["a", "b"]).await;
        for era in [Era::Modern, Era::Legacy] {
            let client = gateway.client(era).await;
            let lost = create(&client, "a__asks", json!({})).await;
            let kept = create(&client, "b__job", json!({"ms": 1})).await;
            let asked = || async {
                (about(&client, "tasks/get", &lost).await.result()["status"] != "working")
                    .then_some(())
            };
            until("the task asks", asked).await;
            // Somebody waits for it, one way or the other.
            let (method, waiting) = match era {
                Era::Modern => ("tasks/get", client.clone()),
                Era::Legacy => (
                    "tasks/result",
                    McpClient {
                        http: HttpClient::new(),
                        ..client.clone()
                    },
                ),
            };
            let id = lost.clone();
            let waiting = tokio::spawn(async move { about(&waiting, method, &id).await });
            client.call("a__crash", json!({})).await;
            waiting.await.unwrap();
            // While it is away the handle is not wrong; when it is back, it knows nothing of it.
            let gone =
                || async { (code(&client, "tasks/get", &lost).await == -32602).then_some(()) };
            until("the server is back, without its tasks", gone).await;
            assert!(about(&client, "tasks/get", &kept).await.result()["status"].is_string());
        }
    }
}

#[tokio::test]
async fn a_disconnect_cancels_the_task_that_was_awaited_for_the_client() {
    let gateway = Setup::new().stdio("a", &tasking(legacy())).start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    let leaving = McpClient {
        http: HttpClient::new(),
        ..client.clone()
    };
    let call = tokio::spawn(async move { leaving.call("a__must", json!({"ms": 600_000})).await });
    holds("the task is waited for", || {
        gateway.record("a").contains("tasks/result")
    })
    .await;
    call.abort();
    holds("the task is cancelled", || {
        gateway.record("a").contains("tasks/cancel")
    })
    .await;
    assert_eq!(client.call("a__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn an_awaited_task_has_the_deadline_of_a_call() {
    for script in [legacy(), modern()] {
        // Time enough for the server to name its task.
        let setup = Setup::new()
            .stdio("a", &tasking(script))
            .with("servers.a", "timeout = \"2s\"");
        let gateway = setup.start().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(Era::Legacy).await;
        let reply = client.call("a__must", json!({"ms": 600_000})).await;
        assert!(reply.failure().contains("timeout"), "{reply:?}");
        holds("the task is cancelled", || {
            gateway.record("a").contains("tasks/cancel")
        })
        .await;
        assert_eq!(
            client.call("a__must", json!({"ms": 1})).await.text(),
            "slept 1 ms"
        );
    }
}

#[tokio::test]
async fn an_unrequested_task_is_a_protocol_error() {
    let mut script = modern();
    let task = json!({"resultType": "task", "taskId": "x", "status": "working", "ttlMs": null});
    script
        .tools
        .push(json!({"name": "sudden", "inputSchema": {"type": "object"}}));
    script.answers.insert("sudden".into(), task);
    let server = serve(script).await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    for era in [Era::Legacy, Era::Modern] {
        let reply = gateway.client(era).await.call("a__sudden", json!({})).await;
        assert!(reply.failure().contains("task"), "{reply:?}");
    }
}

async fn with_keys(url: &str, more: &str) -> Gateway {
    let key = |n: usize, views: &str| format!("name = \"{n}\"\nkey = {:?}{views}", KEYS[n]);
    let setup = Setup::new()
        .http("a", url)
        .http("b", url)
        .with("auth.keys.1", &key(0, ""));
    let gateway = setup
        .with("auth.keys.2", &key(1, more))
        .with("views.mine", "servers = [\"b\"]")
        .start()
        .await;
    gateway.ready(&["a", "b"]).await;
    gateway
}

#[tokio::test]
async fn a_task_handle_belongs_to_its_principal_and_survives_a_restart() {
    for script in [legacy(), modern()] {
        let server = serve(tasking(script)).await;
        for era in [Era::Modern, Era::Legacy] {
            let gateway = with_keys(&server.url, "").await;
            let client = |path: &str, n: usize| {
                let url = gateway.url(path);
                async move { McpClient::with_key(&url, era, Some(KEYS[n])).await }
            };
            let owner = client("/mcp", 0).await;
            let other = client("/mcp", 1).await;
            let handle = create(&owner, "a__job", json!({"ms": 600_000})).await;
            let parts: Vec<&str> = handle.splitn(3, ':').collect();
            let forged = [
                format!("a:{}", parts[2]),
                format!("b:{}:{}", parts[1], parts[2]),
                format!("a::{}", parts[2]),
                parts[2].to_owned(),
            ];
            for method in ["tasks/get", "tasks/cancel"] {
                assert_eq!(code(&other, method, &handle).await, -32602, "{method}");
                for forged in &forged {
                    assert_eq!(
                        code(&owner, method, forged).await,
                        -32602,
                        "{method} {forged}"
                    );
                }
                // An endpoint without the server, and one where names are the server's own: the
                // mark still counts.
                assert_eq!(
                    code(&client("/mcp/mine", 0).await, method, &handle).await,
                    -32602
                );
                assert_eq!(
                    code(&client("/mcp/a", 0).await, method, parts[2]).await,
                    -32602
                );
            }
            // One principal's tasks are not to be had from a list of everybody's.
            if era == Era::Legacy {
                assert_eq!(
                    other.request("tasks/list", json!({})).await.error()["code"],
                    -32601
                );
            }
            gateway.app.stop().await;
            let again = with_keys(&server.url, "").await;
            let owner = McpClient::with_key(&again.url("/mcp"), era, Some(KEYS[0])).await;
            assert_eq!(
                about(&owner, "tasks/get", &handle).await.result()["status"],
                "working"
            );
            about(&owner, "tasks/cancel", &handle).await.result();
            again.app.stop().await;
        }
    }
}

#[tokio::test]
async fn a_handle_of_a_renamed_server_is_unknown_and_one_of_an_absent_server_is_not() {
    let server = serve(tasking(legacy())).await;
    let address = server.addr.unwrap();
    let gateway = Setup::new().http("old", &server.url).start().await;
    gateway.ready(&["old"]).await;
    let client = gateway.client(Era::Modern).await;
    let handle = create(&client, "old__job", json!({"ms": 600_000})).await;
    gateway.app.stop().await;
    let gateway = Setup::new().http("new", &server.url).start().await;
    gateway.ready(&["new"]).await;
    let renamed = gateway.client(Era::Modern).await;
    assert_eq!(code(&renamed, "tasks/get", &handle).await, -32602);
    let handle = create(&renamed, "new__job", json!({"ms": 600_000})).await;
    server.stop().await;
    let reply = about(&renamed, "tasks/get", &handle).await.error();
    assert_eq!(reply["code"], -32603, "{reply}");
    assert!(
        reply["message"].as_str().unwrap().contains("new"),
        "{reply}"
    );
    let _back = mock_at(tasking(legacy()), address).await;
    let gone = || async { (code(&renamed, "tasks/get", &handle).await == -32602).then_some(()) };
    until("another server is there", gone).await;
}

#[tokio::test]
async fn a_task_list_shows_one_principals_tasks() {
    let key = |n: usize| format!("name = \"{n}\"\nkey = {:?}", KEYS[n]);
    let setup = Setup::new()
        .stdio("a", &tasking(legacy()))
        .with("servers.a", "share = \"principal\"");
    let gateway = setup
        .with("auth.keys.1", &key(0))
        .with("auth.keys.2", &key(1))
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let mut made = Vec::new();
    for key in KEYS {
        let client = McpClient::with_key(&gateway.url("/mcp"), Era::Legacy, Some(key)).await;
        made.push((create(&client, "a__job", json!({"ms": 1})).await, client));
    }
    for (own, client) in &made {
        let listed = client.request("tasks/list", json!({})).await.result();
        let listed: Vec<&str> = listed["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t["taskId"].as_str().unwrap())
            .collect();
        assert_eq!(listed, [own]);
    }
}

#[tokio::test]
async fn a_task_list_ends_with_its_key() {
    let key = |n: usize| format!("name = \"{n}\"\nkey = {:?}", KEYS[n]);
    let mut script = tasking(legacy());
    script
        .faults
        .push(FaultRule::on("tasks/list", FaultAction::Hang));
    let setup = Setup::new()
        .stdio("a", &script)
        .with("servers.a", "share = \"principal\"");
    let mut gateway = setup
        .with("auth.keys.1", &key(0))
        .with("auth.keys.2", &key(1))
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let client = McpClient::with_key(&gateway.url("/mcp"), Era::Legacy, Some(KEYS[0])).await;
    let listing = tokio::spawn(async move { client.request("tasks/list", json!({})).await });
    holds("the list is asked for", || {
        gateway.app.metrics.calls.inflight.get() == 1
    })
    .await;
    gateway.change(|setup| setup.without("auth.keys.1")).await;
    let error = within("an answer", listing).await.unwrap().error();
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("key of this call was removed"),
        "{error}"
    );
    holds("it is over", || {
        gateway.app.metrics.calls.inflight.get() == 0
    })
    .await;
}

#[tokio::test]
async fn task_results_are_counted_and_expire() {
    let server = serve(tasking(legacy())).await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    let id = create(&client, "a__asks", json!({})).await;
    let kept = || {
        gateway
            .app
            .metrics
            .inputs
            .tasks
            .get(TaskRetention::InputRequired)
    };
    let key = until("the task asks", || async {
        let task = about(&client, "tasks/get", &id).await.result();
        task["inputRequests"]
            .as_object()
            .and_then(|all| all.keys().next().cloned())
    })
    .await;
    assert_eq!(kept(), 1);
    // The same question under the same name, however often one looks.
    assert!(about(&client, "tasks/get", &id).await.result()["inputRequests"][&key].is_object());
    let answers = json!({key: {"action": "decline"}});
    client
        .request(
            "tasks/update",
            json!({"taskId": id, "inputResponses": answers, "_meta": declared()}),
        )
        .await
        .result();
    let over = || async {
        (about(&client, "tasks/get", &id).await.result()["status"] == "completed").then_some(())
    };
    until("the task is over", over).await;
    holds("nothing is kept", || kept() == 0).await;
}
