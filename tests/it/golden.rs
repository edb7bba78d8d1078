//! Golden bytes: for each revision, what a client of it sends and gets, and what a server of it is
//! sent and sends.
//!
//! The files in `tests/golden/REVISION/` are reviewed by eye against the specification;
//! `UPDATE_GOLDEN=1` writes them again. What differs from run to run (ids of the gateway's own,
//! session ids, versions) is replaced; everything else is byte for byte as it was on the wire.

mod golden_files;
mod golden_text;

use std::collections::BTreeMap;

use moongate::app::GatewayApp;
use moongate_mock::{ContentPreset, MockHandle, MockScript, Revision, TaskRule, serve_http};
use moongate_protocol::SUPPORTED;
use moongate_testing::messages::MODERN;
use moongate_testing::wait::{LONG, holds};
use moongate_testing::{EventStream, McpClient};
use serde_json::{Value, json};

use crate::wire::tap::Tap;
use golden_files::{compare, directory};
use golden_text::GoldenText;

/// A gateway with one server of the same revision as its client, and a tap on both sides.
struct GoldenStage {
    revision: &'static str,
    front: Tap,
    back: Tap,
    client: McpClient,
    server: MockHandle,
    app: GatewayApp,
    /// The cases that were played: name and text.
    played: BTreeMap<String, String>,
    _dir: tempfile::TempDir,
}

fn script(revision: &str) -> MockScript {
    let mut script = MockScript {
        name: "golden".into(),
        instructions: Some("Golden instructions.".into()),
        preset: ContentPreset::Empty,
        ..MockScript::default().speaking(&[Revision::of(revision).unwrap()])
    };
    let schema = json!({"type": "object"});
    let tool = |name: &str| json!({"name": name, "inputSchema": schema});
    script.tools = ["echo", "progress", "error", "elicit"].map(tool).to_vec();
    script.tools.push(json!(
        r#"{"name":"odd","inputSchema":{"type":"object"},"x-unknown":[1.0, 1e5]}"#
    ));
    if revision >= "2025-11-25" {
        // It asks, so that it stays as it is until it is answered.
        script.tools.push(
            json!({"name": "job", "inputSchema": schema, "execution": {"taskSupport": "required"}}),
        );
        script.behave.insert("job".into(), "elicit".into());
        script.tasks.insert(
            "job".into(),
            TaskRule {
                required: true,
                ..TaskRule::default()
            },
        );
    }
    script.resources = vec![json!({"uri": "a://b", "name": "b"})];
    script
}

impl GoldenStage {
    async fn set(revision: &'static str, server_revision: &'static str) -> Self {
        let server = serve_http(script(server_revision), "127.0.0.1:0".parse().unwrap())
            .await
            .unwrap();
        let back = Tap::before(server.addr.unwrap()).await;
        let dir = tempfile::tempdir().unwrap();
        // Else the first call of a legacy client also tries the server's other era.
        let entry = format!("url = {}\nprotocol = \"newest\"\n", json!(back.url));
        let config = format!("[gateway]\nadmin = false\ndrain = \"100ms\"\n\n[servers.s]\n{entry}");
        let app = crate::wire::rig::start(&dir, &config).await;
        let front = Tap::before(app.addresses[0]).await;
        holds("the server is listened to", || server.listeners() > 0).await;
        let key = moongate_jsonrpc::json::ByteString::from("a://b");
        let find = || {
            app.gateway
                .snapshot()
                .find_exposed(moongate_model::ItemKind::Resources, &key)
                .is_some()
        };
        holds("the server is listed", find).await;
        let client = McpClient::new(revision, &front.url, json!({"elicitation": {}}));
        let played = BTreeMap::new();
        GoldenStage {
            revision,
            front,
            back,
            client,
            server,
            app,
            played,
            _dir: dir,
        }
    }

    fn is_modern(&self) -> bool {
        self.revision >= MODERN
    }

    fn begin(&mut self) {
        self.front.mark();
        self.back.mark();
    }

    /// Ends a case: what was said since it began becomes its text.
    fn end(&mut self, name: &str) {
        let front = self.front.fresh();
        let back = self.back.fresh();
        let mut text = GoldenText::default();
        for n in 0..front.len().max(back.len()) {
            if let Some(exchange) = front.get(n) {
                text.request("client -> gateway", exchange);
            }
            if let Some(exchange) = back.get(n) {
                text.request("gateway -> server", exchange);
                text.answer("gateway <- server", exchange);
            }
            if let Some(exchange) = front.get(n) {
                text.answer("client <- gateway", exchange);
            }
        }
        let late = self.back.late();
        if !late.is_empty() {
            text.add(
                "gateway <- server, on the stream that was open before",
                &format!("\n{late}"),
            );
        }
        let known = self.played.insert(name.to_owned(), text.text);
        assert!(known.is_none(), "{name} was played before");
    }

    async fn play(&mut self, name: &str, method: &str, members: &str, meta: &str) {
        self.begin();
        self.client
            .prepare(method)
            .id(r#""\u0031""#)
            .members(members)
            .meta(meta)
            .send()
            .await
            .end();
        self.end(name);
    }
}

// === the cases ===

/// How the gateway opens its server. The streams for changes come when they come, and are shown
/// last.
fn opened(stage: &mut GoldenStage) {
    let mut all = stage.back.fresh();
    all.sort_by_key(|exchange| {
        exchange.method == "GET" || exchange.body.contains("subscriptions/listen")
    });
    let mut text = GoldenText::default();
    for exchange in &all {
        text.request("gateway -> server", exchange);
        text.answer("gateway <- server", exchange);
    }
    stage.played.insert("server-opened".to_owned(), text.text);
}

async fn opening(stage: &mut GoldenStage) {
    stage.begin();
    if stage.is_modern() {
        stage
            .client
            .prepare("server/discover")
            .id("1")
            .send()
            .await
            .result();
    } else {
        let capabilities = json!({"elicitation": {}});
        stage.client = McpClient::connect(stage.revision, &stage.front.url, capabilities).await;
    }
    stage.end("opening");
}

async fn calls(stage: &mut GoldenStage) {
    stage.play("tools-list", "tools/list", "", "").await;
    let echo = r#""name":"s__echo","arguments":{"n":1.0, "e":"\u00e9"}"#;
    stage
        .play("tools-call", "tools/call", echo, r#""com.example/k":1E5"#)
        .await;
    stage
        .play("resources-read", "resources/read", r#""uri":"a://b""#, "")
        .await;
    let steps = r#""name":"s__progress","arguments":{"steps":2}"#;
    stage
        .play(
            "progress",
            "tools/call",
            steps,
            r#""progressToken":"\u0074""#,
        )
        .await;
    let error = r#""name":"s__error","arguments":{"code":-32002,"message":"no"}"#;
    stage.play("server-error", "tools/call", error, "").await;
    stage
        .play("unknown-tool", "tools/call", r#""name":"s__nope""#, "")
        .await;
    stage
        .play(
            "unknown-resource",
            "resources/read",
            r#""uri":"nope://x""#,
            "",
        )
        .await;
    stage
        .play("unknown-method", "com.example/nope", "", "")
        .await;
}

async fn elicitation(stage: &mut GoldenStage, name: &str, answers_alone: bool) {
    stage.begin();
    let accept = |_: &str, _: &Value| json!({"action": "accept", "content": {"name": "Ada"}});
    let members = r#""name":"s__elicit","arguments":{}"#;
    let (answer, _) = stage
        .client
        .prepare("tools/call")
        .id("7")
        .members(members)
        .answering(accept)
        .await;
    answer.end();
    // The answer to the server goes its own way, and is not waited for by what the client gets.
    let posts = if answers_alone { 2 } else { 1 };
    holds("the server has its answer", || {
        stage.back.fresh().iter().filter(|e| e.status > 0).count() >= posts
    })
    .await;
    stage.end(name);
}

/// Calls the tool that becomes a task. Returns the task's id.
async fn create_task(stage: &mut GoldenStage) -> String {
    stage.begin();
    let wish = if stage.is_modern() {
        ""
    } else {
        r#","task":{"ttl":60000}"#
    };
    let members = format!(r#""name":"s__job","arguments":{{}}{wish}"#);
    let answer = stage
        .client
        .prepare("tools/call")
        .id("1")
        .members(&members)
        .send()
        .await;
    let result = answer.result().clone();
    stage.end("task-created");
    result["taskId"]
        .as_str()
        .or(result["task"]["taskId"].as_str())
        .unwrap()
        .to_owned()
}

/// Waits for the result of a task, and answers its question on the way.
async fn await_task_result(stage: &mut GoldenStage, of: &str) {
    stage.begin();
    let accept = |_: &str, _: &Value| json!({"action": "accept", "content": {"name": "Ada"}});
    stage
        .client
        .prepare("tasks/result")
        .id("7")
        .members(of)
        .answering(accept)
        .await
        .0
        .result();
    // The answer to the server goes its own way, and is not waited for by what the client gets.
    holds("the server has its answer", || {
        stage.back.fresh().iter().filter(|e| e.status > 0).count() >= 2
    })
    .await;
    stage.end("task-result");
}

/// A task from its call to its end, with a question: in one file for each request.
async fn tasks(stage: &mut GoldenStage) {
    if stage.revision < "2025-11-25" {
        return;
    }
    let declared = json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    if stage.is_modern() {
        stage.client = McpClient::new(stage.revision, &stage.front.url, declared);
    }
    let id = create_task(stage).await;
    let asks = async {
        loop {
            let answer = stage
                .client
                .exchange("tasks/get", json!({"taskId": id}))
                .await;
            if answer.result()["status"] == "input_required" {
                return answer.result().clone();
            }
        }
    };
    let asked = tokio::time::timeout(LONG, asks).await.unwrap();
    let of = json!({"taskId": id}).to_string();
    let of = &of[1..of.len() - 1];
    stage.play("task-get", "tasks/get", of, "").await;
    if let Some(key) = asked["inputRequests"]
        .as_object()
        .and_then(|all| all.keys().next())
    {
        let responses = json!({key: {"action": "accept", "content": {"name": "Ada"}}});
        stage
            .play(
                "task-update",
                "tasks/update",
                &format!(r#"{of},"inputResponses":{responses}"#),
                "",
            )
            .await;
    } else {
        await_task_result(stage, of).await;
        stage.play("task-list", "tasks/list", "", "").await;
    }
    let over = async {
        while stage
            .client
            .exchange("tasks/get", json!({"taskId": id}))
            .await
            .result()["status"]
            != "completed"
        {}
    };
    tokio::time::timeout(LONG, over).await.unwrap();
    stage.play("task-over", "tasks/get", of, "").await;
    stage.play("task-cancelled", "tasks/cancel", of, "").await;
    stage
        .play("task-unknown", "tasks/get", r#""taskId":"s:nope""#, "")
        .await;
    if stage.is_modern() {
        stage.client = McpClient::new(stage.revision, &stage.front.url, json!({"elicitation": {}}));
        stage
            .play("task-undeclared", "tasks/get", r#""taskId":"s:nope""#, "")
            .await;
        stage
            .play("task-required", "tools/call", r#""name":"s__job""#, "")
            .await;
    }
}

async fn changes(stage: &mut GoldenStage) {
    stage.begin();
    let mut stream = if stage.is_modern() {
        let filter = json!({"notifications": {"toolsListChanged": true}});
        let mut stream = stage
            .client
            .prepare("subscriptions/listen")
            .id(r#""s\u0031""#)
            .params(&filter)
            .open()
            .await;
        stream
            .until("notifications/subscriptions/acknowledged")
            .await;
        stream
    } else {
        stage.client.open_server_stream().await
    };
    stage
        .server
        .change_tools_and_notify(&[json!({"name": "new", "inputSchema": {"type": "object"}})]);
    stream.until("notifications/tools/list_changed").await;
    stage.end("changes");
}

/// The client comes back for the answer of the progress case, from behind its first event.
async fn resumption(stage: &mut GoldenStage) {
    stage.begin();
    let last = [("last-event-id", "1-1".to_owned())];
    let mut stream = EventStream::of(stage.client.raw("GET", &last, "").await);
    while stream.next_message().await.is_some() {}
    stage.end("resumption");
}

/// The client's side of HTTP+SSE.
async fn http_sse(stage: &mut GoldenStage) {
    stage.begin();
    let url = stage.front.url.replace("/mcp", "/sse");
    let client = McpClient::connect(stage.revision, &url, json!({})).await;
    client
        .prepare("tools/call")
        .id(r#""\u0031""#)
        .members(r#""name":"s__echo","arguments":{"n":1.0}"#)
        .send()
        .await
        .result();
    client
        .prepare("com.example/nope")
        .id("2")
        .send()
        .await
        .error();
    drop(client);
    stage.end("http-sse");
}

async fn batch(stage: &mut GoldenStage) {
    stage.begin();
    let body = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":"\u0032","method":"tools/call","params":{"name":"s__new"}}]"#;
    let headers = if stage.is_modern() {
        vec![("mcp-protocol-version", stage.revision.to_owned())]
    } else {
        vec![]
    };
    let mut stream = EventStream::of(stage.client.raw("POST", &headers, body).await);
    while stream.next_message().await.is_some() {}
    stage.end("batch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bytes_on_both_sides_are_golden() {
    let mut wrong = Vec::new();
    let mut cases = 0;
    for revision in SUPPORTED {
        let mut stage = GoldenStage::set(revision, revision).await;
        opened(&mut stage);
        opening(&mut stage).await;
        calls(&mut stage).await;
        if ("2025-03-26".."2026").contains(&revision) {
            resumption(&mut stage).await;
        }
        if revision == "2024-11-05" {
            http_sse(&mut stage).await;
        }
        let answers_alone = !stage.is_modern() && stage.revision >= "2025-06-18";
        elicitation(&mut stage, "elicitation", answers_alone).await;
        tasks(&mut stage).await;
        changes(&mut stage).await;
        batch(&mut stage).await;
        // The same across the eras: the newest server of the other one.
        let mut across = GoldenStage::set(
            revision,
            if stage.is_modern() {
                "2025-11-25"
            } else {
                MODERN
            },
        )
        .await;
        opening(&mut across).await;
        across.played.clear();
        elicitation(&mut across, "elicitation-across", true).await;
        stage.played.append(&mut across.played);
        across.app.stop().await;
        cases += stage.played.len();
        wrong.extend(compare(revision, &stage.played));
        stage.app.stop().await;
    }
    assert!(
        cases >= SUPPORTED.len() * 10,
        "only {cases} cases were played"
    );
    assert!(
        wrong.is_empty(),
        "{} of {cases} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_golden_directory_is_a_revision() {
    let directories = std::fs::read_dir(directory("")).unwrap();
    let names: Vec<String> = directories
        .map(|d| d.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), SUPPORTED.len(), "{names:?}");
    assert!(
        names.iter().all(|name| SUPPORTED.contains(&name.as_str())),
        "{names:?}"
    );
}
