//! Tasks over `moongate stdio`, and the reports of their statuses.

use moongate_mock::{MockScript, Revision, TaskRule};
use serde_json::json;

use super::{both, bridge};
use crate::harness::{Setup, serve};

/// A server of both eras with a tool that runs as a task.
fn with_job(rule: TaskRule) -> MockScript {
    let mut script = MockScript::standard();
    let execution = json!({"taskSupport": "optional"});
    script
        .tools
        .push(json!({"name": "job", "inputSchema": {"type": "object"}, "execution": execution}));
    script.behave.insert("job".into(), "sleep".into());
    script.tasks.insert("job".into(), rule);
    script
}

#[tokio::test]
async fn a_status_before_the_answer_of_its_call_is_kept() {
    let rule = TaskRule {
        tell: true,
        tell_first: true,
        ..TaskRule::default()
    };
    let (pipes, _setup, _gateway) = both(&with_job(rule).speaking(&[Revision::V2025_11_25])).await;
    for (form, mut pipe) in pipes {
        pipe.initialize("2025-11-25", json!({})).await;
        pipe.ask(
            1,
            "tools/call",
            json!({"name": "s__job", "arguments": {"ms": 200}, "task": {}}),
        )
        .await;
        let id = pipe.result(1).await["task"]["taskId"].clone();
        for status in ["working", "completed"] {
            let told = pipe.notification("notifications/tasks/status").await;
            assert_eq!(told["params"]["taskId"], id, "{form}");
            assert_eq!(told["params"]["status"], status, "{form}");
        }
    }
}

#[tokio::test]
async fn a_bridge_lists_the_tasks_of_a_legacy_client_and_reports_their_statuses() {
    let script = with_job(TaskRule {
        tell: true,
        ..TaskRule::default()
    });
    for script in [script.clone(), script.speaking(&[Revision::V2025_11_25])] {
        let is_legacy = script.revisions == [Revision::V2025_11_25];
        let mock = serve(script).await;
        let gateway = Setup::new().http("s", &mock.url).start().await;
        gateway.ready(&["s"]).await;
        let mut pipe = bridge(&gateway);
        let capabilities = pipe.initialize("2025-11-25", json!({})).await["capabilities"].clone();
        // A gateway whose server cannot list tasks offers none, with and without a bridge.
        assert_eq!(
            capabilities["tasks"]["list"].is_object(),
            is_legacy,
            "{capabilities}"
        );
        assert!(
            capabilities["tasks"]["requests"]["tools"]["call"].is_object(),
            "{capabilities}"
        );
        pipe.ask(
            1,
            "tools/call",
            json!({"name": "s__job", "arguments": {"ms": 200}, "task": {}}),
        )
        .await;
        let id = pipe.result(1).await["task"]["taskId"].clone();
        assert!(id.is_string(), "{id}");
        if is_legacy {
            let told = pipe.notification("notifications/tasks/status").await;
            assert_eq!(told["params"]["taskId"], id);
            assert_eq!(told["params"]["status"], "completed");
            pipe.ask(2, "tasks/list", json!({})).await;
            let listed = pipe.result(2).await;
            assert_eq!(listed["tasks"][0]["taskId"], id, "{listed}");
        }
        // A request without a session on the same pipe is served, too.
        pipe.ask_modern(
            3,
            "tools/call",
            json!({"name": "s__echo", "arguments": {"n": 3}}),
        )
        .await;
        assert_eq!(pipe.result(3).await["content"][0]["text"], r#"{"n":3}"#);
    }
}
